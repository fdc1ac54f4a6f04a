/*
 * echo SOCKET PORT: returns every packet to its sender.
 *
 *     cc echo.c -o echo $(pkg-config --cflags --libs trunkline)
 *     ./echo /run/trunkline/node.sock 4000
 *     ./echo "tcp://192.0.2.1:7800?node=PUBKEY&key=echo.key" 4000
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <trunkline.h>

int main(int argc, char **argv)
{
    static char buf[9000]; /* no packet is larger */
    struct tl_addr addr;
    int fd;

    if (argc != 3) {
        fprintf(stderr, "usage: %s SOCKET PORT\n", argv[0]);
        return 2;
    }
    fd = tl_socket(argv[1]);
    if (fd < 0 || tl_bind(fd, (uint16_t)atoi(argv[2])) < 0 || tl_getsockname(fd, &addr) < 0) {
        fprintf(stderr, "echo: cannot attach to %s: %s\n", argv[1], tl_strerror(errno));
        return 1;
    }
    printf("echo at %u:%u\n", (unsigned)addr.node, (unsigned)addr.port);
    fflush(stdout);

    for (;;) {
        ssize_t len = tl_recvfrom(fd, buf, sizeof buf, 0, &addr);
        /* Errors report on the node or on a packet; the socket stays open. */
        if (len < 0 || tl_sendto(fd, buf, (size_t)len, 0, &addr) < 0)
            fprintf(stderr, "echo: %s\n", tl_strerror(errno));
    }
}
