/* Definitions that the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trunkline.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not true: %s (errno %d: %s)\n", __FILE__, __LINE__, \
                    #condition, errno, tl_strerror(errno)); \
            exit(1); \
        } \
    } while (0)

/* `call` must return -1 and set errno to `expected`. */
#define FAILS(call, expected) \
    do { \
        long returned_; \
        errno = 0; \
        returned_ = (long)(call); \
        if (returned_ != -1 || errno != (expected)) { \
            fprintf(stderr, "%s:%d: %s: %ld, errno %d (%s), not %s\n", __FILE__, __LINE__, #call, \
                    returned_, errno, strerror(errno), #expected); \
            exit(1); \
        } \
    } while (0)

static inline int bound(const char *attachment, uint16_t port)
{
    int fd = tl_socket(attachment);
    CHECK(fd >= 0);
    CHECK(tl_bind(fd, port) == 0);
    return fd;
}

static inline void set(int fd, int option, int value)
{
    CHECK(tl_setsockopt(fd, option, &value, sizeof value) == 0);
}

static inline int get(int fd, int option)
{
    int value = -1;
    size_t len = sizeof value;
    CHECK(tl_getsockopt(fd, option, &value, &len) == 0);
    CHECK(len == sizeof value);
    return value;
}

static inline struct tl_addr name(int fd)
{
    struct tl_addr addr;
    memset(&addr, 0, sizeof addr);
    CHECK(tl_getsockname(fd, &addr) == 0);
    return addr;
}

#endif
