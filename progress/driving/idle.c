/* The idle policy; see idle.h. docs/waiting.md says where the constants are
   from. */
#include "progress/driving/idle.h"

#include "base/config.h"

#include <sched.h>

enum {
    /* A yield that takes longer is slow: it has given a time slice away. While
       long messages are awaited, it is slow only if it also takes longer than
       patience_ns. */
    SLOW_YIELD_NS = 2500000,
    /* The most polls after slow yields that are each followed by a sleep. */
    SLOW_POLLS = 400,
    /* While long messages are awaited, a poll that is followed by such a sleep
       counts as 1 + bytes / SLOW_POLL_BYTES polls, so fewer sleeps follow. */
    SLOW_POLL_BYTES = 8192,
    /* An application thread that waits yields this many times as long as any
       other driver. */
    WAIT_YIELDS = 5,
    /* Before a wait sleeps, it lets other threads run for as long as this many
       wake-ups take. */
    WAKES = 10,
    NOMINAL_WAKE_NS = 20000,
    LEAST_WAKE_NS = 10000,
    MOST_WAKE_NS = 40000,
    /* A wait for long messages yields for at least this long for each byte. */
    BYTE_NS = 2,
    /* The longest time for which a wait for long messages yields: a peer that
       takes longer is late. */
    MOST_NS = 100000000,
    SHORTEST_SLEEP_US = 20,
    SLEEP_PARTS = 8 /* a sleep is the time waited, divided by this */
};

void baton__idle_init(baton__idle_t *idle, bool alone)
{
    int64_t spins = baton__config_number(BATON__CONFIG_SPIN);
    int64_t yield_us = baton__config_number(BATON__CONFIG_YIELD_US);
    *idle = (baton__idle_t){.spins = alone ? 0 : (uint32_t)spins,
                            .yield_ns = (uint64_t)yield_us * 1000,
                            .share_ns = WAKES * NOMINAL_WAKE_NS};
}

void baton__idle_measured(baton__idle_t *idle, uint64_t wake_ns)
{
    uint64_t least = wake_ns > LEAST_WAKE_NS ? wake_ns : LEAST_WAKE_NS;
    idle->wake_ns = least < MOST_WAKE_NS ? least : MOST_WAKE_NS;
    idle->share_ns = WAKES * idle->wake_ns;
}

void baton__idle_share(baton__idle_t *idle)
{
    idle->scarce = true;
    idle->crowded = true;
}

/* True if the driver sleeps after this poll, instead of yielding, because an
   earlier yield was slow. The more data is awaited, the fewer polls this
   affects: a time slice is a smaller part of the time that the data takes. */
static bool is_deterred(baton__idle_t *idle, uint64_t awaited_bytes)
{
    if (idle->slow_left == 0) {
        return false;
    }
    uint64_t polls = 1 + awaited_bytes / SLOW_POLL_BYTES;
    idle->slow_left -=
        polls < idle->slow_left ? (uint32_t)polls : idle->slow_left;
    return true;
}

/* True if the driver has not yielded for long enough yet. */
static bool is_patient(const baton__idle_t *idle, baton__hurry_t hurry)
{
    uint64_t still_ns = idle->now_ns - idle->since_ns;
    uint64_t yield_ns = hurry == BATON__HURRY_WAIT
                            ? idle->yield_ns
                            : idle->yield_ns / WAIT_YIELDS;
    return (still_ns < yield_ns && idle->shared_ns < idle->share_ns) ||
           (yield_ns > 0 && still_ns < idle->patience_ns);
}

baton__pause_t baton__idle_next(baton__idle_t *idle, baton__hurry_t hurry,
                                uint64_t awaited_bytes)
{
    bool waited = hurry != BATON__HURRY_NONE;
    uint32_t spins = idle->crowded ? 0 : idle->spins;
    uint32_t polls = idle->polls++;
    if (waited && polls < spins) {
        return BATON__PAUSE_NONE;
    }
    idle->now_ns = baton__clock_ns();
    if (idle->since_ns == 0) {
        idle->since_ns = idle->now_ns;
    }
    uint64_t patience_ns = awaited_bytes * BYTE_NS;
    idle->patience_ns = patience_ns < MOST_NS ? patience_ns : MOST_NS;
    return waited && !is_deterred(idle, awaited_bytes) &&
                   is_patient(idle, hurry)
               ? BATON__PAUSE_YIELD
               : BATON__PAUSE_SLEEP;
}

void baton__idle_yield(baton__idle_t *idle)
{
    (void)sched_yield();
    baton__idle_yielded(idle);
}

void baton__idle_yielded(baton__idle_t *idle)
{
    uint64_t now = baton__clock_ns();
    uint64_t took = now - idle->now_ns;
    idle->crowded = idle->scarce || took > BATON__ALONE_NS;
    idle->shared_ns += idle->crowded ? took : 0;
    if (took > SLOW_YIELD_NS && took > idle->patience_ns) {
        uint32_t polls = idle->slow_polls > 0 ? 2 * idle->slow_polls : 1;
        idle->slow_polls = polls < SLOW_POLLS ? polls : SLOW_POLLS;
        idle->slow_left = idle->slow_polls;
    } else {
        idle->slow_polls = 0;
    }
    idle->now_ns = now;
}

uint32_t baton__idle_sleep_us(const baton__idle_t *idle)
{
    uint64_t us = (idle->now_ns - idle->since_ns) / (1000 * SLEEP_PARTS);
    if (idle->since_ns == 0 || us < SHORTEST_SLEEP_US) {
        return SHORTEST_SLEEP_US;
    }
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX - 1;
}
