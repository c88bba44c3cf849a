/* Whether the other processes of this host still live. Each opens a descriptor
   of every other one (pidfd), which the kernel makes readable when that process
   has ended, however it ended and whatever children it leaves behind.

   A process that is stopped, or busy for long, lives. */
#ifndef BATON_TRANSPORT_SHM_LIVENESS_H
#define BATON_TRANSPORT_SHM_LIVENESS_H

#include "transport/shm/doorbell.h"

typedef struct baton__liveness {
    int epoll; /* readable when one has ended; -1: none is watched */
    int count;
    int *descriptors; /* of each process; -1: unknown, or it has ended */
    /* Set by drain, from any thread; the release store of `any_ended` comes
       last, and pairs with the exchange in baton__liveness_next. */
    _Atomic bool *ended; /* of each process */
    _Atomic bool any_ended;
} baton__liveness_t;

/* Opens what watches `count` processes, of which none is watched yet.
   BATON_ERR_NO_MEMORY. */
baton_status_t baton__liveness_open(baton__liveness_t *self, int count);
void baton__liveness_close(baton__liveness_t *self);

/* Watches all processes but this one, `index`, when all have opened their
   doorbells. False if some can't be watched: without pidfds (Linux before 5.3,
   or forbidden), or in another PID namespace, where their numbers mean other
   processes. */
bool baton__liveness_watch(baton__liveness_t *self,
                           const baton__peer_state_t *states, int index);

/* Takes what has made the descriptor readable, for the next poll. Any thread.
 */
void baton__liveness_drain(baton__liveness_t *self);

/* A process that has ended, each once; -1: no other one. */
int baton__liveness_next(baton__liveness_t *self);

#endif
