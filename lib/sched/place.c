/* Places scratch and nodes: scratch that is connected with device memory is
   device memory, too, and the device executes the nodes that access it. */
#include "base/error.h"
#include "sched/offload.h"

#include <stdio.h>

/* ---- scratch ---------------------------------------------------------- */

static bool place_is_free(const baton__buffer_t *buffer)
{
    return buffer->scratch && !buffer->placed;
}

static bool computes(const baton__op_t *op)
{
    return op->kind == BATON__REDUCE || op->kind == BATON__COPY;
}

/* Returns the index of an operand of the node that is in device memory; -1 if
   there is none. */
static int device_operand(const baton_schedule_t *schedule,
                          const baton__op_t *op)
{
    for (int i = 0; i < BATON__OPERANDS; i++) {
        if (baton__op_uses(op, i) &&
            schedule->buffers[op->buffer[i]].kind == BATON_MEMORY_DEVICE) {
            return i;
        }
    }
    return -1;
}

/* Puts the scratch operands of a node into device memory if another operand is
   there. Returns true if there were such operands in main memory. */
static bool place_beside(baton_schedule_t *schedule, const baton__op_t *op)
{
    bool device = device_operand(schedule, op) >= 0;
    bool moved = false;
    for (int i = 0; i < BATON__OPERANDS && device; i++) {
        baton__buffer_t *buffer = &schedule->buffers[op->buffer[i]];
        if (baton__op_uses(op, i) && place_is_free(buffer) &&
            buffer->kind != BATON_MEMORY_DEVICE) {
            buffer->kind = BATON_MEMORY_DEVICE;
            moved = true;
        }
    }
    return moved;
}

/* Handles scratch that no reduce or copy uses, but only messages, which pass
   its data on. Puts such scratch into device memory if a bound buffer is in
   device memory, and no function on the host may read scratch. */
static void place_passed_on(baton_schedule_t *schedule)
{
    bool device = false;
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        const baton__buffer_t *buffer = &schedule->buffers[i];
        device |= !buffer->scratch && buffer->kind == BATON_MEMORY_DEVICE;
    }
    for (uint32_t node = 0; node < schedule->count && device; node++) {
        const baton__op_t *op = &schedule->ops[node];
        device = op->kind == BATON__DEVICE_CALL || !baton__op_sees_scratch(op);
    }
    for (uint32_t i = 0; i < schedule->buffer_count && device; i++) {
        baton__buffer_t *buffer = &schedule->buffers[i];
        if (place_is_free(buffer) && !buffer->computed) {
            buffer->kind = BATON_MEMORY_DEVICE;
        }
    }
}

static void place_scratch(baton_schedule_t *schedule)
{
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        baton__buffer_t *buffer = &schedule->buffers[i];
        buffer->computed = false;
        if (place_is_free(buffer)) {
            buffer->kind = BATON_MEMORY_HOST;
        }
    }
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        for (int k = 0; k < BATON__OPERANDS && computes(op); k++) {
            schedule->buffers[op->buffer[k]].computed |= baton__op_uses(op, k);
        }
    }
    /* Scratch that has got into device memory may be an operand of earlier
       nodes, too, so all nodes are visited again. Each round but the last puts
       at least one more buffer there. Rounds go forwards and backwards in turn,
       so a chain of scratch takes two rounds in either direction. */
    bool backwards = false;
    for (bool moved = true; moved; backwards = !backwards) {
        moved = false;
        for (uint32_t i = 0; i < schedule->count; i++) {
            const baton__op_t *op =
                &schedule->ops[backwards ? schedule->count - 1 - i : i];
            moved |= computes(op) && place_beside(schedule, op);
        }
    }
    place_passed_on(schedule);
}

/* ---- nodes ------------------------------------------------------------ */

static baton_status_t no_device(const baton_schedule_t *schedule, uint32_t node,
                                uint32_t buffer)
{
    const char *name = baton__node_name(schedule, node);
    char buffer_text[64] = "needs a device";
    if (schedule->ops[node].kind != BATON__DEVICE_CALL) {
        (void)snprintf(buffer_text, sizeof buffer_text,
                       "uses buffer %u in device memory", buffer);
    }
    return BATON__COMMIT_ERROR(
        BATON_ERR_UNSUPPORTED, schedule,
        "%s %s: the engine has no device (baton_engine_attach_device, before "
        "its first group)",
        name, buffer_text);
}

static const char *memory_name(baton_memory_t memory)
{
    return memory == BATON_MEMORY_DEVICE ? "device" : "host";
}

/* Checks a reduce on the device: all its operands must be in device memory, and
   the device must support the reduction. */
static baton_status_t place_check_reduce(const baton_schedule_t *schedule,
                                         uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    const baton__device_t *device = schedule->group->device;
    const baton__buffer_t *buffers = schedule->buffers;
    for (int i = BATON__LEFT; i < BATON__OPERANDS; i++) {
        uint32_t target = op->buffer[BATON__TARGET];
        if (buffers[op->buffer[i]].kind != buffers[target].kind) {
            return BATON__COMMIT_ERROR(
                BATON_ERR_INVALID, schedule,
                "%s has buffer %u in %s memory and buffer %u in %s memory: a "
                "reduction needs one kind; copy one of them first",
                baton__node_name(schedule, node), target,
                memory_name(buffers[target].kind), op->buffer[i],
                memory_name(buffers[op->buffer[i]].kind));
        }
    }
    baton_dtype_t dtype = (baton_dtype_t)op->dtype;
    if (!device->port.reduces(device->device, op->reduction, dtype)) {
        return BATON__COMMIT_ERROR(
            BATON_ERR_UNSUPPORTED, schedule,
            "%s, on buffer %u in device memory: %s has no reduction \"%s\" of "
            "%s",
            baton__node_name(schedule, node), op->buffer[BATON__TARGET],
            device->port.name,
            op->reduction->name != NULL ? op->reduction->name : "?",
            baton_dtype_name(dtype));
    }
    return BATON_OK;
}

static baton_status_t place_node(baton_schedule_t *schedule, uint32_t node)
{
    baton__op_t *op = &schedule->ops[node];
    op->flags &= (uint16_t) ~(BATON__ON_DEVICE | BATON__DEVICE_VIEW);
    int operand = device_operand(schedule, op);
    bool calls = op->kind == BATON__DEVICE_CALL && op->device_call != NULL;
    if (operand < 0 && !calls) {
        return BATON_OK;
    }
    if (schedule->group->device == NULL) {
        return no_device(schedule, node, calls ? 0 : op->buffer[operand]);
    }
    op->flags |= calls || computes(op) ? BATON__ON_DEVICE : BATON__DEVICE_VIEW;
    return op->kind == BATON__REDUCE ? place_check_reduce(schedule, node)
                                     : BATON_OK;
}

/* ---- bound memory ----------------------------------------------------- */

/* Returns the first node that uses the buffer, or BATON__NO_NODE. */
static uint32_t place_find_user(const baton_schedule_t *schedule,
                                uint32_t buffer)
{
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        for (int i = 0; i < BATON__OPERANDS; i++) {
            if (baton__op_uses(op, i) && op->buffer[i] == buffer) {
                return node;
            }
        }
    }
    return BATON__NO_NODE;
}

baton_status_t baton__check_bound(const baton_schedule_t *schedule,
                                  uint32_t buffer)
{
    const baton__device_t *device = schedule->group->device;
    const baton__buffer_t *bound = &schedule->buffers[buffer];
    if (device == NULL || schedule->group->cost_only || bound->scratch ||
        bound->memory == NULL || bound->bytes == 0) {
        return BATON_OK;
    }
    baton_status_t status = device->port.check(device->device, bound->memory,
                                               bound->bytes, bound->kind);
    if (status == BATON_OK) {
        return BATON_OK;
    }
    uint32_t user = place_find_user(schedule, buffer);
    return baton__error(
        status, "\"%s\": buffer %u%s%s%s is to be %s memory%s%s: %s",
        schedule->name, buffer, user == BATON__NO_NODE ? "" : " (",
        user == BATON__NO_NODE ? "" : baton__node_name(schedule, user),
        user == BATON__NO_NODE ? "" : " uses it)", memory_name(bound->kind),
        bound->kind == BATON_MEMORY_DEVICE ? " of " : " beside ",
        device->port.name, baton_error_message());
}

static baton_status_t check_all_bound(const baton_schedule_t *schedule)
{
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        baton_status_t status = baton__check_bound(schedule, i);
        if (status != BATON_OK) {
            return baton__error(status, "commit of %s", baton_error_message());
        }
    }
    return BATON_OK;
}

baton_status_t baton__place(baton_schedule_t *schedule)
{
    baton_status_t status = BATON_OK;
    place_scratch(schedule);
    for (uint32_t node = 0; node < schedule->count && status == BATON_OK;
         node++) {
        status = place_node(schedule, node);
    }
    return status == BATON_OK ? check_all_bound(schedule) : status;
}
