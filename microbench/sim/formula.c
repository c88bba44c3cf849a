#include "sim/formula.h"
#include <baton/baton.h>
#include <math.h>
#include <stdbool.h>

/* The library's own form, in which a block is one chunk; a name that it does
   not know costs nothing. */
static double cost_us(baton_collective_t collective, const char *name,
                      const sim_formula_t *f)
{
    const baton_cost_case_t of = {
        .ranks = f->ranks,
        .bytes = f->bytes,
        .alpha_us = f->alpha_us,
        .beta_us = f->beta_us,
        .gamma_us = f->gamma_us,
        .segment_bytes = f->segment_bytes,
        .hosts = (f->ranks - 1) / f->host_ranks + 1,
        .inside_alpha_us = f->inside_alpha_us,
        .inside_beta_us = f->inside_beta_us,
    };
    baton_algorithm_t algorithm;
    return baton_algorithm_find(collective, name, &algorithm) == BATON_OK
               ? baton_algorithm_cost_us(&algorithm, &of)
               : 0;
}

static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* For links that are all alike. */
static double flat_us(baton_collective_t collective, const char *name,
                      const sim_formula_t *f)
{
    return f->host_ranks == 1 ? cost_us(collective, name, f) : NAN;
}

/* Also for hosts of 2^k ranks, of which there are 2^l. */
static double paired_us(const char *name, const sim_formula_t *f)
{
    return f->host_ranks == 1 ||
                   (is_power_of_two(f->ranks) && f->host_ranks <= f->ranks &&
                    is_power_of_two(f->host_ranks))
               ? cost_us(BATON_COLLECTIVE_ALLREDUCE, name, f)
               : NAN;
}

double sim_formula_barrier_dissemination(const sim_formula_t *f)
{
    return flat_us(BATON_COLLECTIVE_BARRIER, "dissemination", f);
}

double sim_formula_broadcast_binomial(const sim_formula_t *f)
{
    return flat_us(BATON_COLLECTIVE_BROADCAST, "binomial", f);
}

double sim_formula_allreduce_ring(const sim_formula_t *f)
{
    return flat_us(BATON_COLLECTIVE_ALLREDUCE, "ring", f);
}

double sim_formula_allreduce_binomial(const sim_formula_t *f)
{
    return paired_us("binomial", f);
}

double sim_formula_allreduce_recursive_doubling(const sim_formula_t *f)
{
    return paired_us("recursive_doubling", f);
}

double sim_formula_allreduce_circulant(const sim_formula_t *f)
{
    return flat_us(BATON_COLLECTIVE_ALLREDUCE, "circulant", f);
}

double sim_formula_allreduce_pairwise(const sim_formula_t *f)
{
    return flat_us(BATON_COLLECTIVE_ALLREDUCE, "pairwise", f);
}

double sim_formula_allreduce_rabenseifner(const sim_formula_t *f)
{
    return is_power_of_two(f->ranks) ? paired_us("rabenseifner", f) : NAN;
}

double sim_formula_allreduce_hierarchical(const sim_formula_t *f)
{
    return f->ranks % f->host_ranks == 0
               ? cost_us(BATON_COLLECTIVE_ALLREDUCE, "hierarchical", f)
               : NAN;
}

double sim_formula_allreduce_linear_pipeline(const sim_formula_t *f)
{
    return flat_us(BATON_COLLECTIVE_ALLREDUCE, "linear_pipeline", f);
}

double sim_formula_allreduce_double_tree(const sim_formula_t *f)
{
    (void)f;
    return NAN;
}
