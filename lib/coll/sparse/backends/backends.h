/* The backends, which start and complete the steps:

       device.c   gradients in device memory, in the order of streams
       partial.c  gradients in main memory, without waiting for every rank
       host.c     gradients in main memory

   partial.c uses the vectors of host.c. */
#pragma once

#include "coll/sparse/core/core.h"

extern const baton__sparse_backend_t baton__sparse_host;
extern const baton__sparse_backend_t baton__sparse_on_device;
extern const baton__sparse_backend_t baton__sparse_partial;

/* Allocates the vectors of the host backend, which the partial backend also
   uses. */
void baton__sparse_host_vectors(baton_sparse_t *sparse);
/* The function `write` of the host backend and of the partial backend. */
baton_status_t baton__sparse_host_write(baton_sparse_t *sparse,
                                        const void *residual,
                                        const void *velocity);
