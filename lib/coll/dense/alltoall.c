#include "base/alloc.h"
#include "coll/kit/cut.h"

#include <baton/coll.h>

/* Pairwise: in step k a rank sends to rank + k and receives from rank - k,
   nothing behind anything:

       source --+--> copy own block --> target
                +--> send to +1          recv from -1 --> target
                +--> send to +2          recv from -2 --> target
                :                        :

   Bruck: the block for rank + i goes there in the steps of the bits of i, with
   all other blocks that have that bit: in step k to rank + 2^k. So a message is
   about half of all blocks, and there are ceil(log2 P) of them:

       pack blocks with bit 0 --> send to +1
                 recv from -1 --> pack those with bit 1 --> send to +2
                                            recv from -2 --> ... --> target

   In place, what is sent is copied out of the way first. */
typedef struct exchange {
    baton__flow_t flow;
    size_t *send_at, *recv_at;
    baton__blocks_t source, target;
} exchange_t;

static void end(exchange_t *exchange)
{
    baton__flow_close(&exchange->flow);
    baton__free(exchange->send_at);
    baton__free(exchange->recv_at);
}

/* In place, blocks keep their places, so what comes is as long as what goes. */
static bool check_in_place(baton_schedule_t *schedule, const char *builder,
                           const exchange_t *exchange)
{
    for (int i = 0; i <= exchange->source.parts; i++) {
        if (exchange->send_at[i] != exchange->recv_at[i]) {
            baton_schedule_fail(
                schedule, BATON_ERR_INVALID,
                "%s: in place, but send_bytes and recv_bytes of rank %d are "
                "not the same",
                builder, i - 1);
            return false;
        }
    }
    return true;
}

/* False: an error. True: call end. */
static bool begin(baton_schedule_t *schedule, const char *builder,
                  const baton_alltoall_t **given, exchange_t *out)
{
    const baton_alltoall_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_alltoall_t");
    if (args == NULL) {
        return false;
    }
    *given = args;
    int size = baton_schedule_size(schedule);
    *out = (exchange_t){.flow = baton__flow_open(schedule, BATON_U8, NULL)};
    out->send_at = baton__cut_bytes(schedule, builder, "source",
                                    args->source.bytes, args->send_bytes);
    out->recv_at = baton__cut_bytes(schedule, builder, "target",
                                    args->target.bytes, args->recv_bytes);
    out->source = (baton__blocks_t){
        .memory = args->source, .at = out->send_at, .parts = size};
    out->target = (baton__blocks_t){
        .memory = args->target, .at = out->recv_at, .parts = size};
    bool right = out->send_at != NULL && out->recv_at != NULL;
    bool in_place = baton__same_place(schedule, args->source, args->target);
    if (right && in_place) {
        right = check_in_place(schedule, builder, out);
        out->source.memory =
            baton__flow_scratch(&out->flow, args->source.bytes);
        baton__flow_copy(&out->flow, out->source.memory, args->target);
    } else if (right) {
        right =
            baton__check_apart(schedule, builder, args->source, args->target);
    }
    int rank = out->flow.rank;
    if (right) {
        right = baton__check_bytes(schedule, builder,
                                   "this rank's block of the target",
                                   baton__blocks_bytes(&out->target, rank, 1),
                                   baton__blocks_bytes(&out->source, rank, 1));
    }
    if (!right) {
        end(out);
        return false;
    }
    baton__flow_copy(&out->flow, baton__blocks_view(&out->target, rank, 1),
                     baton__blocks_view(&out->source, rank, 1));
    return true;
}

void baton_alltoall_pairwise(baton_schedule_t *schedule,
                             const baton_alltoall_t *args)
{
    exchange_t exchange;
    if (!begin(schedule, "all-to-all by pairwise exchange", &args, &exchange)) {
        return;
    }
    baton__flow_t *flow = &exchange.flow;
    for (int k = 1; k < flow->size; k++) {
        int to = baton__rank_shift(flow->rank, k, flow->size);
        int from = baton__rank_shift(flow->rank, -(int64_t)k, flow->size);
        baton__blocks_send(flow, to, &exchange.source, to, 1);
        baton__blocks_recv(flow, from, &exchange.target, from, 1);
    }
    end(&exchange);
}

/* ---- Bruck ------------------------------------------------------------- */

/* One step: places[i] is where the block that is i ranks from its receiver
   lies; afterwards, where the one lies that has come instead. */
static void add_step(baton__flow_t *flow, baton_view_t *places, int bit,
                     size_t block)
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
    baton__flow_send(flow, baton__rank_shift(flow->rank, distance, flow->size),
                     out);
    baton__flow_recv(flow, baton__rank_shift(flow->rank, -distance, flow->size),
                     in);
}

static void add_bruck(exchange_t *exchange, baton_view_t *places)
{
    baton__flow_t *flow = &exchange->flow;
    size_t block = baton__blocks_bytes(&exchange->source, 0, 1);
    for (int i = 1; i < flow->size; i++) {
        places[i] = baton__blocks_view(
            &exchange->source, baton__rank_shift(flow->rank, i, flow->size), 1);
    }
    for (int bit = 0; bit < baton__log2_ceil(flow->size); bit++) {
        add_step(flow, places, bit, block);
    }
    for (int i = 1; i < flow->size; i++) {
        int from = baton__rank_shift(flow->rank, -(int64_t)i, flow->size);
        baton__flow_copy(flow, baton__blocks_view(&exchange->target, from, 1),
                         places[i]);
    }
}

void baton_alltoall_bruck(baton_schedule_t *schedule,
                          const baton_alltoall_t *args)
{
    static const char name[] = "all-to-all by Bruck";
    exchange_t exchange;
    args = baton__read_args(schedule, name, args, sizeof *args,
                            "baton_alltoall_t");
    if (args == NULL) {
        return;
    }
    if (args->send_bytes != NULL || args->recv_bytes != NULL) {
        baton_schedule_fail(schedule, BATON_ERR_UNSUPPORTED,
                            "%s: send_bytes and recv_bytes must be NULL, its "
                            "blocks are equal; use pairwise exchange",
                            name);
        return;
    }
    if (!begin(schedule, name, &args, &exchange)) {
        return;
    }
    baton_view_t *places =
        baton__alloc((size_t)exchange.flow.size, sizeof(baton_view_t));
    if (places == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "%s: no memory for the places of %d blocks", name,
                            exchange.flow.size);
    } else {
        add_bruck(&exchange, places);
    }
    baton__free(places);
    end(&exchange);
}
