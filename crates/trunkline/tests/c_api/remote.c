/*
 * remote NODE1 NODE2 KEYLESS UNKNOWN WRONGNODE EXPOSED ABSENT MISTYPED LIMITED: two
 * sockets that attach from another host, to two neighbouring nodes; and what
 * each wrong attachment to NODE1 gives. Says "stop" and "start" when node 1 is to do that, and waits for a line
 * after each.
 */
#include "check.h"

static void tell(const char *word)
{
    char line[16];
    puts(word);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

/* Sends packets of `len` bytes until one arrives: the first may fail or get lost
 * while the node is away. */
static void passes(int from, int to, size_t len)
{
    static char sent[1188], got[9000];
    struct tl_addr to_addr = name(to), from_addr = {0, 0};
    int tries;

    memset(sent, (int)len & 0x7f, len);
    set(to, TL_RCVTIMEO_MS, 100);
    for (tries = 0; tries < 200; tries++) {
        ssize_t n;
        tl_sendto(from, sent, len, 0, &to_addr);
        n = tl_recvfrom(to, got, sizeof got, 0, &from_addr);
        /* One of an earlier size may still be under way. */
        if (n == (ssize_t)len && memcmp(sent, got, len) == 0) {
            CHECK(from_addr.node == name(from).node && from_addr.port == name(from).port);
            return;
        }
    }
    CHECK(!"a packet arrives");
}

/* The keys of `attachment`, with another HOST:PORT. */
static int elsewhere(const char *attachment, const char *place)
{
    char text[1024];
    int fd, len = snprintf(text, sizeof text, "tcp://%s%s", place, strchr(attachment, '?'));
    CHECK(len > 0 && (size_t)len < sizeof text);
    CHECK((fd = tl_socket(text)) >= 0);
    return fd;
}

static void wrong(const char *attachment, uint16_t port, int why, const char *says)
{
    int fd = tl_socket(attachment);
    CHECK(fd >= 0);
    FAILS(tl_bind(fd, port), why);
    CHECK(strstr(tl_strerror(why), says) != NULL);
    CHECK(tl_close(fd) == 0);
}

int main(int argc, char **argv)
{
    int near, far, fd, news = 0, tries;
    char buf[9000];

    CHECK(argc == 10);
    near = bound(argv[1], 0);
    far = bound(argv[2], 4000);
    CHECK(name(far).port == 4000 && name(far).node != name(near).node);
    CHECK(get(near, TL_MAX_PAYLOAD) == 1188);
    passes(near, far, 160);
    passes(far, near, 1188);
    passes(near, far, 0);

    fd = tl_socket(argv[2]);
    CHECK(fd >= 0);
    FAILS(tl_bind(fd, 4000), EADDRINUSE);
    CHECK(tl_bind(fd, 4001) == 0);
    CHECK(tl_close(fd) == 0);

    wrong(argv[3], 0, EINVAL, "attachment");
    wrong(argv[4], 0, EACCES, "[[client]]");
    wrong(argv[5], 0, EKEYREJECTED, "key differs from");
    wrong(argv[6], 0, ENOKEY, "can be read by others");
    wrong(argv[7], 0, ENOKEY, "missing");
    wrong(argv[8], 0, EINVAL, "attachment");
    wrong(argv[9], 3999, EPERM, "rules");

    fd = elsewhere(argv[1], "127.0.0.1:1");
    FAILS(tl_bind(fd, 0), ECONNREFUSED);
    CHECK(tl_close(fd) == 0);
    fd = elsewhere(argv[1], "host-without-address.invalid:7800");
    FAILS(tl_bind(fd, 0), ENOENT);
    CHECK(tl_close(fd) == 0);
    fd = elsewhere(argv[1], "127.0.0.1");
    FAILS(tl_bind(fd, 0), ENOENT);
    CHECK(strstr(tl_strerror(ENOENT), "tcp://HOST:PORT") != NULL);
    CHECK(tl_close(fd) == 0);

    tell("stop");
    FAILS(tl_recvfrom(near, buf, sizeof buf, TL_DONTWAIT, NULL), EAGAIN);
    tell("start");
    set(near, TL_RCVTIMEO_MS, 100);
    for (tries = 0; tries < 200 && !news; tries++)
        news = tl_recvfrom(near, buf, sizeof buf, 0, NULL) < 0 && errno == ECONNRESET;
    CHECK(news);
    passes(near, far, 161);
    passes(far, near, 162);
    CHECK(tl_close(near) == 0 && tl_close(far) == 0);
    return 0;
}
