/* UCX as a wire, for groups that are made without MPI and span hosts.

   libbaton does not link UCX. The first call of baton__wire_open_ucx opens
   libucp.so.0, so a process whose groups are all of one host needs no UCX.
   Nothing that UCX does to the process by itself stays: the signal handlers
   that it installs are replaced by the earlier ones, and it prints nothing but
   fatal errors, unless UCX_LOG_LEVEL is set. If the program has loaded UCX
   already, as Open MPI may, its log is left as it is.

   Each wire has a context and a worker of its own. Each rank has the addresses
   of all workers, and connects to a rank when it first sends to that rank. A
   message's tag consists of the sender's rank and the tag of wire.h.

   If UCX reports that a connection has failed, mostly the peer's process has
   ended, and the peer's link says so soon (links.h), whereas UCX can't tell
   this from a broken network. So the requests that have failed with the
   connection stay in progress for some seconds (DOUBT_MS in wire_ucx.c), so
   that the link reports the end first. After that time they end with UCX's
   error. All other requests, and receives from any rank, are not affected.
   UCX's own probes of idle connections are off: answers.h notices ranks that
   don't answer. */
#pragma once

#include "transport/mpi/wire.h"

#include <baton/baton.h>

typedef struct baton__wire_ucx {
    /* This field is first, since files cast its address. */
    baton__wire_t shared;
    /* The address of this rank's worker. */
    const void *own;
    size_t own_bytes;
    /* The addresses of the workers of all ranks, by rank: `row` bytes for each,
       from baton__alloc. The caller of baton__wire_open_ucx sets both fields
       after the ranks have exchanged addresses and before anything is sent.
       `close` frees the memory. */
    unsigned char *addresses;
    size_t row;
} baton__wire_ucx_t;

/* Opens the wire of a rank in a group of `size` ranks. BATON_ERR_UNSUPPORTED:
   libbaton was built without UCX, or libucp.so.0 can't be opened;
   BATON_ERR_TRANSPORT: an error of UCX; BATON_ERR_NO_MEMORY: there is no
   memory. The error message does not begin with the name of a function. */
baton_status_t baton__wire_open_ucx(int rank, int size,
                                    baton__wire_ucx_t **out);
