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

    /* A descriptor that becomes readable when a peer sends to this rank while
       it rests; -1: none. hush() reads it empty, from any thread. */
    int (*descriptor)(void *endpoint);
    void (*hush)(void *endpoint);

    /* rest(): this rank is about to stop polling. Poll some times after it
       before sleeping, for what came in between. Returns for how many
       microseconds at most it may sleep then, BATON_SLEEP_FOREVER if whatever
       moves a message that is in flight here rings. awake(): it polls again. */
    uint32_t (*rest)(void *endpoint);
    void (*awake)(void *endpoint);

    /* Frees the endpoint. Nothing is in flight. */
    void (*close)(void *endpoint);

    uint32_t max_tag;   /* largest tag */
    size_t max_bytes;   /* largest message */
    size_t eager_bytes; /* up to here a send completes without its receiver, and
                           one wake-up is enough to receive it */
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
