/* The memory that the processes of one host share for messages between them.
   Each process has a state, buffers and offers. Each pair of processes has a
   ring, credits and posted receives in each direction.

   A record in a ring announces a message. The data of a short message is in the
   record.

   Buffers hold messages of medium size. The sender copies a message into one of
   its buffers, and the receiver releases the buffer after reading it. So such a
   send is complete when it is posted. The memory of a buffer is reserved at its
   first use: most groups of many ranks need few buffers, and clearing and
   freeing all of them took milliseconds.

   An offer guards a long message, which the receiver copies out of the sender's
   memory. The side that changes the offer from OFFER_MADE (mpi/send.c) decides
   about the message: the receiver copies it, or the sender withdraws it.

   A posted receive tells one sender where the data of a message goes before the
   message is sent. The side that changes its word from the state POST_MADE
   (mpi/put.c) decides about the receive: the sender writes the data there, or
   the receiver withdraws it.

   Credits say how many records one process may send to another without an
   answer.

   All of this is one piece of shared memory. Each process also has segments
   from which it allocates, and which the others map (segments.h). */
#pragma once

#include "transport/shm/liveness.h"
#include "transport/shm/mappings.h"
#include "transport/shm/ring.h"
#include "transport/shm/share.h"

#include <baton/transport.h>

enum {
    BATON__HOST_BUFFERS = 8, /* the most buffers of a process */
    /* The longest message in a buffer: 64 KiB and the bytes that a collective
       may add. */
    BATON__HOST_BUFFER_BYTES = 68 * 1024 - 64,
    BATON__HOST_OFFERS = 8192, /* number of offers of a process */
    BATON__HOST_POSTS = 16 /* the most receives posted to one peer at a time */
};

/* A posted receive, in shared memory. */
typedef struct baton__host_post {
    /* generation + state; mpi/put.c has the states. The generation is a
       multiple of POST_STATES, and grows by POST_STATES with each receive that
       is posted in this place. It tells the sender, and the receiver of a
       sender's packet, whether the place still holds the same receive. The
       receiver fills the other fields and then stores this word with release,
       which pairs with the sender's acquire load. */
    _Alignas(64) _Atomic uint32_t word;
    baton_header_t header; /* the header of the message to receive */
    uint64_t address;      /* the target, an address in the receiver's memory */
    uint64_t bytes;        /* the length of the message to receive */
} baton__host_post_t;

typedef struct baton__host_buffer {
    /* Not 0 while the buffer holds a message. The buffer's owner sets this
       field, and the reader of the message clears it with release. */
    _Alignas(64) _Atomic uint32_t full;
    _Alignas(64) char data[BATON__HOST_BUFFER_BYTES];
} baton__host_buffer_t;
static_assert(sizeof(baton__host_buffer_t) % 4096 == 0, "whole pages");

/* The receiver's private record of a posted receive. */
typedef struct baton__host_posted {
    baton_token_t token;
    /* Where the data goes or, if it comes in parts, where the next part goes.
       NULL: no receive is posted in this place. */
    char *target;
    size_t left; /* if the data comes in parts, the bytes still to come */
    uint32_t generation; /* that in the post's word */
} baton__host_posted_t;

typedef struct baton__host {
    int count;    /* number of processes of the host */
    int index;    /* index of this process */
    int buffers;  /* number of buffers of each process */
    int reserved; /* number of this process's buffers that have memory */
    int usable;   /* `buffers`, or fewer after memory has run out */
    /* Other processes read and write this field to test whether they can access
       the memory of this process. */
    uint64_t probe;
    void *memory;
    size_t bytes;
    /* When baton__host_spread last looked for a processor. */
    uint64_t spread_ns;
    /* Number of decisions so far (baton__host_decide). Every process that has
       not ended takes part in every decision, so this number is the same in all
       of them. */
    uint32_t decided;
    baton__doorbell_t doorbell;
    baton__liveness_t liveness; /* watches the other processes */
    baton__segments_t segments; /* this process's segments */
    baton__mappings_t mappings; /* other processes' segments */
    baton__inbox_t inbox;       /* the rings to this process */
    /* This process's posted receives, by sender and place. */
    baton__host_posted_t *posted;
    /* The descriptor of the shared memory, which other processes may open by
       way of /proc. -1: no other process shares this memory. */
    int file;
    /* The pointers from here on point into the shared memory. */
    /* The board of the processes (baton/transport.h). The memory begins with
       it, so that other processes find it. */
    char *boards;
    baton__segment_table_t *tables; /* indexed by process */
    baton__freed_count_t *freed;
    /* By process: the address of the process's `probe`. */
    uint64_t *probes;
    /* number of the last decision << 1 | its outcome */
    _Atomic uint32_t *outcome;
    /* 1 after one of the processes has logged that the host refused a copy. */
    _Atomic uint32_t *refused;
    baton__credit_t *credits;
    _Atomic uint32_t *offers;
    baton__host_post_t *posts;
    /* By pair of processes, at lower * count + higher: 1 + the process that the
       other one has lost; 0: neither has lost the other. If each loses the
       other, the first loss counts. */
    _Atomic uint32_t *losses;
    /* By process: 1 + the processor where it last polled; 0: it has not polled,
       or has ended. */
    _Atomic int32_t *processors;
    /* The counts of the inboxes of all processes, unless each process has its
       counts in its baton__peer_state_t. */
    _Atomic uint8_t *counts;
    baton__cell_t *cells;
    baton__host_buffer_t *buffer_memory;
} baton__host_t;

/* Returns the number of buffers for each of `count` processes: `wanted`, or
   fewer if there is little space in /dev/shm. */
int baton__host_afford(int count, int wanted);

/* All processes of the host decide together: each passes its proposal
   `outcome`, and gets the proposal of the process that took part first. */
bool baton__host_decide(baton__host_t *host, bool outcome);
/* True if another process has already taken part in the next decision, and the
   outcome of that decision is true. */
bool baton__host_has_agreed(const baton__host_t *host);

/* Creates the file that `count` processes share; see share.h. Returns
   BATON_ERR_SYSTEM on failure. */
baton_status_t baton__host_create(int count, int buffers, int *file_out);

/* Opens the shared file as process `index` of `count`, and keeps a duplicate of
   its descriptor. A single process needs no file, and may pass -1. Returns
   BATON_ERR_SYSTEM or BATON_ERR_NO_MEMORY on failure. */
baton_status_t baton__host_open(baton__host_t *host, int file, int count,
                                int index, int buffers);
void baton__host_close(baton__host_t *host);

/* Tries to read the probe of every other process, or, if `write`, to write the
   value that the probe has already. Returns 0, or an errno if this host does
   not allow that. Call this after all processes have opened. Call it with
   `write` only after reading has succeeded: otherwise, in this PID namespace,
   the process number may belong to an unrelated process. */
int baton__host_probe(const baton__host_t *host, bool write);

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

/* Reserves memory for a buffer of this process, unless it has memory. Called
   before each use. The buffers with lower indices must have been reserved.
   Returns false if there is no memory: then this buffer and those with higher
   indices can't be used. */
bool baton__host_reserve(baton__host_t *host, int buffer);

/* Returns the BATON__HOST_POSTS posts of `receiver` for `sender`. */
static inline baton__host_post_t *baton__host_posts(const baton__host_t *host,
                                                    int receiver, int sender)
{
    size_t pair = (size_t)receiver * (size_t)host->count + (size_t)sender;
    return &host->posts[pair * BATON__HOST_POSTS];
}

/* Returns this process's end of the ring to process `to`. */
baton__ring_t baton__host_ring(const baton__host_t *host, int to);

/* Returns the number of credits in the row of one receiver, which is padded to
   whole cache lines. */
static inline size_t baton__host_row(const baton__host_t *host)
{
    return ((size_t)host->count + 3) / 4 * 4;
}

/* Returns the credit that `receiver` has granted `sender`. */
static inline baton__credit_t *baton__host_credit(const baton__host_t *host,
                                                  int receiver, int sender)
{
    return &host->credits[(size_t)receiver * baton__host_row(host) +
                          (size_t)sender];
}

/* Called when this process loses the process `other`, for any reason. Returns
   true if `other` had lost this process before, for example because this
   process was stopped: then only `other` may go on. */
bool baton__host_lose(const baton__host_t *host, int other);

/* True if the process `other` has lost this one. Then data that this process
   has read from the memory of `other` before this call may not be the message
   any more: the application of `other` may have changed its vectors since the
   loss. */
bool baton__host_is_lost_to(const baton__host_t *host, int other);

/* Called by a thread that polls. Moves the thread to another processor if other
   processes of the host poll on the same processor as this thread, and fewer
   processes poll on the other processor. Without this, Linux may leave two
   ranks that yield to each other on one processor for good, while another one
   is idle: Linux does not move threads that have just run, and these two run in
   turn. */
void baton__host_spread(baton__host_t *host);

/* Copies from the memory of process `index`, which may be this one. Returns 0
   or an errno: ESRCH if the process has ended. */
int baton__host_read(const baton__host_t *host, int index, void *target,
                     uint64_t address, size_t bytes);

/* Copies into the memory of another process. Returns 0 or an errno: ESRCH if
   the process has ended. */
int baton__host_write(const baton__host_t *host, int index, uint64_t address,
                      const void *source, size_t bytes);
