/* How the ranks of a group that is being made exchange records: by MPI's
   collectives (bootstrap_mpi.c), or through a store that the application
   supplies (bootstrap_store.c). exchange.c makes the exchanges, in the same way
   for both. The bootstrap also opens the wire, which carries the group's
   messages between hosts (wire.h). None of these functions waits for another
   rank, because a rank that has ended, or never comes, would keep all other
   ranks waiting for good. */
#pragma once

#include "transport/mpi/wire.h"

#include <baton/baton.h>

/* By this the other processes of a host can look for a process. No field is
   negative. All are 0 if the process is unknown. */
typedef struct baton__process_id {
    int64_t host, pids; /* as in baton__location_t, without the highest bit */
    int64_t process;
} baton__process_id_t;

typedef struct baton__exchange baton__exchange_t;

typedef struct baton__bootstrap {
    const char *function; /* the public function that makes the group */
    int rank, size;
    /* The longest wait for ranks to take part in the first exchange; 0: no
       limit. */
    uint64_t first_ms;
    /* The bootstrap is a store. The application may remove the store as soon as
       the group is made on rank 0 or, if all ranks are on one host, on any
       rank; other ranks may still be making it then. The wire is opened only if
       some ranks of the group share no memory. */
    bool is_store;
    /* By rank: the process of the rank. NULL: the processes are not known
       before the first exchange. */
    const baton__process_id_t *process_ids;

    /* `allocate` allocates the memory for the records of all ranks. It returns
       NULL, with this thread's error, if there is no memory. `release` frees
       this memory, unless an exchange that has not ended may still write to
       it. */
    unsigned char *(*allocate)(size_t bytes);
    void (*release)(struct baton__bootstrap *self, unsigned char *memory);

    /* Begins an exchange. `data` has a record of `bytes` bytes for each rank.
       The record of this rank is filled in, and all others are zero. The others
       are filled in when the exchange ends. */
    baton_status_t (*gather)(struct baton__bootstrap *self, unsigned char *data,
                             size_t bytes);
    /* Makes the wire by exchanges of its own. All ranks call this, and pass the
       same `sends`: true if messages are to go over the wire. Over MPI, `sends`
       may be false: then opens a wire over which nothing is sent, and which
       only reports that MPI_Finalize is called. */
    baton_status_t (*open_wire)(struct baton__bootstrap *self,
                                baton__exchange_t *exchange, bool sends,
                                baton__wire_t **out);
    /* Stores whether the exchange that was begun has ended. */
    baton_status_t (*test)(struct baton__bootstrap *self, bool *ended_out);
    /* Names the ranks that have not taken part in the current exchange, such as
       "ranks 2 and 3", in `out`. NULL: the bootstrap does not know them. */
    void (*missing)(struct baton__bootstrap *self, char *out, size_t bytes);
} baton__bootstrap_t;

/* Makes a group of the bootstrap's ranks. */
baton_status_t baton__mpi_create_group(baton_engine_t *engine,
                                       baton__bootstrap_t *bootstrap,
                                       baton_group_t **out);
