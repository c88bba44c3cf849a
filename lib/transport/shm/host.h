/* What the processes of one host share for messages between them: each has its
   state, buffers and offers; each two have a ring in each direction, and
   credits.

   - A record in a ring announces a message; a short one's data are in it.
   - Buffers hold messages of medium size: the sender copies one in, and the
     receiver clears the buffer when it has read it. So such a send is complete
     as it is posted. They have memory once they are used first: most groups of
     many ranks need few, and to clear and free all took milliseconds.
   - An offer guards a long message, which the receiver copies out of the
     sender's memory: the side that changes it from offered has the message, the
     receiver to copy it, or the sender to take it back.
   - A posted receive tells one sender where the data of a message go, before it
     is sent. The side that changes its word from posted has it: the sender to
     write the data there, or the receiver to take it back.
   - Credits: how many records one process may send to another without an
     answer.

   All of it is one piece of shared memory. Beside it each process has segments
   that it allocates from, and that the others map (segments.h). */
#pragma once

#include "transport/shm/liveness.h"
#include "transport/shm/mappings.h"
#include "transport/shm/ring.h"
#include "transport/shm/share.h"

#include <baton/transport.h>

enum {
    BATON__HOST_BUFFERS = 8, /* of a process, at most */
    /* Of a message: 64 KiB, and what a collective adds to them. */
    BATON__HOST_BUFFER_BYTES = 68 * 1024 - 64,
    BATON__HOST_OFFERS = 8192, /* of a process */
    BATON__HOST_POSTS = 16     /* of a process from one other, at a time */
};

/* A receive that was posted. */
typedef struct baton__host_post {
    /* A generation and a state, see put.c. Stored with release by the receiver;
       pairs with the acquire load of the sender. */
    _Alignas(64) _Atomic uint32_t word;
    baton_header_t header;
    uint64_t address;
    uint64_t bytes;
} baton__host_post_t;

typedef struct baton__host_buffer {
    /* Set by its owner alone; cleared with release by its reader. */
    _Alignas(64) _Atomic uint32_t full;
    _Alignas(64) char data[BATON__HOST_BUFFER_BYTES];
} baton__host_buffer_t;
static_assert(sizeof(baton__host_buffer_t) % 4096 == 0, "whole pages");

/* What its receiver knows of it. */
typedef struct baton__host_posted {
    bool used;
    baton_token_t token;
    char *target; /* of the next part, if the data come in parts */
    size_t left;  /* bytes of them */
} baton__host_posted_t;

typedef struct baton__host {
    int count;      /* processes */
    int index;      /* of this one */
    int buffers;    /* of each */
    int reserved;   /* of this process: the first so many, which have memory */
    int usable;     /* of this process: fewer if there is no memory left */
    uint64_t probe; /* others try to read this */
    void *memory;
    size_t bytes;
    uint64_t spread_ns; /* when it last moved a thread, or tried to */
    uint32_t decided;   /* so often: all take part in each decision, or end */
    baton__doorbell_t doorbell;
    baton__liveness_t liveness;   /* of the others */
    baton__segments_t segments;   /* of this process */
    baton__mappings_t mappings;   /* of the others' */
    baton__inbox_t inbox;         /* of this process */
    baton__host_posted_t *posted; /* by it, in the order of its posts */
    /* Into the shared memory. */
    baton__segment_table_t *tables; /* of each process */
    baton__freed_count_t *freed;
    uint64_t *probes;          /* of each process: where its probe is */
    _Atomic uint32_t *outcome; /* number of the last decision, and what it is */
    _Atomic uint32_t *refused; /* it was logged that copies are refused */
    baton__credit_t *credits;
    _Atomic uint32_t *offers;
    baton__host_post_t *posts;
    _Atomic int32_t *processors; /* that each last polled on */
    _Atomic uint8_t *counts;     /* of inboxes */
    baton__cell_t *cells;
    baton__host_buffer_t *buffer_memory;
} baton__host_t;

/* The number of buffers for each of `count` processes: `wanted`, or fewer if
   there is little room in /dev/shm. */
int baton__host_afford(int count, int wanted);

/* What the first process that decides the same has said. */
bool baton__host_decide(baton__host_t *host, bool outcome);

/* Creates what `count` processes share; see share.h. BATON_ERR_SYSTEM. */
baton_status_t baton__host_create(int count, int buffers, int *file_out);

/* Opens the part of process `index` of `count` in it; the file is not needed
   any more then. A single process shares nothing, and needs none.
   BATON_ERR_SYSTEM. */
baton_status_t baton__host_open(baton__host_t *host, int file, int count,
                                int index, int buffers);
void baton__host_close(baton__host_t *host);

/* Tries to read the probe of every other process, or to write there what it is.
   Returns 0, or an errno if this host does not let it. Call it after all have
   opened; write only where all can read, or another process may have this one's
   number. */
int baton__host_probe(const baton__host_t *host, bool write);

/* What belongs to process `index`. */
static inline baton__host_buffer_t *
baton__host_buffer(const baton__host_t *host, int index, uint32_t buffer)
{
    return &host->buffer_memory[(size_t)index * (size_t)host->buffers + buffer];
}

static inline _Atomic uint32_t *baton__host_offer(const baton__host_t *host,
                                                  int index, uint32_t offer)
{
    return &host->offers[(size_t)index * BATON__HOST_OFFERS + offer];
}

/* Before a buffer of this process is used: reserves memory for it. False if
   there is none: it and those after it can't be used. Those before it must have
   been reserved. */
bool baton__host_reserve(baton__host_t *host, int buffer);

/* What `receiver` has posted for `sender`: BATON__HOST_POSTS of them. */
static inline baton__host_post_t *baton__host_posts(const baton__host_t *host,
                                                    int receiver, int sender)
{
    size_t pair = (size_t)receiver * (size_t)host->count + (size_t)sender;
    return &host->posts[pair * BATON__HOST_POSTS];
}

/* This process's end of the ring to process `to`. */
baton__ring_t baton__host_ring(const baton__host_t *host, int to);

/* Credits of one receiver: whole cache lines. */
static inline size_t baton__host_row(const baton__host_t *host)
{
    return ((size_t)host->count + 3) / 4 * 4;
}

/* What `receiver` has granted `sender`. */
static inline baton__credit_t *baton__host_credit(const baton__host_t *host,
                                                  int receiver, int sender)
{
    return &host->credits[(size_t)receiver * baton__host_row(host) +
                          (size_t)sender];
}

/* Moves the calling thread, which polls, to another processor if processes poll
   on its own while they poll on fewer there. Linux alone may leave two ranks
   that yield to each other on one processor for good, beside one that is idle:
   what has just run it does not move, and each runs in turn. */
void baton__host_spread(baton__host_t *host);

/* Copy from the memory of process `index`, and into that of another one. 0, or
   an errno: ESRCH if it has ended. */
int baton__host_read(const baton__host_t *host, int index, void *target,
                     uint64_t address, size_t bytes);
int baton__host_write(const baton__host_t *host, int index, uint64_t address,
                      const void *source, size_t bytes);
