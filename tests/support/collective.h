/* The same set of calls for collectives that are partial, sparse, or both. The
   suite of properties (sim/test_properties.c) runs with each of these
   collectives, which are called rows here. The caller's vectors are of f64, in
   main memory.

   If the collective works on a device, each step copies the caller's gradient
   to the device, and the result back. In every second step that has a gradient
   a stream does this: it copies the gradient, starts the step, waits for it,
   and copies the result. The row SUPPORT_PARTIAL_LATEST never uses the stream,
   since the latest result that a call sees may be later than the one that the
   stream got. */
#pragma once

#include "support/cluster.h"

#include <baton/tensors.h>

typedef enum support_row {
    SUPPORT_SPARSE,
    SUPPORT_TENSORS, /* three tensors, two of which are packed */
    SUPPORT_PARTIAL, /* a partial all-reduce with KEEP_ALL */
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
    /* The number of tensors of the partial all-reduce; 0: it has one vector. */
    size_t tensor_count;
    /* Memory for lent contributions. NULL: contributions are copied. */
    double *lent;
    bool is_lending;
    /* The memory of long tensors, which contain the vector. NULL: the seed asks
       for no long tensors (SUPPORT_WIDE). */
    double *wide;
    /* The index in `wide` and in `lent` at which the vector begins. */
    size_t at;
    baton_tensors_t *tensors;
    size_t parts[SUPPORT_PARTS]; /* number of elements of each tensor */
    bool ready[SUPPORT_PARTS];
    emulated_t *device; /* NULL: the collective works in main memory */
    baton_stream_t stream;
    char *memory; /* memory on the device for a gradient and a result */
    /* Main memory for a gradient and a result. The stream copies between this
       memory and the device. */
    double *copies;
    int steps;
    /* Number of sparse steps in main memory so far. Every second step
       contributes its gradient in parts. */
    unsigned starts;
    bool in_stream; /* the running step is in a stream */
    /* The last result, which is in `copies`. NULL: the last step was not in a
       stream. */
    const double *got;
    /* The last step was a partial one in a stream. So only the vector of its
       result is known, and not the other fields of `seen`. */
    bool unseen;
    bool included; /* the last result contains the last gradient */
    double *given; /* with in_place: the gradient of the last step */
    /* With in_place: the residual contains the gradient, and the step has no
       result yet. */
    bool stands;
    /* The last result, if the collective is sparse. */
    baton_sparse_result_t entries;
    /* The last result, if the collective is not sparse. */
    baton_partial_result_t seen;
} support_collective_t;

/* Returns whether the row's collective is a baton_partial_t. */
static inline bool support_is_partial(support_row_t row)
{
    return row == SUPPORT_PARTIAL || row == SUPPORT_PARTIAL_LATEST;
}

/* Returns whether the row's collective can work on a device. */
static inline bool support_has_device(support_row_t row)
{
    return row == SUPPORT_SPARSE || support_is_partial(row);
}

/* Returns the options of a row, as those of a sparse all-reduce. A row that
   lacks some of these options ignores them.

   In main memory the seed decides how partial rows contribute the vector:
   tensor by tensor if the seed is odd, by lending it if the seed is divisible
   by 4, and by lending long tensors that contain it if the seed is SUPPORT_WIDE
   modulo 128. */
enum { SUPPORT_WIDE = 77 };
baton_sparse_options_t support_collective_options(support_row_t row);

/* Create the collective in two parts: support_collective_prepare, or
   support_collective_prepare_on, and then support_collective_connect with round
   0 and with round 1. No rank may begin round 1 before all ranks have ended
   round 0. */
baton_status_t
support_collective_prepare(support_collective_t *self, support_row_t row,
                           baton_group_t *group,
                           const baton_sparse_options_t *options);
/* Prepares the collective on a rank of a cluster. If the rank has a device, the
   collective works in the device's memory, and uses the stream that the user
   has there. */
baton_status_t
support_collective_prepare_on(support_collective_t *self, support_row_t row,
                              const support_cluster_t *cluster, int rank,
                              const baton_sparse_options_t *options);
baton_status_t support_collective_connect(support_collective_t *self,
                                          int round);
baton_status_t support_collective_destroy(support_collective_t *self);

/* Contributes a vector to the next step. The row must be one for which
   support_is_partial returns true. */
baton_status_t support_collective_contribute(support_collective_t *self,
                                             const double *gradient);

/* Starts a step. Sets *given_out to true if the gradient will be in a result,
   or in the sum that support_collective_rest stores. */
baton_status_t support_collective_start(support_collective_t *self,
                                        const double *gradient,
                                        bool *given_out);
baton_status_t support_collective_test(support_collective_t *self, bool *done);

/* Waits for the step. Returns the first error. If `ended` is not NULL, it gets
   a value for each element of the vector: true if the element has a result, and
   false if its step has failed. */
baton_status_t support_collective_wait(support_collective_t *self,
                                       double *result, bool *ended);

/* To be called after a recovery. If a step has failed for good and its gradient
   is in place, removes the gradient from the residual. On a device also lets
   the stream copy a result: if an earlier copy has failed, waits report that
   until a later copy has succeeded. */
void support_collective_settle(support_collective_t *self);

/* Writes the f64 entries of a result into a dense vector. */
void support_dense_of(const baton_sparse_result_t *result, size_t count,
                      double *vector);

/* Stores the sum of all contributions that are in no result yet. */
void support_collective_rest(support_collective_t *self, double *rest);
