/* Steps on an engine with a device; see ordered.h. */
#include "coll/sparse/ordered.h"

#include "coll/sparse/on_device.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"
#include "base/options.h"

#include <baton/device.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* More than can be in flight. */
enum { REQUESTS = 16 };

typedef struct request {
    const void *gradient; /* NULL: a flush */
    double factor;
    uint64_t gifts;  /* that had been started before */
    uint64_t behind; /* the other schedule's epoch that it comes after, or 0 */
} request_t;

/* One of the two schedules: the dense one, or the sparse one. */
typedef struct side {
    baton_sparse_t *sparse;
    bool dense;
    uint64_t started;             /* epochs, since the last recovery */
    request_t requests[REQUESTS]; /* epoch e's is at e % REQUESTS */
} side_t;

enum { INDICES, VALUES, COUNT, DENSE, PARTS };

typedef struct part {
    baton_buffer_t target;
    baton_length_t length;
} part_t;

/* A result to be given: of which step, and where to. */
typedef struct gift {
    side_t *side;
    uint64_t epoch;
    uint64_t generation;
    void *targets[PARTS];
} gift_t;

struct baton__sparse_ordered {
    baton_engine_t *engine;
    char *staged; /* n elements that the device copies at full speed, which
                     dense steps work in */
    side_t sides[2];
    uint64_t planned; /* steps completed, when all that were started are */

    pthread_mutex_t lock;
    /* Under the lock: the last step that has begun, if it is not completed. */
    bool owed;
    bool stale; /* it began before the last recovery */
    side_t *owed_side;
    uint64_t owed_epoch;
    uint64_t awaited_gifts; /* before the step that is ready */
    uint64_t generation;    /* recoveries */

    baton_group_t *alone;     /* this rank */
    baton_schedule_t *giving; /* written under the lock */
    bool closing;             /* it is being destroyed */
    part_t parts[PARTS];
    uint64_t *count;
    /* A dense target is written by the device, from entries. */
    const baton_device_port_t *port;
    void *port_device;
    char *entries, *device_entries;
    baton_length_t entries_length;
    char *written; /* the target of the gift being given, or NULL */
    size_t written_count;
    uint64_t gifts; /* started */
    uint64_t told;  /* the last one whose failure has been told */
    gift_t given[REQUESTS];
};

static side_t *side_of(const baton_sparse_t *sparse, bool dense)
{
    return &sparse->ordered->sides[dense];
}

static baton_schedule_t *schedule_of(const side_t *side)
{
    return side->dense ? side->sparse->dense : side->sparse->schedule;
}

/* ---- on the driver ----------------------------------------------------- */

/* Completes the step that is owed, if it has ended well. The lock is held. */
static void complete_owed(baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    if (self->owed && !self->stale &&
        baton_schedule_epoch(schedule_of(self->owed_side)) >=
            self->owed_epoch) {
        self->owed = false;
        baton__sparse_complete_step(sparse, self->owed_side->dense);
    }
}

/* Whether the results that were to be given first, so many, need not be waited
   for any more. */
static bool are_given(baton__sparse_ordered_t *self, uint64_t gifts)
{
    (void)pthread_mutex_lock(&self->lock);
    bool given =
        self->giving == NULL ||
        (!self->closing && baton_schedule_epoch(self->giving) >= gifts);
    (void)pthread_mutex_unlock(&self->lock);
    return given;
}

static baton_status_t ready(void *arg, baton_call_t *call, baton_async_t async)
{
    const side_t *side = arg;
    baton__sparse_ordered_t *self = side->sparse->ordered;
    (void)async; /* only poll completes it */
    self->awaited_gifts =
        side->requests[baton_call_epoch(call) % REQUESTS].gifts;
    return are_given(self, self->awaited_gifts) ? BATON_DONE : BATON_OK;
}

static baton_status_t poll_ready(void *arg)
{
    const side_t *side = arg;
    baton__sparse_ordered_t *self = side->sparse->ordered;
    return are_given(self, self->awaited_gifts) ? BATON_OK : BATON_AGAIN;
}

static const baton_async_ops_t ready_ops = {.start = ready, .poll = poll_ready};

/* The dense schedule works on vectors that change places. */
static baton_status_t bind_dense(const baton_sparse_t *sparse)
{
    baton_status_t status =
        baton_buffer_rebind(sparse->dense, sparse->dense_buffer, sparse->work);
    return status == BATON_OK ? baton__sparse_device_bind_dense(sparse)
                              : status;
}

/* The stream has waited for a step of the other schedule: it has failed if it
   has not retired, and nobody may have been told. */
static baton_status_t check_before(const side_t *side, baton_call_t *call,
                                   const request_t *request)
{
    const baton_schedule_t *before =
        schedule_of(side_of(side->sparse, !side->dense));
    baton_failure_t failure;
    /* It may be gone where there was none. */
    if (request->behind == 0 ||
        baton_schedule_epoch(before) >= request->behind) {
        return BATON_OK;
    }
    baton_status_t status = baton_schedule_failure(before, &failure);
    return status == BATON_OK
               ? baton_call_fail(call, failure.status,
                                 "the step before it has failed: %s",
                                 failure.message)
               : status;
}

static baton_status_t load(void *arg, baton_call_t *call)
{
    side_t *side = arg;
    baton_sparse_t *sparse = side->sparse;
    baton__sparse_ordered_t *self = sparse->ordered;
    uint64_t epoch = baton_call_epoch(call);
    const request_t *request = &side->requests[epoch % REQUESTS];
    baton_status_t status = check_before(side, call, request);
    if (status != BATON_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&self->lock);
    complete_owed(sparse);
    self->owed = true;
    self->stale = false;
    self->owed_side = side;
    self->owed_epoch = epoch;
    sparse->recovered = false;
    sparse->given_factor = request->factor;
    sparse->gradient = request->gradient;
    (void)pthread_mutex_unlock(&self->lock);
    return side->dense ? bind_dense(sparse) : BATON_OK;
}

/* The result's entries, for the device to write out. */
static void pack_entries(const baton_sparse_t *sparse,
                         const baton_sparse_result_t *last, char *to)
{
    const size_t size = sparse->element_bytes;
    const char *values = last->values;
    for (size_t i = 0; i < last->count; i++, to += sparse->entry_bytes) {
        memcpy(to, &last->indices[i], sizeof(uint32_t));
        memcpy(to + sizeof(uint32_t), values + i * size, size);
    }
}

/* How many bytes of each part are given; fills what they are copied from. The
   lock is held. */
static void measure_gift(const baton_sparse_t *sparse, const gift_t *gift,
                         const baton_sparse_result_t *last, size_t bytes[PARTS])
{
    baton__sparse_ordered_t *self = sparse->ordered;
    size_t entries = last->indices != NULL ? last->count : 0;
    const size_t most[PARTS] = {
        [INDICES] = entries * sizeof(uint32_t),
        [VALUES] = entries * sparse->element_bytes,
        [COUNT] = sizeof(uint64_t),
        [DENSE] = sparse->options.count * sparse->element_bytes,
    };
    *self->count = last->count;
    for (int i = 0; i < PARTS; i++) {
        bytes[i] = gift->targets[i] != NULL ? most[i] : 0;
    }
    self->written = NULL;
    if (bytes[DENSE] == 0 || last->values == self->staged) {
        return;
    }
    pack_entries(sparse, last, self->entries);
    self->written = gift->targets[DENSE];
    self->written_count = last->count;
    bytes[DENSE] = 0;
}

/* Writes entries that were copied to the device out as a dense vector. */
static baton_status_t write_out(void *arg, baton_call_t *call,
                                baton_stream_t stream)
{
    const baton_sparse_t *sparse = arg;
    const baton__sparse_ordered_t *self = sparse->ordered;
    const baton_device_entries_t list = {.dtype = sparse->options.dtype,
                                         .data = self->device_entries,
                                         .capacity = self->written_count};
    (void)call;
    if (self->written == NULL) {
        return BATON_OK;
    }
    baton_status_t status =
        self->port->clear(self->port_device, stream, self->written,
                          sparse->options.count * sparse->element_bytes);
    return status == BATON_OK ? self->port->put(self->port_device, stream,
                                                &list, self->written)
                              : status;
}

/* First to nothing: a part may be where another one was in the gift before. */
static baton_status_t bind_targets(const baton__sparse_ordered_t *self,
                                   void *const targets[PARTS])
{
    baton_status_t status = BATON_OK;
    for (int i = 0; i < 2 * PARTS && status == BATON_OK; i++) {
        status =
            baton_buffer_rebind(self->giving, self->parts[i % PARTS].target,
                                i < PARTS ? NULL : targets[i % PARTS]);
    }
    return status;
}

static baton_status_t give(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    baton__sparse_ordered_t *self = sparse->ordered;
    const gift_t *gift = &self->given[baton_call_epoch(call) % REQUESTS];
    size_t bytes[PARTS] = {0};
    baton_status_t status = BATON_OK;
    (void)pthread_mutex_lock(&self->lock);
    self->written = NULL;
    if (gift->generation == self->generation &&
        baton_schedule_epoch(schedule_of(gift->side)) >= gift->epoch) {
        complete_owed(sparse);
        measure_gift(sparse, gift, &sparse->last, bytes);
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (status == BATON_OK) {
        status = baton_call_set_length(
            call, self->entries_length,
            self->written != NULL ? self->written_count * sparse->entry_bytes
                                  : 0);
    }
    for (int i = 0; i < PARTS && status == BATON_OK; i++) {
        status = baton_call_set_length(call, self->parts[i].length, bytes[i]);
    }
    return status == BATON_OK ? bind_targets(self, gift->targets) : status;
}

/* ---- building ---------------------------------------------------------- */

baton__loaded_t baton__sparse_load_begin(baton_sparse_t *sparse, bool dense)
{
    baton__loaded_t loaded = {{0}, {0}, {0}};
    if (sparse->ordered == NULL) {
        return loaded;
    }
    side_t *side = side_of(sparse, dense);
    baton_schedule_t *s = schedule_of(side);
    loaded.load = baton_add_call(s, load, side);
    loaded.end = baton_add_nop(s);
    baton_before(s, baton_add_async(s, &ready_ops, side), loaded.load);
    loaded.inside = baton_enclose_begin(s);
    return loaded;
}

void baton__sparse_load_end(baton_sparse_t *sparse, bool dense,
                            const baton__loaded_t *loaded)
{
    if (sparse->ordered != NULL) {
        baton_enclose_end(dense ? sparse->dense : sparse->schedule,
                          loaded->inside, loaded->load, loaded->end);
    }
}

static void add_part(const baton_sparse_t *sparse, int which,
                     const void *source, size_t bytes)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    baton_schedule_t *s = self->giving;
    part_t *part = &self->parts[which];
    baton_buffer_t from = baton_buffer_bind_input(s, source, bytes);
    part->target = baton_buffer_bind(s, NULL, bytes);
    part->length = baton_add_length(s);
    baton_buffer_set_memory(s, part->target, BATON_MEMORY_DEVICE);
    baton_node_t copy = baton_add_copy(s, baton_view(part->target, 0, bytes),
                                       baton_view(from, 0, bytes));
    baton_set_length(s, copy, part->length);
}

/* What writes a dense target out. */
static bool add_writing(baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    baton_schedule_t *s = self->giving;
    size_t bytes = sparse->result_capacity * sparse->entry_bytes;
    void *here = NULL, *there = NULL;
    bool ok = true;
    if (bytes > 0) { /* else all steps are dense */
        here = baton__sparse_device_room(sparse, BATON_MEMORY_HOST, bytes, &ok);
        there =
            baton__sparse_device_room(sparse, BATON_MEMORY_DEVICE, bytes, &ok);
    }
    self->entries = here;
    self->device_entries = there;
    baton_buffer_t from = baton_buffer_bind_input(s, here, bytes);
    baton_buffer_t to = baton_buffer_bind(s, there, bytes);
    baton_buffer_set_memory(s, to, BATON_MEMORY_DEVICE);
    baton_node_t copy =
        baton_add_copy(s, baton_view(to, 0, bytes), baton_view(from, 0, bytes));
    self->entries_length = baton_add_length(s);
    baton_set_length(s, copy, self->entries_length);
    baton_node_t write = baton_add_device_call(s, write_out, sparse);
    baton_before(s, copy, write);
    return ok;
}

baton_status_t baton__sparse_ordered_build_giving(baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    char name[256];
    if (self == NULL) {
        return BATON_OK;
    }
    void *count = NULL;
    baton_status_t status = baton_device_alloc(self->engine, BATON_MEMORY_HOST,
                                               sizeof *self->count, &count);
    self->count = count;
    if (status == BATON_OK) {
        status = baton_group_create_self(self->engine, &self->alone);
    }
    (void)snprintf(name, sizeof name, "result of %s", sparse->name);
    if (status == BATON_OK) {
        status = baton_schedule_create(self->alone, name, &self->giving);
    }
    if (status != BATON_OK) {
        return status;
    }
    size_t size = sparse->element_bytes, most = sparse->result_capacity;
    baton_schedule_t *s = self->giving;
    baton_node_t call = baton_add_call(s, give, sparse);
    baton_node_t end = baton_add_nop(s);
    baton_enclosure_t inside = baton_enclose_begin(s);
    add_part(sparse, INDICES, sparse->result_indices, most * sizeof(uint32_t));
    add_part(sparse, VALUES, sparse->result_values, most * size);
    add_part(sparse, COUNT, self->count, sizeof *self->count);
    add_part(sparse, DENSE, self->staged, sparse->options.count * size);
    bool ok = add_writing(sparse);
    baton_enclose_end(s, inside, call, end);
    return ok ? baton_schedule_commit(self->giving)
              : baton__error(BATON_ERR_NO_MEMORY,
                             "sparse \"%s\": no device memory for %zu entries",
                             sparse->name, most);
}

/* ---- life -------------------------------------------------------------- */

/* NULL: gradients may be in the device's memory. */
static const char *refusal(const baton_sparse_t *sparse,
                           const baton__sparse_ordered_t *self,
                           baton_status_t attached)
{
    const baton_sparse_options_t *o = &sparse->options;
    if (o->partial) {
        return "allowed with options.partial: BATON_MEMORY_HOST";
    }
    if (!baton__sparse_is_for_devices(o->algorithm)) {
        return "allowed with algorithms auto, spardl, topka, redsync and dense";
    }
    if (!sparse->payload) {
        return "a cost-only group has no vectors there";
    }
    if (attached != BATON_OK) {
        return "the engine has no device (baton_engine_attach_device)";
    }
    if (self->port->select_topk == NULL) {
        return "the device cannot select (device.h)";
    }
    return self->port->reduces(self->port_device, BATON_SUM, o->dtype)
               ? NULL
               : "the device cannot add elements of options.dtype";
}

baton_status_t baton__sparse_ordered_create(baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for sparse \"%s\"",
                            sparse->name);
    }
    sparse->ordered = self;
    self->engine = baton_group_engine(sparse->group);
    (void)pthread_mutex_init(&self->lock, NULL);
    for (int i = 0; i < 2; i++) {
        self->sides[i].sparse = sparse;
        self->sides[i].dense = i != 0;
    }
    const char *why = refusal(
        sparse, self,
        baton_engine_device(self->engine, &self->port, &self->port_device));
    if (why != NULL) {
        return baton__error(
            BATON_ERR_UNSUPPORTED,
            "sparse \"%s\": memory is BATON_MEMORY_DEVICE, algorithm is %s: %s",
            sparse->name,
            baton_sparse_algorithm_name(sparse->options.algorithm), why);
    }
    void *staged = NULL;
    baton_status_t status = baton_device_alloc(
        self->engine, BATON_MEMORY_HOST,
        sparse->options.count * sparse->element_bytes, &staged);
    self->staged = staged;
    return status;
}

char *baton__sparse_staged(const baton_sparse_t *sparse)
{
    return sparse->ordered->staged;
}

void *baton__sparse_result_memory(const baton_sparse_t *sparse, size_t count,
                                  size_t bytes, bool *ok)
{
    const baton__sparse_ordered_t *self = sparse->ordered;
    if (self == NULL || count == 0) {
        return baton__sparse_room(sparse, count, bytes, ok);
    }
    void *memory = NULL;
    *ok = *ok && baton_device_alloc(self->engine, BATON_MEMORY_HOST,
                                    count * bytes, &memory) == BATON_OK;
    return memory;
}

void baton__sparse_result_free(const baton_sparse_t *sparse, void *memory)
{
    const baton__sparse_ordered_t *self = sparse->ordered;
    if (self == NULL || sparse->result_capacity == 0) {
        baton__free(memory);
    } else {
        baton_device_free(self->engine, BATON_MEMORY_HOST, memory);
    }
}

/* Steps in flight wait for gifts, and gifts for steps: so the last of them are
   waited for before anything is taken away. */
static void await_gifts(const baton__sparse_ordered_t *self)
{
    int64_t patience_ms = baton__config_number(BATON__CONFIG_DESTROY_MS);
    char before[BATON__MESSAGE_BYTES];
    (void)snprintf(before, sizeof before, "%s", baton_error_message());
    if (self->gifts > 0 &&
        baton_schedule_wait(self->giving, (int)patience_ms) ==
            BATON_ERR_TIMEOUT) {
        (void)!baton_schedule_cancel(self->giving);
    }
    (void)!baton__error_forward(BATON_OK, before);
}

baton_status_t baton__sparse_ordered_destroy_giving(baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    if (self == NULL) {
        return BATON_OK;
    }
    await_gifts(self);
    (void)pthread_mutex_lock(&self->lock);
    self->closing = true;
    (void)pthread_mutex_unlock(&self->lock);
    baton_status_t status = baton_schedule_destroy(self->giving);
    (void)pthread_mutex_lock(&self->lock);
    self->closing = false;
    if (status != BATON_ERR_STATE) {
        self->giving = NULL;
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (status == BATON_OK) {
        status = baton_group_destroy(self->alone);
        self->alone = NULL;
    }
    return status;
}

void baton__sparse_ordered_free(baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    if (self == NULL) {
        return;
    }
    baton_device_free(self->engine, BATON_MEMORY_HOST, self->staged);
    baton_device_free(self->engine, BATON_MEMORY_HOST, self->count);
    (void)pthread_mutex_destroy(&self->lock);
    baton__free(self);
}

/* ---- the application --------------------------------------------------- */

/* Of the last one, or of one before it that nobody has been told of. */
baton_status_t baton__sparse_ordered_outcome(const baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    baton_failure_t failure;
    bool done = false;
    if (self == NULL || self->gifts == 0) {
        return BATON_OK;
    }
    baton_status_t status = baton_schedule_test(self->giving, &done);
    if (baton_schedule_failure(self->giving, &failure) == BATON_OK &&
        failure.epoch > self->told) {
        self->told = failure.epoch;
        status = baton__error(failure.status, "%s", failure.message);
    }
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status, "\"%s\": a result was not copied: %s",
                              sparse->name, baton_error_message());
}

uint64_t baton__sparse_ordered_steps(baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    if (sparse->running == NULL) {
        self->planned = sparse->steps;
    }
    return self->planned;
}

static baton_status_t check_gradient(const baton_sparse_t *sparse,
                                     const void *gradient)
{
    const baton__sparse_ordered_t *self = sparse->ordered;
    if (gradient == NULL) { /* a flush */
        return BATON_OK;
    }
    baton_status_t status = baton_device_check(
        self->engine, gradient, sparse->options.count * sparse->element_bytes,
        BATON_MEMORY_DEVICE);
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status,
                              "start \"%s\": the gradient must be %zu elements "
                              "of device memory: %s",
                              sparse->name, sparse->options.count,
                              baton_error_message());
}

baton_status_t baton__sparse_ordered_start(baton_sparse_t *sparse, bool dense,
                                           const void *gradient, double factor,
                                           const baton_stream_t *on)
{
    side_t *side = side_of(sparse, dense);
    baton_schedule_t *schedule = schedule_of(side);
    uint64_t epoch = side->started + 1;
    bool follows = sparse->running != NULL && sparse->running != schedule;
    baton_status_t status = check_gradient(sparse, gradient);
    if (status == BATON_OK && follows && on != NULL) {
        /* It ends on the host: so it has retired when the stream goes on. */
        status = baton_schedule_wait_on(sparse->running, *on);
    }
    if (status != BATON_OK) {
        return status;
    }
    side->requests[epoch % REQUESTS] = (request_t){
        .gradient = gradient,
        .factor = factor,
        .gifts = sparse->ordered->gifts,
        .behind = follows ? side_of(sparse, !dense)->started : 0,
    };
    status = on != NULL ? baton_schedule_start_on(schedule, *on)
                        : baton_schedule_start(schedule);
    if (status == BATON_OK) {
        side->started = epoch;
        sparse->ordered->planned++;
    }
    return status;
}

void baton__sparse_ordered_complete(baton_sparse_t *sparse, bool dense,
                                    baton_status_t status)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    (void)pthread_mutex_lock(&self->lock);
    if (status != BATON_OK) {
        complete_owed(sparse);    /* an earlier one, if any */
        self->told = self->gifts; /* those that failed with it */
    } else if (self->owed) {
        self->owed = false;
        baton__sparse_complete_step(sparse, dense);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

void baton__sparse_ordered_recover_begin(baton_sparse_t *sparse, bool dense)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    if (self == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&self->lock);
    self->stale = true;
    side_of(sparse, dense)->started = 0;
    self->generation++;
}

void baton__sparse_ordered_recover_end(baton_sparse_t *sparse)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    if (self != NULL) {
        self->planned = sparse->steps;
        (void)pthread_mutex_unlock(&self->lock);
    }
}

static baton_status_t check_stream(const baton_sparse_t *sparse,
                                   const char *doing)
{
    baton_status_t status = baton__sparse_check_connected(sparse, doing);
    if (status != BATON_OK) {
        return status;
    }
    return sparse->ordered != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_UNSUPPORTED,
                              "%s \"%s\" on a stream: options.memory is "
                              "BATON_MEMORY_HOST, must be BATON_MEMORY_DEVICE",
                              doing, sparse->name);
}

baton_status_t baton_sparse_start_on(baton_sparse_t *sparse,
                                     baton_stream_t stream,
                                     const void *gradient)
{
    baton_status_t status = check_stream(sparse, "start");
    if (status != BATON_OK) {
        return status;
    }
    if (gradient == NULL) {
        return baton__error(BATON_ERR_INVALID, "start \"%s\": gradient is NULL",
                            sparse->name);
    }
    return baton__sparse_start_step(sparse, gradient, 1, &stream);
}

static baton_status_t read_target(const baton_sparse_t *sparse,
                                  const baton_sparse_target_t *given,
                                  gift_t *out)
{
    const baton__sparse_ordered_t *self = sparse->ordered;
    baton_sparse_target_t target;
    baton_status_t status = baton__options_read(
        &target, sizeof target, given, "sparse target", "BATON_SPARSE_TARGET");
    if (status != BATON_OK) {
        return status;
    }
    const struct {
        void *memory;
        const char *name;
    } all[PARTS] = {
        [INDICES] = {target.indices, "indices"},
        [VALUES] = {target.values, "values"},
        [COUNT] = {target.count, "count"},
        [DENSE] = {target.dense, "dense"},
    };
    for (int i = 0; i < PARTS; i++) {
        size_t bytes = baton_buffer_bytes(self->giving, self->parts[i].target);
        out->targets[i] = bytes > 0 ? all[i].memory : NULL;
        if (out->targets[i] == NULL) {
            continue;
        }
        status = baton_device_check(self->engine, all[i].memory, bytes,
                                    BATON_MEMORY_DEVICE);
        if (status != BATON_OK) {
            return baton__error(status,
                                "wait for \"%s\" on a stream: target.%s must "
                                "be %zu bytes of device memory: %s",
                                sparse->name, all[i].name, bytes,
                                baton_error_message());
        }
    }
    return BATON_OK;
}

/* Has the stream start the copies, behind the step, and wait for them. */
static baton_status_t give_on(const baton_sparse_t *sparse, gift_t *gift,
                              baton_stream_t stream)
{
    baton__sparse_ordered_t *self = sparse->ordered;
    gift->generation = self->generation;
    self->given[(self->gifts + 1) % REQUESTS] = *gift;
    baton_status_t status = baton_schedule_start_on(self->giving, stream);
    if (status == BATON_OK) {
        self->gifts++;
        status = baton_schedule_wait_on(self->giving, stream);
    }
    return status;
}

baton_status_t baton_sparse_wait_on(baton_sparse_t *sparse,
                                    baton_stream_t stream,
                                    const baton_sparse_target_t *target)
{
    gift_t gift = {0};
    baton_status_t status = check_stream(sparse, "wait for");
    if (status == BATON_OK && target != NULL) {
        status = read_target(sparse, target, &gift);
    }
    if (status != BATON_OK) {
        return status;
    }
    if (sparse->latest == NULL) {
        return baton__error(BATON_ERR_STATE,
                            "wait for \"%s\": no step was started",
                            sparse->name);
    }
    status = baton_schedule_wait_on(sparse->latest, stream);
    if (status == BATON_OK && target != NULL) {
        gift.side = side_of(sparse, sparse->latest == sparse->dense);
        /* UINT64_MAX: the group was recovered before anybody asked for it. */
        gift.epoch = gift.side->started == 0 && !sparse->has_result
                         ? UINT64_MAX
                         : gift.side->started;
        status = give_on(sparse, &gift, stream);
    }
    return status;
}

size_t baton_sparse_most_entries(const baton_sparse_t *sparse)
{
    return sparse != NULL ? sparse->result_capacity : 0;
}
