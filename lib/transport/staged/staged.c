/* The staged transport: its table of functions, opening and closing. The design
   note is in endpoint.h. */
#include "transport/staged/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"

#include <sched.h>
#include <string.h>

enum { RETRY_US = 100 };

/* ---- sending ----------------------------------------------------------- */

static bool takes_device(const baton__staged_t *self, int peer, size_t bytes)
{
    return self->inner->takes_device != NULL &&
           self->inner->takes_device(self->endpoint, peer, bytes);
}

/* Whether the receiver could not take a message of host memory into its device:
   it can neither read it in place nor has buffers for all of it, if its
   settings are those of this rank. */
static bool is_too_long(const baton__staged_t *self, int peer, const void *data,
                        size_t bytes)
{
    const baton_transport_t *inner = self->inner;
    if (bytes <= self->buffers * self->block_bytes) {
        return false;
    }
    return inner->lend == NULL ||
           (inner->lends != NULL &&
            !inner->lends(self->endpoint, peer, data, bytes));
}

static baton_status_t staged_send(void *endpoint, baton_token_t token, int peer,
                                  const baton_header_t *header,
                                  const void *data, size_t bytes)
{
    baton__staged_t *self = endpoint;
    if ((header->kind & BATON__STAGED_KINDS) != 0) {
        return baton__error(BATON_ERR_INVALID,
                            "staged: a message of kind %u; at most %u is "
                            "allowed",
                            header->kind, 0xffff & ~BATON__STAGED_KINDS);
    }
    bool passes = token.memory == BATON_MEMORY_HOST
                      ? !is_too_long(self, peer, data, bytes)
                      : takes_device(self, peer, bytes);
    if (passes || bytes == 0 || data == NULL) {
        return self->inner->send(self->endpoint, token, peer, header, data,
                                 bytes);
    }
    return baton__staged_offer(self, token, peer, header, data, bytes);
}

static baton_status_t staged_notify(void *endpoint, int peer,
                                    const baton_header_t *header,
                                    const void *data, size_t bytes)
{
    baton__staged_t *self = endpoint;
    return self->inner->notify(self->endpoint, peer, header, data, bytes);
}

static bool staged_withdraw(void *endpoint, baton_token_t token)
{
    return baton__staged_withdraw(endpoint, token);
}

/* ---- receiving --------------------------------------------------------- */

static baton_status_t staged_accept(void *endpoint, baton_message_t *message,
                                    baton_token_t token, void *target)
{
    baton__staged_t *self = endpoint;
    baton__staged_transfer_t *receive = baton__staged_of(self, message);
    if (receive != NULL) {
        return baton__staged_accept(self, receive, token, target);
    }
    if (token.memory == BATON_MEMORY_HOST ||
        (message->data == NULL &&
         takes_device(self, message->peer, message->bytes))) {
        return self->inner->accept(self->endpoint, message, token, target);
    }
    if (message->bytes == 0 || target == NULL) {
        self->inner->drop(self->endpoint, message);
        return BATON_DONE;
    }
    return baton__staged_accept_plain(self, message, token, target);
}

static void staged_drop(void *endpoint, baton_message_t *message)
{
    baton__staged_t *self = endpoint;
    baton__staged_transfer_t *receive = baton__staged_of(self, message);
    if (receive == NULL) {
        self->inner->drop(self->endpoint, message);
        return;
    }
    baton__staged_tell(self, receive, BATON__STAGED_DECLINE, 0);
    baton__staged_give(self, receive);
}

static baton_status_t staged_lend(void *endpoint, baton_message_t *message)
{
    baton__staged_t *self = endpoint;
    return baton__staged_of(self, message) != NULL
               ? BATON_AGAIN
               : self->inner->lend(self->endpoint, message);
}

static baton_status_t staged_read(void *endpoint,
                                  const baton_message_t *message, size_t offset,
                                  size_t bytes, void *target)
{
    const baton__staged_t *self = endpoint;
    return self->inner->read(self->endpoint, message, offset, bytes, target);
}

/* ---- polling ----------------------------------------------------------- */

static void lose(baton__staged_t *self, int peer, baton_status_t status)
{
    self->peers[peer].lost = status != BATON_OK ? status : BATON_ERR_TRANSPORT;
    for (int sends = 0; sends < 2; sends++) {
        const baton__staged_transfer_pool_t *pool =
            sends ? &self->sends : &self->receives;
        for (uint32_t id = 0; id < pool->capacity; id++) {
            baton__staged_transfer_t *transfer = baton__staged_by_id(pool, id);
            if (transfer->state == BATON__TRANSFER_FREE ||
                transfer->peer != peer) {
                continue;
            }
            if (sends) {
                baton__staged_send_lost(self, transfer, self->peers[peer].lost);
            } else {
                baton__staged_receive_lost(self, transfer,
                                           self->peers[peer].lost);
            }
        }
    }
}

static void take_control(baton__staged_t *self, baton_message_t *message)
{
    baton__staged_kind_t kind =
        (baton__staged_kind_t)(message->header.kind & ~BATON__STAGED_KINDS);
    switch (kind) {
    case BATON__STAGED_ASK:
    case BATON__STAGED_ASK_DIRECT:
    case BATON__STAGED_MORE:
    case BATON__STAGED_DECLINE:
    case BATON__STAGED_DONE:
        baton__staged_send_control(self, kind, message);
        return;
    case BATON__STAGED_GRANT:
    case BATON__STAGED_REFUSE:
    case BATON__STAGED_ABORT:
    case BATON__STAGED_BLOCK:
        baton__staged_receive_control(self, kind, message);
        return;
    }
    self->inner->drop(self->endpoint, message); /* not from Baton */
}

static void take_own(baton__staged_t *self, const baton_event_t *event)
{
    const uint32_t mask = (UINT32_C(1) << BATON__STAGED_TOKEN_BITS) - 1;
    baton__staged_tokens_t what =
        (baton__staged_tokens_t)(event->token.node >> BATON__STAGED_TOKEN_BITS);
    uint32_t index = event->token.node & mask;
    if (what == BATON__STAGED_TOKEN_OFFER || what == BATON__STAGED_TOKEN_OUT ||
        what == BATON__STAGED_TOKEN_BLOCK) {
        baton__staged_send_event(self, what, index, event->status);
    } else {
        baton__staged_receive_event(self, what, index, event->status);
    }
}

/* True if the event is to be reported. */
static bool take_event(baton__staged_t *self, const baton_event_t *event)
{
    switch (event->kind) {
    case BATON_EVENT_ARRIVED:
        if ((event->message->header.kind & BATON__STAGED_KINDS) ==
            BATON__STAGED_CONTROL) {
            take_control(self, event->message);
            return false;
        }
        return baton__staged_arrived(self, event->message);
    case BATON_EVENT_SENT:
    case BATON_EVENT_RECEIVED:
        if (event->token.owner == self) {
            take_own(self, event);
            return false;
        }
        return true;
    case BATON_EVENT_LOST:
        lose(self, event->peer, event->status);
        return true;
    }
    return true;
}

/* What has arrived and ended here. */
static size_t report(baton__staged_t *self, baton_event_t *out, size_t max)
{
    size_t count = 0;
    while (count < max && self->arrived != NULL) {
        baton_message_t *message = self->arrived;
        self->arrived = message->next;
        out[count++] =
            (baton_event_t){.kind = BATON_EVENT_ARRIVED, .message = message};
    }
    while (count < max && self->ended.head != NULL) {
        baton__staged_transfer_t *ended =
            baton__staged_take_first(&self->ended);
        out[count++] = (baton_event_t){
            .kind = ended->sends ? BATON_EVENT_SENT : BATON_EVENT_RECEIVED,
            .status = ended->status,
            .token = ended->token,
            .peer = ended->peer,
            .detail = ended->detail};
        baton__staged_give(self, ended);
    }
    return count;
}

static void progress(baton__staged_t *self)
{
    baton__staged_send_progress(self);
    baton__staged_receive_progress(self);
    if (self->controls != NULL || self->any_refused) {
        baton__staged_flush(self);
    }
}

static size_t staged_poll(void *endpoint, baton_event_t *out, size_t max)
{
    baton__staged_t *self = endpoint;
    progress(self);
    size_t count = report(self, out, max);
    if (count == max) {
        return count;
    }
    size_t more = self->inner->poll(self->endpoint, out + count, max - count);
    size_t end = count + more;
    for (size_t i = count; i < end; i++) {
        if (take_event(self, &out[i])) {
            out[count++] = out[i];
        }
    }
    if (more > 0) {
        progress(self);
    }
    return count + report(self, out + count, max - count);
}

/* ---- reserve, sleep ---------------------------------------------------- */

/* What the peer may send at a time beside messages of the engine: blocks. */
static int64_t extra(const baton__staged_t *self, const int peer)
{
    return self->peers[peer].reserved
               ? 0
               : BATON__STAGED_RECEIVES_FROM_PEER * BATON__STAGED_BLOCKS_AHEAD;
}

/* A receive may be in progress while another one's message has arrived. */
static baton_status_t staged_reserve(void *endpoint, int peer, int64_t sends,
                                     int64_t receives)
{
    baton__staged_t *self = endpoint;
    if (peer < 0 || peer >= self->size) {
        return baton__error(BATON_ERR_INVALID,
                            "staged: peer %d is not in 0 to %d", peer,
                            self->size - 1);
    }
    baton_status_t status =
        baton__staged_grow(&self->sends, self->reserved_sends + sends);
    if (status == BATON_OK) {
        status = baton__staged_grow(&self->receives,
                                    2 * (self->reserved_receives + receives));
    }
    int64_t more = extra(self, peer);
    if (status == BATON_OK) {
        status = self->inner->reserve(self->endpoint, peer, sends + more,
                                      receives + more);
    }
    if (status == BATON_OK) {
        self->peers[peer].reserved = true;
        self->reserved_sends += sends;
        self->reserved_receives += receives;
    }
    return status;
}

static int staged_descriptor(void *endpoint, int k)
{
    baton__staged_t *self = endpoint;
    return self->inner->descriptor(self->endpoint, k);
}

static void staged_drain(void *endpoint)
{
    baton__staged_t *self = endpoint;
    self->inner->drain(self->endpoint);
}

/* Nothing tells when there is room for what is to be told peers. */
static bool staged_is_copying(const void *endpoint)
{
    const baton__staged_t *self = endpoint;
    return self->inner->is_copying(self->endpoint);
}

static int staged_host_of(const void *endpoint, int rank)
{
    const baton__staged_t *self = endpoint;
    return self->inner->host_of(self->endpoint, rank);
}

static bool staged_arm(void *endpoint, uint32_t *sleep_us_out)
{
    baton__staged_t *self = endpoint;
    if (self->ended.head != NULL || self->arrived != NULL ||
        (self->held > 0 && self->record_freed) ||
        baton__staged_receive_is_busy(self)) {
        *sleep_us_out = BATON_SLEEP_FOREVER;
        return false;
    }
    if (!self->inner->arm(self->endpoint, sleep_us_out)) {
        return false;
    }
    if ((self->controls != NULL || self->any_refused) &&
        *sleep_us_out > RETRY_US) {
        *sleep_us_out = RETRY_US;
    }
    return true;
}

static void staged_disarm(void *endpoint)
{
    baton__staged_t *self = endpoint;
    self->inner->disarm(self->endpoint);
}

static void *staged_allocate(void *endpoint, size_t bytes)
{
    baton__staged_t *self = endpoint;
    return self->inner->allocate(self->endpoint, bytes);
}

static void staged_release(void *endpoint, void *memory)
{
    baton__staged_t *self = endpoint;
    self->inner->release(self->endpoint, memory);
}

/* ---- open and close ---------------------------------------------------- */

static void free_buffers(baton__staged_t *self, baton__staged_buffers_t *of)
{
    for (uint32_t i = 0; of->all != NULL && i < self->buffers; i++) {
        if (of->all[i].event != NULL) {
            self->port.event_destroy(self->device, of->all[i].event);
        }
    }
    baton__free(of->all);
}

static void free_endpoint(baton__staged_t *self)
{
    for (int i = 0; i < BATON__STAGED_DIRECT; i++) {
        if (self->direct_events[i] != NULL) {
            self->port.event_destroy(self->device, self->direct_events[i]);
        }
    }
    free_buffers(self, &self->out);
    free_buffers(self, &self->in);
    if (self->pinned != NULL) {
        self->port.release(self->device, BATON_MEMORY_HOST, self->pinned);
    }
    baton__staged_free_pool(&self->sends);
    baton__staged_free_pool(&self->receives);
    baton__free(self->peers);
    baton__free(self);
}

/* Drops ordinary messages that came behind offers, and were not reported. */
static void drop_arrived(baton__staged_t *self)
{
    baton_message_t *message = self->arrived;
    self->arrived = NULL;
    while (message != NULL) {
        baton_message_t *next = message->next;
        if (baton__staged_of(self, message) == NULL) {
            self->inner->drop(self->endpoint, message);
        }
        message = next;
    }
}

/* Declines the offers that have come: their senders would wait for ever. */
static void decline_all(baton__staged_t *self)
{
    for (uint32_t id = 0; id < self->receives.capacity; id++) {
        baton__staged_transfer_t *receive =
            baton__staged_by_id(&self->receives, id);
        if (receive->state == BATON__TRANSFER_ARRIVED && !receive->over) {
            staged_drop(self, &receive->message);
        }
    }
}

/* Takes what has come, so that no peer waits for an answer to it. */
static void take_all(baton__staged_t *self)
{
    enum { EVENTS = 32, ROUNDS = 1000 };
    baton_event_t events[EVENTS];
    size_t count = 1;
    for (int round = 0; round < ROUNDS && count > 0; round++) {
        count = self->inner->poll(self->endpoint, events, EVENTS);
        for (size_t i = 0; i < count; i++) {
            if (take_event(self, &events[i]) &&
                events[i].kind == BATON_EVENT_ARRIVED) {
                self->inner->drop(self->endpoint, events[i].message);
            }
        }
    }
}

/* What is left of transfers whose schedules were destroyed: nothing of them
   begins any more. */
static void give_up(baton__staged_t *self)
{
    for (int peer = 0; peer < self->size; peer++) {
        self->peers[peer].queued = (baton__staged_transfer_list_t){NULL, NULL};
    }
    self->copying = self->feeding = self->landing =
        (baton__staged_transfer_list_t){NULL, NULL};
    for (uint32_t id = 0; id < self->sends.capacity; id++) {
        baton__staged_send_lost(self, baton__staged_by_id(&self->sends, id),
                                BATON_ERR_CANCELLED);
    }
    for (uint32_t id = 0; id < self->receives.capacity; id++) {
        baton__staged_transfer_t *receive =
            baton__staged_by_id(&self->receives, id);
        bool waits = receive->state == BATON__TRANSFER_FEEDING ||
                     receive->state == BATON__TRANSFER_LANDING;
        if (waits && receive != self->landing_now && receive->plain != NULL) {
            self->inner->drop(self->endpoint, receive->plain);
            receive->plain = NULL;
        }
        baton__staged_receive_lost(self, receive, BATON_ERR_CANCELLED);
    }
}

static void withdraw_blocks(baton__staged_t *self)
{
    for (uint32_t i = 0; i < self->buffers; i++) {
        if (self->out.all[i].transfer != NULL &&
            self->inner->withdraw(
                self->endpoint,
                baton__staged_token(self, BATON__STAGED_TOKEN_OUT, i))) {
            baton__staged_send_event(self, BATON__STAGED_TOKEN_OUT, i,
                                     BATON_ERR_CANCELLED);
        }
    }
    for (uint32_t id = 0; id < self->sends.capacity && self->host_blocks > 0;
         id++) {
        while (self->host_blocks > 0 &&
               self->inner->withdraw(
                   self->endpoint,
                   baton__staged_token(self, BATON__STAGED_TOKEN_BLOCK, id))) {
            baton__staged_send_event(self, BATON__STAGED_TOKEN_BLOCK, id,
                                     BATON_ERR_CANCELLED);
        }
    }
}

/* Whether the device or the inner transport still works on memory. */
static bool is_moving(const baton__staged_t *self)
{
    return self->out.unused_count < self->buffers ||
           self->in.unused_count < self->buffers || self->direct_count > 0 ||
           self->landing_now != NULL || self->host_blocks > 0;
}

static bool is_patient(uint64_t began_ns)
{
    uint64_t patience_ns =
        (uint64_t)baton__config_number(BATON__CONFIG_DESTROY_MS) * 1000000;
    return baton__clock_ns() - began_ns <= patience_ns;
}

/* Declines what has come, and tells that: the inner transport may have no room
   for it at first. False if it never gets any. */
static bool answer_all(baton__staged_t *self)
{
    uint64_t began = baton__clock_ns();
    do {
        take_all(self);
        drop_arrived(self);
        decline_all(self);
        progress(self);
        if (self->controls == NULL && !self->any_refused && self->held == 0) {
            return true;
        }
        (void)sched_yield();
    } while (is_patient(began));
    return false;
}

/* Waits until nothing moves; false if that takes too long. */
static bool settle(baton__staged_t *self)
{
    uint64_t began = baton__clock_ns();
    while (is_moving(self)) {
        if (!is_patient(began)) {
            return false;
        }
        withdraw_blocks(self);
        progress(self);
        take_all(self);
        (void)sched_yield();
    }
    return true;
}

/* Messages that the engine has are lost. Memory in which the device still works
   is left to it. */
static void staged_close(void *endpoint)
{
    baton__staged_t *self = endpoint;
    take_all(self);
    give_up(self);
    bool settled = settle(self);
    (void)answer_all(self);
    self->inner->close(self->endpoint);
    if (settled) {
        free_endpoint(self);
    }
}

static baton_status_t make_buffers(baton__staged_t *self,
                                   baton__staged_buffers_t *of, char *memory,
                                   int stream)
{
    bool there = false;
    of->stream = self->port.stream(self->device, stream, &there);
    of->all = baton__alloc(self->buffers, sizeof *of->all);
    if (of->all == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    for (uint32_t i = self->buffers; i-- > 0;) {
        baton__staged_buffer_t *buffer = &of->all[i];
        buffer->index = i;
        buffer->memory = memory + i * self->block_bytes;
        baton_status_t status =
            self->port.event_create(self->device, &buffer->event);
        if (status != BATON_OK) {
            return status;
        }
        baton__staged_give_buffer(of, buffer);
    }
    return BATON_OK;
}

static baton_status_t make_pinned(baton__staged_t *self)
{
    void *pinned = NULL;
    size_t bytes = self->buffers * self->block_bytes;
    baton_status_t status = self->port.allocate(self->device, BATON_MEMORY_HOST,
                                                2 * bytes, &pinned);
    if (status != BATON_OK) {
        return baton__error(status,
                            "staged: %s has no %zu bytes of host memory for "
                            "messages (BATON_DEVICE_BLOCK times "
                            "BATON_DEVICE_BUFFERS, twice): %s",
                            self->port.name, 2 * bytes, baton_error_message());
    }
    self->pinned = pinned;
    status = make_buffers(self, &self->in, self->pinned, 0);
    return status == BATON_OK
               ? make_buffers(self, &self->out, self->pinned + bytes, 1)
               : status;
}

static baton_status_t make_endpoint(baton__staged_t *self)
{
    bool there = false;
    /* A stream beyond these may have been made to wait for one of a user, who
       may wait for this message. */
    self->direct_stream = self->port.stream(self->device, 1, &there);
    self->peers = baton__alloc((size_t)self->size, sizeof *self->peers);
    baton_status_t status =
        self->peers != NULL ? make_pinned(self) : BATON_ERR_NO_MEMORY;
    for (int i = 0; i < BATON__STAGED_DIRECT && status == BATON_OK; i++) {
        status = self->port.event_create(self->device, &self->direct_events[i]);
    }
    return status;
}

static baton_transport_t table_around(const baton_transport_t *inner)
{
    baton_transport_t table = *inner;
    table.size = sizeof table;
    table.reserve = staged_reserve;
    table.send = staged_send;
    table.notify = staged_notify;
    table.withdraw = staged_withdraw;
    table.poll = staged_poll;
    table.accept = staged_accept;
    table.drop = staged_drop;
    table.descriptor = staged_descriptor;
    table.drain = staged_drain;
    table.arm = staged_arm;
    table.disarm = staged_disarm;
    table.close = staged_close;
    table.lend = inner->lend != NULL ? staged_lend : NULL;
    table.read = inner->read != NULL ? staged_read : NULL;
    table.allocate = inner->allocate != NULL ? staged_allocate : NULL;
    table.release = inner->allocate != NULL ? staged_release : NULL;
    table.host_of = inner->host_of != NULL ? staged_host_of : NULL;
    table.is_copying = inner->is_copying != NULL ? staged_is_copying : NULL;
    table.takes_device = NULL;
    table.lends = NULL;
    return table;
}

baton_status_t baton__staged_open(const baton_transport_t *inner,
                                  void *inner_endpoint, int rank, int size,
                                  const baton_device_port_t *port, void *device,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out)
{
    baton__staged_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "staged: there is no memory for an endpoint");
    }
    self->transport = table_around(inner);
    self->inner = inner;
    self->endpoint = inner_endpoint;
    self->rank = rank;
    self->size = size;
    self->port = *port;
    self->device = device;
    self->sends.sends = true;
    self->direct = baton__config_number(BATON__CONFIG_DEVICE_DIRECT) != 0;
    self->buffers =
        (uint32_t)baton__config_number(BATON__CONFIG_DEVICE_BUFFERS);
    baton_status_t status = baton__block_model(inner->hosts, &self->model);
    if (status == BATON_OK) {
        self->block_bytes = baton__block_most(&self->model);
        status = make_endpoint(self);
    }
    if (status != BATON_OK) {
        free_endpoint(self);
        return status == BATON_ERR_NO_MEMORY
                   ? baton__error(status,
                                  "staged: there is no memory for an "
                                  "endpoint of %d peers",
                                  size)
                   : status;
    }
    *transport_out = &self->transport;
    *endpoint_out = self;
    return BATON_OK;
}

void baton__staged_undo(void *endpoint)
{
    free_endpoint(endpoint);
}
