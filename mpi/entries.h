/* Schedules by their shapes, and the operations that use them: a taken call has
   one.

   Operations of one shape use one schedule, one after another: further
   operations queue in its entry, and the end of each starts the next. The
   schedule's own depth would limit their number, which MPI does not. The depth
   is 2, so that buffers are rebound without the driver. */
#pragma once

#include "mpi/comms.h"
#include "mpi/handles.h"
#include "mpi/runtime.h"
#include "mpi/vectors.h"

#include <time.h>

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

/* Gives an operation the entry of its shape, or a new one, which then owns the
   shape's memory. */
baton_status_t baton__mpi_entry_for(baton__mpi_op_t *op,
                                    baton__mpi_shape_t *shape);

/* Destroys the schedules that are neither kept nor in use; with `all`, all of
   them. */
void baton__mpi_entries_reap(baton__mpi_comm_t *comm, bool all);

/* Starts the operation, or appends it to its entry's queue. */
void baton__mpi_op_post(baton__mpi_op_t *op);
void baton__mpi_op_free(baton__mpi_op_t *op);

/* Operations that have ended, the latest first. Baton's thread does not
   complete their requests: it must not call MPI below MPI_THREAD_MULTIPLE. */
extern baton__mpi_op_t *_Atomic baton__mpi_ended;

/* Counts, for the log, an operation that ended in a wait of the program;
   once. */
void baton__mpi_op_account(baton__mpi_op_t *op);

/* The time; 0 without a log, which alone needs it. */
static inline int64_t baton__mpi_now_ns(void)
{
    struct timespec now = {0};
    if (baton__mpi.settings.log) {
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
