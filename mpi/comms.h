/* The record of a communicator: a group of Baton's, created without
   communication when the first collective is taken, and schedules for the
   shapes of its calls. These cost as much as many short calls, so the first
   calls on a communicator other than MPI_COMM_WORLD are left to MPI. The record
   is an attribute of the communicator, with the library's own key, which
   MPI_Comm_dup does not copy; the application's attributes and their callbacks
   are not touched.

   Ranks may make the first calls on two communicators of the same ranks in
   different orders. So the group's name has the context id by which Open MPI
   itself distinguishes messages of communicators. Open MPI reuses an id after a
   communicator was freed. Either all of its ranks created a group of the old
   communicator or none did, so groups of one name pair by their order. */
#pragma once

#include "mpi/call.h"

#include <stdatomic.h>

/* The reason why a call is left to MPI. */
typedef enum baton__mpi_why {
    BATON__MPI_TAKEN,
    BATON__MPI_SINGLE,    /* one rank */
    BATON__MPI_INTER,     /* an intercommunicator */
    BATON__MPI_FOREIGN,   /* has ranks of another MPI_COMM_WORLD */
    BATON__MPI_SHORT,     /* fewer bytes than BATON_MPI_FROM, or none */
    BATON__MPI_ONE_ROUND, /* one round of messages, which needs no progress */
    BATON__MPI_NEW,       /* the communicator's first calls */
    BATON__MPI_TYPE,      /* Baton does not support the type or operation */
    BATON__MPI_WRONG,     /* an error of the program, which MPI reports */
    BATON__MPI_WHYS
} baton__mpi_why_t;

/* A communicator's calls must move WORTH bytes before its group is created.
   Each call counts as at least WORTH / FIRST_CALLS. */
enum { BATON__MPI_WORTH = 1 << 16, BATON__MPI_FIRST_CALLS = 8 };

typedef struct baton__mpi_comm {
    MPI_Comm handle;
    baton__mpi_why_t why; /* why all calls are left; TAKEN: some are taken */
    int rank, size;
    uint64_t worth;       /* bytes so far; see BATON__MPI_WORTH */
    uint64_t counted;     /* the last call's part of `worth` */
    baton_group_t *group; /* NULL while no call is taken */
    MPI_Comm self; /* of persistent requests (requests.h), or MPI_COMM_NULL; it
                      has the error handler of `handle` */
    struct baton__mpi_entry *entries;
    /* Requests of the first calls, which MPI runs; they may have ended. */
    MPI_Request firsts[BATON__MPI_FIRST_CALLS];
    _Atomic int first_count;
    unsigned orphans;  /* a bit for each of `firsts` that the program freed */
    _Atomic int users; /* operations that have not ended */
    _Atomic bool dead; /* freed by the application */
    /* For the log; of operations that end in MPI_Wait or MPI_Waitall. bytes:
       their bytes. flight_ns: time with any of them in flight. counted_to_ns:
       the end of the time counted in flight_ns. waited_ns: time that the
       program waited for them. */
    _Atomic int64_t bytes, flight_ns, counted_to_ns, waited_ns;
    uint32_t counts[BATON__MPI_WHYS][BATON__MPI_KINDS * BATON__MPI_WAYS];
    struct baton__mpi_comm *next;
} baton__mpi_comm_t;

/* Finds the offset of the context id in a communicator, and creates the key.
   Returns NULL, or the reason of a failure. */
const char *baton__mpi_comms_open(void);

/* True if the request is of one of the first calls. frees: the program frees
   the request; it is freed when it has ended, as MPI does not free active
   ones. */
bool baton__mpi_is_first(MPI_Request request, bool frees);

/* comm_of: the communicator's record; NULL if there is no memory. comm_join:
   creates its group; returns why it can't, or TAKEN. */
baton__mpi_comm_t *baton__mpi_comm_of(MPI_Comm comm);
baton__mpi_why_t baton__mpi_comm_join(baton__mpi_comm_t *comm);

/* Called after MPI's call for a call that was left; returns MPI's `code`.
   Records the request (unless NULL) of a FIRST call; one that failed does not
   count. */
int baton__mpi_note(int left, int code, MPI_Comm comm,
                    const MPI_Request *request);

/* Destroys the schedules and the records of freed communicators whose
   operations had not ended before, but have now. */
void baton__mpi_comms_reap(void);

/* Frees all records. The operations have ended, or are given up. */
void baton__mpi_comms_close(void);
