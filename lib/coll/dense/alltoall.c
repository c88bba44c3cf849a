#include "coll/dense/alltoall.h"

#include "coll/kit/check.h"

/* In place, blocks keep their places, so what comes is as long as what goes. */
static bool check_in_place(baton_schedule_t *schedule, const char *builder,
                           const baton__alltoall_t *exchange)
{
    for (int i = 0; i <= exchange->source.parts; i++) {
        if (exchange->source.at[i] != exchange->target.at[i]) {
            baton_schedule_fail(schedule, BATON_ERR_INVALID,
                                "%s: in place, send_bytes and recv_bytes of "
                                "rank %d must be the same",
                                builder, i - 1);
            return false;
        }
    }
    return true;
}

bool baton__alltoall_begin(baton_schedule_t *schedule, const char *builder,
                           const baton_alltoall_args_t **given,
                           baton__alltoall_t *out)
{
    const baton_alltoall_args_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_alltoall_args_t");
    if (args == NULL) {
        return false;
    }
    *given = args;
    int size = baton_schedule_size(schedule);
    *out =
        (baton__alltoall_t){.flow = baton__flow_open(schedule, BATON_U8, NULL)};
    out->source = (baton__blocks_t){
        .memory = args->source,
        .at = baton__cut_bytes(&out->flow, builder, "source",
                               args->source.bytes, args->send_bytes),
        .parts = size};
    out->target = (baton__blocks_t){
        .memory = args->target,
        .at = baton__cut_bytes(&out->flow, builder, "target",
                               args->target.bytes, args->recv_bytes),
        .parts = size};
    bool right = out->source.at != NULL && out->target.at != NULL;
    bool in_place = baton__same_place(schedule, args->source, args->target);
    if (right && in_place) {
        right = check_in_place(schedule, builder, out) &&
                baton__check_view(schedule, builder, "target", args->target);
        out->source.memory =
            baton__flow_scratch(&out->flow, args->source.bytes);
        baton__flow_copy(&out->flow, out->source.memory, args->target);
    } else if (right) {
        right = baton__check_places(schedule, builder, args->source,
                                    args->target, false);
    }
    int rank = out->flow.rank;
    if (right) {
        right = baton__check_bytes(schedule, builder,
                                   "this rank's block of the target",
                                   baton__blocks_bytes(&out->target, rank, 1),
                                   baton__blocks_bytes(&out->source, rank, 1));
    }
    if (!right) {
        baton__flow_close(&out->flow);
        return false;
    }
    baton__flow_copy(&out->flow, baton__blocks_view(&out->target, rank, 1),
                     baton__blocks_view(&out->source, rank, 1));
    return true;
}
