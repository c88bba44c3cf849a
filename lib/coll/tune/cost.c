#include "coll/tune/cost.h"

#include "coll/kit/pattern.h"
#include "coll/kit/phases.h"

#include <math.h>

/* Exact: for any p and gamma, unless a comment tells otherwise. */

static double message(const baton_cost_case_t *of, double bytes)
{
    return of->alpha_us + bytes * of->beta_us;
}

static double reduction(const baton_cost_case_t *of, double bytes)
{
    return bytes * of->gamma_us;
}

static double rounds_of(const baton_cost_case_t *of)
{
    return baton__log2_ceil(of->ranks);
}

/* The logarithm, rounded down. */
static int rounds_down(int ranks)
{
    return baton__log2_ceil(ranks / 2 + 1);
}

/* The part of a vector that `ranks` equal blocks less one are. */
static double all_but_one(double bytes, int ranks)
{
    return bytes * (ranks - 1) / ranks;
}

/* Nothing is sent. */
static bool is_still(const baton_cost_case_t *of)
{
    return of->bytes <= 0 || of->ranks <= 1;
}

static double segments_of(double bytes, double segment_bytes)
{
    return segment_bytes > 0 ? fmax(1, ceil(bytes / segment_bytes)) : 1;
}

/* So many ranks follow one another on each host. */
static int host_block(const baton_cost_case_t *of)
{
    return of->hosts > 0 && !of->scattered ? (of->ranks - 1) / of->hosts + 1
                                           : 1;
}

/* A message in a round in which ranks `distance` apart, a power of two, talk:
   inside a host if its ranks are blocks of twice as many. */
static double message_over(const baton_cost_case_t *of, int64_t distance,
                           double bytes)
{
    return host_block(of) % (2 * distance) == 0
               ? of->inside_alpha_us + bytes * of->inside_beta_us
               : message(of, bytes);
}

/* Hosts of 2^k ranks, k > 0, that follow one another. */
static bool is_paired(const baton_cost_case_t *of)
{
    int block = host_block(of);
    return block > 1 && (block & (block - 1)) == 0;
}

/* One such message for each distance up to `ranks`; `bytes` in the first, in
   the next ones as many, or half as many each time. */
static double messages_over(const baton_cost_case_t *of, int64_t ranks,
                            double bytes, bool halved)
{
    double us = 0;
    for (int64_t distance = 1; distance < ranks; distance *= 2) {
        us += message_over(of, distance, bytes);
        bytes = halved ? bytes / 2 : bytes;
    }
    return us;
}

/* ---- barrier, broadcast ------------------------------------------------ */

double baton__cost_barrier_dissemination(const baton_cost_case_t *of)
{
    return rounds_of(of) * of->alpha_us;
}

double baton__cost_broadcast_binomial(const baton_cost_case_t *of)
{
    return is_still(of) ? 0 : messages_over(of, of->ranks, of->bytes, false);
}

double baton__cost_broadcast_linear_pipeline(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double count = segments_of(of->bytes, of->segment_bytes);
    return (of->ranks - 2 + count) * message(of, of->bytes / count);
}

double baton__cost_broadcast_scatter_allgather(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    return (rounds_of(of) + of->ranks - 1) * of->alpha_us +
           2 * all_but_one(of->bytes, of->ranks) * of->beta_us;
}

/* An estimate: the lower tree is 2 log p steps deep, a rank sends two segments
   for each that it receives. */
double baton__cost_broadcast_double_tree(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double count = 2 * segments_of(of->bytes / 2, of->segment_bytes);
    return (2 * rounds_of(of) + count) * message(of, of->bytes / count);
}

double baton__cost_broadcast_flat(const baton_cost_case_t *of)
{
    return is_still(of) ? 0 : (of->ranks - 1) * message(of, of->bytes);
}

/* ---- reduce ------------------------------------------------------------ */

/* ceil(log2 p) rounds. In the reduce of 2^k ranks each is a transfer and a
   reduction. Otherwise the last child of the root has a tree of only `extra`
   ranks behind it: what it sends comes early, takes the receive port between
   two others, and so hides a reduction behind a transfer. */
double baton__cost_reduce_binomial(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    int rounds = baton__log2_ceil(of->ranks);
    int extra = of->ranks - (1 << (rounds - 1));
    double transfers = messages_over(of, of->ranks, of->bytes, false);
    double each = reduction(of, of->bytes);
    if (of->ranks == 1 << rounds) {
        return transfers + rounds * each;
    }
    double seen = fmin(rounds - 1, 2 + rounds_down(extra));
    return transfers +
           fmax(seen * each, rounds * each - message(of, of->bytes));
}

/* Exact where a segment is reduced no more slowly than it comes. */
double baton__cost_reduce_linear_pipeline(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double count = segments_of(of->bytes, of->segment_bytes);
    double come = message(of, of->bytes / count);
    double reduce = reduction(of, of->bytes / count);
    return (of->ranks - 1) * (come + reduce) + (count - 1) * fmax(come, reduce);
}

double baton__cost_reduce_scatter_gather(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    return 2 * rounds_of(of) * of->alpha_us +
           all_but_one(of->bytes, of->ranks) * (2 * of->beta_us + of->gamma_us);
}

/* All ranks have the sums of their blocks at the same time. */
double baton__cost_reduce_pairwise(const baton_cost_case_t *of)
{
    return baton__cost_allreduce_pairwise(of);
}

/* ---- all-reduce -------------------------------------------------------- */

/* The core is of 2^k ranks, and `extra` of them speak for two. When p is 2^k,
   each of its k rounds is a transfer and a reduction. Otherwise there are two
   paths. One goes through ranks of the core that are alone: they end a round
   later, since what they get has waited for a fold. The other one through ranks
   that speak for two, until they have sent the result to the second: k + 2
   transfers, and after the fold they meet ranks that are as late in the first
   ceil(log2 extra) rounds; what comes in later rounds has come before, and its
   reduction goes on while the next transfer does. On hosts of 2^k ranks the
   folds, and the rounds of near ranks, stay inside: an estimate. */
double baton__cost_allreduce_recursive_doubling(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    int rounds = rounds_down(of->ranks);
    int extra = of->ranks - (1 << rounds);
    double come = message(of, of->bytes);
    double reduce = reduction(of, of->bytes);
    if (extra == 0) {
        return messages_over(of, of->ranks, of->bytes, false) + rounds * reduce;
    }
    if (is_paired(of)) {
        int between = baton__log2_ceil(of->hosts);
        return between * come +
               (rounds + 2 - between) * message_over(of, 1, of->bytes) +
               (rounds + 1) * reduce;
    }
    return fmax((rounds + 1) * (come + reduce),
                (rounds + 2) * come + (baton__log2_ceil(extra) + 1) * reduce);
}

double baton__cost_allreduce_binomial(const baton_cost_case_t *of)
{
    return baton__cost_reduce_binomial(of) + baton__cost_broadcast_binomial(of);
}

/* Exact for 2^k ranks. A fold is two messages and a reduction of the vector
   more. */
double baton__cost_allreduce_rabenseifner(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    int rounds = rounds_down(of->ranks);
    int core = 1 << rounds;
    double fold = of->ranks == core
                      ? 0
                      : 2 * message(of, of->bytes) + reduction(of, of->bytes);
    double reduce = reduction(of, all_but_one(of->bytes, core));
    if (of->ranks != core) {
        return fold + 2 * rounds * of->alpha_us +
               2 * all_but_one(of->bytes, core) * of->beta_us + reduce;
    }
    return 2 * messages_over(of, core, of->bytes / 2, true) + reduce;
}

/* For one chunk a block. */
double baton__cost_allreduce_ring(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double block = of->bytes / of->ranks;
    return (of->ranks - 1) * (2 * message(of, block) + reduction(of, block));
}

double baton__cost_allreduce_pairwise(const baton_cost_case_t *of)
{
    return baton__cost_reduce_scatter_pairwise(of) +
           baton__cost_allgather_pairwise(of);
}

/* Exact where a segment is reduced no more slowly than it comes. Rank 0 sends
   all of its own segments first: the first sum waits for them, or comes later.
 */
double baton__cost_allreduce_linear_pipeline(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double count = segments_of(of->bytes, of->segment_bytes);
    double come = message(of, of->bytes / count);
    double reduce = reduction(of, of->bytes / count);
    double filled = (of->ranks - 1) * (come + reduce) + come +
                    (count - 1) * fmax(come, reduce);
    if (of->ranks == 2) {
        return filled;
    }
    double sent =
        (2 * count - 1) * fmax(come, reduce) + (of->ranks - 3) * reduce;
    return fmax(filled, sent) + (of->ranks - 2) * come;
}

double baton__cost_allreduce_circulant(const baton_cost_case_t *of)
{
    return baton__cost_reduce_scatter_gather(of);
}

/* An estimate: up and down a double tree. */
double baton__cost_allreduce_double_tree(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double count = 2 * segments_of(of->bytes / 2, of->segment_bytes);
    double come = message(of, of->bytes / count);
    double reduce = reduction(of, of->bytes / count);
    return (4 * rounds_of(of) + 2 * count) * fmax(come, reduce);
}

/* Exact where all hosts have as many ranks. */
double baton__cost_allreduce_hierarchical(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    int hosts = of->hosts > 0 ? of->hosts : of->ranks;
    int most = (of->ranks - 1) / hosts + 1;
    int rest = of->ranks - (hosts - 1) * most;
    int least = of->scattered ? of->ranks / hosts : rest > 1 ? rest : 1;
    double inside = all_but_one(of->bytes, most);
    const baton_cost_case_t between = {.ranks = hosts,
                                       .bytes = of->bytes / least,
                                       .alpha_us = of->alpha_us,
                                       .beta_us = of->beta_us,
                                       .gamma_us = of->gamma_us};
    return 2 * baton__log2_ceil(most) * of->inside_alpha_us +
           2 * inside * of->inside_beta_us + reduction(of, inside) +
           baton__cost_allreduce_circulant(&between);
}

/* ---- reduce-scatter, all-gather ---------------------------------------- */

double baton__cost_reduce_scatter_ring(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double block = of->bytes / of->ranks;
    return (of->ranks - 1) * (message(of, block) + reduction(of, block));
}

/* A segment is reduced while the next one comes. */
double baton__cost_reduce_scatter_pairwise(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double block = of->bytes / of->ranks;
    double segments = segments_of(block, BATON__PAIRWISE_BYTES);
    double came = message(of, block / segments);
    double reduced = reduction(of, block / segments);
    return came + ((of->ranks - 1) * segments - 1) * fmax(came, reduced) +
           reduced;
}

/* Exact for 2^k ranks. */
double baton__cost_reduce_scatter_recursive_halving(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    int rounds = rounds_down(of->ranks);
    int core = 1 << rounds;
    double fold = of->ranks == core
                      ? 0
                      : message(of, of->bytes) + reduction(of, of->bytes) +
                            message(of, of->bytes / of->ranks);
    return fold + rounds * of->alpha_us +
           all_but_one(of->bytes, core) * (of->beta_us + of->gamma_us);
}

double baton__cost_reduce_scatter_circulant(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    return rounds_of(of) * of->alpha_us +
           all_but_one(of->bytes, of->ranks) * (of->beta_us + of->gamma_us);
}

/* For one chunk a block. */
double baton__cost_allgather_ring(const baton_cost_case_t *of)
{
    return is_still(of) ? 0
                        : (of->ranks - 1) * message(of, of->bytes / of->ranks);
}

double baton__cost_allgather_pairwise(const baton_cost_case_t *of)
{
    return baton__cost_allgather_ring(of);
}

/* Exact for 2^k ranks. */
double baton__cost_allgather_recursive_doubling(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    int rounds = rounds_down(of->ranks);
    int core = 1 << rounds;
    double fold = of->ranks == core ? 0
                                    : message(of, of->bytes / of->ranks) +
                                          message(of, of->bytes);
    return fold + rounds * of->alpha_us +
           all_but_one(of->bytes, core) * of->beta_us;
}

double baton__cost_allgather_bruck(const baton_cost_case_t *of)
{
    return is_still(of) ? 0
                        : rounds_of(of) * of->alpha_us +
                              all_but_one(of->bytes, of->ranks) * of->beta_us;
}

/* ---- scatter, gather, all-to-all --------------------------------------- */

double baton__cost_scatter_binomial(const baton_cost_case_t *of)
{
    return baton__cost_allgather_bruck(of);
}

double baton__cost_gather_binomial(const baton_cost_case_t *of)
{
    return baton__cost_allgather_bruck(of);
}

double baton__cost_alltoall_pairwise(const baton_cost_case_t *of)
{
    return baton__cost_allgather_ring(of);
}

/* In the step of bit k go the blocks of the distances that have it. */
double baton__cost_alltoall_bruck(const baton_cost_case_t *of)
{
    if (is_still(of)) {
        return 0;
    }
    double blocks = 0;
    for (int64_t bit = 1; bit < of->ranks; bit *= 2) {
        int64_t whole = of->ranks / (2 * bit) * bit;
        int64_t rest = of->ranks % (2 * bit) - bit;
        blocks += (double)(whole + (rest > 0 ? rest : 0));
    }
    return rounds_of(of) * of->alpha_us +
           blocks * of->bytes / of->ranks * of->beta_us;
}

/* ---- prefix reductions ------------------------------------------------- */

/* Exact without reductions: with them, early messages of low ranks hold up
   others at a port for a little. */
double baton__cost_scan_recursive_doubling(const baton_cost_case_t *of)
{
    return is_still(of) ? 0
                        : rounds_of(of) * (message(of, of->bytes) +
                                           reduction(of, of->bytes));
}

/* Exact without reductions, as the scan's. Of the two in a round, none is made
   in the first for what goes before, and none in the last for what goes on. */
double baton__cost_exscan_recursive_doubling(const baton_cost_case_t *of)
{
    return is_still(of)
               ? 0
               : rounds_of(of) * message(of, of->bytes) +
                     (2 * rounds_of(of) - 2) * reduction(of, of->bytes);
}
