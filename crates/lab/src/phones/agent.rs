//! baresip without a screen: a phone that plays a file and takes commands.

use super::network::within;
use super::{Error, Network, Place, cannot};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Address of a phone's control port.
const CONTROL: &str = "127.0.0.1:4444";

/// Timeout of a command.
const PATIENCE: Duration = Duration::from_secs(5);

/// Configuration of a phone.
#[derive(Clone, Debug)]
pub struct PhoneSetup<'a> {
    /// User part of its SIP address.
    pub name: &'a str,
    /// Host part of its SIP address: its IP address, or a proxy at which it registers.
    pub domain: &'a str,
    /// Whether it registers at `domain`.
    pub registers: bool,
    /// Target of all its requests, such as `sip:10.77.1.1;transport=udp`; `None` without an
    /// outbound proxy.
    pub outbound: Option<&'a str>,
    /// Transport of SIP: `udp`, `tcp` or `tls`.
    pub transport: &'a str,
    /// Further parameters of its account, such as `;answermode=auto;mediaenc=srtp-mand`.
    pub account: &'a str,
    /// The recording that it plays: 8 kHz, one channel, 16 bits.
    pub wav: &'a Path,
    /// Its certificate with the key, and the root that it trusts, for TLS.
    pub certificate: Option<&'a Path>,
}

/// A phone, which is stopped when dropped.
pub struct Phone {
    child: Child,
    host: PathBuf,
    log: PathBuf,
}

impl Drop for Phone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Phone {
    /// Starts a phone at `place`, with its files in `folder`.
    pub fn start(
        network: &Network,
        place: Place,
        address: &str,
        folder: &Path,
        setup: &PhoneSetup<'_>,
    ) -> Result<Phone, Error> {
        let folder = folder.join(setup.name);
        fs::create_dir_all(&folder).map_err(cannot("make a phone's folder"))?;
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).map_err(cannot(format!("write a phone's {name}")))
        };
        write("config", &config(address, setup))?;
        write("accounts", &account(address, setup))?;
        write("contacts", "")?;
        let log = folder.join("log");
        let file = File::create(&log).map_err(cannot("make a phone's log"))?;
        let errors = file.try_clone().map_err(cannot("make a phone's log"))?;
        let mut command = network.command(place, "baresip");
        command.args(["-4", "-s", "-f"]).arg(&folder);
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().map_err(cannot("start baresip"))?;
        let phone = Phone { child, host: network.path(place), log };
        let until = Instant::now() + PATIENCE;
        while phone.connect().is_err() {
            if Instant::now() > until {
                return Err(Error::Program(format!("baresip did not start: {}", phone.log())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(phone)
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let thread = within(&self.host, || TcpStream::connect(CONTROL))?;
        thread.join().ok().flatten().unwrap_or_else(|| Err(std::io::ErrorKind::Other.into()))
    }

    /// Executes a command such as `dial URI`, `hangup`, `hold` or `resume`, and returns the phone's
    /// answer.
    pub fn tell(&self, command: &str, params: &str) -> Result<String, Error> {
        let failed = || cannot(format!("send {command} to a phone"));
        let mut stream = self.connect().map_err(failed())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
        let ask = json!({"command": command, "params": params, "token": "t"}).to_string();
        // Netstrings (D. J. Bernstein, 1997).
        write!(stream, "{}:{ask},", ask.len()).map_err(failed())?;
        let (mut said, mut buffer) = (Vec::new(), [0; 4_096]);
        loop {
            let n = stream.read(&mut buffer).map_err(failed())?;
            said.extend(&buffer[..n]);
            while let Some((value, rest)) = netstring(&said) {
                if value["response"] == true {
                    let data = value["data"].as_str().unwrap_or_default().to_owned();
                    return match value["ok"] == true {
                        true => Ok(data),
                        false => Err(Error::Program(format!("a phone can't {command}: {data}"))),
                    };
                }
                said = rest;
            }
            if n == 0 {
                return Err(Error::Program(format!("a phone did not answer {command}")));
            }
        }
    }

    /// The phone's log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the phone's log contains this.
    pub fn wait_for(&self, text: &str) -> Result<(), Error> {
        self.wait_for_times(text, 1)
    }

    /// Waits until the phone's log contains this that many times.
    pub fn wait_for_times(&self, text: &str, times: usize) -> Result<(), Error> {
        let until = Instant::now() + PATIENCE;
        while self.log().matches(text).count() < times {
            if Instant::now() > until {
                let log = self.log();
                return Err(Error::Program(format!("a phone did not say {text:?}: {log}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The first message in the received bytes, and the bytes that follow it.
fn netstring(said: &[u8]) -> Option<(Value, Vec<u8>)> {
    let colon = said.iter().position(|b| *b == b':')?;
    let length: usize = std::str::from_utf8(&said[..colon]).ok()?.parse().ok()?;
    let end = colon + 1 + length;
    let value = serde_json::from_slice(said.get(colon + 1..end)?).unwrap_or(Value::Null);
    Some((value, said.get(end + 1..)?.to_vec()))
}

fn config(address: &str, setup: &PhoneSetup<'_>) -> String {
    let PhoneSetup { name, wav, certificate, .. } = setup;
    let mut text = format!(
        "sip_listen {address}:5060\naudio_source aufile,{}\naudio_player aubridge,{name}\n\
         audio_alert aubridge,alert-{name}\nausrc_srate 8000\nauplay_srate 8000\n\
         ausrc_channels 1\nauplay_channels 1\nausrc_format s16\nauplay_format s16\n\
         auenc_format s16\naudec_format s16\nrtp_ports 16000-16099\nrtp_stats yes\n\
         jitter_buffer_delay 5-10\ncall_max_calls 4\nctrl_tcp_listen {CONTROL}\n\
         module_path /usr/lib/baresip/modules\n",
        wav.display()
    );
    if let Some(path) = certificate {
        let path = path.display();
        let _ = write!(text, "sip_certificate {path}\nsip_cafile {path}\n");
    }
    for module in ["g711", "aufile", "aubridge", "srtp", "dtls_srtp"] {
        let _ = writeln!(text, "module {module}.so");
    }
    text + "module_tmp account.so\nmodule_app menu.so\nmodule_app ctrl_tcp.so\n"
}

fn account(address: &str, setup: &PhoneSetup<'_>) -> String {
    let PhoneSetup { name, domain, registers, outbound, transport, account, .. } = setup;
    let domain = if domain.is_empty() { address } else { domain };
    let interval = if *registers { 60 } else { 0 };
    let outbound = outbound.map(|uri| format!(";outbound=\"{uri}\"")).unwrap_or_default();
    format!(
        "<sip:{name}@{domain};transport={transport}>;auth_pass=x;regint={interval}{outbound};\
         audio_codecs=PCMU/8000/1{account}\n"
    )
}
