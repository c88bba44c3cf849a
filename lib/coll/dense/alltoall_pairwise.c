#include "coll/dense/begin.h"

/* In step k a rank sends to rank + k and receives from rank - k. No message
   waits for another one:

       source --+--> copy own block --> target
                +--> send to +1          recv from -1 --> target
                +--> send to +2          recv from -2 --> target
                :                        :                                  */
void baton_add_alltoall_pairwise(baton_schedule_t *schedule,
                                 const baton_alltoall_args_t *args)
{
    baton__alltoall_t exchange;
    if (!baton__alltoall_begin(schedule, "all-to-all by pairwise exchange",
                               &args, &exchange)) {
        return;
    }
    baton__flow_t *flow = &exchange.flow;
    for (int k = 1; k < flow->size; k++) {
        int to = baton__flow_peer(flow, k);
        int from = baton__flow_peer(flow, -k);
        baton__blocks_send(flow, to, &exchange.source, to, 1);
        baton__blocks_recv(flow, from, &exchange.target, from, 1);
    }
    baton__flow_close(&exchange.flow);
}

const baton_algorithm_t baton__alltoall_pairwise_algorithm = {
    .collective = BATON_COLLECTIVE_ALLTOALL,
    .name = "pairwise",
    .build.alltoall = baton_add_alltoall_pairwise,
    .phases = {&baton__allgather_pairwise_algorithm},
    .exact = baton__exact_flat,
};
