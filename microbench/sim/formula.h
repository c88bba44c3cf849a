/* Closed forms of the cost model, in microseconds: alpha for a message, beta
   for a byte, gamma for a reduced byte. Ranks are single-ported, without
   overhead, skew or lag. Where ranks share hosts, which have faster links
   inside, and no other comment says so, there is none: NaN. */
#ifndef MICROBENCH_SIM_FORMULA_H
#define MICROBENCH_SIM_FORMULA_H

typedef struct sim_formula {
    int ranks;
    double bytes;
    double alpha_us;
    double beta_us;         /* a byte */
    double gamma_us;        /* a byte */
    double segment_bytes;   /* of pipelines */
    int host_ranks;         /* ranks that share a host; 1: none do */
    double inside_alpha_us; /* in a host */
    double inside_beta_us;
} sim_formula_t;

double sim_formula_barrier_dissemination(const sim_formula_t *f);
double sim_formula_broadcast_binomial(const sim_formula_t *f);

/* Also where each host has 2^k ranks, and there are 2^l of them in all. */
double sim_formula_allreduce_recursive_doubling(const sim_formula_t *f);
double sim_formula_allreduce_binomial(const sim_formula_t *f);

/* For equal blocks of one chunk each. */
double sim_formula_allreduce_ring(const sim_formula_t *f);
double sim_formula_allreduce_circulant(const sim_formula_t *f);
double sim_formula_allreduce_pairwise(const sim_formula_t *f);

/* For equal blocks; NaN where the number of ranks, or of those on each host, is
   no power of two. */
double sim_formula_allreduce_rabenseifner(const sim_formula_t *f);

/* For equal blocks; NaN where not all hosts have as many ranks. */
double sim_formula_allreduce_hierarchical(const sim_formula_t *f);

/* For equal segments that are reduced no more slowly than they come. */
double sim_formula_allreduce_linear_pipeline(const sim_formula_t *f);

/* NaN: it has none. */
double sim_formula_allreduce_double_tree(const sim_formula_t *f);

#endif
