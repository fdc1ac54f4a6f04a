//! Calls of real telephones through real gateways, in network namespaces that lose packets. The
//! tests check that calls are set up, that their session descriptions name the gateway, and that
//! the speech is heard.
#![expect(clippy::disallowed_methods, reason = "real telephones need real time")]

use crate::common::on_time::on_time;
use macro_rules_attribute::apply;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;
use trunkline_lab::phones::{
    Gateways, Kamailio, Network, Options, Phone, PhoneHost, PhoneSetup, Rtp, SITE_A, SITE_B, Sipp,
    Sniffer, missing,
};
use trunkline_media::audio::read_wav;
use trunkline_media::codec::g711::Law;

fn seconds(n: f64) -> Duration {
    Duration::from_secs_f64(n)
}

/// Path of the daemon, if everything that a call needs is installed, which CI requires.
fn ready(programs: &[&str]) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_trunkline-lab")).with_file_name("trunkline");
    let is_there = path.is_file();
    let absent = (!is_there).then(|| "no trunkline; cargo build -p trunkline".to_owned());
    let why = absent.or_else(|| missing(programs));
    if let Some(why) = &why {
        assert!(std::env::var_os("CI").is_none(), "{why}");
        println!("skipped: {why}");
    }
    why.is_none().then_some(path)
}

fn wav(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../speech").join(name).canonicalize().unwrap()
}

/// Configuration of two phones.
struct Setup {
    transport: &'static str,
    /// Whether they register at Kamailio.
    registers: bool,
    /// Further parameters of the accounts.
    account: &'static str,
    options: Options,
}

impl Default for Setup {
    fn default() -> Setup {
        let options = Options { direct: true, ..Options::default() };
        Setup { transport: "udp", registers: false, account: "", options }
    }
}

/// Two sites with a phone each, connected by a path that loses one packet in twenty.
struct Sites {
    alice: Phone,
    bob: Phone,
    gateways: Gateways,
    _kamailio: Option<Kamailio>,
    registers: bool,
    network: Network,
    folder: TempDir,
}

/// A certificate with its key for all addresses here: one file with both, and one file of each.
fn certificate(folder: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let names = [SITE_A[0], SITE_A[1], SITE_B[0], SITE_B[1]].map(String::from);
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let both = file("both.pem", &format!("{key}{certificate}"));
    (both, file("certificate.pem", &certificate), file("key.pem", &key))
}

impl Sites {
    fn new(trunkline: &Path, mut setup: Setup) -> Sites {
        let folder = tempfile::tempdir().expect("a folder");
        let network = Network::new().expect("namespaces");
        network.lose(0.05).expect("loss");
        let mut both = None;
        if setup.transport == "tls" {
            let (path, certificate, key) = certificate(folder.path());
            both = Some(path);
            setup.options.certificate = Some((certificate, key));
        }
        let kamailio = setup.registers.then(|| {
            setup.options.trust = vec!["10.77.8.1".into(), "10.77.9.1".into()];
            Kamailio::start(&network, folder.path()).expect("Kamailio")
        });
        let gateways = Gateways::start(&network, trunkline, folder.path(), &setup.options);
        let gateways = gateways.expect("gateways");
        let port = if setup.transport == "tls" { 5_061 } else { 5_060 };
        let phone = |name, place, site: [&str; 3], domain, wav: PathBuf, account: &str| {
            let outbound = format!("sip:{}:{port};transport={}", site[1], setup.transport);
            let account = format!("{account}{}", setup.account);
            let phone = PhoneSetup {
                name,
                domain: if setup.registers { domain } else { "" },
                registers: setup.registers,
                outbound: Some(&outbound),
                transport: setup.transport,
                account: &account,
                wav: &wav,
                certificate: both.as_deref(),
            };
            Phone::start(&network, place, site[0], folder.path(), &phone).expect("a phone")
        };
        let alice =
            phone("alice", PhoneHost::PhoneA, SITE_A, "10.77.8.1", wav("en-allison.wav"), "");
        let bob = phone(
            "bob",
            PhoneHost::PhoneB,
            SITE_B,
            "10.77.9.1",
            wav("it-carlo.wav"),
            ";answermode=auto",
        );
        if setup.registers {
            for phone in [&alice, &bob] {
                phone.wait_for("200 OK").expect("a registration");
            }
        }
        let (_kamailio, registers) = (kamailio, setup.registers);
        Sites { alice, bob, gateways, _kamailio, registers, network, folder }
    }

    fn dial(&self) {
        let host = if self.registers { "10.77.8.1" } else { SITE_B[0] };
        self.alice.tell("dial", &format!("sip:bob@{host}")).expect("a call");
        self.alice.wait_for("Call established").expect("a call");
    }

    /// A `sipp` at a phone's host that runs tests/sipp/`name`.xml.
    fn sipp(&self, place: PhoneHost, name: &str, args: &[&str]) -> Sipp {
        let address = if place == PhoneHost::PhoneA { SITE_A[0] } else { SITE_B[0] };
        let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sipp").join(name);
        let scenario = scenario.with_extension("xml");
        let speech = self.folder.path().join("speech.ul");
        if !speech.exists() {
            let wav = std::fs::read(wav("en-allison.wav")).expect("speech");
            let pcm = read_wav(&wav[..]).expect("speech");
            let mut codes = Vec::new();
            Law::Mu.encode_to(&pcm[..8_000 * 12], &mut codes);
            std::fs::write(speech, codes).expect("a file");
        }
        let place = (place, address, 5_080);
        Sipp::start(&self.network, place, self.folder.path(), &scenario, args).expect("sipp")
    }

    /// Packets that reach both phones within this time.
    fn listen(&self, time: Duration) -> [Vec<Rtp>; 2] {
        let sniff = |place| Sniffer::start(&self.network, place).expect("a sniffer");
        let both = [sniff(PhoneHost::PhoneA), sniff(PhoneHost::PhoneB)];
        sleep(time);
        let [a, b] = both.map(Sniffer::stop);
        let to = |all: Vec<Rtp>, phone: &str| -> Vec<Rtp> {
            all.into_iter().filter(|rtp| rtp.to.ip().to_string() == phone).collect()
        };
        [to(a, SITE_A[0]), to(b, SITE_B[0])]
    }

    /// Asserts that each phone receives the other's speech, from its gateway alone, with the path's
    /// losses recovered.
    fn assert_heard(&self) {
        let [a, b] = self.listen(seconds(3.0));
        for (heard, gateway) in [(&a, SITE_A[1]), (&b, SITE_B[1])] {
            assert!(heard.iter().all(|rtp| rtp.from.ip().to_string() == gateway));
            // 150 packets are sent; of the 5 % that are lost, a twentieth remains.
            assert!(heard.len() >= 142, "{} packets in 3 s from {gateway}", heard.len());
        }
    }

    /// The only call of site 1 or 2.
    fn call(&self, site: usize) -> Value {
        let calls = self.gateways.ask(site, &["calls"]).expect("calls");
        assert_eq!(calls.as_array().map(Vec::len), Some(1), "{calls}");
        calls[0].clone()
    }

    /// Hangs up, and asserts that both ends do, and that both gateways have a record of a call over
    /// the overlay.
    fn hang_up(&self) {
        self.alice.tell("hangup", "").expect("an end");
        // A gateway waits for the last counters of its legs.
        let are_there = || [1, 2].iter().all(|site| !self.gateways.records(*site).is_empty());
        (0..50).take_while(|_| !are_there()).for_each(|_| sleep(seconds(0.1)));
        for site in [1, 2] {
            let records = self.gateways.records(site);
            let [record] = &records[..] else { panic!("{records:?}") };
            assert_eq!((&record["state"], &record["overlay"]), (&"ended".into(), &true.into()));
            let legs = record["legs"].as_array().expect("legs");
            let expected = legs.iter().map(|leg| leg["expected"].as_u64().unwrap_or(0));
            assert!(expected.min() > Some(100), "{record}");
            let over = legs.iter().find(|leg| leg["overlay"] == true).expect("a leg over it");
            assert!(over["recovered"].as_u64() > Some(0), "{record}");
        }
    }
}

/// Plays a call from beginning to end.
fn talk(setup: Setup) {
    let programs = if setup.registers { &["baresip", "kamailio"][..] } else { &["baresip"] };
    let Some(trunkline) = ready(programs) else { return };
    let sites = Sites::new(&trunkline, setup);
    sites.dial();
    sites.assert_heard();
    for site in [1, 2] {
        let call = sites.call(site);
        assert_eq!((&call["state"], &call["overlay"]), (&"up".into(), &true.into()), "{call}");
    }
    sites.hang_up();
}

/// All setups at the same time, since they mostly wait.
#[apply(on_time)]
fn phones_talk_by_every_transport_registered_or_not() {
    // TLS only up to the gateways.
    let route = |at: &str| (at.to_owned(), format!("udp:{at}:5060"));
    let routes = vec![route("10.77.8.1"), route("10.77.9.1")];
    let tls = Options { routes, ..Options::default() };
    let registered =
        |transport, options| Setup { transport, registers: true, options, ..Setup::default() };
    let all = [
        Setup::default(),
        Setup { transport: "tcp", ..Setup::default() },
        registered("udp", Options::default()),
        registered("tcp", Options::default()),
        registered("tls", tls),
        // Keys in the session description pass through.
        Setup { account: ";mediaenc=srtp-mand", ..Setup::default() },
    ];
    std::thread::scope(|scope| {
        let calls = all.map(|setup| scope.spawn(|| talk(setup)));
        calls.into_iter().for_each(|call| call.join().expect("a call"));
    });
}

#[apply(on_time)]
fn encrypted_speech_passes_with_keys_of_its_own() {
    let Some(trunkline) = ready(&["baresip"]) else { return };
    let setup = Setup { account: ";mediaenc=dtls_srtp", ..Setup::default() };
    let sites = Sites::new(&trunkline, setup);
    sites.dial();
    // The phones need a while to agree.
    sleep(seconds(2.5));
    sites.assert_heard();
    sites.hang_up();
}

#[apply(on_time)]
fn a_call_is_held_and_goes_on() {
    let Some(trunkline) = ready(&["baresip"]) else { return };
    let sites = Sites::new(&trunkline, Setup::default());
    sites.dial();
    sites.assert_heard();
    sites.alice.tell("hold", "").expect("a hold");
    sleep(seconds(0.5));
    let [a, _] = sites.listen(seconds(1.0));
    assert!(a.len() < 5, "{} packets to who has put the call on hold", a.len());
    sites.alice.tell("resume", "").expect("an end of it");
    sleep(seconds(0.5));
    sites.assert_heard();
    assert_eq!(sites.call(1)["state"], "up");
    // Each phone sends a report every 5 s, and from the second on it also refers to one that it has
    // received.
    let trips = || {
        let call = sites.call(1);
        let trip = |leg: usize| call["legs"][leg]["says"]["round_trip_ms"].as_f64();
        Some([trip(0)?, trip(1)?])
    };
    let mut polls = (0..100).map(|_| sleep(seconds(0.1)));
    let [alice, bob] = polls.find_map(|()| trips()).expect("reports of both");
    assert!(alice < 100.0 && bob < 200.0, "{alice} and {bob} ms");
    let lost = sites.call(1)["legs"][1]["says"]["lost_share"].as_f64();
    assert!(lost < Some(0.05), "Bob has lost {lost:?}");
    sites.hang_up();
}

#[apply(on_time)]
fn a_peer_that_is_no_gateway_gets_plain_rtp_and_the_log_says_so() {
    let Some(trunkline) = ready(&["baresip"]) else { return };
    // The first gateway trusts the phone at the other site, which has only a router, and sends to
    // it.
    let options = Options { only_first: true, trust: vec![SITE_B[0].into()], ..Options::default() };
    let sites = Sites::new(&trunkline, Setup { options, ..Setup::default() });
    // Its gateway isn't there to be its outbound proxy: it answers without one.
    sites.dial();
    let [a, b] = sites.listen(seconds(3.0));
    for heard in [&a, &b] {
        // 150 in 3 s, and a few more if listening ends late.
        assert!((110..160).contains(&heard.len()), "{} packets", heard.len());
    }
    assert!(b.iter().all(|rtp| rtp.from.ip().to_string() == SITE_A[1]));
    assert_eq!(sites.call(1)["overlay"], false);
    assert!(sites.gateways.log(1).contains("bypass the overlay"), "{}", sites.gateways.log(1));
}

/// Asserts that neither gateway has a call any more, and that all ports are free.
fn assert_over(sites: &Sites) {
    sleep(seconds(0.7));
    for site in [1, 2] {
        let calls = sites.gateways.ask(site, &["calls", "--live"]).expect("calls");
        assert_eq!(calls.as_array().map(Vec::len), Some(0), "{calls}");
    }
}

#[apply(on_time)]
fn what_is_said_before_the_answer_is_heard() {
    let Some(trunkline) = ready(&["baresip", "sipp"]) else { return };
    let sites = Sites::new(&trunkline, Setup::default());
    let callee = sites.sipp(PhoneHost::PhoneB, "early", &["-m", "1", "-rtp_echo"]);
    sites.alice.tell("dial", "sip:early@10.77.2.2:5080").expect("a call");
    sites.alice.wait_for("SIP/2.0 183").expect("progress");
    sleep(seconds(0.3));
    let [early, _] = sites.listen(seconds(1.5));
    assert_eq!(sites.call(1)["state"], "ringing");
    sites.alice.wait_for("Call established").expect("an answer");
    let [a, _] = sites.listen(seconds(2.0));
    // Each hears its echo.
    assert!(early.len() > 60 && a.len() > 90, "{} and {}", early.len(), a.len());
    sites.alice.tell("hangup", "").expect("an end");
    assert!(callee.ended().expect("sipp"));
    assert_over(&sites);
}

#[apply(on_time)]
fn who_gives_up_while_it_rings_ends_the_call() {
    let Some(trunkline) = ready(&["baresip", "sipp"]) else { return };
    let sites = Sites::new(&trunkline, Setup::default());
    let callee = sites.sipp(PhoneHost::PhoneB, "rings", &["-m", "1"]);
    sites.alice.tell("dial", "sip:rings@10.77.2.2:5080").expect("a call");
    sites.alice.wait_for("180 Ringing").expect("ringing");
    sites.alice.tell("hangup", "").expect("an end");
    sites.alice.wait_for("SIP/2.0 487").expect("the end");
    assert!(callee.ended().expect("sipp"));
    assert_over(&sites);
}

#[apply(on_time)]
fn an_offer_may_come_from_who_is_called() {
    let Some(trunkline) = ready(&["baresip", "sipp"]) else { return };
    let sites = Sites::new(&trunkline, Setup::default());
    let args = ["10.77.1.1:5060", "-s", "bob", "-m", "1"];
    let caller = sites.sipp(PhoneHost::PhoneA, "delayed", &args);
    sites.bob.wait_for("Call established").expect("a call");
    let [a, b] = sites.listen(seconds(2.0));
    assert!(a.len() > 90 && b.len() > 90, "{} and {}", a.len(), b.len());
    assert_eq!(sites.call(2)["overlay"], true);
    assert!(caller.ended().expect("sipp"));
    assert_over(&sites);
}

#[apply(on_time)]
fn of_two_that_ring_one_is_busy_and_the_other_answers() {
    let Some(trunkline) = ready(&["baresip", "kamailio", "sipp"]) else { return };
    let setup = Setup { registers: true, options: Options::default(), ..Setup::default() };
    let sites = Sites::new(&trunkline, setup);
    let _busy = sites.sipp(PhoneHost::PhoneB, "busy", &["-m", "1"]);
    sites.alice.tell("dial", "sip:fork@10.77.8.1").expect("a call");
    sites.alice.wait_for("Call established").expect("an answer");
    sites.assert_heard();
    sites.alice.tell("hangup", "").expect("an end");
    assert_over(&sites);
}

#[apply(on_time)]
fn a_call_is_transferred() {
    let Some(trunkline) = ready(&["baresip", "sipp"]) else { return };
    let sites = Sites::new(&trunkline, Setup::default());
    let third = sites.sipp(PhoneHost::PhoneB, "answers", &["-m", "1", "-rtp_echo"]);
    sites.dial();
    // Bob is asked to call a third party at his site.
    sites.alice.tell("transfer", "sip:answers@10.77.2.2:5080").expect("a transfer");
    sites.bob.wait_for_times("Call established", 2).expect("another call");
    let [_, b] = sites.listen(seconds(2.0));
    assert!(b.len() > 90, "{} packets come back from who was called then", b.len());
    sites.bob.tell("hangup", "").expect("an end");
    drop(third);
}

#[apply(on_time)]
fn a_hundred_calls_at_once_leave_nothing_behind() {
    let Some(trunkline) = ready(&["baresip", "sipp"]) else { return };
    let sites = Sites::new(&trunkline, Setup::default());
    let callee = sites.sipp(PhoneHost::PhoneB, "answers", &["-rtp_echo"]);
    let calls = ["-key", "callee", "5080", "-r", "20", "-l", "100", "-m", "100", "-d", "10000"];
    let args = [&["10.77.1.1:5060", "-s", "many"][..], &calls].concat();
    let caller = sites.sipp(PhoneHost::PhoneA, "calls", &args);
    sleep(seconds(8.0));
    let calls = sites.gateways.ask(1, &["calls", "--live"]).expect("calls");
    let calls = calls.as_array().expect("calls");
    assert_eq!(calls.len(), 100);
    let over =
        |call: &&Value| call["overlay"] == true && call["legs"][1]["packets"].as_u64() > Some(50);
    let heard = calls.iter().filter(over).count();
    assert!(heard >= 98, "of 100 calls {heard} are heard over the overlay");
    assert!(caller.ended().expect("sipp"), "a call failed");
    drop(callee);
    assert_over(&sites);
    assert_eq!(sites.gateways.records(2).len(), 100);
}

#[apply(on_time)]
fn a_call_goes_on_by_another_way() {
    let Some(trunkline) = ready(&["baresip"]) else { return };
    let options = Options { direct: true, detour: true, ..Options::default() };
    let sites = Sites::new(&trunkline, Setup { options, ..Setup::default() });
    sites.dial();
    // Twice, as the second time must be like the first.
    for cut in [true, false, true] {
        sites.network.cut(cut).expect("a cut");
        sleep(seconds(1.6));
        sites.assert_heard();
    }
    let links = sites.gateways.ask(1, &["links"]).expect("links");
    let up = |n: usize| links[n]["up"] == true;
    assert!(!up(0) && up(1), "{links}");
    sites.hang_up();
}

#[apply(on_time)]
fn a_gateway_that_is_drained_keeps_its_calls_and_takes_no_more() {
    let Some(trunkline) = ready(&["baresip"]) else { return };
    let sites = Sites::new(&trunkline, Setup::default());
    sites.dial();
    sites.gateways.tell(1, &["drain", "--now"]).expect("a drain");
    sleep(seconds(1.5));
    sites.assert_heard();
    sites.alice.tell("hangup", "").expect("an end");
    assert_over(&sites);
    sites.alice.tell("dial", "sip:bob@10.77.2.2").expect("a call");
    sites.alice.wait_for("SIP/2.0 503").expect("a refusal");
    sites.gateways.tell(1, &["drain", "--undo"]).expect("its end");
    sleep(seconds(1.5));
    sites.alice.tell("dial", "sip:bob@10.77.2.2").expect("a call");
    sites.alice.wait_for_times("Call established", 2).expect("a call");
    sites.assert_heard();
}
