/* The medium that loop ranks share: made, joined, made a group of, destroyed.
 */
#include "transport/loop_rank.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef baton__loop_rank_t rank_t;

static void free_loop(baton_loop_t *loop, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        baton__loop_free(&loop->ranks[i]);
        pthread_mutex_destroy(&loop->ranks[i].mutex);
    }
    baton__free(loop->ranks);
    baton__free(loop);
}

static baton_status_t no_memory(int size)
{
    return baton__error(BATON_ERR_NO_MEMORY,
                        "loop: no memory for a medium of %d ranks", size);
}

baton_status_t baton_loop_create(int size, baton_loop_t **out)
{
    if (!out || size < 1) {
        return baton__error(BATON_ERR_INVALID,
                            "baton_loop_create: size is %d, must be at least "
                            "1, and out not NULL",
                            size);
    }
    baton_loop_t *loop = baton__alloc(1, sizeof *loop);
    if (!loop) {
        return no_memory(size);
    }
    loop->ranks = baton__alloc((size_t)size, sizeof *loop->ranks);
    if (!loop->ranks) {
        baton__free(loop);
        return no_memory(size);
    }
    loop->size = size;
    for (int i = 0; i < size; i++) {
        rank_t *rank = &loop->ranks[i];
        rank->loop = loop;
        rank->index = i;
        rank->bucket_count = BATON__LOOP_BUCKETS_MIN;
        rank->buckets =
            baton__alloc(BATON__LOOP_BUCKETS_MIN, sizeof *rank->buckets);
        if (!rank->buckets) {
            free_loop(loop, i);
            return no_memory(size);
        }
        pthread_mutex_init(&rank->mutex, NULL);
    }
    *out = loop;
    return BATON_OK;
}

void baton_loop_destroy(baton_loop_t *loop)
{
    if (!loop) {
        return;
    }
    for (int i = 0; i < loop->size; i++) {
        rank_t *rank = &loop->ranks[i];
        pthread_mutex_lock(&rank->mutex);
        bool joined = rank->joined;
        pthread_mutex_unlock(&rank->mutex);
        if (joined) {
            /* Leaking it is the lesser harm: the group still points here. */
            (void)baton__error(BATON_ERR_BUSY,
                               "baton_loop_destroy: the group of rank %d "
                               "still exists; the medium was not freed",
                               i);
            return;
        }
    }
    free_loop(loop, loop->size);
}

static baton_status_t join(rank_t *rank)
{
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell < 0) {
        return baton__error(BATON_ERR_SYSTEM, "loop: eventfd: %s",
                            strerror(errno));
    }
    pthread_mutex_lock(&rank->mutex);
    bool taken = rank->joined;
    if (!taken) {
        rank->joined = true;
        rank->bell = bell;
    }
    pthread_mutex_unlock(&rank->mutex);
    if (taken) {
        close(bell);
        return baton__error(BATON_ERR_INVALID,
                            "loop: rank %d of %d has joined already",
                            rank->index, rank->loop->size);
    }
    rank->reserved = 0;
    rank->fail_send = 0;
    return BATON_OK;
}

baton_status_t baton__loop_join(baton_loop_t *loop, int rank,
                                const baton_transport_t **transport_out,
                                void **endpoint_out)
{
    if (!loop) {
        return baton__error(BATON_ERR_INVALID, "loop: the medium is NULL");
    }
    if (rank < 0 || rank >= loop->size) {
        return baton__error(BATON_ERR_INVALID,
                            "loop: rank %d is not in 0 to %d", rank,
                            loop->size - 1);
    }
    baton_status_t status = join(&loop->ranks[rank]);
    if (!status) {
        *transport_out = &baton__loop_transport;
        *endpoint_out = &loop->ranks[rank];
    }
    return status;
}

void baton__loop_fail_send(void *endpoint, int64_t k)
{
    ((rank_t *)endpoint)->fail_send = k;
}

baton_status_t baton_group_create_loop(baton_engine_t *engine,
                                       baton_loop_t *loop, int rank,
                                       baton_group_t **out)
{
    const baton_transport_t *transport = NULL;
    void *endpoint = NULL;
    baton_status_t status = baton__loop_join(loop, rank, &transport, &endpoint);
    if (status != BATON_OK || loop == NULL || transport == NULL) {
        return status;
    }
    status =
        baton_group_create(engine, transport, endpoint, rank, loop->size, out);
    if (status) {
        transport->close(endpoint);
    }
    return status;
}

baton_status_t baton_group_create_self(baton_engine_t *engine,
                                       baton_group_t **out)
{
    baton_loop_t *loop = NULL;
    baton_status_t status = baton_loop_create(1, &loop);
    if (status != BATON_OK || loop == NULL) {
        return status;
    }
    status = baton_group_create_loop(engine, loop, 0, out);
    if (status) {
        baton_loop_destroy(loop);
        return status;
    }
    /* From here on the group's close is the end of the medium too. */
    loop->ranks[0].owns_loop = true;
    return BATON_OK;
}
