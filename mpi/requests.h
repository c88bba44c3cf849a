/* Operations: a call that was taken, from its start to its end, and the
   requests that stand for it.

   The request of a nonblocking call is a generalized one of MPI, so that the
   program mixes it with any others in Wait, Test and their kin. It is completed
   inside the program's calls of MPI, by MPI's progress. Persistent ones can't
   be generalized: a persistent request is a receive from this process itself,
   on a communicator of its own, and the end of the operation is the empty
   message that it waits for; one that failed is a byte too long, so that the
   request fails with MPI_ERR_TRUNCATE.

   Operations of one shape use one schedule, one after another: those that
   wait for it queue in its entry, and the end of each starts the next. The
   schedule's own depth would bound their number, and MPI has no bound; it is 2,
   so that buffers are rebound without the driver. */
#ifndef BATON_MPI_REQUESTS_H
#define BATON_MPI_REQUESTS_H

#include "mpi/comms.h"
#include "mpi/vectors.h"

typedef struct baton__mpi_op {
    baton__mpi_known_t known;   /* of the persistent ones, by their handles */
    struct baton__mpi_op *next; /* in its entry's queue */
    struct baton__mpi_entry *entry;
    baton__mpi_comm_t *comm;
    MPI_Request request;
    bool persistent;
    int tag; /* of a persistent one */
    baton__mpi_vectors_t vectors;
    int code; /* of the end */
    int64_t started_ns, ended_ns,
        awaited_ns; /* if there is a log; 0: not yet */
    _Atomic bool ended;
} baton__mpi_op_t;

/* A schedule, and the operations that use it. Its lock is held for moments
   only, never while Baton or MPI is called. All else belongs to the calls on
   the communicator, which a program makes one after another. */
typedef struct baton__mpi_entry {
    struct baton__mpi_entry *next; /* of its communicator */
    baton__mpi_shape_t shape;
    baton_schedule_t *schedule;
    const void *source; /* bound now */
    void *target;
    _Atomic bool kept; /* for calls of the same shape; else it goes when idle */
    _Atomic int users; /* operations whose requests have not been freed */
    baton__mpi_op_t *own; /* of a persistent request, else NULL */
    atomic_flag lock;
    baton__mpi_op_t *running, *first, **last;
} baton__mpi_entry_t;

/* Starts a call; *request is complete when it has ended. Of a persistent call
   the request is inactive. Negative: it is for MPI, and nothing has happened;
   FIRST: as one of the communicator's first. Else an MPI error code, which the
   communicator's error handler has been told. */
#define BATON__MPI_LEFT  (-1)
#define BATON__MPI_FIRST (-2)
int baton__mpi_begin(const baton__mpi_call_t *call, MPI_Request *request);

/* The same, and waits. */
int baton__mpi_finish(const baton__mpi_call_t *call);

/* After a call of MPI's and its code, which is returned: of a FIRST one the
   request is noted, unless NULL; if it failed it does not count. */
int baton__mpi_note(int left, int code, MPI_Comm comm,
                    const MPI_Request *request);

/* The communicator of a nonblocking collective of MPI's: coll/libnbc's alone
   name it. Their memory stays when they have gone, and is another one's. */
MPI_Comm baton__mpi_owner(MPI_Request request);

/* Starts a persistent request, or frees it. LEFT: it is none of these, and
   nothing has happened. */
int baton__mpi_start(const MPI_Request *request);
int baton__mpi_request_free(MPI_Request *request);

/* Waits until the operations of requests have ended, as Baton waits: MPI's own
   waits poll, and would keep Baton's thread from running. MPI progresses in
   each turn of a wait that lasts. Where there are requests of MPI's among them,
   or none (NULL), this does nothing. */
void baton__mpi_await(int count, const MPI_Request *requests);

/* Completes the requests of operations that have ended, in a call of the
   program's. False: there is none. */
bool baton__mpi_complete_all(void);

/* ---- between requests.c, persistent.c and entries.c ---------------------- */

/* Tells the communicator's error handler; returns the code. */
int baton__mpi_fail(MPI_Comm comm, int code);

/* The persistent request of an operation, whose entry is its own then. */
int baton__mpi_op_persist(baton__mpi_op_t *op);
void baton__mpi_op_free(baton__mpi_op_t *op);
/* Counts what a wait of the program's has ended, once. */
void baton__mpi_op_account(baton__mpi_op_t *op);
/* Starts it, or queues it behind those of its entry. */
void baton__mpi_op_post(baton__mpi_op_t *op);
void baton__mpi_on_end(void *entry, uint64_t epoch, baton_status_t status);

/* Gives an operation the entry of its shape, or a new one, which takes what the
   shape has. */
baton_status_t baton__mpi_entry_for(baton__mpi_op_t *op,
                                    baton__mpi_shape_t *shape);

/* Destroys the schedules that are neither kept nor in use, or all. */
void baton__mpi_entries_reap(baton__mpi_comm_t *comm, bool all);

/* Finds what there is in Open MPI to drive Baton, and to tell requests. NULL;
   else why it can't. */
const char *baton__mpi_find_request(void);

/* Lets MPI's waits drive Baton, or no longer. The first operation does so; what
   is left to MPI before pays nothing for it. */
void baton__mpi_drive(bool on);

#endif
