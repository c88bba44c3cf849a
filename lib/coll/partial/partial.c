/* Partial all-reduce: a schedule around any inner builder. The mode decides
   when the node `begin` fires on a rank, and when the node `activated` does:
   the epoch may end then (begin.h). `take` takes the rank's pending
   contribution for the epoch. `prepare` binds this contribution as the source
   of the inner all-reduce, and the memory of the next result as its target.
   `publish` makes the result available to waits.

      begin.c
       |           |
     begin     activated ------------------------------+
       |                                               |
       v                                               v
     take --> prepare --+--> inner all-reduce ------> publish
                        |                              ^
                        +--> all-reduce of the count --+
                             of active ranks

   A take may have to wait: for a device, or for the application, which may be
   adding to a contribution that must not get older. Such a take is an async
   node that is polled.

   The active ranks of an epoch are counted by a sum of ones. In main memory the
   count is one more element at the end of the vector ("the count rides"), if
   the vector is not long, the reduction is a sum or an average, and the type
   holds P (for an average 2 P) exactly. Otherwise the count has an all-reduce
   of its own. */
#include "base/alloc.h"
#include "base/error.h"
#include "coll/kit/count.h"
#include "coll/partial/parts.h"

#include <string.h>

/* ---- the two ends of an epoch ----------------------------------------- */

static bool try_take(baton_partial_t *partial)
{
    if (partial->device != NULL &&
        !baton__partial_device_may_take(partial->device)) {
        return false;
    }
    baton__take_t took =
        baton__contribution_take(&partial->contribution, partial->epoch);
    partial->active = took == BATON__TAKE_ALL;
    return took != BATON__TAKE_LATER;
}

static baton_status_t partial_take(void *arg, baton_call_t *call,
                                   baton_async_t async)
{
    baton_partial_t *partial = arg;
    /* `async` is not needed, since poll_take reports when the take is done. */
    partial->epoch = baton__epoch_of(&partial->begin.modes, call);
    return try_take(partial) ? BATON_DONE : BATON_OK;
}

static baton_status_t poll_take(void *arg)
{
    return try_take(arg) ? BATON_OK : BATON_AGAIN;
}

static const baton_async_ops_t take_ops = {.start = partial_take,
                                           .poll = poll_take};

/* Returns true if a take may have to wait. It is an async node then. */
static bool takes_async(const baton_partial_t *partial)
{
    return partial->device != NULL || partial->contribution.sparse ||
           partial->contribution.max_staleness != 0;
}

/* Binds a piece's source, and sets its length. */
static baton_status_t bind_piece(baton_partial_t *partial, baton_call_t *call,
                                 const baton__piece_t *piece)
{
    const baton__contribution_t *c = &partial->contribution;
    const baton__maybe_vector_t *source = &piece->given.source;
    baton_status_t status = BATON_OK;
    if (piece->given.known) {
        status = baton_call_set_length(
            call, source->length, partial->active ? source->view.bytes : 0);
    }
    if (status != BATON_OK || !partial->payload) {
        return status;
    }
    /* The cast is safe, since no node writes to a source. */
    return baton_buffer_rebind(
        partial->schedule, piece->source,
        (void *)(uintptr_t)baton__contribution_source(c, piece->tensor));
}

static baton_status_t partial_prepare(void *arg, baton_call_t *call)
{
    baton_partial_t *partial = arg;
    const baton__contribution_t *c = &partial->contribution;
    baton_status_t status = BATON_OK;
    if (!takes_async(partial)) {
        partial->epoch = baton__epoch_of(&partial->begin.modes, call);
        /* A take that is not async never has to wait, so it succeeds. */
        (void)try_take(partial);
    }
    if (partial->payload) {
        /* Unbinds the last epoch's target before it binds a source. By now the
           application may have lent the memory of that result as its next
           contribution, and then source and target would overlap. */
        status = baton_buffer_rebind(partial->schedule, partial->target, NULL);
        partial->active_count = partial->active ? 1 : 0;
    }
    if (partial->payload && partial->rides) {
        /* The neutral element of a product is one, and that of a sum is zero
           (for floats it is -0, which counts as 0). */
        const baton_op_t *one_or_zero =
            partial->active ? BATON_PROD : BATON_SUM;
        one_or_zero->identity(one_or_zero->arg,
                              c->source + baton__contribution_bytes(c), 1,
                              c->dtype);
    }
    for (size_t i = 0; i < partial->set.piece_count && status == BATON_OK;
         i++) {
        status = bind_piece(partial, call, &partial->set.pieces[i]);
    }
    return status == BATON_OK && partial->payload
               ? baton_buffer_rebind(partial->schedule, partial->target,
                                     baton__contribution_result(c, c->result))
               : status;
}

static baton_status_t partial_publish(void *arg, baton_call_t *call)
{
    baton_partial_t *partial = arg;
    baton__contribution_t *c = &partial->contribution;
    uint32_t active = partial->active_count;
    if (partial->payload && partial->rides) {
        char *slot = baton__contribution_result(c, c->result);
        /* An average has divided the count by the number of ranks. */
        active = baton__count_of(c->dtype, slot + baton__contribution_bytes(c),
                                 partial->options.op == BATON_AVG
                                     ? baton_schedule_size(partial->schedule)
                                     : 1);
    }
    baton__contribution_publish(c, baton__epoch_of(&partial->begin.modes, call),
                                active);
    return BATON_OK;
}

/* Resets the partial in a recovery, after which steps are numbered from 1
   again. Called while the application is in baton_group_recover. */
static bool partial_recover(void *arg, uint64_t epoch)
{
    baton_partial_t *partial = arg;
    baton__contribution_recover(&partial->contribution, epoch, 1);
    atomic_store_explicit(&partial->steps, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&partial->generation, 1, memory_order_relaxed);
    baton__partial_set_end_loan(partial);
    partial->claimed = 0;
    partial->arrived = 0;
    baton__quorum_recover(partial->begin.quorum);
    baton__partial_limit(partial, &partial->seen, 0);
    return true;
}

/* ---- building --------------------------------------------------------- */

static void add_active_count(baton_partial_t *partial)
{
    baton_schedule_t *s = partial->schedule;
    const size_t bytes = sizeof partial->active_count;
    baton_view_t view = baton_view(
        baton_buffer_bind(s, &partial->active_count, bytes), 0, bytes);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = BATON_U32,
                                   .op = BATON_SUM};
    baton_add_allreduce_binomial(s, &args);
}

baton_status_t baton__partial_build(baton_partial_t *partial,
                                    const baton__epoch_t *epoch)
{
    const baton_partial_options_t *o = &partial->options;
    baton_schedule_t *s = partial->schedule;
    baton__begin_fini(&partial->begin);
    partial->begin = (baton__begin_t){
        .schedule = s,
        .modes = {.choice = {o->mode, o->mode_ranks},
                  .sync_every = o->sync_every,
                  .seed = o->seed,
                  .base = partial->begin.modes.base},
    };
    baton_status_t status = baton__begin_init(&partial->begin);
    if (status != BATON_OK) {
        return status;
    }
    baton_node_t begin = baton__begin_add(&partial->begin);
    if (takes_async(partial)) {
        baton_node_t take = baton_add_async(s, &take_ops, partial);
        baton_set_no_scratch(s, take);
        baton_before(s, begin, take);
        begin = take;
    }
    /* If no take has to wait, this call takes the contribution. */
    baton_node_t taken = baton_add_call(s, epoch->prepare, partial);
    baton_node_t published = baton_add_call(s, epoch->publish, partial);
    baton_set_no_scratch(s, taken);
    baton_set_no_scratch(s, published);
    baton_before(s, begin, taken);
    baton_before(s, partial->begin.activated, published);
    baton_enclosure_t inside = baton_enclose_begin(s);
    epoch->add(partial);
    baton_enclose_end(s, inside, taken, published);
    return BATON_OK;
}

/* Adds the inner all-reduce of a piece that begins at byte `offset` of the
   vectors. `nothing` is a buffer of neutral elements of the reduction. It is
   NULL if no builder needs them. */
static void partial_add_piece(baton_partial_t *partial, baton__piece_t *piece,
                              size_t offset, const baton_buffer_t *nothing)
{
    const baton_partial_options_t *options = &partial->options;
    baton_schedule_t *s = partial->schedule;
    /* If the count rides (see above), there is only one piece, and the count is
       its last element. */
    size_t bytes = piece->bytes +
                   (partial->rides ? partial->contribution.element_bytes : 0);
    piece->source = baton_buffer_bind(s, NULL, bytes);
    baton_buffer_set_memory(s, piece->source, options->memory);
    baton_allreduce_args_t args = {
        .size = sizeof args,
        .source = baton_view(piece->source, 0, bytes),
        .target = baton_view(partial->target, offset, bytes),
        .dtype = options->dtype,
        .op = options->op,
        .arg = options->inner_arg,
        .given = &piece->given};
    piece->given = (struct baton_given){
        .source = {args.source, baton_add_length(s)},
        .on_device = options->memory == BATON_MEMORY_DEVICE};
    if (nothing != NULL) {
        piece->given.identity = baton_view(*nothing, offset, bytes);
    }
    baton__partial_choose_inner(options, piece->bytes, s)(s, &args);
}

static void add_pieces(baton_partial_t *partial)
{
    const baton_partial_options_t *options = &partial->options;
    baton_schedule_t *s = partial->schedule;
    partial->target = baton_buffer_bind(s, NULL, partial->vector_bytes);
    baton_buffer_set_memory(s, partial->target, options->memory);
    bool needs_nothing =
        options->memory == BATON_MEMORY_DEVICE || options->op == BATON_AVG;
    baton_buffer_t nothing = {0};
    size_t offset = 0;
    if (needs_nothing) {
        nothing = baton_buffer_bind_input(s, partial->contribution.nothing,
                                          partial->vector_bytes);
        baton_buffer_set_memory(s, nothing, options->memory);
    }
    for (size_t i = 0; i < partial->set.piece_count; i++) {
        partial_add_piece(partial, &partial->set.pieces[i], offset,
                          needs_nothing ? &nothing : NULL);
        offset += partial->set.pieces[i].bytes;
    }
    if (!partial->rides) {
        add_active_count(partial);
    }
}

/* Returns the bound of staleness, in epochs; 0: contributions may be
   arbitrarily late. With KEEP_ALL the history is a bound, and max_staleness
   does not exceed it. */
static uint32_t bound_of(const baton_partial_options_t *options)
{
    return options->keep == BATON_KEEP_ALL && options->max_staleness == 0
               ? options->history
               : options->max_staleness;
}

/* Initialises the contributions. If messages carry no data (as in a simulation
   of costs), vectors are empty, but contributions are counted all the same. */
static baton_status_t init_contribution(baton_partial_t *partial,
                                        baton_engine_t *engine, int size)
{
    const baton_partial_options_t *options = &partial->options;
    size_t count = partial->payload ? options->count : 0;
    size_t elements = count + (partial->payload && partial->rides ? 1 : 0);
    partial->contribution = (baton__contribution_t){
        .count = count,
        .slot_bytes =
            elements * baton_op_element_bytes(options->op, options->dtype),
        .dtype = options->dtype,
        .op = options->op == BATON_AVG ? BATON_SUM : options->op,
        .history = options->history,
        .max_staleness = bound_of(options),
        .engine = engine,
        .parts = partial->payload ? options->tensors : 0,
        .begins = partial->set.begins,
        .stages = options->tensors > 0,
        .living = (uint32_t)size,
    };
    baton_status_t status = baton__contribution_init(&partial->contribution);
    return baton__error(status, "partial \"%s\": %s", options->name,
                        baton_error_message());
}

static baton_status_t partial_init(baton_partial_t *partial,
                                   baton_group_t *group)
{
    const baton_partial_options_t *options = &partial->options;
    bool device = options->memory == BATON_MEMORY_DEVICE;
    int size = baton_group_size(group);
    partial->payload = baton_group_has_payload(group);
    /* With an average the count is divided by P and rounded. If the type holds
       2 P exactly, multiplying by P gives the count again. */
    bool averages = options->op == BATON_AVG;
    /* Long vectors may be lent, and lent memory has no room for a count. */
    partial->rides = options->memory == BATON_MEMORY_HOST &&
                     !baton__partial_is_long(options, options->count) &&
                     (averages || options->op == BATON_SUM) &&
                     (uint64_t)size <= baton__largest_count(options->dtype) /
                                           (averages ? 2 : 1);
    (void)pthread_mutex_init(&partial->limit_lock, NULL);
    baton_status_t status = baton__partial_set_init(&partial->set, options);
    baton_status_t contribution = init_contribution(
        partial, device ? baton_group_engine(group) : NULL, size);
    status = status == BATON_OK ? contribution : status;
    partial->vector_bytes = (options->count + (partial->rides ? 1 : 0)) *
                            baton_op_element_bytes(options->op, options->dtype);
    return status == BATON_OK && device
               ? baton__partial_device_create(partial, group)
               : status;
}

static baton_status_t partial_commit(baton_partial_t *partial)
{
    static const baton__epoch_t epoch = {partial_prepare, add_pieces,
                                         partial_publish};
    baton__partial_agree(partial, partial->schedule);
    baton_status_t status = baton__partial_build(partial, &epoch);
    return status == BATON_OK ? baton_schedule_commit(partial->schedule)
                              : status;
}

static char *partial_give(baton_partial_t *partial, bool has)
{
    return baton__contribution_hand_over(&partial->contribution, has);
}

static void partial_get(baton_partial_t *partial, uint64_t epoch,
                        uint32_t active)
{
    baton__contribution_publish(&partial->contribution, epoch, active);
}

static const baton__survivor_t survivor = {.commit = partial_commit,
                                           .agree = baton__partial_agree,
                                           .give = partial_give,
                                           .get = partial_get};

/* Creates the schedule first. So even if this rank gives up here, the attempt
   counts as one schedule of this name, as it does on the other ranks. */
static baton_status_t partial_create(baton_partial_t *partial,
                                     baton_group_t *group)
{
    bool survives = partial->options.on_loss == BATON_ON_LOSS_CONTINUE;
    baton_status_t status =
        survives
            ? BATON_OK
            : baton_schedule_create(group, partial->name, &partial->schedule);
    if (status == BATON_OK) {
        status = partial_init(partial, group);
    }
    if (status != BATON_OK) {
        return status;
    }
    if (survives) {
        return baton__survival_create(partial, group, &survivor);
    }
    baton__partial_begin_limit(partial, true);
    baton_schedule_on_recover(partial->schedule, partial_recover, partial);
    baton__begin_fail_if_lost(partial->schedule);
    return partial_commit(partial);
}

baton_status_t baton_partial_create(baton_group_t *group,
                                    const baton_partial_options_t *passed,
                                    baton_partial_t **out)
{
    baton_partial_options_t options;
    if (out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: out is NULL", __func__);
    }
    baton_status_t status =
        baton__partial_resolve_options(passed, group, &options);
    if (status != BATON_OK) {
        return status;
    }
    baton_partial_t *partial = baton__alloc(1, sizeof *partial);
    char *name = baton__copy_string(options.name);
    if (partial == NULL || name == NULL) {
        baton__free(partial);
        baton__free(name);
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for partial \"%s\"",
                            options.name);
    }
    partial->name = name;
    partial->options = options;
    partial->options.name = name;
    status = partial_create(partial, group);
    if (status != BATON_OK) {
        baton__wrong_t wrong = {0};
        baton__wrong_keep(&wrong, status);
        (void)!baton_partial_destroy(partial);
        return baton__error_forward(status, wrong.text);
    }
    *out = partial;
    return BATON_OK;
}

baton_status_t baton_partial_destroy(baton_partial_t *partial)
{
    if (partial == NULL) {
        return BATON_OK;
    }
    if (!baton__partial_is_alive(partial, __func__)) {
        return baton__error_status();
    }
    baton_status_t status = baton__survival_destroy(partial);
    if (status != BATON_OK) {
        return status;
    }
    baton__partial_begin_limit(partial, false);
    status = baton_schedule_destroy(partial->schedule);
    if (status == BATON_ERR_STATE) {
        baton__partial_begin_limit(partial, true);
    }
    if (status == BATON_OK) {
        partial->schedule = NULL;
        status = baton__partial_device_destroy(partial->device);
    }
    /* After an error the partial's vectors are still in use, so they are not
       freed. */
    if (status == BATON_OK) {
        baton__contribution_fini(&partial->contribution);
        baton__partial_set_fini(&partial->set);
        baton__begin_fini(&partial->begin);
        (void)pthread_mutex_destroy(&partial->limit_lock);
        baton__free(partial->name);
        memset(partial, 0, sizeof *partial);
        baton__free_later(partial);
    }
    return status;
}

void baton_partial_on_end(baton_partial_t *partial, baton_end_fn fn, void *arg)
{
    if (partial == NULL || partial->survival == NULL) {
        baton_schedule_on_end(partial != NULL ? partial->schedule : NULL, fn,
                              arg);
    }
}

const baton_schedule_t *baton_partial_schedule(const baton_partial_t *partial)
{
    return partial != NULL && partial->survival == NULL ? partial->schedule
                                                        : NULL;
}

/* ---- steps ------------------------------------------------------------ */

static baton_status_t check_data(const baton_partial_t *partial,
                                 const void *data, const char *function)
{
    if (!baton__partial_is_alive(partial, function)) {
        return baton__error_status();
    }
    return data != NULL || partial->contribution.count == 0
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID, "%s: \"%s\": data is NULL",
                              function, partial->name);
}

static baton_status_t partial_contribute(baton_partial_t *partial,
                                         const void *data, bool lent,
                                         const char *function)
{
    baton_status_t status = check_data(partial, data, function);
    if (status != BATON_OK) {
        return status;
    }
    if (partial->device != NULL) {
        return baton__partial_device_contribute(partial, data);
    }
    baton__contribution_add(
        &partial->contribution, data, baton__partial_steps(partial) + 1,
        lent && baton__partial_is_long(&partial->options,
                                       partial->contribution.count));
    return BATON_OK;
}

baton_status_t baton_partial_contribute(baton_partial_t *partial,
                                        const void *data)
{
    return partial_contribute(partial, data, false, __func__);
}

baton_status_t baton_partial_contribute_lent(baton_partial_t *partial,
                                             const void *data)
{
    return partial_contribute(partial, data, true, __func__);
}

baton_status_t baton__partial_start_step(baton_partial_t *partial)
{
    if (partial->survival != NULL) {
        return baton__survival_start(partial);
    }
    baton_status_t status = baton_schedule_start(partial->schedule);
    baton__partial_count_step(partial, status);
    return status;
}

baton_status_t baton_partial_start(baton_partial_t *partial)
{
    if (!baton__partial_is_alive(partial, __func__)) {
        return baton__error_status();
    }
    baton__partial_set_close(partial);
    baton_status_t status = baton__partial_start_step(partial);
    if (status == BATON_OK && partial->options.max_staleness != 0) {
        baton__partial_limit(partial, &partial->arrived,
                             baton__partial_steps(partial));
    }
    return status;
}

baton_status_t baton_partial_test(baton_partial_t *partial, bool *done_out)
{
    if (!baton__partial_is_alive(partial, __func__) ||
        !baton__is_given(done_out, true, __func__, "done_out")) {
        return baton__error_status();
    }
    if (partial->survival != NULL) {
        return baton__survival_wait(partial, 0, done_out);
    }
    baton_status_t status = baton_schedule_test(partial->schedule, done_out);
    return status == BATON_OK ? baton__partial_device_check(partial) : status;
}

baton_status_t baton_partial_wait(baton_partial_t *partial, int timeout_ms,
                                  baton_partial_result_t *out)
{
    if (!baton__partial_is_alive(partial, __func__) ||
        !baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    uint64_t step = baton__partial_steps(partial);
    bool all = partial->options.keep == BATON_KEEP_ALL;
    baton_status_t status = baton__partial_check_step(partial);
    if (status != BATON_OK) {
        return status;
    }
    status = partial->survival != NULL
                 ? baton__survival_wait(partial, timeout_ms, NULL)
                 : baton_schedule_wait(partial->schedule, timeout_ms);
    if (!baton__goes_on(status)) {
        baton__contribution_end_loan(&partial->contribution,
                                     status != BATON_OK);
    }
    if (status == BATON_OK) {
        status = baton__partial_device_check(partial);
    }
    if (status != BATON_OK) {
        return status;
    }
    if (!baton__contribution_pin(&partial->contribution, all ? step : 0, step,
                                 out)) {
        return baton__error(
            BATON_ERR_STATE,
            "wait for \"%s\": the result of epoch %llu is no longer kept",
            partial->name, (unsigned long long)step);
    }
    if (!partial->payload) {
        out->data = NULL;
    }
    partial->claimed = step;
    if (all) {
        /* The history now has room for one more result, so peers may begin one
           more epoch. */
        baton__partial_limit(partial, &partial->seen, step);
    }
    return BATON_OK;
}

baton_status_t baton_partial_wait_into(baton_partial_t *partial, int timeout_ms,
                                       void *const *targets,
                                       baton_partial_result_t *out)
{
    if (!baton__partial_is_alive(partial, __func__) ||
        !baton__is_given(targets, true, __func__, "targets")) {
        return baton__error_status();
    }
    if (partial->device != NULL) {
        return baton__error(BATON_ERR_UNSUPPORTED,
                            "%s of \"%s\": its vectors are in device memory: "
                            "use baton_partial_wait_on",
                            __func__, partial->name);
    }
    baton_status_t status = baton_partial_wait(partial, timeout_ms, out);
    if (status != BATON_OK || out->data == NULL) {
        return status;
    }
    const baton__contribution_t *c = &partial->contribution;
    for (size_t i = 0; i < c->parts; i++) {
        size_t bytes = (c->begins[i + 1] - c->begins[i]) * c->element_bytes;
        if (bytes > 0 && targets[i] != NULL) {
            memcpy(targets[i],
                   (const char *)out->data + c->begins[i] * c->element_bytes,
                   bytes);
        }
    }
    return BATON_OK;
}

baton_status_t baton_partial_pending(baton_partial_t *partial, void *data,
                                     bool *any_out)
{
    baton_status_t status = check_data(partial, data, __func__);
    if (status != BATON_OK) {
        return status;
    }
    if (any_out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s of \"%s\": any_out is NULL",
                            __func__, partial->name);
    }
    if (partial->device != NULL) {
        return baton__partial_device_pending(partial, data, any_out);
    }
    *any_out = partial->set.tensors > 0
                   ? baton__partial_set_pending(partial, data)
                   : baton__contribution_pending(&partial->contribution, data);
    return BATON_OK;
}
