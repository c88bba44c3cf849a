/* The inproc transport: ranks inside one process, which are threads or take
   turns on one thread.

   A send puts a record into its receiver's inbox. For a short message the
   record has a copy, and the send has ended. For a longer message the record
   refers to the sender's memory: the receiver takes the record when it accepts
   the message, copies the data, and then puts the record on the sender's list
   of ended sends. Until the receiver has taken the record, the sender can
   withdraw it. Both sides change the record's state from POSTED, and the side
   that succeeds owns the record. A long copy is made in slices, one in each
   poll of the receiver. The record of a lent message is taken, too, but its
   data is not copied: the send ends when the message is dropped.

   Memory. Records belong to the sender. Only joining and inproc_reserve make
   more records, in whole slabs that never move, since other ranks hold pointers
   into them. If a rank's copies are all in slow receivers' inboxes, further
   short messages go by reference. Slabs live until the medium is destroyed,
   because a copy may outlive its sender's endpoint.

   Locks. A rank's mutex guards its two lists and its event_fd. No thread ever
   holds two of these mutexes, so they have no order. */
#include "transport/inproc/rank.h"

#include "base/error.h"
#include "base/random.h"

#include <string.h>
#include <unistd.h>

typedef baton__inproc_record_t record_t;
typedef baton__inproc_rank_t rank_t;

/* ---- ranks and records ------------------------------------------------ */

/* Wakes a rank if it is armed for this event. If the rank is armed for notices
   alone, it is woken only if `urgent` is true, which means that the event is a
   notice. The caller holds the rank's mutex. */
static void inproc_ring(rank_t *rank, bool urgent)
{
    if (rank->armed && (urgent || rank->for_all)) {
        rank->armed = false;
        /* The write fails only if the counter is full; then the eventfd is
           readable anyway. */
        uint64_t one = 1;
        (void)!write(rank->event_fd, &one, sizeof one);
    }
}

/* Appends a record to a list of a rank, and wakes the rank, unless it is
   `actor`, the caller's own rank. Returns false if the rank has left. */
static bool inproc_put(rank_t *rank, baton__inproc_list_t *list,
                       record_t *record, const rank_t *actor, bool urgent)
{
    pthread_mutex_lock(&rank->mutex);
    bool there = !rank->left;
    if (there) {
        baton__inproc_list_append(list, record);
        size_t waiting =
            atomic_load_explicit(&rank->waiting, memory_order_relaxed);
        atomic_store_explicit(&rank->waiting, waiting + 1,
                              memory_order_release);
        if (rank != actor) {
            inproc_ring(rank, urgent);
        }
    }
    pthread_mutex_unlock(&rank->mutex);
    return there;
}

static bool has_copy(const record_t *record)
{
    return record->source == NULL;
}

/* Ends a send: its receiver no longer uses the sender's memory. */
static void end_send(record_t *record, const rank_t *actor)
{
    if (!inproc_put(record->owner, &record->owner->ended, record, actor,
                    false)) {
        baton__inproc_give(record);
    }
}

/* Takes a record that refers to its sender's memory. Returns false if the
   sender has withdrawn it. */
static bool inproc_take(record_t *record)
{
    int posted = BATON__INPROC_POSTED;
    if (atomic_compare_exchange_strong_explicit(
            &record->state, &posted, BATON__INPROC_TAKEN, memory_order_acq_rel,
            memory_order_relaxed)) {
        return true;
    }
    baton__inproc_give(record);
    return false;
}

/* ---- sending ---------------------------------------------------------- */

static void note_lost(rank_t *self, int peer, bool lives)
{
    if (self->lost[peer] == BATON__INPROC_THERE) {
        self->lost[peer] = lives ? BATON__INPROC_SILENT : BATON__INPROC_LOST;
        self->lost_count++;
    }
}

static void deliver(rank_t *self, record_t *record, int peer,
                    const baton_header_t *header, size_t bytes, bool urgent)
{
    rank_t *target = &self->medium->ranks[peer];
    record->message =
        (baton_message_t){.header = *header,
                          .bytes = bytes,
                          .data = has_copy(record) ? record->data : NULL,
                          .peer = self->index};
    if (inproc_put(target, &target->inbox, record, self, urgent)) {
        return;
    }
    note_lost(self, peer, false);
    if (has_copy(record)) {
        baton__inproc_give(record);
    } else if (inproc_take(record)) {
        end_send(record, self);
    }
}

static bool send_copy(rank_t *self, int peer, const baton_header_t *header,
                      const void *data, size_t bytes, bool urgent)
{
    record_t *record = bytes <= BATON__INPROC_COPY_BYTES
                           ? baton__inproc_take(self, true)
                           : NULL;
    if (record == NULL) {
        return false;
    }
    if (bytes > 0 && data != NULL) {
        memcpy(record->data, data, bytes);
    }
    deliver(self, record, peer, header, bytes, urgent);
    return true;
}

static baton_status_t inproc_send(void *endpoint, baton_token_t token, int peer,
                                  const baton_header_t *header,
                                  const void *data, size_t bytes)
{
    static const char nothing;
    rank_t *self = endpoint;
    if (send_copy(self, peer, header, data, bytes, false)) {
        return BATON_DONE;
    }
    record_t *record = baton__inproc_take(self, false);
    if (record == NULL) {
        return baton__error(
            BATON_ERR_LIMIT,
            "inproc: rank %d has %zu sends in flight, more than it reserved",
            self->index, self->capacity - self->most_copies);
    }
    record->source = bytes > 0 && data != NULL ? data : &nothing;
    record->token = token;
    self->is_hashed = false;
    atomic_store_explicit(&record->state, BATON__INPROC_POSTED,
                          memory_order_relaxed);
    deliver(self, record, peer, header, bytes, false);
    return BATON_OK;
}

static baton_status_t inproc_notify(void *endpoint, int peer,
                                    const baton_header_t *header,
                                    const void *data, size_t bytes)
{
    return send_copy(endpoint, peer, header, data, bytes, true) ? BATON_DONE
                                                                : BATON_AGAIN;
}

/* Returns the head of the list of the records whose tokens have the same hash
   as `token`. The heads are in the records of the first slab. */
static record_t **inproc_list_of(const rank_t *self, baton_token_t token)
{
    uint64_t hash = baton__mix((uintptr_t)token.owner ^ token.node);
    return &self->slabs->records[(hash >> 32) * self->slabs->count >> 32].list;
}

static void hash_records(rank_t *self)
{
    for (size_t i = 0; i < self->slabs->count; i++) {
        self->slabs->records[i].list = NULL;
    }
    for (baton__inproc_slab_t *slab = self->slabs; slab != NULL;
         slab = slab->next) {
        for (size_t i = 0; i < slab->count; i++) {
            record_t *record = &slab->records[i];
            record_t **list = inproc_list_of(self, record->token);
            record->same_hash = *list;
            *list = record;
        }
    }
    self->is_hashed = true;
}

/* The transport's withdraw. Finds the record of the send by lists of records
   whose tokens have the same hash, so that a recovery, which withdraws all
   sends of a group in any order, takes no time that is quadratic in their
   number. Sends are withdrawn only after failures and cancels, so the lists are
   made only then, and are valid until the next send. */
static bool inproc_withdraw(void *endpoint, baton_token_t token)
{
    rank_t *self = endpoint;
    if (self->slabs != NULL && !self->is_hashed) {
        hash_records(self);
    }
    record_t *record =
        self->slabs != NULL ? *inproc_list_of(self, token) : NULL;
    int posted = BATON__INPROC_POSTED;
    while (record != NULL &&
           (record->token.owner != token.owner ||
            record->token.node != token.node ||
            !atomic_compare_exchange_strong_explicit(
                &record->state, &posted, BATON__INPROC_WITHDRAWN,
                memory_order_acq_rel, memory_order_relaxed))) {
        record = record->same_hash;
        posted = BATON__INPROC_POSTED;
    }
    return record != NULL;
}

/* ---- receiving -------------------------------------------------------- */

static void copy(char *target, const void *source, size_t bytes)
{
    if (bytes > 0 && target != NULL) {
        memcpy(target, source, bytes);
    }
}

static baton_status_t inproc_accept(void *endpoint, baton_message_t *message,
                                    baton_token_t token, void *target)
{
    rank_t *self = endpoint;
    record_t *record = (record_t *)message;
    if (has_copy(record)) {
        copy(target, message->data, message->bytes);
        baton__inproc_give(record);
        return BATON_DONE;
    }
    if (!inproc_take(record)) {
        return BATON_ERR_CANCELLED;
    }
    if (message->bytes <= BATON__INPROC_SLICE_BYTES) {
        copy(target, record->source, message->bytes);
        end_send(record, self);
        return BATON_DONE;
    }
    record->receiver = token;
    record->target = target;
    record->copied = 0;
    baton__inproc_list_append(&self->long_ones, record);
    return BATON_OK;
}

/* Takes the record, so that its sender can no longer withdraw it, and makes the
   sender's memory readable as the message's data. */
static baton_status_t inproc_lend(void *endpoint, baton_message_t *message)
{
    record_t *record = (record_t *)message;
    if (message->data == NULL) {
        if (!inproc_take(record)) {
            return BATON_ERR_CANCELLED;
        }
        message->data = record->source;
    }
    return BATON_DONE;
}

static void inproc_drop(void *endpoint, baton_message_t *message)
{
    record_t *record = (record_t *)message;
    if (has_copy(record)) {
        baton__inproc_give(record);
    } else if (message->data != NULL /* lent */ || inproc_take(record)) {
        end_send(record, endpoint);
    }
}

/* Copies a slice of the first long message. Returns true if this was the last
   slice. */
static bool inproc_copy_slice(rank_t *self, baton_event_t *out)
{
    record_t *record = self->long_ones.head;
    size_t bytes = record->message.bytes - record->copied;
    bytes =
        bytes < BATON__INPROC_SLICE_BYTES ? bytes : BATON__INPROC_SLICE_BYTES;
    if (record->target != NULL) {
        copy(record->target + record->copied,
             (const char *)record->source + record->copied, bytes);
    }
    record->copied += bytes;
    if (record->copied < record->message.bytes) {
        return false;
    }
    (void)baton__inproc_list_take(&self->long_ones);
    *out = (baton_event_t){.kind = BATON_EVENT_RECEIVED,
                           .token = record->receiver};
    end_send(record, self);
    return true;
}

/* Takes entries of the rank's lists `inbox` and `ended`, and stores their
   events. The caller holds the mutex. */
static size_t take_events(rank_t *self, baton_event_t *out, size_t max)
{
    size_t count = 0;
    while (count < max && self->ended.head != NULL) {
        record_t *record = baton__inproc_list_take(&self->ended);
        out[count++] =
            (baton_event_t){.kind = BATON_EVENT_SENT, .token = record->token};
        baton__inproc_give(record);
    }
    while (count < max && self->inbox.head != NULL) {
        record_t *record = baton__inproc_list_take(&self->inbox);
        out[count++] = (baton_event_t){.kind = BATON_EVENT_ARRIVED,
                                       .message = &record->message};
    }
    return count;
}

static size_t take_lost(rank_t *self, baton_event_t *out, size_t max)
{
    size_t count = 0;
    for (int peer = 0; count < max && self->lost_count > 0; peer++) {
        bool lives = self->lost[peer] == BATON__INPROC_SILENT;
        if (self->lost[peer] != BATON__INPROC_LOST && !lives) {
            continue;
        }
        self->lost[peer] = BATON__INPROC_REPORTED;
        self->lost_count--;
        out[count++] = (baton_event_t){.kind = BATON_EVENT_LOST,
                                       .status = lives ? BATON_ERR_TIMEOUT
                                                       : BATON_ERR_TRANSPORT,
                                       .peer = peer,
                                       .detail = "it has destroyed its group"};
    }
    return count;
}

/* Calls take_events under the mutex. Does not lock the mutex if both lists are
   empty, as they are for an idle rank. */
static size_t take_waiting(rank_t *self, baton_event_t *out, size_t max)
{
    /* Pairs with the release store in inproc_put. */
    if (max == 0 ||
        atomic_load_explicit(&self->waiting, memory_order_acquire) == 0) {
        return 0;
    }
    pthread_mutex_lock(&self->mutex);
    size_t taken = take_events(self, out, max);
    size_t waiting = atomic_load_explicit(&self->waiting, memory_order_relaxed);
    atomic_store_explicit(&self->waiting, waiting - taken,
                          memory_order_release);
    pthread_mutex_unlock(&self->mutex);
    return taken;
}

/* Reports lost peers only after all messages that they sent before they
   left. */
static size_t inproc_poll(void *endpoint, baton_event_t *out, size_t max)
{
    rank_t *self = endpoint;
    size_t count = 0;
    if (self->long_ones.head != NULL && max > 0) {
        count += inproc_copy_slice(self, out);
    }
    count += take_waiting(self, out + count, max - count);
    return count + take_lost(self, out + count, max - count);
}

/* ---- reserve, sleep, close -------------------------------------------- */

/* Reserves nothing for receives: an arriving message uses its sender's
   record. */
static baton_status_t inproc_reserve(void *endpoint, int peer, int64_t sends,
                                     int64_t receives)
{
    rank_t *self = endpoint;
    int64_t reserved = self->reserved + sends;
    baton_status_t status = baton__inproc_grow(self, (size_t)reserved);
    if (status == BATON_OK) {
        self->reserved = reserved;
    }
    return status;
}

static int inproc_descriptor(void *endpoint, int k)
{
    return k == 0 ? ((rank_t *)endpoint)->event_fd : -1;
}

static void inproc_drain(void *endpoint)
{
    uint64_t rings;
    /* EAGAIN means that the eventfd was not readable. */
    (void)!read(((rank_t *)endpoint)->event_fd, &rings, sizeof rings);
}

static bool inproc_is_copying(const void *endpoint)
{
    return ((const rank_t *)endpoint)->long_ones.head != NULL;
}

/* Wakes all other ranks that have entries in their lists. */
static void inproc_insist(const rank_t *self)
{
    for (int i = 0; i < self->medium->size; i++) {
        rank_t *rank = &self->medium->ranks[i];
        if (rank == self ||
            atomic_load_explicit(&rank->waiting, memory_order_relaxed) == 0) {
            continue;
        }
        pthread_mutex_lock(&rank->mutex);
        inproc_ring(rank, true);
        pthread_mutex_unlock(&rank->mutex);
    }
}

/* Arms the rank. No message is missed: a sender that locked the mutex before
   this call has put its message into the inbox, where this call sees it; a
   later sender finds this rank armed. */
static bool inproc_arm(void *endpoint, baton_arm_t how, uint32_t *sleep_us_out)
{
    rank_t *self = endpoint;
    if (how == BATON_ARM_INSIST) {
        inproc_insist(self);
    }
    *sleep_us_out = BATON_SLEEP_FOREVER;
    if (self->long_ones.head != NULL || self->lost_count > 0) {
        return false;
    }
    pthread_mutex_lock(&self->mutex);
    self->armed =
        atomic_load_explicit(&self->waiting, memory_order_relaxed) == 0;
    self->for_all = how != BATON_ARM_NOTICES;
    bool armed = self->armed;
    pthread_mutex_unlock(&self->mutex);
    return armed;
}

static void inproc_disarm(void *endpoint)
{
    rank_t *self = endpoint;
    pthread_mutex_lock(&self->mutex);
    self->armed = false;
    pthread_mutex_unlock(&self->mutex);
}

/* The detail is not used: inproc reports all losses with the same detail. */
static void inproc_lose(void *endpoint, int peer, baton_status_t status,
                        const char *detail)
{
    note_lost(endpoint, peer, status == BATON_ERR_TIMEOUT);
}

void baton__inproc_close(void *endpoint)
{
    rank_t *self = endpoint;
    baton_inproc_t *medium = self->medium;
    pthread_mutex_lock(&self->mutex);
    close(self->event_fd);
    self->armed = false;
    self->joined = false;
    self->left = true;
    baton__inproc_list_t inbox = self->inbox;
    baton__inproc_list_t ended = self->ended;
    self->inbox = self->ended = (baton__inproc_list_t){NULL, NULL};
    atomic_store_explicit(&self->waiting, 0, memory_order_relaxed);
    pthread_mutex_unlock(&self->mutex);
    for (record_t *record = baton__inproc_list_take(&inbox); record != NULL;
         record = baton__inproc_list_take(&inbox)) {
        inproc_drop(self, &record->message);
    }
    for (record_t *record = baton__inproc_list_take(&ended); record != NULL;
         record = baton__inproc_list_take(&ended)) {
        baton__inproc_give(record);
    }
    if (self->owns_medium) {
        (void)!baton_inproc_destroy(medium);
    }
}

static void *inproc_board(const void *endpoint, int rank)
{
    const baton__inproc_rank_t *self = endpoint;
    return self->medium->boards + (size_t)rank * BATON_BOARD_BYTES;
}

const baton_transport_t baton__inproc_transport = {
    .size = sizeof(baton_transport_t),
    .name = "inproc",
    .reserve = inproc_reserve,
    .send = inproc_send,
    .notify = inproc_notify,
    .withdraw = inproc_withdraw,
    .poll = inproc_poll,
    .accept = inproc_accept,
    .drop = inproc_drop,
    .descriptor = inproc_descriptor,
    .drain = inproc_drain,
    .arm = inproc_arm,
    .disarm = inproc_disarm,
    .close = baton__inproc_close,
    .max_bytes = PTRDIFF_MAX,
    .copy_bytes = BATON__INPROC_COPY_BYTES,
    .lend = inproc_lend,
    .is_copying = inproc_is_copying,
    .lose = inproc_lose,
    .board = inproc_board};
