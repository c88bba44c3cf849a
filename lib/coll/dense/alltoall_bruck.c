#include "base/alloc.h"
#include "coll/dense/begin.h"

/* The block for the rank that is i ranks further moves there in the steps k for
   which bit k of i is set. Each of these steps moves it 2^k ranks further, in
   one message with all other blocks whose i has bit k set. So there are
   ceil(log2 P) messages of about half of all blocks:

       pack blocks with bit 0 --> send to +1
                 recv from -1 --> pack those with bit 1 --> send to +2
                                            recv from -2 --> ... --> target */

/* Adds a step. places[i] is the place of the block that has to go i ranks
   further in all steps together. If this step sends that block, places[i]
   becomes the place of the block that this rank receives in exchange. */
static void alltoall_bruck_add_step(baton__flow_t *flow, baton_view_t *places,
                                    int bit, size_t block)
{
    size_t count = 0;
    for (int i = 1; i < flow->size; i++) {
        count += (size_t)(i >> bit & 1);
    }
    baton_view_t out = baton__flow_scratch(flow, count * block);
    baton_view_t in = baton__flow_scratch(flow, count * block);
    size_t at = 0;
    for (int i = 1; i < flow->size; i++) {
        if ((i >> bit & 1) != 0) {
            baton__flow_copy(flow, baton_view(out.buffer, at, block),
                             places[i]);
            places[i] = baton_view(in.buffer, at, block);
            at += block;
        }
    }
    int64_t distance = (int64_t)1 << bit;
    baton__flow_send(flow, baton__flow_peer(flow, distance), out);
    baton__flow_recv(flow, baton__flow_peer(flow, -distance), in);
}

static void add_bruck(baton__alltoall_t *exchange, baton_view_t *places)
{
    baton__flow_t *flow = &exchange->flow;
    size_t block = baton__blocks_bytes(&exchange->source, 0, 1);
    for (int i = 1; i < flow->size; i++) {
        places[i] =
            baton__blocks_view(&exchange->source, baton__flow_peer(flow, i), 1);
    }
    for (int bit = 0; bit < baton__log2_ceil(flow->size); bit++) {
        alltoall_bruck_add_step(flow, places, bit, block);
    }
    for (int i = 1; i < flow->size; i++) {
        int from = baton__flow_peer(flow, -i);
        baton__flow_copy(flow, baton__blocks_view(&exchange->target, from, 1),
                         places[i]);
    }
}

void baton_add_alltoall_bruck(baton_schedule_t *schedule,
                              const baton_alltoall_args_t *args)
{
    static const char name[] = "all-to-all by Bruck";
    baton__alltoall_t exchange;
    if (!baton__alltoall_begin(schedule, name, &args, &exchange)) {
        return;
    }
    baton_view_t *places =
        baton__alloc((size_t)exchange.flow.size, sizeof(baton_view_t));
    if (args->send_bytes != NULL || args->recv_bytes != NULL) {
        baton_schedule_fail(
            schedule, BATON_ERR_UNSUPPORTED,
            "%s: send_bytes and recv_bytes must be NULL: its blocks have one "
            "size; use pairwise exchange for others",
            name);
    } else if (places == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "%s: no memory for the places of %d blocks", name,
                            exchange.flow.size);
    } else {
        add_bruck(&exchange, places);
    }
    baton__free(places);
    baton__flow_close(&exchange.flow);
}

/* The step of bit k sends the blocks of all distances that have the bit set. */
static double alltoall_bruck_cost(const baton__terms_t *t)
{
    double blocks = 0;
    for (int64_t bit = 1; bit < t->of.ranks; bit *= 2) {
        int64_t whole = t->of.ranks / (2 * bit) * bit;
        int64_t rest = t->of.ranks % (2 * bit) - bit;
        blocks += (double)(whole + (rest > 0 ? rest : 0));
    }
    return t->log * t->alpha + blocks * t->block * t->beta;
}

/* In each round half of the blocks are copied into one message, which is then
   sent. Each of these copies, and each copy to the target, counts as an eighth
   of a message's work. */
static baton__works_t alltoall_bruck_work(const baton__terms_t *t)
{
    double moved = t->p * t->log * t->n / 2;
    double copies = t->p * t->p * (t->log / 2 + 1);
    return baton__evenly(
        t, (baton__work_t){t->p * t->log + copies / 8, 3 * moved, 0}, 0);
}

const baton_algorithm_t baton__alltoall_bruck_algorithm = {
    .collective = BATON_COLLECTIVE_ALLTOALL,
    .name = "bruck",
    .build.alltoall = baton_add_alltoall_bruck,
    .equal_blocks = true,
    .cost = alltoall_bruck_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){alltoall_bruck_work},
};
