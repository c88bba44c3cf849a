/* Groups: ranks, sizes, and tags per pair. Creation is the engine's. */
#include "transport/group.h"

#include "base/alloc.h"

#include <baton/sim.h>

#include <string.h>

int baton_group_rank(const baton_group_t *group)
{
    return group->rank;
}

bool baton_group_has_payload(const baton_group_t *group)
{
    return !group->cost_only;
}

int baton_group_size(const baton_group_t *group)
{
    return group->size;
}

/* The first entry whose peer is not below `peer`. */
static size_t find_pair(const baton_group_t *group, int peer)
{
    size_t low = 0;
    size_t high = group->pair_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (group->pairs[middle].peer < peer) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

baton__pair_t *baton__group_pair(baton_group_t *group, int peer)
{
    size_t at = find_pair(group, peer);
    if (at < group->pair_count && group->pairs[at].peer == peer) {
        return &group->pairs[at];
    }
    if (group->pair_count == group->pair_capacity) {
        size_t capacity = group->pair_capacity * 2 + 8;
        baton__pair_t *pairs = baton__grow(group->pairs, group->pair_count,
                                           capacity, sizeof *pairs);
        if (pairs == NULL) {
            return NULL;
        }
        group->pairs = pairs;
        group->pair_capacity = capacity;
    }
    memmove(&group->pairs[at + 1], &group->pairs[at],
            (group->pair_count - at) * sizeof *group->pairs);
    group->pairs[at] = (baton__pair_t){.peer = peer};
    group->pair_count++;
    return &group->pairs[at];
}
