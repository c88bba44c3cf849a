/* The transport port: how messages leave one rank and arrive at another. The
   mpi and inproc transports implement it, and so can yours: a transport should
   pass the suite tests/support/conformance.h.

   A transport only moves messages. The engine decides which receive a message
   belongs to, and whether it is still wanted. A send carries a header, which is
   delivered unchanged with the message's length. The message arrives when poll
   reports it. Then, or later, the engine says where the message's data goes, or
   that the message is not wanted:

       sender                               receiver
       send(header, data) ------------->    poll: ARRIVED (header, bytes)
                                            ... for as long as the engine likes
       poll: SENT         <-------------    accept(target), or drop; or
                                            lend, read it, and drop
                                            poll: RECEIVED (after accept)

   Short sends don't wait for the receiver: their data travels with the header,
   and send returns BATON_DONE. So a late receiver delays long messages only.
   Memory is bounded by the reservations of schedules, and by the number of
   short messages that a transport keeps for a late peer. A short send beyond
   that number ends when the receiver has accepted or dropped the message. The
   sender learns that number from the first message that the peer sends after
   its first reserve. Before that, any short send may end only when the receiver
   has accepted or dropped the message, and the engine sends only notices.

   Rules for an implementation
   - All functions of an endpoint except drain, allocate and release are called
     by one thread at a time, the engine's driver. None may block or compute for
     long: poll makes a long copy in parts.
   - Messages from one rank to another arrive in the order in which they were
     sent, unless `unordered` is set. Their data may arrive in any order. A peer
     is always a rank of the group; a rank may send to itself.
   - Whatever was reserved is accepted. Only reserve, and allocate below,
     allocate memory.
   - The number of transfers in progress to or from a peer is bounded, however
     many sends are posted. */
#ifndef BATON_TRANSPORT_H
#define BATON_TRANSPORT_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A message's header. The engine fills it in and reads it. */
typedef struct baton_header {
    uint64_t schedule; /* the schedule's name and attempt, in one number */
    uint64_t epoch;    /* the message's epoch */
    /* The message's number among the schedule's messages of this kind from this
       sender to this receiver. */
    uint32_t tag;
    uint16_t incarnation; /* number of recoveries of the group so far */
    uint16_t kind;        /* the engine's kind of message */
} baton_header_t;

/* A message that has arrived. The transport owns it, and keeps it unchanged
   until it is accepted or dropped. */
typedef struct baton_message {
    struct baton_message *next; /* link for lists of the engine */
    baton_header_t header;
    size_t bytes;
    const void *data; /* NULL as long as the data can't be read in place */
    int peer;         /* the rank that sent it */
} baton_message_t;

/* Identifies a send or an accepted message in its event. `memory` is where the
   data or the target is; without a device in the engine, transports may ignore
   it. */
typedef struct baton_token {
    void *owner;
    uint32_t node;
    baton_memory_t memory;
    /* For sends: the data was just reduced, and is probably in a cache. */
    bool made;
    bool patient; /* for sends: the send may end late, so don't copy its data */
} baton_token_t;

/* The kinds of events. Each comment begins with the fields of baton_event_t
   that are set. */
typedef enum baton_event_kind {
    BATON_EVENT_ARRIVED,  /* message: it has arrived */
    BATON_EVENT_SENT,     /* token, status: the memory is the sender's again */
    BATON_EVENT_RECEIVED, /* token, status: the data is in its target */
    BATON_EVENT_LOST,     /* peer, status: the peer can no longer be reached.
                             The engine tells other ranks, except with
                             BATON_ERR_STATE: then only this rank loses the
                             peer. With BATON_ERR_TIMEOUT the peer may still
                             live; else it has ended, or left. Reported once, or
                             again if the peer later turns out to have ended;
                             each transfer to or from the peer still ends with
                             its own event */
    BATON_EVENT_MOVED     /* token: a part of a long message was moved, so its
                             epoch has not stalled. Optional */
} baton_event_kind_t;

typedef struct baton_event {
    baton_event_kind_t kind;
    baton_status_t status; /* for RECEIVED, BATON_ERR_CANCELLED when the sender
                              has withdrawn the message */
    baton_token_t token;
    baton_message_t *message;
    int peer;
    const char *detail; /* a sentence about the cause of an error or a loss,
                           static or owned by the endpoint; or NULL */
} baton_event_t;

/* The most data that a notice carries. Every transport can send that much along
   with the header. */
#define BATON_NOTICE_BYTES 256

/* The bytes of a rank's part of the board; see `board` below. */
#define BATON_BOARD_BYTES 86016

#define BATON_SLEEP_FOREVER 4294967295u

/* The events that make a descriptor of an armed endpoint readable. An endpoint
   is armed from arm to disarm (see below), while its engine may sleep. */
typedef enum baton_arm {
    BATON_ARM_NOTICES, /* notices, and messages of peers that use ARM_INSIST: no
                          epoch waits for other messages */
    /* Everything, but the caller may poll again in a moment: peers may delay
       its wake-up until then. */
    BATON_ARM_SOON,
    BATON_ARM_ALL,   /* everything: the caller sleeps */
    BATON_ARM_INSIST /* everything, as with BATON_ARM_ALL; also wakes peers that
                        are armed for notices and have not taken this rank's
                        messages */
} baton_arm_t;

typedef struct baton_transport {
    size_t size; /* size of this struct; a group keeps a copy of it */
    const char *name;

    /* Reserves room for `sends` more sends to `peer` in flight, and for
       `receives` more messages from `peer` that have arrived and were neither
       accepted nor dropped. Negative numbers release room.
       BATON_ERR_NO_MEMORY. */
    baton_status_t (*reserve)(void *endpoint, int peer, int64_t sends,
                              int64_t receives);

    /* Posts a send. BATON_OK: the memory must stay valid and unchanged until
       SENT. BATON_DONE: the memory is free already, and no event follows. On an
       error nothing was posted. */
    baton_status_t (*send)(void *endpoint, baton_token_t token, int peer,
                           const baton_header_t *header, const void *data,
                           size_t bytes);

    /* Sends at most BATON_NOTICE_BYTES without a reservation or event.
       BATON_DONE: sent; the memory is free. BATON_AGAIN: no room now. */
    baton_status_t (*notify)(void *endpoint, int peer,
                             const baton_header_t *header, const void *data,
                             size_t bytes);

    /* Withdraws a posted send. Returns true if the memory is the caller's; then
       no event follows, and the receiver's accept fails with
       BATON_ERR_CANCELLED. Returns false if the data is being transferred; then
       SENT follows in any case. */
    bool (*withdraw)(void *endpoint, baton_token_t token);

    /* Makes progress. Stores up to `max` events, and returns their number. */
    size_t (*poll)(void *endpoint, baton_event_t *out, size_t max);

    /* Moves a message's data to `target`, which has room for all of its bytes;
       the message is the transport's again. BATON_DONE: the data is there, and
       no event follows. This is always so for a target in host memory and a
       message with `data`, or of at most BATON_NOTICE_BYTES. BATON_OK: RECEIVED
       follows. BATON_ERR_CANCELLED: the sender has withdrawn the message. */
    baton_status_t (*accept)(void *endpoint, baton_message_t *message,
                             baton_token_t token, void *target);

    /* Gives an unwanted or lent message back. Its send ends as if the message
       had been accepted. */
    void (*drop)(void *endpoint, baton_message_t *message);

    /* Returns the endpoint's k-th descriptor, counted from 0, or -1 past the
       last; the same until close. A descriptor becomes readable when something
       happens to an armed endpoint; spurious wake-ups are possible. While a
       descriptor is readable, drain is called, from any thread, until none is
       readable. */
    int (*descriptor)(void *endpoint, int k);
    void (*drain)(void *endpoint);

    /* arm: from now on, until disarm, the events that `how` names make a
       descriptor readable. (Other events may do so, too, but wake the engine
       for nothing.) Returns false, and does not arm, if there already is
       something to poll for. *sleep_us_out is the longest time to sleep before
       the next poll: BATON_SLEEP_FOREVER if the descriptors report all that can
       happen. disarm may be called at any time. */
    bool (*arm)(void *endpoint, baton_arm_t how, uint32_t *sleep_us_out);
    void (*disarm)(void *endpoint);

    /* Frees the endpoint, when no send is in flight. Messages that have arrived
       are lost. */
    void (*close)(void *endpoint);

    /* True if messages from one rank to another may arrive in another order
       than they were sent in. */
    bool unordered;
    size_t max_bytes; /* number of bytes of the longest message */
    /* A send of up to this many bytes copies its data when it is posted, if
       there is room and the token is not patient. start leaves most such copies
       to the progress thread. */
    size_t copy_bytes;
    /* The number of the job's ranks on this host; 0 if unknown. With more ranks
       than processors the engine yields sooner. */
    int host_ranks;
    /* The number of processors that these ranks may use or, if another host has
       fewer for its ranks, that number; 0 if unknown. */
    int host_processors;
    /* The number of hosts that the group's ranks are on, the same on all ranks;
       0 if unknown, which counts as one host. */
    int hosts;
    /* With several hosts: the number of consecutive ranks on each host (the
       last host has the remaining ranks); 0 if ranks are placed otherwise, or
       if the placement is unknown. */
    int host_block;
    /* True if commits are verified, as with BATON_VERIFY=1; the same on all
       ranks. */
    bool verify;
    /* True if a notice may fail to make the descriptor readable because its
       sender has made no reservation. While the engine awaits such notices, as
       in a recovery, it polls. */
    bool strangers;

    /* Optional. Makes a message's data readable until the message is dropped,
       which ends its send. From now on the sender can't withdraw the message.
       BATON_DONE: the data can be read now, at message->data, or by `read` if
       message->data is still NULL. BATON_AGAIN: the data can't be read; accept
       or drop the message. BATON_ERR_CANCELLED: the sender has withdrawn the
       message, and it is gone. */
    baton_status_t (*lend)(void *endpoint, baton_message_t *message);

    /* Optional. Copies `bytes` bytes, from `offset` on, of a message that was
       lent without `data`. The engine reads parts that are small enough to stay
       in a cache until they are reduced. BATON_AGAIN: the message can't be read
       any more; accept it, as if it had not been lent, or drop it. With 0 bytes
       the call checks what was read so far, here or at message->data.
       BATON_ERR_TRANSPORT: that may not have been the message, because the
       sender has lost this rank, and may have written its memory since. */
    baton_status_t (*read)(void *endpoint, const baton_message_t *message,
                           size_t offset, size_t bytes, void *target);

    /* Optional, both or neither. post_receive tells the sender of a message
       that has not arrived where to put its data; `header` and `bytes` are the
       message's. If the sender writes the data there itself, RECEIVED follows,
       and the message does not arrive. Otherwise the message arrives as usual,
       and accept ends the post. post_receive returns false if nothing was
       posted. withdraw_receive takes a token, posted or not. It returns true if
       the memory is the caller's, and no event follows. It returns false if the
       memory is being written, and RECEIVED follows. */
    bool (*post_receive)(void *endpoint, baton_token_t token, int peer,
                         const baton_header_t *header, void *target,
                         size_t bytes);
    bool (*withdraw_receive)(void *endpoint, baton_token_t token, int peer);

    /* Optional, both or neither; any thread. Allocates memory that peers on
       this host can read in place, so that messages from it can be lent;
       aligned to 64 bytes, not initialised. Returns NULL if there is no such
       memory, or if ordinary memory is as good. The memory is released before
       the endpoint is closed. */
    void *(*allocate)(void *endpoint, size_t bytes);
    void (*release)(void *endpoint, void *memory);

    /* Optional. True if messages of `bytes` bytes may be sent to this peer from
       device memory, and received from it into device memory, without a copy on
       the host. send and accept then take device addresses, as token.memory
       says. Otherwise, and without this function, messages of device memory are
       staged on the host. */
    bool (*takes_device)(void *endpoint, int peer, size_t bytes);

    /* Optional. True if each poll now copies a part of a long message, and so
       takes long itself. A thread that should return soon leaves such polls to
       the progress thread. */
    bool (*is_copying)(const void *endpoint);

    /* Optional. Wakes peers that are armed with BATON_ARM_SOON and whose
       wake-up was delayed: the caller will not poll for a while. */
    void (*flush)(void *endpoint);

    /* Optional, but needed with several hosts and no host_block. Returns a
       rank's host; hosts count from 0 in the order of their first ranks. */
    int (*host_of)(const void *endpoint, int rank);

    /* Optional. Called when other ranks have found that this peer is lost: the
       endpoint acts as if it had found that itself, and reports LOST with this
       status. `detail` is static. `peer` is the endpoint's own rank if the
       group is closed while others may wait for this rank. */
    void (*lose)(void *endpoint, int peer, baton_status_t status,
                 const char *detail);

    /* Optional. Called about twice a second while this rank waits for the peer.
       Checks whether the peer still runs, and reports LOST if not. */
    void (*ask)(void *endpoint, int peer);

    /* Optional, for error messages. Returns the number of a rank's process, or
       0 if the process is on this host in another PID namespace. Stores the
       name of the rank's host, which is valid until the endpoint is closed. */
    int (*process)(const void *endpoint, int rank, const char **host_out);

    /* Optional. Returns BATON_BOARD_BYTES bytes of memory that belong to
       `rank`, the same as long as the group exists, aligned to 64, and zeros at
       first. Each rank writes its own memory, and reads that of the other ranks
       of its host. NULL if this rank can't read the memory of `rank`, as on
       another host. Without this function nobody learns which rank is late
       (baton/lateness.h). */
    void *(*board)(const void *endpoint, int rank);
    /* Random, and the same on all ranks, so that schedules of different groups
       are told apart in the counts of lateness and in the trace; or 0. */
    uint64_t id;

    /* Optional. Called again and again once all ranks have destroyed the group,
       until it returns true: then close need not wait for any rank. From the
       first call on the endpoint sends nothing more, but takes what the others
       have sent. */
    bool (*leave)(void *endpoint);
} baton_transport_t;

#define BATON_TRANSPORT BATON_INITIALIZER(baton_transport_t)

/* Creates a group from an endpoint, which the group then owns and closes. The
   transport's name must outlive the group. On an error the endpoint is still
   the caller's. BATON_ERR_INVALID: a pointer, function or rank is wrong.
   BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t
baton_group_create(baton_engine_t *engine, const baton_transport_t *transport,
                   void *endpoint, int rank, int size, baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
