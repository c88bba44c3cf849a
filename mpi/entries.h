/* Entries: schedules for shapes of calls, and the operations that use them.
   Each taken call has an operation.

   Operations of one shape use one schedule, one after another: further
   operations queue in the schedule's entry, and the end of each starts the
   next. Starts ahead would do this without a queue, but the schedule's depth
   limits their number, and MPI sets no limit. The depth is 2, so that buffers
   are rebound without the driver. */
#pragma once

#include "mpi/comms.h"
#include "mpi/handles.h"
#include "mpi/runtime.h"
#include "mpi/vectors.h"

#include <time.h>

typedef struct baton__mpi_op {
    baton__mpi_known_t known;   /* found by a persistent request's handle */
    struct baton__mpi_op *next; /* in the entry's queue, or baton__mpi_ended */
    struct baton__mpi_entry *entry;
    baton__mpi_comm_t *comm;
    MPI_Request request;
    bool persistent;
    int tag; /* the tag of a persistent request's message */
    baton__mpi_vectors_t vectors;
    int code; /* the outcome, as an error code of MPI */
    /* For the log: when the operation was started, when it has ended, and when
       the program began to wait for it; 0: not yet. */
    int64_t started_ns, ended_ns, awaited_ns;
    _Atomic bool ended;
} baton__mpi_op_t;

/* A schedule, and the operations that use it. `lock` guards the queue; it is
   held briefly, never during calls of Baton or MPI. The other fields need no
   lock: a program makes its calls on a communicator one after another. */
typedef struct baton__mpi_entry {
    struct baton__mpi_entry *next; /* of the same communicator */
    baton__mpi_shape_t shape;
    baton_schedule_t *schedule;
    /* The memory to which the schedule is bound now. */
    const void *source;
    void *target;
    /* Kept for further calls of this shape; otherwise freed when idle. */
    _Atomic bool kept;
    _Atomic int users;    /* operations whose requests have not been freed */
    baton__mpi_op_t *own; /* the only operation if persistent; or NULL */
    atomic_flag lock;
    baton__mpi_op_t *running, *first, **last;
} baton__mpi_entry_t;

/* Gives an operation the entry of its shape. If there is none, makes one, which
   then owns the shape's memory. */
baton_status_t baton__mpi_entry_for(baton__mpi_op_t *op,
                                    baton__mpi_shape_t *shape);

/* Frees the communicator's entries that are neither kept nor in use; if `all`,
   all entries. */
void baton__mpi_entries_reap(baton__mpi_comm_t *comm, bool all);

/* Starts the operation, or if another operation of the entry runs, appends it
   to the entry's queue. */
void baton__mpi_op_post(baton__mpi_op_t *op);
void baton__mpi_op_free(baton__mpi_op_t *op);

/* Operations that have ended, the latest first. Calls of the program complete
   their requests. Baton's thread cannot, since it must not call MPI below
   MPI_THREAD_MULTIPLE. */
extern baton__mpi_op_t *_Atomic baton__mpi_ended;

/* Counts, for the log, an operation that has ended in a wait of the program.
   Later calls for the same start do nothing. */
void baton__mpi_op_account(baton__mpi_op_t *op);

/* Returns the time, or 0 if there is no log, since only the log needs it. */
static inline int64_t baton__mpi_now_ns(void)
{
    struct timespec now = {0};
    if (baton__mpi.settings.log) {
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
