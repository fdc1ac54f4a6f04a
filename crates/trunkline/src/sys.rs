//! What the standard library and `nix` do not offer: an allocator that counts,
//! real-time scheduling, and a TUN device. ARCHITECTURE.md lists all unsafe code.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

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

/// A new TUN device in the calling thread's network namespace, until the file is closed:
/// each read is an IP packet that the kernel has sent to it, each write one that comes
/// from it. Neither waits.
///
/// # Errors
///
/// No /dev/net/tun, no permission (CAP_NET_ADMIN), or a name that is taken or longer than
/// 15 bytes.
pub fn open_tun(name: &str) -> io::Result<File> {
    let mut open = File::options();
    let file = open.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let name = std::ffi::CString::new(name)?;
    let name = name.as_bytes_with_nul();
    if name.len() > libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Without a header before each packet the kernel leaves no checksum and no
    // segmentation to the reader.
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: flags };
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    // SAFETY: TUNSETIFF reads an ifreq, of which name and flags are set, and writes the
    // name of the device into it; it lives through the call.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}
