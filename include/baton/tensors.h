/* A model's gradients as a set of tensors: which of them are sent whole and
   which by their largest entries, and when. The trainer's side of RedSync (Fang
   et al. 2019, "Accelerating Distributed Deep Learning Training with Gradient
   Compression", section 2) on top of sparse.h.

       ready(0) --> [copied] --+
       ready(1) --> [copied] --+--> one dense all-reduce --> wait(0), wait(1)
       ready(2) ------------------> a sparse all-reduce  --> wait(2)
       ready(3) ------------------> a dense all-reduce   --> wait(3)

   Tensors are registered with a size and a role. Every step, a rank says of
   each of them, in any order, that its gradient is ready, as backpropagation
   yields it; its all-reduce starts then and overlaps what is computed next.
   Later it waits for each result, in any order:

       for (i = count; i-- > 0;) {
           backpropagate(i, gradients[i]);
           baton_tensors_ready(set, i, gradients[i]);
       }
       for (i = 0; i < count; i++) {
           baton_tensors_wait(set, i, -1, &result);
           update(i, &result);
       }

   Biases, norms and tensors of at most small_bytes are PACKED: one dense
   all-reduce of all of them together, which starts with the last one's
   gradient. Others are SPARSE where the cost model expects that to be faster,
   and DENSE elsewhere. It compares, for M elements of b bytes, k of them sent:

       sparse = M select + lg P alpha + (P - 1) k w beta + P k entry        (1)
       dense  = 2 lg P alpha + (P - 1) / P M b (2 beta + gamma)             (2)

   (Equations 1 and 2 of its section 2.3.) lg is rounded up; w is the bytes of
   an index and a value, or of an index alone where values are quantised. alpha,
   beta and gamma are those in force (tuning.h); select, an element that is
   selected from, costs b gamma, and entry, an entry that is added, 16 b gamma.
   For
   SPARDL equation 1 is M select + 2 lg P alpha + 2 (P - 1) / P k (w beta +
   entry).

   With options.partial a step does not wait for slow ranks (sparse.h). All
   tensors are one vector then, with one all-reduce, so that a rank's step is in
   an epoch with all of them, or with none: it starts with the last gradient,
   and sends the largest entries of the whole, whatever roles and sizes are. A
   result has those of its tensor. Behind a recovery, wait for all tensors again
   and again returns what was missed, until it is BATON_ERR_STATE; gradients of
   a step that had not started are made ready again. With options.on_loss the
   set goes on by itself when ranks are lost: nothing is missed, and
   baton_tensors_shrink is BATON_ERR_UNSUPPORTED.

   Errors of an all-reduce are as in sparse.h. After a recovery all ranks go on
   with the step that failed, or with the next one.

   Gradients and results are in host memory, also where the engine has a device
   (device.h).

   Threads: one at a time uses a set. */
#ifndef BATON_TENSORS_H
#define BATON_TENSORS_H

#include <baton/sparse.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_tensors baton_tensors_t;

/* What a tensor is in its model. */
typedef enum baton_role {
    BATON_ROLE_DENSE,
    BATON_ROLE_CONVOLUTION,
    BATON_ROLE_RECURRENT,
    BATON_ROLE_BIAS_OR_NORM,
    BATON_ROLE_OUTPUT,
    BATON_ROLE_COUNT
} baton_role_t;

typedef struct baton_tensor {
    const char *name; /* for messages; NULL: its index */
    baton_role_t role;
    size_t count; /* elements, 1 to UINT32_MAX */
} baton_tensor_t;

/* How its gradient is sent. */
typedef enum baton_tensor_form {
    BATON_TENSOR_PACKED, /* whole, with other small ones */
    BATON_TENSOR_DENSE,  /* whole */
    BATON_TENSOR_SPARSE  /* by its largest entries */
} baton_tensor_form_t;

/* Zero means default. */
typedef struct baton_tensors_options {
    size_t size;         /* set by BATON_TENSORS_OPTIONS */
    const char *name;    /* for messages; NULL: "tensors" */
    baton_dtype_t dtype; /* as in baton_sparse_options_t */
    double density;      /* D, above 0 and at most 1; 0: 0.001 */
    /* REDSYNC, SPARDL, or AUTO: the one of a lower cost; REDSYNC with quantise
       and with paper_selections, which only it has. */
    baton_sparse_algorithm_t algorithm;
    bool average; /* results are divided by P */
    /* Momentum correction: the sums are those of velocities. Where an entry was
       sent its velocity becomes 0 (masking). As in baton_sparse_options_t, for
       all tensors; where they are sent whole, nothing is masked. */
    double momentum;
    bool nesterov;
    /* c: where the norm of all gradients of this rank together is above c /
       sqrt(P), they are scaled to that (local clipping). No all-reduce starts
       before all gradients are ready then. */
    double clip;
    /* The first so many steps of each tensor: dense, or, where densities are
       given, each of them for warmup / density_count steps in turn. */
    uint64_t warmup;
    const double *densities; /* each above 0 and at most 1; copied */
    size_t density_count;
    /* Alternating signs quantisation, except for the OUTPUT (ASQ; see
       baton_sparse_options_t). */
    bool quantise;
    /* The selections of the paper's policy: trimmed for CONVOLUTION; for others
       the search for a threshold, sampled where values are not quantised. They
       are slower on processors than the exact selection, which is used else. */
    bool paper_selections;
    size_t small_bytes; /* 0: 131072 */
    bool always_sparse; /* above small_bytes: whatever the cost model says */
    /* As in baton_sparse_options_t. With SPARDL, which AUTO is then; without
       densities. */
    bool partial;
    baton_partial_mode_t mode;
    uint32_t mode_ranks;
    uint32_t history;
    uint32_t sync_every;
    uint32_t max_staleness;
    uint64_t seed;
    baton_on_loss_t on_loss;
} baton_tensors_options_t;

#define BATON_TENSORS_OPTIONS BATON_INITIALIZER(baton_tensors_options_t)

/* ---- life -------------------------------------------------------------- */

/* Collective, as baton_sparse_create: all ranks create the same tensors with
   the same options, which are compared, names too; where they differ, or some
   are wrong, create fails on all ranks. Each SPARSE and DENSE tensor has a
   sparse all-reduce of its own, and PACKED ones have one together, with a copy
   of their gradients. The tensors and names are copied. A rank that lacks
   memory may leave the others to their timeout. BATON_ERR_INVALID names the
   option or the tensor, its value and the allowed range; BATON_ERR_MISMATCH,
   BATON_ERR_TIMEOUT, BATON_ERR_NO_MEMORY, errors of baton_costs_get. */
BATON_CHECKED baton_status_t
baton_tensors_create(baton_group_t *group, const baton_tensor_t *tensors,
                     size_t count, const baton_tensors_options_t *options,
                     int timeout_ms, baton_tensors_t **out);

/* The same in three parts, for one thread that plays several ranks: prepare
   begins the comparison, agree waits for it and makes the all-reduces, connect
   waits until they are made on all ranks. Between them only these and destroy
   are allowed. When one fails, the set is destroyed by the caller. */
BATON_CHECKED baton_status_t baton_tensors_prepare(
    baton_group_t *group, const baton_tensor_t *tensors, size_t count,
    const baton_tensors_options_t *options, baton_tensors_t **out);
BATON_CHECKED baton_status_t baton_tensors_agree(baton_tensors_t *set,
                                                 int timeout_ms);
BATON_CHECKED baton_status_t baton_tensors_connect(baton_tensors_t *set,
                                                   int timeout_ms);

/* As baton_sparse_destroy. NULL is allowed. */
BATON_CHECKED baton_status_t baton_tensors_destroy(baton_tensors_t *set);

/* After baton_group_shrink: as baton_sparse_shrink, of all all-reduces of the
   set. Each tensor's last step is completed on all survivors, or on none. */
BATON_CHECKED baton_status_t baton_tensors_shrink(baton_tensors_t *set,
                                                  baton_group_t *survivors,
                                                  int timeout_ms);

/* ---- steps ------------------------------------------------------------- */

/* The gradient of a tensor, its `count` elements, is ready. It stays as it is
   until wait has returned. BATON_ERR_BUSY: the tensor's last gradient was not
   waited for. BATON_ERR_INVALID: no such tensor. As baton_sparse_start. */
BATON_CHECKED baton_status_t baton_tensors_ready(baton_tensors_t *set,
                                                 size_t tensor,
                                                 const void *gradient);

/* Sets *done_out to whether the tensor's all-reduce has ended: false before it
   has started. */
BATON_CHECKED baton_status_t baton_tensors_test(baton_tensors_t *set,
                                                size_t tensor, bool *done_out);

/* Waits for a tensor's result, as baton_sparse_wait: its entries, or all of its
   elements. It is owned by the set until the next ready of the tensor, or of
   one that is packed with it. BATON_ERR_STATE: the all-reduce has not started;
   names what it waits for. */
BATON_CHECKED baton_status_t baton_tensors_wait(baton_tensors_t *set,
                                                size_t tensor, int timeout_ms,
                                                baton_sparse_result_t *out);

/* Writes the last result as all elements of the tensor, zeros among them, after
   a wait for it. BATON_ERR_STATE: there is no result; BATON_ERR_BUSY: the
   tensor's next step, or that of one that is packed with it, runs. */
BATON_CHECKED baton_status_t baton_tensors_dense(baton_tensors_t *set,
                                                 size_t tensor, void *elements);

/* ---- to look at -------------------------------------------------------- */

/* What was decided about a tensor, the same on all ranks. */
typedef struct baton_tensor_plan {
    baton_tensor_form_t form;
    baton_sparse_algorithm_t algorithm; /* DENSE unless it is SPARSE */
    baton_redsync_t selection;          /* of REDSYNC */
    bool quantise;
    size_t k;         /* entries selected after the warm-up; 0: not SPARSE;
                         with options.partial of all tensors together */
    double sparse_us; /* by equation 1, */
    double dense_us;  /* and 2; 0 for PACKED ones */
} baton_tensor_plan_t;

BATON_CHECKED baton_status_t baton_tensors_plan(const baton_tensors_t *set,
                                                size_t tensor,
                                                baton_tensor_plan_t *out);

/* The sparse all-reduce behind a tensor, for its residual, statistics, saving
   and loading between steps; PACKED ones have the same. Not to be started,
   waited for, flushed or destroyed. NULL: no such tensor. */
baton_sparse_t *baton_tensors_sparse(baton_tensors_t *set, size_t tensor);

#ifdef __cplusplus
}
#endif
#endif
