/* How simulated messages end: at their receiver, and at their sender; see
   sim_net.h. */
#include "transport/sim_net.h"

#include "base/alloc.h"
#include "transport/sim_model.h"

#include <string.h>

static bool grow_ends(baton__sim_port_t *port)
{
    uint32_t room = port->end_capacity * 2;
    bool own = port->ends == port->own_ends;
    baton__sim_end_t *ends = baton__grow(
        own ? NULL : port->ends, port->end_capacity, room, sizeof *ends);
    if (ends == NULL) {
        return false;
    }
    if (own) {
        memcpy(ends, port->own_ends, sizeof port->own_ends);
    }
    port->ends = ends;
    port->end_capacity = room;
    return true;
}

void baton__sim_port_done(baton__sim_port_t *port,
                          const baton__sim_item_t *item, baton_status_t status,
                          size_t bytes)
{
    if (item->owner == NULL) {
        return;
    }
    uint32_t end = port->end_first + port->end_count;
    if (end == port->end_capacity && !grow_ends(port)) {
        port->net->failed = true;
        return;
    }
    port->ends[end] =
        (baton__sim_end_t){item->owner, bytes, item->node, status};
    port->end_count++;
    baton__sim_net_due(port);
}

void baton__sim_report(const baton__sim_net_t *net,
                       const baton__sim_item_t *item, baton_sim_what_t what,
                       double begin_us, double end_us)
{
    bool sends = what == BATON_SIM_SEND;
    baton_sim_event_t event = {
        .what = what,
        .rank = (int)(sends ? item->peer : item->rank),
        .peer = (int)(sends ? item->rank : item->peer),
        .begin_us = begin_us,
        .end_us = end_us,
        .bytes = item->bytes,
        .node = item->node,
    };
    net->report(net->report_arg, item->owner, &event);
}

double baton__sim_transfer_us(const baton__sim_net_t *net,
                              const baton__sim_item_t *message)
{
    baton_sim_link_t link =
        baton__sim_link(net->options, (int)message->peer, (int)message->rank);
    return link.alpha_us + (double)message->bytes * link.beta_ns * 1e-3;
}

/* The message goes into its receive's memory. */
static void deliver(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *message = baton__sim_item(net, index);
    baton__sim_item_t *receive = baton__sim_item(net, message->match);
    baton__sim_port_t *port = &net->ports[message->rank];
    size_t bytes = message->bytes;
    baton_status_t status =
        bytes <= receive->bytes ? BATON_OK : BATON_ERR_MISMATCH;
    if (status == BATON_OK && bytes > 0 && message->data != NULL &&
        receive->data != NULL && receive->owner != NULL) {
        memcpy(receive->data, message->data, bytes);
    }
    if (net->report != NULL && receive->owner != NULL &&
        !(message->kept && message->data == message->small)) {
        double end_us =
            message->begin_us + baton__sim_transfer_us(net, message);
        baton__sim_report(net, receive, BATON_SIM_RECV, message->begin_us,
                          end_us);
    }
    (void)baton__sim_port_work(port, net->options->overhead_us);
    baton__sim_port_done(port, receive, status, bytes);
    baton__sim_item_give(net, message->match);
    if (message->sent) {
        baton__sim_item_give(net, index);
    } else {
        message->state = BATON__SIM_GONE;
    }
}

bool baton__sim_keep(const baton__sim_net_t *net, baton__sim_item_t *message)
{
    if (message->data == NULL || message->bytes == 0 || message->kept) {
        return true;
    }
    /* The memory of a small one is where the time is when its transfer may
       begin; and a trace wants to know when it began, until it is delivered. */
    bool small = message->bytes <= sizeof message->small &&
                 message->state != BATON__SIM_QUEUED && net->report == NULL;
    char *memory = small ? message->small : baton__alloc(message->bytes, 1);
    if (memory == NULL) {
        return false;
    }
    memcpy(memory, message->data, message->bytes);
    message->data = memory;
    message->kept = true;
    return true;
}

void baton__sim_tell_sender(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *message = baton__sim_item(net, index);
    baton__sim_port_t *port = &net->ports[message->peer];
    bool gone = message->state == BATON__SIM_GONE;
    message->sent = true;
    message->held = false;
    baton_status_t status = BATON_OK;
    if (net->deaths && net->ports[message->rank].dead) {
        status = BATON_ERR_TRANSPORT;
    } else if (!gone && !baton__sim_keep(net, message)) {
        status = BATON_ERR_NO_MEMORY;
        net->failed = true; /* the receiver would not see that it is lost */
    }
    if (status != BATON_OK && !message->kept) {
        message->data = NULL; /* the sender's, from here on */
    }
    baton__sim_port_done(port, message, status, message->bytes);
    if (gone) {
        baton__sim_item_give(net, index);
    }
}

void baton__sim_sent(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *message = baton__sim_item(net, index);
    size_t sync_bytes = net->options->sync_bytes;
    if (sync_bytes != 0 && message->bytes >= sync_bytes &&
        message->match == BATON__SIM_NONE && message->owner != NULL &&
        !net->ports[message->rank].dead) {
        message->held = true;
    } else {
        baton__sim_tell_sender(net, index);
    }
}

void baton__sim_arrived(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *message = baton__sim_item(net, index);
    if (message->match == BATON__SIM_NONE) {
        message->state = BATON__SIM_THERE;
    } else {
        deliver(net, index);
    }
}

void baton__sim_meet(baton__sim_net_t *net, uint32_t index, uint32_t receive)
{
    baton__sim_item_t *message = baton__sim_item(net, index);
    bool held = message->held;
    message->match = receive;
    if (message->state == BATON__SIM_THERE) {
        deliver(net, index);
    }
    if (held) {
        baton__sim_tell_sender(net, index);
    }
}
