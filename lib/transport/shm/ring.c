/* The ring between processes; see ring.h. */
#include "transport/shm/ring.h"

/* A record's first word is its number of cells; with this bit they are to be
   skipped. */
#define SKIPPED (UINT32_C(1) << 31)

static baton__cell_t *cell_at(baton__ring_t *ring, uint32_t at)
{
    return &ring->cells[at & (BATON__RING_CELLS - 1)];
}

static uint32_t cells_of(size_t bytes)
{
    return (uint32_t)((bytes + BATON__CELL_BYTES - 1) / BATON__CELL_BYTES);
}

static void commit(baton__cell_t *cell, uint32_t word)
{
    /* Pairs with the load in front(). */
    atomic_store_explicit(&cell->word, word, memory_order_release);
}

void *baton__ring_claim(baton__ring_t *ring, size_t bytes, uint32_t *head)
{
    uint32_t count = cells_of(bytes);
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint32_t skip;
    do {
        uint32_t left = BATON__RING_CELLS - (tail & (BATON__RING_CELLS - 1));
        skip = count > left ? left : 0;
        if (tail + skip + count - *head > BATON__RING_CELLS) {
            /* Pairs with the store in pop(): the cells up to there are clear.
             */
            *head = atomic_load_explicit(&ring->head, memory_order_acquire);
            if (tail + skip + count - *head > BATON__RING_CELLS) {
                return NULL;
            }
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &ring->tail, &tail, tail + skip + count, memory_order_relaxed,
        memory_order_relaxed));
    if (skip > 0) {
        commit(cell_at(ring, tail), skip | SKIPPED);
    }
    return cell_at(ring, tail + skip);
}

void baton__ring_commit(void *record, size_t bytes)
{
    commit(record, cells_of(bytes));
}

/* Takes `count` cells off the front. */
static void take(baton__ring_t *ring, uint32_t head, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        atomic_store_explicit(&cell_at(ring, head + i)->word, 0,
                              memory_order_relaxed);
    }
    /* Pairs with the load in claim(). */
    atomic_store_explicit(&ring->head, head + count, memory_order_release);
}

void *baton__ring_front(baton__ring_t *ring)
{
    for (;;) {
        uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        baton__cell_t *cell = cell_at(ring, head);
        /* Pairs with the store in commit(). */
        uint32_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
        if ((word & SKIPPED) == 0) {
            return word != 0 ? cell : NULL;
        }
        take(ring, head, word & ~SKIPPED);
    }
}

void baton__ring_pop(baton__ring_t *ring)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    take(
        ring, head,
        atomic_load_explicit(&cell_at(ring, head)->word, memory_order_relaxed));
}
