/* What a driver does when stepping moves nothing: poll again, yield, sleep.

   A yield beside a thread that computes costs a whole time slice, a sleep gets
   wake-up preemption. So yields are timed: after one that took too long the
   driver sleeps for a while. And after one in which anybody else ran, polls
   without a pause are left out, as they are where there are more ranks than
   processors: they keep the very rank from running that is waited for.

   Where something is waited for that can't wake the driver, it looks now and
   then: after an eighth of the time waited so far. So waiting costs at most
   that much more, and long waits cost next to no processor time. */
#ifndef BATON_PROGRESS_IDLE_H
#define BATON_PROGRESS_IDLE_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct baton__idle {
    uint32_t spins;     /* limits: of polls without a pause */
    uint64_t yield_ns;  /* of the time spent yielding */
    uint32_t polls;     /* since something moved */
    uint32_t given_way; /* yields since then, where others run or may */
    uint32_t slow_left; /* polls for which not to yield */
    bool scarce;        /* there are more ranks than processors */
    bool crowded;       /* that, or somebody else ran in the last yield */
    uint64_t since_ns;  /* since when nothing has moved; 0: not looked */
    uint64_t now_ns;    /* the last look at the clock */
} baton__idle_t;

typedef enum baton__pause {
    BATON__PAUSE_NONE,
    BATON__PAUSE_YIELD,
    BATON__PAUSE_SLEEP
} baton__pause_t;

/* Reads the limits from the configuration. `alone`: the process has one
   processor, where a spin only keeps others from running. */
void baton__idle_init(baton__idle_t *idle, bool alone);

/* There are more ranks than processors. */
void baton__idle_share(baton__idle_t *idle);

/* Something moved. */
static inline void baton__idle_reset(baton__idle_t *idle)
{
    idle->polls = 0;
    idle->given_way = 0;
    idle->since_ns = 0;
}

/* Nothing moved: what to do now. `waited`: an epoch waits for something, so a
   pause should be short. */
baton__pause_t baton__idle_next(baton__idle_t *idle, bool waited);

/* Yields, and remembers a slow one. yielded: the second half alone, for who
   gives the state to others while it yields. */
void baton__idle_yield(baton__idle_t *idle);
void baton__idle_yielded(baton__idle_t *idle);

/* How long to sleep where what is waited for can't wake this rank. */
uint32_t baton__idle_sleep_us(const baton__idle_t *idle);

#endif
