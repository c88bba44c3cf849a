/* The transport port over the simulated network; see sim_net.h. */
#include "transport/sim_net.h"

#include "base/alloc.h"
#include "base/random.h"
#include "transport/sim_model.h"

#include <string.h>

/* Items come from a pool that grows. */
static baton_status_t reserve(void *endpoint, int peer, int64_t sends,
                              int64_t receives)
{
    (void)endpoint;
    (void)peer;
    (void)sends;
    (void)receives;
    return BATON_OK;
}

static baton_status_t post(baton__sim_port_t *port, baton_token_t token,
                           int peer, const baton_header_t *header,
                           const void *data, size_t bytes, bool eager)
{
    baton__sim_net_t *net = port->net;
    uint32_t index = baton__sim_item_take(net);
    if (index == BATON__SIM_NONE) {
        return BATON_ERR_NO_MEMORY;
    }
    (void)baton__sim_port_work(port, net->options->overhead_us);
    baton__sim_item_t *item = baton__sim_item(net, index);
    *item = (baton__sim_item_t){
        .message = {.header = *header,
                    .bytes = bytes,
                    .data = data,
                    .peer = (int)port->rank},
        .rank = (unsigned)peer & (BATON__SIM_RANKS_MOST - 1),
        .state = BATON__SIM_QUEUED,
        .number = index,
        .owner = token.owner,
        .node = token.node,
        .next = BATON__SIM_NONE,
        .begin_us = port->clock > net->now_us ? port->clock : net->now_us,
    };
    if (eager) {
        if (!baton__sim_keep(item)) {
            baton__sim_item_give(net, index);
            return BATON_ERR_NO_MEMORY;
        }
        item->sent = true;
    }
    if (port->queue_head == BATON__SIM_NONE) {
        port->queue_head = index;
    } else {
        baton__sim_item(net, port->queue_tail)->next = index;
    }
    port->queue_tail = index;
    baton__sim_port_pump(port);
    return eager ? BATON_DONE : BATON_OK;
}

static baton_status_t send(void *endpoint, baton_token_t token, int peer,
                           const baton_header_t *header, const void *data,
                           size_t bytes)
{
    baton__sim_port_t *port = endpoint;
    const baton__sim_net_t *net = port->net;
    if (++port->sends == port->fail_at || port->dead ||
        (net->deaths && net->ports[peer].dead)) {
        return BATON_ERR_TRANSPORT;
    }
    return post(port, token, peer, header, data, bytes,
                bytes < net->options->eager_bytes);
}

static baton_status_t notify(void *endpoint, int peer,
                             const baton_header_t *header, const void *data,
                             size_t bytes)
{
    baton__sim_port_t *port = endpoint;
    const baton__sim_net_t *net = port->net;
    const baton_token_t nobody = {NULL, 0};
    if (port->dead || (net->deaths && net->ports[peer].dead)) {
        return BATON_ERR_TRANSPORT;
    }
    return post(port, nobody, peer, header, data, bytes, true);
}

/* Takes an item out of its port's queue. */
static void unqueue(baton__sim_port_t *port, uint32_t index)
{
    uint32_t *link = &port->queue_head;
    uint32_t last = BATON__SIM_NONE;
    while (*link != index) {
        last = *link;
        link = &baton__sim_item(port->net, last)->next;
    }
    *link = baton__sim_item(port->net, index)->next;
    if (port->queue_tail == index) {
        port->queue_tail = last;
    }
}

/* Rare: so it looks everywhere. */
static bool withdraw(void *endpoint, baton_token_t token)
{
    baton__sim_port_t *port = endpoint;
    baton__sim_net_t *net = port->net;
    for (uint32_t index = 0; index < net->item_count; index++) {
        baton__sim_item_t *item = baton__sim_item(net, index);
        if (item->state == BATON__SIM_FREE || item->owner != token.owner ||
            item->node != token.node || item->sent ||
            item->message.peer != (int)port->rank) {
            continue;
        }
        if (item->state == BATON__SIM_GONE) {
            return false; /* only its SENT has not come */
        }
        if (item->state == BATON__SIM_QUEUED) {
            unqueue(port, index);
            baton__sim_item_give(net, index);
            return true;
        }
        item->owner = NULL;
        item->message.data = NULL;
        item->withdrawn = true;
        if (item->held) {
            baton__sim_tell_sender(net, index);
        }
        return true;
    }
    return false;
}

static baton_status_t accept(void *endpoint, baton_message_t *message,
                             baton_token_t token, void *target)
{
    baton__sim_port_t *port = endpoint;
    baton__sim_net_t *net = port->net;
    baton__sim_item_t *item = (baton__sim_item_t *)message;
    bool withdrawn = item->withdrawn;
    if (port->dead) {
        return BATON_ERR_TRANSPORT;
    }
    if (message->bytes > 0 && message->data != NULL && target != NULL) {
        memcpy(target, message->data, message->bytes);
    }
    if (net->report != NULL && !withdrawn && token.owner != NULL) {
        double end_us = item->begin_us + baton__sim_transfer_us(net, item);
        baton__sim_report(net, item, token.owner, token.node, BATON_SIM_RECV,
                          item->begin_us, end_us);
    }
    baton__sim_end_message(net, item);
    return withdrawn ? BATON_ERR_CANCELLED : BATON_DONE;
}

static void drop(void *endpoint, baton_message_t *message)
{
    const baton__sim_port_t *port = endpoint;
    if (port->dead) {
        return; /* its messages ended with it */
    }
    baton__sim_end_message(port->net, (baton__sim_item_t *)message);
}

static const char *detail_of(int16_t status)
{
    switch (status) {
    case BATON_OK:
        return NULL;
    case BATON_ERR_NO_MEMORY:
        return "no memory to keep the message";
    default:
        return "the other rank is dead";
    }
}

static size_t poll(void *endpoint, baton_event_t *out, size_t max)
{
    baton__sim_port_t *port = endpoint;
    size_t count = port->end_count < max ? port->end_count : max;
    for (size_t i = 0; i < count; i++) {
        const baton__sim_end_t *end = &port->ends[port->end_first + i];
        bool arrived = end->kind == BATON_EVENT_ARRIVED;
        out[i] = (baton_event_t){
            .kind = (baton_event_kind_t)end->kind,
            .status = (baton_status_t)end->status,
            .token = {arrived ? NULL : end->what, end->node},
            .message = arrived ? end->what : NULL,
            .peer = end->peer,
            .detail = detail_of(end->status),
        };
    }
    port->end_first += (uint32_t)count;
    port->end_count -= (uint32_t)count;
    if (port->end_count == 0) {
        port->end_first = 0;
    }
    return count;
}

static int descriptor(void *endpoint, int k)
{
    (void)endpoint;
    (void)k;
    return -1;
}

static void nothing(void *endpoint)
{
    (void)endpoint;
}

/* Whatever happens makes its rank due. */
static bool arm(void *endpoint, uint32_t *sleep_us_out)
{
    (void)endpoint;
    *sleep_us_out = BATON_SLEEP_FOREVER;
    return true;
}

static const baton_transport_t transport = {
    .name = "sim",
    .reserve = reserve,
    .send = send,
    .notify = notify,
    .withdraw = withdraw,
    .poll = poll,
    .accept = accept,
    .drop = drop,
    .descriptor = descriptor,
    .drain = nothing,
    .arm = arm,
    .disarm = nothing,
    .close = nothing, /* the endpoint is the network's */
    .max_bytes = PTRDIFF_MAX,
};

/* ---- coming and going ------------------------------------------------- */

static void init_port(baton__sim_net_t *net, uint32_t rank)
{
    baton__sim_port_t *port = &net->ports[rank];
    double speed = 1.0;
    if (!baton__distribution_is_zero(&net->options->speed)) {
        speed = baton__distribution_draw(
            &net->options->speed,
            baton__random(net->options->seed, BATON__STREAM_SPEED, rank));
    }
    *port = (baton__sim_port_t){
        .net = net,
        .rank = rank,
        .queue_head = BATON__SIM_NONE,
        .slowness = 1.0 / speed,
        .ends = port->own_ends,
        .end_capacity = BATON__SIM_ENDS,
    };
}

baton_status_t baton__sim_net_init(baton__sim_net_t *net,
                                   const baton_sim_options_t *options)
{
    size_t ranks = (size_t)options->ranks;
    *net = (baton__sim_net_t){
        .transport = transport,
        .options = options,
        .size = options->ranks,
        .ports = baton__alloc(ranks, sizeof *net->ports),
        .due = baton__alloc(ranks, sizeof *net->due),
        .pumps = baton__alloc(ranks, sizeof *net->pumps),
        .lag = options->lag,
        .lags = !baton__distribution_is_zero(&options->lag),
    };
    net->transport.unordered = net->lags || options->multi_ported;
    int host_ranks = options->host_ranks > 1 ? options->host_ranks : 1;
    net->transport.hosts = (options->ranks - 1) / host_ranks + 1;
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
        if (port->ends != port->own_ends) {
            baton__free(port->ends);
        }
    }
    for (uint32_t index = 0; index < net->item_count; index++) {
        const baton__sim_item_t *item = baton__sim_item(net, index);
        if (item->kept && item->message.data != item->small) {
            baton__free((void *)(uintptr_t)item->message.data);
        }
    }
    for (uint32_t slab = 0; slab < net->slab_count; slab++) {
        baton__free(net->slabs[slab]);
    }
    baton__free(net->slabs);
    baton__free(net->spare);
    baton__free(net->ports);
    baton__free(net->due);
    baton__free(net->pumps);
    baton__sim_queue_fini(&net->queue);
}
