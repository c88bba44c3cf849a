/* A message from a peer: offers, blocks, copies to the device. */
#include "transport/staged/endpoint.h"

#include "base/error.h"

#include <string.h>

enum { FEED_BYTES = 1 << 18 }; /* copied on the host in one poll */

static bool is_to_device(const baton__staged_transfer_t *receive)
{
    return receive->token.memory == BATON_MEMORY_DEVICE &&
           receive->target != NULL;
}

/* Buffers that are free, and not promised to blocks that were asked for. */
static uint32_t available(const baton__staged_t *self)
{
    bool landing = self->landing.head != NULL || self->landing_now != NULL;
    return landing ? 0 : self->in.unused_count - self->promised;
}

/* ---- arrival ----------------------------------------------------------- */

static void append_arrived(baton__staged_t *self, baton_message_t *message)
{
    message->next = NULL;
    *(self->arrived == NULL ? &self->arrived : &self->arrived_last->next) =
        message;
    self->arrived_last = message;
}

static void hold(baton__staged_t *self, baton_message_t *message)
{
    baton__staged_peer_t *peer = &self->peers[message->peer];
    message->next = NULL;
    *(peer->held == NULL ? &peer->held : &peer->held_last->next) = message;
    peer->held_last = message;
    self->held++;
}

static bool is_offer(const baton_message_t *message)
{
    return (message->header.kind & BATON__STAGED_KINDS) == BATON__STAGED_OFFER;
}

/* The offer's data have come. */
static void arrive(baton__staged_t *self, baton__staged_transfer_t *receive)
{
    receive->state = BATON__TRANSFER_ARRIVED;
    receive->remote = receive->offer.reference;
    receive->bytes = receive->offer.bytes;
    receive->message.bytes = receive->bytes;
    append_arrived(self, &receive->message);
}

static void fetch(baton__staged_t *self, baton__staged_transfer_t *receive,
                  baton_message_t *message)
{
    int peer = message->peer;
    receive->peer = peer;
    receive->state = BATON__TRANSFER_FETCHING;
    receive->message =
        (baton_message_t){.header = message->header, .peer = peer};
    receive->message.header.kind &= (uint16_t)~BATON__STAGED_KINDS;
    if (message->bytes != sizeof receive->offer) { /* not from Baton */
        self->inner->drop(self->endpoint, message);
        baton__staged_give(self, receive);
        return;
    }
    baton_status_t status = self->inner->accept(
        self->endpoint, message,
        baton__staged_token(self, BATON__STAGED_TOKEN_FETCH, receive->id),
        &receive->offer);
    if (status == BATON_DONE) {
        arrive(self, receive);
    } else if (status == BATON_OK) {
        self->peers[peer].fetching = receive;
    } else { /* withdrawn, or its sender is lost */
        baton__staged_give(self, receive);
    }
}

/* Reports the peer's next message, after all before it. False: it has to wait
   for a record. */
static bool admit(baton__staged_t *self, baton_message_t *message)
{
    if (!is_offer(message)) {
        append_arrived(self, message);
        return true;
    }
    baton__staged_transfer_t *receive = baton__staged_take(&self->receives);
    if (receive != NULL) {
        fetch(self, receive, message);
    }
    return receive != NULL;
}

bool baton__staged_arrived(baton__staged_t *self, baton_message_t *message)
{
    const baton__staged_peer_t *peer = &self->peers[message->peer];
    if (peer->fetching != NULL || peer->held != NULL) {
        hold(self, message);
        return false;
    }
    if (!is_offer(message) && self->arrived == NULL) {
        return true;
    }
    if (!admit(self, message)) {
        hold(self, message);
    }
    return false;
}

static void release_held(baton__staged_t *self, baton__staged_peer_t *peer)
{
    while (peer->held != NULL && peer->fetching == NULL) {
        baton_message_t *message = peer->held;
        baton_message_t *next = message->next;
        if (!admit(self, message)) {
            return;
        }
        peer->held = next;
        self->held--;
    }
}

static void end_fetch(baton__staged_t *self, baton__staged_transfer_t *receive,
                      baton_status_t status)
{
    baton__staged_peer_t *peer = &self->peers[receive->peer];
    peer->fetching = NULL;
    if (status == BATON_OK) {
        arrive(self, receive);
    } else {
        baton__staged_give(self, receive);
    }
    release_held(self, peer);
}

/* ---- asking ------------------------------------------------------------ */

/* Asks for as many blocks as there are buffers for. */
static void ask(baton__staged_t *self, baton__staged_transfer_t *receive)
{
    uint32_t before = receive->granted;
    bool to_device = is_to_device(receive);
    while (receive->granted < receive->blocks &&
           receive->granted - receive->finished < BATON__STAGED_BLOCKS_AHEAD &&
           (!to_device || available(self) > 0)) {
        receive->granted++;
        self->promised += to_device;
    }
    if (receive->granted > before) {
        baton__staged_tell(self, receive,
                           before == 0 ? BATON__STAGED_ASK : BATON__STAGED_MORE,
                           receive->granted);
    }
}

static void start_blocks(baton__staged_t *self,
                         baton__staged_transfer_t *receive)
{
    receive->state = BATON__TRANSFER_RECEIVING;
    baton__staged_append(&self->receiving, receive);
    ask(self, receive);
}

static bool can_be_direct(const baton__staged_t *self,
                          const baton__staged_transfer_t *receive)
{
    bool kin = self->port.open_handle != NULL && self->port.kin != 0 &&
               receive->offer.kin == self->port.kin;
    return self->direct && is_to_device(receive) && receive->offer.host == 0 &&
           (kin || receive->peer == self->rank);
}

/* Begins what was accepted, as far as the peer may have receives in progress.
 */
static void begin(baton__staged_t *self, int index)
{
    baton__staged_peer_t *peer = &self->peers[index];
    while (peer->lost == BATON_OK && peer->queued.head != NULL &&
           peer->active < BATON__STAGED_RECEIVES_FROM_PEER) {
        baton__staged_transfer_t *receive =
            baton__staged_take_first(&peer->queued);
        peer->active++;
        if (can_be_direct(self, receive)) {
            receive->state = BATON__TRANSFER_ASKED_DIRECT;
            baton__staged_tell(self, receive, BATON__STAGED_ASK_DIRECT, 0);
        } else {
            start_blocks(self, receive);
        }
    }
}

/* Up to what both ends have buffers for; but of host memory into host memory
   all goes at once. */
static size_t choose_block(const baton__staged_t *self,
                           const baton__staged_transfer_t *receive)
{
    size_t most = receive->offer.block;
    if (receive->offer.host != 0 && !is_to_device(receive)) {
        return most;
    }
    if (is_to_device(receive) && self->block_bytes < most) {
        most = self->block_bytes;
    }
    size_t block = baton__block_for(&self->model, receive->bytes);
    return block < most ? block : most;
}

baton_status_t baton__staged_accept(baton__staged_t *self,
                                    baton__staged_transfer_t *receive,
                                    baton_token_t token, void *target)
{
    baton_status_t lost = self->peers[receive->peer].lost;
    if (lost != BATON_OK) {
        int peer = receive->peer;
        baton__staged_give(self, receive);
        return baton__error(lost, "staged: rank %d is lost", peer);
    }
    receive->token = token;
    receive->target = target;
    receive->block_bytes = choose_block(self, receive);
    receive->blocks =
        baton__staged_blocks_of(receive->bytes, receive->block_bytes);
    receive->state = BATON__TRANSFER_QUEUED;
    baton__staged_append(&self->peers[receive->peer].queued, receive);
    begin(self, receive->peer);
    return BATON_OK;
}

/* ---- ending ------------------------------------------------------------ */

/* A receive that was asked for is over. */
static void finish(baton__staged_t *self, baton__staged_transfer_t *receive)
{
    int peer = receive->peer;
    if (receive->state == BATON__TRANSFER_RECEIVING) {
        baton__staged_remove(&self->receiving, receive);
        baton__staged_forget_control(self, receive);
    }
    self->peers[peer].active--;
    baton__staged_end(self, receive);
    begin(self, peer);
}

static void end_block(baton__staged_t *self, baton__staged_transfer_t *receive,
                      baton_status_t status)
{
    receive->finished++;
    baton__staged_fail(self, receive, status, NULL);
    if (receive->finished < receive->blocks) {
        return;
    }
    if (receive->state == BATON__TRANSFER_RECEIVING) {
        finish(self, receive);
    } else if (receive->plain == NULL) { /* it was fed to the end */
        baton__staged_end(self, receive);
    }
}

/* No more blocks come than have. */
static void stop(baton__staged_t *self, baton__staged_transfer_t *receive,
                 baton_status_t status, const char *detail)
{
    baton__staged_fail(self, receive, status, detail);
    if (receive->state == BATON__TRANSFER_RECEIVING) {
        self->promised -=
            is_to_device(receive) ? receive->granted - receive->started : 0;
        receive->blocks = receive->granted = receive->started;
        if (receive->finished < receive->blocks) {
            return;
        }
    }
    finish(self, receive);
}

void baton__staged_receive_lost(baton__staged_t *self,
                                baton__staged_transfer_t *receive,
                                baton_status_t status)
{
    if (receive->state == BATON__TRANSFER_QUEUED) {
        baton__staged_fail(self, receive, status, "the sender is lost");
        baton__staged_remove(&self->peers[receive->peer].queued, receive);
        baton__staged_end(self, receive);
    } else if (receive->state == BATON__TRANSFER_RECEIVING ||
               receive->state == BATON__TRANSFER_ASKED_DIRECT) {
        stop(self, receive, status, "the sender is lost");
    } /* the others end by themselves */
}

/* ---- blocks ------------------------------------------------------------ */

/* A block is in its buffer. */
static void copy_to_device(baton__staged_t *self,
                           baton__staged_buffer_t *buffer)
{
    baton__staged_transfer_t *receive = buffer->transfer;
    char *target =
        receive->target + (size_t)buffer->block * receive->block_bytes;
    baton_status_t status =
        baton__staged_copy(self, &self->in, buffer, target, buffer->memory,
                           baton__staged_bytes_of(receive, buffer->block));
    if (status != BATON_OK) {
        baton__staged_give_buffer(&self->in, buffer);
        end_block(self, receive, status);
    }
}

static void take_to_device(baton__staged_t *self,
                           baton__staged_transfer_t *receive,
                           baton_message_t *message)
{
    baton__staged_buffer_t *buffer = baton__staged_take_buffer(&self->in);
    self->promised--;
    buffer->transfer = receive;
    buffer->block = message->header.tag;
    baton_status_t status = self->inner->accept(
        self->endpoint, message,
        baton__staged_token(self, BATON__STAGED_TOKEN_IN, buffer->index),
        buffer->memory);
    if (status == BATON_DONE) {
        copy_to_device(self, buffer);
    } else if (status != BATON_OK) {
        baton__staged_give_buffer(&self->in, buffer);
        end_block(self, receive, status);
    }
}

static void take_to_host(baton__staged_t *self,
                         baton__staged_transfer_t *receive,
                         baton_message_t *message)
{
    size_t begin = (size_t)message->header.tag * receive->block_bytes;
    baton_status_t status = self->inner->accept(
        self->endpoint, message,
        baton__staged_token(self, BATON__STAGED_TOKEN_HOST, receive->id),
        receive->target + begin);
    if (status != BATON_OK) {
        end_block(self, receive, status == BATON_DONE ? BATON_OK : status);
    }
}

static void take_block(baton__staged_t *self, baton__staged_transfer_t *receive,
                       baton_message_t *message)
{
    uint32_t block = message->header.tag;
    if (receive->state != BATON__TRANSFER_RECEIVING ||
        block >= receive->granted ||
        message->bytes != baton__staged_bytes_of(receive, block)) {
        self->inner->drop(self->endpoint, message); /* it is not awaited */
        return;
    }
    receive->started++;
    if (receive->status != BATON_OK || receive->target == NULL) {
        self->promised -= is_to_device(receive);
        self->inner->drop(self->endpoint, message);
        end_block(self, receive, BATON_OK);
    } else if (is_to_device(receive)) {
        take_to_device(self, receive, message);
    } else {
        take_to_host(self, receive, message);
    }
}

/* ---- between devices --------------------------------------------------- */

static void end_direct(baton__staged_t *self, baton__staged_transfer_t *receive,
                       baton_status_t status)
{
    baton__staged_fail(self, receive, status, NULL);
    baton__staged_tell(self, receive, BATON__STAGED_DONE, 0);
    finish(self, receive);
}

static void begin_direct(baton__staged_t *self)
{
    for (int i = 0; i < BATON__STAGED_DIRECT && self->copying.head != NULL;
         i++) {
        if (self->direct_copies[i] != NULL) {
            continue;
        }
        baton__staged_transfer_t *receive =
            baton__staged_take_first(&self->copying);
        baton_status_t status =
            self->port.copy(self->device, self->direct_stream, receive->target,
                            receive->source, receive->bytes);
        if (status == BATON_OK) {
            status = baton__staged_record(self, self->direct_stream,
                                          self->direct_events[i]);
        }
        if (status != BATON_OK) {
            end_direct(self, receive, status);
        } else {
            self->direct_copies[i] = receive;
            self->direct_count++;
        }
    }
}

static void look_at_direct(baton__staged_t *self)
{
    for (int i = 0; i < BATON__STAGED_DIRECT && self->direct_count > 0; i++) {
        baton__staged_transfer_t *receive = self->direct_copies[i];
        if (receive == NULL) {
            continue;
        }
        baton_status_t status =
            self->port.query(self->device, self->direct_events[i]);
        if (status != BATON_AGAIN) {
            self->direct_copies[i] = NULL;
            self->direct_count--;
            end_direct(self, receive, status);
        }
    }
    begin_direct(self);
}

/* Where the sender's memory is for this device; false if it can't say. */
static bool open_source(baton__staged_t *self,
                        baton__staged_transfer_t *receive,
                        const baton_message_t *message)
{
    const void *source = NULL;
    if (message->header.tag == 0 || message->data == NULL ||
        message->bytes != sizeof receive->handle) {
        return false;
    }
    memcpy(receive->handle, message->data, sizeof receive->handle);
    if (receive->peer == self->rank) {
        memcpy(&source, receive->handle, sizeof source);
    } else if (self->port.open_handle(self->device, receive->handle, &source) !=
               BATON_OK) {
        return false;
    }
    receive->source = source;
    return source != NULL;
}

static void take_grant(baton__staged_t *self, baton__staged_transfer_t *receive,
                       const baton_message_t *message)
{
    if (receive->state != BATON__TRANSFER_ASKED_DIRECT) {
        return;
    }
    if (open_source(self, receive, message)) {
        receive->state = BATON__TRANSFER_COPYING;
        baton__staged_append(&self->copying, receive);
        begin_direct(self);
    } else {
        start_blocks(self, receive);
    }
}

/* ---- ordinary messages into device memory ------------------------------ */

/* Reads a block of a message that came along or was lent. */
static baton_status_t read_block(const baton__staged_t *self,
                                 const baton__staged_transfer_t *receive,
                                 const baton__staged_buffer_t *buffer,
                                 size_t bytes)
{
    size_t offset = (size_t)buffer->block * receive->block_bytes;
    const char *data = receive->plain->data;
    if (data == NULL) {
        return self->inner->read(self->endpoint, receive->plain, offset, bytes,
                                 buffer->memory);
    }
    memcpy(buffer->memory, data + offset, bytes);
    return BATON_OK;
}

/* Copies the next block of a message that can be read. */
static size_t feed_block(baton__staged_t *self,
                         baton__staged_transfer_t *receive)
{
    baton__staged_buffer_t *buffer = baton__staged_take_buffer(&self->in);
    buffer->transfer = receive;
    buffer->block = receive->started++;
    size_t bytes = baton__staged_bytes_of(receive, buffer->block);
    baton_status_t status = read_block(self, receive, buffer, bytes);
    if (status == BATON_OK) {
        copy_to_device(self, buffer);
    } else {
        baton__staged_give_buffer(&self->in, buffer);
        receive->blocks = receive->started; /* this one, too, is over */
        receive->finished++;
        baton__staged_fail(self, receive, status,
                           "the sender's memory could not be read");
    }
    return bytes;
}

/* Copies blocks out of messages that can be read, some in each poll. */
static void feed(baton__staged_t *self)
{
    size_t bytes = 0;
    while (self->feeding.head != NULL && available(self) > 0 &&
           bytes < FEED_BYTES) {
        baton__staged_transfer_t *receive = self->feeding.head;
        if (receive->status != BATON_OK) { /* the rest is not wanted */
            receive->blocks = receive->started;
        } else {
            bytes += feed_block(self, receive);
        }
        if (receive->started >= receive->blocks) {
            (void)baton__staged_take_first(&self->feeding);
            self->inner->drop(self->endpoint, receive->plain);
            receive->plain = NULL;
            if (receive->finished == receive->blocks) {
                baton__staged_end(self, receive);
            }
        }
    }
}

static void end_landing(baton__staged_t *self, baton_status_t status)
{
    baton__staged_transfer_t *receive = self->landing_now;
    self->landing_now = NULL;
    baton__staged_fail(self, receive, status, NULL);
    baton__staged_end(self, receive);
}

/* The message is in the buffers: all of them, as one piece of memory. */
static void landed(baton__staged_t *self, baton_status_t status)
{
    baton__staged_transfer_t *receive = self->landing_now;
    if (status != BATON_OK) {
        end_landing(self, status);
        return;
    }
    baton__staged_buffer_t *buffer = baton__staged_take_buffer(&self->in);
    buffer->transfer = receive;
    status = baton__staged_copy(self, &self->in, buffer, receive->target,
                                self->in.all[0].memory, receive->bytes);
    if (status != BATON_OK) {
        baton__staged_give_buffer(&self->in, buffer);
        end_landing(self, status);
    }
}

static void land(baton__staged_t *self)
{
    while (self->landing.head != NULL && self->landing_now == NULL &&
           self->promised == 0 && self->in.unused_count == self->buffers) {
        baton__staged_transfer_t *receive =
            baton__staged_take_first(&self->landing);
        self->landing_now = receive;
        baton_status_t status = self->inner->accept(
            self->endpoint, receive->plain,
            baton__staged_token(self, BATON__STAGED_TOKEN_LANDING, receive->id),
            self->in.all[0].memory);
        if (status != BATON_OK) {
            landed(self, status == BATON_DONE ? BATON_OK : status);
        }
    }
}

static baton_status_t too_long(const baton__staged_t *self,
                               const baton_message_t *message)
{
    return baton__error(
        BATON_ERR_LIMIT,
        "staged: a message of %zu bytes from host memory of rank %d is too "
        "long for device memory, as the %s transport can't read it in place; "
        "up to %zu bytes are received (BATON_DEVICE_BLOCK times "
        "BATON_DEVICE_BUFFERS, which are to be the same on all ranks)",
        message->bytes, message->peer, self->inner->name,
        (size_t)self->buffers * self->block_bytes);
}

/* Whether its data can be read: BATON_DONE, or BATON_AGAIN; or an error. */
static baton_status_t look_into(const baton__staged_t *self,
                                baton_message_t *message)
{
    if (message->data != NULL) {
        return BATON_DONE;
    }
    baton_status_t status = self->inner->lend != NULL
                                ? self->inner->lend(self->endpoint, message)
                                : BATON_AGAIN;
    if (status == BATON_AGAIN &&
        message->bytes > self->buffers * self->block_bytes) {
        status = too_long(self, message);
        self->inner->drop(self->endpoint, message);
    }
    return status;
}

baton_status_t baton__staged_accept_plain(baton__staged_t *self,
                                          baton_message_t *message,
                                          baton_token_t token, void *target)
{
    baton__staged_transfer_t *receive = baton__staged_take(&self->receives);
    if (receive == NULL) {
        return baton__error(BATON_ERR_LIMIT,
                            "staged: rank %d has more messages in flight than "
                            "it reserved",
                            self->rank);
    }
    receive->token = token;
    receive->target = target;
    receive->bytes = message->bytes;
    size_t block = baton__block_for(&self->model, message->bytes);
    receive->block_bytes =
        block < self->block_bytes ? block : self->block_bytes;
    receive->blocks =
        baton__staged_blocks_of(receive->bytes, receive->block_bytes);
    receive->peer = message->peer;
    receive->plain = message;
    baton_status_t status = look_into(self, message);
    if (status == BATON_DONE) {
        receive->state = BATON__TRANSFER_FEEDING;
        baton__staged_append(&self->feeding, receive);
        feed(self);
    } else if (status == BATON_AGAIN) {
        receive->state = BATON__TRANSFER_LANDING;
        baton__staged_append(&self->landing, receive);
        land(self);
    } else {
        baton__staged_give(self, receive);
        return status;
    }
    return BATON_OK;
}

/* ---- what comes -------------------------------------------------------- */

void baton__staged_receive_control(baton__staged_t *self,
                                   baton__staged_kind_t kind,
                                   baton_message_t *message)
{
    baton__staged_transfer_t *receive = baton__staged_find(
        &self->receives, message->header.schedule, message->peer);
    if (kind == BATON__STAGED_BLOCK && receive != NULL) {
        take_block(self, receive, message);
        return;
    }
    bool asked =
        receive != NULL && (receive->state == BATON__TRANSFER_ASKED_DIRECT ||
                            receive->state == BATON__TRANSFER_RECEIVING);
    if (asked && kind == BATON__STAGED_GRANT) {
        take_grant(self, receive, message);
    } else if (asked && kind == BATON__STAGED_REFUSE) {
        stop(self, receive, BATON_ERR_CANCELLED, NULL);
    } else if (asked && kind == BATON__STAGED_ABORT) {
        stop(self, receive, BATON_ERR_FAILED,
             "the sender's device could not copy it");
    }
    self->inner->drop(self->endpoint, message);
}

void baton__staged_receive_event(baton__staged_t *self,
                                 baton__staged_tokens_t what, uint32_t index,
                                 baton_status_t status)
{
    if (what == BATON__STAGED_TOKEN_IN) {
        baton__staged_buffer_t *buffer = &self->in.all[index];
        if (status == BATON_OK) {
            copy_to_device(self, buffer);
        } else {
            baton__staged_transfer_t *receive = buffer->transfer;
            baton__staged_give_buffer(&self->in, buffer);
            end_block(self, receive, status);
        }
        return;
    }
    baton__staged_transfer_t *receive =
        baton__staged_by_id(&self->receives, index);
    assert(receive != NULL);
    if (what == BATON__STAGED_TOKEN_FETCH) {
        end_fetch(self, receive, status);
    } else if (what == BATON__STAGED_TOKEN_HOST) {
        end_block(self, receive, status);
    } else {
        landed(self, status);
    }
}

static void end_copies(baton__staged_t *self)
{
    baton_status_t status;
    baton__staged_buffer_t *buffer;
    while ((buffer = baton__staged_copied(self, &self->in, &status)) != NULL) {
        baton__staged_transfer_t *receive = buffer->transfer;
        baton__staged_give_buffer(&self->in, buffer);
        if (receive == self->landing_now) {
            end_landing(self, status);
        } else {
            end_block(self, receive, status);
        }
    }
}

void baton__staged_receive_progress(baton__staged_t *self)
{
    end_copies(self);
    look_at_direct(self);
    land(self);
    feed(self);
    baton__staged_transfer_t *next;
    for (baton__staged_transfer_t *at = self->receiving.head; at != NULL;
         at = next) {
        next = at->next;
        ask(self, at);
    }
    if (self->held > 0 && self->record_freed) {
        self->record_freed = false;
        for (int peer = 0; peer < self->size; peer++) {
            release_held(self, &self->peers[peer]);
        }
    }
}

bool baton__staged_receive_is_busy(const baton__staged_t *self)
{
    return self->feeding.head != NULL && available(self) > 0;
}
