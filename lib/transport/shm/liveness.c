/* Detects processes that have ended; see liveness.h. */
#include "transport/shm/liveness.h"

#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "transport/shm/share.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The message that carries a process's descriptor. `nonce` is the sender's from
   shared memory, which only processes of the group on this host know, and
   `index` is the sender's index among them. */
typedef struct introduction {
    uint64_t nonce;
    uint32_t index;
} introduction_t;

int baton__liveness_process(pid_t process)
{
    errno = ENOSYS;
#ifdef SYS_pidfd_open
    return baton__descriptor_move((int)syscall(SYS_pidfd_open, process, 0));
#else
    return -1;
#endif
}

baton_status_t baton__liveness_open(baton__liveness_t *self, int count)
{
    size_t size = (size_t)count;
    *self = (baton__liveness_t){
        .epoll = baton__descriptor_move(epoll_create1(EPOLL_CLOEXEC)),
        .count = count,
        .descriptors = baton__alloc(size, sizeof *self->descriptors),
        .ended = baton__alloc(size, sizeof *self->ended)};
    self->error = self->epoll < 0 ? errno : 0;
    if (self->descriptors == NULL || self->ended == NULL) {
        baton__liveness_close(self);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "liveness: no memory for %d processes", count);
    }
    for (int i = 0; i < count; i++) {
        self->descriptors[i] = -1;
    }
    return BATON_OK;
}

void baton__liveness_close(baton__liveness_t *self)
{
    for (int i = 0; self->descriptors != NULL && i < self->count; i++) {
        baton__descriptor_close(&self->descriptors[i]);
    }
    baton__descriptor_close(&self->epoll);
    baton__free(self->descriptors);
    baton__free(self->ended);
    *self = (baton__liveness_t){.epoll = -1};
}

/* ---- introductions ----------------------------------------------------- */

void baton__liveness_send(baton__liveness_t *self,
                          const baton__doorbell_t *doorbell, int to)
{
    const baton__peer_state_t *states = doorbell->states;
    const introduction_t introduction = {.nonce = states[doorbell->index].nonce,
                                         .index = (uint32_t)doorbell->index};
    struct sockaddr_un address;
    socklen_t bytes =
        baton__peer_address(&states[to], BATON__FOR_DOORBELL, &address);
    /* A new descriptor is opened for each receiver: Linux lets no more than 50
       epolls of epolls watch one descriptor. */
    int own = baton__liveness_process(getpid());
    if (own < 0 ||
        !baton__share_send(doorbell->socket, &address, bytes, &introduction,
                           sizeof introduction, own)) {
        self->error = errno; /* the receiver then lacks a descriptor */
    }
    baton__descriptor_close(&own);
}

void baton__liveness_take(baton__liveness_t *self,
                          const baton__doorbell_t *doorbell)
{
    introduction_t from;
    int fd = -1;
    while (baton__share_receive(doorbell->socket, &from, sizeof from, &fd)) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET,
                                    .data.u32 = from.index};
        if (fd >= 0 && from.index < (uint32_t)self->count &&
            from.nonce == doorbell->states[from.index].nonce &&
            self->descriptors[from.index] < 0 &&
            epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) == 0) {
            self->descriptors[from.index] = fd;
        } else {
            self->error = self->error == 0 ? errno : self->error;
            baton__descriptor_close(&fd);
        }
    }
}

bool baton__liveness_is_complete(const baton__liveness_t *self, int index)
{
    bool complete = true;
    for (int i = 0; i < self->count; i++) {
        complete = complete && (i == index || self->descriptors[i] >= 0);
    }
    return complete;
}

/* ---- ends -------------------------------------------------------------- */

void baton__liveness_drain(baton__liveness_t *self)
{
    struct epoll_event events[16];
    int count;
    if (self->epoll < 0) {
        return;
    }
    do {
        count = epoll_wait(self->epoll, events, 16, 0);
        for (int i = 0; i < count; i++) {
            atomic_store_explicit(&self->ended[events[i].data.u32], true,
                                  memory_order_relaxed);
        }
        if (count > 0) {
            atomic_store_explicit(&self->any_ended, true, memory_order_release);
        }
    } while (count == 16);
}

int baton__liveness_next(baton__liveness_t *self)
{
    if (!atomic_load_explicit(&self->any_ended, memory_order_relaxed) ||
        !atomic_exchange_explicit(&self->any_ended, false,
                                  memory_order_acquire)) {
        return -1;
    }
    for (int i = 0; i < self->count; i++) {
        if (atomic_exchange_explicit(&self->ended[i], false,
                                     memory_order_acquire)) {
            /* Other processes may have ended, too, so the next call must look
               again. This is an exchange because a store would end the release
               sequence that is headed by baton__liveness_drain's store to
               `any_ended`. */
            (void)atomic_exchange_explicit(&self->any_ended, true,
                                           memory_order_acq_rel);
            return i;
        }
    }
    return -1;
}
