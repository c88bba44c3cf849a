/*     begin: call --> reduce (target = left (op) right)
                          |
                          v
                        copy (target = right) --> end: call

   Lengths say which of the two has anything to do. */
#include "coll/mover.h"

static baton_status_t bind(const baton__mover_t *self,
                           const baton__operands_t *operands)
{
    const struct {
        baton_buffer_t buffer;
        void *memory;
    } all[] = {
        /* No two are ever the same, not even before the last is bound. */
        {self->target, NULL},
        {self->left, operands->left},
        {self->right, operands->right},
        {self->target, operands->target},
    };
    baton_status_t status = BATON_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == BATON_OK;
         i++) {
        status =
            baton_buffer_rebind(self->schedule, all[i].buffer, all[i].memory);
    }
    return status;
}

static baton_status_t begin(void *arg, baton_call_t *call)
{
    baton__mover_t *self = arg;
    baton__operands_t operands = {0};
    self->begun = baton_call_epoch(call);
    self->begin(self->arg, &self->requests[self->begun % BATON__REQUESTS],
                &operands);
    bool adds = operands.left != NULL && operands.right != NULL;
    bool copies = !adds && operands.right != NULL;
    baton_status_t status = bind(self, &operands);
    if (status == BATON_OK) {
        status = baton_call_set_length(call, self->sum, adds ? self->bytes : 0);
    }
    return status == BATON_OK ? baton_call_set_length(call, self->copy,
                                                      copies ? self->bytes : 0)
                              : status;
}

static baton_status_t end(void *arg, baton_call_t *call)
{
    const baton__mover_t *self = arg;
    self->end(self->arg,
              &self->requests[baton_call_epoch(call) % BATON__REQUESTS]);
    return BATON_OK;
}

static baton_buffer_t add_buffer(baton_schedule_t *s, size_t bytes)
{
    baton_buffer_t buffer = baton_buffer_bind(s, NULL, bytes);
    baton_buffer_set_memory(s, buffer, BATON_MEMORY_DEVICE);
    return buffer;
}

static void build(baton__mover_t *self, baton_dtype_t dtype,
                  const baton_op_t *op)
{
    baton_schedule_t *s = self->schedule;
    size_t bytes = self->bytes;
    self->target = add_buffer(s, bytes);
    self->left = add_buffer(s, bytes);
    self->right = add_buffer(s, bytes);
    self->sum = baton_add_length(s);
    self->copy = baton_add_length(s);
    baton_view_t target = baton_view(self->target, 0, bytes);
    baton_view_t right = baton_view(self->right, 0, bytes);
    baton_node_t first = baton_add_call(s, begin, self);
    baton_node_t copy = baton_add_copy(s, target, right);
    baton_node_t last = baton_add_call(s, end, self);
    baton_set_length(s, copy, self->copy);
    if (op != NULL) {
        baton_node_t sum = baton_add_reduce(
            s, dtype, op, target, baton_view(self->left, 0, bytes), right);
        baton_set_length(s, sum, self->sum);
        baton_before(s, first, sum);
        baton_before(s, sum, copy);
    }
    baton_before(s, first, copy);
    baton_before(s, copy, last);
}

baton_status_t baton__mover_init(baton__mover_t *self, baton_group_t *group,
                                 const char *name, size_t bytes,
                                 baton_dtype_t dtype, const baton_op_t *op)
{
    self->bytes = bytes;
    self->started = 0;
    baton_status_t status = baton_schedule_create(group, name, &self->schedule);
    if (status != BATON_OK) {
        return status;
    }
    build(self, dtype, op);
    return baton_schedule_commit(self->schedule);
}

baton_status_t baton__mover_fini(baton__mover_t *self)
{
    baton_status_t status = baton_schedule_destroy(self->schedule);
    self->schedule = status == BATON_ERR_STATE ? self->schedule : NULL;
    return status;
}

/* Its epoch is the one that the next start begins. */
static void put_request(baton__mover_t *self, const baton__move_t *request)
{
    self->requests[(self->started + 1) % BATON__REQUESTS] = *request;
}

baton_status_t baton__mover_start_on(baton__mover_t *self,
                                     const baton__move_t *request,
                                     baton_stream_t stream, bool ordered)
{
    put_request(self, request);
    baton_status_t status = baton_schedule_start_on(self->schedule, stream);
    if (status != BATON_OK) {
        return status;
    }
    self->started++;
    return ordered ? baton_schedule_wait_on(self->schedule, stream) : BATON_OK;
}

baton_status_t baton__mover_run(baton__mover_t *self,
                                const baton__move_t *request)
{
    baton_status_t status = baton_schedule_wait(self->schedule, -1);
    if (status == BATON_ERR_STATE) {
        return status; /* in a call node */
    }
    put_request(self, request);
    status = baton_schedule_start(self->schedule);
    if (status != BATON_OK) {
        return status;
    }
    self->started++;
    return baton_schedule_wait(self->schedule, -1);
}

bool baton__mover_is_over(const baton__mover_t *self)
{
    return baton_schedule_epoch(self->schedule) >= self->begun;
}

baton_status_t baton__mover_outcome(const baton__mover_t *self)
{
    bool done = false;
    return baton_schedule_test(self->schedule, &done);
}
