//! Link models in the format of impair's files.

use super::super::model::{FaultKind, Scenario};
use super::{Error, cannot};
use std::path::Path;
use std::sync::Arc;
use trunkline_base::link_model::{Chain, LinkModel, Loss, Queue, Red, Unit};

/// The loss traces of a scenario, each written to a file next to impair's.
#[derive(Default)]
pub struct Traces(Vec<Arc<[bool]>>);

impl Traces {
    /// Collects the loss traces that the scenario's links and faults use, each once.
    pub fn of(scenario: &Scenario) -> Traces {
        let links = scenario.links.iter().filter_map(|link| link.wire.as_ref()).flatten();
        let faults = scenario.faults.iter().filter_map(|fault| match &fault.what {
            FaultKind::Link(_, becomes) => Some(becomes.iter().flatten()),
            _ => None,
        });
        let mut traces = Traces::default();
        for model in links.chain(faults.flatten()) {
            if let Loss::Trace(lost) = &model.loss
                && traces.name(lost).is_none()
            {
                traces.0.push(lost.clone());
            }
        }
        traces
    }

    /// File name of a loss trace, as in impair's file; `None` if the trace is unknown.
    fn name(&self, lost: &Arc<[bool]>) -> Option<String> {
        self.0.iter().position(|known| Arc::ptr_eq(known, lost)).map(file)
    }

    /// Writes each loss trace to its file in `dir`.
    ///
    /// # Errors
    ///
    /// If a file can't be written.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        for (n, lost) in self.0.iter().enumerate() {
            let path = dir.join(file(n));
            let text: Vec<u8> = lost.iter().map(|&lost| b'0' + u8::from(lost)).collect();
            std::fs::write(&path, text).map_err(cannot(format!("write {}", path.display())))?;
        }
        Ok(())
    }
}

fn file(n: usize) -> String {
    format!("trace-{n}.txt")
}

/// The lines of impair's file for a wire with these models, there and back.
pub fn wire(there: &LinkModel, back: &LinkModel, traces: &Traces) -> String {
    let line = |(key, value): (&str, Value)| {
        let way = |name, model| value(model, traces).map(|v| format!("{name} = {v}"));
        let ways = [way("forward", there), way("reverse", back)];
        let ways: Vec<String> = ways.into_iter().flatten().collect();
        match ways.is_empty() {
            true => String::new(),
            false => format!("{key} = {{ {} }}\n", ways.join(", ")),
        }
    };
    KEYS.into_iter().map(line).collect()
}

/// Writes the value of a key for a link model; `None` leaves the key out.
type Value = fn(&LinkModel, &Traces) -> Option<String>;

const KEYS: [(&str, Value); 10] = [
    ("delay", |m, _| Some(format!("\"{}ns\"", m.delay.as_nanos()))),
    ("jitter", |m, _| Some(format!("\"{}ns\"", m.jitter.as_nanos()))),
    ("rate", |m, _| m.rate.map(|r| format!("\"{} bit/s\"", r.as_bps()))),
    ("queue", |m, _| Some(queue(m.queue))),
    ("red", |m, _| match &m.queue {
        Queue::Red(of) => Some(red(of)),
        _ => None,
    }),
    ("loss", |m, _| match m.loss {
        Loss::Bernoulli { p } | Loss::Burst { p, .. } => Some(p.to_string()),
        Loss::None | Loss::Trace(_) => None,
    }),
    ("burst", |m, _| match m.loss {
        Loss::Burst { b, .. } => Some(b.to_string()),
        _ => None,
    }),
    ("chain", |m, _| match m.loss {
        Loss::Burst { chain: Chain::Continuous { .. }, .. } => Some("\"continuous\"".into()),
        _ => None,
    }),
    ("spacing", |m, _| match m.loss {
        Loss::Burst { chain: Chain::Continuous { spacing }, .. } => {
            Some(format!("\"{}ns\"", spacing.as_nanos()))
        }
        _ => None,
    }),
    ("trace", |m, traces| match &m.loss {
        Loss::Trace(lost) => {
            Some(format!("\"{}\"", traces.name(lost).expect("those of a scenario are all known")))
        }
        _ => None,
    }),
];

fn queue(queue: Queue) -> String {
    match queue {
        Queue::Packets(n) => format!("\"{n} packets\""),
        Queue::Bytes(n) => format!("\"{n} B\""),
        Queue::Red(Red { unit, limit, .. }) => format!("\"{limit} {}\"", name(unit)),
    }
}

fn red(red: &Red) -> String {
    let &Red { unit, min, max, max_p, weight, packet, gentle, ecn, .. } = red;
    let unit = name(unit);
    format!(
        "{{ min = \"{min} {unit}\", max = \"{max} {unit}\", max_p = {max_p}, weight = {weight}, \
         packet = \"{packet} B\", gentle = {gentle}, ecn = {ecn} }}"
    )
}

fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Packets => "packets",
        Unit::Bytes => "B",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    #[test]
    fn queues_and_traces_are_written_as_impair_has_them() {
        let dir = tempfile::tempdir().unwrap();
        for (name, lost) in [("x", "0011"), ("y", "01")] {
            std::fs::write(dir.path().join(name), lost).unwrap();
        }
        let text = "length = \"9 s\"\nhost = [{ name = \"a\" }, { name = \"b\" }]\nlink = [\
            { name = \"l\", between = [\"a\", \"b\"], delay = \"1ms\", rate = \"1 Mbit/s\",\
            there = { trace = \"x\", queue = \"64 kB\", red = { min = \"5 kB\", max = \"15 kB\" } } }]\n\
            call = [{ from = \"a\", to = \"b\" }]\n[[fault]]\nat = \"1 s\"\nlink = \"l\"\n\
            what = \"change\"\nbecomes = { trace = \"y\" }";
        let scenario = parse(&dir.path().join("s.toml"), text).unwrap();
        let traces = Traces::of(&scenario);
        let [there, back] = scenario.links[0].wire.as_ref().unwrap();
        let said = wire(there, back, &traces);
        for line in [
            "queue = { forward = \"64000 B\", reverse = \"100 packets\" }\n",
            "red = { forward = { min = \"5000 B\", max = \"15000 B\", max_p = 0.02, \
             weight = 0.002, packet = \"500 B\", gentle = false, ecn = false } }\n",
            "trace = { forward = \"trace-0.txt\" }\n",
        ] {
            assert!(said.contains(line), "{said}");
        }
        assert!(!said.contains("loss"), "{said}");
        traces.write(dir.path()).unwrap();
        let written = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!([written("trace-0.txt"), written("trace-1.txt")], ["0011", "01"]);
    }
}
