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

/* The mode of each epoch: `choice`, unless the epoch is FULL. */
typedef struct baton__modes {
    baton__choice_t choice;
    uint32_t sync_every; /* each sync_every-th epoch is FULL; 0: no epoch is */
    uint64_t seed;
    /* The number of epochs before the first epoch of the schedule. After the
       import of a state of fewer steps this is a negative number, in two's
       complement. */
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
    /* The number of ranks whose arrivals count: all, or those elected. */
    uint32_t counting;
    /* The number of counting ranks whose arrivals begin the epoch. */
    uint32_t needed;
} baton__rule_t;

/* Returns BATON_ERR_INVALID if the mode or its number of ranks is wrong, with a
   message that names the mode, the number and its range. `name` is the
   partial's name. */
baton_status_t baton__rule_check(const char *name, baton__choice_t mode,
                                 int size);

/* Returns the rule of a mode. In the rule of FULL both numbers are `size`. */
baton__rule_t baton__rule_of(baton__choice_t mode, int size);

static inline bool baton__rule_is_full(baton__rule_t rule, int size)
{
    return rule.needed == (uint32_t)size;
}

/* Returns true if the arrival of `rank` counts in the epoch. */
bool baton__rule_counts(baton__rule_t rule, uint64_t seed, uint64_t epoch,
                        int size, int rank);

/* Writes a mode as text, for example "QUORUM(3)". */
enum { BATON__RULE_TEXT = 40 };
void baton__rule_format(baton__choice_t mode, char text[BATON__RULE_TEXT]);
