/* The medium that inproc ranks share: made and destroyed. */
#include "transport/inproc/rank.h"

#include "base/alloc.h"
#include "base/error.h"

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
