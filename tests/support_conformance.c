/* The conformance suite's own means; the cases are in
   support_conformance_messages.c and _states.c. */
#include "support_conformance.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SYNC_TAG = 16000,
    SYNC_NODES = 2, /* the last ones */
    SYNC_FIRST = CONFORMANCE_NODES - SYNC_NODES
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
    return (baton_token_t){self, node};
}

void conformance_send(conformance_rank_t *self, uint32_t node, int peer,
                      uint32_t tag, const void *data, size_t bytes)
{
    baton_status_t status = self->transport->send(
        self->endpoint, token_of(self, node), peer, tag, data, bytes);
    EXPECT(self, status == BATON_OK || status == BATON_DONE);
    if (status == BATON_DONE) {
        conformance_result_t *result = &self->results[node];
        EXPECT(self, !result->arrived);
        *result = (conformance_result_t){.arrived = true, .bytes = bytes};
    } else {
        self->posted++;
    }
}

void conformance_recv(conformance_rank_t *self, uint32_t node, int peer,
                      uint32_t tag, void *data, size_t bytes)
{
    baton_status_t status = self->transport->recv(
        self->endpoint, token_of(self, node), peer, tag, data, bytes);
    EXPECT(self, status == BATON_OK);
    self->posted++;
}

bool conformance_withdraw(conformance_rank_t *self, uint32_t node)
{
    bool taken =
        self->transport->withdraw(self->endpoint, token_of(self, node));
    self->posted -= taken;
    return taken;
}

/* Three at a time, so that the rest has to wait for the next poll. */
void conformance_poll(conformance_rank_t *self)
{
    baton_completion_t done[3];
    size_t count = self->transport->poll(self->endpoint, done, 3);
    EXPECT(self, count <= 3);
    for (size_t i = 0; i < count && i < 3; i++) {
        EXPECT(self, done[i].token.owner == self);
        EXPECT(self, done[i].token.node < CONFORMANCE_NODES);
        if (self->failure[0] != '\0') {
            return;
        }
        conformance_result_t *result = &self->results[done[i].token.node];
        EXPECT(self, !result->arrived);
        result->arrived = true;
        result->status = done[i].status;
        result->bytes = done[i].bytes;
        result->has_detail = done[i].detail != NULL;
        self->posted--;
    }
}

static bool go_on(conformance_rank_t *self)
{
    conformance_poll(self);
    if (!self->yield(self)) {
        bool another_rank_has_failed = true;
        EXPECT(self, !another_rank_has_failed);
    }
    return self->failure[0] == '\0';
}

conformance_result_t conformance_wait(conformance_rank_t *self, uint32_t node)
{
    while (!self->results[node].arrived && go_on(self)) {
    }
    return self->results[node];
}

void conformance_wait_all(conformance_rank_t *self)
{
    while (self->posted > 0 && go_on(self)) {
    }
    EXPECT(self, self->posted == 0);
}

void conformance_sync(conformance_rank_t *self, int root)
{
    uint32_t node = SYNC_FIRST;
    memset(&self->results[SYNC_FIRST], 0, SYNC_NODES * sizeof self->results[0]);
    if (self->rank != root) {
        conformance_send(self, node, root, SYNC_TAG, NULL, 0);
        conformance_recv(self, node + 1, root, SYNC_TAG, NULL, 0);
        conformance_wait(self, node);
        conformance_wait(self, node + 1);
        return;
    }
    for (int round = 0; round < 2; round++) {
        for (int peer = 0; peer < self->size; peer++) {
            if (peer == root) {
                continue;
            }
            self->results[node].arrived = false;
            if (round == 0) {
                conformance_recv(self, node, peer, SYNC_TAG, NULL, 0);
            } else {
                conformance_send(self, node, peer, SYNC_TAG, NULL, 0);
            }
            conformance_wait(self, node);
        }
    }
}

void conformance_fill(void *data, size_t bytes, uint32_t key)
{
    unsigned char *byte = data;
    uint32_t state = key * 2654435761u + 12345u;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        byte[i] = (unsigned char)(state >> 24);
    }
}

bool conformance_holds(const void *data, size_t bytes, uint32_t key)
{
    const unsigned char *byte = data;
    uint32_t state = key * 2654435761u + 12345u;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        if (byte[i] != (unsigned char)(state >> 24)) {
            return false;
        }
    }
    return true;
}

int conformance_next_of(const conformance_rank_t *self)
{
    return (self->rank + 1) % self->size;
}

int conformance_previous_of(const conformance_rank_t *self)
{
    return (self->rank + self->size - 1) % self->size;
}

uint32_t conformance_key_of(int source, uint32_t number)
{
    return (uint32_t)source * 100003u + number;
}

/* The completion of a receive whose message has its size and content. */
void conformance_expect_message(conformance_rank_t *self, uint32_t node,
                                const void *data, size_t bytes, uint32_t key)
{
    conformance_result_t result = conformance_wait(self, node);
    EXPECT(self, result.status == BATON_OK);
    EXPECT(self, result.bytes == bytes);
    EXPECT(self, !result.has_detail);
    EXPECT(self, conformance_holds(data, bytes, key));
}

void conformance_expect_sent(conformance_rank_t *self, uint32_t node)
{
    EXPECT(self, conformance_wait(self, node).status == BATON_OK);
}

void conformance_run(const conformance_case_t *test, conformance_rank_t *self)
{
    self->failure[0] = '\0';
    self->posted = 0;
    conformance_forget(self);
    baton_status_t status =
        self->transport->reserve(self->endpoint, CONFORMANCE_NODES);
    EXPECT(self, status == BATON_OK);
    conformance_sync(self, 0);
    if (self->failure[0] == '\0') {
        test->run(self);
    }
    conformance_wait_all(self);
    conformance_sync(self, 0);
    if (self->failure[0] == '\0') {
        status = self->transport->reserve(self->endpoint, -CONFORMANCE_NODES);
        EXPECT(self, status == BATON_OK);
    }
}
