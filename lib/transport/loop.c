/* The loop transport: ranks inside one process, as threads or as turns of one.

   Each rank has a table of the messages that wait at it for their other half,
   hashed by (source, tag): posted receives, and sends that came before their
   receive. One key never has both kinds, since whoever comes second takes the
   first in line. Second means also: copies, outside of any lock, and finishes
   both halves, each on the done list of its own rank.

   Memory. A message in flight is a slot of its own rank's pool, which only
   reserve() grows, by whole slabs, since other ranks hold pointers into it. A
   send of up to EAGER_BYTES that finds no receive is copied into an eager slot
   of the sender, so that it is done at once; when these are all waiting for
   their receivers it stays in flight like a large one. Slabs live until the
   medium is destroyed: an eager message may outlive its sender's endpoint.

   Locks. A rank's mutex guards its table, its done list and its bell. No thread
   ever holds two of them, so there is no order to keep. The free list of slots
   belongs to the rank's driver and has no lock. */
#include "transport/loop_rank.h"

#include "base/error.h"

#include <string.h>
#include <unistd.h>

typedef baton__loop_message_t message_t;
typedef baton__loop_rank_t rank_t;

/* ---- messages --------------------------------------------------------- */

/* Under the rank's mutex. A rank does not ring its own bell: it is awake. */
static void ring(rank_t *rank, const rank_t *actor)
{
    if (rank == actor) {
        return;
    }
    bool asleep = rank->rest == BATON__LOOP_ASLEEP;
    rank->rest = BATON__LOOP_AWAKE;
    if (asleep) {
        /* It can only fail when the counter is full: it is readable then. */
        uint64_t one = 1;
        ssize_t written = write(rank->bell, &one, sizeof one);
        (void)written;
    }
}

/* Puts a message on the done list of its owner. */
static void finish(message_t *message, const rank_t *actor)
{
    rank_t *rank = message->owner;
    message->next = NULL;
    pthread_mutex_lock(&rank->mutex);
    if (rank->done.tail) {
        rank->done.tail->next = message;
    } else {
        rank->done.head = message;
    }
    rank->done.tail = message;
    size_t count =
        atomic_load_explicit(&rank->done_count, memory_order_relaxed);
    atomic_store_explicit(&rank->done_count, count + 1, memory_order_release);
    ring(rank, actor);
    pthread_mutex_unlock(&rank->mutex);
}

static void deliver(message_t *receive, const void *source, size_t bytes)
{
    size_t room = receive->bytes;
    size_t copied = bytes < room ? bytes : room;
    if (copied > 0) {
        memcpy(receive->data.target, source, copied);
    }
    receive->bytes = bytes;
    receive->status = bytes > room ? BATON_ERR_MISMATCH : BATON_OK;
}

/* A free slot for a message, or NULL with the reason in *status_out. */
static message_t *begin(rank_t *self, baton_token_t token, int peer,
                        baton_status_t *status_out)
{
    if (peer < 0 || peer >= self->loop->size) {
        *status_out =
            baton__error(BATON_ERR_INVALID, "loop: peer %d is not in 0 to %d",
                         peer, self->loop->size - 1);
        return NULL;
    }
    message_t *slot = baton__loop_take_slot(self);
    if (!slot) {
        *status_out = baton__error(
            BATON_ERR_LIMIT,
            "loop: rank %d has %zu messages in flight, more than it reserved",
            self->index, self->capacity);
        return NULL;
    }
    slot->token = token;
    slot->status = BATON_OK;
    return slot;
}

static baton_status_t loop_send(void *endpoint, baton_token_t token, int peer,
                                uint32_t tag, const void *data, size_t bytes)
{
    rank_t *self = endpoint;
    if (self->fail_send > 0 && --self->fail_send == 0) {
        return baton__error(BATON_ERR_TRANSPORT,
                            "loop: a test made this send to rank %d fail",
                            peer);
    }
    baton_status_t status = BATON_OK;
    message_t *slot = begin(self, token, peer, &status);
    if (!slot) {
        return status;
    }
    slot->kind = BATON__LOOP_SEND;
    slot->source = self->index;
    slot->tag = tag;
    slot->bytes = bytes;
    slot->data.source = data;
    rank_t *target = &self->loop->ranks[peer];

    pthread_mutex_lock(&target->mutex);
    message_t *first = baton__loop_table_find(target, self->index, tag);
    if (first && first->kind == BATON__LOOP_RECEIVE) {
        baton__loop_table_remove(target, first);
        first->waiting = false;
        pthread_mutex_unlock(&target->mutex);
        deliver(first, data, bytes);
        finish(first, self);
        finish(slot, self);
        return BATON_OK;
    }
    message_t *eager = NULL;
    if (bytes <= BATON__LOOP_EAGER_BYTES) {
        eager = baton__loop_take_eager(self);
    }
    if (eager) {
        eager->source = self->index;
        eager->tag = tag;
        eager->bytes = bytes;
        if (bytes > 0) {
            memcpy(((baton__loop_eager_t *)eager)->payload, data, bytes);
        }
    }
    baton__loop_table_append(target, eager ? eager : slot);
    ring(target, self);
    pthread_mutex_unlock(&target->mutex);
    if (eager) {
        finish(slot, self);
    }
    return BATON_OK;
}

static baton_status_t loop_recv(void *endpoint, baton_token_t token, int peer,
                                uint32_t tag, void *data, size_t bytes)
{
    rank_t *self = endpoint;
    baton_status_t status = BATON_OK;
    message_t *slot = begin(self, token, peer, &status);
    if (!slot) {
        return status;
    }
    slot->kind = BATON__LOOP_RECEIVE;
    slot->source = peer;
    slot->tag = tag;
    slot->bytes = bytes;
    slot->data.target = data;

    pthread_mutex_lock(&self->mutex);
    message_t *first = baton__loop_table_find(self, peer, tag);
    if (!first || first->kind == BATON__LOOP_RECEIVE) {
        slot->waiting = true;
        baton__loop_table_append(self, slot);
        pthread_mutex_unlock(&self->mutex);
        return BATON_OK;
    }
    baton__loop_table_remove(self, first);
    pthread_mutex_unlock(&self->mutex);
    deliver(slot, first->data.source, first->bytes);
    if (first->kind == BATON__LOOP_EAGER) {
        baton__loop_give_eager(first);
    } else {
        finish(first, self);
    }
    finish(slot, self);
    return BATON_OK;
}

/* Looks at every slot: withdrawing is for the end of things. */
static bool loop_withdraw(void *endpoint, baton_token_t token)
{
    rank_t *self = endpoint;
    message_t *found = NULL;
    pthread_mutex_lock(&self->mutex);
    for (baton__loop_slab_t *slab = self->slabs; slab && !found;
         slab = slab->next) {
        for (size_t i = 0; i < slab->count && !found; i++) {
            message_t *slot = &slab->messages[i];
            if (slot->kind == BATON__LOOP_RECEIVE && slot->waiting &&
                slot->token.owner == token.owner &&
                slot->token.node == token.node) {
                found = slot;
            }
        }
    }
    if (found) {
        found->waiting = false;
        baton__loop_table_remove(self, found);
    }
    pthread_mutex_unlock(&self->mutex);
    if (found) {
        baton__loop_give_slot(self, found);
    }
    return found != NULL;
}

/* Without the mutex when there is nothing: polling is what idle ranks do. */
static size_t loop_poll(void *endpoint, baton_completion_t *out, size_t max)
{
    rank_t *self = endpoint;
    /* Pairs with the release store in finish(). */
    if (atomic_load_explicit(&self->done_count, memory_order_acquire) == 0) {
        return 0;
    }
    pthread_mutex_lock(&self->mutex);
    size_t count = 0;
    while (count < max && self->done.head) {
        message_t *message = self->done.head;
        self->done.head = message->next;
        bool failed = message->status != BATON_OK;
        out[count++] = (baton_completion_t){
            message->token, message->status, message->bytes,
            failed ? "the message is longer than its receive" : NULL};
        baton__loop_give_slot(self, message);
    }
    if (!self->done.head) {
        self->done.tail = NULL;
    }
    size_t left =
        atomic_load_explicit(&self->done_count, memory_order_relaxed) - count;
    atomic_store_explicit(&self->done_count, left, memory_order_release);
    pthread_mutex_unlock(&self->mutex);
    return count;
}

/* ---- reserve, rest, close ---------------------------------------------- */

static baton_status_t loop_reserve(void *endpoint, int64_t messages)
{
    rank_t *self = endpoint;
    int64_t reserved = self->reserved + messages;
    baton_status_t status = baton__loop_grow(self, (size_t)reserved);
    if (!status) {
        self->reserved = reserved;
    }
    return status;
}

static int loop_descriptor(void *endpoint)
{
    return ((rank_t *)endpoint)->bell;
}

static void loop_hush(void *endpoint)
{
    uint64_t rings;
    ssize_t got = read(((rank_t *)endpoint)->bell, &rings, sizeof rings);
    (void)got; /* EAGAIN: it was silent */
}

/* A sender either had the mutex before us, and the next poll sees its message,
   or finds this rank at rest. */
static uint32_t loop_rest(void *endpoint)
{
    rank_t *self = endpoint;
    pthread_mutex_lock(&self->mutex);
    self->rest = BATON__LOOP_RESTING;
    pthread_mutex_unlock(&self->mutex);
    return BATON_SLEEP_FOREVER;
}

static bool loop_sleep(void *endpoint)
{
    rank_t *self = endpoint;
    pthread_mutex_lock(&self->mutex);
    bool silent = self->rest != BATON__LOOP_AWAKE;
    if (silent) {
        self->rest = BATON__LOOP_ASLEEP;
    }
    pthread_mutex_unlock(&self->mutex);
    return silent;
}

static void loop_awake(void *endpoint)
{
    rank_t *self = endpoint;
    pthread_mutex_lock(&self->mutex);
    self->rest = BATON__LOOP_AWAKE;
    pthread_mutex_unlock(&self->mutex);
}

static void loop_close(void *endpoint)
{
    rank_t *self = endpoint;
    baton_loop_t *loop = self->loop;
    pthread_mutex_lock(&self->mutex);
    close(self->bell);
    self->rest = BATON__LOOP_AWAKE;
    self->joined = false;
    pthread_mutex_unlock(&self->mutex);
    if (self->owns_loop) {
        baton_loop_destroy(loop);
    }
}

const baton_transport_t baton__loop_transport = {
    .name = "loop",
    .reserve = loop_reserve,
    .send = loop_send,
    .recv = loop_recv,
    .withdraw = loop_withdraw,
    .poll = loop_poll,
    .descriptor = loop_descriptor,
    .hush = loop_hush,
    .rest = loop_rest,
    .sleep = loop_sleep,
    .awake = loop_awake,
    .close = loop_close,
    .max_tag = UINT32_MAX,
    .max_bytes = PTRDIFF_MAX,
    .eager_bytes = BATON__LOOP_EAGER_BYTES,
};
