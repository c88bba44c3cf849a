/* A send and its receive have the same key {schedule, its terms, from, to, tag,
   kind, bytes}, and no two messages share a key. So the hashes of the keys of
   all sends and of all receives have the same sum if everything matches. A
   mismatch is searched for only if the sums differ: in each schedule the k-th
   send from one rank to another is compared with the k-th receive. Activations
   are counted apart from other messages. The search may find no mismatch
   although the sums differ, since a receive whose length is set in the epoch
   takes any send that is not larger. */
#include "sim/sim.h"

#include "base/error.h"
#include "base/random.h"

#include <stdio.h>

static uint64_t hash(const baton_schedule_t *schedule, const baton__op_t *op)
{
    int rank = schedule->group->rank;
    uint64_t own = (uint64_t)rank;
    uint64_t peer = (uint64_t)baton__peer_of(schedule, op);
    uint64_t pair = baton__op_sends(op) ? own << 32 | peer : peer << 32 | own;
    uint64_t tag = (uint64_t)op->message.tag << 1 | baton__op_activates(op);
    uint64_t whose = baton__task_of(schedule)->identity + schedule->terms_hash;
    uint64_t key = baton__mix(baton__mix(pair + 1) ^ whose);
    return baton__mix(baton__mix(key ^ tag) + op->bytes);
}

/* Returns the sum of the hashes of a schedule's sends minus that of its
   receives. Returns 0 if the schedule was already compared. */
static uint64_t sum_of(const baton_schedule_t *schedule)
{
    const bool matched = baton__sim_task_of(schedule)->matched;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < schedule->count && !matched; i++) {
        const baton__op_t *op = &schedule->ops[i];
        if (baton__kinds[op->kind].message) {
            uint64_t key = hash(schedule, op);
            sum += baton__op_sends(op) ? key : -key;
        }
    }
    return sum;
}

/* Returns the schedule after `last`, or the first one if `last` is NULL. */
static baton_schedule_t *match_next_of(const baton_sim_t *sim,
                                       const baton_schedule_t *last)
{
    baton__task_t *next = last != NULL ? baton__task_of(last)->next : NULL;
    int rank = last != NULL ? last->group->rank + 1 : 0;
    while (next == NULL && rank < sim->options.ranks) {
        next = sim->ranks[rank++].stepper.tasks;
    }
    return next != NULL ? &next->schedule : NULL;
}

/* Returns true if a node is an end of a message with `peer`, of this direction
   and kind (activation or not). */
static bool match_is_end(const baton_schedule_t *schedule, uint32_t node,
                         int peer, bool sends, bool activates)
{
    const baton__op_t *op = &schedule->ops[node];
    return baton__kinds[op->kind].message &&
           baton__peer_of(schedule, op) == peer &&
           baton__op_sends(op) == sends && baton__op_activates(op) == activates;
}

uint32_t baton__sim_find_match(const baton_sim_t *sim,
                               const baton_schedule_t *schedule,
                               const baton__op_t *op,
                               const baton_schedule_t **peer_out)
{
    const baton__sim_rank_t *there = &sim->ranks[baton__peer_of(schedule, op)];
    const baton_schedule_t *peer = baton__group_find(
        &there->member.group, baton__task_of(schedule)->identity);
    int rank = schedule->group->rank;
    bool activates = baton__op_activates(op);
    *peer_out = peer;
    if (peer == NULL) {
        return BATON__NO_NODE;
    }
    if (baton__op_sends(op)) {
        return baton__plan_receiver(&peer->plan, rank, op->message.tag,
                                    activates);
    }
    uint32_t node = 0;
    while (node < peer->count &&
           (!match_is_end(peer, node, rank, true, activates) ||
            peer->ops[node].message.tag != op->message.tag)) {
        node++;
    }
    return node < peer->count ? node : BATON__NO_NODE;
}

/* ---- the search ---------------------------------------------------------- */

/* Counts the nodes of the peer's schedule that are the opposite end of a
   message of the kind and direction of `op`, to or from this rank. */
static uint32_t count_others(const baton_schedule_t *schedule,
                             const baton__op_t *op,
                             const baton_schedule_t *peer)
{
    uint32_t count = 0;
    int rank = schedule->group->rank;
    bool sends = !baton__op_sends(op), activates = baton__op_activates(op);
    for (uint32_t i = 0; i < peer->count; i++) {
        count += match_is_end(peer, i, rank, sends, activates);
    }
    return count;
}

static const char *other_kind(const baton__op_t *op)
{
    if (baton__op_sends(op)) {
        return baton__op_activates(op) ? "armed receive" : "receive";
    }
    return baton__op_activates(op) ? "activate" : "send";
}

/* Returns the error that reports a message without a match. `peer` is NULL if
   the other rank has not committed the schedule. */
static baton_status_t fail_unmatched(const baton_schedule_t *schedule,
                                     const baton__op_t *op,
                                     const baton_schedule_t *peer)
{
    char there[64] = "not committed it";
    if (peer != NULL) {
        uint32_t others = count_others(schedule, op, peer);
        baton__text_t text = {there, sizeof there, 0};
        if (others > 0) {
            baton__text_add(&text, "%u", others);
        }
        baton__text_add(&text, "%s %s there", others > 0 ? "" : "none",
                        baton__op_sends(op) ? "from" : "to");
    }
    return baton__error(
        BATON_ERR_MISMATCH,
        "\"%s\": %s of rank %d has no %s on rank %d, which has %s",
        schedule->name,
        baton__node_name(schedule, (uint32_t)(op - schedule->ops)),
        schedule->group->rank, other_kind(op), baton__peer_of(schedule, op),
        there);
}

/* Returns the error for a send and a receive of different sizes. If the numbers
   of sends and receives between the two ranks differ, too, the message says so:
   a send or receive, possibly an earlier one, was then left out. */
static baton_status_t fail_sizes(const baton_schedule_t *schedule,
                                 const baton__op_t *send,
                                 const baton_schedule_t *peer,
                                 const baton__op_t *receive)
{
    char more[64] = "";
    uint32_t sends = count_others(peer, receive, schedule);
    uint32_t receives = count_others(schedule, send, peer);
    if (sends != receives) {
        (void)snprintf(more, sizeof more, "; %u sends must match %u receives",
                       sends, receives);
    }
    return baton__error(
        BATON_ERR_MISMATCH,
        "\"%s\": %s of rank %d has %zu bytes and its receiver, %s of rank %d, "
        "%zu%s",
        schedule->name,
        baton__node_name(schedule, (uint32_t)(send - schedule->ops)),
        schedule->group->rank, send->bytes,
        baton__node_name(peer, (uint32_t)(receive - peer->ops)),
        peer->group->rank, receive->bytes, more);
}

/* True when the sizes of a send and its receive match. A receive whose length
   is set in the epoch takes any send that is not larger than its view. */
static bool sizes_match(const baton__op_t *send, const baton__op_t *receive)
{
    bool up_to = receive->length != BATON__NO_LENGTH;
    return up_to ? send->bytes <= receive->bytes
                 : send->bytes == receive->bytes;
}

static baton_status_t fail_terms(const baton_schedule_t *schedule,
                                 const baton_schedule_t *peer)
{
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    baton__terms_compare(&text, schedule, peer->terms, 0, peer->group->rank);
    return baton__error(BATON_ERR_MISMATCH, "\"%s\": %s", schedule->name,
                        text.data);
}

static baton_status_t search_schedule(const baton_sim_t *sim,
                                      const baton_schedule_t *schedule)
{
    baton_status_t status = BATON_OK;
    for (uint32_t i = 0; i < schedule->count && status == BATON_OK; i++) {
        const baton__op_t *op = &schedule->ops[i];
        if (!baton__kinds[op->kind].message) {
            continue;
        }
        const baton_schedule_t *peer;
        uint32_t other = baton__sim_find_match(sim, schedule, op, &peer);
        if (peer != NULL && peer->terms_hash != schedule->terms_hash) {
            status = fail_terms(schedule, peer);
        } else if (other == BATON__NO_NODE) {
            status = fail_unmatched(schedule, op, peer);
        } else if (baton__op_sends(op) && !sizes_match(op, &peer->ops[other])) {
            status = fail_sizes(schedule, op, peer, &peer->ops[other]);
        }
    }
    return status;
}

static baton_status_t match_search(const baton_sim_t *sim)
{
    for (const baton_schedule_t *s = match_next_of(sim, NULL); s != NULL;
         s = match_next_of(sim, s)) {
        baton_status_t status =
            baton__sim_task_of(s)->matched ? BATON_OK : search_schedule(sim, s);
        if (status != BATON_OK) {
            return status;
        }
    }
    /* There is no mismatch: the sums differ only because some lengths are set
       in the epoch. */
    return BATON_OK;
}

baton_status_t baton__sim_match(baton_sim_t *sim)
{
    uint64_t sum = 0;
    for (const baton_schedule_t *s = match_next_of(sim, NULL); s != NULL;
         s = match_next_of(sim, s)) {
        sum += sum_of(s);
    }
    baton_status_t status = sum == 0 ? BATON_OK : match_search(sim);
    if (status != BATON_OK) {
        return status;
    }
    for (baton_schedule_t *s = match_next_of(sim, NULL); s != NULL;
         s = match_next_of(sim, s)) {
        baton__sim_task_of(s)->matched = true;
    }
    sim->unmatched = false;
    return BATON_OK;
}
