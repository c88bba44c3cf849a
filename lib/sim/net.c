/* The simulated network: times, transfers and events; see net.h. */
#include "sim/net.h"

#include "base/random.h"
#include "sim/model.h"

/* ---- times ------------------------------------------------------------ */

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
        uint32_t at = net->due_first + net->due_count++;
        net->due[at < (uint32_t)net->size ? at : at - (uint32_t)net->size] =
            port->rank;
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

/* ---- transfers -------------------------------------------------------- */

/* The transfer of a message begins now. */
static void begin(baton__sim_port_t *port, uint32_t index)
{
    baton__sim_net_t *net = port->net;
    baton__sim_item_t *item = baton__sim_item(net, index);
    baton__sim_port_t *target = &net->ports[item->rank];
    double takes_us = baton__sim_transfer_us(net, item);
    double sent_us = net->now_us + takes_us;
    double there_us = sent_us;
    item->state = BATON__SIM_MOVING;
    item->begin_us = net->now_us;
    if (!net->options->multi_ported) {
        port->out_free = sent_us;
        if (target->in_free > net->now_us) {
            item->begin_us = target->in_free;
            there_us = target->in_free + takes_us;
        }
        target->in_free = there_us;
    }
    net->totals.messages++;
    net->totals.bytes += item->message.bytes;
    if (net->lags) {
        there_us += baton__distribution_draw(
            &net->lag, baton__random(net->options->seed, BATON__STREAM_LAG,
                                     net->totals.messages));
    }
    item->there_us = there_us;
    if (net->report != NULL && item->owner != NULL) {
        baton__sim_report(net, item, item->owner, item->node, BATON_SIM_SEND,
                          net->now_us, sent_us);
    }
    if (item->sent) {
        baton__sim_net_push(net, there_us, BATON__SIM_ARRIVED, index);
    } else if (there_us == sent_us) {
        baton__sim_net_push(net, sent_us, BATON__SIM_BOTH, index);
    } else {
        baton__sim_net_push(net, sent_us, BATON__SIM_SENT, index);
        baton__sim_net_push(net, there_us, BATON__SIM_ARRIVED, index);
    }
}

static void begin_queued(baton__sim_port_t *port)
{
    baton__sim_net_t *net = port->net;
    while (port->queue_head != BATON__SIM_NONE && !port->port_waits) {
        uint32_t index = port->queue_head;
        const baton__sim_item_t *item = baton__sim_item(net, index);
        double at_us = item->begin_us;
        if (!net->options->multi_ported && port->out_free > at_us) {
            at_us = port->out_free;
        }
        if (at_us > net->now_us) {
            port->port_waits = true;
            baton__sim_net_push(net, at_us, BATON__SIM_PORT, port->rank);
            return;
        }
        port->queue_head = item->next;
        begin(port, index);
    }
}

void baton__sim_port_pump(baton__sim_port_t *port)
{
    baton__sim_net_t *net = port->net;
    if (!port->pump_waits && !port->port_waits) {
        port->pump_waits = true;
        net->pumps[net->pump_count++] = port->rank;
    }
}

/* ---- in groups -------------------------------------------------------- */

/* With many ranks every event is a chain of cache misses, and waiting for them
   one after the other is most of the time that a simulation takes. So a group
   of events is looked through first, and asks for its memory. */

BATON__FETCHES void fetch_port(const baton__sim_port_t *port)
{
    __builtin_prefetch(port);
    __builtin_prefetch((const char *)port + 64);
    __builtin_prefetch((const char *)port + 128);
}

BATON__FETCHES void fetch_item(const baton__sim_item_t *item)
{
    __builtin_prefetch(item);
    __builtin_prefetch((const char *)item + 64);
}

static void begin_group(baton__sim_net_t *net, const uint32_t *ranks,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t head = net->ports[ranks[i]].queue_head;
        if (head != BATON__SIM_NONE) {
            fetch_item(baton__sim_item(net, head));
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t head = net->ports[ranks[i]].queue_head;
        if (head != BATON__SIM_NONE) {
            const baton__sim_port_t *target =
                &net->ports[baton__sim_item(net, head)->rank];
            __builtin_prefetch(target);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        baton__sim_port_t *port = &net->ports[ranks[i]];
        port->pump_waits = false;
        begin_queued(port);
    }
}

void baton__sim_net_begin(baton__sim_net_t *net)
{
    uint32_t count = net->pump_count;
    for (uint32_t i = 0; i < count; i += BATON__SIM_GROUP) {
        uint32_t left = count - i;
        begin_group(net, &net->pumps[i],
                    left < BATON__SIM_GROUP ? left : BATON__SIM_GROUP);
    }
    net->pump_count = 0;
}

static bool of_message(const baton__sim_entry_t *event)
{
    return event->kind <= BATON__SIM_BOTH;
}

static void happen(baton__sim_net_t *net, baton__sim_entry_t event)
{
    switch (event.kind) {
    case BATON__SIM_SENT:
        baton__sim_sent(net, event.index);
        break;
    case BATON__SIM_ARRIVED:
        baton__sim_arrived(net, event.index);
        break;
    case BATON__SIM_BOTH:
        baton__sim_arrived(net, event.index);
        baton__sim_sent(net, event.index);
        break;
    case BATON__SIM_PORT:
        net->ports[event.index].port_waits = false;
        baton__sim_port_pump(&net->ports[event.index]);
        break;
    case BATON__SIM_STEP:
        net->ports[event.index].step_waits = false;
        baton__sim_net_due(&net->ports[event.index]);
        break;
    case BATON__SIM_ASK:
        net->ports[event.index].asks = false;
        baton__sim_net_due(&net->ports[event.index]);
        break;
    case BATON__SIM_LOST:
        baton__sim_lost(net, event.index);
        break;
    default:
        break;
    }
}

void baton__sim_net_events(baton__sim_net_t *net,
                           const baton__sim_entry_t *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (of_message(&events[i])) {
            fetch_item(baton__sim_item(net, events[i].index));
        } else if (events[i].kind < BATON__SIM_OWNER) {
            __builtin_prefetch(&net->ports[events[i].index]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (of_message(&events[i])) {
            const baton__sim_item_t *item =
                baton__sim_item(net, events[i].index);
            if (events[i].kind != BATON__SIM_SENT) {
                fetch_port(&net->ports[item->rank]);
            }
            if (events[i].kind != BATON__SIM_ARRIVED) {
                fetch_port(&net->ports[item->message.peer]);
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        happen(net, events[i]);
    }
}
