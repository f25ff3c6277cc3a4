/* The clocks of a program that lives in another time, as libfaketime makes them: the wall clock jumps by a year, back and
 * forth, at each look; the monotonic clock is a day ahead and runs at double speed. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define YEAR (365L * 24 * 3600)
#define DAY (24L * 3600)

static atomic_uint looks;

int clock_gettime(clockid_t clock, struct timespec *out) {
    int failed = (int)syscall(SYS_clock_gettime, clock, out);
    if (failed) return failed;
    if (clock == CLOCK_REALTIME) {
        out->tv_sec += atomic_fetch_add(&looks, 1) % 2 ? YEAR : -YEAR;
    } else if (clock == CLOCK_MONOTONIC) {
        long ns = out->tv_nsec * 2;
        out->tv_sec = out->tv_sec * 2 + DAY + ns / 1000000000L;
        out->tv_nsec = ns % 1000000000L;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (failed) return failed;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
