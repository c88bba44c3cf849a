#include "coll/dense/allreduce.h"
#include "coll/kit/pattern.h"
#include "coll/partial/given.h"

/* The all-reduces by binomial tree and by recursive doubling (whose files have
   their pictures), and by a flat tree, among ranks of which some have nothing
   to give. A vector that nobody has given anything to is sent as an empty
   message, so that the receiver need not wait for what never comes:

       recv --> call --> reduce, or copy, or nothing --> send of what there is

   With one rank of 8 that gives, binomial trees move 7 to 10 vectors instead of
   14, of which 7 bring the result to the others; the flat tree 7 or 8;
   recursive doubling 7 instead of 24. The order of operands is the one of the
   full all-reduce, so all ranks get the same bits. */

#define SHORT_BYTES   ((size_t)64 * 1024)
#define BINOMIAL_LONG 2
#define DOUBLING_LONG 3
#define MAX_STEPS     32

/* ---- trees ------------------------------------------------------------ */

static int count_children(int rank, int size)
{
    int count = 0;
    for (int64_t gap = 1; (rank & gap) == 0 && rank + gap < size; gap *= 2) {
        count++;
    }
    return count;
}

static baton_node_t add_recv(baton_schedule_t *schedule, int peer,
                             baton__maybe_vector_t data)
{
    baton_node_t recv = baton_add_recv(schedule, peer, data.view);
    baton_set_length(schedule, recv, data.length);
    return recv;
}

static baton_node_t add_send(baton_schedule_t *schedule, int peer,
                             baton__maybe_vector_t data)
{
    baton_node_t send = baton_add_send(schedule, peer, data.view);
    baton_set_length(schedule, send, data.length);
    return send;
}

void baton__broadcast_binomial_given(baton_schedule_t *schedule, int root,
                                     baton__maybe_vector_t data)
{
    int size = baton_schedule_size(schedule);
    int rank = baton_schedule_rank(schedule);
    int id = baton__rank_shift(rank, -(int64_t)root, size);
    int rounds = baton__log2_ceil(size);
    int round = 0;
    while (round < rounds && (id >> round) % 2 == 0) {
        round++;
    }
    baton_node_t recv = {0};
    if (id != 0) {
        int parent = baton__rank_shift(rank, -((int64_t)1 << round), size);
        recv = add_recv(schedule, parent, data);
    }
    for (round--; round >= 0; round--) {
        int64_t distance = (int64_t)1 << round;
        if (id + distance >= size) {
            continue;
        }
        baton_node_t send =
            add_send(schedule, baton__rank_shift(rank, distance, size), data);
        if (id != 0) {
            baton_before(schedule, recv, send);
        }
    }
}

/* The ranks that send this one their partial sums, in the order of ranks: the
   k-th of a binomial tree is rank + 2^k, of a flat one rank + k + 1. */
typedef struct children {
    bool flat;
    int count;
} children_t;

static int child_of(children_t of, int rank, int k)
{
    return rank + (of.flat ? k + 1 : 1 << k);
}

/* While the children are added. */
typedef struct sum {
    baton_schedule_t *schedule;
    const baton_allreduce_t *args;
    uint32_t slots; /* of scratch memory, for what children send */
    baton_buffer_t scratch;
    baton_node_t measured; /* the call that looks whether there is any */
    baton_node_t ends[BATON__FLAT_RANKS]; /* of each child */
} sum_t;

static baton_status_t set_alone(void *arg, baton_call_t *call)
{
    const struct baton_given *given = arg;
    const baton__gathered_t *gathered = &given->gathered;
    bool alone = baton_call_length(call, gathered->children[0]) == 0;
    return baton_call_set_length(call, gathered->own_alone,
                                 alone ? given->source.view.bytes : 0);
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

/* The source, where the first child has nothing to add to it. Returns the node
   behind which the target has a sum. */
static baton_node_t add_alone(baton_schedule_t *schedule,
                              const baton_allreduce_t *args, baton_node_t recv,
                              baton_node_t reduce)
{
    struct baton_given *given = args->given;
    given->gathered.own_alone = baton_add_length(schedule);
    if (baton__allreduce_in_place(schedule, args)) {
        return reduce;
    }
    baton_node_t call = baton_add_call(schedule, set_alone, given);
    baton_set_no_scratch(schedule, call);
    baton_before(schedule, recv, call);
    baton_node_t copy = baton_add_copy(schedule, args->target, args->source);
    baton_set_length(schedule, copy, given->gathered.own_alone);
    baton_before(schedule, call, copy);
    baton_before(schedule, reduce, copy);
    return copy;
}

/* The children's partial sums and this rank's source, in the target; `*last` is
   the node that ends it, where there are children. A child that has nothing
   sends an empty message, of which the reduction takes nothing; and what it is
   added to is never undefined, but the neutral element at least. So a
   reduction alone reads what a child has sent, and it can be lent:

       recv 0 --+--> call --> copy --+
                |             ^      |
                +--> reduce --+      |
                                     v
       recv 1 --------------------> reduce --> ...
         ...
       all recvs --> call: is there any?                                   */
static void add_child(sum_t *sum, int peer)
{
    baton_schedule_t *schedule = sum->schedule;
    const baton_allreduce_t *args = sum->args;
    baton__gathered_t *gathered = &args->given->gathered;
    size_t bytes = args->target.bytes;
    uint32_t k = gathered->count++;
    baton__maybe_vector_t slot = {
        baton_view(sum->scratch, k % sum->slots * bytes, bytes),
        baton_add_length(schedule)};
    gathered->children[k] = slot.length;
    baton_node_t recv = add_recv(schedule, peer, slot);
    baton_node_t reduce =
        baton_add_reduce(schedule, args->dtype, args->op, args->target,
                         k > 0 ? args->target : args->source, slot.view);
    baton_set_length(schedule, reduce, slot.length);
    baton_before(schedule, recv, reduce);
    baton_before(schedule, recv, sum->measured);
    if (k >= sum->slots) {
        baton_before(schedule, sum->ends[k - sum->slots], recv);
    }
    if (k > 0) {
        baton_before(schedule, sum->ends[k - 1], reduce);
    }
    sum->ends[k] = k > 0 ? reduce : add_alone(schedule, args, recv, reduce);
}

static baton__maybe_vector_t add_children(baton_schedule_t *schedule,
                                          const baton_allreduce_t *args,
                                          children_t of, baton_node_t *last)
{
    int rank = baton_schedule_rank(schedule);
    size_t bytes = args->target.bytes;
    bool few = bytes > SHORT_BYTES && of.count > BINOMIAL_LONG;
    sum_t sum = {.schedule = schedule,
                 .args = args,
                 .slots = few ? BINOMIAL_LONG : (uint32_t)of.count};
    if (of.count == 0) {
        return args->given->source;
    }
    baton__gathered_t *gathered = &args->given->gathered;
    gathered->own = args->given->source.length;
    gathered->out = baton_add_length(schedule);
    sum.scratch = baton_buffer_scratch(schedule, sum.slots * bytes);
    sum.measured = baton_add_call(schedule, set_sum, gathered);
    baton_set_no_scratch(schedule, sum.measured);
    for (int k = 0; k < of.count; k++) {
        add_child(&sum, child_of(of, rank, k));
    }
    *last = baton_add_nop(schedule);
    baton_before(schedule, sum.ends[of.count - 1], *last);
    baton_before(schedule, sum.measured, *last);
    return (baton__maybe_vector_t){args->target, gathered->out};
}

/* Up a tree to rank 0, and down a binomial one. */
static void add_tree(baton_schedule_t *schedule, const baton_allreduce_t *args,
                     children_t children, int parent)
{
    baton_node_t last = {0};
    baton__maybe_vector_t partial =
        add_children(schedule, args, children, &last);

    baton_node_t reduced = baton_add_nop(schedule);
    baton_node_t next = reduced;
    baton__maybe_vector_t result = {args->target, partial.length};
    if (parent >= 0) {
        next = add_send(schedule, parent, partial);
        baton_before(schedule, next, reduced);
        result.length = baton_add_length(schedule);
    }
    if (children.count > 0) {
        baton_before(schedule, last, next);
    }
    baton_node_t finished = baton_add_nop(schedule);
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    baton__broadcast_binomial_given(schedule, 0, result);
    baton_enclose_end(schedule, inside, reduced, finished);
    baton__add_result(schedule, args, result.length, finished);
}

void baton__allreduce_binomial_given(baton_schedule_t *schedule,
                                     const baton_allreduce_t *args)
{
    int rank = baton_schedule_rank(schedule);
    const children_t children = {
        .count = count_children(rank, baton_schedule_size(schedule))};
    add_tree(schedule, args, children, rank > 0 ? rank & (rank - 1) : -1);
}

void baton__allreduce_flat(baton_schedule_t *schedule,
                           const baton_allreduce_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by flat tree", &args)) {
        return;
    }
    int rank = baton_schedule_rank(schedule);
    int size = baton_schedule_size(schedule);
    if (size > BATON__FLAT_RANKS) {
        baton_schedule_fail(schedule, BATON_ERR_LIMIT,
                            "all-reduce by flat tree: %d ranks; allowed: up to "
                            "%d",
                            size, (int)BATON__FLAT_RANKS);
        return;
    }
    const children_t children = {.flat = true,
                                 .count = rank == 0 ? size - 1 : 0};
    add_tree(schedule, args, children, rank > 0 ? 0 : -1);
}

/* ---- recursive doubling ----------------------------------------------- */

typedef struct doubling {
    baton_schedule_t *schedule;
    const baton_allreduce_t *args;
    int rank;
    int steps;
    int step;
    int slots;
    baton_buffer_t scratch;
    baton__maybe_vector_t partial;
    baton_node_t sends[MAX_STEPS]; /* by step */
    baton__merged_t sums[MAX_STEPS];
} doubling_t;

static void add_step(doubling_t *doubling, int peer, bool mutual)
{
    baton_schedule_t *schedule = doubling->schedule;
    const baton_allreduce_t *args = doubling->args;
    int step = doubling->step++;
    size_t bytes = args->target.bytes;
    baton__maybe_vector_t slot = {
        baton_view(doubling->scratch, (size_t)(step % doubling->slots) * bytes,
                   bytes),
        baton_add_length(schedule)};
    baton_node_t recv = add_recv(schedule, peer, slot);
    if (step >= doubling->slots) {
        int reader = step - doubling->slots + 1;
        baton_before(schedule, doubling->sends[reader], recv);
        baton_before(schedule, doubling->sums[reader].last, recv);
    }
    if (mutual) {
        baton_node_t send = add_send(schedule, peer, doubling->partial);
        if (step > 0) {
            baton_before(schedule, doubling->sums[step - 1].last, send);
        }
        doubling->sends[step] = send;
    }
    bool lower = doubling->rank < peer;
    bool last = step == doubling->steps - 1;
    baton__merged_t sum = baton__add_merge(
        schedule, args, last ? args->target : slot.view,
        lower ? doubling->partial : slot, lower ? slot : doubling->partial);
    baton_before(schedule, recv, sum.first);
    if (step > 0) {
        baton_before(schedule, doubling->sums[step - 1].last, sum.first);
    }
    doubling->sums[step] = sum;
    doubling->partial = sum.sum;
}

static void add_folded(baton_schedule_t *schedule,
                       const baton_allreduce_t *args, int partner)
{
    baton__maybe_vector_t source = args->given->source;
    baton__maybe_vector_t target = {args->target, baton_add_length(schedule)};
    baton_node_t recv = add_recv(schedule, partner, target);
    baton_node_t send = add_send(schedule, partner, source);
    if (baton__allreduce_in_place(schedule, args)) {
        baton_before(schedule, send, recv);
    }
    baton__add_result(schedule, args, target.length, recv);
}

void baton__allreduce_recursive_doubling_given(baton_schedule_t *schedule,
                                               const baton_allreduce_t *args)
{
    int rank = baton_schedule_rank(schedule);
    baton__fold_t fold = baton__fold_of(rank, baton_schedule_size(schedule));
    if (fold.id < 0) {
        add_folded(schedule, args, fold.partner);
        return;
    }
    bool paired = fold.partner >= 0;
    int rounds = baton__log2_ceil(fold.core);
    int steps = rounds + (paired ? 1 : 0);
    bool is_short = args->target.bytes <= SHORT_BYTES;
    doubling_t doubling = {
        .schedule = schedule,
        .args = args,
        .rank = rank,
        .steps = steps,
        .slots = is_short || steps < DOUBLING_LONG ? steps : DOUBLING_LONG,
        .partial = args->given->source,
    };
    doubling.scratch = baton_buffer_scratch(schedule, (size_t)doubling.slots *
                                                          args->target.bytes);
    if (paired) {
        add_step(&doubling, fold.partner, false);
    }
    for (int round = 0; round < rounds; round++) {
        add_step(&doubling, baton__fold_rank(&fold, fold.id ^ (1 << round)),
                 true);
    }
    const baton__merged_t *last = &doubling.sums[steps - 1];
    if (baton__allreduce_in_place(schedule, args) && !paired) {
        baton_before(schedule, doubling.sends[0], last->first);
    }
    baton_node_t end = last->last;
    if (paired) {
        end = add_send(schedule, fold.partner, last->sum);
        baton_before(schedule, last->last, end);
    }
    baton__add_result(schedule, args, last->sum.length, end);
}
