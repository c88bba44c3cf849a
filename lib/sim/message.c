/* How simulated messages end: at their receiver, and at their sender; see
   net.h. */
#include "sim/net.h"

#include "base/alloc.h"
#include "sim/model.h"

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

void baton__sim_port_tell(baton__sim_port_t *port, baton__sim_end_t end)
{
    uint32_t at = port->end_first + port->end_count;
    if (at == port->end_capacity && !grow_ends(port)) {
        port->net->failed = true;
        return;
    }
    port->ends[at] = end;
    port->end_count++;
    baton__sim_net_due(port);
}

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

bool baton__sim_keep(baton__sim_item_t *item)
{
    baton_message_t *message = &item->message;
    if (message->data == NULL || message->bytes == 0 || item->kept) {
        return true;
    }
    char *memory = message->bytes <= sizeof item->small
                       ? item->small
                       : baton__alloc(message->bytes, 1);
    if (memory == NULL) {
        return false;
    }
    memcpy(memory, message->data, message->bytes);
    message->data = memory;
    item->kept = true;
    return true;
}

void baton__sim_tell_sender(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_item(net, index);
    bool gone = item->state == BATON__SIM_GONE;
    item->sent = true;
    item->held = false;
    baton_status_t status = BATON_OK;
    if (net->deaths && net->ports[item->rank].dead) {
        status = BATON_ERR_TRANSPORT;
    } else if (!gone && !baton__sim_keep(item)) {
        status = BATON_ERR_NO_MEMORY;
        net->failed = true; /* the receiver would not see that it is lost */
    }
    if (status != BATON_OK && !item->kept) {
        item->message.data = NULL; /* the sender's, from here on */
    }
    if (item->owner != NULL) {
        baton__sim_port_tell(&net->ports[item->message.peer],
                             (baton__sim_end_t){.what = item->owner,
                                                .node = item->node,
                                                .status = (int16_t)status,
                                                .kind = BATON_EVENT_SENT});
    }
    if (gone) {
        baton__sim_item_give(net, index);
    }
}

void baton__sim_sent(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_item(net, index);
    size_t sync_bytes = net->options->sync_bytes;
    if (sync_bytes != 0 && item->message.bytes >= sync_bytes &&
        item->state != BATON__SIM_GONE && item->owner != NULL &&
        !net->ports[item->rank].dead) {
        item->held = true;
    } else {
        baton__sim_tell_sender(net, index);
    }
}

void baton__sim_arrived(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_item(net, index);
    baton__sim_port_t *port = &net->ports[item->rank];
    item->state = BATON__SIM_THERE;
    if (port->dead) {
        baton__sim_end_message(net, item);
        return;
    }
    (void)baton__sim_port_work(port, net->options->overhead_us);
    baton__sim_port_tell(port, (baton__sim_end_t){.what = &item->message,
                                                  .kind = BATON_EVENT_ARRIVED});
}

void baton__sim_end_message(baton__sim_net_t *net, baton__sim_item_t *item)
{
    item->state = BATON__SIM_GONE;
    if (item->held) {
        baton__sim_tell_sender(net, item->number);
    } else if (item->sent) {
        baton__sim_item_give(net, item->number);
    }
}
