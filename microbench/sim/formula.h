/* Closed forms of the cost model, in microseconds: alpha for a message, beta
   for a byte, gamma for a reduced byte. Ranks are single-ported, without
   overhead, skew or lag, and all links are alike. */
#ifndef MICROBENCH_SIM_FORMULA_H
#define MICROBENCH_SIM_FORMULA_H

typedef struct sim_formula {
    int ranks;
    double bytes;
    double alpha_us;
    double beta_us;  /* a byte */
    double gamma_us; /* a byte */
} sim_formula_t;

double sim_formula_barrier_dissemination(const sim_formula_t *f);
double sim_formula_broadcast_binomial(const sim_formula_t *f);
double sim_formula_allreduce_recursive_doubling(const sim_formula_t *f);
double sim_formula_allreduce_binomial(const sim_formula_t *f);

/* For equal blocks of one chunk each. */
double sim_formula_allreduce_ring(const sim_formula_t *f);

#endif
