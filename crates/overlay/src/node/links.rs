//! The links of a node, which may be added and removed, and the receiver indices that map their
//! envelopes to them.

use crate::link::{Link, LinkId};
use crate::wire::ReceiverIndex;

/// Links by number. A removed link leaves its slot empty; control assigns it to the next new link.
#[derive(Debug, Default)]
pub(super) struct Links {
    slots: Vec<Option<Link>>,
    /// Receiver indices, sorted. A sealed link has one index for each of its sessions.
    by_index: Vec<(ReceiverIndex, LinkId)>,
}

impl Links {
    /// Inserts a link in a slot that is empty, or in the next one.
    pub fn insert(&mut self, id: LinkId, link: Link) {
        let at = usize::from(id.0);
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.slots[at] = Some(link);
    }

    /// Removes a link and its receiver indices.
    pub fn remove(&mut self, id: LinkId) -> Option<Link> {
        self.by_index.retain(|&(_, link)| link != id);
        self.slots.get_mut(usize::from(id.0))?.take()
    }

    /// Assigns `index` to `link`, which gets its envelopes from now on.
    pub fn assign(&mut self, index: ReceiverIndex, link: LinkId) {
        match self.by_index.binary_search_by_key(&index, |&(i, _)| i) {
            Ok(at) => self.by_index[at].1 = link,
            Err(at) => self.by_index.insert(at, (index, link)),
        }
    }

    /// Releases `index`: envelopes with it no longer belong to any link.
    pub fn release(&mut self, index: ReceiverIndex) {
        self.by_index.retain(|&(i, _)| i != index);
    }

    /// The link that owns envelopes with `index`.
    pub fn owner(&self, index: ReceiverIndex) -> Option<LinkId> {
        let at = self.by_index.binary_search_by_key(&index, |&(i, _)| i).ok()?;
        Some(self.by_index[at].1)
    }

    /// The link with this number, if there is one.
    pub fn get(&self, id: LinkId) -> Option<&Link> {
        self.slots.get(usize::from(id.0))?.as_ref()
    }

    /// Mutable reference to the link with this number, if there is one.
    pub fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.slots.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Number of slots, with and without a link.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// All links with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> + Clone {
        (0..).map(LinkId).zip(&self.slots).filter_map(|(id, link)| Some((id, link.as_ref()?)))
    }

    /// All links with their numbers, as mutable references.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (LinkId, &mut Link)> {
        (0..).map(LinkId).zip(&mut self.slots).filter_map(|(id, link)| Some((id, link.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Config;
    use crate::wire::{Incarnation, NodeId};
    use trunkline_base::Time;

    #[test]
    fn a_place_is_used_again_and_its_indices_are_not() {
        let link = |n| {
            let config = Config::new(NodeId(n));
            Link::new(Link::unsealed(NodeId(1), Incarnation(1), &config).0, config, Time::ZERO, 1)
        };
        let mut links = Links::default();
        let (a, b) = (LinkId(0), LinkId(1));
        links.insert(a, link(2));
        links.insert(b, link(3));
        let index = ReceiverIndex::new;
        links.assign(index(7), a);
        links.assign(index(5), b);
        links.assign(index(9), a);
        assert_eq!([5, 7, 9].map(|i| links.owner(index(i))), [Some(b), Some(a), Some(a)]);
        assert_eq!(links.remove(a).unwrap().config().neighbour, NodeId(2));
        assert_eq!([5, 7, 9].map(|i| links.owner(index(i))), [Some(b), None, None]);
        assert!(links.get(a).is_none() && links.remove(a).is_none());
        links.insert(a, link(4));
        assert_eq!(links.iter().map(|(_, l)| l.config().neighbour.0).collect::<Vec<_>>(), [4, 3]);
        links.release(index(5));
        assert_eq!(links.owner(index(5)), None);
    }
}
