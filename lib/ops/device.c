#include "ops/device.h"

#include "base/error.h"

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

/* Only what a user's function may say leaves here. */
static baton_status_t issue_call(const baton__op_t *op, uint32_t node,
                                 const baton__context_t *context,
                                 baton_stream_t stream)
{
    baton_call_t call = {.owner = context->owner, .node = node};
    if (op->device_call == NULL) {
        return BATON_OK; /* a graph that is only simulated */
    }
    baton_status_t returned = op->device_call(op->argument, &call, stream);
    if (returned == BATON_OK) {
        return BATON_OK;
    }
    baton_status_t status = baton__failure_of((int)returned);
    return call.explained
               ? status
               : baton__error(status, "%s#%u returned %d, %s",
                              baton__kinds[op->kind].name, node, (int)returned,
                              baton_status_name(status));
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
