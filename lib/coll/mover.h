/* A schedule of this rank alone that copies a vector, or adds two, in device
   memory: for one request after another, each when the stream of the user gets
   there that it was made on. So what the owner keeps about its vectors is only
   read and written by the engine's driver, and in the order of the streams.

   It is in a group of its own, of one rank: a recovery of the owner's group
   leaves the requests in streams as they are. */
#ifndef BATON_COLL_MOVER_H
#define BATON_COLL_MOVER_H

#include <baton/device.h>

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

/* More than can be in streams at once. */
enum { BATON__REQUESTS = 16 };

typedef struct baton__mover {
    baton_schedule_t *schedule;
    baton_buffer_t target, left, right;
    baton_length_t sum, copy;
    size_t bytes;
    uint64_t started; /* the application's */
    uint64_t begun;   /* the last request's epoch; the driver's */
    baton__move_t requests[BATON__REQUESTS]; /* epoch e's: e % REQUESTS */
    /* On the driver: fills the operands, which are zeros; and after the work.
     */
    void (*begin)(void *arg, const baton__move_t *request,
                  baton__operands_t *operands);
    void (*end)(void *arg, const baton__move_t *request);
    void *arg;
} baton__mover_t;

/* begin, end and arg are set. op: NULL where there are no sums. */
baton_status_t baton__mover_init(baton__mover_t *self, baton_group_t *group,
                                 const char *name, size_t bytes,
                                 baton_dtype_t dtype, const baton_op_t *op);
/* As baton_schedule_destroy. */
baton_status_t baton__mover_fini(baton__mover_t *self);

/* Makes a request in the order of the stream; what is put there later comes
   behind it if `ordered`. As baton_schedule_start_on. */
baton_status_t baton__mover_start_on(baton__mover_t *self,
                                     const baton__move_t *request,
                                     baton_stream_t stream, bool ordered);

/* Makes a request behind those that are in streams, and waits for it. */
baton_status_t baton__mover_run(baton__mover_t *self,
                                const baton__move_t *request);

/* On the driver: whether the request that has begun last is over. */
bool baton__mover_is_over(const baton__mover_t *self);

/* The error of the last request, if it has ended with one. */
baton_status_t baton__mover_outcome(const baton__mover_t *self);

#endif
