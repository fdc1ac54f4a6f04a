//! Who computes ways by another formula than this node: told, since two nodes may
//! then each believe the other to be closer, and never refused.

use crate::route::Formula;
use crate::wire::NodeId;
use std::collections::BTreeMap;

/// Bounded by the nodes in the database.
#[derive(Debug)]
pub(super) struct Formulas {
    own: Formula,
    others: BTreeMap<NodeId, Option<Formula>>,
    changes: u64,
}

impl Formulas {
    pub fn new(own: Formula) -> Formulas {
        Formulas { own, others: BTreeMap::new(), changes: 0 }
    }

    /// What the database has of `node` now, as
    /// [`Database::formula`](super::database::Database::formula).
    pub fn note(&mut self, node: NodeId, said: Option<Option<Formula>>) {
        let other = said.filter(|formula| *formula != Some(self.own));
        let changed = match other {
            Some(formula) => self.others.insert(node, formula) != Some(formula),
            None => self.others.remove(&node).is_some(),
        };
        self.changes += u64::from(changed);
    }

    /// The nodes that differ and by what formula they compute, ascending by id.
    pub fn others(&self) -> impl Iterator<Item = (NodeId, Option<Formula>)> {
        self.others.iter().map(|(node, formula)| (*node, *formula))
    }

    /// How often [`Formulas::others`] has changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_of_those_that_differ() {
        let mut formulas = Formulas::new(Formula::Measured);
        let (a, b) = (NodeId(1), NodeId(2));
        let paper = Some(Some(Formula::Paper));
        for (node, said, changes, others) in [
            (a, Some(Some(Formula::Measured)), 0, 0),
            (a, paper, 1, 1),
            (a, paper, 1, 1),
            (b, Some(None), 2, 2),
            (b, paper, 3, 2),
            (b, Some(Some(Formula::Measured)), 4, 1),
            (a, None, 5, 0),
            (a, None, 5, 0),
        ] {
            formulas.note(node, said);
            assert_eq!((formulas.changes(), formulas.others().count()), (changes, others));
        }
    }
}
