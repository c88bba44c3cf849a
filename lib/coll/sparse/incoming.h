/* Gradients of a partial sparse all-reduce in device memory, on their way to
   what is pending on the host: a schedule of this rank alone brings one after
   the other.

       ready: async --> bind: call --> copy, off the device --> add: async

       start_on:  the step before ends --> ready ... add --> the rank arrives
                  (each behind the other in the user's stream)

   ready waits until the results have been copied to the device that were to be:
   the next step gives up their places. add waits until the start has not been
   refused, and while the application uses what is pending. So a rank that has
   arrived has its gradient pending, and a start that was refused has left
   nothing behind. */
#ifndef BATON_COLL_SPARSE_INCOMING_H
#define BATON_COLL_SPARSE_INCOMING_H

#include "coll/sparse/sparse.h"

typedef struct baton__incoming baton__incoming_t;

/* The gradient of a step. */
typedef struct baton__arrival {
    const void *gradient; /* of the user's */
    uint64_t step;        /* 0: it is brought to the host, and not added */
    uint64_t gifts;       /* results that were to be given before */
    uint64_t generation;  /* recoveries before */
    bool refused;         /* the start was; under the partial's lock */
} baton__arrival_t;

/* Behind sparse->ordered. *out is set also where it fails. */
baton_status_t baton__incoming_create(baton_sparse_t *sparse,
                                      baton__incoming_t **out);

/* As baton_schedule_destroy, and then frees it; NULL is allowed. */
baton_status_t baton__incoming_destroy(baton__incoming_t *self);

/* In the order of the stream: waits for the step before, brings the gradient,
   and adds it; what is put into the stream later comes behind that. The
   partial's lock is held, until refuse, which takes it back, can't be called
   any more. */
baton_status_t baton__incoming_start_on(baton__incoming_t *self,
                                        const void *gradient, uint64_t step,
                                        baton_stream_t stream);
void baton__incoming_refuse(baton__incoming_t *self);

/* Waits for all that was started before; and brings a gradient to the host,
   where it is until the next one is brought. */
baton_status_t baton__incoming_wait(baton__incoming_t *self);
baton_status_t baton__incoming_bring(baton__incoming_t *self,
                                     const void *gradient,
                                     const void **here_out);

/* BATON_ERR_SYSTEM, once: gradients are lost, since the device failed when it
   copied them. */
baton_status_t baton__incoming_outcome(baton__incoming_t *self);

#endif
