/* The MPI transport's inside: its endpoint, and what tests reach of it without
   an engine. */
#ifndef BATON_TRANSPORT_MPI_INTERNAL_H
#define BATON_TRANSPORT_MPI_INTERNAL_H

#include "transport/doorbell.h"
#include "transport/slots.h"

#include <baton/mpi.h>
#include <baton/transport.h>

enum {
    /* Between ranks of a host Open MPI 4.1.4 sends messages eagerly up to 4096
       bytes less a header of 56; over TCP more. Longer ones than this go as
       large ones. */
    BATON__MPI_DIRECT_BYTES = 4032,
    /* Up to here a send between ranks of a host is done as it is posted; a
       longer eager one ends when its receiver has made progress, and the sender
       after it. */
    BATON__MPI_INLINE_BYTES = 256
};

/* A posted message, beside its request. */
typedef struct baton__mpi_item {
    baton_token_t token;
    void *data;   /* of a receive */
    void *sink;   /* takes a body that is too long for it; owned */
    size_t bytes; /* posted */
    int peer;
    uint32_t tag;
    uint32_t serial; /* of receives, in the order posted */
    bool receive;
    bool unrung;    /* moved by what need not ring: it has to be polled for */
    bool ticket;    /* met: a body follows, or is being received */
    bool body;      /* its request is the body's */
    bool cancelled; /* asked to, in vain so far */
} baton__mpi_item_t;

typedef struct baton__mpi {
    baton_transport_t transport; /* max_tag is the MPI library's */
    MPI_Comm comm;
    int rank;
    int size;

    /* In flight: requests[i] is items[i]'s, without holes. */
    MPI_Request *requests;
    baton__mpi_item_t *items;
    int count;
    int unrung; /* of them */
    /* Ends as it is started: MPI_Testsome with it among the others only looks,
       and does not make progress. */
    MPI_Request ended;
    bool looking; /* it is started */
    /* Finished and not handed out yet: done[done_at .. done_count). */
    baton_completion_t *done;
    int done_at;
    int done_count;
    /* Each of these arrays has room for `capacity`, and for `ended`. */
    int *indices;
    MPI_Status *statuses;
    int capacity;
    int64_t reserved;
    uint32_t serial;
    /* While polls complete nothing: since when (0: they do), and when to ring
       for what is unrung. */
    uint64_t idle_since_ns;
    uint64_t ring_at_ns;
    uint32_t quiet_polls; /* since MPI has made progress */

    baton__doorbell_t *bell; /* NULL: no other rank on this host */
    baton__slots_t *slots;   /* NULL also where there is no memory for them */
    int *bells;              /* by rank: its number on this host, or -1 */
    bool all_reached;        /* every peer can ring this rank */
    bool resting;            /* between rest() and awake() */
    bool bounded;            /* rest() gave a bound */
    bool noted;              /* a peer had left a note when it was called */
    bool swept;              /* resting, MPI has made progress since */
    char detail[MPI_MAX_ERROR_STRING];
} baton__mpi_t;

extern const baton_transport_t baton__mpi_transport;

/* Collective over `comm`; `local` is this rank's own verdict so far. When any
   rank fails, all do: those that did not with a message that says so. On
   success the endpoint's close() is collective too. */
baton_status_t baton__mpi_open(MPI_Comm comm, baton_status_t local,
                               const baton_transport_t **transport_out,
                               void **endpoint_out);

/* BATON_ERR_TRANSPORT with what MPI says about `code`. */
baton_status_t baton__mpi_error(const char *call, int code);

/* The status of all ranks of `comm`: `local` where that is an error, else the
   worst of the others'. Collective. */
baton_status_t baton__mpi_agree(MPI_Comm comm, baton_status_t local);

/* Finds the ranks of this host and opens doorbells between them. Collective;
   every rank gets to the end of it, with its own status. */
baton_status_t baton__mpi_open_bells(baton__mpi_t *mpi);

/* Tells the peer's driver that this rank has sent to it or received from it. */
void baton__mpi_ring(baton__mpi_t *mpi, int peer);

/* ---- mpi_post.c ------------------------------------------------------- */

/* Lengths of tickets: odd, as few messages are. */
enum {
    BATON__MPI_BODY_TICKET = 31, /* a body follows */
    BATON__MPI_SLOT_TICKET = 33, /* and 2 more for each further slot */
    BATON__MPI_LAST_TICKET = BATON__MPI_SLOT_TICKET + 2 * (BATON__SLOTS - 1)
};

static inline bool baton__mpi_is_ticket(size_t bytes)
{
    return bytes % 2 == 1 && bytes >= BATON__MPI_BODY_TICKET &&
           bytes <= BATON__MPI_LAST_TICKET;
}

/* Sends it; returns MPI's code. When that is MPI_SUCCESS, *request is
   MPI_REQUEST_NULL if the send is over, and *failed_out the code of what went
   wrong after it was posted. Sets item->unrung. */
int baton__mpi_post(baton__mpi_t *mpi, baton__mpi_item_t *item,
                    const void *data, MPI_Request *request, int *failed_out);

/* ---- mpi_finish.c ----------------------------------------------------- */

/* What became of a finished message. `code` is MPI_SUCCESS unless the call that
   finished it said that the status has an error. */
baton_completion_t baton__mpi_outcome(baton__mpi_t *mpi,
                                      const baton__mpi_item_t *item,
                                      const MPI_Status *status, int code);

/* Moves requests[at], which has finished, to the done list. */
void baton__mpi_finish(baton__mpi_t *mpi, int at, const MPI_Status *status,
                       int code);

/* The same for what MPI_Testsome reported, except that a receive whose ticket
   came goes on with the body; `errors`: statuses have codes. Returns how many
   indices there are now: it may find that others have finished. */
int baton__mpi_settle(baton__mpi_t *mpi, int finished, bool errors);

/* When MPI_Testsome reports an error, Open MPI 4.1.4 frees whatever has an
   error in its status, and a message in flight may have an old one there: lost.
   Adds those to the `finished` indices, as errors; returns how many there are.
 */
int baton__mpi_reap(baton__mpi_t *mpi, int finished);

/* Fills the holes that finished requests left, from the end of the arrays. */
void baton__mpi_close_holes(baton__mpi_t *mpi, int finished);

/* Functions of the port that are not in mpi.c. */
int baton__mpi_descriptor(void *endpoint);
void baton__mpi_hush(void *endpoint);
uint32_t baton__mpi_rest(void *endpoint);
bool baton__mpi_sleep(void *endpoint);
void baton__mpi_awake(void *endpoint);
baton_status_t baton__mpi_reserve(void *endpoint, int64_t messages);
void baton__mpi_close(void *endpoint);

#endif
