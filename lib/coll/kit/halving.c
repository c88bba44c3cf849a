#include "coll/kit/phases.h"

/* Recursive halving: in each round a rank has a range of blocks, [low, low +
   count). It keeps one half, and sends the other half to the id that differs in
   the round's bit, which keeps that half. 4 ids, nearest last:

       id 0                              id 2
       0 1 2 3 --- send 2 3 ------------> reduce 2 3
               <-- recv 0 1 ------------- 0 1
       0 1 ------- send 1 ---> id 1      2 3 --- send 3 ---> id 3
           <------ recv 0 ----               <-- recv 2 ---
       0                                 2

   Recursive doubling does the same rounds in the opposite order. */
typedef struct round {
    int peer;  /* the peer's rank */
    int keep;  /* the first block of the half that this rank keeps */
    int give;  /* the first block of the half that this rank sends */
    int count; /* number of blocks of a half */
    bool left; /* the peer's partial sum is the left operand */
} round_t;

static round_t round_of(const baton__fold_t *fold, int index, int rounds,
                        baton__halving_order_t order)
{
    int low = 0;
    int count = fold->core;
    int bit = 0;
    bool upper = false;
    for (int i = 0; i <= index; i++) {
        bit = order == BATON__NEAREST_FIRST ? i : rounds - 1 - i;
        upper = (fold->id >> bit & 1) != 0;
        count /= 2;
        low += upper ? count : 0;
    }
    int peer = fold->id ^ (1 << bit);
    round_t round = {
        .peer = baton__fold_rank(fold, peer),
        .keep = low,
        .give = upper ? low - count : low + count,
        .count = count,
        .left = peer < fold->id,
    };
    return round;
}

void baton__halving_reduce_scatter(baton__flow_t *flow,
                                   const baton__fold_t *fold,
                                   const baton__blocks_t *target,
                                   const baton__blocks_t *source,
                                   baton__halving_order_t order,
                                   baton_view_t result)
{
    int rounds = baton__log2_ceil(fold->core);
    for (int i = 0; i < rounds; i++) {
        round_t round = round_of(fold, i, rounds, order);
        baton_view_t received = baton__flow_scratch(
            flow, baton__blocks_bytes(target, round.keep, round.count));
        baton__blocks_send(flow, round.peer, source, round.give, round.count);
        baton__flow_recv(flow, round.peer, received);
        baton__blocks_t last = {.memory = result,
                                .at = target->at,
                                .parts = target->parts,
                                .base = round.keep};
        bool ends = i == rounds - 1 && result.bytes > 0;
        flow->is_total = i == rounds - 1;
        baton__blocks_reduce(flow, ends ? &last : target, received, source,
                             round.keep, round.count, round.left);
        source = target;
    }
}

void baton__doubling_allgather(baton__flow_t *flow, const baton__fold_t *fold,
                               const baton__blocks_t *blocks,
                               baton__halving_order_t order)
{
    int rounds = baton__log2_ceil(fold->core);
    for (int i = rounds - 1; i >= 0; i--) {
        round_t round = round_of(fold, i, rounds, order);
        baton__blocks_send(flow, round.peer, blocks, round.keep, round.count);
        baton__blocks_recv(flow, round.peer, blocks, round.give, round.count);
    }
}
