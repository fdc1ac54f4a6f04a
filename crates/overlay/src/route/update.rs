//! The wire format of link-state routing: records, the frame that carries them, and the frame that
//! acknowledges them.
//!
//! A record is an advertisement of one node, signed by it. Other nodes forward it byte for byte,
//! except for its age.

use super::keys::{Keys, Signer};
use super::stats::RefusedRecord;
use crate::link::LinkCost;
use crate::wire::{ControlKind, NodeId, WireError};
use trunkline_base::wire::{Reader, Short, Writer};

/// Maximum number of links in one record. A node with more splits them, so that every record fits
/// the smallest MTU (576 bytes).
pub const LINKS_PER_RECORD: usize = 32;
/// Maximum number of link records per node.
pub const MAX_FRAGMENTS: u8 = 8;
/// Maximum length of a certificate, in bytes.
pub const MAX_CERTIFICATE: usize = 400;
/// Length of a link in a record, in bytes.
pub const LINK_LEN: usize = 10;
/// The same in a record with operators' penalties, which few records have.
pub const PENALISED_LEN: usize = LINK_LEN + 2;
/// Bytes of a record of links without the links themselves.
pub const UPDATE_OVERHEAD: usize = HEAD + DIGEST + 1 + SIGNATURE + AGE;

/// Bytes of kind, origin and sequence number.
const HEAD: usize = 1 + 4 + 8;
/// Bytes of [`Update::digest`] in a record.
const DIGEST: usize = 4;
const SIGNATURE: usize = 64;
const AGE: usize = 2;
/// Size of a frame that can carry any record: the minimum for `poll_frame`.
pub const MIN_ROOM: usize = FRAME_HEAD + HEAD + 2 + MAX_CERTIFICATE + SIGNATURE + AGE;
/// Bytes of a frame's kind and length.
pub(super) const FRAME_HEAD: usize = 1 + 2;
/// Length of one acknowledgement, in bytes.
pub(super) const ACK_LEN: usize = HEAD;

const INTRODUCTION: u8 = 0x80;
const DRAINING: u8 = 0x40;
const PENALISED: u8 = 0x20;
const FRAGMENT: u8 = MAX_FRAGMENTS - 1;
/// Precedes every signed message, so that a signature made for another purpose cannot be used for a
/// record.
const CONTEXT: &[u8] = b"trunkline link state 1\0";

/// Part of an origin's advertisement. The introduction comes first, since its key verifies the
/// rest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// The node's [`Introduction`] to others.
    Introduction,
    /// [`Update`], with its fragment.
    Links(u8),
}

/// Identifies a record; among several, the one with the highest sequence number counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Node that signed the record.
    pub origin: NodeId,
    /// Part of the origin's advertisement.
    pub part: Part,
}

impl Key {
    fn kind(self) -> u8 {
        match self.part {
            Part::Introduction => INTRODUCTION,
            Part::Links(fragment) => fragment & FRAGMENT,
        }
    }

    fn parse(kind: u8, origin: u32) -> Result<Key, WireError> {
        let part = match kind {
            INTRODUCTION => Part::Introduction,
            fragment if fragment < MAX_FRAGMENTS => Part::Links(fragment),
            _ => return Err(WireError::OutOfRange("the kind of a routing record")),
        };
        Ok(Key { origin: NodeId(origin), part })
    }
}

/// The number that replaces a path's name in updates, the same at both ends: FNV-1a, folded to a
/// byte; 0 for the unnamed path. A configuration must be refused if two paths to one neighbour have
/// the same number.
pub fn path_number(name: &str) -> u8 {
    if name.is_empty() {
        return 0;
    }
    let mix = |h: u32, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193);
    let [a, b, c, d] = name.bytes().fold(0x811c_9dc5, mix).to_be_bytes();
    (a ^ b ^ c ^ d).max(1)
}

/// A link as its sender advertises it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Advert {
    /// Node at the other end.
    pub neighbour: NodeId,
    /// Distinguishes several links to one neighbour; the same at both ends.
    pub path: u8,
    /// Cost of the direction from the origin to the neighbour.
    pub cost: LinkCost,
}

/// A node's links, or as many of them as fit in a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Node that has these links.
    pub origin: NodeId,
    /// Sequence number; grows with every update of this node, also over restarts.
    pub seq: u64,
    /// Number of the record among those of its node, below [`MAX_FRAGMENTS`].
    pub fragment: u8,
    /// Whether the node wants the traffic of others to take other paths.
    pub draining: bool,
    /// The [digest](crate::route::CostModel::digest) of the settings with which the node computes
    /// costs.
    pub digest: u32,
    /// Links, ascending by neighbour and path; at most [`LINKS_PER_RECORD`].
    pub links: Vec<Advert>,
}

impl Update {
    /// Encodes the signed part; [`Short`] if there are too many links.
    pub fn emit(&self) -> Result<Vec<u8>, Short> {
        let count = self.links.len();
        if count > LINKS_PER_RECORD {
            return Err(Short);
        }
        let penalised = self.links.iter().any(|link| link.cost.penalty > 0);
        let mut out = vec![0; HEAD + DIGEST + 1 + count * link_len(penalised)];
        let mut w = Writer::new(&mut out);
        let key = Key { origin: self.origin, part: Part::Links(self.fragment) };
        let flag = |set, bit| if set { bit } else { 0 };
        let flags = flag(self.draining, DRAINING) | flag(penalised, PENALISED);
        emit_head(key, flags, self.seq, &mut w)?;
        w.u32(self.digest)?;
        w.u8(count as u8)?;
        for link in &self.links {
            w.u32(link.neighbour.0)?;
            w.u8(link.path)?;
            w.u16(link.cost.latency)?;
            w.u16(link.cost.loss)?;
            w.u8(link.cost.residual_step())?;
            if penalised {
                w.u16(link.cost.penalty)?;
            }
        }
        Ok(out)
    }
}

/// A node's certificate, distributed to all nodes so that updates need not carry it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// Node that is introduced.
    pub origin: NodeId,
    /// Sequence number, like [`Update::seq`].
    pub seq: u64,
    /// Certificate of at most [`MAX_CERTIFICATE`] bytes, which [`Keys`] interprets.
    pub certificate: Vec<u8>,
}

impl Introduction {
    /// Encodes the signed part; [`Short`] if the certificate is too long.
    pub fn emit(&self) -> Result<Vec<u8>, Short> {
        if self.certificate.len() > MAX_CERTIFICATE {
            return Err(Short);
        }
        let mut out = vec![0; HEAD + 2 + self.certificate.len()];
        let mut w = Writer::new(&mut out);
        let key = Key { origin: self.origin, part: Part::Introduction };
        emit_head(key, 0, self.seq, &mut w)?;
        w.u16(self.certificate.len() as u16)?;
        w.bytes(&self.certificate)?;
        Ok(out)
    }
}

fn link_len(penalised: bool) -> usize {
    if penalised { PENALISED_LEN } else { LINK_LEN }
}

fn emit_head(key: Key, flags: u8, seq: u64, w: &mut Writer<'_>) -> Result<(), Short> {
    w.u8(key.kind() | flags)?;
    w.u32(key.origin.0)?;
    w.u64(seq)
}

/// Signs the output of an `emit` and appends the signature: the record without its age.
pub fn sign(mut signed: Vec<u8>, signer: &dyn Signer) -> Box<[u8]> {
    let signature = signer.sign(&[CONTEXT, &signed].concat());
    signed.extend(signature);
    signed.into()
}

/// A view of a record that has been checked for validity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Origin and part of the record.
    pub key: Key,
    /// Sequence number of this version.
    pub seq: u64,
    /// Whether the origin is draining, as in [`Update::draining`].
    pub draining: bool,
    /// Seconds since its origin signed it, as counted by the nodes that forwarded it.
    pub age: u16,
    /// Same as [`Update::digest`]; an introduction has none.
    pub digest: Option<u32>,
    /// Length of each link, in bytes.
    link_len: usize,
    /// Encoded links, or a certificate.
    body: &'a [u8],
    whole: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads one record off the front of `r`.
    pub fn parse(r: &mut Reader<'a>) -> Result<Record<'a>, WireError> {
        let start = r.rest();
        let kind = r.u8()?;
        let has = |flag| kind & (flag | INTRODUCTION) == flag;
        let (draining, link_len) = (has(DRAINING), link_len(has(PENALISED)));
        let flags = if kind & INTRODUCTION == 0 { DRAINING | PENALISED } else { 0 };
        let key = Key::parse(kind & !flags, r.u32()?)?;
        let seq = r.u64()?;
        let mut digest = None;
        let body = match key.part {
            Part::Links(_) => {
                digest = Some(r.u32()?);
                let count = usize::from(r.u8()?);
                if count > LINKS_PER_RECORD {
                    return Err(WireError::OutOfRange("the number of links in a record"));
                }
                let body = r.bytes(count * link_len)?;
                check_links(key.origin, body, link_len)?;
                body
            }
            Part::Introduction => {
                let len = usize::from(r.u16()?);
                if len > MAX_CERTIFICATE {
                    return Err(WireError::OutOfRange("the length of a certificate"));
                }
                r.bytes(len)?
            }
        };
        r.bytes(SIGNATURE)?;
        let age = r.u16()?;
        let whole = &start[..start.len() - r.rest().len()];
        Ok(Record { key, seq, draining, age, digest, link_len, body, whole })
    }

    /// The record as it is stored and forwarded: without its age.
    pub fn bytes(&self) -> &'a [u8] {
        &self.whole[..self.whole.len() - AGE]
    }

    /// The record including its age.
    pub(super) fn whole(&self) -> &'a [u8] {
        self.whole
    }

    /// The links; none in an introduction.
    pub fn links(&self) -> impl ExactSizeIterator<Item = Advert> + 'a {
        let links = if self.key.part == Part::Introduction { &[] } else { self.body };
        links.chunks_exact(self.link_len).map(read_link)
    }

    /// The certificate; empty in an update.
    pub fn certificate(&self) -> &'a [u8] {
        if self.key.part == Part::Introduction { self.body } else { &[] }
    }

    /// Whether its origin signed it; `keys` stores the key of a genuine introduction.
    pub fn verify(&self, keys: &mut dyn Keys, wall_ns: u64) -> Result<(), RefusedRecord> {
        let (signed, signature) =
            self.bytes().split_last_chunk::<SIGNATURE>().ok_or(RefusedRecord::Malformed)?;
        let (origin, message) = (self.key.origin, [CONTEXT, signed].concat());
        if self.key.part == Part::Introduction {
            return keys.introduce(origin, self.body, &message, signature, wall_ns);
        }
        if keys.verify(origin, &message, signature) {
            Ok(())
        } else {
            Err(RefusedRecord::BadSignature)
        }
    }
}

fn read_link(b: &[u8]) -> Advert {
    let u16_at = |i: usize| u16::from_be_bytes([b[i], b[i + 1]]);
    let penalty = if b.len() == PENALISED_LEN { u16_at(LINK_LEN) } else { 0 };
    Advert {
        neighbour: NodeId(u32::from_be_bytes([b[0], b[1], b[2], b[3]])),
        path: b[4],
        cost: LinkCost::received(u16_at(5), u16_at(7), b[9], penalty),
    }
}

/// Checks that each link is listed once, in order, and that none is to the origin itself.
fn check_links(origin: NodeId, body: &[u8], link_len: usize) -> Result<(), WireError> {
    let mut last = None;
    for link in body.chunks_exact(link_len) {
        let Advert { neighbour, path, .. } = read_link(link);
        if neighbour == origin || last >= Some((neighbour, path)) {
            return Err(WireError::OutOfRange("the neighbour of an advertised link"));
        }
        last = Some((neighbour, path));
    }
    Ok(())
}

/// A frame of link-state routing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteFrame<'a> {
    /// Records, each with its age.
    LinkState(Records<'a>),
    /// Acknowledgements of received records.
    Ack(Acks<'a>),
}

impl<'a> RouteFrame<'a> {
    /// Reads a frame, as it was in an envelope.
    pub fn parse(frame: &'a [u8]) -> Result<RouteFrame<'a>, WireError> {
        let mut r = Reader::new(frame);
        let (kind, len) = (r.u8()?, r.u16()?);
        let body = r.bytes(usize::from(len))?;
        if !r.is_empty() {
            return Err(WireError::OutOfRange("the length of a routing frame"));
        }
        if kind == ControlKind::LinkState as u8 {
            Ok(RouteFrame::LinkState(Records(Reader::new(body))))
        } else if kind == ControlKind::Ack as u8 {
            let whole = body.len().is_multiple_of(ACK_LEN);
            let acks = whole.then_some(RouteFrame::Ack(Acks(body)));
            acks.ok_or(WireError::OutOfRange("the length of an acknowledgement"))
        } else {
            Err(WireError::UnknownType(kind))
        }
    }
}

/// The records of a frame; iteration ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a>(Reader<'a>);

impl PartialEq for Records<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.rest() == other.0.rest()
    }
}

impl Eq for Records<'_> {}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = Record::parse(&mut self.0);
        if record.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(record)
    }
}

/// Acknowledgements: the versions of records that the sender has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acks<'a>(&'a [u8]);

impl Acks<'_> {
    /// Key and version of each record; unknown kinds are skipped.
    pub fn iter(&self) -> impl Iterator<Item = (Key, u64)> {
        self.0.chunks_exact(ACK_LEN).filter_map(|c| {
            let mut r = Reader::new(c);
            let key = Key::parse(r.u8().ok()?, r.u32().ok()?).ok()?;
            Some((key, r.u64().ok()?))
        })
    }
}

/// Writes a frame, one record or acknowledgement at a time, into at most `room` bytes.
#[derive(Debug)]
pub(super) struct FrameWriter {
    out: Vec<u8>,
    room: usize,
}

impl FrameWriter {
    pub(super) fn new(kind: ControlKind, room: usize) -> FrameWriter {
        let room = room.min(FRAME_HEAD + usize::from(u16::MAX));
        FrameWriter { out: vec![kind as u8, 0, 0], room }
    }

    /// Whether a record of `len` bytes (without its age) still fits.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.out.len() + len + AGE <= self.room
    }

    pub(super) fn record(&mut self, bytes: &[u8], age: u16) {
        self.out.extend(bytes);
        self.out.extend(age.to_be_bytes());
    }

    /// Appends an acknowledgement; false if there is no room.
    pub(super) fn ack(&mut self, key: Key, seq: u64) -> bool {
        let fits = self.out.len() + ACK_LEN <= self.room;
        if fits {
            self.out.push(key.kind());
            self.out.extend(key.origin.0.to_be_bytes());
            self.out.extend(seq.to_be_bytes());
        }
        fits
    }

    /// The frame, unless it is empty.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        let len = self.out.len() - FRAME_HEAD;
        self.out[1..FRAME_HEAD].copy_from_slice(&(len as u16).to_be_bytes());
        (len > 0).then_some(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Unsigned;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn update() -> impl Strategy<Value = Update> {
        // Most records contain no penalties.
        let cost =
            (any::<[u16; 4]>(), any::<bool>()).prop_map(|([latency, loss, residual, p], some)| {
                let penalty = if some { p } else { 0 };
                LinkCost { latency, loss, residual, penalty }.as_sent()
            });
        let links =
            prop::collection::btree_map((1..=u32::MAX, any::<u8>()), cost, 0..=LINKS_PER_RECORD);
        let links = links.prop_map(|links: BTreeMap<_, _>| {
            let advert = |((n, path), cost)| Advert { neighbour: NodeId(n), path, cost };
            links.into_iter().map(advert).collect()
        });
        let ids = (any::<u64>(), 0..MAX_FRAGMENTS, any::<bool>(), any::<u32>());
        (ids, links).prop_map(|((seq, fragment, draining, digest), links)| Update {
            origin: NodeId(0),
            seq,
            fragment,
            draining,
            digest,
            links,
        })
    }

    proptest! {
        #[test]
        fn records_round_trip(u in update(), age: u16, cert in prop::collection::vec(any::<u8>(), 0..=MAX_CERTIFICATE)) {
            let intro = Introduction { origin: u.origin, seq: u.seq, certificate: cert };
            let one = sign(u.emit().unwrap(), &Unsigned);
            let penalised = u.links.iter().any(|l| l.cost.penalty > 0);
            prop_assert_eq!(one.len() + AGE, UPDATE_OVERHEAD + u.links.len() * link_len(penalised));
            prop_assert_eq!(&one[HEAD..HEAD + DIGEST], u.digest.to_be_bytes());
            let two = sign(intro.emit().unwrap(), &Unsigned);
            let mut w = FrameWriter::new(ControlKind::LinkState, 2_000);
            prop_assert!(w.fits(one.len() + two.len()));
            w.record(&one, age);
            w.record(&two, 7);
            let frame = w.finish().unwrap();
            let Ok(RouteFrame::LinkState(records)) = RouteFrame::parse(&frame) else { panic!() };
            let records: Vec<_> = records.map(Result::unwrap).collect();
            let r = records[0];
            prop_assert_eq!((r.age, r.bytes(), r.certificate()), (age, &one[..], &[][..]));
            let Part::Links(fragment) = r.key.part else { panic!() };
            let (origin, seq, draining) = (r.key.origin, r.seq, r.draining);
            let (digest, links) = (r.digest.unwrap(), r.links().collect());
            prop_assert_eq!(&Update { origin, seq, fragment, draining, digest, links }, &u);
            prop_assert_eq!((records[1].key.part, records[1].seq), (Part::Introduction, u.seq));
            prop_assert_eq!(records[1].digest, None);
            prop_assert_eq!(records[1].certificate(), &intro.certificate[..]);
            prop_assert!(records[1].bytes() == &two[..] && records[1].links().len() == 0);
        }

        #[test]
        fn acks_round_trip(keys in prop::collection::vec((any::<u32>(), 0..=MAX_FRAGMENTS, any::<u64>()), 1..50)) {
            let acks: Vec<_> = keys.into_iter().map(|(origin, part, seq)| {
                let part = if part == MAX_FRAGMENTS { Part::Introduction } else { Part::Links(part) };
                (Key { origin: NodeId(origin), part }, seq)
            }).collect();
            let mut w = FrameWriter::new(ControlKind::Ack, 700);
            for &(key, seq) in &acks {
                prop_assert!(w.ack(key, seq));
            }
            let frame = w.finish().unwrap();
            let Ok(RouteFrame::Ack(read)) = RouteFrame::parse(&frame) else { panic!() };
            prop_assert_eq!(read.iter().collect::<Vec<_>>(), acks);
        }

        #[test]
        fn any_bytes_end(mut bytes in prop::collection::vec(any::<u8>(), 3..400), ack: bool) {
            let len = bytes.len() - FRAME_HEAD;
            bytes[0] = if ack { ControlKind::Ack as u8 } else { ControlKind::LinkState as u8 };
            bytes[1..3].copy_from_slice(&(len as u16).to_be_bytes());
            match RouteFrame::parse(&bytes) {
                Ok(RouteFrame::LinkState(records)) => prop_assert!(records.count() <= 400),
                Ok(RouteFrame::Ack(acks)) => prop_assert!(acks.iter().count() <= 400 / ACK_LEN),
                Err(_) => {}
            }
        }
    }

    /// The paper's packet carries 60 to 90 updates of links, "depending on the sparsity of the
    /// network" (III-A): here, that holds from seven links per node on.
    #[test]
    fn an_ethernet_packet_carries_60_to_90_links() {
        let room = 1_452 - crate::wire::ENVELOPE_OVERHEAD - FRAME_HEAD;
        let carried = |links: usize| room / (UPDATE_OVERHEAD + links * LINK_LEN) * links;
        let all = [2, 4, 6, 7, 8, 9, 10, 11, 12, 16, 20].map(|n| (n, carried(n)));
        println!("links per node, links per packet: {all:?}");
        assert!((7..=12).all(|n| (60..=90).contains(&carried(n))), "{all:?}");
    }

    #[test]
    fn paths_of_different_names_have_numbers() {
        let numbers = ["", "main", "backup", "isp-1", "isp-2"].map(path_number);
        assert_eq!(numbers[0], 0);
        assert!(numbers.iter().enumerate().all(|(i, n)| !numbers[..i].contains(n)), "{numbers:?}");
    }

    #[test]
    fn links_out_of_order_or_to_oneself_are_refused() {
        let advert = |n| Advert { neighbour: NodeId(n), path: 0, cost: LinkCost::default() };
        let parse = |links: Vec<Advert>| {
            let (origin, digest) = (NodeId(5), 7);
            let u = Update { origin, seq: 1, fragment: 0, draining: false, digest, links };
            let bytes = [&sign(u.emit().unwrap(), &Unsigned)[..], &[0, 0]].concat();
            Record::parse(&mut Reader::new(&bytes)).map(|r| r.links().len())
        };
        assert_eq!(parse(vec![advert(1), advert(2)]), Ok(2));
        for wrong in [[2, 1], [2, 2], [1, 5]] {
            assert!(parse(wrong.map(advert).to_vec()).is_err());
        }
    }
}
