//! Records, their frames, and the values that all nodes compute alike.

use super::Kind;
use super::codec::{bytes, flag, hex, list, message, message_of, number, optional, text};
use super::identity::{certificate, identity, seed};
use crate::link::LinkCost;
use crate::route::update::{Introduction, Record, RouteFrame, Update, path_number, sign};
use crate::route::{Advert, CostModel, Formula, Part};
use crate::wire::{ControlKind, Metric, NodeId};
use core::time::Duration;
use serde_json::{Value, json};
use trunkline_base::wire::Reader;

pub fn kinds() -> Vec<Kind> {
    let kind = |name, section, emit, parse, samples| Kind { name, section, emit, parse, samples };
    vec![
        kind("record", "12.1", emit_record, parse_record, record_samples),
        kind("link_state_frame", "12.2", emit_frame, parse_frame, frame_samples),
        kind("link_state_ack", "12.3", emit_acks, parse_acks, acks_samples),
        kind("path_number", "12.1", emit_path, parse_path, path_samples),
        kind("link_costs", "12.5", emit_costs, parse_costs, costs_samples),
        kind("routing_digest", "12.6", emit_digest, parse_digest, digest_samples),
    ]
}

fn cost(link: &Value) -> LinkCost {
    let (latency, loss) = (number(link, "delay"), number(link, "loss"));
    LinkCost::received(latency, loss, number(link, "residual"), number(link, "penalty"))
}

fn emit_record(fields: &Value) -> Value {
    let signer = identity(fields, "origin_seed");
    let (origin, seq) = (NodeId(number(fields, "origin")), number(fields, "sequence"));
    let signed = match optional(fields, "fragment") {
        None => Introduction { origin, seq, certificate: bytes(fields, "certificate") }.emit(),
        Some(fragment) => {
            let advert = |link: &Value| Advert {
                neighbour: NodeId(number(link, "neighbour")),
                path: number(link, "path"),
                cost: cost(link),
            };
            let links = list(fields, "links").iter().map(advert).collect();
            let (draining, digest) = (flag(fields, "draining"), number(fields, "digest"));
            Update { origin, seq, fragment, draining, digest, links }.emit()
        }
    };
    let record = sign(signed.expect("a record"), &signer);
    message(&[&record[..], &number::<u16>(fields, "age").to_be_bytes()].concat())
}

fn parse_record(outputs: &Value, fields: &Value) -> Value {
    let bytes = message_of(outputs);
    let mut r = Reader::new(&bytes);
    let record = Record::parse(&mut r).expect("a record");
    assert!(r.is_empty());
    let (signed, signature) = record.bytes().split_last_chunk::<64>().expect("a signature");
    let message = [b"trunkline link state 1\0", signed].concat();
    assert!(identity(fields, "origin_seed").public().verify(&message, signature));
    let (seed, origin) = (&fields["origin_seed"], record.key.origin.0);
    let Part::Links(fragment) = record.key.part else {
        return json!({
            "origin_seed": seed, "origin": origin, "sequence": record.seq, "fragment": null,
            "certificate": hex(record.certificate()), "age": record.age,
        });
    };
    let links = record.links().map(|link| {
        json!({
            "neighbour": link.neighbour.0, "path": link.path, "delay": link.cost.latency,
            "loss": link.cost.loss, "residual": link.cost.residual_step(),
            "penalty": link.cost.penalty,
        })
    });
    json!({
        "origin_seed": seed, "origin": origin, "sequence": record.seq, "fragment": fragment,
        "draining": record.draining, "digest": record.digest,
        "links": links.collect::<Vec<_>>(), "age": record.age,
    })
}

const DIGEST: u32 = 0x459c_015f;

fn record_samples() -> Vec<(&'static str, Value)> {
    let link = |neighbour: u32, path: u8, loss: u16, penalty: u16| {
        json!({
            "neighbour": neighbour, "path": path, "delay": 123, "loss": loss, "residual": 51,
            "penalty": penalty,
        })
    };
    let sequence = 1_800_000_000_000_000_001_u64;
    let links = json!({
        "origin_seed": seed(1), "origin": 17, "sequence": sequence, "fragment": 0,
        "draining": false, "digest": DIGEST,
        "links": [link(18, 0, 655, 0), link(18, 132, 3_277, 0)], "age": 0,
    });
    let penalised = json!({
        "origin_seed": seed(1), "origin": 17, "sequence": sequence + 1, "fragment": 7,
        "draining": true, "digest": DIGEST, "links": [link(19, 0, 655, 1_000)], "age": 600,
    });
    let introduction = json!({
        "origin_seed": seed(1), "origin": 17, "sequence": sequence + 2, "fragment": null,
        "certificate": hex(&certificate(17, 1)), "age": 1,
    });
    vec![
        ("a record of links", links),
        ("a record of a draining node with a penalised link", penalised),
        ("an introduction", introduction),
    ]
}

fn emit_frame(fields: &Value) -> Value {
    let records: Vec<u8> = list(fields, "records")
        .iter()
        .flat_map(|record| bytes(&emit_record(record), "bytes"))
        .collect();
    let len = (records.len() as u16).to_be_bytes();
    message(&[&[ControlKind::LinkState as u8], &len[..], &records].concat())
}

fn parse_frame(outputs: &Value, fields: &Value) -> Value {
    let bytes = message_of(outputs);
    let Ok(RouteFrame::LinkState(records)) = RouteFrame::parse(&bytes) else { panic!("records") };
    let whole = |record: Record<'_>| [record.bytes(), &record.age.to_be_bytes()].concat();
    let records: Vec<_> = records
        .zip(list(fields, "records"))
        .map(|(record, fields)| parse_record(&message(&whole(record.expect("a record"))), fields))
        .collect();
    json!({ "records": records })
}

fn frame_samples() -> Vec<(&'static str, Value)> {
    let records: Vec<_> = record_samples().into_iter().map(|(_, fields)| fields).collect();
    vec![("a link state frame", json!({ "records": records }))]
}

fn emit_acks(fields: &Value) -> Value {
    let ack = |ack: &Value| {
        let kind = optional(ack, "fragment").unwrap_or(0x80);
        let (origin, seq) = (number::<u32>(ack, "origin"), number::<u64>(ack, "sequence"));
        [&[kind][..], &origin.to_be_bytes(), &seq.to_be_bytes()].concat()
    };
    let acks: Vec<u8> = list(fields, "records").iter().flat_map(ack).collect();
    let len = (acks.len() as u16).to_be_bytes();
    message(&[&[ControlKind::Ack as u8], &len[..], &acks].concat())
}

fn parse_acks(outputs: &Value, _: &Value) -> Value {
    let bytes = message_of(outputs);
    let Ok(RouteFrame::Ack(acks)) = RouteFrame::parse(&bytes) else { panic!("acks") };
    let ack = |(key, seq): (crate::route::Key, u64)| {
        let fragment = match key.part {
            Part::Introduction => None,
            Part::Links(fragment) => Some(fragment),
        };
        json!({ "origin": key.origin.0, "fragment": fragment, "sequence": seq })
    };
    json!({ "records": acks.iter().map(ack).collect::<Vec<_>>() })
}

fn acks_samples() -> Vec<(&'static str, Value)> {
    let sequence = 1_800_000_000_000_000_001_u64;
    let fields = json!({ "records": [
        { "origin": 17, "fragment": 7, "sequence": sequence },
        { "origin": 17, "fragment": null, "sequence": sequence + 2 },
    ] });
    vec![("an acknowledgement of records", fields)]
}

fn emit_path(fields: &Value) -> Value {
    json!({ "number": hex(&[path_number(text(fields, "label"))]) })
}

fn parse_path(_: &Value, fields: &Value) -> Value {
    fields.clone()
}

fn path_samples() -> Vec<(&'static str, Value)> {
    let fields = |label: &str| json!({ "label": label });
    vec![
        ("the path without a label", fields("")),
        ("the path called dsl", fields("dsl")),
        ("the path called main", fields("main")),
    ]
}

fn model(fields: &Value) -> CostModel {
    let tenths = |key| Duration::from_micros(100) * number::<u32>(fields, key);
    let formula = match text(fields, "formula") {
        "paper" => Formula::Paper,
        _ => Formula::Measured,
    };
    CostModel { formula, detection: tenths("detection"), deadline: tenths("deadline") }
}

fn emit_costs(fields: &Value) -> Value {
    let (model, link) = (model(fields), cost(fields));
    let costs = Metric::ALL.map(|metric| hex(&model.cost(metric, &link).to_be_bytes()));
    json!({
        "expected_latency": costs[0], "latency": costs[1], "loss": costs[2], "hops": costs[3],
    })
}

fn parse_costs(_: &Value, fields: &Value) -> Value {
    fields.clone()
}

fn costs_samples() -> Vec<(&'static str, Value)> {
    let fields = |formula: &str, delay: u16, loss: u16, residual: u8, penalty: u16| {
        json!({
            "formula": formula, "deadline": 1_000, "detection": 20, "delay": delay, "loss": loss,
            "residual": residual, "penalty": penalty,
        })
    };
    vec![
        ("a good link", fields("default", 123, 0, 0, 0)),
        ("a lossy link with a penalty", fields("default", 250, 3_277, 26, 30)),
        ("a long lossy link", fields("default", 900, 6_554, 200, 0)),
        ("a link that loses everything", fields("default", 10, 65_535, 255, 0)),
        ("a link of no length", fields("default", 0, 0, 0, 0)),
        ("a lossy link, by the paper's formula", fields("paper", 250, 3_277, 26, 30)),
    ]
}

fn emit_digest(fields: &Value) -> Value {
    json!({ "digest": hex(&model(fields).digest().to_be_bytes()) })
}

fn parse_digest(_: &Value, fields: &Value) -> Value {
    fields.clone()
}

fn digest_samples() -> Vec<(&'static str, Value)> {
    let fields = |formula: &str, deadline: u32, detection: u32| json!({ "formula": formula, "deadline": deadline, "detection": detection });
    vec![
        ("the default digest", fields("default", 1_000, 20)),
        ("the digest of other settings", fields("paper", 1_200, 55)),
    ]
}
