#include "coll/dense/begin.h"

#include "coll/kit/check.h"

/* ---- broadcast ---------------------------------------------------------- */

bool baton__broadcast_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_broadcast_args_t **passed)
{
    const baton_broadcast_args_t *args = baton__read_args(
        schedule, builder, *passed, sizeof *args, "baton_broadcast_args_t");
    if (args == NULL) {
        return false;
    }
    *passed = args;
    baton_view_t data = args->data;
    bool right =
        baton__check_root(schedule, builder, args->root) &&
        baton__check_multiple(schedule, builder, "data", data.bytes, 1) &&
        baton__check_view(schedule, builder, "data", data);
    baton__agree_chunk(schedule, args->chunk_bytes);
    return right && data.bytes > 0 && baton_schedule_size(schedule) > 1;
}

/* ---- reduce ------------------------------------------------------------- */

static bool dense_begin_check_reduce(baton_schedule_t *schedule,
                                     const char *builder,
                                     const baton_reduce_args_t **passed,
                                     baton__reduce_t *out)
{
    const baton_reduce_args_t *args = baton__read_args(
        schedule, builder, *passed, sizeof *args, "baton_reduce_args_t");
    if (args == NULL || !baton__check_root(schedule, builder, args->root)) {
        return false;
    }
    *passed = args;
    size_t element = baton__check_op(schedule, builder, args->op, args->dtype);
    if (element == 0 || !baton__check_multiple(schedule, builder, "source",
                                               args->source.bytes, element)) {
        return false;
    }
    baton__agree_chunk(schedule, args->chunk_bytes);
    out->at_root = baton_schedule_rank(schedule) == args->root;
    if (!out->at_root) {
        return baton__check_view(schedule, builder, "source", args->source);
    }
    out->in_place = baton__same_place(schedule, args->source, args->target);
    return baton__check_alike(schedule, builder, args->source, args->target) &&
           baton__check_places(schedule, builder, args->source, args->target,
                               out->in_place);
}

bool baton__reduce_begin(baton_schedule_t *schedule, const char *builder,
                         const baton_reduce_args_t **passed,
                         baton__reduce_t *out)
{
    *out = (baton__reduce_t){.at_root = false};
    if (!dense_begin_check_reduce(schedule, builder, passed, out)) {
        return false;
    }
    const baton_reduce_args_t *args = *passed;
    out->target = args->target;
    out->source = out->in_place ? args->target : args->source;
    if (baton_schedule_size(schedule) == 1 && !out->in_place) {
        baton_add_copy(schedule, args->target, args->source);
    }
    return args->source.bytes > 0 && baton_schedule_size(schedule) > 1;
}

/* ---- reduce-scatter ----------------------------------------------------- */

static bool check_reduce_scatter(baton_schedule_t *schedule,
                                 const char *builder,
                                 const baton_reduce_scatter_args_t **passed,
                                 baton__reduce_scatter_t *out)
{
    const baton_reduce_scatter_args_t *args =
        baton__read_args(schedule, builder, *passed, sizeof *args,
                         "baton_reduce_scatter_args_t");
    if (args == NULL) {
        return false;
    }
    *passed = args;
    size_t element = baton__check_op(schedule, builder, args->op, args->dtype);
    return element > 0 &&
           baton__check_commutative(schedule, builder, args->op,
                                    "an all-reduce that keeps the order") &&
           baton__check_multiple(schedule, builder, "source",
                                 args->source.bytes, element);
}

bool baton__reduce_scatter_begin(baton_schedule_t *schedule,
                                 const char *builder,
                                 const baton_reduce_scatter_args_t **passed,
                                 baton__reduce_scatter_t *out)
{
    if (!check_reduce_scatter(schedule, builder, passed, out)) {
        return false;
    }
    const baton_reduce_scatter_args_t *args = *passed;
    baton__agree_chunk(schedule, args->chunk_bytes);
    baton__agree_counts(schedule, "counts", args->counts);
    int size = baton_schedule_size(schedule);
    int rank = baton_schedule_rank(schedule);
    out->flow = baton__flow_open(schedule, args->dtype, args->op);
    out->at =
        args->counts != NULL
            ? baton__cut_by_counts(&out->flow, builder, args->counts, size)
            : baton__cut_evenly(&out->flow, args->source.bytes, size);
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
    } else if (size == 1 && !out->in_place) {
        baton__flow_copy(&out->flow, out->target, own);
    }
    return right;
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

/* ---- allgather ---------------------------------------------------------- */

bool baton__allgather_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allgather_args_t **passed,
                            baton__allgather_t *out)
{
    const baton_allgather_args_t *args = baton__read_args(
        schedule, builder, *passed, sizeof *args, "baton_allgather_args_t");
    if (args == NULL) {
        return false;
    }
    *passed = args;
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

/* ---- alltoall ----------------------------------------------------------- */

/* In place, a block is received into the memory of the block that was sent, so
   both must have the same size. */
static bool dense_begin_check_in_place(baton_schedule_t *schedule,
                                       const char *builder,
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
                           const baton_alltoall_args_t **passed,
                           baton__alltoall_t *out)
{
    const baton_alltoall_args_t *args = baton__read_args(
        schedule, builder, *passed, sizeof *args, "baton_alltoall_args_t");
    if (args == NULL) {
        return false;
    }
    *passed = args;
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
        right = dense_begin_check_in_place(schedule, builder, out) &&
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
