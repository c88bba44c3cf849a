/* What the modes of a partial collective mean; see rule.h. */
#include "coll/partial/rule.h"

#include "base/error.h"
#include "coll/partial/elect.h"

#include <stdio.h>

static const struct {
    const char *name;
    const char *ranks; /* name of mode_ranks; NULL if the mode has none */
} modes[] = {
    [BATON_SOLO] = {"SOLO", NULL},
    [BATON_MAJORITY] = {"MAJORITY", NULL},
    [BATON_FULL] = {"FULL", NULL},
    [BATON_QUORUM] = {"QUORUM", "q"},
    [BATON_CANDIDATES_ANY] = {"CANDIDATES_ANY", "m"},
    [BATON_CANDIDATES_ALL] = {"CANDIDATES_ALL", "m"},
};
enum { MODE_COUNT = sizeof modes / sizeof modes[0] };

baton_status_t baton__rule_check(const char *name, baton__choice_t mode,
                                 int size)
{
    if ((unsigned)mode.mode >= MODE_COUNT) {
        return baton__error(BATON_ERR_INVALID,
                            "partial \"%s\": mode is %d, must be one of "
                            "baton_partial_mode_t, 0 to %d",
                            name, (int)mode.mode, (int)MODE_COUNT - 1);
    }
    const char *ranks = modes[mode.mode].ranks;
    if (ranks == NULL && mode.mode_ranks != 0) {
        return baton__error(BATON_ERR_INVALID,
                            "partial \"%s\": mode_ranks is %u, must be 0: %s "
                            "has no number of ranks",
                            name, mode.mode_ranks, modes[mode.mode].name);
    }
    if (ranks != NULL &&
        (mode.mode_ranks < 1 || mode.mode_ranks > (uint32_t)size)) {
        return baton__error(BATON_ERR_INVALID,
                            "partial \"%s\": mode_ranks, the %s of %s(%s), is "
                            "%u, must be 1 to %d, the ranks of the group",
                            name, ranks, modes[mode.mode].name, ranks,
                            mode.mode_ranks, size);
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

bool baton__rule_counts(baton__rule_t rule, uint64_t seed, uint64_t epoch,
                        int size, int rank)
{
    return rule.counting == (uint32_t)size ||
           baton__elects(seed, epoch, size, rule.counting, rank);
}

void baton__rule_format(baton__choice_t mode, char text[BATON__RULE_TEXT])
{
    const char *name =
        (unsigned)mode.mode < MODE_COUNT ? modes[mode.mode].name : "?";
    if (mode.mode_ranks == 0) {
        (void)snprintf(text, BATON__RULE_TEXT, "%s", name);
    } else {
        (void)snprintf(text, BATON__RULE_TEXT, "%s(%u)", name, mode.mode_ranks);
    }
}
