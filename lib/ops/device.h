/* Nodes that a device does. */
#ifndef BATON_OPS_DEVICE_H
#define BATON_OPS_DEVICE_H

#include "ops/op.h"
#include "transport/device.h"

/* Puts what a reduce, copy or device call does into the stream, on `bytes` of
   its operands. On an error, with baton_error_message() set, the epoch fails.
 */
baton_status_t baton__device_issue(const baton__op_t *op, uint32_t node,
                                   const baton__context_t *context,
                                   const baton__device_t *device,
                                   baton_stream_t stream, size_t bytes);

#endif
