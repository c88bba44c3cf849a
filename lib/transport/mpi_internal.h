/* The MPI transport's inside: its endpoint, and what tests reach of it without
   an engine. */
#ifndef BATON_TRANSPORT_MPI_INTERNAL_H
#define BATON_TRANSPORT_MPI_INTERNAL_H

#include "transport/doorbell.h"

#include <baton/mpi.h>
#include <baton/transport.h>

/* A posted message, beside its request. */
typedef struct baton__mpi_item {
    baton_token_t token;
    size_t bytes; /* posted */
    int peer;
    bool receive;
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

/* Functions of the port that are not in mpi.c. */
int baton__mpi_descriptor(void *endpoint);
void baton__mpi_hush(void *endpoint);
uint32_t baton__mpi_rest(void *endpoint);
void baton__mpi_awake(void *endpoint);
baton_status_t baton__mpi_reserve(void *endpoint, int64_t messages);
void baton__mpi_close(void *endpoint);

#endif
