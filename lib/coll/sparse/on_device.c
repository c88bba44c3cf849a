/* The state of a sparse all-reduce in device memory; see on_device.h. */
#include "coll/sparse/on_device.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Device or pinned memory, to be freed. */
typedef struct held {
    struct held *next;
    baton_memory_t kind;
    void *memory;
} held_t;

/* Vectors that are moved between steps. */
typedef enum move { READ, WRITE, SCALE, MEASURE } move_t;

struct baton__sparse_device {
    baton_engine_t *engine;
    const baton_device_port_t *port;
    void *device;
    held_t *held;

    char *residual, *work;         /* n elements each */
    char *velocity, *new_velocity; /* of momentum; or NULL */
    bool blank;        /* residual and velocity are zero, and not written yet */
    uint32_t *indices; /* of the selection made last; room for 2k + 1 */
    void *scratch;     /* of selections */
    char *kept;        /* what the residual has at the result's indices */
    /* A sum of squares, on the device and copied to the host. */
    double *squares_there, *squares;
    baton__change_t *latest;   /* of the changes of `work` in this step */
    baton_buffer_t dense_work; /* `work`, of the dense schedule */

    /* A schedule of this rank alone. */
    baton_group_t *alone;
    baton_schedule_t *moving;
    baton_buffer_t from_device, to_host, from_host, to_device;
    baton_length_t read, write, measured;
    move_t move;
    char *moved; /* in device memory */
    char *other; /* of the host; or scaled to, of the device */
    double factor;
};

/* ---- memory ------------------------------------------------------------ */

void *baton__sparse_device_room(const baton_sparse_t *sparse,
                                baton_memory_t kind, size_t bytes, bool *ok)
{
    baton__sparse_device_t *self = sparse->device;
    held_t *held = *ok ? baton__alloc(1, sizeof *held) : NULL;
    if (held != NULL &&
        baton_device_alloc(self->engine, kind, bytes > 0 ? bytes : 1,
                           &held->memory) == BATON_OK) {
        held->kind = kind;
        held->next = self->held;
        self->held = held;
        return held->memory;
    }
    baton__free(held);
    *ok = false;
    return NULL;
}

/* All elements of the gradient's type. */
static size_t vector_bytes(const baton_sparse_t *sparse)
{
    return sparse->options.count * sparse->element_bytes;
}

static bool allocate(baton_sparse_t *sparse)
{
    baton__sparse_device_t *self = sparse->device;
    const baton_sparse_options_t *o = &sparse->options;
    const baton_memory_t kind = BATON_MEMORY_DEVICE;
    size_t bytes = vector_bytes(sparse);
    size_t most = 2 * o->max_k < o->count ? 2 * o->max_k + 1 : o->count;
    size_t scratch =
        self->port->select_bytes(self->device, o->dtype, o->count, most);
    bool ok = true;
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
    self->squares_there = baton__sparse_device_room(
        sparse, kind, sizeof *self->squares_there, &ok);
    self->squares = baton__sparse_device_room(sparse, BATON_MEMORY_HOST,
                                              sizeof *self->squares, &ok);
    return ok;
}

/* ---- life -------------------------------------------------------------- */

baton_status_t baton__sparse_device_create(baton_sparse_t *sparse)
{
    const baton_sparse_options_t *o = &sparse->options;
    const baton_device_port_t *port = NULL;
    baton_engine_t *engine = baton_group_engine(sparse->group);
    void *device = NULL;
    baton_status_t status = baton_engine_device(engine, &port, &device);
    if (status != BATON_OK) {
        return status;
    }
    baton__sparse_device_t *self = baton__alloc(1, sizeof *self);
    if (self != NULL) {
        *self = (baton__sparse_device_t){
            .engine = engine, .port = port, .device = device, .blank = true};
        sparse->device = self;
    }
    return self != NULL && allocate(sparse)
               ? BATON_OK
               : baton__error(BATON_ERR_NO_MEMORY,
                              "sparse \"%s\": no device memory for %zu vectors "
                              "of %zu elements of %zu bytes",
                              sparse->name,
                              o->momentum > 0 ? (size_t)4 : (size_t)2, o->count,
                              sparse->element_bytes);
}

void baton__sparse_device_free(baton_sparse_t *sparse)
{
    baton__sparse_device_t *self = sparse->device;
    while (self != NULL && self->held != NULL) {
        held_t *held = self->held;
        self->held = held->next;
        baton_device_free(self->engine, held->kind, held->memory);
        baton__free(held);
    }
    baton__free(self);
}

static void exchange(char **left, char **right)
{
    char *other = *left;
    *left = *right;
    *right = other;
}

void baton__sparse_device_complete(baton_sparse_t *sparse)
{
    baton__sparse_device_t *self = sparse->device;
    exchange(&self->residual, &self->work);
    if (sparse->gradient != NULL) {
        exchange(&self->velocity, &self->new_velocity);
    }
    self->blank = false;
}

/* ---- copies in a step -------------------------------------------------- */

static baton__mirror_t add_mirror(baton_sparse_t *sparse, void *host,
                                  size_t bytes, bool to_host,
                                  baton_node_t before, bool *ok)
{
    baton_schedule_t *s = sparse->schedule;
    baton__mirror_t mirror = {.host = host};
    if (host == NULL) {
        mirror.host =
            baton__sparse_device_room(sparse, BATON_MEMORY_HOST, bytes, ok);
    }
    mirror.device =
        baton__sparse_device_room(sparse, BATON_MEMORY_DEVICE, bytes, ok);
    baton_buffer_t here = baton_buffer_bind(s, mirror.host, bytes);
    baton_buffer_t there = baton_buffer_bind(s, mirror.device, bytes);
    baton_buffer_set_memory(s, there, BATON_MEMORY_DEVICE);
    baton_view_t views[2] = {baton_view(here, 0, bytes),
                             baton_view(there, 0, bytes)};
    mirror.copy = baton_add_copy(s, views[!to_host], views[to_host]);
    mirror.length = baton_add_length(s);
    baton_set_length(s, mirror.copy, mirror.length);
    baton_before(s, before, mirror.copy);
    return mirror;
}

baton__mirror_t baton__mirror_to_host(baton_sparse_t *sparse, size_t bytes,
                                      baton_node_t before, bool *ok)
{
    return add_mirror(sparse, NULL, bytes, true, before, ok);
}

baton__mirror_t baton__mirror_to_device(baton_sparse_t *sparse, void *host,
                                        size_t bytes, baton_node_t before,
                                        bool *ok)
{
    return add_mirror(sparse, host, bytes, false, before, ok);
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

static baton_status_t scale_vector(const baton_sparse_t *sparse,
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
            status = scale_vector(sparse, stream, velocity, velocity, momentum);
        }
        *adds_out = self->work;
        return status == BATON_OK
                   ? add_vectors(sparse, stream, self->work, velocity, gradient)
                   : status;
    }
    status = scale_vector(sparse, stream, velocity, self->velocity, momentum);
    *adds_out = velocity;
    return status == BATON_OK
               ? add_vectors(sparse, stream, velocity, velocity, gradient)
               : status;
}

static baton_status_t write_zeros(const baton_sparse_t *sparse,
                                  baton_stream_t stream)
{
    const baton__sparse_device_t *self = sparse->device;
    size_t bytes = vector_bytes(sparse);
    baton_status_t status =
        self->port->clear(self->device, stream, self->residual, bytes);
    return status == BATON_OK && self->velocity != NULL
               ? self->port->clear(self->device, stream, self->velocity, bytes)
               : status;
}

static baton_status_t accumulate_gradient(const baton_sparse_t *sparse,
                                          baton_stream_t stream)
{
    const baton__sparse_device_t *self = sparse->device;
    const void *adds = sparse->gradient;
    baton_status_t status = BATON_OK;
    if (sparse->clip_factor != 1) {
        status =
            scale_vector(sparse, stream, self->work, adds, sparse->clip_factor);
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

static baton_status_t square(const baton_sparse_t *sparse,
                             baton_stream_t stream, const void *vector)
{
    const baton__sparse_device_t *self = sparse->device;
    return self->port->square_sum(self->device, stream, sparse->options.dtype,
                                  vector, sparse->options.count,
                                  self->squares_there, self->scratch);
}

static baton_status_t square_gradient(void *arg, baton_call_t *call,
                                      baton_stream_t stream)
{
    const baton_sparse_t *sparse = arg;
    (void)call;
    return sparse->gradient != NULL ? square(sparse, stream, sparse->gradient)
                                    : BATON_OK; /* a flush */
}

static baton_status_t clip(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    (void)call;
    if (sparse->gradient != NULL) {
        baton__sparse_clip(sparse, *sparse->device->squares);
    }
    return BATON_OK;
}

/* A copy of the sum of squares to the host. */
static baton_node_t add_copy_of_squares(const baton_sparse_t *sparse,
                                        baton_schedule_t *s)
{
    const baton__sparse_device_t *self = sparse->device;
    size_t bytes = sizeof *self->squares;
    baton_buffer_t here = baton_buffer_bind(s, self->squares, bytes);
    baton_buffer_t there = baton_buffer_bind(s, self->squares_there, bytes);
    baton_buffer_set_memory(s, there, BATON_MEMORY_DEVICE);
    return baton_add_copy(s, baton_view(here, 0, bytes),
                          baton_view(there, 0, bytes));
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
    baton_node_t copy = add_copy_of_squares(sparse, schedule);
    baton_node_t clipped =
        baton__sparse_add_call(sparse, schedule, clip, sparse);
    baton_before(schedule, begin, square);
    baton_before(schedule, square, copy);
    baton_before(schedule, copy, clipped);
    baton_before(schedule, clipped, last);
    return last;
}

/* ---- lists ------------------------------------------------------------- */

static void remember(baton__sparse_device_t *self, baton__change_t *change)
{
    change->earlier = self->latest;
    self->latest = change;
}

static baton_status_t select_indices(const baton__sparse_device_t *self,
                                     baton_stream_t stream,
                                     const baton_selection_t *from,
                                     const baton__selecting_t *selecting,
                                     baton_device_selected_t *head)
{
    return selecting->sampled
               ? self->port->select_sampled(self->device, stream, from,
                                            selecting->k,
                                            selecting->earlier != 0,
                                            self->indices, head, self->scratch)
               : self->port->select_topk(self->device, stream, from,
                                         selecting->k, self->indices, head,
                                         self->scratch);
}

baton_status_t baton__sparse_device_take(baton_sparse_t *sparse,
                                         baton_stream_t stream,
                                         const baton__selecting_t *selecting,
                                         char *to, baton__change_t *change)
{
    baton__sparse_device_t *self = sparse->device;
    baton_device_selected_t *head = baton__selected_head(to);
    const baton_selection_t from = {
        .dtype = sparse->options.dtype,
        .side = selecting->side,
        .values = self->work + selecting->first * sparse->element_bytes,
        .count = selecting->count,
        .first = (uint32_t)selecting->first,
    };
    sparse->counting.block_selections++;
    change->list = (baton_device_entries_t){
        .dtype = sparse->options.dtype,
        .data = head + 1,
        .capacity = baton__selected_most(selecting),
        .count = &head->count,
    };
    baton_status_t status =
        select_indices(self, stream, &from, selecting, head);
    if (status == BATON_OK) {
        status = self->port->gather(self->device, stream, &change->list,
                                    self->indices, self->work, true);
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
    return self->port->add(self->device, stream, &change->list, factor,
                           self->work);
}

baton_status_t baton__sparse_device_put(const baton_sparse_t *sparse,
                                        baton_stream_t stream, char *entries,
                                        size_t count)
{
    const baton__sparse_device_t *self = sparse->device;
    const baton_device_entries_t list = {
        .dtype = sparse->options.dtype, .data = entries, .capacity = count};
    return self->port->put(self->device, stream, &list, self->work);
}

/* Velocity becomes zero at indices; what it was there goes where the residual's
   entries were. */
static baton_status_t mask(const baton_sparse_t *sparse, baton_stream_t stream,
                           const uint32_t *indices, size_t capacity,
                           const uint64_t *count)
{
    const baton__sparse_device_t *self = sparse->device;
    const baton_device_entries_t list = {.dtype = sparse->options.dtype,
                                         .data = self->kept,
                                         .capacity = capacity,
                                         .count = count};
    return self->velocity != NULL
               ? self->port->gather(self->device, stream, &list, indices,
                                    self->new_velocity, true)
               : BATON_OK;
}

baton_status_t baton__sparse_device_mask(baton_sparse_t *sparse,
                                         baton_stream_t stream,
                                         const baton__change_t *selected)
{
    return mask(sparse, stream, sparse->device->indices,
                selected->list.capacity, selected->list.count);
}

/* Undoes all changes of `work`, the latest first. */
static baton_status_t undo(const baton_sparse_t *sparse, baton_stream_t stream)
{
    baton__sparse_device_t *self = sparse->device;
    baton_status_t status = BATON_OK;
    while (self->latest != NULL && status == BATON_OK) {
        status = self->port->put(self->device, stream, &self->latest->list,
                                 self->work);
        self->latest = self->latest->earlier;
    }
    return status;
}

baton_status_t baton__sparse_device_settle(baton_sparse_t *sparse,
                                           baton_stream_t stream,
                                           const uint32_t *indices,
                                           size_t count)
{
    const baton__sparse_device_t *self = sparse->device;
    const baton_device_port_t *port = self->port;
    const baton_device_entries_t kept = {
        .dtype = sparse->options.dtype, .data = self->kept, .capacity = count};
    baton_status_t status =
        port->gather(self->device, stream, &kept, indices, self->work, false);
    if (status == BATON_OK) {
        status = undo(sparse, stream);
    }
    if (status == BATON_OK) {
        status = port->put(self->device, stream, &kept, self->work);
    }
    return status == BATON_OK ? mask(sparse, stream, indices, count, NULL)
                              : status;
}

/* ---- a selection from the whole vector --------------------------------- */

static baton_status_t begin(void *arg, baton_call_t *call)
{
    baton__whole_selection_t *selection = arg;
    baton_sparse_t *sparse = selection->sparse;
    baton__selecting_t *selecting = &selection->selecting;
    baton_status_t status = baton__sparse_begin(sparse, call);
    *selecting =
        (baton__selecting_t){.count = sparse->options.count, .k = sparse->k};
    if (selection->plan != NULL) {
        selection->plan(sparse, selecting);
    }
    baton__selected_head(selection->selected.host)->threshold =
        selecting->earlier;
    size_t bytes =
        baton__selected_bytes(sparse, baton__selected_most(selecting));
    return status == BATON_OK
               ? baton__mirror_set(&selection->selected, call, bytes)
               : status;
}

/* An earlier threshold goes ahead of the selection, in the same stream: it is a
   copy of a few bytes. */
static baton_status_t select_whole(void *arg, baton_call_t *call,
                                   baton_stream_t stream)
{
    baton__whole_selection_t *selection = arg;
    baton_sparse_t *sparse = selection->sparse;
    const baton__sparse_device_t *self = sparse->device;
    const baton__mirror_t *selected = &selection->selected;
    baton_status_t status = BATON_OK;
    (void)call;
    if (selection->selecting.earlier != 0) {
        status =
            self->port->copy(self->device, stream, selected->device,
                             selected->host, sizeof(baton_device_selected_t));
    }
    if (status == BATON_OK) {
        status =
            baton__sparse_device_take(sparse, stream, &selection->selecting,
                                      selected->device, &selection->change);
    }
    return status == BATON_OK && selection->masks
               ? baton__sparse_device_mask(sparse, stream, &selection->change)
               : status;
}

baton_node_t
baton__sparse_device_add_selection(baton__whole_selection_t *selection,
                                   bool *ok)
{
    baton_sparse_t *sparse = selection->sparse;
    baton_schedule_t *s = sparse->schedule;
    baton_node_t first = baton__sparse_add_call(sparse, s, begin, selection);
    baton_node_t select = baton_add_device_call(s, select_whole, selection);
    baton_before(s, baton__sparse_device_add_accumulation(sparse, s, first),
                 select);
    selection->selected = baton__mirror_to_host(
        sparse, baton__selected_bytes(sparse, selection->room), select, ok);
    return selection->selected.copy;
}

/* ---- the dense schedule ------------------------------------------------ */

static baton_status_t clear_work(void *arg, baton_call_t *call,
                                 baton_stream_t stream)
{
    const baton_sparse_t *sparse = arg;
    const baton__sparse_device_t *self = sparse->device;
    (void)call;
    return self->port->clear(self->device, stream, self->work,
                             vector_bytes(sparse));
}

baton_node_t baton__sparse_device_add_dense(baton_sparse_t *sparse,
                                            baton_view_t target)
{
    baton__sparse_device_t *self = sparse->device;
    baton_schedule_t *s = sparse->dense;
    baton_node_t first =
        baton__sparse_add_call(sparse, s, baton__sparse_begin, sparse);
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

baton_status_t baton__sparse_device_bind_dense(const baton_sparse_t *sparse)
{
    const baton__sparse_device_t *self = sparse->device;
    return baton_buffer_rebind(sparse->dense, self->dense_work, self->work);
}

/* ---- between steps ----------------------------------------------------- */

/* Buffers that are not used by this move are bound to nothing: what they were
   bound to may be what it writes. */
static baton_status_t bind_moved(const baton__sparse_device_t *self)
{
    const struct {
        baton_buffer_t buffer;
        void *memory;
    } all[] = {
        {self->from_device, self->move == READ ? self->moved : NULL},
        {self->to_host, self->move == READ ? self->other : NULL},
        {self->from_host, self->move == WRITE ? self->other : NULL},
        {self->to_device, self->move == WRITE ? self->moved : NULL},
    };
    baton_status_t status = BATON_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 4 && status == BATON_OK; i++) {
            status = baton_buffer_rebind(self->moving, all[i].buffer,
                                         pass == 0 ? NULL : all[i].memory);
        }
    }
    return status;
}

static baton_status_t begin_move(void *arg, baton_call_t *call)
{
    const baton_sparse_t *sparse = arg;
    const baton__sparse_device_t *self = sparse->device;
    size_t bytes = vector_bytes(sparse);
    baton_status_t status =
        baton_call_set_length(call, self->read, self->move == READ ? bytes : 0);
    if (status == BATON_OK) {
        status = baton_call_set_length(call, self->write,
                                       self->move == WRITE ? bytes : 0);
    }
    if (status == BATON_OK) {
        status = baton_call_set_length(
            call, self->measured,
            self->move == MEASURE ? sizeof *self->squares : 0);
    }
    return status == BATON_OK ? bind_moved(self) : status;
}

static baton_status_t compute(void *arg, baton_call_t *call,
                              baton_stream_t stream)
{
    const baton_sparse_t *sparse = arg;
    const baton__sparse_device_t *self = sparse->device;
    (void)call;
    if (self->move == MEASURE) {
        return square(sparse, stream, self->moved);
    }
    return self->move == SCALE ? scale_vector(sparse, stream, self->other,
                                              self->moved, self->factor)
                               : BATON_OK;
}

/* A copy of a vector between memory that is bound later. */
static baton_node_t add_move(const baton_sparse_t *sparse, baton_buffer_t *from,
                             baton_buffer_t *to, baton_length_t *length)
{
    baton_schedule_t *s = sparse->device->moving;
    size_t bytes = vector_bytes(sparse);
    *from = baton_buffer_bind(s, NULL, bytes);
    *to = baton_buffer_bind(s, NULL, bytes);
    baton_node_t copy = baton_add_copy(s, baton_view(*to, 0, bytes),
                                       baton_view(*from, 0, bytes));
    *length = baton_add_length(s);
    baton_set_length(s, copy, *length);
    return copy;
}

/*     begin --+--> copy to the host
               +--> copy to the device
               +--> scale, or measure --> copy of the sum of squares

   Of these one is done, and lengths say that the others do nothing. */
static baton_status_t build_moving(baton_sparse_t *sparse)
{
    baton__sparse_device_t *self = sparse->device;
    baton_schedule_t *s = self->moving;
    baton_node_t first = baton_add_call(s, begin_move, sparse);
    baton_node_t computed = baton_add_device_call(s, compute, sparse);
    baton_node_t copy = add_copy_of_squares(sparse, s);
    self->measured = baton_add_length(s);
    baton_set_length(s, copy, self->measured);
    baton_before(s, first, computed);
    baton_before(s, computed, copy);
    baton_before(
        s, first,
        add_move(sparse, &self->from_device, &self->to_host, &self->read));
    baton_before(
        s, first,
        add_move(sparse, &self->from_host, &self->to_device, &self->write));
    baton_buffer_set_memory(s, self->from_device, BATON_MEMORY_DEVICE);
    baton_buffer_set_memory(s, self->to_device, BATON_MEMORY_DEVICE);
    return baton_schedule_commit(s);
}

/* Entries of a result, or of a selection. */
static bool allocate_kept(baton_sparse_t *sparse)
{
    size_t result = sparse->result_capacity, k = sparse->options.max_k;
    bool ok = true;
    sparse->device->kept = baton__sparse_device_room(
        sparse, BATON_MEMORY_DEVICE,
        (result > k ? result : k) * sparse->entry_bytes, &ok);
    return ok;
}

baton_status_t baton__sparse_device_build_moving(baton_sparse_t *sparse)
{
    baton__sparse_device_t *self = sparse->device;
    char name[256];
    if (self == NULL) {
        return BATON_OK;
    }
    if (!allocate_kept(sparse)) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "sparse \"%s\": no device memory for %zu entries",
                            sparse->name, sparse->result_capacity);
    }
    baton_status_t status = baton_group_create_self(self->engine, &self->alone);
    (void)snprintf(name, sizeof name, "vectors of %s", sparse->name);
    if (status == BATON_OK) {
        status = baton_schedule_create(self->alone, name, &self->moving);
    }
    return status == BATON_OK ? build_moving(sparse) : status;
}

baton_status_t baton__sparse_device_destroy_moving(baton_sparse_t *sparse)
{
    baton__sparse_device_t *self = sparse->device;
    if (self == NULL) {
        return BATON_OK;
    }
    baton_status_t status = baton_schedule_destroy(self->moving);
    if (status != BATON_ERR_STATE) {
        self->moving = NULL;
    }
    if (status == BATON_OK) {
        status = baton_group_destroy(self->alone);
        self->alone = NULL;
    }
    return status;
}

/* Does one move, and waits for it. */
static baton_status_t move(baton_sparse_t *sparse, move_t what, char *moved,
                           void *other)
{
    baton__sparse_device_t *self = sparse->device;
    self->move = what;
    self->moved = moved;
    self->other = other;
    baton_status_t status = baton_schedule_start(self->moving);
    if (status == BATON_OK) {
        status = baton_schedule_wait(self->moving, -1);
    }
    if (status == BATON_OK) {
        return BATON_OK;
    }
    char text[512];
    (void)snprintf(text, sizeof text, "%s", baton_error_message());
    /* No other rank is in the group, and the next move may work. */
    (void)!baton_group_recover(self->alone, -1);
    return baton__error(status, "\"%s\": a vector of the device: %s",
                        sparse->name, text);
}

baton_status_t baton__sparse_device_read(baton_sparse_t *sparse, bool velocity,
                                         void *to)
{
    const baton__sparse_device_t *self = sparse->device;
    if (self->blank) {
        memset(to, 0, vector_bytes(sparse));
        return BATON_OK;
    }
    return move(sparse, READ, velocity ? self->velocity : self->residual, to);
}

baton_status_t baton__sparse_device_write(baton_sparse_t *sparse,
                                          const void *residual,
                                          const void *velocity)
{
    baton__sparse_device_t *self = sparse->device;
    baton_status_t status =
        move(sparse, WRITE, self->work, (void *)(uintptr_t)residual);
    if (status == BATON_OK && velocity != NULL) {
        status = move(sparse, WRITE, self->new_velocity,
                      (void *)(uintptr_t)velocity);
    }
    if (status == BATON_OK) {
        exchange(&self->residual, &self->work);
        exchange(&self->velocity, &self->new_velocity);
        self->blank = false;
    }
    return status;
}

baton_status_t baton__sparse_device_scale(baton_sparse_t *sparse, double factor)
{
    baton__sparse_device_t *self = sparse->device;
    if (self->blank) {
        return BATON_OK;
    }
    self->factor = factor;
    baton_status_t status = move(sparse, SCALE, self->residual, self->work);
    if (status == BATON_OK) {
        exchange(&self->residual, &self->work);
    }
    return status;
}

baton_status_t baton__sparse_device_square_sum(baton_sparse_t *sparse,
                                               double *out)
{
    const baton__sparse_device_t *self = sparse->device;
    baton_status_t status =
        self->blank ? BATON_OK : move(sparse, MEASURE, self->residual, NULL);
    if (status == BATON_OK) {
        *out = self->blank ? 0 : *self->squares;
    }
    return status;
}
