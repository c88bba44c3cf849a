/* Makes groups whose ranks meet in a store. The public functions that make such
   groups call these functions. */
#pragma once

#include "transport/mpi/bootstrap.h"

#include <baton/store.h>

/* The arguments that these functions have in common. */
typedef struct baton__store_use {
    const char *function; /* the public function that was called */
    const baton_store_t *store;
    const char *name; /* the name of the group to make */
    /* as in baton__bootstrap_t; may be NULL */
    const baton__process_id_t *process_ids;
} baton__store_use_t;

/* Checks the store and the name. */
baton_status_t baton__store_check(const baton__store_use_t *use);

/* The next three functions call the store's functions for the key NAME.key, and
   set the error if these fail. baton__store_get returns BATON_AGAIN, which is
   no error, if the key has no value yet. */
baton_status_t baton__store_put(const baton__store_use_t *use, const char *key,
                                const void *value, size_t bytes);
baton_status_t baton__store_get(const baton__store_use_t *use, const char *key,
                                void *value, size_t bytes, size_t *bytes_out);
void baton__store_remove(const baton__store_use_t *use, const char *key);

/* Opens a bootstrap of `size` ranks, of which this one is `rank`, that waits
   for at most `timeout_ms` for ranks that have not called this function; if
   `timeout_ms` is negative, it waits for ever. `use` must exist until the
   bootstrap is closed. Returns BATON_ERR_NO_MEMORY if there is no memory. */
baton_status_t baton__bootstrap_open_store(const baton__store_use_t *use,
                                           int rank, int size, int timeout_ms,
                                           baton__bootstrap_t **out);
void baton__bootstrap_close_store(baton__bootstrap_t *shared);

/* Creates the group. Waits for at most `timeout_ms` for ranks that have not
   called this function; if `timeout_ms` is negative, waits for ever. */
baton_status_t baton__store_create_group(const baton__store_use_t *use,
                                         baton_engine_t *engine, int rank,
                                         int size, int timeout_ms,
                                         baton_group_t **out);
