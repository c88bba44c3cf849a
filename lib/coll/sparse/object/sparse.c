/* The public functions of a sparse all-reduce: create, destroy, steps, and the
   calls between steps. */
#include "coll/sparse/algorithms/algorithms.h"
#include "coll/sparse/backends/backends.h"
#include "coll/sparse/object/object.h"

#include "base/alloc.h"
#include "base/error.h"
#include "coll/kit/pattern.h"
#include "coll/partial/parts.h"

#include <math.h>
#include <string.h>

static const baton__sparse_algorithm_t *
algorithm_of(baton_sparse_algorithm_t algorithm)
{
    static const baton__sparse_algorithm_t table[BATON_SPARSE_COUNT] = {
        [BATON_SPARSE_SPARDL] = {baton__spardl_build,
                                 baton__spardl_build_on_device},
        [BATON_SPARSE_TOPKA] = {baton__topka_build,
                                baton__topka_build_on_device},
        [BATON_SPARSE_TOPKDSA] = {baton__topkdsa_build, NULL},
        [BATON_SPARSE_GTOPK] = {baton__gtopk_build, NULL},
        [BATON_SPARSE_OKTOPK] = {baton__oktopk_build, NULL},
        [BATON_SPARSE_REDSYNC] = {baton__topka_build,
                                  baton__topka_build_on_device},
    };
    return table[algorithm].build != NULL ? &table[algorithm] : NULL;
}

static const baton__sparse_backend_t *
sparse_backend_of(const baton_sparse_options_t *options)
{
    if (options->memory == BATON_MEMORY_DEVICE) {
        return &baton__sparse_on_device;
    }
    return options->partial ? &baton__sparse_partial : &baton__sparse_host;
}

/* ---- schedules --------------------------------------------------------- */

/* Creates the four schedules. All ranks create all of them, whatever their
   options: peers find each other's schedules by name, and by how many schedules
   of that name were created before. */
static baton_status_t create_schedules(baton_sparse_t *sparse)
{
    baton_schedule_t **schedules[] = {&sparse->comparison, &sparse->dense,
                                      &sparse->schedule,
                                      &sparse->handover.schedule};
    baton_status_t status = BATON_OK;
    for (int i = 0; i < 4 && status == BATON_OK; i++) {
        status =
            baton_schedule_create(sparse->group, sparse->name, schedules[i]);
    }
    return status;
}

/* Destroys the schedules, those of steps first. Stops at the first that can't
   be destroyed yet; a later call continues there. */
baton_status_t baton__sparse_leave(baton_sparse_t *sparse)
{
    baton_schedule_t **schedules[] = {&sparse->schedule, &sparse->dense,
                                      &sparse->handover.schedule,
                                      &sparse->comparison};
    baton_status_t status = BATON_OK;
    for (int i = 0; i < 4 && status == BATON_OK; i++) {
        status = baton_schedule_destroy(*schedules[i]);
        *schedules[i] = status == BATON_OK ? NULL : *schedules[i];
    }
    return status;
}

/* Builds and commits all schedules. An error concerns this rank alone: it is
   stored in `wrong`, and then the comparison fails on all ranks. All schedules
   are committed in any case: if commits are verified (BATON_VERIFY), all ranks
   take part in each commit. */
static void sparse_build(baton_sparse_t *sparse)
{
    baton__wrong_t *wrong = &sparse->wrong;
    if (wrong->status == BATON_OK) {
        baton__wrong_keep(wrong, sparse->backend->build(sparse));
    }
    if (wrong->status == BATON_OK) {
        baton__sparse_build_handover(sparse);
    }
    if (sparse->out_of_memory) {
        baton__wrong_keep(wrong, baton__sparse_no_memory(sparse));
    }
    baton__wrong_keep(wrong, baton_schedule_commit(sparse->dense));
    baton__wrong_keep(wrong, baton_schedule_commit(sparse->schedule));
    baton__wrong_keep(wrong, baton_schedule_commit(sparse->handover.schedule));
}

/* ---- life -------------------------------------------------------------- */

static void free_sparse(baton_sparse_t *sparse)
{
    if (sparse->backend->free != NULL) {
        sparse->backend->free(sparse);
    }
    baton__sparse_free_memory(sparse, true);
    baton__free(sparse->parts);
    baton__free(sparse->name);
    memset(sparse, 0, sizeof *sparse);
    baton__free_later(sparse);
}

/* Checks the options, and fills in defaults and choices. */
static void sparse_resolve(baton_sparse_t *sparse,
                           const baton_sparse_options_t *options)
{
    const baton__sparse_place_t place = {
        .ranks = sparse->size,
        .hosts = baton_schedule_hosts(sparse->schedule),
        .processors = baton_schedule_processors(sparse->schedule),
        .measured = !baton__sparse_has_link(options)};
    if (sparse->wrong.status == BATON_OK) {
        baton__wrong_t wrong = baton__sparse_resolve(
            options, place.ranks, place.hosts, &sparse->asked);
        baton__wrong_keep(&sparse->wrong,
                          baton__wrong_error(&wrong, "sparse", sparse->name));
        sparse->options = sparse->asked;
    }
    if (sparse->wrong.status == BATON_OK) {
        baton__sparse_take_choice(&sparse->options, &place);
        sparse->algorithm = algorithm_of(sparse->options.algorithm);
    }
    sparse->options.name = sparse->name;
    sparse->count = sparse->options.count;
    sparse->dtype = sparse->options.dtype;
    sparse->element_bytes = baton_dtype_size(sparse->dtype);
    sparse->entry_bytes = baton_entry_bytes(sparse->dtype);
    sparse->vector_bytes = sparse->count * sparse->element_bytes;
    sparse->k = sparse->options.k;
    sparse->teams = sparse->options.teams;
    sparse->backend = sparse_backend_of(&sparse->options);
    /* While a step writes into one buffer, the other keeps the last result. A
       rank on which the last step has failed gets this result in a
       recovery. */
    sparse->results.buffer_count =
        sparse->options.memory == BATON_MEMORY_HOST ? 2 : 1;
}

/* If the options of a rank are wrong, the rank takes part in the comparison
   nevertheless, so that the comparison fails on all ranks. */
baton_status_t baton_sparse_prepare(baton_group_t *group,
                                    const baton_sparse_options_t *passed,
                                    baton_sparse_t **out)
{
    baton_sparse_options_t options;
    if (baton_group_size(group) < 0 || out == NULL) {
        return baton__error(BATON_ERR_INVALID, "sparse all-reduce: %s",
                            out == NULL ? "out is NULL"
                                        : "group is NULL, or was destroyed");
    }
    baton_sparse_t *sparse = baton__alloc(1, sizeof *sparse);
    if (sparse == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for a sparse all-reduce");
    }
    sparse->group = group;
    /* The host backend is used until the options are known. */
    sparse->backend = &baton__sparse_host;
    sparse->rank = baton_group_rank(group);
    sparse->size = baton_group_size(group);
    sparse->handover.most_ranks = sparse->size;
    sparse->payload = baton_group_has_payload(group);
    baton__wrong_keep(&sparse->wrong, baton__sparse_read(passed, &options));
    sparse->name =
        baton__copy_string(options.name != NULL ? options.name : "sparse");
    if (sparse->name == NULL) {
        free_sparse(sparse);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for a sparse all-reduce");
    }
    sparse->options = options;
    sparse->asked = options;
    baton_status_t status = create_schedules(sparse);
    if (status == BATON_OK) {
        sparse_resolve(sparse, &options);
        sparse_build(sparse);
        baton__sparse_agree(sparse->comparison, &sparse->asked);
        status = baton__sparse_compare(sparse->comparison, &sparse->wrong);
    }
    if (status != BATON_OK) {
        (void)!baton_sparse_destroy(sparse);
        return status;
    }
    *out = sparse;
    return BATON_OK;
}

baton_status_t baton_sparse_connect(baton_sparse_t *sparse, int timeout_ms)
{
    if (!baton__sparse_is_alive(sparse, "connect")) {
        return baton__error_status();
    }
    if (sparse->connected) {
        return BATON_OK;
    }
    const bool goes_on = baton__sparse_goes_on(&sparse->options);
    baton_status_t status =
        sparse->comparison != NULL
            ? baton__sparse_compared(sparse->comparison, &sparse->wrong,
                                     goes_on, timeout_ms)
            : baton__error_forward(sparse->wrong.status, sparse->wrong.text);
    if (status == BATON_OK && goes_on) {
        status = baton__sparse_leave(sparse);
        if (status == BATON_OK) {
            status = sparse->backend->connect(sparse);
            baton__wrong_keep(&sparse->wrong, status);
        }
    }
    sparse->connected = status == BATON_OK;
    return status;
}

baton_status_t baton_sparse_create(baton_group_t *group,
                                   const baton_sparse_options_t *options,
                                   int timeout_ms, baton_sparse_t **out)
{
    baton_sparse_t *sparse = NULL;
    baton_status_t status =
        baton_sparse_prepare(group, options, out != NULL ? &sparse : NULL);
    if (status != BATON_OK || sparse == NULL) {
        return status;
    }
    status = baton_sparse_connect(sparse, timeout_ms);
    if (status != BATON_OK) {
        (void)!baton_sparse_destroy(sparse);
        return status;
    }
    *out = sparse;
    return BATON_OK;
}

baton_status_t baton_sparse_destroy(baton_sparse_t *sparse)
{
    if (sparse == NULL) {
        return BATON_OK;
    }
    if (!baton__sparse_is_alive(sparse, "destroy")) {
        return baton__error_status();
    }
    baton_status_t status = sparse->backend->close != NULL
                                ? sparse->backend->close(sparse)
                                : BATON_OK;
    if (status == BATON_OK) {
        status = baton__sparse_leave(sparse);
    }
    /* After an error, schedules may still use the vectors. */
    if (status == BATON_OK) {
        free_sparse(sparse);
    }
    return status;
}

/* ---- steps ------------------------------------------------------------- */

baton_status_t baton__sparse_start_scaled(baton_sparse_t *sparse,
                                          const void *gradient, double factor)
{
    baton_status_t status = baton__sparse_check_idle(sparse, "start");
    if (status != BATON_OK) {
        return status;
    }
    bool null = sparse->options.in_place || sparse->input.part_count > 0;
    if (sparse->payload && !null && gradient == NULL) {
        return baton__sparse_error(sparse, BATON_ERR_INVALID, "start",
                                   "gradient is NULL");
    }
    if (sparse->payload && null && gradient != NULL) {
        return baton__sparse_error(
            sparse, BATON_ERR_INVALID, "start", "gradient must be NULL: %s",
            sparse->options.in_place
                ? "with in_place it is added to the vector of "
                  "baton_sparse_accumulator"
                : "parts of it were contributed");
    }
    status = baton__sparse_check_parts(sparse);
    if (status == BATON_OK) {
        sparse->input.factor = factor;
        status = sparse->backend->start(sparse, false, gradient);
        sparse->input.part_count =
            status == BATON_OK ? 0 : sparse->input.part_count;
    }
    return status;
}

baton_status_t baton_sparse_start(baton_sparse_t *sparse, const void *gradient)
{
    return baton__sparse_start_scaled(sparse, gradient, 1);
}

/* Returns BATON_ERR_UNSUPPORTED with options.partial; otherwise what
   baton__sparse_check_idle returns. */
static baton_status_t check_full(const baton_sparse_t *sparse,
                                 const char *doing)
{
    return sparse == NULL || !sparse->options.partial
               ? baton__sparse_check_idle(sparse, doing)
               : baton__sparse_error(sparse, BATON_ERR_UNSUPPORTED, doing,
                                     "it was created with options.partial");
}

baton_status_t baton_sparse_flush(baton_sparse_t *sparse)
{
    baton_status_t status = check_full(sparse, "flush");
    if (status == BATON_OK) {
        sparse->input.part_count = 0;
        sparse->input.factor = 1;
        status = sparse->backend->start(sparse, true, NULL);
    }
    return status;
}

/* Does for the last step what baton_schedule_wait does or, if done_out is not
   NULL, what baton_schedule_test does. */
static baton_status_t sparse_await(const baton_sparse_t *sparse, int timeout_ms,
                                   bool *done_out)
{
    if (baton__sparse_goes_on(&sparse->options)) {
        return baton__survival_wait(sparse->epochs, timeout_ms, done_out);
    }
    return done_out != NULL ? baton_schedule_test(sparse->latest, done_out)
                            : baton_schedule_wait(sparse->latest, timeout_ms);
}

/* Sets the phase, and makes the backend complete the step. Called when the
   running step has ended on this rank, or to take a result of an
   earlier step that no wait has returned yet. */
static void sparse_complete(baton_sparse_t *sparse, baton_status_t status)
{
    sparse->phase =
        status == BATON_OK ? BATON__SPARSE_RESULT : BATON__SPARSE_NO_RESULT;
    sparse->backend->complete(sparse, status);
}

baton_status_t baton_sparse_test(baton_sparse_t *sparse, bool *done_out)
{
    if (!baton__sparse_is_alive(sparse, __func__) ||
        !baton__is_given(done_out, true, __func__, "done_out")) {
        return baton__error_status();
    }
    baton_status_t status = baton__sparse_check_connected(sparse, "test");
    if (status != BATON_OK) {
        return status;
    }
    bool running = sparse->phase == BATON__SPARSE_RUNNING;
    if (!running && !baton__sparse_goes_on(&sparse->options)) {
        /* The step has ended. The test only makes progress, which peers may
           need. */
        (void)!baton_schedule_test(sparse->schedule, done_out);
        *done_out = true;
        return BATON_OK;
    }
    bool done = false;
    status = sparse_await(sparse, 0, &done);
    if (running && (status != BATON_OK || done)) {
        sparse_complete(sparse, status);
        done = true;
    }
    if (status == BATON_OK) {
        *done_out = done;
    }
    return status;
}

baton_status_t baton__sparse_end_step(baton_sparse_t *sparse, int timeout_ms)
{
    baton_status_t status = sparse_await(sparse, timeout_ms, NULL);
    if (status == BATON_ERR_INTERRUPTED) {
        /* A second await would not return this error, so there is none. */
        return status;
    }
    if (status != BATON_OK) {
        bool done = false;
        baton_status_t ended = sparse_await(sparse, 0, &done);
        if (ended == BATON_OK && !done) {
            return status; /* this was a time-out, and the step goes on */
        }
        status = ended;
    }
    sparse_complete(sparse, status);
    return status;
}

/* Returns the error of the last step again. Returns BATON_ERR_STATE if that
   step has no error. */
static baton_status_t no_result(const baton_sparse_t *sparse)
{
    bool done = false;
    bool none =
        sparse->latest == NULL && !baton__sparse_goes_on(&sparse->options);
    baton_status_t status =
        none || sparse->recovered ? BATON_OK : sparse_await(sparse, 0, &done);
    return status != BATON_OK
               ? status
               : baton__sparse_error(sparse, BATON_ERR_STATE, "wait for",
                                     "no step that was started has completed: "
                                     "call baton_sparse_start first");
}

baton_status_t baton_sparse_wait(baton_sparse_t *sparse, int timeout_ms,
                                 baton_sparse_result_t *out)
{
    if (!baton__sparse_is_alive(sparse, __func__) ||
        !baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    baton_status_t status = baton__sparse_check_connected(sparse, "wait for");
    if (status != BATON_OK) {
        return status;
    }
    if (sparse->phase == BATON__SPARSE_RUNNING) {
        status = baton__sparse_end_step(sparse, timeout_ms);
        if (status != BATON_OK) {
            return status;
        }
    } else if (sparse->results.unreturned > 0) {
        sparse->results.unreturned--;
        sparse_complete(sparse, BATON_OK);
    } else if (sparse->options.partial && sparse->recovered) {
        /* Waits have returned all results. */
        sparse->phase = BATON__SPARSE_NO_RESULT;
    }
    if (sparse->phase != BATON__SPARSE_RESULT) {
        return no_result(sparse);
    }
    if (sparse->backend->check_result != NULL) {
        status = sparse->backend->check_result(sparse);
    }
    if (status == BATON_OK) {
        *out = sparse->results.last;
    }
    return status;
}

static void sparse_end_step(void *arg, uint64_t epoch, baton_status_t status)
{
    baton_sparse_t *sparse = arg;
    /* `epoch` is not the step's number, since dense steps have their own
       schedule. */
    sparse->on_end(sparse->on_end_arg, ++sparse->ended, status);
}

static void set_on_end(baton_sparse_t *sparse, baton_end_fn fn)
{
    baton_schedule_on_end(sparse->schedule, fn, sparse);
    baton_schedule_on_end(sparse->dense, fn, sparse);
}

void baton_sparse_on_end(baton_sparse_t *sparse, baton_end_fn fn, void *arg)
{
    if (sparse == NULL) {
        (void)baton__error(BATON_ERR_INVALID, "%s: sparse is NULL", __func__);
        return;
    }
    if (baton__sparse_goes_on(&sparse->options)) {
        return;
    }
    set_on_end(sparse, NULL);
    sparse->on_end = fn;
    sparse->on_end_arg = arg;
    sparse->ended = 0;
    set_on_end(sparse, fn != NULL ? sparse_end_step : NULL);
}

baton_status_t baton__sparse_rebuild(baton_sparse_t *sparse,
                                     baton_group_t *group)
{
    baton__sparse_enter(sparse, baton_group_rank(group),
                        baton_group_size(group));
    sparse->wrong = (baton__wrong_t){0};
    sparse->group = group;
    sparse->latest = NULL;
    sparse->input.part_count = 0;
    baton_status_t status = create_schedules(sparse);
    if (status != BATON_OK) {
        baton__wrong_keep(&sparse->wrong, status);
        return status;
    }
    sparse_build(sparse);
    set_on_end(sparse, sparse->on_end != NULL ? sparse_end_step : NULL);
    return sparse->wrong.status == BATON_OK
               ? BATON_OK
               : baton__error_forward(sparse->wrong.status, sparse->wrong.text);
}

void *baton_sparse_accumulator(const baton_sparse_t *sparse)
{
    if (!baton__sparse_is_alive(sparse, __func__)) {
        return NULL;
    }
    if (!sparse->options.in_place) {
        (void)baton__sparse_error(sparse, BATON_ERR_STATE, "accumulator of",
                                  "create it with options.in_place");
        return NULL;
    }
    return sparse->residual;
}

/* Writes these elements of the last result to a dense vector. */
static void write_dense(const baton_sparse_t *sparse, size_t first,
                        size_t count, char *to)
{
    const baton_sparse_result_t *result = &sparse->results.last;
    const size_t size = sparse->element_bytes;
    const char *values = result->values;
    if (result->indices == NULL) {
        memcpy(to, values + first * size, count * size);
        return;
    }
    memset(to, 0, count * size);
    size_t i = baton__count_below(result->indices, result->count, first);
    for (; i < result->count && result->indices[i] - first < count; i++) {
        memcpy(to + (result->indices[i] - first) * size, values + i * size,
               size);
    }
}

baton_status_t baton_sparse_dense(baton_sparse_t *sparse, void *vector)
{
    return baton__sparse_is_alive(sparse, "result of")
               ? baton_sparse_dense_range(sparse, 0, sparse->count, vector)
               : baton__error_status();
}

baton_status_t baton_sparse_dense_range(baton_sparse_t *sparse, size_t first,
                                        size_t count, void *elements)
{
    baton_status_t status = baton__sparse_check_idle(sparse, "result of");
    if (status == BATON_OK) {
        status = baton__sparse_check_range(sparse, "result of", first, count);
    }
    if (status != BATON_OK) {
        return status;
    }
    bool any = sparse->phase == BATON__SPARSE_RESULT;
    if (!any || (elements == NULL && sparse->payload && count > 0)) {
        return baton__sparse_error(
            sparse, any ? BATON_ERR_INVALID : BATON_ERR_STATE, "result of",
            "%s",
            any ? "vector is NULL"
                : "there is none yet: wait for a step first");
    }
    if (sparse->payload && count > 0) {
        write_dense(sparse, first, count, elements);
    }
    return BATON_OK;
}

/* ---- between steps ----------------------------------------------------- */

/* Lets the application use the vectors: until the release no epoch begins to
   work. */
baton_status_t baton__sparse_hold(baton_sparse_t *sparse, const char *doing,
                                  bool even)
{
    baton_status_t status = baton__sparse_check_idle(sparse, doing);
    return status == BATON_OK && sparse->backend->hold != NULL
               ? sparse->backend->hold(sparse, doing, even)
               : status;
}

void baton__sparse_release(baton_sparse_t *sparse)
{
    if (sparse->backend->release != NULL) {
        sparse->backend->release(sparse);
    }
}

baton_status_t baton_sparse_set_k(baton_sparse_t *sparse, size_t k)
{
    baton_status_t status = check_full(sparse, "set k of");
    if (status != BATON_OK) {
        return status;
    }
    if (k == 0 || k > sparse->options.max_k) {
        return baton__sparse_error(sparse, BATON_ERR_INVALID, "sparse",
                                   "k is %zu; allowed: 1 to max_k, %zu", k,
                                   sparse->options.max_k);
    }
    sparse->k = k;
    return BATON_OK;
}

baton_status_t baton_sparse_set_density(baton_sparse_t *sparse, double density)
{
    baton_status_t status = baton__sparse_check_idle(sparse, "set density of");
    if (status != BATON_OK) {
        return status;
    }
    if (!baton__is_density(density)) {
        return baton__sparse_error(
            sparse, BATON_ERR_INVALID, "sparse",
            "density is %g; allowed: above 0 and at most 1", density);
    }
    return baton_sparse_set_k(sparse,
                              baton__entries_of(sparse->count, density));
}

static baton_status_t sparse_read_vector(baton_sparse_t *sparse, bool velocity,
                                         void *vector, const char *doing)
{
    baton_status_t status = baton__sparse_hold(sparse, doing, false);
    if (status != BATON_OK) {
        return status;
    }
    if (vector == NULL && sparse->payload) {
        status = baton__sparse_error(sparse, BATON_ERR_INVALID, doing,
                                     "vector is NULL");
    } else if (velocity && sparse->options.momentum == 0) {
        status = baton__sparse_error(sparse, BATON_ERR_STATE, doing,
                                     "there is none: momentum is 0");
    } else if (sparse->payload) {
        status = sparse->backend->read(sparse, velocity, vector);
    }
    baton__sparse_release(sparse);
    return status;
}

baton_status_t baton_sparse_residual(baton_sparse_t *sparse, void *vector)
{
    return sparse_read_vector(sparse, false, vector, "copy the residual of");
}

baton_status_t baton_sparse_velocity(baton_sparse_t *sparse, void *vector)
{
    return sparse_read_vector(sparse, true, vector, "copy the velocity of");
}

baton_status_t baton_sparse_set_residual(baton_sparse_t *sparse,
                                         const void *residual,
                                         const void *velocity)
{
    baton_status_t status =
        baton__sparse_hold(sparse, "set the residual of", false);
    if (status != BATON_OK) {
        return status;
    }
    const bool has_velocity = sparse->options.momentum > 0;
    sparse->input.part_count = 0;
    if (sparse->payload &&
        (residual == NULL || has_velocity != (velocity != NULL))) {
        const char *why = has_velocity ? "velocity is NULL"
                                       : "velocity is set, must be NULL: "
                                         "momentum is 0";
        status = baton__sparse_error(
            sparse, BATON_ERR_INVALID, "set the residual of", "%s",
            residual == NULL ? "residual is NULL" : why);
    } else if (sparse->payload) {
        status = sparse->backend->write(sparse, residual, velocity);
    }
    baton__sparse_release(sparse);
    if (status == BATON_OK && !sparse->options.partial) {
        sparse->phase = BATON__SPARSE_NO_RESULT;
    }
    return status;
}

baton_status_t baton_sparse_stats(baton_sparse_t *sparse,
                                  baton_sparse_stats_t *out)
{
    if (!baton__sparse_is_alive(sparse, __func__) ||
        !baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    baton_status_t status = baton__sparse_hold(sparse, "statistics of", false);
    if (status != BATON_OK) {
        return status;
    }
    *out = sparse->stats;
    out->steps = sparse->steps;
    out->k = sparse->k;
    out->h = (uint64_t)sparse->learned.h;
    out->teams = sparse->options.teams;
    out->threshold =
        baton_magnitude_value(sparse->dtype, sparse->learned.local_threshold);
    baton__sparse_release(sparse);
    /* Counts after the release, since counting may take long. No lock is
       needed: the result does not change until the caller's next call. */
    bool any = sparse->phase == BATON__SPARSE_RESULT;
    const baton_selection_t of = {.dtype = sparse->dtype,
                                  .values = sparse->results.last.values,
                                  .count =
                                      any ? sparse->results.last.count : 0};
    out->not_finite =
        baton_select_count(&of, baton_magnitude_of(of.dtype, INFINITY));
    return BATON_OK;
}
