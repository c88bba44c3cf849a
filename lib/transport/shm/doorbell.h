/* Doorbells between processes of one host: a process that waits sleeps on a
   descriptor, and a peer that has put a record into the process's ring wakes
   it.

   A process that is about to sleep arms itself: it asks its peers to wake it.
   Each process has a state in shared memory: whether it is armed, for which
   messages, and the name of its socket. A peer that finds the process armed
   sends it a datagram and disarms it. So a sleep costs one peer one system
   call, and sometimes a second peer another one. If a process is not armed, its
   peers only make one load. A process that is armed for urgent messages alone
   (notices) is not woken by other messages. If a process is armed with
   BATON__BELL_SOON, its thread may poll again in a moment. A peer delays the
   bell for that moment and drops it if the process polls before. */
#pragma once

#include <assert.h>
#include <baton/types.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef enum baton__bell {
    BATON__BELL_OFF,
    BATON__BELL_URGENT, /* urgent messages wake the process */
    BATON__BELL_SOON,   /* every message wakes the process, after a moment */
    BATON__BELL_ALL     /* every message wakes the process at once */
} baton__bell_t;

enum { BATON__STATE_COUNTS = 40 };

/* The state of a process, in shared memory. */
typedef struct baton__peer_state {
    _Alignas(
        64) _Atomic uint32_t armed; /* count of armings << 2 | baton__bell_t */
    /* `process` and `nonce` are written while the group is opened, before other
       processes read them, and are constant from then on. */
    uint32_t process;
    uint64_t nonce;
    /* The counts of records in the process's inbox (ring.h), unless the host
       has more processes than BATON__STATE_COUNTS. A peer that counts a record
       reads `armed` next, which is on the same cache line. */
    _Atomic uint8_t counts[BATON__STATE_COUNTS];
} baton__peer_state_t;
static_assert(sizeof(baton__peer_state_t) == 64, "one cache line a process");

/* A delayed bell: the process, and the value that its `armed` had when the bell
   was delayed. */
typedef struct baton__due {
    int index;
    uint32_t armed;
} baton__due_t;

enum { BATON__BELLS_DUE = 16 };

typedef struct baton__doorbell {
    baton__peer_state_t *states;
    int index; /* this process's place in `states` */
    int socket;
    _Atomic bool rung; /* a datagram was received since this process armed */
    int due_count;
    uint64_t due_ns; /* when the first of the delayed bells was added */
    baton__due_t due[BATON__BELLS_DUE];
} baton__doorbell_t;

/* Each process has a socket for doorbells and one for mappings (mappings.h).
   Their addresses begin with these prefixes. */
#define BATON__FOR_DOORBELL "baton-"
#define BATON__FOR_MAPPINGS "baton-map-"

/* Stores the address of a process's socket, which begins with the prefix
   `purpose`, and returns the length of the address. The address is in the
   abstract namespace, where a name may have any bytes and disappears with its
   process. */
socklen_t baton__peer_address(const baton__peer_state_t *state,
                              const char *purpose, struct sockaddr_un *address);

/* Opens the socket of process `index`, which is this process. Returns
   BATON_ERR_SYSTEM on failure. */
baton_status_t baton__doorbell_open(baton__doorbell_t *doorbell,
                                    baton__peer_state_t *states, int index);
void baton__doorbell_close(baton__doorbell_t *doorbell);

/* Wakes process `index`, at once or after a moment, if it is armed for all
   messages, or if the message is `urgent` and the process is armed for urgent
   messages. Call this after a record was put into the process's ring. */
void baton__doorbell_ring(baton__doorbell_t *doorbell, int index, bool urgent);

/* Wakes process `index` at once if it is armed at all. Any thread may call
   this. */
void baton__doorbell_ring_now(const baton__doorbell_t *doorbell, int index);

/* Returns true if a process is polling now. The process must have messages in
   flight: while it polls, it is not armed, or is armed for urgent messages
   alone, as baton__doorbell_disarm may leave it. */
static inline bool baton__doorbell_polls(const baton__peer_state_t *state)
{
    return atomic_load_explicit(&state->armed, memory_order_relaxed) % 4 <=
           BATON__BELL_URGENT;
}

/* When baton__doorbell_ring_due rings the delayed bells. */
typedef enum baton__due_ring {
    /* The bells are rung if the delay has passed, and otherwise stay delayed.
       Each poll does this. */
    BATON__DUE_LATER,
    /* The call waits until the delay has passed, and then rings the bells. It
       returns earlier if no bell is left, because all those processes have
       polled. Used when no thread of this process will poll afterwards. */
    BATON__DUE_WAIT,
    /* The bells are rung at once, because this process will not poll for a
       while. */
    BATON__DUE_NOW
} baton__due_ring_t;

/* Rings the delayed bells of processes that have neither polled nor been woken
   since the bells were delayed. */
void baton__doorbell_ring_due(baton__doorbell_t *doorbell,
                              baton__due_ring_t when);

/* From baton__doorbell_arm to baton__doorbell_disarm the first peer that has a
   message for this process makes the socket readable. Peers with urgent
   messages may do so later, too. The caller must poll once more between arming
   and its sleep. */
void baton__doorbell_arm(baton__doorbell_t *doorbell, baton__bell_t bell);
void baton__doorbell_disarm(const baton__doorbell_t *doorbell);

/* Receives one datagram from the socket. Returns false if there was none. Any
   thread may call this. */
bool baton__doorbell_drain(baton__doorbell_t *doorbell);
