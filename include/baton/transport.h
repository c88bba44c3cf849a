/* The transport port: how messages leave a rank and arrive at another. The mpi
   and inproc transports implement it; so can yours
   (tests/support_conformance.h is the suite to pass).

   A transport moves messages; which receive a message belongs to, and whether
   it is still wanted, is the engine's business. A send carries a header, which
   is delivered unread with the message's length. The message arrives when poll
   reports it; then the engine says where its data goes, now or later, or that
   it is not wanted:

       sender                               receiver
       send(header, data) ------------->    poll: ARRIVED (header, bytes)
                                            ... for as long as the engine likes
       poll: SENT         <-------------    accept(target), or drop
                                            poll: RECEIVED

   Short sends don't wait for the receiver: their data goes along with the
   header, and send returns BATON_DONE. So a receiver that is behind holds up
   long messages only, and memory is bounded: by what schedules reserved, and by
   how many short messages a transport keeps for a peer that is behind.

   Rules for an implementation
   - All functions of one endpoint are called by one thread at a time, the
     engine's driver, except drain. None blocks, none computes for long: a long
     copy is made a part at a time, in poll.
   - Messages from one rank to another arrive in the order in which they were
     sent, unless `unordered` is set. (Their data may come in any order.) A rank
     may send to itself.
   - Nothing is refused that was reserved, and nothing allocates but reserve.
   - What is in motion to or from a peer at one time is bounded, however many
     sends are posted. */
#ifndef BATON_TRANSPORT_H
#define BATON_TRANSPORT_H

#include <baton/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a message says of itself, 24 bytes; the engine's. */
typedef struct baton_header {
    uint64_t schedule;    /* whose it is: name and attempt, as one number */
    uint64_t epoch;       /* it belongs to */
    uint32_t tag;         /* which of the schedule's messages between the two */
    uint16_t incarnation; /* of the schedule: how often it was recovered */
    uint16_t kind;
} baton_header_t;

/* A message that has arrived. The transport's; it stays as it is until it is
   accepted or dropped. */
typedef struct baton_message {
    struct baton_message *next; /* the engine's */
    baton_header_t header;
    size_t bytes;
    const void *data; /* where it can be read already; NULL: not yet */
    int peer;         /* the sender */
} baton_message_t;

/* Comes back with an event: whose message it was. */
typedef struct baton_token {
    void *owner;
    uint32_t node;
} baton_token_t;

typedef enum baton_event_kind {
    BATON_EVENT_ARRIVED,  /* message */
    BATON_EVENT_SENT,     /* token, status: the memory is the sender's again */
    BATON_EVENT_RECEIVED, /* token, status: the data is in its target */
    BATON_EVENT_LOST      /* peer, status: nothing comes from there any more,
                             and nothing gets there. Told once; what is in
                             flight to or from the peer ends by itself */
} baton_event_kind_t;

typedef struct baton_event {
    baton_event_kind_t kind;
    baton_status_t status; /* BATON_ERR_CANCELLED of RECEIVED: its sender has
                              withdrawn it */
    baton_token_t token;
    baton_message_t *message;
    int peer;
    const char *detail; /* a static or endpoint-owned sentence, or NULL */
} baton_event_t;

/* Data that a notice can carry, and that every transport sends along with the
   header. */
#define BATON_NOTICE_BYTES 256

#define BATON_SLEEP_FOREVER UINT32_MAX

typedef struct baton_transport {
    const char *name;

    /* Room for so many more sends to `peer` that have not ended, and so many
       more messages from it that have arrived and were neither accepted nor
       dropped; negative numbers give it back. BATON_ERR_NO_MEMORY. */
    baton_status_t (*reserve)(void *endpoint, int peer, int64_t sends,
                              int64_t receives);

    /* Posts a send. The memory stays valid until SENT. BATON_DONE: it is free
       already, and no event comes. BATON_OK. Else nothing was posted. */
    baton_status_t (*send)(void *endpoint, baton_token_t token, int peer,
                           const baton_header_t *header, const void *data,
                           size_t bytes);

    /* Sends at most BATON_NOTICE_BYTES that nobody has reserved room for, and
       is done with them. BATON_AGAIN: there is no room now. */
    baton_status_t (*notify)(void *endpoint, int peer,
                             const baton_header_t *header, const void *data,
                             size_t bytes);

    /* Takes back a posted send: true, the memory is the caller's and no event
       comes; the message vanishes at its receiver, unless it was dropped
       there, or its data went along with the header. False: its data moves
       already, and SENT comes without anything else that the engine does. */
    bool (*withdraw)(void *endpoint, baton_token_t token);

    /* Moves on, and stores up to `max` events; returns how many. */
    size_t (*poll)(void *endpoint, baton_event_t *out, size_t max);

    /* Puts a message's data where it belongs: `target` has room for all of its
       bytes. BATON_DONE: it is there, and no event comes. BATON_OK: RECEIVED
       comes. BATON_ERR_CANCELLED: its sender has withdrawn it. In any case the
       message is the transport's again. What has `data` is DONE. */
    baton_status_t (*accept)(void *endpoint, baton_message_t *message,
                             baton_token_t token, void *target);

    /* The message is not wanted. Its send ends as if it were. */
    void (*drop)(void *endpoint, baton_message_t *message);

    /* Descriptors that become readable when something happens to an armed
       endpoint, and now and then for nothing: the k-th, from 0; -1: there are
       no more. drain takes off what makes them readable, from any thread. */
    int (*descriptor)(void *endpoint, int k);
    void (*drain)(void *endpoint);

    /* arm: from now on, until disarm, an event makes a descriptor readable.
       False, and not armed: there is something to poll for. *sleep_us_out: for
       how long at most to sleep, BATON_SLEEP_FOREVER if the descriptors tell
       of all that can happen; else the caller polls now and then. disarm may
       come at any time. */
    bool (*arm)(void *endpoint, uint32_t *sleep_us_out);
    void (*disarm)(void *endpoint);

    /* Frees the endpoint. Nothing is in flight, and what has arrived since is
       lost. */
    void (*close)(void *endpoint);

    bool unordered;
    size_t max_bytes; /* largest message */
    /* A send of up to so many bytes copies its data as it is posted, if there
       is room: what start leaves to others beyond a little. */
    size_t copy_bytes;
    /* Of the job's ranks on this host, and the processors that they may use; 0:
       not known. With more ranks than processors an engine that a group is made
       in gives way sooner. */
    int host_ranks;
    int host_processors;
    /* How many hosts the group's ranks are on, the same on all; 0: not known,
       which counts as one. */
    int hosts;
    /* Commits are verified, as with BATON_VERIFY=1: the ranks have agreed. */
    bool verify;
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
