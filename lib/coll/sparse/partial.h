/* The partial sparse all-reduce, for the files of the sparse ones. */
#ifndef BATON_COLL_SPARSE_PARTIAL_H
#define BATON_COLL_SPARSE_PARTIAL_H

#include "coll/partial/begin.h"
#include "coll/sparse/sparse.h"

/* Makes sparse->partial, also where it fails; adds the nodes of the schedule,
   those of the algorithm among them. BATON_ERR_NO_MEMORY. */
baton_status_t baton__sparse_partial_create(baton_sparse_t *sparse);
baton_status_t baton__sparse_partial_build(baton_sparse_t *sparse);

/* Behind the schedule's destruction. */
void baton__sparse_partial_destroy(baton_sparse_t *sparse);

/* Room for the results of `history` epochs and one. False: no memory. */
bool baton__sparse_partial_result_room(baton_sparse_t *sparse, size_t capacity);

baton_status_t baton__sparse_partial_start(baton_sparse_t *sparse,
                                           const void *gradient);

/* The step that was started last has been completed. */
void baton__sparse_partial_complete(baton_sparse_t *sparse);

/* For the application's use of the residual: no epoch begins to work until the
   release. BATON_ERR_BUSY where a step or an epoch runs. Without effect where
   the sparse all-reduce is not partial; and so are the two below. */
baton_status_t baton__sparse_hold(baton_sparse_t *sparse, const char *doing);
void baton__sparse_release(baton_sparse_t *sparse);

/* While it is held: adds what is pending; multiplies all but the residual. */
void baton__sparse_partial_add_pending(const baton_sparse_t *sparse,
                                       void *vector);
void baton__sparse_partial_scale(const baton_sparse_t *sparse, double factor);

/* BATON_ERR_UNSUPPORTED where it is partial. */
baton_status_t baton__sparse_check_full(const baton_sparse_t *sparse,
                                        const char *doing);

#endif
