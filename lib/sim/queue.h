/* The simulator's events, in order of time: a radix heap (Ahuja, Mehlhorn,
   Orlin, Tarjan 1990). An entry's bucket is the highest bit in which its time
   differs from `last`, the time of the first entries. As time goes on an entry
   only moves towards lower buckets, so each push and pop costs little whatever
   the number of entries. Entries of one time come out in the order in which
   they went in: equal keys are always in the same bucket, and move in order.

   A bucket is a list of chunks from one pool, since most entries may be in any
   bucket: those of ranks in lock-step are all in one, and in another one at
   each step. So memory grows with what is in the queue, not with what has ever
   been in each bucket; and entries move without an allocation. */
#ifndef BATON_SIM_QUEUE_H
#define BATON_SIM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct baton__sim_entry {
    uint64_t key;  /* the bits of its time, which order as the time does */
    uint32_t kind; /* the rest is the owner's */
    uint32_t index;
} baton__sim_entry_t;

enum {
    /* One for each highest bit in which keys may differ, and the first for
       none. The sign is never set: 63 bits. */
    BATON__SIM_BUCKETS = 64,
    BATON__SIM_CHUNK_ENTRIES = 31 /* with the pointer 512 bytes */
};

typedef struct baton__sim_chunk {
    _Alignas(64) baton__sim_entry_t entries[BATON__SIM_CHUNK_ENTRIES];
    struct baton__sim_chunk *next;
} baton__sim_chunk_t;

/* Entries from `first` in the head to `end` in the tail; {0}: no chunk. */
typedef struct baton__sim_bucket {
    baton__sim_chunk_t *head, *tail;
    uint32_t first;
    uint32_t space; /* behind the last entry of the tail */
} baton__sim_bucket_t;

typedef struct baton__sim_queue {
    baton__sim_bucket_t buckets[BATON__SIM_BUCKETS];
    uint64_t filled; /* mask of the buckets that have entries */
    uint64_t last;   /* a key not above any other: those of bucket 0 */
    size_t count;
    size_t room;   /* entries for which the chunks suffice in any case */
    size_t chunks; /* in all */
    baton__sim_chunk_t *spare; /* those in no bucket */
    baton__sim_chunk_t *slabs; /* what was allocated, by its first chunk */
} baton__sim_queue_t;

/* {0} is an empty queue at time 0. fini frees what entries took. */
void baton__sim_queue_fini(baton__sim_queue_t *queue);

/* at: not below 0. Before a time that was peeked at it is right too, but moves
   entries back. False without memory: then nothing happened. */
bool baton__sim_queue_push(baton__sim_queue_t *queue, double at, uint32_t kind,
                           uint32_t index);

/* The first entry's time; false when there is none. */
bool baton__sim_queue_peek(baton__sim_queue_t *queue, double *at_out);

/* Takes the first entry; after a peek that returned true, with no push between
   them. */
baton__sim_entry_t baton__sim_queue_pop(baton__sim_queue_t *queue);

#endif
