use super::*;
use core::net::Ipv4Addr;
use proptest::collection::vec;
use proptest::prelude::*;

/// An offer of a phone with ICE, with additional fax and chat streams.
const OFFER: &str = "v=0\r\no=alice 1 1 IN IP4 10.0.0.1\r\ns=caf\u{e9}\r\nc=IN IP4 10.0.0.1\r\nt=0 0\r\n\
    a=ice-lite\r\na=group:BUNDLE 1 2\r\na=group:LS 1 2\r\na=sendonly\r\n\
    m=audio 4000/1 RTP/AVP 0 8 101\r\ni=title\r\na=rtpmap:101 telephone-event/8000\r\na=rtcp:4001\r\n\
    a=candidate:1 1 UDP 2130706431 10.0.0.1 4000 typ host\r\na=ice-ufrag:x\r\na=x-unknown\r\n\
    m=image 4002 udptl t38\r\nc=IN IP6 2001:db8::1\r\na=T38FaxVersion:0\r\na=recvonly\r\n\
    m=message 9 TCP/MSRP *\r\na=path:msrp://10.0.0.1:9/x;tcp\r\n";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

fn edited(text: &str, change: impl FnOnce(&mut SdpEdit<'_, '_>)) -> String {
    let sdp = Sdp::parse(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}"));
    let mut edit = SdpEdit::new(&sdp);
    change(&mut edit);
    let text = edit.finish();
    Sdp::parse(&text).unwrap();
    String::from_utf8(text).unwrap()
}

/// The text with each `from` replaced by its `to`, once.
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

#[test]
fn streams_are_found() {
    let sdp = Sdp::parse(OFFER.as_bytes()).unwrap();
    let [audio, fax, chat] = sdp.media() else { panic!("{:?}", sdp.media()) };
    assert_eq!((audio.kind, audio.port, audio.ports), (&b"audio"[..], 4_000, 1));
    assert_eq!((audio.transport, audio.formats), (Transport::Rtp, &b"0 8 101"[..]));
    assert_eq!(audio.host, Host::Address("10.0.0.1".parse().unwrap()));
    assert_eq!((audio.direction, audio.rtcp), (Direction::SendOnly, Rtcp::At(4_001, None)));
    assert_eq!((fax.transport, fax.direction), (Transport::Datagrams, Direction::RecvOnly));
    assert_eq!(fax.host, Host::Address("2001:db8::1".parse().unwrap()));
    assert_eq!((chat.transport, chat.formats), (Transport::Other, &b"*"[..]));
    let maps: Vec<_> = sdp.attributes(Some(0), "rtpmap").collect();
    assert_eq!(maps, [b"101 telephone-event/8000"]);
    assert_eq!(sdp.attributes(None, "ice-lite").count(), 1);
    assert_eq!(sdp.attributes(Some(9), "rtpmap").count(), 0);
    for (protocol, transport) in [
        ("RTP/SAVP", Transport::Srtp),
        ("RTP/AVPF", Transport::Rtp),
        ("UDP/TLS/RTP/SAVPF", Transport::DtlsSrtp),
        ("UDP/BFCP", Transport::Datagrams),
        ("RTP/AVPX", Transport::Other),
    ] {
        let text = OFFER.replacen("RTP/AVP", protocol, 1);
        assert_eq!(Sdp::parse(text.as_bytes()).unwrap().media()[0].transport, transport);
    }
}

#[test]
fn one_stream_is_redirected_and_all_else_stays() {
    let text = edited(OFFER, |edit| {
        edit.redirect(0, HERE, 5_000);
        edit.add_attribute(0, "x-here", "7 8");
    });
    let without = [
        ("a=ice-lite\r\na=group:BUNDLE 1 2\r\n", ""),
        ("4000/1", "5000"),
        ("i=title\r\n", "i=title\r\nc=IN IP4 192.0.2.9\r\n"),
        ("rtcp:4001", "rtcp:5001"),
        ("a=candidate:1 1 UDP 2130706431 10.0.0.1 4000 typ host\r\na=ice-ufrag:x\r\n", ""),
        ("a=x-unknown\r\n", "a=x-unknown\r\na=x-here:7 8\r\n"),
    ];
    assert_eq!(text, with(OFFER, &without));
    assert_eq!(edited(OFFER, |_| ()), OFFER);
}

#[test]
fn the_session_has_an_address_if_it_is_that_of_all() {
    let simple = "v=0\no=- 1 1 IN IP4 h\ns=-\nc=IN IP4 10.0.0.1\nt=0 0\n\
        m=audio 4000 RTP/AVP 0\nm=video 0 RTP/AVP 31\nm=audio 4004 RTP/AVP 0";
    let both = edited(simple, |edit| {
        edit.redirect(0, HERE, 5_000);
        edit.redirect(2, HERE, 5_002);
    });
    let want = [("4 10.0.0.1", "4 192.0.2.9"), ("4000", "5000"), ("4004", "5002")];
    assert_eq!(both, with(simple, &want), "also without an end of the last line");
    let one = edited(simple, |edit| {
        edit.redirect(2, "::1".parse().unwrap(), 5_002);
        edit.decline(0);
        edit.add_attribute(2, "x", "y");
    });
    let want =
        [("4000", "0"), ("m=audio 4004 RTP/AVP 0", "m=audio 5002 RTP/AVP 0\nc=IN IP6 ::1\na=x:y")];
    assert_eq!(one.trim_end(), with(simple, &want));
}

#[test]
fn hold_and_multiplexed_rtcp_stay() {
    let held = "v=0\r\nc=IN IP4 0.0.0.0\r\nm=audio 4000 RTP/AVP 0\r\na=rtcp:4000\r\na=rtcp-mux\r\n";
    let text = edited(held, |edit| edit.redirect(0, HERE, 5_000));
    assert_eq!(text, held.replace("4000", "5000"));
}

#[test]
fn a_stream_of_layers_has_one_address_then() {
    let layers = "v=0\r\nm=audio 4000/2 RTP/AVP 0\r\nc=IN IP4 224.2.1.1/127\r\nb=AS:1\r\nc=IN IP4 224.2.1.2/127\r\n";
    let text = edited(layers, |edit| edit.redirect(0, HERE, 5_000));
    let want =
        [("4000/2", "5000"), ("224.2.1.1/127", "192.0.2.9"), ("c=IN IP4 224.2.1.2/127\r\n", "")];
    assert_eq!(text, with(layers, &want));
}

#[test]
fn blank_lines_and_nul_around_it_cost_nothing() {
    let plain = edited(OFFER, |edit| edit.redirect(0, HERE, 7_000));
    for end in ["\r\n", "\n", "\r\n\r\n", "\r\n\n\r\n", "\r", "\0", " \r\n\0\0"] {
        let text = format!("{OFFER}{end}");
        assert_eq!(edited(&text, |edit| edit.redirect(0, HERE, 7_000)), plain, "{end:?}");
    }
    let first = format!("\r\n \n{OFFER}");
    let redirected = edited(&first, |edit| edit.redirect(0, HERE, 7_000));
    assert_eq!(redirected, format!("\r\n \n{plain}"));
    for text in ["", "\r\n", "\r\ns=x\r\nv=0\r\n", "\0"] {
        assert!(Sdp::parse(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn what_is_malformed_has_a_line() {
    let long = format!("v=0\n{}", "a=x\n".repeat(MAX_LINES));
    let many = format!("v=0\nc=IN IP4 h.x\n{}", "m=a 1 udp x\n".repeat(MAX_MEDIA + 1));
    for (text, want) in [
        ("", SdpError::Line(1)),
        ("v=1\n", SdpError::Line(1)),
        ("o=x\nv=0\n", SdpError::Line(1)),
        ("v=0\n m=audio 1 RTP/AVP 0\n", SdpError::Line(2)),
        ("v=0\nx\0\nt=0 0\n", SdpError::Line(2)),
        ("v=0\nx\rm\nt=0 0\n", SdpError::Line(2)),
        ("v=0\nA=0\n", SdpError::Line(2)),
        (&long, SdpError::TooLong),
        (&many, SdpError::TooManyMedia),
    ] {
        assert_eq!(Sdp::parse(text.as_bytes()).err(), Some(want), "{text}");
    }
    let name = Sdp::parse(b"v=0\nc=IN IP4 h.x/7\nm=audio 1 RTP/AVP 0\n").unwrap().media()[0].host;
    assert_eq!(name, Host::Name(b"h.x"));
    assert!(Sdp::parse(b"v=0\nm=audio 0 RTP/AVP 0\n").is_ok(), "refused, it needs no address");
}

/// A mistake in a stream costs that stream alone: it is rejected, and the others live.
#[test]
fn a_malformed_stream_is_rejected_alone() {
    let good = "m=image 4002 udptl t38\nc=IN IP4 10.0.0.1\n";
    for (bad, want, rejected) in [
        ("m=audio x RTP/AVP 0\n", SdpError::Media(2), "m=audio 0 RTP/AVP 0\n"),
        ("m=audio 65536 RTP/AVP 0\n", SdpError::Media(2), "m=audio 0 RTP/AVP 0\n"),
        ("m=audio 1/0 RTP/AVP 8 9\n", SdpError::Media(2), "m=audio 0 RTP/AVP 8\n"),
        ("m=audio 1 RTP/AVP \n", SdpError::Media(2), "m=audio 0 RTP/AVP 0\n"),
        ("m=\n", SdpError::Media(2), "m=audio 0 RTP/AVP 0\n"),
        ("m=audio 1 RTP/AVP 0\n", SdpError::Connection(2), "m=audio 0 RTP/AVP 0\n"),
        (
            "m=audio 1 RTP/AVP 0\nc=ATM x y\n",
            SdpError::Connection(3),
            "m=audio 0 RTP/AVP 0\nc=ATM x y\n",
        ),
        (
            "m=audio 1 udp x\nc=IN IP4 ::1\n",
            SdpError::Connection(3),
            "m=audio 0 udp x\nc=IN IP4 ::1\n",
        ),
        (
            "m=a 1 x y\nc=IN IP4 1.2.3.4.5\n",
            SdpError::Connection(3),
            "m=a 0 x y\nc=IN IP4 1.2.3.4.5\n",
        ),
    ] {
        let text = format!("v=0\n{bad}{good}");
        let sdp = Sdp::parse(text.as_bytes()).unwrap();
        assert_eq!([0, 1].map(|n| sdp.media()[n].fault), [Some(want), None], "{text}");
        let mut edit = SdpEdit::new(&sdp);
        edit.decline(0);
        edit.redirect(1, HERE, 7_000);
        let changed = edit.finish();
        let good = good.replace("4002", "7000").replace("10.0.0.1", "192.0.2.9");
        assert_eq!(String::from_utf8_lossy(&changed), format!("v=0\n{rejected}{good}"));
        assert_eq!(Sdp::parse(&changed).unwrap().media()[0].fault, None);
    }
    let hopeless = b"v=0\n x=\nm=audio 7 RTP/AVP 8 0\nm=\x01 x\r\nm";
    let rejected = rejection(hopeless);
    let ports = Sdp::parse(&rejected).unwrap();
    assert!(rejected.ends_with(b"m=audio 0 RTP/AVP 8\r\nm=audio 0 RTP/AVP 0\r\n"));
    assert_eq!(ports.media().len(), 2);
}

/// Phones write more than RFC 8866 allows; what a relay doesn't read costs no call.
#[test]
fn what_phones_write_is_read() {
    let odd = "v=0 \t\r\n\r\ns\r\nc=IN\tIP4  10.0.0.1 \r\nno sense\r\n\
        m=audio\t4000 RTP/AVP\t0\r\na=inactive \r\na=rtcp:4001 \r\na=rtcp-mux \r\n\
        m=video 0 RTP/AVP\r\nm=image 0 udptl \r\n\r\n";
    let sdp = Sdp::parse(odd.as_bytes()).unwrap();
    let [audio, video, image] = sdp.media() else { panic!("{:?}", sdp.media()) };
    assert_eq!(audio.host, Host::Address("10.0.0.1".parse().unwrap()));
    assert_eq!((audio.port, audio.transport), (4_000, Transport::Rtp));
    assert_eq!((audio.direction, audio.rtcp), (Direction::Inactive, Rtcp::At(4_001, None)));
    assert!(audio.rtcp_mux && sdp.media().iter().all(|stream| stream.fault.is_none()));
    assert_eq!([video, image].map(|stream| (stream.port, stream.formats)), [(0, &b""[..]); 2]);
    for (stated, want) in [
        ("", Rtcp::Nowhere),
        ("x", Rtcp::Nowhere),
        ("9 IN IP4 x y", Rtcp::At(9, Some(Host::Name(b"x")))),
        ("9 IN IP7 x", Rtcp::Nowhere),
        (" 9\tIN IP4 0.0.0.0 ", Rtcp::At(9, Some(Host::Address([0, 0, 0, 0].into())))),
    ] {
        let text = format!("v=0\nc=IN IP4 h.x\nm=audio 1 RTP/AVP 0\na=rtcp:{stated}\n");
        assert_eq!(Sdp::parse(text.as_bytes()).unwrap().media()[0].rtcp, want, "{stated:?}");
    }
}

/// Lines of descriptions, valid and invalid.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "c=IN IP4 10.0.0.1",
        "c=IN IP6 ::1",
        "c=IN IP4 0.0.0.0",
        "i=x",
        "m=audio 4 RTP/AVP 0",
        "m=image 6/2  udptl  t38",
        "m=video 0 RTP/AVP 31",
        "a=rtcp:5",
        "a=rtcp-mux",
        "a=ice-lite",
        "a=group:BUNDLE 1",
        "a=candidate:1",
        "a=sendonly",
        "a=",
        "a",
        "",
        "m=audio 4",
        "c=IN IP4 x y",
        "c=IN IP4 ::1",
    ]);
    let bytes = prop_oneof![
        9 => known.prop_map(|line| line.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..6)
    ];
    (bytes, prop::bool::weighted(0.9))
        .prop_map(|(bytes, crlf)| [&bytes[..], if crlf { b"\r\n" } else { b"\n" }].concat())
}

proptest! {
    #[test]
    fn whatever_is_described_is_redirected_or_refused(lines in vec(line(), 0..20), cut: bool) {
        let mut text = [&b"v=0\r\n"[..], &lines.concat()].concat();
        if cut && text.ends_with(b"\n") {
            text.pop();
        }
        let Ok(sdp) = Sdp::parse(&text) else { return Ok(()) };
        prop_assert_eq!(SdpEdit::new(&sdp).finish(), without_blank_end(&text));
        let mut edit = SdpEdit::new(&sdp);
        for (n, stream) in sdp.media().iter().enumerate() {
            if stream.fault.is_some() {
                edit.decline(n);
            }
            if stream.fault.is_some() || stream.port == 0 {
                continue;
            }
            edit.redirect(n, HERE, 5_000 + 2 * n as u16);
            edit.add_attribute(n, "x-here", "y");
        }
        let changed = edit.finish();
        let after = Sdp::parse(&changed).unwrap();
        prop_assert_eq!(after.media().len(), sdp.media().len());
        for (n, (old, new)) in sdp.media().iter().zip(after.media()).enumerate() {
            prop_assert_eq!(new.fault, None);
            if old.fault.is_some() {
                prop_assert_eq!(new.port, 0);
                continue;
            }
            prop_assert_eq!((old.kind, old.transport), (new.kind, new.transport));
            prop_assert_eq!(new.ports, if old.port == 0 { old.ports } else { 1 });
            prop_assert_eq!((old.formats, old.direction), (new.formats, new.direction));
            if old.port != 0 {
                prop_assert_eq!(new.port, 5_000 + 2 * n as u16);
                prop_assert!(new.host == Host::Address(HERE) || old.is_held_by_address());
                prop_assert_eq!(after.attributes(Some(n), "candidate").count(), 0);
                prop_assert_eq!(after.attributes(Some(n), "x-here").count(), 1);
            }
        }
    }
}
