/* The public functions of a sparse all-reduce. Each file calls only files below
   it:

       shrink.c      moves a sparse all-reduce to a group of survivors
       state_file.c  the state in a file
       state.c       export and import of a rank's state
       sparse.c      create, destroy, steps, and the calls between steps
       contribute.c  gradients contributed in parts */
#pragma once

#include "coll/sparse/core/core.h"

#include <assert.h>

/* Stages of baton_sparse_shrink. */
typedef enum baton__sparse_move {
    BATON__SPARSE_ENDS_STEP,  /* ends the running step, in the old group */
    BATON__SPARSE_HANDS_OVER, /* hands over the last step's result */
    BATON__SPARSE_CONFIRMS,   /* waits until all survivors have the result */
    BATON__SPARSE_REBUILDS
} baton__sparse_move_t;

/* The elements from `first` up to, but not including, `end`. */
typedef struct baton__range {
    size_t first, end;
} baton__range_t;

/* A sparse all-reduce, and the state that only the public functions use. The
   application's handle points to the first field. So the handle can be cast to
   a pointer to this struct. */
typedef struct baton__sparse_object {
    baton_sparse_t sparse;
    baton_schedule_t *comparison;
    baton__wrong_t wrong; /* an error in this rank's options, or of a build */
    baton__sparse_move_t move; /* stage of baton_sparse_shrink */
    baton_end_fn on_end;       /* the user's callback, or NULL */
    void *on_end_arg;
    uint64_t ended; /* calls of on_end so far */
    /* Ranges of the next gradient that were contributed: the first
       sparse.input.part_count of them are set. */
    baton__range_t *parts;
    size_t part_room;
} baton__sparse_object_t;
static_assert(offsetof(baton__sparse_object_t, sparse) == 0, "one address");

/* Returns the object of a handle. No other code converts the handle. */
static inline baton__sparse_object_t *
baton__sparse_object(const baton_sparse_t *sparse)
{
    return (baton__sparse_object_t *)(uintptr_t)sparse;
}

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
