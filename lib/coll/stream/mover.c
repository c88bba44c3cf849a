/*     begin: call --> reduce (target = left (op) right)
                          |
                          v
                        copy (target = right) --> end: call

   Lengths say which of the two has anything to do. */
#include "coll/stream/mover.h"

static baton_status_t begin(void *arg, baton_call_t *call, const void *request)
{
    baton__mover_t *self = arg;
    baton__operands_t operands = {0};
    self->begin(self->arg, request, &operands);
    bool adds = operands.left != NULL && operands.right != NULL;
    bool copies = !adds && operands.right != NULL;
    const baton__binding_t all[] = {{self->left, operands.left},
                                    {self->copy.source, operands.right},
                                    {self->copy.target, operands.target}};
    baton_status_t status = baton__requests_bind(&self->requests, all, 3);
    if (status == BATON_OK) {
        status = baton_call_set_length(call, self->sum, adds ? self->bytes : 0);
    }
    return status == BATON_OK ? baton_call_set_length(call, self->copy.length,
                                                      copies ? self->bytes : 0)
                              : status;
}

static void end(void *arg, const void *request)
{
    const baton__mover_t *self = arg;
    self->end(self->arg, request);
}

baton_status_t baton__mover_init(baton__mover_t *self, baton_group_t *group,
                                 const char *what, const char *name,
                                 size_t bytes, baton_dtype_t dtype,
                                 const baton_op_t *op)
{
    const baton__request_end_t there = {NULL, BATON_MEMORY_DEVICE};
    self->bytes = bytes;
    self->requests = (baton__requests_t){.bytes = sizeof(baton__move_t),
                                         .begin = begin,
                                         .end = end,
                                         .arg = self};
    baton_status_t status =
        baton__requests_init(&self->requests, group, what, name);
    if (status != BATON_OK) {
        return status;
    }
    baton_schedule_t *s = self->requests.schedule;
    self->copy = baton__requests_add_copy(&self->requests, there, there, bytes);
    self->left = baton_buffer_bind(s, NULL, bytes);
    self->sum = baton_add_length(s);
    baton_buffer_set_memory(s, self->left, BATON_MEMORY_DEVICE);
    if (op != NULL) {
        baton_node_t sum = baton_add_reduce(
            s, dtype, op, baton_view(self->copy.target, 0, bytes),
            baton_view(self->left, 0, bytes),
            baton_view(self->copy.source, 0, bytes));
        baton_set_length(s, sum, self->sum);
        baton_before(s, sum, self->copy.node);
    }
    return baton__requests_commit(&self->requests);
}
