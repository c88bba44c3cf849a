/* The table of dense builders, for choosing among them. */
#include "base/config.h"
#include "base/error.h"
#include "coll/cost.h"

#include <string.h>

enum { ANY = 0, ORDERED = 1, SEGMENTED = 2, EQUAL = 4 };

#define ROW(COLLECTIVE, prefix, name_, flags, formula_)                        \
    {                                                                          \
        .collective = BATON_COLLECTIVE_##COLLECTIVE, .name = #name_,           \
        .formula = (formula_), .cost_us = baton__cost_##prefix##_##name_,      \
        .ordered = ((flags)&ORDERED) != 0,                                     \
        .segmented = ((flags)&SEGMENTED) != 0,                                 \
        .equal_blocks = ((flags)&EQUAL) != 0                                   \
    }

/* Of those that cost the same the first is taken. */
static const baton_algorithm_t table[] = {
    ROW(BARRIER, barrier, dissemination, ANY, "log(p) alpha"),

    ROW(BROADCAST, broadcast, binomial, ANY, "log(p) (alpha + n beta)"),
    ROW(BROADCAST, broadcast, scatter_allgather, ANY,
        "(log(p) + p-1) alpha + 2(p-1)/p n beta"),
    ROW(BROADCAST, broadcast, linear_pipeline, SEGMENTED,
        "(p-2 + n/b) (alpha + b beta)"),
    ROW(BROADCAST, broadcast, double_tree, SEGMENTED,
        "(2 log(p) + n/b) (alpha + b beta)"),

    ROW(REDUCE, reduce, binomial, ORDERED, "log(p) (alpha + n (beta + gamma))"),
    {.collective = BATON_COLLECTIVE_REDUCE,
     .name = "scatter_gather",
     .formula = "2 log(p) alpha + (p-1)/p n (2 beta + gamma)",
     .cost_us = baton__cost_reduce_scatter_gather},
    ROW(REDUCE, reduce, linear_pipeline, SEGMENTED,
        "(p-1) (alpha + b (beta + gamma)) + (n/b - 1) (alpha + b beta)"),

    ROW(ALLREDUCE, allreduce, recursive_doubling, ORDERED,
        "log(p) (alpha + n (beta + gamma)), and a fold"),
    ROW(ALLREDUCE, allreduce, binomial, ORDERED,
        "log(p) (2 alpha + n (2 beta + gamma))"),
    ROW(ALLREDUCE, allreduce, rabenseifner, ORDERED,
        "2 log(p) alpha + (p-1)/p n (2 beta + gamma), and a fold"),
    ROW(ALLREDUCE, allreduce, circulant, ANY,
        "2 log(p) alpha + (p-1)/p n (2 beta + gamma)"),
    ROW(ALLREDUCE, allreduce, ring, ANY,
        "2(p-1) alpha + (p-1)/p n (2 beta + gamma)"),
    ROW(ALLREDUCE, allreduce, linear_pipeline, ORDERED | SEGMENTED,
        "(p-3 + 2n/b) (alpha + b beta) + (p-3) b gamma"),
    ROW(ALLREDUCE, allreduce, double_tree, ORDERED | SEGMENTED,
        "(4 log(p) + 2n/b) (alpha + b beta)"),

    ROW(REDUCE_SCATTER, reduce_scatter, recursive_halving, ANY,
        "log(p) alpha + (p-1)/p n (beta + gamma), and a fold"),
    ROW(REDUCE_SCATTER, reduce_scatter, circulant, ANY,
        "log(p) alpha + (p-1)/p n (beta + gamma)"),
    ROW(REDUCE_SCATTER, reduce_scatter, ring, ANY,
        "(p-1) alpha + (p-1)/p n (beta + gamma)"),

    ROW(ALLGATHER, allgather, recursive_doubling, ANY,
        "log(p) alpha + (p-1)/p n beta, and a fold"),
    ROW(ALLGATHER, allgather, bruck, ANY, "log(p) alpha + (p-1)/p n beta"),
    ROW(ALLGATHER, allgather, ring, ANY, "(p-1) alpha + (p-1)/p n beta"),

    ROW(SCATTER, scatter, binomial, ANY, "log(p) alpha + (p-1)/p n beta"),
    ROW(GATHER, gather, binomial, ANY, "log(p) alpha + (p-1)/p n beta"),

    ROW(ALLTOALL, alltoall, pairwise, ANY, "(p-1) alpha + (p-1)/p n beta"),
    ROW(ALLTOALL, alltoall, bruck, EQUAL, "log(p) (alpha + n/2 beta)"),

    ROW(SCAN, scan, recursive_doubling, ORDERED,
        "log(p) (alpha + n (beta + gamma))"),
    ROW(EXSCAN, exscan, recursive_doubling, ORDERED,
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
    if (i >= COUNT) {
        return false;
    }
    *out = table[i];
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
        if (table[i].collective == collective) {
            baton__text_add(&text, " %s", table[i].name);
            size_t distance = baton__edit_distance(name, table[i].name);
            if (distance < least) {
                least = distance;
                nearest = table[i].name;
            }
        }
    }
    return baton__error(BATON_ERR_INVALID, "%s; the nearest is %s", memory,
                        nearest);
}

baton_status_t baton_algorithm_find(baton_collective_t collective,
                                    const char *name, baton_algorithm_t *out)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (table[i].collective == collective &&
            strcmp(table[i].name, name) == 0) {
            *out = table[i];
            return BATON_OK;
        }
    }
    return unknown(collective, name);
}
