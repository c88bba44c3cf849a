/* A sparse all-reduce in device memory; see device_work.h. */
#include "coll/sparse/device_work.h"

#include <string.h>

/* All elements of the gradient's type. */
static size_t vector_bytes(const baton_sparse_t *sparse)
{
    return sparse->options.count * sparse->element_bytes;
}

bool baton__device_allocate(baton_sparse_t *sparse)
{
    baton__sparse_device_t *self = sparse->device;
    const baton_sparse_options_t *o = &sparse->options;
    const baton_memory_t kind = BATON_MEMORY_DEVICE;
    size_t bytes = vector_bytes(sparse);
    size_t most = 2 * o->max_k < o->count ? 2 * o->max_k + 1 : o->count;
    size_t scratch =
        self->port->select_bytes(self->device, o->dtype, o->count, most);
    bool ok = true;
    self->blank = true;
    self->residual = baton__sparse_device_room(sparse, kind, bytes, &ok);
    self->work = baton__sparse_device_room(sparse, kind, bytes, &ok);
    if (o->momentum > 0) {
        self->velocity = baton__sparse_device_room(sparse, kind, bytes, &ok);
        self->new_velocity =
            baton__sparse_device_room(sparse, kind, bytes, &ok);
    }
    self->indices = baton__sparse_device_room(
        sparse, kind, most * sizeof *self->indices, &ok);
    self->scratch = baton__sparse_device_room(sparse, kind, scratch, &ok);
    self->squares = baton__mirror_room(sparse, NULL, sizeof(double), &ok);
    return ok;
}

/* Entries of a result, or of a selection. */
bool baton__device_allocate_kept(baton_sparse_t *sparse)
{
    size_t result = sparse->result_capacity, k = sparse->options.max_k;
    bool ok = true;
    sparse->device->kept = baton__sparse_device_room(
        sparse, BATON_MEMORY_DEVICE,
        (result > k ? result : k) * sparse->entry_bytes, &ok);
    return ok;
}

/* ---- copies in a step -------------------------------------------------- */

baton__mirror_t baton__mirror_room(baton_sparse_t *sparse, void *host,
                                   size_t bytes, bool *ok)
{
    return (baton__mirror_t){
        .host = host != NULL ? host
                             : baton__sparse_device_room(
                                   sparse, BATON_MEMORY_HOST, bytes, ok),
        .device =
            baton__sparse_device_room(sparse, BATON_MEMORY_DEVICE, bytes, ok),
    };
}

baton_status_t baton__mirror_copy(const baton_sparse_t *sparse,
                                  baton_stream_t stream,
                                  const baton__mirror_t *mirror, size_t bytes,
                                  bool to_host)
{
    const baton__sparse_device_t *self = sparse->device;
    return bytes == 0
               ? BATON_OK
               : self->port->copy(self->device, stream,
                                  to_host ? mirror->host : mirror->device,
                                  to_host ? mirror->device : mirror->host,
                                  bytes);
}

/* ---- accumulation ------------------------------------------------------ */

/* target = left + right, in this order: of two NaNs the first one counts. */
static baton_status_t add_vectors(const baton_sparse_t *sparse,
                                  baton_stream_t stream, char *target,
                                  const void *left, const void *right)
{
    const baton__sparse_device_t *self = sparse->device;
    return self->port->reduce(self->device, stream, BATON_SUM,
                              sparse->options.dtype, target, left, right,
                              sparse->options.count);
}

baton_status_t baton__device_scale(const baton_sparse_t *sparse,
                                   baton_stream_t stream, char *target,
                                   const void *source, double factor)
{
    const baton__sparse_device_t *self = sparse->device;
    return self->port->scale(self->device, stream, sparse->options.dtype,
                             target, source, sparse->options.count, factor);
}

/* new_velocity = m u + g, or m (u + g); *adds_out is what is accumulated then.
   The additions are those of accumulate.c. */
static baton_status_t add_momentum(const baton_sparse_t *sparse,
                                   baton_stream_t stream, const void *gradient,
                                   const void **adds_out)
{
    const baton__sparse_device_t *self = sparse->device;
    double momentum = sparse->options.momentum;
    char *velocity = self->new_velocity;
    baton_status_t status;
    if (sparse->options.nesterov) {
        status =
            add_vectors(sparse, stream, velocity, self->velocity, gradient);
        if (status == BATON_OK) {
            status = baton__device_scale(sparse, stream, velocity, velocity,
                                         momentum);
        }
        *adds_out = self->work;
        return status == BATON_OK
                   ? add_vectors(sparse, stream, self->work, velocity, gradient)
                   : status;
    }
    status =
        baton__device_scale(sparse, stream, velocity, self->velocity, momentum);
    *adds_out = velocity;
    return status == BATON_OK
               ? add_vectors(sparse, stream, velocity, velocity, gradient)
               : status;
}

static baton_status_t write_zeros(const baton_sparse_t *sparse,
                                  baton_stream_t stream)
{
    const baton__sparse_device_t *self = sparse->device;
    baton_status_t status =
        baton__device_scale(sparse, stream, self->residual, NULL, 0);
    return status == BATON_OK && self->velocity != NULL
               ? baton__device_scale(sparse, stream, self->velocity, NULL, 0)
               : status;
}

static baton_status_t accumulate_gradient(const baton_sparse_t *sparse,
                                          baton_stream_t stream)
{
    const baton__sparse_device_t *self = sparse->device;
    const void *adds = sparse->gradient;
    baton_status_t status = BATON_OK;
    if (sparse->clip_factor != 1) {
        status = baton__device_scale(sparse, stream, self->work, adds,
                                     sparse->clip_factor);
        adds = self->work;
    }
    if (status == BATON_OK && self->velocity != NULL) {
        status = add_momentum(sparse, stream, adds, &adds);
    }
    return status == BATON_OK
               ? add_vectors(sparse, stream, self->work, self->residual, adds)
               : status;
}

static baton_status_t accumulate(void *arg, baton_call_t *call,
                                 baton_stream_t stream)
{
    const baton_sparse_t *sparse = arg;
    baton__sparse_device_t *self = sparse->device;
    (void)call;
    self->latest = NULL;
    baton_status_t status =
        self->blank ? write_zeros(sparse, stream) : BATON_OK;
    if (status != BATON_OK) {
        return status;
    }
    return sparse->gradient != NULL
               ? accumulate_gradient(sparse, stream)
               : self->port->copy(self->device, stream, self->work,
                                  self->residual, vector_bytes(sparse));
}

/* ---- clipping ---------------------------------------------------------- */

baton_status_t baton__device_square(const baton_sparse_t *sparse,
                                    baton_stream_t stream, const void *vector)
{
    const baton__sparse_device_t *self = sparse->device;
    baton_status_t status = self->port->square_sum(
        self->device, stream, sparse->options.dtype, vector,
        sparse->options.count, (double *)(void *)self->squares.device,
        self->scratch);
    return status == BATON_OK
               ? baton__mirror_copy(sparse, stream, &self->squares,
                                    sizeof(double), true)
               : status;
}

double baton__device_squares(const baton_sparse_t *sparse)
{
    double sum;
    memcpy(&sum, sparse->device->squares.host, sizeof sum);
    return sum;
}

static baton_status_t square_gradient(void *arg, baton_call_t *call,
                                      baton_stream_t stream)
{
    const baton_sparse_t *sparse = arg;
    (void)call;
    return sparse->gradient != NULL
               ? baton__device_square(sparse, stream, sparse->gradient)
               : BATON_OK; /* a flush */
}

static baton_status_t clip(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    (void)call;
    if (sparse->gradient != NULL) {
        baton__sparse_clip(sparse, baton__device_squares(sparse));
    }
    return BATON_OK;
}

baton_node_t baton__sparse_device_add_accumulation(baton_sparse_t *sparse,
                                                   baton_schedule_t *schedule,
                                                   baton_node_t begin)
{
    baton_node_t last = baton_add_device_call(schedule, accumulate, sparse);
    if (sparse->options.clip == 0) {
        baton_before(schedule, begin, last);
        return last;
    }
    baton_node_t square =
        baton_add_device_call(schedule, square_gradient, sparse);
    baton_node_t clipped =
        baton__sparse_add_call(sparse, schedule, clip, sparse);
    baton_before(schedule, begin, square);
    baton_before(schedule, square, clipped);
    baton_before(schedule, clipped, last);
    return last;
}

/* ---- lists ------------------------------------------------------------- */

static void remember(baton__sparse_device_t *self, baton__change_t *change)
{
    change->earlier = self->latest;
    self->latest = change;
}

/* GATHER and TAKE copy from `work`, or another dense vector; PUT and ADD write
   to it. */
static baton_status_t transfer(const baton__sparse_device_t *self,
                               baton_stream_t stream,
                               baton_device_direction_t direction,
                               const baton_device_entries_t *list,
                               const uint32_t *indices, char *dense)
{
    const baton_device_transfer_t of = {.direction = direction,
                                        .list = *list,
                                        .indices = indices,
                                        .dense = dense};
    return self->port->entries(self->device, stream, &of);
}

baton_status_t baton__sparse_device_take(baton_sparse_t *sparse,
                                         baton_stream_t stream,
                                         const baton__selecting_t *selecting,
                                         char *to, baton__change_t *change)
{
    baton__sparse_device_t *self = sparse->device;
    baton_device_selected_t *head = baton__selected_head(to);
    const baton_device_selection_t selection = {
        .method = !selecting->sampled       ? BATON_DEVICE_TOPK
                  : selecting->earlier != 0 ? BATON_DEVICE_REUSED
                                            : BATON_DEVICE_SAMPLED,
        .from = {.dtype = sparse->options.dtype,
                 .side = selecting->side,
                 .values =
                     self->work + selecting->first * sparse->element_bytes,
                 .count = selecting->count,
                 .first = (uint32_t)selecting->first},
        .k = selecting->k,
        .indices = self->indices,
        .selected = head,
        .scratch = self->scratch};
    sparse->counting.block_selections++;
    change->list = (baton_device_entries_t){
        .dtype = sparse->options.dtype,
        .data = head + 1,
        .capacity = baton__selected_most(selecting),
        .count = &head->count,
    };
    baton_status_t status =
        self->port->select(self->device, stream, &selection);
    if (status == BATON_OK) {
        status = transfer(self, stream, BATON_DEVICE_TAKE, &change->list,
                          self->indices, self->work);
    }
    remember(self, change);
    return status;
}

baton_status_t baton__sparse_device_add(baton_sparse_t *sparse,
                                        baton_stream_t stream, char *entries,
                                        size_t count, double factor,
                                        baton__change_t *change)
{
    baton__sparse_device_t *self = sparse->device;
    change->list = (baton_device_entries_t){
        .dtype = sparse->options.dtype, .data = entries, .capacity = count};
    remember(self, change);
    const baton_device_transfer_t of = {.direction = BATON_DEVICE_ADD,
                                        .list = change->list,
                                        .factor = factor,
                                        .dense = self->work};
    return self->port->entries(self->device, stream, &of);
}

/* What velocity was there goes where the residual's entries were. */
baton_status_t baton__sparse_device_mask(const baton_sparse_t *sparse,
                                         baton_stream_t stream,
                                         const uint32_t *indices,
                                         size_t capacity, const uint64_t *count)
{
    const baton__sparse_device_t *self = sparse->device;
    const baton_device_entries_t list = {.dtype = sparse->options.dtype,
                                         .data = self->kept,
                                         .capacity = capacity,
                                         .count = count};
    return self->velocity != NULL ? transfer(self, stream, BATON_DEVICE_TAKE,
                                             &list, indices, self->new_velocity)
                                  : BATON_OK;
}

/* Undoes all changes of `work`, the latest first. */
static baton_status_t undo(const baton_sparse_t *sparse, baton_stream_t stream)
{
    baton__sparse_device_t *self = sparse->device;
    baton_status_t status = BATON_OK;
    while (self->latest != NULL && status == BATON_OK) {
        status = transfer(self, stream, BATON_DEVICE_PUT, &self->latest->list,
                          NULL, self->work);
        self->latest = self->latest->earlier;
    }
    return status;
}

baton_status_t baton__sparse_device_keep(baton_sparse_t *sparse,
                                         baton_stream_t stream,
                                         const uint32_t *indices, size_t count)
{
    const baton__sparse_device_t *self = sparse->device;
    const baton_device_entries_t kept = {
        .dtype = sparse->options.dtype, .data = self->kept, .capacity = count};
    baton_status_t status =
        transfer(self, stream, BATON_DEVICE_GATHER, &kept, indices, self->work);
    if (status == BATON_OK) {
        status = undo(sparse, stream);
    }
    if (status == BATON_OK) {
        status =
            transfer(self, stream, BATON_DEVICE_PUT, &kept, NULL, self->work);
    }
    return status == BATON_OK
               ? baton__sparse_device_mask(sparse, stream, indices, count, NULL)
               : status;
}

/* ---- the dense schedule ------------------------------------------------ */

static baton_status_t begin_dense(void *arg, baton_call_t *call)
{
    (void)call;
    baton__sparse_begin(arg);
    return BATON_OK;
}

static baton_status_t clear_work(void *arg, baton_call_t *call,
                                 baton_stream_t stream)
{
    const baton_sparse_t *sparse = arg;
    (void)call;
    return baton__device_scale(sparse, stream, sparse->device->work, NULL, 0);
}

baton_node_t baton__sparse_device_add_dense(baton_sparse_t *sparse,
                                            baton_view_t target)
{
    baton__sparse_device_t *self = sparse->device;
    baton_schedule_t *s = sparse->dense;
    baton_node_t first = baton__sparse_add_call(sparse, s, begin_dense, sparse);
    baton_node_t accumulated =
        baton__sparse_device_add_accumulation(sparse, s, first);
    baton_node_t clear = baton_add_device_call(s, clear_work, sparse);
    self->dense_work = baton_buffer_bind(s, self->work, target.bytes);
    baton_buffer_set_memory(s, self->dense_work, BATON_MEMORY_DEVICE);
    baton_node_t copy = baton_add_copy(
        s, target, baton_view(self->dense_work, 0, target.bytes));
    baton_before(s, accumulated, copy);
    baton_before(s, copy, clear);
    return copy;
}
