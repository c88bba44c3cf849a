/* What a driver does when a step moves nothing: it polls again, yields, or
   sleeps.

   A yield beside a thread that computes costs a whole time slice, a sleep gets
   wake-up preemption. So yields are timed: after one that took too long the
   driver sleeps instead, once, then twice, up to 400 times while yields go on
   to take too long; unless it awaits long vectors, whose copies keep other
   ranks' threads busy as long. A training loop comes to each wait from
   computing, and the first rank's yield lasts until the others have computed,
   too: with 400 sleeps at once 8 ranks on 2 processors took 100 us for each of
   the next 100 calls of 8 bytes, with one 18. After a yield in which another
   thread ran, or if there are more ranks than processors, a driver does not
   poll without a pause: that would keep the very rank from running that is
   awaited.

   A rank that sleeps while others share its processors comes late by a wake-up,
   and then those that wait for it sleep, too. So a wait lets others run for as
   long as ten wake-ups take before it sleeps: that is measured when the engine
   opens. With one (20 us) 8 ranks on 2 processors took 190 to 250 us for 8
   bytes, with 2.5 about 40, but 560 at the 90th percentile, with 5 to 10 about
   37, and 46; 16 ranks 390, 330, 150 to 250. With 10 or 20 a solo all-reduce of
   32 ranks under skew costs as much processor time as with one.

   An application thread that waits for long vectors yields longer, however many
   others run: up to several times as long as it takes to copy them. Where ranks
   share processors, what is awaited comes after the turns of others; and the
   kernel balances threads that run, not those that sleep and wake, so that with
   sleeps a processor was idle for up to half of a long all-reduce.

   While something is awaited that can't wake the driver, it polls after sleeps
   of an eighth of the time waited so far. So a wait lasts at most that much
   longer, and a long one costs next to no processor time. */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct baton__idle {
    uint32_t spins;     /* most polls without a pause */
    uint64_t yield_ns;  /* most time that a wait yields */
    uint64_t share_ns;  /* most time of it in which others run */
    uint64_t wake_ns;   /* that a wake-up takes; 0: not measured */
    uint32_t polls;     /* since something moved */
    uint64_t shared_ns; /* since then, of yields in which others may have run */
    uint32_t slow_polls;  /* for which the last yield, a slow one, deters */
    uint32_t slow_left;   /* of them */
    bool scarce;          /* there are more ranks than processors */
    bool crowded;         /* that, or another thread ran in the last yield */
    uint64_t patience_ns; /* for which a wait yields for what is awaited */
    uint64_t since_ns;    /* since when nothing has moved; 0 if not known yet */
    uint64_t now_ns;      /* the last look at the clock */
} baton__idle_t;

typedef enum baton__pause {
    BATON__PAUSE_NONE,
    BATON__PAUSE_YIELD,
    BATON__PAUSE_SLEEP
} baton__pause_t;

/* Reads the limits from the configuration. `alone`: the process has only one
   processor, where spinning keeps others from running. */
void baton__idle_init(baton__idle_t *idle, bool alone);

/* How long a wake-up takes, if it was measured. */
void baton__idle_measured(baton__idle_t *idle, uint64_t wake_ns);

/* There are more ranks than processors. */
void baton__idle_share(baton__idle_t *idle);

/* Something moved. */
static inline void baton__idle_reset(baton__idle_t *idle)
{
    idle->polls = 0;
    idle->shared_ns = 0;
    idle->since_ns = 0;
}

/* Who waits: nobody, an epoch, or an application thread for an epoch. */
typedef enum baton__hurry {
    BATON__HURRY_NONE,
    BATON__HURRY_EPOCH,
    BATON__HURRY_WAIT
} baton__hurry_t;

/* Nothing moved: returns what to do now. awaited_bytes: of the messages that an
   application thread waits for, if they take long; else 0. */
baton__pause_t baton__idle_next(baton__idle_t *idle, baton__hurry_t hurry,
                                uint64_t awaited_bytes);

/* Yields, and notes how long that took. yielded: only notes it, for a caller
   that releases this state while it yields. */
void baton__idle_yield(baton__idle_t *idle);
void baton__idle_yielded(baton__idle_t *idle);

/* For how long to sleep if what is awaited can't wake this rank. */
uint32_t baton__idle_sleep_us(const baton__idle_t *idle);
