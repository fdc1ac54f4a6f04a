//! Flows that alternate between two deadlines, over links that lose 5 %.

use crate::common::*;
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::trunk::Config;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{AppId, Application, HostId, Io, Topology};

const FAR: NodeId = NodeId(3);

struct Talker {
    port: u16,
    deadlines: [u8; 2],
    n: u16,
}

impl Application for Talker {
    fn start(&mut self, io: &mut Io<'_>) {
        io.wake_at(at(1_000));
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let mut payload = vec![0x80, 18];
        payload.extend(self.n.to_be_bytes());
        payload.extend((u32::from(self.n) * 160).to_be_bytes());
        payload.extend([0; 24]);
        let deadline_ms = self.deadlines[usize::from(self.n % 2)];
        io.send(&ToNode::Send {
            service: RT,
            deadline_ms,
            to: FAR,
            port: self.port,
            payload: &payload,
        });
        self.n += 1;
        if self.n < 1_000 {
            io.wake_at(io.now() + ms(20));
        }
    }

    fn receive(&mut self, _: &ToClient<'_>, _: &mut Io<'_>) {}
}

#[derive(Default)]
struct Ear(u64);

impl Application for Ear {
    fn receive(&mut self, message: &ToClient<'_>, _: &mut Io<'_>) {
        self.0 += u64::from(matches!(message, ToClient::Received { .. }));
    }
}

#[test]
fn packets_of_other_deadlines_are_recovered_as_well() {
    let mut seen = Vec::new();
    for (trunk, deadlines) in
        [(false, [100, 100]), (false, [100, 99]), (true, [100, 100]), (true, [100, 99])]
    {
        let mut t = Topology::chain([link(ms(10), uniform(0.05)), link(ms(10), uniform(0.05))]);
        t.config_mut(HostId(0)).trunks.extend(trunk.then(|| Config::new(FAR)));
        let mut world = t.build(3).unwrap();
        let ears: Vec<AppId<Ear>> = (0..10)
            .map(|k| {
                world.attach(HostId(0), 0, Talker { port: 5_000 + k, deadlines, n: 0 }).unwrap();
                world.attach(HostId(2), 5_000 + k, Ear::default()).unwrap()
            })
            .collect();
        world.run_until(at(23_000));
        let lost = 10_000 - ears.iter().map(|e| world.app(*e).0).sum::<u64>();
        seen.push(lost);
    }
    assert!(seen[3] < 3 * seen[2] + 50, "{seen:?}");
}
