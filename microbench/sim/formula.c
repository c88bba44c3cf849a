#include "sim/formula.h"
#include <baton/baton.h>
#include <math.h>

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
    };
    baton_algorithm_t algorithm;
    return baton_algorithm_find(collective, name, &algorithm) == BATON_OK
               ? algorithm.cost_us(&of)
               : 0;
}

double sim_formula_barrier_dissemination(const sim_formula_t *f)
{
    return cost_us(BATON_COLLECTIVE_BARRIER, "dissemination", f);
}

double sim_formula_broadcast_binomial(const sim_formula_t *f)
{
    return cost_us(BATON_COLLECTIVE_BROADCAST, "binomial", f);
}

double sim_formula_allreduce_ring(const sim_formula_t *f)
{
    return cost_us(BATON_COLLECTIVE_ALLREDUCE, "ring", f);
}

double sim_formula_allreduce_binomial(const sim_formula_t *f)
{
    return cost_us(BATON_COLLECTIVE_ALLREDUCE, "binomial", f);
}

double sim_formula_allreduce_recursive_doubling(const sim_formula_t *f)
{
    return cost_us(BATON_COLLECTIVE_ALLREDUCE, "recursive_doubling", f);
}

double sim_formula_allreduce_circulant(const sim_formula_t *f)
{
    return cost_us(BATON_COLLECTIVE_ALLREDUCE, "circulant", f);
}

double sim_formula_allreduce_rabenseifner(const sim_formula_t *f)
{
    return (f->ranks & (f->ranks - 1)) == 0
               ? cost_us(BATON_COLLECTIVE_ALLREDUCE, "rabenseifner", f)
               : NAN;
}

double sim_formula_allreduce_linear_pipeline(const sim_formula_t *f)
{
    return cost_us(BATON_COLLECTIVE_ALLREDUCE, "linear_pipeline", f);
}

double sim_formula_allreduce_double_tree(const sim_formula_t *f)
{
    (void)f;
    return NAN;
}
