/* Schedule builders: each adds one rank's part of a collective to a schedule.

   Builders add nodes and return nothing; what is wrong with their arguments is
   the schedule's sticky error, and commit reports it. All ranks of the group
   call the same builder with the same sizes. Several may add to one schedule
   (order them with baton_enclose_begin), and users' own nodes mix with theirs.
   Any count, 0 included. */
#ifndef BATON_COLL_H
#define BATON_COLL_H

#include <baton/build.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Dissemination barrier: ceil(log2 P) rounds of empty messages; it completes on
   no rank before all have begun it. (Hensgen, Finkel, Manber 1988.) */
void baton_add_barrier(baton_schedule_t *schedule);

/* What a broadcast works on: `data` of `root` goes to all ranks. */
typedef struct baton_broadcast_args {
    size_t size; /* set by BATON_BROADCAST_ARGS */
    int root;
    baton_view_t data;
    size_t chunk_bytes;    /* pipelining grain, where the algorithm has one; 0
                              means its default */
    const char *algorithm; /* of baton_add_broadcast alone */
} baton_broadcast_args_t;

#define BATON_BROADCAST_ARGS BATON_INITIALIZER(baton_broadcast_args_t)

/* Binomial tree: ceil(log2 P) rounds. */
void baton_add_broadcast_binomial(baton_schedule_t *schedule,
                                  const baton_broadcast_args_t *args);

/* Linear pipeline: blocks of chunk_bytes (default 64 KiB) go down the chain
   root, root + 1, ... (mod P), each passed on while the next one comes:
   P - 2 + n / b steps, whatever P, for long data. (Wang et al. 2017, "Efficient
   Communications in Training Large Scale Neural Networks", section 3.) */
void baton_add_broadcast_linear_pipeline(baton_schedule_t *schedule,
                                         const baton_broadcast_args_t *args);

/* Binomial scatter of P blocks, then their all-gather round a ring:
   ceil(log2 P) + P - 1 messages of 2(P-1)/P of the data. (Van de Geijn 1994,
   "On Global Combine Operations"; the "BE" that Wang et al. 2017 compare with.)
 */
void baton_add_broadcast_scatter_allgather(baton_schedule_t *schedule,
                                           const baton_broadcast_args_t *args);

/* Double binary tree: each half of the data goes down a tree of its own in
   segments of chunk_bytes (default 64 KiB). An inner rank of one tree is a leaf
   of the other, so all ports are busy. (Sanders, Speck, Traff 2009.) */
void baton_add_broadcast_double_tree(baton_schedule_t *schedule,
                                     const baton_broadcast_args_t *args);

/* Flat tree: the root sends the data to each rank. For ranks of one host, each
   of which makes its own copy. */
void baton_add_broadcast_flat(baton_schedule_t *schedule,
                              const baton_broadcast_args_t *args);

/* ---- reduce ------------------------------------------------------------ */

/* `target` of `root` gets the elementwise reduction of all ranks' `source`. On
   other ranks it is ignored, and may be {0}. In place, at the root: source and
   target are the same memory, by view or by address. Otherwise they must not
   overlap. Source is not written. */
typedef struct baton_reduce_args {
    size_t size; /* set by BATON_REDUCE_ARGS */
    int root;
    baton_view_t source;
    baton_view_t target;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes;    /* as above */
    const char *algorithm; /* of baton_add_reduce alone */
} baton_reduce_args_t;

#define BATON_REDUCE_ARGS BATON_INITIALIZER(baton_reduce_args_t)

/* Binomial tree, ceil(log2 P) rounds. A reduction that is not commutative goes
   up the tree of rank 0, which sends the result to the root. */
void baton_add_reduce_binomial(baton_schedule_t *schedule,
                               const baton_reduce_args_t *args);

/* Linear pipeline: partial sums of blocks of chunk_bytes (default 64 KiB) go up
   a chain that ends at the root; a block is received while the one before is
   reduced and the one before that is sent. A reduction that is not commutative
   needs root 0 or P - 1. (Wang et al. 2017, section 3.) */
void baton_add_reduce_linear_pipeline(baton_schedule_t *schedule,
                                      const baton_reduce_args_t *args);

/* Reduce-scatter on the circulant graph, then a binomial gather of the P
   blocks: 2 ceil(log2 P) rounds, 2(P-1)/P of the vector. For commutative
   reductions. (The "BE" of Wang et al. 2017.) */
void baton_add_reduce_scatter_gather(baton_schedule_t *schedule,
                                     const baton_reduce_args_t *args);

/* Reduce-scatter by pairwise exchange, in segments of chunk_bytes (default 256
   KiB); each rank sends its block to the root. For long vectors, ranks of one
   host, and commutative reductions. */
void baton_add_reduce_pairwise(baton_schedule_t *schedule,
                               const baton_reduce_args_t *args);

/* ---- all-reduce -------------------------------------------------------- */

/* What an all-reduce works on. `target` gets the elementwise reduction of all
   ranks' `source`, bit-identical on every rank; both have the same number of
   bytes, a multiple of the element's. In place: source and target are the same
   memory, by view or by address. Otherwise they must not overlap, and source is
   not written. */
typedef struct baton_allreduce_args {
    size_t size; /* set by BATON_ALLREDUCE_ARGS */
    baton_view_t source;
    baton_view_t target;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes;    /* pipelining grain, where the algorithm has one; 0
                              means its default */
    void *arg;             /* for builders of your own; others ignore it */
    const char *algorithm; /* of baton_add_allreduce alone */
    /* NULL, or set by a partial collective in which ranks may have nothing to
       give in an epoch. Their source is then the neutral element, so a builder
       may ignore this; the binomial tree sends and reduces nothing in its
       stead. */
    struct baton_given *given;
} baton_allreduce_args_t;

#define BATON_ALLREDUCE_ARGS BATON_INITIALIZER(baton_allreduce_args_t)

/* Any all-reduce: what the partial collectives take as their inner one. */
typedef void (*baton_allreduce_fn)(baton_schedule_t *schedule,
                                   const baton_allreduce_args_t *args);

/* Recursive doubling: each of log2 P rounds exchanges the whole vector. When P
   is not a power of two the first 2(P - 2^k) ranks fold in pairs before, and
   unfold after: two more rounds. For short vectors; and for 512 KiB to 4 MiB on
   two ranks of a host, which have scratch for two. (Thakur, Rabenseifner, Gropp
   2005.) */
void baton_add_allreduce_recursive_doubling(baton_schedule_t *schedule,
                                            const baton_allreduce_args_t *args);

/* Binomial tree: reduce to rank 0, then broadcast; 2 ceil(log2 P) rounds, but
   only 2(P - 1) messages in all. For vectors that are not long where there are
   more ranks than processors, each message costing a turn on one. */
void baton_add_allreduce_binomial(baton_schedule_t *schedule,
                                  const baton_allreduce_args_t *args);

/* Ring: reduce-scatter and all-gather of P blocks around a ring, 2(P-1) rounds,
   each rank sending 2(P-1)/P of the vector. Block b is reduced in the order of
   ranks b, b + 1, ... (mod P), so the reduction must be commutative. Blocks
   differ by at most one element and are cut in chunks: one is received while
   the one before is reduced. For long vectors. (Patarasuk, Yuan 2009,
   "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations";
   Gibiansky 2017, "Bringing HPC Techniques to Deep Learning".) */
void baton_add_allreduce_ring(baton_schedule_t *schedule,
                              const baton_allreduce_args_t *args);

/* Rabenseifner: reduce-scatter by recursive halving, all-gather by recursive
   doubling, of blocks that differ by at most one element: 2 log2 P rounds,
   2(P-1)/P of the vector. Folded as recursive doubling is when P is not a power
   of two. Keeps the order of ranks. (Rabenseifner 2004; Thakur et al. 2005.) */
void baton_add_allreduce_rabenseifner(baton_schedule_t *schedule,
                                      const baton_allreduce_args_t *args);

/* Linear pipeline, reduce and broadcast overlapped: partial sums of blocks of
   chunk_bytes (default 64 KiB) go from rank 0 to rank P - 1, which sends the
   sums on to rank 0, so that the pipe is filled once. Keeps the order of ranks.
   (Wang et al. 2017, section 3.) */
void baton_add_allreduce_linear_pipeline(baton_schedule_t *schedule,
                                         const baton_allreduce_args_t *args);

/* Reduce-scatter and all-gather on the circulant graph of the skips
   ceil(P/2), ceil(P/4), ..., 1: 2 ceil(log2 P) rounds and 2(P-1)/P of the
   vector for any P, without a fold. For commutative reductions. (Traff 2023,
   "Optimal, non-pipelined reduce-scatter and allreduce algorithms".) */
void baton_add_allreduce_circulant(baton_schedule_t *schedule,
                                   const baton_allreduce_args_t *args);

/* Pairwise exchange: each rank receives its block of the vector from all
   others, reduces it, and sends it to them: 2(P-1) messages a rank for each
   segment, which wait for nobody else's. In segments of chunk_bytes (default
   256 KiB), each of which stays in a cache until it has been sent. For long
   vectors, ranks of one host, and commutative reductions. Where ranks share
   processors, ordinary memory is copied into scratch: of about the size of the
   vector, and at most 2(P-1) segments and a block. */
void baton_add_allreduce_pairwise(baton_schedule_t *schedule,
                                  const baton_allreduce_args_t *args);

/* Flat tree: rank 0 receives all vectors, and sends the sum to each rank. Keeps
   the order of ranks. For short vectors, and many ranks that share a host's
   processors. */
void baton_add_allreduce_flat(baton_schedule_t *schedule,
                              const baton_allreduce_args_t *args);

/* Double binary tree: each half of the vector is reduced up a tree of its own
   and broadcast down again, in segments of chunk_bytes (default 64 KiB). Keeps
   the order of ranks. (Sanders, Speck, Traff 2009.) */
void baton_add_allreduce_double_tree(baton_schedule_t *schedule,
                                     const baton_allreduce_args_t *args);

/* Where the ranks are, for the hierarchical all-reduce: the same on all ranks,
   and read while it is built only. */
typedef struct baton_hosts {
    size_t size;     /* set by BATON_HOSTS */
    const int *host; /* of each rank, any numbers; NULL: by host_ranks */
    int host_ranks;  /* without `host`: hosts of so many ranks in rank order,
                        the last one with the rest */
} baton_hosts_t;

#define BATON_HOSTS BATON_INITIALIZER(baton_hosts_t)

/* Hierarchical: reduce-scatter inside each host, an all-reduce of each block
   between the hosts, all-gather inside each host. args->arg points to a
   baton_hosts_t; NULL: as the group's ranks are placed. The vector is cut in as
   many blocks as the smallest host has ranks, so that hosts may differ. All
   three use the circulant graph. For commutative reductions. */
void baton_add_allreduce_hierarchical(baton_schedule_t *schedule,
                                      const baton_allreduce_args_t *args);

/* ---- reduce-scatter, all-gather ---------------------------------------- */

/* Block r of the reduction of all ranks' `source` goes to `target` of rank r.
   Blocks are counts[r] elements, in rank order; if counts is NULL they differ
   by at most one element, the larger ones first. In place: target is this
   rank's block of the source, whose other blocks are then overwritten. */
typedef struct baton_reduce_scatter_args {
    size_t size; /* set by BATON_REDUCE_SCATTER_ARGS */
    baton_view_t source;
    baton_view_t target;
    const size_t *counts; /* by rank, the same on all; read while it is built */
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes;    /* as above */
    const char *algorithm; /* of baton_add_reduce_scatter alone */
} baton_reduce_scatter_args_t;

#define BATON_REDUCE_SCATTER_ARGS BATON_INITIALIZER(baton_reduce_scatter_args_t)

/* Ring: P - 1 hops of a block, in chunks of chunk_bytes (default 512 KiB). For
   commutative reductions. */
void baton_add_reduce_scatter_ring(baton_schedule_t *schedule,
                                   const baton_reduce_scatter_args_t *args);

/* Recursive halving, folded when P is not a power of two. For commutative
   reductions. */
void baton_add_reduce_scatter_recursive_halving(
    baton_schedule_t *schedule, const baton_reduce_scatter_args_t *args);

/* Circulant graph: ceil(log2 P) rounds and (P-1)/P of the vector for any P. For
   commutative reductions. (Traff 2023.) */
void baton_add_reduce_scatter_circulant(
    baton_schedule_t *schedule, const baton_reduce_scatter_args_t *args);

/* Pairwise exchange: each rank receives its block from all others, in segments
   of chunk_bytes (default 256 KiB). For commutative reductions. */
void baton_add_reduce_scatter_pairwise(baton_schedule_t *schedule,
                                       const baton_reduce_scatter_args_t *args);

/* `source` of rank r goes to block r of `target` on all ranks. Blocks are
   block_bytes[r] bytes, in rank order; NULL means P equal ones. In place:
   source is this rank's block of the target. */
typedef struct baton_allgather_args {
    size_t size; /* set by BATON_ALLGATHER_ARGS */
    baton_view_t source;
    baton_view_t target;
    const size_t *block_bytes; /* by rank, the same on all; read while it is
                                  built */
    size_t chunk_bytes;        /* as above */
    const char *algorithm;     /* of baton_add_allgather alone */
} baton_allgather_args_t;

#define BATON_ALLGATHER_ARGS BATON_INITIALIZER(baton_allgather_args_t)

/* Ring: P - 1 hops of a block, in chunks of chunk_bytes (default 512 KiB). */
void baton_add_allgather_ring(baton_schedule_t *schedule,
                              const baton_allgather_args_t *args);

/* Recursive doubling, folded when P is not a power of two. */
void baton_add_allgather_recursive_doubling(baton_schedule_t *schedule,
                                            const baton_allgather_args_t *args);

/* Bruck: ceil(log2 P) rounds for any P. (Bruck et al. 1997.) */
void baton_add_allgather_bruck(baton_schedule_t *schedule,
                               const baton_allgather_args_t *args);

/* Pairwise exchange: each rank sends its block to all others. */
void baton_add_allgather_pairwise(baton_schedule_t *schedule,
                                  const baton_allgather_args_t *args);

/* ---- scatter, gather --------------------------------------------------- */

/* Scatter: block r of `source` of the root goes to `target` of rank r; on other
   ranks source is ignored, and may be {0}. Gather: `source` of rank r goes to
   block r of `target` of the root; on other ranks target is ignored. Blocks as
   of an all-gather. In place, at the root: the smaller view is the root's block
   of the larger one. */
typedef struct baton_rooted_args {
    size_t size; /* set by BATON_ROOTED_ARGS */
    int root;
    baton_view_t source;
    baton_view_t target;
    const size_t *block_bytes; /* as above */
} baton_rooted_args_t;

#define BATON_ROOTED_ARGS BATON_INITIALIZER(baton_rooted_args_t)

/* Binomial trees: ceil(log2 P) rounds, (P-1)/P of the vector at the root. Inner
   ranks of the tree have scratch for the blocks behind them. */
void baton_add_scatter(baton_schedule_t *schedule,
                       const baton_rooted_args_t *args);
void baton_add_gather(baton_schedule_t *schedule,
                      const baton_rooted_args_t *args);

/* ---- all-to-all -------------------------------------------------------- */

/* Block q of this rank's `source` goes to block r of rank q's `target`, where r
   is this rank. send_bytes[q] and recv_bytes[q] are the blocks' bytes, in rank
   order; both NULL: all blocks are equal. In place: source and target are the
   same memory; then what goes to a rank is as long as what comes from it. */
typedef struct baton_alltoall_args {
    size_t size; /* set by BATON_ALLTOALL_ARGS */
    baton_view_t source;
    baton_view_t target;
    const size_t *send_bytes; /* by peer; read while it is built */
    const size_t *recv_bytes;
    const char *algorithm; /* of baton_add_alltoall alone */
} baton_alltoall_args_t;

#define BATON_ALLTOALL_ARGS BATON_INITIALIZER(baton_alltoall_args_t)

/* Pairwise: P - 1 messages of a block, the k-th to rank + k. */
void baton_add_alltoall_pairwise(baton_schedule_t *schedule,
                                 const baton_alltoall_args_t *args);

/* Bruck: ceil(log2 P) messages of about half of all blocks. For short, equal
   blocks. (Bruck et al. 1997.) */
void baton_add_alltoall_bruck(baton_schedule_t *schedule,
                              const baton_alltoall_args_t *args);

/* ---- prefix reductions ------------------------------------------------- */

/* `target` of rank r gets the reduction of the sources of ranks 0 to r (scan),
   0 to r - 1 (exscan; rank 0's target is not written), in rank order. In place:
   source and target are the same memory. */
typedef struct baton_scan_args {
    size_t size; /* set by BATON_SCAN_ARGS */
    baton_view_t source;
    baton_view_t target;
    baton_dtype_t dtype;
    const baton_op_t *op;
} baton_scan_args_t;

#define BATON_SCAN_ARGS BATON_INITIALIZER(baton_scan_args_t)

/* ceil(log2 P) rounds of the whole vector, each from 2^k ranks before. (Hillis,
   Steele 1986.) */
void baton_add_scan(baton_schedule_t *schedule, const baton_scan_args_t *args);
void baton_add_exscan(baton_schedule_t *schedule,
                      const baton_scan_args_t *args);

/* ---- collectives by one name ------------------------------------------- */

/* Builders that choose (tuning.h says how). args->algorithm names an algorithm
   (NULL: chosen); a chunk_bytes of 0 is chosen with it. A name that can't be
   used is the schedule's error. baton_add_allreduce may be the inner one of a
   partial collective. */
void baton_add_broadcast(baton_schedule_t *schedule,
                         const baton_broadcast_args_t *args);
void baton_add_reduce(baton_schedule_t *schedule,
                      const baton_reduce_args_t *args);
void baton_add_allreduce(baton_schedule_t *schedule,
                         const baton_allreduce_args_t *args);
void baton_add_reduce_scatter(baton_schedule_t *schedule,
                              const baton_reduce_scatter_args_t *args);
void baton_add_allgather(baton_schedule_t *schedule,
                         const baton_allgather_args_t *args);
void baton_add_alltoall(baton_schedule_t *schedule,
                        const baton_alltoall_args_t *args);

/* ---- activation -------------------------------------------------------- */

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
