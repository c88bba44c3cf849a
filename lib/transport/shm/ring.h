/* Queues in memory that processes share: a ring for each two processes and
   direction, and each process's inbox, the rings of all that send to it.

   A record is some cells of a cache line each, in one piece. The producer
   claims cells, fills them, and then counts the record in a byte of its own of
   the consumer's inbox. The consumer compares these bytes, which for up to 64
   producers are one cache line, with how many records it has taken. So a
   producer that dies or is stopped, at whatever moment, costs its own records
   alone.

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
    /* Of a ring, one of which stays free: so a byte counts its records. */
    BATON__RING_LEAST_CELLS = 32,
    BATON__RING_MOST_CELLS = 256
};

/* Cells from one ring to the next: pairs of processes that have sent as many
   records are not to be in the same place of a page, and of a cache. */
#define BATON__RING_STRIDE(size) ((size_t)(size) + 1)

typedef struct baton__cell {
    /* Of a record's first one: how many it has; 0: it is in cell 0. */
    _Alignas(BATON__CELL_BYTES) uint32_t count;
    unsigned char data[BATON__CELL_BYTES - sizeof(uint32_t)];
} baton__cell_t;

/* Only lock-free atomics work between processes. */
static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_CHAR_LOCK_FREE == 2,
              "atomics between processes");

/* In shared memory: what a consumer has granted a producer so far: to send
   messages and notices, and to claim cells again. All wrap. */
typedef struct baton__credit {
    _Alignas(16) _Atomic uint32_t messages;
    _Atomic uint32_t notices;
    _Atomic uint32_t cells;
} baton__credit_t;

/* A producer's end of a ring. */
typedef struct baton__ring {
    baton__cell_t *cells;
    const baton__credit_t *credit;
    _Atomic uint8_t *count;  /* its byte */
    uint32_t size;           /* cells, a power of two */
    uint32_t claimed, freed; /* cells so far; the latter as is known */
    uint8_t put;             /* records */
} baton__ring_t;

/* A consumer's end of all rings to it. */
typedef struct baton__inbox {
    baton__cell_t *cells;     /* those of each producer, one after another */
    baton__credit_t *credits; /* of each, as the next two */
    const _Atomic uint8_t *counts;
    uint8_t *taken;
    int producers;
    int at;                    /* the one whose turn it is */
    uint32_t size;             /* cells of each */
    const baton__cell_t *next; /* where the last one's next record may come */
} baton__inbox_t;

/* Claims room for a record of `bytes`, which begins with a word of the ring's;
   NULL if there is none. */
void *baton__ring_claim(baton__ring_t *ring, size_t bytes);

/* The record that was claimed is complete: the consumer sees it. */
void baton__ring_commit(baton__ring_t *ring);

/* Whether all that was committed has been taken out. */
static inline bool baton__ring_is_empty(const baton__ring_t *ring)
{
    return atomic_load_explicit(&ring->credit->cells, memory_order_relaxed) ==
           ring->claimed;
}

/* The oldest record of a producer that has one, or NULL; and takes it out, when
   it is the next one's turn. */
void *baton__inbox_front(baton__inbox_t *inbox);
void baton__inbox_pop(baton__inbox_t *inbox);
