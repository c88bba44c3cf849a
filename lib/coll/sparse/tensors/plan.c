/* Decides how each tensor of a set is reduced: by its role and size, and then
   by the cost model (Fang et al. 2019, see baton/tensors.h; sections 2.1 and
   2.3). */
#include "coll/sparse/tensors/tensors.h"

#include "coll/kit/pattern.h"

/* ---- the cost model ---------------------------------------------------- */

/* The costs of a selection and of a sum of lists, in reductions of elements.
   Selecting from an element costs as much as one reduction. Adding an entry to
   a vector costs as much as ENTRY_REDUCTIONS reductions. */
enum { ENTRY_REDUCTIONS = 16 };

/* Returns the time of a sparse all-reduce: equation 1 of Fang et al. 2019. */
static double sparse_us(const baton_tensors_t *set,
                        const baton_tensor_plan_t *plan, size_t count)
{
    const double ranks = set->ranks, k = (double)plan->k;
    const double reduce_ns = set->costs.gamma_ns * (double)set->element_bytes;
    const double select_ns = (double)count * reduce_ns;
    const double entry_ns = ENTRY_REDUCTIONS * reduce_ns;
    const size_t value_bytes = plan->quantise ? 0 : set->element_bytes;
    const double sent_ns =
        (double)(sizeof(uint32_t) + value_bytes) * set->link.beta_ns;
    double rounds = baton__log2_ceil(set->ranks);
    double data_ns = (ranks - 1) * k * sent_ns + ranks * k * entry_ns;
    if (plan->algorithm == BATON_SPARSE_SPARDL) {
        rounds *= 2;
        data_ns = 2 * (ranks - 1) / ranks * k * (sent_ns + entry_ns);
    }
    return rounds * set->link.alpha_us + (select_ns + data_ns) / 1000;
}

/* Returns the time of a dense all-reduce: equation 2 of Fang et al. 2019. */
static double dense_us(const baton_tensors_t *set, size_t count)
{
    const double ranks = set->ranks;
    double bytes = (double)(count * set->element_bytes);
    double byte_ns = 2 * set->link.beta_ns + set->costs.gamma_ns;
    return 2.0 * baton__log2_ceil(set->ranks) * set->link.alpha_us +
           (ranks - 1) / ranks * bytes * byte_ns / 1000;
}

/* ---- policy ------------------------------------------------------------ */

static baton_redsync_t selection_of(const baton_tensors_options_t *o,
                                    baton_role_t role, bool quantise)
{
    if (!o->paper_selections) {
        return BATON_REDSYNC_EXACT;
    }
    if (role == BATON_ROLE_CONVOLUTION) {
        return BATON_REDSYNC_TRIMMED;
    }
    return quantise ? BATON_REDSYNC_SEARCH : BATON_REDSYNC_SAMPLED;
}

/* Sets the plan of a tensor that is reduced as a sparse one. */
static void plan_sparse(const baton_tensors_t *set, const baton_tensor_t *of,
                        baton_tensor_plan_t *plan)
{
    const baton_tensors_options_t *o = &set->options;
    plan->form = BATON_TENSOR_SPARSE;
    plan->k = baton__entries_of(of->count, o->density);
    plan->quantise = o->quantise && of->role != BATON_ROLE_OUTPUT;
    plan->selection = selection_of(o, of->role, plan->quantise);
    plan->algorithm = BATON_SPARSE_REDSYNC;
    plan->sparse_us = sparse_us(set, plan, of->count);
    bool alone = o->quantise || o->paper_selections;
    if (o->algorithm == BATON_SPARSE_REDSYNC || alone) {
        return;
    }
    baton_tensor_plan_t other = *plan;
    other.algorithm = BATON_SPARSE_SPARDL;
    other.sparse_us = sparse_us(set, &other, of->count);
    if (o->algorithm == BATON_SPARSE_SPARDL ||
        other.sparse_us < plan->sparse_us) {
        *plan = other;
    }
}

static void tensors_plan_decide(const baton_tensors_t *set,
                                baton__member_t *member)
{
    const baton_tensor_t *of = &member->tensor;
    baton_tensor_plan_t *plan = &member->plan;
    if (of->role == BATON_ROLE_BIAS_OR_NORM ||
        of->count * set->element_bytes <= set->options.small_bytes) {
        *plan = (baton_tensor_plan_t){.form = BATON_TENSOR_PACKED,
                                      .algorithm = BATON_SPARSE_DENSE};
        return;
    }
    plan_sparse(set, of, plan);
    plan->dense_us = dense_us(set, of->count);
    if (!set->options.always_sparse && plan->sparse_us >= plan->dense_us) {
        plan->form = BATON_TENSOR_DENSE;
        plan->algorithm = BATON_SPARSE_DENSE;
        plan->quantise = false;
        plan->selection = BATON_REDSYNC_EXACT;
        plan->k = 0;
    }
}

/* Makes units of those tensors that are packed, or of those that are not: one
   unit of all packed tensors, and one of each other tensor. */
static void make_units(baton_tensors_t *set, bool packed)
{
    const size_t before = set->unit_count;
    for (size_t i = 0; i < set->count; i++) {
        baton__member_t *member = &set->members[i];
        if (baton__tensors_packs(set, member) != packed) {
            continue;
        }
        if (!packed || set->unit_count == before) {
            set->units[set->unit_count++] = (baton__unit_t){0};
        }
        member->unit = set->unit_count - 1;
        baton__unit_t *unit = &set->units[member->unit];
        member->offset = unit->count;
        unit->count += member->tensor.count;
        unit->members++;
    }
}

/* With options.partial one partial sparse all-reduce sums all tensors. Gives
   all of them the plan of a tensor as long as their sum. */
static void plan_partial(baton_tensors_t *set)
{
    const baton_tensor_t all = {.role = BATON_ROLE_DENSE,
                                .count = set->units[0].count};
    baton_tensor_plan_t plan = {0};
    plan_sparse(set, &all, &plan);
    for (size_t i = 0; i < set->count; i++) {
        set->members[i].plan = plan;
    }
}

void baton__tensors_decide(baton_tensors_t *set)
{
    for (size_t i = 0; !set->options.partial && i < set->count; i++) {
        tensors_plan_decide(set, &set->members[i]);
    }
    set->unit_count = 0;
    make_units(set, false);
    make_units(set, true);
    if (set->options.partial) {
        plan_partial(set);
    }
}
