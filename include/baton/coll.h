/* Schedule builders: each adds one rank's part of a collective to a schedule.
   The builder of an algorithm is named after it; baton_add_allreduce and its
   like use the algorithm that args->algorithm names, or choose one.

   Builders add nodes and return nothing: an error in their arguments sticks to
   the schedule, and commit reports it. All ranks of the group call the same
   builder with the same sizes. Several builders may add to one schedule (order
   them with baton_enclose_begin), and so may the program itself. Counts may be
   0. */
#ifndef BATON_COLL_H
#define BATON_COLL_H

#include <baton/build.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Dissemination barrier: ceil(log2 P) rounds of empty messages; it completes on
   no rank before all have begun it. (Hensgen, Finkel, Manber 1988.) */
void baton_add_barrier(baton_schedule_t *schedule);

/* The arguments of a broadcast: all ranks get `data` of `root`. */
typedef struct baton_broadcast_args {
    size_t size;        /* set by BATON_BROADCAST_ARGS */
    int root;           /* the root's rank, 0 to P - 1 */
    baton_view_t data;  /* the same number of bytes on all ranks */
    size_t chunk_bytes; /* size of a chunk; 0: the algorithm's default */
    /* The name of the algorithm that baton_add_broadcast uses; NULL: Baton
       chooses. */
    const char *algorithm;
} baton_broadcast_args_t;

#define BATON_BROADCAST_ARGS BATON_INITIALIZER(baton_broadcast_args_t)

/* Binomial tree: ceil(log2 P) rounds. */
void baton_add_broadcast_binomial(baton_schedule_t *schedule,
                                  const baton_broadcast_args_t *args);

/* Linear pipeline: blocks of chunk_bytes (default 64 KiB) go down the chain
   root, root + 1, ... (mod P); each rank sends one block while it receives the
   next: P - 2 + n / b steps for n bytes in blocks of b bytes. For long data.
   (Wang et al. 2017, "Efficient Communications in Training Large Scale Neural
   Networks", section 3.) */
void baton_add_broadcast_linear_pipeline(baton_schedule_t *schedule,
                                         const baton_broadcast_args_t *args);

/* Binomial scatter of P blocks, then their all-gather round a ring: ceil(log2
   P) + P - 1 messages with 2(P-1)/P of the data. (Van de Geijn 1994, "On Global
   Combine Operations". Wang et al. 2017 compare their algorithm with this one,
   which they call "BE".) */
void baton_add_broadcast_scatter_allgather(baton_schedule_t *schedule,
                                           const baton_broadcast_args_t *args);

/* Double binary tree: each half of the data goes down a tree of its own in
   segments of chunk_bytes (default 64 KiB). An inner rank of one tree is a leaf
   of the other, so that all ranks send about as much as they receive. (Sanders,
   Speck, Traff 2009.) */
void baton_add_broadcast_double_tree(baton_schedule_t *schedule,
                                     const baton_broadcast_args_t *args);

/* Flat tree: the root sends the data to each rank. For ranks of one host, where
   each rank copies the data itself. */
void baton_add_broadcast_flat(baton_schedule_t *schedule,
                              const baton_broadcast_args_t *args);

/* ---- reduce ------------------------------------------------------------ */

/* `target` of `root` gets the elementwise reduction of all ranks' `source`. On
   other ranks `target` is ignored, and may be {0}. In place, at the root:
   source and target are the same memory, by view or by address. Otherwise they
   must not overlap, and source is not written. */
typedef struct baton_reduce_args {
    size_t size; /* set by BATON_REDUCE_ARGS */
    int root;    /* the root's rank, 0 to P - 1 */
    baton_view_t source;
    baton_view_t target;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes; /* size of a chunk; 0: the algorithm's default */
    /* The name of the algorithm that baton_add_reduce uses; NULL: Baton
       chooses. */
    const char *algorithm;
} baton_reduce_args_t;

#define BATON_REDUCE_ARGS BATON_INITIALIZER(baton_reduce_args_t)

/* Binomial tree, ceil(log2 P) rounds. A reduction that is not commutative goes
   up the tree of rank 0, which sends the result to the root. */
void baton_add_reduce_binomial(baton_schedule_t *schedule,
                               const baton_reduce_args_t *args);

/* Linear pipeline: partial sums of blocks of chunk_bytes (default 64 KiB) go up
   a chain that ends at the root. A rank receives one block while it reduces the
   one before and sends the one before that. A reduction that is not commutative
   needs root 0 or P - 1. (Wang et al. 2017, section 3.) */
void baton_add_reduce_linear_pipeline(baton_schedule_t *schedule,
                                      const baton_reduce_args_t *args);

/* Reduce-scatter on the circulant graph, then a binomial gather of the P
   blocks: 2 ceil(log2 P) rounds, 2(P-1)/P of the vector. For commutative
   reductions. (Wang et al. 2017 call this "BE".) */
void baton_add_reduce_scatter_gather(baton_schedule_t *schedule,
                                     const baton_reduce_args_t *args);

/* Reduce-scatter by pairwise exchange, in segments of chunk_bytes (default 256
   KiB); then each rank sends its block to the root. For long vectors, ranks of
   one host, and commutative reductions. */
void baton_add_reduce_pairwise(baton_schedule_t *schedule,
                               const baton_reduce_args_t *args);

/* ---- all-reduce -------------------------------------------------------- */

/* The arguments of an all-reduce. `target` gets the elementwise reduction of
   all ranks' `source`, bit-identical on every rank; both have the same number
   of bytes, a multiple of the element's. In place: source and target are the
   same memory, by view or by address. Otherwise they must not overlap, and
   source is not written. */
typedef struct baton_allreduce_args {
    size_t size; /* set by BATON_ALLREDUCE_ARGS */
    baton_view_t source;
    baton_view_t target;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes; /* size of a chunk; 0: the algorithm's default */
    /* an argument for the hierarchical builder, or for a builder of your own */
    void *arg;
    /* The name of the algorithm that baton_add_allreduce uses; NULL: Baton
       chooses. */
    const char *algorithm;
    /* Set by a partial collective, in which a rank may contribute nothing to an
       epoch; NULL in other collectives. The source of a rank that contributes
       nothing contains the neutral element of `op`, so a builder may ignore
       this field. The binomial tree uses this field, and sends no data for such
       a rank. */
    struct baton_given *given;
} baton_allreduce_args_t;

#define BATON_ALLREDUCE_ARGS BATON_INITIALIZER(baton_allreduce_args_t)

/* An all-reduce builder. A partial collective runs one as its inner
   all-reduce. */
typedef void (*baton_allreduce_fn)(baton_schedule_t *schedule,
                                   const baton_allreduce_args_t *args);

/* Recursive doubling: each of log2 P rounds exchanges the whole vector. If P is
   not a power of two, and 2^k is the largest power below it, the first 2(P -
   2^k) ranks fold: they form pairs, and the second rank of each pair gives its
   vector to the first one before these rounds, and gets the result after them.
   These are two more rounds. For short vectors; and for 512 KiB to 4 MiB on two
   ranks of a host, which take scratch for two vectors. (Thakur, Rabenseifner,
   Gropp 2005.) */
void baton_add_allreduce_recursive_doubling(baton_schedule_t *schedule,
                                            const baton_allreduce_args_t *args);

/* Binomial tree: reduce to rank 0, then broadcast; 2 ceil(log2 P) rounds, but
   only 2(P - 1) messages in all. For short and middle vectors if there are more
   ranks than processors, where each message costs a scheduling delay. */
void baton_add_allreduce_binomial(baton_schedule_t *schedule,
                                  const baton_allreduce_args_t *args);

/* Ring: reduce-scatter and all-gather of P blocks around a ring, 2(P-1) rounds,
   each rank sending 2(P-1)/P of the vector. Block b is reduced in the order of
   ranks b, b + 1, ... (mod P), so the reduction must be commutative. Blocks
   differ by at most one element and are divided into chunks: a rank receives
   one chunk while it reduces the one before. For long vectors. (Patarasuk, Yuan
   2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations";
   Gibiansky 2017, "Bringing HPC Techniques to Deep Learning".) */
void baton_add_allreduce_ring(baton_schedule_t *schedule,
                              const baton_allreduce_args_t *args);

/* Rabenseifner: reduce-scatter by recursive halving, all-gather by recursive
   doubling, of blocks that differ by at most one element: 2 log2 P rounds,
   2(P-1)/P of the vector. If P is not a power of two, ranks fold as in
   recursive doubling. Keeps the order of ranks. (Rabenseifner 2004; Thakur et
   al. 2005.) */
void baton_add_allreduce_rabenseifner(baton_schedule_t *schedule,
                                      const baton_allreduce_args_t *args);

/* Linear pipeline, reduce and broadcast overlapped: partial sums of blocks of
   chunk_bytes (default 64 KiB) go from rank 0 to rank P - 1; the sums go on to
   rank 0 and round the chain, so that the pipeline fills only once. Keeps the
   order of ranks. (Wang et al. 2017, section 3.) */
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
   segment, independent of other segments. A segment of chunk_bytes (default 256
   KiB) stays in a cache until it has been sent. For long vectors, ranks of one
   host, and commutative reductions. If ranks share processors, ordinary memory
   is copied into scratch: about the size of the vector, and at most 2(P-1)
   segments and a block. */
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

/* The placement of ranks on hosts, for the hierarchical all-reduce: the same on
   all ranks, and read only by the builder. */
typedef struct baton_hosts {
    size_t size;     /* set by BATON_HOSTS */
    const int *host; /* by rank: any number, equal only for ranks of one host;
                        NULL: host_ranks says where ranks are */
    int host_ranks;  /* consecutive ranks on each host; the last host has the
                        remaining ranks. Used if `host` is NULL */
} baton_hosts_t;

#define BATON_HOSTS BATON_INITIALIZER(baton_hosts_t)

/* Hierarchical: reduce-scatter inside each host, an all-reduce of each block
   between the hosts, all-gather inside each host. args->arg points to a
   baton_hosts_t; if it is NULL, the group's placement is used. The vector is
   divided into as many blocks as the smallest host has ranks, so that hosts may
   differ. All three phases use the circulant graph. For commutative
   reductions. */
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
    const size_t *counts; /* elements, by rank; read during the call only */
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes; /* size of a chunk; 0: the algorithm's default */
    /* The name of the algorithm that baton_add_reduce_scatter uses; NULL: Baton
       chooses. */
    const char *algorithm;
} baton_reduce_scatter_args_t;

#define BATON_REDUCE_SCATTER_ARGS BATON_INITIALIZER(baton_reduce_scatter_args_t)

/* Ring: P - 1 hops of a block, in chunks of chunk_bytes (default 512 KiB). For
   commutative reductions. */
void baton_add_reduce_scatter_ring(baton_schedule_t *schedule,
                                   const baton_reduce_scatter_args_t *args);

/* Recursive halving; ranks fold if P is not a power of two. For commutative
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

/* `source` of rank r goes to block r of `target` on all ranks. Block r has
   block_bytes[r] bytes; NULL means P equal blocks. Blocks are in rank order. In
   place: source is this rank's block of the target. */
typedef struct baton_allgather_args {
    size_t size; /* set by BATON_ALLGATHER_ARGS */
    baton_view_t source;
    baton_view_t target;
    const size_t *block_bytes; /* sizes, by rank; read during the call only */
    size_t chunk_bytes;        /* size of a chunk; 0: the algorithm's default */
    /* The name of the algorithm that baton_add_allgather uses; NULL: Baton
       chooses. */
    const char *algorithm;
} baton_allgather_args_t;

#define BATON_ALLGATHER_ARGS BATON_INITIALIZER(baton_allgather_args_t)

/* Ring: P - 1 hops of a block, in chunks of chunk_bytes (default 512 KiB). */
void baton_add_allgather_ring(baton_schedule_t *schedule,
                              const baton_allgather_args_t *args);

/* Recursive doubling; ranks fold if P is not a power of two. */
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
   block r of `target` of the root; on other ranks target is ignored. Blocks are
   as for an all-gather. In place, at the root: the smaller view is the root's
   block of the larger one. */
typedef struct baton_rooted_args {
    size_t size; /* set by BATON_ROOTED_ARGS */
    int root;    /* the root's rank, 0 to P - 1 */
    baton_view_t source;
    baton_view_t target;
    const size_t *block_bytes; /* sizes, by rank; read during the call only */
} baton_rooted_args_t;

#define BATON_ROOTED_ARGS BATON_INITIALIZER(baton_rooted_args_t)

/* Binomial trees: ceil(log2 P) rounds, (P-1)/P of the vector at the root. Inner
   ranks of the tree take scratch for the blocks of their subtrees. */
void baton_add_scatter(baton_schedule_t *schedule,
                       const baton_rooted_args_t *args);
void baton_add_gather(baton_schedule_t *schedule,
                      const baton_rooted_args_t *args);

/* ---- all-to-all -------------------------------------------------------- */

/* Block q of this rank's `source` goes to block r of rank q's `target`, where r
   is this rank. send_bytes[q] and recv_bytes[q] are the blocks' bytes, in rank
   order; both NULL: all blocks are equal. In place: source and target are the
   same memory, and send_bytes equals recv_bytes. */
typedef struct baton_alltoall_args {
    size_t size; /* set by BATON_ALLTOALL_ARGS */
    baton_view_t source;
    baton_view_t target;
    const size_t *send_bytes; /* sizes, by peer; read during the call only */
    const size_t *recv_bytes; /* sizes, by peer; read during the call only */
    /* The name of the algorithm that baton_add_alltoall uses; NULL: Baton
       chooses. */
    const char *algorithm;
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

/* `target` of rank r gets the reduction, in rank order, of the sources of ranks
   0 to r (scan), or of ranks 0 to r - 1 (exscan; rank 0's target is not
   written). In place: source and target are the same memory. */
typedef struct baton_scan_args {
    size_t size; /* set by BATON_SCAN_ARGS */
    baton_view_t source;
    baton_view_t target;
    baton_dtype_t dtype;
    const baton_op_t *op;
} baton_scan_args_t;

#define BATON_SCAN_ARGS BATON_INITIALIZER(baton_scan_args_t)

/* ceil(log2 P) rounds of the whole vector; in round k a rank receives from the
   rank 2^k before it. (Hillis, Steele 1986.) */
void baton_add_scan(baton_schedule_t *schedule, const baton_scan_args_t *args);
void baton_add_exscan(baton_schedule_t *schedule,
                      const baton_scan_args_t *args);

/* ---- collectives by one name ------------------------------------------- */

/* Builders that choose the algorithm (tuning.h says how), unless
   args->algorithm names one. If chunk_bytes is 0, they also choose the size of
   a chunk. A name that can't be used is an error of the schedule.
   baton_add_allreduce may be the inner builder of a partial collective. */
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
   initiator. If an epoch may have several initiators, it must not end on any
   rank before all ranks have begun it; an all-reduce or a barrier after `begin`
   ensures that. Otherwise a rank that has ended the epoch drops its activation
   messages, and ranks further down the tree may never begin. `initiate` is a
   node of this schedule, usually an on_start, or a call after it that may skip.
   Returns `begin`, a nop. */
baton_node_t baton_add_activation(baton_schedule_t *schedule,
                                  baton_node_t initiate);

#ifdef __cplusplus
}
#endif
#endif
