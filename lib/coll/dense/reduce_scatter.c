#include "coll/dense/reduce_scatter.h"

#include "coll/kit/check.h"

static bool check(baton_schedule_t *schedule, const char *builder,
                  const baton_reduce_scatter_args_t **given,
                  baton__reduce_scatter_t *out)
{
    const baton_reduce_scatter_args_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_reduce_scatter_args_t");
    if (args == NULL) {
        return false;
    }
    *given = args;
    out->element = baton__check_op(schedule, builder, args->op, args->dtype);
    return out->element > 0 &&
           baton__check_commutative(schedule, builder, args->op,
                                    "an all-reduce that keeps the order") &&
           baton__check_multiple(schedule, builder, "source",
                                 args->source.bytes, out->element);
}

bool baton__reduce_scatter_begin(baton_schedule_t *schedule,
                                 const char *builder,
                                 const baton_reduce_scatter_args_t **given,
                                 baton__reduce_scatter_t *out)
{
    if (!check(schedule, builder, given, out)) {
        return false;
    }
    const baton_reduce_scatter_args_t *args = *given;
    baton__agree_chunk(schedule, args->chunk_bytes);
    baton__agree_counts(schedule, "counts", args->counts);
    int size = baton_schedule_size(schedule);
    int rank = baton_schedule_rank(schedule);
    out->flow = baton__flow_open(schedule, args->dtype, args->op);
    out->at =
        args->counts != NULL
            ? baton__cut_by_counts(&out->flow, builder, args->counts,
                                   out->element, size)
            : baton__cut_evenly(&out->flow, args->source.bytes / out->element,
                                out->element, size);
    if (out->at == NULL) {
        baton__flow_close(&out->flow);
        return false;
    }
    out->source =
        (baton__blocks_t){.memory = args->source, .at = out->at, .parts = size};
    baton_view_t own = baton__blocks_view(&out->source, rank, 1);
    out->in_place = baton__same_place(schedule, args->target, own);
    out->target = out->in_place ? own : args->target;
    bool right = baton__check_bytes(schedule, builder, "source",
                                    args->source.bytes, out->at[size]) &&
                 baton__check_bytes(schedule, builder, "target",
                                    args->target.bytes, own.bytes) &&
                 baton__check_places(schedule, builder, args->source,
                                     args->target, out->in_place);
    if (!right) {
        baton__flow_close(&out->flow);
        return false;
    }
    if (size == 1 && !out->in_place) {
        baton__flow_copy(&out->flow, out->target, own);
    }
    return true;
}

baton__blocks_t baton__reduce_scatter_sums(baton__reduce_scatter_t *scatter)
{
    baton__blocks_t sums = scatter->source;
    if (!scatter->in_place) {
        sums.memory =
            baton__flow_scratch(&scatter->flow, scatter->source.memory.bytes);
    }
    return sums;
}
