/* What is kept for a communicator: a group of Baton's, made without
   communication when its first collective is taken, and the schedules of the
   shapes that it has met. They cost as much as many short calls, so all but
   MPI_COMM_WORLD must be worth it: their first calls are MPI's. It is an
   attribute of the communicator, with a key of the library's own that no dup
   copies; the application's attributes and their callbacks are not touched.

   Ranks may make the first calls on two communicators of the same ranks in
   different orders. So the group's name has the context id by which Open MPI
   itself tells their messages apart. An id comes again when a communicator was
   freed; all of its ranks have used the old one, or none, and groups of one
   name pair by their order. */
#ifndef BATON_MPI_COMMS_H
#define BATON_MPI_COMMS_H

#include "mpi/call.h"

#include <stdatomic.h>

/* Why a call is left to MPI. */
typedef enum baton__mpi_why {
    BATON__MPI_TAKEN,
    BATON__MPI_SINGLE,    /* one rank */
    BATON__MPI_INTER,     /* an intercommunicator */
    BATON__MPI_FOREIGN,   /* has ranks of another MPI_COMM_WORLD */
    BATON__MPI_SHORT,     /* fewer bytes than BATON_MPI_FROM, or none */
    BATON__MPI_ONE_ROUND, /* of messages, which MPI need not progress */
    BATON__MPI_NEW,       /* the communicator's first calls */
    BATON__MPI_TYPE,      /* a type or operation that Baton does not reduce */
    BATON__MPI_WRONG,     /* an error of the program's: MPI says which */
    BATON__MPI_WHYS
} baton__mpi_why_t;

/* Bytes that a communicator's calls have moved before a group is made of it. A
   call counts at least as 1 / FIRST_CALLS of it. */
enum { BATON__MPI_WORTH = 1 << 16, BATON__MPI_FIRST_CALLS = 8 };

typedef struct baton__mpi_comm {
    MPI_Comm handle;
    baton__mpi_why_t why; /* all calls are left; TAKEN: they need not be */
    int rank, size;
    uint64_t worth;       /* bytes, and some for each call */
    uint64_t counted;     /* of it for the last call */
    baton_group_t *group; /* NULL where no call is taken */
    MPI_Comm self; /* of persistent requests (requests.h), or MPI_COMM_NULL; it
                      has the error handler of `handle` */
    struct baton__mpi_entry *entries;
    MPI_Request firsts[BATON__MPI_FIRST_CALLS]; /* MPI's own; may have gone */
    _Atomic int first_count;
    unsigned orphans;  /* of them, by bits: the program has freed them */
    _Atomic int users; /* operations that have not ended */
    _Atomic bool dead; /* freed by the application */
    /* For the log, of the operations that a MPI_Wait or MPI_Waitall was for:
       their bytes; the time with any in flight, up to when it is counted; and
       how much of that the program waited. */
    _Atomic int64_t bytes, flight_ns, counted_to_ns, waited_ns;
    uint32_t counts[BATON__MPI_WHYS][BATON__MPI_KINDS * BATON__MPI_WAYS];
    struct baton__mpi_comm *next;
} baton__mpi_comm_t;

/* Finds where the context id is in a communicator, and makes the key. NULL;
   else why it can't. */
const char *baton__mpi_comms_open(void);

/* Whether MPI runs it as one of the first calls. Frees: it goes when it ends,
   as MPI itself frees none that is active. */
bool baton__mpi_is_first(MPI_Request request, bool frees);

/* The communicator's record; NULL: no memory. Its group; why it has none. */
baton__mpi_comm_t *baton__mpi_comm_of(MPI_Comm comm);
baton__mpi_why_t baton__mpi_comm_join(baton__mpi_comm_t *comm);

/* Destroys what was left when its operations had not ended: the schedules that
   are not needed any more, and the records of freed communicators. */
void baton__mpi_comms_reap(void);

/* Frees all records; the operations have ended, or are given up. */
void baton__mpi_comms_close(void);

#endif
