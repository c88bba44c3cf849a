/* Contributions and results of a partial collective in device memory. */
#include "coll/partial/device.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "coll/partial/parts.h"

enum { AHEAD = 8 }; /* steps that may be in flight: baton_schedule_start_on */

typedef enum request {
    ADD,    /* memory to what is pending */
    COPY,   /* what is pending to memory */
    ARRIVE, /* this rank has arrived at a step */
    RESULT  /* the result of a step to memory; with KEEP_LATEST the newest */
} request_t;

/* ---- on the driver ----------------------------------------------------- */

static bool is_of_now(const baton_partial_t *partial, const baton__move_t *move)
{
    return move->generation ==
           atomic_load_explicit(&partial->generation, memory_order_relaxed);
}

static void begin_contribution(void *arg, const baton__move_t *move,
                               baton__operands_t *operands)
{
    baton_partial_t *partial = arg;
    baton__contribution_t *c = &partial->contribution;
    char *left = NULL, *right = NULL;
    switch ((request_t)move->what) {
    case ADD:
        baton__contribution_begin_add(c, &left, &right);
        *operands = (baton__operands_t){
            .target = right, .left = left, .right = move->memory};
        break;
    case COPY:
        baton__contribution_begin_copy(c, &left, &right);
        partial->device->any = left != NULL || right != NULL;
        *operands = (baton__operands_t){
            .target = move->memory,
            .left = left != NULL && right != NULL ? left : NULL,
            .right = right != NULL  ? right
                     : left != NULL ? left
                                    : baton__contribution_memory(c, c->nothing),
        };
        break;
    case ARRIVE:
    case RESULT:
        break;
    }
}

static void end_contribution(void *arg, const baton__move_t *move)
{
    baton_partial_t *partial = arg;
    baton__contribution_t *c = &partial->contribution;
    bool now = is_of_now(partial, move);
    switch ((request_t)move->what) {
    case ADD:
        /* Steps may have been numbered anew since. */
        baton__contribution_end_add(c, now ? move->step
                                           : baton__partial_steps(partial) + 1);
        break;
    case COPY:
        baton__contribution_end_copy(c);
        break;
    case ARRIVE:
        if (now) {
            baton__partial_arrived(partial, move->step);
        }
        break;
    case RESULT:
        break;
    }
}

static void begin_result(void *arg, const baton__move_t *move,
                         baton__operands_t *operands)
{
    baton_partial_t *partial = arg;
    bool newest = partial->keep == BATON_KEEP_LATEST;
    if (move->memory == NULL || !is_of_now(partial, move)) {
        return;
    }
    *operands = (baton__operands_t){
        .target = move->memory,
        .right = baton__contribution_lend(&partial->contribution, move->step,
                                          newest),
    };
}

static void end_result(void *arg, const baton__move_t *move)
{
    baton_partial_t *partial = arg;
    baton__contribution_return(&partial->contribution);
    if (is_of_now(partial, move)) {
        baton__partial_saw(partial, move->step);
    }
}

/* If the addition is over and has not ended, the device has failed. */
bool baton__partial_device_may_take(const baton__partial_device_t *self)
{
    baton__contribution_t *c = &self->partial->contribution;
    if (!baton__contribution_is_held(c)) {
        return true;
    }
    if (!baton__requests_is_over(&self->additions.requests)) {
        return false;
    }
    baton__contribution_give_up_add(c);
    return true;
}

/* ---- life -------------------------------------------------------------- */

/* Copies the neutral element, which the host can make, to its slot. */
static baton_status_t fill_nothing(const baton__partial_device_t *self)
{
    baton__contribution_t *c = &self->partial->contribution;
    size_t bytes = c->count * c->element_bytes;
    char *identity = baton__alloc(bytes > 0 ? bytes : 1, 1);
    baton_schedule_t *s = NULL;
    if (identity == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for %zu bytes",
                            bytes);
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    c->op->identity(c->op->arg, identity, c->count, c->dtype);
    baton__float_mode_leave(mode);
    baton_status_t status = baton_schedule_create(self->own_group, "fill", &s);
    if (status == BATON_OK) {
        baton_buffer_t from = baton_buffer_bind_input(s, identity, bytes);
        baton_buffer_t to = baton_buffer_bind(
            s, baton__contribution_memory(c, c->nothing), bytes);
        baton_buffer_set_memory(s, to, BATON_MEMORY_DEVICE);
        (void)baton_add_copy(s, baton_view(to, 0, bytes),
                             baton_view(from, 0, bytes));
        status = baton_schedule_commit(s);
    }
    if (status == BATON_OK) {
        status = baton_schedule_start(s);
    }
    if (status == BATON_OK) {
        status = baton_schedule_wait(s, -1);
    }
    baton_status_t ended = baton_schedule_destroy(s);
    baton__free(identity);
    return status == BATON_OK ? ended : status;
}

static baton_status_t init_movers(baton__partial_device_t *self,
                                  const baton_partial_options_t *options)
{
    const baton__contribution_t *c = &self->partial->contribution;
    size_t bytes = c->count * c->element_bytes;
    size_t result = options->result_count == 0
                        ? bytes
                        : options->result_count * c->element_bytes;
    self->additions = (baton__mover_t){.begin = begin_contribution,
                                       .end = end_contribution,
                                       .arg = self->partial};
    self->results = (baton__mover_t){
        .begin = begin_result, .end = end_result, .arg = self->partial};
    baton_status_t status =
        baton__mover_init(&self->additions, self->own_group, "contribution to",
                          options->name, bytes, options->dtype, options->op);
    return status == BATON_OK
               ? baton__mover_init(&self->results, self->own_group, "result of",
                                   options->name, result, options->dtype, NULL)
               : status;
}

baton_status_t
baton__partial_device_create(baton_partial_t *partial, baton_group_t *group,
                             const baton_partial_options_t *options)
{
    baton__partial_device_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for partial \"%s\"",
                            options->name);
    }
    partial->device = self;
    self->partial = partial;
    self->engine = baton_group_engine(group);
    baton_status_t status =
        baton_group_create_self(self->engine, &self->own_group);
    if (status == BATON_OK) {
        status = fill_nothing(self);
    }
    return status == BATON_OK ? init_movers(self, options) : status;
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

static const char *name_of(const baton_partial_t *partial)
{
    return baton_schedule_name(partial->schedule);
}

static baton__move_t move_of(const baton_partial_t *partial, request_t what,
                             uint64_t step, void *memory)
{
    return (baton__move_t){
        .what = (int)what,
        .memory = memory,
        .step = step,
        .generation =
            atomic_load_explicit(&partial->generation, memory_order_relaxed),
    };
}

static baton_status_t check_partial(const baton_partial_t *partial,
                                    const char *function)
{
    if (partial == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: partial is NULL", function);
    }
    return partial->device != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_UNSUPPORTED,
                              "%s: \"%s\" was created with memory = "
                              "BATON_MEMORY_HOST, must be BATON_MEMORY_DEVICE",
                              function, name_of(partial));
}

/* Of a vector of the caller, that a mover reads or writes. */
static baton_status_t check_memory(const baton_partial_t *partial,
                                   const void *memory,
                                   const baton__mover_t *mover,
                                   const char *function)
{
    if (mover->bytes == 0) {
        return BATON_OK;
    }
    baton_status_t status =
        memory == NULL ? baton__error(BATON_ERR_INVALID, "it is NULL")
                       : baton_device_check(partial->device->engine, memory,
                                            mover->bytes, BATON_MEMORY_DEVICE);
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status,
                              "%s: vector of %zu bytes of \"%s\", must be "
                              "device memory: %s",
                              function, mover->bytes, name_of(partial),
                              baton_error_message());
}

baton_status_t baton_partial_contribute_on(baton_partial_t *partial,
                                           const void *data,
                                           baton_stream_t stream)
{
    baton_status_t status = check_partial(partial, __func__);
    if (status != BATON_OK) {
        return status;
    }
    baton__mover_t *additions = &partial->device->additions;
    status = check_memory(partial, data, additions, __func__);
    if (status != BATON_OK) {
        return status;
    }
    baton__move_t move =
        move_of(partial, ADD, baton__partial_steps(partial) + 1, (void *)data);
    return baton__requests_start_on(&additions->requests, &move, stream, true);
}

baton_status_t baton_partial_start_on(baton_partial_t *partial,
                                      baton_stream_t stream)
{
    baton_status_t status = check_partial(partial, __func__);
    if (status != BATON_OK) {
        return status;
    }
    uint64_t step = baton__partial_steps(partial) + 1;
    if (step > baton_schedule_epoch(partial->schedule) + AHEAD) {
        return baton__error(BATON_ERR_BUSY,
                            "start of \"%s\" on a stream: %d steps have been "
                            "started and not ended: wait for one",
                            name_of(partial), (int)AHEAD);
    }
    if (partial->max_staleness != 0) {
        baton__move_t move = move_of(partial, ARRIVE, step, NULL);
        status = baton__requests_start_on(&partial->device->additions.requests,
                                          &move, stream, false);
    }
    if (status == BATON_OK) {
        baton__stats_start(&partial->stats);
        status = baton_schedule_start_on(partial->schedule, stream);
    }
    if (status == BATON_OK) {
        atomic_fetch_add_explicit(&partial->steps, 1, memory_order_relaxed);
    }
    return status;
}

baton_status_t baton_partial_wait_on(baton_partial_t *partial,
                                     baton_stream_t stream, void *target)
{
    baton_status_t status = check_partial(partial, __func__);
    if (status != BATON_OK) {
        return status;
    }
    uint64_t step = baton__partial_steps(partial);
    baton__mover_t *results = &partial->device->results;
    status = baton__partial_check_step(partial);
    if (status == BATON_OK && target != NULL) {
        status = check_memory(partial, target, results, __func__);
    }
    if (status == BATON_OK) {
        status = baton_schedule_wait_on(partial->schedule, stream);
    }
    if (status == BATON_OK &&
        (target != NULL || partial->keep == BATON_KEEP_ALL)) {
        baton__move_t move = move_of(partial, RESULT, step, target);
        status = baton__requests_start_on(&results->requests, &move, stream,
                                          target != NULL);
    }
    if (status == BATON_OK) {
        partial->claimed = step;
    }
    return status;
}

baton_status_t baton__partial_device_contribute(baton_partial_t *partial,
                                                const void *data)
{
    baton__mover_t *additions = &partial->device->additions;
    baton_status_t status =
        check_memory(partial, data, additions, "baton_partial_contribute");
    if (status != BATON_OK) {
        return status;
    }
    baton__move_t move =
        move_of(partial, ADD, baton__partial_steps(partial) + 1, (void *)data);
    status = baton__requests_run(&additions->requests, &move);
    if (status != BATON_OK) {
        baton__contribution_give_up_add(&partial->contribution);
    }
    return status;
}

baton_status_t baton__partial_device_pending(baton_partial_t *partial,
                                             void *data, bool *any_out)
{
    baton__contribution_t *c = &partial->contribution;
    baton__mover_t *additions = &partial->device->additions;
    baton_status_t status =
        check_memory(partial, data, additions, "baton_partial_pending");
    if (status != BATON_OK) {
        return status;
    }
    baton__move_t move = move_of(partial, COPY, 0, data);
    status = baton__requests_run(&additions->requests, &move);
    if (status != BATON_OK) {
        baton__contribution_end_copy(c);
        return status;
    }
    *any_out = partial->device->any;
    return BATON_OK;
}

baton_status_t baton__partial_device_check(baton_partial_t *partial)
{
    if (partial->device == NULL) {
        return BATON_OK;
    }
    baton_status_t status =
        baton__requests_outcome(&partial->device->additions.requests);
    if (status != BATON_OK) {
        baton__contribution_give_up_add(&partial->contribution);
        return baton__error(status,
                            "\"%s\": what was contributed last is lost: %s",
                            name_of(partial), baton_error_message());
    }
    return BATON_OK;
}
