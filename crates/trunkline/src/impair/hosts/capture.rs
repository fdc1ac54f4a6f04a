//! Captures of the hosts' traffic, in files for Wireshark. Each file is written by a separate
//! thread: a disk may be slow, and packets must leave on time.

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

/// Maximum number of packets queued for writing; more are omitted.
const WAITING: usize = 16_384;

/// A capture requested by the user: `HOST=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the host.
    pub host: String,
    /// The file to write.
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

/// A capture in progress.
#[derive(Debug)]
struct Capture {
    host: usize,
    packets: SyncSender<(Duration, Vec<u8>)>,
    writer: JoinHandle<io::Result<()>>,
    path: PathBuf,
    left_out: u64,
}

/// All captures of a run; see the module.
#[derive(Debug, Default)]
pub struct Captures {
    all: Vec<Capture>,
    /// Time from 1970 to the start of the pump's clock.
    start: Duration,
}

impl Captures {
    /// Starts a capture for each of these hosts, given by number.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
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

    /// Records that the pump's clock starts now.
    pub fn start(&mut self) {
        self.start = Duration::from_nanos(clock::since_epoch());
    }

    /// Records a packet that host `n` has sent or received.
    pub fn packet(&mut self, n: usize, at: Time, packet: &[u8]) {
        let since_epoch = self.start + at.since(Time::ZERO);
        for capture in self.all.iter_mut().filter(|capture| capture.host == n) {
            let sent = capture.packets.try_send((since_epoch, packet.to_vec()));
            capture.left_out += u64::from(matches!(sent, Err(TrySendError::Full(_))));
        }
    }

    /// Records a packet that host `n` receives at this moment.
    pub fn now(&mut self, n: usize, packet: &[u8]) {
        if !self.all.is_empty() {
            let since = Duration::from_nanos(clock::since_epoch()).saturating_sub(self.start);
            self.packet(n, Time::ZERO + since, packet);
        }
    }

    /// Writes the queued packets and closes all files.
    ///
    /// # Errors
    ///
    /// The first file that could not be written, or that lacks packets.
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
