/* The public functions of a sparse all-reduce. Each file calls only files below
   it:

       shrink.c      moves a sparse all-reduce to a group of survivors
       state_file.c  the state in a file
       state.c       export and import of a rank's state
       sparse.c      create, destroy, steps, and the calls between steps
       contribute.c  gradients contributed in parts */
#pragma once

#include "coll/sparse/core/core.h"

/* Does what baton_sparse_start does, with a gradient that is multiplied by
   `factor`. The device and partial backends ignore the factor. */
baton_status_t baton__sparse_start_scaled(baton_sparse_t *sparse,
                                          const void *gradient, double factor);

/* Waits for the running step, and completes it. Returns the error of the step.
   If the step is still running, returns BATON_ERR_TIMEOUT or
   BATON_ERR_INTERRUPTED. */
baton_status_t baton__sparse_end_step(baton_sparse_t *sparse, int timeout_ms);

/* Destroys the schedules. */
baton_status_t baton__sparse_leave(baton_sparse_t *sparse);
/* Builds all schedules in a group. Returns the first error. */
baton_status_t baton__sparse_rebuild(baton_sparse_t *sparse,
                                     baton_group_t *group);

/* Returns the errors of baton__sparse_check_idle. Then, if the backend has a
   function `hold`, calls it. */
baton_status_t baton__sparse_hold(baton_sparse_t *sparse, const char *doing,
                                  bool even);
/* Calls the backend's function `release`, if it has one. */
void baton__sparse_release(baton_sparse_t *sparse);

/* Returns BATON_ERR_STATE if parts of the gradient were contributed and others
   are missing. */
baton_status_t baton__sparse_check_parts(const baton_sparse_t *sparse);

/* Returns BATON_ERR_BUSY while a step is running. Returns BATON_ERR_UNSUPPORTED
   if there is no state to export or import. */
baton_status_t baton__sparse_check_state(const baton_sparse_t *sparse,
                                         const char *doing);
