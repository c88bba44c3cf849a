/* Memory of one process that the other processes of its host can read in place.

   A process allocates from segments: pieces of memory without a name (memfd)
   that it maps, and whose descriptor it sends to a peer, once, over a datagram
   socket, before the first message out of that segment. So a peer needs neither
   a name in /dev/shm nor the right to look into this process, a crash leaves
   nothing behind, and who makes a segment waits for nobody. The peer maps it
   when it first needs it, and keeps it.

       owner                                peer
       segment: id, address, bytes
       descriptor, id, address, bytes --->  its socket
       packet: id, address of data    --->  the packet names an id that it has
                                            not mapped: takes all descriptors
                                            from the socket, and maps them
       frees the segment: its id in
       shared memory becomes 0        --->  unmaps it at its next poll

   Memory is reserved when a block is taken, so that a lack of it is no SIGBUS
   later. The rest of a segment is no more than addresses. */
#pragma once

#include "transport/shm/doorbell.h"

#include <pthread.h>

enum { BATON__SEGMENTS = 64 }; /* of a process, at a time */

/* In shared memory: the segments of a process. */
typedef struct baton__segment_table {
    /* By place; 0: none. The lower bits are the place, the others tell its
       segments apart. Stored with release by the owner; pairs with the acquire
       load of a peer. */
    _Alignas(64) _Atomic uint32_t ids[BATON__SEGMENTS];
    uint64_t secret; /* proves that a descriptor comes from this process */
} baton__segment_table_t;

/* In shared memory: how many segments were freed on this host. */
typedef struct baton__freed_count {
    _Alignas(64) _Atomic uint32_t count;
} baton__freed_count_t;

/* What comes with a descriptor. */
typedef struct baton__segment_notice {
    uint64_t secret;
    uint64_t address; /* in its owner */
    uint64_t bytes;
    uint32_t owner;
    uint32_t id;
} baton__segment_notice_t;

typedef struct baton__segment_block {
    struct baton__segment_block *next; /* by offset */
    size_t offset;
    size_t bytes;
} baton__segment_block_t;

typedef struct baton__segment {
    uint32_t id; /* 0: this place is free */
    int file;
    char *base;
    size_t bytes;
    baton__segment_block_t *blocks; /* in use */
    bool *told; /* by peer: whether it was sent the descriptor. The driver's */
} baton__segment_t;

/* The segments of this process. */
typedef struct baton__segments {
    pthread_mutex_t lock; /* guards the rest, but for told */
    const baton__doorbell_t *doorbell;
    baton__segment_table_t *table;
    baton__freed_count_t *freed;
    int peers; /* processes of the host */
    size_t total, limit;
    uint32_t generation;
    baton__segment_t at[BATON__SEGMENTS];
} baton__segments_t;

/* Of a process with its doorbell; at most `limit` bytes. */
void baton__segments_init(baton__segments_t *self,
                          const baton__doorbell_t *doorbell,
                          baton__segment_table_t *table,
                          baton__freed_count_t *freed, int peers, size_t limit);
void baton__segments_fini(baton__segments_t *self);

/* Frees all segments, when their blocks are not used any more. */
void baton__segments_clear(baton__segments_t *self);

/* Memory of the segments, aligned to 64 bytes, not initialised; NULL if there
   is none, or it is too little to be worth it. Any thread. */
void *baton__segments_allocate(baton__segments_t *self, size_t bytes);
void baton__segments_release(baton__segments_t *self, void *memory);

/* The id of the segment that these bytes lie in, which peer `index` can map
   from now on; 0 if there is none, or no way to tell the peer now. The
   driver's. */
uint32_t baton__segments_share(baton__segments_t *self, int index,
                               const void *data, size_t bytes);

static inline uint32_t baton__segment_place(uint32_t id)
{
    return id % BATON__SEGMENTS;
}
