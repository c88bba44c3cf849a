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
    const struct {
        baton_buffer_t buffer;
        void *address;
    } all[] = {{self->left, operands.left},
               {self->right, operands.right},
               {self->target, operands.target}};
    baton_status_t status = BATON_OK;
    /* To nothing first, as one may be where another one was before. */
    for (int i = 0; i < 6 && status == BATON_OK; i++) {
        status = baton_buffer_rebind(self->requests.schedule, all[i % 3].buffer,
                                     i < 3 ? NULL : all[i % 3].address);
    }
    if (status == BATON_OK) {
        status = baton_call_set_length(call, self->sum, adds ? self->bytes : 0);
    }
    return status == BATON_OK ? baton_call_set_length(call, self->copy,
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
    baton_buffer_t *const buffers[] = {&self->target, &self->left,
                                       &self->right};
    baton_view_t views[3];
    for (int i = 0; i < 3; i++) {
        *buffers[i] = baton_buffer_bind(s, NULL, bytes);
        baton_buffer_set_memory(s, *buffers[i], BATON_MEMORY_DEVICE);
        views[i] = baton_view(*buffers[i], 0, bytes);
    }
    self->sum = baton_add_length(s);
    self->copy = baton_add_length(s);
    baton_node_t copy = baton_add_copy(s, views[0], views[2]);
    baton_set_length(s, copy, self->copy);
    if (op != NULL) {
        baton_node_t sum =
            baton_add_reduce(s, dtype, op, views[0], views[1], views[2]);
        baton_set_length(s, sum, self->sum);
        baton_before(s, sum, copy);
    }
    return baton__requests_commit(&self->requests);
}
