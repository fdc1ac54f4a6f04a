/*
 * stream SOCKET listen PORT        returns the data of each stream
 * stream SOCKET connect NODE PORT  sends standard input, prints the answer
 *
 * For a node on another host SOCKET is "tcp://HOST:PORT?node=PUBKEY&key=FILE".
 */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trunkline.h>
#include <unistd.h>

static void fail(const char *what)
{
    fprintf(stderr, "stream: cannot %s: %s\n", what, tl_strerror(errno));
    exit(1);
}

/* Parses a number; ends the program if there is none, or if it exceeds max. */
static unsigned long number(const char *text, unsigned long max)
{
    char *end;
    unsigned long n;
    errno = 0;
    n = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end != '\0' || errno != 0 || n > max) {
        fprintf(stderr, "stream: \"%s\" is not a number from 0 to %lu\n", text, max);
        exit(2);
    }
    return n;
}

/* Writes all bytes; tl_write may write fewer than requested. */
static int write_all(int fd, const char *buf, ssize_t len)
{
    ssize_t n;
    for (; len > 0; buf += n, len -= n)
        if ((n = tl_write(fd, buf, (size_t)len)) < 0)
            return -1;
    return 0;
}

/* Thread that serves one stream. */
static void *echo(void *arg)
{
    int fd = *(int *)arg;
    char buf[8192];
    ssize_t len;
    free(arg);
    while ((len = tl_read(fd, buf, sizeof buf)) > 0 && write_all(fd, buf, len) == 0)
        ;
    if (len != 0 || tl_shutdown(fd) < 0)
        fprintf(stderr, "stream: a stream broke off: %s\n", tl_strerror(errno));
    tl_close(fd);
    return NULL;
}

static void serve(int fd, const char *port)
{
    struct tl_addr self, from;
    pthread_t thread;
    int *stream;

    if (tl_bind(fd, (uint16_t)number(port, UINT16_MAX)) < 0 || tl_listen(fd, 32) < 0)
        fail("listen");
    tl_getsockname(fd, &self);
    printf("listening at %u:%u\n", self.node, self.port);
    fflush(stdout);
    for (;;) {
        stream = malloc(sizeof *stream);
        if (stream == NULL)
            fail("serve another");
        while ((*stream = tl_accept(fd, &from)) < 0) {
            /* No error of tl_accept ends the listener. */
            fprintf(stderr, "stream: %s\n", tl_strerror(errno));
            sleep(1);
        }
        printf("%u:%u\n", from.node, from.port);
        fflush(stdout);
        if (pthread_create(&thread, NULL, echo, stream) != 0)
            fail("make a thread");
        pthread_detach(thread);
    }
}

/* Sends standard input to the stream, while the other thread reads. */
static void *send_input(void *arg)
{
    int fd = *(int *)arg;
    char buf[8192];
    ssize_t len;
    while ((len = read(STDIN_FILENO, buf, sizeof buf)) > 0)
        if (write_all(fd, buf, len) < 0)
            fail("write");
    if (tl_shutdown(fd) < 0)
        fail("end the stream");
    return NULL;
}

static void talk(int fd, const char *node, const char *port)
{
    struct tl_addr to;
    pthread_t sender;
    char buf[8192];
    ssize_t len;

    to.node = (uint32_t)number(node, UINT32_MAX);
    to.port = (uint16_t)number(port, UINT16_MAX);
    if (tl_connect(fd, &to) < 0)
        fail("connect");
    if (pthread_create(&sender, NULL, send_input, &fd) != 0)
        fail("make a thread");
    while ((len = tl_read(fd, buf, sizeof buf)) > 0) {
        fwrite(buf, 1, (size_t)len, stdout);
        fflush(stdout);
    }
    if (len < 0)
        fail("read");
    pthread_join(sender, NULL);
    tl_close(fd);
}

int main(int argc, char **argv)
{
    int fd;
    int server = argc == 4 && strcmp(argv[2], "listen") == 0;
    if (!server && (argc != 5 || strcmp(argv[2], "connect") != 0)) {
        fprintf(stderr, "usage: %s SOCKET listen PORT | SOCKET connect NODE PORT\n", argv[0]);
        return 2;
    }
    fd = tl_stream_socket(argv[1]);
    if (fd < 0)
        fail("make a socket");
    if (server)
        serve(fd, argv[3]);
    else
        talk(fd, argv[3], argv[4]);
    return 0;
}
