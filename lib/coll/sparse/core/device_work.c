/* The work of a sparse all-reduce in device memory; see device_work.h. */
#include "coll/sparse/core/device_work.h"

#include <string.h>

void baton__device_allocate(baton_sparse_t *sparse)
{
    baton__sparse_device_t *self = sparse->device;
    const baton_sparse_options_t *o = &sparse->options;
    const baton_memory_t kind = BATON_MEMORY_DEVICE;
    size_t bytes = sparse->vector_bytes;
    size_t most = 2 * o->max_k < o->count ? 2 * o->max_k + 1 : o->count;
    size_t scratch =
        self->port->select_bytes(self->device, o->dtype, o->count, most);
    self->residual = baton__sparse_alloc_device(sparse, kind, bytes);
    self->work = baton__sparse_alloc_device(sparse, kind, bytes);
    if (o->momentum > 0) {
        self->velocity = baton__sparse_alloc_device(sparse, kind, bytes);
        self->new_velocity = baton__sparse_alloc_device(sparse, kind, bytes);
    }
    self->indices =
        baton__sparse_alloc_device(sparse, kind, most * sizeof *self->indices);
    self->scratch = baton__sparse_alloc_device(sparse, kind, scratch);
    self->square_sum = baton__mirror_alloc(sparse, NULL, sizeof(double));
}

baton__mirror_t baton__mirror_alloc(baton_sparse_t *sparse, void *host,
                                    size_t bytes)
{
    return (baton__mirror_t){
        .host = host != NULL ? host
                             : baton__sparse_alloc_device(
                                   sparse, BATON_MEMORY_HOST, bytes),
        .device =
            baton__sparse_alloc_device(sparse, BATON_MEMORY_DEVICE, bytes),
    };
}

/* ---- device calls ------------------------------------------------------ */

typedef struct device_call {
    baton_sparse_t *sparse;
    baton__enqueue_fn fn;
    void *arg;
} device_call_t;

static baton_status_t enqueue(void *arg, baton_call_t *call,
                              baton_stream_t stream)
{
    const device_call_t *self = arg;
    baton__enqueue_t queue = {.sparse = self->sparse, .stream = stream};
    self->fn(self->arg, &queue);
    return queue.status;
}

baton_node_t baton__sparse_device_call(baton_sparse_t *sparse,
                                       baton_schedule_t *schedule,
                                       baton_node_t before,
                                       baton__enqueue_fn fn, void *arg)
{
    device_call_t *self = baton__sparse_alloc(sparse, 1, sizeof *self);
    if (self == NULL) {
        return before;
    }
    *self = (device_call_t){sparse, fn, arg};
    baton_node_t call = baton_add_device_call(schedule, enqueue, self);
    baton_before(schedule, before, call);
    return call;
}

/* ---- work that is put into a stream ------------------------------------ */

void baton__enqueue_copy(baton__enqueue_t *queue, void *target,
                         const void *source, size_t bytes)
{
    const baton__sparse_device_t *self = queue->sparse->device;
    if (queue->status == BATON_OK && bytes > 0) {
        queue->status = self->port->copy(self->device, queue->stream, target,
                                         source, bytes);
    }
}

void baton__enqueue_to_host(baton__enqueue_t *queue,
                            const baton__mirror_t *mirror, size_t bytes)
{
    baton__enqueue_copy(queue, mirror->host, mirror->device, bytes);
}

void baton__enqueue_to_device(baton__enqueue_t *queue,
                              const baton__mirror_t *mirror, size_t bytes)
{
    baton__enqueue_copy(queue, mirror->device, mirror->host, bytes);
}

void baton__enqueue_scale(baton__enqueue_t *queue, char *target,
                          const void *source, double factor)
{
    const baton__sparse_device_t *self = queue->sparse->device;
    const baton_sparse_options_t *o = &queue->sparse->options;
    if (queue->status == BATON_OK) {
        queue->status = self->port->scale(self->device, queue->stream, o->dtype,
                                          target, source, o->count, factor);
    }
}

/* Sets `target` to left + right. The order matters: the sum of two NaNs is the
   first of them. */
static void device_work_sum(baton__enqueue_t *queue, char *target,
                            const void *left, const void *right)
{
    const baton__sparse_device_t *self = queue->sparse->device;
    const baton_sparse_options_t *o = &queue->sparse->options;
    if (queue->status == BATON_OK) {
        queue->status =
            self->port->reduce(self->device, queue->stream, BATON_SUM, o->dtype,
                               target, left, right, o->count);
    }
}

void baton__enqueue_transfer(baton__enqueue_t *queue,
                             baton_device_direction_t direction,
                             const baton_device_entries_t *list,
                             const uint32_t *indices, char *dense,
                             double factor)
{
    const baton__sparse_device_t *self = queue->sparse->device;
    const baton_device_transfer_t of = {.direction = direction,
                                        .list = *list,
                                        .indices = indices,
                                        .factor = factor,
                                        .dense = dense};
    if (queue->status == BATON_OK) {
        queue->status = self->port->entries(self->device, queue->stream, &of);
    }
}

/* ---- accumulation ------------------------------------------------------ */

/* Sets the new velocity to m u + g or, with nesterov, to m (u + g). Returns the
   vector that is to be accumulated. The additions are made in the same order as
   in accumulate.c. */
static const void *add_momentum(baton__enqueue_t *queue, const void *gradient)
{
    const baton__sparse_device_t *self = queue->sparse->device;
    double momentum = queue->sparse->options.momentum;
    char *velocity = self->new_velocity;
    if (queue->sparse->options.nesterov) {
        device_work_sum(queue, velocity, self->velocity, gradient);
        baton__enqueue_scale(queue, velocity, velocity, momentum);
        device_work_sum(queue, self->work, velocity, gradient);
        return self->work;
    }
    baton__enqueue_scale(queue, velocity, self->velocity, momentum);
    device_work_sum(queue, velocity, velocity, gradient);
    return velocity;
}

static void device_work_accumulate(void *arg, baton__enqueue_t *queue)
{
    const baton_sparse_t *sparse = arg;
    baton__sparse_device_t *self = sparse->device;
    const void *adds = sparse->input.gradient;
    self->latest = NULL;
    if (adds == NULL) { /* NULL: the step is a flush */
        baton__enqueue_copy(queue, self->work, self->residual,
                            sparse->vector_bytes);
        return;
    }
    if (sparse->input.clip_factor != 1) {
        baton__enqueue_scale(queue, self->work, adds,
                             sparse->input.clip_factor);
        adds = self->work;
    }
    if (self->velocity != NULL) {
        adds = add_momentum(queue, adds);
    }
    device_work_sum(queue, self->work, self->residual, adds);
}

/* ---- clipping ---------------------------------------------------------- */

static void square_gradient(void *arg, baton__enqueue_t *queue)
{
    const baton_sparse_t *sparse = arg;
    const baton__sparse_device_t *self = sparse->device;
    if (sparse->input.gradient == NULL) { /* NULL: the step is a flush */
        return;
    }
    if (queue->status == BATON_OK) {
        queue->status = self->port->square_sum(
            self->device, queue->stream, sparse->dtype, sparse->input.gradient,
            sparse->count, (double *)(void *)self->square_sum.device,
            self->scratch);
    }
    baton__enqueue_to_host(queue, &self->square_sum, sizeof(double));
}

static baton_status_t clip(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    double square_sum;
    if (sparse->input.gradient != NULL) {
        memcpy(&square_sum, sparse->device->square_sum.host, sizeof square_sum);
        sparse->input.clip_factor =
            baton__clip_factor(sparse->options.clip, sparse->size, square_sum);
    }
    return BATON_OK;
}

baton_node_t baton__sparse_device_add_accumulation(baton_sparse_t *sparse,
                                                   baton_schedule_t *schedule,
                                                   baton_node_t begin)
{
    if (sparse->options.clip != 0) {
        baton_node_t square = baton__sparse_device_call(
            sparse, schedule, begin, square_gradient, sparse);
        begin = baton__sparse_add_call(sparse, schedule, clip, sparse);
        baton_before(schedule, square, begin);
    }
    return baton__sparse_device_call(sparse, schedule, begin,
                                     device_work_accumulate, sparse);
}

/* ---- lists ------------------------------------------------------------- */

static void device_work_remember(baton__sparse_device_t *self,
                                 baton__change_t *change)
{
    change->earlier = self->latest;
    self->latest = change;
}

static baton_device_method_t method_of(const baton__selecting_t *selecting)
{
    if (!selecting->sampled) {
        return BATON_DEVICE_TOPK;
    }
    return selecting->earlier != 0 ? BATON_DEVICE_REUSED : BATON_DEVICE_SAMPLED;
}

void baton__enqueue_take(baton__enqueue_t *queue,
                         const baton__selecting_t *selecting, char *to,
                         baton__change_t *change)
{
    baton_sparse_t *sparse = queue->sparse;
    baton__sparse_device_t *self = sparse->device;
    baton_device_selected_t *head = baton__selected_head(to);
    const baton_device_selection_t selection = {
        .method = method_of(selecting),
        .from = {.dtype = sparse->dtype,
                 .side = selecting->side,
                 .values =
                     self->work + selecting->first * sparse->element_bytes,
                 .count = selecting->count,
                 .first = (uint32_t)selecting->first},
        .k = selecting->k,
        .indices = self->indices,
        .selected = head,
        .scratch = self->scratch};
    size_t most = selecting->sampled ? 2 * selecting->k : selecting->k;
    sparse->counting.block_selections++;
    change->list = (baton_device_entries_t){
        .dtype = sparse->dtype,
        .data = head + 1,
        .capacity = most < selecting->count ? most : selecting->count,
        .count = &head->count,
    };
    if (queue->status == BATON_OK) {
        queue->status =
            self->port->select(self->device, queue->stream, &selection);
    }
    baton__enqueue_transfer(queue, BATON_DEVICE_TAKE, &change->list,
                            self->indices, self->work, 0);
    device_work_remember(self, change);
}

void baton__enqueue_add(baton__enqueue_t *queue, char *entries, size_t count,
                        double factor, baton__change_t *change)
{
    baton__sparse_device_t *self = queue->sparse->device;
    change->list = (baton_device_entries_t){
        .dtype = queue->sparse->dtype, .data = entries, .capacity = count};
    device_work_remember(self, change);
    baton__enqueue_transfer(queue, BATON_DEVICE_ADD, &change->list, NULL,
                            self->work, factor);
}

/* Clears the velocity at `indices` by a TAKE, since the device has no operation
   that only clears elements of a vector. The velocity's values go to `saved`,
   whose old entries are not needed any more. */
void baton__enqueue_mask(baton__enqueue_t *queue, const uint32_t *indices,
                         size_t capacity, const uint64_t *count)
{
    const baton__sparse_device_t *self = queue->sparse->device;
    const baton_device_entries_t list = {.dtype = queue->sparse->dtype,
                                         .data = self->saved,
                                         .capacity = capacity,
                                         .count = count};
    if (self->velocity != NULL) {
        baton__enqueue_transfer(queue, BATON_DEVICE_TAKE, &list, indices,
                                self->new_velocity, 0);
    }
}

/* Keeps the values of `work` at the result's indices, and undoes all changes
   elsewhere, the latest first. */
void baton__enqueue_keep(baton__enqueue_t *queue, const uint32_t *indices,
                         size_t count)
{
    baton__sparse_device_t *self = queue->sparse->device;
    const baton_device_entries_t saved = {
        .dtype = queue->sparse->dtype, .data = self->saved, .capacity = count};
    baton__enqueue_transfer(queue, BATON_DEVICE_GATHER, &saved, indices,
                            self->work, 0);
    while (self->latest != NULL) {
        baton__enqueue_transfer(queue, BATON_DEVICE_PUT, &self->latest->list,
                                NULL, self->work, 0);
        self->latest = self->latest->earlier;
    }
    baton__enqueue_transfer(queue, BATON_DEVICE_PUT, &saved, NULL, self->work,
                            0);
    baton__enqueue_mask(queue, indices, count, NULL);
}
