/* Operations: taken calls, from start to end, and their requests.

   The request of a nonblocking call is a generalized request of MPI, so that
   the program can mix it with other requests in Wait, Test and the like. MPI's
   progress completes it inside the program's calls of MPI. Persistent requests
   can't be generalized. A persistent request is a receive from this process
   itself, on a separate communicator; at the end of the operation the library
   sends the empty message that the receive waits for. If the operation has
   failed, the message is a byte too long, so that the request fails with
   MPI_ERR_TRUNCATE. */
#pragma once

#include "mpi/call.h"

/* Starts a call; *request is complete when the call has ended. The request of a
   persistent call is inactive. Returns an MPI error code, which was also passed
   to the communicator's error handler; or LEFT or FIRST. */
int baton__mpi_begin(const baton__mpi_call_t *call, MPI_Request *request);

/* The same, and waits. */
int baton__mpi_finish(const baton__mpi_call_t *call);

/* Waits until the operations of `requests` have ended, by Baton's wait: MPI's
   own waits poll, and would keep Baton's thread from running. MPI progresses,
   too, in a long wait. Does nothing if some of the requests are MPI's, or
   `requests` is NULL. */
void baton__mpi_await(int count, const MPI_Request *requests);

/* Finds Open MPI's hooks for progress and the layout of its requests. Returns
   NULL, or the reason of a failure. */
const char *baton__mpi_find_request(void);

/* Makes MPI's progress drive Baton, or ends that. The first call that is taken
   turns it on, so calls before it cost nothing more. */
void baton__mpi_drive(bool on);
