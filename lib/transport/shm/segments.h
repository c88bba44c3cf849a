/* Memory of one process that the other processes of its host can read in place.

   A process allocates from segments: pieces of memory without a name (memfd)
   that it maps. It sends a segment's descriptor to a peer over a datagram
   socket, once, before the first message from that segment. So a peer needs
   neither a name in /dev/shm nor permission to read this process's memory, a
   crash leaves nothing behind, and the owner of a segment waits for no peer.
   The peer maps the segment at the first message from it, and keeps it mapped.

       owner                                peer
       segment: id, address, bytes
       descriptor, id, address, bytes --->  its socket
       packet: id, address of data    --->  the packet names an id that it has
                                            not mapped: takes all descriptors
                                            from the socket, and maps them
       frees the segment: its id in
       shared memory becomes 0        --->  unmaps it at its next poll

   The memory of a block is reserved when the block is allocated, so that a lack
   of memory is an error then, and not a SIGBUS later. The parts of a segment
   without blocks take only addresses. */
#pragma once

#include "transport/shm/doorbell.h"

#include <pthread.h>

enum { BATON__SEGMENTS = 64 }; /* segments of a process at a time */

/* In shared memory: the segments of a process. */
typedef struct baton__segment_table {
    /* Ids by place; 0 if there is no segment. The lower bits of an id are the
       place; the upper bits distinguish the segments that have the place in
       succession. The owner's release store pairs with a peer's acquire
       load. */
    _Alignas(64) _Atomic uint32_t ids[BATON__SEGMENTS];
    uint64_t secret; /* proves that a descriptor comes from this process */
} baton__segment_table_t;

/* In shared memory: how many segments were freed on this host. */
typedef struct baton__freed_count {
    _Alignas(64) _Atomic uint32_t count;
} baton__freed_count_t;

/* The message that carries a segment's descriptor. */
typedef struct baton__segment_notice {
    uint64_t secret;
    uint64_t address; /* the segment's address in its owner's memory */
    uint64_t bytes;
    uint32_t owner;
    uint32_t id;
} baton__segment_notice_t;

typedef struct baton__segment_block {
    /* The next block, in the order of offsets. */
    struct baton__segment_block *next;
    size_t offset;
    size_t bytes;
} baton__segment_block_t;

typedef struct baton__segment {
    uint32_t id; /* 0: this place is free */
    int file;
    char *base;
    size_t bytes;
    baton__segment_block_t *blocks; /* the blocks in use */
    /* By peer: the segment's descriptor was sent to the peer. Only the driver
       uses this field. */
    bool *sent;
} baton__segment_t;

/* The segments of this process. */
typedef struct baton__segments {
    pthread_mutex_t lock; /* guards all fields except `sent` of segments */
    const baton__doorbell_t *doorbell;
    baton__segment_table_t *table;
    baton__freed_count_t *freed;
    int peers;           /* number of processes of the host */
    size_t total, limit; /* bytes of all segments, and the most bytes allowed */
    uint32_t generation; /* the upper part of the id that was given last */
    baton__segment_t at[BATON__SEGMENTS];
} baton__segments_t;

/* Initialises `self` without segments. All segments together may have at most
   `limit` bytes. */
void baton__segments_init(baton__segments_t *self,
                          const baton__doorbell_t *doorbell,
                          baton__segment_table_t *table,
                          baton__freed_count_t *freed, int peers, size_t limit);
void baton__segments_fini(baton__segments_t *self);

/* Frees all segments; no message may use their blocks any more. */
void baton__segments_clear(baton__segments_t *self);

/* Allocates memory from the segments, aligned to 64 bytes, not initialised.
   Returns NULL if there is no such memory, if this process is alone on its
   host, or if `bytes` is so small that copying messages is as good. Any thread
   may call this. */
void *baton__segments_allocate(baton__segments_t *self, size_t bytes);

/* Frees memory of baton__segments_allocate. Any thread may call this. */
void baton__segments_release(baton__segments_t *self, void *memory);

/* Returns the id of the segment that these bytes lie in. Sends the segment's
   descriptor to peer `index`, unless it was sent before. Returns 0 if the bytes
   lie in no segment, or the peer's socket can't take the descriptor now. Only
   the driver calls this. */
uint32_t baton__segments_share(baton__segments_t *self, int index,
                               const void *data, size_t bytes);

static inline uint32_t baton__segment_place(uint32_t id)
{
    return id % BATON__SEGMENTS;
}
