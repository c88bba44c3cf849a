#include "activation.h"

#include "check.h"
#include "pattern.h"

/* The union of P binomial trees by offset. A message that came in step t has
   come from 2^t before this rank and goes on in the later steps only; one that
   this rank initiates goes out in all of them.

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

   Every activate needs ANY of its edges and fires once: a rank that several
   initiators reach, or that initiates when it was reached already, sends what
   is missing and nothing twice. That a tree stops when it has gone round is the
   engine's part: an activate counts an arrival only if its peer lies farther
   from the message's origin than this rank (o + 2^s < P). */
baton_node_t baton__add_activation(baton_schedule_t *schedule,
                                   baton_node_t initiate, baton__wave_t *out)
{
    int rank = baton_schedule_rank(schedule);
    int size = baton_schedule_size(schedule);
    out->steps = baton__log2_ceil(size);

    baton_node_t begin = baton_add_nop(schedule);
    baton_set_need(schedule, begin, BATON_NEED_ANY);
    baton_before(schedule, initiate, begin);

    for (int step = 0; step < out->steps; step++) {
        int64_t distance = (int64_t)1 << step;
        int before = baton__rank_shift(rank, -distance, size);
        int after = baton__rank_shift(rank, distance, size);
        out->armed[step] = baton_add_armed_recv(schedule, before);
        baton_before(schedule, out->armed[step], begin);

        baton_node_t activate = baton_add_activate(schedule, after);
        out->activate[step] = activate;
        baton_set_need(schedule, activate, BATON_NEED_ANY);
        baton_before(schedule, initiate, activate);
        for (int earlier = 0; earlier < step; earlier++) {
            baton_before(schedule, out->armed[earlier], activate);
        }
    }
    return begin;
}

baton_node_t baton_add_activation(baton_schedule_t *schedule,
                                  baton_node_t initiate)
{
    baton__wave_t nodes;
    if (!baton__check_schedule(schedule, "activation")) {
        return (baton_node_t){UINT32_MAX};
    }
    return baton__add_activation(schedule, initiate, &nodes);
}
