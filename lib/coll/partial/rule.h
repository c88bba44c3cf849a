/* Which ranks an epoch of a partial collective waits for: pure functions of the
   mode, the seed and the epoch, the same on all ranks.

       mode               counts            the epoch begins after
       SOLO               every rank        1 arrival
       MAJORITY           1 elected rank    1
       QUORUM(q)          every rank        q
       CANDIDATES_ANY(m)  m elected ranks   1
       CANDIDATES_ALL(m)  m elected ranks   m
       FULL               every rank        all; there is no activation */
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
    uint32_t sync_every; /* every sync_every-th epoch is FULL; 0: none */
    uint64_t seed;
    /* Epochs before the schedule's first. Negative, as a signed number, after
       the import of a state of fewer steps. */
    uint64_t base;
} baton__modes_t;

static inline baton__choice_t baton__choice_at(const baton__modes_t *modes,
                                               uint64_t epoch)
{
    return modes->sync_every != 0 && epoch % modes->sync_every == 0
               ? (baton__choice_t){.mode = BATON_FULL}
               : modes->choice;
}

typedef struct baton__rule {
    uint32_t counting; /* ranks that count: all, or the elected ones */
    uint32_t needed;   /* arrivals of such ranks that begin the epoch */
} baton__rule_t;

/* Returns BATON_ERR_INVALID if the mode or its number of ranks is wrong, with a
   message that names the mode, the value and its range. `name` is the partial's
   name. */
baton_status_t baton__rule_check(const char *name, baton__choice_t mode,
                                 int size);

/* Returns the rule of a mode. FULL is {size, size}. */
baton__rule_t baton__rule_of(baton__choice_t mode, int size);

static inline bool baton__rule_is_full(baton__rule_t rule, int size)
{
    return rule.needed == (uint32_t)size;
}

/* True if the arrival of `rank` counts in the epoch. */
bool baton__rule_counts(baton__rule_t rule, uint64_t seed, uint64_t epoch,
                        int size, int rank);

/* Writes the mode, for example "QUORUM(3)", to `text`. */
enum { BATON__RULE_TEXT = 40 };
void baton__rule_format(baton__choice_t mode, char text[BATON__RULE_TEXT]);
