/* A rank of the inproc transport: what it is about to poll, and its pools of
   records. The design note is in inproc.c. */
#pragma once

#include "base/list.h"

#include <assert.h>
#include <baton/inproc.h>
#include <baton/transport.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    BATON__INPROC_COPY_BYTES = 256,   /* a send copies so much; >= a notice */
    BATON__INPROC_COPIES_MOST = 1024, /* in flight, of a rank */
    BATON__INPROC_SLAB_LEAST = 64,
    BATON__INPROC_SLICE_BYTES = 1 << 18 /* of a long message, at a time */
};
static_assert(BATON__INPROC_COPY_BYTES >= BATON_NOTICE_BYTES,
              "a notice is copied");

typedef struct baton__inproc_rank baton__inproc_rank_t;

typedef enum baton__inproc_state {
    BATON__INPROC_POSTED,
    BATON__INPROC_TAKEN,    /* its receiver has it: SENT comes */
    BATON__INPROC_WITHDRAWN /* its sender has it back */
} baton__inproc_state_t;

/* A message. It refers to its sender's memory, or has a copy of the data. */
typedef struct baton__inproc_record {
    baton_message_t message;
    struct baton__inproc_record *next; /* in one list at a time */
    baton__inproc_rank_t *owner;       /* whose record it is: the sender */
    const void *source;                /* NULL: it has a copy */
    _Atomic int state; /* baton__inproc_state_t, of one without a copy */
    baton_token_t token;
    /* While the receiver copies it, a slice at a time. */
    baton_token_t receiver;
    char *target;
    size_t copied;
    unsigned char data[BATON__INPROC_COPY_BYTES];
} baton__inproc_record_t;

typedef struct baton__inproc_slab {
    struct baton__inproc_slab *next;
    baton__inproc_record_t *records;
    size_t count;
} baton__inproc_slab_t;

/* What is known of a peer: it had left when something was sent to it. */
typedef enum baton__inproc_lost {
    BATON__INPROC_THERE,
    BATON__INPROC_LOST,   /* to be reported */
    BATON__INPROC_SILENT, /* likewise, but it may live */
    BATON__INPROC_REPORTED
} baton__inproc_lost_t;

BATON__LIST(baton__inproc_list, baton__inproc_record_t)

struct baton__inproc_rank {
    _Alignas(64) pthread_mutex_t mutex;
    baton__inproc_list_t inbox; /* messages to this rank */
    baton__inproc_list_t ended; /* this rank's sends */
    /* The length of both lists: stored with release under the mutex; the
       acquire load of poll and arm outside of it is the pair. */
    _Atomic size_t waiting;
    /* Records that receivers gave back: pushed with release, taken whole with
       acquire. */
    _Atomic(baton__inproc_record_t *) back;
    int event_fd;
    bool armed;
    bool for_all; /* or only for notices */
    bool joined;
    bool left; /* it was joined: what is sent to it is dropped, and its sender
                  has lost it */

    /* The driver's alone. */
    bool owns_medium;
    int index;
    baton_inproc_t *medium;
    baton__inproc_record_t *records; /* free ones */
    baton__inproc_list_t long_ones;  /* that this rank copies, in slices */
    baton__inproc_slab_t *slabs;
    int64_t reserved; /* sends */
    size_t capacity;  /* records */
    size_t copies,
        most_copies;     /* records with a copy, that have not come back */
    unsigned char *lost; /* by rank: a baton__inproc_lost_t */
    int lost_count;      /* that are to be reported */
};

struct baton_inproc {
    int size;
    baton__inproc_rank_t *ranks;
};

extern const baton_transport_t baton__inproc_transport;

/* Takes a record from the pool, for a copy or not; NULL if all are in use. The
   driver's. */
baton__inproc_record_t *baton__inproc_take(baton__inproc_rank_t *rank,
                                           bool copy);

/* Gives a record back to its owner; from any thread. */
void baton__inproc_give(baton__inproc_record_t *record);

/* Makes room for so many sends in flight that are no copies. */
baton_status_t baton__inproc_grow(baton__inproc_rank_t *rank, size_t sends);

/* Joins a rank to the medium. The endpoint's close() makes the rank free
   again; the medium keeps its memory until it is destroyed. */
baton_status_t baton__inproc_join(baton_inproc_t *medium, int rank,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out);

/* The transport's close. */
void baton__inproc_close(void *endpoint);
