//! Parity of a call's packets (RFC 8627): what its sender writes, and what its receiver puts
//! together again.
//!
//! A packet of the simulated call has its send time where RTP has most of its header. Parity
//! is of the same speech behind a header as RTP would have it: the sequence is the packet's
//! number, the timestamp counts 160 ticks to a packet.

use super::{RTP, SPEECH, TICKS};
use trunkline_base::extend;
use trunkline_media::parity::{self, Group, MAX_SPAN, ParityError};
use trunkline_media::rtp::{self, RtpView};
use trunkline_rate::vegas::Fec;

/// The most bytes of a packet of parity, without the header that all packets have.
pub const MAX_PARITY: usize = parity::HEADER + SPEECH;
/// Of so many packets before the newest both ends keep the speech: a group that is complete
/// but for one, and what has come since its first.
const KEPT: usize = 2 * MAX_SPAN as usize;
/// So many packets of parity wait for packets that they overtook.
const WAITING: usize = 8;
const SSRC: u32 = 0;

/// The newest packets of a call, as RTP would have them.
struct Recent(Vec<Slot>);

#[derive(Clone, Copy)]
struct Slot {
    number: Option<u32>,
    len: usize,
    bytes: [u8; RTP + SPEECH],
}

impl Recent {
    fn new() -> Recent {
        Recent(vec![Slot { number: None, len: 0, bytes: [0; RTP + SPEECH] }; KEPT])
    }

    /// Keeps a packet in the place of an older one, unless it is longer than speech can be.
    fn put(&mut self, number: u32, speech: &[u8]) {
        let slot = &mut self.0[number as usize % KEPT];
        if slot.number.is_some_and(|newer| newer > number) {
            return; // overtaken by a whole round
        }
        let view = RtpView {
            payload_type: 96,
            marker: false,
            sequence: number as u16,
            timestamp: number.wrapping_mul(u32::from(TICKS)),
            ssrc: SSRC,
            payload: speech,
        };
        if let Ok(len) = view.emit(&mut slot.bytes) {
            (slot.number, slot.len) = (Some(number), len);
        }
    }

    /// Those packets of a group that begins with `first` which are kept, at the front, and
    /// how many they are.
    fn of(&self, first: u32, group: &Group) -> ([&[u8]; MAX_SPAN as usize], usize) {
        let (mut packets, mut count) = ([&[][..]; MAX_SPAN as usize], 0);
        for sequence in group.sequences() {
            let number = numbered(first, sequence);
            let slot = &self.0[number as usize % KEPT];
            if slot.number == Some(number) {
                packets[count] = &slot.bytes[..slot.len];
                count += 1;
            }
        }
        (packets, count)
    }
}

/// The number of a packet of the group that begins with `first`.
fn numbered(first: u32, sequence: u16) -> u32 {
    first.wrapping_add(u32::from(sequence.wrapping_sub(first as u16)))
}

/// The columns of a block of packets that have parity, or its only row.
#[derive(Clone, Copy)]
pub struct Block {
    first: u32,
    window: u8,
    depth: u8,
}

impl Block {
    /// The first packet of each group.
    pub fn columns(&self) -> impl Iterator<Item = u32> + use<> {
        let Block { first, depth, .. } = *self;
        (0..depth.into()).map(move |column| first + column)
    }
}

/// What the sender of a call keeps for its parity. Packets are protected in blocks of
/// `window` · `depth`, each as the control asks when it begins, and one follows the other
/// while it asks. Parity is sent behind the last packet of a block, that of all its columns:
/// whatever run of `depth` packets is lost, of a column it is one, or its parity.
pub struct Sender {
    recent: Recent,
    block: Option<Block>,
}

impl Sender {
    pub fn new() -> Sender {
        Sender { recent: Recent::new(), block: None }
    }

    /// Takes a packet that is sent, the next of the call, and returns the block that is
    /// complete with it.
    pub fn sent(&mut self, number: u32, speech: &[u8], fec: Fec) -> Option<Block> {
        self.recent.put(number, speech);
        let asked = match fec {
            // A control can be told to span more than is of use to a call: nothing is sent then.
            Fec::Parity { window, depth } if Group::new(0, window, depth).is_ok() => {
                Some(Block { first: number, window, depth })
            }
            _ => None,
        };
        let block = self.block.or(asked)?;
        let size = u32::from(block.window) * u32::from(block.depth);
        let complete = number + 1 - block.first >= size;
        self.block = (!complete).then_some(block);
        complete.then_some(block)
    }

    /// Writes the parity of a block's column and returns its length.
    pub fn write(&self, block: &Block, first: u32, out: &mut [u8]) -> Result<usize, ParityError> {
        let group = Group::new(first as u16, block.window, block.depth)?;
        let (packets, count) = self.recent.of(first, &group);
        parity::emit(&group, &packets[..count], out)
    }
}

/// What the receiver of a call keeps to put packets together again.
pub struct Receiver {
    recent: Recent,
    waiting: [Option<Waiting>; WAITING],
}

#[derive(Clone, Copy, PartialEq)]
struct Waiting {
    first: u32,
    len: usize,
    bytes: [u8; MAX_PARITY],
}

impl Receiver {
    pub fn new() -> Receiver {
        Receiver { recent: Recent::new(), waiting: [None; WAITING] }
    }

    /// Keeps a packet of the call that has come.
    pub fn packet(&mut self, number: u32, speech: &[u8]) {
        self.recent.put(number, speech);
    }

    /// Keeps a packet of parity that has come, and with it what number its first packet has, with
    /// `near` as the call's newest; none if it is damaged, or of packets so far ahead that it would
    /// keep its place for long. If all places are taken, that of the oldest packets gives way.
    pub fn parity(&mut self, near: u32, payload: &[u8]) -> Option<()> {
        let first = parity::parse(payload).ok()?.group.sequences().next()?;
        let first = u32::try_from(extend(near.into(), first)).ok()?;
        if first > near.saturating_add(KEPT as u32) {
            return None;
        }
        let mut bytes = [0; MAX_PARITY];
        bytes.get_mut(..payload.len())?.copy_from_slice(payload);
        let new = Some(Waiting { first, len: payload.len(), bytes });
        let oldest = |place: &&mut Option<Waiting>| place.map(|waiting| waiting.first);
        if !self.waiting.contains(&new)
            && let Some(place) = self.waiting.iter_mut().min_by_key(oldest)
            && place.is_none_or(|oldest| oldest.first <= first)
        {
            *place = new;
        }
        Some(())
    }

    /// The number of a packet that can be put together and its length in bytes, RTP's header
    /// included, once for each packet of parity that has come.
    pub fn recovered(&mut self) -> Option<(u32, usize)> {
        for place in &mut self.waiting {
            let Some(Waiting { first, len, bytes }) = place else { continue };
            let mut packet = [0; RTP + SPEECH];
            let Ok(parity) = parity::parse(&bytes[..*len]) else { continue };
            let (packets, count) = self.recent.of(*first, &parity.group);
            if count + 1 < parity.group.sequences().len() {
                continue;
            }
            let recovered = parity.recover(SSRC, &packets[..count], &mut packet);
            let first = *first;
            *place = None;
            let view = recovered.map(|len| rtp::parse(&packet[..len]));
            if let Ok(Ok(RtpView { sequence, payload, .. })) = view {
                return Some((numbered(first, sequence), RTP + payload.len()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// What a sender puts on the network, in order.
    enum Sent {
        Packet(u32, usize),
        Parity(Vec<u8>),
    }

    /// Packets of these lengths from number `from` on, and what each of them was asked to have.
    fn sent(from: u32, packets: impl IntoIterator<Item = (usize, Fec)>) -> Vec<Sent> {
        let mut sender = Sender::new();
        let (mut all, mut out) = (Vec::new(), [0; MAX_PARITY]);
        for (number, (len, fec)) in (from..).zip(packets) {
            all.push(Sent::Packet(number, len));
            let complete = sender.sent(number, &[number as u8; SPEECH][..len], fec);
            for (block, first) in complete.iter().flat_map(|b| b.columns().map(move |f| (b, f))) {
                let len = sender.write(block, first, &mut out).unwrap();
                all.push(Sent::Parity(out[..len].to_vec()));
            }
        }
        all
    }

    /// What comes together of packets of which only those come that `comes` says, as (number,
    /// length of the speech).
    fn recovered(all: &[Sent], comes: impl Fn(usize) -> bool) -> Vec<(u32, usize)> {
        let Some(&Sent::Packet(mut near, _)) = all.first() else { panic!("a packet is first") };
        let (mut receiver, mut found) = (Receiver::new(), Vec::new());
        for (_, sent) in all.iter().enumerate().filter(|(n, _)| comes(*n)) {
            match sent {
                Sent::Packet(number, len) => {
                    receiver.packet(*number, &[*number as u8; SPEECH][..*len]);
                    near = *number;
                }
                Sent::Parity(bytes) => receiver.parity(near, bytes).unwrap(),
            }
            found.extend(
                core::iter::from_fn(|| receiver.recovered()).map(|(n, len)| (n, len - RTP)),
            );
        }
        found
    }

    fn lost(all: &[Sent], comes: impl Fn(usize) -> bool) -> Vec<(u32, usize)> {
        let packet = |(_, sent): (usize, &Sent)| match sent {
            Sent::Packet(number, len) => Some((*number, *len)),
            Sent::Parity(_) => None,
        };
        all.iter().enumerate().filter(|(n, _)| !comes(*n)).filter_map(packet).collect()
    }

    /// Of whatever is sent in a row as much as `depth` may be lost, over a turn of sequence
    /// numbers; but no more.
    #[test]
    fn runs_of_depth_come_together() {
        for (window, depth) in [(1, 1), (6, 1), (3, 2), (2, 3), (1, 6), (4, 8)] {
            let lengths = [160, 40, 100].into_iter().cycle();
            let fec = Fec::Parity { window, depth };
            let all = sent(65_500, lengths.map(|len| (len, fec)).take(96));
            let parity = 96 / usize::from(window);
            assert_eq!(all.len(), 96 + parity, "{fec:?}");
            for first in 0..all.len() {
                let run =
                    |long: u8| move |n: usize| !(first..first + usize::from(long)).contains(&n);
                let mut found = recovered(&all, run(depth));
                found.sort_unstable();
                assert_eq!(found, lost(&all, run(depth)), "{fec:?} from {first}");
            }
            let longer = |n: usize| n > usize::from(depth);
            assert!(recovered(&all, longer).len() < lost(&all, longer).len(), "{fec:?}");
        }
    }

    /// Row of three, of which the second is lost and the third overtaken by the parity.
    #[test]
    fn parity_waits_for_what_it_overtook() {
        let all = sent(0, [(160, Fec::Parity { window: 3, depth: 1 }); 3]);
        let mut receiver = Receiver::new();
        receiver.packet(0, &[0; 160]);
        let [.., Sent::Parity(parity)] = &all[..] else { panic!("parity is last") };
        receiver.parity(0, parity).unwrap();
        assert_eq!(receiver.recovered(), None);
        receiver.packet(2, &[2; 160]);
        assert_eq!(receiver.recovered(), Some((1, RTP + 160)));
        assert_eq!(receiver.recovered(), None);
    }

    /// What goes together is bounded, and longer packets than speech have no parity.
    #[test]
    fn too_much_is_not_sent() {
        for (window, depth) in [(0, 1), (1, 0), (33, 1), (255, 255)] {
            let packets = [(160, Fec::Parity { window, depth }); 100];
            assert_eq!(sent(0, packets).len(), 100, "{window} {depth}");
        }
        let mut receiver = Receiver::new();
        assert_eq!(receiver.parity(0, &[0x40; MAX_PARITY + 1]), None);
        receiver.packet(0, &[0; SPEECH + 1]);
        assert_eq!(receiver.recent.0[0].number, None);
    }

    fn any_fec() -> impl Strategy<Value = Fec> {
        let parity = (0u8..=6, 0u8..=6);
        prop_oneof![
            Just(Fec::Off),
            parity.prop_map(|(window, depth)| Fec::Parity { window, depth }),
        ]
    }

    proptest! {
        /// However often the control changes its mind, what comes together is what was lost,
        /// as long as it was, and once.
        #[test]
        fn changes_corrupt_nothing(
            from in prop_oneof![Just(0), 0u32..1 << 20],
            packets in vec((0..=SPEECH, any_fec()), 1..200),
            losses in vec(0u8..5, 1_400),
        ) {
            let all = sent(from, packets);
            let comes = |n: usize| losses[n] > 0;
            let (mut found, lost) = (recovered(&all, comes), lost(&all, comes));
            found.sort_unstable();
            prop_assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert!(found.iter().all(|packet| lost.contains(packet)), "{found:?} {lost:?}");
        }

        #[test]
        fn no_bytes_panic(
            parities in vec((any::<u32>(), vec(any::<u8>(), 0..200)), 0..20),
            packets in vec((any::<u32>(), 0..=SPEECH + 9), 0..20),
        ) {
            let mut receiver = Receiver::new();
            for ((near, mut bytes), (number, len)) in parities.into_iter().zip(packets) {
                receiver.packet(number, &[1; SPEECH + 9][..len]);
                if let Some(first) = bytes.first_mut() {
                    *first = *first & 0x3f | 0x40;
                }
                let _ = receiver.parity(near, &bytes);
                while receiver.recovered().is_some() {}
            }
        }
    }

    #[test]
    fn what_comes_a_round_late_takes_no_ones_place() {
        let all = sent(62, [(160, Fec::Parity { window: 3, depth: 1 }); 3]);
        let mut receiver = Receiver::new();
        for number in [62, 64, 0] {
            receiver.packet(number, &[number as u8; 160]);
        }
        let Some(Sent::Parity(parity)) = all.last() else { panic!("parity is last") };
        receiver.parity(64, parity).unwrap();
        assert_eq!(receiver.recovered(), Some((63, RTP + 160)));
    }

    /// Neither copies nor what comes late take the place of parity that waits.
    #[test]
    fn late_parity_displaces_none_that_is_newer() {
        let all = sent(0, [(160, Fec::Parity { window: 2, depth: 1 }); 40]);
        let of = |wanted: usize| {
            let mut parities = all.iter().filter_map(|sent| match sent {
                Sent::Parity(bytes) => Some(bytes),
                Sent::Packet(..) => None,
            });
            parities.nth(wanted).unwrap()
        };
        let mut receiver = Receiver::new();
        receiver.parity(39, of(19)).unwrap();
        (0..9).for_each(|_| receiver.parity(39, of(18)).unwrap());
        (0..18).for_each(|n| receiver.parity(39, of(n)).unwrap());
        assert_eq!(receiver.recovered(), None);
        for (present, lost) in [(38, 39), (37, 36)] {
            receiver.packet(present, &[present as u8; 160]);
            assert_eq!(receiver.recovered(), Some((lost, RTP + 160)));
        }
    }

    #[test]
    fn parity_of_packets_far_ahead_takes_no_place() {
        let fec = (160, Fec::Parity { window: 2, depth: 1 });
        let far = sent(20_000, [fec; 2 * WAITING]);
        let mut receiver = Receiver::new();
        for sent in &far {
            if let Sent::Parity(bytes) = sent {
                assert_eq!(receiver.parity(0, bytes), None);
            }
        }
        receiver.packet(1, &[1; 160]);
        let [.., Sent::Parity(parity)] = &sent(0, [fec; 2])[..] else { panic!("parity is last") };
        receiver.parity(1, parity).unwrap();
        assert_eq!(receiver.recovered(), Some((0, RTP + 160)));
    }

    /// Parity that has done its work leaves its place to others.
    #[test]
    fn parity_waits_while_there_are_places() {
        let all = sent(0, [(160, Fec::Parity { window: 2, depth: 1 }); 20]);
        assert_eq!(recovered(&all, |n| n > 1), []);
        let late = |n: usize| n > 1;
        let mut receiver = Receiver::new();
        for (_, sent) in all.iter().enumerate().filter(|(n, _)| late(*n)) {
            match sent {
                Sent::Packet(number, len) => {
                    receiver.packet(*number, &[*number as u8; SPEECH][..*len])
                }
                Sent::Parity(bytes) => receiver.parity(10, bytes).unwrap(),
            }
            assert_eq!(receiver.recovered(), None);
        }
        receiver.packet(1, &[1; 160]);
        assert_eq!(receiver.recovered(), Some((0, RTP + 160)));
    }
}
