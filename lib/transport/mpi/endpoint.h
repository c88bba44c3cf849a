/* The inside of the MPI transport. The design note is in port.c. */
#ifndef BATON_TRANSPORT_MPI_ENDPOINT_H
#define BATON_TRANSPORT_MPI_ENDPOINT_H

#include "transport/mpi/links.h"
#include "transport/mpi/packet.h"
#include "transport/shm/host.h"

#include <baton/mpi.h>

enum {
    BATON__MPI_NOTICES = 4, /* to one peer that it has not looked at yet */
    BATON__MPI_PULLS = 4,   /* messages pulled from one peer at a time */
    /* Sends to one peer that were announced and wait for its answer; beyond,
       another is announced only every so often. */
    BATON__MPI_ANNOUNCED = 8,
    BATON__MPI_PATIENCE_NS = 20000,
    BATON__MPI_TAGS = 512,   /* of bodies, and as many of pulled messages */
    BATON__MPI_PACKETS = 64, /* receives posted, and sends at a time */
    /* Over TCP Open MPI 4.1.4 sends up to 64 KiB eagerly, header included. */
    BATON__MPI_BODY_BYTES = 64 * 1024 - 256,
    BATON__MPI_SLICE_BYTES = 1 << 18 /* of a long copy, at a time */
};

/* ---- what is in flight ------------------------------------------------ */

/* In a peer's outbox: what could not be sent to it at once. */
typedef struct baton__outgoing {
    struct baton__outgoing *next;
    bool answers; /* part of a record; else of a send */
} baton__outgoing_t;

typedef enum baton__send_state {
    BATON__SEND_FREE,
    BATON__SEND_QUEUED,    /* in the outbox */
    BATON__SEND_ANNOUNCED, /* until its receiver answers */
    BATON__SEND_MOVING     /* MPI has it */
} baton__send_state_t;

typedef struct baton__send {
    baton__outgoing_t out; /* first, to get from one to the other */
    struct baton__send *next;
    baton_token_t token;
    baton_header_t header;
    const void *data;
    size_t bytes;
    int peer;
    uint32_t id;
    uint32_t generation;
    uint16_t kind; /* announced as: baton__packet_kind_t */
    bool counted;  /* among its peer's announced ones */
    baton__send_state_t state;
} baton__send_t;

/* A message that has arrived. */
typedef struct baton__record {
    baton__outgoing_t out;      /* first */
    struct baton__record *next; /* in one list at a time */
    baton_message_t message;
    uint16_t kind; /* baton__packet_kind_t */
    uint16_t flags;
    uint16_t answer; /* in the outbox: DONE or PULL */
    uint32_t id;
    uint32_t generation;
    uint32_t place;
    uint64_t address;
    /* Accepted, on its way to: */
    baton_token_t token;
    char *target;
    size_t copied;
    unsigned char data[BATON__SHORT_BYTES];
} baton__record_t;

typedef struct baton__records {
    baton__record_t *head, *tail;
} baton__records_t;

/* Where poll puts what has happened. */
typedef struct baton__events {
    baton_event_t *out;
    size_t count, max;
} baton__events_t;

/* ---- peers ------------------------------------------------------------ */

/* Of credited messages to a peer, or notices. */
typedef struct baton__account {
    uint32_t used;    /* sent so far */
    uint32_t granted; /* by the peer so far, as far as is known */
    /* The other way, over MPI: granted to the peer, and told it. */
    uint32_t given;
    uint32_t told;
} baton__account_t;

typedef struct baton__peer {
    int near;           /* its number among the near ones; -1: it is far */
    uint32_t ring_head; /* this rank's copy; see ring.h */
    bool contacted;     /* something was reserved */
    bool listed;        /* among those with an outbox */
    bool lost;
    bool told; /* the engine was told that */
    baton__account_t messages, notices;
    uint32_t announced;   /* sends that wait for its answer */
    uint64_t exceeded_ns; /* when there was last announced one too many */
    baton__outgoing_t *outbox, *outbox_tail;
    struct baton__peer *next_listed;
    uint32_t next_body, next_pull; /* tags */
    uint32_t pulling;              /* messages */
    baton__records_t pulled;       /* accepted, until their turn comes */
    const char *detail;            /* why it is lost */
    /* Of one on another host: */
    baton__link_t link;
    uint64_t rang_ns;       /* when this rank last rang it */
    uint32_t packets_sent;  /* over MPI, so far */
    uint32_t packets_taken; /* of those that it sent */
} baton__peer_t;

/* What MPI moves: of each request, a send's or a record's data. */
typedef struct baton__moving {
    baton__send_t *send;
    baton__record_t *record;
} baton__moving_t;

/* ---- what goes through MPI -------------------------------------------- */

typedef struct baton__far {
    int peers;       /* on other hosts */
    uint64_t now_ns; /* of the last poll that found something, or send */
    uint32_t quiet;  /* polls that have found nothing since */
    bool waiting;    /* the oldest arrival has come, and has no room */
    bool owes;       /* credits that peers were not told of */
    /* In motion; room for all sends and records. */
    MPI_Request *requests;
    baton__moving_t *moving;
    int count;
    int capacity;
    /* Bodies that nobody wants, received one at a time. */
    baton__records_t sinking;
    bool sink_moves;
    char *sink;
    /* Packets: receives that are posted, in the order posted, and sends. */
    MPI_Request arrivals[BATON__MPI_PACKETS];
    MPI_Request departures[BATON__MPI_PACKETS];
    baton__packet_t *arrived, *departed;
    int destinations[BATON__MPI_PACKETS]; /* of those sends */
    uint32_t arrival, departure;          /* the oldest */
    uint32_t leaving; /* sends of packets that are not over */
    bool leaves;      /* the endpoint is being closed */
    baton__links_t links;
    /* MPI_Finalize may be called while there is a group. */
    _Atomic int inside; /* calls that are in MPI */
    _Atomic bool over;  /* no more */
    int keyval;
    char detail[MPI_MAX_ERROR_STRING];
} baton__far_t;

typedef struct baton__mpi {
    baton_transport_t transport;
    MPI_Comm comm;
    int rank;
    int size;
    uint32_t window; /* credits of a peer */
    baton__peer_t *peers;
    bool reads;         /* the memory of near ranks */
    baton__host_t host; /* of the near ranks; of this one, at least */

    baton__peer_t *listed; /* peers with an outbox */
    baton__records_t copying;
    uint32_t lost; /* peers of which the engine was not told */
    bool lost_any; /* so far */

    /* Pools. What is in them stays where it is; see pool.c. */
    struct baton__slab *slabs;
    baton__send_t **sends; /* by id */
    uint32_t send_count, record_count;
    baton__send_t *free_sends;
    baton__record_t *free_records;
    int64_t reserved_sends, reserved_records;

    baton__far_t far;
} baton__mpi_t;

extern const baton_transport_t baton__mpi_transport;

/* Collective over `comm`; `local` is this rank's own verdict so far. When any
   rank fails, all do: those that did not with a message that says so. On
   success the endpoint's close() is collective too. */
baton_status_t baton__mpi_open(MPI_Comm comm, baton_status_t local,
                               const baton_transport_t **transport_out,
                               void **endpoint_out);

/* ---- open.c, meet.c --------------------------------------------------- */

/* BATON_ERR_TRANSPORT with what MPI says about `code`. */
baton_status_t baton__mpi_error(const char *call, int code);

/* The status of all ranks of `comm`: `local` where that is an error, else the
   worst of the others'. Collective. */
baton_status_t baton__mpi_agree(MPI_Comm comm, baton_status_t local);

/* Finds the ranks of this host, and opens what they share. Collective; every
   rank gets to the end of it, with its own status. */
baton_status_t baton__mpi_meet(baton__mpi_t *mpi);

/* ---- pool.c ----------------------------------------------------------- */

baton_status_t baton__mpi_reserve(void *endpoint, int peer, int64_t sends,
                                  int64_t receives);

/* Room for the notices of all peers. */
baton_status_t baton__mpi_reserve_notices(baton__mpi_t *mpi);

baton__send_t *baton__mpi_take_send(baton__mpi_t *mpi); /* NULL: all are used */
void baton__mpi_give_send(baton__mpi_t *mpi, baton__send_t *send);
baton__record_t *baton__mpi_take_record(baton__mpi_t *mpi);
void baton__mpi_give_record(baton__mpi_t *mpi, baton__record_t *record);
void baton__mpi_free_pools(baton__mpi_t *mpi);

/* ---- send.c ----------------------------------------------------------- */

baton_status_t baton__mpi_send(void *endpoint, baton_token_t token, int peer,
                               const baton_header_t *header, const void *data,
                               size_t bytes);
baton_status_t baton__mpi_notify(void *endpoint, int peer,
                                 const baton_header_t *header, const void *data,
                                 size_t bytes);
bool baton__mpi_withdraw(void *endpoint, baton_token_t token);

/* Answers a message, now or when there is room: DONE, which frees its record
   then; or PULL. */
void baton__mpi_answer(baton__mpi_t *mpi, baton__record_t *record,
                       baton__packet_kind_t answer);

/* What a peer answers: it is done with a send; it pulls it. */
void baton__mpi_done(baton__mpi_t *mpi, const baton__packet_t *packet,
                     baton__events_t *events);
void baton__mpi_pull(baton__mpi_t *mpi, const baton__packet_t *packet,
                     baton__events_t *events);

/* A send has ended: gives it back, and says so. */
void baton__mpi_end_send(baton__mpi_t *mpi, baton__send_t *send,
                         baton_status_t status, const char *detail,
                         baton__events_t *events);

/* Sends what is in outboxes, as far as there is room for it and its events. */
void baton__mpi_flush(baton__mpi_t *mpi, baton__events_t *events);

/* The sends to a peer that is lost end: false, there was no room for all
   events. */
bool baton__mpi_end_sends(baton__mpi_t *mpi, baton__peer_t *peer,
                          baton__events_t *events);

/* ---- receive.c -------------------------------------------------------- */

/* A packet has come: false when there is no record free for it. */
bool baton__mpi_take_packet(baton__mpi_t *mpi, const baton__packet_t *packet,
                            baton__events_t *events);

baton_status_t baton__mpi_accept(void *endpoint, baton_message_t *message,
                                 baton_token_t token, void *target);
void baton__mpi_drop(void *endpoint, baton_message_t *message);

/* Copies a slice of the first long message of this host. */
void baton__mpi_copy(baton__mpi_t *mpi, baton__events_t *events);

/* MPI has received what nobody wanted. */
void baton__mpi_sunk(baton__mpi_t *mpi, baton__record_t *record);

/* MPI has received a record's data, `bytes` of them; or has not. */
void baton__mpi_received(baton__mpi_t *mpi, baton__record_t *record,
                         size_t bytes, baton_status_t status,
                         baton__events_t *events);

/* What is pulled from a peer that is lost ends: false, there was no room for
   all events. */
bool baton__mpi_end_pulled(baton__mpi_t *mpi, baton__peer_t *peer,
                           baton__events_t *events);

/* ---- lists ------------------------------------------------------------ */

static inline void baton__events_add(baton__events_t *events,
                                     baton_event_t event)
{
    events->out[events->count++] = event;
}

static inline bool baton__events_are_full(const baton__events_t *events)
{
    return events->count == events->max;
}

void baton__records_append(baton__records_t *list, baton__record_t *record);
baton__record_t *baton__records_take(baton__records_t *list); /* or NULL */

/* ---- near.c, far.c ---------------------------------------------------- */

/* Sends a packet, with `count` bytes of data in it: false, there is no room. */
bool baton__near_push(baton__mpi_t *mpi, baton__peer_t *peer,
                      const baton__packet_t *packet, const void *data,
                      size_t count);
bool baton__far_push(baton__mpi_t *mpi, baton__peer_t *peer,
                     baton__packet_t *packet, const void *data, size_t count);

void baton__near_poll(baton__mpi_t *mpi, baton__events_t *events);
void baton__far_poll(baton__mpi_t *mpi, baton__events_t *events);

/* Whether MPI may be called: not after MPI_Finalize has begun. What is called
   for then is the end of all far peers. Each true is followed by a leave. */
bool baton__far_enter(baton__mpi_t *mpi);
void baton__far_leave(baton__mpi_t *mpi);

/* What MPI says about a code; and a peer is lost for that. */
const char *baton__far_text(baton__mpi_t *mpi, int code);
void baton__far_fail(baton__mpi_t *mpi, int peer, int code);

/* Sends a send's data: false, that is over already. */
bool baton__far_send(baton__mpi_t *mpi, baton__send_t *send, uint32_t tag);

/* Receives a record's data. */
void baton__far_receive(baton__mpi_t *mpi, baton__record_t *record,
                        void *target, uint32_t tag);

/* An empty body, for who pulled what was withdrawn. */
void baton__far_send_nothing(baton__mpi_t *mpi, int peer, uint32_t tag);

baton_status_t baton__far_open(baton__mpi_t *mpi);
void baton__far_close(baton__mpi_t *mpi);

/* Room for so many transfers of data. */
baton_status_t baton__far_reserve(baton__mpi_t *mpi, int capacity);

/* The first time that anything was reserved for the peer. */
void baton__far_contact(baton__mpi_t *mpi, baton__peer_t *peer);

/* Before the endpoint is closed: takes what peers have sent and nobody wants
   any more, so that nothing is left of it when the communicator is freed. */
void baton__far_drain(baton__mpi_t *mpi, uint64_t deadline_ns);

/* Ends what MPI has moved; true if there was any. In MPI. */
bool baton__far_take_moved(baton__mpi_t *mpi, baton__events_t *events);

/* Receives a body that nobody wants. */
void baton__far_sink(baton__mpi_t *mpi, baton__record_t *record);

/* The peer was granted credits: tells it, if it may need to know. */
void baton__far_credit(baton__mpi_t *mpi, baton__peer_t *peer);

/* What is in motion with a peer that is lost ends: false, there was no room for
   all events. */
bool baton__far_end(baton__mpi_t *mpi, const baton__peer_t *peer,
                    baton__events_t *events);

/* Polls MPI, but hands nothing out: whether a packet has come, or a link rang.
 */
bool baton__far_has_come(baton__mpi_t *mpi);

/* ---- port.c ----------------------------------------------------------- */

size_t baton__mpi_poll(void *endpoint, baton_event_t *out, size_t max);

/* ---- sleep.c ---------------------------------------------------------- */

int baton__mpi_descriptor(void *endpoint, int k);
void baton__mpi_drain(void *endpoint);
bool baton__mpi_arm(void *endpoint, uint32_t *sleep_us_out);
void baton__mpi_disarm(void *endpoint);

/* ---- open.c ----------------------------------------------------------- */

void baton__mpi_close(void *endpoint);

/* ---- peers ------------------------------------------------------------ */

/* Nothing comes from the peer any more. */
void baton__mpi_lose(baton__mpi_t *mpi, baton__peer_t *peer,
                     const char *detail);

#endif
