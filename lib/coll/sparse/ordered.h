/* Steps of a sparse all-reduce of gradients in device memory: they may begin
   and end in the order of the user's streams, several in flight. What a step
   takes and leaves is then the driver's work:

       ready: async --> load: call --> the algorithm's nodes

   ready waits until the results of earlier steps have been copied to the device
   that were to be, since the step overwrites them. load completes the step
   before, if the application has not asked for it: so it has ended well.

   Results go back by a schedule of this rank alone, which the stream starts
   behind the step:

       give: call --+--> copy of indices, values, their number
                    +--> copy of the entries --> write out a dense target
                    +--> copy of the dense vector, after a dense step */
#ifndef BATON_COLL_SPARSE_ORDERED_H
#define BATON_COLL_SPARSE_ORDERED_H

#include "coll/sparse/sparse.h"

/* Makes sparse->ordered, before the schedules' nodes are added.
   BATON_ERR_UNSUPPORTED: the options or the engine don't allow gradients in
   device memory. */
baton_status_t baton__sparse_ordered_create(baton_sparse_t *sparse);

/* What gives results; when they have memory. */
baton_status_t baton__sparse_ordered_build_giving(baton_sparse_t *sparse);

/* destroy_giving: as baton_schedule_destroy, before the other schedules. */
baton_status_t baton__sparse_ordered_destroy_giving(baton_sparse_t *sparse);
void baton__sparse_ordered_free(baton_sparse_t *sparse);

/* Adds a schedule's load; what is added from here to the end comes behind it.
   Without sparse->ordered they do nothing. */
typedef struct baton__loaded {
    baton_node_t load, end;
    baton_enclosure_t inside;
} baton__loaded_t;
baton__loaded_t baton__sparse_load_begin(baton_sparse_t *sparse, bool dense);
void baton__sparse_load_end(baton_sparse_t *sparse, bool dense,
                            const baton__loaded_t *loaded);

/* Starts a step; NULL for `on` means at once, not on a stream. */
baton_status_t baton__sparse_ordered_start(baton_sparse_t *sparse, bool dense,
                                           const void *gradient, double factor,
                                           const baton_stream_t *on);

/* The application has waited for the last step, which has ended like this. */
void baton__sparse_ordered_complete(baton_sparse_t *sparse, bool dense,
                                    baton_status_t status);

/* Around what a recovery changes, behind which steps are as many as
   sparse->steps: the driver completes no step meanwhile. */
void baton__sparse_ordered_recover_begin(baton_sparse_t *sparse, bool dense);
void baton__sparse_ordered_recover_end(baton_sparse_t *sparse);

/* The error of the last result that was to be copied, if the device failed; or,
   once, of one before it. */
baton_status_t baton__sparse_ordered_outcome(const baton_sparse_t *sparse);

/* The number of steps before the next one that is started. */
uint64_t baton__sparse_ordered_steps(baton_sparse_t *sparse);

#endif
