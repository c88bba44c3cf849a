/* Joins ranks to an inproc medium, and creates groups of them. */
#include "transport/inproc/rank.h"

#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef baton__inproc_rank_t rank_t;

static baton_status_t inproc_group_join(rank_t *rank)
{
    int event_fd =
        baton__descriptor_move(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event_fd < 0) {
        return baton__error(BATON_ERR_SYSTEM, "inproc: eventfd: %s",
                            baton__errno_text(errno));
    }
    pthread_mutex_lock(&rank->mutex);
    bool taken = rank->joined;
    if (!taken) {
        rank->joined = true;
        rank->left = false;
        rank->event_fd = event_fd;
    }
    pthread_mutex_unlock(&rank->mutex);
    if (taken) {
        close(event_fd);
        return baton__error(BATON_ERR_INVALID,
                            "inproc: rank %d of %d has joined already",
                            rank->index, rank->medium->size);
    }
    rank->reserved = 0;
    rank->lost_count = 0;
    baton__free(rank->lost); /* of an earlier endpoint */
    rank->lost = baton__alloc((size_t)rank->medium->size, sizeof *rank->lost);
    /* Notices are sent even before anything is reserved, and each needs a
       record. */
    baton_status_t status =
        rank->lost != NULL ? baton__inproc_grow(rank, BATON__INPROC_SLAB_LEAST)
                           : baton__error(BATON_ERR_NO_MEMORY,
                                          "inproc: no memory for rank %d of %d",
                                          rank->index, rank->medium->size);
    if (status != BATON_OK) {
        baton__inproc_close(rank);
    }
    return status;
}

baton_status_t baton__inproc_join(baton_inproc_t *medium, int rank,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out)
{
    if (medium == NULL) {
        return baton__error(BATON_ERR_INVALID, "inproc: the medium is NULL");
    }
    if (rank < 0 || rank >= medium->size) {
        return baton__error(BATON_ERR_INVALID,
                            "inproc: rank %d is not in 0 to %d", rank,
                            medium->size - 1);
    }
    baton_status_t status = inproc_group_join(&medium->ranks[rank]);
    if (status == BATON_OK) {
        *transport_out = &baton__inproc_transport;
        *endpoint_out = &medium->ranks[rank];
    }
    return status;
}

/* ---- groups ------------------------------------------------------------ */

static baton_status_t inproc_group_create(baton_engine_t *engine,
                                          baton_inproc_t *medium, int rank,
                                          bool owns_medium, baton_group_t **out)
{
    const baton_transport_t *transport = NULL;
    void *endpoint = NULL;
    baton_status_t status =
        baton__inproc_join(medium, rank, &transport, &endpoint);
    if (status != BATON_OK || transport == NULL) {
        return status;
    }
    status = baton_group_create(engine, transport, endpoint, rank, medium->size,
                                out);
    if (status != BATON_OK) {
        transport->close(endpoint);
    } else if (owns_medium) {
        ((rank_t *)endpoint)->owns_medium = true;
    }
    return status;
}

baton_status_t baton_group_create_inproc(baton_engine_t *engine,
                                         baton_inproc_t *medium, int rank,
                                         baton_group_t **out)
{
    return inproc_group_create(engine, medium, rank, false, out);
}

baton_status_t baton_group_create_self(baton_engine_t *engine,
                                       baton_group_t **out)
{
    baton_inproc_t *medium = NULL;
    baton_status_t status = baton_inproc_create(1, &medium);
    if (status != BATON_OK || medium == NULL) {
        return status;
    }
    status = inproc_group_create(engine, medium, 0, true, out);
    if (status != BATON_OK) {
        (void)!baton_inproc_destroy(medium);
    }
    return status;
}
