/* Doorbells between processes of one host: a process that waits sleeps on a
   descriptor, and a peer that has put something into its ring wakes it.

   Each process has its state in shared memory: whether it is armed, for what,
   and the name of its socket. A peer that finds it armed sends it a datagram
   and disarms it: so one sleep costs one peer one system call, now and then a
   second one, too, and a process that is not armed costs its peers one load. A
   process that is armed for what is urgent alone is not rung for the rest. One
   whose thread may be back in a moment is given that moment: its bell is due,
   and rung if it still stands then. */
#pragma once

#include <assert.h>
#include <baton/types.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef enum baton__bell {
    BATON__BELL_OFF,
    BATON__BELL_URGENT, /* rings for what is urgent */
    BATON__BELL_SOON,   /* rings for all, in a moment */
    BATON__BELL_ALL
} baton__bell_t;

enum { BATON__STATE_COUNTS = 40 };

/* In shared memory. */
typedef struct baton__peer_state {
    _Alignas(
        64) _Atomic uint32_t armed; /* how often before << 2 | baton__bell_t */
    /* Written before the processes meet in open, constant from then on. */
    uint32_t process;
    uint64_t nonce;
    /* Of its inbox (ring.h), unless there are more: a peer that counts a record
       here looks whether it is armed, too. */
    _Atomic uint8_t counts[BATON__STATE_COUNTS];
} baton__peer_state_t;
static_assert(sizeof(baton__peer_state_t) == 64, "one cache line a process");

/* A bell that is due, and what the process's state was. */
typedef struct baton__due {
    int index;
    uint32_t armed;
} baton__due_t;

enum { BATON__BELLS_DUE = 16 };

typedef struct baton__doorbell {
    baton__peer_state_t *states;
    int index; /* of this process's own */
    int socket;
    _Atomic bool rung; /* since it was armed: a ring was taken */
    int due_count;
    uint64_t due_ns; /* since when the first is due */
    baton__due_t due[BATON__BELLS_DUE];
} baton__doorbell_t;

/* The purposes of a process's sockets. */
#define BATON__FOR_DOORBELL "baton-"
#define BATON__FOR_MAPPINGS "baton-map-"

/* The address of a process's socket for one purpose: in the abstract namespace,
   where a name may have any bytes and ends with its process. */
socklen_t baton__peer_address(const baton__peer_state_t *state,
                              const char *purpose, struct sockaddr_un *address);

/* Opens the socket of process `index`. BATON_ERR_SYSTEM. */
baton_status_t baton__doorbell_open(baton__doorbell_t *doorbell,
                                    baton__peer_state_t *states, int index);
void baton__doorbell_close(baton__doorbell_t *doorbell);

/* Wakes process `index` if it is armed for this. Call it after something was
   put into its ring. */
void baton__doorbell_ring(baton__doorbell_t *doorbell, int index, bool urgent);

/* The same, whatever it is armed for, and at once. Any thread. */
void baton__doorbell_ring_now(const baton__doorbell_t *doorbell, int index);

/* Whether a process that has messages in motion polls now: it is armed for
   nothing, or still for what is urgent (see disarm). */
static inline bool baton__doorbell_polls(const baton__peer_state_t *state)
{
    return atomic_load_explicit(&state->armed, memory_order_relaxed) % 4 <=
           BATON__BELL_URGENT;
}

/* What is to be done about bells that are due. */
typedef enum baton__due_ring {
    BATON__DUE_LATER, /* ring them if the moment has passed: in each poll */
    BATON__DUE_WAIT,  /* wait until it has, or all are back: nobody will poll */
    BATON__DUE_NOW    /* ring them: nobody will poll for a while */
} baton__due_ring_t;

void baton__doorbell_ring_due(baton__doorbell_t *doorbell,
                              baton__due_ring_t when);

/* From arm to disarm the first ring makes the socket readable; that for what is
   urgent may also do so later. The caller polls once more between arm and its
   sleep. */
void baton__doorbell_arm(baton__doorbell_t *doorbell, baton__bell_t bell);
void baton__doorbell_disarm(const baton__doorbell_t *doorbell);

/* Takes one ring from the socket; false if there was none. Any thread. */
bool baton__doorbell_drain(baton__doorbell_t *doorbell);
