/*
 * threads NODE1 NODE2 ROUNDS: many threads at once, on one socket and on many.
 */
#include "check.h"
#include <pthread.h>
#include <time.h>

#define SENDERS 3
#define RECEIVERS 2

static const char *node1, *node2;
static int rounds, shared, sink;
static struct tl_addr sink_addr;

static void sleep_ms(long ms)
{
    struct timespec time;
    time.tv_sec = 0;
    time.tv_nsec = ms * 1000000;
    nanosleep(&time, NULL);
}

/* Sends `rounds` packets over a socket that others send over too. */
static void *send_some(void *unused)
{
    char packet[160] = {0};
    int i;
    (void)unused;
    for (i = 0; i < rounds; i++) {
        while (tl_sendto(shared, packet, sizeof packet, 0, &sink_addr) < 0) {
            CHECK(errno == EAGAIN); /* a busy machine: the node gets no turn */
            sleep_ms(10);
        }
        CHECK(name(shared).node == 1);
        sleep_ms(1);
    }
    return NULL;
}

/* Counts what it gets of a socket that others receive from too, till it closes. */
static void *receive_some(void *count)
{
    char packet[200];
    while (tl_recvfrom(sink, packet, sizeof packet, 0, NULL) == 160)
        ++*(int *)count;
    CHECK(errno == EBADF);
    return NULL;
}

/* Opens, uses and closes sockets of its own. */
static void *churn(void *unused)
{
    struct tl_addr self;
    char packet[10];
    int i, fd;
    (void)unused;
    for (i = 0; i < rounds; i++) {
        fd = bound(node1, 0);
        self = name(fd);
        set(fd, TL_RCVTIMEO_MS, 10000);
        CHECK(tl_sendto(fd, &i, sizeof i, 0, &self) == sizeof i);
        CHECK(tl_recvfrom(fd, packet, sizeof packet, 0, NULL) == sizeof i);
        CHECK(memcmp(packet, &i, sizeof i) == 0);
        CHECK(tl_close(fd) == 0);
    }
    return NULL;
}

/* Asks about numbers that another thread may hold, or none, at that moment. */
static void *pester(void *unused)
{
    struct tl_addr addr;
    int i, fd;
    (void)unused;
    for (i = 0; i < rounds; i++)
        for (fd = -1; fd < 40; fd++)
            if (tl_getsockname(fd, &addr) < 0)
                CHECK(errno == EBADF);
    return NULL;
}

static void *wait_for_ever(void *fd)
{
    char packet[10];
    FAILS(tl_recvfrom(*(int *)fd, packet, sizeof packet, 0, NULL), EBADF);
    return NULL;
}

/* tl_close wakes everybody who waits on the socket. */
static void close_while_waiting(int pause_ms)
{
    pthread_t threads[3];
    int i, fd = bound(node1, 0);
    for (i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_for_ever, &fd) == 0);
    sleep_ms(pause_ms);
    CHECK(tl_close(fd) == 0);
    for (i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    pthread_t receivers[RECEIVERS], threads[SENDERS + 3];
    int counts[RECEIVERS] = {0}, n = 0, i, total = 0;

    CHECK(argc == 4);
    node1 = argv[1];
    node2 = argv[2];
    rounds = atoi(argv[3]);
    shared = bound(node1, 0);
    sink = bound(node2, 0);
    sink_addr = name(sink);
    set(shared, TL_DEADLINE_MS, 255);
    for (i = 0; i < RECEIVERS; i++)
        CHECK(pthread_create(&receivers[i], NULL, receive_some, &counts[i]) == 0);
    for (i = 0; i < SENDERS; i++)
        CHECK(pthread_create(&threads[n++], NULL, send_some, NULL) == 0);
    /* Before others open sockets: a thread that is late must not meet one of
       theirs under the same number. */
    for (i = 0; i < 10; i++)
        close_while_waiting(i % 4);
    CHECK(pthread_create(&threads[n++], NULL, churn, NULL) == 0);
    CHECK(pthread_create(&threads[n++], NULL, churn, NULL) == 0);
    CHECK(pthread_create(&threads[n++], NULL, pester, NULL) == 0);
    while (n > 0)
        CHECK(pthread_join(threads[--n], NULL) == 0);
    sleep_ms(500); /* the last packets are on their way */
    CHECK(tl_close(sink) == 0);
    for (i = 0; i < RECEIVERS; i++) {
        CHECK(pthread_join(receivers[i], NULL) == 0);
        total += counts[i];
    }
    printf("%d of %d packets arrived\n", total, SENDERS * rounds);
    CHECK(total >= SENDERS * rounds / 2); /* all, unless the machine is busy */
    CHECK(tl_close(shared) == 0);
    return 0;
}
