//! One thread that takes packets in, asks the network what happens to them, and hands each out when
//! it is due.

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

/// How many packets are taken in per port and turn. It is limited so that a flood does not hold up
/// packets that are due.
pub const BATCH: usize = 64;

/// Why the models of a link cannot be refused here.
pub const VALID: &str = "a configuration has valid models";

/// How long before a packet is due a punctual pump stops sleeping: a timer wakes it
/// some 50 to 100 µs late.
const AWAKE: Duration = Duration::from_micros(100);

/// In each such interval a punctual pump stays awake for at most half of the time. From a real-time
/// thread that never sleeps the kernel takes the processor for 50 ms in one piece, once a second.
const VIGIL: Duration = Duration::from_millis(10);

/// Tokens of the descriptors that are not ports.
const TIMER: u64 = u64::MAX;
const SIGNAL: u64 = u64::MAX - 1;
const STDIN: u64 = u64::MAX - 2;
const REREAD: u64 = u64::MAX - 3;
const CHANGE: u64 = u64::MAX - 4;

/// Where packets come from and go to.
pub trait Ports {
    /// An observer of the network.
    type Tap: Observer;

    /// Takes up to [`BATCH`] packets that have come at `port` and sends them into the
    /// network.
    fn receive(&mut self, port: usize, clock: &Clock, net: &mut Network<Self::Tap>);

    /// Hands out a packet that has arrived.
    fn deliver(&mut self, header: &Header, packet: &mut [u8]);
}

/// Passes packets between ports and a network; see the module.
pub struct Pump<P: Ports, S> {
    pub ports: P,
    pub net: Network<P::Tap>,
    pub setup: S,
    pub clock: Clock,
    epoll: Epoll,
    stop: Stop,
    reread: Option<Reread<S>>,
    timer: TimerFd,
    /// The time that the timer is set to.
    pub armed: Option<Time>,
    /// How long it has waited awake, if it does that at all.
    vigil: Option<Vigil>,
    lateness: Histogram<u64>,
    events: Vec<EpollEvent>,
}

impl<P: Ports, S: Setup> Pump<P, S> {
    /// `stop` says when [`Pump::run`] ends, and `reread` when the links are to change. Watch the
    /// ports afterwards.
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
        // Not an epoll timeout: those count milliseconds, and the kernel may
        // add 50 µs of slack to them.
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )
        .map_err(Error::os("create a timer"))?;
        watch(&epoll, &timer, TIMER)?;
        watch(&epoll, stop.signals(), SIGNAL)?;
        if let Some(stdin) = stop.stdin() {
            // epoll refuses files and /dev/null: they have no end to wait for.
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
            // 1 ns to 10 minutes, two digits: 60 kB.
            lateness: Histogram::new_with_bounds(1, 600_000_000_000, 2)
                .expect("constant bounds are valid"),
            events: vec![EpollEvent::empty(); 64],
        })
    }

    /// Has [`Ports::receive`] called when `fd`, the descriptor of `port`, becomes readable.
    ///
    /// # Errors
    ///
    /// The descriptor cannot be waited for.
    pub fn watch(&self, fd: impl AsFd, port: usize) -> Result<(), Error> {
        watch(&self.epoll, fd, port as u64)
    }

    /// Passes packets on until told to stop. Those that are under way then are not sent.
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
                // It stays awake until the next packet is due. If two such threads share a
                // processor, neither would ever let the other run without this.
                0 => thread::yield_now(),
                _ => self.clock.sample(),
            }
            for k in 0..ready {
                match self.events[k].data() {
                    TIMER => {
                        // Reading resets the timer. If that fails, nothing is due.
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

    /// Takes in packets that have come at `port`.
    pub fn receive(&mut self, port: usize) {
        self.ports.receive(port, &self.clock, &mut self.net);
    }

    /// Applies a file that has been read again. If something is wrong with it, that is said, and
    /// all stays as it is.
    fn change(&mut self) {
        let Some(change) = self.reread.as_mut().and_then(Reread::change) else { return };
        match change.map(|change| self.apply(change)) {
            Ok((n, old)) => {
                if let Some(reread) = &self.reread {
                    reread.dispose(old);
                }
                say(&format!("impair: {n} directions changed"));
            }
            Err(why) => say(&format!("error: the links stay as they are: {why}")),
        }
        if let Some(reread) = &mut self.reread {
            reread.go_on(&self.setup);
        }
    }

    /// Changes the directions that differ; how many they are, and the former setup. The loss
    /// processes of the others go on where they are, and packets under way keep their time of
    /// arrival.
    pub fn apply(&mut self, Change { setup, directions }: Change<S>) -> (usize, S) {
        let models: Vec<_> = setup.models().collect();
        for &k in &directions {
            self.net.change(DirectionId(k), models[k as usize].clone()).expect(VALID);
        }
        (directions.len(), std::mem::replace(&mut self.setup, setup))
    }

    /// Hands out what is due.
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

    /// Sets the timer for the next packet; how long to wait for other events.
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
                // A time cannot be subtracted from directly, so this counts from zero.
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

    /// How late packets were handed out.
    pub fn lateness(&self) -> Lateness {
        Lateness::new(&self.lateness)
    }

    /// How long it has run, in seconds.
    pub fn seconds(&self) -> f64 {
        self.clock.now().since(Time::ZERO).as_secs_f64()
    }
}

/// How long a thread has waited awake.
#[derive(Default)]
struct Vigil {
    /// The start of the present interval of [`VIGIL`].
    begun: Time,
    awake: Duration,
    /// When it was last awake, unless it has slept since.
    last: Option<Time>,
}

impl Vigil {
    /// Whether it may stay awake at `now`.
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

/// The processor time of this process, in seconds.
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
