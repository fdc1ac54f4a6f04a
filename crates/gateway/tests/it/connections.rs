//! The need for connections, and the host in whose share each counts.

use crate::common::*;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_gateway::{Config, Gateway, Holder, Rank, Transport};
use trunkline_sip::Message;
use trunkline_sip::transaction::Hop;

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
const URI: &str = "sip:b@10.1.0.20;transport=tcp";
const BEGUN: Time = Time::from_millis(1_000);

struct Site {
    gateway: Gateway,
    board: PortBoard,
    now: Time,
}

impl Site {
    fn new(config: Config) -> Site {
        let gateway = Gateway::new(config, [1; 32], &[9; 32]);
        Site { gateway, board: PortBoard::default(), now: BEGUN }
    }

    /// Has a message arrive by a connection; the last message that follows, and its connection.
    fn take(&mut self, from: (u64, &str), text: &str) -> (u64, Message) {
        let hop = Hop { socket: 1, remote: at(from.1), connection: Some(from.0) };
        self.gateway.receive(self.now, hop, text.as_bytes(), &mut self.board);
        let last = std::iter::from_fn(|| self.gateway.poll()).last().expect("a message");
        (last.to.connection.expect("by TCP"), Message::parse(&last.bytes).expect("a message"))
    }

    fn rank(&self, connection: u64) -> Rank {
        self.gateway.ranks(self.now).of(connection, self.now)
    }

    fn holder(&self, connection: u64) -> (String, bool, bool) {
        let Holder { address, is_peer, is_for_request } =
            self.gateway.holder(connection).expect("it is open");
        (address.to_string(), is_peer, is_for_request)
    }
}

#[test]
fn a_connection_is_ranked_by_what_needs_it() {
    let mut site = Site::new(config(1, G));
    let phone = site.gateway.connected(1, at(A.at));
    assert_eq!(site.rank(phone), Rank::Unused);
    let (server, request) = site.take((phone, A.at), &A.request(("OPTIONS", 1, URI), "", &[], ""));
    assert_eq!([phone, server].map(|it| site.rank(it)), [Rank::Request; 2]);
    site.take((server, B.at), &B.response(&request, "200 OK", ""));
    assert_eq!([phone, server].map(|it| site.rank(it)), [Rank::Idle; 2]);

    let invite = A.request(("INVITE", 2, URI), "", &[], &sdp("10.1.0.9:4000"));
    let (_, request) = site.take((phone, A.at), &invite);
    let ranks = |site: &Site| [phone, server].map(|it| site.rank(it));
    assert_eq!(ranks(&site), [Rank::Request; 2], "the callee hasn't answered at all");
    site.take((server, B.at), &B.response(&request, "180 Ringing", ""));
    assert_eq!(ranks(&site), [Rank::Call; 2]);
    let answer = B.response(&request, "200 OK", &sdp("10.1.0.20:5000"));
    let (_, answer) = site.take((server, B.at), &answer);
    assert_eq!(ranks(&site), [Rank::Call; 2]);
    let mut back = routes(&answer);
    back.reverse();
    let (_, bye) = site.take((phone, A.at), &A.request(("BYE", 3, URI), "b", &back, ""));
    site.take((server, B.at), &B.response(&bye, "200 OK", ""));
    assert_eq!(ranks(&site), [Rank::Idle; 2]);
}

#[test]
fn a_registration_counts_until_it_expires() {
    let mut site = Site::new(config(1, G));
    let phone = site.gateway.connected(1, at(A.at));
    let mut number = 0;
    let mut register = |site: &mut Site, said: &str, contact: &str| {
        number += 1;
        let request = A.request(("REGISTER", number, "sip:10.1.0.20;transport=tcp"), "", &[], "");
        let (server, request) = site.take((phone, A.at), &request);
        let answer = B.response(&request, said, "");
        let own = "Contact: <sip:b@10.1.0.20:5060>\r\n";
        assert!(answer.contains(own));
        site.take((server, B.at), &answer.replace(own, contact));
        assert_ne!(site.rank(server), Rank::Registration);
        site.rank(phone)
    };
    let contact = |expires| format!("Contact: <sip:x@h>, <sip:a@h>{expires}\r\n");
    assert_eq!(register(&mut site, "401 Unauthorized", &contact("")), Rank::Idle);
    assert_eq!(register(&mut site, "200 OK", ""), Rank::Idle);
    let none = "Contact: <sip:a@h>;expires=0\r\n";
    for (contact, seconds) in [
        (contact(";expires=60").replace("<sip:x@h>, ", ""), 60),
        (format!("Expires: 60\r\n{}", contact("")), 60),
        (contact(";expires=60"), 3_600),
    ] {
        assert_eq!(register(&mut site, "200 OK", &contact), Rank::Registration, "{contact}");
        assert_eq!(register(&mut site, "403 Forbidden", none), Rank::Registration);
        let after = |seconds: u64| {
            let now = site.now + Duration::from_secs(seconds);
            site.gateway.ranks(now).of(phone, now)
        };
        assert_eq!(after(seconds - 1), Rank::Registration, "{contact}");
        assert_eq!(after(seconds), Rank::Idle, "{contact}");
        assert_eq!(register(&mut site, "200 OK", none), Rank::Idle);
    }
    // One that lasts longer needs keep-alives.
    let long = contact(";expires=99999999999");
    assert_eq!(register(&mut site, "200 OK", &long), Rank::Registration);
    let day = site.now + Duration::from_secs(86_400);
    let rank = |silent| site.gateway.ranks(day).of(phone, day - Duration::from_secs(silent));
    assert_eq!([rank(3_599), rank(3_600)], [Rank::Registration, Rank::Idle]);
}

#[test]
fn what_a_phone_has_made_counts_in_its_own_share() {
    let route = trunkline_gateway::Route {
        transport: Transport::Tcp,
        ..route("10.9.0.0/16", "10.1.0.20:5070")
    };
    let trust = vec!["10.1.0.20/32".parse().unwrap()];
    let mut site = Site::new(Config { trust, routes: vec![route], ..config(1, G) });
    let own = |ip: &str, is_peer| (ip.to_owned(), is_peer, false);
    let phone = site.gateway.connected(1, at(A.at));
    assert_eq!(site.holder(phone), own("10.1.0.9", false));
    let trunk = site.gateway.connected(1, at("10.1.0.20:40000"));
    assert_eq!(site.holder(trunk), own("10.1.0.20", true));

    let mut number = 0;
    let mut made = |site: &mut Site, from: (u64, &str), uri: &str| {
        number += 1;
        site.take(from, &A.request(("OPTIONS", number, uri), "", &[], ""))
    };
    let for_phone = ("10.1.0.9".to_owned(), false, true);
    let (other, _) = made(&mut site, (phone, A.at), "sip:x@10.1.0.77;transport=tcp");
    assert_eq!(site.holder(other), for_phone);
    // Any port of the trunk's address may be named; it is the trunk's once SIP comes from there.
    let (odd, request) = made(&mut site, (phone, A.at), "sip:x@10.1.0.20:99;transport=tcp");
    assert_eq!(site.holder(odd), for_phone);
    site.take((odd, "10.1.0.20:99"), &B.response(&request, "200 OK", ""));
    assert_eq!(site.holder(odd), own("10.1.0.20", true));
    let (next, _) = made(&mut site, (phone, A.at), "sip:x@10.9.0.1");
    assert_eq!(site.holder(next), own("10.1.0.20", true), "the next hop of a route");
    let (back, _) = made(&mut site, (trunk, "10.1.0.20:40000"), "sip:x@10.1.0.78;transport=tcp");
    assert_eq!(site.holder(back), own("10.1.0.78", false), "for a peer");
}
