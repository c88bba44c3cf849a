/* The suite that every transport passes. A case is one function that every rank
   runs, written against the port alone. A fixture (test_conformance.c for
   inproc and sim, mpi_conformance.c for MPI) opens the endpoints and runs the
   ranks as processes, as threads, or in turns on one thread.

   The port leaves it to the engine to find the receive that a message belongs
   to. Here the tag decides: conformance_recv takes the first message from a
   peer with this tag that has arrived and was not taken, or else the next one
   that arrives. */
#pragma once

#include "support/emulated.h"

#include <baton/transport.h>

enum { CONFORMANCE_NODES = 1280 };

typedef struct conformance_result {
    bool ended;
    baton_status_t status;
    size_t bytes;
} conformance_result_t;

/* A receive that is posted until its message has arrived. */
typedef struct conformance_receive {
    /* The next receive in the order of posting. */
    struct conformance_receive *next;
    int peer;
    uint32_t tag;
    void *data;
} conformance_receive_t;

struct conformance_rank;

/* The copy of a message's data in device memory. */
typedef struct conformance_mirror {
    void *memory; /* NULL: the data are in main memory only */
    /* The main memory to which the received data are copied; NULL: the message
       is a send. */
    void *host;
} conformance_mirror_t;

/* A rank of a run. The fixture sets the fields from here to `sleeps`. */
typedef struct conformance_rank {
    const baton_transport_t *transport;
    void *endpoint;
    int rank;
    int size;
    /* The neighbours in the ring of ranks. conformance_run sets them. */
    int next, previous;
    /* Lets the other ranks run. Returns false if another rank has failed. */
    bool (*yield)(struct conformance_rank *self);
    void *fixture;
    uint64_t seed;
    emulated_t *device; /* the rank's device; NULL: none */
    /* The share of sends and receives with data that use device memory, in
       quarters. Each is chosen at random, by `seed`. The cases pass main memory
       only; for a chosen message the suite copies the data from or to a block
       of device memory. */
    uint32_t device_share;
    /* True if the transport may allocate memory while messages are in flight.
       The simulator's transport does, and so does one that receives data of
       main memory into device memory. */
    bool allocates;
    /* True if ranks run at the same time. Then a rank that waits sleeps until
       it is woken. */
    bool sleeps;

    char failure[256]; /* the first failed expectation, or empty */
    conformance_result_t results[CONFORMANCE_NODES];
    conformance_receive_t receives[CONFORMANCE_NODES];
    conformance_mirror_t mirrors[CONFORMANCE_NODES];
    /* The receives that were posted and have not ended. */
    conformance_receive_t *waiting;
    /* Number of sends and receives that have not ended. */
    int posted;
    /* Number of consecutive polls that found nothing. */
    int idle;
    /* The arrived messages that were not taken, the oldest first. */
    baton_message_t *arrived;
} conformance_rank_t;

#define CONFORMANCE_LIST(X)                                                    \
    X(sizes)                                                                   \
    X(order_of_arrival)                                                        \
    X(headers_arrive_as_sent)                                                  \
    X(kept_while_others_pass)                                                  \
    X(lent)                                                                    \
    X(withdrawn)                                                               \
    X(notices)                                                                 \
    X(wakes_when_armed)                                                        \
    X(random_traffic)

enum {
#define CONFORMANCE_COUNT(name) +1
    CONFORMANCE_CASES = 0 CONFORMANCE_LIST(CONFORMANCE_COUNT)
#undef CONFORMANCE_COUNT
};

#define CONFORMANCE_DECLARE(name)                                              \
    void conformance_##name(conformance_rank_t *self);
CONFORMANCE_LIST(CONFORMANCE_DECLARE)
#undef CONFORMANCE_DECLARE

typedef struct conformance_case {
    const char *name;
    void (*run)(conformance_rank_t *self);
} conformance_case_t;

extern const conformance_case_t conformance_cases[CONFORMANCE_CASES];

/* Runs one case as one of its ranks. After a failure, its text is in
   self->failure. */
void conformance_run(const conformance_case_t *test, conformance_rank_t *self);

/* ---- for cases -------------------------------------------------------- */

/* Records a failure and continues. After a failure all waits of the suite
   return. */
#define EXPECT(self, condition)                                                \
    conformance_expect(self, condition, #condition, __func__, __LINE__)
void conformance_expect(conformance_rank_t *self, bool condition,
                        const char *text, const char *function, int line);

/* conformance_send posts a send, and conformance_recv a receive. `node` numbers
   the message in this case. The number can be reused after conformance_forget,
   or after the message has ended. conformance_send returns true if the send
   completed at once. */
bool conformance_send(conformance_rank_t *self, uint32_t node, int peer,
                      uint32_t tag, const void *data, size_t bytes);
void conformance_recv(conformance_rank_t *self, uint32_t node, int peer,
                      uint32_t tag, void *data);
bool conformance_withdraw(conformance_rank_t *self, uint32_t node);
void conformance_forget(conformance_rank_t *self);

/* Takes the oldest message with a tag from `first` to `last` that has arrived,
   and for which no receive was posted. Returns NULL if there is none. */
baton_message_t *conformance_arrived(conformance_rank_t *self, uint32_t first,
                                     uint32_t last);

/* Polls until a message with this tag has arrived, and takes it. Returns NULL
   if the case has failed. */
baton_message_t *conformance_take(conformance_rank_t *self, uint32_t tag);

/* Withdraws a posted receive. Returns false if its message has arrived. */
bool conformance_unpost(conformance_rank_t *self, uint32_t node);

/* Receives a message that was taken before into `data`. The receive is message
   number `node`. */
void conformance_accept(conformance_rank_t *self, uint32_t node,
                        baton_message_t *message, void *data);

/* conformance_wait polls until the message has completed, conformance_wait_all
   until all messages have, and conformance_poll polls once. */
conformance_result_t conformance_wait(conformance_rank_t *self, uint32_t node);
void conformance_wait_all(conformance_rank_t *self);
void conformance_poll(conformance_rank_t *self);

/* Both functions poll, and let other ranks run. conformance_await may also
   sleep, so it may only wait for an event that is certain to come. Both return
   false if the case has failed. */
bool conformance_go_on(conformance_rank_t *self);
bool conformance_await(conformance_rank_t *self);

/* Synchronises all ranks by messages through rank `root`. */
void conformance_sync(conformance_rank_t *self, int root);

/* conformance_fill fills memory with bytes that depend on `key`, and
   conformance_holds returns whether memory holds these bytes. */
void conformance_fill(void *data, size_t bytes, uint32_t key);
bool conformance_holds(const void *data, size_t bytes, uint32_t key);

uint32_t conformance_key_of(int source, uint32_t number);

/* conformance_expect_message waits for a receive and checks its size and
   content. conformance_expect_sent waits for a send. */
void conformance_expect_message(conformance_rank_t *self, uint32_t node,
                                const void *data, size_t bytes, uint32_t key);
void conformance_expect_sent(conformance_rank_t *self, uint32_t node);
