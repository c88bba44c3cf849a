/* The meaning of the modes of a partial collective; see rule.h. */
#include "coll/partial/rule.h"

#include "base/error.h"
#include "base/random.h"

#include <baton/partial.h>
#include <stdio.h>

#define MODE_NAME(MODE, ...)         [BATON_##MODE] = #MODE,
#define HAS_RANKS(MODE, name, ranks) [BATON_##MODE] = sizeof(ranks) > 1,
static const char *const names[] = {BATON_PARTIAL_MODE_LIST(MODE_NAME)};
static const bool has_ranks[] = {BATON_PARTIAL_MODE_LIST(HAS_RANKS)};
enum { MODE_COUNT = sizeof names / sizeof names[0] };

baton_status_t baton__rule_check(const char *name, baton__choice_t mode,
                                 int size)
{
    if ((unsigned)mode.mode >= MODE_COUNT) {
        return baton__error(BATON_ERR_INVALID,
                            "partial \"%s\": mode is %d, must be one of "
                            "baton_partial_mode_t, 0 to %d",
                            name, (int)mode.mode, (int)MODE_COUNT - 1);
    }
    if (!has_ranks[mode.mode] && mode.mode_ranks != 0) {
        return baton__error(BATON_ERR_INVALID,
                            "partial \"%s\": mode_ranks is %u, must be 0: %s "
                            "has no number of ranks",
                            name, mode.mode_ranks, names[mode.mode]);
    }
    if (has_ranks[mode.mode] &&
        (mode.mode_ranks < 1 || mode.mode_ranks > (uint32_t)size)) {
        return baton__error(BATON_ERR_INVALID,
                            "partial \"%s\": mode_ranks of %s is %u, must be "
                            "1 to %d, the ranks of the group",
                            name, names[mode.mode], mode.mode_ranks, size);
    }
    return BATON_OK;
}

baton__rule_t baton__rule_of(baton__choice_t mode, int size)
{
    uint32_t all = (uint32_t)size;
    switch (mode.mode) {
    case BATON_SOLO:
        return (baton__rule_t){all, 1};
    case BATON_MAJORITY:
        return (baton__rule_t){1, 1};
    case BATON_QUORUM:
        return (baton__rule_t){all, mode.mode_ranks};
    case BATON_CANDIDATES_ANY:
        return (baton__rule_t){mode.mode_ranks, 1};
    case BATON_CANDIDATES_ALL:
        return (baton__rule_t){mode.mode_ranks, mode.mode_ranks};
    case BATON_FULL:
        break;
    }
    return (baton__rule_t){all, all};
}

void baton__rule_format(baton__choice_t mode, char text[BATON__RULE_TEXT])
{
    const char *name =
        (unsigned)mode.mode < MODE_COUNT ? names[mode.mode] : "?";
    if (mode.mode_ranks == 0) {
        (void)snprintf(text, BATON__RULE_TEXT, "%s", name);
    } else {
        (void)snprintf(text, BATON__RULE_TEXT, "%s(%u)", name, mode.mode_ranks);
    }
}

/* ---- elections --------------------------------------------------------- */

/* Ranks are elected without replacement: in each block of P epochs every rank
   is elected once, in the order of a random permutation. As with independent
   elections, a rank is elected every P epochs on average. But the intervals
   vary less, and none is as long as 2 P epochs. ELECTION_ROUNDS is the number
   of rounds of swap_or_not that make a permutation. */
enum { ELECTION_ROUNDS = 32 };

/* Adds a constant before it mixes, so that 0 does not stay 0. */
static uint64_t mix(uint64_t x)
{
    return baton__mix(x + UINT64_C(0x9e3779b97f4a7c15));
}

/* One round of swap-or-not (Hoang, Morris, Rogaway 2012), which computes a
   permutation of 0 .. n - 1 without a table. Each block of n epochs has a
   permutation of its own. Returns the place to which the round moves x. A round
   pairs x with key - x, and swaps the two or not; the decision is the same for
   both. So a round is its own inverse, and the rounds in reverse order are the
   inverse permutation. */
static uint64_t swap_or_not(uint64_t seed, uint64_t block, uint64_t round,
                            uint64_t n, uint64_t x)
{
    uint64_t key = mix(mix(mix(seed) ^ block) ^ round);
    uint64_t other = (key % n + n - x) % n;
    uint64_t larger = x > other ? x : other;
    return (mix(key ^ larger) & 1) != 0 ? other : x;
}

int baton_partial_elect(uint64_t seed, uint64_t epoch, int size)
{
    uint64_t n = size > 0 ? (uint64_t)size : 1;
    uint64_t block = (epoch - 1) / n; /* epochs are numbered from 1 */
    uint64_t x = (epoch - 1) % n;
    for (uint64_t round = 0; round < ELECTION_ROUNDS; round++) {
        x = swap_or_not(seed, block, round, n, x);
    }
    return (int)x;
}

/* Returns true if the arrival of `rank` counts in `epoch`. `size` epochs in a
   row share a permutation of the ranks, and in each of these epochs the
   arrivals of the next rule.counting ranks of the permutation count; its last
   rank is followed by its first. So the arrival of each rank counts in
   rule.counting of these epochs. If rule.counting is 1, the rank whose arrival
   counts is that of baton_partial_elect. */
bool baton__rule_counts(baton__rule_t rule, uint64_t seed, uint64_t epoch,
                        int size, int rank)
{
    uint64_t n = (uint64_t)size;
    uint64_t place = (uint64_t)rank;
    if (rule.counting == n) {
        return true;
    }
    uint64_t block = (epoch - 1) / n;
    uint64_t first = (epoch - 1) % n * rule.counting % n;
    for (uint64_t round = ELECTION_ROUNDS; round-- > 0;) {
        place = swap_or_not(seed, block, round, n, place);
    }
    return (place + n - first) % n < rule.counting;
}
