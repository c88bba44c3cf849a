/* Records of transfers, buffers in pinned memory, and control messages to
   peers. */
#include "transport/staged/endpoint.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>

typedef baton__staged_t staged_t;
typedef baton__staged_transfer_t transfer_t;
typedef baton__staged_buffer_t buffer_t;
typedef baton__staged_buffers_t buffers_t;

/* ---- records ----------------------------------------------------------- */

baton_status_t baton__staged_grow(baton__staged_transfer_pool_t *pool,
                                  int64_t count)
{
    const int64_t most = INT64_C(1) << (BATON__STAGED_TOKEN_BITS - 1);
    if (count <= (int64_t)pool->capacity) {
        return BATON_OK;
    }
    if (count > most) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "staged: %lld messages are reserved; at most %lld "
                            "can be",
                            (long long)count, (long long)most);
    }
    uint32_t more = (uint32_t)count - pool->capacity;
    more = more < pool->capacity ? pool->capacity : more;
    more = more < 64 ? 64 : more;
    baton__staged_transfer_slab_t *slab =
        baton__alloc(1, sizeof *slab + (size_t)more * sizeof slab->records[0]);
    if (slab == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "staged: there is no memory for %u messages", more);
    }
    slab->first = pool->capacity;
    slab->count = more;
    slab->next = pool->slabs;
    pool->slabs = slab;
    pool->capacity += more;
    for (uint32_t i = more; i-- > 0;) {
        slab->records[i].id = slab->first + i;
        slab->records[i].next = pool->unused;
        pool->unused = &slab->records[i];
    }
    return BATON_OK;
}

void baton__staged_free_pool(baton__staged_transfer_pool_t *pool)
{
    while (pool->slabs != NULL) {
        baton__staged_transfer_slab_t *slab = pool->slabs;
        pool->slabs = slab->next;
        baton__free(slab);
    }
}

transfer_t *baton__staged_take(baton__staged_transfer_pool_t *pool)
{
    transfer_t *transfer = pool->unused;
    if (transfer != NULL) {
        pool->unused = transfer->next;
        *transfer = (transfer_t){.id = transfer->id,
                                 .generation = transfer->generation + 1,
                                 .sends = pool->sends};
    }
    return transfer;
}

void baton__staged_give(staged_t *self, transfer_t *transfer)
{
    transfer->state = BATON__TRANSFER_OVER;
    if (transfer->control_waits || transfer->offer_posted) {
        return;
    }
    baton__staged_transfer_pool_t *pool =
        transfer->sends ? &self->sends : &self->receives;
    transfer->state = BATON__TRANSFER_FREE;
    transfer->next = pool->unused;
    pool->unused = transfer;
}

transfer_t *baton__staged_by_id(const baton__staged_transfer_pool_t *pool,
                                uint32_t id)
{
    baton__staged_transfer_slab_t *slab = pool->slabs;
    while (slab != NULL && id < slab->first) {
        slab = slab->next;
    }
    return slab != NULL && id - slab->first < slab->count
               ? &slab->records[id - slab->first]
               : NULL;
}

uint64_t baton__staged_reference(const transfer_t *transfer)
{
    return (uint64_t)transfer->generation << 32 | transfer->id;
}

transfer_t *baton__staged_find(const baton__staged_transfer_pool_t *pool,
                               uint64_t reference, int peer)
{
    transfer_t *found = baton__staged_by_id(pool, (uint32_t)reference);
    return found != NULL && found->peer == peer &&
                   baton__staged_reference(found) == reference &&
                   found->state != BATON__TRANSFER_FREE &&
                   found->state < BATON__TRANSFER_ENDED
               ? found
               : NULL;
}

transfer_t *baton__staged_of(const staged_t *self,
                             const baton_message_t *message)
{
    uintptr_t at = (uintptr_t)message;
    for (baton__staged_transfer_slab_t *slab = self->receives.slabs;
         slab != NULL; slab = slab->next) {
        uintptr_t begin = (uintptr_t)slab->records;
        if (at >= begin && at < (uintptr_t)(slab->records + slab->count)) {
            return &slab->records[(at - begin) / sizeof slab->records[0]];
        }
    }
    return NULL;
}

void baton__staged_fail(staged_t *self, transfer_t *transfer,
                        baton_status_t status, const char *detail)
{
    if (status == BATON_OK || transfer->status != BATON_OK) {
        return;
    }
    transfer->status = status;
    transfer->detail = detail;
    if (detail == NULL && status == BATON_ERR_SYSTEM) {
        (void)snprintf(self->device_error, sizeof self->device_error, "%s",
                       baton_error_message());
        transfer->detail = self->device_error;
    }
}

void baton__staged_end(staged_t *self, transfer_t *transfer)
{
    baton__free(transfer->memory);
    transfer->memory = NULL;
    transfer->state = BATON__TRANSFER_ENDED;
    baton__staged_list_append(&self->ended, transfer);
}

/* ---- controls ---------------------------------------------------------- */

/* Sends a control message. Returns false if there is no capacity now. An error
   means that the peer is lost, which a LOST event reports later. */
static bool staged_pool_notify(staged_t *self, int peer,
                               baton__staged_kind_t kind, baton_header_t header,
                               const void *data, size_t bytes)
{
    header.kind = (uint16_t)(BATON__STAGED_CONTROL | (int)kind);
    return self->peers[peer].lost != BATON_OK ||
           self->around.inner->notify(self->around.endpoint, peer, &header,
                                      data, bytes) != BATON_AGAIN;
}

static bool send_control(staged_t *self, const transfer_t *of)
{
    const baton_header_t header = {
        .schedule = of->sends ? of->remote : baton__staged_reference(of),
        .epoch = of->sends ? baton__staged_reference(of) : of->remote,
        .tag = of->number};
    const uint64_t block = of->block_bytes;
    const void *data = NULL;
    size_t bytes = 0;
    if (of->control == BATON__STAGED_GRANT) {
        data = of->handle;
        bytes = sizeof of->handle;
    } else if (of->control == BATON__STAGED_ASK) {
        data = &block;
        bytes = sizeof block;
    }
    return staged_pool_notify(self, of->peer, of->control, header, data, bytes);
}

void baton__staged_tell(staged_t *self, transfer_t *transfer,
                        baton__staged_kind_t kind, uint32_t number)
{
    transfer->control = kind;
    transfer->number = number;
    if (!transfer->control_waits && !send_control(self, transfer)) {
        transfer->control_waits = true;
        self->controls++;
    }
}

void baton__staged_refuse(staged_t *self, baton_message_t *request)
{
    const baton_header_t header = {.schedule = request->header.schedule,
                                   .tag = 1};
    if (staged_pool_notify(self, request->peer, BATON__STAGED_ABORT, header,
                           NULL, 0)) {
        self->around.inner->drop(self->around.endpoint, request);
    } else {
        request->next = self->refused;
        self->refused = request;
    }
}

/* Sends the waiting control messages of a pool's records. Looks at every
   record, as control messages rarely have to wait. */
static void flush_pool(staged_t *self,
                       const baton__staged_transfer_pool_t *pool)
{
    for (uint32_t id = 0; id < pool->capacity && self->controls > 0; id++) {
        transfer_t *transfer = baton__staged_by_id(pool, id);
        if (transfer->control_waits && send_control(self, transfer)) {
            transfer->control_waits = false;
            self->controls--;
            if (transfer->state == BATON__TRANSFER_OVER) {
                baton__staged_give(self, transfer);
            }
        }
    }
}

void baton__staged_flush(staged_t *self)
{
    baton_message_t *refused = self->refused;
    self->refused = NULL;
    while (refused != NULL) {
        baton_message_t *next = refused->next;
        baton__staged_refuse(self, refused);
        refused = next;
    }
    flush_pool(self, &self->sends);
    flush_pool(self, &self->receives);
}

/* ---- buffers ----------------------------------------------------------- */

buffer_t *baton__staged_take_buffer(buffers_t *of, transfer_t *transfer,
                                    uint32_t block)
{
    buffer_t *buffer = of->unused;
    if (buffer != NULL) {
        of->unused = buffer->next;
        of->unused_count--;
        buffer->transfer = transfer;
        buffer->block = block;
    }
    return buffer;
}

void baton__staged_give_buffer(buffers_t *of, buffer_t *buffer)
{
    buffer->transfer = NULL;
    buffer->next = of->unused;
    of->unused = buffer;
    of->unused_count++;
}

/* Submits a copy and records an event after it. If recording fails, tries once
   more, because without the event nothing tells when the copy no longer uses
   its memory. If both tries fail, the device is assumed to make no copies any
   more. */
baton_status_t baton__staged_copy(staged_t *self, buffers_t *of,
                                  buffer_t *buffer, void *target,
                                  const void *source, size_t bytes)
{
    const baton_device_port_t *port = &self->port;
    baton_status_t status =
        port->copy(self->device, of->stream, target, source, bytes);
    if (status != BATON_OK) {
        baton__staged_give_buffer(of, buffer);
        return status;
    }
    baton__staged_copies_append(&of->copies, buffer);
    self->submitted = true;
    buffer->status = port->record(self->device, of->stream, buffer->event);
    if (buffer->status != BATON_OK) {
        buffer->status = port->record(self->device, of->stream, buffer->event);
    }
    return BATON_OK;
}

buffer_t *baton__staged_copied(staged_t *self, buffers_t *of,
                               baton_status_t *status_out)
{
    buffer_t *buffer = of->copies.head;
    if (buffer == NULL) {
        return NULL;
    }
    *status_out = buffer->status == BATON_OK
                      ? self->port.query(self->device, buffer->event)
                      : buffer->status;
    if (*status_out == BATON_AGAIN) {
        return NULL;
    }
    return baton__staged_copies_take(&of->copies);
}

void baton__staged_cut(transfer_t *transfer, size_t bytes, size_t block_bytes)
{
    transfer->bytes = bytes;
    transfer->block_bytes = block_bytes;
    transfer->blocks = (uint32_t)((bytes + block_bytes - 1) / block_bytes);
}
