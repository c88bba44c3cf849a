/* The simulated network: ports, messages on their way, and the transport port
   over them. It has a queue of events and no clock hand of its own: who owns it
   pops the events, calls baton__sim_net_events for those that are the
   network's, and lets the ranks step that `due` names.

   Life of a message. A send makes an item. When the sender's port is free the
   item's transfer begins. Two events follow, at one time where they can be:
   SENT, the sender's memory is free, and ARRIVED, the receiver's engine is
   told. Bytes are copied once, from the sender's memory to where the receiver
   accepts them; only a message that is SENT before that is kept in memory of
   its own.

   Items are numbered, and taken from a pool that grows: here epochs do
   allocate, which the port forbids to those that run them for real. */
#ifndef BATON_SIM_NET_H
#define BATON_SIM_NET_H

#include "sim/queue.h"

#include <assert.h>
#include <baton/sim.h>
#include <baton/transport.h>

#define BATON__SIM_NONE UINT32_MAX

/* Events, and ranks, whose memory is asked for together; see net.c. */
enum { BATON__SIM_GROUP = 16 };

/* For functions that only prefetch: GCC takes a call to one that it has not
   inlined for one without effect, and drops it. */
#define BATON__FETCHES static inline __attribute__((always_inline))

enum { BATON__SIM_SLAB = 1 << 12 }; /* items of a slab */

/* Kinds of events; those from BATON__SIM_OWNER on are the owner's. */
enum {
    BATON__SIM_SENT,
    BATON__SIM_ARRIVED,
    BATON__SIM_BOTH, /* SENT and ARRIVED */
    BATON__SIM_PORT, /* the next transfer of rank `index` may begin */
    BATON__SIM_STEP, /* rank `index` is done with what it was busy with */
    BATON__SIM_ASK,  /* rank `index` asks its async nodes */
    BATON__SIM_LOST, /* the others notice that rank `index` is dead */
    BATON__SIM_OWNER
};

enum {
    BATON__SIM_FREE,
    BATON__SIM_QUEUED, /* before its transfer */
    BATON__SIM_MOVING,
    BATON__SIM_THERE, /* has arrived, and is to be accepted or dropped */
    BATON__SIM_GONE   /* that was; its sender is to be told */
};

/* Two cache lines; the second is what the payload needs. */
typedef struct baton__sim_item {
    baton_message_t message; /* first: messages are items */
    unsigned rank : 24;      /* the receiver */
    unsigned state : 3;
    unsigned sent : 1;      /* its sender knows that it is */
    unsigned held : 1;      /* is to be SENT when it is accepted or dropped */
    unsigned kept : 1;      /* its data is its own memory, not the sender's */
    unsigned withdrawn : 1; /* by its sender: it can't be accepted */
    uint32_t number;
    _Alignas(64) void *owner; /* with `node`, the sender's token; NULL: nobody's
                                 any more */
    uint32_t node;
    uint32_t next;   /* in a port's queue */
    double begin_us; /* queued: not before; then: since, at the receiver */
    double there_us; /* when it arrives */
    char small[32];  /* kept: the memory of a small one */
} baton__sim_item_t;
static_assert(sizeof(void *) != 8 || sizeof(baton__sim_item_t) == 128,
              "an item is two cache lines");

/* An event that waits for its rank's next poll. */
typedef struct baton__sim_end {
    void *what; /* the token's owner, or the message */
    uint32_t node;
    int32_t peer;
    int16_t status;
    uint8_t kind; /* baton_event_kind_t */
} baton__sim_end_t;

struct baton__sim_net;

enum { BATON__SIM_ENDS = 3 }; /* mostly of a send and an arrival */

/* A rank's endpoint, on three cache lines. Times in us. */
typedef struct baton__sim_port {
    _Alignas(64) struct baton__sim_net *net;
    uint32_t rank;
    uint32_t queue_head, queue_tail; /* sends whose transfer has not begun */
    bool port_waits;                 /* a PORT event is due */
    bool pump_waits;                 /* is in the network's `pumps` */
    bool step_waits;                 /* a STEP event is due */
    bool is_due;
    bool asks; /* an ASK event is due */
    bool dead;
    double out_free, in_free; /* when the ports are */
    double clock;             /* when the processor is */
    double slowness;          /* 1 / speed */

    baton__sim_end_t *ends;
    uint32_t end_first, end_count, end_capacity;
    uint64_t sends;   /* so far */
    uint64_t fail_at; /* of `sends`; 0: none */

    baton__sim_end_t own_ends[BATON__SIM_ENDS];
} baton__sim_port_t;
static_assert(sizeof(void *) != 8 || sizeof(baton__sim_port_t) == 192,
              "an endpoint is three cache lines");

typedef struct baton__sim_net {
    baton_transport_t transport;
    const baton_sim_options_t *options;
    baton__sim_queue_t queue;
    double now_us;
    baton__sim_port_t *ports;
    int size;
    /* The pool, in slabs. */
    baton__sim_item_t **slabs;
    uint32_t slab_count, slab_capacity;
    uint32_t *spare; /* stack of the items that are free */
    uint32_t spare_count;
    uint32_t item_count; /* from here on no item was ever taken */
    uint32_t *due; /* ring of ranks that have something to do, each once */
    uint32_t due_first, due_count;
    uint32_t *pumps; /* ranks with sends whose transfer may begin */
    uint32_t pump_count;
    bool failed; /* no memory: messages or events were lost */
    bool deaths; /* there are dead ranks */
    baton_distribution_t lag;
    bool lags;
    /* Told of transfers, by the owner of one end's token; may be NULL. */
    void (*report)(void *arg, const void *owner, baton_sim_event_t *event);
    void *report_arg;
    baton_sim_totals_t totals;
} baton__sim_net_t;

/* `options` are valid, and outlive it. BATON_ERR_NO_MEMORY: to be finished all
   the same. */
baton_status_t baton__sim_net_init(baton__sim_net_t *net,
                                   const baton_sim_options_t *options);
void baton__sim_net_fini(baton__sim_net_t *net);

/* Lets some of the network's events happen, at net->now_us. */
void baton__sim_net_events(baton__sim_net_t *net,
                           const baton__sim_entry_t *events, size_t count);

/* Begins the transfers that may. After ranks have stepped. */
void baton__sim_net_begin(baton__sim_net_t *net);

/* The rank is to step now. */
void baton__sim_net_due(baton__sim_port_t *port);

/* The next rank that is due, which then no longer is; NULL: none. */
baton__sim_port_t *baton__sim_net_take_due(baton__sim_net_t *net);

void baton__sim_net_push(baton__sim_net_t *net, double at_us, uint32_t kind,
                         uint32_t index);

/* The rank's processor works for `us`, at speed 1. Returns when it begins. */
double baton__sim_port_work(baton__sim_port_t *port, double us);

/* See sim.h. */
void baton__sim_net_kill(baton__sim_net_t *net, int rank);

/* Lets go of all messages that an owner has sent, which is about to be freed;
   they go on. */
void baton__sim_net_forget(baton__sim_port_t *port, const void *owner);

/* Likewise for its eager sends: done, but in their port's queue perhaps. */
void baton__sim_net_forget_queued(baton__sim_port_t *port, const void *owner);

/* ---- for the network's own files ------------------------------------- */

static inline baton__sim_item_t *baton__sim_item(const baton__sim_net_t *net,
                                                 uint32_t index)
{
    return &net->slabs[index / BATON__SIM_SLAB][index % BATON__SIM_SLAB];
}

/* BATON__SIM_NONE without memory. */
uint32_t baton__sim_item_take(baton__sim_net_t *net);
void baton__sim_item_give(baton__sim_net_t *net, uint32_t index);

/* All other ranks are told that this one is dead. */
void baton__sim_lost(baton__sim_net_t *net, uint32_t rank);

/* An event for the rank's next poll. */
void baton__sim_port_tell(baton__sim_port_t *port, baton__sim_end_t end);

/* How long a message holds the ports. */
double baton__sim_transfer_us(const baton__sim_net_t *net,
                              const baton__sim_item_t *message);

/* Tells of one end of a transfer, `node` of `owner`. */
void baton__sim_report(const baton__sim_net_t *net,
                       const baton__sim_item_t *item, const void *owner,
                       uint32_t node, baton_sim_what_t what, double begin_us,
                       double end_us);

/* The events of a message. */
void baton__sim_sent(baton__sim_net_t *net, uint32_t message);
void baton__sim_arrived(baton__sim_net_t *net, uint32_t message);

/* Its receiver is done with a message that is THERE. */
void baton__sim_end_message(baton__sim_net_t *net, baton__sim_item_t *message);

/* The sender may have its memory back: what is not accepted yet is copied.
   False without memory. */
bool baton__sim_keep(baton__sim_item_t *message);

/* The message is SENT. */
void baton__sim_tell_sender(baton__sim_net_t *net, uint32_t message);

/* The port's queue is looked at by the next baton__sim_net_begin. */
void baton__sim_port_pump(baton__sim_port_t *port);

#endif
