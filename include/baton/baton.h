/* Baton: the collectives of MPI and NCCL as objects that run again and again,
   in the background; and all-reduces that do not wait for the slowest rank, or
   send only the largest entries of a gradient.

   Read from top to bottom, this header is all that a training loop needs:

       baton_engine_open(NULL, &engine);
       baton_group_create_mpi(engine, MPI_COMM_WORLD, &group); // baton/mpi.h
       baton_allreduce_create(group,
                              &(baton_allreduce_t){.target = gradient,
                                                   .count = n,
                                                   .dtype = BATON_F32,
                                                   .op = BATON_SUM},
                              &sum);
       for (step = 0; step < steps; step++) {
           backward(gradient);
           baton_schedule_start(sum);
           ...                              // computes meanwhile
           baton_schedule_wait(sum, -1);
           update(weights, gradient);
       }

   Words. An ENGINE makes progress; a process has one. A GROUP is a communicator
   of P ranks. A SCHEDULE is a collective that was prepared, as by
   MPI_Allreduce_init. An EPOCH is one execution of a schedule, from start to
   wait, and no pass over the data: the k-th start is epoch k.

   Calls return a status, and results by their last argument. Any thread may
   make any call, but one at a time starts and destroys a schedule. Destroying
   NULL is no error. Other headers:

     mpi.h, mpi_at.h, inproc.h       groups over MPI; inside one process
     partial.h, sparse.h, tensors.h  more of what ends this header
     memory.h                        vectors that peers read in place
     device.h, cuda.h                vectors in the memory of a GPU
     engine.h                        options of an engine; the log; the version
     build.h, coll.h, select.h       to write collectives; to start ahead
     tuning.h, costs.h               which algorithm is taken, and why
     sim.h, proof.h                  a million ranks in virtual time
     transport.h                     a transport of your own */
#ifndef BATON_BATON_H
#define BATON_BATON_H

#include <baton/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BATON_VERSION_MAJOR 0
#define BATON_VERSION_MINOR 1
#define BATON_VERSION_PATCH 0

/* ---- the engine ---------------------------------------------------------

   A thread that calls start, test or wait makes progress itself; the engine's
   own thread takes over what is in flight while the program computes, and
   sleeps when nothing is. `options` may be NULL. Destroy all groups before
   close: as long as one is left it does nothing but return BATON_ERR_BUSY, and
   the error message names it. */
typedef struct baton_engine baton_engine_t;
struct baton_engine_options; /* engine.h */
BATON_CHECKED baton_status_t baton_engine_open(
    const struct baton_engine_options *options, baton_engine_t **out);
BATON_CHECKED baton_status_t baton_engine_close(baton_engine_t *engine);

/* ---- groups ------------------------------------------------------------- */

typedef struct baton_group baton_group_t;
int baton_group_rank(const baton_group_t *group);
int baton_group_size(const baton_group_t *group); /* P */

/* Destroy what was made in it first: BATON_ERR_BUSY names what is left.
   Collective over MPI. Takes at most BATON_DESTROY_MS. */
BATON_CHECKED baton_status_t baton_group_destroy(baton_group_t *group);

/* Makes a group usable again after a failure. Collective: all ranks call it,
   whether an epoch failed there or not; what still runs is cancelled. Then all
   schedules are as after their creation; their next epoch is number 1. Waits
   timeout_ms at most; a negative number, here and below, means for ever.
   BATON_ERR_TIMEOUT: call it again to go on. BATON_ERR_TRANSPORT: a rank is
   gone. BATON_ERR_FAILED: some still fail: they differ, or a peer has none. */
BATON_CHECKED baton_status_t baton_group_recover(baton_group_t *group,
                                                 int timeout_ms);

/* Makes a group of the ranks that live, in their order, after some are lost:
   killed, or on a host that does not answer. Collective over those that live,
   which get the same members; one that dies later is lost to it. Old epochs
   that wait for a rank in this call fail. Create schedules anew, and destroy
   both groups, in any order. An epoch may have ended on some alone: agree on
   the step to repeat. BATON_ERR_TRANSPORT: others may go on alone (mpi.h). */
BATON_CHECKED baton_status_t baton_group_shrink(baton_group_t *group,
                                                int timeout_ms,
                                                baton_group_t **survivors_out);

/* Makes a group of some ranks of another, this one among them, without a
   message: rank i of it is ranks[i] of the parent. Its ranks call with the same
   list and name; the k-th such call on one belongs with the k-th on the others.
   Losses and recoveries concern its ranks alone. It shares what the parent has
   opened, so it costs microseconds, 1.6 KiB and 56 bytes a rank, and no
   descriptor. Messages call its schedules "name/schedule"; the name may be
   empty. Groups are destroyed in any order, and this kind waits for nobody.
   BATON_ERR_INVALID, _NO_MEMORY; BATON_ERR_UNSUPPORTED: a simulator's;
   BATON_ERR_LIMIT: another name helps. */
BATON_CHECKED baton_status_t baton_group_create_sub(baton_group_t *parent,
                                                    const int *ranks, int size,
                                                    const char *name,
                                                    baton_group_t **out);

/* The rank in the group of which create_sub or shrink made this one; or -1. */
int baton_group_origin(const baton_group_t *group, int rank);

/* ---- collectives --------------------------------------------------------

   One struct says what any of them works on: leave fields that a collective
   does not use at zero. Create prepares the collective without waiting for
   other ranks, all of which create it with the same counts, type, op, root and
   name. The vectors are used until the schedule is destroyed, the struct only
   during the call. An error names the field. */
typedef struct baton_schedule baton_schedule_t;
typedef struct baton_operands {
    const void *source; /* NULL: in place, as in MPI: target has the data */
    void *target;
    size_t count; /* elements of the vector; of one block, where each rank has
                     a block of it, in rank order */
    baton_dtype_t dtype;
    const baton_op_t *op;
    int root;
    const size_t *counts; /* of reduce_scatter (or count) and those with a v:
                             elements of each rank's block */
    const size_t *target_counts; /* of alltoallv: of each block that comes;
                                    counts are of those that go */
    const char *algorithm; /* by name, as `baton-info --choices P` lists them;
                              NULL: what is expected to be fastest */
    const char *name;      /* in messages; and for ranks that create in another
                              order: the k-th of a name belong together. NULL:
                              "allreduce" and so on */
    baton_memory_t memory; /* of source and target, the same kind on all ranks:
                              device.h */
    size_t depth; /* epochs that may be in flight at once (build.h); 0: 1 */
    const void *reserved[2]; /* NULL */
} baton_operands_t;

#define BATON_CREATES(noun)                                                    \
    typedef baton_operands_t baton_##noun##_t;                                 \
    BATON_CHECKED baton_status_t baton_##noun##_create(                        \
        baton_group_t *group, const baton_##noun##_t *operands,                \
        baton_schedule_t **out)

BATON_CREATES(allreduce); /* target: op of all ranks' sources */
BATON_CREATES(reduce);    /* the same, at the root alone */
BATON_CREATES(scan);      /* of the sources of ranks 0 to this one */
BATON_CREATES(exscan);    /* 0 to the one before; rank 0's is left alone */
BATON_CREATES(broadcast); /* target: the root's; there is no source */
BATON_CREATES(allgather); /* target: every rank's source, as a block */
BATON_CREATES(allgatherv);
BATON_CREATES(gather);   /* the same, at the root alone */
BATON_CREATES(gatherv);  /* counts at the root; others give their count */
BATON_CREATES(scatter);  /* target: this rank's block of the root's source;
                            in place: at the root, target is NULL */
BATON_CREATES(scatterv); /* counts as of gatherv */
BATON_CREATES(alltoall); /* block r of source goes to rank r */
BATON_CREATES(alltoallv);
BATON_CREATES(reduce_scatter); /* target: this rank's block of an allreduce; in
                                  place: at the front of the whole vector */
BATON_CREATES(barrier); /* ends when all ranks have started it; NULL will do */

/* The same in one call that waits. All ranks make them in the same order, on
   one thread at a time. The group keeps the schedules of the last 32 shapes;
   one is best in place always or never: else the vector is copied. */
#define BATON_NOW(noun, ...)                                                   \
    BATON_CHECKED baton_status_t baton_##noun##_now(baton_group_t *group,      \
                                                    __VA_ARGS__)
BATON_NOW(allreduce, const void *source, void *target, size_t count,
          baton_dtype_t dtype, const baton_op_t *op);
BATON_NOW(reduce, const void *source, void *target, size_t count,
          baton_dtype_t dtype, const baton_op_t *op, int root);
BATON_NOW(reduce_scatter, const void *source, void *target, size_t count,
          baton_dtype_t dtype, const baton_op_t *op);
BATON_NOW(broadcast, void *target, size_t count, baton_dtype_t dtype, int root);
BATON_NOW(allgather, const void *source, void *target, size_t count,
          baton_dtype_t dtype);
BATON_CHECKED baton_status_t baton_barrier_now(baton_group_t *group);

/* Any other, made anew each time: baton_now(group, baton_scan_create, &of). */
typedef baton_status_t baton_create_fn(baton_group_t *,
                                       const baton_operands_t *,
                                       baton_schedule_t **out);
BATON_CHECKED baton_status_t baton_now(baton_group_t *group,
                                       baton_create_fn *create,
                                       const baton_operands_t *operands);

/* ---- running ------------------------------------------------------------

   Starts the next epoch, which uses the vectors until it has ended. Returns at
   once: BATON_ERR_BUSY if `depth` epochs have not ended; BATON_ERR_FAILED after
   a failure, until recovery; BATON_ERR_MISMATCH if ranks differ. */
BATON_CHECKED baton_status_t baton_schedule_start(baton_schedule_t *schedule);

/* Sets *done_out to whether all started epochs have ended, or returns the error
   of the last one. Makes a little progress; does not block. */
BATON_CHECKED baton_status_t baton_schedule_test(baton_schedule_t *schedule,
                                                 bool *done_out);

/* Waits until they have. An epoch that fails does so on all ranks on which it
   has not ended, with those behind it, and the vectors are the caller's again:
   targets then hold anything, so keep a copy of what is reduced in place.
   After BATON_ERR_TIMEOUT, whose message says what it waits for and which rank
   all others wait for, and after _INTERRUPTED (engine.h): wait again. */
BATON_CHECKED baton_status_t baton_schedule_wait(baton_schedule_t *schedule,
                                                 int timeout_ms);

/* Fails what has been started with BATON_ERR_CANCELLED, here and on the peers.
   BATON_ERR_STATE when it has ended. */
BATON_CHECKED baton_status_t baton_schedule_cancel(baton_schedule_t *schedule);

/* Waits until what was started has ended, for at most BATON_DESTROY_MS, and
   cancels it then. BATON_ERR_TIMEOUT: a peer uses vectors; call it again. */
BATON_CHECKED baton_status_t baton_schedule_destroy(baton_schedule_t *schedule);

/* ---- partial: without the slow ranks ------------------------------------

   An all-reduce of gradients whose epoch does not wait for all contributions.
   Every step, a rank contributes, starts and waits; the sum is in result.data:

       baton_partial_contribute(partial, gradient);
       baton_partial_start(partial);
       baton_partial_wait(partial, -1, &result);

   Contribute adds to what is pending on this rank. An epoch begins as the mode
   says, and takes what is pending, or nothing from a rank that is late: that
   goes into the next one. Each contribution is in exactly one result; results
   have the same bits on all ranks, which all start as many steps. Partial.h has
   the paper, the guarantees, and what a recovery does. */
typedef struct baton_partial baton_partial_t;
/* When an epoch begins. */
typedef enum baton_partial_mode {
    BATON_SOLO,     /* at the first start of any rank; about 1 contributes */
    BATON_MAJORITY, /* at that of ONE rank, elected by lot; about (P + 1) / 2 */
    BATON_FULL,     /* on each rank at its own start: all contribute */
    BATON_QUORUM,   /* when mode_ranks ranks have started: at least so many */
    BATON_CANDIDATES_ANY, /* when any of mode_ranks elected ones has started */
    BATON_CANDIDATES_ALL  /* when all of them have */
} baton_partial_mode_t;

/* What becomes of results that a slow rank has not seen yet. */
typedef enum baton_keep {
    BATON_KEEP_ALL,   /* it gets each, in order: weights stay equal. A rank that
                         is `history` epochs behind holds up the others */
    BATON_KEEP_LATEST /* it misses some: weights run apart */
} baton_keep_t;

/* What becomes of the partial when ranks are lost. */
typedef enum baton_on_loss {
    BATON_ON_LOSS_FAIL,    /* its epochs fail */
    BATON_ON_LOSS_CONTINUE /* it goes on among those that live */
} baton_on_loss_t;

struct baton_allreduce_args;
typedef struct baton_partial_options {
    size_t size;      /* set by BATON_PARTIAL_OPTIONS */
    const char *name; /* for messages; NULL: "partial" */
    baton_partial_mode_t mode;
    uint32_t mode_ranks; /* of QUORUM and CANDIDATES, 1 to P; else 0 */
    baton_keep_t keep;
    uint32_t history;       /* epochs of results that are kept; 0: 4, or 1 with
                               KEEP_LATEST */
    uint32_t sync_every;    /* N: epochs N, 2 N ... are FULL; 0: none */
    uint32_t max_staleness; /* S: an epoch waits for a rank whose contribution
                               would be more than S epochs old; 0: no bound */
    uint64_t seed;          /* of elections; the same on all ranks */
    size_t count;           /* elements */
    baton_dtype_t dtype;
    const baton_op_t *op; /* NULL: BATON_SUM */
    void (*inner)(baton_schedule_t *schedule,
                  const struct baton_allreduce_args *args); /* NULL: chosen */
    void *inner_arg;
    baton_memory_t memory;
    baton_on_loss_t on_loss;
    size_t tensors;       /* 0: one; else partial.h, and in host memory */
    const size_t *counts; /* elements of each tensor, with `count` 0 */
} baton_partial_options_t;
#define BATON_PARTIAL_OPTIONS BATON_INITIALIZER(baton_partial_options_t)

typedef struct baton_partial_result {
    uint64_t epoch;     /* whose result this is */
    const void *data;   /* until this rank's next wait */
    bool included;      /* whether this step's contribution is in it */
    uint32_t active;    /* how many ranks contributed to it */
    uint64_t staleness; /* age, in epochs, of the oldest that this rank did */
    uint32_t living;    /* ranks that took part: all but those that were lost */
} baton_partial_result_t;

/* All ranks create it with the same options. Destroy, start, test and wait are
   as a schedule's; a step not waited for is lost. Contribute copies `data`. */
BATON_CHECKED baton_status_t baton_partial_create(
    baton_group_t *group, const baton_partial_options_t *options,
    baton_partial_t **out);
BATON_CHECKED baton_status_t baton_partial_destroy(baton_partial_t *partial);
BATON_CHECKED baton_status_t baton_partial_contribute(baton_partial_t *partial,
                                                      const void *data);
BATON_CHECKED baton_status_t baton_partial_start(baton_partial_t *partial);
BATON_CHECKED baton_status_t baton_partial_test(baton_partial_t *partial,
                                                bool *done_out);
BATON_CHECKED baton_status_t baton_partial_wait(baton_partial_t *partial,
                                                int timeout_ms,
                                                baton_partial_result_t *out);

/* ---- sparse: the largest entries alone ----------------------------------

   An all-reduce of the k largest entries of each rank's gradient. The others
   wait in a residual, which the collective owns, for a later step:

       baton_sparse_start(sparse, gradient);
       baton_sparse_wait(sparse, -1, &result);

   Sparse.h has the algorithms, papers, checkpoints, and the other fields. */
typedef struct baton_sparse baton_sparse_t;
typedef enum baton_sparse_algorithm {
    BATON_SPARSE_AUTO, /* the one that costs least, for k, P and machine */
    BATON_SPARSE_SPARDL,
    BATON_SPARSE_TOPKA,
    BATON_SPARSE_TOPKDSA,
    BATON_SPARSE_GTOPK,
    BATON_SPARSE_OKTOPK,
    BATON_SPARSE_REDSYNC,
    BATON_SPARSE_DENSE,
    BATON_SPARSE_COUNT
} baton_sparse_algorithm_t;
typedef enum baton_exchange {
    BATON_EXCHANGE_AUTO,
    BATON_EXCHANGE_RSAG,
    BATON_EXCHANGE_BSAG
} baton_exchange_t;
typedef enum baton_redsync {
    BATON_REDSYNC_EXACT,
    BATON_REDSYNC_TRIMMED,
    BATON_REDSYNC_SEARCH,
    BATON_REDSYNC_SAMPLED
} baton_redsync_t;
typedef struct baton_link_cost {
    double alpha_us, beta_ns; /* a message, a byte */
} baton_link_cost_t;

/* Zero means the default. Set `count`, and either k or density. */
typedef struct baton_sparse_options {
    size_t size; /* set by BATON_SPARSE_OPTIONS */
    const char *name;
    baton_sparse_algorithm_t algorithm;
    baton_dtype_t dtype; /* f32, f64, f16, bf16; 0: f32 */
    size_t count;        /* n, elements of the gradient */
    size_t k;            /* entries that are sent, 1 to n; 0: by density */
    double density;      /* k / n */
    size_t max_k;
    int teams;
    baton_exchange_t exchange;
    bool average;    /* the result is divided by P */
    double momentum; /* instead of the optimizer's, 0 to below 1 */
    bool nesterov;
    double clip;     /* a gradient's norm is at most clip / sqrt(P) */
    uint64_t warmup; /* the first so many steps are dense */
    baton_redsync_t redsync;
    bool quantise;
    baton_link_cost_t link;
    bool partial; /* late gradients go out later: as in baton_partial_options */
    baton_partial_mode_t mode;
    uint32_t mode_ranks;
    uint32_t history;
    uint32_t sync_every;
    uint32_t max_staleness;
    uint64_t seed;
    baton_memory_t memory;
    bool in_place;       /* gradients are added to baton_sparse_accumulator's */
    bool short_velocity; /* momentum: u is kept as bf16 */
    baton_on_loss_t on_loss; /* with partial */
} baton_sparse_options_t;
#define BATON_SPARSE_OPTIONS BATON_INITIALIZER(baton_sparse_options_t)

typedef struct baton_sparse_result {
    size_t count;            /* entries */
    const uint32_t *indices; /* ascending; NULL after a dense step: all */
    const void *values;      /* until the next start */
    bool included;           /* false if partial, and this rank was late */
} baton_sparse_result_t;

/* Create waits until all ranks have; options that are wrong fail on all ranks.
   The gradient stays as it is until the step has ended. */
BATON_CHECKED baton_status_t
baton_sparse_create(baton_group_t *group, const baton_sparse_options_t *options,
                    int timeout_ms, baton_sparse_t **out);
BATON_CHECKED baton_status_t baton_sparse_destroy(baton_sparse_t *sparse);
BATON_CHECKED baton_status_t baton_sparse_start(baton_sparse_t *sparse,
                                                const void *gradient);
BATON_CHECKED baton_status_t baton_sparse_wait(baton_sparse_t *sparse,
                                               int timeout_ms,
                                               baton_sparse_result_t *out);

#ifdef __cplusplus
}
#endif
#endif
