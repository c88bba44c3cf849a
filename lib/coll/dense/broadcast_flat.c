#include "coll/dense/begin.h"

/* A tree of one level: nothing is passed on.

       root:  send to +1,  send to +2,  ..., send to +(P - 1)
       rank:  recv                                                          */
void baton_add_broadcast_flat(baton_schedule_t *schedule,
                              const baton_broadcast_args_t *args)
{
    if (!baton__broadcast_begin(schedule, "broadcast by flat tree", &args)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, BATON_U8, NULL);
    if (flow.rank != args->root) {
        baton__flow_recv(&flow, args->root, args->data);
    } else {
        for (int k = 1; k < flow.size; k++) {
            baton__flow_send(&flow, baton__rank_shift(args->root, k, flow.size),
                             args->data);
        }
    }
    baton__flow_close(&flow);
}

static double broadcast_flat_cost(const baton__terms_t *t)
{
    return (t->p - 1) * baton__message(t, t->n);
}

static baton__works_t broadcast_flat_work(const baton__terms_t *t)
{
    return (baton__works_t){.most = {t->p - 1, t->n, 0},
                            .all = {t->p - 1, t->others, 0},
                            .direct = true};
}

const baton_algorithm_t baton__broadcast_flat_algorithm = {
    .collective = BATON_COLLECTIVE_BROADCAST,
    .name = "flat",
    .build.broadcast = baton_add_broadcast_flat,
    .one_host = true,
    .cost = broadcast_flat_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){broadcast_flat_work},
};
