/* Whether processes live; see liveness.h. */
#include "transport/shm/liveness.h"

#include "base/alloc.h"
#include "base/error.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_process(uint32_t process)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, process, 0); /* closed by exec */
#else
    (void)process;
    return -1;
#endif
}

static void close_descriptor(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

baton_status_t baton__liveness_open(baton__liveness_t *self, int count)
{
    size_t size = (size_t)count;
    *self = (baton__liveness_t){
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .count = count,
        .descriptors = baton__alloc(size, sizeof *self->descriptors),
        .ended = baton__alloc(size, sizeof *self->ended),
    };
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
        close_descriptor(&self->descriptors[i]);
    }
    close_descriptor(&self->epoll);
    baton__free(self->descriptors);
    baton__free(self->ended);
    *self = (baton__liveness_t){.epoll = -1};
}

/* Watches one process; false if that can't be done. */
static bool watch(baton__liveness_t *self, const baton__peer_state_t *states,
                  int index, int other)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET,
                                .data.u32 = (uint32_t)other};
    int *fd = &self->descriptors[other];
    if (states[index].pid_namespace == 0 ||
        states[index].pid_namespace != states[other].pid_namespace) {
        return false;
    }
    *fd = open_process(states[other].process);
    return *fd >= 0 && epoll_ctl(self->epoll, EPOLL_CTL_ADD, *fd, &event) == 0;
}

bool baton__liveness_watch(baton__liveness_t *self,
                           const baton__peer_state_t *states, int index)
{
    bool all = true;
    for (int i = 0; i < self->count; i++) {
        all = (i == index || watch(self, states, index, i)) && all;
    }
    return all;
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
            /* Look for more. An exchange, as a store could hide what drain
               releases meanwhile. */
            (void)atomic_exchange_explicit(&self->any_ended, true,
                                           memory_order_acq_rel);
            return i;
        }
    }
    return -1;
}
