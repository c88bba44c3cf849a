#include "ops/device.h"

static baton_status_t issue_reduce(const baton__op_t *op,
                                   const baton__context_t *context,
                                   const baton__device_t *device,
                                   baton_stream_t stream, size_t bytes)
{
    baton_dtype_t dtype = (baton_dtype_t)op->dtype;
    return device->port.reduce(
        device->device, stream, op->reduction, dtype,
        baton__operand(op, BATON__TARGET, context->address),
        baton__operand(op, BATON__LEFT, context->address),
        baton__operand(op, BATON__RIGHT, context->address),
        bytes / baton_op_element_bytes(op->reduction, dtype));
}

static baton_status_t issue_call(const baton__op_t *op, uint32_t node,
                                 const baton__context_t *context,
                                 baton_stream_t stream)
{
    baton_call_t call = {.owner = context->owner, .node = node};
    if (op->device_call == NULL) {
        return BATON_OK; /* a graph that is only simulated */
    }
    return (baton_status_t)baton__op_outcome(
        op, &call, op->device_call(op->argument, &call, stream));
}

baton_status_t baton__device_issue(const baton__op_t *op, uint32_t node,
                                   const baton__context_t *context,
                                   const baton__device_t *device,
                                   baton_stream_t stream, size_t bytes)
{
    if (op->kind == BATON__DEVICE_CALL) {
        return issue_call(op, node, context, stream);
    }
    if (bytes == 0) {
        return BATON_OK; /* it is only there to keep its place */
    }
    return op->kind == BATON__REDUCE
               ? issue_reduce(op, context, device, stream, bytes)
               : device->port.copy(
                     device->device, stream,
                     baton__operand(op, BATON__TARGET, context->address),
                     baton__operand(op, BATON__LEFT, context->address), bytes);
}
