/* Records of transfers, buffers in pinned memory, and what is to be told to
   peers. */
#include "transport/staged/endpoint.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>

/* ---- lists -------------------------------------------------------------- */

void baton__staged_append(baton__staged_transfer_list_t *list,
                          baton__staged_transfer_t *transfer)
{
    transfer->next = NULL;
    if (list->head == NULL) {
        list->head = transfer;
    } else {
        list->tail->next = transfer;
    }
    list->tail = transfer;
}

baton__staged_transfer_t *
baton__staged_take_first(baton__staged_transfer_list_t *list)
{
    baton__staged_transfer_t *transfer = list->head;
    if (transfer != NULL) {
        list->head = transfer->next;
    }
    return transfer;
}

void baton__staged_remove(baton__staged_transfer_list_t *list,
                          const baton__staged_transfer_t *transfer)
{
    baton__staged_transfer_t *before = NULL;
    for (baton__staged_transfer_t *at = list->head; at != NULL; at = at->next) {
        if (at == transfer) {
            *(before == NULL ? &list->head : &before->next) = at->next;
            list->tail = list->tail == at ? before : list->tail;
            return;
        }
        before = at;
    }
}

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

baton__staged_transfer_t *
baton__staged_take(baton__staged_transfer_pool_t *pool)
{
    baton__staged_transfer_t *transfer = pool->unused;
    if (transfer != NULL) {
        pool->unused = transfer->next;
        *transfer =
            (baton__staged_transfer_t){.id = transfer->id,
                                       .generation = transfer->generation + 1,
                                       .sends = pool->sends};
    }
    return transfer;
}

void baton__staged_give(baton__staged_t *self,
                        baton__staged_transfer_t *transfer)
{
    transfer->over = true;
    if (transfer->control_queued || transfer->offer_posted) {
        return;
    }
    baton__staged_transfer_pool_t *pool =
        transfer->sends ? &self->sends : &self->receives;
    transfer->state = BATON__TRANSFER_FREE;
    transfer->next = pool->unused;
    pool->unused = transfer;
    self->record_freed = self->record_freed || !transfer->sends;
}

baton__staged_transfer_t *
baton__staged_by_id(const baton__staged_transfer_pool_t *pool, uint32_t id)
{
    baton__staged_transfer_slab_t *slab = pool->slabs;
    while (slab != NULL && id < slab->first) {
        slab = slab->next;
    }
    return slab != NULL && id - slab->first < slab->count
               ? &slab->records[id - slab->first]
               : NULL;
}

uint64_t baton__staged_reference(const baton__staged_transfer_t *transfer)
{
    return (uint64_t)transfer->generation << 32 | transfer->id;
}

baton__staged_transfer_t *
baton__staged_find(const baton__staged_transfer_pool_t *pool,
                   uint64_t reference, int peer)
{
    baton__staged_transfer_t *found =
        baton__staged_by_id(pool, (uint32_t)reference);
    return found != NULL && found->peer == peer &&
                   baton__staged_reference(found) == reference &&
                   found->state != BATON__TRANSFER_FREE
               ? found
               : NULL;
}

baton__staged_transfer_t *baton__staged_of(const baton__staged_t *self,
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

void baton__staged_fail(baton__staged_t *self,
                        baton__staged_transfer_t *transfer,
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

void baton__staged_end(baton__staged_t *self,
                       baton__staged_transfer_t *transfer)
{
    transfer->state = BATON__TRANSFER_ENDED;
    baton__staged_append(&self->ended, transfer);
}

/* ---- controls ---------------------------------------------------------- */

static void queue_control(baton__staged_t *self,
                          baton__staged_transfer_t *transfer)
{
    if (transfer->control_queued) {
        return;
    }
    transfer->control_queued = true;
    transfer->next_control = NULL;
    *(self->controls == NULL ? &self->controls
                             : &self->controls_last->next_control) = transfer;
    self->controls_last = transfer;
}

/* False: there is no room now. */
static bool send_control(baton__staged_t *self,
                         const baton__staged_transfer_t *of)
{
    baton_header_t header = {
        .schedule = of->sends ? of->remote : baton__staged_reference(of),
        .epoch = of->sends ? baton__staged_reference(of) : of->remote,
        .tag = of->number,
        .kind = (uint16_t)(BATON__STAGED_CONTROL | (int)of->control)};
    uint64_t block = of->block_bytes;
    const void *data = NULL;
    size_t bytes = 0;
    if (of->control == BATON__STAGED_GRANT) {
        data = of->handle;
        bytes = sizeof of->handle;
    } else if (of->control == BATON__STAGED_ASK) {
        data = &block;
        bytes = sizeof block;
    }
    /* An error means that the peer is lost: a LOST event follows. */
    return self->peers[of->peer].lost != BATON_OK ||
           self->inner->notify(self->endpoint, of->peer, &header, data,
                               bytes) != BATON_AGAIN;
}

void baton__staged_tell(baton__staged_t *self,
                        baton__staged_transfer_t *transfer,
                        baton__staged_kind_t kind, uint32_t number)
{
    bool asks_still =
        transfer->control_queued && transfer->control == BATON__STAGED_ASK;
    if (!asks_still || kind != BATON__STAGED_MORE) {
        transfer->control = kind;
    }
    transfer->number = number;
    if (transfer->control_queued || !send_control(self, transfer)) {
        queue_control(self, transfer);
    }
}

void baton__staged_forget_control(baton__staged_t *self,
                                  baton__staged_transfer_t *transfer)
{
    baton__staged_transfer_t *before = NULL;
    baton__staged_transfer_t *at = self->controls;
    while (at != NULL && at != transfer) {
        before = at;
        at = at->next_control;
    }
    if (at != NULL) {
        *(before == NULL ? &self->controls : &before->next_control) =
            at->next_control;
        self->controls_last =
            self->controls_last == at ? before : self->controls_last;
        at->control_queued = false;
    }
}

static bool send_refusal(baton__staged_t *self, int peer, uint64_t reference)
{
    const baton_header_t header = {.schedule = reference,
                                   .kind = BATON__STAGED_CONTROL |
                                           BATON__STAGED_REFUSE};
    return self->peers[peer].lost != BATON_OK ||
           self->inner->notify(self->endpoint, peer, &header, NULL, 0) !=
               BATON_AGAIN;
}

/* The peer has no more receives in progress than there is room for. */
void baton__staged_refuse(baton__staged_t *self, int peer, uint64_t reference)
{
    baton__staged_peer_t *to = &self->peers[peer];
    if (!send_refusal(self, peer, reference) &&
        to->refusals < BATON__STAGED_RECEIVES_FROM_PEER) {
        to->refused[to->refusals++] = reference;
        self->any_refused = true;
    }
}

static void flush_refusals(baton__staged_t *self)
{
    self->any_refused = false;
    for (int peer = 0; peer < self->size; peer++) {
        baton__staged_peer_t *to = &self->peers[peer];
        while (to->refusals > 0 &&
               send_refusal(self, peer, to->refused[to->refusals - 1])) {
            to->refusals--;
        }
        self->any_refused |= to->refusals > 0;
    }
}

void baton__staged_flush(baton__staged_t *self)
{
    if (self->any_refused) {
        flush_refusals(self);
    }
    baton__staged_transfer_t *waiting = self->controls;
    self->controls = self->controls_last = NULL;
    while (waiting != NULL) {
        baton__staged_transfer_t *transfer = waiting;
        waiting = transfer->next_control;
        transfer->control_queued = false;
        if (!send_control(self, transfer)) {
            queue_control(self, transfer);
        } else if (transfer->over) {
            baton__staged_give(self, transfer);
        }
    }
}

/* ---- buffers ----------------------------------------------------------- */

baton__staged_buffer_t *baton__staged_take_buffer(baton__staged_buffers_t *of)
{
    baton__staged_buffer_t *buffer = of->unused;
    if (buffer != NULL) {
        of->unused = buffer->next;
        of->unused_count--;
    }
    return buffer;
}

void baton__staged_give_buffer(baton__staged_buffers_t *of,
                               baton__staged_buffer_t *buffer)
{
    buffer->transfer = NULL;
    buffer->next = of->unused;
    of->unused = buffer;
    of->unused_count++;
}

baton_status_t baton__staged_record(baton__staged_t *self,
                                    baton_stream_t stream, void *event)
{
    baton_status_t status = self->port.record(self->device, stream, event);
    return status == BATON_OK ? BATON_OK
                              : self->port.record(self->device, stream, event);
}

baton_status_t baton__staged_copy(baton__staged_t *self,
                                  baton__staged_buffers_t *of,
                                  baton__staged_buffer_t *buffer, void *target,
                                  const void *source, size_t bytes)
{
    baton_status_t status =
        self->port.copy(self->device, of->stream, target, source, bytes);
    if (status != BATON_OK) {
        return status;
    }
    buffer->next = NULL;
    *(of->first == NULL ? &of->first : &of->last->next) = buffer;
    of->last = buffer;
    buffer->status = baton__staged_record(self, of->stream, buffer->event);
    return BATON_OK;
}

baton__staged_buffer_t *baton__staged_copied(baton__staged_t *self,
                                             baton__staged_buffers_t *of,
                                             baton_status_t *status_out)
{
    baton__staged_buffer_t *buffer = of->first;
    if (buffer == NULL) {
        return NULL;
    }
    *status_out = buffer->status == BATON_OK
                      ? self->port.query(self->device, buffer->event)
                      : buffer->status;
    if (*status_out == BATON_AGAIN) {
        return NULL;
    }
    of->first = buffer->next;
    return buffer;
}
