#include "coll/dense/allreduce.h"
#include "coll/partial/given.h"
#include "coll/tune/algorithms.h"

/* Reduce to rank 0 along a binomial tree, then broadcast along the same one. In
   step t the ranks that are multiples of 2^t pair off: the upper one sends its
   partial sum, of the 2^t ranks from itself on, to the lower one and is done.

       rank 0 of 8:

       recv 1 --+      recv 2 --+      recv 4 --+
                v               v               v
       source -> sum 0 -------> sum 1 -------> sum 2 --> broadcast
                                                in target

       rank 2 of 8:

       recv 3 --+
                v
       source -> sum 0 in target --> send to 0 --> broadcast: recv from 0

   2(P - 1) messages in all, where recursive doubling has P log2 P: with more
   ranks than processors that is what counts, since each message costs a turn on
   a processor.

   A partial sum is of consecutive ranks, the lower half the left operand, and
   is made once: all ranks get the same bits. */

/* Up to here a slot for each child: all receives are posted when the epoch
   begins. Longer vectors take turns in two. */
#define SHORT_BYTES ((size_t)64 * 1024)
#define LONG_SLOTS  2
#define MAX_STEPS   32

/* How many ranks send this one their partial sums: rank + 1, + 2, + 4, ...
   below its own lowest bit. */
static int count_children(int rank, int size)
{
    int count = 0;
    for (int64_t gap = 1; (rank & gap) == 0 && rank + gap < size; gap *= 2) {
        count++;
    }
    return count;
}

void baton_allreduce_binomial(baton_schedule_t *schedule,
                              const baton_allreduce_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by binomial tree",
                                &args)) {
        return;
    }
    if (baton__given_applies(args)) {
        baton__allreduce_binomial_given(schedule, args);
        return;
    }
    int rank = baton_schedule_rank(schedule);
    int size = baton_schedule_size(schedule);
    size_t bytes = args->target.bytes;
    int children = count_children(rank, size);
    int slots =
        bytes > SHORT_BYTES && children > LONG_SLOTS ? LONG_SLOTS : children;
    baton_buffer_t scratch =
        baton_buffer_scratch(schedule, (size_t)slots * bytes);

    /* Not in place the target is free before the broadcast, so partial sums are
       made there; in place it is where the source is. */
    baton_view_t partial = args->source;
    baton_node_t sums[MAX_STEPS];
    for (int k = 0; k < children; k++) {
        baton_view_t slot =
            baton_view(scratch, (size_t)(k % slots) * bytes, bytes);
        baton_node_t recv = baton_add_recv(schedule, rank + (1 << k), slot);
        sums[k] = baton_add_reduce(schedule, args->dtype, args->op,
                                   args->target, partial, slot);
        baton_before(schedule, recv, sums[k]);
        if (k >= slots) {
            baton_before(schedule, sums[k - slots], recv);
        }
        if (k > 0) {
            baton_before(schedule, sums[k - 1], sums[k]);
        }
        partial = args->target;
    }

    baton_node_t reduced = baton_add_nop(schedule);
    baton_node_t next = reduced;
    if (rank != 0) {
        /* The parent: this rank without its lowest bit. */
        next = baton_add_send(schedule, rank & (rank - 1), partial);
        baton_before(schedule, next, reduced);
    }
    if (children > 0) {
        baton_before(schedule, sums[children - 1], next);
    }
    baton_node_t finished = baton_add_nop(schedule);
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    baton_broadcast_binomial(schedule, 0, args->target);
    baton_enclose_end(schedule, inside, reduced, finished);
}

static double cost(const baton__terms_t *t)
{
    return baton__reduce_binomial_algorithm.cost(t) +
           baton__broadcast_binomial_algorithm.cost(t);
}

/* The root has most work, and receives nothing in the broadcast. */
static baton__works_t work(const baton__terms_t *t)
{
    baton__works_t reduce = baton__reduce_binomial_algorithm.work(t);
    baton__works_t works =
        baton__both(reduce, baton__broadcast_binomial_algorithm.work(t));
    works.most = reduce.most;
    return works;
}

const baton_algorithm_t baton__allreduce_binomial_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "binomial",
    .formula = "log(p) (2 alpha + n (2 beta + gamma))",
    .build.allreduce = baton_allreduce_binomial,
    .ordered = true,
    .cost = cost,
    .exact = baton__exact_paired,
    .work = work,
};
