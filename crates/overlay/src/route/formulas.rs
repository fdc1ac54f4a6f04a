//! Who computes ways by another formula than this node: told, since two nodes may
//! then each believe the other to be closer, and never refused.

use crate::route::Formula;
use crate::wire::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Bounded by the nodes in the database.
#[derive(Debug)]
pub(super) struct Formulas {
    own: Formula,
    others: BTreeMap<NodeId, Option<Formula>>,
    /// Of whom that has changed since last asked.
    news: BTreeSet<NodeId>,
}

impl Formulas {
    pub fn new(own: Formula) -> Formulas {
        Formulas { own, others: BTreeMap::new(), news: BTreeSet::new() }
    }

    /// What the database has of `node` now, as
    /// [`Database::formula`](super::database::Database::formula).
    pub fn note(&mut self, node: NodeId, said: Option<Option<Formula>>) {
        let other = said.filter(|formula| *formula != Some(self.own));
        let changed = match other {
            Some(formula) => self.others.insert(node, formula) != Some(formula),
            None => self.others.remove(&node).is_some(),
        };
        if said.is_none() {
            // It has gone, and that is told elsewhere.
            self.news.remove(&node);
        } else if changed {
            self.news.insert(node);
        }
    }

    /// The nodes that differ and by what formula they compute, ascending by id.
    pub fn others(&self) -> impl Iterator<Item = (NodeId, Option<Formula>)> {
        self.others.iter().map(|(node, formula)| (*node, *formula))
    }

    /// A node of whom that has changed, and its other formula if it still has one.
    pub fn next_change(&mut self) -> Option<(NodeId, Option<Option<Formula>>)> {
        let node = self.news.pop_first()?;
        Some((node, self.others.get(&node).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_nothing_of_who_is_gone() {
        let mut formulas = Formulas::new(Formula::Measured);
        let (a, b) = (NodeId(1), NodeId(2));
        let paper = Some(Some(Formula::Paper));
        formulas.note(a, Some(Some(Formula::Measured)));
        assert_eq!(formulas.next_change(), None);
        formulas.note(a, paper);
        formulas.note(a, paper);
        formulas.note(b, Some(None));
        assert_eq!(formulas.next_change(), Some((a, paper)));
        assert_eq!(formulas.next_change(), Some((b, Some(None))));
        assert_eq!(formulas.next_change(), None);
        formulas.note(a, paper);
        formulas.note(b, Some(Some(Formula::Measured)));
        assert_eq!(formulas.next_change(), Some((b, None)));
        assert!(formulas.others().eq([(a, Some(Formula::Paper))]));
        formulas.note(b, paper);
        [a, b].into_iter().for_each(|gone| formulas.note(gone, None));
        assert_eq!((formulas.next_change(), formulas.others().count()), (None, 0));
    }
}
