/* Groups inside one process, without MPI: the ranks are threads, or share one
   thread. For trials of Baton in one program, and for tests under a thread
   sanitizer. */
#ifndef BATON_INPROC_H
#define BATON_INPROC_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a group of one rank, for schedules without peers. */
BATON_CHECKED baton_status_t baton_group_create_self(baton_engine_t *engine,
                                                     baton_group_t **out);

/* The medium that `size` ranks share. Destroy it after all groups on it. */
typedef struct baton_inproc baton_inproc_t;

BATON_CHECKED baton_status_t baton_inproc_create(int size,
                                                 baton_inproc_t **out);
BATON_CHECKED baton_status_t baton_inproc_destroy(baton_inproc_t *medium);

/* Joins a rank to the medium; each rank joins once. Not collective. Several
   ranks may share an engine: one thread that steps a manual engine then
   progresses them all. BATON_ERR_INVALID (the rank is out of range or taken),
   _NO_MEMORY, _SYSTEM. */
BATON_CHECKED baton_status_t baton_group_create_inproc(baton_engine_t *engine,
                                                       baton_inproc_t *medium,
                                                       int rank,
                                                       baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
