/* A set of tensors: create, destroy and steps.

   Each unit, which is a tensor or all packed ones, has a sparse all-reduce with
   schedules of its own. So units may start in any order, which may differ
   between ranks, and may run at the same time. With clipping, a unit whose
   gradients are ready waits for the other units, since the norm is that of all
   gradients.

   With options.partial there is one unit, a partial sparse all-reduce of all
   tensors: it has one activation, and clips by the norm of all gradients. Each
   wait for a tensor returns the tensor's entries of the unit's present result.
   If an earlier wait has returned them already, the wait first takes the unit's
   next result. */
#include "coll/sparse/tensors/tensors.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "coll/kit/pattern.h"

#include <stdio.h>
#include <string.h>

/* ---- life -------------------------------------------------------------- */

static void free_set(baton_tensors_t *set)
{
    for (size_t i = 0; set->members != NULL && i < set->count; i++) {
        baton__free((void *)(uintptr_t)set->members[i].tensor.name);
    }
    for (size_t i = 0; set->units != NULL && i < set->unit_count; i++) {
        baton__free(set->units[i].pack);
        baton__free(set->units[i].indices);
    }
    baton__free(set->members);
    baton__free(set->units);
    baton__free(set->densities);
    baton__free(set->name);
    memset(set, 0, sizeof *set);
    baton__free_later(set);
}

static bool copy_tensors(baton_tensors_t *set, const baton_tensor_t *tensors,
                         size_t count)
{
    set->members = baton__alloc(count, sizeof *set->members);
    set->units = baton__alloc(count, sizeof *set->units);
    set->count = set->members != NULL ? count : 0;
    bool ok = set->members != NULL && set->units != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        char number[32];
        const char *name = tensors[i].name;
        (void)snprintf(number, sizeof number, "%zu", i);
        set->members[i].tensor = tensors[i];
        set->members[i].tensor.name =
            baton__copy_string(name != NULL ? name : number);
        ok = set->members[i].tensor.name != NULL;
    }
    return ok;
}

static bool copy_options(baton_tensors_t *set,
                         const baton_tensors_options_t *options)
{
    size_t count = options->density_count;
    set->options = *options;
    set->name =
        baton__copy_string(options->name != NULL ? options->name : "tensors");
    set->densities = baton__alloc(count, sizeof *set->densities);
    if (set->name == NULL || set->densities == NULL) {
        return false;
    }
    if (count > 0) {
        memcpy(set->densities, options->densities, count * sizeof(double));
    }
    set->options.name = set->name;
    set->options.densities = set->densities;
    return true;
}

static baton_status_t check_arguments(baton_group_t *group,
                                      const baton_tensor_t *tensors,
                                      size_t count,
                                      const baton_tensors_options_t *options,
                                      baton_tensors_t *const *out)
{
    const char *wrong = NULL;
    if (baton_group_size(group) < 0) {
        wrong = "group is NULL, or was destroyed";
    } else if (count == 0) {
        wrong = "count is 0; allowed: 1 and above";
    } else if (tensors == NULL) {
        wrong = "tensors is NULL";
    } else if (options->density_count > 0 && options->densities == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "create tensors: densities is NULL, and "
                            "density_count is %zu",
                            options->density_count);
    } else if (out == NULL) {
        wrong = "out is NULL";
    }
    return baton__error(wrong == NULL ? BATON_OK : BATON_ERR_INVALID,
                        "create tensors: %s", wrong);
}

static baton_status_t tensors_init(baton_tensors_t *set,
                                   const baton_tensor_t *tensors, size_t count,
                                   const baton_tensors_options_t *options)
{
    if (!copy_tensors(set, tensors, count) || !copy_options(set, options)) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for %zu tensors",
                            count);
    }
    baton_status_t status =
        baton_schedule_create(set->group, set->name, &set->comparison);
    if (status == BATON_OK) {
        baton__tensors_resolve(set);
        baton__tensors_state(set, set->comparison);
        status = baton__sparse_compare(set->comparison, &set->wrong);
    }
    return status;
}

baton_status_t baton_tensors_prepare(baton_group_t *group,
                                     const baton_tensor_t *tensors,
                                     size_t count,
                                     const baton_tensors_options_t *passed,
                                     baton_tensors_t **out)
{
    baton_tensors_options_t options;
    baton_status_t status =
        baton__options_read(&options, sizeof options, passed, "tensors options",
                            "BATON_TENSORS_OPTIONS");
    if (status == BATON_OK) {
        status = check_arguments(group, tensors, count, &options, out);
    }
    if (status != BATON_OK || out == NULL) {
        return status;
    }
    baton_tensors_t *set = baton__alloc(1, sizeof *set);
    if (set == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for %zu tensors",
                            count);
    }
    set->group = group;
    set->ranks = baton_group_size(group);
    set->payload = baton_group_has_payload(group);
    status = tensors_init(set, tensors, count, &options);
    if (status != BATON_OK) {
        (void)!baton_tensors_destroy(set);
        return status;
    }
    *out = set;
    return BATON_OK;
}

/* ---- all-reduces ------------------------------------------------------- */

/* Returns the largest k of a tensor of `count` elements, both in the warm-up
   and after it. */
static size_t most_entries(const baton_tensors_t *set, size_t count)
{
    size_t most = baton__entries_of(count, set->options.density);
    for (size_t i = 0; i < set->options.density_count; i++) {
        size_t k = baton__entries_of(count, set->densities[i]);
        most = k > most ? k : most;
    }
    return most;
}

static baton_sparse_options_t options_of(const baton_tensors_t *set,
                                         const baton__unit_t *unit,
                                         const baton__member_t *member)
{
    const baton_tensors_options_t *o = &set->options;
    const baton_tensor_plan_t *plan = &member->plan;
    bool sparse = plan->form == BATON_TENSOR_SPARSE;
    baton_sparse_options_t options = baton__tensors_common(set);
    options.algorithm = plan->algorithm;
    options.count = unit->count;
    options.k = sparse ? plan->k : 1;
    options.max_k = sparse ? most_entries(set, unit->count) : 0;
    /* Without options.partial the set itself clips, by the norm of all
       gradients. */
    options.clip = o->partial ? o->clip : 0;
    options.warmup = sparse && o->density_count == 0 ? o->warmup : 0;
    options.redsync = plan->selection;
    options.quantise = plan->quantise;
    return options;
}

static baton_status_t prepare_units(baton_tensors_t *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const baton__member_t *member = &set->members[i];
        baton__unit_t *unit = &set->units[member->unit];
        if (unit->sparse != NULL) {
            /* The unit's all-reduce was made for another of its tensors. */
            continue;
        }
        baton_sparse_options_t options = options_of(set, unit, member);
        baton_status_t status =
            baton_sparse_prepare(set->group, &options, &unit->sparse);
        if (status != BATON_OK) {
            return status;
        }
        unit->sparse->agree = baton__tensors_state;
        unit->sparse->agree_arg = set;
        if (baton__tensors_packs(set, member) && set->payload) {
            unit->pack = baton__alloc(unit->count, set->element_bytes);
            unit->indices = baton__alloc(unit->sparse->results.capacity,
                                         sizeof *unit->indices);
            if (unit->pack == NULL || unit->indices == NULL) {
                return baton__error(BATON_ERR_NO_MEMORY,
                                    "tensors \"%s\": no memory to pack %zu "
                                    "elements",
                                    set->name, unit->count);
            }
            unit->gradient = unit->pack;
        }
    }
    return BATON_OK;
}

static baton_status_t check_set(const baton_tensors_t *set, const char *doing)
{
    return baton__is_alive(set, set != NULL && set->group == NULL, doing,
                           "set") &&
                   baton__process_is_own(doing)
               ? BATON_OK
               : baton__error_status();
}

static baton_status_t check_connected(const baton_tensors_t *set,
                                      const char *doing)
{
    baton_status_t status = check_set(set, doing);
    return status != BATON_OK || set->connected
               ? status
               : baton__error(BATON_ERR_STATE,
                              "%s \"%s\": it is not connected: call "
                              "baton_tensors_connect first",
                              doing, set->name);
}

baton_status_t baton_tensors_agree(baton_tensors_t *set, int timeout_ms)
{
    baton_status_t status = check_set(set, "agree");
    if (status != BATON_OK || set->agreed) {
        return status;
    }
    status = baton__sparse_compared(
        set->comparison, &set->wrong,
        set->options.on_loss == BATON_ON_LOSS_CONTINUE, timeout_ms);
    if (status == BATON_OK) {
        baton__tensors_decide(set);
        status = prepare_units(set);
    }
    set->agreed = status == BATON_OK;
    return status;
}

static baton_status_t forget_comparison(baton_tensors_t *set)
{
    baton_status_t status = baton_schedule_destroy(set->comparison);
    if (status == BATON_OK) {
        set->comparison = NULL;
    }
    return status;
}

baton_status_t baton_tensors_connect(baton_tensors_t *set, int timeout_ms)
{
    baton_status_t status = check_set(set, "connect");
    if (status == BATON_OK && !set->agreed) {
        status = baton__error(BATON_ERR_STATE,
                              "connect \"%s\": call baton_tensors_agree first",
                              set->name);
    }
    for (size_t i = 0; status == BATON_OK && i < set->unit_count; i++) {
        status = baton_sparse_connect(set->units[i].sparse, timeout_ms);
    }
    if (status == BATON_OK && set->options.on_loss == BATON_ON_LOSS_CONTINUE) {
        /* After this call the application may destroy the group, since no
           schedule of the set is left in it. */
        status = forget_comparison(set);
    }
    if (status == BATON_OK) {
        set->connected = true;
    }
    return status;
}

baton_status_t baton_tensors_create(baton_group_t *group,
                                    const baton_tensor_t *tensors, size_t count,
                                    const baton_tensors_options_t *options,
                                    int timeout_ms, baton_tensors_t **out)
{
    baton_tensors_t *set = NULL;
    baton_status_t status = baton_tensors_prepare(
        group, tensors, count, options, out != NULL ? &set : NULL);
    if (status != BATON_OK || set == NULL) {
        return status;
    }
    status = baton_tensors_agree(set, timeout_ms);
    if (status == BATON_OK) {
        status = baton_tensors_connect(set, timeout_ms);
    }
    if (status != BATON_OK) {
        (void)!baton_tensors_destroy(set);
        return status;
    }
    *out = set;
    return BATON_OK;
}

baton_status_t baton_tensors_destroy(baton_tensors_t *set)
{
    if (set == NULL) {
        return BATON_OK;
    }
    baton_status_t status = check_set(set, "destroy");
    if (status == BATON_OK) {
        status = forget_comparison(set);
    }
    for (size_t i = 0; status == BATON_OK && i < set->unit_count; i++) {
        status = baton_sparse_destroy(set->units[i].sparse);
        if (status == BATON_OK) {
            set->units[i].sparse = NULL;
        }
    }
    /* After an error, all-reduces of the set may still use its memory. */
    if (status == BATON_OK) {
        free_set(set);
    }
    return status;
}

/* The plans of the tensors stay the same after a shrink. */
baton_status_t baton_tensors_shrink(baton_tensors_t *set,
                                    baton_group_t *survivors, int timeout_ms)
{
    baton_status_t status = check_connected(set, "shrink");
    uint64_t until = baton__deadline(timeout_ms);
    for (size_t i = 0; status == BATON_OK && i < set->unit_count; i++) {
        status = baton_sparse_shrink(set->units[i].sparse, survivors,
                                     baton__left_ms(until));
    }
    if (status == BATON_OK) {
        status = forget_comparison(set);
    }
    if (status == BATON_OK) {
        set->group = survivors;
        set->ranks = baton_group_size(survivors);
    }
    return status;
}

/* ---- starting ---------------------------------------------------------- */

static baton_status_t check_tensor(const baton_tensors_t *set, size_t tensor,
                                   const void *out, const char *doing)
{
    baton_status_t status = check_connected(set, doing);
    if (status != BATON_OK) {
        return status;
    }
    if (out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s \"%s\": out is NULL", doing,
                            set->name);
    }
    return tensor < set->count
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s \"%s\": tensor is %zu; allowed: 0 to %zu",
                              doing, set->name, tensor, set->count - 1);
}

/* Makes the unit ready for the next gradients. */
static void tensors_reset(baton_tensors_t *set, baton__unit_t *unit)
{
    for (size_t i = 0; unit->ready > 0 && i < set->count; i++) {
        if (&set->units[set->members[i].unit] == unit) {
            set->members[i].ready = false;
        }
    }
    unit->ready = 0;
}

/* Sets the density of a unit's next step. In the warm-up, each of the densities
   is used for an equal share of the steps. */
static baton_status_t set_density(const baton_tensors_t *set,
                                  baton__unit_t *unit)
{
    const baton_tensors_options_t *o = &set->options;
    uint64_t step = unit->sparse->steps;
    if (o->density_count == 0 ||
        unit->sparse->options.algorithm == BATON_SPARSE_DENSE) {
        return BATON_OK;
    }
    double density = o->density;
    if (step < o->warmup) {
        double share = (double)step / (double)o->warmup;
        density = set->densities[(size_t)(share * (double)o->density_count)];
    }
    if (density == unit->density) {
        return BATON_OK;
    }
    unit->density = density;
    return baton_sparse_set_density(unit->sparse, density);
}

static baton_status_t start_unit(baton_tensors_t *set, baton__unit_t *unit,
                                 double factor)
{
    baton_status_t status = set_density(set, unit);
    if (status == BATON_OK) {
        status =
            baton__sparse_start_scaled(unit->sparse, unit->gradient, factor);
    }
    unit->started = status == BATON_OK;
    unit->has_result = unit->has_result && !unit->started;
    if (status != BATON_OK) {
        tensors_reset(set, unit);
    }
    return status;
}

/* Returns true if units wait for the gradients of other units. */
static bool waits_to_clip(const baton_tensors_t *set)
{
    return set->options.clip > 0 && !set->options.partial;
}

/* Returns the factor of local clipping, which depends on the norm of all
   gradients. */
static double tensors_clip_factor(const baton_tensors_t *set)
{
    double square_sum = 0;
    for (size_t i = 0; set->payload && i < set->unit_count; i++) {
        const baton__unit_t *unit = &set->units[i];
        square_sum += baton_elements_measure(set->options.dtype, unit->gradient,
                                             unit->count)
                          .square_sum;
    }
    return baton__clip_factor(set->options.clip, set->ranks, square_sum);
}

static baton_status_t tensors_start_all(baton_tensors_t *set)
{
    baton_status_t status = BATON_OK;
    double factor = tensors_clip_factor(set);
    set->ready_units = 0;
    for (size_t i = 0; i < set->unit_count; i++) {
        baton_status_t one = start_unit(set, &set->units[i], factor);
        status = status == BATON_OK ? one : status;
    }
    return status;
}

baton_status_t baton_tensors_ready(baton_tensors_t *set, size_t tensor,
                                   const void *gradient)
{
    baton_status_t status = check_tensor(set, tensor, set, "ready");
    if (status != BATON_OK) {
        return status;
    }
    baton__member_t *member = &set->members[tensor];
    baton__unit_t *unit = &set->units[member->unit];
    if (gradient == NULL && set->payload) {
        return baton__error(BATON_ERR_INVALID,
                            "tensor \"%s\" of \"%s\": gradient is NULL",
                            member->tensor.name, set->name);
    }
    if (member->ready) {
        return baton__error(BATON_ERR_BUSY,
                            "tensor \"%s\" of \"%s\": its last step was not "
                            "waited for: call baton_tensors_wait first",
                            member->tensor.name, set->name);
    }
    member->ready = true;
    unit->started = false;
    if (unit->pack == NULL) {
        unit->gradient = gradient;
    } else if (gradient != NULL) {
        memcpy(unit->pack + member->offset * set->element_bytes, gradient,
               member->tensor.count * set->element_bytes);
    }
    if (++unit->ready < unit->members) {
        return BATON_OK;
    }
    if (!waits_to_clip(set)) {
        return start_unit(set, unit, 1);
    }
    return ++set->ready_units < set->unit_count ? BATON_OK
                                                : tensors_start_all(set);
}

/* ---- waiting ----------------------------------------------------------- */

baton_status_t baton_tensors_test(baton_tensors_t *set, size_t tensor,
                                  bool *done_out)
{
    baton_status_t status = check_tensor(set, tensor, done_out, "test");
    if (status != BATON_OK) {
        return status;
    }
    baton__unit_t *unit = &set->units[set->members[tensor].unit];
    status = baton_sparse_test(unit->sparse, done_out);
    if (!unit->started) {
        *done_out = false;
        return BATON_OK;
    }
    if (status != BATON_OK) {
        tensors_reset(set, unit);
    }
    return status;
}

/* Returns an error that names a tensor whose gradient was not passed yet. */
static baton_status_t not_started(const baton_tensors_t *set, size_t tensor)
{
    const baton__member_t *member = &set->members[tensor];
    const baton__member_t *missing = member;
    bool clips = waits_to_clip(set);
    for (size_t i = 0; missing->ready && i < set->count; i++) {
        if (clips || set->members[i].unit == member->unit) {
            missing = &set->members[i];
        }
    }
    const char *why =
        clips ? ", which counts for clipping," : ", which is packed with it,";
    return baton__error(
        BATON_ERR_STATE,
        "wait for tensor \"%s\" of \"%s\": the gradient of tensor \"%s\"%s is "
        "not ready",
        member->tensor.name, set->name, missing->tensor.name,
        missing == member ? "" : why);
}

/* Returns those entries of a result of the unit that belong to one tensor of
   the unit. */
static baton_sparse_result_t tensors_part_of(const baton_tensors_t *set,
                                             const baton__unit_t *unit,
                                             const baton__member_t *member,
                                             baton_sparse_result_t result)
{
    size_t begin = member->offset, end = begin + member->tensor.count;
    if (unit->pack == NULL) {
        return result;
    }
    if (result.indices != NULL) {
        begin = baton__count_below(result.indices, result.count, begin);
        end = baton__count_below(result.indices, result.count, end);
        for (size_t i = begin; i < end; i++) {
            unit->indices[i] = result.indices[i] - (uint32_t)member->offset;
        }
        result.indices = unit->indices + begin;
    }
    result.values = (const char *)result.values + begin * set->element_bytes;
    result.count = end - begin;
    return result;
}

/* Used with options.partial. Takes the next result into unit->result if there
   is none, or if a wait has returned this tensor's part of it already. */
static baton_status_t next_result(baton_tensors_t *set, baton__unit_t *unit,
                                  baton__member_t *member, int timeout_ms)
{
    baton_status_t status = BATON_OK;
    if (!unit->has_result || member->shown) {
        status = baton_sparse_wait(unit->sparse, timeout_ms, &unit->result);
        unit->has_result = status == BATON_OK;
        for (size_t i = 0; i < set->count; i++) {
            set->members[i].shown = false;
        }
    }
    member->shown = status == BATON_OK;
    return status;
}

baton_status_t baton_tensors_wait(baton_tensors_t *set, size_t tensor,
                                  int timeout_ms, baton_sparse_result_t *out)
{
    baton_status_t status = check_tensor(set, tensor, out, "wait for");
    if (status != BATON_OK) {
        return status;
    }
    baton__member_t *member = &set->members[tensor];
    baton__unit_t *unit = &set->units[member->unit];
    bool partial = set->options.partial;
    if (!unit->started && !(partial && unit->sparse->recovered)) {
        return not_started(set, tensor);
    }
    status = partial
                 ? next_result(set, unit, member, timeout_ms)
                 : baton_sparse_wait(unit->sparse, timeout_ms, &unit->result);
    if (unit->sparse->phase != BATON__SPARSE_RUNNING) {
        tensors_reset(set, unit);
    }
    if (status == BATON_OK) {
        *out = tensors_part_of(set, unit, member, unit->result);
    }
    return status;
}

baton_status_t baton_tensors_dense(baton_tensors_t *set, size_t tensor,
                                   void *elements)
{
    baton_status_t status = check_tensor(set, tensor, set, "result of");
    if (status != BATON_OK) {
        return status;
    }
    const baton__member_t *member = &set->members[tensor];
    return baton_sparse_dense_range(set->units[member->unit].sparse,
                                    member->offset, member->tensor.count,
                                    elements);
}

/* ---- to look at -------------------------------------------------------- */

baton_status_t baton_tensors_plan(const baton_tensors_t *set, size_t tensor,
                                  baton_tensor_plan_t *out)
{
    baton_status_t status = check_tensor(set, tensor, out, "plan of");
    if (status == BATON_OK) {
        *out = set->members[tensor].plan;
    }
    return status;
}

baton_sparse_t *baton_tensors_sparse(baton_tensors_t *set, size_t tensor)
{
    return set != NULL && set->connected && tensor < set->count
               ? set->units[set->members[tensor].unit].sparse
               : NULL;
}
