#include "coll/dense/allreduce.h"
#include "coll/kit/blocks.h"
#include "coll/partial/given.h"
#include "coll/tune/algorithms.h"

#include <math.h>

/* Each step receives a vector into a slot of scratch and reduces the partial
   sum so far into that slot, which then holds the partial sum. So nothing is
   written while a send of it is in flight, and no step waits for its sends; the
   last reduction writes the target.

       recv 0 ------+     recv 1 ------+           recv 2 ------+
                    v                  v                        v
       source --> sum 0 ---+-------> sum 1 ---+-------------> sum 2 --> target
          |                |                  |
          +--> send 0      +--> send 1        +--> send 2

   Short vectors have a slot for each step: all receives are posted when the
   epoch begins. Long ones take turns in three slots, where a receive waits for
   the send and the reduction that read its slot last.

   The lower rank's partial sum is the left operand on both sides of a pair, and
   partial sums are of neighbouring ranks: all ranks compute the same thing in
   the same order, bit for bit.

   Where some ranks give nothing (given.h) a sum is a merge, of which either
   part may be empty. With one rank of 8 that gives, 7 vectors go instead of 24.
 */

#define LONG_SLOTS 3
#define MAX_STEPS  32

typedef struct doubling {
    baton_schedule_t *schedule;
    const baton_allreduce_t *args;
    int rank;
    int steps; /* that receive and reduce: the fold, if any, and the rounds */
    int step;
    baton__slots_t slots;
    baton__maybe_vector_t partial; /* the sum so far */
    baton_node_t sends[MAX_STEPS]; /* by step */
    baton__merged_t sums[MAX_STEPS];
} doubling_t;

/* One step with a peer, which sends its partial sum, and gets ours when
   `mutual`. */
static void add_step(doubling_t *doubling, int peer, bool mutual)
{
    baton_schedule_t *schedule = doubling->schedule;
    const baton_allreduce_t *args = doubling->args;
    int step = doubling->step++;
    baton__maybe_vector_t slot = {
        baton__slot_of(&doubling->slots, (size_t)step, args->target.bytes),
        baton__length_like(schedule, doubling->partial.length)};

    baton_node_t recv = baton__add_maybe_recv(schedule, peer, slot);
    int slots = (int)doubling->slots.count;
    if (step >= slots) {
        int reader = step - slots + 1;
        baton_before(schedule, doubling->sends[reader], recv);
        baton_before(schedule, doubling->sums[reader].last, recv);
    }
    if (mutual) {
        baton_node_t send =
            baton__add_maybe_send(schedule, peer, doubling->partial);
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

/* A rank outside the core: its pair's other rank does the work.

       source --> send          recv --> target                              */
static void add_folded(baton_schedule_t *schedule,
                       const baton_allreduce_t *args,
                       baton__maybe_vector_t source, int partner)
{
    baton__maybe_vector_t target = {
        args->target, baton__length_like(schedule, source.length)};
    baton_node_t recv = baton__add_maybe_recv(schedule, partner, target);
    baton_node_t send = baton__add_maybe_send(schedule, partner, source);
    if (baton__allreduce_in_place(schedule, args)) {
        baton_before(schedule, send, recv);
    }
    baton__add_result(schedule, args, target.length, recv);
}

void baton_allreduce_recursive_doubling(baton_schedule_t *schedule,
                                        const baton_allreduce_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by recursive doubling",
                                &args)) {
        return;
    }
    int rank = baton_schedule_rank(schedule);
    int size = baton_schedule_size(schedule);
    baton__fold_t fold = baton__fold_of(rank, size);
    if (fold.id < 0) {
        add_folded(schedule, args, baton__given_source(args), fold.partner);
        return;
    }

    bool paired = fold.partner >= 0;
    int rounds = baton__log2_ceil(fold.core);
    int steps = rounds + (paired ? 1 : 0);
    doubling_t doubling = {
        .schedule = schedule,
        .args = args,
        .rank = rank,
        .steps = steps,
        .slots = baton__slots_for_rounds(schedule, steps, args->target.bytes,
                                         LONG_SLOTS),
        .partial = baton__given_source(args),
    };

    if (paired) {
        add_step(&doubling, fold.partner, false);
    }
    for (int round = 0; round < rounds; round++) {
        int peer = baton__fold_rank(&fold, fold.id ^ (1 << round));
        add_step(&doubling, peer, true);
    }

    const baton__merged_t *last = &doubling.sums[steps - 1];
    if (baton__allreduce_in_place(schedule, args) && !paired) {
        baton_before(schedule, doubling.sends[0], last->first);
    }
    baton_node_t end = last->last;
    if (paired) {
        end = baton__add_maybe_send(schedule, fold.partner, last->sum);
        baton_before(schedule, last->last, end);
    }
    baton__add_result(schedule, args, last->sum.length, end);
}

/* The core is of 2^k ranks, and `extra` of them speak for two. When p is 2^k,
   each of its k rounds is a transfer and a reduction. Otherwise there are two
   paths. One goes through ranks of the core that are alone: they end a round
   later, since what they get has waited for a fold. The other one through ranks
   that speak for two, until they have sent the result to the second: k + 2
   transfers, and after the fold they meet ranks that are as late in the first
   ceil(log2 extra) rounds; what comes in later rounds has come before, and its
   reduction goes on while the next transfer does. On hosts of 2^k ranks the
   folds, and the rounds of near ranks, stay inside: an estimate. */
static double cost(const baton__terms_t *t)
{
    double come = baton__message(t, t->n);
    double reduce = baton__reduction(t, t->n);
    int block = baton__host_block(t);
    if (t->extra <= 0) {
        return baton__messages_over(t, t->p, t->n, false) +
               t->core_log * reduce;
    }
    if (block > 1 && (block & (block - 1)) == 0) {
        double between = baton__log2_ceil(t->of.hosts);
        return between * come +
               (t->core_log + 2 - between) * baton__message_over(t, 1, t->n) +
               (t->core_log + 1) * reduce;
    }
    return fmax((t->core_log + 1) * (come + reduce),
                (t->core_log + 2) * come +
                    (baton__log2_ceil((int)t->extra) + 1) * reduce);
}

static baton__works_t work(const baton__terms_t *t)
{
    double sums = t->core * t->core_log + t->extra;
    double messages = sums + t->extra;
    return (baton__works_t){
        .most = {t->core_log, t->core_log * t->n, t->core_log * t->n},
        .all = {messages, messages * t->n, sums * t->n},
        .passed = (sums - t->core) * t->n};
}

const baton_algorithm_t baton__allreduce_recursive_doubling_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "recursive_doubling",
    .build.allreduce = baton_allreduce_recursive_doubling,
    .ordered = true,
    .cost = cost,
    .exact = baton__exact_paired,
    .work = work,
};
