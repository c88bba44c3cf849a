/* Ranks that die, and owners that go: what becomes of their messages. */
#include "sim/net.h"

/* What has not left it yet never does. */
static void drop_queue(baton__sim_port_t *port)
{
    while (port->queue_head != BATON__SIM_NONE) {
        uint32_t index = port->queue_head;
        port->queue_head = baton__sim_item(port->net, index)->next;
        baton__sim_item_give(port->net, index);
    }
}

void baton__sim_net_kill(baton__sim_net_t *net, int rank)
{
    baton__sim_port_t *dead = &net->ports[rank];
    if (dead->dead) {
        return;
    }
    dead->dead = true;
    net->deaths = true;
    drop_queue(dead);
    /* What is on its way from it arrives; then nothing more does. */
    double last_us = net->now_us;
    for (uint32_t index = 0; index < net->item_count; index++) {
        baton__sim_item_t *item = baton__sim_item(net, index);
        if (item->state == BATON__SIM_MOVING && item->message.peer == rank &&
            item->there_us > last_us) {
            last_us = item->there_us;
        }
        /* A send that waits for it to accept. */
        if (item->state == BATON__SIM_THERE && item->held &&
            item->rank == dead->rank) {
            item->state = BATON__SIM_GONE;
            baton__sim_tell_sender(net, index);
        }
    }
    baton__sim_net_push(net, last_us, BATON__SIM_LOST, dead->rank);
}

void baton__sim_lost(baton__sim_net_t *net, uint32_t rank)
{
    for (int r = 0; r < net->size; r++) {
        if (!net->ports[r].dead) {
            baton__sim_port_tell(
                &net->ports[r],
                (baton__sim_end_t){.peer = (int32_t)rank,
                                   .status = BATON_ERR_TRANSPORT,
                                   .kind = BATON_EVENT_LOST});
        }
    }
}

/* Its ended sends, where they have not been polled yet. */
static void forget_ends(baton__sim_port_t *port, const void *owner)
{
    uint32_t kept = 0;
    baton__sim_end_t *ends = &port->ends[port->end_first];
    for (uint32_t i = 0; i < port->end_count; i++) {
        if (ends[i].kind != BATON_EVENT_SENT || ends[i].what != owner) {
            ends[kept++] = ends[i];
        }
    }
    port->end_count = kept;
}

void baton__sim_net_forget_queued(baton__sim_port_t *port, const void *owner)
{
    for (uint32_t at = port->queue_head; at != BATON__SIM_NONE;) {
        baton__sim_item_t *item = baton__sim_item(port->net, at);
        at = item->next;
        if (item->sent && item->owner == owner) {
            item->owner = NULL; /* only a trace would still ask */
        }
    }
}

void baton__sim_net_forget(baton__sim_port_t *port, const void *owner)
{
    baton__sim_net_t *net = port->net;
    forget_ends(port, owner);
    for (uint32_t index = 0; index < net->item_count; index++) {
        baton__sim_item_t *item = baton__sim_item(net, index);
        if (item->state == BATON__SIM_FREE || item->owner != owner) {
            continue;
        }
        item->owner = NULL;
        if (item->held) {
            baton__sim_tell_sender(net, index);
        } else if (item->state != BATON__SIM_GONE && !baton__sim_keep(item)) {
            net->failed = true;
        }
    }
}
