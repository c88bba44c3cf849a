/* A rank of the loop transport: its table of waiting messages and its pool of
   slots. The design note is in loop.c. */
#ifndef BATON_TRANSPORT_LOOP_RANK_H
#define BATON_TRANSPORT_LOOP_RANK_H

#include "transport/loop_internal.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    BATON__LOOP_EAGER_BYTES = 256,
    BATON__LOOP_EAGER_MAX = 1024, /* eager slots of a rank */
    BATON__LOOP_SLAB_MIN = 16,
    BATON__LOOP_BUCKETS_MIN = 16
};

typedef enum baton__loop_kind {
    BATON__LOOP_RECEIVE,
    BATON__LOOP_SEND, /* data is the caller's: the send waits with it */
    BATON__LOOP_EAGER /* data is a copy: the send is done */
} baton__loop_kind_t;

typedef struct baton__loop_rank baton__loop_rank_t;

typedef struct baton__loop_message {
    struct baton__loop_message *next,
        *previous;             /* in a bucket; next: in other lists */
    baton__loop_rank_t *owner; /* whose slot it is */
    baton_token_t token;
    union {
        const void *source;
        void *target;
    } data;
    size_t bytes;
    int source;
    uint32_t tag;
    baton__loop_kind_t kind;
    bool waiting; /* receives: it is in the table of its owner, whose mutex
                     guards this */
    baton_status_t status;
} baton__loop_message_t;

typedef struct baton__loop_eager {
    baton__loop_message_t message;
    unsigned char payload[BATON__LOOP_EAGER_BYTES];
} baton__loop_eager_t;

typedef struct baton__loop_slab {
    struct baton__loop_slab *next;
    baton__loop_message_t *messages;
    baton__loop_eager_t *eagers;
    size_t count;
} baton__loop_slab_t;

typedef struct baton__loop_list {
    baton__loop_message_t *head, *tail;
} baton__loop_list_t;

typedef enum baton__loop_rest {
    BATON__LOOP_AWAKE,   /* or told of something since it last rested */
    BATON__LOOP_RESTING, /* who moves a message of it says so here */
    BATON__LOOP_ASLEEP   /* and rings the bell */
} baton__loop_rest_t;

struct baton__loop_rank {
    _Alignas(64) pthread_mutex_t mutex;
    baton__loop_list_t *buckets;
    size_t bucket_count; /* a power of two */
    baton__loop_list_t done;
    int bell;
    baton__loop_rest_t rest;
    bool joined;
    /* Stored with release under the mutex; poll's acquire load outside of it
       is the pair. */
    _Atomic size_t done_count;
    /* Eager slots that receivers gave back: pushed with release, taken whole
       with acquire by baton__loop_take_eager(). */
    _Atomic(baton__loop_message_t *) eager_back;

    /* The driver's alone. */
    baton_loop_t *loop;
    int index;
    baton__loop_message_t *slots;
    baton__loop_message_t *eagers;
    baton__loop_slab_t *slabs;
    int64_t reserved;
    size_t capacity, eager_capacity;
    int64_t fail_send;
    bool owns_loop;
};

struct baton_loop {
    int size;
    baton__loop_rank_t *ranks;
};

extern const baton_transport_t baton__loop_transport;

/* The table; under the rank's mutex. find: the message that came first with
   this key, or NULL. */
baton__loop_message_t *baton__loop_table_find(baton__loop_rank_t *rank,
                                              int source, uint32_t tag);
void baton__loop_table_append(baton__loop_rank_t *rank,
                              baton__loop_message_t *message);
void baton__loop_table_remove(baton__loop_rank_t *rank,
                              baton__loop_message_t *message);

/* The pool; the driver's. NULL when all are in use. */
baton__loop_message_t *baton__loop_take_slot(baton__loop_rank_t *rank);
void baton__loop_give_slot(baton__loop_rank_t *rank,
                           baton__loop_message_t *slot);
baton__loop_message_t *baton__loop_take_eager(baton__loop_rank_t *rank);

/* Hands an eager slot back to its owner; from any thread. */
void baton__loop_give_eager(baton__loop_message_t *eager);

/* Makes room for `messages` in flight, and a table to match. */
baton_status_t baton__loop_grow(baton__loop_rank_t *rank, size_t messages);

/* Frees table and slabs, of a rank that nobody uses any more. */
void baton__loop_free(baton__loop_rank_t *rank);

#endif
