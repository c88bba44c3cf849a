/* Monotonic time, and processor time. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t baton__clock_read_ns(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t baton__clock_ns(void)
{
    return baton__clock_read_ns(CLOCK_MONOTONIC);
}

/* Returns the processor time of the calling thread. Costs a system call. */
static inline uint64_t baton__clock_thread_ns(void)
{
    return baton__clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Returns the time at which a timeout that begins now ends; UINT64_MAX if the
   timeout is negative, because it never ends. */
static inline uint64_t baton__deadline(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX
                          : baton__clock_ns() + (uint64_t)timeout_ms * 1000000;
}

/* Returns the milliseconds until a deadline, rounded up; -1 if the deadline
   never comes. */
static inline int baton__left_ms(uint64_t until_ns)
{
    if (until_ns == UINT64_MAX) {
        return -1;
    }
    uint64_t now = baton__clock_ns();
    return until_ns > now ? (int)((until_ns - now + 999999) / 1000000) : 0;
}
