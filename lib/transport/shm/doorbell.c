/* Doorbells; see doorbell.h. */
#include "transport/shm/doorbell.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "transport/shm/share.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    /* A process with BATON__BELL_SOON is woken only after this delay. The delay
       is far longer than such a process needs until its next poll, and far
       shorter than a wake-up takes. */
    MOMENT_NS = 2000
};

#define BELL UINT32_C(3) /* the bits of `armed` that hold a baton__bell_t */

socklen_t baton__peer_address(const baton__peer_state_t *state,
                              const char *purpose, struct sockaddr_un *address)
{
    char *name = address->sun_path + 1;
    size_t length = strlen(purpose) + 1;
    address->sun_family = AF_UNIX;
    address->sun_path[0] = '\0';
    memcpy(name, purpose, length);
    name += length;
    memcpy(name, &state->process, sizeof state->process);
    name += sizeof state->process;
    memcpy(name, &state->nonce, sizeof state->nonce);
    name += sizeof state->nonce;
    return (socklen_t)(name - (char *)address);
}

baton_status_t baton__doorbell_open(baton__doorbell_t *doorbell,
                                    baton__peer_state_t *states, int index)
{
    baton__peer_state_t *own = &states[index];
    struct sockaddr_un address;
    own->process = (uint32_t)getpid();
    own->nonce = baton__share_random();
    socklen_t bytes = baton__peer_address(own, BATON__FOR_DOORBELL, &address);
    doorbell->states = states;
    doorbell->index = index;
    doorbell->socket = baton__share_bind(&address, bytes);
    return doorbell->socket >= 0
               ? BATON_OK
               : baton__error(BATON_ERR_SYSTEM, "doorbell: socket or bind: %s",
                              baton__errno_text(errno));
}

void baton__doorbell_close(baton__doorbell_t *doorbell)
{
    baton__descriptor_close(&doorbell->socket);
}

/* Orders this rank's stores before its next load. The thread sanitizer does not
   know fences, so in its builds a read-modify-write that changes nothing takes
   the place of the fence. */
static void fence(baton__peer_state_t *state)
{
#if defined(__SANITIZE_THREAD__)
    atomic_fetch_add_explicit(&state->armed, 0, memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Wakes the process, if its state still has the value `armed`. The process is
   disarmed only after the datagram was sent: if the caller is killed or stopped
   in between, the process has been woken all the same. Until the process is
   disarmed, other peers may wake it, too. If the process has armed anew
   meanwhile, the counter in its state differs from that in `armed`, and the
   process stays armed. */
static void doorbell_wake(const baton__doorbell_t *doorbell, int index,
                          uint32_t armed)
{
    baton__peer_state_t *state = &doorbell->states[index];
    struct sockaddr_un address;
    if (atomic_load_explicit(&state->armed, memory_order_relaxed) != armed) {
        return;
    }
    socklen_t bytes = baton__peer_address(state, BATON__FOR_DOORBELL, &address);
    /* EAGAIN means that the socket of the process is full of datagrams, and so
       the process can read it. */
    (void)!sendto(doorbell->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (struct sockaddr *)&address, bytes);
    (void)atomic_compare_exchange_strong_explicit(
        &state->armed, &armed, armed & ~BELL, memory_order_relaxed,
        memory_order_relaxed);
}

static bool doorbell_is_due(const baton__doorbell_t *doorbell, int index,
                            uint32_t armed)
{
    for (int i = 0; i < doorbell->due_count; i++) {
        if (doorbell->due[i].index == index &&
            doorbell->due[i].armed == armed) {
            return true;
        }
    }
    return false;
}

/* Either the load below sees the value that baton__doorbell_arm has stored, or
   the poll that the process makes after arming sees the record that was put
   into its ring: both sides have a full fence between store and load. */
void baton__doorbell_ring(baton__doorbell_t *doorbell, int index, bool urgent)
{
    baton__peer_state_t *state = &doorbell->states[index];
    fence(state);
    uint32_t armed = atomic_load_explicit(&state->armed, memory_order_relaxed);
    uint32_t bell = armed & BELL;
    if (bell == BATON__BELL_OFF || (bell == BATON__BELL_URGENT && !urgent)) {
        return;
    }
    if (bell == BATON__BELL_SOON && doorbell->due_count < BATON__BELLS_DUE) {
        if (doorbell->due_count == 0) {
            doorbell->due_ns = baton__clock_ns();
        }
        if (!doorbell_is_due(doorbell, index, armed)) {
            doorbell->due[doorbell->due_count++] = (baton__due_t){index, armed};
        }
        return;
    }
    doorbell_wake(doorbell, index, armed);
}

void baton__doorbell_ring_now(const baton__doorbell_t *doorbell, int index)
{
    baton__peer_state_t *state = &doorbell->states[index];
    fence(state);
    uint32_t armed = atomic_load_explicit(&state->armed, memory_order_relaxed);
    if ((armed & BELL) != BATON__BELL_OFF) {
        doorbell_wake(doorbell, index, armed);
    }
}

/* Drops the delayed bells of processes whose `armed` has changed since. Such a
   process has polled, and so finds its messages without a bell, or another peer
   has woken it. */
static void drop_returned(baton__doorbell_t *doorbell)
{
    int left = 0;
    for (int i = 0; i < doorbell->due_count; i++) {
        baton__due_t due = doorbell->due[i];
        if (atomic_load_explicit(&doorbell->states[due.index].armed,
                                 memory_order_relaxed) == due.armed) {
            doorbell->due[left++] = due;
        }
    }
    doorbell->due_count = left;
}

void baton__doorbell_ring_due(baton__doorbell_t *doorbell,
                              baton__due_ring_t when)
{
    bool past = when == BATON__DUE_NOW;
    do {
        drop_returned(doorbell);
        past = past || doorbell->due_count == 0 ||
               baton__clock_ns() - doorbell->due_ns >= MOMENT_NS;
    } while (when == BATON__DUE_WAIT && !past);
    while (past && doorbell->due_count > 0) {
        const baton__due_t *due = &doorbell->due[--doorbell->due_count];
        doorbell_wake(doorbell, due->index, due->armed);
    }
}

void baton__doorbell_arm(baton__doorbell_t *doorbell, baton__bell_t bell)
{
    baton__peer_state_t *own = &doorbell->states[doorbell->index];
    uint32_t armed = atomic_load_explicit(&own->armed, memory_order_relaxed);
    bool rung = atomic_load_explicit(&doorbell->rung, memory_order_relaxed);
    if (bell == BATON__BELL_URGENT && (armed & BELL) == bell && !rung) {
        return; /* baton__doorbell_disarm has left this process armed */
    }
    /* The peer that rang may not have disarmed this process yet. The new count,
       below, keeps it from doing so later. */
    if (rung) {
        atomic_store_explicit(&doorbell->rung, false, memory_order_relaxed);
    }
    atomic_store_explicit(&own->armed, (armed | BELL) + 1 + bell,
                          memory_order_relaxed);
    fence(own);
}

void baton__doorbell_disarm(const baton__doorbell_t *doorbell)
{
    baton__peer_state_t *own = &doorbell->states[doorbell->index];
    /* If the process is armed for urgent messages alone, it stays armed: such
       messages are rare, and so a loop of short epochs writes nothing to this
       cache line, which the peers read. A datagram that comes too late only
       causes a spurious wake-up. */
    uint32_t armed = atomic_load_explicit(&own->armed, memory_order_relaxed);
    if ((armed & BELL) > BATON__BELL_URGENT) {
        atomic_store_explicit(&own->armed, armed & ~BELL, memory_order_relaxed);
    }
}

bool baton__doorbell_drain(baton__doorbell_t *doorbell)
{
    char byte;
    bool rung = recv(doorbell->socket, &byte, sizeof byte, MSG_DONTWAIT) > 0;
    if (rung) {
        atomic_store_explicit(&doorbell->rung, true, memory_order_relaxed);
    }
    return rung;
}
