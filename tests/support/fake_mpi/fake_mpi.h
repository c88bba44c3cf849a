/* Endpoints of the MPI transport for several ranks in one process. They run
   over an MPI of a few functions, which fake_mpi.c defines. So a test can drive
   all ranks from one thread, hold messages back, and make MPI fail. The memory
   that ranks of a host share is real, and so are the links between hosts. The
   collective parts of opening and closing are left to the tests under
   mpirun. */
#pragma once

#include "transport/mpi/endpoint.h"
#include "transport/mpi/over_mpi.h"

enum { FAKE_MPI_RANKS = 8 }; /* the most ranks */

typedef struct fake_mpi_options {
    int size;
    int host_ranks; /* number of ranks of each host */
    int buffers;
    uint32_t window; /* the window of messages; 0: the default */
    bool reads;      /* ranks of a host may read each other's memory */
    int refusal;     /* the initial value of fake_mpi_refusal, if `reads` */
    bool links;
} fake_mpi_options_t;

extern baton__mpi_t *fake_mpi_ranks[FAKE_MPI_RANKS];

/* Closes the ranks that are open, and opens new ones. Fails the test if that
   does not succeed. */
void fake_mpi_open(const fake_mpi_options_t *options);

/* Closes the endpoints that the port's function `close` has not closed yet. */
void fake_mpi_close(void);

/* The longest send, in bytes, that completes when it is posted. */
extern size_t fake_mpi_eager_bytes;

/* While MPI is stopped it delivers nothing, and no send completes. */
void fake_mpi_stop(bool stopped);

/* Holds back the messages of some ranks. `ranks` has a bit for each rank. From
   now on these ranks' messages that are longer than fake_mpi_eager_bytes are
   received, but do not complete. Messages of other ranks that were held
   complete now. */
void fake_mpi_hold(uint32_t ranks);

/* fake_mpi_failing_sends is the number of calls of MPI_Isend that fail from now
   on. fake_mpi_deliveries is the number of sends that are delivered from now on
   (-1: all). */
extern int fake_mpi_failing_sends, fake_mpi_deliveries;

/* The number of receives that report an error from now on. Such a receive
   reports the error in each test of its request after its message has
   arrived. */
extern int fake_mpi_failing_receives;

/* The errno with which copies between processes fail. 0: they succeed. */
extern int fake_mpi_refusal;

/* Returns the number of sends, of all ranks, that were not received yet. */
int fake_mpi_unreceived(void);
