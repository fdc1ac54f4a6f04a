//! Features that the standard library and `nix` lack: a counting allocator, the state of the heap
//! and of TCP connections, real-time scheduling, and a TUN device. ARCHITECTURE.md lists all unsafe
//! code.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

/// The system's allocator with a counter of each thread's allocations, so that a running daemon can
/// show that its packet thread makes none.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Number of times that this thread has allocated or grown memory.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn count() {
    // The count of a thread that is being torn down is never read.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is passed unchanged to the system's allocator; counting touches only a
// constant-initialised thread local, which never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// Schedules the calling thread with SCHED_FIFO at `priority` (1 to 99), so that the load of other
/// programs does not delay packets (Amir et al. 2005, V).
pub fn run_fifo(priority: u8) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: 0 is the calling thread, and `param` lives through the call.
    let rc = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Schedules the calling thread with SCHED_OTHER, the default. A thread inherits the priority of
/// the real-time thread that started it.
pub fn run_ordinary() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and `param` lives through the call. Lowering the priority
    // needs no permission.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const param) };
}

/// Creates a TUN device in the calling thread's network namespace, which exists until the file is
/// closed. Each read returns an IP packet that the kernel has sent to it; each write delivers one
/// to the kernel. Neither blocks.
///
/// # Errors
///
/// /dev/net/tun is missing, permission (CAP_NET_ADMIN) is missing, or the name is taken or longer
/// than 15 bytes.
pub fn open_tun(name: &str) -> io::Result<File> {
    let mut open = File::options();
    let file = open.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let name = std::ffi::CString::new(name)?;
    let name = name.as_bytes_with_nul();
    if name.len() > libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Without a header in front of each packet, the kernel leaves no checksum and no segmentation
    // to the reader.
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: flags };
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    // SAFETY: TUNSETIFF reads an `ifreq` with its name and flags set, and writes the device's name
    // into it; it lives through the call.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// State of a TCP connection that shows whether its other end is still there.
#[derive(Clone, Copy, Default, Debug)]
pub struct TcpProgress {
    /// Whether data, or probes of a closed window, wait for an acknowledgement.
    pub is_waiting: bool,
    /// Time since the last acknowledgement.
    pub last_ack: Duration,
}

/// The state of the connection `tcp`; its default if the system doesn't tell.
pub fn tcp_progress(tcp: &impl AsRawFd) -> TcpProgress {
    // SAFETY: the struct consists of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = std::mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` has room for `len` bytes.
    let rc = unsafe {
        libc::getsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if rc < 0 {
        return TcpProgress::default();
    }
    TcpProgress {
        is_waiting: info.tcpi_unacked > 0 || info.tcpi_probes > 0,
        last_ack: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    }
}

/// Bytes of the heap that are in use, and bytes that the allocator keeps although they are free;
/// `None` if it doesn't tell.
pub fn heap() -> Option<(usize, usize)> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it takes no arguments, and returns numbers.
        let info = unsafe { libc::mallinfo2() };
        Some((info.uordblks, info.fordblks))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Bytes of a page of memory.
pub fn page_size() -> usize {
    // SAFETY: it only looks up a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4_096)
}

/// Makes the allocator return each large piece of memory when it is freed, and free memory at the
/// end of a heap. By default it keeps pieces of up to 32 MiB once one of that size has been freed,
/// and twice as much at the end of each thread's heap.
pub fn keep_little_memory() {
    // SAFETY: it sets parameters of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

/// Gives free memory of the heap back to the system.
pub fn trim_heap() {
    // SAFETY: it returns only pages that nothing uses.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
