/* The sender's side of a transfer: offers, copies off the device, and
   blocks. */
#include "transport/staged/endpoint.h"

#include "base/error.h"

#include <string.h>

typedef baton__staged_t staged_t;
typedef baton__staged_transfer_t transfer_t;
typedef baton__staged_buffer_t buffer_t;

/* ---- offers ------------------------------------------------------------- */

static baton_status_t post_offer(staged_t *self, transfer_t *send,
                                 const baton_header_t *header)
{
    baton_header_t offered = *header;
    offered.kind |= BATON__STAGED_OFFER;
    send->offer = (baton__staged_offer_t){
        .reference = baton__staged_reference(send),
        .bytes = send->bytes,
        .kin = self->port.get_handle != NULL ? self->port.kin : 0,
        .block = self->block_bytes};
    return self->around.inner->send(
        self->around.endpoint,
        baton__staged_token(self, BATON__STAGED_TOKEN_OFFER, send->id),
        send->peer, &offered, &send->offer, sizeof send->offer);
}

baton_status_t baton__staged_offer(staged_t *self, baton_token_t token,
                                   int peer, const baton_header_t *header,
                                   const void *data, size_t bytes)
{
    transfer_t *send = baton__staged_take(&self->sends);
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
    send->state = BATON__TRANSFER_OFFERED;
    baton_status_t status = post_offer(self, send, header);
    send->offer_posted = status == BATON_OK;
    if (status != BATON_OK && status != BATON_DONE) {
        baton__staged_give(self, send);
        return status;
    }
    return BATON_OK;
}

static bool staged_send_take_back(staged_t *self, transfer_t *send)
{
    if (send->offer_posted &&
        self->around.inner->withdraw(
            self->around.endpoint,
            baton__staged_token(self, BATON__STAGED_TOKEN_OFFER, send->id))) {
        send->offer_posted = false;
    }
    baton__staged_give(self, send);
    return true;
}

/* Searches all sends, which is slow; but sends are withdrawn only after
   failures and cancels. */
bool baton__staged_withdraw(void *endpoint, baton_token_t token)
{
    staged_t *self = endpoint;
    for (baton__staged_transfer_slab_t *slab = self->sends.slabs; slab != NULL;
         slab = slab->next) {
        for (uint32_t i = 0; i < slab->count; i++) {
            transfer_t *send = &slab->records[i];
            if (send->state != BATON__TRANSFER_FREE &&
                send->state != BATON__TRANSFER_OVER &&
                send->token.owner == token.owner &&
                send->token.node == token.node) {
                return send->state == BATON__TRANSFER_OFFERED &&
                       staged_send_take_back(self, send);
            }
        }
    }
    return self->around.inner->withdraw(self->around.endpoint, token);
}

/* ---- ending ------------------------------------------------------------ */

/* Marks the send as failed, and ends it if none of its blocks is in flight.
   Otherwise the end of the last of these blocks calls this function again. */
static void fail(staged_t *self, transfer_t *send, baton_status_t status,
                 const char *detail)
{
    if (send->status == BATON_OK) {
        baton__staged_fail(self, send, status, detail);
        baton__staged_list_remove(&self->sending, send);
    }
    if (send->started == send->finished) {
        /* The receiver has asked for the data, so the receiver must be told. */
        if (send->remote != 0) {
            baton__staged_tell(self, send, BATON__STAGED_ABORT, 0);
        }
        baton__staged_end(self, send);
    }
}

void baton__staged_send_lost(staged_t *self, transfer_t *send,
                             baton_status_t status)
{
    if (send->state >= BATON__TRANSFER_OFFERED &&
        send->state <= BATON__TRANSFER_SENDING) {
        fail(self, send, status, "the receiver is lost");
    }
}

static void staged_send_end_block(staged_t *self, transfer_t *send,
                                  baton_status_t status)
{
    send->finished++;
    if (status != BATON_OK || send->status != BATON_OK) {
        fail(self, send, status, NULL);
    } else if (send->finished == send->blocks) {
        baton__staged_end(self, send);
    }
}

static void end_buffer(staged_t *self, buffer_t *buffer, baton_status_t status)
{
    transfer_t *send = buffer->transfer;
    baton__staged_give_buffer(&self->out, buffer);
    staged_send_end_block(self, send, status);
}

/* ---- blocks ------------------------------------------------------------ */

/* Sends the block that is in this buffer. */
static void post_block(staged_t *self, buffer_t *buffer)
{
    const transfer_t *send = buffer->transfer;
    const baton_header_t header = {.schedule = send->remote,
                                   .epoch = baton__staged_reference(send),
                                   .tag = buffer->block,
                                   .kind = BATON__STAGED_CONTROL |
                                           BATON__STAGED_BLOCK};
    baton_status_t status = self->around.inner->send(
        self->around.endpoint,
        baton__staged_token(self, BATON__STAGED_TOKEN_OUT, buffer->index),
        send->peer, &header, buffer->memory,
        baton__staged_bytes_of(send, buffer->block));
    if (status != BATON_OK) {
        end_buffer(self, buffer, status == BATON_DONE ? BATON_OK : status);
    }
}

static void begin_block(staged_t *self, transfer_t *send)
{
    uint32_t block = send->started++;
    if (send->started == send->blocks) {
        baton__staged_list_remove(&self->sending, send);
    }
    buffer_t *buffer = baton__staged_take_buffer(&self->out, send, block);
    baton_status_t status =
        baton__staged_copy(self, &self->out, buffer, buffer->memory,
                           send->source + (size_t)block * send->block_bytes,
                           baton__staged_bytes_of(send, block));
    if (status != BATON_OK) {
        staged_send_end_block(self, send, status);
    }
}

/* Begins to copy the blocks that receivers have asked for, as long as buffers
   are free. */
static void begin_blocks(staged_t *self)
{
    transfer_t *next;
    for (transfer_t *at = self->sending.head; at != NULL; at = next) {
        next = at->next;
        while (self->out.unused != NULL && at->started < at->granted &&
               at->status == BATON_OK) {
            begin_block(self, at);
        }
    }
}

void baton__staged_send_progress(staged_t *self)
{
    baton_status_t status;
    buffer_t *buffer;
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

/* ---- messages and events ----------------------------------------------- */

static void grant(staged_t *self, transfer_t *send)
{
    send->state = BATON__TRANSFER_GRANTED;
    memset(send->handle, 0, sizeof send->handle);
    bool known = self->port.get_handle != NULL &&
                 self->port.get_handle(self->device, send->source,
                                       send->handle) == BATON_OK;
    baton__staged_tell(self, send, BATON__STAGED_GRANT, known);
}

static void staged_send_start(staged_t *self, transfer_t *send,
                              const baton_message_t *message)
{
    uint64_t block = 0;
    if (message->data != NULL && message->bytes == sizeof block) {
        memcpy(&block, message->data, sizeof block);
    }
    if (block == 0 || block > self->block_bytes) {
        fail(self, send, BATON_ERR_MISMATCH,
             "the receiver asked for blocks of another size");
        return;
    }
    send->state = BATON__TRANSFER_SENDING;
    baton__staged_cut(send, send->bytes, block);
    send->granted = message->header.tag;
    baton__staged_list_append(&self->sending, send);
}

static void take_ask(staged_t *self, transfer_t *send,
                     const baton_message_t *message)
{
    uint32_t blocks = message->header.tag;
    send->remote = message->header.schedule;
    if (send->state == BATON__TRANSFER_SENDING) {
        send->granted = send->granted < blocks ? blocks : send->granted;
    } else if (blocks > 0) {
        staged_send_start(self, send, message);
    } else if (send->state == BATON__TRANSFER_OFFERED) {
        grant(self, send);
    }
    begin_blocks(self);
}

void baton__staged_send_control(staged_t *self, baton__staged_kind_t kind,
                                baton_message_t *message)
{
    transfer_t *send =
        baton__staged_find(&self->sends, message->header.epoch, message->peer);
    if (kind == BATON__STAGED_ASK && send == NULL) {
        baton__staged_refuse(self, message);
        return;
    }
    if (kind == BATON__STAGED_ASK) {
        take_ask(self, send, message);
    } else if (send != NULL && send->state != BATON__TRANSFER_SENDING) {
        /* The message is of kind DONE. */
        baton__staged_end(self, send);
    }
    self->around.inner->drop(self->around.endpoint, message);
}

void baton__staged_send_event(staged_t *self, baton__staged_tokens_t what,
                              uint32_t index, baton_status_t status)
{
    if (what == BATON__STAGED_TOKEN_OUT) {
        end_buffer(self, &self->out.all[index], status);
        return;
    }
    transfer_t *send = baton__staged_by_id(&self->sends, index);
    assert(send != NULL);
    send->offer_posted = false;
    if (send->state == BATON__TRANSFER_OVER) {
        baton__staged_give(self, send);
    } else if (status != BATON_OK && send->state == BATON__TRANSFER_OFFERED) {
        baton__staged_fail(self, send, status, NULL);
        baton__staged_end(self, send);
    }
}
