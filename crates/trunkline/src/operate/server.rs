//! The daemon's end of the control socket. It has its own threads: whatever the number and kind of
//! requests, the packet thread sees at most one small request at a time from each of
//! [`CONNECTIONS`].

use super::protocol::{Answer, Refused, Request};
use crate::datapath::sessions::{SocketFile, bind_unix};
use nix::sys::socket::{UnixCredentials, getsockopt, sockopt};
use serde_json::Value;
use socket2::Type;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of connections.
const CONNECTIONS: usize = 16;

/// Maximum length of a request, in bytes.
const MAX_ASK: usize = 4_096;

/// Maximum silence of a connection between two requests.
const IDLE: Duration = Duration::from_secs(60);

/// Time limit for receiving a request and for sending an answer.
const TRANSFER: Duration = Duration::from_secs(5);

/// Minimum interval between answers on a connection: 200 a second, so that a script that sends
/// requests continuously doesn't take the packet thread's time from packets.
const PAUSE: Duration = Duration::from_millis(5);

/// Handler of incoming requests.
pub trait Operator: Send + Sync + 'static {
    /// Executes `ask` for the process `who`.
    fn answer(&self, ask: Request, who: &UnixCredentials) -> Result<Value, Refused>;
}

/// A control socket; its file is removed when this is dropped. The thread that answers keeps the
/// socket open for longer.
pub struct Control(#[expect(dead_code, reason = "what counts is its drop")] SocketFile);

/// A control socket that does not answer yet.
pub struct Bound {
    control: Control,
    listener: UnixListener,
}

/// Binds the socket at `path`; clients wait until [`Bound::serve`] runs.
pub fn bind(path: &Path) -> io::Result<Bound> {
    let (socket, file) = bind_unix(path, Type::STREAM)?;
    let control = Control(file);
    socket.listen(CONNECTIONS as i32)?;
    let listener = UnixListener::from(std::os::fd::OwnedFd::from(socket));
    Ok(Bound { control, listener })
}

impl Bound {
    /// Answers requests with `operator` until the process ends.
    pub fn serve(self, operator: Arc<impl Operator>) -> io::Result<Control> {
        let Bound { control, listener } = self;
        std::thread::Builder::new().name("control".into()).spawn(move || {
            let places = Arc::new(AtomicUsize::new(0));
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => admit(stream, &places, &operator),
                    // Most likely out of descriptors: some may be freed.
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
        Ok(control)
    }
}

/// A connection's slot among [`CONNECTIONS`], released when dropped.
struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn admit(mut stream: UnixStream, places: &Arc<AtomicUsize>, operator: &Arc<impl Operator>) {
    let timeouts = stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .and_then(|()| stream.set_write_timeout(Some(TRANSFER)));
    let before = places.fetch_add(1, Ordering::Relaxed);
    let place = Permit(Arc::clone(places));
    if timeouts.is_err() || before >= CONNECTIONS {
        let message = format!(
            "{CONNECTIONS} others are connected to this node's control socket, and more are not served: \
             end one of them, or try again in a minute, when idle ones are closed"
        );
        let _ = say(&mut stream, Err(Refused { message, code: 1 }));
        return;
    }
    let operator = Arc::clone(operator);
    let _ = std::thread::Builder::new().name("operator".into()).spawn(move || {
        let _place = place;
        // A client that hangs up needs no answer.
        let _ = serve_one(stream, &*operator);
    });
}

fn serve_one(mut stream: UnixStream, operator: &impl Operator) -> io::Result<()> {
    let who = getsockopt(&stream, sockopt::PeerCredentials)?;
    let mut lines = Lines { buffer: Vec::with_capacity(256) };
    let mut next = Instant::now();
    while let Some(line) = lines.next(&mut stream)? {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let answer = match serde_json::from_slice::<Request>(&line) {
            Ok(ask) => operator.answer(ask, &who),
            Err(why) => {
                let message = format!("the node can't parse the request: {why}");
                Err(Refused { message, code: 1 })
            }
        };
        say(&mut stream, answer)?;
        next = Instant::now() + PAUSE;
    }
    Ok(())
}

fn say(stream: &mut UnixStream, answer: Result<Value, Refused>) -> io::Result<()> {
    let answer = match answer {
        Ok(value) => Answer::Ok(value),
        Err(refused) => Answer::Error(refused),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reader of lines with limits on their length and time.
struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    fn next(&mut self, stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
        let idle_until = Instant::now() + IDLE;
        let mut until = idle_until;
        loop {
            if let Some(end) = self.buffer.iter().position(|&b| b == b'\n') {
                let line = self.buffer[..end].to_vec();
                self.buffer.drain(..=end);
                return Ok(Some(line));
            }
            if self.buffer.len() > MAX_ASK {
                let message =
                    format!("a request has at most {MAX_ASK} bytes and ends with a newline");
                say(stream, Err(Refused { message, code: 1 }))?;
                return Ok(None);
            }
            if !self.buffer.is_empty() && until == idle_until {
                until = Instant::now() + TRANSFER;
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            let mut some = [0; 1_024];
            match stream.read(&mut some) {
                Ok(0) => return Ok(None),
                Ok(n) => self.buffer.extend_from_slice(&some[..n]),
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(e),
                },
            }
        }
    }
}
