/* Sparse all-reduces on every rank of a simulated group or of a cluster.
   Gradients are in main memory or in the memory of the ranks' devices. */
#pragma once

#include "support/cluster.h"

#include <baton/sim.h>

typedef struct support_sparse {
    baton_sim_t *sim;           /* NULL: the ranks are those of `cluster` */
    support_cluster_t *cluster; /* NULL: the ranks are those of `sim` */
    baton_sparse_options_t options;
    int size;
    size_t element;         /* bytes of an element */
    baton_sparse_t **ranks; /* an array of [size] */
    baton_sparse_result_t *results;
    /* Each of the two is an array of `size` vectors, one for each rank. */
    char *gradients, *residuals;
    char *dense; /* the last result as a dense vector */
    /* An array of [size]: on each rank's device, memory for a gradient and a
       result. NULL: there are no devices. */
    char **there;
    bool in_parts; /* gradients are contributed in parts */
    int steps;     /* number of steps for which the test has waited */
} support_sparse_t;

/* Create the sparse all-reduces, in a new simulator or on a cluster. Fail the
   test unless that succeeds on all ranks. If the simulator has no payload,
   there are no vectors. support_sparse_close does not close the cluster. */
support_sparse_t *support_sparse_open(int size,
                                      const baton_sparse_options_t *options);
support_sparse_t *support_sparse_open_in(const baton_sim_options_t *sim,
                                         const baton_sparse_options_t *options);
support_sparse_t *support_sparse_open_on(support_cluster_t *cluster,
                                         const baton_sparse_options_t *options);
void support_sparse_close(support_sparse_t *group);

/* Return a rank's gradient, and its residual as it was when it was read
   last. */
void *support_sparse_gradient(support_sparse_t *group, int rank);
const void *support_sparse_residual(const support_sparse_t *group, int rank);

/* Fills the gradients, of f32 or f64, with random integers. The same `step`
   always gives the same integers. */
void support_sparse_fill(support_sparse_t *group, uint64_t step);

/* Starts a step on all ranks. */
void support_sparse_start(support_sparse_t *group);

/* Puts a rank's step into the user's stream, which copies the gradient to the
   device, runs the step, and copies the dense result back. `gradient` and
   `dense` are in main memory. */
void support_sparse_put(support_sparse_t *group, int rank, const void *gradient,
                        void *dense);

/* Waits for a step of all ranks. Fails the test unless the result is the same
   on all ranks, to the last bit, with ascending indices. */
void support_sparse_wait(support_sparse_t *group);

/* Returns whether both results are the same, to the last bit. */
bool support_sparse_same(const baton_sparse_result_t *left,
                         const baton_sparse_result_t *right, size_t element);

/* Fails the test with a message that names the group's options. */
void support_sparse_differs(const support_sparse_t *group, const char *what,
                            int rank, int step);

void support_sparse_read_residuals(support_sparse_t *group);

/* Runs one step of all ranks, and reads the residuals. */
void support_sparse_step(support_sparse_t *group);

/* Recovers the groups of all ranks. */
void support_sparse_recover(support_sparse_t *group);
