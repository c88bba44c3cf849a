/* The device backend: steps of gradients in device memory. They may begin and
   end in the order of the user's streams, with several in flight. So not the
   application, but the engine's driver (the thread that makes progress) sets a
   step's gradient and completes the step:

       ready: async --> load: call --> the algorithm's nodes

   `ready` waits until the requested copies of earlier steps' results have been
   made, since the step overwrites these results. `load` completes the previous
   step, if that step has ended without an error and no wait of the application
   has completed it.

   Results are copied by requests of the stream (kit/stream_requests.h), after
   the step: a call finds out what to copy, and a device call copies it. Of a
   sparse result it copies the entries, which the device then writes to a
   vector. Between steps, vectors are copied by requests as well. device_work.h
   describes what a step does on the device. */
#include "coll/sparse/backends/backends.h"
#include "coll/sparse/core/device_work.h"

#include "base/config.h"
#include "base/error.h"
#include "coll/kit/check.h"
#include "coll/kit/stream_requests.h"

#include <baton/inproc.h>
#include <pthread.h>
#include <stdio.h>

/* The input of a step. */
typedef struct feed {
    const void *gradient; /* NULL: the step is a flush */
    /* The number of requests to copy results that were made before this step
       was started. The step waits for these copies, since it overwrites the
       results. */
    uint64_t results;
    /* The epoch of the previous step, if that step belonged to the other
       schedule, and was still running when this step was started. Otherwise
       0. */
    uint64_t other;
} feed_t;

/* One of the two schedules (dense or sparse), with the inputs of its steps. */
typedef struct side {
    baton_sparse_t *sparse;
    bool dense;
    /* Number of epochs started since the last recovery. */
    uint64_t started;
    /* The input of epoch e is at index e % BATON__REQUESTS. */
    feed_t feeds[BATON__REQUESTS];
} side_t;

/* A request to copy the result of a step. */
typedef struct result_request {
    const side_t *side;
    uint64_t epoch;
    void *target; /* device memory of n elements, for the result */
} result_request_t;

/* The form in which a result is copied: as a whole vector, or as entries.
   NOTHING: the step has failed, so it has no result. */
typedef enum result_form { NOTHING, WHOLE, ENTRIES } result_form_t;

/* A request to copy a vector from or to device memory, between steps. */
typedef struct vector_request {
    char *target;
    const char *source; /* NULL: the target is filled with zeros */
} vector_request_t;

typedef struct backend {
    /* This field is first, since sparse->device points to it. */
    baton__sparse_device_t device;
    /* The buffer of the dense schedule that is bound to device.work. */
    baton_buffer_t dense_work;
    side_t sides[2];

    pthread_mutex_t lock;
    /* The schedule of the step that began last, and the step's epoch there.
       `begun` is NULL after complete_step() was called for that step. `lock`
       guards both fields. */
    const side_t *begun;
    uint64_t begun_epoch;
    /* The running step overwrites results, so its node `ready` waits until this
       many requests of `results` have ended. */
    uint64_t awaited_results;

    baton_group_t *self; /* a group of this rank alone */
    /* Requests to copy results. `lock` guards results.schedule. */
    baton__requests_t results;
    bool closing;       /* `results` is being destroyed */
    result_form_t form; /* the form of the result that is being copied */
    /* The entries of the result, from which the device writes the target. */
    baton__mirror_t entries;
    size_t entry_count;
    /* The last epoch of `results` whose failure must not be reported again:
       check_result has returned that failure, or the caller has got the error
       of the step itself. */
    uint64_t reported;

    baton__requests_t vectors;
} backend_t;

static backend_t *sparse_device_backend_of(const baton_sparse_t *sparse)
{
    return (backend_t *)(void *)sparse->device;
}

static baton_schedule_t *sparse_device_schedule_of(const side_t *side)
{
    return side->dense ? side->sparse->dense : side->sparse->schedule;
}

/* ---- a step that has been completed ------------------------------------ */

/* Completes a step: `work` becomes the residual. After a dense step `work` is
   zeros. */
static void complete_step(baton_sparse_t *sparse, bool dense)
{
    baton__sparse_device_t *device = sparse->device;
    baton__sparse_complete_step(sparse, dense);
    baton__sparse_exchange(&device->residual, &device->work);
    if (sparse->input.gradient != NULL) {
        baton__sparse_exchange(&device->velocity, &device->new_velocity);
    }
}

/* Completes the step that has begun last, if it has ended without an error.
   A step that began before a recovery does not count as ended, since the
   recovery numbers epochs anew. The caller holds the backend's lock. */
static void complete_begun(baton_sparse_t *sparse)
{
    backend_t *self = sparse_device_backend_of(sparse);
    const side_t *side = self->begun;
    if (side != NULL && baton_schedule_epoch(sparse_device_schedule_of(side)) >=
                            self->begun_epoch) {
        self->begun = NULL;
        complete_step(sparse, side->dense);
    }
}

/* ---- a step, on the driver --------------------------------------------- */

/* Returns BATON_OK if the copies of results for which the step waits have
   ended. */
static baton_status_t poll_ready(void *arg)
{
    const side_t *side = arg;
    backend_t *self = sparse_device_backend_of(side->sparse);
    (void)pthread_mutex_lock(&self->lock);
    const baton_schedule_t *schedule = self->results.schedule;
    bool copied = schedule == NULL ||
                  (!self->closing &&
                   baton_schedule_epoch(schedule) >= self->awaited_results);
    (void)pthread_mutex_unlock(&self->lock);
    return copied ? BATON_OK : BATON_AGAIN;
}

static baton_status_t ready(void *arg, baton_call_t *call, baton_async_t async)
{
    const side_t *side = arg;
    /* `async` is not needed, since poll_ready reports when the results were
       copied. */
    sparse_device_backend_of(side->sparse)->awaited_results =
        side->feeds[baton_call_epoch(call) % BATON__REQUESTS].results;
    return poll_ready(arg) == BATON_OK ? BATON_DONE : BATON_OK;
}

static const baton_async_ops_t ready_ops = {.start = ready, .poll = poll_ready};

/* Makes this step fail if the step before it, which was a step of the other
   schedule, has failed. The stream has waited until the earlier step ended. So
   if the earlier step is not complete, it has failed. The application may not
   know of that failure yet. */
static baton_status_t check_before(const side_t *side, baton_call_t *call,
                                   const feed_t *feed)
{
    const baton_sparse_t *sparse = side->sparse;
    const baton_schedule_t *before =
        side->dense ? sparse->schedule : sparse->dense;
    baton_failure_t failure;
    /* If feed->other is 0, no step of the other schedule was running when this
       one was started. Then the other schedule is not used, since it may have
       been destroyed. */
    if (feed->other == 0 || baton_schedule_epoch(before) >= feed->other) {
        return BATON_OK;
    }
    baton_status_t status = baton_schedule_failure(before, &failure);
    return status == BATON_OK
               ? baton_call_fail(call, failure.status,
                                 "the step before it has failed: %s",
                                 failure.message)
               : status;
}

/* Binds the buffers of the dense schedule to the present vectors, which each
   step swaps. */
static baton_status_t sparse_device_bind_dense(const baton_sparse_t *sparse)
{
    baton_buffer_t dense_work = sparse_device_backend_of(sparse)->dense_work;
    baton_status_t status =
        baton_buffer_rebind(sparse->dense, sparse->dense_buffer, sparse->work);
    return status == BATON_OK ? baton_buffer_rebind(sparse->dense, dense_work,
                                                    sparse->device->work)
                              : status;
}

static baton_status_t sparse_device_load(void *arg, baton_call_t *call)
{
    side_t *side = arg;
    baton_sparse_t *sparse = side->sparse;
    backend_t *self = sparse_device_backend_of(sparse);
    uint64_t epoch = baton_call_epoch(call);
    const feed_t *feed = &side->feeds[epoch % BATON__REQUESTS];
    baton_status_t status = check_before(side, call, feed);
    if (status != BATON_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&self->lock);
    complete_begun(sparse);
    self->begun = side;
    self->begun_epoch = epoch;
    sparse->recovered = false;
    sparse->input.gradient = feed->gradient;
    (void)pthread_mutex_unlock(&self->lock);
    return side->dense ? sparse_device_bind_dense(sparse) : BATON_OK;
}

/* ---- copies of results, on the driver ---------------------------------- */

/* Decides what to copy. There is nothing to copy if the step has failed, or if
   it began before a recovery: then the schedule has not reached the request's
   epoch. No later step can have reached it, since later steps wait for this
   request. */
static void begin_result(void *arg, const void *of)
{
    baton_sparse_t *sparse = arg;
    backend_t *self = sparse_device_backend_of(sparse);
    const result_request_t *request = of;
    const baton_sparse_result_t *last = &sparse->results.last;
    self->form = NOTHING;
    (void)pthread_mutex_lock(&self->lock);
    if (baton_schedule_epoch(sparse_device_schedule_of(request->side)) >=
        request->epoch) {
        complete_begun(sparse);
        self->form = last->indices == NULL ? WHOLE : ENTRIES;
    }
    if (self->form == ENTRIES) {
        self->entry_count = last->count;
        baton__entries_join(sparse, self->entries.host, last->indices,
                            last->values, sparse->element_bytes, last->count);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

/* Puts the entries of a sparse result into a dense vector, whose other elements
   become zero. */
static void write_out(baton__enqueue_t *queue, void *target)
{
    const backend_t *self = sparse_device_backend_of(queue->sparse);
    const baton_device_entries_t list = {.dtype = queue->sparse->dtype,
                                         .data = self->entries.device,
                                         .capacity = self->entry_count};
    baton__enqueue_to_device(queue, &self->entries,
                             self->entry_count * queue->sparse->entry_bytes);
    baton__enqueue_scale(queue, target, NULL, 0);
    baton__enqueue_transfer(queue, BATON_DEVICE_PUT, &list, NULL, target, 0);
}

static baton_status_t copy_result(void *arg, const void *of,
                                  baton_stream_t stream)
{
    baton_sparse_t *sparse = arg;
    const backend_t *self = sparse_device_backend_of(sparse);
    const result_request_t *request = of;
    baton__enqueue_t queue = {.sparse = sparse, .stream = stream};
    if (self->form == WHOLE) {
        baton__enqueue_copy(&queue, request->target, sparse->work,
                            sparse->vector_bytes);
    } else if (self->form == ENTRIES) {
        write_out(&queue, request->target);
    }
    return queue.status;
}

/* ---- vectors between steps, on the driver ------------------------------ */

static baton_status_t use_vector(void *arg, const void *of,
                                 baton_stream_t stream)
{
    const vector_request_t *request = of;
    baton__enqueue_t queue = {.sparse = arg, .stream = stream};
    if (request->source != NULL) {
        baton__enqueue_copy(&queue, request->target, request->source,
                            queue.sparse->vector_bytes);
    } else {
        baton__enqueue_scale(&queue, request->target, NULL, 0);
    }
    return queue.status;
}

/* ---- building ---------------------------------------------------------- */

static baton_status_t build_results(baton_sparse_t *sparse)
{
    backend_t *self = sparse_device_backend_of(sparse);
    size_t bytes = sparse->results.capacity * sparse->entry_bytes;
    self->entries = baton__mirror_alloc(sparse, NULL, bytes);
    self->results = (baton__requests_t){.bytes = sizeof(result_request_t),
                                        .begin = begin_result,
                                        .serve = copy_result,
                                        .arg = sparse};
    return baton__requests_init(&self->results, self->self, "result of",
                                sparse->name);
}

static baton_status_t copy_vector(baton_sparse_t *sparse, char *target,
                                  const void *source)
{
    const vector_request_t request = {target, source};
    baton_status_t status = baton__requests_run(
        &sparse_device_backend_of(sparse)->vectors, &request);
    return baton__error(status,
                        "\"%s\": a vector on the device can't be copied: %s",
                        sparse->name, baton_error_message());
}

/* Sets residual and velocity to zero, since device memory is not
   initialised. */
static baton_status_t build_vectors(baton_sparse_t *sparse)
{
    backend_t *self = sparse_device_backend_of(sparse);
    self->vectors = (baton__requests_t){
        .bytes = sizeof(vector_request_t), .serve = use_vector, .arg = sparse};
    baton_status_t status = baton__requests_init(&self->vectors, self->self,
                                                 "vectors of", sparse->name);
    if (status == BATON_OK) {
        status = copy_vector(sparse, self->device.residual, NULL);
    }
    return status == BATON_OK && self->device.velocity != NULL
               ? copy_vector(sparse, self->device.velocity, NULL)
               : status;
}

static baton_status_t sparse_device_begin_dense(void *arg, baton_call_t *call)
{
    baton__sparse_begin(arg);
    return BATON_OK;
}

static void clear_work(void *arg, baton__enqueue_t *queue)
{
    const baton_sparse_t *sparse = arg;
    baton__enqueue_scale(queue, sparse->device->work, NULL, 0);
}

/* Adds the nodes of a dense step. Its operand is accumulated on the device, and
   copied to main memory; then `work` of the device becomes zeros. */
static void add_dense_nodes(baton_sparse_t *sparse)
{
    baton_schedule_t *s = sparse->dense;
    baton_view_t target = baton__sparse_bind_dense(sparse);
    baton_buffer_t work =
        baton_buffer_bind(s, sparse->device->work, target.bytes);
    baton_buffer_set_memory(s, work, BATON_MEMORY_DEVICE);
    sparse_device_backend_of(sparse)->dense_work = work;
    baton_node_t first =
        baton__sparse_add_call(sparse, s, sparse_device_begin_dense, sparse);
    baton_node_t accumulated =
        baton__sparse_device_add_accumulation(sparse, s, first);
    baton_node_t copy =
        baton_add_copy(s, target, baton_view(work, 0, target.bytes));
    baton_before(s, accumulated, copy);
    (void)baton__sparse_device_call(sparse, s, copy, clear_work, sparse);
    baton__sparse_add_dense(sparse, target, target, copy);
}

/* Resets a side in a recovery. Holds the backend's lock, so that the driver
   does not complete a step meanwhile. */
static bool sparse_device_recover(void *arg, uint64_t epoch)
{
    side_t *side = arg;
    backend_t *self = sparse_device_backend_of(side->sparse);
    (void)pthread_mutex_lock(&self->lock);
    side->started = 0;
    baton__sparse_recover(side->sparse, side->dense, epoch);
    (void)pthread_mutex_unlock(&self->lock);
    return true;
}

/* Builds one of the two schedules: the nodes `ready` and `load`, and then the
   nodes that `add` adds. */
static void add_side(baton_sparse_t *sparse, bool dense,
                     void (*add)(baton_sparse_t *sparse))
{
    side_t *side = &sparse_device_backend_of(sparse)->sides[dense];
    *side = (side_t){.sparse = sparse, .dense = dense};
    baton_schedule_t *s = sparse_device_schedule_of(side);
    baton_node_t first = baton_add_call(s, sparse_device_load, side);
    baton_node_t last = baton_add_nop(s);
    baton_before(s, baton_add_async(s, &ready_ops, side), first);
    baton_enclosure_t inside = baton_enclose_begin(s);
    add(sparse);
    baton_enclose_end(s, inside, first, last);
    baton_schedule_on_recover(s, sparse_device_recover, side);
}

/* Returns the reason why gradients may not be in device memory, or NULL if they
   may. */
static const char *refusal(const baton_sparse_t *sparse,
                           baton__sparse_device_t *device)
{
    const baton_sparse_options_t *o = &sparse->options;
    if (o->partial) {
        return "allowed with options.partial: BATON_MEMORY_HOST";
    }
    if (!baton__sparse_is_for_devices(o->algorithm)) {
        return "allowed with algorithms auto, spardl, topka, redsync and dense";
    }
    if (!sparse->payload) {
        return "a cost-only simulation has no device memory";
    }
    if (baton_engine_device(device->engine, &device->port, &device->device) !=
        BATON_OK) {
        return "the engine has no device (baton_engine_attach_device)";
    }
    if (device->port->select == NULL) {
        return "the device cannot select (device.h)";
    }
    return device->port->reduces(device->device, BATON_SUM, o->dtype)
               ? NULL
               : "the device cannot add elements of options.dtype";
}

static baton_status_t sparse_device_build(baton_sparse_t *sparse)
{
    backend_t *self = baton__sparse_alloc(sparse, 1, sizeof *self);
    if (self == NULL) {
        return BATON_OK;
    }
    sparse->device = &self->device;
    self->device.engine = baton_group_engine(sparse->group);
    (void)pthread_mutex_init(&self->lock, NULL);
    const char *why = refusal(sparse, &self->device);
    if (why != NULL) {
        return baton__sparse_error(
            sparse, BATON_ERR_UNSUPPORTED, "sparse",
            "memory is BATON_MEMORY_DEVICE, algorithm is %s: %s",
            baton_sparse_algorithm_name(sparse->options.algorithm), why);
    }
    baton__device_allocate(sparse);
    sparse->work = baton__sparse_alloc_device(sparse, BATON_MEMORY_HOST,
                                              sparse->vector_bytes);
    add_side(sparse, true, add_dense_nodes);
    if (sparse->algorithm != NULL) {
        add_side(sparse, false, sparse->algorithm->build_on_device);
    }
    size_t most = sparse->results.capacity > sparse->options.max_k
                      ? sparse->results.capacity
                      : sparse->options.max_k;
    self->device.saved = baton__sparse_alloc_device(sparse, BATON_MEMORY_DEVICE,
                                                    most * sparse->entry_bytes);
    baton_status_t status =
        baton_group_create_self(self->device.engine, &self->self);
    if (status == BATON_OK) {
        status = build_results(sparse);
    }
    return status == BATON_OK && !sparse->out_of_memory ? build_vectors(sparse)
                                                        : status;
}

/* ---- end --------------------------------------------------------------- */

/* Waits until the last copy of a result has ended. Called before anything is
   destroyed, since steps in flight wait for copies, and copies for steps. */
static void await_results(const backend_t *self)
{
    int64_t patience_ms = baton__config_number(BATON__CONFIG_DESTROY_MS);
    char before[BATON__MESSAGE_BYTES];
    (void)snprintf(before, sizeof before, "%s", baton_error_message());
    if (self->results.started > 0 &&
        baton__wait_out(self->results.schedule, (int)patience_ms) ==
            BATON_ERR_TIMEOUT) {
        (void)!baton_schedule_cancel(self->results.schedule);
    }
    (void)!baton__error_forward(BATON_OK, before);
}

static baton_status_t close_backend(baton_sparse_t *sparse)
{
    backend_t *self = sparse_device_backend_of(sparse);
    if (self == NULL) {
        return BATON_OK;
    }
    await_results(self);
    (void)pthread_mutex_lock(&self->lock);
    self->closing = true;
    (void)pthread_mutex_unlock(&self->lock);
    baton__requests_t closed = self->results;
    baton_status_t status = baton__requests_fini(&closed);
    (void)pthread_mutex_lock(&self->lock);
    self->closing = false;
    self->results = closed;
    (void)pthread_mutex_unlock(&self->lock);
    if (status == BATON_OK) {
        status = baton__requests_fini(&self->vectors);
    }
    if (status == BATON_OK) {
        status = baton_group_destroy(self->self);
        self->self = NULL;
    }
    return status;
}

static void free_backend(baton_sparse_t *sparse)
{
    backend_t *self = sparse_device_backend_of(sparse);
    if (self != NULL) {
        (void)pthread_mutex_destroy(&self->lock);
    }
}

/* ---- steps, by the application ----------------------------------------- */

/* Checks that `vector` points to n elements of this device's memory. */
static baton_status_t check_vector(const baton_sparse_t *sparse,
                                   const char *doing, const char *what,
                                   const void *vector)
{
    baton_status_t status =
        baton_device_check(sparse->device->engine, vector, sparse->vector_bytes,
                           BATON_MEMORY_DEVICE);
    return baton__sparse_error(
        sparse, status, doing,
        "the %s must be %zu elements of device memory: %s", what, sparse->count,
        baton_error_message());
}

/* Starts a step in the order of the stream *on. If `on` is NULL, starts it at
   once. */
static baton_status_t start_step(baton_sparse_t *sparse, bool flush,
                                 const void *gradient, const baton_stream_t *on)
{
    backend_t *self = sparse_device_backend_of(sparse);
    bool running = sparse->phase == BATON__SPARSE_RUNNING;
    /* The number of steps that are completed before this one begins. */
    uint64_t steps = sparse->base[false] + sparse->base[true] +
                     self->sides[false].started + self->sides[true].started;
    bool dense = baton__sparse_is_dense(sparse, flush, steps);
    side_t *side = &self->sides[dense];
    baton_schedule_t *schedule = sparse_device_schedule_of(side);
    uint64_t epoch = side->started + 1;
    bool follows = running && sparse->latest != schedule;
    baton_status_t status =
        flush ? BATON_OK : check_vector(sparse, "start", "gradient", gradient);
    if (status == BATON_OK && follows && on != NULL) {
        /* The previous step runs in the other schedule, and its epoch ends on
           the host. So the stream waits for that epoch: when the stream
           continues, the previous step has completed. */
        status = baton_schedule_wait_on(sparse->latest, *on);
    }
    if (status != BATON_OK) {
        return status;
    }
    side->feeds[epoch % BATON__REQUESTS] = (feed_t){
        .gradient = gradient,
        .results = self->results.started,
        .other = follows ? self->sides[!dense].started : 0,
    };
    status = on != NULL ? baton_schedule_start_on(schedule, *on)
                        : baton_schedule_start(schedule);
    if (status == BATON_OK) {
        side->started = epoch;
        baton__sparse_started(sparse, dense);
    }
    return status;
}

static baton_status_t sparse_device_start(baton_sparse_t *sparse, bool flush,
                                          const void *gradient)
{
    return start_step(sparse, flush, gradient, NULL);
}

static void sparse_device_complete(baton_sparse_t *sparse,
                                   baton_status_t status)
{
    backend_t *self = sparse_device_backend_of(sparse);
    (void)pthread_mutex_lock(&self->lock);
    if (status != BATON_OK) {
        complete_begun(sparse); /* completes an earlier step, if there is one */
        /* The caller reports the step's error, so check_result() need not
           report the copies that have failed with it. */
        self->reported = self->results.started;
    } else if (self->begun != NULL) {
        self->begun = NULL;
        complete_step(sparse, sparse->is_dense);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

/* Returns the error of the last copy of a result, but each error only once. */
static baton_status_t check_result(baton_sparse_t *sparse)
{
    backend_t *self = sparse_device_backend_of(sparse);
    baton_schedule_t *schedule = self->results.schedule;
    baton_failure_t failure;
    bool done;
    /* The test makes progress, so a copy may end. */
    (void)!baton_schedule_test(schedule, &done);
    if (baton_schedule_failure(schedule, &failure) != BATON_OK ||
        failure.epoch <= self->reported) {
        return BATON_OK;
    }
    self->reported = failure.epoch;
    return baton__error(failure.status, "\"%s\": a result was not copied: %s",
                        sparse->name, failure.message);
}

static baton_status_t check_stream(const baton_sparse_t *sparse,
                                   const char *doing)
{
    baton_status_t status = baton__sparse_check_connected(sparse, doing);
    if (status != BATON_OK) {
        return status;
    }
    return sparse->options.memory == BATON_MEMORY_DEVICE
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
    return gradient != NULL ? start_step(sparse, false, gradient, &stream)
                            : baton__sparse_error(sparse, BATON_ERR_INVALID,
                                                  "start", "gradient is NULL");
}

baton_status_t baton_sparse_wait_on(baton_sparse_t *sparse,
                                    baton_stream_t stream, void *vector)
{
    baton_status_t status = check_stream(sparse, "wait for");
    if (status == BATON_OK && vector != NULL) {
        status = check_vector(sparse, "wait for", "vector", vector);
    }
    if (status != BATON_OK) {
        return status;
    }
    if (sparse->latest == NULL) {
        return baton__sparse_error(sparse, BATON_ERR_STATE, "wait for",
                                   "no step was started");
    }
    status = baton_schedule_wait_on(sparse->latest, stream);
    if (status != BATON_OK || vector == NULL) {
        return status;
    }
    backend_t *self = sparse_device_backend_of(sparse);
    const side_t *side = &self->sides[sparse->latest == sparse->dense];
    bool asked = side->started > 0 || sparse->phase == BATON__SPARSE_RESULT;
    const result_request_t request = {
        .side = side,
        /* If the group was recovered before the application asked for the
           step's end, the result is lost. No epoch reaches UINT64_MAX, so
           nothing is copied then. */
        .epoch = asked ? side->started : UINT64_MAX,
        .target = vector,
    };
    return baton__requests_start_on(&self->results, &request, stream, true);
}

/* ---- vectors between steps --------------------------------------------- */

static baton_status_t sparse_device_read_vector(baton_sparse_t *sparse,
                                                bool velocity, void *to)
{
    const baton__sparse_device_t *device = sparse->device;
    return copy_vector(sparse, to,
                       velocity ? device->velocity : device->residual);
}

static baton_status_t sparse_device_write_vectors(baton_sparse_t *sparse,
                                                  const void *residual,
                                                  const void *velocity)
{
    baton__sparse_device_t *device = sparse->device;
    baton_status_t status = copy_vector(sparse, device->work, residual);
    if (status == BATON_OK && velocity != NULL) {
        status = copy_vector(sparse, device->new_velocity, velocity);
    }
    if (status == BATON_OK) {
        baton__sparse_exchange(&device->residual, &device->work);
        baton__sparse_exchange(&device->velocity, &device->new_velocity);
    }
    return status;
}

const baton__sparse_backend_t baton__sparse_on_device = {
    .build = sparse_device_build,
    .close = close_backend,
    .free = free_backend,
    .start = sparse_device_start,
    .complete = sparse_device_complete,
    .check_result = check_result,
    .read = sparse_device_read_vector,
    .write = sparse_device_write_vectors,
};
