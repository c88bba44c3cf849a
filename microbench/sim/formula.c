#include "sim/formula.h"
#include <math.h>

/* The logarithm of a number of ranks, to base 2, rounded up and down. */
static int rounds_of(int ranks)
{
    int rounds = 0;
    while ((1L << rounds) < ranks) {
        rounds++;
    }
    return rounds;
}

static int rounds_down(int ranks)
{
    int rounds = 0;
    while ((2L << rounds) <= ranks) {
        rounds++;
    }
    return rounds;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* A message, and the reduction of as much. */
static double message(const sim_formula_t *f)
{
    return f->alpha_us + f->bytes * f->beta_us;
}

static double reduction(const sim_formula_t *f)
{
    return f->bytes * f->gamma_us;
}

double sim_formula_barrier_dissemination(const sim_formula_t *f)
{
    return rounds_of(f->ranks) * f->alpha_us;
}

double sim_formula_broadcast_binomial(const sim_formula_t *f)
{
    return f->bytes > 0 ? rounds_of(f->ranks) * message(f) : 0;
}

double sim_formula_allreduce_ring(const sim_formula_t *f)
{
    if (f->bytes <= 0) {
        return 0;
    }
    double hops = f->ranks - 1;
    sim_formula_t block = *f;
    block.bytes /= f->ranks;
    return hops * (2 * message(&block) + reduction(&block));
}

/* Reduce and broadcast, in ceil(log2 P) rounds each. In the reduce of 2^k ranks
   each round is a transfer and a reduction. Otherwise the last child of rank 0
   has a tree of only `extra` ranks behind it: what it sends comes early, takes
   the receive port between two others, and so hides a reduction behind a
   transfer. */
double sim_formula_allreduce_binomial(const sim_formula_t *f)
{
    if (f->bytes <= 0 || f->ranks == 1) {
        return 0;
    }
    int rounds = rounds_of(f->ranks);
    int extra = f->ranks - (1 << (rounds - 1));
    double transfers = 2 * rounds * message(f);
    double reductions = rounds * reduction(f);
    if (f->ranks == 1 << rounds) {
        return transfers + reductions;
    }
    int seen = least(rounds - 1, 2 + rounds_down(extra));
    return transfers + fmax(seen * reduction(f), reductions - message(f));
}

/* The core is of 2^k ranks, and `extra` of them speak for two. When P is 2^k,
   each of its k rounds is a transfer and a reduction. Otherwise there are two
   paths. One goes through ranks of the core that are alone: they end a round
   later, since what they get has waited for a fold. The other one through ranks
   that speak for two, until they have sent the result to the second: k + 2
   transfers, and after the fold they meet ranks that are as late in the first
   ceil(log2 extra) rounds; what comes in later rounds has come before, and its
   reduction goes on while the next transfer does. */
double sim_formula_allreduce_recursive_doubling(const sim_formula_t *f)
{
    if (f->bytes <= 0) {
        return 0;
    }
    int rounds = rounds_down(f->ranks);
    int extra = f->ranks - (1 << rounds);
    if (extra == 0) {
        return rounds * (message(f) + reduction(f));
    }
    double alone = (rounds + 1) * (message(f) + reduction(f));
    double folded =
        (rounds + 2) * message(f) + (rounds_of(extra) + 1) * reduction(f);
    return fmax(alone, folded);
}
