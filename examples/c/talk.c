/*
 * talk SOCKET NODE PORT: sends each line of standard input as a packet to
 * NODE:PORT and prints the answers. Ends a second after its input has ended.
 *
 *     cc talk.c -o talk $(pkg-config --cflags --libs trunkline)
 *     ./talk /run/trunkline/node.sock 2 4000
 *     ./talk "tcp://192.0.2.1:7800?node=PUBKEY&key=talk.key" 2 4000
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trunkline.h>
#include <unistd.h>

/* Prints all packets that have arrived. */
static void receive(int fd)
{
    static char buf[9000]; /* no packet is larger */
    struct tl_addr from;
    ssize_t len;

    while ((len = tl_recvfrom(fd, buf, sizeof buf, TL_DONTWAIT, &from)) >= 0)
        printf("%u:%u: %.*s\n", (unsigned)from.node, (unsigned)from.port, (int)len, buf);
    if (errno != EAGAIN) /* a report on the node or on a packet */
        fprintf(stderr, "talk: %s\n", tl_strerror(errno));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct pollfd fds[2];
    struct tl_addr to;
    char line[1000];
    int fd;

    if (argc != 4) {
        fprintf(stderr, "usage: %s SOCKET NODE PORT\n", argv[0]);
        return 2;
    }
    to.node = (uint32_t)strtoul(argv[2], NULL, 10);
    to.port = (uint16_t)atoi(argv[3]);
    fd = tl_socket(argv[1]);
    if (fd < 0 || tl_bind(fd, 0) < 0) {
        fprintf(stderr, "talk: cannot attach to %s: %s\n", argv[1], tl_strerror(errno));
        return 1;
    }

    fds[0].fd = fd;
    fds[1].fd = STDIN_FILENO;
    fds[0].events = fds[1].events = POLLIN;
    setvbuf(stdin, NULL, _IONBF, 0); /* poll can't see data that stdio has read ahead */
    while (poll(fds, 2, fds[1].fd < 0 ? 1000 : -1) > 0) {
        if (fds[0].revents)
            receive(fd);
        if (!fds[1].revents)
            continue;
        if (!fgets(line, sizeof line, stdin))
            fds[1].fd = -1; /* poll ignores it from now on */
        else if (tl_sendto(fd, line, strcspn(line, "\n"), 0, &to) < 0)
            fprintf(stderr, "talk: %s\n", tl_strerror(errno));
    }
    return tl_close(fd) < 0;
}
