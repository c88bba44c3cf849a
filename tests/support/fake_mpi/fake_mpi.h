/* Endpoints of the MPI transport for several ranks in one process. They run
   over an MPI of a few functions, which this file's source defines. So a test
   can drive all ranks from one thread, hold messages back, and make MPI fail.
   The memory that ranks of a host share is real, and so are the links between
   hosts. Opening and closing are collective, and are left to the tests under
   mpirun. */
#pragma once

#include "transport/mpi/endpoint.h"

enum { FAKE_MPI_RANKS = 8 }; /* most ranks */

typedef struct fake_mpi_options {
    int size;
    int host_ranks; /* ranks of each host */
    int buffers;
    uint32_t window; /* 0: the default */
    bool reads;      /* ranks of a host may read each other's memory */
    int refusal;     /* with `reads`: the errno that such a read fails with, or
                        0 */
    bool links;
} fake_mpi_options_t;

extern baton__mpi_t *fake_mpi_ranks[FAKE_MPI_RANKS];

/* Opens the ranks, and closes those that were open. Asserts that it
   succeeds. */
void fake_mpi_open(const fake_mpi_options_t *options);

/* Closes the endpoints that the port's close function has not closed. */
void fake_mpi_close(void);

/* Sends of up to so many bytes complete when they are posted. */
extern size_t fake_mpi_eager_bytes;

/* While MPI is stopped it delivers nothing, and no send completes. */
void fake_mpi_stop(bool stopped);

/* Holds back the messages of some ranks, each a bit of `ranks`. Messages that
   they send from now on, and that are longer than fake_mpi_eager_bytes, are
   received but do not complete. Messages of the other ranks complete. */
void fake_mpi_hold(uint32_t ranks);

/* fake_mpi_failing_sends: so many of the next calls that send or receive fail.
   fake_mpi_deliveries: so many sends are delivered (-1: all). */
extern int fake_mpi_failing_sends, fake_mpi_deliveries;

/* So many of the next receives report an error once they are complete, each
   time. */
extern int fake_mpi_failing_receives;

/* The errno that copies between processes fail with; 0 if they succeed. */
extern int fake_mpi_refusal;

/* Returns how many sends were not received plus how many receives are posted,
   of all ranks. */
int fake_mpi_unreceived(void);
