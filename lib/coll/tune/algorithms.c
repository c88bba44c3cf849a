/* The table of dense builders, for choosing among them. */
#include "base/config.h"
#include "base/error.h"
#include "base/text.h"
#include "coll/tune/choose.h"
#include "coll/tune/cost.h"

#include <assert.h>
#include <string.h>

enum { ANY = 0, ORDERED = 1, SEGMENTED = 2, EQUAL = 4, ENDS = 8, NEAR = 16 };

/* Builders behind one type of function. */
#define BEHIND(type, name)                                                     \
    static void build_##name(baton_schedule_t *schedule, const void *args)     \
    {                                                                          \
        baton_##name(schedule, (const type *)args);                            \
    }
BEHIND(baton_broadcast_t, broadcast_linear_pipeline)
BEHIND(baton_broadcast_t, broadcast_scatter_allgather)
BEHIND(baton_broadcast_t, broadcast_double_tree)
BEHIND(baton_broadcast_t, broadcast_flat)
BEHIND(baton_reduce_t, reduce_binomial)
BEHIND(baton_reduce_t, reduce_linear_pipeline)
BEHIND(baton_reduce_t, reduce_scatter_gather)
BEHIND(baton_reduce_t, reduce_pairwise)
BEHIND(baton_allreduce_t, allreduce_recursive_doubling)
BEHIND(baton_allreduce_t, allreduce_binomial)
BEHIND(baton_allreduce_t, allreduce_rabenseifner)
BEHIND(baton_allreduce_t, allreduce_ring)
BEHIND(baton_allreduce_t, allreduce_linear_pipeline)
BEHIND(baton_allreduce_t, allreduce_circulant)
BEHIND(baton_allreduce_t, allreduce_pairwise)
BEHIND(baton_allreduce_t, allreduce_double_tree)
BEHIND(baton_allreduce_t, allreduce_hierarchical)
BEHIND(baton_reduce_scatter_t, reduce_scatter_ring)
BEHIND(baton_reduce_scatter_t, reduce_scatter_recursive_halving)
BEHIND(baton_reduce_scatter_t, reduce_scatter_circulant)
BEHIND(baton_reduce_scatter_t, reduce_scatter_pairwise)
BEHIND(baton_allgather_t, allgather_ring)
BEHIND(baton_allgather_t, allgather_recursive_doubling)
BEHIND(baton_allgather_t, allgather_bruck)
BEHIND(baton_allgather_t, allgather_pairwise)
BEHIND(baton_rooted_t, scatter_binomial)
BEHIND(baton_rooted_t, gather_binomial)
BEHIND(baton_alltoall_t, alltoall_pairwise)
BEHIND(baton_alltoall_t, alltoall_bruck)
BEHIND(baton_scan_t, scan_recursive_doubling)
BEHIND(baton_scan_t, exscan_recursive_doubling)

/* The two that take no struct. */
static void build_barrier_dissemination(baton_schedule_t *schedule,
                                        const void *args)
{
    (void)args;
    baton_barrier_dissemination(schedule);
}

static void build_broadcast_binomial(baton_schedule_t *schedule,
                                     const void *args)
{
    const baton_broadcast_t *broadcast = args;
    baton_broadcast_binomial(schedule, broadcast->root, broadcast->data);
}

typedef struct row {
    baton_algorithm_t algorithm;
    baton__build_fn build;
} row_t;

#define ROW(COLLECTIVE, name_, builder, flags, formula_)                       \
    {                                                                          \
        {.collective = BATON_COLLECTIVE_##COLLECTIVE,                          \
         .name = (name_),                                                      \
         .formula = (formula_),                                                \
         .cost_us = baton__cost_##builder,                                     \
         .host_us = baton__host_cost_##builder,                                \
         .ordered = ((flags)&ORDERED) != 0,                                    \
         .segmented = ((flags)&SEGMENTED) != 0,                                \
         .equal_blocks = ((flags)&EQUAL) != 0,                                 \
         .ordered_at_ends = ((flags)&ENDS) != 0,                               \
         .one_host = ((flags)&NEAR) != 0},                                     \
            build_##builder                                                    \
    }

/* Of those that cost the same the first is taken: rings pass on what is still
   in a cache. */
static const row_t table[] = {
    ROW(BARRIER, "dissemination", barrier_dissemination, ANY, "log(p) alpha"),

    ROW(BROADCAST, "binomial", broadcast_binomial, ANY,
        "log(p) (alpha + n beta)"),
    ROW(BROADCAST, "scatter_allgather", broadcast_scatter_allgather, ANY,
        "(log(p) + p-1) alpha + 2(p-1)/p n beta"),
    ROW(BROADCAST, "linear_pipeline", broadcast_linear_pipeline, SEGMENTED,
        "(p-2 + n/b) (alpha + b beta)"),
    ROW(BROADCAST, "double_tree", broadcast_double_tree, SEGMENTED,
        "(2 log(p) + n/b) (alpha + b beta)"),
    ROW(BROADCAST, "flat", broadcast_flat, NEAR, "(p-1) (alpha + n beta)"),

    ROW(REDUCE, "binomial", reduce_binomial, ORDERED,
        "log(p) (alpha + n (beta + gamma))"),
    ROW(REDUCE, "scatter_gather", reduce_scatter_gather, ANY,
        "2 log(p) alpha + (p-1)/p n (2 beta + gamma)"),
    ROW(REDUCE, "linear_pipeline", reduce_linear_pipeline, SEGMENTED | ENDS,
        "(p-1) (alpha + b (beta + gamma)) + (n/b - 1) (alpha + b beta)"),
    ROW(REDUCE, "pairwise", reduce_pairwise, NEAR,
        "(p-1) (2 alpha + 2n/p beta) + n/p gamma"),

    ROW(ALLREDUCE, "recursive_doubling", allreduce_recursive_doubling, ORDERED,
        "log(p) (alpha + n (beta + gamma)), and a fold"),
    ROW(ALLREDUCE, "binomial", allreduce_binomial, ORDERED,
        "log(p) (2 alpha + n (2 beta + gamma))"),
    ROW(ALLREDUCE, "ring", allreduce_ring, ANY,
        "2(p-1) alpha + (p-1)/p n (2 beta + gamma)"),
    ROW(ALLREDUCE, "rabenseifner", allreduce_rabenseifner, ORDERED,
        "2 log(p) alpha + (p-1)/p n (2 beta + gamma), and a fold"),
    ROW(ALLREDUCE, "circulant", allreduce_circulant, ANY,
        "2 log(p) alpha + (p-1)/p n (2 beta + gamma)"),
    ROW(ALLREDUCE, "pairwise", allreduce_pairwise, NEAR,
        "(p-1) (2 alpha + 2n/p beta) + n/p gamma"),
    ROW(ALLREDUCE, "linear_pipeline", allreduce_linear_pipeline,
        ORDERED | SEGMENTED, "(p-3 + 2n/b) (alpha + b beta) + (p-3) b gamma"),
    ROW(ALLREDUCE, "double_tree", allreduce_double_tree, ORDERED | SEGMENTED,
        "(4 log(p) + 2n/b) (alpha + b beta)"),
    ROW(ALLREDUCE, "hierarchical", allreduce_hierarchical, ANY,
        "circulant among the m ranks of a host, and of n/m among hosts"),

    ROW(REDUCE_SCATTER, "ring", reduce_scatter_ring, ANY,
        "(p-1) alpha + (p-1)/p n (beta + gamma)"),
    ROW(REDUCE_SCATTER, "recursive_halving", reduce_scatter_recursive_halving,
        ANY, "log(p) alpha + (p-1)/p n (beta + gamma), and a fold"),
    ROW(REDUCE_SCATTER, "circulant", reduce_scatter_circulant, ANY,
        "log(p) alpha + (p-1)/p n (beta + gamma)"),
    ROW(REDUCE_SCATTER, "pairwise", reduce_scatter_pairwise, NEAR,
        "(p-1) (alpha + n/p beta) + n/p gamma"),

    ROW(ALLGATHER, "ring", allgather_ring, ANY, "(p-1) alpha + (p-1)/p n beta"),
    ROW(ALLGATHER, "recursive_doubling", allgather_recursive_doubling, ANY,
        "log(p) alpha + (p-1)/p n beta, and a fold"),
    ROW(ALLGATHER, "bruck", allgather_bruck, ANY,
        "log(p) alpha + (p-1)/p n beta"),
    ROW(ALLGATHER, "pairwise", allgather_pairwise, NEAR,
        "(p-1) alpha + (p-1)/p n beta"),

    ROW(SCATTER, "binomial", scatter_binomial, ANY,
        "log(p) alpha + (p-1)/p n beta"),
    ROW(GATHER, "binomial", gather_binomial, ANY,
        "log(p) alpha + (p-1)/p n beta"),

    ROW(ALLTOALL, "pairwise", alltoall_pairwise, ANY,
        "(p-1) alpha + (p-1)/p n beta"),
    ROW(ALLTOALL, "bruck", alltoall_bruck, EQUAL, "log(p) (alpha + n/2 beta)"),

    ROW(SCAN, "recursive_doubling", scan_recursive_doubling, ORDERED,
        "log(p) (alpha + n (beta + gamma))"),
    ROW(EXSCAN, "recursive_doubling", exscan_recursive_doubling, ORDERED,
        "log(p) (alpha + n beta) + (2 log(p) - 2) n gamma"),
};

enum { COUNT = sizeof table / sizeof table[0] };

const char *baton_collective_name(baton_collective_t collective)
{
    static const char *const names[] = {
#define NAME(id, name) name,
        BATON_COLLECTIVE_LIST(NAME)
#undef NAME
    };
    bool known = (unsigned)collective < (unsigned)BATON_COLLECTIVE_COUNT;
    return known ? names[collective] : "?";
}

bool baton_algorithm_get(size_t i, baton_algorithm_t *out)
{
    if (out == NULL) {
        (void)baton__error(BATON_ERR_INVALID, "%s: out is NULL", __func__);
        return false;
    }
    if (i >= COUNT) {
        return false;
    }
    *out = table[i].algorithm;
    return true;
}

static baton_status_t unknown(baton_collective_t collective, const char *name)
{
    char memory[BATON__MESSAGE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    const char *nearest = "";
    size_t least = SIZE_MAX;
    baton__text_add(&text, "no algorithm of %s is called \"%.40s\"; there are:",
                    baton_collective_name(collective), name);
    for (size_t i = 0; i < COUNT; i++) {
        if (table[i].algorithm.collective == collective) {
            baton__text_add(&text, " %s", table[i].algorithm.name);
            size_t distance =
                baton__edit_distance(name, table[i].algorithm.name);
            if (distance < least) {
                least = distance;
                nearest = table[i].algorithm.name;
            }
        }
    }
    return baton__error(BATON_ERR_INVALID, "%s; the nearest is %s", memory,
                        nearest);
}

baton_status_t baton__check_collective(const char *what,
                                       baton_collective_t collective)
{
    return (unsigned)collective < (unsigned)BATON_COLLECTIVE_COUNT
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s: collective is %d; allowed: 0 to %d", what,
                              (int)collective, (int)BATON_COLLECTIVE_COUNT - 1);
}

baton_status_t baton_algorithm_find(baton_collective_t collective,
                                    const char *name, baton_algorithm_t *out)
{
    if (name == NULL || out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: %s is NULL", __func__,
                            name == NULL ? "name" : "out");
    }
    baton_status_t status = baton__check_collective("algorithm", collective);
    if (status != BATON_OK) {
        return status;
    }
    for (size_t i = 0; i < COUNT; i++) {
        if (table[i].algorithm.collective == collective &&
            strcmp(table[i].algorithm.name, name) == 0) {
            *out = table[i].algorithm;
            return BATON_OK;
        }
    }
    return unknown(collective, name);
}

baton__build_fn baton__algorithm_builder(const baton_algorithm_t *algorithm)
{
    size_t i = 0;
    while (table[i].algorithm.collective != algorithm->collective ||
           strcmp(table[i].algorithm.name, algorithm->name) != 0) {
        i++;
        assert(i < COUNT);
    }
    return table[i].build;
}
