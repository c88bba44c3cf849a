/* Endpoints of the MPI transport, of several ranks in one process, over an MPI
   of a few functions that this file's source defines: so a test drives them
   from one thread, holds messages back, and makes MPI fail. What ranks of a
   host share is real, and so are the links between hosts. Opening and closing,
   which are collective, are left to the tests under mpirun. */
#pragma once

#include "transport/mpi/endpoint.h"

enum { FAKE_MPI_RANKS = 8 }; /* at most */

typedef struct fake_mpi_options {
    int size;
    int host_ranks; /* of each host */
    int buffers;
    uint32_t window; /* 0: the default */
    bool reads;      /* ranks of a host read each other's memory: */
    int refusal;     /* 0, or the errno that the system gives them then */
    bool links;
} fake_mpi_options_t;

extern baton__mpi_t *fake_mpi_ranks[FAKE_MPI_RANKS];

/* Asserts that it can be done. Closes the ranks that were open. */
void fake_mpi_open(const fake_mpi_options_t *options);

/* Closes the endpoints that were not closed by their port's function. */
void fake_mpi_close(void);

/* Sends of up to so many bytes are complete when they are posted. */
extern size_t fake_mpi_eager_bytes;

/* While it is stopped nothing is delivered and no send completes. */
void fake_mpi_stop(bool stopped);

/* What these ranks send from now on, each a bit, is received but not complete
   if it is longer than that; what others have sent is. */
void fake_mpi_hold(uint32_t ranks);

/* Calls that send or receive that fail next; sends that come (-1: all). */
extern int fake_mpi_failing_sends, fake_mpi_deliveries;

/* The next so many receives report an error for good once they are complete. */
extern int fake_mpi_failing_receives;

/* The errno that copies between processes fail with; 0: they don't. */
extern int fake_mpi_refusal;

/* Sends that were not received, and receives that are posted, of all ranks. */
int fake_mpi_unreceived(void);
