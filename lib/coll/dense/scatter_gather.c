#include "coll/dense/algorithms.h"
#include "coll/kit/check.h"
#include "coll/kit/phases.h"

/* Scatter and gather along a binomial tree (binomial.c). The root has all
   blocks in its vector. An inner rank has those of its subtree in scratch, its
   own first. A leaf has its own block in the caller's memory:

       scatter:  recv range --+--> send to children
                              +--> copy own --> target

       gather:   source --> copy own --+--> send range to the parent
                 recv from children ---+                                    */
typedef struct rooted {
    baton__flow_t flow;
    baton__blocks_t blocks;
    baton_view_t own; /* this rank's block */
    bool is_there;    /* `own` is the caller's view of this rank's block */
} rooted_t;

/* The vector of the root, the block of this rank, and their names in error
   messages. */
typedef struct operands {
    const char *builder;
    baton_view_t whole, part;
    const char *whole_name, *part_name;
} operands_t;

/* Returns the offsets of the blocks in the root's vector. Ranks other than the
   root compute them, too. Returns NULL if the schedule has an error. */
static size_t *scatter_gather_cut(baton__flow_t *flow,
                                  const baton_rooted_args_t *args,
                                  const operands_t *operands)
{
    baton_schedule_t *schedule = flow->schedule;
    int size = baton_schedule_size(schedule);
    bool at_root = baton_schedule_rank(schedule) == args->root;
    size_t part = operands->part.bytes;
    baton__agree_counts(schedule, "block_bytes", args->block_bytes);
    if (args->block_bytes == NULL) {
        baton_schedule_agree(schedule, "%s of %zu bytes", operands->part_name,
                             part);
        return !at_root || baton__check_bytes(schedule, operands->builder,
                                              operands->whole_name,
                                              operands->whole.bytes,
                                              (size_t)size * part)
                   ? baton__cut_evenly(flow, (size_t)size * part, size)
                   : NULL;
    }
    return at_root
               ? baton__cut_bytes(flow, operands->builder, operands->whole_name,
                                  operands->whole.bytes, args->block_bytes)
               : baton__cut_by_counts(flow, operands->builder,
                                      args->block_bytes, size);
}

static bool scatter_gather_check(baton_schedule_t *schedule,
                                 const baton_rooted_args_t *args,
                                 const operands_t *operands, bool at_root,
                                 rooted_t *rooted)
{
    int rank = baton_schedule_rank(schedule);
    baton__blocks_t *blocks = &rooted->blocks;
    if (!baton__check_bytes(schedule, operands->builder, operands->part_name,
                            operands->part.bytes,
                            baton__blocks_bytes(blocks, rank, 1))) {
        return false;
    }
    if (!at_root) {
        return baton__check_view(schedule, operands->builder,
                                 operands->part_name, operands->part);
    }
    baton_view_t own = baton__blocks_view(blocks, rank, 1);
    rooted->is_there = baton__same_place(schedule, operands->part, own);
    return baton__check_places(schedule, operands->builder, args->source,
                               args->target, rooted->is_there);
}

/* Checks the arguments, and opens the flow. Returns false if the schedule has
   an error. If it returns true, the caller must close the flow. */
static bool scatter_gather_begin(baton_schedule_t *schedule,
                                 const baton_rooted_args_t *args,
                                 const operands_t *operands, rooted_t *out)
{
    *out = (rooted_t){.flow = baton__flow_open(schedule, BATON_U8, NULL)};
    int size = baton_schedule_size(schedule);
    int rank = baton_schedule_rank(schedule);
    bool at_root = rank == args->root;
    out->blocks =
        (baton__blocks_t){.memory = operands->whole,
                          .at = scatter_gather_cut(&out->flow, args, operands),
                          .parts = size};
    if (out->blocks.at == NULL ||
        !scatter_gather_check(schedule, args, operands, at_root, out)) {
        baton__flow_close(&out->flow);
        return false;
    }
    int span = baton__binomial_span(
        baton__rank_shift(rank, -(int64_t)args->root, size), size);
    if (!at_root) {
        out->blocks.base = rank;
        out->is_there = span == 1;
        out->blocks.memory =
            span == 1 ? operands->part
                      : baton__flow_scratch(
                            &out->flow,
                            baton__blocks_bytes(&out->blocks, rank, span));
    }
    out->own = baton__blocks_view(&out->blocks, rank, 1);
    return true;
}

static void scatter_gather_build(baton_schedule_t *schedule,
                                 const baton_rooted_args_t *args,
                                 const char *name, bool scatters)
{
    rooted_t rooted;
    args = baton__read_args(schedule, name, args, sizeof *args,
                            "baton_rooted_args_t");
    if (args == NULL || !baton__check_root(schedule, name, args->root)) {
        return;
    }
    const operands_t operands = {
        .builder = name,
        .whole = scatters ? args->source : args->target,
        .part = scatters ? args->target : args->source,
        .whole_name = scatters ? "source" : "target",
        .part_name = scatters ? "target" : "source",
    };
    if (!scatter_gather_begin(schedule, args, &operands, &rooted)) {
        return;
    }
    if (scatters) {
        baton__binomial_scatter(&rooted.flow, args->root, &rooted.blocks);
    }
    if (!rooted.is_there) {
        baton__flow_copy(&rooted.flow, scatters ? args->target : rooted.own,
                         scatters ? rooted.own : args->source);
    }
    if (!scatters) {
        baton__binomial_gather(&rooted.flow, args->root, &rooted.blocks);
    }
    baton__flow_close(&rooted.flow);
}

void baton_add_scatter(baton_schedule_t *schedule,
                       const baton_rooted_args_t *args)
{
    scatter_gather_build(schedule, args, "scatter by binomial tree", true);
}

void baton_add_gather(baton_schedule_t *schedule,
                      const baton_rooted_args_t *args)
{
    scatter_gather_build(schedule, args, "gather by binomial tree", false);
}

/* The receiver of a message does its work. So `most` is the work of the rank
   whose message, from the root, has half of the vector. */
static baton__works_t scatter_work(const baton__terms_t *t)
{
    return (baton__works_t){.most = {1, t->n / 2, 0},
                            .all = {t->p - 1, baton__scattered(t), 0}};
}

static baton__works_t gather_work(const baton__terms_t *t)
{
    return (baton__works_t){.most = {t->log, t->part, 0},
                            .all = {t->p - 1, baton__scattered(t), 0}};
}

const baton_algorithm_t baton__scatter_binomial_algorithm = {
    .collective = BATON_COLLECTIVE_SCATTER,
    .name = "binomial",
    .build.rooted = baton_add_scatter,
    .phases = {&baton__allgather_bruck_algorithm},
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){scatter_work},
};

const baton_algorithm_t baton__gather_binomial_algorithm = {
    .collective = BATON_COLLECTIVE_GATHER,
    .name = "binomial",
    .build.rooted = baton_add_gather,
    .phases = {&baton__allgather_bruck_algorithm},
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){gather_work},
};
