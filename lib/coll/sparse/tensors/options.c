/* Options of a set of tensors; see tensors.h. */
#include "coll/sparse/tensors/tensors.h"

enum { SMALL_BYTES = 128 * 1024 };
static const double default_density = 0.001;

/* ---- checks ------------------------------------------------------------ */

#define REFUSE(...) baton__refuse(&set->wrong, BATON_ERR_INVALID, __VA_ARGS__)

baton_sparse_options_t baton__tensors_common(const baton_tensors_t *set)
{
    const baton_tensors_options_t *o = &set->options;
    return (baton_sparse_options_t){.size = sizeof(baton_sparse_options_t),
                                    .name = set->name,
                                    .dtype = o->dtype,
                                    .average = o->average,
                                    .momentum = o->momentum,
                                    .nesterov = o->nesterov,
                                    .clip = o->clip,
                                    .warmup = o->warmup,
                                    .partial = o->partial,
                                    .mode = o->mode,
                                    .mode_ranks = o->mode_ranks,
                                    .history = o->history,
                                    .sync_every = o->sync_every,
                                    .max_staleness = o->max_staleness,
                                    .seed = o->seed,
                                    .on_loss = o->on_loss};
}

/* Checks those options that all all-reduces of the set share, as
   baton_sparse_prepare would. */
static bool tensors_options_check_training(baton_tensors_t *set)
{
    baton_sparse_options_t resolved, common = baton__tensors_common(set);
    common.count = 1;
    common.k = 1;
    common.algorithm = BATON_SPARSE_SPARDL;
    set->wrong = baton__sparse_resolve(
        &common, set->ranks, baton_schedule_hosts(set->comparison), &resolved);
    set->options.dtype = resolved.dtype;
    set->element_bytes = baton_dtype_size(resolved.dtype);
    set->link = resolved.link;
    return set->wrong.status == BATON_OK;
}

/* Returns true if costs decide how a tensor is reduced. */
static bool costs_decide(const baton_tensors_options_t *o)
{
    return !o->partial &&
           (!o->always_sparse || (o->algorithm == BATON_SPARSE_AUTO &&
                                  !o->quantise && !o->paper_selections));
}

static bool tensors_options_check_costs(baton_tensors_t *set)
{
    set->costs = (baton_costs_t)BATON_COSTS;
    baton_status_t status = baton_costs_get(&set->costs);
    return status == BATON_OK || !costs_decide(&set->options) ||
           baton__refuse(&set->wrong, status, "%s", baton_error_message());
}

static bool check_algorithm(baton_tensors_t *set)
{
    baton_tensors_options_t *o = &set->options;
    if (o->partial && o->algorithm == BATON_SPARSE_AUTO) {
        o->algorithm = BATON_SPARSE_SPARDL;
    }
    return (!o->partial || o->algorithm != BATON_SPARSE_REDSYNC ||
            REFUSE("algorithm is redsync; allowed with partial: auto, "
                   "spardl")) &&
           (o->algorithm == BATON_SPARSE_AUTO ||
            o->algorithm == BATON_SPARSE_REDSYNC ||
            o->algorithm == BATON_SPARSE_SPARDL ||
            REFUSE("algorithm is %s; allowed: auto, redsync, spardl",
                   baton_sparse_algorithm_name(o->algorithm))) &&
           (o->algorithm != BATON_SPARSE_SPARDL ||
            (!o->quantise && !o->paper_selections) ||
            REFUSE("%s is set with spardl; allowed: with auto or redsync",
                   o->quantise ? "quantise" : "paper_selections"));
}

static bool check_densities(baton_tensors_t *set)
{
    const baton_tensors_options_t *o = &set->options;
    bool ok =
        (baton__is_density(o->density) ||
         REFUSE("density is %g; allowed: above 0 and at most 1", o->density)) &&
        (!o->partial || o->density_count == 0 ||
         REFUSE("density_count is %zu; allowed with partial: 0",
                o->density_count)) &&
        (o->density_count <= o->warmup ||
         REFUSE("density_count is %zu; allowed: 0 to warmup, %llu",
                o->density_count, (unsigned long long)o->warmup));
    for (size_t i = 0; ok && i < o->density_count; i++) {
        ok = baton__is_density(o->densities[i]) ||
             REFUSE("densities[%zu] is %g; allowed: above 0 and at most 1", i,
                    o->densities[i]);
    }
    return ok;
}

static bool check_tensors(baton_tensors_t *set)
{
    size_t sum = 0;
    for (size_t i = 0; i < set->count; i++) {
        const baton_tensor_t *tensor = &set->members[i].tensor;
        if ((unsigned)tensor->role >= BATON_ROLE_COUNT) {
            return REFUSE("tensor \"%.100s\": role is %d; allowed: 0 to %d",
                          tensor->name, (int)tensor->role,
                          BATON_ROLE_COUNT - 1);
        }
        if (tensor->count == 0 || tensor->count > UINT32_MAX) {
            return REFUSE("tensor \"%.100s\": count is %zu; allowed: 1 to %lu",
                          tensor->name, tensor->count,
                          (unsigned long)UINT32_MAX);
        }
        sum += tensor->count;
        if (set->options.partial && sum > UINT32_MAX) {
            return REFUSE("tensor \"%.100s\": there are %zu elements up to it; "
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
    if (!(tensors_options_check_training(set) && check_algorithm(set) &&
          check_densities(set) && check_tensors(set) &&
          tensors_options_check_costs(set))) {
        const baton__wrong_t wrong = set->wrong;
        set->wrong.status = BATON_OK;
        baton__wrong_keep(&set->wrong,
                          baton__wrong_error(&wrong, "tensors", set->name));
    }
}

/* ---- comparison -------------------------------------------------------- */

/* Options that determine other options come first, so that a mismatch names the
   cause. */
void baton__tensors_state(const void *arg, baton_schedule_t *s)
{
    const baton_tensors_t *set = arg;
    const baton_tensors_options_t *o = &set->options;
    const double weight = costs_decide(o) ? 1 : 0;
    baton_sparse_options_t common = baton__tensors_common(set);
    baton_schedule_agree(s, "tensors %zu", set->count);
    for (size_t i = 0; i < set->count; i++) {
        const baton_tensor_t *tensor = &set->members[i].tensor;
        baton_schedule_agree(s, "count of %.100s %zu, role %d", tensor->name,
                             tensor->count, (int)tensor->role);
    }
    common.algorithm = o->algorithm;
    common.density = o->density;
    common.quantise = o->quantise;
    baton__sparse_agree(s, &common);
    baton_schedule_agree(
        s, "paper_selections %d, small_bytes %zu, always_sparse %d",
        o->paper_selections, o->small_bytes, o->always_sparse);
    for (size_t i = 0; i < o->density_count; i++) {
        baton_schedule_agree(s, "densities[%zu] %.12g", i, o->densities[i]);
    }
    baton_schedule_agree(
        s,
        "BATON_CALIBRATION's alpha %.12g, BATON_CALIBRATION's beta "
        "%.12g, BATON_CALIBRATION's gamma %.12g",
        weight * set->link.alpha_us, weight * set->link.beta_ns,
        weight * set->costs.gamma_ns);
}
