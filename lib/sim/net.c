/* The simulated network: ports, transfers and events; see net.h. */
#include "sim/net.h"

#include "base/alloc.h"
#include "sim/model.h"

#include <string.h>

/* ---- stepping and completions ------------------------------------------- */

void baton__sim_net_push(baton__sim_net_t *net, double at_us, uint32_t kind,
                         uint32_t index)
{
    if (!baton__sim_queue_push(&net->queue, at_us, kind, index)) {
        net->failed = true;
    }
}

double baton__sim_port_work(baton__sim_port_t *port, double us)
{
    double now_us = port->net->now_us;
    double begin_us = port->clock > now_us ? port->clock : now_us;
    port->clock = begin_us + us * port->slowness;
    return begin_us;
}

void baton__sim_net_due(baton__sim_port_t *port)
{
    baton__sim_net_t *net = port->net;
    if (!port->is_due) {
        port->is_due = true;
        *baton__sim_net_due_at(net, net->due_count++) = port->rank;
    }
}

baton__sim_port_t *baton__sim_net_take_due(baton__sim_net_t *net)
{
    if (net->due_count == 0) {
        return NULL;
    }
    baton__sim_port_t *port = &net->ports[net->due[net->due_first]];
    net->due_count--;
    net->due_first++;
    if (net->due_first == (uint32_t)net->size) {
        net->due_first = 0;
    }
    port->is_due = false;
    return port;
}

static bool grow_completions(baton__sim_port_t *port)
{
    uint32_t capacity = port->completion_capacity * 2;
    bool own = port->completions == port->own_completions;
    baton__sim_completion_t *completions =
        baton__grow(own ? NULL : port->completions, port->completion_capacity,
                    capacity, sizeof *completions);
    if (completions == NULL) {
        return false;
    }
    if (own) {
        memcpy(completions, port->own_completions,
               sizeof port->own_completions);
    }
    port->completions = completions;
    port->completion_capacity = capacity;
    return true;
}

/* Queues a completion for the rank's next poll, and makes the rank step. */
static void net_complete(baton__sim_port_t *port,
                         baton__sim_completion_t completion)
{
    uint32_t at = port->completion_first + port->completion_count;
    if (at == port->completion_capacity && !grow_completions(port)) {
        port->net->failed = true;
        return;
    }
    port->completions[at] = completion;
    port->completion_count++;
    baton__sim_net_due(port);
}

/* ---- transfers ---------------------------------------------------------- */

void baton__sim_report(const baton__sim_net_t *net,
                       const baton__sim_item_t *item, const void *owner,
                       uint32_t node, baton_sim_what_t what, double begin_us,
                       double end_us)
{
    bool sends = what == BATON_SIM_SEND;
    baton_sim_event_t event = {
        .what = what,
        .rank = sends ? item->message.peer : (int)item->rank,
        .peer = sends ? (int)item->rank : item->message.peer,
        .begin_us = begin_us,
        .end_us = end_us,
        .bytes = item->message.bytes,
        .node = node,
    };
    net->report(net->report_arg, owner, &event);
}

double baton__sim_transfer_us(const baton__sim_net_t *net,
                              const baton__sim_item_t *item)
{
    baton_sim_link_t link =
        baton__sim_link(net->options, item->message.peer, (int)item->rank);
    return link.alpha_us + (double)item->message.bytes * link.beta_ns * 1e-3;
}

/* Begins the transfer of a message. */
static void begin_transfer(baton__sim_port_t *port, uint32_t index)
{
    baton__sim_net_t *net = port->net;
    baton__sim_item_t *item = baton__sim_pool_item(&net->pool, index);
    baton__sim_port_t *target = &net->ports[item->rank];
    double takes_us = baton__sim_transfer_us(net, item);
    double sent_us = net->now_us + takes_us;
    double delivery_us = sent_us;
    item->state = BATON__SIM_TRANSFERRING;
    item->begin_us = net->now_us;
    if (!net->options->multi_ported) {
        port->out_free = sent_us;
        if (target->in_free > net->now_us) {
            item->begin_us = target->in_free;
            delivery_us = target->in_free + takes_us;
        }
        target->in_free = delivery_us;
    }
    net->totals.messages++;
    net->totals.bytes += item->message.bytes;
    if (net->has_lag) {
        delivery_us +=
            baton_distribution_sample(&net->options->lag, net->options->seed,
                                      BATON__STREAM_LAG, net->totals.messages);
    }
    item->delivery_us = delivery_us;
    if (net->report != NULL && item->owner != NULL) {
        baton__sim_report(net, item, item->owner, item->node, BATON_SIM_SEND,
                          net->now_us, sent_us);
    }
    if (item->sent) {
        baton__sim_net_push(net, delivery_us, BATON__SIM_ARRIVED, index);
    } else if (delivery_us == sent_us) {
        baton__sim_net_push(net, sent_us, BATON__SIM_SENT_AND_ARRIVED, index);
    } else {
        baton__sim_net_push(net, sent_us, BATON__SIM_SENT, index);
        baton__sim_net_push(net, delivery_us, BATON__SIM_ARRIVED, index);
    }
}

static void begin_queued(baton__sim_port_t *port)
{
    baton__sim_net_t *net = port->net;
    while (port->queue_head != BATON__SIM_NONE && !port->port_pending) {
        uint32_t index = port->queue_head;
        const baton__sim_item_t *item = baton__sim_pool_item(&net->pool, index);
        double at_us = item->begin_us;
        if (!net->options->multi_ported && port->out_free > at_us) {
            at_us = port->out_free;
        }
        if (at_us > net->now_us) {
            port->port_pending = true;
            baton__sim_net_push(net, at_us, BATON__SIM_PORT_FREE, port->rank);
            return;
        }
        port->queue_head = item->next;
        begin_transfer(port, index);
    }
}

/* Makes the next baton__sim_net_begin begin a transfer from the port's queue,
   unless an event will do so when the port is free. */
static void pump(baton__sim_port_t *port)
{
    baton__sim_net_t *net = port->net;
    if (!port->pump_pending && !port->port_pending) {
        port->pump_pending = true;
        net->pumps[net->pump_count++] = port->rank;
    }
}

void baton__sim_port_queue(baton__sim_port_t *port, uint32_t index)
{
    if (port->queue_head == BATON__SIM_NONE) {
        port->queue_head = index;
    } else {
        baton__sim_pool_item(&port->net->pool, port->queue_tail)->next = index;
    }
    port->queue_tail = index;
    pump(port);
}

void baton__sim_port_unqueue(baton__sim_port_t *port, uint32_t index)
{
    uint32_t *link = &port->queue_head;
    uint32_t last = BATON__SIM_NONE;
    while (*link != index) {
        last = *link;
        link = &baton__sim_pool_item(&port->net->pool, last)->next;
    }
    *link = baton__sim_pool_item(&port->net->pool, index)->next;
    if (port->queue_tail == index) {
        port->queue_tail = last;
    }
}

/* ---- messages ----------------------------------------------------------- */

void baton__sim_notify_sender(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_pool_item(&net->pool, index);
    bool consumed = item->state == BATON__SIM_CONSUMED;
    item->sent = true;
    item->synchronous = false;
    baton_status_t status = BATON_OK;
    if (net->any_dead && net->ports[item->rank].dead) {
        status = BATON_ERR_TRANSPORT;
    } else if (!consumed && !baton__sim_item_copy(item)) {
        status = BATON_ERR_NO_MEMORY;
        /* The message is lost, and its receiver would wait for it for ever. So
           the whole simulation fails. */
        net->failed = true;
    }
    if (status != BATON_OK && !item->copied) {
        /* The sender may reuse its memory from now on, so the item must not
           refer to it. */
        item->message.data = NULL;
    }
    if (item->owner != NULL) {
        net_complete(&net->ports[item->message.peer],
                     (baton__sim_completion_t){.subject = item->owner,
                                               .node = item->node,
                                               .status = (int16_t)status,
                                               .kind = BATON_EVENT_SENT});
    }
    if (consumed) {
        baton__sim_pool_give(&net->pool, index);
    }
}

void baton__sim_consume(baton__sim_net_t *net, baton__sim_item_t *item)
{
    item->state = BATON__SIM_CONSUMED;
    if (item->synchronous) {
        baton__sim_notify_sender(net, item->number);
    } else if (item->sent) {
        baton__sim_pool_give(&net->pool, item->number);
    }
}

static void sent(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_pool_item(&net->pool, index);
    size_t sync_bytes = net->options->sync_bytes;
    if (sync_bytes != 0 && item->message.bytes >= sync_bytes &&
        item->state != BATON__SIM_CONSUMED && item->owner != NULL &&
        !net->ports[item->rank].dead) {
        item->synchronous = true;
    } else {
        baton__sim_notify_sender(net, index);
    }
}

static void arrived(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_pool_item(&net->pool, index);
    baton__sim_port_t *port = &net->ports[item->rank];
    item->state = BATON__SIM_DELIVERED;
    if (port->dead) {
        baton__sim_consume(net, item);
        return;
    }
    (void)baton__sim_port_work(port, net->options->overhead_us);
    net_complete(port, (baton__sim_completion_t){.subject = &item->message,
                                                 .kind = BATON_EVENT_ARRIVED});
}

/* ---- faults ------------------------------------------------------------- */

/* Drops the dead rank's messages whose transfer has not begun: they are lost
   with their sender. */
static void drop_queue(baton__sim_port_t *port)
{
    while (port->queue_head != BATON__SIM_NONE) {
        uint32_t index = port->queue_head;
        port->queue_head = baton__sim_pool_item(&port->net->pool, index)->next;
        baton__sim_pool_give(&port->net->pool, index);
    }
}

void baton__sim_net_kill(baton__sim_net_t *net, int rank)
{
    baton__sim_port_t *dead = &net->ports[rank];
    if (dead->dead) {
        return;
    }
    dead->dead = true;
    net->any_dead = true;
    drop_queue(dead);
    /* Messages of the dead rank whose transfer has begun do arrive. The other
       ranks notice the loss of the rank only after the last of these. */
    double last_us = net->now_us;
    for (uint32_t index = 0; index < net->pool.item_count; index++) {
        baton__sim_item_t *item = baton__sim_pool_item(&net->pool, index);
        if (item->state == BATON__SIM_TRANSFERRING &&
            item->message.peer == rank && item->delivery_us > last_us) {
            last_us = item->delivery_us;
        }
        /* A synchronous send to the dead rank ends here, with
           BATON_ERR_TRANSPORT. */
        if (item->state == BATON__SIM_DELIVERED && item->synchronous &&
            item->rank == dead->rank) {
            item->state = BATON__SIM_CONSUMED;
            baton__sim_notify_sender(net, index);
        }
    }
    baton__sim_net_push(net, last_us, BATON__SIM_LOST, dead->rank);
}

static void lost(baton__sim_net_t *net, uint32_t rank)
{
    for (int r = 0; r < net->size; r++) {
        if (!net->ports[r].dead) {
            net_complete(&net->ports[r], (baton__sim_completion_t){
                                             .node = rank,
                                             .status = BATON_ERR_TRANSPORT,
                                             .kind = BATON_EVENT_LOST});
        }
    }
}

/* ---- detaching owners --------------------------------------------------- */

/* Called when the owner's epochs have ended. So all its sends are SENT or
   withdrawn, and the items that are left have copies of their data. Drops the
   owner's completions that were not polled, and removes the owner from the
   items, where only the trace would still use it. */
void baton__sim_net_forget(baton__sim_port_t *port, const void *owner)
{
    uint32_t others = 0;
    baton__sim_completion_t *completions =
        &port->completions[port->completion_first];
    for (uint32_t i = 0; i < port->completion_count; i++) {
        if (completions[i].kind != BATON_EVENT_SENT ||
            completions[i].subject != owner) {
            completions[others++] = completions[i];
        }
    }
    port->completion_count = others;
    for (uint32_t at = port->queue_head; at != BATON__SIM_NONE;) {
        baton__sim_item_t *item = baton__sim_pool_item(&port->net->pool, at);
        at = item->next;
        if (item->owner == owner) {
            assert(item->sent);
            item->owner = NULL;
        }
    }
}

/* ---- batches ------------------------------------------------------------ */

/* With many ranks every event is a chain of cache misses, and waiting for them
   one after the other takes most of a simulation's time. So the memory of a
   whole batch of events is prefetched before any of them is handled. */

void baton__sim_net_begin(baton__sim_net_t *net)
{
    for (uint32_t i = 0; i < net->pump_count; i++) {
        baton__sim_port_t *port = &net->ports[net->pumps[i]];
        port->pump_pending = false;
        begin_queued(port);
    }
    net->pump_count = 0;
}

static void handle(baton__sim_net_t *net, baton__sim_entry_t event)
{
    switch (event.kind) {
    case BATON__SIM_SENT:
        sent(net, event.index);
        break;
    case BATON__SIM_ARRIVED:
        arrived(net, event.index);
        break;
    case BATON__SIM_SENT_AND_ARRIVED:
        arrived(net, event.index);
        sent(net, event.index);
        break;
    case BATON__SIM_PORT_FREE:
        net->ports[event.index].port_pending = false;
        pump(&net->ports[event.index]);
        break;
    case BATON__SIM_STEP:
        net->ports[event.index].step_pending = false;
        baton__sim_net_due(&net->ports[event.index]);
        break;
    case BATON__SIM_POLL:
        net->ports[event.index].poll_pending = false;
        baton__sim_net_due(&net->ports[event.index]);
        break;
    case BATON__SIM_LOST:
        lost(net, event.index);
        break;
    default:
        break;
    }
}

void baton__sim_net_events(baton__sim_net_t *net,
                           const baton__sim_entry_t *events, size_t count)
{
    enum { PORT_LINES = sizeof(baton__sim_port_t) / BATON__LINE };
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind <= BATON__SIM_SENT_AND_ARRIVED) {
            const baton__sim_item_t *item =
                baton__sim_pool_item(&net->pool, events[i].index);
            if (events[i].kind != BATON__SIM_SENT) {
                baton__prefetch(&net->ports[item->rank], PORT_LINES);
            }
            if (events[i].kind != BATON__SIM_ARRIVED) {
                baton__prefetch(&net->ports[item->message.peer], PORT_LINES);
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        handle(net, events[i]);
    }
}

/* ---- life --------------------------------------------------------------- */

static void init_port(baton__sim_net_t *net, uint32_t rank)
{
    baton__sim_port_t *port = &net->ports[rank];
    double speed = 1.0;
    if (!baton__distribution_is_zero(&net->options->speed)) {
        speed =
            baton_distribution_sample(&net->options->speed, net->options->seed,
                                      BATON__STREAM_SPEED, rank);
        speed = speed < BATON__SIM_LEAST_SPEED ? BATON__SIM_LEAST_SPEED : speed;
    }
    *port = (baton__sim_port_t){
        .net = net,
        .rank = rank,
        .queue_head = BATON__SIM_NONE,
        .slowness = 1.0 / speed,
        .completions = port->own_completions,
        .completion_capacity = BATON__SIM_OWN_COMPLETIONS,
    };
}

baton_status_t baton__sim_net_init(baton__sim_net_t *net,
                                   const baton_transport_t *transport,
                                   const baton_sim_options_t *options)
{
    size_t ranks = (size_t)options->ranks;
    *net = (baton__sim_net_t){
        .transport = *transport,
        .options = options,
        .size = options->ranks,
        .ports = baton__alloc(ranks, sizeof *net->ports),
        .due = baton__alloc(ranks, sizeof *net->due),
        .pumps = baton__alloc(ranks, sizeof *net->pumps),
        .has_lag = !baton__distribution_is_zero(&options->lag),
    };
    net->transport.unordered = net->has_lag || options->multi_ported;
    int host_ranks = options->host_ranks > 1 ? options->host_ranks : 1;
    net->transport.hosts = (options->ranks - 1) / host_ranks + 1;
    net->transport.host_block = host_ranks;
    if (net->ports == NULL || net->due == NULL || net->pumps == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    for (uint32_t rank = 0; rank < (uint32_t)ranks; rank++) {
        init_port(net, rank);
    }
    return BATON_OK;
}

void baton__sim_net_fini(baton__sim_net_t *net)
{
    for (int rank = 0; net->ports != NULL && rank < net->size; rank++) {
        baton__sim_port_t *port = &net->ports[rank];
        if (port->completions != port->own_completions) {
            baton__free(port->completions);
        }
    }
    baton__sim_pool_fini(&net->pool);
    baton__free(net->ports);
    baton__free(net->due);
    baton__free(net->pumps);
    baton__sim_queue_fini(&net->queue);
}
