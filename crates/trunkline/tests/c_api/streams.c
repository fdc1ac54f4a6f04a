/*
 * streams DIR: streams in C, with a node that this program plays itself, on sockets in
 * DIR: so every answer of a node can be had, at once.
 */
#include "check.h"
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LISTENERS_PORT 5

/* Messages of a session that a node sends. */
static const unsigned char has_port[] = {0x81, 0, 0, 0, 1, 0x10, 0xe1, 4, 0xb0};
static const unsigned char has_listeners_port[] = {0x81, 0, 0, 0, 1, 0, LISTENERS_PORT, 4, 0xb0};
static const unsigned char connected[] = {0x88, 0, 0, 0, 1, 0x10, 0xe1, 0, 0,   0,
                                          7,    0, 70, 1, 0, 0,    0,    10};
static const unsigned char incoming[] = {0x86, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 7, 0, 70, 0};
static const unsigned char credit[] = {0x8a, 0, 0, 0, 10};
static const unsigned char hello[] = {0x89, 'h', 'e', 'l', 'l', 'o'};
static const unsigned char shut[] = {0x8b};

static int node; /* listens as a node does */

static void say(int session, const unsigned char *message, size_t len)
{
    CHECK(write(session, message, len) == (ssize_t)len);
}

/* The next message is of this type and length; its bytes. */
static const unsigned char *hear(int session, int type, ssize_t len)
{
    static unsigned char message[10000];
    ssize_t got = read(session, message, sizeof message);
    CHECK(got == len && (len == 0 || message[0] == type));
    return message;
}

static void sleep_ms(long ms)
{
    struct timespec time;
    time.tv_sec = 0;
    time.tv_nsec = ms * 1000000;
    nanosleep(&time, NULL);
}

static int readable(int fd, int wait_ms)
{
    struct pollfd poll_fd;
    poll_fd.fd = fd;
    poll_fd.events = POLLIN;
    return poll(&poll_fd, 1, wait_ms) == 1;
}

static int accept_session(void)
{
    int session = accept(node, NULL, NULL);
    CHECK(session >= 0);
    return session;
}

/* Answers a tl_connect with the `len` bytes at `answer`, unless null; returns the session. */
static int answer_connect(const unsigned char *answer, size_t len)
{
    int session = accept_session();
    hear(session, 1, 4);
    say(session, has_port, sizeof has_port);
    hear(session, 6, 12);
    if (answer != NULL)
        say(session, answer, len);
    return session;
}

static int session; /* of the stream that was opened last */

static void *open_it(void *unused)
{
    (void)unused;
    session = answer_connect(connected, sizeof connected);
    return NULL;
}

/* An open stream. */
static int stream(const char *path, int messages)
{
    struct tl_addr far = {7, 70};
    pthread_t thread;
    int fd = tl_stream_socket(path);
    CHECK(fd >= 0);
    set(fd, TL_MESSAGES, messages);
    CHECK(pthread_create(&thread, NULL, open_it, NULL) == 0);
    CHECK(tl_connect(fd, &far) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return fd;
}

static void *refuse(void *reason)
{
    unsigned char reset[2] = {0x8c, 0};
    reset[1] = (unsigned char)*(int *)reason;
    close(answer_connect(reset, sizeof reset));
    return NULL;
}

static void *other_version(void *unused)
{
    static const unsigned char version[] = {0x83, 1, 0, 0, 0, 0, 0, 0};
    int other = accept_session();
    (void)unused;
    hear(other, 1, 4);
    say(other, version, sizeof version);
    close(other);
    return NULL;
}

/* Every reason for which a stream can't be opened, on one socket. */
static void refusals(const char *path)
{
    static const int reasons[] = {0,         ECONNREFUSED, EBUSY,      EPERM,        ETIMEDOUT,
                                  ECONNRESET, ECONNRESET,  EPROTO,     ETIMEDOUT,    EHOSTUNREACH,
                                  ECONNRESET, EPIPE,       ENOBUFS,    EPROTO};
    struct tl_addr far = {7, 70}, self;
    pthread_t thread;
    int reason, fd = tl_stream_socket(path), value = 1;
    char buf[4] = {0};

    for (reason = 1; reason < (int)(sizeof reasons / sizeof *reasons); reason++) {
        CHECK(pthread_create(&thread, NULL, refuse, &reason) == 0);
        FAILS(tl_connect(fd, &far), reasons[reason]);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(tl_strerror(reasons[reason]) != NULL);
    }
    CHECK(pthread_create(&thread, NULL, other_version, NULL) == 0);
    FAILS(tl_connect(fd, &far), EPROTONOSUPPORT);
    CHECK(pthread_join(thread, NULL) == 0);

    /* A stream that is not open refuses these, and all calls for datagrams. */
    FAILS(tl_connect(fd, NULL), EFAULT);
    FAILS(tl_accept(fd, NULL), EINVAL);
    FAILS(tl_read(fd, buf, sizeof buf), EINVAL);
    FAILS(tl_write(fd, buf, sizeof buf), EINVAL);
    FAILS(tl_shutdown(fd), EINVAL);
    FAILS(tl_reset(fd), EINVAL);
    FAILS(tl_sendto(fd, buf, sizeof buf, 0, &far), EOPNOTSUPP);
    FAILS(tl_recvfrom(fd, buf, sizeof buf, 0, &far), EOPNOTSUPP);
    FAILS(tl_status(fd, NULL), EOPNOTSUPP);
    FAILS(tl_setsockopt(fd, TL_SERVICE, &value, sizeof value), ENOPROTOOPT);
    FAILS(tl_setsockopt(fd, TL_MESSAGES, &value, 1), EINVAL);
    value = -1;
    FAILS(tl_setsockopt(fd, TL_RCVTIMEO_MS, &value, sizeof value), EINVAL);
    CHECK(tl_getsockname(fd, &self) == 0 && self.node == 0 && self.port == 0);
    CHECK(tl_bind(fd, LISTENERS_PORT) == 0);
    FAILS(tl_bind(fd, LISTENERS_PORT), EINVAL);
    CHECK(tl_close(fd) == 0);
    FAILS(tl_connect(fd, &far), EBADF);

    fd = tl_socket(path);
    FAILS(tl_connect(fd, &far), EOPNOTSUPP);
    FAILS(tl_listen(fd, 1), EOPNOTSUPP);
    FAILS(tl_accept(fd, NULL), EOPNOTSUPP);
    FAILS(tl_read(fd, buf, sizeof buf), EOPNOTSUPP);
    FAILS(tl_write(fd, buf, sizeof buf), EOPNOTSUPP);
    FAILS(tl_shutdown(fd), EOPNOTSUPP);
    FAILS(tl_reset(fd), EOPNOTSUPP);
    FAILS(tl_setsockopt(fd, TL_MESSAGES, &value, sizeof value), ENOPROTOOPT);
    CHECK(tl_close(fd) == 0);
    FAILS(tl_stream_socket(NULL), EFAULT);
    FAILS(tl_stream_socket(""), EINVAL);
}

static void bytes(const char *path)
{
    struct tl_addr far = {7, 70};
    char buf[100];
    int fd = stream(path, 1), value = 0;

    CHECK(name(fd).node == 1 && name(fd).port == 4321);
    CHECK(get(fd, TL_MESSAGES) == 1);
    FAILS(tl_setsockopt(fd, TL_MESSAGES, &value, sizeof value), EINVAL);
    FAILS(tl_bind(fd, 1), EINVAL);
    FAILS(tl_connect(fd, &far), EINVAL);
    FAILS(tl_listen(fd, 1), EINVAL);
    FAILS(tl_accept(fd, NULL), EINVAL);
    FAILS(tl_read(fd, NULL, 1), EFAULT);
    FAILS(tl_write(fd, NULL, 1), EFAULT);
    CHECK(tl_read(fd, NULL, 0) == 0);
    CHECK(tl_write(fd, NULL, 0) == 0);

    say(session, hello, sizeof hello);
    CHECK(readable(fd, 1000));
    CHECK(tl_read(fd, buf, 3) == 3 && memcmp(buf, "hel", 3) == 0);
    CHECK(tl_read(fd, buf, SIZE_MAX / 2) == 2 && memcmp(buf, "lo", 2) == 0);
    set(fd, TL_RCVTIMEO_MS, 20);
    FAILS(tl_read(fd, buf, sizeof buf), EAGAIN);
    set(fd, TL_RCVTIMEO_MS, 0);
    set(fd, TL_NONBLOCK, 1);
    FAILS(tl_read(fd, buf, sizeof buf), EAGAIN);
    memset(buf, 'x', sizeof buf);
    CHECK(tl_write(fd, buf, sizeof buf) == 10);
    FAILS(tl_write(fd, buf, sizeof buf), EAGAIN);
    CHECK(memcmp(hear(session, 9, 11) + 1, "xxxxxxxxxx", 10) == 0);
    CHECK(!readable(fd, 20));
    say(session, credit, sizeof credit);
    CHECK(readable(fd, 1000));
    CHECK(tl_write(fd, buf, 4) == 4);
    hear(session, 9, 5);
    set(fd, TL_NONBLOCK, 0);

    CHECK(tl_shutdown(fd) == 0 && tl_shutdown(fd) == 0);
    hear(session, 11, 1);
    FAILS(tl_write(fd, buf, 1), EPIPE);
    say(session, shut, sizeof shut);
    CHECK(tl_read(fd, buf, sizeof buf) == 0 && tl_read(fd, buf, sizeof buf) == 0);
    close(session);
    CHECK(tl_close(fd) == 0);
    FAILS(tl_read(fd, buf, sizeof buf), EBADF);

    fd = stream(path, 0);
    CHECK(tl_reset(fd) == 0);
    hear(session, 12, 1);
    FAILS(tl_read(fd, buf, sizeof buf), ECONNABORTED);
    FAILS(tl_write(fd, buf, sizeof buf), ECONNABORTED);
    close(session);
    CHECK(tl_close(fd) == 0);

    fd = stream(path, 0);
    say(session, hello, sizeof hello);
    close(session);
    CHECK(tl_read(fd, buf, sizeof buf) == 5);
    FAILS(tl_read(fd, buf, sizeof buf), ENOTCONN);
    FAILS(tl_write(fd, buf, sizeof buf), ENOTCONN);
    FAILS(tl_shutdown(fd), ENOTCONN);
    FAILS(tl_reset(fd), ENOTCONN);
    CHECK(tl_close(fd) == 0);

    fd = stream(path, 0);
    say(session, hello + 1, 5); /* nonsense */
    FAILS(tl_read(fd, buf, sizeof buf), EPROTO);
    close(session);
    CHECK(tl_close(fd) == 0);
}

static int listener;

static void *answer_listener(void *unused)
{
    int listening = accept_session(), accepted;
    const unsigned char *message;
    (void)unused;
    message = hear(listening, 1, 4);
    CHECK(message[3] == LISTENERS_PORT);
    say(listening, has_listeners_port, sizeof has_listeners_port);
    message = hear(listening, 7, 3);
    CHECK(message[1] == 0 && message[2] == 1);
    sleep_ms(20);
    say(listening, incoming, sizeof incoming);
    accepted = accept_session();
    message = hear(accepted, 8, 14);
    CHECK(memcmp(message + 2, incoming + 1, 8) == 0);
    say(accepted, connected, sizeof connected);
    say(accepted, hello, sizeof hello);
    CHECK(memcmp(hear(accepted, 9, 6) + 1, "hello", 5) == 0);
    hear(accepted, 0, 0);
    close(accepted);
    hear(listening, 0, 0);
    close(listening);
    return NULL;
}

static void listening(const char *path)
{
    struct tl_addr from = {0, 0};
    pthread_t thread;
    char buf[10];
    int fd;

    listener = tl_stream_socket(path);
    CHECK(tl_bind(listener, LISTENERS_PORT) == 0);
    set(listener, TL_NONBLOCK, 1);
    CHECK(pthread_create(&thread, NULL, answer_listener, NULL) == 0);
    CHECK(tl_listen(listener, INT_MIN) == 0);
    FAILS(tl_listen(listener, 1), EINVAL);
    FAILS(tl_connect(listener, &from), EINVAL);
    FAILS(tl_read(listener, buf, sizeof buf), EINVAL);
    CHECK(name(listener).port == LISTENERS_PORT);
    FAILS(tl_accept(listener, &from), EAGAIN);
    CHECK(readable(listener, 1000));
    set(listener, TL_NONBLOCK, 0);
    fd = tl_accept(listener, &from);
    CHECK(fd >= 0 && fd != listener && from.node == 7 && from.port == 70);
    CHECK(get(fd, TL_NONBLOCK) == 0 && get(fd, TL_MESSAGES) == 1);
    set(listener, TL_RCVTIMEO_MS, 20);
    FAILS(tl_accept(listener, NULL), EAGAIN);
    CHECK(tl_close(listener) == 0);
    CHECK(tl_read(fd, buf, sizeof buf) == 5);
    CHECK(tl_write(fd, buf, 5) == 5);
    CHECK(tl_close(fd) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *wait_to_read(void *fd)
{
    char buf[10];
    FAILS(tl_read(*(int *)fd, buf, sizeof buf), EBADF);
    return NULL;
}

static void *wait_to_write(void *fd)
{
    char buf[100] = {0};
    CHECK(tl_write(*(int *)fd, buf, sizeof buf) == 10);
    FAILS(tl_write(*(int *)fd, buf, sizeof buf), EBADF);
    return NULL;
}

static void *wait_to_connect(void *fd)
{
    struct tl_addr far = {7, 70};
    FAILS(tl_connect(*(int *)fd, &far), EBADF);
    return NULL;
}

static void *wait_to_accept(void *fd)
{
    FAILS(tl_accept(*(int *)fd, NULL), EBADF);
    return NULL;
}

static void *only_bind(void *unused)
{
    (void)unused;
    session = accept_session();
    hear(session, 1, 4);
    say(session, has_port, sizeof has_port);
    hear(session, 7, 3);
    return NULL;
}

/* tl_close wakes everybody. */
static void closing(const char *path)
{
    pthread_t threads[3];
    int i, fd = stream(path, 0);

    CHECK(pthread_create(&threads[0], NULL, wait_to_read, &fd) == 0);
    CHECK(pthread_create(&threads[1], NULL, wait_to_read, &fd) == 0);
    CHECK(pthread_create(&threads[2], NULL, wait_to_write, &fd) == 0);
    sleep_ms(50);
    CHECK(tl_close(fd) == 0);
    for (i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    close(session);

    fd = tl_stream_socket(path);
    CHECK(pthread_create(&threads[0], NULL, wait_to_connect, &fd) == 0);
    session = answer_connect(NULL, 0);
    sleep_ms(50);
    CHECK(tl_close(fd) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    close(session);

    fd = tl_stream_socket(path);
    CHECK(pthread_create(&threads[0], NULL, only_bind, NULL) == 0);
    CHECK(tl_listen(fd, 3) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    CHECK(pthread_create(&threads[0], NULL, wait_to_accept, &fd) == 0);
    sleep_ms(50);
    CHECK(tl_close(fd) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    close(session);
}

int main(int argc, char **argv)
{
    struct sockaddr_un address;
    struct tl_addr far = {7, 70};
    char path[sizeof address.sun_path];
    int fd;

    CHECK(argc == 2);
    CHECK(snprintf(path, sizeof path, "%s/played.sock", argv[1]) < (int)sizeof path);
    fd = tl_stream_socket(path);
    FAILS(tl_connect(fd, &far), ECONNREFUSED);
    FAILS(tl_listen(fd, 1), ECONNREFUSED);
    CHECK(tl_close(fd) == 0);

    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path);
    node = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(bind(node, (struct sockaddr *)&address, sizeof address) == 0 && listen(node, 8) == 0);
    refusals(path);
    bytes(path);
    listening(path);
    closing(path);
    close(node);
    return 0;
}
