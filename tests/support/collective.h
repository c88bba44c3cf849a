/* What is partial, sparse, or both, behind one set of calls: the rows of the
   suite of properties (sim/test_properties.c). Vectors are of f64, on the host.
   Where the collective works on a device they are copied, and every other step
   is put into a stream where its result can be told from that alone. */
#pragma once

#include "support/emulated.h"

#include <baton/tensors.h>

typedef enum support_row {
    SUPPORT_SPARSE,
    SUPPORT_TENSORS, /* three of them, of which two are packed */
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
    size_t tensor_count; /* of the partial; 0: it is of one vector */
    double *lent;        /* the partial's contributions are, in this memory */
    bool is_lending;
    double *wide; /* of so long tensors, by a special seed; or NULL */
    size_t at;    /* where the vector is in them */
    baton_tensors_t *tensors;
    size_t parts[SUPPORT_PARTS]; /* elements of each tensor */
    bool ready[SUPPORT_PARTS];
    emulated_t *device; /* or NULL */
    baton_stream_t stream;
    char *memory;   /* there: a gradient, a result */
    double *copies; /* of the same, that the stream reads and writes */
    int steps;
    unsigned starts;   /* of SPARSE: every other one is in parts */
    bool in_stream;    /* the step that runs */
    const double *got; /* the last result, where a stream has written it */
    bool unseen;       /* `seen` lacks what a stream is not told */
    bool included;     /* the last step's gradient was in time */
    double *given;     /* with in_place, the last step's gradient, */
    bool stands;       /* which is in the residual, and no result is known */
    baton_sparse_result_t entries; /* of the last step; not of all rows */
    baton_partial_result_t seen;   /* likewise; of those that are not sparse */
} support_collective_t;

/* Whether this is a baton_partial_t. */
static inline bool support_is_partial(support_row_t row)
{
    return row == SUPPORT_PARTIAL || row == SUPPORT_PARTIAL_LATEST;
}

/* Whether it can work on a device. */
static inline bool support_has_device(support_row_t row)
{
    return row == SUPPORT_SPARSE || support_is_partial(row);
}

/* Options of SPARSE; the other rows take of them what they have. Of those that
   are partial an odd seed has the vector contributed tensor by tensor, and one
   that 4 divides lends it; SUPPORT_WIDE, modulo 128, lends long tensors. */
enum { SUPPORT_WIDE = 77 };
baton_sparse_options_t support_collective_options(support_row_t row);

/* Creates in two halves, of which the second has two rounds: all ranks begin a
   round when all have ended the one before. */
baton_status_t
support_collective_prepare(support_collective_t *self, support_row_t row,
                           baton_group_t *group,
                           const baton_sparse_options_t *options);
/* On the device of the group's engine, with a stream of its user. */
baton_status_t
support_collective_prepare_on(support_collective_t *self, support_row_t row,
                              baton_group_t *group,
                              const baton_sparse_options_t *options,
                              emulated_t *device, baton_stream_t stream);
baton_status_t support_collective_connect(support_collective_t *self,
                                          int round);
baton_status_t support_collective_destroy(support_collective_t *self);

/* Contributes once more, unless it is not partial. */
baton_status_t support_collective_contribute(support_collective_t *self,
                                             const double *gradient);

/* *given_out: whether the gradient will be in a result, or be left over. */
baton_status_t support_collective_start(support_collective_t *self,
                                        const double *gradient,
                                        bool *given_out);
baton_status_t support_collective_test(support_collective_t *self, bool *done);

/* The step's result, where `ended` becomes true; elsewhere it has failed. The
   first error is returned. `ended` may be NULL. */
baton_status_t support_collective_wait(support_collective_t *self,
                                       double *result, bool *ended);

/* After a recovery: a result that the device had failed to copy is told of by
   waits until a later one was. And the gradient of a step that has failed for
   good is taken out of a residual that is in place. */
void support_collective_settle(support_collective_t *self);

/* Writes out the f64 entries of a result. */
void support_dense_of(const baton_sparse_result_t *result, size_t count,
                      double *vector);

/* What was given and is in no result yet. */
void support_collective_rest(support_collective_t *self, double *rest);
