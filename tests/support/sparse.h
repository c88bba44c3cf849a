/* Sparse all-reduces on every rank of a simulated group. */
#pragma once

#include <baton/sim.h>

typedef struct support_sparse {
    baton_sim_t *sim;
    baton_sparse_options_t options;
    int size;
    size_t element;         /* bytes of an element */
    baton_sparse_t **ranks; /* [size] */
    baton_sparse_result_t *results;
    char *gradients, *residuals; /* `size` vectors each */
    char *dense;                 /* the last result as a dense vector */
    bool in_parts;               /* gradients are contributed in parts */
} support_sparse_t;

/* Open the group. They fail the test unless create returns BATON_OK on all
   ranks. Without payload there are no vectors. */
support_sparse_t *support_sparse_open(int size,
                                      const baton_sparse_options_t *options);
support_sparse_t *support_sparse_open_in(const baton_sim_options_t *sim,
                                         const baton_sparse_options_t *options);
void support_sparse_close(support_sparse_t *group);

/* Return a rank's vectors, of n elements. */
void *support_sparse_gradient(support_sparse_t *group, int rank);
const void *support_sparse_residual(const support_sparse_t *group, int rank);

/* Fills the gradients, of f32 or f64, with integers that depend on `step`
   alone. */
void support_sparse_fill(support_sparse_t *group, uint64_t step);

/* All ranks start a step. */
void support_sparse_start(support_sparse_t *group);

/* Runs one step of all ranks, and reads the residuals. Fails the test unless
   the result is the same on all ranks, to the last bit, with ascending
   indices. */
void support_sparse_step(support_sparse_t *group);

/* Recovers the groups of all ranks. */
void support_sparse_recover(support_sparse_t *group);
