/* The table of node kinds, and the functions that issue their nodes. */
#include "ops/op.h"

#include "base/error.h"
#include "ops/copy.h"

#include <string.h>

/* Returns the result of a node whose start has returned `status`. DONE means
   that the node has completed already. */
static int result_of_start(int status)
{
    if (status == BATON_OK) {
        return BATON__PENDING;
    }
    return status == BATON_DONE ? BATON_OK : status;
}

static int send_message(const baton__op_t *op, uint32_t node,
                        const baton__context_t *context,
                        baton__message_kind_t kind, const void *data,
                        size_t bytes)
{
    const baton_token_t token = {
        .owner = context->owner,
        .node = node,
        .memory = baton__op_memory(op),
        .made = (op->flags & BATON__MADE) != 0,
        .patient = (op->flags & BATON__PATIENT) != 0,
    };
    baton_header_t header = context->header;
    header.tag = op->message.tag;
    header.kind = (uint16_t)kind;
    return result_of_start(context->transport->send(
        context->endpoint, token, (int)(op->peer ^ context->flip), &header,
        data, bytes));
}

static int op_issue_send(const baton__op_t *op, uint32_t node,
                         const baton__context_t *context, size_t begin,
                         size_t bytes)
{
    return send_message(op, node, context, BATON__MESSAGE_DATA,
                        baton__operand(op, BATON__LEFT, context->address),
                        bytes);
}

static int issue_activate(const baton__op_t *op, uint32_t node,
                          const baton__context_t *context, size_t begin,
                          size_t bytes)
{
    return send_message(op, node, context, BATON__MESSAGE_ACTIVATION,
                        &context->activations[op->message.slot], bytes);
}

static int op_issue_reduce(const baton__op_t *op, uint32_t node,
                           const baton__context_t *context, size_t begin,
                           size_t bytes)
{
    const baton_op_t *reduction = op->reduction;
    baton_dtype_t dtype = (baton_dtype_t)op->dtype;
    reduction->reduce(reduction->arg,
                      baton__operand(op, BATON__TARGET, context->address) +
                          begin,
                      baton__source(op, BATON__LEFT, context, begin),
                      baton__source(op, BATON__RIGHT, context, begin),
                      bytes / baton_op_element_bytes(reduction, dtype), dtype);
    return BATON_OK;
}

static int issue_copy(const baton__op_t *op, uint32_t node,
                      const baton__context_t *context, size_t begin,
                      size_t bytes)
{
    char *to = baton__operand(op, BATON__TARGET, context->address) + begin;
    const char *from =
        baton__operand(op, BATON__LEFT, context->address) + begin;
    if ((op->flags & BATON__SHARES) != 0) {
        baton__copy_shared(to, from, bytes);
    } else {
        memmove(to, from, bytes);
    }
    return BATON_OK;
}

int baton__op_outcome(const baton__op_t *op, const baton_call_t *call,
                      baton_status_t status)
{
    if (status == BATON_OK ||
        (status == BATON_SKIP && op->kind != BATON__DEVICE_CALL) ||
        (status == BATON_DONE && op->kind == BATON__ASYNC)) {
        return status;
    }
    const int returned = status;
    status = baton__failure_of(returned);
    if (call->explained) {
        return status;
    }
    return baton__error(status, "%s#%u returned %d, %s",
                        baton__kinds[op->kind].name, call->node, returned,
                        baton_status_name(status));
}

static int op_issue_call(const baton__op_t *op, uint32_t node,
                         const baton__context_t *context, size_t begin,
                         size_t bytes)
{
    baton_call_t call = {.owner = context->owner, .node = node};
    return baton__op_outcome(op, &call, op->call(op->argument, &call));
}

static int issue_async(const baton__op_t *op, uint32_t node,
                       const baton__context_t *context, size_t begin,
                       size_t bytes)
{
    baton_call_t call = {.owner = context->owner, .node = node};
    baton__async_t *record = &context->asyncs[op->async.ordinal];
    const baton_async_t async = {record,
                                 baton__async_generation(atomic_load_explicit(
                                     &record->state, memory_order_relaxed))};
    return result_of_start(baton__op_outcome(
        op, &call, op->async_ops->start(op->async.argument, &call, async)));
}

#define TARGET (1u << BATON__TARGET)
#define LEFT   (1u << BATON__LEFT)
#define RIGHT  (1u << BATON__RIGHT)

const baton__kind_info_t baton__kinds[BATON__KIND_COUNT] = {
    [BATON__SEND] = {.name = "send",
                     .reads = LEFT,
                     .message = true,
                     .issue = op_issue_send},
    [BATON__RECV] = {.name = "recv", .writes = TARGET, .message = true},
    [BATON__REDUCE] = {.name = "reduce",
                       .reads = LEFT | RIGHT,
                       .writes = TARGET,
                       .issue = op_issue_reduce},
    [BATON__COPY] = {.name = "copy",
                     .reads = LEFT,
                     .writes = TARGET,
                     .issue = issue_copy},
    [BATON__CALL] = {.name = "call", .issue = op_issue_call},
    [BATON__ASYNC] = {.name = "async", .issue = issue_async},
    [BATON__DEVICE_CALL] = {.name = "device_call"},
    [BATON__NOP] = {.name = "nop"},
    [BATON__ON_START] = {.name = "on_start"},
    [BATON__ARMED_RECV] = {.name = "armed_recv", .message = true},
    [BATON__ACTIVATE] = {.name = "activate",
                         .message = true,
                         .issue = issue_activate},
};
