//! Parity over the packets of a call (RFC 8627): written by the sender, and used by the receiver to
//! restore packets.
//!
//! A packet of the simulated call has its send time where RTP has most of its header. Parity covers
//! the same speech behind a regular RTP header: the sequence number is the packet's number, and the
//! timestamp counts 160 ticks per packet.

use super::{RTP, SPEECH, TICKS};
use trunkline_base::extend;
use trunkline_media::parity::{self, Group, MAX_SPAN, ParityError};
use trunkline_media::rtp::{self, RtpView};
use trunkline_rate::vegas::Fec;

/// Maximum length of a parity packet in bytes, without the header that every packet has.
pub const MAX_PARITY: usize = parity::HEADER + SPEECH;
/// Number of newest packets that both ends keep: enough for an incomplete group, and for
/// the packets that arrived since its first one.
const KEPT: usize = 2 * MAX_SPAN as usize;
/// Maximum number of parity packets that wait for packets they overtook.
const WAITING: usize = 8;
const SSRC: u32 = 0;

/// The newest packets of a call, with RTP headers.
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

    /// Stores a packet in the slot of an older one, unless it is longer than speech can be.
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

    /// The packets of the group starting at `first` that are still stored, packed to the front, and
    /// their number.
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

/// Full number of a packet in the group that starts at `first`.
fn numbered(first: u32, sequence: u16) -> u32 {
    first.wrapping_add(u32::from(sequence.wrapping_sub(first as u16)))
}

/// A block of packets to be protected by parity: its columns, or its only row.
#[derive(Clone, Copy)]
pub struct Block {
    first: u32,
    window: u8,
    depth: u8,
}

impl Block {
    /// First packet of each column.
    pub fn columns(&self) -> impl Iterator<Item = u32> + use<> {
        let Block { first, depth, .. } = *self;
        (0..depth.into()).map(move |column| first + column)
    }
}

/// The sender's state for parity. Packets are protected in consecutive blocks of `window` ·
/// `depth`, with the values that the control requests when a block begins. The parity of all
/// columns is sent after the last packet of a block, so that a run of `depth` lost packets takes at
/// most one packet or parity from each column.
pub struct Sender {
    recent: Recent,
    block: Option<Block>,
}

impl Sender {
    pub fn new() -> Sender {
        Sender { recent: Recent::new(), block: None }
    }

    /// Takes the next packet of the call, and returns the block that it completes, if any.
    pub fn sent(&mut self, number: u32, speech: &[u8], fec: Fec) -> Option<Block> {
        self.recent.put(number, speech);
        let asked = match fec {
            // A control may request a span that is too long for a call: then no parity is sent.
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

/// The receiver's state for restoring packets.
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

    /// Stores a packet of the call that arrived.
    pub fn packet(&mut self, number: u32, speech: &[u8]) {
        self.recent.put(number, speech);
    }

    /// Stores a parity packet that arrived, with the full number of its first packet, derived from
    /// `near`, the call's newest. `None` if it is damaged, or covers packets so far ahead that it
    /// would occupy its slot for long. If all slots are in use, the one with the oldest packets is
    /// replaced.
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

    /// Restores a packet, at most one for each parity packet. Returns its number and its length in
    /// bytes, including the RTP header.
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

    /// Datagrams of a sender, in the order of sending.
    enum Sent {
        Packet(u32, usize),
        Parity(Vec<u8>),
    }

    /// Sends packets of these lengths, numbered from `from` on, each with the given request for
    /// parity.
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

    /// Packets restored if only those arrive for which `comes` is true, as (number, length of the
    /// speech).
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

    /// Any run of up to `depth` lost datagrams is restored, also where sequence numbers wrap; a
    /// longer one isn't.
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

    /// In a row of three, the second packet is lost and the third is overtaken by the parity.
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

    /// The span of parity is bounded, and packets longer than speech are not protected.
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
        /// However often the control changes its request, each lost packet is restored at most
        /// once, at its own length, and no other.
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

    /// Neither copies nor late parity replaces parity that still waits.
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

    /// Parity that was used frees its slot for others.
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
