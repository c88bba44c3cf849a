/* Doorbells; see doorbell.h. */
#include "transport/shm/doorbell.h"

#include "base/error.h"
#include "transport/shm/share.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

socklen_t baton__peer_address(const baton__peer_state_t *state,
                              const char *prefix, struct sockaddr_un *address)
{
    char *name = address->sun_path + 1;
    size_t length = strlen(prefix) + 1;
    address->sun_family = AF_UNIX;
    address->sun_path[0] = '\0';
    memcpy(name, prefix, length);
    name += length;
    memcpy(name, &state->process, sizeof state->process);
    name += sizeof state->process;
    memcpy(name, &state->nonce, sizeof state->nonce);
    name += sizeof state->nonce;
    return (socklen_t)(name - (char *)address);
}

static socklen_t address_of(const baton__peer_state_t *state,
                            struct sockaddr_un *address)
{
    return baton__peer_address(state, "baton-", address);
}

static baton_status_t system_error(baton__doorbell_t *doorbell,
                                   const char *what)
{
    baton_status_t status = baton__error(BATON_ERR_SYSTEM, "doorbell: %s: %s",
                                         what, strerror(errno));
    baton__doorbell_close(doorbell);
    return status;
}

baton_status_t baton__doorbell_open(baton__doorbell_t *doorbell,
                                    baton__peer_state_t *states, int index)
{
    doorbell->states = states;
    doorbell->index = index;
    doorbell->socket =
        socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (doorbell->socket < 0) {
        return system_error(doorbell, "socket");
    }
    baton__peer_state_t *own = &states[index];
    own->process = (uint32_t)getpid();
    own->nonce = baton__share_random();
    struct stat network;
    if (stat("/proc/self/ns/net", &network) == 0) {
        own->network = (uint64_t)network.st_ino;
    }
    struct sockaddr_un address;
    socklen_t bytes = address_of(own, &address);
    if (bind(doorbell->socket, (struct sockaddr *)&address, bytes) != 0) {
        return system_error(doorbell, "bind");
    }
    return BATON_OK;
}

void baton__doorbell_close(baton__doorbell_t *doorbell)
{
    if (doorbell->socket >= 0) {
        (void)close(doorbell->socket);
    }
    doorbell->socket = -1;
}

bool baton__doorbell_reaches(const baton__doorbell_t *doorbell, int index)
{
    return doorbell->states[index].network ==
           doorbell->states[doorbell->index].network;
}

/* Orders this rank's stores before its next load. The thread sanitizer knows no
   fences, so there a read-modify-write that changes nothing takes its place. */
static void fence(baton__peer_state_t *state)
{
#if defined(__SANITIZE_THREAD__)
    atomic_fetch_add_explicit(&state->armed, 0, memory_order_seq_cst);
#else
    (void)state;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Either this load sees what arm() stored, or the poll after arm() sees what
   was sent: both sides have a full fence between store and load. */
bool baton__doorbell_ring(const baton__doorbell_t *doorbell, int index,
                          bool urgent)
{
    baton__peer_state_t *state = &doorbell->states[index];
    fence(state);
    uint32_t bell = atomic_load_explicit(&state->armed, memory_order_relaxed);
    if (bell == BATON__BELL_OFF || (bell == BATON__BELL_URGENT && !urgent) ||
        atomic_exchange_explicit(&state->armed, BATON__BELL_OFF,
                                 memory_order_relaxed) == BATON__BELL_OFF) {
        return true;
    }
    struct sockaddr_un address;
    socklen_t bytes = address_of(state, &address);
    /* After EAGAIN the socket is readable already. */
    return sendto(doorbell->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (struct sockaddr *)&address, bytes) >= 0 ||
           errno != ECONNREFUSED;
}

void baton__doorbell_arm(const baton__doorbell_t *doorbell, baton__bell_t bell)
{
    baton__peer_state_t *own = &doorbell->states[doorbell->index];
    atomic_store_explicit(&own->armed, bell, memory_order_relaxed);
    fence(own);
}

void baton__doorbell_disarm(const baton__doorbell_t *doorbell)
{
    baton__peer_state_t *own = &doorbell->states[doorbell->index];
    /* Read first, since peers have it cached. A ring that comes too late is
       only a spurious wake-up. */
    if (atomic_load_explicit(&own->armed, memory_order_relaxed) !=
        BATON__BELL_OFF) {
        atomic_store_explicit(&own->armed, BATON__BELL_OFF,
                              memory_order_relaxed);
    }
}

void baton__doorbell_drain(const baton__doorbell_t *doorbell)
{
    char byte;
    (void)!recv(doorbell->socket, &byte, sizeof byte, MSG_DONTWAIT);
}
