/* The builder's side of a schedule: buffers, and the functions that add nodes
   (edges.c has the dependencies). No function here returns an error: the
   schedule keeps the first error, with a message that names the node, and
   commit returns it. */
#include "sched/schedule.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>

enum { NAME_BYTES = 64 };

baton_view_t baton_view(baton_buffer_t buffer, size_t offset, size_t bytes)
{
    return (baton_view_t){buffer, offset, bytes};
}

static char *next_name(void)
{
    static _Thread_local char names[8][NAME_BYTES];
    static _Thread_local unsigned next;
    return names[next++ % 8];
}

const char *baton__node_name(const baton_schedule_t *schedule, uint32_t node)
{
    char *name = next_name();
    const char *kind = node < schedule->count
                           ? baton__kinds[schedule->ops[node].kind].name
                           : "node";
    (void)snprintf(name, NAME_BYTES, "%s#%u", kind, node);
    return name;
}

const char *baton__buffer_place(const baton_schedule_t *schedule,
                                uint32_t buffer)
{
    const baton__buffer_t *of = &schedule->buffers[buffer];
    char *name = next_name();
    if (of->scratch) {
        (void)snprintf(name, NAME_BYTES, "%zu bytes of scratch", of->bytes);
    } else {
        (void)snprintf(name, NAME_BYTES, "%zu bytes at %p", of->bytes,
                       (const void *)of->memory);
    }
    return name;
}

void baton__sentence_set(char **sentence, const char *message)
{
    if (*sentence == NULL) {
        *sentence = baton__alloc(1, BATON__SENTENCE_BYTES);
    }
    if (*sentence != NULL && *sentence != message) {
        (void)snprintf(*sentence, BATON__SENTENCE_BYTES, "%s", message);
    }
}

void baton_schedule_fail(baton_schedule_t *schedule, baton_status_t status,
                         const char *format, ...)
{
    if (baton__graph_open(schedule, "baton_schedule_fail")) {
        char sentence[BATON__SENTENCE_BYTES];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(sentence, sizeof sentence, format, args);
        va_end(args);
        schedule->sticky = status;
        baton__sentence_set(&schedule->sentence, sentence);
    }
}

bool baton__graph_grow(baton_schedule_t *schedule, void *items, uint32_t count,
                       uint32_t capacity, size_t size)
{
    bool grown = baton__extend(items, count, capacity, size);
    if (!grown) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "no memory for %u items of the graph", capacity);
    }
    return grown;
}

static bool reserve_node(baton_schedule_t *schedule)
{
    if (schedule->count + 1 < schedule->capacity) {
        return true;
    }
    uint32_t capacity = schedule->capacity * 2 + 64;
    bool grown = baton__graph_grow(schedule, &schedule->ops, schedule->count,
                                   capacity, sizeof *schedule->ops) &&
                 baton__graph_grow(schedule, &schedule->needs, schedule->count,
                                   capacity, sizeof *schedule->needs);
    schedule->capacity = grown ? capacity : schedule->capacity;
    return grown;
}

bool baton__is_schedule(const baton_schedule_t *schedule, const char *function)
{
    if (schedule != NULL && !schedule->destroyed) {
        return baton__process_is_own(function);
    }
    char what[128] = "schedule";
    if (schedule != NULL) {
        (void)snprintf(what, sizeof what, "schedule \"%s\"", schedule->name);
    }
    return baton__is_alive(schedule, schedule != NULL, function, what);
}

bool baton__graph_open(baton_schedule_t *schedule, const char *adder)
{
    if (!baton__is_schedule(schedule, adder)) {
        return false;
    }
    if (schedule->committed) {
        schedule->misused = adder;
        (void)baton__error(BATON_ERR_STATE,
                           "%s: \"%s\" is committed, and takes no more nodes",
                           adder, schedule->name);
        return false;
    }
    return schedule->sticky == BATON_OK;
}

static baton_node_t graph_add(baton_schedule_t *schedule, baton__op_t op)
{
    baton_node_t node = {BATON__NO_NODE};
    if (reserve_node(schedule)) {
        op.length = BATON__NO_LENGTH;
        node.index = schedule->count++;
        schedule->ops[node.index] = op;
        schedule->needs[node.index] = BATON_NEED_ALL;
    }
    return node;
}

void baton_schedule_set_depth(baton_schedule_t *schedule, uint32_t depth)
{
    if (!baton__graph_open(schedule, __func__)) {
        return;
    }
    if (depth < 1 || depth > BATON_MAX_DEPTH) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "the depth is %u; allowed: 1 to %d", depth,
                            BATON_MAX_DEPTH);
        return;
    }
    schedule->depth = depth;
}

/* ---- buffers ---------------------------------------------------------- */

static baton_buffer_t add_buffer(baton_schedule_t *schedule, const char *adder,
                                 baton__buffer_t buffer)
{
    const baton_buffer_t none = {UINT32_MAX};
    if (!baton__graph_open(schedule, adder)) {
        return none;
    }
    uint32_t count = schedule->buffer_count;
    if (count == schedule->buffer_capacity) {
        uint32_t capacity = count * 2 + 2;
        if (!baton__graph_grow(schedule, &schedule->buffers, count, capacity,
                               sizeof *schedule->buffers)) {
            return none;
        }
        schedule->buffer_capacity = capacity;
    }
    schedule->buffers[count] = buffer;
    return (baton_buffer_t){schedule->buffer_count++};
}

baton_buffer_t baton_buffer_bind(baton_schedule_t *schedule, void *memory,
                                 size_t bytes)
{
    return add_buffer(schedule, "baton_buffer_bind",
                      (baton__buffer_t){.bytes = bytes, .memory = memory});
}

baton_buffer_t baton_buffer_bind_input(baton_schedule_t *schedule,
                                       const void *memory, size_t bytes)
{
    /* The cast is safe: commit refuses a node that would write the buffer. */
    return add_buffer(schedule, "baton_buffer_bind_input",
                      (baton__buffer_t){.bytes = bytes,
                                        .memory = (void *)(uintptr_t)memory,
                                        .input = true});
}

baton_buffer_t baton_buffer_scratch(baton_schedule_t *schedule, size_t bytes)
{
    return add_buffer(schedule, "baton_buffer_scratch",
                      (baton__buffer_t){.bytes = bytes, .scratch = true});
}

void baton_buffer_set_memory(baton_schedule_t *schedule, baton_buffer_t buffer,
                             baton_memory_t memory)
{
    if (!baton__graph_open(schedule, __func__)) {
        return;
    }
    if (buffer.index >= schedule->buffer_count) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: there is no buffer %u; the schedule has %u",
                            __func__, buffer.index, schedule->buffer_count);
        return;
    }
    if (memory != BATON_MEMORY_HOST && memory != BATON_MEMORY_DEVICE) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: memory is %d, must be BATON_MEMORY_HOST or "
                            "BATON_MEMORY_DEVICE",
                            __func__, (int)memory);
        return;
    }
    schedule->buffers[buffer.index].kind = memory;
    schedule->buffers[buffer.index].placed = true;
}

/* ---- nodes ------------------------------------------------------------ */

/* Stores a view as the operand `which` (BATON__TARGET, BATON__LEFT or
   BATON__RIGHT) of a node's record. Returns false if the view is invalid; the
   schedule keeps the error. */
static bool set_operand(baton_schedule_t *schedule, baton__op_t *op, int which,
                        baton_view_t view)
{
    const char *kind = baton__kinds[op->kind].name;
    uint32_t node = schedule->count;
    if (view.buffer.index >= schedule->buffer_count) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s#%u: its view names buffer %u, and \"%s\" has "
                            "%u: baton_buffer_bind gives one",
                            kind, node, view.buffer.index, schedule->name,
                            schedule->buffer_count);
        return false;
    }
    size_t size = schedule->buffers[view.buffer.index].bytes;
    if (view.offset > size || view.bytes > size - view.offset) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s#%u: its view is %zu bytes at %zu of buffer %u, "
                            "which has %zu bytes",
                            kind, node, view.bytes, view.offset,
                            view.buffer.index, size);
        return false;
    }
    if (view.bytes != op->bytes) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s#%u: its views have %zu and %zu bytes; they "
                            "must be equal",
                            kind, node, op->bytes, view.bytes);
        return false;
    }
    op->buffer[which] = view.buffer.index;
    op->offset[which] = view.offset;
    return true;
}

static bool set_peer(baton_schedule_t *schedule, baton__op_t *op, int peer)
{
    if (peer < 0 || peer >= schedule->group->size) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s#%u: peer is %d, must be a rank of the group, 0 "
                            "to %d",
                            baton__kinds[op->kind].name, schedule->count, peer,
                            schedule->group->size - 1);
        return false;
    }
    op->peer = peer;
    return true;
}

static const baton_node_t no_node = {BATON__NO_NODE};

static baton_node_t add_message(baton_schedule_t *schedule, const char *adder,
                                baton__kind_t kind, int peer, int operand,
                                baton_view_t view)
{
    baton__op_t op = {.kind = (uint8_t)kind, .bytes = view.bytes};
    bool valid = baton__graph_open(schedule, adder) &&
                 set_peer(schedule, &op, peer) &&
                 set_operand(schedule, &op, operand, view);
    return valid ? graph_add(schedule, op) : no_node;
}

baton_node_t baton_add_send(baton_schedule_t *schedule, int peer,
                            baton_view_t source)
{
    return add_message(schedule, __func__, BATON__SEND, peer, BATON__LEFT,
                       source);
}

baton_node_t baton_add_recv(baton_schedule_t *schedule, int peer,
                            baton_view_t target)
{
    return add_message(schedule, __func__, BATON__RECV, peer, BATON__TARGET,
                       target);
}

static bool set_reduction(baton_schedule_t *schedule, baton__op_t *op,
                          baton_dtype_t dtype, const baton_op_t *reduction)
{
    baton_status_t status = baton_op_check(reduction, dtype);
    if (status != BATON_OK) {
        baton_schedule_fail(schedule, status, "reduce#%u: %s", schedule->count,
                            baton_error_message());
        return false;
    }
    if (reduction == BATON_AVG) {
        baton_schedule_fail(
            schedule, BATON_ERR_INVALID,
            "reduce#%u: op is avg, which only collectives take: use BATON_SUM, "
            "and baton_schedule_average() in the last reduction",
            schedule->count);
        return false;
    }
    size_t element = baton_op_element_bytes(reduction, dtype);
    if (op->bytes % element != 0) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "reduce#%u: %zu bytes are not a whole number of "
                            "elements of %zu bytes",
                            schedule->count, op->bytes, element);
        return false;
    }
    op->dtype = (uint8_t)dtype;
    op->reduction = reduction;
    return true;
}

static bool precedes(baton_view_t a, baton_view_t b)
{
    return a.buffer.index != b.buffer.index ? a.buffer.index < b.buffer.index
                                            : a.offset < b.offset;
}

baton_node_t baton_add_reduce_local(baton_schedule_t *schedule,
                                    baton_dtype_t dtype, const baton_op_t *op,
                                    baton_view_t target, baton_view_t left,
                                    baton_view_t right)
{
    baton__op_t record = {.kind = BATON__REDUCE, .bytes = target.bytes};
    if (!baton__graph_open(schedule, __func__)) {
        return no_node;
    }
    /* Ranks that share plans (share.h) compute nothing, so the order of the
       operands does not matter to them. Here their operands are put into the
       order of buffers and offsets, so that ranks whose reductions differ only
       in that order share a plan, too. */
    bool swaps = schedule->group->sharing != NULL && precedes(right, left);
    bool valid =
        set_reduction(schedule, &record, dtype, op) &&
        set_operand(schedule, &record, BATON__TARGET, target) &&
        set_operand(schedule, &record, BATON__LEFT, swaps ? right : left) &&
        set_operand(schedule, &record, BATON__RIGHT, swaps ? left : right);
    return valid ? graph_add(schedule, record) : no_node;
}

baton_node_t baton_add_copy(baton_schedule_t *schedule, baton_view_t target,
                            baton_view_t source)
{
    baton__op_t op = {.kind = BATON__COPY, .bytes = target.bytes};
    bool valid = baton__graph_open(schedule, __func__) &&
                 set_operand(schedule, &op, BATON__TARGET, target) &&
                 set_operand(schedule, &op, BATON__LEFT, source);
    return valid ? graph_add(schedule, op) : no_node;
}

/* Adds a node that calls functions of the user. If the user has not given a
   function that the node needs, `missing` is the name of that function; then
   adds no node, and the schedule keeps the error. Otherwise `missing` is
   NULL. */
static baton_node_t add_function(baton_schedule_t *schedule, const char *adder,
                                 baton__op_t op, const char *missing)
{
    if (!baton__graph_open(schedule, adder)) {
        return no_node;
    }
    if (missing != NULL) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID, "%s#%u: it has no %s",
                            baton__kinds[op.kind].name, schedule->count,
                            missing);
        return no_node;
    }
    return graph_add(schedule, op);
}

baton_node_t baton_add_nop(baton_schedule_t *schedule)
{
    return add_function(schedule, __func__, (baton__op_t){.kind = BATON__NOP},
                        NULL);
}

baton_node_t baton_add_call(baton_schedule_t *schedule, baton_call_fn fn,
                            void *arg)
{
    return add_function(
        schedule, __func__,
        (baton__op_t){.kind = BATON__CALL, .call = fn, .argument = arg},
        fn == NULL ? "function" : NULL);
}

baton_node_t baton_add_device_call(baton_schedule_t *schedule,
                                   baton_device_call_fn fn, void *arg)
{
    return add_function(schedule, __func__,
                        (baton__op_t){.kind = BATON__DEVICE_CALL,
                                      .device_call = fn,
                                      .argument = arg},
                        fn == NULL ? "function" : NULL);
}

baton_node_t baton_add_async(baton_schedule_t *schedule,
                             const baton_async_ops_t *ops, void *arg)
{
    const char *missing = NULL;
    if (ops == NULL) {
        missing = "functions";
    } else if (ops->start == NULL) {
        missing = "start";
    }
    return add_function(schedule, __func__,
                        (baton__op_t){.kind = BATON__ASYNC,
                                      .async_ops = ops,
                                      .async = {.argument = arg}},
                        missing);
}

baton_node_t baton_add_on_start(baton_schedule_t *schedule)
{
    return add_function(
        schedule, __func__,
        (baton__op_t){.kind = BATON__ON_START, .flags = BATON__OPTIONAL}, NULL);
}

static baton_node_t add_activation(baton_schedule_t *schedule,
                                   const char *adder, baton__kind_t kind,
                                   int peer)
{
    baton__op_t op = {.kind = (uint8_t)kind,
                      .flags = BATON__OPTIONAL,
                      .bytes = sizeof(baton__activation_t)};
    if (!baton__graph_open(schedule, adder) || !set_peer(schedule, &op, peer)) {
        return no_node;
    }
    op.message.slot = schedule->slot_count++;
    return graph_add(schedule, op);
}

baton_node_t baton_add_armed_recv(baton_schedule_t *schedule, int peer)
{
    return add_activation(schedule, __func__, BATON__ARMED_RECV, peer);
}

baton_node_t baton_add_activate(baton_schedule_t *schedule, int peer)
{
    return add_activation(schedule, __func__, BATON__ACTIVATE, peer);
}

/* ---- lengths ---------------------------------------------------------- */

baton_length_t baton_add_length(baton_schedule_t *schedule)
{
    return baton__graph_open(schedule, __func__)
               ? (baton_length_t){schedule->length_count++}
               : (baton_length_t){BATON__NO_LENGTH};
}

void baton_set_length(baton_schedule_t *schedule, baton_node_t node,
                      baton_length_t length)
{
    if (!baton__graph_open(schedule, __func__)) {
        return;
    }
    if (node.index >= schedule->count ||
        length.index >= schedule->length_count) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "set_length names node %u and length %u, and the "
                            "schedule has %u and %u",
                            node.index, length.index, schedule->count,
                            schedule->length_count);
        return;
    }
    baton__op_t *op = &schedule->ops[node.index];
    const baton__kind_info_t *kind = &baton__kinds[op->kind];
    if (kind->reads == 0 && kind->writes == 0) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "set_length: %s has no operand",
                            baton__node_name(schedule, node.index));
        return;
    }
    op->length = length.index;
}
