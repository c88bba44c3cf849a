/* Finds out whether the processes of other ranks still run. A rank that waits
   for a peer asks the peer, and marks it as lost if it has not answered for
   BATON_PEER_TIMEOUT_MS: then the peer is stopped, its cable is out, or its
   host is down. The rule is the same for ranks on this host and on others.

   A thread of each process answers. So a rank is not lost because it computes,
   is in a long call node, or has no progress thread. To ask is to connect to
   the peer's listener. The answer names the ranks that the peer has lost, and
   the asking rank then loses them, too. So a loss becomes known to all ranks
   that wait because of it, even to those that exchanged no messages with the
   lost rank. A rank that was stopped for too long learns that others go on
   without it when it asks one of them. If the peer's driver has been in one
   call of MPI for the timeout, the answer says so, and the peer is lost: MPI
   may loop for good after a rank has died. A listener that refuses the
   connection shows that the process has ended, unless a firewall may have
   refused it (poll.c).

   A rank asks only while it waits, and counts only time in which it looks for
   answers. So if a batch system stops all ranks together, no rank is lost. */
#pragma once

#include "transport/shm/doorbell.h"

#include <baton/types.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* The port and key of a rank's listener. Ranks exchange them when a group is
   made. */
typedef struct baton__answers_place {
    /* The first bytes of the rank's answers; identifies the rank. */
    uint64_t key;
    uint32_t port; /* in network order; 0 if the rank does not answer */
} baton__answers_place_t;

typedef struct baton__asked {
    /* The connection on which this rank awaits the answer; -1: it awaits no
       answer. */
    int fd;
    uint64_t asked_ns;  /* when the rank was last asked; 0: ask it at once */
    uint64_t looked_ns; /* when this rank last looked for the answer */
    /* Time without an answer, summed over all looks; 0: the rank was not asked,
       or has answered. */
    uint64_t silent_ns;
    uint64_t began_ns; /* when the connection in `fd` was begun */
    /* began_ns of the last question that the rank has answered: the rank's
       process still ran at that time. 0: it has answered none. */
    uint64_t lived_ns;
} baton__asked_t;

typedef struct baton__answers {
    int listener;
    int rank, size;
    uint64_t timeout_ns; /* 0: a silent rank is never lost */
    /* the error text of a rank that has not answered for too long */
    char silent[80];
    /* the error text of a rank that has been in a call of MPI for too long */
    char inside[80];
    /* How many calls of MPI the driver has begun, and how many of these have
       returned. */
    _Atomic uint32_t begun, returned;
    /* The next three fields belong to the answering thread, which detects long
       calls with them. seen_ns is the time at which the thread last looked.
       `seen` is the value that `returned` had then; or, if no call was in
       progress, a value that `returned` did not have, so that no later call
       seems to be the one seen then. inside_ns is the time for which the thread
       has seen the present call in progress. */
    uint32_t seen;
    uint64_t seen_ns, inside_ns;
    /* The places of all ranks, by rank. They are set after the ranks have
       exchanged them. */
    baton__answers_place_t *places;
    baton__asked_t *asked; /* by rank: the state of the question to the rank */
    pthread_t thread;
    pthread_mutex_t lock; /* protects `answer` */
    /* The answer: this rank's key, a byte of flags, and a bit for each lost
       rank. The flag LEFT_OUT means that this rank may itself be the one that
       is cut off, and INSIDE that its driver has been in one call of MPI for
       too long. */
    unsigned char *answer;
    /* A bit for each rank that others have reported as lost. */
    unsigned char *lost;
    bool any_lost; /* a bit of `lost` was set and is not handled yet */
    /* Wakes this rank's driver when the rank is asked, since messages may wait
       in MPI; or NULL. */
    const baton__doorbell_t *doorbell;
} baton__answers_t;

typedef enum baton__reply {
    BATON__REPLY_NONE,
    BATON__REPLY_LATE,
    /* The peer's driver has been in one call of MPI for too long. */
    BATON__REPLY_INSIDE,
    /* No process listens at the peer's address any more; or the peer has lost
       this rank, but the peer may itself be the one that is cut off. */
    BATON__REPLY_REFUSED,
    BATON__REPLY_DISOWNED /* the peer has lost this rank */
} baton__reply_t;

/* Takes over a listener and starts the answering thread. Stores this rank's key
   in its place; the caller stores the port there. Returns BATON_ERR_NO_MEMORY,
   or BATON_ERR_SYSTEM if no thread can be started. Call baton__answers_close
   after an error, too. */
baton_status_t baton__answers_open(baton__answers_t *self, int listener,
                                   int rank, int size,
                                   const baton__doorbell_t *doorbell);
void baton__answers_close(baton__answers_t *self);

/* Counts one more call of MPI that the driver has begun, or that has returned.
   The order of the store is for baton__net_enter. */
static inline void baton__answers_count(_Atomic uint32_t *calls)
{
    atomic_store_explicit(calls,
                          atomic_load_explicit(calls, memory_order_relaxed) + 1,
                          memory_order_seq_cst);
}

/* True if the driver is in a call of MPI. `returned` is read first: if `begun`
   was the same afterwards, all calls had returned when it was read. */
static inline bool baton__answers_is_calling(const baton__answers_t *self)
{
    uint32_t returned =
        atomic_load_explicit(&self->returned, memory_order_seq_cst);
    return atomic_load_explicit(&self->begun, memory_order_seq_cst) != returned;
}

/* Closes the connections that await answers, and resets the times of
   silence. */
void baton__answers_hang_up(baton__answers_t *self);

/* Adds a peer to the lost ranks that this rank's answers name. If the peer
   asks, it learns that this rank has lost it. Other ranks that ask lose the
   peer, too, unless `left_out` was true in this or an earlier call. The caller
   sets `left_out` if this rank may itself be the one that is cut off. */
void baton__answers_lose(baton__answers_t *self, int peer, bool left_out);

/* Returns the first rank, from `from` on, that another rank has reported as
   lost; -1 if there is none. */
int baton__answers_next_lost(const baton__answers_t *self, int from);

/* Asks the rank `peer`, whose listener is at the address `to`; or, if it was
   asked and has not answered, looks for its answer. Call this again and again
   while this rank waits for `peer`. */
baton__reply_t baton__answers_ask(baton__answers_t *self, int peer,
                                  const struct sockaddr *to, socklen_t bytes);

/* Returns a time at which the peer's process still ran; 0 if it has answered no
   question. */
static inline uint64_t baton__answers_lived_at(const baton__answers_t *self,
                                               int peer)
{
    return self->asked == NULL ? 0 : self->asked[peer].lived_ns;
}

/* Connects to the address `to` for the first time, asks whether the rank `peer`
   is there, and waits for the answer until deadline_ns. Returns true if that
   rank has answered. */
bool baton__answers_prove(baton__answers_t *self, int peer,
                          const struct sockaddr *to, socklen_t bytes,
                          uint64_t deadline_ns);
