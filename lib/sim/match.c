/* A send and its receive have the same key {schedule, from, to, tag, kind,
   bytes}, and no two messages share one. So the hashes of the keys of all sends
   and of all receives have the same sum if everything matches. Only if they do
   not is the mismatch searched for: in each schedule the k-th message from one
   rank to another, plain messages and activations apart. The search may find
   none: a receive whose length is set in the epoch takes any send that is not
   larger. */
#include "sim/match.h"

#include "base/error.h"
#include "base/random.h"

#include <string.h>

static uint64_t hash(const baton_schedule_t *schedule, const baton__op_t *op)
{
    int rank = schedule->group->rank;
    uint64_t own = (uint64_t)rank;
    uint64_t peer = (uint64_t)op->peer;
    uint64_t pair = baton__op_sends(op) ? own << 32 | peer : peer << 32 | own;
    uint64_t tag = (uint64_t)op->message.tag << 1 | baton__op_activates(op);
    uint64_t key = baton__mix(baton__mix(pair + 1) ^ schedule->identity);
    return baton__mix(baton__mix(key ^ tag) + op->bytes);
}

/* The sum over a schedule that has not been compared yet. */
static uint64_t sum_of(const baton_schedule_t *schedule)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < schedule->count && !schedule->notes.matched; i++) {
        const baton__op_t *op = &schedule->ops[i];
        if (baton__kinds[op->kind].message) {
            uint64_t key = hash(schedule, op);
            sum += baton__op_sends(op) ? key : -key;
        }
    }
    return sum;
}

/* Returns the schedule after `last`, or the first one for NULL. */
static baton_schedule_t *next_of(const baton_sim_t *sim,
                                 const baton_schedule_t *last)
{
    baton_schedule_t *next = last != NULL ? last->notices.next : NULL;
    int rank = last != NULL ? last->group->rank + 1 : 0;
    while (next == NULL && rank < sim->options.ranks) {
        next = sim->ranks[rank++].stepper.schedules;
    }
    return next;
}

const baton__op_t *baton__sim_find_match(const baton_sim_t *sim,
                                         const baton_schedule_t *schedule,
                                         const baton__op_t *op,
                                         const baton_schedule_t **schedule_out)
{
    const baton_schedule_t *peer =
        baton__group_find(&sim->ranks[op->peer].group, schedule->identity);
    for (uint32_t i = 0; peer != NULL && i < peer->count; i++) {
        const baton__op_t *other = &peer->ops[i];
        if (baton__kinds[other->kind].message &&
            other->peer == schedule->group->rank &&
            other->message.tag == op->message.tag &&
            baton__op_activates(other) == baton__op_activates(op) &&
            baton__op_sends(other) != baton__op_sends(op)) {
            *schedule_out = peer;
            return other;
        }
    }
    return NULL;
}

/* ---- the search ---------------------------------------------------------- */

/* One end of a stream: the messages of one kind from one rank to another, in
   the order in which they match. */
typedef struct end {
    const baton_schedule_t *schedule;
    int peer;
    bool sends;
    bool activates;
} end_t;

/* The end's first node from index `from` on, or BATON__NO_NODE. */
static uint32_t next_node(const end_t *end, uint32_t from)
{
    for (uint32_t i = from; i < end->schedule->count; i++) {
        const baton__op_t *op = &end->schedule->ops[i];
        if (baton__kinds[op->kind].message && op->peer == end->peer &&
            baton__op_sends(op) == end->sends &&
            baton__op_activates(op) == end->activates) {
            return i;
        }
    }
    return BATON__NO_NODE;
}

static uint32_t count_nodes(const end_t *end)
{
    uint32_t count = 0;
    for (uint32_t i = next_node(end, 0); i != BATON__NO_NODE;
         i = next_node(end, i + 1)) {
        count++;
    }
    return count;
}

/* Its schedule is NULL if the other rank has not committed it. */
static end_t other_end(const baton_sim_t *sim, const end_t *end)
{
    return (end_t){baton__group_find(&sim->ranks[end->peer].group,
                                     end->schedule->identity),
                   end->schedule->group->rank, !end->sends, end->activates};
}

static const char *other_kind(const end_t *end)
{
    if (end->sends) {
        return end->activates ? "armed receive" : "receive";
    }
    return end->activates ? "activate" : "send";
}

static baton_status_t fail_mismatch(const end_t *end, const char *text)
{
    return baton__error(BATON_ERR_MISMATCH, "\"%s\": %s", end->schedule->name,
                        text);
}

/* A node without a match; `other` is NULL if the peer has no such schedule. */
static baton_status_t fail_unmatched(const end_t *end, uint32_t node,
                                     const end_t *other)
{
    char memory[BATON__SENTENCE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    baton__text_add(&text, "%s of rank %d has no %s on rank %d, which has ",
                    baton__node_name(end->schedule, node),
                    end->schedule->group->rank, other_kind(end), end->peer);
    if (other == NULL) {
        baton__text_add(&text, "not committed it");
    } else {
        baton__text_add(&text, "%u %s there", count_nodes(other),
                        end->sends ? "from" : "to");
    }
    return fail_mismatch(end, memory);
}

/* A send and its receive have different sizes. If their counts differ too, one
   was left out, possibly an earlier one. */
static baton_status_t fail_sizes(const end_t *send, uint32_t from,
                                 const end_t *receive, uint32_t to)
{
    char memory[BATON__SENTENCE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    uint32_t sends = count_nodes(send);
    uint32_t receives = count_nodes(receive);
    baton__text_add(
        &text,
        "%s of rank %d has %zu bytes and its receiver, %s of rank "
        "%d, %zu",
        baton__node_name(send->schedule, from), send->schedule->group->rank,
        send->schedule->ops[from].bytes,
        baton__node_name(receive->schedule, to), receive->schedule->group->rank,
        receive->schedule->ops[to].bytes);
    if (sends != receives) {
        baton__text_add(&text, "; %u sends are to meet %u receives", sends,
                        receives);
    }
    return fail_mismatch(send, memory);
}

/* True when the sizes of a send and its receive match. A receive of up to its
   view takes any send that is not larger. */
static bool sizes_match(const baton__op_t *send, const baton__op_t *receive)
{
    bool up_to = receive->length != BATON__NO_LENGTH;
    return up_to ? send->bytes <= receive->bytes
                 : send->bytes == receive->bytes;
}

static baton_status_t compare(const end_t *end, const end_t *other)
{
    uint32_t a = next_node(end, 0);
    uint32_t b = next_node(other, 0);
    while (a != BATON__NO_NODE && b != BATON__NO_NODE) {
        const baton__op_t *first = &end->schedule->ops[a];
        const baton__op_t *second = &other->schedule->ops[b];
        if (end->sends ? !sizes_match(first, second)
                       : !sizes_match(second, first)) {
            return end->sends ? fail_sizes(end, a, other, b)
                              : fail_sizes(other, b, end, a);
        }
        a = next_node(end, a + 1);
        b = next_node(other, b + 1);
    }
    if (a != BATON__NO_NODE) {
        return fail_unmatched(end, a, other);
    }
    return b != BATON__NO_NODE ? fail_unmatched(other, b, end) : BATON_OK;
}

/* Compares each stream of a schedule once, at the first of its nodes. */
static baton_status_t search_schedule(const baton_sim_t *sim,
                                      const baton_schedule_t *schedule)
{
    baton_status_t status = BATON_OK;
    for (uint32_t i = 0; i < schedule->count && status == BATON_OK; i++) {
        const baton__op_t *op = &schedule->ops[i];
        end_t end = {schedule, (int)op->peer, baton__op_sends(op),
                     baton__op_activates(op)};
        if (baton__kinds[op->kind].message && next_node(&end, 0) == i) {
            end_t other = other_end(sim, &end);
            status = other.schedule != NULL ? compare(&end, &other)
                                            : fail_unmatched(&end, i, NULL);
        }
    }
    return status;
}

static baton_status_t search(const baton_sim_t *sim)
{
    for (const baton_schedule_t *s = next_of(sim, NULL); s != NULL;
         s = next_of(sim, s)) {
        baton_status_t status =
            s->notes.matched ? BATON_OK : search_schedule(sim, s);
        if (status != BATON_OK) {
            return status;
        }
    }
    return BATON_OK; /* the sums differ by lengths that are set in the epoch */
}

baton_status_t baton__sim_match(baton_sim_t *sim)
{
    uint64_t sum = 0;
    for (const baton_schedule_t *s = next_of(sim, NULL); s != NULL;
         s = next_of(sim, s)) {
        sum += sum_of(s);
    }
    baton_status_t status = sum == 0 ? BATON_OK : search(sim);
    if (status != BATON_OK) {
        return status;
    }
    for (baton_schedule_t *s = next_of(sim, NULL); s != NULL;
         s = next_of(sim, s)) {
        s->notes.matched = true;
    }
    sim->unmatched = false;
    return BATON_OK;
}
