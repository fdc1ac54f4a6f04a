//! Resets of streams: those that arrive, and those that this node sends.

use super::Forwarder;
use crate::counters::DropReason;
use crate::link::{LinkId, Packet};
use crate::session::stream::{Body, Broken, End, Key, Segment, StreamId};
use crate::session::wire::stream::Reset;
use crate::wire::Metric;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

impl Forwarder {
    /// Processes a reset of stream `id`.
    pub(super) fn on_broken(
        &mut self,
        now: Time,
        id: StreamId,
        broken: &Broken,
    ) -> Result<(), DropReason> {
        let Some((end, _)) = self.streams.table.get_mut(id) else { return Ok(()) };
        if !end.believes(broken) {
            return Err(DropReason::StreamNumber);
        }
        // An end that has received everything loses nothing by a reset, and one that is still
        // opening the stream may try again.
        if end.is_over() {
            return Ok(());
        }
        if end.is_put_off(broken.why) {
            self.streams.table.will_send(id);
            self.streams.table.arm(id);
        } else {
            let why = end.reason(broken.why);
            self.streams.break_off(now, id, why);
        }
        Ok(())
    }

    /// Answers a packet of a stream that is unknown or refused here with a reset, unless too many
    /// such packets have come.
    pub(super) fn say_reset(
        &mut self,
        now: Time,
        from: Option<LinkId>,
        packet: &Packet<'_>,
        body: &Body<'_>,
        why: Reset,
    ) {
        let h = &packet.flow;
        let Some(broken) = body.refusal(why) else { return };
        if !self.streams.answers.admit(now, from, h.source) {
            return;
        }
        self.send_reset(now, Key::of(h), (h.flow_seq, h.metric), broken);
    }

    pub(super) fn reset_peer(&mut self, now: Time, end: &End, why: Reset) {
        if !end.is_over()
            && let Some(broken) = end.broken(why)
        {
            self.send_reset(now, end.key, (end.tag, end.metric), broken);
        }
    }

    fn send_reset(&mut self, now: Time, key: Key, (tag, metric): (u16, Metric), broken: Broken) {
        let mut payload = [0; 16];
        let mut w = Writer::new(&mut payload);
        if Segment::Broken(broken).emit_head(&mut w).is_ok() {
            self.send_segment(now, (key, tag, metric), w.written());
        }
    }
}
