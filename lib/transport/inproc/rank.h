/* A rank of the inproc transport: its lists of messages and ended sends, and
   its pool of records. inproc.c describes the design. */
#pragma once

#include "base/list.h"

#include <assert.h>
#include <baton/inproc.h>
#include <baton/transport.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    /* The bytes of the longest message that a send copies. A notice must not be
       longer. */
    BATON__INPROC_COPY_BYTES = 256,
    /* The most copies of one rank's sends that may be in flight. */
    BATON__INPROC_COPIES_MOST = 1024,
    BATON__INPROC_SLAB_LEAST = 64,
    /* The most bytes of a long message that one poll copies. */
    BATON__INPROC_SLICE_BYTES = 1 << 18
};
static_assert(BATON__INPROC_COPY_BYTES >= BATON_NOTICE_BYTES,
              "a notice is copied");

typedef struct baton__inproc_rank baton__inproc_rank_t;

typedef enum baton__inproc_state {
    BATON__INPROC_POSTED,
    BATON__INPROC_TAKEN,    /* taken by the receiver, which will end the send */
    BATON__INPROC_WITHDRAWN /* withdrawn by the sender */
} baton__inproc_state_t;

/* A message. The record has a copy of the data, or refers to the sender's
   memory. */
typedef struct baton__inproc_record {
    baton_message_t message;
    struct baton__inproc_record *next; /* a record is in one list at a time */
    baton__inproc_rank_t *owner;       /* the sender, to whose pool the record
                                          belongs */
    const void *source;                /* the sender's memory; NULL: the record
                                          has a copy */
    /* A baton__inproc_state_t. Used only if the record has no copy. */
    _Atomic int state;
    baton_token_t token;
    /* Withdrawals find a send by lists of records whose tokens have the same
       hash. same_hash is the next record of the list that this record is in.
       `list` is the head of a list: record i of the first slab has the head of
       the list for hash i. */
    struct baton__inproc_record *same_hash, *list;
    /* The next three fields are used while the receiver copies the data, one
       slice in each poll. */
    baton_token_t receiver;
    char *target;
    size_t copied;
    unsigned char data[BATON__INPROC_COPY_BYTES];
} baton__inproc_record_t;

typedef struct baton__inproc_slab {
    struct baton__inproc_slab *next;
    size_t count;
    baton__inproc_record_t records[];
} baton__inproc_slab_t;

/* Whether a peer is lost: it had left when this rank sent something to it, or
   the engine has called `lose` for it. */
typedef enum baton__inproc_lost {
    BATON__INPROC_THERE,
    BATON__INPROC_LOST, /* the loss has yet to be reported */
    /* The loss has yet to be reported, but the peer may still live. */
    BATON__INPROC_SILENT,
    BATON__INPROC_REPORTED
} baton__inproc_lost_t;

BATON__LIST(baton__inproc_list, baton__inproc_record_t)

struct baton__inproc_rank {
    _Alignas(64) pthread_mutex_t mutex;
    baton__inproc_list_t inbox; /* messages to this rank */
    baton__inproc_list_t ended; /* this rank's sends that have ended */
    /* The number of records in `inbox` and `ended`. Writers hold the mutex and
       store it with release; inproc_poll loads it with acquire, without the
       mutex. */
    _Atomic size_t waiting;
    /* Records that receivers gave back. They are pushed with release, and taken
       all at once with acquire. */
    _Atomic(baton__inproc_record_t *) back;
    int event_fd;
    bool armed;
    bool for_all; /* armed for all events; false: armed for notices only */
    bool joined;
    /* The rank has joined the medium and left it. Messages to it are dropped,
       and their senders report it as lost. */
    bool left;

    /* The fields from here on belong to the rank's driver. */
    bool owns_medium;
    /* the fields same_hash and `list` of all records are valid */
    bool is_hashed;
    int index;
    baton_inproc_t *medium;
    baton__inproc_record_t *records; /* free records */
    /* Messages from others that this rank is copying in slices. */
    baton__inproc_list_t long_ones;
    baton__inproc_slab_t *slabs; /* the first has half of the records or more */
    int64_t reserved;            /* number of sends that were reserved */
    size_t capacity;             /* number of records in the pool */
    /* number of records that hold a copy and were not given back yet */
    size_t copies;
    size_t most_copies;
    unsigned char *lost; /* by peer: a baton__inproc_lost_t */
    int lost_count;      /* number of peers whose loss has yet to be reported */
};

struct baton_inproc {
    int size;
    baton__inproc_rank_t *ranks;
    /* The board (baton/transport.h): BATON_BOARD_BYTES for each rank. */
    char *boards;
};

extern const baton_transport_t baton__inproc_transport;

/* Takes a record from the pool. `copy` means that the record will hold a copy
   of the message's data. Returns NULL if no record is free, or if `copy` and
   the allowed number of copies is in flight. Only the rank's driver may call
   this. */
baton__inproc_record_t *baton__inproc_take(baton__inproc_rank_t *rank,
                                           bool copy);

/* Gives a record back to its owner. Any thread may call this. */
void baton__inproc_give(baton__inproc_record_t *record);

/* Makes records, if needed, so that `sends` sends without a copy can be in
   flight. */
baton_status_t baton__inproc_grow(baton__inproc_rank_t *rank, size_t sends);

/* Joins a rank to the medium. After the endpoint is closed the rank can join
   again. The medium keeps the rank's memory until the medium is destroyed. */
baton_status_t baton__inproc_join(baton_inproc_t *medium, int rank,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out);

/* Closes an endpoint; the `close` of baton__inproc_transport. */
void baton__inproc_close(void *endpoint);
