/* The transport port: how messages leave a rank. The mpi and loop transports
   implement it; so can yours (tests/support_conformance.h is the suite to
   pass).

   Rules for an implementation
   - All functions of one endpoint are called by one thread at a time, the
     engine's driver, except `hush`. None blocks.
   - Messages between two ranks with one tag arrive in the order sent; messages
     of different tags may overtake each other.
   - Between reserve() and its release nothing allocates. */
#ifndef BATON_TRANSPORT_H
#define BATON_TRANSPORT_H

#include <baton/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Comes back with a completion: whose message it was. */
typedef struct baton_token {
    void *owner;
    uint32_t node;
} baton_token_t;

/* A finished message. `bytes`: the size of what arrived (receives), at most the
   posted size unless status is BATON_ERR_MISMATCH. `detail`: a static or
   endpoint-owned sentence when status is an error, else NULL. */
typedef struct baton_completion {
    baton_token_t token;
    baton_status_t status;
    size_t bytes;
    const char *detail;
} baton_completion_t;

#define BATON_SLEEP_FOREVER UINT32_MAX

typedef struct baton_transport {
    const char *name;

    /* Room for `messages` more in flight at once; negative gives it back.
       BATON_ERR_NO_MEMORY. */
    baton_status_t (*reserve)(void *endpoint, int64_t messages);

    /* Posts a message. The memory stays valid until the completion. A send may
       return BATON_DONE instead of BATON_OK: the memory is free already, and no
       completion comes. A failure means that nothing was posted. */
    baton_status_t (*send)(void *endpoint, baton_token_t token, int peer,
                           uint32_t tag, const void *data, size_t bytes);
    baton_status_t (*recv)(void *endpoint, baton_token_t token, int peer,
                           uint32_t tag, void *data, size_t bytes);

    /* Takes back a posted receive: true, and no completion will come; false
       when a message has met it already, and its completion comes. */
    bool (*withdraw)(void *endpoint, baton_token_t token);

    /* Progresses, and stores up to `max` completions; returns how many. A
       message longer than its receive completes it with BATON_ERR_MISMATCH. */
    size_t (*poll)(void *endpoint, baton_completion_t *out, size_t max);

    /* A descriptor that becomes readable when a note is left while this rank
       sleeps, and now and then for nothing; -1: none. hush() takes that off,
       one or all, from any thread. */
    int (*descriptor)(void *endpoint);
    void (*hush)(void *endpoint);

    /* How an engine falls asleep: rest, polls that find nothing, sleep.

       rest(): from now on whoever moves one of this rank's messages leaves a
       note; earlier notes are gone, and sleep() holds no more. Whatever has
       moved before is found by the next poll, and polls go on to find it until
       one returns 0; by 8 polls where a bound is returned. While there is no
       note polls may be cheap. Returns for how many microseconds at most to
       sleep, BATON_SLEEP_FOREVER if all that can move leaves notes.

       sleep(), some time after rest(): false when there is a note: poll again.
       Else the next one makes the descriptor readable, where there is one.

       awake(): polls as ever, no notes; may come at any time. */
    uint32_t (*rest)(void *endpoint);
    bool (*sleep)(void *endpoint);
    void (*awake)(void *endpoint);

    /* Frees the endpoint. Nothing is in flight. */
    void (*close)(void *endpoint);

    uint32_t max_tag;   /* largest tag */
    size_t max_bytes;   /* largest message */
    size_t eager_bytes; /* up to here a send completes without its receiver, and
                           one wake-up is enough to receive it */
    int host_ranks;     /* ranks of the job on this host; 0: not known. With
                           more than processors an engine that a group is made
                           in does not spin, and stays at rest while it steps */
} baton_transport_t;

/* Makes a group of an endpoint, which the group closes when it is destroyed.
   `transport` must outlive the group. On an error the endpoint is still the
   caller's. BATON_ERR_INVALID, _NO_MEMORY. */
BATON_CHECKED baton_status_t
baton_group_create(baton_engine_t *engine, const baton_transport_t *transport,
                   void *endpoint, int rank, int size, baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
