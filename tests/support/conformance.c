/* Helpers of the conformance suite. Its cases are in conformance_messages.c and
   conformance_states.c. */
#include "support/conformance.h"

#include "support/random.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    SYNC_TAG = 16000,
    /* The last SYNC_NODES node numbers, which conformance_sync uses. */
    SYNC_NODES = 2,
    SYNC_FIRST = CONFORMANCE_NODES - SYNC_NODES,
    /* The number of polls in a row without an event after which a rank
       sleeps. */
    IDLE_POLLS = 8,
    /* The longest sleep of a rank with a device, since no descriptor becomes
       readable when the device has done something. */
    DEVICE_US = 100
};

const conformance_case_t conformance_cases[CONFORMANCE_CASES] = {
#define CONFORMANCE_ENTRY(name) {#name, conformance_##name},
    CONFORMANCE_LIST(CONFORMANCE_ENTRY)
#undef CONFORMANCE_ENTRY
};

void conformance_expect(conformance_rank_t *self, bool condition,
                        const char *text, const char *function, int line)
{
    if (!condition && self->failure[0] == '\0') {
        snprintf(self->failure, sizeof self->failure,
                 "rank %d of %d: %s, line %d: %s (seed %" PRIu64 ") %s",
                 self->rank, self->size, function, line, text, self->seed,
                 baton_error_message());
    }
}

void conformance_forget(conformance_rank_t *self)
{
    memset(self->results, 0, sizeof self->results);
}

static baton_token_t token_of(conformance_rank_t *self, uint32_t node)
{
    return (baton_token_t){.owner = self,
                           .node = node,
                           .memory = self->mirrors[node].memory != NULL
                                         ? BATON_MEMORY_DEVICE
                                         : BATON_MEMORY_HOST};
}

static bool chooses(const conformance_rank_t *self, uint32_t node, bool sends)
{
    support_random_t random = support_random(
        self->seed, node * 64 + (uint32_t)self->rank * 2 + sends);
    return self->device != NULL &&
           support_random_below(&random, 4) < self->device_share;
}

/* If the message is one of those that use device memory (see device_share),
   allocates device memory for its data. Returns the memory that the message
   uses. */
static void *mirror(conformance_rank_t *self, uint32_t node, void *host,
                    size_t bytes, bool sends)
{
    self->mirrors[node] = (conformance_mirror_t){NULL, sends ? NULL : host};
    if (bytes == 0 || host == NULL || !chooses(self, node, sends)) {
        return host;
    }
    void *memory = emulated_allocate(self->device, bytes);
    if (sends) {
        emulated_write(self->device, memory, host, bytes);
    }
    self->mirrors[node].memory = memory;
    return memory;
}

static void release_mirror(conformance_rank_t *self, uint32_t node, bool read)
{
    conformance_mirror_t *of = &self->mirrors[node];
    if (of->memory != NULL) {
        if (read && of->host != NULL) {
            emulated_read(self->device, of->host, of->memory,
                          self->results[node].bytes);
        }
        emulated_release(self->device, of->memory);
        of->memory = NULL;
    }
}

static void end(conformance_rank_t *self, uint32_t node, baton_status_t status)
{
    conformance_result_t *result = &self->results[node];
    EXPECT(self, !result->ended);
    result->ended = true;
    result->status = status;
    self->posted--;
    release_mirror(self, node, status == BATON_OK);
}

/* ---- posting ------------------------------------------------------------ */

bool conformance_send(conformance_rank_t *self, uint32_t node, int peer,
                      uint32_t tag, const void *data, size_t bytes)
{
    const baton_header_t header = {
        .schedule = 7, .epoch = ~UINT64_C(0), .tag = tag, .kind = 3};
    const void *source = mirror(self, node, (void *)data, bytes, true);
    baton_status_t status = self->transport->send(
        self->endpoint, token_of(self, node), peer, &header, source, bytes);
    EXPECT(self, status == BATON_OK || status == BATON_DONE);
    self->posted++;
    self->results[node].bytes = bytes;
    if (status != BATON_OK) {
        end(self, node, BATON_OK);
    }
    return status == BATON_DONE;
}

/* Takes the first arrived message with a tag from `first` to `last` that is
   from the peer; if `peer` is -1, from any rank. Returns NULL if there is
   none. */
static baton_message_t *find_arrived(conformance_rank_t *self, int peer,
                                     uint32_t first, uint32_t last)
{
    baton_message_t **link = &self->arrived;
    while (*link != NULL &&
           ((peer >= 0 && (*link)->peer != peer) ||
            (*link)->header.tag < first || (*link)->header.tag > last)) {
        link = &(*link)->next;
    }
    baton_message_t *message = *link;
    if (message != NULL) {
        *link = message->next;
    }
    return message;
}

baton_message_t *conformance_arrived(conformance_rank_t *self, uint32_t first,
                                     uint32_t last)
{
    return find_arrived(self, -1, first, last);
}

void conformance_accept(conformance_rank_t *self, uint32_t node,
                        baton_message_t *message, void *data)
{
    bool at_once = message->data != NULL;
    self->results[node].bytes = message->bytes;
    self->posted++;
    void *target = mirror(self, node, data, message->bytes, false);
    const baton_token_t token = token_of(self, node);
    baton_status_t status =
        self->transport->accept(self->endpoint, message, token, target);
    EXPECT(self, status == BATON_OK || status == BATON_DONE ||
                     status == BATON_ERR_CANCELLED);
    EXPECT(self, !at_once || status == BATON_DONE ||
                     token.memory == BATON_MEMORY_DEVICE);
    if (status != BATON_OK) {
        end(self, node, status == BATON_DONE ? BATON_OK : status);
    }
}

void conformance_recv(conformance_rank_t *self, uint32_t node, int peer,
                      uint32_t tag, void *data)
{
    baton_message_t *message = find_arrived(self, peer, tag, tag);
    if (message != NULL) {
        conformance_accept(self, node, message, data);
        return;
    }
    conformance_receive_t **link = &self->waiting;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    self->receives[node] = (conformance_receive_t){NULL, peer, tag, data};
    *link = &self->receives[node];
    self->posted++;
}

bool conformance_unpost(conformance_rank_t *self, uint32_t node)
{
    conformance_receive_t **link = &self->waiting;
    while (*link != NULL && *link != &self->receives[node]) {
        link = &(*link)->next;
    }
    bool waits = *link != NULL;
    if (waits) {
        *link = (*link)->next;
        self->posted--;
    }
    return waits;
}

bool conformance_withdraw(conformance_rank_t *self, uint32_t node)
{
    bool taken =
        self->transport->withdraw(self->endpoint, token_of(self, node));
    self->posted -= taken;
    if (taken) {
        release_mirror(self, node, false);
    }
    return taken;
}

/* ---- polling ------------------------------------------------------------ */

static void arrive(conformance_rank_t *self, baton_message_t *message)
{
    for (const conformance_receive_t *at = self->waiting; at; at = at->next) {
        if (at->peer == message->peer && at->tag == message->header.tag) {
            uint32_t node = (uint32_t)(at - self->receives);
            (void)conformance_unpost(self, node);
            conformance_accept(self, node, message, at->data);
            return;
        }
    }
    baton_message_t **link = &self->arrived;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    message->next = NULL;
    *link = message;
}

/* Polls for three events at most, so that further events have to wait for the
   next poll. */
void conformance_poll(conformance_rank_t *self)
{
    baton_event_t events[3];
    size_t count = self->transport->poll(self->endpoint, events, 3);
    EXPECT(self, count <= 3);
    self->idle = count > 0 ? 0 : self->idle + 1;
    for (size_t i = 0; i < count && i < 3; i++) {
        const baton_event_t *event = &events[i];
        if (event->kind == BATON_EVENT_LOST) {
            snprintf(self->failure, sizeof self->failure,
                     "rank %d of %d lost rank %d: %s", self->rank, self->size,
                     event->peer, event->detail);
            return;
        }
        if (event->kind == BATON_EVENT_ARRIVED) {
            EXPECT(self, event->message != NULL);
            if (event->message != NULL) {
                arrive(self, event->message);
            }
            continue;
        }
        EXPECT(self, event->token.owner == self);
        EXPECT(self, event->token.node < CONFORMANCE_NODES);
        if (event->kind == BATON_EVENT_MOVED) {
            continue;
        }
        if (self->failure[0] != '\0') {
            return;
        }
        end(self, event->token.node, event->status);
    }
}

bool conformance_go_on(conformance_rank_t *self)
{
    conformance_poll(self);
    if (!self->yield(self)) {
        bool another_rank_has_failed = true;
        EXPECT(self, !another_rank_has_failed);
    }
    return self->failure[0] == '\0';
}

/* Arms, and sleeps until a descriptor is readable, or as long as the transport
   allows. */
static void sleep_armed(conformance_rank_t *self)
{
    enum { DESCRIPTORS = 3, PATIENCE_US = 60 * 1000000 };
    struct pollfd wait[DESCRIPTORS];
    nfds_t count = 0;
    uint32_t us = 0;
    for (int k = 0; k < DESCRIPTORS; k++) {
        int fd = self->transport->descriptor(self->endpoint, k);
        wait[count] = (struct pollfd){.fd = fd, .events = POLLIN};
        count += fd >= 0;
    }
    if (!self->transport->arm(self->endpoint, BATON_ARM_INSIST, &us)) {
        return;
    }
    bool forever = us == BATON_SLEEP_FOREVER && self->device == NULL;
    us = self->device != NULL && us > DEVICE_US ? DEVICE_US : us;
    us = us < PATIENCE_US ? us : PATIENCE_US;
    const struct timespec time = {.tv_sec = us / 1000000,
                                  .tv_nsec = (long)(us % 1000000) * 1000};
    bool nobody_rings = ppoll(wait, count, &time, NULL) == 0 && forever;
    EXPECT(self, !nobody_rings);
    self->transport->disarm(self->endpoint);
    self->transport->drain(self->endpoint);
}

bool conformance_await(conformance_rank_t *self)
{
    bool goes_on = conformance_go_on(self);
    if (goes_on && self->sleeps && self->idle > IDLE_POLLS) {
        sleep_armed(self);
    }
    return goes_on;
}

baton_message_t *conformance_take(conformance_rank_t *self, uint32_t tag)
{
    baton_message_t *message = conformance_arrived(self, tag, tag);
    while (message == NULL && conformance_await(self)) {
        message = conformance_arrived(self, tag, tag);
    }
    return message;
}

conformance_result_t conformance_wait(conformance_rank_t *self, uint32_t node)
{
    while (!self->results[node].ended && conformance_await(self)) {
    }
    return self->results[node];
}

void conformance_wait_all(conformance_rank_t *self)
{
    while (self->posted > 0 && conformance_await(self)) {
    }
    EXPECT(self, self->posted == 0);
}

void conformance_sync(conformance_rank_t *self, int root)
{
    uint32_t node = SYNC_FIRST;
    memset(&self->results[SYNC_FIRST], 0, SYNC_NODES * sizeof self->results[0]);
    if (self->rank != root) {
        conformance_send(self, node, root, SYNC_TAG, NULL, 0);
        conformance_recv(self, node + 1, root, SYNC_TAG, NULL);
        conformance_wait(self, node);
        conformance_wait(self, node + 1);
        return;
    }
    for (int round = 0; round < 2; round++) {
        for (int peer = 0; peer < self->size; peer++) {
            if (peer == root) {
                continue;
            }
            self->results[node].ended = false;
            if (round == 0) {
                conformance_recv(self, node, peer, SYNC_TAG, NULL);
            } else {
                conformance_send(self, node, peer, SYNC_TAG, NULL, 0);
            }
            conformance_wait(self, node);
        }
    }
}

/* Returns the i-th byte of a message's data. */
static unsigned char byte_of(uint32_t key, size_t i)
{
    return (unsigned char)(((uint32_t)i * 2654435761u + key * 1013904223u) >>
                           24);
}

void conformance_fill(void *data, size_t bytes, uint32_t key)
{
    for (size_t i = 0; i < bytes; i++) {
        ((unsigned char *)data)[i] = byte_of(key, i);
    }
}

bool conformance_holds(const void *data, size_t bytes, uint32_t key)
{
    unsigned char differs = 0;
    for (size_t i = 0; i < bytes; i++) {
        differs |= ((const unsigned char *)data)[i] ^ byte_of(key, i);
    }
    return differs == 0;
}

uint32_t conformance_key_of(int source, uint32_t number)
{
    return (uint32_t)source * 100003u + number;
}

void conformance_expect_message(conformance_rank_t *self, uint32_t node,
                                const void *data, size_t bytes, uint32_t key)
{
    conformance_result_t result = conformance_wait(self, node);
    EXPECT(self, result.status == BATON_OK);
    EXPECT(self, result.bytes == bytes);
    EXPECT(self, conformance_holds(data, bytes, key));
}

void conformance_expect_sent(conformance_rank_t *self, uint32_t node)
{
    EXPECT(self, conformance_wait(self, node).status == BATON_OK);
}

static bool reserve(conformance_rank_t *self, int64_t messages)
{
    baton_status_t status = BATON_OK;
    for (int peer = 0; peer < self->size && status == BATON_OK; peer++) {
        status =
            self->transport->reserve(self->endpoint, peer, messages, messages);
    }
    return status == BATON_OK;
}

void conformance_run(const conformance_case_t *test, conformance_rank_t *self)
{
    self->failure[0] = '\0';
    self->next = (self->rank + 1) % self->size;
    self->previous = (self->rank + self->size - 1) % self->size;
    self->posted = 0;
    self->waiting = NULL;
    conformance_forget(self);
    EXPECT(self, reserve(self, CONFORMANCE_NODES));
    conformance_sync(self, 0);
    if (self->failure[0] == '\0') {
        test->run(self);
    }
    conformance_wait_all(self);
    conformance_sync(self, 0);
    EXPECT(self, self->arrived == NULL);
    if (self->failure[0] == '\0') {
        EXPECT(self, reserve(self, -CONFORMANCE_NODES));
    }
}
