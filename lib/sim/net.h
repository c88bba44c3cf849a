/* The simulated network: the ranks' endpoints with their ports, and the
   messages between them. It has a queue of events but does not advance the
   clock: its owner pops the events, passes the network's own ones to
   baton__sim_net_events, and lets the ranks in `due` step.

   Life of a message. A send makes an item. When the sender's port is free, the
   item's transfer begins. Two events follow, which are one event if their times
   are equal (SENT_AND_ARRIVED): SENT, when the sender's memory is free, and
   ARRIVED, when the receiver's engine is notified. Data is copied once, from
   the sender's memory to where the receiver accepts it; only a message that is
   SENT before it is accepted is copied in between. */
#pragma once

#include "sim/pool.h"
#include "sim/queue.h"

#include <baton/sim.h>

/* BATCH is the number of ranks that step before their transfers begin. EVENTS
   is the number of events whose memory is prefetched before any of them is
   handled; see net.c. LINE is the size of a cache line. */
enum { BATON__SIM_BATCH = 16, BATON__SIM_EVENTS = 64, BATON__LINE = 64 };

/* For functions that only prefetch. They must be inlined: GCC assumes that a
   call to such a function has no effect, and drops it. */
#define BATON__PREFETCHES static inline __attribute__((always_inline))

/* Kinds of events. Kinds from BATON__SIM_OWNER on belong to the network's
   owner, which handles them. */
enum {
    BATON__SIM_SENT,
    BATON__SIM_ARRIVED,
    BATON__SIM_SENT_AND_ARRIVED,
    BATON__SIM_PORT_FREE, /* the next transfer of rank `index` may begin */
    BATON__SIM_STEP,      /* the processor of rank `index` is free */
    BATON__SIM_POLL,      /* rank `index` polls its async nodes */
    BATON__SIM_LOST,      /* the other ranks notice that rank `index` is dead */
    BATON__SIM_OWNER
};

/* What a rank's next poll will report to the rank's engine: an event of the
   transport (baton_event_t) of kind SENT, ARRIVED or LOST. */
typedef struct baton__sim_completion {
    /* SENT: the schedule that has sent (the owner in the send's token).
       ARRIVED: the message. LOST: NULL. */
    void *subject;
    /* SENT: the node that has sent. LOST: the rank that is lost. ARRIVED: 0. */
    uint32_t node;
    int16_t status;
    uint8_t kind; /* baton_event_kind_t */
} baton__sim_completion_t;

BATON__PREFETCHES void baton__prefetch(const void *at, size_t lines)
{
    for (size_t i = 0; i < lines; i++) {
        __builtin_prefetch((const char *)at + i * BATON__LINE);
    }
}

struct baton__sim_net;

/* Completions for which an endpoint has memory in itself. Most endpoints need
   no more: seldom more than one send and one arrival complete between two
   polls. */
enum { BATON__SIM_OWN_COMPLETIONS = 2 };

/* A rank's endpoint, on two cache lines. Times are in microseconds. */
typedef struct baton__sim_port {
    _Alignas(64) struct baton__sim_net *net;
    uint32_t rank;
    /* The queue of sends whose transfer has not begun. */
    uint32_t queue_head, queue_tail;
    bool port_pending; /* net->queue has a PORT_FREE event of the rank */
    bool pump_pending; /* the rank is in the network's `pumps` */
    bool step_pending; /* net->queue has a STEP event of the rank */
    bool poll_pending; /* net->queue has a POLL event of the rank */
    bool is_due;
    bool dead;
    /* The times at which the rank can begin its next transfer as the sender
       (out), and as the receiver (in). Not used if options.multi_ported. */
    double out_free, in_free;
    double clock;    /* the time at which the processor is free */
    double slowness; /* 1 / speed */

    baton__sim_completion_t *completions;
    uint32_t completion_first, completion_count, completion_capacity;
    /* If this is k > 0, the k-th send from now on fails (baton_sim_fail_send).
       0: no send is made to fail. */
    uint64_t until_failure;
    baton__sim_completion_t own_completions[BATON__SIM_OWN_COMPLETIONS];
} baton__sim_port_t;
static_assert(sizeof(void *) != 8 || sizeof(baton__sim_port_t) == 128,
              "an endpoint is two cache lines");

typedef struct baton__sim_net {
    baton_transport_t transport;
    const baton_sim_options_t *options;
    baton__sim_queue_t queue;
    double now_us;
    baton__sim_port_t *ports;
    int size;
    baton__sim_pool_t pool;
    /* A ring with the ranks that must step at the current time. Each rank is in
       it at most once. */
    uint32_t *due;
    uint32_t due_first, due_count;
    uint32_t *pumps; /* the ranks with sends whose transfer may begin */
    uint32_t pump_count;
    bool failed;   /* messages or events were lost for lack of memory */
    bool any_dead; /* at least one rank is dead */
    bool has_lag;  /* options->lag is not always 0 */
    /* Called twice for each message: when its transfer begins, with the
       sender's schedule as `owner`, and when the receiver accepts it, with the
       receiver's schedule. NULL: nothing is reported. */
    void (*report)(void *arg, const void *owner, baton_sim_event_t *event);
    void *report_arg;
    baton_sim_totals_t totals;
} baton__sim_net_t;

/* Initialises a network and its endpoints, which belong to `transport`
   (port.c). `options` are valid and outlive the network. Even after
   BATON_ERR_NO_MEMORY the caller must free the network with
   baton__sim_net_fini. */
baton_status_t baton__sim_net_init(baton__sim_net_t *net,
                                   const baton_transport_t *transport,
                                   const baton_sim_options_t *options);
void baton__sim_net_fini(baton__sim_net_t *net);

/* ---- for the owner ---------------------------------------------------- */

/* Prefetches the first object that the handling of an event will touch. */
BATON__PREFETCHES void baton__sim_net_prefetch(const baton__sim_net_t *net,
                                               const baton__sim_entry_t *event)
{
    if (event->kind <= BATON__SIM_SENT_AND_ARRIVED) {
        baton__prefetch(baton__sim_pool_item(&net->pool, event->index),
                        sizeof(baton__sim_item_t) / BATON__LINE);
    } else if (event->kind < BATON__SIM_OWNER) {
        baton__prefetch(&net->ports[event->index], 1);
    }
}

/* Handles a batch of the network's own events, all of time net->now_us. */
void baton__sim_net_events(baton__sim_net_t *net,
                           const baton__sim_entry_t *events, size_t count);

/* Begins all transfers that may begin. Called after ranks have stepped. */
void baton__sim_net_begin(baton__sim_net_t *net);

/* Adds the rank to the ranks that must step at the current time. */
void baton__sim_net_due(baton__sim_port_t *port);

/* Returns the place in the ring `due` of the i-th rank that must step, counted
   from 0. */
static inline uint32_t *baton__sim_net_due_at(const baton__sim_net_t *net,
                                              uint32_t i)
{
    uint32_t at = net->due_first + i;
    return &net->due[at < (uint32_t)net->size ? at : at - (uint32_t)net->size];
}

/* Removes the next of the ranks that must step, and returns it. Returns NULL if
   there is none. */
baton__sim_port_t *baton__sim_net_take_due(baton__sim_net_t *net);

void baton__sim_net_push(baton__sim_net_t *net, double at_us, uint32_t kind,
                         uint32_t index);

/* Occupies the rank's processor for `us` / speed. Returns the time at which the
   work begins. */
double baton__sim_port_work(baton__sim_port_t *port, double us);

/* Kills a rank; see baton_sim_kill. */
void baton__sim_net_kill(baton__sim_net_t *net, int rank);

/* Called before the schedule `owner` of the port's rank is freed. Drops the
   completions of its sends, and removes it from its eager sends: these have
   completed, but may still wait in the port's queue. */
void baton__sim_net_forget(baton__sim_port_t *port, const void *owner);

/* ---- for the transport ------------------------------------------------ */

/* The transport over a simulated network. Its endpoints are the network's
   ports. */
extern const baton_transport_t baton__sim_transport;

/* Queues an item for its transfer out of this port. */
void baton__sim_port_queue(baton__sim_port_t *port, uint32_t index);

/* Takes an item out of its port's queue. */
void baton__sim_port_unqueue(baton__sim_port_t *port, uint32_t index);

/* Queues the completion SENT, by which the sender learns that it may reuse the
   message's memory. Before that, copies the data of a message that the receiver
   has not consumed. */
void baton__sim_notify_sender(baton__sim_net_t *net, uint32_t index);

/* Called when the receiver has accepted or dropped a delivered message.
   Notifies the sender if its send is synchronous. Frees the item if the sender
   was notified; otherwise the notification frees it later. */
void baton__sim_consume(baton__sim_net_t *net, baton__sim_item_t *item);

/* Returns for how many microseconds a message occupies the sender's port, and
   the receiver's. */
double baton__sim_transfer_us(const baton__sim_net_t *net,
                              const baton__sim_item_t *item);

/* Calls net->report for the sender's or the receiver's side of a transfer
   (`what`), which is node `node` of the schedule `owner`. */
void baton__sim_report(const baton__sim_net_t *net,
                       const baton__sim_item_t *item, const void *owner,
                       uint32_t node, baton_sim_what_t what, double begin_us,
                       double end_us);
