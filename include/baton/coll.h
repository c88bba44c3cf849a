/* Schedule builders: each adds one rank's part of a collective to a schedule.

   Builders add nodes and return nothing; what is wrong with their arguments is
   the schedule's sticky error, and commit reports it. All ranks of the group
   call the same builder with the same sizes. Several builders may add to one
   schedule (order them with baton_enclose), and users' own nodes mix with
   theirs. Any number of ranks, any count, 0 included. */
#ifndef BATON_COLL_H
#define BATON_COLL_H

#include <baton/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Dissemination barrier: ceil(log2 P) rounds of empty messages; it completes on
   no rank before all have begun it. (Hensgen, Finkel, Manber 1988.) */
void baton_barrier_dissemination(baton_schedule_t *schedule);

/* Binomial-tree broadcast of `data` from `root`: ceil(log2 P) rounds. */
void baton_broadcast_binomial(baton_schedule_t *schedule, int root,
                              baton_view_t data);

/* What an all-reduce works on. `target` gets the elementwise reduction of all
   ranks' `source`, bit-identical on every rank; both have the same number of
   bytes, a multiple of the element's. In place: source and target are the same
   memory, by view or by address. Otherwise they must not overlap, and source is
   not written. */
typedef struct baton_allreduce {
    size_t size; /* of this struct */
    baton_view_t source;
    baton_view_t target;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes; /* pipelining grain, where the algorithm has one; 0: its
                           default */
    void *arg;          /* for builders of your own; others ignore it */
    /* NULL, or a partial collective's: that ranks may have nothing to give in
       an epoch. Their source is then the neutral element, so a builder may
       ignore this; binomial tree and recursive doubling send and reduce nothing
       in its stead. */
    struct baton_given *given;
} baton_allreduce_t;

/* Any all-reduce: what the partial collectives take as their inner one. */
typedef void (*baton_allreduce_fn)(baton_schedule_t *schedule,
                                   const baton_allreduce_t *args);

/* Recursive doubling: each of log2 P rounds exchanges the whole vector. When P
   is not a power of two the first 2(P - 2^k) ranks fold in pairs before, and
   unfold after: two more rounds. For short vectors. (Thakur, Rabenseifner,
   Gropp 2005.) */
void baton_allreduce_recursive_doubling(baton_schedule_t *schedule,
                                        const baton_allreduce_t *args);

/* Binomial tree: reduce to rank 0, then broadcast; 2 ceil(log2 P) rounds, but
   only 2(P - 1) messages in all. For vectors that are not long where there are
   more ranks than processors, each message costing a turn on one. */
void baton_allreduce_binomial(baton_schedule_t *schedule,
                              const baton_allreduce_t *args);

/* Ring: reduce-scatter and all-gather of P blocks around a ring, 2(P-1) rounds,
   each rank sending 2(P-1)/P of the vector. Block b is reduced in the order of
   ranks b, b + 1, ... (mod P), so the reduction must be commutative. Blocks
   differ by at most one element and are cut in chunks: one is received while
   the one before is reduced. For long vectors. (Patarasuk, Yuan 2009; papers:
   ring-allreduce.) */
void baton_allreduce_ring(baton_schedule_t *schedule,
                          const baton_allreduce_t *args);

/* Activation tree for any P: `begin` fires on this rank as soon as any rank's
   `initiate` node fired in this epoch (directly, or through the tree), exactly
   once. It is the union of P binomial trees by offset: the initiator r sends to
   r+1, r+2, r+4, ... (mod P); a rank at offset o that was reached in step t
   goes on to o + 2^s for all s > t with o + 2^s < P. P - 1 messages for one
   initiator. Where an epoch may have several, it must not end on any rank
   before all have begun it (an all-reduce or a barrier behind `begin` sees to
   that): a rank that is through drops what comes for the epoch, and two trees
   that cut each other so would leave ranks out. `initiate`: a node of this
   schedule, usually an on_start, or a call behind it that may skip. Returns
   `begin`, a nop. */
baton_node_t baton_add_activation(baton_schedule_t *schedule,
                                  baton_node_t initiate);

#ifdef __cplusplus
}
#endif
#endif
