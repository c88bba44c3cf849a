/* The pools of records of an inproc rank. */
#include "transport/inproc/rank.h"

#include "base/alloc.h"
#include "base/error.h"

/* Takes a free record; an empty list is refilled with what came back. */
static baton__inproc_record_t *take(baton__inproc_record_t **free_ones,
                                    _Atomic(baton__inproc_record_t *) *back)
{
    if (*free_ones == NULL) {
        *free_ones = atomic_exchange_explicit(back, NULL, memory_order_acquire);
    }
    baton__inproc_record_t *record = *free_ones;
    if (record != NULL) {
        *free_ones = record->next;
    }
    return record;
}

baton__inproc_record_t *baton__inproc_take_record(baton__inproc_rank_t *rank)
{
    return take(&rank->records, &rank->records_back);
}

baton__inproc_record_t *baton__inproc_take_copy(baton__inproc_rank_t *rank)
{
    return take(&rank->copies, &rank->copies_back);
}

/* Any thread. Records are popped all at once, so a stale head does no harm. */
void baton__inproc_give(baton__inproc_record_t *record)
{
    baton__inproc_rank_t *rank = record->owner;
    _Atomic(baton__inproc_record_t *) *back =
        record->source == NULL ? &rank->copies_back : &rank->records_back;
    baton__inproc_record_t *head =
        atomic_load_explicit(back, memory_order_relaxed);
    do {
        record->next = head;
    } while (!atomic_compare_exchange_weak_explicit(
        back, &head, record, memory_order_release, memory_order_relaxed));
}

static baton_status_t add_slab(baton__inproc_rank_t *rank, size_t count)
{
    static const char used; /* a record that refers to something */
    size_t copy_count = BATON__INPROC_COPIES_MOST - rank->copy_capacity;
    copy_count = count < copy_count ? count : copy_count;
    baton__inproc_slab_t *slab = baton__alloc(1, sizeof *slab);
    baton__inproc_record_t *records = baton__alloc(count, sizeof *records);
    baton__inproc_copy_t *copies = baton__alloc(copy_count, sizeof *copies);
    if (slab == NULL || records == NULL || copies == NULL) {
        baton__free(slab);
        baton__free(records);
        baton__free(copies);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "inproc: no memory for %zu more sends of rank %d",
                            count, rank->index);
    }
    *slab = (baton__inproc_slab_t){rank->slabs, records, copies, count};
    rank->slabs = slab;
    rank->capacity += count;
    rank->copy_capacity += copy_count;
    for (size_t i = 0; i < count; i++) {
        records[i].owner = rank;
        records[i].source = &used;
        atomic_init(&records[i].state, BATON__INPROC_TAKEN);
        baton__inproc_give(&records[i]);
    }
    for (size_t i = 0; i < copy_count; i++) {
        copies[i].record.owner = rank;
        baton__inproc_give(&copies[i].record);
    }
    return BATON_OK;
}

/* Slabs double the pool, so that there are few of them. */
baton_status_t baton__inproc_grow(baton__inproc_rank_t *rank, size_t sends)
{
    if (sends <= rank->capacity) {
        return BATON_OK;
    }
    size_t count = sends - rank->capacity;
    count = count < rank->capacity ? rank->capacity : count;
    count = count < BATON__INPROC_SLAB_LEAST ? BATON__INPROC_SLAB_LEAST : count;
    return add_slab(rank, count);
}

void baton__inproc_free(baton__inproc_rank_t *rank)
{
    while (rank->slabs != NULL) {
        baton__inproc_slab_t *slab = rank->slabs;
        rank->slabs = slab->next;
        baton__free(slab->records);
        baton__free(slab->copies);
        baton__free(slab);
    }
    baton__free(rank->lost);
    rank->lost = NULL;
}
