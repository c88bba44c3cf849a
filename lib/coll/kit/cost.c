#include "coll/kit/cost.h"

#include "coll/kit/pattern.h"

#include <math.h>

/* ---- terms ------------------------------------------------------------- */

double baton__segments(double bytes, double segment_bytes)
{
    return segment_bytes > 0 ? fmax(1, ceil(bytes / segment_bytes)) : 1;
}

baton__terms_t baton__terms_of(const baton_cost_case_t *of)
{
    static const baton_cost_case_t one_rank = {.ranks = 1};
    of = of != NULL ? of : &one_rank;
    int core_log = baton__log2_ceil(of->ranks / 2 + 1);
    double p = of->ranks;
    double core = (double)((int64_t)1 << core_log);
    return (baton__terms_t){
        .of = *of,
        .p = p,
        .n = of->bytes,
        .alpha = of->alpha_us,
        .beta = of->beta_us,
        .gamma = of->gamma_us,
        .log = baton__log2_ceil(of->ranks),
        .core = core,
        .core_log = core_log,
        .extra = p - core,
        .block = of->bytes / p,
        .part = of->bytes * (p - 1) / p,
        .others = (p - 1) * of->bytes,
        .segments = baton__segments(of->bytes, of->segment_bytes),
    };
}

double baton__message(const baton__terms_t *t, double bytes)
{
    return t->alpha + bytes * t->beta;
}

double baton__reduction(const baton__terms_t *t, double bytes)
{
    return bytes * t->gamma;
}

int baton__host_block(const baton__terms_t *t)
{
    return t->of.hosts > 0 && !t->of.scattered
               ? (t->of.ranks - 1) / t->of.hosts + 1
               : 1;
}

double baton__message_over(const baton__terms_t *t, int64_t distance,
                           double bytes)
{
    return baton__host_block(t) % (2 * distance) == 0
               ? t->of.inside_alpha_us + bytes * t->of.inside_beta_us
               : baton__message(t, bytes);
}

double baton__messages_over(const baton__terms_t *t, double ranks, double bytes,
                            bool halved)
{
    double us = 0;
    for (int64_t distance = 1; (double)distance < ranks; distance *= 2) {
        us += baton__message_over(t, distance, bytes);
        bytes = halved ? bytes / 2 : bytes;
    }
    return us;
}

/* ---- where a formula is exact ------------------------------------------ */

bool baton__exact_flat(const baton__terms_t *t)
{
    return t->of.hosts == 0 || t->of.hosts == t->of.ranks;
}

bool baton__exact_powers(const baton__terms_t *t)
{
    return baton__exact_flat(t) && t->extra <= 0;
}

bool baton__exact_paired(const baton__terms_t *t)
{
    int block = baton__host_block(t);
    return baton__exact_flat(t) ||
           (t->extra <= 0 && !t->of.scattered && block * t->of.hosts == t->p);
}

bool baton__exact_pipeline(const baton__terms_t *t)
{
    double segment = t->n / t->segments;
    return baton__exact_flat(t) &&
           baton__reduction(t, segment) <= baton__message(t, segment);
}

bool baton__exact_free(const baton__terms_t *t)
{
    return baton__exact_flat(t) && t->gamma <= 0;
}

/* ---- work on one host -------------------------------------------------- */

baton__works_t baton__evenly(const baton__terms_t *t, baton__work_t all,
                             double passed)
{
    return (baton__works_t){
        .most = {all.messages / t->p, all.bytes / t->p, all.reduced / t->p},
        .all = all,
        .passed = passed,
    };
}

bool baton__has_processor_each(const baton__terms_t *t)
{
    return t->of.processors <= 0 || t->of.processors >= t->of.ranks;
}

static baton__work_t tune_cost_sum(baton__work_t a, baton__work_t b)
{
    return (baton__work_t){a.messages + b.messages, a.bytes + b.bytes,
                           a.reduced + b.reduced};
}

baton__works_t baton__both(baton__works_t first, baton__works_t second)
{
    return (baton__works_t){
        .most = tune_cost_sum(first.most, second.most),
        .all = tune_cost_sum(first.all, second.all),
        .direct = first.direct && second.direct,
        .passed = first.passed + second.passed,
    };
}

double baton__passed_on(const baton__terms_t *t)
{
    return (t->p - 2) * t->n;
}

double baton__passed_up(const baton__terms_t *t)
{
    const int pairs = t->of.ranks / 2;
    return (pairs - 1) * t->n;
}

double baton__scattered(const baton__terms_t *t)
{
    double blocks = 0;
    for (int64_t bit = 1; bit < t->of.ranks; bit *= 2) {
        int64_t count = (t->of.ranks + bit - 1) / (2 * bit);
        int64_t last = t->of.ranks - (2 * count - 1) * bit;
        blocks += (double)((count - 1) * bit + (last < bit ? last : bit));
    }
    return blocks * t->block;
}

/* ---- costs of algorithms and chunks ------------------------------------ */

/* Returns true if the ranks exchange no messages. */
static bool is_still(const baton_algorithm_t *algorithm,
                     const baton_cost_case_t *of)
{
    return algorithm == NULL || of == NULL || of->ranks <= 1 ||
           (of->bytes <= 0 &&
            algorithm->collective != BATON_COLLECTIVE_BARRIER);
}

double baton__cost_of(const baton_algorithm_t *algorithm,
                      const baton__terms_t *t)
{
    if (algorithm->cost != NULL) {
        return algorithm->cost(t);
    }
    const baton_algorithm_t *second = algorithm->phases[1];
    return baton__cost_of(algorithm->phases[0], t) +
           (second != NULL ? baton__cost_of(second, t) : 0);
}

/* Returns the work of an algorithm or, if it consists of phases, of its phases.
   Between two phases the vector also moves from the processors that wrote it to
   those that read it. */
static baton__works_t work_of(const baton_algorithm_t *algorithm,
                              const baton__terms_t *t)
{
    if (algorithm->work != NULL) {
        return algorithm->work->of(t);
    }
    const baton_algorithm_t *second = algorithm->phases[1];
    baton__works_t first = algorithm->phases[0]->work->of(t);
    if (second == NULL) {
        return first;
    }
    baton__works_t last = second->work->of(t);
    baton__works_t works = baton__both(first, last);
    works.passed += last.written ? 0 : t->n;
    return works;
}

double baton_algorithm_cost_us(const baton_algorithm_t *algorithm,
                               const baton_cost_case_t *of)
{
    baton__terms_t terms = baton__terms_of(of);
    if (is_still(algorithm, of)) {
        return 0;
    }
    return baton__has_cost(algorithm) ? baton__cost_of(algorithm, &terms) : NAN;
}

bool baton_algorithm_is_exact(const baton_algorithm_t *algorithm,
                              const baton_cost_case_t *of)
{
    baton__terms_t terms = baton__terms_of(of);
    return is_still(algorithm, of) ||
           (algorithm->exact != NULL && algorithm->exact(&terms));
}

static double time_of(const baton__terms_t *t, baton__work_t work)
{
    return work.messages * t->alpha + work.bytes * t->beta +
           work.reduced * t->gamma;
}

/* How baton_algorithm_host_us estimates the time on one host. There the
   processors do the work of the network: the receiver's processor copies a
   message, and while it copies or reduces it does nothing else. So an epoch
   takes at least as long as its formula says, and at least as long as the rank
   with the most work. If ranks share processors, the processors share the work
   of all ranks, and wait for work that depends on other work. By Graham (1966),
   "Bounds for certain multiprocessing anomalies", this takes at most

       work / processors + (1 - 1 / processors) longest path

   which is the estimate. A processor works during about half of a message's
   alpha; the other half is a wait, which counts in the path alone. The work
   includes the cost of data that are passed on. If each rank has a processor,
   the estimate includes a rank's share of that cost. The messages of the ranks
   outside the core (fold, pattern.h) count in `all` only.

   Data that do not fit in a processor's cache are reduced three times as
   slowly. Sums that are not passed on stay in the cache. On a Xeon with 2 MiB
   of L2 two ranks reduce 1 MiB in 157 us if each reduces a half, and in 200 us
   if the root does all; 256 KiB take 25 and 20 us. (All ranks must choose the
   same algorithm, so no rank uses the size of its own cache.)

   The time in which ranks wait for a processor is added. In each round, that is
   for each message of the longest path, a rank waits until the ranks that share
   its processor have had their turns, and its peer may have to wait as long:
   turn_us times the square of the number of ranks that share a processor. If
   more than MOST_SHARE ranks do, most have had their turns meanwhile, and the
   time grows only in proportion to their number. With the square, 32 ranks on 2
   processors would choose recursive doubling for 16 KiB, which takes 470 us,
   and not a binomial tree, which takes 340 us. */
#define MOST_SHARE 4

/* The bytes that go through a cache for each reduced byte. HOST_STREAMS counts
   those of two operands and of the sum. Between hosts BETWEEN_STREAMS also
   counts the bytes that the sockets copy, in both directions. */
#define HOST_STREAMS    3
#define BETWEEN_STREAMS 5

static double rounds_of(const baton_algorithm_t *algorithm,
                        const baton__works_t *works, baton__terms_t t)
{
    if (works->direct) {
        return algorithm->phases[1] != NULL ? 2 : 1;
    }
    t.alpha = t.of.alpha_us = t.of.inside_alpha_us = 1;
    t.beta = t.of.beta_us = t.of.inside_beta_us = 0;
    t.gamma = t.of.gamma_us = 0;
    return baton__cost_of(algorithm, &t);
}

/* Returns the additional time of reductions if the bytes that they read and
   write (`streams`) do not fit in a cache; otherwise 0. */
static double uncached_us(const baton__terms_t *t, double streams)
{
    return streams > BATON__CACHED_BYTES
               ? 2 * baton__reduction(t, streams / HOST_STREAMS)
               : 0;
}

double baton__between_us(const baton_algorithm_t *algorithm,
                         const baton_cost_case_t *of)
{
    baton__terms_t t = baton__terms_of(of);
    double us = baton_algorithm_cost_us(algorithm, of);
    /* A segment is reduced while it is in a cache, so only algorithms without
       segments have this additional time. */
    if (is_still(algorithm, of) || !baton__exact_flat(&t) ||
        algorithm->segmented) {
        return us;
    }
    double reduced = work_of(algorithm, &t).most.reduced;
    return us + uncached_us(&t, BETWEEN_STREAMS * reduced);
}

double baton_algorithm_host_us(const baton_algorithm_t *algorithm,
                               const baton_cost_case_t *of)
{
    if (is_still(algorithm, of)) {
        return 0;
    }
    if (!baton__has_cost(algorithm)) {
        return NAN;
    }
    baton__terms_t t = baton__terms_of(of);
    baton__works_t works = work_of(algorithm, &t);
    double path_us = time_of(&t, works.most);
    double streams = works.direct ? (t.p + 1) / (t.p - 1) : HOST_STREAMS;
    if (baton__has_processor_each(&t)) {
        path_us += uncached_us(&t, streams * works.most.reduced);
    }
    if (!works.direct) {
        path_us = fmax(baton__cost_of(algorithm, &t), path_us);
    }
    double passed_us = works.passed * t.beta;
    if (baton__has_processor_each(&t)) {
        return path_us + passed_us / t.p;
    }
    double waits_us = works.all.messages * t.alpha / 2;
    double all_us = time_of(&t, works.all) - waits_us + passed_us;
    double share = (double)of->ranks / of->processors;
    return all_us / of->processors + (1 - 1.0 / of->processors) * path_us +
           rounds_of(algorithm, &works, t) * of->turn_us * share *
               fmin(share, MOST_SHARE);
}
