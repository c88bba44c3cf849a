/* Baton: the collectives of MPI and NCCL as objects that run again and again,
   in the background; and all-reduces that do not wait for the slowest rank, or
   send only the largest entries of a gradient.

   Read from top to bottom, this header is all that a training loop needs:

       baton_engine_open(NULL, &engine);
       baton_group_create_mpi(engine, MPI_COMM_WORLD, &group); // baton/mpi.h
       baton_allreduce_create(group,
                              &(baton_operands_t){.target = gradient,
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
   wait, not a pass over the data: the k-th start is epoch k.

   Calls return a status, and store results through their last argument. Any
   thread may make any call, but only one at a time may start or destroy a
   schedule. Destroying NULL is allowed. Other headers:

     mpi.h, mpi_at.h, inproc.h       groups over MPI; inside one process
     partial.h, sparse.h, tensors.h  partial and sparse all-reduces in full
     memory.h                        vectors that peers read in place
     device.h, cuda.h                vectors in the memory of a GPU
     engine.h                        options of an engine; the log; the version
     lateness.h, trace.h             who is late; what each process does, when
     build.h, coll.h, select.h       to write collectives; to start ahead
     tuning.h, costs.h               how algorithms are chosen
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

   A thread that calls start, test or wait makes progress itself. The engine's
   own thread makes progress while the program computes, and sleeps while no
   epoch is in flight. `options` may be NULL. Destroy all groups before close:
   while one is left, close does nothing and returns BATON_ERR_BUSY. */
typedef struct baton_engine baton_engine_t;
struct baton_engine_options; /* declared in engine.h */
BATON_CHECKED baton_status_t baton_engine_open(
    const struct baton_engine_options *options, baton_engine_t **out);
BATON_CHECKED baton_status_t baton_engine_close(baton_engine_t *engine);

/* ---- groups ------------------------------------------------------------- */

typedef struct baton_group baton_group_t;
int baton_group_rank(const baton_group_t *group);
int baton_group_size(const baton_group_t *group); /* the number of ranks, P */

/* Destroy the group's schedules first: BATON_ERR_BUSY names one that is left.
   Collective for groups over MPI and of a store, in any order; an engine's last
   destroy waits for the other ranks, for at most BATON_DESTROY_MS. */
BATON_CHECKED baton_status_t baton_group_destroy(baton_group_t *group);

/* Makes a group usable again after a failure. Collective: all ranks call it,
   whether or not an epoch failed there; epochs that still run are cancelled.
   Afterwards all schedules are as after their creation, and their next epoch is
   number 1. Waits for at most timeout_ms; a negative timeout, here and below,
   means for ever. BATON_ERR_TIMEOUT: call it again to go on.
   BATON_ERR_TRANSPORT: a rank is gone. BATON_ERR_FAILED: some schedules are
   still failed, since they differ across ranks or a peer lacks one. */
BATON_CHECKED baton_status_t baton_group_recover(baton_group_t *group,
                                                 int timeout_ms);

/* Makes a group of the survivors, in their order, after ranks are lost: killed,
   or on a host that does not answer. Collective over the survivors, which all
   get the same members; a rank that dies later is lost in the new group. If an
   epoch of the old group waits for a rank that has made this call, the epoch
   fails. Create schedules anew, and destroy both groups, in any order. An epoch
   may have ended on some ranks and failed on others, so the survivors must
   agree on the step to repeat. BATON_ERR_TRANSPORT: see mpi.h. */
BATON_CHECKED baton_status_t baton_group_shrink(baton_group_t *group,
                                                int timeout_ms,
                                                baton_group_t **survivors_out);

/* Makes a subgroup of some ranks of `parent`, including this one, without a
   message. Rank i of the subgroup is ranks[i] of the parent. All ranks of the
   subgroup call this with the same list and name; the k-th such call on one
   rank belongs with the k-th on the others. Losses and recoveries concern the
   subgroup's ranks alone. The subgroup shares the parent's connections: it
   costs microseconds, 1.6 KiB and 56 bytes a rank, and no descriptor. Error
   messages call its schedules "name/schedule"; the name may be empty. Destroy
   both groups in any order; destroying a subgroup waits for no rank.
   BATON_ERR_INVALID, _NO_MEMORY; BATON_ERR_UNSUPPORTED: a simulated parent;
   BATON_ERR_LIMIT: choose another name. */
BATON_CHECKED baton_status_t baton_group_create_sub(baton_group_t *parent,
                                                    const int *ranks, int size,
                                                    const char *name,
                                                    baton_group_t **out);

/* A rank's number in the group from which create_sub, shrink or reconfigure
   (store.h) made this one, and -1 for a rank that has joined; `rank` itself in
   other groups; -1 if there is no such rank. */
int baton_group_origin(const baton_group_t *group, int rank);

/* ---- collectives --------------------------------------------------------

   Each function baton_NAME_create prepares one collective, without waiting for
   other ranks. Its schedule, *out, is the caller's: destroy it at the end. One
   struct describes the operands: leave fields that a collective does not use at
   zero. All ranks create with the same counts, type, op, root and name. The
   vectors are used until the schedule is destroyed, the struct only during the
   call. An error message names the wrong field. */
typedef struct baton_schedule baton_schedule_t;
typedef struct baton_operands {
    const void *source; /* NULL: in place, as in MPI: target has the data */
    void *target;       /* gets the result */
    /* Number of elements of the vector; or, if the vector has a block for each
       rank, in rank order, of one block. */
    size_t count;
    baton_dtype_t dtype;  /* the type of the elements */
    const baton_op_t *op; /* the reduction; NULL if there is none */
    int root;             /* the root's rank; 0 if there is no root */
    /* Number of elements of each rank's block. For the collectives whose names
       end in v, and for reduce_scatter instead of `count`. */
    const size_t *counts;
    /* For alltoallv: number of elements from each rank. `counts` has the number
       of elements to each rank. */
    const size_t *target_counts;
    /* A name that `baton-info --choices P` lists; NULL: Baton chooses. */
    const char *algorithm;
    /* Names the schedule in messages, and pairs schedules: the k-th schedule of
       a name on one rank belongs with the k-th on the others. NULL: the name of
       the collective, such as "allreduce". */
    const char *name;
    baton_memory_t memory; /* where both vectors are; the same on all ranks */
    size_t depth; /* the most epochs in flight, 1 to 1024 (build.h); 0: 1 */
    const void *reserved[2]; /* must be NULL */
} baton_operands_t;

/* The target of every rank gets `op` of all ranks' sources. */
BATON_CHECKED baton_status_t
baton_allreduce_create(baton_group_t *group, const baton_operands_t *operands,
                       baton_schedule_t **out);

/* As allreduce, but writes only the root's target. Others need no target. */
BATON_CHECKED baton_status_t
baton_reduce_create(baton_group_t *group, const baton_operands_t *operands,
                    baton_schedule_t **out);

/* The target of rank r gets `op` of the sources of ranks 0 to r. */
BATON_CHECKED baton_status_t baton_scan_create(baton_group_t *group,
                                               const baton_operands_t *operands,
                                               baton_schedule_t **out);

/* The target of rank r gets `op` of the sources of ranks 0 to r - 1. Rank 0's
   target is not written. */
BATON_CHECKED baton_status_t
baton_exscan_create(baton_group_t *group, const baton_operands_t *operands,
                    baton_schedule_t **out);

/* Every rank's target gets the root's target. There is no source. */
BATON_CHECKED baton_status_t
baton_broadcast_create(baton_group_t *group, const baton_operands_t *operands,
                       baton_schedule_t **out);

/* Every rank's target gets the sources of all ranks, a block for each rank. */
BATON_CHECKED baton_status_t
baton_allgather_create(baton_group_t *group, const baton_operands_t *operands,
                       baton_schedule_t **out);

/* As allgather, with blocks of different lengths: `counts` has the elements of
   each rank's block, the same on all ranks. */
BATON_CHECKED baton_status_t
baton_allgatherv_create(baton_group_t *group, const baton_operands_t *operands,
                        baton_schedule_t **out);

/* As allgather, but writes only the root's target. Others need no target. */
BATON_CHECKED baton_status_t
baton_gather_create(baton_group_t *group, const baton_operands_t *operands,
                    baton_schedule_t **out);

/* As gather, with blocks of different lengths: the root gives `counts`, each
   other rank the `count` of its own block. */
BATON_CHECKED baton_status_t
baton_gatherv_create(baton_group_t *group, const baton_operands_t *operands,
                     baton_schedule_t **out);

/* The target of rank r gets block r of the root's source. In place, at the
   root, target is NULL: the root's block stays where it is. */
BATON_CHECKED baton_status_t
baton_scatter_create(baton_group_t *group, const baton_operands_t *operands,
                     baton_schedule_t **out);

/* As scatter, with blocks of different lengths: the root gives `counts`, each
   other rank the `count` of its own block. */
BATON_CHECKED baton_status_t
baton_scatterv_create(baton_group_t *group, const baton_operands_t *operands,
                      baton_schedule_t **out);

/* The target of rank r gets block r of each rank's source, in rank order. */
BATON_CHECKED baton_status_t
baton_alltoall_create(baton_group_t *group, const baton_operands_t *operands,
                      baton_schedule_t **out);

/* As alltoall, with blocks of different lengths: `counts` has the elements that
   go to each rank, `target_counts` those that come from each rank. */
BATON_CHECKED baton_status_t
baton_alltoallv_create(baton_group_t *group, const baton_operands_t *operands,
                       baton_schedule_t **out);

/* The target of rank r gets block r of the result of an allreduce. In place,
   target has the whole vector, and its front gets the block. */
BATON_CHECKED baton_status_t baton_reduce_scatter_create(
    baton_group_t *group, const baton_operands_t *operands,
    baton_schedule_t **out);

/* An epoch ends when all ranks have started it. Operands may be NULL. */
BATON_CHECKED baton_status_t
baton_barrier_create(baton_group_t *group, const baton_operands_t *operands,
                     baton_schedule_t **out);

/* These calls run one collective and wait for it. All ranks make them in the
   same order, on one thread at a time; ranks whose calls differ get
   BATON_ERR_MISMATCH. The group keeps the schedules of the last 32 shapes
   (collective, count, type, op and root). Use a shape always in place or never;
   otherwise Baton copies the vector. */
BATON_CHECKED baton_status_t baton_allreduce_now(baton_group_t *group,
                                                 const void *source,
                                                 void *target, size_t count,
                                                 baton_dtype_t dtype,
                                                 const baton_op_t *op);
BATON_CHECKED baton_status_t baton_reduce_now(baton_group_t *group,
                                              const void *source, void *target,
                                              size_t count, baton_dtype_t dtype,
                                              const baton_op_t *op, int root);
BATON_CHECKED baton_status_t baton_reduce_scatter_now(
    baton_group_t *group, const void *source, void *target, size_t count,
    baton_dtype_t dtype, const baton_op_t *op);
BATON_CHECKED baton_status_t baton_broadcast_now(baton_group_t *group,
                                                 void *target, size_t count,
                                                 baton_dtype_t dtype, int root);
BATON_CHECKED baton_status_t baton_allgather_now(baton_group_t *group,
                                                 const void *source,
                                                 void *target, size_t count,
                                                 baton_dtype_t dtype);
BATON_CHECKED baton_status_t baton_barrier_now(baton_group_t *group);

/* Creates any collective, runs it once and destroys it: baton_now(group,
   baton_scan_create, &of). */
typedef baton_status_t baton_create_fn(baton_group_t *,
                                       const baton_operands_t *,
                                       baton_schedule_t **out);
BATON_CHECKED baton_status_t baton_now(baton_group_t *group,
                                       baton_create_fn *create,
                                       const baton_operands_t *operands);

/* ---- running ------------------------------------------------------------

   Starts the next epoch, which uses the vectors until it has ended. May yield
   the processor, but does not sleep. BATON_ERR_BUSY: `depth` epochs have not
   ended. BATON_ERR_FAILED: an epoch has failed, and the group was not recovered
   since. BATON_ERR_MISMATCH: the ranks' operands differ. */
BATON_CHECKED baton_status_t baton_schedule_start(baton_schedule_t *schedule);

/* Sets *done_out to true if all started epochs have ended, or returns the error
   of the last one. Makes a little progress; does not block. */
BATON_CHECKED baton_status_t baton_schedule_test(baton_schedule_t *schedule,
                                                 bool *done_out);

/* Waits until all started epochs have ended. An epoch that fails on one rank
   fails on every rank on which it has not ended, with all epochs after it.
   After a failure the vectors are the caller's again, and targets are
   undefined: keep a copy of vectors reduced in place. After BATON_ERR_TIMEOUT,
   whose message names the awaited message and rank, or BATON_ERR_INTERRUPTED
   (engine.h), wait again. */
BATON_CHECKED baton_status_t baton_schedule_wait(baton_schedule_t *schedule,
                                                 int timeout_ms);

/* Fails all started epochs with BATON_ERR_CANCELLED, here and on the peers.
   BATON_ERR_STATE: all have ended. */
BATON_CHECKED baton_status_t baton_schedule_cancel(baton_schedule_t *schedule);

/* Waits for at most BATON_DESTROY_MS until all started epochs have ended.
   Cancels those that have not ended by then. BATON_ERR_TIMEOUT: a peer still
   uses this rank's vectors; call it again. */
BATON_CHECKED baton_status_t baton_schedule_destroy(baton_schedule_t *schedule);

/* ---- partial: without the slow ranks ------------------------------------

   An all-reduce of gradients whose epoch does not wait for all contributions.
   Every step, a rank contributes, starts and waits; the sum is in result.data:

       baton_partial_contribute(partial, gradient);
       baton_partial_start(partial);
       baton_partial_wait(partial, -1, &result);

   Contribute adds a vector to the rank's pending contribution. An epoch begins
   when the mode says, and takes all contributions pending then; a late rank's
   contribution goes into a later epoch. Each contribution is in exactly one
   result, and results have the same bits on all ranks. All ranks start the same
   number of steps. Partial.h has the paper and all guarantees. */
typedef struct baton_partial baton_partial_t;
/* The rule by which an epoch begins. */
typedef enum baton_partial_mode {
    BATON_SOLO,     /* at the first start of any rank; about one contributes */
    BATON_MAJORITY, /* at the start of ONE elected rank; about (P + 1) / 2 do */
    BATON_FULL,     /* on each rank at its own start: all contribute */
    BATON_QUORUM,   /* when mode_ranks ranks have started, or more */
    BATON_CANDIDATES_ANY, /* when one of mode_ranks elected ranks has started */
    BATON_CANDIDATES_ALL  /* when all mode_ranks elected ranks have started */
} baton_partial_mode_t;

/* Which results a slow rank gets. */
typedef enum baton_keep {
    BATON_KEEP_ALL,   /* every result, in order: weights stay equal. A rank that
                         is `history` epochs late holds up the others */
    BATON_KEEP_LATEST /* the latest result only: weights diverge */
} baton_keep_t;

/* How a partial all-reduce reacts when ranks are lost. */
typedef enum baton_on_loss {
    BATON_ON_LOSS_FAIL,    /* epochs fail */
    BATON_ON_LOSS_CONTINUE /* epochs go on among the survivors */
} baton_on_loss_t;

struct baton_allreduce_args;
typedef struct baton_partial_options {
    size_t size;               /* set by BATON_PARTIAL_OPTIONS */
    const char *name;          /* for messages; NULL: "partial" */
    baton_partial_mode_t mode; /* when epochs begin; 0: SOLO */
    uint32_t mode_ranks;       /* QUORUM, CANDIDATES: how many ranks; else 0 */
    baton_keep_t keep;         /* results of a slow rank; 0: KEEP_ALL */
    /* results kept for late ranks, 1 to 2^20; 0: 4, or 1 with KEEP_LATEST */
    uint32_t history;
    uint32_t sync_every; /* N: epochs N, 2 N ... are FULL; 0: none */
    /* bound of staleness, 1 to 2^20: epochs wait to keep it; 0: no bound */
    uint32_t max_staleness;
    uint64_t seed;        /* any number, which decides elections */
    size_t count;         /* number of elements */
    baton_dtype_t dtype;  /* the elements' type; must be set */
    const baton_op_t *op; /* the reduction; NULL: BATON_SUM */
    /* Builds the all-reduce of an epoch; NULL: Baton chooses the builder. */
    void (*inner)(baton_schedule_t *schedule,
                  const struct baton_allreduce_args *args);
    void *inner_arg;         /* passed to `inner` as args->arg */
    baton_memory_t memory;   /* where contributions and results are; 0: host */
    baton_on_loss_t on_loss; /* what the loss of a rank does; 0: epochs fail */
    size_t tensors;          /* number of tensors (partial.h); 0: one vector */
    const size_t *counts; /* elements of each tensor; `count` may be 0 then */
} baton_partial_options_t;
#define BATON_PARTIAL_OPTIONS BATON_INITIALIZER(baton_partial_options_t)

typedef struct baton_partial_result {
    uint64_t epoch;     /* the number of the epoch */
    const void *data;   /* the sum; valid until this rank's next wait */
    bool included;      /* the sum includes this step's contribution */
    uint32_t active;    /* number of ranks that contributed to the sum */
    uint64_t staleness; /* age in epochs of this rank's oldest contribution */
    uint32_t living;    /* number of ranks that are not lost */
} baton_partial_result_t;

/* All ranks call baton_partial_create with the same options.
   baton_partial_contribute copies `data`. Start, test, wait and destroy do what
   they do for a schedule. A rank that starts its next step before it has waited
   for this one can't get this step's result any more. */
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
   stay in a residual, which the collective owns, for a later step:

       baton_sparse_start(sparse, gradient);
       baton_sparse_wait(sparse, -1, &result);

   Sparse.h has the algorithms and papers, checkpoints, and all options. */
typedef struct baton_sparse baton_sparse_t;
typedef enum baton_sparse_algorithm {
    BATON_SPARSE_AUTO, /* the cheapest for k, P and the machine */
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
    double alpha_us, beta_ns; /* per message, per byte; 0 or more */
} baton_link_cost_t;

/* Zero means the default. Set `count`, and either k or density. */
typedef struct baton_sparse_options {
    size_t size; /* set by BATON_SPARSE_OPTIONS */
    /* Used in messages, and to pair the ranks. NULL: "sparse". */
    const char *name;
    baton_sparse_algorithm_t algorithm; /* 0: AUTO, the cheapest one */
    baton_dtype_t dtype;                /* F32, F64, F16 or BF16; 0: F32 */
    size_t count;   /* n, elements of the gradient; below 2^32 */
    size_t k;       /* entries to select, 1 to n; 0: by density */
    double density; /* k / n, above 0 and at most 1 */
    size_t max_k;   /* largest k that may be set later, k to n; 0: k */
    int teams; /* number of teams (SPARDL), divides P; 0: 1; -1: cheapest */
    baton_exchange_t exchange; /* how teams exchange sums; 0: AUTO */
    bool average;              /* the result is divided by P */
    double momentum;           /* 0 to below 1; the optimizer's must be 0 */
    bool nesterov;             /* momentum is Nesterov's */
    double clip;               /* gradients' norm <= clip / sqrt(P); 0: any */
    uint64_t warmup;           /* number of first steps that are dense */
    baton_redsync_t redsync;   /* how REDSYNC selects; 0: EXACT */
    bool quantise;             /* REDSYNC sends the mean of the values alone */
    baton_link_cost_t link;    /* costs for AUTO; 0: those of costs.h */
    bool partial;              /* steps do not wait for late ranks */
    /* The fields from here to `seed` are for `partial`. */
    baton_partial_mode_t mode; /* when epochs begin; 0: SOLO */
    uint32_t mode_ranks;       /* QUORUM, CANDIDATES: how many ranks; else 0 */
    uint32_t history;          /* results for late ranks, 1 to 2^20; 0: 4 */
    uint32_t sync_every;       /* N: epochs N, 2 N ... are FULL; 0: none */
    uint32_t max_staleness;    /* in epochs, 1 to history; 0: history */
    uint64_t seed;             /* any number, which decides elections */
    baton_memory_t memory;     /* where gradients are; 0: host */
    bool in_place;             /* add gradients to baton_sparse_accumulator */
    bool short_velocity;       /* keep the velocity of momentum as bf16 */
    baton_on_loss_t on_loss;   /* with `partial`; 0: steps fail at a loss */
} baton_sparse_options_t;
#define BATON_SPARSE_OPTIONS BATON_INITIALIZER(baton_sparse_options_t)

typedef struct baton_sparse_result {
    size_t count;            /* number of entries */
    const uint32_t *indices; /* ascending; NULL (dense step): all elements */
    const void *values;      /* valid, like indices, until the next start */
    bool included; /* false: a partial step for which this rank was late */
} baton_sparse_result_t;

/* Create waits for all ranks; wrong options of one rank make it fail on all.
   The gradient must not change until the step has ended. */
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
