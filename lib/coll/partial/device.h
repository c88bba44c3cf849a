/* A partial collective in device memory, whose contributions and results are in
   the order of streams: schedules of this rank alone around the collective's.

       contribute_on --> [additions: to what is pending] --+
                                                           |
       start_on --------------------------------> the collective's epoch
                                                           |
       wait_on ---> [results: result to the target] <------+

   Each request is served when the stream gets there, by the engine's driver. */
#ifndef BATON_COLL_PARTIAL_DEVICE_H
#define BATON_COLL_PARTIAL_DEVICE_H

#include "coll/stream/requests.h"

#include <baton/partial.h>

/* Requests to copy a vector in device memory, or to add two. */
typedef struct baton__mover {
    baton_partial_t *partial;
    baton__requests_t requests;
    /* The driver's, of the one that is served: target = left (op) right; where
       left is NULL it is copied, and where right is, nothing is done. */
    void *target, *left, *right;
} baton__mover_t;

typedef struct baton__partial_device {
    baton_partial_t *partial;
    baton_engine_t *engine;
    const baton_device_port_t *port;
    void *device;
    baton_group_t *own_group; /* a group of this rank */
    baton__mover_t additions, results;
    bool any; /* whether anything was pending when it was copied last */
} baton__partial_device_t;

/* Makes partial->device, also where it fails, and fills the slot of null
   contributions; the contribution has been made. destroy: behind the
   destruction of the collective's schedule; NULL is allowed. BATON_ERR_TIMEOUT:
   slots are still in use. */
baton_status_t
baton__partial_device_create(baton_partial_t *partial, baton_group_t *group,
                             const baton_partial_options_t *options);
baton_status_t baton__partial_device_destroy(baton__partial_device_t *self);

/* On the driver: false while the device adds to what is pending, or copies it,
   which takes no longer than that. */
bool baton__partial_device_may_take(const baton__partial_device_t *self);

/* As the public functions, which block on the device. */
baton_status_t baton__partial_device_contribute(baton_partial_t *partial,
                                                const void *data);
baton_status_t baton__partial_device_pending(baton_partial_t *partial,
                                             void *data, bool *any_out);

/* The error of the contribution that was added last, if the device failed. */
baton_status_t baton__partial_device_check(baton_partial_t *partial);

#endif
