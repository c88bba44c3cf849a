/* The medium that inproc ranks share: made, joined, made a group of, destroyed.
 */
#include "transport/inproc/rank.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef baton__inproc_rank_t rank_t;

static void free_medium(baton_inproc_t *medium)
{
    for (int i = 0; i < medium->size; i++) {
        baton__inproc_free(&medium->ranks[i]);
        pthread_mutex_destroy(&medium->ranks[i].mutex);
    }
    baton__free(medium->ranks);
    baton__free(medium);
}

baton_status_t baton_inproc_create(int size, baton_inproc_t **out)
{
    if (out == NULL || size < 1) {
        return baton__error(BATON_ERR_INVALID,
                            "baton_inproc_create: size is %d, must be at least "
                            "1, and out not NULL",
                            size);
    }
    baton_inproc_t *medium = baton__alloc(1, sizeof *medium);
    rank_t *ranks = baton__alloc((size_t)size, sizeof *ranks);
    if (medium == NULL || ranks == NULL) {
        baton__free(medium);
        baton__free(ranks);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "inproc: no memory for a medium of %d ranks", size);
    }
    medium->size = size;
    medium->ranks = ranks;
    for (int i = 0; i < size; i++) {
        ranks[i].medium = medium;
        ranks[i].index = i;
        pthread_mutex_init(&ranks[i].mutex, NULL);
    }
    *out = medium;
    return BATON_OK;
}

baton_status_t baton_inproc_destroy(baton_inproc_t *medium)
{
    if (medium == NULL) {
        return BATON_OK;
    }
    for (int i = 0; i < medium->size; i++) {
        rank_t *rank = &medium->ranks[i];
        pthread_mutex_lock(&rank->mutex);
        bool joined = rank->joined;
        pthread_mutex_unlock(&rank->mutex);
        if (joined) {
            return baton__error(BATON_ERR_BUSY,
                                "baton_inproc_destroy: the group of rank %d "
                                "still exists: destroy it first",
                                i);
        }
    }
    free_medium(medium);
    return BATON_OK;
}

/* Nobody is lost to a rank that joins. */
static baton_status_t make_lost(rank_t *rank)
{
    size_t size = (size_t)rank->medium->size;
    if (rank->lost == NULL) {
        rank->lost = baton__alloc(size, sizeof *rank->lost);
    }
    if (rank->lost == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "inproc: no memory for rank %d of %zu", rank->index,
                            size);
    }
    memset(rank->lost, BATON__INPROC_THERE, size);
    rank->lost_count = 0;
    return BATON_OK;
}

static baton_status_t join(rank_t *rank)
{
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd < 0) {
        return baton__error(BATON_ERR_SYSTEM, "inproc: eventfd: %s",
                            strerror(errno));
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
    rank->fail_send = 0;
    baton_status_t status = make_lost(rank);
    /* Notices need records before anything is reserved. */
    if (status == BATON_OK) {
        status = baton__inproc_grow(rank, BATON__INPROC_SLAB_LEAST);
    }
    if (status != BATON_OK) {
        baton__inproc_transport.close(rank);
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
    baton_status_t status = join(&medium->ranks[rank]);
    if (status == BATON_OK) {
        *transport_out = &baton__inproc_transport;
        *endpoint_out = &medium->ranks[rank];
    }
    return status;
}

void baton__inproc_fail_send(void *endpoint, int64_t k)
{
    ((rank_t *)endpoint)->fail_send = k;
}

int baton__inproc_size(const baton_inproc_t *medium)
{
    return medium->size;
}

void baton__inproc_own_medium(void *endpoint)
{
    ((rank_t *)endpoint)->owns_medium = true;
}
