/* mangle PORT-A ADDRESS-A PORT-B ADDRESS-B [OPTION=VALUE]...
 *
 * Relays UDP between A, which sends to PORT-A, and B, which sends to PORT-B. Options, for both
 * directions: delay, jitter (ms; uniform, so packets overtake each other), late (a share of the
 * packets) and late_by (ms), double (a share). Nothing is lost. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

struct packet {
    struct packet *next;
    double due;
    int from, length;
    char bytes[2048];
};

static struct packet *queue; /* by due time */
static struct { double delay, jitter, late, late_by, twice; } options;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void enqueue(int from, const char *bytes, int length, double due)
{
    struct packet *packet = malloc(sizeof *packet), **at = &queue;
    if (!packet)
        exit(1);
    packet->due = due;
    packet->from = from;
    packet->length = length;
    memcpy(packet->bytes, bytes, length);
    while (*at && (*at)->due <= due)
        at = &(*at)->next;
    packet->next = *at;
    *at = packet;
}

static void option(char *text)
{
    char *value = strchr(text, '=');
    double number = value ? atof(value + 1) : 0;
    if (value)
        *value = 0;
    if (!strcmp(text, "delay")) options.delay = number / 1e3;
    else if (!strcmp(text, "jitter")) options.jitter = number / 1e3;
    else if (!strcmp(text, "late")) options.late = number;
    else if (!strcmp(text, "late_by")) options.late_by = number / 1e3;
    else if (!strcmp(text, "double")) options.twice = number;
    else {
        fprintf(stderr, "mangle: there is no option %s\n", text);
        exit(2);
    }
}

int main(int count, char **arguments)
{
    struct pollfd sockets[2];
    struct sockaddr_in peer[2];

    if (count < 5)
        return 2;
    srand48(1);
    for (int i = 5; i < count; i++)
        option(arguments[i]);
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1 + 2 * i]))};
        char *colon = strchr(arguments[2 + 2 * i], ':');
        int size = 4 << 20;
        if (!colon)
            return 2;
        *colon = 0;
        peer[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(colon + 1))};
        peer[i].sin_addr.s_addr = inet_addr(arguments[2 + 2 * i]);
        sockets[i] = (struct pollfd){socket(AF_INET, SOCK_DGRAM, 0), POLLIN, 0};
        if (bind(sockets[i].fd, (void *)&own, sizeof own)) {
            perror("mangle: bind");
            return 1;
        }
        setsockopt(sockets[i].fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    }
    for (;;) {
        double wait = queue ? queue->due - now() : 1;
        struct timespec time;
        wait = wait < 0 ? 0 : wait;
        time.tv_sec = wait;
        time.tv_nsec = (wait - time.tv_sec) * 1e9;
        ppoll(sockets, 2, &time, 0);
        for (int i = 0; i < 2; i++) {
            char bytes[2048];
            socklen_t size = sizeof peer[i];
            int length;
            while ((length = recvfrom(sockets[i].fd, bytes, sizeof bytes, MSG_DONTWAIT, (void *)&peer[i], &size)) > 0) {
                double due = now() + options.delay + options.jitter * drand48();
                if (drand48() < options.late)
                    due += options.late_by;
                enqueue(i, bytes, length, due);
                if (drand48() < options.twice)
                    enqueue(i, bytes, length, due + 1e-4);
            }
        }
        while (queue && queue->due <= now()) {
            struct packet *packet = queue;
            int to = 1 - packet->from;
            queue = packet->next;
            sendto(sockets[to].fd, packet->bytes, packet->length, 0, (void *)&peer[to], sizeof peer[to]);
            free(packet);
        }
    }
}
