//! What hosts send and receive, in files for Wireshark: written by a thread of its own,
//! since a disk may be slow and packets are due.

use super::super::Error;
use crate::clock;
use crate::sys::run_ordinary;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use trunkline_base::Time;

/// Packets that wait to be written; what comes beyond is left out.
const WAITING: usize = 16_384;

/// Which host's packets go where: `HOST=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// By name.
    pub host: String,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        match text.split_once('=') {
            Some((host, path)) if !host.is_empty() && !path.is_empty() => {
                Ok(Wanted { host: host.to_owned(), path: path.into() })
            }
            _ => Err(format!("\"{text}\" is no capture: write HOST=FILE, as in \"a=a.pcapng\"")),
        }
    }
}

/// One file.
#[derive(Debug)]
struct Capture {
    host: usize,
    packets: SyncSender<(Duration, Vec<u8>)>,
    writer: JoinHandle<io::Result<()>>,
    path: PathBuf,
    left_out: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Captures {
    all: Vec<Capture>,
    /// What to add to a time of the pump's for one since 1970.
    start: Duration,
}

impl Captures {
    /// Begins a file for each that is wanted; each host by its number.
    ///
    /// # Errors
    ///
    /// A file can't be written.
    pub fn begin(wanted: Vec<(usize, PathBuf)>) -> Result<Captures, Error> {
        let begin = |(host, path): (usize, PathBuf)| {
            let failed = |source| Error::Capture { path: path.clone(), source };
            let mut out = create(&path).map_err(failed)?;
            let (packets, taken) = sync_channel::<(Duration, Vec<u8>)>(WAITING);
            let writer = std::thread::spawn(move || {
                run_ordinary();
                for (timestamp, packet) in taken {
                    let original_len = packet.len() as u32;
                    let (data, options) = (Cow::Owned(packet), Vec::new());
                    let interface_id = 0;
                    let block = EnhancedPacketBlock {
                        interface_id,
                        timestamp,
                        original_len,
                        data,
                        options,
                    };
                    out.write_pcapng_block(block).map_err(plain)?;
                }
                out.into_inner().flush()
            });
            Ok(Capture { host, packets, writer, path, left_out: 0 })
        };
        let all = wanted.into_iter().map(begin).collect::<Result<_, Error>>()?;
        Ok(Captures { all, start: Duration::ZERO })
    }

    /// The pump's time begins now.
    pub fn start(&mut self) {
        self.start = Duration::from_nanos(clock::since_epoch());
    }

    /// Host `n` has sent a packet.
    pub fn packet(&mut self, n: usize, at: Time, packet: &[u8]) {
        let since_epoch = self.start + at.since(Time::ZERO);
        for capture in self.all.iter_mut().filter(|capture| capture.host == n) {
            let sent = capture.packets.try_send((since_epoch, packet.to_vec()));
            capture.left_out += u64::from(matches!(sent, Err(TrySendError::Full(_))));
        }
    }

    /// Host `n` has just received one.
    pub fn now(&mut self, n: usize, packet: &[u8]) {
        if !self.all.is_empty() {
            let since = Duration::from_nanos(clock::since_epoch()).saturating_sub(self.start);
            self.packet(n, Time::ZERO + since, packet);
        }
    }

    /// Ends all files.
    ///
    /// # Errors
    ///
    /// The first that couldn't be written, or has not all of its packets.
    pub fn end(&mut self) -> Result<(), Error> {
        for Capture { packets, writer, path, left_out, .. } in self.all.drain(..) {
            drop(packets);
            let done = writer.join().expect("the writer doesn't panic");
            let all = match left_out {
                0 => Ok(()),
                n => Err(io::Error::other(format!("the disk was too slow for {n} packets"))),
            };
            done.and(all).map_err(|source| Error::Capture { path, source })?;
        }
        Ok(())
    }
}

fn create(path: &PathBuf) -> io::Result<PcapNgWriter<BufWriter<File>>> {
    let mut out = PcapNgWriter::new(BufWriter::new(File::create(path)?)).map_err(plain)?;
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::RAW,
        snaplen: 0,
        options: vec![InterfaceDescriptionOption::IfTsResol(9)],
    };
    out.write_pcapng_block(interface).map_err(plain)?;
    Ok(out)
}

fn plain(error: pcap_file::PcapError) -> io::Error {
    match error {
        pcap_file::PcapError::IoError(source) => source,
        other => io::Error::other(other),
    }
}
