#include "coll/dense/allgather.h"

#include "coll/kit/check.h"

bool baton__allgather_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allgather_args_t **given,
                            baton__allgather_t *out)
{
    const baton_allgather_args_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_allgather_args_t");
    if (args == NULL) {
        return false;
    }
    *given = args;
    baton__agree_chunk(schedule, args->chunk_bytes);
    baton__agree_counts(schedule, "block_bytes", args->block_bytes);
    int rank = baton_schedule_rank(schedule);
    out->flow = baton__flow_open(schedule, BATON_U8, NULL);
    out->at = baton__cut_bytes(&out->flow, builder, "target",
                               args->target.bytes, args->block_bytes);
    if (out->at == NULL) {
        baton__flow_close(&out->flow);
        return false;
    }
    out->blocks = (baton__blocks_t){.memory = args->target,
                                    .at = out->at,
                                    .parts = baton_schedule_size(schedule)};
    baton_view_t own = baton__blocks_view(&out->blocks, rank, 1);
    bool in_place = baton__same_place(schedule, args->source, own);
    if (!baton__check_bytes(schedule, builder, "source", args->source.bytes,
                            own.bytes) ||
        !baton__check_places(schedule, builder, args->source, args->target,
                             in_place)) {
        baton__flow_close(&out->flow);
        return false;
    }
    if (!in_place) {
        baton__flow_copy(&out->flow, own, args->source);
        out->blocks.original = args->source;
        out->blocks.original_block = rank;
    }
    return true;
}
