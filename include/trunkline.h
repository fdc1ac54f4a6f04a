/*
 * trunkline.h: datagram sockets and streams over an overlay of trunkline nodes, for any language
 * that can call C. Linux only.
 *
 * The calls have the shape of the BSD socket calls. A packet is a datagram and arrives whole or
 * not at all. Streams begin at tl_stream_socket. An address is a node and a virtual port there,
 * both in the byte order of the machine.
 *
 *     int fd = tl_socket("/run/trunkline/node.sock");
 *     struct tl_addr far = {7, 4000};
 *     if (fd < 0 || tl_bind(fd, 0) < 0 || tl_sendto(fd, "hello", 5, 0, &far) < 0)
 *         fprintf(stderr, "%s\n", tl_strerror(errno));
 *
 * Errors. A call that fails returns -1 and sets errno. No error closes an open datagram socket,
 * which can still be used. Every call can set
 *   EBADF   the descriptor is not an open socket of this library
 *   EOPNOTSUPP
 *           the call is for streams and the socket is for datagrams, or the reverse
 *   EFAULT  a required pointer is null
 *   EINVAL  an argument is out of range
 *   EIO     a bug in this library, which it has reported on standard error
 * Pointers that are not null must be valid for the stated number of bytes.
 *
 * The descriptor is a real one. It stays the same for the socket's whole life, even while the
 * node restarts. Wait with poll, epoll, select or an event loop until it is readable, then call
 * tl_recvfrom (or tl_read, tl_accept). As with any socket, it can be readable although nothing
 * has arrived, so use TL_DONTWAIT or TL_NONBLOCK there. Nothing else is allowed on it: don't
 * use read, write, fcntl, dup or close(2); close it with tl_close. It is closed on exec. A
 * child made by fork must not use it.
 *
 * Threads. Every function may be called from any thread at any time, even on the same socket: a
 * thread that waits in tl_recvfrom does not keep others from sending. If tl_close is called
 * while another thread is in a call on that socket, that call completes or fails with EBADF,
 * at once even if it was waiting. A later call may reach a new socket with the same number, as
 * with any descriptor. A thread blocks other calls on its socket only in tl_bind, for as long as
 * that takes, and in tl_connect and tl_listen, while they look up a name.
 */
#ifndef TRUNKLINE_H
#define TRUNKLINE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A virtual port at a node. */
struct tl_addr {
    uint32_t node; /* the node's id */
    uint16_t port; /* the virtual port there */
};

/* Flag of tl_recvfrom and tl_sendto: do not wait. */
#define TL_DONTWAIT 0x40

/*
 * Options; the value of each is an int. They can also be set before tl_bind.
 *
 * TL_SERVICE      service of packets sent from now on: TL_BEST_EFFORT, TL_REAL_TIME (the
 *                 default) or TL_RELIABLE
 * TL_DEADLINE_MS  how long packets sent from now on are useful, counted from tl_sendto: 1 to
 *                 255 milliseconds, 100 unless set. Nodes retransmit a lost packet only
 *                 while it can still arrive in time.
 * TL_NONBLOCK     1: tl_recvfrom never waits, nor does tl_sendto with TL_BLOCKING. 0, the
 *                 default: they do.
 * TL_RCVTIMEO_MS  longest time that tl_recvfrom waits, in milliseconds; 0, the default:
 *                 no limit
 * TL_MAX_PAYLOAD  read only: the largest packet in bytes that tl_sendto accepts; 0 before
 *                 tl_bind
 * TL_METRIC       metric used to route packets sent from now on; 0, the default, leaves it
 *                 to the node
 * TL_LATE         not 0: also receive real-time packets whose deadline passed while they
 *                 waited to be received. That happens if the node had no time to run, or if
 *                 this program did not receive for longer than any deadline, 255 ms.
 *                 0, the default, drops them.
 * TL_BLOCKING     not 0: best-effort and reliable packets wait for room if they come faster
 *                 than the outgoing link of the node accepts them, and tl_sendto blocks, as
 *                 send does on TCP. 0, the default, drops them. At most as many packets
 *                 wait as fit into the socket to the node (some 90 packets of 1,200 bytes
 *                 with Linux's default; to a node on another host they take TCP), plus
 *                 64 KiB or 50 ms in the link. They wait for the link at its `rate` in the
 *                 node's file. A link without a `rate` accepts everything at once, and the
 *                 excess is lost on the line behind it. Packets wait for nothing else: not
 *                 for an application that doesn't read, and not on later links. Without a
 *                 route they are dropped. Use another socket for real-time packets, which
 *                 would be queued behind the others here.
 *
 * Options of streams; TL_NONBLOCK and TL_RCVTIMEO_MS apply to them, too:
 *
 * TL_NONBLOCK     1: tl_read, tl_write, tl_shutdown, tl_reset and tl_accept fail with
 *                 EAGAIN instead of waiting. Streams that tl_accept returns block until
 *                 this is set on them.
 * TL_RCVTIMEO_MS  longest time that tl_read or tl_accept waits
 * TL_MESSAGES     1: both ends preserve message boundaries. They write the length of each
 *                 message in front of it, as four bytes in network byte order, of at most
 *                 16 MiB. The library and the nodes only pass this setting on. 0, the
 *                 default: no boundaries. Can be set before tl_connect only. For a stream
 *                 from tl_accept it returns the setting of the other end.
 */
#define TL_SERVICE 1
#define TL_DEADLINE_MS 2
#define TL_NONBLOCK 3
#define TL_RCVTIMEO_MS 4
#define TL_MAX_PAYLOAD 5
#define TL_METRIC 6
#define TL_LATE 7
#define TL_BLOCKING 8
#define TL_MESSAGES 9

/* Values of TL_SERVICE. */
#define TL_BEST_EFFORT 1
#define TL_REAL_TIME 2
#define TL_RELIABLE 3

/* Values of TL_METRIC. */
#define TL_EXPECTED_LATENCY 1
#define TL_LATENCY 2
#define TL_LOSS 3
#define TL_HOPS 4

/*
 * Creates a socket for the node at `attachment`. That is the path of the node's Unix socket
 * ([node] socket in its configuration), or for a node on another host
 * "tcp://HOST:PORT?node=PUBKEY&key=FILE". HOST:PORT is one of [node] remote there; HOST is a
 * name or an IP address, IPv6 in brackets. PUBKEY is that node's public key. FILE holds this
 * application's secret key (`trunkline keygen`), which only its owner may read. In both, %
 * begins an escape (RFC 3986). The socket connects in tl_bind. Returns a descriptor.
 *
 * Errors: EINVAL (empty), EMFILE, ENFILE, ENOMEM.
 */
int tl_socket(const char *attachment);

/*
 * Attaches to the node and takes virtual port `port`, or any free one if that is 0. Waits for a
 * node on this host up to 2 s. For a node on another host it waits up to 4 s for each address
 * of its name, and for the look-up of that name. Returns 0. After an error it can be called
 * again.
 *
 * Errors: EINVAL (bound already, or the part of the attachment after the ? is malformed),
 * EADDRINUSE (another application has the port), EADDRNOTAVAIL (no port is free), EPERM (the
 * node's rules don't let this application have that port), ECONNREFUSED (no node runs there),
 * ETIMEDOUT (it runs but does not answer), ENOTCONN (it hung up), ENOBUFS (it accepts no more
 * applications: it has reached its limit, or is being drained before it is stopped),
 * EPROTONOSUPPORT (it has another version), EPROTO (its answer was malformed), ENOENT (HOST:PORT
 * in the attachment has no address), ENOKEY (the key file is missing, holds no key, or can be
 * read by others), EKEYREJECTED (the node has another key than the attachment gives), EACCES (it
 * does not have this application's key), EBUSY (it receives too many handshakes), and those of
 * connect(2), such as EACCES and ENAMETOOLONG.
 */
int tl_bind(int fd, uint16_t port);

/*
 * Sends `len` bytes at `buf` as one packet; `buf` may be null if `len` is 0. `flags` is 0 or
 * TL_DONTWAIT. Never waits, since it is better to lose an excess packet of real-time media than
 * to wait for it. The exception is a best-effort or reliable packet with TL_BLOCKING, if `flags` is
 * 0. Returns `len`.
 *
 * Errors, after which the packet was not sent: EMSGSIZE (see TL_MAX_PAYLOAD), EAGAIN (the node
 * does not keep up; with TL_BLOCKING the descriptor becomes readable when another try may succeed:
 * call tl_recvfrom, too, also after the last packet. Without TL_BLOCKING also if this user's
 * applications send more than the node allows, its [access] rate, and an earlier packet was
 * dropped, too: send less), ENOTCONN (the node is away; the socket reconnects automatically),
 * EINVAL (not bound). If the next item to receive is another notification about an earlier packet
 * (see tl_recvfrom), it is returned here instead.
 */
ssize_t tl_sendto(int fd, const void *buf, size_t len, int flags, const struct tl_addr *to);

/*
 * Receives one packet into the `len` bytes at `buf`, and writes its sender's address to `from`
 * unless that is null. `flags` is 0 or TL_DONTWAIT. Returns the packet's length. 0 is an empty
 * packet, not an end. A signal does not end the wait; use poll for that.
 *
 * Errors:
 *   EAGAIN        no packet has arrived: now, or within TL_RCVTIMEO_MS
 *   EMSGSIZE      `len` is too small. `buf` holds the packet's start, the rest is lost. Provide
 *                 room for TL_MAX_PAYLOAD bytes.
 *   EINVAL        not bound
 * Notifications, each returned once:
 *   ECONNRESET    the connection to the node was lost and is back, with the same virtual port.
 *                 Packets in between are lost. The socket can still be used.
 *   EHOSTUNREACH  packets to a destination are dropped from now on: the node has no route there
 *   ECONNREFUSED  packets to a destination are dropped from now on: no application has that
 *                 port there
 *   EREMCHG       a destination reported with EHOSTUNREACH or ECONNREFUSED can be reached again
 *   EPERM         a packet sent earlier was dropped: the node's rules don't let this application
 *                 send there
 *   EDQUOT        a packet sent earlier was dropped: this user's applications send more than the
 *                 node allows (its [access] rate); or it began a new flow, and the node's trunk
 *                 to its destination sends more than a TCP would
 *   EADDRINUSE, EADDRNOTAVAIL, ENOBUFS, EPROTONOSUPPORT
 *                 the node is back but refuses this socket, as in tl_bind; the library keeps
 *                 trying
 *   EPROTO        the node violated the session protocol; the library reconnects
 */
ssize_t tl_recvfrom(int fd, void *buf, size_t len, int flags, struct tl_addr *from);

/*
 * Sets an option to the int at `val`; `len` is sizeof(int). Returns 0.
 *
 * Errors: EINVAL (out of range; nothing changes), ENOPROTOOPT (no such option,
 * or it is read only).
 */
int tl_setsockopt(int fd, int option, const void *val, size_t len);

/*
 * Reads an option into the int at `val`; `*len`, the room there, becomes
 * sizeof(int). Returns 0.
 *
 * Errors: EINVAL (`*len` is less than that), ENOPROTOOPT (no such option).
 */
int tl_getsockopt(int fd, int option, void *val, size_t *len);

/* The state of a destination. */
struct tl_status {
    struct tl_addr to; /* the destination */
    int why;           /* one of the four values below */
    int since_ms;      /* duration of TL_UNREACHABLE in milliseconds; else 0 */
};

/* Values of why. */
#define TL_REACHABLE 0   /* packets arrive (again), as far as is known */
#define TL_NO_ROUTE 1    /* the node has no route there, and had none recently */
#define TL_UNREACHABLE 2 /* the route there was lost */
#define TL_NO_PORT 3     /* no application has that port there */

/*
 * Reports the change behind an EHOSTUNREACH, ECONNREFUSED or EREMCHG of tl_recvfrom or tl_sendto.
 * If there were several, each is reported once, the earliest first. At most 256 are kept.
 * Returns 0.
 *
 * The return of a route is always reported. A port that is bound again is reported as soon as a
 * packet arrives from it. Otherwise it is reported only while packets are sent to it, after four
 * to five seconds without a denial. For ports at other nodes, packets of less than 5 bytes cause
 * no report, since the answer would be larger than the packet.
 *
 * Errors: ENOMSG (none is left).
 */
int tl_status(int fd, struct tl_status *status);

/*
 * Returns the socket's node and virtual port in `addr`. They are zero before tl_bind, and for a
 * stream before tl_connect or tl_listen. Returns 0.
 */
int tl_getsockname(int fd, struct tl_addr *addr);

/* Closes the socket and frees its virtual port. Returns 0. */
int tl_close(int fd);

/*
 * Streams: bytes in order, none lost while the stream lasts, as on TCP.
 *
 *     int fd = tl_stream_socket("/run/trunkline/node.sock");
 *     struct tl_addr far = {7, 4000};
 *     if (fd < 0 || tl_connect(fd, &far) < 0 || tl_write(fd, "hello", 5) < 0)
 *         fprintf(stderr, "%s\n", tl_strerror(errno));
 *
 * A stream ends when both ends have ended their direction (with tl_shutdown, or with tl_close,
 * which delivers written data), when one of them resets it (tl_reset), or when one of the two
 * nodes goes away. It is not reopened. After any error but EAGAIN and EINVAL, the only remaining
 * call is tl_close. A writer that is faster than the reader blocks.
 *
 * The descriptor becomes readable when tl_read would not wait (there are data, the end of the
 * stream, or an error). After a tl_write, tl_shutdown or tl_reset that failed with EAGAIN, it
 * also becomes readable when another try may succeed. It stays readable until that call is
 * made, so a program that waits for both must try both. It never becomes writable. A listener's
 * descriptor becomes readable when tl_accept has work to do, which may be to reconnect.
 *
 * One thread may read while another writes. tl_close wakes both.
 */

/*
 * Creates a socket for streams at `attachment`, as in tl_socket. tl_bind on it only sets the
 * virtual port (0, or no tl_bind: any free one), once, and doesn't wait. tl_connect then turns it
 * into a stream, or tl_listen into a listener. Returns a descriptor.
 *
 * Errors: those of tl_socket.
 */
int tl_stream_socket(const char *attachment);

/*
 * Opens a stream to the application that listens at `to`. Waits even with TL_NONBLOCK: for the
 * node as tl_bind does, and then for the other end. The node gives up after 10 s, and this call
 * after 60 s. Returns 0. After an error it can be called again.
 *
 * Errors: those of tl_bind for datagrams; EINVAL (connected, or a listener, already),
 * ECONNREFUSED (no node runs there, or no application listens there for streams), EBUSY (the
 * other end accepts no more streams), EPERM (a node's rules forbid it), ETIMEDOUT (the node, or
 * the other end, does not answer), EHOSTUNREACH (there is no route), ENOBUFS (the node has no
 * room for another), EPROTO.
 */
int tl_connect(int fd, const struct tl_addr *to);

/*
 * Attaches to the node and accepts incoming streams at the virtual port. At most `backlog` of
 * them wait to be accepted (0 means 1), or fewer if the node allows fewer; further ones are
 * refused with EBUSY. Waits for the node as tl_bind does. Returns 0. After an error it can be
 * called again. When the node is back after a restart, the library takes the port again.
 *
 * Errors: those of tl_bind for datagrams; EINVAL (connected, or a listener, already).
 */
int tl_listen(int fd, int backlog);

/*
 * Accepts the next stream, and writes the address of its other end to `from` unless that is
 * null. Skips streams that ended while they waited. Returns a new descriptor, which outlives the
 * listener.
 *
 * Errors, none of which ends the listener: EAGAIN (no stream has arrived: now, or within
 * TL_RCVTIMEO_MS), EINVAL (not a listener), EMFILE, ENFILE, ENOMEM. If the node is back and
 * refuses the port, as in tl_recvfrom: EADDRINUSE, EADDRNOTAVAIL, ENOBUFS, EPERM,
 * EPROTONOSUPPORT, EPROTO.
 */
int tl_accept(int fd, struct tl_addr *from);

/*
 * Reads at most `len` bytes into `buf`; waits until there is at least one. Returns the number of
 * bytes; 0 is the end of the stream (or `len` is 0).
 *
 * Errors: EAGAIN (no data have arrived: now, or within TL_RCVTIMEO_MS), EINVAL (not connected).
 * After all earlier data: ECONNRESET (the other end has reset the stream, or its node has lost
 * it), ETIMEDOUT (the other end was silent for too long, or has stopped reading), ENOTCONN (the
 * program's node has gone away), ECONNABORTED (after tl_reset), EPIPE (the other end is closed),
 * EHOSTUNREACH, EPROTO.
 */
ssize_t tl_read(int fd, void *buf, size_t len);

/*
 * Writes at most `len` bytes at `buf`; waits until the node accepts at least one. Returns the
 * number of bytes, which may be less than `len`: write the rest next.
 *
 * Errors: EAGAIN (TL_NONBLOCK, and the node accepts none now), EPIPE (after tl_shutdown, or the
 * other end is closed), and those of tl_read.
 */
ssize_t tl_write(int fd, const void *buf, size_t len);

/*
 * Ends the writing direction: the other end reads the end of the stream after all written data.
 * Reading is not affected. Returns 0 once the system has accepted all written data, so with a
 * node on another host call this before tl_close.
 *
 * Errors: those of tl_write.
 */
int tl_shutdown(int fd);

/*
 * Resets the stream: data in flight are lost, and calls of the other end fail with
 * ECONNRESET. Returns 0.
 *
 * Errors: those of tl_write.
 */
int tl_reset(int fd);

/*
 * Explains an errno of this library in English: what happened and what to do about it. The text
 * is constant. Other numbers are left to strerror.
 */
const char *tl_strerror(int error);

/* The library's version, such as "0.1.0". */
const char *tl_version(void);

#ifdef __cplusplus
}
#endif

#endif /* TRUNKLINE_H */
