/* The staged transport: its table of functions, opening and closing. endpoint.h
   describes the design. */
#include "transport/staged/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"

#include <sched.h>

typedef baton__staged_t staged_t;
typedef baton__staged_transfer_t transfer_t;
typedef baton__staged_buffers_t buffers_t;

enum {
    RETRY_US = 100,
    /* The largest block is the one that is best for a message of this size. */
    LONG_BYTES = 16 << 20
};

/* ---- sending ----------------------------------------------------------- */

static bool takes_device(const staged_t *self, int peer, size_t bytes)
{
    return self->around.inner->takes_device != NULL &&
           self->around.inner->takes_device(self->around.endpoint, peer, bytes);
}

static baton_status_t staged_send(void *endpoint, baton_token_t token, int peer,
                                  const baton_header_t *header,
                                  const void *data, size_t bytes)
{
    staged_t *self = endpoint;
    if ((header->kind & BATON__STAGED_KINDS) != 0) {
        return baton__error(BATON_ERR_INVALID,
                            "staged: a message of kind %u; at most %u is "
                            "allowed",
                            header->kind, 0xffff & ~BATON__STAGED_KINDS);
    }
    if (token.memory == BATON_MEMORY_HOST || bytes == 0 || data == NULL ||
        takes_device(self, peer, bytes)) {
        return self->around.inner->send(self->around.endpoint, token, peer,
                                        header, data, bytes);
    }
    return baton__staged_offer(self, token, peer, header, data, bytes);
}

/* ---- receiving --------------------------------------------------------- */

static void staged_drop(void *endpoint, baton_message_t *message)
{
    staged_t *self = endpoint;
    transfer_t *receive = baton__staged_of(self, message);
    if (receive == NULL) {
        self->around.inner->drop(self->around.endpoint, message);
        return;
    }
    baton__staged_tell(self, receive, BATON__STAGED_DONE, 0);
    baton__staged_give(self, receive);
}

static baton_status_t staged_accept(void *endpoint, baton_message_t *message,
                                    baton_token_t token, void *target)
{
    staged_t *self = endpoint;
    transfer_t *receive = baton__staged_of(self, message);
    bool offered = receive != NULL;
    if (!offered && (token.memory == BATON_MEMORY_HOST ||
                     (message->data == NULL &&
                      takes_device(self, message->peer, message->bytes)))) {
        return self->around.inner->accept(self->around.endpoint, message, token,
                                          target);
    }
    if (message->bytes == 0 || target == NULL) {
        staged_drop(self, message);
        return BATON_DONE;
    }
    return offered ? baton__staged_accept(self, receive, token, target)
                   : baton__staged_accept_plain(self, message, token, target);
}

static baton_status_t staged_lend(void *endpoint, baton_message_t *message)
{
    staged_t *self = endpoint;
    return baton__staged_of(self, message) != NULL
               ? BATON_AGAIN
               : self->around.inner->lend(self->around.endpoint, message);
}

/* ---- polling ----------------------------------------------------------- */

/* Ends the pool's transfers with a peer, or with all peers if `peer` is -1. */
static void end_pool(staged_t *self, const baton__staged_transfer_pool_t *pool,
                     int peer, baton_status_t status)
{
    for (uint32_t id = 0; id < pool->capacity; id++) {
        transfer_t *transfer = baton__staged_by_id(pool, id);
        if (peer >= 0 && transfer->peer != peer) {
            continue;
        }
        if (pool->sends) {
            baton__staged_send_lost(self, transfer, status);
        } else {
            baton__staged_receive_lost(self, transfer, status);
        }
    }
}

static void end_all(staged_t *self, int peer, baton_status_t status)
{
    end_pool(self, &self->sends, peer, status);
    end_pool(self, &self->receives, peer, status);
}

static void take_control(staged_t *self, baton_message_t *message)
{
    baton__staged_kind_t kind =
        (baton__staged_kind_t)(message->header.kind & ~BATON__STAGED_KINDS);
    if (kind == BATON__STAGED_ASK || kind == BATON__STAGED_DONE) {
        baton__staged_send_control(self, kind, message);
    } else {
        /* The message is for the receiver of a transfer (GRANT, BLOCK or
           ABORT), or of an unknown kind: baton__staged_receive_control drops
           the latter. */
        baton__staged_receive_control(self, kind, message);
    }
}

static void staged_take_own(staged_t *self, const baton_event_t *event)
{
    const uint32_t mask = (UINT32_C(1) << BATON__STAGED_TOKEN_BITS) - 1;
    baton__staged_tokens_t what =
        (baton__staged_tokens_t)(event->token.node >> BATON__STAGED_TOKEN_BITS);
    uint32_t index = event->token.node & mask;
    if (what == BATON__STAGED_TOKEN_OFFER || what == BATON__STAGED_TOKEN_OUT) {
        baton__staged_send_event(self, what, index, event->status);
    } else {
        baton__staged_receive_event(self, what, index, event->status);
    }
}

static bool is_offer(const baton_message_t *message)
{
    return (message->header.kind & BATON__STAGED_KINDS) == BATON__STAGED_OFFER;
}

/* Takes a message of the inner transport. Returns true if it can be reported
   now, because no earlier message waits to be reported. */
static bool take_message(staged_t *self, baton_message_t *message)
{
    if ((message->header.kind & BATON__STAGED_KINDS) == BATON__STAGED_CONTROL) {
        take_control(self, message);
        return false;
    }
    if (self->arrived.head == NULL && !is_offer(message)) {
        return true;
    }
    baton__staged_messages_append(&self->arrived, message);
    return false;
}

/* Handles an event of the inner transport. Returns true if the event must be
   passed on to the engine. */
static bool take_event(staged_t *self, const baton_event_t *event)
{
    switch (event->kind) {
    case BATON_EVENT_ARRIVED:
        return take_message(self, event->message);
    case BATON_EVENT_SENT:
    case BATON_EVENT_RECEIVED:
        if (event->token.owner == self) {
            staged_take_own(self, event);
            return false;
        }
        return true;
    case BATON_EVENT_MOVED:
        return event->token.owner != self;
    case BATON_EVENT_LOST:
        break;
    }
    baton_status_t *lost = &self->peers[event->peer].lost;
    *lost = event->status != BATON_OK ? event->status : BATON_ERR_TRANSPORT;
    end_all(self, event->peer, *lost);
    return true;
}

/* Stores events of messages that have arrived, and of transfers that have
   ended. */
static size_t staged_report(staged_t *self, baton_event_t *out, size_t max)
{
    size_t count = 0;
    while (count < max && self->arrived.head != NULL) {
        baton_message_t *message = self->arrived.head;
        baton_message_t *next = message->next;
        baton_status_t status =
            is_offer(message)
                ? baton__staged_take_offer(self, message, &message)
                : BATON_DONE;
        if (status == BATON_AGAIN) {
            break;
        }
        self->arrived.head = next;
        if (status == BATON_DONE) {
            out[count++] = (baton_event_t){.kind = BATON_EVENT_ARRIVED,
                                           .message = message};
        }
    }
    while (count < max && self->ended.head != NULL) {
        transfer_t *ended = baton__staged_list_take(&self->ended);
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

static void progress(staged_t *self)
{
    baton__staged_send_progress(self);
    baton__staged_receive_progress(self);
    baton__staged_flush(self);
}

static size_t staged_poll(void *endpoint, baton_event_t *out, size_t max)
{
    staged_t *self = endpoint;
    progress(self);
    size_t count = staged_report(self, out, max);
    if (count == max) {
        return count;
    }
    size_t more = self->around.inner->poll(self->around.endpoint, out + count,
                                           max - count);
    size_t end = count + more;
    for (size_t i = count; i < end; i++) {
        if (take_event(self, &out[i])) {
            out[count++] = out[i];
        }
    }
    if (more > 0) {
        progress(self);
    }
    return count + staged_report(self, out + count, max - count);
}

/* ---- reserve, sleep ---------------------------------------------------- */

/* Reserves two records for each receive: while one receive is in progress, the
   message for the next one may already have arrived. */
static baton_status_t staged_reserve(void *endpoint, int peer, int64_t sends,
                                     int64_t receives)
{
    staged_t *self = endpoint;
    baton_status_t status =
        baton__staged_grow(&self->sends, self->reserved_sends + sends);
    if (status == BATON_OK) {
        status = baton__staged_grow(&self->receives,
                                    2 * (self->reserved_receives + receives));
    }
    /* The inner transport also needs capacity for blocks to and from the
       peer. */
    int64_t more = self->peers[peer].reserved ? 0 : self->in.count;
    if (status == BATON_OK) {
        status = self->around.inner->reserve(self->around.endpoint, peer,
                                             sends + more, receives + more);
    }
    if (status == BATON_OK) {
        self->peers[peer].reserved = true;
        self->reserved_sends += sends;
        self->reserved_receives += receives;
    }
    return status;
}

/* Arms the inner transport. While a control message waits for capacity, the
   sleep is short, since no wake-up reports that there is capacity. */
static bool staged_arm(void *endpoint, baton_arm_t how, uint32_t *sleep_us_out)
{
    staged_t *self = endpoint;
    const baton_message_t *arrived = self->arrived.head;
    bool reports = arrived != NULL &&
                   (!is_offer(arrived) || self->receives.unused != NULL);
    /* A copy that was submitted after the device was armed causes no
       wake-up. */
    bool submitted = self->submitted;
    if (reports || self->ended.head != NULL || submitted) {
        self->submitted = false;
        *sleep_us_out = BATON_SLEEP_FOREVER;
        return false;
    }
    if (!self->around.inner->arm(self->around.endpoint, how, sleep_us_out)) {
        return false;
    }
    if ((self->controls > 0 || self->refused != NULL) &&
        *sleep_us_out > RETRY_US) {
        *sleep_us_out = RETRY_US;
    }
    return true;
}

/* ---- open and close ---------------------------------------------------- */

static void free_buffers(const staged_t *self, const buffers_t *of)
{
    for (uint32_t i = 0; of->all != NULL && i < of->count; i++) {
        if (of->all[i].event != NULL) {
            self->port.event_destroy(self->device, of->all[i].event);
        }
    }
    baton__free(of->all);
}

void baton__staged_undo(void *endpoint)
{
    staged_t *self = endpoint;
    free_buffers(self, &self->out);
    free_buffers(self, &self->in);
    free_buffers(self, &self->direct);
    if (self->pinned != NULL) {
        self->port.release(self->device, BATON_MEMORY_HOST, self->pinned);
    }
    baton__staged_free_pool(&self->sends);
    baton__staged_free_pool(&self->receives);
    baton__free(self->peers);
    baton__free(self);
}

/* Ends the transfers of schedules that were destroyed, and declines the offers
   that the engine has not accepted, because their senders would wait for
   ever. */
static void staged_give_up(staged_t *self)
{
    end_all(self, -1, BATON_ERR_CANCELLED);
    for (uint32_t id = 0; id < self->receives.capacity; id++) {
        transfer_t *receive = baton__staged_by_id(&self->receives, id);
        if (receive->state == BATON__TRANSFER_ARRIVED) {
            staged_drop(self, &receive->message);
        }
    }
}

/* Withdraws the inner sends of blocks, which the peers may never receive. */
static void withdraw_blocks(staged_t *self)
{
    for (uint32_t i = 0; i < self->out.count; i++) {
        if (self->out.all[i].transfer != NULL &&
            self->around.inner->withdraw(
                self->around.endpoint,
                baton__staged_token(self, BATON__STAGED_TOKEN_OUT, i))) {
            baton__staged_send_event(self, BATON__STAGED_TOKEN_OUT, i,
                                     BATON_ERR_CANCELLED);
        }
    }
}

/* Returns true if the device or the inner transport still uses memory of this
   endpoint or of its transfers. */
static bool is_moving(const staged_t *self)
{
    return self->out.unused_count < self->out.count ||
           self->in.unused_count < self->in.count ||
           self->direct.unused_count < self->direct.count ||
           self->copying.head != NULL || self->pulling > 0;
}

/* Polls once, and declines the messages that this poll reports. Returns false
   if the poll reported no event. */
static bool decline(staged_t *self)
{
    enum { EVENTS = 32 };
    baton_event_t events[EVENTS];
    size_t count = staged_poll(self, events, EVENTS);
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == BATON_EVENT_ARRIVED) {
            staged_drop(self, events[i].message);
        }
    }
    return count > 0;
}

/* Polls until no memory is in use and no peer waits for an answer. A peer that
   has closed its endpoint, too, has no capacity for answers, and needs none. So
   the time for answers is limited. */
static bool staged_finish(staged_t *self)
{
    enum { ANSWER_MS = 500, QUIET = 2 };
    uint64_t began_ns = baton__clock_ns();
    for (int quiet = 0; quiet < QUIET;) {
        withdraw_blocks(self);
        bool took = decline(self);
        bool moves = is_moving(self);
        bool answers = took || self->controls > 0 || self->refused != NULL ||
                       self->arrived.head != NULL;
        int64_t patience_ms =
            moves ? baton__config_number(BATON__CONFIG_DESTROY_MS) : ANSWER_MS;
        quiet = moves || answers ? 0 : quiet + 1;
        if (quiet == 0 &&
            baton__clock_ns() - began_ns > (uint64_t)patience_ms * 1000000) {
            break;
        }
        if (!took) {
            (void)sched_yield();
        }
    }
    return !is_moving(self);
}

/* Closes the endpoint. Messages that the engine has not accepted are lost.
   Memory that the device still uses is never freed. */
static void staged_close(void *endpoint)
{
    staged_t *self = endpoint;
    staged_give_up(self);
    bool finished = staged_finish(self);
    self->around.inner->close(self->around.endpoint);
    if (finished) {
        baton__staged_undo(self);
    }
}

static baton_status_t make_buffers(staged_t *self, buffers_t *of,
                                   uint32_t count, char *memory, int stream)
{
    of->stream = self->port.streams[stream];
    of->count = count;
    of->all = baton__alloc(count, sizeof *of->all);
    if (of->all == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    for (uint32_t i = count; i-- > 0;) {
        baton__staged_buffer_t *buffer = &of->all[i];
        buffer->index = i;
        buffer->memory = memory != NULL ? memory + i * self->block_bytes : NULL;
        baton_status_t status =
            self->port.event_create(self->device, &buffer->event);
        if (status != BATON_OK) {
            return status;
        }
        baton__staged_give_buffer(of, buffer);
    }
    return BATON_OK;
}

static baton_status_t make_endpoint(staged_t *self)
{
    uint32_t count =
        (uint32_t)baton__config_number(BATON__CONFIG_DEVICE_BUFFERS);
    size_t bytes = count * self->block_bytes;
    void *pinned = NULL;
    self->peers = baton__alloc((size_t)self->size, sizeof *self->peers);
    if (self->peers == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
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
    status =
        make_buffers(self, &self->in, count, self->pinned, BATON_DEVICE_IN);
    if (status == BATON_OK) {
        status = make_buffers(self, &self->out, count, self->pinned + bytes,
                              BATON_DEVICE_OUT);
    }
    return status == BATON_OK
               ? make_buffers(self, &self->direct, BATON__STAGED_DIRECT, NULL,
                              BATON_DEVICE_OUT)
               : status;
}

static baton_transport_t staged_table_around(const baton_transport_t *inner)
{
    baton_transport_t table = baton__around(inner);
    table.reserve = staged_reserve;
    table.send = staged_send;
    table.withdraw = baton__staged_withdraw;
    table.poll = staged_poll;
    table.accept = staged_accept;
    table.drop = staged_drop;
    table.arm = staged_arm;
    table.close = staged_close;
    table.lend = inner->lend != NULL ? staged_lend : NULL;
    table.takes_device = NULL;
    table.post_receive = NULL;
    table.withdraw_receive = NULL;
    return table;
}

baton_status_t baton__staged_open(const baton_transport_t *inner,
                                  void *inner_endpoint, int rank, int size,
                                  const baton_device_port_t *port, void *device,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out)
{
    staged_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "staged: there is no memory for an endpoint");
    }
    self->around.transport = staged_table_around(inner);
    self->around.inner = inner;
    self->around.endpoint = inner_endpoint;
    self->rank = rank;
    self->size = size;
    self->port = *port;
    self->device = device;
    self->sends.sends = true;
    self->direct_allowed =
        baton__config_number(BATON__CONFIG_DEVICE_DIRECT) != 0;
    baton_status_t status = baton__block_model(inner->hosts, &self->model);
    if (status == BATON_OK) {
        self->block_bytes = baton__block_for(&self->model, LONG_BYTES);
        status = make_endpoint(self);
    }
    if (status != BATON_OK) {
        baton__staged_undo(self);
        return status == BATON_ERR_NO_MEMORY
                   ? baton__error(status,
                                  "staged: there is no memory for an "
                                  "endpoint of %d peers",
                                  size)
                   : status;
    }
    *transport_out = &self->around.transport;
    *endpoint_out = self;
    return BATON_OK;
}
