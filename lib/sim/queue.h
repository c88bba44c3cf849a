/* The simulator's events in order of time: a radix heap (Ahuja, Mehlhorn,
   Orlin, Tarjan 1990). An entry's bucket is the highest bit in which its time
   differs from `last`, the time of the first entries. As time passes an entry
   only moves towards lower buckets, so a push or pop costs little whatever the
   number of entries. Entries of one time come out in the order in which they
   were pushed: equal keys are always in the same bucket and move in order.

   A bucket is a list of chunks from one pool, since any bucket may hold most of
   the entries: those of ranks in lock-step share one bucket, a different one at
   each step. So memory grows with the number of entries in the queue, not with
   the largest size of each bucket, and entries move without an allocation. */
#ifndef BATON_SIM_QUEUE_H
#define BATON_SIM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct baton__sim_entry {
    uint64_t key;  /* the bits of its time, which order as the time does */
    uint32_t kind; /* kind and index are the owner's */
    uint32_t index;
} baton__sim_entry_t;

enum {
    /* One for each of the 63 bits that may be the highest in which keys differ
       (the sign is never set), and the first for equal keys. */
    BATON__SIM_BUCKETS = 64,
    BATON__SIM_CHUNK_ENTRIES = 31 /* with the pointer 512 bytes */
};

typedef struct baton__sim_chunk {
    _Alignas(64) baton__sim_entry_t entries[BATON__SIM_CHUNK_ENTRIES];
    struct baton__sim_chunk *next;
} baton__sim_chunk_t;

/* {0} has no chunk. */
typedef struct baton__sim_bucket {
    baton__sim_chunk_t *head, *tail;
    uint32_t first; /* index of the first entry in the head */
    uint32_t space; /* free places after the last entry in the tail */
} baton__sim_bucket_t;

typedef struct baton__sim_queue {
    baton__sim_bucket_t buckets[BATON__SIM_BUCKETS];
    uint64_t filled; /* mask of the buckets that have entries */
    uint64_t last;   /* the key of bucket 0; no key is below it */
    size_t count;
    size_t room;               /* the chunks suffice for so many entries */
    size_t chunks;             /* in all */
    baton__sim_chunk_t *spare; /* chunks that are in no bucket */
    baton__sim_chunk_t
        *slabs; /* the allocations, linked by their first chunk */
} baton__sim_queue_t;

/* {0} is an empty queue at time 0. fini frees the memory of its entries. */
void baton__sim_queue_fini(baton__sim_queue_t *queue);

/* `at` is not negative. It may lie before a time that was peeked at, which
   moves entries back. Returns false, with no effect, if there is no memory. */
bool baton__sim_queue_push(baton__sim_queue_t *queue, double at, uint32_t kind,
                           uint32_t index);

/* Stores the first entry's time; false when the queue is empty. */
bool baton__sim_queue_peek(baton__sim_queue_t *queue, double *at_out);

/* Removes the first entry. The last call must be a peek that returned true. */
baton__sim_entry_t baton__sim_queue_pop(baton__sim_queue_t *queue);

#endif
