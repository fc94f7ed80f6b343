/* Loaded before the C library: the wall clock of a process is SKEW_SECONDS off; steady clocks are untouched. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long skew(void) {
    const char *text = getenv("SKEW_SECONDS");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *found) {
    int failed = (int)syscall(SYS_clock_gettime, which, found);
    if (!failed && which == CLOCK_REALTIME) found->tv_sec += skew();
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
