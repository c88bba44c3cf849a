/* A message on its way to a peer: offers, copies off the device, blocks. */
#include "transport/staged/endpoint.h"

#include "base/error.h"

#include <string.h>

/* ---- offers ------------------------------------------------------------- */

/* The longest block that can be sent. */
static size_t most_of_block(const baton__staged_t *self,
                            const baton__staged_transfer_t *send)
{
    return send->from_host ? send->bytes : self->block_bytes;
}

static baton_status_t post_offer(baton__staged_t *self,
                                 baton__staged_transfer_t *send,
                                 const baton_header_t *header)
{
    baton_header_t offered = *header;
    offered.kind |= BATON__STAGED_OFFER;
    send->offer = (baton__staged_offer_t){
        .reference = baton__staged_reference(send),
        .bytes = send->bytes,
        .kin = self->port.get_handle != NULL ? self->port.kin : 0,
        .block = most_of_block(self, send),
        .host = send->from_host};
    return self->inner->send(
        self->endpoint,
        baton__staged_token(self, BATON__STAGED_TOKEN_OFFER, send->id),
        send->peer, &offered, &send->offer, sizeof send->offer);
}

baton_status_t baton__staged_offer(baton__staged_t *self, baton_token_t token,
                                   int peer, const baton_header_t *header,
                                   const void *data, size_t bytes)
{
    baton__staged_transfer_t *send = baton__staged_take(&self->sends);
    if (send == NULL) {
        return baton__error(BATON_ERR_LIMIT,
                            "staged: rank %d has more sends in flight than it "
                            "reserved",
                            self->rank);
    }
    send->token = token;
    send->peer = peer;
    send->source = data;
    send->bytes = bytes;
    send->from_host = token.memory == BATON_MEMORY_HOST;
    send->state = BATON__TRANSFER_OFFERED;
    baton_status_t status = post_offer(self, send, header);
    send->offer_posted = status == BATON_OK;
    if (status != BATON_OK && status != BATON_DONE) {
        baton__staged_give(self, send);
        return status;
    }
    return BATON_OK;
}

static bool take_back(baton__staged_t *self, baton__staged_transfer_t *send)
{
    if (send->offer_posted &&
        self->inner->withdraw(
            self->endpoint,
            baton__staged_token(self, BATON__STAGED_TOKEN_OFFER, send->id))) {
        send->offer_posted = false;
    }
    send->state = BATON__TRANSFER_WITHDRAWN;
    baton__staged_give(self, send);
    return true;
}

/* Looks at every send: only failures and cancels withdraw. */
bool baton__staged_withdraw(baton__staged_t *self, baton_token_t token)
{
    for (baton__staged_transfer_slab_t *slab = self->sends.slabs; slab != NULL;
         slab = slab->next) {
        for (uint32_t i = 0; i < slab->count; i++) {
            baton__staged_transfer_t *send = &slab->records[i];
            if (send->state != BATON__TRANSFER_FREE && !send->over &&
                send->token.owner == token.owner &&
                send->token.node == token.node) {
                return send->state == BATON__TRANSFER_OFFERED &&
                       take_back(self, send);
            }
        }
    }
    return self->inner->withdraw(self->endpoint, token);
}

/* ---- ending ------------------------------------------------------------ */

static uint32_t in_flight(const baton__staged_transfer_t *send)
{
    return send->started - send->finished;
}

/* Ends the send once none of its blocks is in flight. */
static void fail(baton__staged_t *self, baton__staged_transfer_t *send,
                 baton_status_t status, const char *detail)
{
    if (send->status == BATON_OK) {
        baton__staged_fail(self, send, status, detail);
        baton__staged_remove(&self->sending, send);
    }
    if (in_flight(send) == 0) {
        baton__staged_tell(self, send, BATON__STAGED_ABORT, 0);
        baton__staged_end(self, send);
    }
}

void baton__staged_send_lost(baton__staged_t *self,
                             baton__staged_transfer_t *send,
                             baton_status_t status)
{
    if (send->state == BATON__TRANSFER_OFFERED ||
        send->state == BATON__TRANSFER_GRANTED) {
        baton__staged_fail(self, send, status, "the receiver is lost");
        baton__staged_end(self, send);
    } else if (send->state == BATON__TRANSFER_SENDING) {
        fail(self, send, status, "the receiver is lost");
    }
}

static void end_block(baton__staged_t *self, baton__staged_transfer_t *send,
                      baton_status_t status)
{
    send->finished++;
    if (status != BATON_OK || send->status != BATON_OK) {
        fail(self, send, status, NULL);
    } else if (send->finished == send->blocks) {
        baton__staged_end(self, send);
    }
}

static void end_buffer(baton__staged_t *self, baton__staged_buffer_t *buffer,
                       baton_status_t status)
{
    baton__staged_transfer_t *send = buffer->transfer;
    baton__staged_give_buffer(&self->out, buffer);
    end_block(self, send, status);
}

/* ---- blocks ------------------------------------------------------------ */

static baton_status_t send_block(baton__staged_t *self,
                                 const baton__staged_transfer_t *send,
                                 baton_token_t token, uint32_t block,
                                 const char *data)
{
    const baton_header_t header = {.schedule = send->remote,
                                   .epoch = baton__staged_reference(send),
                                   .tag = block,
                                   .kind = BATON__STAGED_CONTROL |
                                           BATON__STAGED_BLOCK};
    return self->inner->send(self->endpoint, token, send->peer, &header, data,
                             baton__staged_bytes_of(send, block));
}

/* A block is in its buffer. */
static void post_block(baton__staged_t *self, baton__staged_buffer_t *buffer)
{
    baton_status_t status = send_block(
        self, buffer->transfer,
        baton__staged_token(self, BATON__STAGED_TOKEN_OUT, buffer->index),
        buffer->block, buffer->memory);
    if (status != BATON_OK) {
        end_buffer(self, buffer, status == BATON_DONE ? BATON_OK : status);
    }
}

static void copy_block(baton__staged_t *self, baton__staged_transfer_t *send,
                       uint32_t block, const char *source)
{
    baton__staged_buffer_t *buffer = baton__staged_take_buffer(&self->out);
    buffer->transfer = send;
    buffer->block = block;
    baton_status_t status =
        baton__staged_copy(self, &self->out, buffer, buffer->memory, source,
                           baton__staged_bytes_of(send, block));
    if (status != BATON_OK) {
        end_buffer(self, buffer, status);
    }
}

static void post_from_host(baton__staged_t *self,
                           baton__staged_transfer_t *send, uint32_t block,
                           const char *source)
{
    baton_status_t status = send_block(
        self, send,
        baton__staged_token(self, BATON__STAGED_TOKEN_BLOCK, send->id), block,
        source);
    if (status == BATON_OK) {
        self->host_blocks++;
    } else {
        end_block(self, send, status == BATON_DONE ? BATON_OK : status);
    }
}

static void begin_block(baton__staged_t *self, baton__staged_transfer_t *send)
{
    uint32_t block = send->started++;
    if (send->started < send->blocks) { /* the next one is another send's */
        baton__staged_append(&self->sending, send);
    }
    const char *source = send->source + (size_t)block * send->block_bytes;
    if (send->from_host) {
        post_from_host(self, send, block, source);
    } else {
        copy_block(self, send, block, source);
    }
}

static bool can_begin(const baton__staged_t *self,
                      const baton__staged_transfer_t *send)
{
    return send->started < send->granted &&
           (send->from_host || self->out.unused != NULL);
}

/* Begins blocks that were asked for while there are buffers, in turns. */
static void begin_blocks(baton__staged_t *self)
{
    baton__staged_transfer_t *first_idle = NULL;
    while (self->sending.head != NULL && self->sending.head != first_idle) {
        baton__staged_transfer_t *send =
            baton__staged_take_first(&self->sending);
        if (can_begin(self, send)) {
            begin_block(self, send);
            first_idle = NULL;
        } else {
            first_idle = first_idle == NULL ? send : first_idle;
            baton__staged_append(&self->sending, send);
        }
    }
}

void baton__staged_send_progress(baton__staged_t *self)
{
    baton_status_t status;
    baton__staged_buffer_t *buffer;
    begin_blocks(self);
    while ((buffer = baton__staged_copied(self, &self->out, &status)) != NULL) {
        if (status == BATON_OK && buffer->transfer->status == BATON_OK) {
            post_block(self, buffer);
        } else {
            end_buffer(self, buffer, status);
        }
    }
    begin_blocks(self);
}

/* ---- what comes -------------------------------------------------------- */

static void grant(baton__staged_t *self, baton__staged_transfer_t *send)
{
    bool known = true;
    send->state = BATON__TRANSFER_GRANTED;
    memset(send->handle, 0, sizeof send->handle);
    if (send->peer == self->rank) {
        memcpy(send->handle, &send->source, sizeof send->source);
    } else {
        known = self->port.get_handle != NULL &&
                self->port.get_handle(self->device, send->source,
                                      send->handle) == BATON_OK;
    }
    baton__staged_tell(self, send, BATON__STAGED_GRANT, known);
}

static void start(baton__staged_t *self, baton__staged_transfer_t *send,
                  const baton_message_t *message)
{
    uint64_t block = 0;
    if (message->data != NULL && message->bytes == sizeof block) {
        memcpy(&block, message->data, sizeof block);
    }
    if (block == 0 || block > most_of_block(self, send)) {
        fail(self, send, BATON_ERR_MISMATCH,
             "the receiver asked for blocks of another size");
        return;
    }
    send->state = BATON__TRANSFER_SENDING;
    send->block_bytes = block;
    send->blocks = baton__staged_blocks_of(send->bytes, send->block_bytes);
    send->granted = message->header.tag;
    baton__staged_append(&self->sending, send);
}

static void take_ask(baton__staged_t *self, baton__staged_transfer_t *send,
                     baton__staged_kind_t kind, const baton_message_t *message)
{
    bool offered = send->state == BATON__TRANSFER_OFFERED;
    send->remote = message->header.schedule;
    if (kind == BATON__STAGED_ASK_DIRECT && offered) {
        grant(self, send);
    } else if (kind == BATON__STAGED_ASK &&
               (offered || send->state == BATON__TRANSFER_GRANTED)) {
        start(self, send, message);
    }
    begin_blocks(self);
}

void baton__staged_send_control(baton__staged_t *self,
                                baton__staged_kind_t kind,
                                baton_message_t *message)
{
    const baton_header_t *header = &message->header;
    baton__staged_transfer_t *send =
        baton__staged_find(&self->sends, header->epoch, message->peer);
    bool asks = kind == BATON__STAGED_ASK || kind == BATON__STAGED_ASK_DIRECT;
    if (send == NULL || send->state == BATON__TRANSFER_WITHDRAWN ||
        send->state == BATON__TRANSFER_ENDED) {
        if (asks) {
            baton__staged_refuse(self, message->peer, header->schedule);
        }
    } else if (asks) {
        take_ask(self, send, kind, message);
    } else if (kind == BATON__STAGED_MORE) {
        send->granted =
            send->granted < header->tag ? header->tag : send->granted;
        begin_blocks(self);
    } else if ((kind == BATON__STAGED_DECLINE &&
                send->state == BATON__TRANSFER_OFFERED) ||
               (kind == BATON__STAGED_DONE &&
                send->state == BATON__TRANSFER_GRANTED)) {
        baton__staged_end(self, send);
    }
    self->inner->drop(self->endpoint, message);
}

void baton__staged_send_event(baton__staged_t *self,
                              baton__staged_tokens_t what, uint32_t index,
                              baton_status_t status)
{
    if (what == BATON__STAGED_TOKEN_OUT) {
        end_buffer(self, &self->out.all[index], status);
        return;
    }
    baton__staged_transfer_t *send = baton__staged_by_id(&self->sends, index);
    assert(send != NULL);
    if (what == BATON__STAGED_TOKEN_BLOCK) {
        self->host_blocks--;
        end_block(self, send, status);
        return;
    }
    send->offer_posted = false;
    if (send->over) {
        baton__staged_give(self, send);
    } else if (status != BATON_OK && send->state == BATON__TRANSFER_OFFERED) {
        baton__staged_fail(self, send, status, NULL);
        baton__staged_end(self, send);
    }
}
