/* The MPI transport's inside: its endpoint, and what tests reach of it without
   an engine. */
#ifndef BATON_TRANSPORT_MPI_INTERNAL_H
#define BATON_TRANSPORT_MPI_INTERNAL_H

#include "transport/doorbell.h"

#include <baton/mpi.h>
#include <baton/transport.h>

/* Between ranks of a host Open MPI 4.1.4 sends messages eagerly up to 4096
   bytes less a header of 56; over TCP more. Longer ones than this go as large
   ones. */
enum { BATON__MPI_DIRECT_BYTES = 4032 };

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
    bool ticket;    /* met: a large message follows, or is being received */
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
    int sends; /* of them */
    /* Finished and not handed out yet: done[done_at .. done_count). */
    baton_completion_t *done;
    int done_at;
    int done_count;
    /* Each of these arrays has room for `capacity`. */
    int *indices;
    MPI_Status *statuses;
    int capacity;
    int64_t reserved;
    uint32_t serial;
    uint32_t idle_polls; /* in a row that completed nothing */

    baton__doorbell_t *bell; /* NULL: no other rank on this host */
    int *bells;              /* by rank: its number on this host, or -1 */
    bool all_reached;        /* every peer can ring this rank */
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

/* ---- mpi_large.c ------------------------------------------------------ */

bool baton__mpi_is_large(const baton__mpi_t *mpi, int peer, size_t bytes);

/* Posts body and ticket; returns MPI's code. */
int baton__mpi_send_large(baton__mpi_t *mpi, int peer, uint32_t tag,
                          const void *data, size_t bytes, MPI_Request *body);

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

/* Fills the holes that finished requests left, from the end of the arrays. */
void baton__mpi_close_holes(baton__mpi_t *mpi, int finished);

/* Functions of the port that are not in mpi.c. */
int baton__mpi_descriptor(void *endpoint);
void baton__mpi_hush(void *endpoint);
uint32_t baton__mpi_rest(void *endpoint);
void baton__mpi_awake(void *endpoint);
baton_status_t baton__mpi_reserve(void *endpoint, int64_t messages);
void baton__mpi_close(void *endpoint);

#endif
