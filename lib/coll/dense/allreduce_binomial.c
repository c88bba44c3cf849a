#include "coll/dense/allreduce.h"

#include <assert.h>

/* Reduce to rank 0 along a binomial tree, then broadcast along the same tree.
   In step t the ranks that are multiples of 2^t form pairs. The upper rank of a
   pair sends its partial sum, of the 2^t ranks from itself on, to the lower one
   and is done.

       rank 0 of 8:

       recv 1 --+      recv 2 --+      recv 4 --+
                v               v               v
       source -> sum 0 -------> sum 1 -------> sum 2 --> broadcast
                                                in target

       rank 2 of 8:

       recv 3 --+
                v
       source -> sum 0 in target --> send to 0 --> broadcast: recv from 0

   This takes 2(P - 1) messages, and recursive doubling P log2 P. With more
   ranks than processors the number of messages decides, since each message
   costs a turn on a processor.

   A partial sum is of consecutive ranks, with the lower half as the left
   operand, and is made once, so all ranks get the same bits.

   Some ranks may contribute nothing (null_contribution.h). A partial sum
   without any contribution is sent as an empty message, so that the receiver
   does not wait for it in vain. If one rank of 8 contributes, 7 to 10 vectors
   are sent instead of 14, and 7 of them bring the result to the others; by the
   flat tree 7 or 8 are sent. */

#define LONG_SLOTS 2

/* The ranks that send their partial sums to this rank, in the order of ranks.
   In a binomial tree the k-th of them is rank + 2^k, and in a flat tree rank +
   k + 1. */
typedef struct children {
    bool flat;
    int count;
} children_t;

static int child_of(children_t of, int rank, int k)
{
    return rank + (of.flat ? k + 1 : 1 << k);
}

/* The state of add_children(). */
typedef struct sum {
    baton_schedule_t *schedule;
    const baton_allreduce_args_t *args;
    baton__gathered_t *gathered; /* NULL: all ranks contribute in each epoch */
    baton__slots_t slots;        /* slots for the children's partial sums */
    const baton_op_t *op;        /* the reduction of the next child's sum */
    baton_node_t measured; /* the call node that sets the length of the sum */
    /* For each child, the node after which the target includes the child's
       sum. */
    baton_node_t ends[BATON__FLAT_RANKS];
} sum_t;

static baton_status_t set_own_if_first(void *arg, baton_call_t *call)
{
    const struct baton_given *given = arg;
    const baton__gathered_t *gathered = &given->gathered;
    bool is_first = baton_call_length(call, gathered->children[0]) == 0;
    return baton_call_set_length(call, gathered->own_if_first,
                                 is_first ? given->source.view.bytes : 0);
}

static baton_status_t set_sum(void *arg, baton_call_t *call)
{
    const baton__gathered_t *gathered = arg;
    size_t most = baton_call_length(call, gathered->own);
    for (uint32_t i = 0; i < gathered->count; i++) {
        size_t bytes = baton_call_length(call, gathered->children[i]);
        most = bytes > most ? bytes : most;
    }
    return baton_call_set_length(call, gathered->out, most);
}

/* In epochs in which the first child has contributed nothing, copies the source
   to the target. Returns the node after which the target has the sum in either
   case. */
static baton_node_t add_own_if_first(baton_schedule_t *schedule,
                                     const baton_allreduce_args_t *args,
                                     baton_node_t recv, baton_node_t reduce)
{
    struct baton_given *given = args->given;
    given->gathered.own_if_first = baton_add_length(schedule);
    if (baton__allreduce_in_place(schedule, args)) {
        return reduce;
    }
    baton_node_t call = baton_add_call(schedule, set_own_if_first, given);
    baton_set_no_scratch(schedule, call);
    baton_before(schedule, recv, call);
    baton_node_t copy = baton_add_copy(schedule, args->target, args->source);
    baton_set_length(schedule, copy, given->gathered.own_if_first);
    baton_before(schedule, call, copy);
    baton_before(schedule, reduce, copy);
    return copy;
}

/* Adds the nodes and edges for a child that may contribute nothing, in addition
   to those of add_child(). */
static void add_maybe_child(sum_t *sum, int k, baton_length_t length,
                            baton_node_t recv)
{
    if (sum->gathered == NULL) {
        return;
    }
    sum->gathered->children[k] = length;
    sum->gathered->count++;
    baton_before(sum->schedule, recv, sum->measured);
    if (k == 0) {
        sum->ends[0] =
            add_own_if_first(sum->schedule, sum->args, recv, sum->ends[0]);
    }
}

/* Adds a child's partial sum to the target. A child that has nothing sends an
   empty message, and its reduction then does nothing. The other operand always
   has a value, which is the neutral element if nothing was contributed. So only
   the reduction reads a child's message, and can read it where it lies:

       recv 0 --+--> call --> copy --+
                |             ^      |
                +--> reduce --+      |
                                     v
       recv 1 --------------------> reduce --> ...
         ...
       all recvs --> call: is there any?                                   */
static void add_child(sum_t *sum, int k, int peer, baton_length_t other)
{
    baton_schedule_t *schedule = sum->schedule;
    const baton_allreduce_args_t *args = sum->args;
    int slots = (int)sum->slots.count;
    baton__maybe_vector_t slot = {
        baton__slot_of(&sum->slots, (size_t)k, args->target.bytes),
        baton__length_like(schedule, other)};
    baton_node_t recv = baton__add_maybe_recv(schedule, peer, slot);
    baton_node_t reduce =
        baton_add_reduce_local(schedule, args->dtype, sum->op, args->target,
                               k > 0 ? args->target : args->source, slot.view);
    baton__limit_node(schedule, reduce, slot.length);
    baton_before(schedule, recv, reduce);
    if (k >= slots) {
        baton_before(schedule, sum->ends[k - slots], recv);
    }
    if (k > 0) {
        baton_before(schedule, sum->ends[k - 1], reduce);
    }
    sum->ends[k] = reduce;
    add_maybe_child(sum, k, slot.length, recv);
}

/* Adds the division of an average. Any child may contribute nothing in an
   epoch, so no child's reduction is certain to be the last one of the epoch. So
   the division is a reduction of its own, whose other operand is the neutral
   element. */
static baton_node_t add_division(baton_schedule_t *schedule,
                                 const baton_allreduce_args_t *args,
                                 baton_length_t length, baton_node_t sum)
{
    baton_node_t node = baton_add_reduce_local(
        schedule, args->dtype, baton_schedule_average(schedule), args->target,
        args->target, args->given->identity);
    baton_set_length(schedule, node, length);
    baton_before(schedule, sum, node);
    return node;
}

/* Adds the receives and reductions of all children's partial sums. Returns the
   vector that has the result: the target or, if there are no children, the
   source. If there are children, sets *last to the node after which this vector
   is complete. */
static baton__maybe_vector_t add_children(baton_schedule_t *schedule,
                                          const baton_allreduce_args_t *args,
                                          children_t of, baton_node_t *last)
{
    baton__maybe_vector_t own = baton__maybe_source(args);
    sum_t sum = {.schedule = schedule, .args = args};
    assert(of.count <= BATON__FLAT_RANKS);
    if (of.count == 0) {
        return own;
    }
    sum.slots = baton__slots_for_rounds(schedule, of.count, args->target.bytes,
                                        LONG_SLOTS);
    baton_length_t length = baton__length_like(schedule, own.length);
    if (!baton__is_whole(length)) {
        sum.gathered = &args->given->gathered;
        sum.gathered->own = own.length;
        sum.gathered->out = length;
        sum.measured = baton_add_call(schedule, set_sum, sum.gathered);
        baton_set_no_scratch(schedule, sum.measured);
    }
    int rank = baton_schedule_rank(schedule);
    sum.op = args->op == BATON_AVG ? BATON_SUM : args->op;
    bool divides = args->op == BATON_AVG && rank == 0;
    for (int k = 0; k < of.count; k++) {
        if (divides && sum.gathered == NULL && k == of.count - 1) {
            sum.op = baton_schedule_average(schedule);
        }
        add_child(&sum, k, child_of(of, rank, k), length);
    }
    *last = sum.ends[of.count - 1];
    if (sum.gathered != NULL) {
        *last = baton_add_nop(schedule);
        baton_before(schedule, sum.ends[of.count - 1], *last);
        baton_before(schedule, sum.measured, *last);
    }
    if (divides && sum.gathered != NULL) {
        *last = add_division(schedule, args, length, *last);
    }
    return (baton__maybe_vector_t){args->target, length};
}

/* Adds a reduction up a tree to rank 0, and a broadcast down a binomial tree.
   The partial sums are made in the target, where the broadcast's result comes
   only later. In place, the target is also the source. */
static void allreduce_binomial_add_tree(baton_schedule_t *schedule,
                                        const baton_allreduce_args_t *args,
                                        children_t children, int parent)
{
    baton_node_t last = {0};
    baton__maybe_vector_t partial =
        add_children(schedule, args, children, &last);

    baton_node_t reduced = baton_add_nop(schedule);
    baton_node_t next = reduced;
    baton__maybe_vector_t result = {args->target, partial.length};
    if (parent >= 0) {
        next = baton__add_maybe_send(schedule, parent, partial);
        baton_before(schedule, next, reduced);
        result.length = baton__length_like(schedule, partial.length);
    }
    if (children.count > 0) {
        baton_before(schedule, last, next);
    }
    baton_node_t finished = baton_add_nop(schedule);
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    baton__broadcast_binomial(schedule, 0, result);
    baton_enclose_end(schedule, inside, reduced, finished);
    baton__add_result(schedule, args, result.length, finished);
}

void baton_add_allreduce_binomial(baton_schedule_t *schedule,
                                  const baton_allreduce_args_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by binomial tree",
                                &args)) {
        return;
    }
    int rank = baton_schedule_rank(schedule);
    const children_t children = {
        .count = baton__binomial_children(rank, baton_schedule_size(schedule))};
    allreduce_binomial_add_tree(schedule, args, children,
                                rank > 0 ? baton__binomial_parent(rank) : -1);
}

void baton__allreduce_flat(baton_schedule_t *schedule,
                           const baton_allreduce_args_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by flat tree", &args)) {
        return;
    }
    int rank = baton_schedule_rank(schedule);
    int others = baton_schedule_size(schedule) - 1;
    const children_t children = {.flat = true, .count = rank == 0 ? others : 0};
    allreduce_binomial_add_tree(schedule, args, children, rank > 0 ? 0 : -1);
}

/* The work of the root is `most`: it has the most work, although it receives
   nothing in the broadcast. */
static baton__works_t allreduce_binomial_work(const baton__terms_t *t)
{
    baton__works_t reduce = baton__reduce_binomial_algorithm.work->of(t);
    baton__works_t works =
        baton__both(reduce, baton__broadcast_binomial_algorithm.work->of(t));
    works.most = reduce.most;
    return works;
}

const baton_algorithm_t baton__allreduce_binomial_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "binomial",
    .build.allreduce = baton_add_allreduce_binomial,
    .phases = {&baton__reduce_binomial_algorithm,
               &baton__broadcast_binomial_algorithm},
    .ordered = true,
    .exact = baton__exact_paired,
    .work = &(const baton__work_model_t){allreduce_binomial_work},
};
