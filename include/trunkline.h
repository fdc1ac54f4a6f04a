/*
 * trunkline.h: datagram sockets and streams over an overlay of trunkline nodes,
 * for any language that can call C. Linux only.
 *
 * The calls have the shape of the BSD socket calls. Packets are datagrams: whole
 * or not at all; streams are below, from tl_stream_socket on. Addresses are a node and a virtual
 * port there, in the
 * byte order of the machine.
 *
 *     int fd = tl_socket("/run/trunkline/node.sock");
 *     struct tl_addr far = {7, 4000};
 *     if (fd < 0 || tl_bind(fd, 0) < 0 || tl_sendto(fd, "hello", 5, 0, &far) < 0)
 *         fprintf(stderr, "%s\n", tl_strerror(errno));
 *
 * Errors. A call that fails returns -1 and sets errno. None of these errors
 * ends an open socket for datagrams: go on using it. In every call
 *   EBADF   the descriptor is not an open socket of this library
 *   EOPNOTSUPP
 *           the call is for streams and the socket for datagrams, or the other way
 *           round
 *   EFAULT  a pointer is null that must not be
 *   EINVAL  an argument is out of range
 *   EIO     a bug in this library, which it has reported on standard error
 * Pointers that are not null must be valid for as many bytes as the call says.
 *
 * The descriptor is a real one, and the same for the socket's whole life, also
 * while its node restarts. Wait for it to become readable with poll, epoll,
 * select or an event loop, then call tl_recvfrom (or tl_read, tl_accept). As with any socket it can be
 * readable for nothing, so use TL_DONTWAIT or TL_NONBLOCK there. Do nothing
 * else with it: read, write, fcntl, dup and close(2) are not for it; tl_close
 * is. It is closed on exec; a child made by fork must not use it.
 *
 * Threads. Every function may be called from any thread at any time, also on
 * one socket: a thread that waits in tl_recvfrom does not keep others from
 * sending. tl_close while another thread is in a call on that socket: that call
 * completes or fails with EBADF, at once even if it was waiting. A call that
 * begins later may meet a new socket with the same number, as with any
 * descriptor. Only tl_bind keeps other calls on its socket waiting, for as long
 * as it takes; so do tl_connect and tl_listen while they look a name up.
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
 * Options; the value of each is an int. They can be set before tl_bind too.
 *
 * TL_SERVICE      how packets sent from now on are carried: TL_BEST_EFFORT,
 *                 TL_REAL_TIME (the default) or TL_RELIABLE
 * TL_DEADLINE_MS  how long a packet sent from now on is of use, counted from
 *                 tl_sendto: 1 to 255 milliseconds, 100 unless set. Nodes repeat
 *                 a lost packet only while it can still be in time.
 * TL_NONBLOCK     1: tl_recvfrom never waits, nor does tl_sendto with TL_BLOCKING. 0,
 *                 the default: they do.
 * TL_RCVTIMEO_MS  how long tl_recvfrom waits at most, in milliseconds; 0, the
 *                 default, is for ever
 * TL_MAX_PAYLOAD  read only: the largest packet in bytes that tl_sendto takes;
 *                 0 before tl_bind
 * TL_METRIC       by what the ways of packets sent from now on are chosen; 0, the
 *                 default, leaves it to the node.
 * TL_LATE         not 0: receive real-time packets too whose deadline passed while
 *                 they waited to be received, because the node had no time to run
 *                 or this program did not receive for longer than any deadline,
 *                 255 ms; 0, the default, drops them.
 * TL_BLOCKING         not 0: best-effort and reliable packets that come faster than the link on
 *                 which they leave the node takes them wait for room, and tl_sendto
 *                 with them, as send does on TCP; 0, the default, drops them. What
 *                 waits is at most what the socket to the node holds (with Linux's
 *                 default some 90 packets of 1,200 bytes; to a node on another host
 *                 they take TCP), and 64 KiB or 50 ms in the link. They wait for
 *                 the link's `rate` in the node's file: a link without one takes
 *                 all at once, and what the line behind it can't carry is lost.
 *                 They wait for nothing else: not for an application that doesn't
 *                 read, not on the links behind the first; without a route they
 *                 are dropped. Use another socket for real time, which would be
 *                 behind them here.
 *
 * Of streams, which know TL_NONBLOCK and TL_RCVTIMEO_MS, too:
 *
 * TL_NONBLOCK     1: tl_read, tl_write, tl_shutdown, tl_reset and tl_accept fail with
 *                 EAGAIN instead of waiting. Streams that tl_accept returns wait until
 *                 this is set on them.
 * TL_RCVTIMEO_MS  how long tl_read or tl_accept waits at most
 * TL_MESSAGES     1: both ends keep the boundaries of messages, by writing the length of
 *                 each in front of it, as four bytes in network byte order, of at most
 *                 16 MiB; the library and the nodes only pass on that they do. 0,
 *                 the default: they don't. Can be set before tl_connect only; for a
 *                 stream from tl_accept it tells what the other end has set.
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
 * A new socket for the node at `attachment`: the path of the node's Unix socket
 * ([node] socket in its configuration), or for a node on another host
 * "tcp://HOST:PORT?node=PUBKEY&key=FILE". HOST:PORT is one of [node] remote there,
 * HOST a name or an IP address, IPv6 in brackets; PUBKEY is that node's public
 * key, FILE this application's secret key (`trunkline keygen`), which only its
 * owner may read. In both % begins an escape (RFC 3986). It connects in tl_bind.
 * Returns a descriptor.
 *
 * Errors: EINVAL (empty), EMFILE, ENFILE, ENOMEM.
 */
int tl_socket(const char *attachment);

/*
 * Attaches to the node and takes virtual port `port`, or any free one if that
 * is 0. Waits for the node up to 2 s, for one on another host up to 4 s (for
 * each address that its name has), and for the look-up of that name. Returns 0.
 * After an error it can be tried again.
 *
 * Errors: EINVAL (bound already, or what follows the ? of the attachment is not
 * understood), EADDRINUSE (another application has the
 * port), EADDRNOTAVAIL (no port is free), EPERM (the node's rules don't let this
 * application have that port), ECONNREFUSED (no node runs there),
 * ETIMEDOUT (it runs but does not answer), ENOTCONN (it hung up), ENOBUFS (it
 * takes no more applications: it has as many as it may have, or is being drained
 * before it is stopped), EPROTONOSUPPORT (it is of another
 * version), EPROTO (it answered nonsense), ENOENT (HOST:PORT in the attachment
 * has no address), ENOKEY (the key file is missing, holds no key, or can be read
 * by others), EKEYREJECTED (the node has another key than the attachment says),
 * EACCES (it does not know this application's key), EBUSY (it is asked for too many
 * handshakes), and those of connect(2), such as EACCES and ENAMETOOLONG.
 */
int tl_bind(int fd, uint16_t port);

/*
 * Sends `len` bytes at `buf` as one packet; `buf` may be null if `len` is 0.
 * Never waits, but for best effort and reliable packets with TL_BLOCKING, unless `flags`,
 * else 0, are TL_DONTWAIT: of real-time media a packet too many is better lost than waited
 * for. Returns `len`.
 *
 * Errors; the packet was not sent: EMSGSIZE (see TL_MAX_PAYLOAD), EAGAIN (the
 * node does not keep up; with TL_BLOCKING the descriptor becomes readable when it is
 * worth another try: call tl_recvfrom, too), ENOTCONN (the node is away; the socket connects again
 * by itself), EINVAL (not bound). If news about an earlier packet (see tl_recvfrom) are the next thing to receive, they are returned here instead.
 */
ssize_t tl_sendto(int fd, const void *buf, size_t len, int flags, const struct tl_addr *to);

/*
 * Receives one packet into the `len` bytes at `buf`, and who sent it into
 * `from` unless that is null. `flags` are 0 or TL_DONTWAIT. Returns the
 * packet's length, which may be 0: that is an empty packet, not an end. A
 * signal does not end the wait; poll does that better.
 *
 * Errors:
 *   EAGAIN        nothing has come: now, or within TL_RCVTIMEO_MS
 *   EMSGSIZE      `len` is too little. `buf` holds the packet's start, the rest
 *                 is lost. Give room for TL_MAX_PAYLOAD bytes.
 *   EINVAL        not bound
 * News, each told once:
 *   ECONNRESET    the connection to the node was lost and is back, with the same
 *                 virtual port. Packets in between are lost. Go on.
 *   EHOSTUNREACH  packets to a destination are dropped from now on: the node knows
 *                 no route there
 *   ECONNREFUSED  packets to a destination are dropped from now on: no application
 *                 has that port there
 *   EREMCHG       packets get to a destination again, of which EHOSTUNREACH or
 *                 ECONNREFUSED was told
 *   EPERM         a packet sent earlier was dropped: the node's rules don't let
 *                 this application send there
 *   EDQUOT        a packet sent earlier was dropped: it began a new flow, and the
 *                 node's trunk to where it was to go sends more than a TCP would
 *   EADDRINUSE, EADDRNOTAVAIL, ENOBUFS, EPROTONOSUPPORT
 *                 the node is back but refuses this socket, as in tl_bind; the
 *                 attempts go on
 *   EPROTO        the node broke the session protocol; the connection is made
 *                 anew
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

/* What becomes of packets to a destination. */
struct tl_status {
    struct tl_addr to; /* the destination */
    int why;           /* one of the four below */
    int since_ms;      /* of TL_UNREACHABLE: for so long, in milliseconds; else 0 */
};

/* Values of why. */
#define TL_REACHABLE 0   /* packets get there (again), as far as is known */
#define TL_NO_ROUTE 1    /* the node knows no route there, and has known none lately */
#define TL_UNREACHABLE 2 /* the route there was lost */
#define TL_NO_PORT 3     /* no application has that port there */

/*
 * Says what EHOSTUNREACH, ECONNREFUSED or EREMCHG of tl_recvfrom or tl_sendto was
 * about; of several of them, of the earliest first, each once. At most 256 are
 * kept. Returns 0.
 *
 * Each change is told once. That a route is back is told unasked; that a port is
 * bound, at once when a packet comes from there, else only while packets are sent to
 * it, after four to five seconds in which nobody denied it. Of ports at other nodes
 * nothing is told about packets of less than 5 bytes, to which an answer would be
 * larger.
 *
 * Errors: ENOMSG (none is left).
 */
int tl_status(int fd, struct tl_status *status);

/*
 * The socket's node and virtual port; zeros before tl_bind, of a stream before
 * tl_connect or tl_listen. Returns 0.
 */
int tl_getsockname(int fd, struct tl_addr *addr);

/* Ends the socket; its virtual port is free again. Returns 0. */
int tl_close(int fd);

/*
 * Streams: bytes in order, none lost while the stream lasts, as on TCP.
 *
 *     int fd = tl_stream_socket("/run/trunkline/node.sock");
 *     struct tl_addr far = {7, 4000};
 *     if (fd < 0 || tl_connect(fd, &far) < 0 || tl_write(fd, "hello", 5) < 0)
 *         fprintf(stderr, "%s\n", tl_strerror(errno));
 *
 * A stream ends when both ends have ended their direction (tl_shutdown, or tl_close,
 * which delivers what was written), when one of them resets it (tl_reset), or when one
 * of the two nodes goes away; it is not reopened. After any error but EAGAIN and EINVAL
 * the only thing left to do is tl_close. A writer that is faster than the reader is made
 * to wait.
 *
 * The descriptor becomes readable when tl_read would not wait (there are data, the end of
 * the stream, or an error), and, after a tl_write, tl_shutdown or tl_reset that failed
 * with EAGAIN, when another try may succeed. It stays readable until that call is made, so
 * a program that waits for both tries both. It never becomes writable. That of a listener
 * becomes readable when tl_accept has something to do, which may be to reconnect.
 *
 * One thread may read while another writes. tl_close wakes both.
 */

/*
 * A new socket for streams at `attachment`, as in tl_socket. tl_bind on it only sets the
 * virtual port (0, or no tl_bind: any free one), once, and doesn't wait.
 * Then it becomes a stream by tl_connect, or a listener by tl_listen. Returns a
 * descriptor.
 *
 * Errors: those of tl_socket.
 */
int tl_stream_socket(const char *attachment);

/*
 * Opens a stream to the application that listens at `to`. Waits, whatever TL_NONBLOCK
 * says: for the node as tl_bind does, and then for the other end. The node gives up after
 * 10 s, and this call after 60 s. Returns 0. After an error it can be tried again.
 *
 * Errors: those of tl_bind for datagrams; EINVAL (connected, or a listener, already),
 * ECONNREFUSED (no node runs there, or no application listens there for streams), EBUSY
 * (the other end takes no more streams), EPERM (a node's rules forbid it), ETIMEDOUT
 * (the node, or the other end, does not answer), EHOSTUNREACH (there is no route),
 * ENOBUFS (the node has no room for another), EPROTO.
 */
int tl_connect(int fd, const struct tl_addr *to);

/*
 * Attaches to the node and lets streams come in at the virtual port. At most `backlog`
 * of them wait to be accepted (0 means 1), or fewer if the node allows no more; further
 * ones are refused with EBUSY. Waits for the node as tl_bind does. Returns 0. After an
 * error it can be tried again. The port is taken again when the node is back after a
 * restart.
 *
 * Errors: those of tl_bind for datagrams; EINVAL (connected, or a listener, already).
 */
int tl_listen(int fd, int backlog);

/*
 * Accepts the next stream, and writes the address of its other end to `from` unless that
 * is null. Streams that have ended while they waited are skipped. Returns a descriptor of
 * its own, which outlives the listener.
 *
 * Errors, none of which ends the listener: EAGAIN (none has come: now, or within
 * TL_RCVTIMEO_MS), EINVAL (not a listener), EMFILE, ENFILE, ENOMEM; and as in
 * tl_recvfrom, when the node is back and refuses the port, EADDRINUSE, EADDRNOTAVAIL,
 * ENOBUFS, EPERM, EPROTONOSUPPORT, EPROTO.
 */
int tl_accept(int fd, struct tl_addr *from);

/*
 * Reads at most `len` bytes into `buf`; waits until there is at least one. Returns how
 * many; 0 is the end of the stream (or `len` is 0).
 *
 * Errors: EAGAIN (nothing has come: now, or within TL_RCVTIMEO_MS), EINVAL (not
 * connected); after all that came before: ECONNRESET (the other end has broken it off,
 * or its node has lost it), ETIMEDOUT (nothing was heard of the other end for too long,
 * or it has stopped reading), ENOTCONN (the program's node has gone away), ECONNABORTED (after
 * tl_reset), EPIPE (the other end is closed), EHOSTUNREACH, EPROTO.
 */
ssize_t tl_read(int fd, void *buf, size_t len);

/*
 * Writes at most `len` bytes at `buf`; waits until the node takes at least one. Returns
 * how many, which may be fewer than `len`: write the rest next.
 *
 * Errors: EAGAIN (TL_NONBLOCK, and the node takes none now), EPIPE (after tl_shutdown,
 * or the other end is closed), and those of tl_read.
 */
ssize_t tl_write(int fd, const void *buf, size_t len);

/*
 * Ends the writing direction: the other end reads the end of the stream after what was
 * written. Reading is not affected. Returns 0 when the system has taken all that was
 * written, so with a node on another host call this before tl_close.
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
 * What an errno of this library means, in English: what happened and what to do
 * about it. The text is constant; other numbers are left to strerror.
 */
const char *tl_strerror(int error);

/* The library's version, such as "0.1.0". */
const char *tl_version(void);

#ifdef __cplusplus
}
#endif

#endif /* TRUNKLINE_H */
