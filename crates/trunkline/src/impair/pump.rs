//! A single thread that receives packets, offers them to the network, and delivers each when it is
//! due.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use trunkline_base::Time;
use trunkline_net::{DirectionId, Header, Network, Observer};

use super::Error;
use super::clock::Clock;
use super::report::Lateness;
use super::say::say;
use super::setup::{Change, Setup};
use super::stop::{Reread, Stop};
use crate::operate::count;

/// Maximum number of packets received per port and turn, so that a flood does not delay packets
/// that are due.
pub const BATCH: usize = 64;

/// Reason why the models of a link cannot be rejected here.
pub const VALID: &str = "a configuration has valid models";

/// Time before a packet is due at which a punctual pump stops sleeping: a timer fires some 50 to
/// 100 µs late.
const AWAKE: Duration = Duration::from_micros(100);

/// Interval in which a punctual pump stays awake for at most half of the time. From a real-time
/// thread that never sleeps, the kernel takes the processor for 50 ms at once, every second.
const VIGIL: Duration = Duration::from_millis(10);

/// Epoll tokens of the descriptors that are not ports.
const TIMER: u64 = u64::MAX;
const SIGNAL: u64 = u64::MAX - 1;
const STDIN: u64 = u64::MAX - 2;
const REREAD: u64 = u64::MAX - 3;
const CHANGE: u64 = u64::MAX - 4;

/// Sources and destinations of packets.
pub trait Ports {
    /// An observer of the network.
    type Tap: Observer;

    /// Receives up to [`BATCH`] packets at `port` and sends them into the network.
    fn receive(&mut self, port: usize, clock: &Clock, net: &mut Network<Self::Tap>);

    /// Delivers a packet that has crossed the network.
    fn deliver(&mut self, header: &Header, packet: &mut [u8]);
}

/// Moves packets between ports and a network; see the module.
pub struct Pump<P: Ports, S> {
    pub ports: P,
    pub net: Network<P::Tap>,
    pub setup: S,
    pub clock: Clock,
    epoll: Epoll,
    stop: Stop,
    reread: Option<Reread<S>>,
    timer: TimerFd,
    /// Time that the timer is set to.
    pub armed: Option<Time>,
    /// Time spent awake, if the pump is punctual.
    vigil: Option<Vigil>,
    lateness: Histogram<u64>,
    events: Vec<EpollEvent>,
}

impl<P: Ports, S: Setup> Pump<P, S> {
    /// Creates a pump. `stop` signals the end of [`Pump::run`], and `reread` a change of the links.
    /// Call [`Pump::watch`] for the ports afterwards.
    ///
    /// # Errors
    ///
    /// A system call failed.
    pub fn new(
        (ports, net, setup): (P, Network<P::Tap>, S),
        stop: Stop,
        reread: Option<Reread<S>>,
        is_punctual: bool,
    ) -> Result<Self, Error> {
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::os("create an epoll"))?;
        // An epoll timeout would not do: it counts milliseconds, and the kernel may add 50 µs of
        // slack.
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )
        .map_err(Error::os("create a timer"))?;
        watch(&epoll, &timer, TIMER)?;
        watch(&epoll, stop.signals(), SIGNAL)?;
        if let Some(stdin) = stop.stdin() {
            // Epoll rejects files and /dev/null, which have no end to wait for.
            epoll
                .add(stdin, EpollEvent::new(EpollFlags::EPOLLIN, STDIN))
                .map_err(Error::os("wait for the end of standard input, which must be a pipe"))?;
        }
        if let Some(reread) = &reread {
            watch(&epoll, reread.hangup(), REREAD)?;
            watch(&epoll, reread.done(), CHANGE)?;
        }
        Ok(Pump {
            ports,
            net,
            setup,
            clock: Clock::start(),
            epoll,
            stop,
            reread,
            timer,
            armed: None,
            vigil: is_punctual.then(Vigil::default),
            // Range 1 ns to 10 minutes, two digits: 60 kB.
            lateness: Histogram::new_with_bounds(1, 600_000_000_000, 2)
                .expect("constant bounds are valid"),
            events: vec![EpollEvent::empty(); 64],
        })
    }

    /// Makes the pump call [`Ports::receive`] when `fd`, the descriptor of `port`, is readable.
    ///
    /// # Errors
    ///
    /// The descriptor cannot be polled.
    pub fn watch(&self, fd: impl AsFd, port: usize) -> Result<(), Error> {
        watch(&self.epoll, fd, port as u64)
    }

    /// Forwards packets until stopped. Packets then in flight are not sent.
    ///
    /// # Errors
    ///
    /// A system call failed. Errors with single packets are counted instead.
    pub fn run(&mut self) -> Result<(), Error> {
        loop {
            self.send_due();
            let timeout = self.arm()?;
            let ready = match self.epoll.wait(&mut self.events, timeout) {
                Ok(ready) => ready,
                Err(nix::Error::EINTR) => continue,
                Err(error) => return Err(Error::os("wait for packets")(error)),
            };
            match ready {
                // Stays awake until the next packet is due. If two such threads share a processor,
                // neither would let the other run without the yield.
                0 => thread::yield_now(),
                _ => self.clock.sample(),
            }
            for k in 0..ready {
                match self.events[k].data() {
                    TIMER => {
                        // Reading resets the timer. If that fails, no packet is due.
                        let _ = self.timer.wait();
                        self.armed = None;
                    }
                    SIGNAL => return Ok(()),
                    STDIN if self.stop.stdin_ended() => return Ok(()),
                    STDIN => {}
                    REREAD => {
                        if let Some(reread) = &mut self.reread {
                            reread.on_hangup(&self.setup);
                        }
                    }
                    CHANGE => self.change(),
                    port => self.receive(port as usize),
                }
            }
        }
    }

    /// Receives the packets that wait at `port`.
    pub fn receive(&mut self, port: usize) {
        self.ports.receive(port, &self.clock, &mut self.net);
    }

    /// Applies a file that has been read again. A mistake in it is reported, and everything stays
    /// unchanged.
    fn change(&mut self) {
        let Some(change) = self.reread.as_mut().and_then(Reread::change) else { return };
        match change.map(|change| self.apply(change)) {
            Ok((n, old)) => {
                if let Some(reread) = &self.reread {
                    reread.dispose(old);
                }
                say(&format!("impair: {} changed", count(n as u64, "direction")));
            }
            Err(why) => {
                // Without the excerpt: one line is written at once or not at all.
                let why = why.to_string();
                let line = why.lines().next().unwrap_or_default();
                say(&format!("error: the links stay as they are: {line}"));
            }
        }
        if let Some(reread) = &mut self.reread {
            reread.go_on(&self.setup);
        }
    }

    /// Changes the directions that differ, and returns their number and the former setup. The loss
    /// processes of the others continue, and packets in flight keep their arrival times.
    pub fn apply(&mut self, Change { setup, directions }: Change<S>) -> (usize, S) {
        let models: Vec<_> = setup.models().collect();
        for &k in &directions {
            self.net.change(DirectionId(k), models[k as usize].clone()).expect(VALID);
        }
        (directions.len(), std::mem::replace(&mut self.setup, setup))
    }

    /// Delivers the packets that are due.
    pub fn send_due(&mut self) {
        loop {
            let now = self.clock.now();
            let Some(delivery) = self.net.poll(now) else { return };
            let late = u64::try_from(now.since(delivery.at).as_nanos()).unwrap_or(u64::MAX);
            self.lateness.saturating_record(late);
            let (header, mut packet) = self.net.open(&delivery);
            self.ports.deliver(&header, &mut packet);
            self.net.release(delivery, packet);
        }
    }

    /// Sets the timer for the next packet, and returns the timeout for other events.
    pub fn arm(&mut self) -> Result<EpollTimeout, Error> {
        let next = Some(self.net.next_timeout()).filter(|next| *next < Time::NEVER);
        let next = match (next, &mut self.vigil) {
            (Some(due), Some(vigil)) => {
                let now = self.clock.now();
                let is_soon = due.since(now) <= AWAKE;
                if is_soon && vigil.goes_on(now) {
                    return Ok(EpollTimeout::ZERO);
                }
                vigil.last = None;
                // A duration cannot be subtracted from a time, so this counts from zero.
                let early = if is_soon { Duration::ZERO } else { AWAKE };
                Some(Time::ZERO + (due.since(Time::ZERO) - early))
            }
            (next, _) => next,
        };
        if next == self.armed {
            return Ok(EpollTimeout::NONE);
        }
        let set = match next {
            Some(due) => self.timer.set(
                Expiration::OneShot(self.clock.to_monotonic(due)),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            ),
            None => self.timer.unset(),
        };
        self.armed = next;
        set.map_err(Error::os("set the timer"))?;
        Ok(EpollTimeout::NONE)
    }

    /// Lateness of delivered packets.
    pub fn lateness(&self) -> Lateness {
        Lateness::new(&self.lateness)
    }

    /// Length of the run so far, in seconds.
    pub fn seconds(&self) -> f64 {
        self.clock.now().since(Time::ZERO).as_secs_f64()
    }
}

/// Time that a thread has stayed awake.
#[derive(Default)]
struct Vigil {
    /// Start of the current [`VIGIL`] interval.
    begun: Time,
    awake: Duration,
    /// Time at which the thread was last awake, if it has not slept since.
    last: Option<Time>,
}

impl Vigil {
    /// Whether the thread may stay awake at `now`.
    fn goes_on(&mut self, now: Time) -> bool {
        if now.since(self.begun) >= VIGIL {
            (self.begun, self.awake, self.last) = (now, Duration::ZERO, None);
        }
        if let Some(last) = self.last.replace(now) {
            self.awake += now.since(last);
        }
        self.awake < VIGIL / 2
    }
}

/// Processor time of this process, in seconds.
pub fn cpu_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

fn watch(epoll: &Epoll, fd: impl AsFd, token: u64) -> Result<(), Error> {
    epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token)).map_err(Error::os("watch a socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_time_it_may_stay_awake() {
        let mut vigil = Vigil::default();
        let mut awake = 0;
        for us in (0..1_000_000).step_by(10) {
            match vigil.goes_on(Time::from_micros(us)) {
                true => awake += 1,
                false => vigil.last = None,
            }
        }
        assert!((49_000..52_000).contains(&awake), "{awake}");
    }

    #[test]
    fn a_vigil_now_and_then_always_goes_on() {
        let mut vigil = Vigil::default();
        for ms in 0..1_000 {
            for us in 0..100 {
                assert!(vigil.goes_on(Time::from_micros(1_000 * ms + us)));
            }
            vigil.last = None;
        }
    }
}
