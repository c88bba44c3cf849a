/* Whether the processes of other ranks run. A rank that waits for another one
   asks it, and loses it when it has not answered for BATON_PEER_TIMEOUT_MS:
   because it is stopped, its cable is out, or its host is gone. That is one
   rule for all ranks, on this host or not.

   A thread of each process answers, so that a rank is not lost that computes,
   is in a long call node, or has no progress thread. To ask is to connect to
   its listener; the answer says which ranks it has lost, and then they are lost
   to the rank that asks, too: so a loss is known to all whom it keeps waiting,
   also to those that had no messages with the lost rank. And a rank that was
   stopped for too long learns that the others go on without it, when it waits
   for one of them. The thread vouches for no rank whose driver has been in one
   call of MPI for the timeout: MPI may loop there for good once a rank has
   died. A listener that refuses tells that the process has ended.

   A rank asks only while it waits, and counts only time in which it looks: of
   ranks that a batch system has stopped together nobody is lost. */
#pragma once

#include "transport/shm/doorbell.h"

#include <baton/types.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Where a rank answers; ranks exchange these when a group is made. */
typedef struct baton__answers_place {
    uint64_t key;  /* its answers begin with this */
    uint32_t port; /* in network order; 0 if it does not answer */
} baton__answers_place_t;

typedef struct baton__asked {
    int fd;             /* -1: it is not asked now */
    uint64_t asked_ns;  /* when it was, last */
    uint64_t looked_ns; /* and when this rank looked for its answer */
    uint64_t silent_ns; /* for how long there was none, in all looks; 0: it is
                           not asked, or has answered */
} baton__asked_t;

typedef struct baton__answers {
    int listener; /* -1: this rank neither answers nor asks */
    int rank, size;
    uint64_t timeout_ns; /* 0: none is too long */
    char silent[80];     /* a sentence: it has not answered for so long */
    char inside[80];     /* a sentence: it has been in MPI for so long */
    /* Calls of MPI that the driver has begun, and that have returned. */
    _Atomic uint32_t begun, returned;
    /* The answering thread's: how many had returned when it was asked last, and
       when that was; for how long the same one was seen to go on since. */
    uint32_t seen;
    uint64_t seen_ns, inside_ns;
    baton__answers_place_t *places; /* of all ranks, once they were exchanged */
    baton__asked_t *asked;          /* of all ranks */
    pthread_t thread;
    pthread_mutex_t lock;  /* of the answer */
    unsigned char *answer; /* the key, whether this rank is left out itself, or
                              is in MPI for too long, and a bit for each rank
                              that is lost */
    unsigned char *told;   /* such bits, of what others have answered */
    bool any_told;         /* since it was looked at last */
    const baton__doorbell_t *doorbell; /* of a rank that is asked: it looks in
                                          MPI, too; or NULL */
} baton__answers_t;

typedef enum baton__reply {
    BATON__REPLY_NONE,    /* it has answered, or there is still time */
    BATON__REPLY_LATE,    /* it has not answered for too long */
    BATON__REPLY_INSIDE,  /* it does not come back from MPI */
    BATON__REPLY_REFUSED, /* nobody listens there any more, or it has no way to
                             this rank and is left out itself */
    BATON__REPLY_DISOWNED /* it has lost this rank */
} baton__reply_t;

/* Takes over a listener, and stores the rank's own place, but for the port.
   BATON_ERR_NO_MEMORY, _SYSTEM: no thread. close also after an error. */
baton_status_t baton__answers_open(baton__answers_t *self, int listener,
                                   int rank, int size,
                                   const baton__doorbell_t *doorbell);
void baton__answers_close(baton__answers_t *self);

/* The driver begins a call of MPI, or has returned from one. */
static inline void baton__answers_count(_Atomic uint32_t *calls)
{
    atomic_store_explicit(calls,
                          atomic_load_explicit(calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Waits for no answers any more, and forgets for how long there were none. */
void baton__answers_hang_up(baton__answers_t *self);

/* From now on that rank is told so, and others are; but these do not heed it if
   this rank has no way to others, or was lost by one. */
void baton__answers_lose(baton__answers_t *self, int peer, bool left_out);

/* The first rank from `from` on that another one has lost; -1: none. */
int baton__answers_told(const baton__answers_t *self, int from);

/* Asks a rank at that address, or looks for its answer: to be called now and
   then while it is awaited. */
baton__reply_t baton__answers_ask(baton__answers_t *self, int peer,
                                  const struct sockaddr *to, socklen_t bytes);

/* Asks a rank for the first time, and waits for its answer, but not beyond the
   deadline: true if the address is its own. */
bool baton__answers_prove(baton__answers_t *self, int peer,
                          const struct sockaddr *to, socklen_t bytes,
                          uint64_t deadline_ns);
