/* The suite that every transport passes. A case is one function that every rank
   runs, written against the port alone; a fixture (test_conformance.c for
   inproc and sim, mpi_conformance.c for MPI) makes the endpoints and runs the
   ranks: as processes, as threads, or in turns.

   The port leaves it to the engine which receive a message belongs to. Here
   that is done by tag: conformance_recv takes the first message from a peer
   with its tag that has arrived and not been taken, or is the next to come. */
#pragma once

#include "support/emulated.h"

#include <baton/transport.h>

enum { CONFORMANCE_NODES = 1280 };

typedef struct conformance_result {
    bool ended;
    baton_status_t status;
    size_t bytes;
} conformance_result_t;

/* A receive, posted until its message has arrived. */
typedef struct conformance_receive {
    struct conformance_receive *next; /* in the order posted */
    int peer;
    uint32_t tag;
    void *data;
} conformance_receive_t;

struct conformance_rank;

/* Where a message's data are, if that is device memory. */
typedef struct conformance_mirror {
    void *memory; /* NULL: in host memory */
    void *host;   /* of a receive: where the data go */
} conformance_mirror_t;

/* A rank in a run. The fixture fills the first fields. */
typedef struct conformance_rank {
    const baton_transport_t *transport;
    void *endpoint;
    int rank;
    int size;
    int next, previous; /* in the ring of ranks; set by conformance_run */
    /* Lets the other ranks run. Returns false when another rank has failed. */
    bool (*yield)(struct conformance_rank *self);
    void *fixture;
    uint64_t seed;
    /* NULL: all memory is the host's. Otherwise cases are written as if it
       were, but of `device_share` ends of messages in four the data are copied
       from or to a block of device memory. */
    emulated_t *device;
    uint32_t device_share;
    /* Set for simulated networks, which allocate while messages are in flight,
       and where ordinary memory is received into device memory. */
    bool allocates;
    /* Set where ranks run at once: one that waits sleeps until it is woken. */
    bool sleeps;

    char failure[256]; /* the first failed expectation, or "" */
    conformance_result_t results[CONFORMANCE_NODES];
    conformance_receive_t receives[CONFORMANCE_NODES];
    conformance_mirror_t mirrors[CONFORMANCE_NODES];
    conformance_receive_t *waiting; /* receives that are posted */
    int posted;                     /* sends and receives that have not ended */
    int idle;                       /* polls that found nothing, up to now */
    baton_message_t *arrived;       /* messages not taken yet, oldest first */
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

/* Runs one case as one of its ranks. Failures are left in self->failure. */
void conformance_run(const conformance_case_t *test, conformance_rank_t *self);

/* ---- for cases -------------------------------------------------------- */

/* Records a failure and goes on. Every wait of the suite ends then. */
#define EXPECT(self, condition)                                                \
    conformance_expect(self, condition, #condition, __func__, __LINE__)
void conformance_expect(conformance_rank_t *self, bool condition,
                        const char *text, const char *function, int line);

/* `node` is the message's number in this case: used once, or again after
   conformance_forget(), or after it has ended and was posted anew.
   conformance_send returns true when the send completed at once. */
bool conformance_send(conformance_rank_t *self, uint32_t node, int peer,
                      uint32_t tag, const void *data, size_t bytes);
void conformance_recv(conformance_rank_t *self, uint32_t node, int peer,
                      uint32_t tag, void *data);
bool conformance_withdraw(conformance_rank_t *self, uint32_t node);
void conformance_forget(conformance_rank_t *self);

/* Takes the oldest message with one of these tags that has arrived, and no
   receive was posted for; or NULL. */
baton_message_t *conformance_arrived(conformance_rank_t *self, uint32_t first,
                                     uint32_t last);

/* Polls until one with this tag has. Returns NULL when the case has failed. */
baton_message_t *conformance_take(conformance_rank_t *self, uint32_t tag);

/* Takes back a receive whose message has not arrived; false if it has. */
bool conformance_unpost(conformance_rank_t *self, uint32_t node);

/* Accepts a taken message into `data`, as message number `node`. */
void conformance_accept(conformance_rank_t *self, uint32_t node,
                        baton_message_t *message, void *data);

/* Polls until the message has completed; until all have. */
conformance_result_t conformance_wait(conformance_rank_t *self, uint32_t node);
void conformance_wait_all(conformance_rank_t *self);
void conformance_poll(conformance_rank_t *self);

/* Polls and lets other ranks run; conformance_await, for what must happen, may
   sleep, too. Returns false when the case has failed. */
bool conformance_go_on(conformance_rank_t *self);
bool conformance_await(conformance_rank_t *self);

/* A barrier over all ranks, by way of `root`. */
void conformance_sync(conformance_rank_t *self, int root);

/* Fills memory with bytes that depend on `key`, and checks that it holds them.
 */
void conformance_fill(void *data, size_t bytes, uint32_t key);
bool conformance_holds(const void *data, size_t bytes, uint32_t key);

uint32_t conformance_key_of(int source, uint32_t number);

/* Waits for a receive and checks its size and content; waits for a send. */
void conformance_expect_message(conformance_rank_t *self, uint32_t node,
                                const void *data, size_t bytes, uint32_t key);
void conformance_expect_sent(conformance_rank_t *self, uint32_t node);
