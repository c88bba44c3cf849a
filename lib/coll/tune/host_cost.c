/* What a builder takes when all ranks are on one host. There processors do what
   a network does elsewhere: the receiver's makes the copy, and while it does,
   or reduces, it does nothing else. So an epoch takes no less than its formula
   (cost.c), and no less than all this work of the rank that has most of it.
   Where ranks share processors, the work of all ranks is divided among these,
   and they have to wait for what comes one after the other: by Graham (1966),
   "Bounds for certain multiprocessing anomalies", it takes at most

       work / processors + (1 - 1 / processors) longest path

   which is the estimate. The work then includes what sums cost that are passed
   on. Folds of ranks beyond a power of two count in `all` only. */
#include "coll/tune/cost.h"

#include "coll/kit/pattern.h"
#include "coll/kit/phases.h"

#include <math.h>

typedef struct work {
    double messages;
    double bytes;   /* copied out of messages, or between buffers */
    double reduced; /* bytes */
} work_t;

typedef struct works {
    work_t most; /* that one rank has */
    work_t all;
    bool direct; /* nothing is passed on: the longest path is `most` */
    /* Bytes of sums that were reduced on one rank, and again on another:
       written by one processor and read by another, they cost as much as a
       copy. */
    double passed;
} works_t;

static double time_of(const baton_cost_case_t *of, work_t work)
{
    return work.messages * of->alpha_us + work.bytes * of->beta_us +
           work.reduced * of->gamma_us;
}

static double host_cost(const baton_cost_case_t *of, double formula_us,
                        works_t works)
{
    if (of->bytes <= 0 || of->ranks <= 1) {
        return formula_us;
    }
    double path_us = time_of(of, works.most);
    if (!works.direct) {
        path_us = fmax(formula_us, path_us);
    }
    if (of->processors <= 0 || of->processors >= of->ranks) {
        return path_us;
    }
    double all_us = time_of(of, works.all) + works.passed * of->beta_us;
    return all_us / of->processors + (1 - 1.0 / of->processors) * path_us;
}

static works_t works(work_t most, work_t all)
{
    works_t both = {most, all, false, 0};
    return both;
}

static works_t directly(works_t works)
{
    works.direct = true;
    return works;
}

static works_t passing(works_t works, double bytes)
{
    works.passed = bytes;
    return works;
}

/* Where all ranks have the same work. */
static works_t evenly(const baton_cost_case_t *of, work_t all)
{
    double p = of->ranks;
    return works((work_t){all.messages / p, all.bytes / p, all.reduced / p},
                 all);
}

static double rounds(const baton_cost_case_t *of)
{
    return baton__log2_ceil(of->ranks);
}

/* The largest power of two, and the ranks beyond it. */
static int core(const baton_cost_case_t *of)
{
    return 1 << baton__log2_ceil(of->ranks / 2 + 1);
}

static double extra(const baton_cost_case_t *of)
{
    return of->ranks - core(of);
}

static double core_rounds(const baton_cost_case_t *of)
{
    return baton__log2_ceil(core(of));
}

static double segments(const baton_cost_case_t *of)
{
    return of->segment_bytes > 0 ? fmax(1, ceil(of->bytes / of->segment_bytes))
                                 : 1;
}

/* What goes down a binomial tree of blocks, or up: each rank's subtree, of as
   many ranks as the lowest bit of its number says, or those that are left. */
static double scattered(const baton_cost_case_t *of)
{
    double blocks = 0;
    for (int64_t bit = 1; bit < of->ranks; bit *= 2) {
        int64_t count = (of->ranks + bit - 1) / (2 * bit);
        int64_t last = of->ranks - (2 * count - 1) * bit;
        blocks += (double)((count - 1) * bit + (last < bit ? last : bit));
    }
    return blocks * of->bytes / of->ranks;
}

/* A block to or from each rank beyond the largest power of two. */
static double folded(const baton_cost_case_t *of)
{
    return extra(of) * of->bytes / of->ranks;
}

/* The whole vector, once for each rank but one. */
static double others(const baton_cost_case_t *of)
{
    return (of->ranks - 1) * of->bytes;
}

/* What is passed on of sums where each block goes through all ranks, by a ring,
   a tree of its own or a chain; and where they go up one binomial tree. */
static double passed_on(const baton_cost_case_t *of)
{
    return (of->ranks - 2) * of->bytes;
}

static double passed_up(const baton_cost_case_t *of)
{
    int inner = of->ranks / 2 - 1;
    return inner * of->bytes;
}

/* The messages of a reduce-scatter by pairwise exchange. */
static double pairs(const baton_cost_case_t *of)
{
    double p = of->ranks;
    double block = of->bytes / p;
    return p * (p - 1) * fmax(1, ceil(block / BATON__PAIRWISE_BYTES));
}

/* ---- barrier, broadcast, reduce ---------------------------------------- */

static works_t work_of_barrier_dissemination(const baton_cost_case_t *of)
{
    return evenly(of, (work_t){of->ranks * rounds(of), 0, 0});
}

static works_t work_of_broadcast_binomial(const baton_cost_case_t *of)
{
    return works((work_t){1, of->bytes, 0},
                 (work_t){of->ranks - 1, others(of), 0});
}

static works_t work_of_broadcast_linear_pipeline(const baton_cost_case_t *of)
{
    double count = segments(of);
    return works((work_t){count, of->bytes, 0},
                 (work_t){(of->ranks - 1) * count, others(of), 0});
}

static works_t work_of_broadcast_flat(const baton_cost_case_t *of)
{
    double p = of->ranks;
    return directly(
        works((work_t){p - 1, of->bytes, 0}, (work_t){p - 1, others(of), 0}));
}

static works_t work_of_broadcast_scatter_allgather(const baton_cost_case_t *of)
{
    double p = of->ranks;
    return works(
        (work_t){p, of->bytes, 0},
        (work_t){(p - 1) + p * (p - 1), others(of) + scattered(of), 0});
}

static works_t work_of_broadcast_double_tree(const baton_cost_case_t *of)
{
    return work_of_broadcast_linear_pipeline(of);
}

static works_t work_of_reduce_binomial(const baton_cost_case_t *of)
{
    double n = of->bytes;
    return passing(works((work_t){rounds(of), rounds(of) * n, rounds(of) * n},
                         (work_t){of->ranks - 1, others(of), others(of)}),
                   passed_up(of));
}

static works_t work_of_reduce_linear_pipeline(const baton_cost_case_t *of)
{
    double count = segments(of);
    return passing(
        works((work_t){count, of->bytes, of->bytes},
              (work_t){(of->ranks - 1) * count, others(of), others(of)}),
        passed_on(of));
}

static works_t work_of_reduce_pairwise(const baton_cost_case_t *of)
{
    double p = of->ranks;
    double part = others(of) / p;
    return directly(
        works((work_t){pairs(of) / p + p - 1, 2 * part, part},
              (work_t){pairs(of) + p - 1, others(of) + part, others(of)}));
}

static works_t work_of_reduce_scatter_gather(const baton_cost_case_t *of)
{
    double p = of->ranks;
    double part = others(of) / p;
    return passing(works((work_t){2 * rounds(of), 2 * part, part},
                         (work_t){p * rounds(of) + p - 1,
                                  others(of) + scattered(of), others(of)}),
                   passed_on(of));
}

/* ---- all-reduce -------------------------------------------------------- */

static works_t work_of_allreduce_recursive_doubling(const baton_cost_case_t *of)
{
    double sums = core(of) * core_rounds(of) + extra(of);
    double messages = sums + extra(of);
    return passing(
        works((work_t){core_rounds(of), core_rounds(of) * of->bytes,
                       core_rounds(of) * of->bytes},
              (work_t){messages, messages * of->bytes, sums * of->bytes}),
        (sums - core(of)) * of->bytes);
}

static works_t work_of_allreduce_binomial(const baton_cost_case_t *of)
{
    double n = of->bytes;
    return passing(
        works((work_t){rounds(of), rounds(of) * n, rounds(of) * n},
              (work_t){2 * (of->ranks - 1.0), 2 * others(of), others(of)}),
        passed_up(of));
}

static works_t work_of_allreduce_rabenseifner(const baton_cost_case_t *of)
{
    return passing(
        evenly(of, (work_t){2 * (core(of) * core_rounds(of) + extra(of)),
                            2 * others(of), others(of)}),
        passed_on(of));
}

static works_t work_of_allreduce_circulant(const baton_cost_case_t *of)
{
    return passing(evenly(of, (work_t){2 * of->ranks * rounds(of),
                                       2 * others(of), others(of)}),
                   passed_on(of));
}

static works_t work_of_allreduce_ring(const baton_cost_case_t *of)
{
    double p = of->ranks;
    return passing(
        evenly(of, (work_t){2 * p * (p - 1), 2 * others(of), others(of)}),
        passed_on(of));
}

static works_t work_of_allreduce_pairwise(const baton_cost_case_t *of)
{
    double p = of->ranks;
    return directly(evenly(
        of, (work_t){pairs(of) + p * (p - 1), 2 * others(of), others(of)}));
}

/* Between two ranks a vector goes each way; an inner rank gets both. */
static works_t work_of_allreduce_linear_pipeline(const baton_cost_case_t *of)
{
    double count = segments(of);
    double ways = of->ranks > 2 ? 2 : 1;
    return passing(works((work_t){ways * count, ways * of->bytes, of->bytes},
                         (work_t){2 * (of->ranks - 1) * count, 2 * others(of),
                                  others(of)}),
                   passed_on(of));
}

static works_t work_of_allreduce_double_tree(const baton_cost_case_t *of)
{
    return work_of_allreduce_linear_pipeline(of);
}

/* ---- reduce-scatter, all-gather ---------------------------------------- */

static works_t work_of_reduce_scatter_ring(const baton_cost_case_t *of)
{
    double p = of->ranks;
    return passing(evenly(of, (work_t){p * (p - 1), others(of), others(of)}),
                   passed_on(of));
}

static works_t work_of_reduce_scatter_pairwise(const baton_cost_case_t *of)
{
    return directly(evenly(of, (work_t){pairs(of), others(of), others(of)}));
}

static works_t
work_of_reduce_scatter_recursive_halving(const baton_cost_case_t *of)
{
    return passing(
        evenly(of, (work_t){core(of) * core_rounds(of) + 2 * extra(of),
                            others(of) + folded(of), others(of)}),
        passed_on(of));
}

/* On one host it is that of the circulant graph. */
static works_t work_of_allreduce_hierarchical(const baton_cost_case_t *of)
{
    return work_of_allreduce_circulant(of);
}

static works_t work_of_reduce_scatter_circulant(const baton_cost_case_t *of)
{
    return passing(
        evenly(of, (work_t){of->ranks * rounds(of), others(of), others(of)}),
        passed_on(of));
}

static works_t work_of_allgather_ring(const baton_cost_case_t *of)
{
    double p = of->ranks;
    return evenly(of, (work_t){p * (p - 1), others(of), 0});
}

static works_t work_of_allgather_pairwise(const baton_cost_case_t *of)
{
    return directly(work_of_allgather_ring(of));
}

static works_t work_of_allgather_recursive_doubling(const baton_cost_case_t *of)
{
    return evenly(of, (work_t){core(of) * core_rounds(of) + 2 * extra(of),
                               others(of) + folded(of), 0});
}

static works_t work_of_allgather_bruck(const baton_cost_case_t *of)
{
    return evenly(of, (work_t){of->ranks * rounds(of), others(of), 0});
}

/* ---- scatter, gather, all-to-all --------------------------------------- */

/* Each level of the tree moves half of the vector. */
static works_t work_of_scatter_binomial(const baton_cost_case_t *of)
{
    return works((work_t){1, of->bytes / 2, 0},
                 (work_t){of->ranks - 1, scattered(of), 0});
}

static works_t work_of_gather_binomial(const baton_cost_case_t *of)
{
    return works((work_t){rounds(of), others(of) / of->ranks, 0},
                 (work_t){of->ranks - 1, scattered(of), 0});
}

static works_t work_of_alltoall_pairwise(const baton_cost_case_t *of)
{
    return work_of_allgather_ring(of);
}

/* Half of the blocks go in each round, and are copied together for that. */
static works_t work_of_alltoall_bruck(const baton_cost_case_t *of)
{
    double moved = of->ranks * rounds(of) * of->bytes / 2;
    return evenly(of, (work_t){of->ranks * rounds(of), 3 * moved, 0});
}

/* ---- prefix reductions ------------------------------------------------- */

static works_t work_of_scan_recursive_doubling(const baton_cost_case_t *of)
{
    double each = rounds(of) * of->bytes;
    return works(
        (work_t){rounds(of), each, each},
        (work_t){rounds(of) * of->ranks, of->ranks * each, of->ranks * each});
}

static works_t work_of_exscan_recursive_doubling(const baton_cost_case_t *of)
{
    return work_of_scan_recursive_doubling(of);
}

#define HOST_COST(name)                                                        \
    double baton__host_cost_##name(const baton_cost_case_t *of)                \
    {                                                                          \
        return host_cost(of, baton__cost_##name(of), work_of_##name(of));      \
    }
BATON__COST_LIST(HOST_COST)
