/* Options of a set of tensors; see tensors.h. */
#include "coll/sparse/sparse.h"
#include "coll/sparse/tensors.h"

#include "base/error.h"
#include "base/random.h"

#include <stdio.h>
#include <string.h>

enum { SMALL_BYTES = 128 * 1024 };
static const double default_density = 0.001;

/* ---- checks ------------------------------------------------------------ */

#define REFUSE(set, ...)                                                       \
    ((void)snprintf((set)->wrong, sizeof(set)->wrong, __VA_ARGS__), false)

static bool is_density(double density)
{
    return density > 0 && density <= 1;
}

/* What every all-reduce of the set has is checked as sparse.h's options. */
static bool check_training(baton_tensors_t *set)
{
    const baton_tensors_options_t *o = &set->options;
    const baton_sparse_options_t given = {.size = sizeof given,
                                          .dtype = o->dtype,
                                          .count = 1,
                                          .k = 1,
                                          .momentum = o->momentum,
                                          .nesterov = o->nesterov,
                                          .clip = o->clip,
                                          .warmup = o->warmup,
                                          .partial = o->partial,
                                          .mode = o->mode,
                                          .mode_ranks = o->mode_ranks,
                                          .history = o->history,
                                          .sync_every = o->sync_every,
                                          .max_staleness = o->max_staleness};
    baton_sparse_options_t resolved;
    bool ok = baton__sparse_resolve(
                  &given, set->ranks, baton_schedule_hosts(set->comparison),
                  &resolved, set->wrong, sizeof set->wrong) == BATON_OK;
    set->options.dtype = resolved.dtype;
    set->element_bytes = baton_dtype_size(resolved.dtype);
    set->link = resolved.link;
    return ok;
}

static bool check_algorithm(baton_tensors_t *set)
{
    baton_tensors_options_t *o = &set->options;
    if (o->partial && o->algorithm == BATON_SPARSE_REDSYNC) {
        return REFUSE(set, "algorithm is redsync; allowed with partial: auto, "
                           "spardl");
    }
    if (o->partial && o->algorithm == BATON_SPARSE_AUTO) {
        o->algorithm = BATON_SPARSE_SPARDL;
    }
    if (o->algorithm != BATON_SPARSE_AUTO &&
        o->algorithm != BATON_SPARSE_REDSYNC &&
        o->algorithm != BATON_SPARSE_SPARDL) {
        return REFUSE(set, "algorithm is %s; allowed: auto, redsync, spardl",
                      baton_sparse_algorithm_name(o->algorithm));
    }
    if (o->algorithm == BATON_SPARSE_SPARDL &&
        (o->quantise || o->paper_selections)) {
        return REFUSE(set,
                      "%s is set with spardl; allowed: with auto or redsync",
                      o->quantise ? "quantise" : "paper_selections");
    }
    return true;
}

static bool check_densities(baton_tensors_t *set)
{
    const baton_tensors_options_t *o = &set->options;
    if (!is_density(o->density)) {
        return REFUSE(set, "density is %g; allowed: above 0 and at most 1",
                      o->density);
    }
    if (o->partial && o->density_count > 0) {
        return REFUSE(set, "density_count is %zu; allowed with partial: 0",
                      o->density_count);
    }
    if (o->density_count > o->warmup) {
        return REFUSE(set, "density_count is %zu; allowed: 0 to warmup, %llu",
                      o->density_count, (unsigned long long)o->warmup);
    }
    for (size_t i = 0; i < o->density_count; i++) {
        if (!is_density(o->densities[i])) {
            return REFUSE(set,
                          "densities[%zu] is %g; allowed: above 0 and at most "
                          "1",
                          i, o->densities[i]);
        }
    }
    return true;
}

static bool check_tensors(baton_tensors_t *set)
{
    size_t sum = 0;
    for (size_t i = 0; i < set->count; i++) {
        const baton_tensor_t *tensor = &set->members[i].tensor;
        if ((unsigned)tensor->role >= BATON_ROLE_COUNT) {
            return REFUSE(
                set, "tensor \"%.100s\": role is %d; allowed: 0 to %d",
                tensor->name, (int)tensor->role, BATON_ROLE_COUNT - 1);
        }
        if (tensor->count == 0 || tensor->count > UINT32_MAX) {
            return REFUSE(
                set, "tensor \"%.100s\": count is %zu; allowed: 1 to %lu",
                tensor->name, tensor->count, (unsigned long)UINT32_MAX);
        }
        sum += tensor->count;
        if (set->options.partial && sum > UINT32_MAX) {
            return REFUSE(set,
                          "tensor \"%.100s\": there are %zu elements up to it; "
                          "allowed with partial: up to %lu in all",
                          tensor->name, sum, (unsigned long)UINT32_MAX);
        }
    }
    return true;
}

void baton__tensors_resolve(baton_tensors_t *set)
{
    baton_tensors_options_t *o = &set->options;
    o->density = o->density == 0 ? default_density : o->density;
    o->small_bytes = o->small_bytes == 0 ? SMALL_BYTES : o->small_bytes;
    (void)(check_training(set) && check_algorithm(set) &&
           check_densities(set) && check_tensors(set));
}

/* ---- comparison -------------------------------------------------------- */

static uint64_t hash_of_tensors(const baton_tensors_t *set)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < set->count; i++) {
        const baton_tensor_t *tensor = &set->members[i].tensor;
        hash = baton__random(hash, tensor->count, (uint64_t)tensor->role);
    }
    return hash;
}

static uint64_t hash_of_densities(const baton_tensors_options_t *o)
{
    uint64_t hash = o->density_count;
    for (size_t i = 0; i < o->density_count; i++) {
        hash = baton__random(hash, i, baton__compare_bits(o->densities[i]));
    }
    return hash;
}

baton_status_t baton__tensors_compare_start(baton_tensors_t *set)
{
    const baton_tensors_options_t *o = &set->options;
    const baton__compared_t options[] = {
        {.name = "the number of tensors", .word = set->count},
        {.name = "a hash of the counts and roles of all tensors",
         .word = hash_of_tensors(set)},
        BATON__COMPARED(o, dtype),
        BATON__COMPARED_REAL("density", o->density),
        BATON__COMPARED(o, algorithm),
        BATON__COMPARED(o, average),
        BATON__COMPARED_REAL("momentum", o->momentum),
        BATON__COMPARED(o, nesterov),
        BATON__COMPARED_REAL("clip", o->clip),
        BATON__COMPARED(o, warmup),
        {.name = "a hash of the densities", .word = hash_of_densities(o)},
        BATON__COMPARED(o, quantise),
        BATON__COMPARED(o, paper_selections),
        BATON__COMPARED(o, small_bytes),
        BATON__COMPARED(o, always_sparse),
        BATON__COMPARED(o, partial),
        BATON__COMPARED(o, mode),
        BATON__COMPARED(o, mode_ranks),
        BATON__COMPARED(o, history),
        BATON__COMPARED(o, sync_every),
        BATON__COMPARED(o, max_staleness),
        BATON__COMPARED(o, seed),
        BATON__COMPARED_REAL("the calibration's alpha", set->link.alpha_us),
        BATON__COMPARED_REAL("the calibration's beta", set->link.beta_ns),
        BATON__COMPARED_REAL("the calibration's gamma", set->costs.gamma_ns),
    };
    enum { OPTIONS = sizeof options / sizeof options[0], NAMED = 512 };
    baton__compared_t list[OPTIONS + 2 * NAMED] = {options[0]};
    for (size_t i = 0; i < NAMED; i++) {
        const baton_tensor_t *tensor =
            i < set->count ? &set->members[i].tensor : &(baton_tensor_t){0};
        list[1 + 2 * i] = (baton__compared_t){
            .name = "count", .of = tensor->name, .word = tensor->count};
        list[2 + 2 * i] = (baton__compared_t){
            .name = "role", .of = tensor->name, .word = (uint64_t)tensor->role};
    }
    memcpy(list + 1 + 2 * NAMED, options + 1, sizeof options - sizeof *options);
    return baton__compare_start(&set->compare, set->comparison, list,
                                OPTIONS + 2 * NAMED, 1 + 2 * NAMED,
                                set->wrong[0] != '\0');
}

baton_status_t baton__tensors_compare_end(baton_tensors_t *set)
{
    char data[BATON__MESSAGE_BYTES] = "";
    baton__text_t text = {.data = data, .size = sizeof data};
    if (set->wrong[0] != '\0') {
        return baton__error(BATON_ERR_INVALID, "tensors \"%s\": %s", set->name,
                            set->wrong);
    }
    if (baton__compare_end(&set->compare, &text) != 0) {
        return baton__error(BATON_ERR_INVALID,
                            "tensors \"%s\": another rank's options are "
                            "invalid; its message says more",
                            set->name);
    }
    return text.used == 0
               ? BATON_OK
               : baton__error(BATON_ERR_MISMATCH,
                              "tensors \"%s\": options differ across ranks: %s",
                              set->name, data);
}
