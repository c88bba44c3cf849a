/* Makes the plan of a graph: the successors in one array, lists of the nodes
   that fire without a predecessor, tags, the table of receives, and the memory
   of the run and of scratch.

   Tags are counted for each pair of ranks. Both ends count the same messages,
   so the k-th send matches the k-th receive, and no rank needs to know the tags
   of other ranks. */
#include "base/alloc.h"
#include "base/available.h"
#include "base/error.h"
#include "ops/copy.h"
#include "sched/loans.h"
#include "sched/offload.h"
#include "sched/share.h"

#include <stdlib.h>
#include <string.h>

/* Makes the lists of successors from those of predecessors, and sets
   first_successor in the nodes' records. */
static void link_successors(baton_schedule_t *schedule,
                            const baton__order_t *order)
{
    baton__op_t *ops = schedule->ops;
    uint32_t count = schedule->count;
    uint32_t edges = order->first[count];
    ops[count] = (baton__op_t){.first_successor = edges};
    for (uint32_t i = 0; i < count; i++) {
        ops[i].first_successor = 0;
    }
    for (uint32_t e = 0; e < edges; e++) {
        ops[order->preds[e]].first_successor++;
    }
    uint32_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        end += ops[i].first_successor;
        ops[i].first_successor = end;
    }
    /* Each node's list is filled from its end, and first_successor counts down,
       so that in the end it is the index where the list begins. */
    for (uint32_t to = count; to-- > 0;) {
        for (uint32_t e = order->first[to]; e < order->first[to + 1]; e++) {
            uint32_t from = order->preds[e];
            schedule->plan.successors[--ops[from].first_successor] = to;
        }
    }
}

/* ---- counts ----------------------------------------------------------- */

static int compare_peers(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

/* Returns the ranks with which the schedule exchanges messages, in ascending
   order. Returns NULL if there is no memory. */
static uint32_t *find_peers(const baton_schedule_t *schedule, uint32_t messages,
                            uint32_t *count_out)
{
    uint32_t *peers = baton__alloc(messages, sizeof *peers);
    if (peers == NULL) {
        return NULL;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        if (baton__kinds[op->kind].message) {
            peers[count++] = (uint32_t)op->peer;
        }
    }
    qsort(peers, count, sizeof *peers, compare_peers);
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (distinct == 0 || peers[distinct - 1] != peers[i]) {
            peers[distinct++] = peers[i];
        }
    }
    *count_out = distinct;
    return peers;
}

uint32_t baton__plan_peer(const baton__plan_t *plan, int peer)
{
    const uint32_t rank = (uint32_t)peer;
    const uint32_t *found = bsearch(&rank, plan->peers, plan->peer_count,
                                    sizeof rank, compare_peers);
    return found != NULL ? (uint32_t)(found - plan->peers) : plan->peer_count;
}

static bool receives(const baton__op_t *op)
{
    return op->kind == BATON__RECV || op->kind == BATON__ARMED_RECV;
}

/* Returns true for a message that an epoch waits for and that carries data,
   unlike an activation. */
static bool is_awaited(const baton__op_t *op)
{
    return (receives(op) || op->kind == BATON__SEND) &&
           (op->flags & BATON__OPTIONAL) == 0;
}

/* A node without predecessors is in one of three lists: on-start nodes, which
   fire when this rank's application starts the epoch; armed receives; and
   roots, which fire when the epoch begins. Returns the address of the length of
   the node's list; NULL if the node has predecessors. */
static uint32_t *list_of(baton__plan_t *plan, const baton__op_t *op,
                         uint32_t edges)
{
    if (op->kind == BATON__ON_START) {
        return &plan->on_start_count;
    }
    if (op->kind == BATON__ARMED_RECV) {
        return &plan->armed_count;
    }
    return edges == 0 ? &plan->root_count : NULL;
}

static void count_nodes(const baton_schedule_t *schedule,
                        const baton__order_t *order, baton__plan_t *plan)
{
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        uint32_t *list =
            list_of(plan, op, order->first[i + 1] - order->first[i]);
        if (list != NULL) {
            (*list)++;
        }
        plan->async_count += op->kind == BATON__ASYNC;
        plan->receive_count += receives(op);
        plan->awaited_bytes += is_awaited(op) ? op->bytes : 0;
        plan->required += (op->flags & BATON__OPTIONAL) == 0;
        plan->messages += baton__kinds[op->kind].message;
    }
    uint32_t places = 1;
    while (places < 2 * plan->receive_count) {
        places *= 2;
    }
    plan->incoming_mask = places - 1;
}

/* ---- memory ----------------------------------------------------------- */

/* Takes `count` elements of `size` bytes from the piece `memory`, of which
   *used bytes are taken already, and adds their bytes to *used. If `memory` is
   NULL, only adds the bytes. */
static void *carve(char *memory, size_t *used, size_t count, size_t size)
{
    void *at = memory != NULL ? memory + *used : NULL;
    *used += count * size;
    return at;
}

/* Lays out the arrays that epochs write, and the peers, from the offset `used`
   on, which is a multiple of the size of the largest element. Arrays of larger
   elements come first, so each array is aligned. Returns the offset of the
   end. */
static size_t lay_out_run(baton_schedule_t *schedule, char *memory, size_t used)
{
    baton__plan_t *plan = &schedule->plan;
    baton__run_t *run = &schedule->run;
    size_t count = schedule->count;
    schedule->addresses = carve(memory, &used, schedule->buffer_count,
                                sizeof *schedule->addresses);
    size_t annex =
        schedule->annex_bytes + plan->peer_count * schedule->annex_peer_bytes;
    schedule->annex = carve(memory, &used, annex, 1);
    run->activations =
        carve(memory, &used, plan->slot_count, sizeof *run->activations);
    run->asyncs = carve(memory, &used, plan->async_count, sizeof *run->asyncs);
    if (schedule->group->sharing == NULL) {
        run->early = carve(memory, &used, plan->receive_count, sizeof(void *));
    }
    run->lent = carve(memory, &used, plan->loan_count, sizeof(void *));
    run->lengths = carve(memory, &used, (size_t)plan->length_count * 2,
                         sizeof *run->lengths);
    plan->peers = carve(memory, &used, plan->peer_count, sizeof *plan->peers);
    run->left = carve(memory, &used, count, sizeof *run->left);
    run->ready = carve(memory, &used, count, sizeof *run->ready);
    run->state = carve(memory, &used, count, 1);
    if (memory != NULL) {
        schedule->built_ops = schedule->ops;
        schedule->built_needs = schedule->needs;
        schedule->ops = (baton__op_t *)(uintptr_t)plan->ops;
        schedule->needs = (uint32_t *)(uintptr_t)plan->needs;
        plan->memory = memory;
        run->plan = plan;
    }
    return used;
}

/* Lays out all arrays that epochs need in one piece of memory, so that an epoch
   touches few cache lines and pages. Returns the number of bytes. */
static size_t plan_lay_out(baton_schedule_t *schedule, char *memory,
                           size_t edges)
{
    baton__plan_t *plan = &schedule->plan;
    size_t count = schedule->count;
    size_t used = 0;
    baton__op_t *ops = carve(memory, &used, count + 1, sizeof *ops);
    plan->loans = carve(memory, &used, plan->loan_count, sizeof *plan->loans);
    uint32_t *needs = carve(memory, &used, count, sizeof *needs);
    plan->successors = carve(memory, &used, edges, sizeof *needs);
    plan->roots = carve(memory, &used, plan->root_count, sizeof *needs);
    plan->on_starts = carve(memory, &used, plan->on_start_count, sizeof *needs);
    plan->armed = carve(memory, &used, plan->armed_count, sizeof *needs);
    plan->asyncs = carve(memory, &used, plan->async_count, sizeof *needs);
    plan->message_counts =
        carve(memory, &used, plan->peer_count, sizeof *plan->message_counts);
    plan->incoming =
        carve(memory, &used, (size_t)plan->incoming_mask + 1, sizeof *needs);
    if (memory != NULL) {
        if (count > 0) {
            memcpy(ops, schedule->ops, count * sizeof *ops);
            memcpy(needs, schedule->needs, count * sizeof *needs);
        }
        plan->ops = ops;
        plan->needs = needs;
    }
    used += (sizeof *ops - used % sizeof *ops) % sizeof *ops;
    return lay_out_run(schedule, memory, used);
}

/* Finds the part of each scratch buffer that nodes use, and whether a node
   stores data there. A receive whose message is lent stores nothing. But most
   messages from other hosts can't be lent, so in a group of several hosts every
   receive counts as one that stores. */
static void find_used(baton_schedule_t *schedule)
{
    bool one_host = schedule->group->transport->hosts <= 1;
    /* True if the graph has a function that may read all scratch. */
    bool seen = false;
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        seen |= baton__op_sees_scratch(op);
        for (int k = 0; k < BATON__OPERANDS; k++) {
            if (!baton__op_uses(op, k)) {
                continue;
            }
            baton__buffer_t *buffer = &schedule->buffers[op->buffer[k]];
            size_t end = op->offset[k] + op->bytes;
            buffer->used = end > buffer->used ? end : buffer->used;
            buffer->stored |=
                op->kind == BATON__RECV
                    ? op->message.loan == 0 || !one_host
                    : k == BATON__TARGET || baton__kinds[op->kind].message;
        }
    }
    for (uint32_t i = 0; i < schedule->buffer_count && seen; i++) {
        schedule->buffers[i].used = schedule->buffers[i].bytes;
        schedule->buffers[i].stored = true;
    }
}

/* Allocates a scratch buffer. Most of the memory that peers read is scratch, so
   the buffer is memory that peers can read in place, if the transport has such
   memory. Scratch that only lent messages use is ordinary memory, whose pages
   are taken only if a message must be stored after all. */
static void *allocate_buffer(const baton_group_t *group,
                             baton__buffer_t *buffer)
{
    void *memory =
        group->transport->allocate != NULL && buffer->stored
            ? group->transport->allocate(group->endpoint, buffer->used)
            : NULL;
    buffer->shared = memory != NULL;
    if (memory == NULL) {
        memory = buffer->stored ? baton__alloc(buffer->used, 1)
                                : baton__alloc_raw(buffer->used);
    }
    return memory;
}

static baton_status_t allocate_on_device(baton_schedule_t *schedule,
                                         uint32_t buffer)
{
    const baton__device_t *device = schedule->group->device;
    const baton__buffer_t *scratch = &schedule->buffers[buffer];
    void *memory = NULL;
    baton_status_t status =
        device->port.allocate(device->device, scratch->kind,
                              scratch->bytes > 0 ? scratch->bytes : 1, &memory);
    schedule->addresses[buffer] = memory;
    return status == BATON_OK
               ? BATON_OK
               : BATON__COMMIT_ERROR(
                     status, schedule,
                     "no %zu bytes of %s for scratch buffer %u: %s",
                     scratch->bytes, device->port.name, buffer,
                     baton_error_message());
}

static baton_status_t plan_no_memory(const baton_schedule_t *schedule,
                                     size_t bytes, const char *what)
{
    return BATON__COMMIT_ERROR(
        BATON_ERR_NO_MEMORY, schedule,
        "no memory for %zu bytes of %s: %zu are available", bytes, what,
        baton__available_memory(""));
}

static baton_status_t allocate_scratch(baton_schedule_t *schedule)
{
    baton_status_t status = BATON_OK;
    for (uint32_t i = 0; i < schedule->buffer_count && status == BATON_OK &&
                         !schedule->group->cost_only;
         i++) {
        baton__buffer_t *buffer = &schedule->buffers[i];
        if (!buffer->scratch) {
            schedule->addresses[i] = buffer->memory;
        } else if (buffer->kind == BATON_MEMORY_DEVICE) {
            status = allocate_on_device(schedule, i);
        } else {
            schedule->addresses[i] = allocate_buffer(schedule->group, buffer);
            status = schedule->addresses[i] != NULL
                         ? BATON_OK
                         : plan_no_memory(schedule, buffer->used, "scratch");
        }
    }
    return status;
}

static void free_scratch(baton_schedule_t *schedule)
{
    const baton_group_t *group = schedule->group;
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        baton__buffer_t *buffer = &schedule->buffers[i];
        char *memory = schedule->addresses[i];
        if (!buffer->scratch || memory == NULL) {
            continue;
        }
        if (buffer->kind == BATON_MEMORY_DEVICE) {
            group->device->port.release(group->device->device, buffer->kind,
                                        memory);
        } else if (buffer->shared) {
            group->transport->release(group->endpoint, memory);
        } else {
            baton__free(memory);
        }
        buffer->shared = false;
    }
}

/* ---- contents --------------------------------------------------------- */

static void fill_lists(baton_schedule_t *schedule, const baton__order_t *order)
{
    const baton__plan_t *plan = &schedule->plan;
    baton__plan_t at = {0};
    for (uint32_t i = 0; i < schedule->count; i++) {
        baton__op_t *op = &schedule->ops[i];
        uint32_t *list =
            list_of(&at, op, order->first[i + 1] - order->first[i]);
        if (list == &at.on_start_count) {
            plan->on_starts[at.on_start_count++] = i;
        } else if (list == &at.armed_count) {
            plan->armed[at.armed_count++] = i;
        } else if (list == &at.root_count) {
            plan->roots[at.root_count++] = i;
        }
        if (op->kind == BATON__ASYNC) {
            baton__async_t *async = &schedule->run.asyncs[at.async_count];
            async->owner = schedule;
            async->node = i;
            atomic_init(&async->state, BATON__ASYNC_IDLE);
            op->async.ordinal = at.async_count;
            plan->asyncs[at.async_count++] = i;
        }
    }
}

/* Messages of one kind (with data, or activations) from one rank to another are
   numbered in the order in which they were added, so a message has the same tag
   at both ends. */
static void assign_tags(baton_schedule_t *schedule)
{
    const baton__plan_t *plan = &schedule->plan;
    uint32_t receives_so_far = 0;
    for (uint32_t i = 0; i < schedule->count; i++) {
        baton__op_t *op = &schedule->ops[i];
        if (!baton__kinds[op->kind].message) {
            continue;
        }
        uint32_t peer = baton__plan_peer(plan, (int)op->peer);
        op->message.tag = plan->message_counts[peer][baton__op_sends(op)]
                                              [baton__op_activates(op)]++;
        if (receives(op)) {
            op->message.ordinal = receives_so_far++;
            baton__plan_add_receiver(&schedule->plan, i);
        }
    }
}

static void find_length_limits(baton_schedule_t *schedule)
{
    size_t *limits = schedule->run.lengths + schedule->length_count;
    for (uint32_t i = 0; i < schedule->length_count; i++) {
        limits[i] = SIZE_MAX - 1;
    }
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        if (op->length != BATON__NO_LENGTH && op->bytes < limits[op->length]) {
            limits[op->length] = op->bytes;
        }
    }
}

/* ---- the plan --------------------------------------------------------- */

void baton__plan_destroy(baton_schedule_t *schedule)
{
    baton__offload_destroy(schedule);
    if (schedule->plan.memory != NULL) {
        free_scratch(schedule);
        if (schedule->group->sharing != NULL) {
            baton__free(schedule->run.early);
        }
        if (!schedule->plan.is_model) {
            baton__free(schedule->plan.memory);
        }
        schedule->addresses = NULL;
        schedule->annex = NULL;
        schedule->ops = schedule->built_ops;
        schedule->needs = schedule->built_needs;
        schedule->built_ops = NULL;
        schedule->built_needs = NULL;
    }
    schedule->run = (baton__run_t){0};
    schedule->plan = (baton__plan_t){0};
}

void baton__schedule_fini(baton_schedule_t *schedule)
{
    baton__plan_destroy(schedule);
    baton__free(schedule->edges);
    baton__free(schedule->needs);
    baton__free(schedule->ops);
    baton__free(schedule->buffers);
    baton__free(schedule->ranges);
    baton__free(schedule->terms);
    schedule->committed = false;
    schedule->destroyed = true;
}

/* Marks two kinds of nodes. A receive that is posted tells its sender where the
   data go, so that the sender copies them. A patient send completes only when
   its peer has read the data. Both kinds of nodes are marked only if this rank
   sends about as much as it receives: otherwise many ranks would wait while one
   that sends to all of them copies. A receive whose message can be lent is not
   posted, because a reduce reads the message in parts. A send may be patient if
   it has no predecessors and no successors, and no message of the schedule can
   be lent. */
static void mark_posted(baton_schedule_t *schedule, const baton__order_t *order)
{
    double sent = 0;
    double received = 0;
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        sent += op->kind == BATON__SEND ? (double)op->bytes : 0;
        received += op->kind == BATON__RECV ? (double)op->bytes : 0;
    }
    double more = sent > received ? sent - received : received - sent;
    bool posts = schedule->group->transport->post_receive != NULL;
    bool even = 4 * more < sent + received;
    for (uint32_t i = 0; i < schedule->count && even; i++) {
        baton__op_t *op = &schedule->ops[i];
        if (op->kind == BATON__SEND && schedule->plan.loan_count == 0 &&
            order->first[i] == order->first[i + 1] &&
            op->first_successor == op[1].first_successor) {
            op->flags |= BATON__PATIENT;
        }
        if (op->kind == BATON__RECV && posts && op->message.loan == 0 &&
            op->length == BATON__NO_LENGTH &&
            (op->flags & (BATON__OPTIONAL | BATON__DEVICE_VIEW)) == 0) {
            op->flags |= BATON__POSTS;
        }
    }
}

/* Marks the copies that choose at run time whether they go through the cache or
   past it (copy.h). They choose by timing themselves. Timing means nothing if
   ranks share processors, so then no copy is marked. */
static void mark_shared(baton_schedule_t *schedule)
{
    const baton_transport_t *transport = schedule->group->transport;
    bool each = transport->host_ranks <= transport->host_processors;
    for (uint32_t i = 0; i < schedule->count && each; i++) {
        baton__op_t *op = &schedule->ops[i];
        if (op->kind == BATON__COPY && op->bytes >= BATON__COPY_SHARED_BYTES &&
            op->buffer[BATON__TARGET] != op->buffer[BATON__LEFT] &&
            schedule->buffers[op->buffer[BATON__TARGET]].shared) {
            op->flags |= BATON__SHARES;
        }
    }
}

baton_status_t baton__plan_create(baton_schedule_t *schedule,
                                  const baton__order_t *order)
{
    baton__plan_t *plan = &schedule->plan;
    *plan = (baton__plan_t){
        .count = schedule->count,
        .rank = schedule->group->rank,
        .size = schedule->group->size,
        .slot_count = schedule->slot_count,
        .length_count = schedule->length_count,
        .loan_count = baton__loans_list(order, schedule->count, NULL),
    };
    count_nodes(schedule, order, plan);
    size_t edges = order->first[schedule->count];
    uint32_t *peers = find_peers(schedule, plan->messages, &plan->peer_count);
    size_t bytes = plan_lay_out(schedule, NULL, edges);
    char *memory = peers != NULL ? baton__alloc(bytes, 1) : NULL;
    if (memory != NULL) {
        (void)plan_lay_out(schedule, memory, edges);
        memcpy(plan->peers, peers, plan->peer_count * sizeof *peers);
        baton__loans_enter(schedule, order);
        find_used(schedule);
    }
    baton_status_t status = memory != NULL
                                ? allocate_scratch(schedule)
                                : plan_no_memory(schedule, bytes, "its plan");
    if (status == BATON_OK) {
        fill_lists(schedule, order);
        link_successors(schedule, order);
        assign_tags(schedule);
        find_length_limits(schedule);
        mark_posted(schedule, order);
        mark_shared(schedule);
        if (schedule->group->device != NULL) {
            status = baton__offload_create(schedule, order);
        }
    }
    baton__free(peers);
    if (status != BATON_OK) {
        baton__plan_destroy(schedule);
    }
    return status;
}

/* Fills plan->peers with this rank's peers, in ascending order. `peers` are the
   peers of the rank that first had this plan. */
static void flip_peers(baton__plan_t *plan, const uint32_t *peers)
{
    for (uint32_t i = 0; i < plan->peer_count; i++) {
        plan->peers[i] = peers[i] ^ plan->flip;
    }
    qsort(plan->peers, plan->peer_count, sizeof *peers, compare_peers);
}

baton_status_t baton__plan_adopt(baton_schedule_t *schedule)
{
    const baton__plan_t *model = baton__sharing_find(schedule);
    baton__plan_t *plan = &schedule->plan;
    if (model == NULL) {
        return BATON_OK;
    }
    *plan = *model;
    plan->rank = schedule->group->rank;
    plan->flip = (uint32_t)(model->rank ^ plan->rank);
    plan->shared = true;
    plan->is_model = false;
    size_t bytes = lay_out_run(schedule, NULL, 0);
    char *memory = baton__alloc(bytes, 1);
    if (memory == NULL) {
        *plan = (baton__plan_t){0};
        return plan_no_memory(schedule, bytes, "its plan");
    }
    (void)lay_out_run(schedule, memory, 0);
    flip_peers(plan, model->peers);
    find_length_limits(schedule);
    baton_status_t status = baton__find_aliases(schedule);
    if (status != BATON_OK) {
        baton__plan_destroy(schedule);
    }
    return status;
}
