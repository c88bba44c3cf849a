/* One set of calls for collectives that are partial, sparse, or both: the rows
   of the suite of properties (sim/test_properties.c). Vectors are of f64, in
   main memory. If the collective works on a device, vectors are copied to and
   from it, and every other step goes through a stream, if its result can be
   told from the stream's data alone. */
#pragma once

#include "support/cluster.h"

#include <baton/tensors.h>

typedef enum support_row {
    SUPPORT_SPARSE,
    SUPPORT_TENSORS, /* three tensors, two of which are packed */
    SUPPORT_PARTIAL, /* with KEEP_ALL */
    SUPPORT_PARTIAL_LATEST,
    SUPPORT_PARTIAL_SPARSE,
    SUPPORT_ROWS
} support_row_t;

extern const char *const support_row_names[SUPPORT_ROWS];

enum { SUPPORT_PARTS = 3, SUPPORT_TENSORS_MOST = 7 };

typedef struct support_collective {
    support_row_t row;
    int rank;
    size_t count;
    baton_sparse_t *sparse;
    baton_partial_t *partial;
    size_t tensor_count; /* tensors of the partial all-reduce; 0: it has one
                            vector */
    double *lent;        /* memory for lent contributions; NULL: they are
                            copied */
    bool is_lending;
    /* Memory of long tensors that contain the vector, for a special seed; or
       NULL. */
    double *wide;
    size_t at; /* index of the vector in `wide` */
    baton_tensors_t *tensors;
    size_t parts[SUPPORT_PARTS]; /* elements of each tensor */
    bool ready[SUPPORT_PARTS];
    emulated_t *device; /* NULL: the collective works in main memory */
    baton_stream_t stream;
    char *memory;   /* on the device: a gradient and a result */
    double *copies; /* the same in main memory, for the stream */
    int steps;
    unsigned starts;   /* of SPARSE; every other step starts in parts */
    bool in_stream;    /* the running step is in a stream */
    const double *got; /* the last result, where a stream has written it */
    bool unseen;       /* the last step was in a stream, so parts of `seen` are
                          unknown */
    bool included;     /* the last step's gradient was in time */
    double *given;     /* with in_place: the last step's gradient */
    bool stands;       /* with in_place: the gradient is in the residual, and
                          the step has no result yet */
    baton_sparse_result_t entries; /* of the last step; only some rows set it */
    baton_partial_result_t seen;   /* of the last step, if it is not sparse;
                                      only some rows set it */
} support_collective_t;

/* Returns whether the row is a baton_partial_t. */
static inline bool support_is_partial(support_row_t row)
{
    return row == SUPPORT_PARTIAL || row == SUPPORT_PARTIAL_LATEST;
}

/* Returns whether the row can work on a device. */
static inline bool support_has_device(support_row_t row)
{
    return row == SUPPORT_SPARSE || support_is_partial(row);
}

/* Returns the options of SPARSE; the other rows use those that they have. For
   the partial rows an odd seed contributes the vector tensor by tensor, a seed
   divisible by 4 lends it, and a seed that is SUPPORT_WIDE modulo 128 lends
   long tensors. */
enum { SUPPORT_WIDE = 77 };
baton_sparse_options_t support_collective_options(support_row_t row);

/* Create the collective in two parts. The second has two rounds: all ranks must
   have ended the first round before one begins the second. */
baton_status_t
support_collective_prepare(support_collective_t *self, support_row_t row,
                           baton_group_t *group,
                           const baton_sparse_options_t *options);
/* Prepares the collective on a rank of a cluster, in the memory of its device
   if it has one, with the user's stream. */
baton_status_t
support_collective_prepare_on(support_collective_t *self, support_row_t row,
                              const support_cluster_t *cluster, int rank,
                              const baton_sparse_options_t *options);
baton_status_t support_collective_connect(support_collective_t *self,
                                          int round);
baton_status_t support_collective_destroy(support_collective_t *self);

/* Contributes once more, if the collective is partial. */
baton_status_t support_collective_contribute(support_collective_t *self,
                                             const double *gradient);

/* Starts a step. *given_out is true if the gradient will be in a result or in
   what is left over. */
baton_status_t support_collective_start(support_collective_t *self,
                                        const double *gradient,
                                        bool *given_out);
baton_status_t support_collective_test(support_collective_t *self, bool *done);

/* Waits for the step, and sets *ended if it has a result; otherwise the step
   has failed. Returns the first error. `ended` may be NULL. */
baton_status_t support_collective_wait(support_collective_t *self,
                                       double *result, bool *ended);

/* To be called after a recovery. If the device failed to copy a result, waits
   report that until a later result was copied. The gradient of a step that has
   failed for good is removed from a residual that is in place. */
void support_collective_settle(support_collective_t *self);

/* Writes the f64 entries of a result into a dense vector. */
void support_dense_of(const baton_sparse_result_t *result, size_t count,
                      double *vector);

/* Stores the sum of all contributions that are in no result yet. */
void support_collective_rest(support_collective_t *self, double *rest);
