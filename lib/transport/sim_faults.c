/* Ranks that die, and owners that go: what becomes of their messages. */
#include "transport/sim_net.h"

/* Ends all receives in the table of `port` from the dead rank. */
static void end_receives(baton__sim_port_t *port, uint32_t dead)
{
    baton__sim_net_t *net = port->net;
    for (uint32_t i = 0; i < port->bucket_count; i++) {
        uint32_t *link = &port->buckets[i];
        while (*link != BATON__SIM_NONE) {
            uint32_t index = *link;
            baton__sim_item_t *item = baton__sim_item(net, index);
            if (item->state == BATON__SIM_RECEIVE && item->peer == dead) {
                *link = item->next;
                baton__sim_port_done(port, item, BATON_ERR_TRANSPORT, 0);
                baton__sim_item_give(net, index);
            } else {
                link = &item->next;
            }
        }
    }
}

/* What has not left it yet never does. */
static void drop_queue(baton__sim_port_t *port)
{
    while (port->queue_head != BATON__SIM_NONE) {
        uint32_t index = port->queue_head;
        const baton__sim_item_t *item = baton__sim_item(port->net, index);
        port->queue_head = item->next;
        if (!item->sent) {
            baton__sim_port_done(port, item, BATON_ERR_TRANSPORT, 0);
        }
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
    for (int r = 0; r < net->size; r++) {
        end_receives(&net->ports[r], dead->rank);
    }
    /* Sends that wait for one of its receives. */
    for (uint32_t i = 0; i < dead->bucket_count; i++) {
        for (uint32_t at = dead->buckets[i]; at != BATON__SIM_NONE;) {
            const baton__sim_item_t *item = baton__sim_item(net, at);
            uint32_t next = item->next;
            if (item->held) {
                baton__sim_tell_sender(net, at);
            }
            at = next;
        }
    }
}

/* Its completions, where they have not been polled yet. */
static void forget_ends(baton__sim_port_t *port, const void *owner)
{
    uint32_t kept = 0;
    baton__sim_end_t *ends = &port->ends[port->end_first];
    for (uint32_t i = 0; i < port->end_count; i++) {
        if (ends[i].owner != owner) {
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
    uint32_t items = net->slab_count * BATON__SIM_SLAB;
    for (uint32_t index = 0; index < items; index++) {
        baton__sim_item_t *item = baton__sim_item(net, index);
        if (item->state == BATON__SIM_FREE || item->owner != owner) {
            continue;
        }
        item->owner = NULL;
        if (item->state == BATON__SIM_RECEIVE) {
            item->data = NULL;
            if (baton__sim_table_remove(port, index)) {
                baton__sim_item_give(net, index);
            }
        } else if (item->held) {
            baton__sim_tell_sender(net, index);
        } else if (item->state != BATON__SIM_GONE &&
                   !baton__sim_keep(net, item)) {
            net->failed = true;
        }
    }
}
