#include "coll/dense/begin.h"

/* Segments go down the chain root, root + 1, ... (mod P). A rank sends one on
   while it receives the next:

       recv 0 --> send 0
       recv 1 --> send 1
       recv 2 --> send 2
       :

   The root only sends, the last rank only receives. */
void baton_add_broadcast_linear_pipeline(baton_schedule_t *schedule,
                                         const baton_broadcast_args_t *args)
{
    if (!baton__broadcast_begin(schedule, "broadcast by linear pipeline",
                                &args)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, BATON_U8, NULL);
    int next = baton__flow_peer(&flow, 1);
    int previous = baton__flow_peer(&flow, -1);
    size_t count = baton__segment_count(
        &flow, args->data.bytes, args->chunk_bytes, BATON__SEGMENT_BYTES);
    for (size_t i = 0; i < count; i++) {
        baton_view_t segment = baton__segment_of(&flow, args->data, count, i);
        if (flow.rank != args->root) {
            baton__flow_recv(&flow, previous, segment);
        }
        if (next != args->root) {
            baton__flow_send(&flow, next, segment);
        }
    }
    baton__flow_close(&flow);
}

static double broadcast_linear_pipeline_cost(const baton__terms_t *t)
{
    return (t->p - 2 + t->segments) * baton__message(t, t->n / t->segments);
}

static baton__works_t broadcast_linear_pipeline_work(const baton__terms_t *t)
{
    return (baton__works_t){.most = {t->segments, t->n, 0},
                            .all = {(t->p - 1) * t->segments, t->others, 0}};
}

const baton_algorithm_t baton__broadcast_linear_pipeline_algorithm = {
    .collective = BATON_COLLECTIVE_BROADCAST,
    .name = "linear_pipeline",
    .build.broadcast = baton_add_broadcast_linear_pipeline,
    .segmented = true,
    .cost = broadcast_linear_pipeline_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){broadcast_linear_pipeline_work},
};
