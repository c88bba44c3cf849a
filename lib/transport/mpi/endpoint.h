/* The MPI transport: ranks of one communicator.

   Ranks of one host are near: they pass packets through rings in shared memory
   (shm/), and MPI has no part in it. The others are far: packets are MPI
   messages of a communicator of the group's own, and a rank that sleeps is
   woken over a TCP connection (links.c).

       bytes          to a near rank                  to a far one
       up to 256      in the packet                   in the packet
       up to 64 KiB   in a shm buffer (12 KiB if       behind the packet,
                      each has a processor, or 16      up to 128 KiB
                      from patient senders)
       more           read by the receiver (CMA)      pulled: MPI messages of
                                                      60 KiB (BATON_FAR_PART)

   From 16 KiB on what lies in a segment (shm/segments.h) is read there by a
   near receiver, which can lend it, too. A sum that goes into no buffer, and is
   more than 12 KiB, is written by the sender where a near rank has posted its
   receive (put.c).

   A message that finds no credit or buffer, or whose receiver may not read this
   process's memory, is sent as in the next line; the last way, RTS (packet.h),
   needs nothing but MPI.

   Processes may read each other's memory when a group is made, and not later: a
   process changes its user, say, or enters a sandbox. MPI may have no part in
   the group then. So what was to be read or written goes through the rings, in
   parts (PART, packet.h).

   Credits bound what a receiver has to keep: a send that has one is complete
   when its packet is on its way; without one it is complete when the receiver
   is done with it. So a peer that is behind costs each pair a window of short
   messages, and each send no more than itself.

   What finds no room in a ring, or in MPI, waits in its peer's outbox: sends in
   order, after answers and the parts of sends that were announced. A long copy
   is made a slice at a time, so that no poll takes long. Nothing is polled for
   that is not awaited: with near ranks alone and no data in motion MPI is not
   called at all.

   A peer is lost when its process has ended (shm/liveness.h), its link ends or
   says farewell before this rank closes, it is waited for and does not answer
   (answers.h), MPI refuses to send to it, or MPI_Finalize is called. What was
   in flight with it ends first, with errors, over as many polls as that takes.

   From the bottom up, each file using those before it:

       endpoint.c   records, lists, peers
       far.c        packets and data through MPI; links.c
       pool.c       room for records
       put.c        receives that were posted, whose senders fill them
       send.c       a message on its way to a peer
       receive.c    a message from a peer
       poll.c       polling and sleeping
       meeting.c    what ranks tell each other while they open
       open.c       opening and closing */
#pragma once

#include "base/list.h"
#include "transport/mpi/answers.h"
#include "transport/mpi/links.h"
#include "transport/mpi/packet.h"
#include "transport/shm/host.h"

#include <baton/mpi.h>
#include <baton/transport.h>
#include <sched.h>

enum {
    BATON__MPI_NOTICES = 4, /* in flight to one peer */
    BATON__MPI_PULLS = 4,   /* messages pulled from one peer at a time */
    BATON__MPI_PARTS = 8,   /* MPI messages in motion for one of them */
    /* Sends to one peer that were announced and wait for its answer; beyond
       these, one more is announced every BATON__MPI_PATIENCE_NS. */
    BATON__MPI_ANNOUNCED = 8,
    BATON__MPI_PATIENCE_NS = 20000,
    /* So often an idle rank looks whether one on another host that can't wake
       it asks over MPI whether it lives. */
    BATON__MPI_ASKED_US = 500000,
    BATON__MPI_BODIES = 8,    /* buffers kept for a peer that is behind */
    BATON__MPI_TAGS = 512,    /* of pulled messages */
    BATON__MPI_PACKETS = 16,  /* sends at a time */
    BATON__MPI_POSTED = 8,    /* receives: few buffers stay in cache; */
    BATON__MPI_RECEIVES = 64, /* at most so many behind losses */
    /* A copy up to this long is made when the message is accepted, which may be
       in start; of a longer one each poll makes a slice. */
    BATON__MPI_AT_ONCE_BYTES = 64 * 1024,
    BATON__MPI_SLICE_BYTES = 4 << 20,
    /* Shorter messages out of a segment are copied into buffers, as are those
       of patient senders: on 4 ranks of 2 processors all-to-alls of 64 KiB take
       14 us so, and 20 if blocks of 16 KiB are read; of 256 KiB 62, and 40. */
    BATON__MPI_DIRECT_BYTES = 16 * 1024,
    /* The longest message that is, wherever it lies, if each rank has a
       processor: the receiver's single copy takes no longer then than its half
       of two. On 2 of a Xeon a reduction of 16 KiB takes 2.7 us without buffers
       and 3.9 with them, of 8 KiB 2.3 either way. Where ranks share processors
       the sender's copy saves it a turn. */
    BATON__MPI_OWN_BYTES = 12 * 1024
};

/* ---- what is in flight ------------------------------------------------ */

/* An entry of a peer's outbox: what could not be sent to it at once. */
typedef struct baton__outgoing {
    struct baton__outgoing *next;
    bool answers; /* it is part of a record; else of a send */
} baton__outgoing_t;

BATON__LIST(baton__outbox, baton__outgoing_t)

typedef enum baton__send_state {
    BATON__SEND_FREE,
    BATON__SEND_QUEUED,    /* in the outbox */
    BATON__SEND_ANNOUNCED, /* until its receiver answers */
    BATON__SEND_PULLED,    /* it has, and MPI gets it in a moment */
    BATON__SEND_MOVING,    /* MPI has it */
    BATON__SEND_PUTTING,   /* its data go into a posted receive */
    BATON__SEND_PARTING    /* in the outbox, until all parts are sent */
} baton__send_state_t;

typedef struct baton__send {
    baton__outgoing_t out; /* first, so that one can be cast to the other */
    struct baton__send *next;
    baton_token_t token;
    baton_header_t header;
    const void *data;
    size_t bytes;
    int peer;
    uint32_t id;
    uint32_t generation;
    uint16_t kind;    /* announced as: baton__packet_kind_t */
    bool counted;     /* among its peer's announced ones */
    uint32_t tag;     /* while it is pulled */
    uint32_t asked;   /* receives that the peer has posted then */
    size_t part;      /* bytes of the MPI messages that it is pulled in, */
    size_t moved;     /* bytes that MPI or the peer has got so far, */
    uint32_t parts;   /* and those messages that are in motion */
    uint32_t post;    /* PUTTING, PARTING: which of the peer's, */
    uint32_t posted;  /* its generation, */
    uint64_t address; /* and its target */
    baton__send_state_t state;
} baton__send_t;

BATON__LIST(baton__sends, baton__send_t)

/* A message that has arrived. */
typedef struct baton__record {
    baton__outgoing_t out;      /* first */
    struct baton__record *next; /* in one list at a time */
    baton_message_t message;
    uint16_t kind; /* baton__packet_kind_t */
    uint16_t flags;
    uint16_t answer; /* in the outbox: FIN, CTS or COPY */
    uint32_t id;
    uint32_t generation;
    uint32_t place;
    uint64_t address;
    /* Once it is accepted: */
    baton_token_t token;
    char *target;
    const char *source; /* of an offer: where it can be read; NULL: by CMA */
    size_t copied;      /* or asked for: in MPI messages of `part` bytes, */
    size_t part;
    uint32_t parts; /* of which so many are in motion */
    size_t arrived; /* bytes of them that have come; or of a BODY, in these: */
    uint32_t body_count;
    baton__far_buffer_t *bodies[BATON__BODY_BUFFERS];
    unsigned char data[BATON__SHORT_BYTES];
} baton__record_t;

BATON__LIST(baton__records, baton__record_t)

/* ---- peers ------------------------------------------------------------ */

/* Flow control of the messages with a peer, or of the notices. All counts are
   of the whole life of the group, and wrap. */
typedef struct baton__flow {
    uint32_t sent;
    uint32_t limit; /* how many the peer lets this rank send, as is known */
    /* In the other direction, over MPI: */
    uint32_t granted;  /* how many this rank lets the peer send */
    uint32_t reported; /* and what it was told of that */
} baton__flow_t;

typedef struct baton__peer {
    int near;           /* its number among the near ranks; -1 if far */
    baton__ring_t ring; /* to it, if it is near */
    bool contacted;     /* something was reserved */
    bool listed;        /* among those with an outbox */
    bool lost;
    bool reported; /* and the engine knows */
    bool refused; /* the system lets this rank not copy from or to its memory */
    baton__flow_t messages, notices, bodies; /* the last only if it is far */
    uint32_t announced;            /* sends that wait for its answer */
    uint64_t exceeded_ns;          /* when the limit was last exceeded by one */
    baton__outbox_t outbox;        /* answers and parts, then sends; */
    baton__outgoing_t *last_reply; /* the last of the former, or NULL */
    bool notice_due; /* one has found no room, which parts may have taken */
    struct baton__peer *next_listed;
    uint32_t next_pull;      /* tags */
    uint32_t pulling;        /* messages */
    baton__records_t pulled; /* accepted, to be pulled; */
    baton__records_t parted; /* or in parts, of which more are to come */
    uint64_t lost_ns;        /* when it was lost, */
    const char *detail;      /* why, */
    baton_status_t status;   /* and whether it is known to have ended */
    /* If it is on another host: */
    uint64_t rang_ns;      /* when this rank last rang it, or it was awake */
    uint32_t packets_sent; /* over MPI, so far */
    uint32_t probe;        /* one of these, sent at probe_ns; 0: it is taken */
    uint64_t probe_ns;
    baton__far_buffer_t *kept; /* its share of the buffers */
    baton__record_t *begun;    /* a message whose tail has not come yet */
    uint32_t packets_taken;    /* of those that it has sent */
    bool told, has_told;       /* one the other that it sends no more */
    bool heard;                /* something has come since it was asked */
} baton__peer_t;

/* An MPI message of data: of a send or of a record. */
typedef struct baton__transfer {
    baton__send_t *send;
    baton__record_t *record;
} baton__transfer_t;

/* ---- what goes through MPI -------------------------------------------- */

typedef struct baton__far {
    int peers;        /* on other hosts */
    uint64_t now_ns;  /* of the last poll that found something, or send */
    uint32_t quiet;   /* polls that have found nothing since */
    bool credits_due; /* peers may need to know of some */
    /* Those in motion; there is room for all parts of all messages. */
    MPI_Request *requests;
    baton__transfer_t *transfers;
    size_t part_bytes; /* of the MPI messages in which data are pulled */
    int count;
    int capacity;
    /* Pulled by peers. What this rank answers or announces meanwhile goes
       first: behind their data it would wait until those have been received,
       and the data of the other direction with it. */
    baton__sends_t pulled;
    /* Packets: receives that are posted, in the order posted, and sends. */
    MPI_Request arrivals[BATON__MPI_RECEIVES];
    MPI_Request departures[BATON__MPI_PACKETS];
    baton__far_buffer_t *buffers; /* those of both */
    baton__far_buffer_t *arrived[BATON__MPI_RECEIVES];
    baton__far_buffer_t *added[BATON__MPI_RECEIVES]; /* buffers of their own */
    uint32_t receives;                               /* that there are */
    baton__far_buffer_t *departed[BATON__MPI_PACKETS];
    baton__far_buffer_t *free;            /* to take a body's place */
    baton__far_buffer_t *later;           /* that took a departed one's */
    int destinations[BATON__MPI_PACKETS]; /* of those sends */
    uint32_t arrival, departure; /* the oldest; the place to try first */
    uint32_t packets_unsent;     /* sends of packets that are not complete */
    bool rings_due; /* peers do not know of all packets; see poll.c */
    bool closing;   /* the endpoint is being closed */
    bool cut;       /* this rank has lost all other hosts, by itself */
    baton__links_t links;
    /* Of each rank: its address has been found to lead to its host. It is asked
       of one of each host while the group is made, since one that dies later,
       before it has a link with anybody, could not be told from one whose
       address leads elsewhere. */
    unsigned char *reached;
    /* MPI_Finalize may be called while there is a group. */
    _Atomic int inside;     /* calls that are in MPI */
    _Atomic bool finalized; /* MPI must not be called any more */
    int keyval;
    char detail[MPI_MAX_ERROR_STRING];
} baton__far_t;

/* A rank's, for messages. */
typedef struct baton__process {
    int number;
    char host[36];
    uint64_t pids; /* its PID namespace; 0: unknown */
} baton__process_t;

typedef struct baton__mpi {
    baton_transport_t transport;
    MPI_Comm comm;     /* MPI_COMM_NULL if this rank keeps off MPI */
    MPI_Group members; /* the ranks */
    int rank;
    int size;
    uint32_t window; /* credits of a peer */
    baton__peer_t *peers;
    int *host_of;                /* of each rank: its number */
    baton__process_t *processes; /* of each rank */
    cpu_set_t processors;  /* where this rank could run when it was opened */
    bool reads;            /* near ranks can read each other's memory */
    bool asks;             /* and write into it, and each has a processor */
    bool keeps_off;        /* MPI carries nothing, and needs no communicator */
    size_t put_above;      /* longer messages are written, */
    size_t put_bytes;      /* up to this many bytes; 0: none */
    size_t buffered_bytes; /* the longest message that goes into a buffer */
    baton__host_t host; /* what near ranks share; at least this one is near */

    baton__peer_t *listed; /* peers with an outbox */
    baton__records_t copying;
    baton__sends_t putting;
    struct {
        baton_event_t *out;
        size_t count, max;
    } events; /* that the running poll returns */
    uint32_t polls;
    uint32_t unreported; /* lost peers that the engine does not know of */
    uint32_t first_lost; /* 1 + this rank; 0: none was lost so far */
    char closed[64];     /* of a peer that has lost that, and left for it */
    bool alone;          /* this rank leaves before others */

    /* Pools, whose records do not move in memory; see pool.c. */
    struct baton__slab *slabs;
    baton__send_t **sends; /* by id */
    uint32_t send_count, record_count, in_use;
    baton__send_t *free_sends;
    baton__record_t *free_records;
    int64_t reserved_sends, reserved_records;

    baton__far_t far;
    baton__answers_t answers;
} baton__mpi_t;

/* ---- endpoint.c: records, lists, peers --------------------------------- */

/* Take a record from its pool, NULL if all are in use; and give it back. */
baton__send_t *baton__mpi_take_send(baton__mpi_t *mpi);
void baton__mpi_give_send(baton__mpi_t *mpi, baton__send_t *send);
baton__record_t *baton__mpi_take_record(baton__mpi_t *mpi);
void baton__mpi_give_record(baton__mpi_t *mpi, baton__record_t *record);

static inline void baton__events_add(baton__mpi_t *mpi, baton_event_t event)
{
    mpi->events.out[mpi->events.count++] = event;
}

/* A receive has ended. */
static inline void baton__events_received(baton__mpi_t *mpi,
                                          baton_token_t token,
                                          baton_status_t status,
                                          const char *detail)
{
    baton__events_add(mpi, (baton_event_t){.kind = BATON_EVENT_RECEIVED,
                                           .status = status,
                                           .token = token,
                                           .detail = detail});
}

static inline bool baton__events_are_full(const baton__mpi_t *mpi)
{
    return mpi->events.count == mpi->events.max;
}

/* A part of a message was moved, and more follow. Without room it is not told:
   others are. */
static inline void baton__events_moved(baton__mpi_t *mpi, baton_token_t token)
{
    if (!baton__events_are_full(mpi)) {
        baton__events_add(
            mpi, (baton_event_t){.kind = BATON_EVENT_MOVED, .token = token});
    }
}

/* A send has ended: reports that, and gives its record back. */
void baton__mpi_end_send(baton__mpi_t *mpi, baton__send_t *send,
                         baton_status_t status, const char *detail);

/* Puts the packet into the ring to a peer on this host, and rings its doorbell;
   false if there is no room. */
bool baton__mpi_push_near(baton__mpi_t *mpi, baton__peer_t *peer,
                          const baton__packet_t *packet, const void *data,
                          size_t count);

/* Nothing comes from the peer any more. BATON_ERR_TRANSPORT: its process has
   ended, or it has left. BATON_ERR_TIMEOUT: it may live, as far as is known. */
void baton__mpi_lose(baton__mpi_t *mpi, baton__peer_t *peer,
                     baton_status_t status, const char *detail);

/* The error of a message with a peer: that is lost, or `wrong`. */
baton_status_t baton__mpi_fail_peer(const baton__mpi_t *mpi, int peer,
                                    const char *wrong);

/* Whether a copy from or to the peer's memory has failed with this error as the
   system refuses it; this is remembered. */
bool baton__mpi_is_refused(baton__mpi_t *mpi, baton__peer_t *peer, int error);

/* BATON_OK for MPI_SUCCESS; else BATON_ERR_TRANSPORT with what MPI says. */
baton_status_t baton__mpi_error(const char *call, int code);

/* ---- far.c: through MPI ------------------------------------------------ */

/* The port's: whether MPI takes the message out of device memory, and into it
   (MPIX_Query_cuda_support, BATON_GPU_AWARE_MPI). */
bool baton__mpi_takes_device(void *endpoint, int peer, size_t bytes);

/* True if MPI may be called: not after MPI_Finalize has begun, which is the end
   of all far peers. Each true is followed by a leave. */
bool baton__far_enter(baton__mpi_t *mpi);
void baton__far_leave(baton__mpi_t *mpi);

/* What MPI says about a code; and a peer is lost for that reason. */
const char *baton__far_text(baton__mpi_t *mpi, int code);
void baton__far_fail(baton__mpi_t *mpi, int peer, int code);

/* Sends a packet, with `count` bytes of data in it; false if there is no room.
 */
bool baton__far_push(baton__mpi_t *mpi, baton__peer_t *peer,
                     const baton__packet_t *packet, const void *data,
                     size_t count);

/* Whether the peer may need to know how many credits it has; tells those. */
bool baton__far_owes_credits(const baton__mpi_t *mpi,
                             const baton__peer_t *peer);
void baton__far_report_credits(baton__mpi_t *mpi);

/* Asks a peer over MPI whether it lives, unless MPI still has the last packet
   to it; and answers one. */
void baton__far_ask_peer(baton__mpi_t *mpi, baton__peer_t *peer);
void baton__far_answer(baton__mpi_t *mpi, baton__peer_t *peer);

/* Sends the next parts of a send's data; false if all is complete. */
bool baton__far_send(baton__mpi_t *mpi, baton__send_t *send);

/* Receives the next parts of a record's data. */
void baton__far_receive(baton__mpi_t *mpi, baton__record_t *record);

/* The record keeps what the oldest packet has brought of its body; copies the
   body; and gives its buffers back. */
void baton__far_keep(baton__mpi_t *mpi, baton__record_t *record);
void baton__far_copy_body(const baton__record_t *record, char *target);
void baton__far_give_body(baton__mpi_t *mpi, baton__record_t *record);

/* Sends nothing to a peer that pulls what was withdrawn, and has posted so many
   receives for it. */
void baton__far_send_nothing(baton__mpi_t *mpi, int peer, uint32_t tag,
                             uint32_t parts);

/* Tests the sends of packets that MPI could not complete at once. */
void baton__far_test_packets(baton__mpi_t *mpi);

/* Posts a receive for a packet; returns MPI's code. */
int baton__far_post_arrival(baton__mpi_t *mpi, uint32_t slot);

/* Posts one more if a packet waits in MPI, as all are taken by what lost peers
   have not sent to the end. In MPI. */
void baton__far_add_arrival(baton__mpi_t *mpi);

/* The peer has taken so many of this rank's packets. */
void baton__far_taken(baton__mpi_t *mpi, baton__peer_t *peer, uint32_t taken);

/* Rings each peer that does not know of all packets, but none too often. */
void baton__far_ring_due(baton__mpi_t *mpi);

/* Rings the peers whose MPI may have to be called, so that what this rank waits
   for comes. True if there is such a peer. */
bool baton__far_ask(baton__mpi_t *mpi);

/* Whether receives go on after such an error. In MPI. */
bool baton__far_goes_on(const baton__mpi_t *mpi, int code);

/* All peers on other hosts are lost. */
void baton__far_lose_all(baton__mpi_t *mpi, const char *detail);

/* No transfer is this send's or record's any more, which has ended: its end in
   MPI is reported to nobody. */
void baton__far_forget(baton__far_t *far, const void *ended);

/* Ends what is in motion with a peer that is lost; false if there was no room
   for all events. */
bool baton__far_end(baton__mpi_t *mpi, baton__peer_t *peer);

/* Makes room for the transfers of so many messages. */
baton_status_t baton__far_reserve(baton__mpi_t *mpi, uint32_t messages);

/* Called when something is reserved for the peer for the first time: before
   that, makes room for its bodies; and after it. */
baton_status_t baton__far_reserve_bodies(baton__mpi_t *mpi,
                                         baton__peer_t *peer);
void baton__far_contact(baton__mpi_t *mpi, baton__peer_t *peer);

baton_status_t baton__far_open(baton__mpi_t *mpi);
void baton__far_close(baton__mpi_t *mpi);

/* ---- pool.c: room for records ------------------------------------------ */

baton_status_t baton__mpi_reserve(void *endpoint, int peer, int64_t sends,
                                  int64_t receives);

/* Makes room for the notices of all peers. */
baton_status_t baton__mpi_reserve_notices(baton__mpi_t *mpi);
void baton__mpi_free_pools(baton__mpi_t *mpi);

/* ---- put.c: receives that were posted, whose senders fill them ---------- */

bool baton__mpi_post_receive(void *endpoint, baton_token_t token, int peer,
                             const baton_header_t *header, void *target,
                             size_t bytes);
bool baton__mpi_withdraw_receive(void *endpoint, baton_token_t token, int peer);

/* A message has come for a receive: false if that was not posted. If it was, it
   is no more; but the sender can be asked to write there as if it were. Returns
   false where this rank had better read itself. */
bool baton__mpi_end_post(baton__mpi_t *mpi, const baton_message_t *message,
                         baton_token_t token);
bool baton__mpi_ask_put(baton__mpi_t *mpi, baton__record_t *record);

/* The answer to an offer: begins to write. */
void baton__mpi_take_ask(baton__mpi_t *mpi, baton__send_t *send,
                         const baton__packet_t *packet);

/* Takes the receive that a peer on this host has posted for the send, if there
   is one, and lists the send among those that polls go on with. */
bool baton__mpi_begin_put(baton__mpi_t *mpi, baton__send_t *send);

/* Writes the next slice of the data there. True: all are written, the peer
   knows, and the send, which is to be ended, is in no list any more. */
bool baton__mpi_put(baton__mpi_t *mpi, baton__send_t *send);

/* Whether a poll would write data. */
bool baton__mpi_has_put(const baton__mpi_t *mpi);

/* A peer has filled a receive. */
void baton__mpi_take_put(baton__mpi_t *mpi, const baton__packet_t *packet);

/* A peer that can't fill a receive has sent a part of the data. */
void baton__mpi_take_put_part(baton__mpi_t *mpi, const baton__packet_t *packet);

/* Ends those that a lost peer may have been filling; false if there was no room
   for all events. */
bool baton__mpi_end_posted(baton__mpi_t *mpi, baton__peer_t *peer);

/* ---- send.c: a message on its way to a peer ---------------------------- */

baton_status_t baton__mpi_send(void *endpoint, baton_token_t token, int peer,
                               const baton_header_t *header, const void *data,
                               size_t bytes);
baton_status_t baton__mpi_notify(void *endpoint, int peer,
                                 const baton_header_t *header, const void *data,
                                 size_t bytes);
bool baton__mpi_withdraw(void *endpoint, baton_token_t token);

/* Answers a message, now or when there is room: by FIN, which then frees its
   record; or by CTS or COPY. */
void baton__mpi_answer(baton__mpi_t *mpi, baton__record_t *record,
                       baton__packet_kind_t answer);

/* A peer has answered: by FIN, it is done with a send; by CTS, it pulls it; by
   COPY, it may not read it. */
void baton__mpi_take_fin(baton__mpi_t *mpi, const baton__packet_t *packet);
void baton__mpi_take_cts(baton__mpi_t *mpi, const baton__packet_t *packet);

/* Sends the data in parts, into a posted receive or BATON__HOST_POSTS. */
void baton__mpi_part(baton__mpi_t *mpi, baton__send_t *send, uint32_t post);

/* Hands MPI what peers pull. */
void baton__mpi_send_pulled(baton__mpi_t *mpi);

/* Sends what is in outboxes, as far as there is room for it and its events. */
void baton__mpi_flush(baton__mpi_t *mpi);

/* Ends the sends to a peer that is lost; false if there was no room for all
   events. */
bool baton__mpi_end_sends(baton__mpi_t *mpi, baton__peer_t *peer);

/* ---- receive.c: a message from a peer ---------------------------------- */

/* A packet has come; false if there is no record free for it. */
bool baton__mpi_take_packet(baton__mpi_t *mpi, const baton__packet_t *packet);

baton_status_t baton__mpi_accept(void *endpoint, baton_message_t *message,
                                 baton_token_t token, void *target);
baton_status_t baton__mpi_lend(void *endpoint, baton_message_t *message);
baton_status_t baton__mpi_read(void *endpoint, const baton_message_t *message,
                               size_t offset, size_t bytes, void *target);
void *baton__mpi_allocate(void *endpoint, size_t bytes);
void baton__mpi_deallocate(void *endpoint, void *memory);
void baton__mpi_drop(void *endpoint, baton_message_t *message);

/* Copies a slice of the first long message of this host. */
void baton__mpi_copy(baton__mpi_t *mpi);

/* MPI has received what it will of a record's data. */
void baton__mpi_received(baton__mpi_t *mpi, baton__record_t *record);

/* Ends what is to come from a peer that is lost; false if there was no
   room for all events. */
bool baton__mpi_end_pulled(baton__mpi_t *mpi, baton__peer_t *peer);

/* ---- poll.c: polling and sleeping -------------------------------------- */

size_t baton__mpi_poll(void *endpoint, baton_event_t *out, size_t max);
int baton__mpi_descriptor(void *endpoint, int k);
void baton__mpi_drain(void *endpoint);
void baton__mpi_flush_bells(void *endpoint);
bool baton__mpi_arm(void *endpoint, baton_arm_t how, uint32_t *sleep_us_out);
bool baton__mpi_is_copying(const void *endpoint);
void baton__mpi_ask(void *endpoint, int peer);

/* Where the peer answers; false if it does not. */
bool baton__mpi_answers_at(const baton__mpi_t *mpi, int peer,
                           struct sockaddr_storage *out, socklen_t *bytes_out);
void baton__mpi_disarm(void *endpoint);

/* ---- meeting.c: what ranks tell each other while they open -------------- */

/* All ranks of a communicator call each of these. The first error is kept: that
   MPI fails, that ranks run several versions of Baton, that a rank of this host
   has ended, or that one which had come does not answer for
   BATON_PEER_TIMEOUT_MS. From then on they do nothing, and data is NULL. No
   call blocks in MPI, where a rank that ends or never comes would keep the
   others for good. */
typedef struct baton__meeting {
    MPI_Comm comm; /* the application's */
    MPI_Errhandler handler;
    int rank, size;
    baton_status_t status;
    unsigned char *data;           /* what was exchanged last */
    struct baton__member *members; /* of all ranks, once they were exchanged */
    uint64_t secret;
    int listener; /* where this rank is told of one that has ended; or -1 */
    const baton__mpi_t *kept; /* a former endpoint, which watches; or NULL */
    bool met;                 /* all have come */
    bool reported;            /* that this rank has waited for long */
} baton__meeting_t;

enum { BATON__MEETING_BYTES = 256 }; /* of each rank; or one for each rank */

/* After an error there is nothing to end. BATON_ERR_STATE, _INVALID,
   _TRANSPORT. */
baton_status_t baton__meeting_begin(baton__meeting_t *self, MPI_Comm comm);
void baton__meeting_end(baton__meeting_t *self);

/* Where this process is. */
typedef struct baton__location {
    uint64_t host; /* tells hosts apart: by what MPI calls it, and the run of
                      its kernel, as names may be the same */
    uint64_t pids, network; /* its namespaces; 0: unknown */
} baton__location_t;

const baton__location_t *baton__meeting_location(void);

/* The first of all: true if all ranks have kept the endpoint of the same group,
   which may be NULL here. From then on it is known which processes they are. */
bool baton__meeting_keeps(baton__meeting_t *self, const baton__mpi_t *kept);

/* What each rank tells, by rank. Good until the next exchange; NULL after an
   error. */
void *baton__meeting_gather(baton__meeting_t *self, const void *own,
                            size_t bytes);

/* One outcome on all ranks: `local` if that is an error, else the worst of the
   others'. */
baton_status_t baton__meeting_agree(baton__meeting_t *self,
                                    baton_status_t local);

/* The same, as the last of all. A rank that ends in it is missed by some of the
   others alone: on a host they have one outcome all the same, and it is an
   error, or a loss that the group tells of. */
baton_status_t baton__meeting_conclude(baton__meeting_t *self,
                                       baton__host_t *host,
                                       baton_status_t local);

/* A communicator of the same ranks; none after an error. No other function of
   MPI that makes one returns while a rank is missing; this one runs those by
   which the application copies its attributes. */
void baton__meeting_separate(baton__meeting_t *self, MPI_Comm *out);

/* ---- open.c: opening and closing --------------------------------------- */

/* Not collective: makes an endpoint of `comm` that has not met its peers, and
   frees one with all that it has opened. */
baton_status_t baton__mpi_make(MPI_Comm comm, baton__mpi_t **out);
void baton__mpi_free(baton__mpi_t *mpi);

/* Collective; `local` is this rank's own status so far. When any rank fails,
   all do: the others with a message that says so. On success the endpoint's
   close() is collective too; before any rank sends, all agree once more. */
baton_status_t baton__mpi_open(baton__meeting_t *meeting, baton_status_t local,
                               baton__mpi_t **out);
