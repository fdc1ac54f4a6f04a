/*
 * errors NODE1 NODE2 DIR: every error of the interface, and that a socket works
 * after it. NODE1 and NODE2 are the sockets of two neighbouring nodes. Says
 * "stop" and "start" when node 1 is to do that, and waits for a line after each.
 */
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int readable(int fd, int wait_ms)
{
    struct pollfd poll_fd;
    poll_fd.fd = fd;
    poll_fd.events = POLLIN;
    return poll(&poll_fd, 1, wait_ms) == 1;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Every call on a descriptor that is no socket of the library. */
static void no_socket(int fd)
{
    struct tl_addr addr = {1, 1};
    struct tl_status status;
    char buf[10] = {0};
    int value = 1;
    size_t len = sizeof value;

    FAILS(tl_bind(fd, 0), EBADF);
    FAILS(tl_sendto(fd, buf, sizeof buf, 0, &addr), EBADF);
    FAILS(tl_sendto(fd, NULL, 1, -1, NULL), EBADF);
    FAILS(tl_recvfrom(fd, buf, sizeof buf, 0, &addr), EBADF);
    FAILS(tl_recvfrom(fd, NULL, 1, -1, NULL), EBADF);
    FAILS(tl_setsockopt(fd, TL_NONBLOCK, &value, sizeof value), EBADF);
    FAILS(tl_getsockopt(fd, TL_NONBLOCK, &value, &len), EBADF);
    FAILS(tl_getsockname(fd, &addr), EBADF);
    FAILS(tl_status(fd, &status), EBADF);
    FAILS(tl_status(fd, NULL), EBADF);
    FAILS(tl_connect(fd, &addr), EBADF);
    FAILS(tl_connect(fd, NULL), EBADF);
    FAILS(tl_listen(fd, 1), EBADF);
    FAILS(tl_accept(fd, &addr), EBADF);
    FAILS(tl_read(fd, buf, sizeof buf), EBADF);
    FAILS(tl_read(fd, NULL, 1), EBADF);
    FAILS(tl_write(fd, buf, sizeof buf), EBADF);
    FAILS(tl_shutdown(fd), EBADF);
    FAILS(tl_reset(fd), EBADF);
    FAILS(tl_close(fd), EBADF);
}

static void foreign_descriptors(void)
{
    int file = open("/dev/null", O_RDWR), pipe_fds[2];
    CHECK(file >= 0 && pipe(pipe_fds) == 0);
    no_socket(-1);
    no_socket(INT_MIN);
    no_socket(INT_MAX);
    no_socket(0);
    no_socket(file);
    no_socket(pipe_fds[0]);
    CHECK(fcntl(file, F_GETFD) >= 0); /* tl_close left it alone */
    close(file);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void options(const char *node)
{
    int fd = tl_socket(node), value = 1;
    char bytes[2 * sizeof value];
    size_t len = sizeof value;

    CHECK(fd >= 0);
    CHECK(get(fd, TL_SERVICE) == TL_REAL_TIME && get(fd, TL_DEADLINE_MS) == 100);
    CHECK(get(fd, TL_NONBLOCK) == 0 && get(fd, TL_RCVTIMEO_MS) == 0);
    CHECK(get(fd, TL_LATE) == 0);
    CHECK(get(fd, TL_BLOCKING) == 0);
    set(fd, TL_LATE, -1);
    set(fd, TL_BLOCKING, -1);
    set(fd, TL_SERVICE, TL_BEST_EFFORT);
    set(fd, TL_DEADLINE_MS, 255);
    set(fd, TL_NONBLOCK, 7);
    set(fd, TL_RCVTIMEO_MS, INT_MAX);
    CHECK(tl_bind(fd, 0) == 0); /* they outlive it */
    CHECK(get(fd, TL_SERVICE) == TL_BEST_EFFORT && get(fd, TL_DEADLINE_MS) == 255);
    CHECK(get(fd, TL_NONBLOCK) == 1 && get(fd, TL_RCVTIMEO_MS) == INT_MAX);
    CHECK(get(fd, TL_LATE) == 1 && get(fd, TL_BLOCKING) == 1);
    FAILS(tl_setsockopt(fd, TL_LATE, NULL, sizeof value), EFAULT);
    FAILS(tl_setsockopt(fd, TL_LATE, &value, sizeof value - 1), EINVAL);

    FAILS(tl_setsockopt(fd, TL_NONBLOCK, NULL, sizeof value), EFAULT);
    FAILS(tl_setsockopt(fd, TL_NONBLOCK, &value, sizeof value - 1), EINVAL);
    FAILS(tl_setsockopt(fd, TL_NONBLOCK, bytes, SIZE_MAX), EINVAL);
    FAILS(tl_setsockopt(fd, TL_MAX_PAYLOAD, &value, sizeof value), ENOPROTOOPT);
    FAILS(tl_setsockopt(fd, 0, &value, sizeof value), ENOPROTOOPT);
    FAILS(tl_setsockopt(fd, INT_MIN, &value, sizeof value), ENOPROTOOPT);
    FAILS(tl_getsockopt(fd, 99, &value, &len), ENOPROTOOPT);
    FAILS(tl_getsockopt(fd, TL_NONBLOCK, NULL, &len), EFAULT);
    FAILS(tl_getsockopt(fd, TL_NONBLOCK, &value, NULL), EFAULT);
    len = sizeof value - 1;
    FAILS(tl_getsockopt(fd, TL_NONBLOCK, &value, &len), EINVAL);
    for (value = -1; value <= 4; value++)
        if (value != TL_BEST_EFFORT && value != TL_REAL_TIME && value != TL_RELIABLE)
            FAILS(tl_setsockopt(fd, TL_SERVICE, &value, sizeof value), EINVAL);
    const int metrics[] = {-1, TL_HOPS + 1, INT_MIN, INT_MAX};
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        FAILS(tl_setsockopt(fd, TL_METRIC, &metrics[i], sizeof *metrics), EINVAL);
    value = 0;
    FAILS(tl_setsockopt(fd, TL_DEADLINE_MS, &value, sizeof value), EINVAL);
    value = 256;
    FAILS(tl_setsockopt(fd, TL_DEADLINE_MS, &value, sizeof value), EINVAL);
    value = -1;
    FAILS(tl_setsockopt(fd, TL_DEADLINE_MS, &value, sizeof value), EINVAL);
    FAILS(tl_setsockopt(fd, TL_RCVTIMEO_MS, &value, sizeof value), EINVAL);
    CHECK(get(fd, TL_DEADLINE_MS) == 255 && get(fd, TL_RCVTIMEO_MS) == INT_MAX);

    /* Nothing says that the caller's memory is aligned. */
    value = 42;
    memcpy(bytes + 1, &value, sizeof value);
    CHECK(tl_setsockopt(fd, TL_DEADLINE_MS, bytes + 1, sizeof value) == 0);
    CHECK(get(fd, TL_DEADLINE_MS) == 42);
    CHECK(tl_close(fd) == 0);
}

/* A node that takes connections and answers with a byte of nonsense. */
static void *nonsense(void *listener)
{
    char buf[100];
    int session = accept(*(int *)listener, NULL, NULL);
    CHECK(session >= 0 && read(session, buf, sizeof buf) > 0);
    CHECK(write(session, "?", 1) == 1);
    close(session);
    return NULL;
}

static void binding(const char *node, const char *dir)
{
    char path[200];
    struct sockaddr_un address;
    int fd, other, listener;
    pthread_t thread;
    double start;

    FAILS(tl_socket(NULL), EFAULT);
    FAILS(tl_socket(""), EINVAL);
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = 0;
    CHECK((fd = tl_socket(path)) >= 0);
    FAILS(tl_bind(fd, 0), ENAMETOOLONG);
    CHECK(tl_close(fd) == 0);
    CHECK((fd = tl_socket("/dev/null")) >= 0);
    FAILS(tl_bind(fd, 0), ECONNREFUSED);
    CHECK(tl_close(fd) == 0);

    snprintf(path, sizeof path, "%s/\xff.sock", dir); /* a path need not be UTF-8 */
    CHECK((fd = tl_socket(path)) >= 0);
    FAILS(tl_bind(fd, 0), ECONNREFUSED);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    CHECK(strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 5) == 0);
    CHECK(pthread_create(&thread, NULL, nonsense, &listener) == 0);
    FAILS(tl_bind(fd, 0), EPROTO);
    CHECK(pthread_join(thread, NULL) == 0);
    start = now();
    FAILS(tl_bind(fd, 0), ETIMEDOUT); /* the node does not answer */
    CHECK(now() - start > 1.9);
    CHECK(tl_close(fd) == 0);
    close(listener);

    fd = bound(node, 0);
    FAILS(tl_bind(fd, 0), EINVAL);
    CHECK((other = tl_socket(node)) >= 0);
    FAILS(tl_bind(other, name(fd).port), EADDRINUSE);
    CHECK(name(other).port == 0 && !readable(other, 0));
    CHECK(tl_bind(other, 0) == 0); /* it works after that */
    CHECK(name(other).port != name(fd).port);
    CHECK(tl_close(other) == 0);
    /* tl_close gives the port up, as soon as the node has seen it. */
    start = now();
    other = name(fd).port;
    CHECK(tl_close(fd) == 0);
    CHECK((fd = tl_socket(node)) >= 0);
    while (tl_bind(fd, (uint16_t)other) < 0)
        CHECK(errno == EADDRINUSE && now() - start < 5);
    CHECK(tl_close(fd) == 0);
}

static void before_bind(const char *node)
{
    struct tl_addr to = {1, 1};
    char buf[10];
    int fd = tl_socket(node);

    CHECK(fd >= 0);
    CHECK(name(fd).node == 0 && name(fd).port == 0 && get(fd, TL_MAX_PAYLOAD) == 0);
    CHECK(!readable(fd, 0));
    FAILS(tl_sendto(fd, "x", 1, 0, &to), EINVAL);
    FAILS(tl_recvfrom(fd, buf, sizeof buf, 0, NULL), EINVAL);
    FAILS(tl_getsockname(fd, NULL), EFAULT);
    CHECK(tl_close(fd) == 0);
    no_socket(fd);
}

static void packets(const char *node1, const char *node2)
{
    int near = bound(node1, 0), far = bound(node2, 0), max;
    struct tl_addr to = name(far), nowhere = {99, 1}, from;
    char buf[9000];
    double start;

    CHECK(name(near).node == 1 && to.node == 2 && to.port != 0);
    max = get(near, TL_MAX_PAYLOAD);
    CHECK(max >= 1000 && max <= (int)sizeof buf);
    memset(buf, 'b', sizeof buf);
    set(near, TL_DEADLINE_MS, 255);
    set(near, TL_RCVTIMEO_MS, 10000);
    set(far, TL_RCVTIMEO_MS, 10000);

    FAILS(tl_sendto(near, NULL, 1, 0, &to), EFAULT);
    FAILS(tl_sendto(near, buf, 1, 0, NULL), EFAULT);
    FAILS(tl_sendto(near, buf, 1, 1, &to), EINVAL);
    FAILS(tl_sendto(near, buf, (size_t)max + 1, 0, &to), EMSGSIZE);
    FAILS(tl_sendto(near, buf, SIZE_MAX, 0, &to), EMSGSIZE);
    FAILS(tl_recvfrom(far, NULL, 1, 0, &from), EFAULT);
    FAILS(tl_recvfrom(far, buf, sizeof buf, 2, &from), EINVAL);

    CHECK(tl_sendto(near, buf, (size_t)max, TL_DONTWAIT, &to) == max);
    memset(buf, 0, sizeof buf);
    CHECK(tl_recvfrom(far, buf, SIZE_MAX, 0, &from) == max); /* sloppy, but safe */
    CHECK(buf[0] == 'b' && buf[max - 1] == 'b' && buf[max] == 0);
    CHECK(from.node == 1 && from.port == name(near).port);
    CHECK(tl_sendto(near, NULL, 0, 0, &to) == 0);
    CHECK(readable(far, 10000));
    CHECK(tl_recvfrom(far, NULL, 0, TL_DONTWAIT, NULL) == 0);

    CHECK(tl_sendto(near, "abcdef", 6, 0, &to) == 6);
    strcpy(buf, "______");
    FAILS(tl_recvfrom(far, buf, 3, 0, &from), EMSGSIZE);
    CHECK(memcmp(buf, "abc___", 6) == 0);

    CHECK(!readable(far, 0));
    FAILS(tl_recvfrom(far, buf, sizeof buf, TL_DONTWAIT, &from), EAGAIN);
    set(far, TL_RCVTIMEO_MS, 30);
    start = now();
    FAILS(tl_recvfrom(far, buf, sizeof buf, 0, &from), EAGAIN);
    CHECK(now() - start >= 0.029);
    set(far, TL_RCVTIMEO_MS, 0);
    set(far, TL_NONBLOCK, 1);
    FAILS(tl_recvfrom(far, buf, sizeof buf, 0, &from), EAGAIN);

    CHECK(tl_sendto(near, buf, 1, 0, &nowhere) == 1);
    FAILS(tl_recvfrom(near, buf, sizeof buf, 0, &from), EHOSTUNREACH);
    nowhere = name(near);
    nowhere.port = nowhere.port == 9 ? 10 : 9;
    CHECK(tl_sendto(near, buf, 1, 0, &nowhere) == 1);
    CHECK(readable(near, 10000));
    FAILS(tl_sendto(near, buf, 1, 0, &to), ECONNREFUSED); /* news come first */
    CHECK(tl_sendto(near, "z", 1, 0, &to) == 1);
    CHECK(readable(far, 10000) && tl_recvfrom(far, buf, sizeof buf, 0, NULL) == 1);
    CHECK(buf[0] == 'z');
    CHECK(tl_close(near) == 0 && tl_close(far) == 0);
}

static void ask(const char *what)
{
    char line[10];
    puts(what);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin));
}

/* Waits for the news that `fd` has. */
static int news(int fd)
{
    char buf[10];
    do {
        CHECK(readable(fd, 10000));
        CHECK(tl_recvfrom(fd, buf, sizeof buf, TL_DONTWAIT, NULL) < 0);
    } while (errno == EAGAIN);
    return errno;
}

/* The fate of packets is reported once for each change. */
static void statuses(const char *node1, const char *node2)
{
    int fd = bound(node1, 0), far;
    struct tl_addr nowhere = {99, 1}, to;
    struct tl_status status;
    char buf[10];

    FAILS(tl_status(fd, NULL), EFAULT);
    FAILS(tl_status(fd, &status), ENOMSG);

    CHECK(tl_sendto(fd, "packet", 6, 0, &nowhere) == 6);
    CHECK(news(fd) == EHOSTUNREACH);
    CHECK(tl_status(fd, &status) == 0 && status.why == TL_NO_ROUTE);
    CHECK(status.to.node == 99 && status.to.port == 1 && status.since_ms == 0);
    FAILS(tl_status(fd, &status), ENOMSG);
    CHECK(tl_sendto(fd, "packet", 6, 0, &nowhere) == 6); /* told already */
    FAILS(tl_recvfrom(fd, buf, sizeof buf, TL_DONTWAIT, NULL), EAGAIN);

    /* The far node reports that the port is free. */
    far = bound(node2, 0);
    to = name(far);
    CHECK(tl_close(far) == 0);
    do
        CHECK(tl_sendto(fd, "packet", 6, 0, &to) == 6);
    while (!readable(fd, 20));
    CHECK(news(fd) == ECONNREFUSED);
    CHECK(tl_status(fd, &status) == 0 && status.why == TL_NO_PORT);
    CHECK(status.to.node == 2 && status.to.port == to.port);
    /* A packet from there says that somebody does. */
    far = bound(node2, to.port);
    nowhere = name(fd);
    CHECK(tl_sendto(far, "packet", 6, 0, &nowhere) == 6);
    CHECK(readable(fd, 10000) && tl_recvfrom(fd, buf, sizeof buf, TL_DONTWAIT, NULL) == 6);
    CHECK(news(fd) == EREMCHG);
    CHECK(tl_status(fd, &status) == 0 && status.why == TL_REACHABLE);
    CHECK(status.to.node == 2 && status.to.port == to.port);
    CHECK(tl_close(far) == 0);
    CHECK(tl_close(fd) == 0);
}

static void restart(const char *node1, const char *node2)
{
    int near = bound(node1, 4321), far = bound(node2, 0);
    struct tl_addr to = name(far);
    char buf[10];

    set(far, TL_RCVTIMEO_MS, 100);
    ask("stop");
    CHECK(readable(near, 10000));
    FAILS(tl_sendto(near, "a", 1, 0, &to), ENOTCONN);
    CHECK(name(near).port == 4321);
    ask("start");
    CHECK(news(near) == ECONNRESET);
    FAILS(tl_recvfrom(near, buf, sizeof buf, TL_DONTWAIT, NULL), EAGAIN);
    /* The link between the nodes may need a moment. */
    do
        CHECK(tl_sendto(near, "b", 1, 0, &to) == 1);
    while (tl_recvfrom(far, buf, sizeof buf, 0, NULL) < 0);
    CHECK(tl_close(near) == 0 && tl_close(far) == 0);
}

/* close(2) is wrong, but must not take another socket's descriptor with it. */
static void closed_behind_our_back(const char *node)
{
    struct tl_addr self;
    char buf[10];
    int fd = bound(node, 0), again;

    close(fd);
    again = bound(node, 0);
    CHECK(again == fd);
    self = name(again);
    CHECK(tl_sendto(again, "x", 1, 0, &self) == 1);
    CHECK(readable(again, 10000) && tl_recvfrom(again, buf, sizeof buf, 0, NULL) == 1);
    CHECK(tl_close(again) == 0);
    FAILS(tl_close(again), EBADF);
}

static void no_descriptors_left(const char *node)
{
    struct rlimit limit, none;
    int fd = tl_socket(node);

    CHECK(fd >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    FAILS(tl_socket(node), EMFILE);
    FAILS(tl_bind(fd, 0), EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(tl_bind(fd, 0) == 0);
    CHECK(tl_close(fd) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    CHECK(strlen(tl_version()) >= 5);
    CHECK(strstr(tl_strerror(ECONNRESET), "back"));
    CHECK(strstr(tl_strerror(EPROTOTYPE), "control socket"));
    CHECK(strcmp(tl_strerror(ENOTDIR), strerror(ENOTDIR)) == 0);
    CHECK(strlen(tl_strerror(0)) > 0 && strlen(tl_strerror(-1)) > 0);
    foreign_descriptors();
    before_bind(argv[1]);
    options(argv[1]);
    binding(argv[1], argv[3]);
    packets(argv[1], argv[2]);
    statuses(argv[1], argv[2]);
    restart(argv[1], argv[2]);
    closed_behind_our_back(argv[1]);
    no_descriptors_left(argv[1]);
    puts("done");
    return 0;
}
