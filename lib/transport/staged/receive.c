/* The receiver's side of a transfer: offers, blocks, and copies to the
   device. */
#include "transport/staged/endpoint.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

typedef baton__staged_t staged_t;
typedef baton__staged_transfer_t transfer_t;
typedef baton__staged_buffer_t buffer_t;

static bool is_to_device(const transfer_t *receive)
{
    return receive->token.memory == BATON_MEMORY_DEVICE;
}

/* Returns the number of buffers that are free and not reserved for blocks. */
static uint32_t available(const staged_t *self)
{
    return self->in.unused_count - self->promised;
}

/* Divides a message into blocks. The model chooses the size of the blocks,
   which is at most `most` bytes. */
static void staged_receive_cut(const staged_t *self, transfer_t *receive,
                               size_t bytes, size_t most)
{
    size_t block = baton__block_for(&self->model, bytes);
    block = block < self->block_bytes ? block : self->block_bytes;
    baton__staged_cut(receive, bytes, block < most ? block : most);
}

/* ---- offers -------------------------------------------------------------- */

baton_status_t baton__staged_take_offer(staged_t *self, baton_message_t *offer,
                                        baton_message_t **out)
{
    if (self->receives.unused == NULL) {
        return BATON_AGAIN;
    }
    transfer_t *receive = baton__staged_take(&self->receives);
    baton__staged_offer_t *data = &receive->offer;
    receive->peer = offer->peer;
    receive->message =
        (baton_message_t){.header = offer->header, .peer = offer->peer};
    receive->message.header.kind &= (uint16_t)~BATON__STAGED_KINDS;
    /* An offer of another size does not come from this version of Baton. */
    baton_status_t status = BATON_ERR_MISMATCH;
    if (offer->bytes != sizeof *data) {
        self->around.inner->drop(self->around.endpoint, offer);
    } else {
        /* An offer is so short that accept returns its data at once
           (BATON_DONE), or fails if the offer was withdrawn. */
        status = self->around.inner->accept(
            self->around.endpoint, offer, (baton_token_t){.owner = self}, data);
        assert(status != BATON_OK);
    }
    if (status != BATON_DONE || data->bytes == 0 || data->block == 0) {
        baton__staged_give(self, receive);
        return BATON_ERR_CANCELLED;
    }
    receive->state = BATON__TRANSFER_ARRIVED;
    receive->remote = data->reference;
    receive->message.bytes = data->bytes;
    *out = &receive->message;
    return BATON_DONE;
}

/* ---- ending ------------------------------------------------------------ */

static void staged_receive_end_block(staged_t *self, transfer_t *receive,
                                     baton_status_t status)
{
    receive->finished++;
    baton__staged_fail(self, receive, status, NULL);
    if (receive->memory != NULL && receive->status != BATON_OK) {
        receive->blocks = receive->granted; /* the other blocks are not
                                               copied */
    }
    if (receive->finished == receive->blocks) {
        baton__staged_list_remove(&self->receiving, receive);
        baton__staged_end(self, receive);
    }
}

/* Ends the receive early, without the blocks that have not begun. */
static void staged_receive_stop(staged_t *self, transfer_t *receive,
                                baton_status_t status, const char *detail)
{
    baton__staged_fail(self, receive, status, detail);
    if (receive->state == BATON__TRANSFER_RECEIVING) {
        self->promised -= receive->granted - receive->started;
        receive->blocks = receive->granted = receive->started;
        if (receive->finished < receive->blocks) {
            return;
        }
        baton__staged_list_remove(&self->receiving, receive);
    }
    baton__staged_end(self, receive);
}

void baton__staged_receive_lost(staged_t *self, transfer_t *receive,
                                baton_status_t status)
{
    if (receive->state == BATON__TRANSFER_RECEIVING ||
        receive->state == BATON__TRANSFER_ASKED) {
        staged_receive_stop(self, receive, status, "the sender is lost");
    } /* in all other states the receive ends without the sender */
}

/* ---- blocks ------------------------------------------------------------ */

/* Copies a block from its buffer to the device. */
static void copy_to_device(staged_t *self, buffer_t *buffer)
{
    transfer_t *receive = buffer->transfer;
    char *target =
        receive->target + (size_t)buffer->block * receive->block_bytes;
    baton_status_t status =
        baton__staged_copy(self, &self->in, buffer, target, buffer->memory,
                           baton__staged_bytes_of(receive, buffer->block));
    if (status != BATON_OK) {
        staged_receive_end_block(self, receive, status);
    }
}

/* Called when a block has arrived, or has failed to arrive. It is in `buffer`;
   NULL: it is in its target, which is in main memory. */
static void end_accept(staged_t *self, transfer_t *receive, buffer_t *buffer,
                       baton_status_t status)
{
    if (buffer != NULL && status == BATON_OK) {
        copy_to_device(self, buffer);
        return;
    }
    if (buffer != NULL) {
        baton__staged_give_buffer(&self->in, buffer);
    }
    staged_receive_end_block(self, receive, status);
}

static void accept_block(staged_t *self, transfer_t *receive,
                         baton_message_t *message)
{
    uint32_t block = message->header.tag;
    buffer_t *buffer = NULL;
    baton_token_t token =
        baton__staged_token(self, BATON__STAGED_TOKEN_HOST, receive->id);
    char *target = receive->target + (size_t)block * receive->block_bytes;
    if (is_to_device(receive)) {
        buffer = baton__staged_take_buffer(&self->in, receive, block);
        token =
            baton__staged_token(self, BATON__STAGED_TOKEN_IN, buffer->index);
        target = buffer->memory;
    }
    baton_status_t status = self->around.inner->accept(self->around.endpoint,
                                                       message, token, target);
    if (status != BATON_OK) {
        end_accept(self, receive, buffer,
                   status == BATON_DONE ? BATON_OK : status);
    }
}

static void take_block(staged_t *self, transfer_t *receive,
                       baton_message_t *message)
{
    uint32_t block = message->header.tag;
    bool waits = receive != NULL &&
                 receive->state == BATON__TRANSFER_RECEIVING &&
                 block < receive->granted &&
                 message->bytes == baton__staged_bytes_of(receive, block);
    if (waits) {
        receive->started++;
        self->promised--;
    }
    if (waits && receive->status == BATON_OK) {
        accept_block(self, receive, message);
        return;
    }
    self->around.inner->drop(self->around.endpoint, message);
    if (waits) {
        staged_receive_end_block(self, receive, BATON_OK);
    }
}

static void feed_block(staged_t *self, transfer_t *receive)
{
    uint32_t block = receive->started++;
    self->promised--;
    if (receive->status != BATON_OK) {
        staged_receive_end_block(self, receive, BATON_OK);
        return;
    }
    buffer_t *buffer = baton__staged_take_buffer(&self->in, receive, block);
    memcpy(buffer->memory,
           receive->memory + (size_t)block * receive->block_bytes,
           baton__staged_bytes_of(receive, block));
    copy_to_device(self, buffer);
}

/* Asks the sender for as many blocks as there are free buffers. If the message
   comes from main memory and has been received into ordinary memory, copies
   that many blocks from there instead. */
static void staged_receive_ask(staged_t *self, transfer_t *receive)
{
    uint32_t before = receive->granted;
    while (receive->granted < receive->blocks &&
           receive->granted - receive->finished < BATON__STAGED_BLOCKS_AHEAD &&
           available(self) > 0) {
        receive->granted++;
        self->promised++;
    }
    if (receive->memory != NULL) {
        for (uint32_t end = receive->granted; before < end; before++) {
            feed_block(self, receive);
        }
    } else if (receive->granted > before) {
        baton__staged_tell(self, receive, BATON__STAGED_ASK, receive->granted);
    }
}

static void start_blocks(staged_t *self, transfer_t *receive)
{
    receive->state = BATON__TRANSFER_RECEIVING;
    baton__staged_list_append(&self->receiving, receive);
    staged_receive_ask(self, receive);
}

/* ---- between devices --------------------------------------------------- */

static void end_direct(staged_t *self, transfer_t *receive,
                       baton_status_t status)
{
    baton__staged_fail(self, receive, status, NULL);
    baton__staged_tell(self, receive, BATON__STAGED_DONE, 0);
    baton__staged_end(self, receive);
}

static void begin_direct(staged_t *self)
{
    while (self->copying.head != NULL && self->direct.unused != NULL) {
        transfer_t *receive = baton__staged_list_take(&self->copying);
        baton_status_t status = baton__staged_copy(
            self, &self->direct,
            baton__staged_take_buffer(&self->direct, receive, 0),
            receive->target, receive->source, receive->bytes);
        if (status != BATON_OK) {
            end_direct(self, receive, status);
        }
    }
}

/* Opens the sender's memory for this device. Returns NULL if the sender has
   sent no handle. */
static const void *open_source(staged_t *self, const baton_message_t *message)
{
    const void *source = NULL;
    unsigned char handle[BATON_DEVICE_HANDLE_BYTES];
    if (message->header.tag == 0 || message->data == NULL ||
        message->bytes != sizeof handle) {
        return NULL;
    }
    memcpy(handle, message->data, sizeof handle);
    return self->port.open_handle(self->device, handle, &source) == BATON_OK
               ? source
               : NULL;
}

static void take_grant(staged_t *self, transfer_t *receive,
                       const baton_message_t *message)
{
    receive->source = open_source(self, message);
    if (receive->source != NULL) {
        receive->state = BATON__TRANSFER_COPYING;
        baton__staged_list_append(&self->copying, receive);
        begin_direct(self);
    } else {
        start_blocks(self, receive);
    }
}

/* ---- ordinary messages into device memory ------------------------------ */

static void end_pull(staged_t *self, transfer_t *receive, baton_status_t status)
{
    self->pulling--;
    if (status == BATON_OK) {
        start_blocks(self, receive);
    } else {
        baton__staged_fail(self, receive, status, NULL);
        baton__staged_end(self, receive);
    }
}

baton_status_t baton__staged_accept_plain(staged_t *self,
                                          baton_message_t *message,
                                          baton_token_t token, void *target)
{
    transfer_t *receive = baton__staged_take(&self->receives);
    if (receive == NULL) {
        return baton__error(BATON_ERR_LIMIT,
                            "staged: rank %d has more messages in flight than "
                            "it reserved",
                            self->rank);
    }
    receive->token = token;
    receive->target = target;
    receive->peer = message->peer;
    receive->state = BATON__TRANSFER_PULLING;
    staged_receive_cut(self, receive, message->bytes, message->bytes);
    receive->memory = baton__alloc(1, message->bytes);
    baton_status_t status;
    if (receive->memory != NULL) {
        status = self->around.inner->accept(
            self->around.endpoint, message,
            baton__staged_token(self, BATON__STAGED_TOKEN_PLAIN, receive->id),
            receive->memory);
    } else {
        self->around.inner->drop(self->around.endpoint, message);
        status = baton__error(BATON_ERR_NO_MEMORY,
                              "staged: there is no memory for a message of %zu "
                              "bytes from host memory of rank %d",
                              receive->bytes, receive->peer);
    }
    if (status != BATON_OK && status != BATON_DONE) {
        baton__free(receive->memory);
        baton__staged_give(self, receive);
        return status;
    }
    self->pulling++;
    if (status == BATON_DONE) {
        end_pull(self, receive, BATON_OK);
    }
    return BATON_OK;
}

/* ---- accepting ---------------------------------------------------------- */

static bool can_be_direct(const staged_t *self, const transfer_t *receive)
{
    return self->direct_allowed && is_to_device(receive) &&
           self->port.open_handle != NULL && self->port.kin != 0 &&
           receive->offer.kin == self->port.kin;
}

baton_status_t baton__staged_accept(staged_t *self, transfer_t *receive,
                                    baton_token_t token, void *target)
{
    int peer = receive->peer;
    if (self->peers[peer].lost != BATON_OK) {
        baton__staged_give(self, receive);
        return baton__error(self->peers[peer].lost, "staged: rank %d is lost",
                            peer);
    }
    receive->token = token;
    receive->target = target;
    staged_receive_cut(self, receive, receive->offer.bytes,
                       receive->offer.block);
    if (can_be_direct(self, receive)) {
        receive->state = BATON__TRANSFER_ASKED;
        baton__staged_tell(self, receive, BATON__STAGED_ASK, 0);
    } else {
        start_blocks(self, receive);
    }
    return BATON_OK;
}

/* ---- messages and events ----------------------------------------------- */

void baton__staged_receive_control(staged_t *self, baton__staged_kind_t kind,
                                   baton_message_t *message)
{
    transfer_t *receive = baton__staged_find(
        &self->receives, message->header.schedule, message->peer);
    if (kind == BATON__STAGED_BLOCK) {
        take_block(self, receive, message);
        return;
    }
    bool asked = receive != NULL && receive->state == BATON__TRANSFER_ASKED;
    bool comes = receive != NULL && receive->state == BATON__TRANSFER_RECEIVING;
    if (asked && kind == BATON__STAGED_GRANT) {
        take_grant(self, receive, message);
    } else if ((asked || comes) && kind == BATON__STAGED_ABORT) {
        if (message->header.tag == 1) {
            staged_receive_stop(self, receive, BATON_ERR_CANCELLED, NULL);
        } else {
            staged_receive_stop(self, receive, BATON_ERR_FAILED,
                                "the sender's device could not copy it");
        }
    }
    self->around.inner->drop(self->around.endpoint, message);
}

void baton__staged_receive_event(staged_t *self, baton__staged_tokens_t what,
                                 uint32_t index, baton_status_t status)
{
    if (what == BATON__STAGED_TOKEN_IN) {
        buffer_t *buffer = &self->in.all[index];
        end_accept(self, buffer->transfer, buffer, status);
        return;
    }
    transfer_t *receive = baton__staged_by_id(&self->receives, index);
    assert(receive != NULL);
    if (what == BATON__STAGED_TOKEN_HOST) {
        end_accept(self, receive, NULL, status);
    } else {
        end_pull(self, receive, status);
    }
}

static void end_copies(staged_t *self)
{
    baton_status_t status;
    buffer_t *buffer;
    while ((buffer = baton__staged_copied(self, &self->in, &status)) != NULL) {
        transfer_t *receive = buffer->transfer;
        baton__staged_give_buffer(&self->in, buffer);
        staged_receive_end_block(self, receive, status);
    }
    while ((buffer = baton__staged_copied(self, &self->direct, &status)) !=
           NULL) {
        transfer_t *receive = buffer->transfer;
        baton__staged_give_buffer(&self->direct, buffer);
        end_direct(self, receive, status);
    }
}

void baton__staged_receive_progress(staged_t *self)
{
    end_copies(self);
    begin_direct(self);
    transfer_t *next;
    for (transfer_t *at = self->receiving.head;
         at != NULL && available(self) > 0; at = next) {
        next = at->next;
        staged_receive_ask(self, at);
    }
}
