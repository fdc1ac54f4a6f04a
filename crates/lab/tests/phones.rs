//! Calls of real telephones through real gateways, in network namespaces that lose
//! packets: that they are set up, that their descriptions name the gateway, and that
//! what was said is heard.
#![expect(clippy::disallowed_methods, reason = "real telephones need real time")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;
use trunkline_lab::phones::{
    Gateways, Kamailio, Network, Options, Phone, PhoneSetup, Place, Rtp, SITE_A, SITE_B, Sniffer,
    missing,
};

fn seconds(n: f64) -> Duration {
    Duration::from_secs_f64(n)
}

/// The daemon's program, if all is here that a call takes. In CI it must be.
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

/// How two phones are set up.
struct Setup {
    transport: &'static str,
    /// Whether they register at Kamailio.
    registers: bool,
    /// What else the accounts say.
    account: &'static str,
    options: Options,
}

impl Default for Setup {
    fn default() -> Setup {
        let options = Options { direct: true, ..Options::default() };
        Setup { transport: "udp", registers: false, account: "", options }
    }
}

/// Two sites with a phone each, whose path loses one packet in twenty.
struct Sites {
    alice: Phone,
    bob: Phone,
    gateways: Gateways,
    _kamailio: Option<Kamailio>,
    registers: bool,
    network: Network,
    _folder: TempDir,
}

/// A certificate with its key for all addresses here: one file with both, and one of
/// each.
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
        let alice = phone("alice", Place::PhoneA, SITE_A, "10.77.8.1", wav("en-allison.wav"), "");
        let bob = phone(
            "bob",
            Place::PhoneB,
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
        let (_kamailio, _folder, registers) = (kamailio, folder, setup.registers);
        Sites { alice, bob, gateways, _kamailio, registers, network, _folder }
    }

    fn dial(&self) {
        let host = if self.registers { "10.77.8.1" } else { SITE_B[0] };
        self.alice.tell("dial", &format!("sip:bob@{host}")).expect("a call");
        self.alice.wait_for("Call established").expect("a call");
    }

    /// What comes to both phones in so long.
    fn listen(&self, time: Duration) -> [Vec<Rtp>; 2] {
        let sniff = |place| Sniffer::start(&self.network, place).expect("a sniffer");
        let both = [sniff(Place::PhoneA), sniff(Place::PhoneB)];
        sleep(time);
        let [a, b] = both.map(Sniffer::stop);
        let to = |all: Vec<Rtp>, phone: &str| -> Vec<Rtp> {
            all.into_iter().filter(|rtp| rtp.to.ip().to_string() == phone).collect()
        };
        [to(a, SITE_A[0]), to(b, SITE_B[0])]
    }

    /// That each phone hears the other, from its gateway alone, without what the path
    /// loses.
    fn assert_heard(&self) {
        let [a, b] = self.listen(seconds(3.0));
        for (heard, gateway) in [(&a, SITE_A[1]), (&b, SITE_B[1])] {
            assert!(heard.iter().all(|rtp| rtp.from.ip().to_string() == gateway));
            // 150; of 5 % that are lost, a twentieth remains.
            assert!(heard.len() >= 142, "{} packets in 3 s from {gateway}", heard.len());
        }
    }

    /// The one call that site 1 or 2 knows of.
    fn call(&self, site: usize) -> Value {
        let calls = self.gateways.ask(site, &["calls"]).expect("calls");
        assert_eq!(calls.as_array().map(Vec::len), Some(1), "{calls}");
        calls[0].clone()
    }

    /// That both ends hang up, and both gateways have a record of a call over the
    /// overlay.
    fn hang_up(&self) {
        self.alice.tell("hangup", "").expect("an end");
        self.bob.wait_for("terminated").or_else(|_| self.bob.wait_for("session closed")).ok();
        sleep(seconds(0.5));
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

/// A call from beginning to end.
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

#[test]
fn phones_talk_over_udp() {
    talk(Setup::default());
}

#[test]
fn phones_talk_over_tcp() {
    talk(Setup { transport: "tcp", ..Setup::default() });
}

#[test]
fn phones_that_register_elsewhere_talk_over_udp() {
    talk(Setup { registers: true, options: Options::default(), ..Setup::default() });
}

#[test]
fn phones_that_register_elsewhere_talk_over_tcp() {
    talk(Setup {
        transport: "tcp",
        registers: true,
        options: Options::default(),
        ..Setup::default()
    });
}

#[test]
fn phones_that_register_elsewhere_talk_over_tls() {
    // Encrypted as far as the gateways.
    let route = |at: &str| (at.to_owned(), format!("udp:{at}:5060"));
    let routes = vec![route("10.77.8.1"), route("10.77.9.1")];
    let options = Options { routes, ..Options::default() };
    talk(Setup { transport: "tls", registers: true, options, ..Setup::default() });
}

#[test]
fn encrypted_speech_passes_with_keys_in_the_description() {
    talk(Setup { account: ";mediaenc=srtp-mand", ..Setup::default() });
}

#[test]
fn encrypted_speech_passes_with_keys_of_its_own() {
    let Some(trunkline) = ready(&["baresip"]) else { return };
    let setup = Setup { account: ";mediaenc=dtls_srtp", ..Setup::default() };
    let sites = Sites::new(&trunkline, setup);
    sites.dial();
    // It takes them a while to agree.
    sleep(seconds(2.5));
    sites.assert_heard();
    sites.hang_up();
}

#[test]
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
    sites.hang_up();
}

#[test]
fn a_peer_that_is_no_gateway_gets_plain_rtp_and_the_log_says_so() {
    let Some(trunkline) = ready(&["baresip"]) else { return };
    // The first gateway trusts and sends to what is only a router here: the phone.
    let options = Options { only_first: true, trust: vec![SITE_B[0].into()], ..Options::default() };
    let sites = Sites::new(&trunkline, Setup { options, ..Setup::default() });
    // Its own gateway isn't there to be its outbound proxy: it answers without.
    sites.dial();
    let [a, b] = sites.listen(seconds(3.0));
    for heard in [&a, &b] {
        assert!((110..150).contains(&heard.len()), "{} packets", heard.len());
    }
    assert!(b.iter().all(|rtp| rtp.from.ip().to_string() == SITE_A[1]));
    assert_eq!(sites.call(1)["overlay"], false);
    assert!(sites.gateways.log(1).contains("past the overlay"), "{}", sites.gateways.log(1));
}
