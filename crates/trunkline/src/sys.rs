//! What the standard library and `nix` do not offer: an allocator that counts,
//! and real-time scheduling. ARCHITECTURE.md lists all unsafe code.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;

/// The system's allocator, counting what each thread asks of it, so that a
/// running daemon shows that its packet thread asks for nothing.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has allocated or grown memory.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn count() {
    // A thread that is being torn down has nobody left to read its count.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call goes unchanged to the system's allocator; counting touches
// only a constant-initialised thread local, which never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// Puts the calling thread under SCHED_FIFO at `priority` (1 to 99), so that
/// other programs' load does not delay packets (Amir et al. 2005, V).
pub fn run_fifo(priority: u8) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: 0 is the calling thread, and `param` lives through the call.
    let rc = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts the calling thread under SCHED_OTHER, as every thread that nobody has said
/// anything of: one that a real-time thread has started has its priority.
pub fn run_ordinary() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and `param` lives through the call. Everybody
    // may ask for less.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const param) };
}
