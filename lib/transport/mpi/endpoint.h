/* The transport between processes: of an MPI communicator, or without MPI
   (bootstrap.h).

   Intra-node packets, those to local ranks, go through rings in shared memory
   (shm/), without MPI. Inter-node packets go over a wire (wire.h), which is MPI
   on a communicator of the group's own, or UCX, and a sleeping rank is woken
   over a TCP connection (links.c). Only wire_mpi.c and bootstrap_mpi.c call
   MPI, and only wire_ucx.c UCX; the other comments say MPI where they mean the
   wire.

       bytes          to a local rank                 to a rank of another host
       up to 256      in the packet                   in the packet
       up to 68 KiB   in a shm buffer (up to 12 KiB   right after the packet,
                      if each rank has a processor,   up to 128 KiB
                      up to 16 from patient senders)
       more           read by the receiver (CMA)      pulled: MPI messages of
                                                      60 KiB (BATON_FAR_PART)

   A patient sender does not mind if its send ends late (token.patient in
   baton/transport.h), so copying its data would gain nothing. From 16 KiB on,
   data that lies in a segment (shm/segments.h) is not copied into a buffer
   either: a local receiver reads the data in place, and can lend it to the
   engine. A freshly computed sum that is too long for a buffer, and longer
   than 12 KiB, is written by the sender if a local receiver has posted its
   receive (put.c).

   A message that finds no credit or no buffer, or whose receiver may not read
   this process's memory, is sent by the method of the next row. The last
   method, RTS (packet.h), needs nothing but MPI.

   A process can lose the permission to read another's memory after the group
   was made, for instance because one of them changes its user or enters a
   sandbox. The group may have no communicator to fall back on. So data that can
   no longer be read or written is sent through the rings in parts (PART,
   packet.h).

   Credits bound the memory that a receiver needs. A send that has a credit is
   complete when its packet is on its way. A send without one is complete when
   the receiver has taken the data. So each peer of a late receiver can complete
   one window of short messages. Its further sends stay incomplete until the
   receiver has taken their data.

   A packet that finds no space in a ring or in MPI waits in its peer's outbox.
   There answers, and announced sends that go in parts, come first, and then the
   other sends, which keep their order. A long copy is made a slice at a time,
   so that no poll takes long. A poll looks only where something can arrive:
   with local ranks alone and no data in motion, MPI is not called at all. (A
   packet, or a part of a message's data, is in motion while a request of MPI
   for it has not completed. Receives that wait for any packet do not count.)

   A peer is lost when its process has ended (shm/liveness.h), when its link
   ends or says farewell before this rank closes, when this rank waits for it
   and gets no reply (answers.h), when MPI refuses to send to it, or when
   MPI_Finalize is called. The transfers in progress with it then end with
   errors, over as many polls as that takes.

   From the bottom up, each file using those before it:

       endpoint.c   records, lists, peers
       net.c        packets and data over the wire; links.c
       pool.c       pools of records
       put.c        posted receives, which senders fill
       send.c       a message on its way to a peer
       receive.c    a message from a peer
       poll.c       polling and sleeping
       exchange.c   the exchanges between ranks while they open; bootstrap.h
       local.c      what the ranks of a host share
       close.c      closing; MPI_Finalize
       open.c       opening
       group.c      groups; bootstrap_mpi.c and bootstrap_store.c call it */
#pragma once

#include "base/list.h"
#include "transport/mpi/answers.h"
#include "transport/mpi/exchange.h"
#include "transport/mpi/links.h"
#include "transport/mpi/packet.h"
#include "transport/shm/host.h"

#include <baton/transport.h>
#include <sched.h>

enum {
    BATON__MPI_NOTICES = 4, /* the most notices in flight to one peer */
    /* The most messages that are pulled from one peer at a time. */
    BATON__MPI_PULLS = 4,
    /* The most MPI messages in motion for each pulled message. */
    BATON__MPI_PARTS = 8,
    /* A send is announced when a packet was sent for it that the peer has to
       answer before the send ends (packet.h). This is the most announced sends
       that one peer has not answered yet. Beyond this number, one more send is
       announced every BATON__MPI_PATIENCE_NS. */
    BATON__MPI_ANNOUNCED = 8,
    BATON__MPI_PATIENCE_NS = 20000,
    /* Longest sleep of an idle rank that all peers can wake. The sleep is
       limited because a peer whose link broke without this rank noticing can
       ask only over MPI whether this rank lives. */
    BATON__MPI_ASKED_US = 500000,
    /* Receive buffers for one peer's bodies. A body is data that follows its
       packet in the same MPI message (packet.h). */
    BATON__MPI_BODIES = 8,
    BATON__MPI_TAGS = 512,   /* number of MPI tags for pulled messages */
    BATON__MPI_PACKETS = 16, /* the most sends of packets in motion at a time */
    /* The number of receives that are posted for packets. It is small, so that
       their buffers stay in cache. */
    BATON__MPI_POSTED = 8,
    /* The most receives for packets, with those that are added because
       unfinished messages of lost peers occupy others. */
    BATON__MPI_RECEIVES = 64,
    /* A copy of up to this many bytes is made when the message is accepted,
       which may be in an application's call that starts an epoch. Each poll
       copies one slice of a longer message. */
    BATON__MPI_AT_ONCE_BYTES = 64 * 1024,
    BATON__MPI_SLICE_BYTES = 4 << 20,
    /* Shorter messages are copied into buffers even if they lie in a segment or
       their sender is patient. With 4 ranks on 2 processors, all-to-alls of 64
       KiB take 14 us this way, and 20 us if blocks of 16 KiB are read;
       all-to-alls of 256 KiB take 62 us and 40 us. */
    BATON__MPI_DIRECT_BYTES = 16 * 1024,
    /* The longest message that goes into a buffer if each rank has a processor:
       for a longer message the receiver takes no longer to copy it from the
       sender's memory than to copy it out of a buffer, and the sender need not
       copy it. On 2 processors of a Xeon, a reduction of 16 KiB takes 2.7 us
       without buffers and 3.9 us with them; a reduction of 8 KiB takes 2.3 us
       either way. Where ranks share processors, copying into a buffer saves the
       sender a time slice. */
    BATON__MPI_OWN_BYTES = 12 * 1024
};

/* ---- sends and messages in flight --------------------------------------- */

/* An entry of a peer's outbox: a packet that could not be sent at once. */
typedef struct baton__outgoing {
    struct baton__outgoing *next;
    /* Not defined in the first entry of an outbox. */
    struct baton__outgoing *previous;
    /* True: the entry is the `out` of a baton__record_t, and its answer must be
       sent. False: the entry is the `out` of a baton__send_t. */
    bool answers;
} baton__outgoing_t;

/* `tail` is valid only while `head` is not NULL. */
typedef struct baton__outbox {
    baton__outgoing_t *head, *tail;
} baton__outbox_t;

typedef enum baton__send_state {
    BATON__SEND_FREE,
    BATON__SEND_QUEUED, /* the send waits in the outbox */
    /* the send is announced; the receiver has not answered yet */
    BATON__SEND_ANNOUNCED,
    BATON__SEND_PULLED,  /* the receiver has asked for the data */
    BATON__SEND_MOVING,  /* MPI is sending the data */
    BATON__SEND_PUTTING, /* the data is written into a posted receive */
    /* The data is sent in parts. The send stays in the outbox until all of them
       are sent. */
    BATON__SEND_IN_PARTS
} baton__send_state_t;

typedef struct baton__send {
    /* This field is first, so that an entry of an outbox can be cast to its
       send. */
    baton__outgoing_t out;
    struct baton__send *next;
    /* Withdrawals find a send by lists of sends whose tokens have the same hash
       (hash_list_of in send.c). same_hash is the next send of the list that
       this send is in. hash_list is the head of a list: send i has the head of
       the list for hash i. */
    struct baton__send *hash_list, *same_hash;
    baton_token_t token;
    baton_header_t header;
    const void *data;
    size_t bytes;
    int peer;
    uint32_t id;
    uint32_t generation;
    uint16_t kind; /* the announcement's baton__packet_kind_t */
    /* This send is one of those that baton__peer_t.announced counts. */
    bool counted;
    /* In the comments from here on, the names before a colon are the states in
       which the field is used. PULLED, MOVING: the MPI tag of the data. */
    uint32_t tag;
    /* PULLED: number of receives that the peer has posted for the data */
    uint32_t asked;
    size_t part;    /* PULLED, MOVING: bytes of each MPI message */
    size_t moved;   /* number of bytes handed to MPI or to the peer so far */
    uint32_t parts; /* MOVING: number of MPI messages in motion */
    /* PUTTING, IN_PARTS: index of the peer's posted receive. BATON__HOST_POSTS
       in IN_PARTS: there is no posted receive, and the peer, which has accepted
       the message, could not read the data. */
    uint32_t post;
    /* PUTTING, IN_PARTS: the generation of the posted receive; without a posted
       receive, the generation of this send. */
    uint32_t posted;
    uint64_t address; /* PUTTING: address of the posted receive's target */
    baton__send_state_t state;
} baton__send_t;

BATON__LIST(baton__sends, baton__send_t)

/* A message that has arrived. */
typedef struct baton__record {
    /* This field is first, so that an entry of an outbox can be cast to its
       record. */
    baton__outgoing_t out;
    struct baton__record *next; /* a record is in at most one list */
    baton_message_t message;
    uint16_t kind; /* baton__packet_kind_t */
    uint16_t flags;
    /* kind of the answer to send: FIN, CTS or COPY (packet.h) */
    uint16_t answer;
    /* The next four fields are those of the packet that announced the message.
       If the answer is CTS, `place` is replaced by the `place` of the answer;
       if the answer asks the sender to write the data (PUT), `address` is
       replaced, too. */
    uint32_t id;
    uint32_t generation;
    uint32_t place;
    uint64_t address;
    /* The fields from here on are valid after the message was accepted. */
    baton_token_t token;
    char *target;
    /* OFFER: the address at which this rank can read the data; NULL: this rank
       reads the data by CMA. */
    const char *source;
    /* Bytes that were copied; if the message is pulled: bytes of the receives
       that were posted. */
    size_t copied;
    size_t part;
    /* If the message is pulled: number of MPI receives in motion. */
    uint32_t parts;
    /* Bytes that have arrived, if the data comes in MPI messages, in PARTs or
       as a body. */
    size_t arrived;
    uint32_t body_count;
    baton__net_buffer_t *bodies[BATON__BODY_BUFFERS];
    unsigned char data[BATON__SHORT_BYTES];
} baton__record_t;

BATON__LIST(baton__records, baton__record_t)

/* ---- peers ------------------------------------------------------------ */

/* Flow control of one class of messages with a peer: messages, notices or
   bodies. The counts cover the group's whole life, and wrap. */
typedef struct baton__flow {
    uint32_t sent;
    uint32_t limit; /* the highest total that the peer is known to allow */
    /* The next two fields are used only for inter-node peers. Local peers read
       their credits in shared memory. */
    /* The total number of such messages that this rank allows the peer to
       send. */
    uint32_t granted;
    uint32_t reported; /* value of `granted` that was last sent to the peer */
} baton__flow_t;

typedef struct baton__peer {
    int local;          /* the peer's index among this host's ranks, or -1 */
    baton__ring_t ring; /* local peers: the ring to the peer */
    bool contacted;     /* baton__mpi_reserve was called for this peer */
    bool listed;        /* in the list of peers with a non-empty outbox */
    bool lost;
    bool reported; /* this peer's loss was reported to the engine */
    /* The system has refused copies from or to the peer's memory. */
    bool refused;
    /* `bodies` is used for inter-node peers only. */
    baton__flow_t messages, notices, bodies;
    uint32_t announced; /* number of announced sends without an answer */
    /* When a send was last announced while BATON__MPI_ANNOUNCED or more sends
       were unanswered. */
    uint64_t exceeded_ns;
    /* In the outbox, answers and sends in parts come first, and then the other
       sends. */
    baton__outbox_t outbox;
    /* The last entry of the outbox that is an answer or a send in parts; or
       NULL. */
    baton__outgoing_t *last_reply;
    /* A notice found no space in the ring. The next call of send_parts (send.c)
       therefore sends no part. */
    bool notice_due;
    struct baton__peer *next_listed;
    uint32_t next_pull; /* number of pulls so far; determines the next tag */
    uint32_t pulling;   /* number of messages that are being pulled */
    baton__records_t pulled;   /* accepted messages that wait to be pulled */
    baton__records_t in_parts; /* accepted messages with more PARTs to come */
    uint64_t lost_ns;
    const char *detail; /* why the peer is lost */
    /* If lost, BATON_ERR_TRANSPORT: the peer has ended or left;
       BATON_ERR_TIMEOUT: the peer may live. */
    baton_status_t status;
    /* The fields from here on are for inter-node peers. */
    /* When this rank last woke the peer, or knew that the peer was awake. */
    uint64_t woken_ns;
    uint32_t packets_sent; /* number of packets sent to the peer over MPI */
    /* A packet was sent to the peer at probe_ns, and `probe` is the number of
       packets sent up to and including that one. 0: the peer has taken that
       packet, so the peer was awake after probe_ns. */
    uint32_t probe;
    uint64_t probe_ns;
    /* When the peer was last sent a DOUBT packet (packet.h); 0: never. */
    uint64_t doubted_ns;
    /* A time at which the peer's process still ran, as a DOUBT or LIVES packet
       from the peer has shown; 0: no such packet has come. */
    uint64_t lived_ns;
    /* The reply LIVES could not be sent yet. It is sent when credits are next
       reported (baton__net_report_credits). */
    bool reply_due;
    baton__record_t *begun; /* a body whose last packet has not come yet */
    /* number of packets that this rank has taken from the peer */
    uint32_t packets_taken;
    bool last_sent;     /* this rank has sent LAST to the peer */
    bool last_received; /* the peer has sent LAST to this rank */
    /* Something has come from the peer over MPI since this rank last asked
       whether the peer lives. */
    bool has_sent;
} baton__peer_t;

/* The owner of an MPI request for data (see baton__net_t): either a send or a
   record. Both are NULL if the send or record has ended, but MPI has not
   completed the request. */
typedef struct baton__transfer {
    baton__send_t *send;
    baton__record_t *record;
} baton__transfer_t;

/* ---- communication through MPI ------------------------------------------ */

typedef struct baton__net {
    int peers; /* number of inter-node peers */
    /* Time of the last send over MPI, or of the last poll that found something
       there. */
    uint64_t now_ns;
    /* Number of polls since now_ns, none of which has found anything. */
    uint32_t quiet;
    bool credits_due; /* some peer may have to be told of new credits */
    /* Transfers in motion. There is space for all parts of all messages. */
    baton__request_t *requests;
    baton__transfer_t *transfers;
    size_t part_bytes; /* bytes of each MPI message of pulled data */
    int count;
    /* Sends whose data peers have asked for. MPI gets this data in a poll that
       has found nothing else, so that answers and announcements go first.
       Answers and announcements queued after the data would arrive only after
       it, and the data in the other direction would wait for them. */
    baton__sends_t pulled;
    /* The receives for packets, in the order in which they were posted. */
    baton__request_t arrivals[BATON__MPI_RECEIVES];
    /* The sends of packets in motion. */
    baton__request_t sends[BATON__MPI_PACKETS];
    /* The buffers that were allocated last. The endpoint frees all buffers when
       it is closed: MPI may never complete sends and receives of lost peers. */
    baton__net_buffer_t *allocated;
    baton__net_buffer_t *arrived[BATON__MPI_RECEIVES];
    uint32_t receives; /* number of posted receives */
    baton__net_buffer_t *send_buffers[BATON__MPI_PACKETS];
    /* Free buffers. When a body keeps the buffer in which it came, one of these
       takes the place of that buffer. */
    baton__net_buffer_t *free;
    /* By slot of `sends`: the peer that the packet goes to. */
    int destinations[BATON__MPI_PACKETS];
    /* arrival: the place of the oldest receive in `arrivals`. next_send: the
       first slot of `sends` to try for a send. */
    uint32_t arrival, next_send;
    uint32_t packets_unsent;
    /* Over some peer's link, the peer must still be told how many packets were
       sent to it (links.h). */
    bool wakes_due;
    bool closing;      /* the endpoint is being closed, or its ranks leave */
    uint64_t asked_ns; /* when this rank last asked a rank that closes late */
    /* all inter-node peers are lost: MPI failed or was finalized on this
       rank */
    bool cut;
    baton__links_t links;
    /* By rank: true if the rank's address was found to lead to the rank's host.
       While the group is made, the first rank of this host verifies the address
       of the first rank of each other host. Without that, a rank that dies
       before it has a link with any rank would look like a wrong address. */
    unsigned char *reached;
    /* MPI_Finalize was called while there is a group, so no more calls of MPI
       may begin; answers.h counts these calls. */
    _Atomic bool finalized;
    char detail[BATON__WIRE_TEXT];
} baton__net_t;

/* A rank's process, for error messages. */
typedef struct baton__process {
    int number;
    char host[36];
    uint64_t pids; /* PID namespace; 0: unknown */
} baton__process_t;

typedef struct baton__mpi {
    baton_transport_t transport;
    baton__wire_t *wire; /* NULL if the group needs none */
    int rank;
    int size;
    /* Number of credits for messages that this rank grants each peer. */
    uint32_t window;
    baton__peer_t *peers;
    int *host_of;                /* by rank: the number of the rank's host */
    baton__process_t *processes; /* indexed by rank */
    /* The processors on which this rank could run when the endpoint was
       opened. */
    cpu_set_t processors;
    /* Long messages to local ranks are offered: the receiver reads the data in
       the sender's memory or, if the system refuses that (`refused`), gets it
       in PARTs. */
    bool reads;
    /* The ranks of this host can write into each other's memory, and each has a
       processor. So a receiver may ask the sender of an offer to write the
       data. */
    bool asks;
    /* MPI carries no messages, and the group has no communicator. */
    bool keeps_off;
    /* Only messages longer than this are written by their senders. */
    size_t put_above;
    /* The longest message that a sender writes into the memory of the receive;
       0: senders write no messages. */
    size_t put_bytes;
    /* The longest message that goes through a shm buffer; 0: there are no shm
       buffers. */
    size_t buffered_bytes;
    /* The memory that the ranks of this host share. This rank may be the only
       one. */
    baton__host_t host;

    baton__peer_t *listed; /* peers with a non-empty outbox */
    baton__records_t copying;
    baton__sends_t putting;
    struct {
        baton_event_t *out;
        size_t count, max;
    } events; /* the events that the running poll will return */
    uint32_t polls;
    /* Number of lost peers that the engine must still be told of. */
    uint32_t unreported;
    /* 1 + the rank that was lost first; 0: no rank is lost */
    uint32_t first_lost;
    uint64_t last_lost_ns; /* when a rank was last lost; 0: none is lost */
    /* The reason for the loss of peers that have closed the group because
       first_lost was lost. */
    char closed[64];
    /* This rank leaves the group while other ranks may wait for it. */
    bool alone;

    /* Pools, see pool.c. Their records never move in memory. */
    struct baton__slab *slabs;
    baton__send_t **sends;
    bool is_hashed; /* hash_list and same_hash list all sends in flight */
    uint32_t send_count, record_count, in_use;
    baton__send_t *free_sends;
    baton__record_t *free_records;
    int64_t reserved_sends, reserved_records;

    baton__net_t net;
    baton__answers_t answers;
} baton__mpi_t;

/* ---- endpoint.c: records, lists, peers --------------------------------- */

/* The take functions take a record from its pool; they return NULL if all
   records are in use. The give functions put a record back. */
baton__send_t *baton__mpi_take_send(baton__mpi_t *mpi);
void baton__mpi_give_send(baton__mpi_t *mpi, baton__send_t *send);
baton__record_t *baton__mpi_take_record(baton__mpi_t *mpi);
void baton__mpi_give_record(baton__mpi_t *mpi, baton__record_t *record);

static inline void baton__events_add(baton__mpi_t *mpi, baton_event_t event)
{
    mpi->events.out[mpi->events.count++] = event;
}

/* Reports that a receive has ended. */
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

/* Reports that a part of a message was moved and more follow. The event is
   dropped if there is no space for it: the other events then show that
   something moves. */
static inline void baton__events_moved(baton__mpi_t *mpi, baton_token_t token)
{
    if (!baton__events_are_full(mpi)) {
        baton__events_add(
            mpi, (baton_event_t){.kind = BATON_EVENT_MOVED, .token = token});
    }
}

/* Reports that a send has ended, and frees its record. */
void baton__mpi_end_send(baton__mpi_t *mpi, baton__send_t *send,
                         baton_status_t status, const char *detail);

/* Puts a packet with `count` bytes of data into the ring to a peer on this
   host, and wakes the peer. Returns false if the ring is full. */
bool baton__mpi_push_local(baton__mpi_t *mpi, baton__peer_t *peer,
                           const baton__packet_t *packet, const void *data,
                           size_t count);

/* Marks a peer as lost: nothing comes from it any more. BATON_ERR_TRANSPORT:
   its process has ended, or it has left. BATON_ERR_TIMEOUT: it may still
   live. */
void baton__mpi_lose(baton__mpi_t *mpi, baton__peer_t *peer,
                     baton_status_t status, const char *detail);

/* Sets this thread's error for a message to or from a peer, and returns
   BATON_ERR_TRANSPORT. The error says why the peer is lost; if the peer is not
   lost, it says `wrong`. */
baton_status_t baton__mpi_fail_peer(const baton__mpi_t *mpi, int peer,
                                    const char *wrong);

/* True if a copy from or to the peer's memory failed with this error because
   the system refuses it. The peer is then marked as refused. */
bool baton__mpi_is_refused(baton__mpi_t *mpi, baton__peer_t *peer, int error);

/* ---- net.c: through MPI ------------------------------------------------ */

/* Implements takes_device of baton/transport.h: true if MPI can send this
   message out of device memory, and receive it there (MPIX_Query_cuda_support,
   BATON_GPU_AWARE_MPI). */
bool baton__mpi_takes_device(void *endpoint, int peer, size_t bytes);

/* baton__net_enter returns true if MPI may be called; then baton__net_leave
   must follow. After MPI_Finalize has begun, baton__net_enter returns false and
   marks all inter-node peers as lost. */
bool baton__net_enter(baton__mpi_t *mpi);
void baton__net_leave(baton__mpi_t *mpi);

/* Returns MPI's text for an error code. It is valid until the next call. */
const char *baton__net_text(baton__mpi_t *mpi, int code);

/* Marks a peer as lost because MPI has returned an error code. */
void baton__net_fail(baton__mpi_t *mpi, int peer, int code);

/* Sends a packet with `count` bytes of data over the wire. Returns false if the
   packet can't be sent now: no slot of net.sends is free, or the free ones are
   reserved for other peers because this peer's packets occupy so many, or the
   peer's process may have ended (DOUBT in packet.h). */
bool baton__net_push(baton__mpi_t *mpi, baton__peer_t *peer,
                     const baton__packet_t *packet, const void *data,
                     size_t count);

/* Returns the number of packets to the peer whose sends MPI has not
   completed. */
size_t baton__net_unsent(const baton__mpi_t *mpi, const baton__peer_t *peer);

/* Returns true if the peer has so many new credits that it should be told of
   them. */
bool baton__net_owes_credits(const baton__mpi_t *mpi,
                             const baton__peer_t *peer);

/* Sends a packet with the new credits to each peer for which
   baton__net_owes_credits returns true, and the reply LIVES to each peer to
   which it is due (reply_due). */
void baton__net_report_credits(baton__mpi_t *mpi);

/* Sends CREDIT, LIVES, ASK or LAST to an inter-node peer. After LAST, only ASK
   is still sent. Returns false if the packet can't be sent now. */
bool baton__net_signal(baton__mpi_t *mpi, baton__peer_t *peer,
                       baton__packet_kind_t kind);

/* Hands MPI the next parts of a send's data. Returns false if MPI has completed
   all parts. */
bool baton__net_send(baton__mpi_t *mpi, baton__send_t *send);

/* Posts receives for the next parts of a record's data. */
void baton__net_receive(baton__mpi_t *mpi, baton__record_t *record);

/* The next three functions handle the body of a message. baton__net_keep makes
   the record keep the buffer of the oldest packet, which holds a piece of the
   body. baton__net_copy_body copies the whole body. baton__net_give_body frees
   the buffers, and gives the peer as many credits for bodies. */
void baton__net_keep(baton__mpi_t *mpi, baton__record_t *record);
void baton__net_copy_body(const baton__record_t *record, char *target);
void baton__net_give_body(baton__mpi_t *mpi, baton__record_t *record);

/* Sends `parts` empty messages to a peer that pulls a withdrawn send, because
   the peer has posted that many receives. */
void baton__net_send_nothing(baton__mpi_t *mpi, int peer, uint32_t tag,
                             uint32_t parts);

void baton__net_test_packets(baton__mpi_t *mpi);

int baton__net_post_arrival(baton__mpi_t *mpi, uint32_t slot);

/* Posts one more receive if a packet waits in MPI: messages that lost peers
   have not finished may occupy all other receives. Call it between
   baton__net_enter and baton__net_leave. */
void baton__net_add_arrival(baton__mpi_t *mpi);

/* Notes that the peer has taken `taken` packets of this rank so far. */
void baton__net_taken(baton__mpi_t *mpi, baton__peer_t *peer, uint32_t taken);

/* Wakes each peer that has a link and was not told over it of all packets that
   were sent to the peer, unless this rank woke the peer less than WOKEN_NS ago
   (net.c). */
void baton__net_wake_due(baton__mpi_t *mpi);

/* Wakes the peers that may have to call MPI before data or packets can reach
   this rank. Returns true if there is such a peer. */
bool baton__net_ask(baton__mpi_t *mpi);

/* Marks all inter-node peers as lost. */
void baton__net_lose_all(baton__mpi_t *mpi, const char *detail);

/* Detaches the transfers of a send or record that has ended, so that no event
   is reported when MPI completes them. */
void baton__net_forget(baton__net_t *net, const void *ended);

/* Ends the receives from a lost peer. Returns false if the running poll has no
   space for all their events; the next poll then calls this again. */
bool baton__net_end(baton__mpi_t *mpi, baton__peer_t *peer);

/* Allocates space for the transfers of this many messages, more than before.
   Returns false if there is no memory. */
bool baton__net_reserve(baton__net_t *net, uint32_t messages);

/* The next two functions are called at the first reservation for a peer.
   baton__net_reserve_bodies adds BATON__MPI_BODIES buffers for the peer's
   bodies (packet.h) to net.free. After that, baton__net_contact connects to the
   peer, and tells the peer how many credits it has. */
baton_status_t baton__net_reserve_bodies(baton__mpi_t *mpi,
                                         baton__peer_t *peer);
void baton__net_contact(baton__mpi_t *mpi, baton__peer_t *peer);

baton_status_t baton__net_open(baton__mpi_t *mpi);
void baton__net_close(baton__mpi_t *mpi);

/* ---- pool.c: pools of records ------------------------------------------ */

baton_status_t baton__mpi_reserve(void *endpoint, int peer, int64_t sends,
                                  int64_t receives);

/* Allocates records for the notices of all peers. */
baton_status_t baton__mpi_reserve_notices(baton__mpi_t *mpi);
void baton__mpi_free_pools(baton__mpi_t *mpi);

/* ---- put.c: posted receives, which senders fill ------------------------- */

bool baton__mpi_post_receive(void *endpoint, baton_token_t token, int peer,
                             const baton_header_t *header, void *target,
                             size_t bytes);
bool baton__mpi_withdraw_receive(void *endpoint, baton_token_t token, int peer);

/* Called when a message has arrived for a receive. Withdraws the receive's
   post. Returns false if the receive was not posted, or if the sender has taken
   the post to write the data. */
bool baton__mpi_end_post(const baton__mpi_t *mpi,
                         const baton_message_t *message, baton_token_t token);

/* Posts an offer's receive again after baton__mpi_end_post, so that the sender
   can be asked to write the data. Returns false if this rank should read the
   data instead. */
bool baton__mpi_ask_put(baton__mpi_t *mpi, baton__record_t *record);

/* Adds a send to `putting`: later polls write its data into the receive that
   the peer has posted in this place, with its target at this address. */
void baton__mpi_start_put(baton__mpi_t *mpi, baton__send_t *send,
                          uint32_t place, uint32_t generation,
                          uint64_t address);

/* If a peer on this host has posted a receive for the send, takes that receive,
   and starts to write the data. Returns false if there is no such receive. */
bool baton__mpi_begin_put(baton__mpi_t *mpi, baton__send_t *send);

/* Writes the next slice of the send's data. Returns true if all of the data is
   written, the peer was told, and the send is in no list; the caller must then
   end the send. */
bool baton__mpi_put(baton__mpi_t *mpi, baton__send_t *send);

/* True if the next poll would write data. */
bool baton__mpi_has_put(const baton__mpi_t *mpi);

/* Handles PUT: a peer has filled a posted receive. */
void baton__mpi_take_put(baton__mpi_t *mpi, const baton__packet_t *packet);

/* Handles PART for a posted receive, from a peer that can't write into the
   receive's target. */
void baton__mpi_take_put_part(baton__mpi_t *mpi, const baton__packet_t *packet);

/* Ends the posted receives that a lost peer may have been filling. Returns
   false if the running poll has no space for all their events; the next poll
   then calls this again. */
bool baton__mpi_end_posted(baton__mpi_t *mpi, baton__peer_t *peer);

/* ---- send.c: a message on its way to a peer ---------------------------- */

baton_status_t baton__mpi_send(void *endpoint, baton_token_t token, int peer,
                               const baton_header_t *header, const void *data,
                               size_t bytes);
baton_status_t baton__mpi_notify(void *endpoint, int peer,
                                 const baton_header_t *header, const void *data,
                                 size_t bytes);
bool baton__mpi_withdraw(void *endpoint, baton_token_t token);

/* Answers a message by FIN, CTS or COPY, now or when there is space. After FIN
   was sent, the record is free. */
void baton__mpi_answer(baton__mpi_t *mpi, baton__record_t *record,
                       baton__packet_kind_t answer);

/* baton__mpi_take_fin and baton__mpi_take_cts handle answers of a peer. FIN
   means that the peer is done with a send, CTS that it asks for the data, and
   COPY that it could not read the data. COPY is handled by baton__mpi_take_cts,
   too. */
void baton__mpi_take_fin(baton__mpi_t *mpi, const baton__packet_t *packet);
void baton__mpi_take_cts(baton__mpi_t *mpi, const baton__packet_t *packet);

/* Begins to send the data in parts, for a posted receive, or for an accepted
   message if `post` is BATON__HOST_POSTS. */
void baton__mpi_part(baton__mpi_t *mpi, baton__send_t *send, uint32_t post);

/* Hands MPI the sends whose data peers have asked for. */
void baton__mpi_send_pulled(baton__mpi_t *mpi);

/* Sends the entries of the outboxes, as far as there is space for packets and
   events. */
void baton__mpi_flush(baton__mpi_t *mpi);

/* Ends the sends to a lost peer. Returns false if the running poll has no space
   for all their events; the next poll then calls this again. */
bool baton__mpi_end_sends(baton__mpi_t *mpi, baton__peer_t *peer);

/* ---- receive.c: a message from a peer ---------------------------------- */

/* Handles one packet. Returns false if no record is free for its message. */
bool baton__mpi_take_packet(baton__mpi_t *mpi, const baton__packet_t *packet);

baton_status_t baton__mpi_accept(void *endpoint, baton_message_t *message,
                                 baton_token_t token, void *target);
baton_status_t baton__mpi_lend(void *endpoint, baton_message_t *message);
baton_status_t baton__mpi_read(void *endpoint, const baton_message_t *message,
                               size_t offset, size_t bytes, void *target);
void *baton__mpi_allocate(void *endpoint, size_t bytes);
void baton__mpi_deallocate(void *endpoint, void *memory);
void baton__mpi_drop(void *endpoint, baton_message_t *message);

/* Copies a slice of the first long message that this rank reads from a peer on
   this host. */
void baton__mpi_copy(baton__mpi_t *mpi);

/* Ends a pulled message, for which MPI has no receives in motion any more. */
void baton__mpi_received(baton__mpi_t *mpi, baton__record_t *record);

/* Ends the accepted messages whose data a lost peer was to send. Returns false
   if the running poll has no space for all their events; the next poll then
   calls this again. */
bool baton__mpi_end_pulled(baton__mpi_t *mpi, baton__peer_t *peer);

/* ---- poll.c: polling and sleeping -------------------------------------- */

size_t baton__mpi_poll(void *endpoint, baton_event_t *out, size_t max);
int baton__mpi_descriptor(void *endpoint, int k);
void baton__mpi_drain(void *endpoint);
void baton__mpi_flush_bells(void *endpoint);
bool baton__mpi_arm(void *endpoint, baton_arm_t how, uint32_t *sleep_us_out);
bool baton__mpi_is_copying(const void *endpoint);
void baton__mpi_ask(void *endpoint, int peer);

/* Stores the address at which the peer answers whether it lives (answers.h).
   Returns false if there is no such address. */
bool baton__mpi_answers_at(const baton__mpi_t *mpi, int peer,
                           struct sockaddr_storage *out, socklen_t *bytes_out);
void baton__mpi_disarm(void *endpoint);

/* ---- local.c: the memory and sockets that ranks of a host share ---------- */

/* What is known of this host while the endpoint is opened. */
typedef struct baton__opening {
    baton__exchange_t *exchange;
    const int *of; /* by rank: the number of the rank's host */
    /* size: number of ranks on this host. most: number of ranks on the largest
       host. */
    int size, most;
    int index; /* index of this rank on the host */
    int first; /* the number that the host's first rank has in the group */
    /* shares: no rank of the host has set BATON_SHM to 0. reads: none has set
       BATON_CMA to 0. */
    bool shares, reads;
    bool reaches; /* this rank can wake all others of the host */
    uint64_t secret;
    /* The socket by which the host's first rank passes the descriptor of the
       shared memory to the other ranks; or -1. */
    int socket;
    int error; /* the errno that says why there is no socket */
} baton__opening_t;

/* Opens the memory that the ranks of this host share. If they can share none,
   this rank counts as the only one on its host, and sends to all others over
   MPI. */
baton_status_t baton__local_open(baton__mpi_t *mpi, baton__opening_t *host);

/* ---- close.c: closing, and MPI_Finalize ---------------------------------- */

/* Frees an endpoint with everything that it has opened. Not collective. */
void baton__mpi_free(baton__mpi_t *mpi);

/* Closes the wire, and frees the endpoint. NULL is allowed. If `in_use`,
   messages may still be on the wire. */
void baton__mpi_discard(baton__mpi_t *mpi, bool in_use);

/* The transport's leave and close. */
bool baton__mpi_leave(void *endpoint);
void baton__mpi_close(void *endpoint);

/* Polls once, and drops the messages that arrive. */
void baton__mpi_drop_arrivals(baton__mpi_t *mpi);

/* Called by the wire when MPI_Finalize begins. Ends the endpoint's use of the
   wire, if the endpoint is not closed by then. */
void baton__mpi_on_finalize(void *endpoint);

/* Takes the endpoint that this process has kept from the group that it
   destroyed last, if any. Returns it if `local`, this rank's status so far, is
   BATON_OK, if that group had the same ranks, and if the processors on which
   this rank may run now, `own`, are those on which it might run when the
   endpoint was opened. Otherwise frees the endpoint, and returns NULL. */
baton__mpi_t *baton__mpi_take_cached(const baton__exchange_t *exchange,
                                     baton_status_t local,
                                     const cpu_set_t *own);

/* ---- open.c: opening ----------------------------------------------------- */

/* Allocates an endpoint that has no wire and has not met its peers. Not
   collective. */
baton_status_t baton__mpi_make(int rank, int size, baton__mpi_t **out);

/* Opens an endpoint. Collective; `local` is this rank's own status so far. If
   any rank fails, all ranks fail; on the others the error message says that
   another rank has failed. On success closing the endpoint is collective, too;
   before any rank sends, the caller must make all ranks agree once more
   (baton__exchange_conclude). */
baton_status_t baton__mpi_open(baton__exchange_t *exchange,
                               baton_status_t local, baton__mpi_t **out);
