#include "coll/partial/begin.h"
#include <baton/coll.h>

#include "coll/kit/check.h"
#include "coll/kit/pattern.h"

/* The nodes are the union of P trees of messages, one for each rank that may
   initiate the activation. Each step has a distance: in it a rank sends to the
   rank that is so many ranks further. A rank that initiates sends in all steps.
   An activation that arrives in one step is sent on in some of the later steps.
   In binomial trees the distance of step t is 2^t, and all later steps send the
   activation on:

       5 ranks, 3 steps:

       initiate --+---------------+---------------+
                  |               |               |
                  v               v               v
              activate +1     activate +2     activate +4
                                ^               ^   ^
                               /               /   /
       armed recv -1 ---------+---------------+   /
       armed recv -2 ----------------------------+
       armed recv -4

       begin: the first of initiate and all armed receives

   In trees of two levels the first steps reach the leaders of groups. The other
   steps reach the members of a group, and send the activations on that arrive
   in any of the first steps. So there are two hops at most, and no rank waits
   for more than one other rank to be awake:

       9 ranks, groups of 3, 4 steps:

       initiate --+------------+------------+------------+
                  v            v            v            v
              activate +3  activate +6  activate +1  activate +2
                                           ^ ^          ^ ^
       armed recv -3 ----------------------|-+----------+ |
       armed recv -6 ----------------------+--------------+
       armed recv -1
       armed recv -2

   Every activate needs ANY of its edges and fires once: a rank that several
   initiators reach, or that initiates after it was reached, sends what is
   missing and nothing twice. The engine stops a tree when it has gone round: an
   activation fires an activate node only if the node's peer is farther from the
   message's origin than this rank, that is if o + distance < P, where o is this
   rank's distance from the origin. */

typedef struct steps {
    int count;
    int distance[BATON__ACTIVATION_STEPS]; /* each distance is in ranks */
} steps_t;

static int set_distances(int size, int group, steps_t *out)
{
    int leaders = 0;
    if (group == 0) {
        out->count = baton__log2_ceil(size);
        for (int step = 0; step < out->count; step++) {
            out->distance[step] = 1 << step;
        }
        return 0;
    }
    for (int distance = group; distance < size; distance += group) {
        out->distance[leaders++] = distance;
    }
    out->count = leaders;
    for (int distance = 1; distance < group && distance < size; distance++) {
        out->distance[out->count++] = distance;
    }
    return leaders;
}

baton_node_t baton__add_activation(baton_schedule_t *schedule,
                                   baton_node_t initiate, int group)
{
    steps_t steps;
    baton_node_t armed[BATON__ACTIVATION_STEPS];
    int rank = baton_schedule_rank(schedule);
    int size = baton_schedule_size(schedule);
    int leaders = set_distances(size, group, &steps);

    baton_node_t begin = baton_add_nop(schedule);
    baton_set_need(schedule, begin, BATON_NEED_ANY);
    baton_before(schedule, initiate, begin);

    for (int step = 0; step < steps.count; step++) {
        int distance = steps.distance[step];
        int before = baton__rank_shift(rank, -(int64_t)distance, size);
        int after = baton__rank_shift(rank, distance, size);
        armed[step] = baton_add_armed_recv(schedule, before);
        baton_before(schedule, armed[step], begin);

        baton_node_t activate = baton_add_activate(schedule, after);
        baton_set_need(schedule, activate, BATON_NEED_ANY);
        baton_before(schedule, initiate, activate);
        /* The number of earlier steps, counted from the first one, whose
           activations are sent on in this step. */
        int followed = step < leaders ? 0 : leaders;
        followed = group == 0 ? step : followed;
        for (int earlier = 0; earlier < followed; earlier++) {
            baton_before(schedule, armed[earlier], activate);
        }
    }
    return begin;
}

baton_node_t baton_add_activation(baton_schedule_t *schedule,
                                  baton_node_t initiate)
{
    if (!baton__check_schedule(schedule, "activation")) {
        return (baton_node_t){UINT32_MAX};
    }
    return baton__add_activation(schedule, initiate, 0);
}
