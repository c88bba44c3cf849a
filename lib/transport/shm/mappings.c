/* The mapped segments of other processes; see mappings.h. */
#include "transport/shm/mappings.h"

#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "transport/shm/share.h"

#include <errno.h>
#include <sys/mman.h>

static baton__mapping_t *mapping_of(const baton__mappings_t *self, int peer,
                                    uint32_t place)
{
    return &self->at[(size_t)peer * BATON__SEGMENTS + place];
}

/* Returns true if the owner still has the segment. The load pairs with the
   stores in segments_enter and segments_leave, segments.c. */
static bool exists(const baton__mappings_t *self, int peer, uint32_t id)
{
    uint32_t place = baton__segment_place(id);
    return atomic_load_explicit(&self->tables[peer].ids[place],
                                memory_order_acquire) == id;
}

static void unmap(baton__mappings_t *self, baton__mapping_t *mapping)
{
    if (mapping->id != 0) {
        self->mapped--;
        (void)munmap((void *)(uintptr_t)mapping->base, mapping->bytes);
        *mapping = (baton__mapping_t){0};
    }
}

/* ---- descriptors ------------------------------------------------------- */

/* Maps a segment for reading. A notice from another program, which does not
   know the secret, is ignored. */
static void mappings_map(baton__mappings_t *self,
                         const baton__segment_notice_t *notice, int file)
{
    if (notice->owner >= (uint32_t)self->peers ||
        notice->secret != self->tables[notice->owner].secret ||
        !exists(self, (int)notice->owner, notice->id)) {
        return;
    }
    void *memory = mmap(NULL, notice->bytes, PROT_READ, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    baton__mapping_t *mapping =
        mapping_of(self, (int)notice->owner, baton__segment_place(notice->id));
    unmap(self, mapping); /* unmaps the segment that had this place before */
    self->mapped++;
    *mapping = (baton__mapping_t){.id = notice->id,
                                  .base = memory,
                                  .address = notice->address,
                                  .bytes = notice->bytes};
}

static void mappings_take_all(baton__mappings_t *self)
{
    baton__segment_notice_t notice;
    int file = -1;
    while (baton__share_receive(self->socket, &notice, sizeof notice, &file)) {
        if (file >= 0) {
            mappings_map(self, &notice, file);
            baton__descriptor_close(&file);
        }
    }
}

/* ---- use --------------------------------------------------------------- */

const char *baton__mappings_find(baton__mappings_t *self, int peer, uint32_t id,
                                 uint64_t address, size_t bytes)
{
    const baton__mapping_t *mapping =
        mapping_of(self, peer, baton__segment_place(id));
    if (mapping->id != id) {
        mappings_take_all(self);
    }
    if (mapping->id != id || address < mapping->address ||
        address - mapping->address > mapping->bytes ||
        bytes > mapping->bytes - (address - mapping->address)) {
        return NULL;
    }
    return mapping->base + (address - mapping->address);
}

void baton__mappings_sweep(baton__mappings_t *self)
{
    self->seen =
        atomic_load_explicit(&self->freed->count, memory_order_acquire);
    /* A descriptor that waits in the socket also keeps its memory from being
       freed. */
    mappings_take_all(self);
    for (int peer = 0; peer < self->peers && self->mapped > 0; peer++) {
        for (uint32_t place = 0; place < BATON__SEGMENTS; place++) {
            baton__mapping_t *mapping = mapping_of(self, peer, place);
            if (mapping->id != 0 && !exists(self, peer, mapping->id)) {
                unmap(self, mapping);
            }
        }
    }
}

/* ---- life -------------------------------------------------------------- */

baton_status_t baton__mappings_open(baton__mappings_t *self,
                                    const baton__peer_state_t *own,
                                    const baton__segment_table_t *tables,
                                    baton__freed_count_t *freed, int peers)
{
    struct sockaddr_un address;
    socklen_t bytes = baton__peer_address(own, BATON__FOR_MAPPINGS, &address);
    *self = (baton__mappings_t){
        .socket = -1,
        .peers = peers,
        .tables = tables,
        .freed = freed,
        .at = baton__alloc((size_t)peers * BATON__SEGMENTS, sizeof *self->at)};
    baton_status_t status = BATON_OK;
    if (self->at == NULL) {
        status = baton__error(BATON_ERR_NO_MEMORY,
                              "shared memory: no memory for the mappings of "
                              "%d processes",
                              peers);
    } else {
        self->socket = baton__share_bind(&address, bytes);
        if (self->socket < 0) {
            status = baton__error(BATON_ERR_SYSTEM,
                                  "shared memory: socket or bind: %s",
                                  baton__errno_text(errno));
        }
    }
    if (status != BATON_OK) {
        baton__mappings_close(self);
    }
    return status;
}

void baton__mappings_clear(baton__mappings_t *self)
{
    mappings_take_all(self);
    for (size_t i = 0; self->mapped > 0; i++) {
        unmap(self, &self->at[i]);
    }
}

void baton__mappings_close(baton__mappings_t *self)
{
    if (self->at != NULL) {
        baton__mappings_clear(self);
    }
    baton__descriptor_close(&self->socket);
    baton__free(self->at);
    *self = (baton__mappings_t){.socket = -1};
}
