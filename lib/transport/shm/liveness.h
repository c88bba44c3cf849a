/* Detects that other processes of this host have ended. Each process opens a
   descriptor of itself (pidfd) and sends it to the others. The kernel makes the
   descriptor readable when the process has ended, however it ended and whatever
   children it leaves behind. Because the descriptor is sent, and not opened by
   the process's number, this works between PID namespaces, too.

   A process that is stopped, or busy for long, has not ended. */
#pragma once

#include "transport/shm/doorbell.h"

#include <sys/types.h>

/* The number of datagrams that may be sent to a socket before it is read: the
   lowest value that net.unix.max_dgram_qlen is known to have. */
enum { BATON__LIVENESS_ROUND = 8 };

typedef struct baton__liveness {
    /* an epoll descriptor, readable when a watched process has ended; -1: no
       process is watched */
    int epoll;
    int count;
    /* 0, or the errno of the failure because of which a process is not
       watched */
    int error;
    int *descriptors; /* each process's pidfd; -1 if it was not received */
    /* baton__liveness_drain sets `ended` and `any_ended`, from any thread. Its
       release store to `any_ended` comes last, and pairs with the exchange in
       baton__liveness_next. */
    _Atomic bool *ended; /* indexed by process */
    _Atomic bool any_ended;
} baton__liveness_t;

/* Returns a descriptor that becomes readable when the process ends. On failure
   returns -1 and sets errno. */
int baton__liveness_process(pid_t process);

/* Prepares to watch `count` processes, of which none is watched yet. Without
   pidfds (Linux before 5.3, or forbidden by a sandbox) no process is ever
   watched. Returns BATON_ERR_NO_MEMORY if there is no memory. */
baton_status_t baton__liveness_open(baton__liveness_t *self, int count);
void baton__liveness_close(baton__liveness_t *self);

/* The processes exchange their descriptors in rounds. Each process sends its
   own descriptor to up to BATON__LIVENESS_ROUND others. After all have sent,
   each process takes the descriptors that were sent to it. After all have done
   so, the next round begins. The doorbells' sockets carry the descriptors, so
   no process may wake another by its doorbell meanwhile. */
void baton__liveness_send(baton__liveness_t *self,
                          const baton__doorbell_t *doorbell, int to);
void baton__liveness_take(baton__liveness_t *self,
                          const baton__doorbell_t *doorbell);

/* Returns true if all processes except `index` are watched; called after the
   last round. */
bool baton__liveness_is_complete(const baton__liveness_t *self, int index);

/* Records which processes have ended, for baton__liveness_next. Afterwards
   `epoll` is no longer readable. Any thread may call this. */
void baton__liveness_drain(baton__liveness_t *self);

/* Returns a process that has ended and was not returned before; or -1. */
int baton__liveness_next(baton__liveness_t *self);
