/* To be loaded by LD_PRELOAD: shifts CLOCK_REALTIME, and the kernel's receive time stamps,
 * by the seconds that the file $CLOCK_FILE has. The file may change meanwhile. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double shift(void)
{
    static double cached;
    static unsigned long calls;
    const char *path = getenv("CLOCK_FILE");

    if (path && calls++ % 50 == 0) {
        char text[64] = {0};
        int file = open(path, O_RDONLY);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0)
                cached = atof(text);
            close(file);
        }
    }
    return cached;
}

static void add(struct timespec *time, double seconds)
{
    long long ns = time->tv_sec * 1000000000LL + time->tv_nsec + (long long)(seconds * 1e9);
    time->tv_sec = ns / 1000000000;
    time->tv_nsec = ns % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = syscall(SYS_clock_gettime, clock, time);
    if (!result && clock == CLOCK_REALTIME)
        add(time, shift());
    return result;
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    int received = syscall(SYS_recvmmsg, fd, messages, count, flags, timeout);
    for (int i = 0; i < received; i++) {
        struct msghdr *head = &messages[i].msg_hdr;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c; c = CMSG_NXTHDR(head, c)) {
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
                struct timespec time;
                memcpy(&time, CMSG_DATA(c), sizeof time);
                add(&time, shift());
                memcpy(CMSG_DATA(c), &time, sizeof time);
            }
        }
    }
    return received;
}
