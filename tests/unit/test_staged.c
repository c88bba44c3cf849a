/* The staged transport by itself: which way messages take, what they cost, and
   what happens if devices, peers or the inner transport fail. The two ranks use
   inproc, and are polled in turns. */
#include "base/alloc.h"
#include "support/cluster.h"
#include "transport/inproc/rank.h"
#include "transport/staged/endpoint.h"

#include <limits.h>
#include <sched.h>

enum { BLOCK = 4096, BUFFERS = 3, ROOM = 300000, MESSAGES = 64 };

static const baton_header_t header = {
    .schedule = 3, .epoch = 4, .tag = 5, .incarnation = 6, .kind = 7};

/* A rank: its transport, its device, and the outcomes of its messages so
   far. */
typedef struct end {
    baton_transport_t inner;
    const baton_transport_t *port;
    void *endpoint, *inner_endpoint;
    bool refused; /* the rank's last notice was refused */
    emulated_t *device;
    char *memory; /* ROOM bytes in device memory */
    char *host;   /* ROOM bytes in main memory */
    baton_message_t *arrived;
    /* By message: its status; 1: it has not ended. */
    int sent[MESSAGES], received[MESSAGES];
    int lost;
} end_t;

typedef struct pair {
    baton_inproc_t *medium;
    end_t ends[2];
} pair_t;

static void set_variables(const char *direct)
{
    support_set_variable("BATON_DEVICE_BLOCK", "4096");
    support_set_variable("BATON_DEVICE_BUFFERS", "3");
    support_set_variable("BATON_DEVICE_DIRECT", direct);
}

static void forget(end_t *end)
{
    for (int i = 0; i < MESSAGES; i++) {
        end->sent[i] = end->received[i] = 1;
    }
}

static void open_end(pair_t *pair, int rank)
{
    const emulated_options_t options = {
        .seed = support_seed() + (uint64_t)rank, .workers = 1, .delay_us = 10};
    end_t *end = &pair->ends[rank];
    const baton_transport_t *inner = NULL;
    void *endpoint = NULL;
    end->device = emulated_open(&options);
    end->memory = emulated_allocate(end->device, ROOM);
    end->host = support_alloc(1, ROOM);
    support_ok(baton__inproc_join(pair->medium, rank, &inner, &endpoint));
    end->inner = *inner;
    end->inner_endpoint = endpoint;
    support_ok(baton__staged_open(&end->inner, endpoint, rank, 2,
                                  emulated_port(end->device), end->device,
                                  &end->port, &end->endpoint));
    for (int half = 0; half < 2; half++) {
        support_ok(end->port->reserve(end->endpoint, 1 - rank, MESSAGES / 2,
                                      MESSAGES / 2));
    }
    forget(end);
}

static pair_t *open_pair(const char *direct)
{
    pair_t *pair = support_alloc(1, sizeof *pair);
    set_variables(direct);
    support_ok(baton_inproc_create(2, &pair->medium));
    open_end(pair, 0);
    open_end(pair, 1);
    return pair;
}

static void close_device(end_t *end)
{
    emulated_release(end->device, end->memory);
    emulated_counters_t counters = emulated_counters(end->device);
    assert_int_equal(counters.allocated, 0);
    assert_int_equal(counters.events, 0);
    assert_int_equal(counters.unpinned, 0);
    emulated_port(end->device)->close(end->device);
    free(end->host);
}

static void close_end(end_t *end)
{
    if (end->endpoint != NULL) {
        end->port->close(end->endpoint);
        end->endpoint = NULL;
    }
}

static void close_pair(pair_t *pair)
{
    close_end(&pair->ends[0]);
    close_end(&pair->ends[1]);
    close_device(&pair->ends[0]);
    close_device(&pair->ends[1]);
    support_ok(baton_inproc_destroy(pair->medium));
    free(pair);
}

static void poll_end(end_t *end)
{
    baton_event_t events[2];
    if (end->endpoint == NULL) {
        return;
    }
    size_t count = end->port->poll(end->endpoint, events, 2);
    for (size_t i = 0; i < count; i++) {
        uint32_t node = events[i].token.node;
        if (events[i].kind == BATON_EVENT_ARRIVED) {
            baton_message_t **link = &end->arrived;
            while (*link != NULL) {
                link = &(*link)->next;
            }
            events[i].message->next = NULL;
            *link = events[i].message;
        } else if (events[i].kind == BATON_EVENT_LOST) {
            end->lost++;
        } else if (events[i].kind != BATON_EVENT_MOVED) {
            int *of = events[i].kind == BATON_EVENT_SENT ? &end->sent[node]
                                                         : &end->received[node];
            assert_int_equal(*of, 1); /* a message ends only once */
            *of = events[i].status;
            if (*of == BATON_ERR_SYSTEM) {
                assert_non_null(strstr(events[i].detail, "a test"));
            } else if (*of == BATON_ERR_FAILED) {
                assert_string_equal(events[i].detail,
                                    "the sender's device could not copy it");
            }
        }
    }
}

static void poll_both(pair_t *pair)
{
    poll_end(&pair->ends[0]);
    poll_end(&pair->ends[1]);
    sched_yield();
}

static int wait_for(pair_t *pair, const int *result)
{
    while (*result == 1) {
        poll_both(pair);
    }
    return *result;
}

static const baton_memory_t HOST = BATON_MEMORY_HOST;
static const baton_memory_t DEVICE = BATON_MEMORY_DEVICE;

static char *memory_of(const end_t *end, baton_memory_t memory)
{
    return memory == DEVICE ? end->memory : end->host;
}

static baton_token_t token_of(pair_t *pair, uint32_t node,
                              baton_memory_t memory)
{
    return (baton_token_t){.owner = pair, .node = node, .memory = memory};
}

/* Sends the bytes at the offset `at` of the memory. */
static void post_at(pair_t *pair, uint32_t node, uint32_t tag,
                    baton_memory_t memory, size_t at, size_t bytes)
{
    end_t *end = &pair->ends[0];
    baton_header_t numbered = header;
    numbered.tag = tag;
    baton_status_t status =
        end->port->send(end->endpoint, token_of(pair, node, memory), 1,
                        &numbered, memory_of(end, memory) + at, bytes);
    assert_true(status == BATON_OK || status == BATON_DONE);
    end->sent[node] = status == BATON_DONE ? BATON_OK : 1;
}

static void post(pair_t *pair, uint32_t node, baton_memory_t memory,
                 size_t bytes)
{
    post_at(pair, node, node, memory, 0, bytes);
}

static baton_message_t *take(pair_t *pair)
{
    end_t *end = &pair->ends[1];
    while (end->arrived == NULL) {
        poll_both(pair);
    }
    baton_message_t *message = end->arrived;
    end->arrived = message->next;
    assert_int_equal(message->header.kind, header.kind);
    assert_int_equal(message->header.epoch, header.epoch);
    assert_int_equal(message->peer, 0);
    return message;
}

/* Receives a message into the memory at the offset `at`. */
static baton_status_t take_at(pair_t *pair, uint32_t node,
                              baton_memory_t memory, size_t at,
                              baton_message_t *message)
{
    end_t *end = &pair->ends[1];
    end->received[node] = 1;
    baton_status_t status =
        end->port->accept(end->endpoint, message, token_of(pair, node, memory),
                          memory_of(end, memory) + at);
    if (status != BATON_OK) {
        end->received[node] = status == BATON_DONE ? BATON_OK : (int)status;
    }
    return status;
}

/* Receives the next message. */
static baton_status_t take_next(pair_t *pair, uint32_t node,
                                baton_memory_t memory)
{
    return take_at(pair, node, memory, 0, take(pair));
}

static void fill(pair_t *pair, size_t bytes, uint64_t key)
{
    support_random_t random = support_random(key, bytes);
    for (size_t i = 0; i < bytes; i++) {
        pair->ends[0].host[i] = (char)support_random_next(&random);
    }
    emulated_write(pair->ends[0].device, pair->ends[0].memory,
                   pair->ends[0].host, bytes);
}

static void expect_data(pair_t *pair, baton_memory_t memory, size_t bytes)
{
    end_t *end = &pair->ends[1];
    if (memory == BATON_MEMORY_DEVICE) {
        emulated_read(end->device, end->host, end->memory, bytes);
    }
    assert_memory_equal(end->host, pair->ends[0].host, bytes);
}

/* Sends a message, and expects it to arrive with the right data. */
static void pass(pair_t *pair, baton_memory_t from, baton_memory_t to,
                 size_t bytes)
{
    forget(&pair->ends[0]);
    forget(&pair->ends[1]);
    fill(pair, bytes, bytes);
    post(pair, 1, from, bytes);
    (void)take_next(pair, 2, to);
    assert_int_equal(wait_for(pair, &pair->ends[1].received[2]), BATON_OK);
    assert_int_equal(wait_for(pair, &pair->ends[0].sent[1]), BATON_OK);
    expect_data(pair, to, bytes);
}

/* ---- ways -------------------------------------------------------------- */

TEST(test_staged_kin_copies_once)
{
    pair_t *pair = open_pair("1");
    pass(pair, DEVICE, DEVICE, 50000);
    emulated_counters_t from = emulated_counters(pair->ends[0].device);
    emulated_counters_t to = emulated_counters(pair->ends[1].device);
    assert_int_equal(to.foreign, 1);
    assert_int_equal(to.copied_bytes[EMULATED_DEVICE_TO_DEVICE], 50000);
    assert_int_equal(to.copies[EMULATED_HOST_TO_DEVICE], 0);
    assert_int_equal(from.copies[EMULATED_DEVICE_TO_HOST], 0);
    close_pair(pair);
}

/* Each byte goes through main memory once at each end, in blocks. */
TEST(test_staged_others_copy_blocks)
{
    static const size_t sizes[] = {1,         BLOCK - 1,       BLOCK,
                                   BLOCK + 1, BLOCK * BUFFERS, 40 * BLOCK + 3};
    pair_t *pair = open_pair("0");
    uint64_t bytes = 0, copies = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pass(pair, DEVICE, DEVICE, sizes[i]);
        bytes += sizes[i];
        copies += (sizes[i] + BLOCK - 1) / BLOCK;
    }
    emulated_counters_t from = emulated_counters(pair->ends[0].device);
    emulated_counters_t to = emulated_counters(pair->ends[1].device);
    assert_int_equal(from.copies[EMULATED_DEVICE_TO_HOST], copies);
    assert_int_equal(from.copied_bytes[EMULATED_DEVICE_TO_HOST], bytes);
    assert_int_equal(to.copies[EMULATED_HOST_TO_DEVICE], copies);
    assert_int_equal(to.copied_bytes[EMULATED_HOST_TO_DEVICE], bytes);
    assert_int_equal(to.foreign, 0);
    assert_int_equal(from.allocated, 2); /* the pinned memory and `memory` */
    close_pair(pair);
}

/* The inner transport can't lend messages. So a message is received into
   ordinary memory first. If there is none, that is an error. The sender's part
   ends in both cases. If a copy fails, the blocks that are not copied yet are
   not waited for. */
TEST(test_staged_unreadable_host_messages_are_received)
{
    static const size_t sizes[] = {257, BLOCK + 5, BLOCK * BUFFERS, ROOM};
    pair_t *pair = open_pair("1");
    pair->ends[1].inner.lend = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pass(pair, HOST, DEVICE, sizes[i]);
    }
    assert_int_equal(emulated_counters(pair->ends[0].device).submissions, 0);
    post(pair, 5, HOST, ROOM);
    baton_message_t *message = take(pair);
    baton__alloc_fail_nth(1);
    support_expect(take_at(pair, 5, DEVICE, 0, message), BATON_ERR_NO_MEMORY);
    baton__alloc_fail_nth(0);
    assert_int_equal(wait_for(pair, &pair->ends[0].sent[5]), BATON_OK);
    pass(pair, HOST, DEVICE, ROOM);
    post(pair, 6, HOST, ROOM);
    emulated_fail_work(pair->ends[1].device, 1);
    (void)take_next(pair, 6, DEVICE);
    /* fewer polls than ROOM / BLOCK, the blocks of a message */
    for (int polls = 0; polls < 9; polls++) {
        emulated_synchronise_all(pair->ends[1].device);
        poll_both(pair);
    }
    assert_int_equal(pair->ends[1].received[6], BATON_ERR_SYSTEM);
    close_pair(pair);
}

/* The inner transport can send device memory itself, in long messages. It gets
   the addresses, and the device has nothing to do. */
static baton_status_t (*inner_send)(void *endpoint, baton_token_t token,
                                    int peer, const baton_header_t *of,
                                    const void *data, size_t bytes);
static baton_status_t (*inner_accept)(void *endpoint, baton_message_t *message,
                                      baton_token_t token, void *target);
static pair_t *aware;

static bool takes_long(void *endpoint, int peer, size_t bytes)
{
    return bytes > 1000;
}

static baton_status_t send_of_device(void *endpoint, baton_token_t token,
                                     int peer, const baton_header_t *of,
                                     const void *data, size_t bytes)
{
    bool device = token.memory == DEVICE;
    assert_true(!device || data == aware->ends[0].memory);
    return inner_send(endpoint, token, peer, of,
                      device ? aware->ends[0].host : data, bytes);
}

static baton_status_t accept_of_device(void *endpoint, baton_message_t *message,
                                       baton_token_t token, void *target)
{
    bool device = token.memory == DEVICE;
    assert_true(!device || target == aware->ends[1].memory);
    return inner_accept(endpoint, message, token,
                        device ? aware->ends[1].host : target);
}

TEST(test_staged_leaves_device_memory_to_who_takes_it)
{
    pair_t *pair = aware = open_pair("1");
    inner_send = pair->ends[0].inner.send;
    inner_accept = pair->ends[1].inner.accept;
    pair->ends[0].inner.send = send_of_device;
    pair->ends[1].inner.accept = accept_of_device;
    pair->ends[0].inner.takes_device = takes_long;
    pair->ends[1].inner.takes_device = takes_long;
    fill(pair, 50000, 2);
    post(pair, 1, DEVICE, 50000);
    (void)take_next(pair, 2, DEVICE);
    assert_int_equal(wait_for(pair, &pair->ends[1].received[2]), BATON_OK);
    assert_int_equal(wait_for(pair, &pair->ends[0].sent[1]), BATON_OK);
    assert_memory_equal(pair->ends[1].host, pair->ends[0].host, 50000);
    assert_int_equal(emulated_counters(pair->ends[0].device).submissions, 0);
    assert_int_equal(emulated_counters(pair->ends[1].device).submissions, 0);
    pass(pair, DEVICE, DEVICE, 1000); /* a short message is staged */
    assert_int_not_equal(emulated_counters(pair->ends[1].device).submissions,
                         0);
    close_pair(pair);
}

/* ---- states ------------------------------------------------------------ */

static bool withdraw(pair_t *pair, uint32_t node)
{
    const end_t *end = &pair->ends[0];
    return end->port->withdraw(end->endpoint, token_of(pair, node, DEVICE));
}

/* More offers have arrived than there are records, since earlier offers were
   withdrawn. The endpoint does not sleep once there is a record for the next
   offer. */
TEST(test_staged_offers_wait_for_records)
{
    enum { OFFERS = 2 * MESSAGES + 3 };
    pair_t *pair = open_pair("1");
    end_t *end = &pair->ends[1];
    for (int i = 0; i < OFFERS; i++) {
        post(pair, 1, DEVICE, 100);
        assert_true(withdraw(pair, 1));
        poll_both(pair);
    }
    uint32_t us = 0;
    while (!end->port->arm(end->endpoint, BATON_ARM_ALL, &us)) {
        poll_end(end);
    }
    end->port->disarm(end->endpoint);
    for (int i = 0; i < OFFERS; i++) {
        assert_non_null(end->arrived);
        end->port->drop(end->endpoint, take(pair));
        bool armed = end->port->arm(end->endpoint, BATON_ARM_ALL, &us);
        end->port->disarm(end->endpoint);
        assert_int_equal(armed, i >= 3);
        poll_both(pair);
    }
    pass(pair, DEVICE, DEVICE, 100);
    close_pair(pair);
}

/* Offers that do not come from Baton are dropped, and take no record. */
TEST(test_staged_wrong_offers_take_no_record)
{
    pair_t *pair = open_pair("1");
    const end_t *end = &pair->ends[0];
    baton_header_t wrong = header;
    wrong.kind |= BATON__STAGED_OFFER;
    for (int i = 0; i < 5 * MESSAGES; i++) {
        assert_int_equal(
            end->inner.notify(end->inner_endpoint, 1, &wrong, "?", 1),
            BATON_DONE);
        poll_both(pair);
    }
    pass(pair, DEVICE, DEVICE, 100);
    close_pair(pair);
}

/* Copies are delayed while an end closes. End 0 has sent a message. Its memory
   must not be released before the copies have ended. */
static void close_while_copying(const char *direct, int closes, int stream)
{
    pair_t *pair = open_pair(direct);
    end_t *end = &pair->ends[closes];
    fill(pair, 3 * BLOCK, 1);
    emulated_delay(end->device, emulated_port(end->device)->streams[stream],
                   30000);
    uint64_t before = emulated_counters(end->device).submissions;
    post(pair, 1, DEVICE, 3 * BLOCK);
    (void)take_next(pair, 1, DEVICE);
    while (emulated_counters(end->device).submissions == before) {
        poll_both(pair);
    }
    close_end(end);
    close_pair(pair);
}

TEST(test_staged_close_waits_for_copies)
{
    close_while_copying("0", 0, BATON_DEVICE_OUT);
    close_while_copying("0", 1, BATON_DEVICE_IN);
    close_while_copying("1", 1, BATON_DEVICE_OUT);
}

TEST(test_staged_wrong_sends_are_errors)
{
    pair_t *pair = open_pair("1");
    const end_t *end = &pair->ends[0];
    baton_header_t wrong = header;
    baton_status_t status = BATON_OK;
    wrong.kind = 0x8001; /* the staged transport uses this kind itself */
    support_expect(end->port->send(end->endpoint, (baton_token_t){.node = 1}, 1,
                                   &wrong, NULL, 0),
                   BATON_ERR_INVALID);
    support_ok(end->port->reserve(end->endpoint, 1, 1, 0));
    uint32_t sent = 0;
    for (; sent < 200 && status == BATON_OK; sent++) {
        status = end->port->send(end->endpoint, token_of(pair, sent, DEVICE), 1,
                                 &header, end->memory, 64);
    }
    support_expect(status, BATON_ERR_LIMIT);
    assert_true(sent > MESSAGES + 1);
    close_end(&pair->ends[1]);
    close_pair(pair);
}

/* ---- at random --------------------------------------------------------- */

enum { SLOTS = 12, SLOT_BYTES = ROOM / SLOTS, TURNS = 500 };

/* The fault of a trial, which happens at a random time. Other faults never
   happen in that trial. */
typedef enum mishap {
    NOTHING,
    SENDER_FAILS, /* a copy, or another call, of the sender's device fails */
    RECEIVER_FAILS,
    SENDER_LOSES, /* the sender loses its peer */
    RECEIVER_LOSES,
    SENDER_CLOSES,
    RECEIVER_CLOSES,
    MISHAPS
} mishap_t;

/* Messages are numbered. Their sizes and contents follow from the numbers. */
typedef struct traffic {
    pair_t *pair;
    support_random_t random;
    mishap_t mishap;
    uint32_t posted;           /* number of messages that were posted */
    bool withdrawn[TURNS + 1]; /* for each number of a message */
    bool sending[SLOTS], receiving[SLOTS];
    uint32_t number[SLOTS], expected[SLOTS];
    /* The number of the last message that has arrived. Messages arrive in
       order. */
    uint32_t last;
    baton_memory_t source[SLOTS], target[SLOTS];
} traffic_t;

static uint64_t below(traffic_t *self, uint64_t bound)
{
    return support_random_below(&self->random, bound);
}

static size_t contents(uint32_t number, char *out)
{
    support_random_t random = support_random(support_seed(), number);
    size_t most = support_random_below(&random, 3) == 0 ? SLOT_BYTES : 500;
    size_t bytes = 1 + support_random_below(&random, most);
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (char)support_random_next(&random);
    }
    return bytes;
}

static int free_slot(const bool *used)
{
    int slot = 0;
    while (slot < SLOTS && used[slot]) {
        slot++;
    }
    return slot;
}

static void post_any(traffic_t *self)
{
    end_t *end = &self->pair->ends[0];
    uint32_t slot = (uint32_t)free_slot(self->sending);
    size_t at = slot * (size_t)SLOT_BYTES;
    if (slot == SLOTS || end->endpoint == NULL || end->lost > 0) {
        return;
    }
    self->number[slot] = ++self->posted;
    size_t bytes = contents(self->posted, end->host + at);
    self->source[slot] = below(self, 3) == 0 ? HOST : DEVICE;
    emulated_write(end->device, end->memory + at, end->host + at, bytes);
    self->sending[slot] = true;
    post_at(self->pair, slot, self->posted, self->source[slot], at, bytes);
}

static void withdraw_any(traffic_t *self)
{
    end_t *end = &self->pair->ends[0];
    uint32_t slot = (uint32_t)below(self, SLOTS);
    for (int memory = 0; memory < 2 && end->endpoint != NULL; memory++) {
        if (self->sending[slot] && end->sent[slot] == 1 &&
            end->port->withdraw(
                end->endpoint,
                token_of(self->pair, slot, memory != 0 ? DEVICE : HOST))) {
            self->sending[slot] = false;
            self->withdrawn[self->number[slot]] = true;
        }
    }
}

static void take_any(traffic_t *self)
{
    end_t *end = &self->pair->ends[1];
    baton_message_t *message = end->arrived;
    int slot = free_slot(self->receiving);
    if (message == NULL || slot == SLOTS || end->endpoint == NULL) {
        return;
    }
    end->arrived = message->next;
    assert_true(message->header.tag > self->last);
    self->last = message->header.tag;
    if (below(self, 6) == 0) {
        end->port->drop(end->endpoint, message);
        return;
    }
    self->expected[slot] = message->header.tag;
    self->target[slot] = below(self, 3) == 0 ? HOST : DEVICE;
    self->receiving[slot] = true;
    (void)take_at(self->pair, (uint32_t)slot, self->target[slot],
                  (size_t)slot * SLOT_BYTES, message);
}

/* Delays a device for a while. */
static void delay_any(traffic_t *self)
{
    const end_t *end = &self->pair->ends[below(self, 2)];
    if (self->mishap == SENDER_FAILS || self->mishap == RECEIVER_FAILS) {
        return; /* the call below might be the one that must fail */
    }
    emulated_delay(
        end->device,
        emulated_port(end->device)->streams[below(self, BATON_DEVICE_STREAMS)],
        (int)below(self, 300));
}

/* An end whose device has nothing to do can go to sleep, because its peer does
   nothing meanwhile, so there is no event. Notices wait until there is room,
   which no event reports. So with notices it sleeps only for a short time. */
static void sleep_any(traffic_t *self)
{
    enum { TRIES = 1000, LONG_US = 10000 };
    end_t *end = &self->pair->ends[below(self, 2)];
    baton_event_t event;
    uint32_t us = 0;
    if (self->mishap >= SENDER_LOSES) {
        return; /* the end may learn of a loss at any time */
    }
    for (int i = 0; i < TRIES; i++) {
        emulated_synchronise_all(end->device);
        bool armed = end->port->arm(end->endpoint, BATON_ARM_ALL, &us);
        end->port->disarm(end->endpoint);
        if (armed) {
            assert_true(!end->refused || us < LONG_US);
            assert_int_equal(end->port->poll(end->endpoint, &event, 1), 0);
            return;
        }
        poll_end(end);
    }
    fail_msg("it does not get to sleep");
}

/* Checks the sends and receives that have ended. Without a fault all have
   succeeded, except receives of messages that were withdrawn. */
static void look(traffic_t *self)
{
    static char right[SLOT_BYTES], found[SLOT_BYTES];
    end_t *end = &self->pair->ends[1];
    for (int slot = 0; slot < SLOTS; slot++) {
        int sent = self->pair->ends[0].sent[slot];
        int received = end->received[slot];
        if (self->sending[slot] && sent != 1) {
            self->sending[slot] = false;
            assert_true(sent == BATON_OK || self->mishap != NOTHING);
        }
        if (!self->receiving[slot] || received == 1) {
            continue;
        }
        self->receiving[slot] = false;
        assert_true(received == BATON_OK || self->mishap != NOTHING ||
                    (received == BATON_ERR_CANCELLED &&
                     self->withdrawn[self->expected[slot]]));
        if (received == BATON_OK) {
            size_t at = (size_t)slot * SLOT_BYTES;
            size_t bytes = contents(self->expected[slot], right);
            if (self->target[slot] == DEVICE) {
                emulated_read(end->device, found, end->memory + at, bytes);
            } else {
                memcpy(found, end->host + at, bytes);
            }
            assert_memory_equal(found, right, bytes);
        }
    }
}

static baton_status_t (*inner_notify)(void *endpoint, int peer,
                                      const baton_header_t *of,
                                      const void *data, size_t bytes);
static pair_t *refusing;
static int refusals;

static baton_status_t notify_now_and_then(void *endpoint, int peer,
                                          const baton_header_t *of,
                                          const void *data, size_t bytes)
{
    end_t *end = &refusing->ends[refusing->ends[0].inner_endpoint != endpoint];
    end->refused = ++refusals % 3 != 0;
    return end->refused ? BATON_AGAIN
                        : inner_notify(endpoint, peer, of, data, bytes);
}

static size_t (*inner_poll)(void *endpoint, baton_event_t *out, size_t max);

static void *loser; /* the endpoint whose next poll loses its peer */

static size_t poll_and_lose(void *endpoint, baton_event_t *out, size_t max)
{
    if (loser == NULL) {
        return inner_poll(endpoint, out, max);
    }
    out[0] = (baton_event_t){.kind = BATON_EVENT_LOST,
                             .status = BATON_ERR_TRANSPORT,
                             .peer = *(int *)loser};
    loser = NULL;
    return 1;
}

static void cause(traffic_t *self)
{
    static int peer;
    bool sender = self->mishap % 2 == 1;
    end_t *end = &self->pair->ends[sender ? 0 : 1];
    int k = 1 + (int)below(self, 9);
    peer = sender ? 1 : 0;
    if (self->mishap >= SENDER_CLOSES) {
        close_end(end);
        end->arrived = NULL;
    } else if (self->mishap >= SENDER_LOSES) {
        /* The staged transport keeps a pointer to this table. */
        end->inner.poll = poll_and_lose;
        loser = &peer;
    } else if (below(self, 2) == 0) {
        emulated_fail_work(end->device, k);
    } else {
        emulated_fail_submit(end->device, k);
    }
}

/* Returns true if the receiver has accepted the message in this slot of the
   sender. */
static bool is_begun(const traffic_t *self, int slot)
{
    bool begun = false;
    for (int i = 0; i < SLOTS; i++) {
        begun |= self->receiving[i] && self->expected[i] == self->number[slot];
    }
    return begun;
}

/* Returns true if nothing is left to wait for, after the fault. (The inner
   transport, which has the messages from main memory, is not told of
   losses.) */
static bool is_over(const traffic_t *self)
{
    mishap_t mishap = self->mishap;
    bool receives = mishap <= RECEIVER_FAILS || mishap == RECEIVER_LOSES;
    bool over = loser == NULL && (mishap > RECEIVER_FAILS ||
                                  self->pair->ends[1].arrived == NULL);
    for (int slot = 0; slot < SLOTS; slot++) {
        bool sends = mishap != SENDER_CLOSES && mishap != RECEIVER_LOSES &&
                     (mishap != RECEIVER_CLOSES || !is_begun(self, slot)) &&
                     (mishap <= RECEIVER_FAILS || self->source[slot] == DEVICE);
        over = over && !(sends && self->sending[slot]) &&
               !(receives && self->receiving[slot]);
    }
    return over;
}

static void run_traffic(uint64_t trial)
{
    traffic_t self = {.random = support_random(support_seed(), trial)};
    uint64_t when = 1 + below(&self, TURNS);
    self.mishap = (mishap_t)below(&self, MISHAPS);
    self.pair = refusing = open_pair(below(&self, 2) == 0 ? "0" : "1");
    inner_poll = self.pair->ends[0].inner.poll;
    inner_notify = self.pair->ends[0].inner.notify;
    bool refuses = below(&self, 2) == 0, reads = below(&self, 2) == 0;
    for (int i = 0; i < 2; i++) {
        end_t *end = &self.pair->ends[i];
        end->inner.notify = refuses ? notify_now_and_then : inner_notify;
        end->inner.lend = reads ? end->inner.lend : NULL;
    }
    for (uint64_t turn = 1; turn <= TURNS || !is_over(&self); turn++) {
        void (*const actions[])(traffic_t *) = {
            take_any, post_any, withdraw_any, delay_any, take_any, sleep_any};
        uint64_t action = below(&self, turn < TURNS ? 12 : 2);
        if (action < (turn < TURNS ? 6 : 1)) {
            actions[action](&self);
        } else {
            poll_end(&self.pair->ends[action % 2]);
        }
        look(&self);
        if (turn == when && self.mishap != NOTHING) {
            cause(&self);
        }
        if (turn > TURNS) {
            poll_both(self.pair);
        }
    }
    for (int i = 0; i < 2; i++) {
        emulated_synchronise_all(self.pair->ends[i].device);
    }
    close_pair(self.pair);
}

TEST(test_staged_random_traffic)
{
    for (uint64_t trial = 0; trial < 200; trial++) {
        run_traffic(trial);
    }
}

/* ---- faults ------------------------------------------------------------ */

/* For each k, the k-th copy of one end's device fails, or the k-th call that
   puts work into a stream: a copy, or the record of an event after it, which is
   repeated. Both ends learn that the message has ended, and the next message
   arrives. */
static void every_copy_may_fail(const char *direct, int which, bool submits)
{
    enum { BYTES = 5 * BLOCK + 9 };
    int failures = 0, well = 0;
    for (int k = 1; well < 2 && k < 30; k++) {
        pair_t *pair = open_pair(direct);
        emulated_t *device = pair->ends[which].device;
        fill(pair, BYTES, 1);
        if (submits) {
            emulated_fail_submit(device, k);
        } else {
            emulated_fail_work(device, k);
        }
        post(pair, 1, DEVICE, BYTES);
        (void)take_next(pair, 1, DEVICE);
        int sent = wait_for(pair, &pair->ends[0].sent[1]);
        int received = wait_for(pair, &pair->ends[1].received[1]);
        bool failed = received != BATON_OK;
        failures += failed;
        well = failed ? 0 : well + 1;
        if (which == 0) {
            assert_int_equal(sent, failed ? BATON_ERR_SYSTEM : BATON_OK);
            assert_int_equal(received, failed ? BATON_ERR_FAILED : BATON_OK);
        } else {
            assert_int_equal(sent, BATON_OK);
            assert_int_equal(received, failed ? BATON_ERR_SYSTEM : BATON_OK);
        }
        assert_true(failed || k > 1);
        /* This call was the record of an event. */
        assert_false(submits && failed && k % 2 == 0);
        if (received == BATON_OK) {
            expect_data(pair, DEVICE, BYTES);
        }
        emulated_synchronise_all(device);
        emulated_repair(device);
        pass(pair, DEVICE, DEVICE, BYTES);
        close_pair(pair);
    }
    assert_true(failures > 0 && well == 2);
}

TEST(test_staged_every_copy_may_fail)
{
    for (int submits = 0; submits < 2; submits++) {
        every_copy_may_fail("0", 0, submits);
        every_copy_may_fail("0", 1, submits);
        every_copy_may_fail("1", 1, submits);
    }
}

static int notices_refused; /* notices that are refused before there is room */

static baton_status_t notify_late(void *endpoint, int peer,
                                  const baton_header_t *of, const void *data,
                                  size_t bytes)
{
    return notices_refused-- > 0
               ? BATON_AGAIN
               : inner_notify(endpoint, peer, of, data, bytes);
}

/* A send has failed, and its receiver could not be told yet. The next send with
   the same token is another message. */
TEST(test_staged_next_of_a_failed_send_is_withdrawn)
{
    pair_t *pair = open_pair("0");
    end_t *end = &pair->ends[0];
    fill(pair, 10000, 1);
    post(pair, 1, DEVICE, 10000);
    (void)take_next(pair, 1, DEVICE);
    inner_notify = end->inner.notify;
    end->inner.notify = notify_late;
    notices_refused = INT_MAX;
    emulated_fail_work(end->device, 1);
    assert_int_not_equal(wait_for(pair, &end->sent[1]), BATON_OK);
    emulated_repair(end->device);
    post(pair, 1, DEVICE, 10000);
    assert_true(withdraw(pair, 1));
    end->inner.notify = inner_notify;
    assert_int_equal(wait_for(pair, &pair->ends[1].received[1]),
                     BATON_ERR_FAILED);
    close_pair(pair);
}

/* An end that closes declines offers that it has not read yet, as soon as there
   is room for the answer. Otherwise their sender would wait for ever. While
   there is no room the end yields and tries again, up to a time limit. */
TEST(test_staged_close_declines_offers)
{
    for (int late = 0; late < 2; late++) {
        pair_t *pair = open_pair("1");
        end_t *end = &pair->ends[1];
        inner_notify = end->inner.notify;
        end->inner.notify = notify_late;
        notices_refused = late * 10;
        post(pair, 1, DEVICE, 100);
        close_end(end);
        poll_end(&pair->ends[0]);
        poll_end(&pair->ends[0]);
        assert_int_equal(pair->ends[0].sent[1], BATON_OK);
        close_pair(pair);
    }
}

/* ---- memory ------------------------------------------------------------ */

TEST(test_staged_every_allocation_may_fail)
{
    set_variables("1");
    bool made = false;
    for (int k = 1; !made && k < 60; k++) {
        baton_inproc_t *medium = NULL;
        const baton_transport_t *inner = NULL;
        const baton_transport_t *port = NULL;
        void *endpoint = NULL;
        void *staged = NULL;
        emulated_t *device = emulated_open(NULL);
        support_ok(baton_inproc_create(1, &medium));
        support_ok(baton__inproc_join(medium, 0, &inner, &endpoint));
        baton__alloc_fail_nth(k / 2);
        emulated_fail_allocate(device, k % 2 == 0 ? 0 : k);
        baton_status_t status =
            baton__staged_open(inner, endpoint, 0, 1, emulated_port(device),
                               device, &port, &staged);
        if (status == BATON_OK) {
            status = port->reserve(staged, 0, 10, 10);
            made = status == BATON_OK && k % 2 == 0;
            port->close(staged);
        } else {
            inner->close(endpoint);
        }
        baton__alloc_fail_nth(0);
        assert_true(status == BATON_OK || status == BATON_ERR_NO_MEMORY);
        emulated_counters_t counters = emulated_counters(device);
        assert_int_equal(counters.allocated, 0);
        assert_int_equal(counters.events, 0);
        emulated_port(device)->close(device);
        support_ok(baton_inproc_destroy(medium));
    }
    assert_true(made);
}
