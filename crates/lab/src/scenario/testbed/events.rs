//! Faults of hosts and links while calls last.

use super::super::model::{Fault, FaultKind};
use super::emulator::{self, Models};
use super::watch::Watch;
use super::{Bed, Error};
use std::time::Duration;
use trunkline_base::link_model::LinkModel;

/// A single step of a fault, on a link or on the host of this index.
enum Act {
    /// The link of this index gets these models, there and back; `None` leaves a direction as
    /// it is.
    Link(usize, Box<[Option<LinkModel>; 2]>),
    Crash(usize),
    Stop(usize),
    Restart(usize),
    Stall(usize),
    GoOn(usize),
}

impl Bed<'_> {
    /// Carries out all of the scenario's faults when they are due. Fails if a process ends on its
    /// own meanwhile.
    pub(super) fn happen(&self, watch: &Watch, seed: u64) -> Result<(), Error> {
        let scenario = self.testbed.scenario;
        let as_said = emulator::models(scenario);
        let mut events: Vec<(Duration, Act)> =
            scenario.faults.iter().flat_map(|fault| acts(fault, &as_said)).collect();
        // As in the simulator, nothing happens after the end.
        events.retain(|&(at, _)| at <= scenario.length);
        events.sort_by_key(|&(at, _)| at);
        let mut models = as_said.clone();
        for (at, act) in events {
            watch.attend(watch.begun() + at, &mut || self.check())?;
            self.act(act, &mut models, seed)?;
        }
        Ok(())
    }

    fn act(&self, act: Act, models: &mut Models, seed: u64) -> Result<(), Error> {
        let node = |n: usize| self.nodes[n].lock().expect("nobody panics");
        match act {
            Act::Link(link, new) => {
                let Some(both) = &mut models[link] else { return Ok(()) };
                for (model, new) in both.iter_mut().zip(*new) {
                    *model = new.unwrap_or_else(|| model.clone());
                }
                self.emulator.change(self.testbed.scenario, models, seed)
            }
            // Dropping the process sends SIGKILL.
            Act::Crash(n) => {
                drop(node(n).take());
                Ok(())
            }
            Act::Stop(n) => match node(n).take() {
                Some(process) => process.finish().map(drop),
                None => Ok(()),
            },
            Act::Restart(n) if node(n).is_none() => self.start_node(n),
            Act::Restart(_) => Ok(()),
            Act::Stall(n) => node(n).as_mut().map_or(Ok(()), |p| p.stall(true)),
            Act::GoOn(n) => node(n).as_mut().map_or(Ok(()), |p| p.stall(false)),
        }
    }
}

/// The steps of a fault and those that undo it, each with its time after the calls began.
fn acts(fault: &Fault, as_said: &Models) -> Vec<(Duration, Act)> {
    let mended = |link: usize| as_said[link].clone().map(|both| both.map(Some)).unwrap_or_default();
    let (act, after) = match &fault.what {
        FaultKind::Link(link, new) => {
            let [there, back] = mended(*link);
            let of_way = |n: usize, model: Option<LinkModel>| new[n].as_ref().and(model);
            let after = Box::new([of_way(0, there), of_way(1, back)]);
            (Act::Link(*link, new.clone()), Some(Act::Link(*link, after)))
        }
        &FaultKind::Mend(link) => (Act::Link(link, Box::new(mended(link))), None),
        &FaultKind::Crash(n) => (Act::Crash(n), Some(Act::Restart(n))),
        &FaultKind::Stop(n) => (Act::Stop(n), Some(Act::Restart(n))),
        &FaultKind::Restart(n) => (Act::Restart(n), None),
        &FaultKind::Stall(n) => (Act::Stall(n), Some(Act::GoOn(n))),
    };
    let ends = fault.until.zip(after);
    std::iter::once((fault.at, act)).chain(ends).collect()
}
