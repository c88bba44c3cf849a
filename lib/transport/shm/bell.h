/* Bells between processes of one host: a process that waits sleeps on a
   descriptor, and a peer that has put something in its ring wakes it.

   Each process has a line in shared memory: whether it is armed, and what its
   socket is called. A peer that finds it armed disarms it and sends it a
   datagram: so one sleep costs one peer one system call, and a process that is
   awake costs its peers one load. */
#ifndef BATON_TRANSPORT_SHM_BELL_H
#define BATON_TRANSPORT_SHM_BELL_H

#include <assert.h>
#include <baton/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In shared memory. Peers read it with all that they send, and while nobody
   sleeps nobody writes it. */
typedef struct baton__bell_line {
    _Alignas(64) _Atomic uint32_t armed;
    /* Written before the processes meet in open, constant from then on. */
    uint32_t process;
    uint64_t nonce;
    uint64_t network; /* inode of its network namespace; 0: unknown */
} baton__bell_line_t;
static_assert(sizeof(baton__bell_line_t) == 64, "one cache line a process");

typedef struct baton__bell {
    baton__bell_line_t *lines;
    int index; /* of this process's own */
    int socket;
} baton__bell_t;

/* Opens the socket of line `index`. BATON_ERR_SYSTEM. */
baton_status_t baton__bell_open(baton__bell_t *bell, baton__bell_line_t *lines,
                                int index);
void baton__bell_close(baton__bell_t *bell);

/* After all have opened: whether the two can ring each other. They can not from
   different network namespaces, such as two containers on a host. */
bool baton__bell_reaches(const baton__bell_t *bell, int index);

/* Call after something was put where process `index` looks. False: that process
   is gone. */
bool baton__bell_ring(const baton__bell_t *bell, int index);

/* From now on the first ring makes the socket readable. The caller looks once
   more after this before it sleeps. */
void baton__bell_arm(const baton__bell_t *bell);
void baton__bell_disarm(const baton__bell_t *bell);

/* Takes one ring off the socket; any thread. */
void baton__bell_drain(const baton__bell_t *bell);

#endif
