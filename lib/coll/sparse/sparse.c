/* The life of a sparse all-reduce: memory, schedules, options between steps. */
#include "coll/sparse/on_device.h"
#include "coll/sparse/ordered.h"
#include "coll/sparse/partial.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <baton/coll.h>
#include <baton/partial.h>
#include <baton/sim.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const baton__sparse_algorithm_t *
algorithm_of(baton_sparse_algorithm_t algorithm)
{
    static const baton__sparse_algorithm_t *const table[BATON_SPARSE_COUNT] = {
        [BATON_SPARSE_SPARDL] = &baton__sparse_spardl,
        [BATON_SPARSE_TOPKA] = &baton__sparse_topka,
        [BATON_SPARSE_TOPKDSA] = &baton__sparse_topkdsa,
        [BATON_SPARSE_GTOPK] = &baton__sparse_gtopk,
        [BATON_SPARSE_OKTOPK] = &baton__sparse_oktopk,
        [BATON_SPARSE_REDSYNC] = &baton__sparse_redsync,
    };
    return table[algorithm];
}

/* ---- memory ------------------------------------------------------------ */

static baton_status_t no_memory(const baton_sparse_t *sparse)
{
    return baton__error(BATON_ERR_NO_MEMORY,
                        "sparse \"%s\": no memory for %zu elements of %zu "
                        "bytes and %zu entries",
                        sparse->name, sparse->options.count,
                        sparse->element_bytes, sparse->options.max_k);
}

void *baton__sparse_room(const baton_sparse_t *sparse, size_t count,
                         size_t bytes, bool *ok)
{
    if (!sparse->payload) {
        return NULL;
    }
    void *memory = baton__alloc(count, bytes);
    *ok = *ok && memory != NULL;
    return memory;
}

bool baton__sparse_result_room(baton_sparse_t *sparse, size_t capacity)
{
    bool ok = true;
    sparse->result_capacity = capacity;
    if (sparse->partial != NULL) {
        return baton__sparse_partial_result_room(sparse, capacity);
    }
    sparse->result_indices = baton__sparse_result_memory(
        sparse, capacity, sizeof *sparse->result_indices, &ok);
    sparse->result_values = baton__sparse_result_memory(
        sparse, capacity, sparse->element_bytes, &ok);
    return ok;
}

static baton_status_t allocate(baton_sparse_t *sparse)
{
    bool ok = true;
    size_t count = sparse->options.count;
    if (sparse->device != NULL) {
        sparse->work = baton__sparse_staged(sparse);
        return BATON_OK;
    }
    sparse->residual =
        baton__sparse_room(sparse, count, sparse->element_bytes, &ok);
    sparse->work =
        baton__sparse_room(sparse, count, sparse->element_bytes, &ok);
    if (sparse->options.momentum > 0) {
        sparse->velocity =
            baton__sparse_room(sparse, count, sparse->element_bytes, &ok);
    }
    return ok ? BATON_OK : no_memory(sparse);
}

/* ---- schedules --------------------------------------------------------- */

struct baton__sparse_call {
    baton_sparse_t *sparse;
    baton_call_fn fn;
    void *arg;
    baton__sparse_call_t *next;
};

static baton_status_t timed(void *arg, baton_call_t *call)
{
    const baton__sparse_call_t *self = arg;
    uint64_t begin_ns = baton__clock_thread_ns();
    baton_status_t status = self->fn(self->arg, call);
    self->sparse->counting.select_us +=
        (double)(baton__clock_thread_ns() - begin_ns) / 1e3;
    return status;
}

baton_node_t baton__sparse_add_call(baton_sparse_t *sparse,
                                    baton_schedule_t *schedule,
                                    baton_call_fn fn, void *arg)
{
    baton__sparse_call_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "sparse \"%s\": no memory for a call node",
                            sparse->name);
        return baton_add_call(schedule, fn, arg);
    }
    *self = (baton__sparse_call_t){sparse, fn, arg, sparse->calls};
    sparse->calls = self;
    return baton_add_call(schedule, timed, self);
}

static baton_status_t accumulate_all(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    baton_status_t status = baton__sparse_begin(sparse, call);
    baton__sparse_accumulate(sparse, 0, sparse->options.count);
    return status;
}

static baton_status_t publish_dense(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    (void)call;
    if (sparse->payload && sparse->options.average) {
        baton_elements_scale(sparse->options.dtype, sparse->work,
                             sparse->options.count, 1.0 / sparse->size);
    }
    return BATON_OK;
}

/*     accumulate --> all-reduce of work --> publish

   With the residual on a device it is accumulated there, and copied. Which
   all-reduce depends on nothing but the size, so that a run has the same bits
   on every machine and in the simulator. */
static void build_dense(baton_sparse_t *sparse)
{
    baton_schedule_t *s = sparse->dense;
    size_t bytes = sparse->options.count * sparse->element_bytes;
    baton__loaded_t loaded = baton__sparse_load_begin(sparse, true);
    sparse->dense_buffer = baton_buffer_bind(s, sparse->work, bytes);
    baton_view_t view = baton_view(sparse->dense_buffer, 0, bytes);
    baton_node_t begin;
    if (sparse->device != NULL) {
        begin = baton__sparse_device_add_dense(sparse, view);
    } else {
        begin = baton__sparse_add_call(sparse, s, accumulate_all, sparse);
    }
    baton_node_t publish = baton_add_call(s, publish_dense, sparse);
    baton_allreduce_t args = {.size = sizeof args,
                              .source = view,
                              .target = view,
                              .dtype = sparse->options.dtype,
                              .op = BATON_SUM};
    baton_enclosure_t inside = baton_enclose_begin(s);
    (bytes <= BATON_PARTIAL_TREE_BYTES ? baton_allreduce_binomial
                                       : baton_allreduce_circulant)(s, &args);
    baton_enclose_end(s, inside, begin, publish);
    baton__sparse_load_end(sparse, true, &loaded);
}

/* All ranks are told the same epoch, so they agree on the number of steps. */
static void recover_sparse(void *arg, uint64_t epoch)
{
    baton_sparse_t *sparse = arg;
    baton__sparse_ordered_recover_begin(sparse, false);
    sparse->sparse_base += epoch;
    sparse->steps = sparse->sparse_base + sparse->dense_base;
    sparse->learned = (baton__learned_t){0};
    sparse->recovered = true;
    baton__sparse_ordered_recover_end(sparse);
}

static void recover_dense(void *arg, uint64_t epoch)
{
    baton_sparse_t *sparse = arg;
    baton__sparse_ordered_recover_begin(sparse, true);
    sparse->dense_base += epoch;
    sparse->steps = sparse->sparse_base + sparse->dense_base;
    sparse->recovered = true;
    baton__sparse_ordered_recover_end(sparse);
}

static baton_status_t build_partial(baton_sparse_t *sparse)
{
    baton_status_t status = baton__sparse_partial_create(sparse);
    if (status == BATON_OK) {
        status = baton__sparse_partial_build(sparse);
    }
    return status == BATON_OK ? BATON_OK : no_memory(sparse);
}

/* Adds the nodes of both schedules. */
static baton_status_t build_schedules(baton_sparse_t *sparse)
{
    sparse->algorithm = algorithm_of(sparse->options.algorithm);
    baton_status_t status = BATON_OK;
    if (sparse->options.memory == BATON_MEMORY_DEVICE) {
        status = baton__sparse_ordered_create(sparse);
        if (status == BATON_OK) {
            status = baton__sparse_device_create(sparse);
        }
    }
    if (status == BATON_OK) {
        status = allocate(sparse);
    }
    if (status != BATON_OK || sparse->options.partial) {
        return status == BATON_OK ? build_partial(sparse) : status;
    }
    build_dense(sparse);
    baton_schedule_on_recover(sparse->dense, recover_dense, sparse);
    if (sparse->algorithm == NULL) {
        return BATON_OK; /* dense */
    }
    baton_schedule_on_recover(sparse->schedule, recover_sparse, sparse);
    baton__loaded_t loaded = baton__sparse_load_begin(sparse, false);
    status = sparse->algorithm->build(sparse);
    baton__sparse_load_end(sparse, false, &loaded);
    return status == BATON_OK ? BATON_OK : no_memory(sparse);
}

/* All three on every rank, whatever its options: a schedule's peers are found
   by its name and how many of that name were made before. */
static baton_status_t create_schedules(baton_sparse_t *sparse)
{
    baton_schedule_t **schedules[] = {&sparse->comparison, &sparse->dense,
                                      &sparse->schedule};
    baton_status_t status = BATON_OK;
    for (int i = 0; i < 3 && status == BATON_OK; i++) {
        status =
            baton_schedule_create(sparse->group, sparse->name, schedules[i]);
    }
    return status;
}

static void keep_error(baton_sparse_t *sparse, baton_status_t status)
{
    if (sparse->wrong == BATON_OK && status != BATON_OK) {
        sparse->wrong = status;
        (void)snprintf(sparse->wrong_text, sizeof sparse->wrong_text, "%s",
                       baton_error_message());
    }
}

/* What fails here fails on this rank alone; so it is kept, and told to the
   others by the comparison. Both are committed in any case: where commits are
   verified, all ranks take part in each. */
static void build(baton_sparse_t *sparse)
{
    if (sparse->wrong == BATON_OK) {
        keep_error(sparse, build_schedules(sparse));
    }
    if (sparse->wrong == BATON_OK) {
        keep_error(sparse, baton__sparse_ordered_build_giving(sparse));
    }
    if (sparse->wrong == BATON_OK) {
        keep_error(sparse, baton__sparse_device_build_moving(sparse));
    }
    keep_error(sparse, baton_schedule_commit(sparse->dense));
    keep_error(sparse, baton_schedule_commit(sparse->schedule));
}

/* ---- life -------------------------------------------------------------- */

/* Options are not among these: a rank whose options are wrong takes part in the
   comparison, so that all fail. */
static baton_status_t check_arguments(baton_group_t *group,
                                      baton_sparse_t **out)
{
    if (group == NULL || out == NULL) {
        return baton__error(BATON_ERR_INVALID, "create a sparse: %s is NULL",
                            group == NULL ? "group" : "out");
    }
    return BATON_OK;
}

static void free_sparse(baton_sparse_t *sparse)
{
    if (sparse->algorithm != NULL && sparse->state != NULL) {
        sparse->algorithm->destroy(sparse);
    }
    baton__sparse_partial_destroy(sparse);
    while (sparse->calls != NULL) {
        baton__sparse_call_t *next = sparse->calls->next;
        baton__free(sparse->calls);
        sparse->calls = next;
    }
    baton__free(sparse->name);
    baton__free(sparse->compared);
    baton__free(sparse->residual);
    if (sparse->device == NULL) {
        baton__free(sparse->work);
    }
    baton__free(sparse->velocity);
    baton__free(sparse->extra);
    baton__sparse_result_free(sparse, sparse->result_indices);
    baton__sparse_result_free(sparse, sparse->result_values);
    baton__sparse_device_free(sparse);
    baton__sparse_ordered_free(sparse);
    baton__free(sparse);
}

baton_status_t baton_sparse_prepare(baton_group_t *group,
                                    const baton_sparse_options_t *given,
                                    baton_sparse_t **out)
{
    baton_sparse_options_t options;
    baton_status_t status = check_arguments(group, out);
    if (status != BATON_OK) {
        return status;
    }
    baton_sparse_t *sparse = baton__alloc(1, sizeof *sparse);
    if (sparse == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a sparse");
    }
    sparse->group = group;
    sparse->rank = baton_group_rank(group);
    sparse->size = baton_group_size(group);
    sparse->payload = baton_group_has_payload(group);
    keep_error(sparse, baton__sparse_read(given, &options));
    sparse->name =
        baton__copy_string(options.name != NULL ? options.name : "sparse");
    if (sparse->name == NULL) {
        free_sparse(sparse);
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a sparse");
    }
    sparse->options = options;
    sparse->asked = options;
    status = create_schedules(sparse);
    if (status == BATON_OK && sparse->wrong == BATON_OK) {
        sparse->wrong = baton__sparse_resolve(
            &options, sparse->size, baton_schedule_hosts(sparse->schedule),
            &sparse->asked, sparse->wrong_text, sizeof sparse->wrong_text);
        sparse->options = sparse->asked;
    }
    if (status == BATON_OK && sparse->wrong == BATON_OK) {
        baton__sparse_take_choice(&sparse->options, sparse->size);
    }
    if (status == BATON_OK) {
        sparse->options.name = sparse->name;
        sparse->element_bytes = baton_dtype_size(sparse->options.dtype);
        sparse->entry_bytes = baton_entry_bytes(sparse->options.dtype);
        sparse->k = sparse->options.k;
        build(sparse);
        status = baton__sparse_compare_start(sparse);
    }
    if (status != BATON_OK) {
        (void)!baton_sparse_destroy(sparse);
        return status;
    }
    *out = sparse;
    return BATON_OK;
}

static baton_status_t check_sparse(const baton_sparse_t *sparse,
                                   const char *doing)
{
    return sparse != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID, "%s: sparse is NULL", doing);
}

baton_status_t baton_sparse_connect(baton_sparse_t *sparse, int timeout_ms)
{
    baton_status_t status = check_sparse(sparse, "connect");
    if (status != BATON_OK || sparse->connected) {
        return status;
    }
    status = baton_schedule_wait(sparse->comparison, timeout_ms);
    if (status == BATON_OK) {
        status = baton__sparse_compare_end(sparse);
    }
    sparse->connected = status == BATON_OK;
    return status;
}

baton_status_t baton_sparse_create(baton_group_t *group,
                                   const baton_sparse_options_t *options,
                                   int timeout_ms, baton_sparse_t **out)
{
    baton_sparse_t *sparse = NULL;
    baton_status_t status = check_arguments(group, out);
    if (status == BATON_OK) {
        status = baton_sparse_prepare(group, options, &sparse);
    }
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
    baton_schedule_t **schedules[] = {&sparse->schedule, &sparse->dense,
                                      &sparse->comparison};
    baton_status_t given = baton__sparse_ordered_destroy_giving(sparse);
    if (given == BATON_OK) {
        given = baton__sparse_device_destroy_moving(sparse);
    }
    if (given != BATON_OK) {
        return given; /* as below */
    }
    for (int i = 0; i < 3; i++) {
        baton_status_t status = baton_schedule_destroy(*schedules[i]);
        if (status == BATON_ERR_STATE) {
            return status;
        }
        *schedules[i] = NULL;
        if (status != BATON_OK) {
            return status; /* vectors are still in use, and are not freed */
        }
    }
    free_sparse(sparse);
    return BATON_OK;
}

const baton_schedule_t *baton_sparse_schedule(const baton_sparse_t *sparse)
{
    return sparse != NULL && sparse->algorithm != NULL ? sparse->schedule
                                                       : NULL;
}

/* ---- between steps ----------------------------------------------------- */

baton_status_t baton__sparse_check_connected(const baton_sparse_t *sparse,
                                             const char *doing)
{
    baton_status_t status = check_sparse(sparse, doing);
    return status != BATON_OK || sparse->connected
               ? status
               : baton__error(BATON_ERR_STATE, "%s \"%s\": it is not connected",
                              doing, sparse->name);
}

baton_status_t baton__sparse_check_idle(const baton_sparse_t *sparse,
                                        const char *doing)
{
    baton_status_t status = baton__sparse_check_connected(sparse, doing);
    return status != BATON_OK || sparse->running == NULL
               ? status
               : baton__error(BATON_ERR_BUSY, "%s \"%s\": a step is running",
                              doing, sparse->name);
}

baton_status_t baton_sparse_set_k(baton_sparse_t *sparse, size_t k)
{
    baton_status_t status = baton__sparse_check_full(sparse, "set k of");
    if (status == BATON_OK) {
        status = baton__sparse_check_idle(sparse, "set k of");
    }
    if (status != BATON_OK) {
        return status;
    }
    if (k == 0 || k > sparse->options.max_k) {
        return baton__error(BATON_ERR_INVALID,
                            "sparse \"%s\": k is %zu; allowed: 1 to max_k, %zu",
                            sparse->name, k, sparse->options.max_k);
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
    if (!(density > 0 && density <= 1)) {
        return baton__error(BATON_ERR_INVALID,
                            "sparse \"%s\": density is %g; allowed: above 0 "
                            "and at most 1",
                            sparse->name, density);
    }
    double k = (double)sparse->options.count * density;
    return baton_sparse_set_k(sparse, k < 1 ? 1 : (size_t)k);
}

baton_status_t baton_sparse_scale_residual(baton_sparse_t *sparse,
                                           double factor)
{
    baton_status_t status = baton__sparse_hold(sparse, "scale the residual of");
    if (status != BATON_OK) {
        return status;
    }
    if (!isfinite(factor)) {
        status = baton__error(BATON_ERR_INVALID,
                              "sparse \"%s\": the residual's factor is %g; "
                              "allowed: finite",
                              sparse->name, factor);
    } else if (sparse->device != NULL) {
        status = baton__sparse_device_scale(sparse, factor);
    } else if (sparse->payload) {
        baton_elements_scale(sparse->options.dtype, sparse->residual,
                             sparse->options.count, factor);
        baton__sparse_partial_scale(sparse, factor);
    }
    baton__sparse_release(sparse);
    return status;
}

baton_status_t baton_sparse_residual(baton_sparse_t *sparse, void *vector)
{
    baton_status_t status = baton__sparse_hold(sparse, "copy the residual of");
    if (status != BATON_OK) {
        return status;
    }
    if (vector == NULL && sparse->payload) {
        status =
            baton__error(BATON_ERR_INVALID,
                         "residual of \"%s\": vector is NULL", sparse->name);
    } else if (sparse->device != NULL) {
        status = baton__sparse_device_read(sparse, false, vector);
    } else if (sparse->payload) {
        memcpy(vector, sparse->residual,
               sparse->options.count * sparse->element_bytes);
        baton__sparse_partial_add_pending(sparse, vector);
    }
    baton__sparse_release(sparse);
    return status;
}

static baton_status_t measure_residual(baton_sparse_t *sparse, double *norm_out)
{
    const baton_sparse_options_t *o = &sparse->options;
    baton_status_t status = BATON_OK;
    double squares = 0;
    if (sparse->device != NULL) {
        status = baton__sparse_device_square_sum(sparse, &squares);
    } else if (sparse->payload) {
        squares = baton_elements_measure(o->dtype, sparse->residual, o->count)
                      .square_sum;
    }
    *norm_out = sqrt(squares);
    return status;
}

baton_status_t baton_sparse_stats(baton_sparse_t *sparse,
                                  baton_sparse_stats_t *out)
{
    baton_status_t status = check_sparse(sparse, "statistics of");
    if (sparse == NULL || status != BATON_OK) {
        return status;
    }
    if (out == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "statistics of \"%s\": out is NULL", sparse->name);
    }
    status = baton__sparse_hold(sparse, "statistics of");
    if (status != BATON_OK) {
        return status;
    }
    double norm = 0;
    status = measure_residual(sparse, &norm);
    if (status == BATON_OK) {
        *out = sparse->stats;
        out->steps = sparse->steps;
        out->k = sparse->k;
        out->h = (uint64_t)sparse->learned.h;
        out->teams = sparse->options.teams;
        out->threshold = baton_magnitude_value(sparse->options.dtype,
                                               sparse->learned.local_threshold);
        out->residual_norm = norm;
    }
    baton__sparse_release(sparse);
    return status;
}
