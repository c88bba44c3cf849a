/* Operations: taken calls, from start to end, and their requests.

   The request of a nonblocking call is a generalized request of MPI, so that
   the program can mix it with other requests in Wait, Test and the like. MPI's
   progress completes it inside the program's calls of MPI. Persistent requests
   can't be generalized. A persistent request is a receive from this process
   itself, on a separate communicator; at the end of the operation the library
   sends the empty message that the receive waits for. If the operation has
   failed, the message is a byte too long, so that the request fails with
   MPI_ERR_TRUNCATE.

   Operations of one shape use one schedule, one after another: further
   operations queue in its entry, and the end of each starts the next. The
   schedule's own depth would limit their number, which MPI does not. The depth
   is 2, so that buffers are rebound without the driver. */
#pragma once

#include "mpi/comms.h"
#include "mpi/vectors.h"

typedef struct baton__mpi_op {
    baton__mpi_known_t known;   /* by the handle of a persistent request */
    struct baton__mpi_op *next; /* in its entry's queue */
    struct baton__mpi_entry *entry;
    baton__mpi_comm_t *comm;
    MPI_Request request;
    bool persistent;
    int tag; /* of a persistent request's message */
    baton__mpi_vectors_t vectors;
    int code; /* MPI's error code of the outcome */
    /* For the log; 0: not yet. */
    int64_t started_ns, ended_ns, awaited_ns;
    _Atomic bool ended;
} baton__mpi_op_t;

/* A schedule, and the operations that use it. `lock` guards the queue; it is
   held briefly, never during calls of Baton or MPI. The other fields need no
   lock: a program makes its calls on a communicator one after another. */
typedef struct baton__mpi_entry {
    struct baton__mpi_entry *next; /* of its communicator */
    baton__mpi_shape_t shape;
    baton_schedule_t *schedule;
    const void *source;   /* bound now */
    void *target;         /* bound now */
    _Atomic bool kept;    /* for further calls of this shape; else freed when
                             idle */
    _Atomic int users;    /* operations whose requests have not been freed */
    baton__mpi_op_t *own; /* the only operation, if it is persistent; else
                             NULL */
    atomic_flag lock;
    baton__mpi_op_t *running, *first, **last;
} baton__mpi_entry_t;

/* Starts a call; *request is complete when the call has ended. The request of a
   persistent call is inactive. Returns an MPI error code, which was also passed
   to the communicator's error handler; or LEFT or FIRST: nothing has happened,
   and the call is left to MPI, FIRST as one of the communicator's first
   calls. */
#define BATON__MPI_LEFT  (-1)
#define BATON__MPI_FIRST (-2)
int baton__mpi_begin(const baton__mpi_call_t *call, MPI_Request *request);

/* The same, and waits. */
int baton__mpi_finish(const baton__mpi_call_t *call);

/* Called after MPI's call for a call that was left; returns MPI's `code`.
   Records the request (unless NULL) of a FIRST call; one that failed does not
   count. */
int baton__mpi_note(int left, int code, MPI_Comm comm,
                    const MPI_Request *request);

/* The communicator of a request, if it is one of MPI's nonblocking collectives:
   only requests of Open MPI's coll/libnbc name theirs. Open MPI keeps the
   memory of ended requests, and reuses it. */
MPI_Comm baton__mpi_owner(MPI_Request request);

/* Starts or frees a persistent request. LEFT: the request is not the library's,
   and nothing has happened. */
int baton__mpi_start(const MPI_Request *request);
int baton__mpi_request_free(MPI_Request *request);

/* Waits until the operations of `requests` have ended, by Baton's wait: MPI's
   own waits poll, and would keep Baton's thread from running. MPI progresses,
   too, in a long wait. Does nothing if some of the requests are MPI's, or
   `requests` is NULL. */
void baton__mpi_await(int count, const MPI_Request *requests);

/* Completes the requests of ended operations; called inside a call of the
   program. False: there is none. */
bool baton__mpi_complete_all(void);

/* ---- between requests.c, persistent.c and entries.c ---------------------- */

/* Passes an error to the communicator's error handler; returns the code. */
int baton__mpi_fail(MPI_Comm comm, int code);

/* Makes an operation's persistent request; the operation then has an entry of
   its own. */
int baton__mpi_op_persist(baton__mpi_op_t *op);
void baton__mpi_op_free(baton__mpi_op_t *op);
/* Counts, for the log, an operation that ended in a wait of the program;
   once. */
void baton__mpi_op_account(baton__mpi_op_t *op);
/* Starts the operation, or appends it to its entry's queue. */
void baton__mpi_op_post(baton__mpi_op_t *op);
void baton__mpi_on_end(void *entry, uint64_t epoch, baton_status_t status);

/* Gives an operation the entry of its shape, or a new one, which then owns the
   shape's memory. */
baton_status_t baton__mpi_entry_for(baton__mpi_op_t *op,
                                    baton__mpi_shape_t *shape);

/* Destroys the schedules that are neither kept nor in use; with `all`, all of
   them. */
void baton__mpi_entries_reap(baton__mpi_comm_t *comm, bool all);

/* Finds Open MPI's hooks for progress and the layout of its requests. Returns
   NULL, or the reason of a failure. */
const char *baton__mpi_find_request(void);

/* Makes MPI's progress drive Baton, or ends that. The first operation turns it
   on, so calls before it cost nothing more. */
void baton__mpi_drive(bool on);
