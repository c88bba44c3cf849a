/* The transport port over the simulated network; see sim_net.h. */
#include "transport/sim_net.h"

#include "base/alloc.h"
#include "base/random.h"
#include "transport/sim_model.h"

#include <string.h>

static baton_status_t reserve(void *endpoint, int64_t messages)
{
    baton__sim_port_t *port = endpoint;
    port->reserved += messages;
    baton_status_t status = baton__sim_table_reserve(port);
    if (status != BATON_OK) {
        port->reserved -= messages;
    }
    return status;
}

static baton_status_t send(void *endpoint, baton_token_t token, int peer,
                           uint32_t tag, const void *data, size_t bytes)
{
    baton__sim_port_t *port = endpoint;
    baton__sim_net_t *net = port->net;
    uint64_t number = port->sends + 1;
    if (number == port->fail_at || port->dead ||
        (net->deaths && net->ports[peer].dead)) {
        port->sends = number;
        return BATON_ERR_TRANSPORT;
    }
    uint32_t index = baton__sim_item_take(net);
    if (index == BATON__SIM_NONE) {
        return BATON_ERR_NO_MEMORY;
    }
    port->sends = number;
    (void)baton__sim_port_work(port, net->options->overhead_us);
    baton__sim_item_t *item = baton__sim_item(net, index);
    *item = (baton__sim_item_t){
        .owner = token.owner,
        .node = token.node,
        .bytes = bytes,
        .data = (char *)(uintptr_t)data, /* only read */
        .begin_us = port->clock > net->now_us ? port->clock : net->now_us,
        .next = BATON__SIM_NONE,
        .match = BATON__SIM_NONE,
        .rank = (unsigned)peer & (BATON__SIM_RANKS_MOST - 1),
        .peer = port->rank,
        .tag = tag,
        .state = BATON__SIM_QUEUED,
    };
    if (bytes < net->options->eager_bytes) {
        if (!baton__sim_keep(net, item)) {
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
    return item->sent ? BATON_DONE : BATON_OK;
}

static baton_status_t recv(void *endpoint, baton_token_t token, int peer,
                           uint32_t tag, void *data, size_t bytes)
{
    baton__sim_port_t *port = endpoint;
    baton__sim_net_t *net = port->net;
    uint32_t index = port->dead ? BATON__SIM_NONE : baton__sim_item_take(net);
    if (index == BATON__SIM_NONE) {
        return port->dead ? BATON_ERR_TRANSPORT : BATON_ERR_NO_MEMORY;
    }
    baton__sim_item_t *item = baton__sim_item(net, index);
    *item = (baton__sim_item_t){
        .owner = token.owner,
        .node = token.node,
        .bytes = bytes,
        .data = data,
        .match = BATON__SIM_NONE,
        .rank = port->rank & (BATON__SIM_RANKS_MOST - 1),
        .peer = (uint32_t)peer,
        .tag = tag,
        .state = BATON__SIM_RECEIVE,
    };
    uint32_t message = baton__sim_table_take(port, false, (uint32_t)peer, tag);
    if (message != BATON__SIM_NONE) {
        baton__sim_meet(net, message, index);
    } else if (net->deaths && net->ports[peer].dead) {
        baton__sim_port_done(port, item, BATON_ERR_TRANSPORT, 0);
        baton__sim_item_give(net, index);
    } else {
        baton__sim_table_append(port, index);
    }
    return BATON_OK;
}

/* Rare: so it looks everywhere. */
static bool withdraw(void *endpoint, baton_token_t token)
{
    baton__sim_port_t *port = endpoint;
    for (uint32_t i = 0; i < port->bucket_count; i++) {
        for (uint32_t at = port->buckets[i]; at != BATON__SIM_NONE;) {
            const baton__sim_item_t *item = baton__sim_item(port->net, at);
            if (item->state == BATON__SIM_RECEIVE &&
                item->owner == token.owner && item->node == token.node) {
                (void)baton__sim_table_remove(port, at);
                baton__sim_item_give(port->net, at);
                return true;
            }
            at = item->next;
        }
    }
    return false;
}

static const char *detail_of(int32_t status)
{
    switch (status) {
    case BATON_OK:
        return NULL;
    case BATON_ERR_MISMATCH:
        return "the message is longer than its receive";
    case BATON_ERR_NO_MEMORY:
        return "no memory to keep the message";
    default:
        return "the other rank is dead";
    }
}

static size_t poll(void *endpoint, baton_completion_t *out, size_t max)
{
    baton__sim_port_t *port = endpoint;
    size_t count = port->end_count < max ? port->end_count : max;
    for (size_t i = 0; i < count; i++) {
        const baton__sim_end_t *end = &port->ends[port->end_first + i];
        out[i] = (baton_completion_t){
            .token = {end->owner, end->node},
            .status = (baton_status_t)end->status,
            .bytes = end->bytes,
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

static int descriptor(void *endpoint)
{
    (void)endpoint;
    return -1;
}

static void nothing(void *endpoint)
{
    (void)endpoint;
}

/* Whatever moves a message makes its rank due. */
static uint32_t rest(void *endpoint)
{
    (void)endpoint;
    return BATON_SLEEP_FOREVER;
}

static bool sleep(void *endpoint)
{
    (void)endpoint;
    return true;
}

static const baton_transport_t transport = {
    .name = "sim",
    .reserve = reserve,
    .send = send,
    .recv = recv,
    .withdraw = withdraw,
    .poll = poll,
    .descriptor = descriptor,
    .hush = nothing,
    .rest = rest,
    .sleep = sleep,
    .awake = nothing,
    .close = nothing, /* the endpoint is the network's */
    .max_tag = INT32_MAX,
    .max_bytes = PTRDIFF_MAX,
    .eager_bytes = PTRDIFF_MAX,
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
        .buckets = &port->bucket,
        .bucket_count = 1,
        .bucket = BATON__SIM_NONE,
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
    if (options->sync_bytes != 0) {
        net->transport.eager_bytes = options->sync_bytes - 1;
    }
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
        if (port->buckets != &port->bucket) {
            baton__free(port->buckets);
        }
    }
    for (uint32_t slab = 0; slab < net->slab_count; slab++) {
        for (uint32_t i = 0; i < BATON__SIM_SLAB; i++) {
            const baton__sim_item_t *item = &net->slabs[slab][i];
            if (item->kept && item->data != item->small) {
                baton__free(item->data);
            }
        }
        baton__free(net->slabs[slab]);
    }
    baton__free(net->slabs);
    baton__free(net->spare);
    baton__free(net->ports);
    baton__free(net->due);
    baton__free(net->pumps);
    baton__sim_queue_fini(&net->queue);
}
