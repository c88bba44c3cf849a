/* Entries: schedules for shapes of calls (vectors.h), and the operations that
   use them. Each call that is taken (call.h) has an operation.

   Operations of one shape use one schedule, one after another: further
   operations queue in the schedule's entry, and the end of each starts the
   next. Baton itself can queue epochs of a schedule that is running, but no
   more than the schedule's depth, and MPI sets no limit. The depth of these
   schedules is 2, because at depth 1 the buffers could only be rebound between
   epochs. */
#pragma once

#include "mpi/comms.h"
#include "mpi/handles.h"
#include "mpi/runtime.h"
#include "mpi/vectors.h"

#include <time.h>

typedef struct baton__mpi_op {
    /* The record by which an operation is found from its persistent request. */
    baton__mpi_known_t known;
    /* The next operation in the entry's queue, or in the list
       baton__mpi_ended. */
    struct baton__mpi_op *next;
    struct baton__mpi_entry *entry;
    baton__mpi_comm_t *comm;
    MPI_Request request;
    bool persistent;
    int tag; /* the tag of a persistent request's message (requests.h) */
    baton__mpi_vectors_t vectors;
    int code; /* the outcome of the operation, as an error code of MPI */
    /* Times for the log, 0 before they come: when the operation started, when
       it ended, and when the program began to wait for it. */
    int64_t started_ns, ended_ns, awaited_ns;
    _Atomic bool ended;
} baton__mpi_op_t;

/* A schedule, and the operations that use it. `lock` guards the queue; it is
   held briefly, never during calls of Baton or MPI. The other fields need no
   lock: a program makes its calls on a communicator one after another. */
typedef struct baton__mpi_entry {
    struct baton__mpi_entry *next; /* the next entry of the same communicator */
    baton__mpi_shape_t shape;
    baton_schedule_t *schedule;
    /* The buffers to which the schedule is bound now. */
    const void *source;
    void *target;
    /* True: the entry is retained for further calls of its shape. False: the
       entry may be freed when no request uses it. */
    _Atomic bool retained;
    /* Number of operations of this entry whose requests are not freed yet. */
    _Atomic int users;
    /* The only operation of a persistent call's entry; otherwise NULL. */
    baton__mpi_op_t *own;
    atomic_flag lock;
    baton__mpi_op_t *running, *first, **last;
} baton__mpi_entry_t;

/* Sets op->entry to the communicator's entry for the shape. If there is none,
   makes one, which then owns the shape's memory. */
baton_status_t baton__mpi_entry_for(baton__mpi_op_t *op,
                                    baton__mpi_shape_t *shape);

/* Frees the communicator's entries that are neither retained nor in use. If
   `all`, frees every entry of the communicator. */
void baton__mpi_entries_reap(baton__mpi_comm_t *comm, bool all);

/* Starts the operation. If another operation of the same entry is running,
   appends this one to the entry's queue instead. */
void baton__mpi_op_post(baton__mpi_op_t *op);
void baton__mpi_op_free(baton__mpi_op_t *op);

/* The list of operations that have ended, the latest first. Their requests are
   completed inside the program's calls to MPI. Baton's thread cannot complete
   them, since below MPI_THREAD_MULTIPLE it must not call MPI. */
extern baton__mpi_op_t *_Atomic baton__mpi_ended;

/* For the log: counts an operation that has ended, if the program waited for
   it. A second call for the same start of the operation does nothing. */
void baton__mpi_op_account(baton__mpi_op_t *op);

/* Returns the time. Returns 0 if there is no log, since only the log needs the
   time. */
static inline int64_t baton__mpi_now_ns(void)
{
    struct timespec now = {0};
    if (baton__mpi.settings.log) {
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
