#include "coll/dense/algorithms.h"
#include "coll/kit/check.h"
#include "coll/kit/pattern.h"

/* Dissemination. After round t a rank knows that the 2^(t+1) - 1 ranks before
   it have begun, so round t's message waits for all the rounds before. A send
   gets an edge from the receives of all these rounds, not from the last one
   alone: round 1's message may come before round 0's.

       5 ranks:   send +1      send +2      send +4
                              ^            ^   ^
                             /            /   /
                  recv -1 --+------------+   /
                  recv -2 ------------------+
                  recv -4

   Receives wait for nothing, so they are posted when the epoch begins. */
void baton_add_barrier(baton_schedule_t *schedule)
{
    if (!baton__check_schedule(schedule, "barrier by dissemination")) {
        return;
    }
    baton_schedule_agree(schedule, "barrier");
    int rank = baton_schedule_rank(schedule);
    int size = baton_schedule_size(schedule);
    int rounds = baton__log2_ceil(size);
    if (rounds == 0) {
        return;
    }

    /* The messages are empty: they need a buffer, but the buffer needs no
       memory. */
    baton_buffer_t nothing = baton_buffer_scratch(schedule, 0);
    baton_view_t empty = baton_view(nothing, 0, 0);
    baton_node_t recvs[32];
    for (int round = 0; round < rounds; round++) {
        int64_t distance = (int64_t)1 << round;
        int before = baton__rank_shift(rank, -distance, size);
        int after = baton__rank_shift(rank, distance, size);
        recvs[round] = baton_add_recv(schedule, before, empty);
        baton_node_t send = baton_add_send(schedule, after, empty);
        for (int earlier = 0; earlier < round; earlier++) {
            baton_before(schedule, recvs[earlier], send);
        }
    }
}

static double barrier_cost(const baton__terms_t *t)
{
    return t->log * t->alpha;
}

static baton__works_t barrier_work(const baton__terms_t *t)
{
    return baton__evenly(t, (baton__work_t){t->p * t->log, 0, 0}, 0);
}

const baton_algorithm_t baton__barrier_dissemination_algorithm = {
    .collective = BATON_COLLECTIVE_BARRIER,
    .name = "dissemination",
    .build.barrier = baton_add_barrier,
    .cost = barrier_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){barrier_work},
};
