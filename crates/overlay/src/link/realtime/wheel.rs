//! Jobs by key in constant time, however many there are: a hierarchical timing wheel (Varghese &
//! Lauck 1987) whose order is exact.
//!
//! A key is read as digits of six bits. A job is in the list of the highest digit in which its key
//! differs from that of the last job that was removed. When its turn comes, the jobs of its list are
//! divided among the lists of lower digits, so that each is moved less often than it has digits.

use super::send_queue::Job;

const BITS: u32 = 6;
const DIGITS: usize = 1 << BITS;
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// The index of no job.
const NONE: u32 = u32::MAX;

/// Jobs in the order of arrival.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    /// The first one with the least key.
    least: u32,
}

/// Jobs, of which the one with the least key is removed, then the one that came first.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    /// Each job, with the next one of its list or of the unused places.
    jobs: Vec<(Job, u32)>,
    unused: u32,
    lists: Box<[[List; DIGITS]]>,
    /// Digits with jobs on each level, and levels with jobs.
    digits: [u64; LEVELS],
    levels: u16,
    /// Key of the last job that was removed: no other job has a lesser one.
    passed: u64,
}

impl Wheel {
    /// A wheel that allocates nothing later if it never holds more than `most` jobs.
    pub fn new(most: usize) -> Wheel {
        let none = List { first: NONE, last: NONE, least: NONE };
        let lists = vec![[none; DIGITS]; LEVELS].into();
        let (jobs, digits) = (Vec::with_capacity(most), [0; LEVELS]);
        Wheel { jobs, unused: NONE, lists, digits, levels: 0, passed: 0 }
    }

    /// Adds a job and returns true, unless one with a greater key has been removed.
    pub fn push(&mut self, job: Job) -> bool {
        if job.key < self.passed {
            return false;
        }
        let at = self.unused;
        let at = match self.jobs.get_mut(at as usize) {
            Some((place, behind)) => {
                self.unused = *behind;
                *place = job;
                at
            }
            None => {
                self.jobs.push((job, NONE));
                (self.jobs.len() - 1) as u32
            }
        };
        self.append(at, job.key);
        true
    }

    /// Adds the job in this place to the list of its key.
    #[inline]
    fn append(&mut self, at: u32, key: u64) {
        let level = ((key ^ self.passed) | 1).ilog2() / BITS;
        let digit = (key >> (level * BITS)) as usize % DIGITS;
        let level = level as usize;
        self.jobs[at as usize].1 = NONE;
        let list = &mut self.lists[level][digit];
        if self.digits[level] & 1 << digit == 0 {
            *list = List { first: at, last: at, least: at };
            self.digits[level] |= 1 << digit;
            self.levels |= 1 << level;
            return;
        }
        let last = core::mem::replace(&mut list.last, at);
        if key < self.jobs[list.least as usize].0.key {
            list.least = at;
        }
        self.jobs[last as usize].1 = at;
    }

    /// Level and digit of the list with the least key.
    #[inline]
    fn front(&self) -> Option<(usize, usize)> {
        let level = self.levels.trailing_zeros() as usize;
        let digits = self.digits.get(level)?;
        Some((level, digits.trailing_zeros() as usize))
    }

    /// The job with the least key.
    #[inline]
    pub fn first(&self) -> Option<&Job> {
        let (level, digit) = self.front()?;
        let list = &self.lists[level][digit];
        self.jobs.get(list.least as usize).map(|(job, _)| job)
    }

    /// Removes the first job and returns it.
    pub fn pop(&mut self) -> Option<Job> {
        let (level, digit) = self.front()?;
        let List { first, least, .. } = self.lists[level][digit];
        let (job, behind) = *self.jobs.get(least as usize)?;
        self.passed = job.key;
        if level > 0 {
            self.empty(level, digit);
            let mut at = first;
            while let Some(&(other, behind)) = self.jobs.get(at as usize) {
                if at != least {
                    self.append(at, other.key);
                }
                at = behind;
            }
        } else if behind == NONE {
            self.empty(level, digit);
        } else {
            // All of this list have one key.
            let list = &mut self.lists[level][digit];
            (list.first, list.least) = (behind, behind);
        }
        self.jobs[least as usize].1 = self.unused;
        self.unused = least;
        Some(job)
    }

    fn empty(&mut self, level: usize, digit: usize) {
        self.digits[level] &= !(1 << digit);
        if self.digits[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// All jobs, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        let lists = self.lists.iter().zip(self.digits).flat_map(|(lists, digits)| {
            lists.iter().enumerate().filter(move |(n, _)| digits & 1 << n != 0)
        });
        lists.flat_map(|(_, list)| {
            let place = |at: u32| self.jobs.get(at as usize);
            core::iter::successors(place(list.first), move |(_, behind)| place(*behind))
                .map(|(job, _)| job)
        })
    }

    /// Removes all jobs, and begins a new order.
    pub fn restart(&mut self) {
        self.jobs.clear();
        (self.unused, self.digits, self.levels, self.passed) = (NONE, [0; LEVELS], 0, 0);
    }
}
