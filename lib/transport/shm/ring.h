/* A queue in memory that processes share: any of them puts records in, one
   takes them out.

   A record is some cells of a cache line each, in one piece. Its first word is
   the ring's. A producer claims cells by moving `tail`, fills them, and says so
   in that word (release); the consumer reads the word (acquire), takes the
   record, clears the first word of each of its cells, and moves `head`
   (release). So records of one producer are taken in the order in which they
   were put in, and polling an empty ring reads one word.

   A producer that is stopped between claim and commit holds up the others'
   records behind its own, until it goes on. */
#ifndef BATON_TRANSPORT_SHM_RING_H
#define BATON_TRANSPORT_SHM_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BATON__RING_CELLS = 2048, /* a power of two */
    BATON__CELL_BYTES = 64
};

typedef union baton__cell {
    _Alignas(BATON__CELL_BYTES) _Atomic uint32_t word;
    unsigned char bytes[BATON__CELL_BYTES];
} baton__cell_t;

/* Only lock-free atomics work between processes. */
static_assert(ATOMIC_INT_LOCK_FREE == 2, "atomics between processes");

/* In shared memory; zeros are an empty ring. Both count cells, and wrap.
 */
typedef struct baton__ring {
    _Alignas(BATON__CELL_BYTES) _Atomic uint32_t tail; /* producers' */
    _Alignas(BATON__CELL_BYTES) _Atomic uint32_t head; /* the consumer's */
    baton__cell_t cells[BATON__RING_CELLS];
} baton__ring_t;

/* Claims room for a record of `bytes`, the ring's word among them; NULL if
   there is none. `head` is this producer's own copy, initially 0. */
void *baton__ring_claim(baton__ring_t *ring, size_t bytes, uint32_t *head);

/* Makes the record visible to the consumer: it is complete. */
void baton__ring_commit(void *record, size_t bytes);

/* The oldest record, or NULL; and takes it out. */
void *baton__ring_front(baton__ring_t *ring);
void baton__ring_pop(baton__ring_t *ring);

/* Whether nobody has claimed room behind the record. Its producer. */
static inline bool baton__ring_is_last(const baton__ring_t *ring,
                                       const void *record, size_t bytes)
{
    const baton__cell_t *first = record;
    size_t end = (size_t)(first - ring->cells) +
                 (bytes + BATON__CELL_BYTES - 1) / BATON__CELL_BYTES;
    return ((atomic_load_explicit(&ring->tail, memory_order_relaxed) - end) &
            (BATON__RING_CELLS - 1)) == 0;
}

/* Whether all that was put in has been taken out. Any process. */
static inline bool baton__ring_is_empty(const baton__ring_t *ring)
{
    return atomic_load_explicit(&ring->head, memory_order_relaxed) ==
           atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

#endif
