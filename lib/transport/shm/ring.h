/* Queues in memory that processes share. Each pair of processes has a ring in
   each direction. The inbox of a process is all rings that lead to it.

   A record is one or more adjacent cells of a cache line each. The producer
   claims cells, fills them, and then counts the record in its own byte of the
   consumer's inbox. The consumer compares these bytes, which for up to 64
   producers are on one cache line, with the number of records that it has
   taken. So if a producer dies or is stopped, at whatever moment, only its own
   records are missing.

       producer                                   consumer
       fills cells
       stores its count     release -> acquire    finds that it differs
                                                  reads the record
       claims cells again   acquire <- release    frees its cells */
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BATON__CELL_BYTES = 64,
    /* Number of cells of a ring. One cell always stays free, so that a ring has
       at most 255 records and a byte can count them. */
    BATON__RING_LEAST_CELLS = 32,
    BATON__RING_MOST_CELLS = 256
};

/* The number of cells from the beginning of one ring to that of the next. There
   is an extra cell between rings. Without it, rings that have carried equally
   many records would be at the same offset in a page, and would compete for the
   same lines of a cache. */
#define BATON__RING_STRIDE(size) ((size_t)(size) + 1)

typedef struct baton__cell {
    /* In the first cell of a record: the record's number of cells. 0 means that
       the record did not fit here and begins in cell 0 of the ring. */
    _Alignas(BATON__CELL_BYTES) uint32_t count;
    unsigned char data[BATON__CELL_BYTES - sizeof(uint32_t)];
} baton__cell_t;

/* Only lock-free atomics work between processes. */
static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_CHAR_LOCK_FREE == 2,
              "atomics between processes");

/* In shared memory: how many messages and notices a consumer has allowed a
   producer to send so far, and how many cells the consumer has freed. All three
   counts wrap. */
typedef struct baton__credit {
    _Alignas(16) _Atomic uint32_t messages;
    _Atomic uint32_t notices;
    _Atomic uint32_t cells;
} baton__credit_t;

/* A producer's end of a ring. */
typedef struct baton__ring {
    baton__cell_t *cells;
    const baton__credit_t *credit;
    _Atomic uint8_t *count; /* the producer's byte of the consumer's inbox */
    uint32_t size;          /* number of cells, a power of two */
    /* claimed: the number of cells that were claimed so far. freed: the last
       value that was read from credit->cells. */
    uint32_t claimed, freed;
    uint8_t put; /* number of records put in so far; wraps */
} baton__ring_t;

/* A consumer's end of all rings to it. */
typedef struct baton__inbox {
    baton__cell_t *cells; /* the rings of all producers */
    /* The credits that this consumer has granted, by producer. */
    baton__credit_t *credits;
    const _Atomic uint8_t *counts; /* number of records put in, by producer */
    uint8_t *taken;                /* number of records taken, by producer */
    int producers;
    int at;        /* the producer whose ring is looked at first */
    uint32_t size; /* number of cells of each ring */
    /* The cell after the record that was taken last. The next record of the
       same producer begins there, if it fits before the end of the ring. */
    const baton__cell_t *next;
} baton__inbox_t;

/* Claims cells for a record of `bytes` bytes. Returns the record, or NULL if
   too few cells are free. The first four bytes of the record belong to the
   ring, which has set them. */
void *baton__ring_claim(baton__ring_t *ring, size_t bytes);

/* Makes the claimed record visible to the consumer. */
void baton__ring_commit(baton__ring_t *ring);

/* Returns true if the consumer has taken all records. */
static inline bool baton__ring_is_empty(const baton__ring_t *ring)
{
    return atomic_load_explicit(&ring->credit->cells, memory_order_relaxed) ==
           ring->claimed;
}

/* Returns the oldest record of the next producer that has one, or NULL if all
   rings are empty. */
void *baton__inbox_front(baton__inbox_t *inbox);

/* Removes the record that baton__inbox_front has returned. The next call of
   baton__inbox_front begins with the next producer. */
void baton__inbox_pop(baton__inbox_t *inbox);
