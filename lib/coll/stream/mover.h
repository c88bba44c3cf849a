/* Requests (requests.h) to copy a vector, or to add two, in device memory. */
#ifndef BATON_COLL_STREAM_MOVER_H
#define BATON_COLL_STREAM_MOVER_H

#include "coll/stream/requests.h"

/* What a request is about is its owner's. */
typedef struct baton__move {
    int what;
    void *memory; /* the caller's */
    uint64_t step;
    uint64_t generation;
} baton__move_t;

/* Addresses in device memory. */
typedef struct baton__operands {
    void *target;
    void *left;  /* NULL: target = right; else target = left (op) right */
    void *right; /* NULL: nothing is to be done */
} baton__operands_t;

typedef struct baton__mover {
    baton__requests_t requests;
    baton_buffer_t target, left, right;
    baton_length_t sum, copy;
    size_t bytes;
    /* On the driver: fills the operands, which are zeros; and after the work.
     */
    void (*begin)(void *arg, const baton__move_t *request,
                  baton__operands_t *operands);
    void (*end)(void *arg, const baton__move_t *request);
    void *arg;
} baton__mover_t;

/* begin, end and arg are set. op: NULL where there are no sums. "what name" is
   the schedule's. */
baton_status_t baton__mover_init(baton__mover_t *self, baton_group_t *group,
                                 const char *what, const char *name,
                                 size_t bytes, baton_dtype_t dtype,
                                 const baton_op_t *op);

#endif
