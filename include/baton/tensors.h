/* Sets of tensors: the gradients of a model. Baton sends some of them whole,
   and of the others only the largest entries. This is the trainer's side of
   RedSync (Fang et al. 2019, "Accelerating Distributed Deep Learning Training
   with Gradient Compression", section 2) on top of sparse.h.

       ready(0) --> [copied] --+
       ready(1) --> [copied] --+--> one dense all-reduce --> wait(0), wait(1)
       ready(2) ------------------> a sparse all-reduce  --> wait(2)
       ready(3) ------------------> a dense all-reduce   --> wait(3)

   Tensors are registered with a size and a role. In every step a rank declares
   each tensor's gradient ready, in any order, as backpropagation computes it;
   the tensor's all-reduce starts then and overlaps the further computation.
   Later the rank waits for each result, in any order:

       for (i = count; i-- > 0;) {
           backpropagate(i, gradients[i]);
           baton_tensors_ready(set, i, gradients[i]);
       }
       for (i = 0; i < count; i++) {
           baton_tensors_wait(set, i, -1, &result);
           update(i, &result);
       }

   Biases, norms and tensors of at most small_bytes are PACKED: one dense
   all-reduce sums all of them, and starts when the last gradient is ready.
   Other tensors are SPARSE if the cost model expects that to be faster, else
   DENSE. The model compares, for M elements of b bytes, k of them sent:

       sparse = M select + lg P alpha + (P - 1) k w beta + P k entry        (1)
       dense  = 2 lg P alpha + (P - 1) / P M b (2 beta + gamma)             (2)

   (Equations 1 and 2 of RedSync's section 2.3.) lg is log2, rounded up. w is
   the bytes of an index and a value, or of an index alone if values are
   quantised. alpha, beta and gamma are the costs in force (tuning.h). select,
   the cost of an element to select from, is b gamma; entry, the cost of adding
   an entry, is 16 b gamma. For SPARDL equation 1 is M select + 2 lg P alpha + 2
   (P - 1) / P k (w beta + entry).

   With options.partial a step does not wait for slow ranks (sparse.h). All
   tensors are then one vector with one all-reduce, so that an epoch takes
   either all tensors of a rank's step, or none. The all-reduce starts when the
   last gradient is ready, and sends the largest entries of the whole vector,
   whatever the roles and sizes of the tensors are. A tensor's result has the
   entries of that tensor. After a recovery wait for all tensors, repeatedly, to
   get the results that this rank has missed, until wait returns
   BATON_ERR_STATE; then call baton_tensors_ready again for the gradients of a
   step that had not started. With options.on_loss the set goes on by itself
   when ranks are lost: no rank misses a result, and baton_tensors_shrink
   returns BATON_ERR_UNSUPPORTED.

   Errors of an all-reduce are as in sparse.h. After a recovery all ranks repeat
   the failed step, or all go on with the next one.

   Gradients and results are in host memory, even if the engine has a device
   (device.h).

   Threads: one at a time uses a set. */
#ifndef BATON_TENSORS_H
#define BATON_TENSORS_H

#include <baton/sparse.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_tensors baton_tensors_t;

/* A tensor's role in the model. */
typedef enum baton_role {
    BATON_ROLE_DENSE,
    BATON_ROLE_CONVOLUTION,
    BATON_ROLE_RECURRENT,
    BATON_ROLE_BIAS_OR_NORM,
    BATON_ROLE_OUTPUT,
    BATON_ROLE_COUNT
} baton_role_t;

typedef struct baton_tensor {
    const char *name; /* name in error messages; NULL: the tensor's index */
    baton_role_t role;
    size_t count; /* number of elements, 1 to UINT32_MAX */
} baton_tensor_t;

/* How much of a tensor's gradient is sent. */
typedef enum baton_tensor_form {
    /* all of it, packed with other tensors into one dense all-reduce */
    BATON_TENSOR_PACKED,
    BATON_TENSOR_DENSE, /* all of it, by a dense all-reduce of its own */
    BATON_TENSOR_SPARSE /* the k largest entries */
} baton_tensor_form_t;

/* Zero means the default, which is none or false if no other is given. */
typedef struct baton_tensors_options {
    size_t size;         /* set by BATON_TENSORS_OPTIONS */
    const char *name;    /* name in messages; NULL: "tensors" */
    baton_dtype_t dtype; /* F32, F64, F16 or BF16; 0: F32 */
    double density;      /* k / n, above 0 and at most 1; 0: 0.001 */
    /* REDSYNC, SPARDL, or AUTO, which is the cheaper of the two. AUTO is
       REDSYNC with quantise and with paper_selections, which only REDSYNC
       has. */
    baton_sparse_algorithm_t algorithm;
    bool average; /* results are divided by P */
    /* Momentum correction, 0 to below 1: velocities are summed instead of
       gradients, as in baton_sparse_options_t. A velocity becomes 0 at entries
       that were sent (masking), except in tensors that are sent whole. */
    double momentum;
    bool nesterov; /* momentum is Nesterov's */
    /* c: if the norm of all gradients of this rank together is above c /
       sqrt(P), they are scaled to that norm (local clipping). With clip no
       all-reduce starts before all gradients are ready. */
    double clip;
    /* The number of first steps of each tensor that are dense. With `densities`
       these steps have the given densities instead, one after another, each for
       warmup / density_count steps. */
    uint64_t warmup;
    const double *densities; /* each above 0 and at most 1; copied */
    size_t density_count;    /* number of `densities` */
    /* Alternating signs quantisation (ASQ), except for OUTPUT tensors: see
       baton_sparse_options_t. */
    bool quantise;
    /* The selections of the paper's policy: trimmed for CONVOLUTION; for other
       roles the search for a threshold, sampled if values are not quantised. On
       CPUs these are slower than the exact selection, which is the default. */
    bool paper_selections;
    size_t small_bytes; /* bytes of the longest PACKED tensor; 0: 131072 */
    bool always_sparse; /* tensors above small_bytes are SPARSE at any cost */
    /* True: a step does not wait for late ranks. Only with SPARDL, which AUTO
       then chooses, and without `densities`. The fields from here on are as in
       baton_sparse_options_t. */
    bool partial;
    baton_partial_mode_t mode; /* when epochs begin; 0: SOLO */
    /* number of ranks in QUORUM and CANDIDATES, 1 to P; else 0 */
    uint32_t mode_ranks;
    uint32_t history;    /* results kept for late ranks, 1 to 2^20; 0: 4 */
    uint32_t sync_every; /* N: epochs N, 2 N ... are FULL; 0: none */
    /* most epochs of staleness, 1 to history; 0: history */
    uint32_t max_staleness;
    uint64_t seed; /* any number, which decides elections */
    /* for `partial`: what the loss of a rank does; 0: steps fail */
    baton_on_loss_t on_loss;
} baton_tensors_options_t;

#define BATON_TENSORS_OPTIONS BATON_INITIALIZER(baton_tensors_options_t)

/* ---- life -------------------------------------------------------------- */

/* Collective, like baton_sparse_create: all ranks create the same tensors with
   the same options. Create compares the tensors, their names and the options
   across ranks; if they differ, or some are wrong, it fails on all ranks. Each
   SPARSE and DENSE tensor has a sparse all-reduce of its own; all PACKED ones
   share one, with a copy of their gradients. The tensors and names are copied.
   If a rank lacks memory, the others may wait until their timeout.
   BATON_ERR_INVALID names the option or the tensor, its value and the allowed
   range; BATON_ERR_MISMATCH, BATON_ERR_TIMEOUT, BATON_ERR_NO_MEMORY, errors of
   baton_costs_get. */
BATON_CHECKED baton_status_t
baton_tensors_create(baton_group_t *group, const baton_tensor_t *tensors,
                     size_t count, const baton_tensors_options_t *options,
                     int timeout_ms, baton_tensors_t **out);

/* Create in three parts, for one thread that runs several ranks: prepare begins
   the comparison, agree waits until it has ended and creates the all-reduces,
   connect waits until all ranks have created them. Between these calls only
   destroy is allowed. If one of these calls fails, the caller destroys the
   set. */
BATON_CHECKED baton_status_t baton_tensors_prepare(
    baton_group_t *group, const baton_tensor_t *tensors, size_t count,
    const baton_tensors_options_t *options, baton_tensors_t **out);
BATON_CHECKED baton_status_t baton_tensors_agree(baton_tensors_t *set,
                                                 int timeout_ms);
BATON_CHECKED baton_status_t baton_tensors_connect(baton_tensors_t *set,
                                                   int timeout_ms);

/* Like baton_sparse_destroy. NULL is allowed. */
BATON_CHECKED baton_status_t baton_tensors_destroy(baton_tensors_t *set);

/* After baton_group_shrink: like baton_sparse_shrink, for all all-reduces of
   the set. Each tensor's last step is completed on all survivors, or on
   none. */
BATON_CHECKED baton_status_t baton_tensors_shrink(baton_tensors_t *set,
                                                  baton_group_t *survivors,
                                                  int timeout_ms);

/* ---- steps ------------------------------------------------------------- */

/* Declares the gradient of a tensor, its `count` elements, ready. The gradient
   must not change until wait has returned. BATON_ERR_BUSY: the tensor's last
   result was not waited for. BATON_ERR_INVALID: no such tensor. Errors of
   baton_sparse_start. */
BATON_CHECKED baton_status_t baton_tensors_ready(baton_tensors_t *set,
                                                 size_t tensor,
                                                 const void *gradient);

/* Sets *done_out to true if the tensor's all-reduce has started and ended. */
BATON_CHECKED baton_status_t baton_tensors_test(baton_tensors_t *set,
                                                size_t tensor, bool *done_out);

/* Waits for a tensor's result, like baton_sparse_wait: the tensor's entries, or
   all of its elements. The set owns the result, until the next gradient of the
   tensor, or of a tensor that is packed with it, is ready. BATON_ERR_STATE: the
   all-reduce has not started; the message names the gradients that are not
   ready. */
BATON_CHECKED baton_status_t baton_tensors_wait(baton_tensors_t *set,
                                                size_t tensor, int timeout_ms,
                                                baton_sparse_result_t *out);

/* After a wait, writes the tensor's last result as a dense vector of `count`
   elements. BATON_ERR_STATE: there is no result. BATON_ERR_BUSY: the next step
   of the tensor, or of a tensor that is packed with it, runs. */
BATON_CHECKED baton_status_t baton_tensors_dense(baton_tensors_t *set,
                                                 size_t tensor, void *elements);

/* ---- queries ----------------------------------------------------------- */

/* The decisions about a tensor, the same on all ranks. */
typedef struct baton_tensor_plan {
    baton_tensor_form_t form;
    /* the algorithm; DENSE unless `form` is SPARSE */
    baton_sparse_algorithm_t algorithm;
    baton_redsync_t selection; /* how REDSYNC selects */
    bool quantise;
    size_t k; /* entries selected after the warm-up, with options.partial from
                 all tensors together; 0 if not SPARSE */
    double sparse_us; /* time by equation 1; 0 if PACKED */
    double dense_us;  /* time by equation 2; 0 if PACKED */
} baton_tensor_plan_t;

BATON_CHECKED baton_status_t baton_tensors_plan(const baton_tensors_t *set,
                                                size_t tensor,
                                                baton_tensor_plan_t *out);

/* Returns a tensor's sparse all-reduce, for its residual, statistics, saving
   and loading between steps; all PACKED tensors have the same one. Do not
   start, wait for, flush or destroy it. NULL: there is no such tensor. */
baton_sparse_t *baton_tensors_sparse(baton_tensors_t *set, size_t tensor);

#ifdef __cplusplus
}
#endif
#endif
