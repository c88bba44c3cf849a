/* The functions of baton__sim_transport, the transport over the simulated
   network. Its endpoints are the network's ports; see net.h. */
#include "sim/net.h"

#include "sim/model.h"

#include <string.h>

/* Reserves nothing, since items come from a pool that grows. */
static baton_status_t sim_port_reserve(void *endpoint, int peer, int64_t sends,
                                       int64_t receives)
{
    return BATON_OK;
}

static baton_status_t sim_port_post(baton__sim_port_t *port,
                                    baton_token_t token, int peer,
                                    const baton_header_t *header,
                                    const void *data, size_t bytes, bool eager)
{
    baton__sim_net_t *net = port->net;
    uint32_t index = baton__sim_pool_take(&net->pool);
    if (index == BATON__SIM_NONE) {
        /* The ranks that need this message would wait for ever, so the
           simulation fails. */
        net->failed = true;
        return BATON_ERR_NO_MEMORY;
    }
    (void)baton__sim_port_work(port, net->options->overhead_us);
    baton__sim_item_t *item = baton__sim_pool_item(&net->pool, index);
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
        if (!baton__sim_item_copy(item)) {
            baton__sim_pool_give(&net->pool, index);
            return BATON_ERR_NO_MEMORY;
        }
        item->sent = true;
    }
    /* The transfer, which will begin soon, reads the receiver's port. */
    __builtin_prefetch(&net->ports[peer]);
    baton__sim_port_queue(port, index);
    return eager ? BATON_DONE : BATON_OK;
}

static baton_status_t send(void *endpoint, baton_token_t token, int peer,
                           const baton_header_t *header, const void *data,
                           size_t bytes)
{
    baton__sim_port_t *port = endpoint;
    const baton__sim_net_t *net = port->net;
    if ((port->until_failure > 0 && --port->until_failure == 0) || port->dead ||
        (net->any_dead && net->ports[peer].dead)) {
        return BATON_ERR_TRANSPORT;
    }
    return sim_port_post(port, token, peer, header, data, bytes,
                         bytes < net->options->eager_bytes);
}

static baton_status_t sim_port_notify(void *endpoint, int peer,
                                      const baton_header_t *header,
                                      const void *data, size_t bytes)
{
    baton__sim_port_t *port = endpoint;
    const baton__sim_net_t *net = port->net;
    const baton_token_t none = {.owner = NULL};
    if (port->dead || (net->any_dead && net->ports[peer].dead)) {
        return BATON_ERR_TRANSPORT;
    }
    return sim_port_post(port, none, peer, header, data, bytes, true);
}

/* Withdrawals are rare, so this function may look at every item. */
static bool withdraw(void *endpoint, baton_token_t token)
{
    baton__sim_port_t *port = endpoint;
    baton__sim_net_t *net = port->net;
    for (uint32_t index = 0; index < net->pool.item_count; index++) {
        baton__sim_item_t *item = baton__sim_pool_item(&net->pool, index);
        if (item->state == BATON__SIM_FREE || item->owner != token.owner ||
            item->node != token.node || item->sent ||
            item->message.peer != (int)port->rank) {
            continue;
        }
        if (item->state == BATON__SIM_CONSUMED) {
            /* The message was consumed, and its SENT event is due. */
            return false;
        }
        if (item->state == BATON__SIM_QUEUED) {
            baton__sim_port_unqueue(port, index);
            baton__sim_pool_give(&net->pool, index);
            return true;
        }
        item->owner = NULL;
        item->message.data = NULL;
        item->withdrawn = true;
        if (item->synchronous) {
            baton__sim_notify_sender(net, index);
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
    baton__sim_consume(net, item);
    return withdrawn ? BATON_ERR_CANCELLED : BATON_DONE;
}

static void sim_port_drop(void *endpoint, baton_message_t *message)
{
    const baton__sim_port_t *port = endpoint;
    if (port->dead) {
        return; /* a dead rank consumes no messages */
    }
    baton__sim_consume(port->net, (baton__sim_item_t *)message);
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
    size_t count = port->completion_count < max ? port->completion_count : max;
    for (size_t i = 0; i < count; i++) {
        const baton__sim_completion_t *from =
            &port->completions[port->completion_first + i];
        bool arrived = from->kind == BATON_EVENT_ARRIVED;
        out[i] = (baton_event_t){
            .kind = (baton_event_kind_t)from->kind,
            .status = (baton_status_t)from->status,
            .token = {.owner = arrived ? NULL : from->subject,
                      .node = from->node},
            .message = arrived ? from->subject : NULL,
            .peer = (int)from->node,
            .detail = detail_of(from->status),
        };
    }
    port->completion_first += (uint32_t)count;
    port->completion_count -= (uint32_t)count;
    if (port->completion_count == 0) {
        port->completion_first = 0;
    }
    return count;
}

static int descriptor(void *endpoint, int k)
{
    return -1;
}

static void nothing(void *endpoint)
{
}

/* Always succeeds: the simulator steps a rank at each of its events, so a
   sleeping rank misses nothing. */
static bool sim_port_arm(void *endpoint, baton_arm_t how,
                         uint32_t *sleep_us_out)
{
    *sleep_us_out = BATON_SLEEP_FOREVER;
    return true;
}

const baton_transport_t baton__sim_transport = {
    .size = sizeof(baton_transport_t),
    .name = "sim",
    .reserve = sim_port_reserve,
    .send = send,
    .notify = sim_port_notify,
    .withdraw = withdraw,
    .poll = poll,
    .accept = accept,
    .drop = sim_port_drop,
    .descriptor = descriptor,
    .drain = nothing,
    .arm = sim_port_arm,
    .disarm = nothing,
    .close = nothing, /* the network owns the endpoint */
    .max_bytes = PTRDIFF_MAX,
};
