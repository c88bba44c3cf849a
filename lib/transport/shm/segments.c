/* The segments of this process; see segments.h.

   The lock is not held while a segment is made or unmade: that may take long,
   and the driver needs the lock to send. */
#include "transport/shm/segments.h"

#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/shm/share.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Blocks shorter than BLOCK_LEAST stay in ordinary memory: messages from them
   are copied. A segment has at least LEAST bytes and at least a quarter of the
   bytes of all segments so far, so that there are few segments. An empty
   segment of LEAST bytes is kept for the next schedule. */
#define BLOCK_LEAST ((size_t)4096)
#define LEAST       ((size_t)1 << 20)
#define PAGE        ((size_t)4096)
#define ALIGNMENT   ((size_t)64)

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ---- segments ---------------------------------------------------------- */

static void unmake(baton__segment_t *segment)
{
    if (segment->base != NULL) {
        (void)munmap(segment->base, segment->bytes);
    }
    baton__descriptor_close(&segment->file);
    baton__free(segment->sent);
}

/* Logs that this process has no segments, once in the life of the process. Does
   not log a lack of memory: in that case ordinary memory is lacking, too, and
   the caller reports an error. */
static void log_failure(int error)
{
    static _Atomic bool logged;
    if (error != ENOMEM &&
        !atomic_exchange_explicit(&logged, true, memory_order_relaxed)) {
        baton__log(BATON_LOG_WARN,
                   "shared memory: memfd_create, ftruncate or mmap failed: %s: "
                   "scratch and baton_memory_alloc use ordinary memory",
                   baton__errno_text(error));
    }
}

/* Creates a file of out->bytes bytes. The file is sealed, so that it can't
   shrink while it is mapped. Returns 0 or an errno. */
static int make_file(baton__segment_t *out)
{
    out->file = baton__descriptor_move(
        memfd_create("baton", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    int error =
        out->file < 0 ? errno : baton__share_resize(out->file, out->bytes, 0);
    return error == 0 && fcntl(out->file, F_ADD_SEALS,
                               F_SEAL_SHRINK | F_SEAL_GROW) != 0
               ? errno
               : error;
}

static bool segments_make(baton__segment_t *out, int peers, size_t bytes)
{
    *out = (baton__segment_t){
        .file = -1,
        .bytes = bytes,
        .sent = baton__alloc((size_t)peers, sizeof *out->sent)};
    int error = out->sent != NULL ? make_file(out) : ENOMEM;
    if (error == 0) {
        void *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, out->file, 0);
        error = memory != MAP_FAILED ? 0 : errno;
        out->base = memory != MAP_FAILED ? memory : NULL;
    }
    if (error != 0) {
        log_failure(error);
        unmake(out);
    }
    return error == 0;
}

/* Gives the segment an id and a place, which is an index in self->at. Returns
   NULL if all places are taken. Called under the lock. */
static baton__segment_t *segments_enter(baton__segments_t *self,
                                        const baton__segment_t *made)
{
    for (uint32_t i = 0; i < BATON__SEGMENTS; i++) {
        baton__segment_t *segment = &self->at[i];
        if (segment->id != 0) {
            continue;
        }
        *segment = *made;
        self->generation =
            self->generation % (UINT32_MAX / BATON__SEGMENTS) + 1;
        segment->id = self->generation * BATON__SEGMENTS + i;
        self->total += segment->bytes;
        atomic_store_explicit(&self->table->ids[i], segment->id,
                              memory_order_release);
        return segment;
    }
    return NULL;
}

/* Removes the segment from the tables, and returns it for the caller to unmake.
   Called under the lock. */
static baton__segment_t segments_leave(baton__segments_t *self,
                                       baton__segment_t *segment)
{
    baton__segment_t left = *segment;
    atomic_store_explicit(&self->table->ids[baton__segment_place(left.id)], 0,
                          memory_order_release);
    self->total -= left.bytes;
    *segment = (baton__segment_t){0};
    return left;
}

/* Unmakes a segment that was removed from the tables. Wakes the peers that may
   have mapped it, so that they unmap it. */
static void segments_drop(const baton__segments_t *self, baton__segment_t *left)
{
    /* Pairs with the loads in baton__mappings_are_stale and
       baton__mappings_sweep. */
    atomic_fetch_add_explicit(&self->freed->count, 1, memory_order_release);
    for (int i = 0; i < self->peers; i++) {
        if (left->sent[i]) {
            baton__doorbell_ring_now(self->doorbell, i);
        }
    }
    unmake(left);
}

/* ---- blocks ------------------------------------------------------------ */

/* Places the block in the segment's first gap that is large enough, and returns
   its address. Returns NULL if there is no such gap. Called under the lock. */
static void *take_gap(baton__segment_t *segment, baton__segment_block_t *block)
{
    baton__segment_block_t **link = &segment->blocks;
    size_t offset = 0;
    while (*link != NULL && (*link)->offset - offset < block->bytes) {
        offset = (*link)->offset + (*link)->bytes;
        link = &(*link)->next;
    }
    if (*link == NULL && segment->bytes - offset < block->bytes) {
        return NULL;
    }
    block->offset = offset;
    block->next = *link;
    *link = block;
    return segment->base + offset;
}

/* Places the block in a gap of any segment, like take_gap. Called under the
   lock. */
static void *take_any_gap(baton__segments_t *self,
                          baton__segment_block_t *block)
{
    void *memory = NULL;
    for (int i = 0; i < BATON__SEGMENTS && memory == NULL; i++) {
        if (self->at[i].id != 0) {
            memory = take_gap(&self->at[i], block);
        }
    }
    return memory;
}

/* Makes a segment and places the block in it. Returns NULL if the limit is
   reached, the system refuses, or all places are taken. */
static void *segments_grow(baton__segments_t *self,
                           baton__segment_block_t *block)
{
    (void)pthread_mutex_lock(&self->lock);
    size_t part = round_up(self->total / 4, PAGE);
    size_t left = self->limit > self->total ? self->limit - self->total : 0;
    (void)pthread_mutex_unlock(&self->lock);
    size_t bytes = round_up(block->bytes, PAGE);
    bytes = bytes > part ? bytes : part;
    bytes = bytes > LEAST ? bytes : LEAST;
    baton__segment_t made;
    if (bytes > left || !segments_make(&made, self->peers, bytes)) {
        return NULL;
    }
    (void)pthread_mutex_lock(&self->lock);
    baton__segment_t *segment = segments_enter(self, &made);
    void *memory = segment != NULL ? take_gap(segment, block) : NULL;
    (void)pthread_mutex_unlock(&self->lock);
    if (segment == NULL) {
        unmake(&made);
    }
    return memory;
}

/* Returns the segment that these bytes lie in, or NULL. Called under the
   lock. */
static baton__segment_t *segments_find(baton__segments_t *self,
                                       const void *data, size_t bytes)
{
    uintptr_t address = (uintptr_t)data;
    for (int i = 0; i < BATON__SEGMENTS; i++) {
        baton__segment_t *segment = &self->at[i];
        uintptr_t base = (uintptr_t)segment->base;
        if (segment->id != 0 && address >= base &&
            address - base < segment->bytes &&
            bytes <= segment->bytes - (address - base)) {
            return segment;
        }
    }
    return NULL;
}

void baton__segments_release(baton__segments_t *self, void *memory)
{
    baton__segment_t left = {0};
    (void)pthread_mutex_lock(&self->lock);
    baton__segment_t *segment = segments_find(self, memory, 1);
    size_t offset = (size_t)((char *)memory - segment->base);
    baton__segment_block_t **link = &segment->blocks;
    while ((*link)->offset != offset) {
        link = &(*link)->next;
    }
    baton__segment_block_t *block = *link;
    *link = block->next;
    if (segment->blocks == NULL && segment->bytes > LEAST) {
        left = segments_leave(self, segment);
    }
    (void)pthread_mutex_unlock(&self->lock);
    baton__free(block);
    if (left.base != NULL) {
        segments_drop(self, &left);
    }
}

/* Reserves the pages of a block. Returns false if there is too little
   memory. */
static bool segments_reserve(char *memory, size_t bytes)
{
    size_t unit = (size_t)sysconf(_SC_PAGESIZE);
    char *page = (char *)((uintptr_t)memory / unit * unit);
    char *end = memory + bytes;
    bool done = true;
    while (done && page < end) {
        /* mincore() sets bit 0 if the page has memory. The page has memory
           already if it belonged to a block that was freed. */
        unsigned char there = 0;
        size_t left = round_up((size_t)(end - page), unit);
        size_t part = left < BATON__TOUCHED_BYTES ? left : BATON__TOUCHED_BYTES;
        done = ((mincore(page, 1, &there) == 0 && (there & 1) != 0) ||
                baton__memory_fits(left)) &&
               baton__share_reserve(page, part);
        page += part;
    }
    return done;
}

void *baton__segments_allocate(baton__segments_t *self, size_t bytes)
{
    if (self->peers < 2 || bytes < BLOCK_LEAST || bytes > self->limit) {
        return NULL;
    }
    baton__segment_block_t *block = baton__alloc(1, sizeof *block);
    if (block == NULL) {
        return NULL;
    }
    block->bytes = round_up(bytes, ALIGNMENT);
    (void)pthread_mutex_lock(&self->lock);
    void *memory = take_any_gap(self, block);
    (void)pthread_mutex_unlock(&self->lock);
    if (memory == NULL) {
        memory = segments_grow(self, block);
    }
    if (memory == NULL) {
        baton__free(block);
    } else if (!segments_reserve(memory, bytes)) {
        baton__segments_release(self, memory);
        memory = NULL;
    }
    return memory;
}

/* ---- sharing ----------------------------------------------------------- */

/* Sends a segment's descriptor to a peer. Returns false if the peer's socket
   can't take it now. */
static bool segments_tell(const baton__segments_t *self,
                          const baton__segment_t *segment, int index)
{
    baton__segment_notice_t notice = {.secret = self->table->secret,
                                      .address =
                                          (uint64_t)(uintptr_t)segment->base,
                                      .bytes = segment->bytes,
                                      .owner = (uint32_t)self->doorbell->index,
                                      .id = segment->id};
    struct sockaddr_un address;
    socklen_t bytes = baton__peer_address(&self->doorbell->states[index],
                                          BATON__FOR_MAPPINGS, &address);
    return baton__share_send(self->doorbell->socket, &address, bytes, &notice,
                             sizeof notice, segment->file);
}

uint32_t baton__segments_share(baton__segments_t *self, int index,
                               const void *data, size_t bytes)
{
    (void)pthread_mutex_lock(&self->lock);
    baton__segment_t *segment =
        self->total > 0 ? segments_find(self, data, bytes) : NULL;
    (void)pthread_mutex_unlock(&self->lock);
    /* The lock is not needed from here on: the bytes belong to a message in
       flight, so their segment is not freed meanwhile. */
    if (segment == NULL) {
        return 0;
    }
    if (!segment->sent[index]) {
        segment->sent[index] = segments_tell(self, segment, index);
    }
    return segment->sent[index] ? segment->id : 0;
}

/* ---- life -------------------------------------------------------------- */

void baton__segments_init(baton__segments_t *self,
                          const baton__doorbell_t *doorbell,
                          baton__segment_table_t *table,
                          baton__freed_count_t *freed, int peers, size_t limit)
{
    *self = (baton__segments_t){.doorbell = doorbell,
                                .table = table,
                                .freed = freed,
                                .peers = peers,
                                .limit = limit};
    (void)pthread_mutex_init(&self->lock, NULL);
}

void baton__segments_clear(baton__segments_t *self)
{
    for (int i = 0; i < BATON__SEGMENTS; i++) {
        baton__segment_t *segment = &self->at[i];
        if (segment->blocks != NULL) {
            /* These blocks are the scratch of a schedule that was destroyed
               while one of its async nodes may still write to them. So the
               memory stays mapped for ever. */
            segment->base = NULL;
        }
        while (segment->blocks != NULL) {
            baton__segment_block_t *block = segment->blocks;
            segment->blocks = block->next;
            baton__free(block);
        }
        if (segment->id != 0) {
            baton__segment_t left = segments_leave(self, segment);
            unmake(&left);
        }
    }
}

void baton__segments_fini(baton__segments_t *self)
{
    baton__segments_clear(self);
    (void)pthread_mutex_destroy(&self->lock);
}
