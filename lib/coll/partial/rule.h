/* Which ranks an epoch of a partial collective waits for: pure functions of the
   mode, the seed and the epoch, the same on all ranks.

       mode               counts            the epoch begins when have arrived
       SOLO               every rank        1
       MAJORITY           1 elected rank    1
       QUORUM(q)          every rank        q
       CANDIDATES_ANY(m)  m elected ranks   1
       CANDIDATES_ALL(m)  m elected ranks   m
       FULL               every rank        all, and nobody is activated
*/
#pragma once

#include <baton/baton.h>

/* A mode with its number of ranks, as in baton_partial_options_t. */
typedef struct baton__choice {
    baton_partial_mode_t mode;
    uint32_t mode_ranks;
} baton__choice_t;

/* The modes of all epochs. */
typedef struct baton__modes {
    baton__choice_t choice;
    uint32_t sync_every; /* of so many epochs one is FULL; 0: none */
    uint64_t seed;
    uint64_t base; /* epochs before the schedule's first; as a signed number
                      below 0 where a state of fewer steps was imported */
} baton__modes_t;

static inline baton__choice_t baton__choice_at(const baton__modes_t *modes,
                                               uint64_t epoch)
{
    return modes->sync_every != 0 && epoch % modes->sync_every == 0
               ? (baton__choice_t){.mode = BATON_FULL}
               : modes->choice;
}

typedef struct baton__rule {
    uint32_t counting; /* ranks that count: all of them, or the elected */
    uint32_t needed;   /* of those, arrivals that begin the epoch */
} baton__rule_t;

/* BATON_ERR_INVALID names the mode, the value and its range; `name` is the
   partial's. */
baton_status_t baton__rule_check(const char *name, baton__choice_t mode,
                                 int size);

/* FULL is {size, size}. */
baton__rule_t baton__rule_of(baton__choice_t mode, int size);

static inline bool baton__rule_is_full(baton__rule_t rule, int size)
{
    return rule.needed == (uint32_t)size;
}

/* Whether the arrival of `rank` counts in an epoch. */
bool baton__rule_counts(baton__rule_t rule, uint64_t seed, uint64_t epoch,
                        int size, int rank);

/* "QUORUM(3)", into `text`. */
enum { BATON__RULE_TEXT = 40 };
void baton__rule_format(baton__choice_t mode, char text[BATON__RULE_TEXT]);
