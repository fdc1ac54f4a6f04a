//! Information for operators about routes that fail, are costly or do not exist.

use super::*;

#[apply(on_time)]
fn a_way_that_is_lost_is_said_at_once() {
    let mut chain = slow(2);
    chain.nodes[1].crash();
    let first = &chain.nodes[0];
    wait_for("the link to go down", || (first.metrics().sum("link_up", "") == 0).then_some(()));
    for command in ["trace", "ping"] {
        let begun = Instant::now();
        let ended = operate(first, &[command, "2"]);
        let line = ended.one_line(1);
        assert!(line.contains("this node has had no route to node 2 for "), "{line}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    let ended = operate(first, &["trace", "2", "--json"]);
    let trace: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(
        (ended.code, &trace["reached"], &trace["hops"]),
        (Some(1), &json!(false), &json!([]))
    );
    assert!(trace["refused"].as_str().is_some_and(|why| why.contains("no route")), "{trace}");
    let ended = operate(first, &["trace", "99"]);
    assert!(ended.one_line(1).contains("no route to node 99"), "{}", ended.stderr);
}

/// Two outages within a minute make the link cost more. The table, the JSON, the metrics and the
/// log show that, until the operator disables it.
#[apply(on_time)]
fn a_link_that_keeps_failing_is_damped_and_stays_the_way() {
    let mut chain = start(&Setup { nodes: 3, ..Setup::default() });
    let downs = |chain: &Chain| ok_json(&chain.nodes[0], &["links"])[0]["downs"].as_u64();
    let up = |chain: &Chain| ok_json(&chain.nodes[0], &["links"])[0]["up"] == json!(true);
    for n in 1..=2 {
        chain.nodes[1].process().signal(Signal::SIGSTOP);
        wait_for("the link to go down", || (downs(&chain) >= Some(n)).then_some(()));
        chain.nodes[1].process().signal(Signal::SIGCONT);
        wait_for("the link to be up", || up(&chain).then_some(()));
        // Despite its penalty, it is the only route, and is used at once.
        let route = || ok_json(&chain.nodes[0], &["routes"]).as_array().map(Vec::len);
        wait_for("the way to node 3", || route().filter(|n| *n == 2));
    }
    let link = || ok_json(&chain.nodes[0], &["links"])[0].clone();
    assert_eq!(link()["damping"], 0.5);
    let left = link()["damping_left_s"].as_f64().expect("a time");
    assert!((40.0..=120.0).contains(&left), "{left}");
    let table = ok(&chain.nodes[0], &["links"]);
    assert!(table.contains("  damping  ") && table.contains("  50 %, "), "{table}");
    let (_, metrics) = get(chain.nodes[0].http, "/metrics").expect("an answer");
    let ratio = "trunkline_link_damping_ratio{neighbour=\"2\",path=\"\"} 0.5\n";
    assert!(metrics.contains(ratio), "{metrics}");
    let far = chain.nodes[2].bind(5_000);
    let near = chain.nodes[0].bind(0);
    assert_eq!(stream(&near, &far, 0..50, ms(2)).len(), 50);
    edit(&chain.nodes[0], "[node]", "[routing]\ndamping = \"0 s\"\n[node]");
    let done = ok_json(&chain.nodes[0], &["reload"]);
    assert_eq!(done["applied"], json!(["[[link]] to 2: [routing] damping"]));
    wait_for("an end of it", || (link()["damping"] == 0.0).then_some(()));
    let log = chain.first().process().stderr();
    assert_eq!(log.matches("the link keeps failing").count(), 1, "{log}");
    chain.first().assert_healthy();
}

#[apply(on_time)]
fn a_way_through_a_draining_node_is_a_last_resort_and_costs_what_its_links_cost() {
    let chain = slow(3);
    let way = || ok_json(&chain.nodes[0], &["routes"])[1].clone();
    let before = wait_for("the way to node 3", || way()["cost"].as_f64());
    assert_eq!(way()["last_resort"], json!(false));
    ok(&chain.nodes[1], &["drain", "--now"]);
    wait_for("a last resort", || (way()["last_resort"] == json!(true)).then_some(()));
    let after = way()["cost"].as_f64().expect("a cost");
    assert!(after < 2.0 * before + 10.0, "{before} {after}");
    let table = ok(&chain.nodes[0], &["routes"]);
    assert!(table.contains("  last resort  "), "{table}");
    assert!(table.contains("every route leads through a node that is draining"), "{table}");
}

#[apply(on_time)]
fn a_penalty_that_is_reloaded_is_part_of_the_cost() {
    let mut chain = start(&Setup { link: "# penalty\n", ..Setup::default() });
    let node = &chain.nodes[0];
    let cost = || ok_json(node, &["routes", "--metric", "latency"])[0]["cost"].as_f64();
    let before = wait_for("the link's cost", cost);
    edit(node, "# penalty", "penalty = \"250ms\"");
    let done = ok_json(node, &["reload"]);
    assert_eq!(done["applied"], json!(["[[link]] to 2: penalty"]));
    let after = wait_for("another cost", || cost().filter(|ms| *ms > before + 200.0));
    assert!((after - before - 250.0).abs() < 20.0, "{before} {after}");
    assert_eq!(ok_json(node, &["links"])[0]["penalty_ms"], 250.0);
    let table = ok(node, &["links"]);
    assert!(table.contains("  penalty  ") && table.contains("  250 ms  "), "{table}");
    edit(node, "penalty = \"250ms\"", "penalty = \"9 s\"");
    let ended = operate(node, &["reload"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("out of range (penalty: 0 to 5 s)"), "{}", ended.stderr);
    assert_eq!(ok_json(node, &["links"])[0]["penalty_ms"], 250.0);
    chain.first().assert_healthy();
}

/// Both nodes know the relay's key, but not each other's.
#[apply(on_time)]
fn why_there_is_no_route_to_a_node_that_is_heard_of() {
    let mut chain = Chain::prepare(&Setup { nodes: 3, sealed: true, ..Setup::default() });
    for node in &chain.nodes {
        let text = fs::read_to_string(&node.config).expect("written before");
        let line = format!("[node]\ncontrol = {:?}", control(node).to_str().expect("text"));
        let text = text.replacen("[node]", &line, 1);
        let text: String = text
            .lines()
            .filter(|l| *l != "[[route]]" && !l.starts_with("to = ") && !l.starts_with("via = "))
            .map(|l| format!("{l}\n"))
            .collect();
        fs::write(&node.config, text).expect("written");
    }
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    let why = "node 3: no route, records signed with a key that this node doesn't know: \
               add [[known]], or certificates and [overlay] keys";
    let first = &chain.nodes[0];
    wait_for("the reason", || ok(first, &["routes"]).contains(why).then_some(()));
    let status = ok(first, &["status"]);
    assert!(status.contains(&format!("unknown   {why}")), "{status}");
    assert_eq!(ok_json(first, &["status"])["unknown_nodes"], json!([3]));
    let routes = ok_json(first, &["routes"]);
    assert_eq!((&routes[0]["next_hop"], &routes[0]["reason"]), (&json!(2), &Value::Null));
    let missing = &routes[1];
    assert_eq!((&missing["destination"], &missing["next_hop"]), (&json!(3), &Value::Null));
    assert_eq!(missing["reason"], "unknown_key");
    // The relay knows both nodes.
    assert_eq!(ok_json(&chain.nodes[1], &["status"])["unknown_nodes"], json!([]));
}

/// A node that differs only in its deadline is named by all others and names them, in `status`, the
/// log and the metrics, until the deadlines match. Nodes that agree are not mentioned.
#[apply(on_time)]
fn nodes_with_another_deadline_are_named() {
    let mut chain = Chain::prepare(&Setup { nodes: 3, ..Setup::default() });
    for node in &chain.nodes {
        let line = format!("[node]\ncontrol = {:?}", control(node).to_str().expect("text"));
        edit(node, "[node]", &line);
    }
    edit(&chain.nodes[2], "[node]", "[routing]\ndeadline = \"120 ms\"\n[node]");
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    let first = &chain.nodes[0];
    let what = "differs from this node in [routing] formula, deadline or detection, so packets may \
                take worse routes or loop: set the same [routing] formula, deadline and detection \
                on all nodes";
    let line = format!("routing   node 3 {what}");
    wait_for("the node that differs", || ok(first, &["status"]).contains(&line).then_some(()));
    let status = ok_json(first, &["status"]);
    assert_eq!(status["routing_differs"], json!([3]));
    assert_eq!(status["routing_differ_count"], 1);
    let (_, metrics) = get(first.http, "/metrics").expect("an answer");
    assert!(metrics.contains("trunkline_routing_differs 1.0\n"), "{metrics}");
    let both = "routing   nodes 1, 2 differ from this node";
    wait_for("the others", || ok(&chain.nodes[2], &["status"]).contains(both).then_some(()));
    let (far, near) = (chain.nodes[2].bind(5_000), chain.nodes[0].bind(0));
    assert_eq!(stream(&near, &far, 0..50, ms(2)).len(), 50);
    let told = format!("node 3 {what}");
    wait_for("a line", || chain.nodes[0].process().stderr().contains(&told).then_some(()));
    let there = "nodes 1, 2 differ from this node in [routing]";
    wait_for("a line", || chain.nodes[2].process().stderr().contains(there).then_some(()));

    // Changing the deadline needs a restart. Then no node differs, and the log states that.
    edit(&chain.nodes[2], "120 ms", "100 ms");
    assert_eq!(ok_json(&chain.nodes[2], &["reload"])["restart"], json!(["[routing] deadline"]));
    chain.nodes[2].crash();
    chain.nodes[2].start();
    let differing = |node: &Node| ok_json(node, &["status"])["routing_differs"].clone();
    let agree = || chain.nodes.iter().all(|n| differing(n) == json!([]));
    wait_for("one deadline", || agree().then_some(()));
    assert!(!ok(&chain.nodes[0], &["status"]).contains("differ"));
    let again = "all nodes have the same [routing] formula, deadline and detection again";
    wait_for("a line", || chain.nodes[0].process().stderr().contains(again).then_some(()));
    let log = chain.nodes[0].process().stderr();
    assert_eq!(log.matches(&told).count(), 1, "{log}");
    assert!(!chain.nodes[2].process().stderr().contains("differ"), "it agreed from its start");
    chain.first().assert_healthy();
}
