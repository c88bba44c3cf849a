/* The memory of an inproc medium: its ranks, and each rank's pool of records.
   The pool has a record for each reserved send, and one for each copy that may
   be in flight. */
#include "transport/inproc/rank.h"

#include "base/alloc.h"
#include "base/error.h"

typedef baton__inproc_record_t record_t;

/* Moves the records that receivers have given back to the list of free
   records. */
static void medium_collect(baton__inproc_rank_t *rank)
{
    record_t *record =
        atomic_exchange_explicit(&rank->back, NULL, memory_order_acquire);
    while (record != NULL) {
        record_t *next = record->next;
        rank->copies -= record->source == NULL;
        record->next = rank->records;
        rank->records = record;
        record = next;
    }
}

record_t *baton__inproc_take(baton__inproc_rank_t *rank, bool copy)
{
    if (rank->records == NULL || (copy && rank->copies == rank->most_copies)) {
        medium_collect(rank);
    }
    record_t *record = rank->records;
    if (record == NULL || (copy && rank->copies == rank->most_copies)) {
        return NULL;
    }
    rank->records = record->next;
    rank->copies += copy;
    record->source = NULL;
    return record;
}

/* Any thread may call this. The owner always takes the whole list. So it does
   no harm if the list's head changes and changes back between the load and the
   exchange (no ABA problem). */
void baton__inproc_give(record_t *record)
{
    _Atomic(record_t *) *back = &record->owner->back;
    record->next = atomic_load_explicit(back, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(back, &record->next, record,
                                                  memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

/* New slabs at least double the pool, so that there are few of them. */
baton_status_t baton__inproc_grow(baton__inproc_rank_t *rank, size_t sends)
{
    size_t before = rank->capacity - rank->most_copies;
    if (sends <= before) {
        return BATON_OK;
    }
    size_t wanted = sends > 2 * before ? sends : 2 * before;
    wanted =
        wanted > BATON__INPROC_SLAB_LEAST ? wanted : BATON__INPROC_SLAB_LEAST;
    size_t copies =
        wanted < BATON__INPROC_COPIES_MOST ? wanted : BATON__INPROC_COPIES_MOST;
    size_t count = wanted + copies - rank->capacity;
    baton__inproc_slab_t *slab =
        baton__alloc(1, sizeof *slab + count * sizeof slab->records[0]);
    if (slab == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "inproc: no memory for %zu more sends of rank %d",
                            wanted - before, rank->index);
    }
    slab->next = rank->slabs;
    slab->count = count;
    rank->slabs = slab;
    rank->is_hashed = false;
    rank->capacity += count;
    rank->most_copies = copies;
    for (size_t i = 0; i < count; i++) {
        record_t *record = &slab->records[i];
        record->owner = rank;
        atomic_init(&record->state, BATON__INPROC_TAKEN);
        record->next = rank->records;
        rank->records = record;
    }
    return BATON_OK;
}

static void medium_free_records(baton__inproc_rank_t *rank)
{
    while (rank->slabs != NULL) {
        baton__inproc_slab_t *slab = rank->slabs;
        rank->slabs = slab->next;
        baton__free(slab);
    }
    baton__free(rank->lost);
    rank->lost = NULL;
}

/* ---- the medium -------------------------------------------------------- */

static void free_medium(baton_inproc_t *medium)
{
    for (int i = 0; i < medium->size; i++) {
        medium_free_records(&medium->ranks[i]);
        pthread_mutex_destroy(&medium->ranks[i].mutex);
    }
    baton__free(medium->boards);
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
    baton__inproc_rank_t *ranks = baton__alloc((size_t)size, sizeof *ranks);
    char *boards = baton__alloc((size_t)size, BATON_BOARD_BYTES);
    if (medium == NULL || ranks == NULL || boards == NULL) {
        baton__free(medium);
        baton__free(ranks);
        baton__free(boards);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "inproc: no memory for a medium of %d ranks", size);
    }
    medium->size = size;
    medium->ranks = ranks;
    medium->boards = boards;
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
        baton__inproc_rank_t *rank = &medium->ranks[i];
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
