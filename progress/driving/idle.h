/* The idle policy: whether a driver whose step moved nothing polls again,
   yields or sleeps.

   A yield beside a thread that computes costs a whole time slice, whereas a
   thread that sleeps is scheduled soon after it is woken. So yields are timed.
   After a yield that took too long the driver sleeps instead, once; while
   yields go on to take too long it sleeps twice, four times and so on, up to
   400 times. If the driver awaits long vectors a yield must be longer to be too
   long, and fewer sleeps follow, since the copies of these vectors keep other
   ranks' threads busy. The number of sleeps begins at one because a training
   loop comes to each wait from computing, and the first rank's yield lasts
   until the others have computed, too: with 400 sleeps at once 8 ranks on 2
   processors took 100 us for each of the next 100 calls of 8 bytes; with one
   sleep they took 18 us. After a yield in which another thread ran, or if there
   are more ranks than processors, a driver does not poll without a pause: that
   would keep the very rank that it awaits from running.

   A rank that sleeps while others share its processors comes late by a wake-up,
   and then the ranks that wait for it sleep, too. So before it sleeps a wait
   lets other threads run for as long as ten wake-ups take; the time of a
   wake-up is measured when the engine opens. With a wake-up of 20 us, a call of
   8 bytes took this many us on 2 processors:

       wake-ups   8 ranks      90th percentile   16 ranks
       1          190 to 250                     390
       2.5        40           560               330
       5 to 10    37           46                150 to 250

   With 10 or 20 wake-ups a solo all-reduce of 32 ranks under skew costs as much
   processor time as with one.

   An application thread that waits for long vectors yields longer, however long
   other threads run: up to several times as long as it takes to copy the
   vectors. Where ranks share processors, the awaited rank comes after the turns
   of others; and the kernel balances threads that run, not threads that sleep
   and wake, so with sleeps a processor was idle for up to half of a long
   all-reduce.

   While the driver awaits something that can't wake it, it polls after sleeps
   of an eighth of the time waited so far. So a wait lasts at most an eighth
   longer, and a long wait costs next to no processor time. */
#pragma once

#include "base/clock.h"

#include <stdbool.h>

/* A yield that takes no longer than this counts as one in which no other thread
   ran. */
enum { BATON__ALONE_NS = 1500 };

typedef struct baton__idle {
    uint32_t spins; /* most polls without a pause */
    /* The longest time that a wait yields, unless patience_ns is longer. */
    uint64_t yield_ns;
    /* A wait yields only while shared_ns is below this, or until patience_ns is
       over. */
    uint64_t share_ns;
    uint64_t wake_ns; /* the measured time of a wake-up; 0: not measured */
    uint32_t polls;   /* number of polls since something moved */
    /* The total time, since something moved, of the yields in which other
       threads may have run. */
    uint64_t shared_ns;
    /* The number of polls that are followed by a sleep instead of a yield,
       because the last yield was slow. */
    uint32_t slow_polls;
    uint32_t slow_left; /* how many of slow_polls are left */
    bool scarce;        /* more ranks than processors are on this host */
    bool crowded; /* `scarce`, or another thread ran during the last yield */
    /* The least time that a wait for long messages yields. */
    uint64_t patience_ns;
    /* The time of the first look at the clock since something moved; 0: there
       was none yet. */
    uint64_t since_ns;
    uint64_t now_ns; /* the time of the last look at the clock */
} baton__idle_t;

typedef enum baton__pause {
    BATON__PAUSE_NONE,
    BATON__PAUSE_YIELD,
    BATON__PAUSE_SLEEP
} baton__pause_t;

/* Begins with these limits. `spins` must be 0 if the process has only one
   processor: then spinning would keep others from running. */
void baton__idle_init(baton__idle_t *idle, uint32_t spins, uint64_t yield_ns);

/* Sets the measured time of a wake-up. */
void baton__idle_measured(baton__idle_t *idle, uint64_t wake_ns);

/* Sets `scarce`, because there are more ranks than processors. */
void baton__idle_share(baton__idle_t *idle);

/* Called when something has moved. */
static inline void baton__idle_reset(baton__idle_t *idle)
{
    idle->polls = 0;
    idle->shared_ns = 0;
    idle->since_ns = 0;
}

/* Tells for which purpose the driver awaits messages: for none (NONE), for an
   epoch (EPOCH), or for an epoch for which the driver itself, an application
   thread, waits (WAIT). */
typedef enum baton__hurry {
    BATON__HURRY_NONE,
    BATON__HURRY_EPOCH,
    BATON__HURRY_WAIT
} baton__hurry_t;

/* Returns what to do after a step that moved nothing. `awaited_bytes` is the
   number of bytes that an application thread waits for if its epoch is long,
   else 0. */
baton__pause_t baton__idle_next(baton__idle_t *idle, baton__hurry_t hurry,
                                uint64_t awaited_bytes);

/* Yields, and measures how long that takes. */
void baton__idle_yield(baton__idle_t *idle);
/* Called after the caller has itself yielded, because it released the driver
   lock for the yield. Notes how long the yield took. */
void baton__idle_yielded(baton__idle_t *idle);

/* Returns how long to sleep while the awaited event can't wake the driver. */
uint32_t baton__idle_sleep_us(const baton__idle_t *idle);
