/* The record of a communicator: its group in Baton, which is created without
   communication when the first collective is taken (call.h), and schedules for
   the shapes (vectors.h) of its calls. Group and schedules cost as much as many
   short calls, so the first calls on a communicator other than MPI_COMM_WORLD
   are left to MPI. The record is an attribute of the communicator, with the
   library's own key. MPI_Comm_dup does not copy it. The application's
   attributes and their callbacks are not touched.

   Ranks may make the first calls on two communicators of the same ranks in
   different orders. So the group's name contains the context id by which Open
   MPI itself distinguishes messages of communicators. Open MPI reuses an id
   after a communicator was freed. Either all ranks of the freed communicator
   had created its group or none had. So all ranks have made equally many groups
   of a name, and the k-th on one rank belongs to the k-th on every other. */
#pragma once

#include "mpi/call.h"

#include <stdatomic.h>

/* The reason why a call is left to MPI. TAKEN: the call is not left to MPI. */
typedef enum baton__mpi_why {
    BATON__MPI_TAKEN,
    BATON__MPI_SINGLE,  /* the communicator has one rank */
    BATON__MPI_INTER,   /* the communicator is an intercommunicator */
    BATON__MPI_FOREIGN, /* some ranks are not in MPI_COMM_WORLD */
    /* The call moves fewer bytes than BATON_MPI_FROM, or no bytes. */
    BATON__MPI_SHORT,
    /* Open MPI runs the call as one round of messages, all sent at once, so the
       call needs no progress in the background. */
    BATON__MPI_ONE_ROUND,
    /* The call is one of the communicator's first calls. */
    BATON__MPI_FIRST,
    BATON__MPI_TYPE,  /* Baton does not support the type or the operation */
    BATON__MPI_WRONG, /* the call has an error, and MPI reports it */
    BATON__MPI_WHYS
} baton__mpi_why_t;

/* A communicator's calls must move WORTH bytes before its group is created.
   Each call counts as WORTH / FIRST_CALLS bytes in addition to its own. */
enum { BATON__MPI_WORTH = 1 << 16, BATON__MPI_FIRST_CALLS = 8 };

typedef struct baton__mpi_comm {
    MPI_Comm handle;
    /* The reason why all calls are left to MPI. TAKEN: some calls may be
       taken. */
    baton__mpi_why_t why;
    int rank, size;
    /* The number of bytes that the communicator's calls count for so far; see
       BATON__MPI_WORTH. */
    uint64_t worth;
    /* the bytes that the last call has added to `worth` */
    uint64_t counted;
    baton_group_t *group; /* NULL until a call is taken */
    /* The communicator of persistent requests (requests.h), which has the error
       handler of `handle`. MPI_COMM_NULL: there was no persistent request
       yet. */
    MPI_Comm self;
    struct baton__mpi_entry *entries;
    /* The requests of the first calls, which MPI runs. Some of these requests
       may have been completed and freed. */
    MPI_Request firsts[BATON__MPI_FIRST_CALLS];
    _Atomic int first_count;
    /* One bit for each of `firsts`: the program has freed this request, but MPI
       has not freed it yet. */
    unsigned orphans;
    /* The number of users of this record: operations that have not ended or
       whose requests were not freed, and persistent requests. */
    _Atomic int users;
    _Atomic bool dead; /* the application has freed the communicator */
    /* For the log, about operations that end in MPI_Wait or MPI_Waitall. bytes:
       the sum of their bytes. flight_ns: the total time in which at least one
       of them was in flight. counted_to_ns: the time up to which flight_ns is
       counted. waited_ns: the time that the program has waited for them. */
    _Atomic int64_t bytes, flight_ns, counted_to_ns, waited_ns;
    uint32_t counts[BATON__MPI_WHYS][BATON__MPI_KINDS * BATON__MPI_WAYS];
    struct baton__mpi_comm *next;
} baton__mpi_comm_t;

/* Finds out at which offset Open MPI stores the context id in a communicator,
   and creates the attribute key of the records. Returns NULL, or a text that
   says why this failed. */
const char *baton__mpi_comms_open(void);

/* Returns true if the request belongs to one of the first calls. `frees`: the
   program calls MPI_Request_free for the request. MPI does not free active
   requests of collectives, so this function only records that the program has
   freed it, and the request is freed together with the communicator. */
bool baton__mpi_is_first(MPI_Request request, bool frees);

/* baton__mpi_comm_of returns the communicator's record, or NULL if there is no
   memory. baton__mpi_comm_join creates the communicator's group, unless it
   exists. It returns TAKEN, or the reason why the communicator can have no
   group. */
baton__mpi_comm_t *baton__mpi_comm_of(MPI_Comm comm);
baton__mpi_why_t baton__mpi_comm_join(baton__mpi_comm_t *comm);

/* Called after MPI has made a call that was left to it. Returns `code`, which
   MPI has returned. If `left` is LEFT_FIRST, records the call's request, unless
   `request` is NULL. If the call has failed, it no longer counts as one of the
   communicator's first calls. */
int baton__mpi_note(int left, int code, MPI_Comm comm,
                    const MPI_Request *request);

/* Destroys the records, with their schedules, of freed communicators whose
   operations have all ended. */
void baton__mpi_comms_reap(void);

/* Frees all records, even if operations have not ended. */
void baton__mpi_comms_close(void);
