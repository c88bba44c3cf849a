#include "coll/dense/allreduce.h"

#include <math.h>

/* Each step receives a vector into a slot of scratch and reduces the partial
   sum so far into that slot, which then holds the partial sum. So nothing is
   written while a send reads it, and no step waits for its sends. The last
   reduction writes the target.

       recv 0 ------+     recv 1 ------+           recv 2 ------+
                    v                  v                        v
       source --> sum 0 ---+-------> sum 1 ---+-------------> sum 2 --> target
          |                |                  |
          +--> send 0      +--> send 1        +--> send 2

   Short vectors have a slot for each step: all receives are posted when the
   epoch begins. Long vectors use three slots in turn, and a receive waits for
   the send and the reduction that read its slot last.

   In place the last reduction overwrites the source, so it waits for the first
   send. With two ranks both are in the same step: each rank would wait until
   the other rank has received its vector, and neither could read the other's
   vector where it lies. So two ranks send a copy of the vector. They also send
   a copy if the system would have to copy the vector for the peer (flow.h).

   The lower rank's partial sum is the left operand on both sides of a pair, and
   partial sums are of neighbouring ranks. So all ranks compute the same in the
   same order, and get the same bits. */

enum { LONG_SLOTS = 3 };

typedef struct doubling {
    baton__flow_t flow;
    baton_view_t target;
    bool lends; /* peers may read this rank's vector in place */
    /* The number of this rank's steps: the fold, if any, and the rounds. */
    int steps;
    int step;
    baton__slots_t slots;
    baton_view_t partial; /* this rank's partial sum so far */
} doubling_t;

static bool copies(const doubling_t *doubling)
{
    return !doubling->lends && doubling->steps == 1;
}

/* Adds a step with a peer: receives the peer's partial sum and reduces it with
   this rank's. If `mutual`, also sends this rank's partial sum to the peer. */
static void allreduce_recursive_doubling_add_step(doubling_t *doubling,
                                                  int peer, bool mutual)
{
    baton__flow_t *flow = &doubling->flow;
    baton_view_t partial = doubling->partial;
    int step = doubling->step++;
    baton_view_t slot =
        baton__slot_of(&doubling->slots, (size_t)step, partial.bytes);
    bool last = step == doubling->steps - 1;
    bool lower = flow->rank < peer;
    baton__flow_recv(flow, peer, slot);
    if (mutual) {
        baton_view_t sent = partial;
        if (copies(doubling)) {
            sent = baton__slot_of(&doubling->slots, 1, partial.bytes);
            baton__flow_copy(flow, sent, partial);
        }
        baton__flow_send(flow, peer, sent);
    }
    doubling->partial = last ? doubling->target : slot;
    flow->is_total = last;
    baton__flow_reduce(flow, doubling->partial, lower ? partial : slot,
                       lower ? slot : partial);
}

static void add_core(doubling_t *doubling, const baton__fold_t *fold)
{
    baton__flow_t *flow = &doubling->flow;
    bool paired = fold->partner >= 0;
    int rounds = baton__log2_ceil(fold->core);
    doubling->steps = rounds + (paired ? 1 : 0);
    doubling->slots = baton__slots_for_rounds(
        flow->schedule, doubling->steps + (copies(doubling) ? 1 : 0),
        doubling->target.bytes, LONG_SLOTS);
    if (paired) {
        allreduce_recursive_doubling_add_step(doubling, fold->partner, false);
    }
    for (int round = 0; round < rounds; round++) {
        allreduce_recursive_doubling_add_step(
            doubling, baton__fold_rank(fold, fold->id ^ (1 << round)), true);
    }
    if (paired) {
        baton__flow_send(flow, fold->partner, doubling->target);
    }
}

/* A rank outside the core sends its vector to the other rank of its pair, and
   gets the result:

       source --> send          recv --> target                              */
void baton_add_allreduce_recursive_doubling(baton_schedule_t *schedule,
                                            const baton_allreduce_args_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by recursive doubling",
                                &args)) {
        return;
    }
    bool in_place = baton__allreduce_in_place(schedule, args);
    doubling_t doubling = {
        .flow = baton__flow_open(schedule, args->dtype, args->op),
        .target = args->target,
        .partial = in_place ? args->target : args->source,
    };
    baton__flow_t *flow = &doubling.flow;
    doubling.lends = !in_place && !baton__flow_stages(flow, args->source);
    baton__fold_t fold = baton__fold_of(flow->rank, flow->size);
    if (fold.id < 0) {
        baton__flow_send(flow, fold.partner, doubling.partial);
        baton__flow_recv(flow, fold.partner, doubling.target);
    } else {
        add_core(&doubling, &fold);
    }
    baton__flow_close(flow);
}

/* The core has 2^k ranks, and `extra` of them speak for two. If p is 2^k, each
   of the k rounds is a transfer and a reduction. Otherwise the longer of two
   paths counts. One goes through ranks of the core that are alone: they end a
   round later, since the sums that they get have waited for a fold. The other
   goes through ranks that speak for two, until they have sent the result to the
   second rank: k + 2 transfers. In the first ceil(log2 extra) rounds after the
   fold these ranks meet ranks that are as late. The sums of later rounds have
   come before they are needed, and their reduction overlaps the next transfer.
   On hosts of 2^k ranks the folds and the rounds of neighbours are assumed to
   stay inside a host, which is an estimate. */
static double allreduce_recursive_doubling_cost(const baton__terms_t *t)
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

/* Two ranks copy their vectors into scratch, which is shared memory, and each
   reduces from the other's copy in place. So the system makes no copies. On 2
   processors of an AMD EPYC, all-reduces of 512 KiB, 1, 2 and 4 MiB in place
   take 71, 98, 266 and 578 us in this way, and by pairwise exchange 84, 173,
   308 and 669 us. But 256 KiB take 43 us, and 31 us by pairwise exchange, and 8
   MiB take 3.2 and 2.3 ms. The factor in allreduce_recursive_doubling_work
   makes the choice follow these figures. */
#define LEAST_EXCHANGED (512.0 * 1024)
#define MOST_EXCHANGED  (4096.0 * 1024)

static baton__works_t allreduce_recursive_doubling_work(const baton__terms_t *t)
{
    double sums = t->core * t->core_log + t->extra;
    double messages = sums + t->extra;
    bool exchanged = t->p <= 2 && t->of.hosts <= 1 &&
                     baton__has_processor_each(t) && t->n >= LEAST_EXCHANGED &&
                     t->n <= MOST_EXCHANGED;
    double bytes = t->core_log * t->n * (exchanged ? 0.25 : 1);
    return (baton__works_t){.most = {t->core_log, bytes, bytes},
                            .all = {messages, messages * t->n, sums * t->n},
                            .direct = t->p <= 2,
                            .passed = (sums - t->core) * t->n};
}

const baton_algorithm_t baton__allreduce_recursive_doubling_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "recursive_doubling",
    .build.allreduce = baton_add_allreduce_recursive_doubling,
    .ordered = true,
    .cost = allreduce_recursive_doubling_cost,
    .exact = baton__exact_paired,
    .work = &(const baton__work_model_t){allreduce_recursive_doubling_work},
};
