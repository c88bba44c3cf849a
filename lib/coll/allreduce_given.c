#include "allreduce.h"
#include "given.h"
#include "pattern.h"

/* The all-reduces by binomial tree and by recursive doubling (whose files have
   their pictures) among ranks of which some have nothing to give. A vector that
   nobody has given anything to is sent as an empty message, so that the
   receiver need not wait for what never comes:

       recv --> call --> reduce, or copy, or nothing --> send of what there is

   With one rank of 8 that gives, binomial trees move 7 to 10 vectors instead of
   14, of which 7 bring the result to the others; recursive doubling 7 instead
   of 24. The order of operands is the one of the full all-reduce, so all ranks
   get the same bits. */

#define SHORT_BYTES   ((size_t)64 * 1024)
#define BINOMIAL_LONG 2
#define DOUBLING_LONG 3
#define MAX_STEPS     32

/* ---- binomial tree ---------------------------------------------------- */

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

/* The children's partial sums and this rank's source; `*last` is the node that
   ends it, where there are children. */
static baton__maybe_vector_t add_children(baton_schedule_t *schedule,
                                          const baton_allreduce_t *args,
                                          int children, baton_node_t *last)
{
    int rank = baton_schedule_rank(schedule);
    size_t bytes = args->target.bytes;
    int slots = bytes > SHORT_BYTES && children > BINOMIAL_LONG ? BINOMIAL_LONG
                                                                : children;
    baton_buffer_t scratch =
        baton_buffer_scratch(schedule, (size_t)slots * bytes);
    baton__maybe_vector_t partial = args->given->source;
    baton_node_t ends[MAX_STEPS];
    for (int k = 0; k < children; k++) {
        baton__maybe_vector_t slot = {
            baton_view(scratch, (size_t)(k % slots) * bytes, bytes),
            baton_add_length(schedule)};
        baton_node_t recv = add_recv(schedule, rank + (1 << k), slot);
        baton__merged_t merged =
            baton__add_merge(schedule, args, args->target, partial, slot);
        baton_before(schedule, recv, merged.first);
        if (k >= slots) {
            baton_before(schedule, ends[k - slots], recv);
        }
        if (k > 0) {
            baton_before(schedule, ends[k - 1], merged.first);
        }
        ends[k] = merged.last;
        *last = merged.last;
        partial = merged.sum;
    }
    return partial;
}

void baton__allreduce_binomial_given(baton_schedule_t *schedule,
                                     const baton_allreduce_t *args)
{
    int rank = baton_schedule_rank(schedule);
    int children = count_children(rank, baton_schedule_size(schedule));
    baton_node_t last = {0};
    baton__maybe_vector_t partial =
        add_children(schedule, args, children, &last);

    baton_node_t reduced = baton_add_nop(schedule);
    baton_node_t next = reduced;
    baton__maybe_vector_t result = {args->target, partial.length};
    if (rank != 0) {
        next = add_send(schedule, rank & (rank - 1), partial);
        baton_before(schedule, next, reduced);
        result.length = baton_add_length(schedule);
    }
    if (children > 0) {
        baton_before(schedule, last, next);
    }
    baton_node_t finished = baton_add_nop(schedule);
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    baton__broadcast_binomial_given(schedule, 0, result);
    baton_enclose_end(schedule, inside, reduced, finished);
    baton__add_result(schedule, args, result.length, finished);
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
    if (paired) {
        baton_node_t send = add_send(schedule, fold.partner, last->sum);
        baton_before(schedule, last->last, send);
    }
    baton__add_result(schedule, args, last->sum.length, last->last);
}
