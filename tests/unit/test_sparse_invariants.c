/* What holds for every sparse all-reduce, whatever its input: on 1 to 33 ranks,
   with every number of teams, in the simulator. Gradients are integers and
   residuals binary fractions of them, so sums are exact. */
#include "support/random.h"
#include "support/sanitized.h"
#include "support/sparse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGEST = SUPPORT_SANITIZED ? 12 : 33, STEPS = 3 };

static char running[200];

/* ---- what all are tried with ------------------------------------------- */

typedef void (*check_fn)(int size, const baton_sparse_options_t *options,
                         support_random_t *random);

static baton_sparse_options_t random_options(support_random_t *random)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.dtype = BATON_F64;
    options.count = 1 + support_random_below(random, 200);
    options.k = 1 + support_random_below(random, options.count);
    if (support_random_below(random, 2) == 0) {
        options.k = 1 + options.k / 10;
    }
    return options;
}

static void try_one(int size, baton_sparse_options_t options, check_fn check,
                    support_random_t *random)
{
    (void)snprintf(running, sizeof running,
                   "%s on %d ranks, n %zu, k %zu, %d teams, exchange %d",
                   baton_sparse_algorithm_name(options.algorithm), size,
                   options.count, options.k, options.teams,
                   (int)options.exchange);
    check(size, &options, random);
}

static void for_each_layout(check_fn check, bool gathers, uint64_t stream)
{
    support_random_t random = support_random(support_seed(), stream);
    for (int size = 1; size <= LARGEST; size++) {
        for (int teams = 1; teams <= size; teams++) {
            if (size % teams != 0) {
                continue;
            }
            baton_sparse_options_t options = random_options(&random);
            options.algorithm = BATON_SPARSE_SPARDL;
            options.teams = teams;
            options.exchange = BATON_TEAMS_BSAG;
            if (gathers) {
                try_one(size, options, check, &random);
            }
            if ((teams & (teams - 1)) == 0) {
                options.exchange = BATON_TEAMS_RSAG;
                try_one(size, options, check, &random);
            }
        }
    }
}

static void for_each_algorithm(check_fn check, uint64_t stream)
{
    for_each_layout(check, true, stream);
    support_random_t random = support_random(support_seed(), stream + 100);
    static const baton_sparse_algorithm_t others[] = {
        BATON_SPARSE_TOPKA,  BATON_SPARSE_TOPKDSA, BATON_SPARSE_GTOPK,
        BATON_SPARSE_OKTOPK, BATON_SPARSE_REDSYNC, BATON_SPARSE_DENSE};
    for (int size = 1; size <= LARGEST; size++) {
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            baton_sparse_options_t options = random_options(&random);
            options.algorithm = others[i];
            options.redsync = (baton_redsync_t)support_random_below(&random, 4);
            try_one(size, options, check, &random);
        }
    }
}

#define holds(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fail_msg("%s: %s is not true (line %d)", running, #condition,      \
                     __LINE__);                                                \
        }                                                                      \
    } while (0)

static void fill(support_sparse_t *group, support_random_t *random,
                 int64_t lowest, uint64_t range)
{
    for (int rank = 0; rank < group->size; rank++) {
        double *gradient = support_sparse_gradient(group, rank);
        for (size_t i = 0; i < group->options.count; i++) {
            gradient[i] =
                (double)(lowest + (int64_t)support_random_below(random, range));
        }
    }
}

static bool selected(const baton_sparse_result_t *result, size_t index)
{
    if (result->indices == NULL) {
        return true;
    }
    for (size_t i = 0; i < result->count; i++) {
        if (result->indices[i] == index) {
            return true;
        }
    }
    return false;
}

/* ---- invariants -------------------------------------------------------- */

/* Gradients and old residuals equal the result and new residuals; where the
   collection of residuals is global, elements outside the result come back bit
   by bit. */
static void conserves(int size, const baton_sparse_options_t *options,
                      support_random_t *random)
{
    support_sparse_t *group = support_sparse_open(size, options);
    size_t bytes = (size_t)size * options->count * sizeof(double);
    double *before = calloc(1, bytes);
    bool global = options->algorithm == BATON_SPARSE_SPARDL ||
                  options->algorithm == BATON_SPARSE_GTOPK;
    /* Ok-Topk has two periods, of 32 and 64 steps. */
    int steps = options->algorithm == BATON_SPARSE_OKTOPK ? 70 : STEPS;
    for (int step = 0; step < steps; step++) {
        fill(group, random, -20, 41);
        support_sparse_step(group);
        for (size_t i = 0; i < options->count; i++) {
            double in = 0, out = ((double *)(void *)group->dense)[i];
            for (int rank = 0; rank < size; rank++) {
                double *gradient = support_sparse_gradient(group, rank);
                const double *residual = support_sparse_residual(group, rank);
                double whole =
                    before[(size_t)rank * options->count + i] + gradient[i];
                in += whole;
                out += residual[i];
                holds(!global || selected(&group->results[0], i) ||
                      residual[i] == whole);
            }
            holds(in == out);
        }
        memcpy(before, group->residuals, bytes);
    }
    free(before);
    support_sparse_close(group);
}

static void test_nothing_is_lost(void **state)
{
    (void)state;
    for_each_algorithm(conserves, 1);
}

static size_t quota(const baton_sparse_options_t *o, size_t members, size_t b)
{
    size_t part = o->count / members + (b < o->count % members ? 1 : 0);
    size_t k = o->k / members + (b < o->k % members ? 1 : 0);
    k = k > 0 ? k : 1;
    return k < part ? k : part;
}

static size_t block_of(const baton_sparse_options_t *o, size_t members,
                       size_t index)
{
    size_t b = 0, end = 0;
    for (;; b++) {
        end += o->count / members + (b < o->count % members ? 1 : 0);
        if (index < end) {
            return b;
        }
    }
}

static size_t log2_ceil(size_t size)
{
    size_t rounds = 0;
    while ((size_t)1 << rounds < size) {
        rounds++;
    }
    return rounds;
}

/* No block has more than its quota; messages are as many as rounds. */
static void keeps_quotas(int size, const baton_sparse_options_t *options,
                         support_random_t *random)
{
    support_sparse_t *group = support_sparse_open(size, options);
    size_t teams = (size_t)options->teams, members = (size_t)size / teams;
    size_t rounds = 2 * log2_ceil(members) + log2_ceil(teams);
    for (int step = 0; step < STEPS; step++) {
        size_t counts[LARGEST] = {0};
        fill(group, random, -20, 41);
        support_sparse_step(group);
        for (size_t i = 0; i < group->results[0].count; i++) {
            counts[block_of(options, members, group->results[0].indices[i])]++;
        }
        for (size_t b = 0; b < members; b++) {
            holds(counts[b] <= quota(options, members, b));
        }
        for (int rank = 0; rank < size; rank++) {
            baton_sparse_stats_t stats;
            assert_int_equal(baton_sparse_stats(group->ranks[rank], &stats),
                             BATON_OK);
            holds(stats.messages_sent == rounds &&
                  stats.messages_received == rounds && stats.rounds == rounds);
            holds(stats.block_selections == members);
            holds(stats.select_us > 0);
        }
    }
    support_sparse_close(group);
}

static void test_blocks_keep_their_quotas(void **state)
{
    (void)state;
    for_each_layout(keeps_quotas, true, 2);
}

/* Entries are those of the formulas where blocks are full: gradients are
   positive, so nothing cancels. */
static void sends_formula(int size, const baton_sparse_options_t *given,
                          support_random_t *random)
{
    baton_sparse_options_t options = *given;
    size_t teams = (size_t)options.teams, members = (size_t)size / teams;
    size_t each = 1 + support_random_below(random, 5);
    options.k = members * each;
    options.count = members * (each + support_random_below(random, 9));
    support_sparse_t *group = support_sparse_open(size, &options);
    fill(group, random, 1, 20);
    support_sparse_step(group);
    size_t entries = 2 * (members - 1) * each + log2_ceil(teams) * each;
    for (int rank = 0; rank < size; rank++) {
        baton_sparse_stats_t stats;
        assert_int_equal(baton_sparse_stats(group->ranks[rank], &stats),
                         BATON_OK);
        holds(stats.bytes_sent == entries * 12);
        holds(stats.bytes_received == entries * 12);
    }
    support_sparse_close(group);
}

static void test_full_blocks_send_what_the_formula_says(void **state)
{
    (void)state;
    for_each_layout(sends_formula, false, 3);
}

/* With room for every element the result is the dense sum, and nothing is left.
   (Where a sum is zero it is not selected, and its addends come back: so
   gradients are positive here.) */
static void sums_exactly(int size, const baton_sparse_options_t *given,
                         support_random_t *random)
{
    baton_sparse_options_t options = *given;
    options.k = options.count;
    options.redsync = BATON_REDSYNC_EXACT;
    support_sparse_t *group = support_sparse_open(size, &options);
    bool learns = options.algorithm == BATON_SPARSE_OKTOPK;
    bool shares = options.exchange == BATON_TEAMS_BSAG && options.teams > 1 &&
                  options.algorithm == BATON_SPARSE_SPARDL;
    for (int step = 0; step < (learns ? 1 : STEPS) && !shares; step++) {
        fill(group, random, 1, 41);
        support_sparse_step(group);
        for (size_t i = 0; i < options.count; i++) {
            double sum = 0;
            for (int rank = 0; rank < size; rank++) {
                double *gradient = support_sparse_gradient(group, rank);
                const double *residual = support_sparse_residual(group, rank);
                sum += gradient[i];
                holds(residual[i] == 0);
            }
            holds(((double *)(void *)group->dense)[i] == sum);
        }
    }
    support_sparse_close(group);
}

static void test_large_quotas_give_the_dense_sum(void **state)
{
    (void)state;
    for_each_algorithm(sums_exactly, 4);
}

/* One gradient for all ranks: what is selected is P times it, and leaves
   nothing. */
static void agrees_on_one(int size, const baton_sparse_options_t *options,
                          support_random_t *random)
{
    support_sparse_t *group = support_sparse_open(size, options);
    const double *first = support_sparse_gradient(group, 0);
    fill(group, random, -20, 41);
    for (int rank = 1; rank < size; rank++) {
        memcpy(support_sparse_gradient(group, rank), first,
               options->count * sizeof *first);
    }
    support_sparse_step(group);
    for (size_t i = 0; i < options->count; i++) {
        bool in = selected(&group->results[0], i);
        holds(((double *)(void *)group->dense)[i] ==
              (in ? size * first[i] : 0));
        for (int rank = 0; rank < size; rank++) {
            const double *residual = support_sparse_residual(group, rank);
            holds(residual[i] == (in ? 0 : first[i]));
        }
    }
    support_sparse_close(group);
}

static void test_equal_gradients_leave_nothing_where_selected(void **state)
{
    (void)state;
    for_each_layout(agrees_on_one, false, 5);
}

/* Negating or doubling gradients does the same to results and residuals. */
static void commutes(int size, const baton_sparse_options_t *options,
                     support_random_t *random)
{
    support_sparse_t *left = support_sparse_open(size, options);
    support_sparse_t *right = support_sparse_open(size, options);
    double factor = support_random_below(random, 2) == 0 ? -1 : 2;
    size_t all = (size_t)size * options->count;
    for (int step = 0; step < STEPS; step++) {
        const double *from = (const double *)(void *)left->gradients;
        double *to = (double *)(void *)right->gradients;
        fill(left, random, -1000, 2001);
        for (size_t i = 0; i < all; i++) {
            to[i] = factor * from[i];
        }
        support_sparse_step(left);
        support_sparse_step(right);
        for (size_t i = 0; i < options->count; i++) {
            holds(((double *)(void *)right->dense)[i] ==
                  factor * ((double *)(void *)left->dense)[i]);
        }
        for (size_t i = 0; i < all; i++) {
            holds(((double *)(void *)right->residuals)[i] ==
                  factor * ((double *)(void *)left->residuals)[i]);
        }
    }
    support_sparse_close(left);
    support_sparse_close(right);
}

static void test_scaling_commutes(void **state)
{
    (void)state;
    for_each_layout(commutes, true, 6);
}

/* What is contributed once comes out in the end, when nothing follows. Each
   step of R-SAG may halve what is left log2 d times: after enough steps the
   last bits round. */
static void drains(int size, const baton_sparse_options_t *given,
                   support_random_t *random)
{
    baton_sparse_options_t options = *given;
    options.count = options.count % 40 + 1;
    options.k = options.k < options.count ? options.k : options.count;
    support_sparse_t *group = support_sparse_open(size, &options);
    double in = 0, out = 0, left = 1;
    fill(group, random, 1, 50);
    size_t all = (size_t)size * options.count;
    for (size_t i = 0; i < all; i++) {
        in += ((double *)(void *)group->gradients)[i];
    }
    for (size_t step = 0; left > 0; step++) {
        holds(step < 2 * all + 10);
        support_sparse_step(group);
        memset(group->gradients, 0, all * sizeof(double));
        left = 0;
        for (size_t i = 0; i < options.count; i++) {
            out += ((double *)(void *)group->dense)[i];
        }
        for (size_t i = 0; i < all; i++) {
            left += ((double *)(void *)group->residuals)[i];
        }
    }
    holds(out >= in * (1 - 1e-12) && out <= in * (1 + 1e-12));
    support_sparse_close(group);
}

static void test_residuals_drain(void **state)
{
    (void)state;
    for_each_layout(drains, true, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_blocks_keep_their_quotas),
        cmocka_unit_test(test_full_blocks_send_what_the_formula_says),
        cmocka_unit_test(test_large_quotas_give_the_dense_sum),
        cmocka_unit_test(test_equal_gradients_leave_nothing_where_selected),
        cmocka_unit_test(test_scaling_commutes),
        cmocka_unit_test(test_residuals_drain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
