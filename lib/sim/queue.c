#include "sim/queue.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

enum {
    CHUNK = BATON__SIM_CHUNK_ENTRIES,
    /* Chunks that entries may take beyond count / CHUNK: one in each bucket
       that is not full, and one whose first entries have been popped. With
       these in reserve entries can always move without an allocation. */
    PARTIAL_CHUNKS = BATON__SIM_BUCKETS + 1,
    FIRST_CHUNKS = 2 * PARTIAL_CHUNKS
};

static uint64_t key_of(double at)
{
    double positive = at + 0.0; /* -0.0 becomes 0.0 */
    uint64_t key;
    memcpy(&key, &positive, sizeof key);
    return key;
}

static double time_of(uint64_t key)
{
    double at;
    memcpy(&at, &key, sizeof at);
    return at;
}

static void put_spare(baton__sim_queue_t *queue, baton__sim_chunk_t *chunk)
{
    chunk->next = queue->spare;
    queue->spare = chunk;
}

/* Adds half as many chunks as there are. */
static bool grow(baton__sim_queue_t *queue)
{
    size_t more = queue->chunks == 0 ? FIRST_CHUNKS : queue->chunks / 2;
    /* The first chunk holds no entries: it links the slabs. */
    baton__sim_chunk_t *slab = baton__alloc(more + 1, sizeof *slab);
    if (slab == NULL) {
        return false;
    }
    slab->next = queue->slabs;
    queue->slabs = slab;
    for (size_t i = more; i > 0; i--) {
        put_spare(queue, &slab[i]);
    }
    queue->chunks += more;
    queue->room = (queue->chunks - PARTIAL_CHUNKS) * CHUNK;
    return true;
}

static void add_chunk(baton__sim_queue_t *queue, baton__sim_bucket_t *bucket)
{
    baton__sim_chunk_t *chunk = queue->spare;
    assert(chunk != NULL);
    queue->spare = chunk->next;
    chunk->next = NULL;
    if (bucket->tail == NULL) {
        bucket->head = chunk;
    } else {
        bucket->tail->next = chunk;
    }
    bucket->tail = chunk;
    bucket->space = CHUNK;
}

/* Appends an entry to its bucket. */
static void append(baton__sim_queue_t *queue, baton__sim_entry_t entry)
{
    uint64_t differs = entry.key ^ queue->last;
    int i = differs == 0 ? 0 : 64 - __builtin_clzll(differs);
    baton__sim_bucket_t *bucket = &queue->buckets[i];
    if (bucket->space == 0) {
        add_chunk(queue, bucket);
    }
    bucket->tail->entries[CHUNK - bucket->space] = entry;
    bucket->space--;
    queue->filled |= UINT64_C(1) << i;
}

/* The end of a bucket's entries in one of its chunks. */
static uint32_t end_in(const baton__sim_bucket_t *bucket,
                       const baton__sim_chunk_t *chunk)
{
    return chunk == bucket->tail ? CHUNK - bucket->space : CHUNK;
}

static uint64_t least_key(const baton__sim_bucket_t *bucket)
{
    uint64_t least = UINT64_MAX;
    uint32_t i = bucket->first;
    for (const baton__sim_chunk_t *chunk = bucket->head; chunk != NULL;
         chunk = chunk->next, i = 0) {
        for (uint32_t end = end_in(bucket, chunk); i < end; i++) {
            uint64_t key = chunk->entries[i].key;
            least = key < least ? key : least;
        }
    }
    return least;
}

/* Moves the entries of bucket i to the buckets in which they belong since
   `last` has changed. */
static void move(baton__sim_queue_t *queue, int i)
{
    baton__sim_bucket_t bucket = queue->buckets[i];
    queue->buckets[i] = (baton__sim_bucket_t){0};
    queue->filled &= ~(UINT64_C(1) << i);
    uint32_t from = bucket.first;
    for (baton__sim_chunk_t *chunk = bucket.head; chunk != NULL; from = 0) {
        baton__sim_chunk_t *next = chunk->next;
        for (uint32_t end = end_in(&bucket, chunk); from < end; from++) {
            append(queue, chunk->entries[from]);
        }
        put_spare(queue, chunk);
        chunk = next;
    }
}

/* Moves `last` back to a key below it. Let h be the highest bit in which they
   differ. `last` and all entries in buckets below h + 1 have bit h and the key
   does not, so h + 1 is their bucket now. It was empty, since its entries would
   lie below `last`. Entries above differ from the key in the same highest bit
   as from `last`. */
static void go_back(baton__sim_queue_t *queue, uint64_t key)
{
    int to = 64 - __builtin_clzll(key ^ queue->last);
    assert((queue->filled >> to & 1) == 0);
    queue->last = key;
    for (int i = 0; i < to; i++) {
        move(queue, i);
    }
}

bool baton__sim_queue_push(baton__sim_queue_t *queue, double at, uint32_t kind,
                           uint32_t index)
{
    assert(at >= 0);
    if (queue->count == queue->room && !grow(queue)) {
        return false;
    }
    uint64_t key = key_of(at);
    if (key < queue->last) {
        go_back(queue, key);
    }
    append(queue, (baton__sim_entry_t){key, kind, index});
    queue->count++;
    return true;
}

bool baton__sim_queue_peek(baton__sim_queue_t *queue, double *at_out)
{
    if (queue->filled == 0) {
        return false;
    }
    if ((queue->filled & 1) == 0) {
        int lowest = __builtin_ctzll(queue->filled);
        queue->last = least_key(&queue->buckets[lowest]);
        move(queue, lowest);
    }
    *at_out = time_of(queue->last);
    return true;
}

baton__sim_entry_t baton__sim_queue_pop(baton__sim_queue_t *queue)
{
    assert((queue->filled & 1) != 0);
    baton__sim_bucket_t *bucket = &queue->buckets[0];
    baton__sim_chunk_t *chunk = bucket->head;
    baton__sim_entry_t entry = chunk->entries[bucket->first];
    bucket->first++;
    bool was_tail = chunk == bucket->tail;
    if (was_tail && bucket->first + bucket->space == CHUNK) {
        queue->filled &= ~UINT64_C(1);
    }
    if (bucket->first == CHUNK) {
        bucket->head = chunk->next;
        bucket->tail = was_tail ? NULL : bucket->tail;
        bucket->first = 0;
        put_spare(queue, chunk);
    }
    queue->count--;
    return entry;
}

void baton__sim_queue_fini(baton__sim_queue_t *queue)
{
    while (queue->slabs != NULL) {
        baton__sim_chunk_t *next = queue->slabs->next;
        baton__free(queue->slabs);
        queue->slabs = next;
    }
    *queue = (baton__sim_queue_t){0};
}
