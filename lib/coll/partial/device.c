/* A partial collective in device memory. Contributions and results are in the
   order of streams: schedules of this rank alone, around the collective's
   schedule, add the contributions and copy the results.

       contribute_on --> [additions: to what is pending] --+
                                                           |
       start_on --------------------------------> the collective's epoch
                                                           |
       wait_on ---> [results: result to the target] <------+

   The engine's driver serves each request when the stream gets there. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "coll/partial/parts.h"
#include <baton/inproc.h>

/* The most steps in flight; baton_schedule_start_on allows as many. */
enum { AHEAD = 8 };

typedef enum purpose {
    FILL,   /* copy neutral elements from main memory to `nothing` */
    ADD,    /* add `memory` to the pending contribution */
    COPY,   /* copy the pending contribution to `memory` */
    ARRIVE, /* note that this rank has arrived at a step */
    /* Copy the result of a step (with KEEP_LATEST, the newest) to `memory`. */
    RESULT
} purpose_t;

typedef struct move {
    purpose_t purpose;
    void *memory; /* the caller's memory */
    uint64_t step;
    uint64_t generation;
} move_t;

/* ---- on the driver ----------------------------------------------------- */

static bool is_of_now(const baton_partial_t *partial, const move_t *move)
{
    return move->generation ==
           atomic_load_explicit(&partial->generation, memory_order_relaxed);
}

static void begin_move(void *arg, const void *request)
{
    baton__mover_t *self = arg;
    const move_t *move = request;
    baton_partial_t *partial = self->partial;
    baton__contribution_t *c = &partial->contribution;
    char *left = NULL, *right = NULL;
    self->target = move->memory;
    switch (move->purpose) {
    case FILL:
        self->target = c->nothing;
        right = move->memory;
        break;
    case ADD:
        baton__contribution_begin_use(c, &right, &left);
        self->target = c->sum;
        right = move->memory;
        break;
    case COPY:
        baton__contribution_begin_use(c, &left, &right);
        partial->device->any = left != NULL || right != NULL;
        if (right == NULL) {
            right = left != NULL ? left : c->nothing;
            left = NULL;
        }
        break;
    case ARRIVE:
        break;
    case RESULT:
        if (move->memory != NULL && is_of_now(partial, move)) {
            right = baton__contribution_lend(
                c, move->step, partial->options.keep == BATON_KEEP_LATEST);
        }
        break;
    }
    self->left = left;
    self->right = right;
}

static baton_status_t move_vector(void *arg, const void *request,
                                  baton_stream_t stream)
{
    const baton__mover_t *self = arg;
    const baton__partial_device_t *device = self->partial->device;
    const baton__contribution_t *c = &self->partial->contribution;
    if (self->right == NULL || c->count == 0) {
        return BATON_OK;
    }
    return self->left == NULL
               ? device->port->copy(device->device, stream, self->target,
                                    self->right, baton__contribution_bytes(c))
               : device->port->reduce(device->device, stream, c->op, c->dtype,
                                      self->target, self->left, self->right,
                                      c->count);
}

static void end_move(void *arg, const void *request)
{
    const baton__mover_t *self = arg;
    const move_t *move = request;
    baton_partial_t *partial = self->partial;
    baton__contribution_t *c = &partial->contribution;
    bool now = is_of_now(partial, move);
    switch (move->purpose) {
    case FILL:
        break;
    case ADD:
        /* A recovery may have numbered steps anew since this request was made
           (then `now` is false). In that case the contribution belongs to the
           next step. */
        baton__contribution_end_add(c, now ? move->step
                                           : baton__partial_steps(partial) + 1);
        break;
    case COPY:
        baton__contribution_end_use(c);
        break;
    case ARRIVE:
    case RESULT:
        if (now) {
            baton__partial_limit(partial,
                                 move->purpose == ARRIVE ? &partial->arrived
                                                         : &partial->seen,
                                 move->step);
        }
        break;
    }
}

/* Returns true if an epoch may take the pending contribution: no request in a
   stream is adding to it or copying it. If the device has failed, such a
   request has ended without a call of end_move(). Then this function ends the
   request's use of the contribution, and returns true. */
bool baton__partial_device_may_take(const baton__partial_device_t *self)
{
    baton__contribution_t *c = &self->partial->contribution;
    const baton__requests_t *additions = &self->additions.requests;
    if (!baton__contribution_is_busy(c)) {
        return true;
    }
    if (baton_schedule_epoch(additions->schedule) < additions->begun) {
        return false;
    }
    baton__contribution_end_use(c);
    return true;
}

/* ---- life -------------------------------------------------------------- */

static baton_status_t init_mover(baton_partial_t *partial, baton__mover_t *self,
                                 const char *what)
{
    *self = (baton__mover_t){.partial = partial,
                             .requests = {.bytes = sizeof(move_t),
                                          .begin = begin_move,
                                          .serve = move_vector,
                                          .end = end_move,
                                          .arg = self}};
    return baton__requests_init(&self->requests, partial->device->own_group,
                                what, partial->name);
}

/* Fills `nothing` with the neutral element of the reduction. Only the host can
   make that element, so it is copied from there. */
static baton_status_t fill_nothing(baton__partial_device_t *self)
{
    const baton__contribution_t *c = &self->partial->contribution;
    size_t bytes = baton__contribution_bytes(c);
    char *identity = baton__alloc(bytes > 0 ? bytes : 1, 1);
    if (identity == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for %zu bytes",
                            bytes);
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    c->op->identity(c->op->arg, identity, c->count, c->dtype);
    baton__float_mode_leave(mode);
    const move_t move = {.purpose = FILL, .memory = identity};
    baton_status_t status =
        baton__requests_run(&self->additions.requests, &move);
    baton__free(identity);
    return status;
}

static baton_status_t partial_device_init(baton__partial_device_t *self)
{
    const baton_partial_options_t *options = &self->partial->options;
    baton_status_t status =
        baton_engine_device(self->engine, &self->port, &self->device);
    if (status == BATON_OK &&
        !self->port->reduces(self->device, options->op, options->dtype)) {
        status =
            baton__error(BATON_ERR_UNSUPPORTED,
                         "partial \"%s\": %s has no reduction \"%s\" of "
                         "%s",
                         options->name, self->port->name,
                         options->op->name != NULL ? options->op->name : "?",
                         baton_dtype_name(options->dtype));
    }
    if (status == BATON_OK) {
        status = baton_group_create_self(self->engine, &self->own_group);
    }
    if (status == BATON_OK) {
        status = init_mover(self->partial, &self->additions, "contribution to");
    }
    if (status == BATON_OK) {
        status = init_mover(self->partial, &self->results, "result of");
    }
    return status == BATON_OK ? fill_nothing(self) : status;
}

baton_status_t baton__partial_device_create(baton_partial_t *partial,
                                            baton_group_t *group)
{
    baton__partial_device_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for partial \"%s\"",
                            partial->name);
    }
    partial->device = self;
    self->partial = partial;
    self->engine = baton_group_engine(group);
    return partial_device_init(self);
}

baton_status_t baton__partial_device_destroy(baton__partial_device_t *self)
{
    if (self == NULL) {
        return BATON_OK;
    }
    baton_status_t status = baton__requests_fini(&self->additions.requests);
    baton_status_t results = baton__requests_fini(&self->results.requests);
    status = status == BATON_OK ? results : status;
    if (status == BATON_OK) {
        status = baton_group_destroy(self->own_group);
        baton__free(self);
    }
    return status;
}

/* ---- the application --------------------------------------------------- */

static move_t move_of(const baton_partial_t *partial, purpose_t purpose,
                      uint64_t step, void *memory)
{
    return (move_t){
        .purpose = purpose,
        .memory = memory,
        .step = step,
        .generation =
            atomic_load_explicit(&partial->generation, memory_order_relaxed),
    };
}

static baton_status_t
partial_device_check_partial(const baton_partial_t *partial,
                             const char *function)
{
    if (!baton__partial_is_alive(partial, function)) {
        return baton__error_status();
    }
    return partial->device != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_UNSUPPORTED,
                              "%s: \"%s\" was created with memory = "
                              "BATON_MEMORY_HOST, must be BATON_MEMORY_DEVICE",
                              function, partial->name);
}

/* Checks that the caller's vector is in device memory. */
static baton_status_t
partial_device_check_memory(const baton_partial_t *partial, const void *memory,
                            const char *function)
{
    size_t bytes = baton__contribution_bytes(&partial->contribution);
    if (bytes == 0) {
        return BATON_OK;
    }
    baton_status_t status =
        memory == NULL ? baton__error(BATON_ERR_INVALID, "it is NULL")
                       : baton_device_check(partial->device->engine, memory,
                                            bytes, BATON_MEMORY_DEVICE);
    return baton__error(
        status,
        "%s: the vector of %zu bytes for \"%s\" must be in device memory: %s",
        function, bytes, partial->name, baton_error_message());
}

baton_status_t baton_partial_contribute_on(baton_partial_t *partial,
                                           const void *data,
                                           baton_stream_t stream)
{
    baton_status_t status = partial_device_check_partial(partial, __func__);
    if (status != BATON_OK) {
        return status;
    }
    status = partial_device_check_memory(partial, data, __func__);
    if (status != BATON_OK) {
        return status;
    }
    move_t move =
        move_of(partial, ADD, baton__partial_steps(partial) + 1, (void *)data);
    return baton__requests_start_on(&partial->device->additions.requests, &move,
                                    stream, true);
}

baton_status_t baton_partial_start_on(baton_partial_t *partial,
                                      baton_stream_t stream)
{
    baton_status_t status = partial_device_check_partial(partial, __func__);
    if (status != BATON_OK) {
        return status;
    }
    uint64_t step = baton__partial_steps(partial) + 1;
    if (step > baton_schedule_epoch(partial->schedule) + AHEAD) {
        return baton__error(BATON_ERR_BUSY,
                            "start of \"%s\" on a stream: %d steps have been "
                            "started and not ended: wait for one",
                            partial->name, (int)AHEAD);
    }
    if (partial->options.max_staleness != 0) {
        move_t move = move_of(partial, ARRIVE, step, NULL);
        status = baton__requests_start_on(&partial->device->additions.requests,
                                          &move, stream, false);
    }
    if (status == BATON_OK) {
        status = baton_schedule_start_on(partial->schedule, stream);
    }
    baton__partial_count_step(partial, status);
    return status;
}

baton_status_t baton_partial_wait_on(baton_partial_t *partial,
                                     baton_stream_t stream, void *target)
{
    baton_status_t status = partial_device_check_partial(partial, __func__);
    if (status != BATON_OK) {
        return status;
    }
    uint64_t step = baton__partial_steps(partial);
    baton__mover_t *results = &partial->device->results;
    status = baton__partial_check_step(partial);
    if (status == BATON_OK && target != NULL) {
        status = partial_device_check_memory(partial, target, __func__);
    }
    if (status == BATON_OK) {
        status = baton_schedule_wait_on(partial->schedule, stream);
    }
    if (status == BATON_OK &&
        (target != NULL || partial->options.keep == BATON_KEEP_ALL)) {
        move_t move = move_of(partial, RESULT, step, target);
        status = baton__requests_start_on(&results->requests, &move, stream,
                                          target != NULL);
    }
    if (status == BATON_OK) {
        partial->claimed = step;
    }
    return status;
}

/* Runs a request that adds to the pending contribution, or copies it, and waits
   until the request has ended. */
static baton_status_t partial_device_run(baton_partial_t *partial,
                                         purpose_t purpose, void *memory,
                                         const char *function)
{
    baton_status_t status =
        partial_device_check_memory(partial, memory, function);
    if (status != BATON_OK) {
        return status;
    }
    move_t move =
        move_of(partial, purpose, baton__partial_steps(partial) + 1, memory);
    status = baton__requests_run(&partial->device->additions.requests, &move);
    if (status != BATON_OK) {
        baton__contribution_end_use(&partial->contribution);
    }
    return status;
}

baton_status_t baton__partial_device_contribute(baton_partial_t *partial,
                                                const void *data)
{
    return partial_device_run(partial, ADD, (void *)data,
                              "baton_partial_contribute");
}

baton_status_t baton__partial_device_pending(baton_partial_t *partial,
                                             void *data, bool *any_out)
{
    baton_status_t status =
        partial_device_run(partial, COPY, data, "baton_partial_pending");
    if (status == BATON_OK) {
        *any_out = partial->device->any;
    }
    return status;
}

baton_status_t baton__partial_device_check(baton_partial_t *partial)
{
    bool done = false;
    if (partial->device == NULL) {
        return BATON_OK;
    }
    baton_status_t status = baton_schedule_test(
        partial->device->additions.requests.schedule, &done);
    if (status != BATON_OK) {
        baton__contribution_end_use(&partial->contribution);
        return baton__error(status, "\"%s\": the last contribution is lost: %s",
                            partial->name, baton_error_message());
    }
    return BATON_OK;
}
