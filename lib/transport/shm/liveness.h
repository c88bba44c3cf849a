/* Whether the other processes of this host still live. Each opens a descriptor
   of itself (pidfd) and sends it to the others: the kernel makes it readable
   when the process has ended, however it ended and whatever children it leaves
   behind. Passed on like this it is good between PID namespaces, too.

   A process that is stopped, or busy for long, lives. */
#pragma once

#include "transport/shm/doorbell.h"

#include <sys/types.h>

/* Sends to one socket that no receive is needed for: the least that
   net.unix.max_dgram_qlen is known to be. */
enum { BATON__LIVENESS_ROUND = 8 };

typedef struct baton__liveness {
    int epoll; /* readable when one has ended; -1: none is watched */
    int count;
    int error;        /* why a process is not watched; an errno, or 0 */
    int *descriptors; /* of each process; -1: unknown, or it has ended */
    /* Set by drain, from any thread; the release store of `any_ended` comes
       last, and pairs with the exchange in baton__liveness_next. */
    _Atomic bool *ended; /* of each process */
    _Atomic bool any_ended;
} baton__liveness_t;

/* A descriptor that becomes readable when the process ends; or -1, with errno.
 */
int baton__liveness_process(pid_t process);

/* Opens what watches `count` processes, of which none is watched yet. Without
   pidfds (Linux before 5.3, or forbidden) all of this does nothing.
   BATON_ERR_NO_MEMORY. */
baton_status_t baton__liveness_open(baton__liveness_t *self, int count);
void baton__liveness_close(baton__liveness_t *self);

/* The processes watch each other, in rounds: each sends to up to
   BATON__LIVENESS_ROUND others; when all have sent, each takes what was sent to
   it; when all have taken, the next round begins. Nobody rings meanwhile. */
void baton__liveness_send(baton__liveness_t *self,
                          const baton__doorbell_t *doorbell, int to);
void baton__liveness_take(baton__liveness_t *self,
                          const baton__doorbell_t *doorbell);

/* After the last round: true if all others are watched. */
bool baton__liveness_is_complete(const baton__liveness_t *self, int index);

/* Takes what has made the descriptor readable, for the next poll. Any thread.
 */
void baton__liveness_drain(baton__liveness_t *self);

/* A process that has ended, each once; -1: no other one. */
int baton__liveness_next(baton__liveness_t *self);
