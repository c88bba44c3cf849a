#include "base/alloc.h"
#include "coll/kit/check.h"
#include "coll/kit/phases.h"

#include <baton/coll.h>

/* Four ways to reduce block r of all ranks' sources to rank r. The ring keeps
   its partial sums in slots, and the pairwise exchange in the target. The
   others make them in a vector of scratch, or in the source when in place; the
   last sum goes to the target:

       source --> [recursive halving, or circulant graph] --> target
                        sums (scratch)                                      */
typedef struct scatter {
    baton__flow_t flow;
    size_t element;
    size_t *at;
    baton_view_t target;
    baton__blocks_t source;
    bool in_place;
} scatter_t;

static bool check(baton_schedule_t *schedule, const char *builder,
                  const baton_reduce_scatter_t **given, scatter_t *out)
{
    const baton_reduce_scatter_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_reduce_scatter_t");
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

/* False: nothing to do, or an error. True: call end. */
static bool begin(baton_schedule_t *schedule, const char *builder,
                  const baton_reduce_scatter_t **given, scatter_t *out)
{
    if (!check(schedule, builder, given, out)) {
        return false;
    }
    const baton_reduce_scatter_t *args = *given;
    int size = baton_schedule_size(schedule);
    int rank = baton_schedule_rank(schedule);
    out->at =
        args->counts != NULL
            ? baton__cut_by_counts(schedule, builder, args->counts,
                                   out->element, size)
            : baton__cut_evenly(schedule, args->source.bytes / out->element,
                                out->element, size);
    if (out->at == NULL) {
        return false;
    }
    out->source =
        (baton__blocks_t){.memory = args->source, .at = out->at, .parts = size};
    baton_view_t own = baton__blocks_view(&out->source, rank, 1);
    out->in_place = baton__same_place(schedule, args->target, own);
    out->target = out->in_place ? own : args->target;
    bool right =
        baton__check_bytes(schedule, builder, "source", args->source.bytes,
                           out->at[size]) &&
        baton__check_bytes(schedule, builder, "target", args->target.bytes,
                           own.bytes) &&
        (out->in_place ||
         baton__check_apart(schedule, builder, args->source, args->target));
    if (!right) {
        baton__free(out->at);
        return false;
    }
    out->flow = baton__flow_open(schedule, args->dtype, args->op);
    if (size == 1 && !out->in_place) {
        baton__flow_copy(&out->flow, out->target, own);
    }
    return true;
}

static void end(scatter_t *scatter)
{
    baton__flow_close(&scatter->flow);
    baton__free(scatter->at);
}

void baton_reduce_scatter_ring(baton_schedule_t *schedule,
                               const baton_reduce_scatter_t *args)
{
    scatter_t scatter;
    if (begin(schedule, "reduce-scatter by ring", &args, &scatter)) {
        if (scatter.flow.size > 1) {
            baton__ring_reduce_scatter(&scatter.flow, scatter.target,
                                       &scatter.source, scatter.element,
                                       args->chunk_bytes);
        }
        end(&scatter);
    }
}

void baton_reduce_scatter_pairwise(baton_schedule_t *schedule,
                                   const baton_reduce_scatter_t *args)
{
    scatter_t scatter;
    if (begin(schedule, "reduce-scatter by pairwise exchange", &args,
              &scatter)) {
        baton__pairwise_reduce_scatter(&scatter.flow, scatter.target,
                                       &scatter.source, scatter.element,
                                       args->chunk_bytes);
        end(&scatter);
    }
}

/* Where partial sums are made. */
static baton__blocks_t sums_of(scatter_t *scatter)
{
    baton__blocks_t sums = scatter->source;
    if (!scatter->in_place) {
        sums.memory =
            baton__flow_scratch(&scatter->flow, scatter->source.memory.bytes);
    }
    return sums;
}

void baton_reduce_scatter_circulant(baton_schedule_t *schedule,
                                    const baton_reduce_scatter_t *args)
{
    scatter_t scatter;
    if (!begin(schedule, "reduce-scatter by circulant graph", &args,
               &scatter)) {
        return;
    }
    if (scatter.flow.size > 1) {
        int rank = scatter.flow.rank;
        baton__blocks_t sums = sums_of(&scatter);
        sums.base = scatter.in_place ? 0 : rank;
        baton__circulant_reduce_scatter(
            &scatter.flow, &sums, scatter.in_place ? &sums : &scatter.source,
            scatter.in_place ? (baton_view_t){0} : scatter.target);
    }
    end(&scatter);
}

static void add_halving(scatter_t *scatter, const baton__fold_t *fold)
{
    baton__flow_t *flow = &scatter->flow;
    baton__blocks_t *source = &scatter->source;
    baton__blocks_t sums = sums_of(scatter);
    baton_view_t own = baton__blocks_view(&sums, flow->rank, 1);
    baton_view_t folded = {0};
    if (fold->partner >= 0) {
        folded = baton__blocks_view(&sums, fold->partner, 1);
        baton_view_t came = baton__flow_scratch(flow, source->memory.bytes);
        baton__flow_recv(flow, fold->partner, came);
        baton__flow_reduce(flow, sums.memory, source->memory, came);
        *source = sums;
    }
    baton__fold_unite(fold, flow->size, scatter->at);
    sums.parts = source->parts = fold->core;
    bool direct = !scatter->in_place && fold->partner < 0;
    baton__halving_reduce_scatter(flow, fold, &sums, source,
                                  BATON__NEAREST_LAST,
                                  direct ? scatter->target : (baton_view_t){0});
    if (!scatter->in_place && !direct) {
        baton__flow_copy(flow, scatter->target, own);
    }
    if (fold->partner >= 0) {
        baton__flow_send(flow, fold->partner, folded);
    }
}

void baton_reduce_scatter_recursive_halving(baton_schedule_t *schedule,
                                            const baton_reduce_scatter_t *args)
{
    scatter_t scatter;
    if (!begin(schedule, "reduce-scatter by recursive halving", &args,
               &scatter)) {
        return;
    }
    baton__fold_t fold = baton__fold_of(scatter.flow.rank, scatter.flow.size);
    if (fold.id < 0) {
        baton__flow_send(&scatter.flow, fold.partner, scatter.source.memory);
        baton__flow_recv(&scatter.flow, fold.partner, scatter.target);
    } else if (scatter.flow.size > 1) {
        add_halving(&scatter, &fold);
    }
    end(&scatter);
}
