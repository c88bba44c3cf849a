#include "sim/formula.h"
#include <math.h>

/* The logarithm of a number of ranks to base 2, rounded up. */
static int rounds_of(int ranks)
{
    int rounds = 0;
    while ((1L << rounds) < ranks) {
        rounds++;
    }
    return rounds;
}

/* The same, rounded down. */
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

/* The times of a message and of its reduction. */
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
    double rounds = f->ranks - 1;
    sim_formula_t block = *f;
    block.bytes /= f->ranks;
    return rounds * (2 * message(&block) + reduction(&block));
}

/* A reduce and a broadcast take ceil(log2 P) rounds each. For 2^k ranks each
   round of the reduce is a transfer and a reduction. Otherwise the last child
   of rank 0 has a subtree of only `extra` ranks: its message arrives early,
   between two others, and so one reduction overlaps a transfer. */
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

/* The core has 2^k ranks, and `extra` of them represent a second rank, whose
   contribution they fold into theirs. When P is 2^k, each of the k rounds is a
   transfer and a reduction. Otherwise there are two critical paths. One goes
   through core ranks that represent only themselves: they end a round later,
   since the data that they receive waited for a fold. The other one goes
   through core ranks that represent two, up to the send of the result to the
   second rank: k + 2 transfers. In the first ceil(log2 extra) rounds after the
   fold their partners are equally late; in later rounds the messages have
   arrived before, and the reduction overlaps the next transfer. */
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
