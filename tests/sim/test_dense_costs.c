/* What each builder takes in the simulator is its formula, to 1e-9, wherever
   its record calls that exact; elsewhere it is an estimate to choose by. */
#include "support/cluster.h"
#include "support/dense.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ALPHA_US 1.5
#define BETA_NS  0.08
#define BOUND    1e-9

/* What an estimate may be off by: the time over the formula. */
#define LEAST 0.4
#define MOST  1.25

enum { SEGMENT = 1000, SEGMENTS = 24, BLOCK = 4096 };

static void build(void *arg, baton_schedule_t *schedule)
{
    dense_build(arg, schedule, NULL, NULL);
}

static double simulate(dense_case_t *c, double gamma_ns,
                       baton_traffic_t *sent_out)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = c->size;
    options.cost_only = true;
    options.link.alpha_us = ALPHA_US;
    options.link.beta_ns = BETA_NS;
    options.gamma_ns = gamma_ns;
    baton_sim_t *sim = NULL;
    double us = -1;
    support_ok(baton_sim_create(&options, &sim));
    support_ok(baton_sim_build(sim, "dense", build, c));
    support_ok(baton_sim_epoch(sim, &us));
    *sent_out = (baton_traffic_t){0, 0};
    for (int rank = 0; rank < c->size; rank++) {
        baton_traffic_t sent =
            baton_schedule_sent(baton_sim_schedule(sim, rank));
        sent_out->messages += sent.messages;
        sent_out->bytes += sent.bytes;
    }
    support_ok(baton_sim_destroy(sim));
    return us;
}

/* On one processor a host takes as long as all of the work: its messages, and
   their bytes. Those that also copy within a rank, or pass on sums, have more
   bytes. */
static void expect_work(const baton_algorithm_t *algorithm,
                        const dense_case_t *c, baton_cost_case_t of,
                        baton_traffic_t sent)
{
    bool packs = strcmp(algorithm->name, "bruck") == 0;
    bool sums = algorithm->collective == BATON_COLLECTIVE_REDUCE ||
                algorithm->collective == BATON_COLLECTIVE_ALLREDUCE ||
                algorithm->collective == BATON_COLLECTIVE_REDUCE_SCATTER;
    bool passes = sums && !algorithm->one_host && c->size > 2;
    of.processors = 1;
    of.alpha_us = 1;
    of.beta_us = of.gamma_us = 0;
    double messages = baton_algorithm_host_us(algorithm, &of);
    of.alpha_us = 0;
    of.beta_us = 1;
    double bytes = baton_algorithm_host_us(algorithm, &of);
    if (fabs(messages - (double)sent.messages) > 0.5 ||
        (!packs && !passes && fabs(bytes - (double)sent.bytes) > 0.5) ||
        (passes && bytes > 2 * (double)sent.bytes + 0.5) ||
        bytes < (double)sent.bytes - 0.5) {
        fail_msg("%s, %d ranks: %llu messages, %llu bytes; expected %.1f, %.1f",
                 c->builder->name, c->size, (unsigned long long)sent.messages,
                 (unsigned long long)sent.bytes, messages, bytes);
    }
}

static void expect(const baton_algorithm_t *algorithm, dense_case_t *c,
                   double gamma_ns)
{
    size_t elements =
        dense_counts_blocks(c->builder) ? c->count * (size_t)c->size : c->count;
    const baton_cost_case_t of = {
        .ranks = c->size,
        .bytes = (double)(elements * c->element),
        .alpha_us = ALPHA_US,
        .beta_us = BETA_NS / 1e3,
        .gamma_us = gamma_ns / 1e3,
        .segment_bytes = (double)c->chunk_bytes,
    };
    double expected = baton_algorithm_cost_us(algorithm, &of);
    baton_traffic_t sent;
    double us = simulate(c, gamma_ns, &sent);
    bool scans = algorithm->collective == BATON_COLLECTIVE_SCAN ||
                 algorithm->collective == BATON_COLLECTIVE_EXSCAN;
    if (!scans) { /* with one algorithm each there is nothing to weigh */
        expect_work(algorithm, c, of, sent);
    }
    bool exact = baton_algorithm_is_exact(algorithm, &of);
    bool right = exact ? fabs(us - expected) <= BOUND * expected
                       : us >= LEAST * expected && us <= MOST * expected;
    if (!right) {
        fail_msg("%s, %d ranks, gamma %g ns: %.9f us, expected %s%.9f",
                 c->builder->name, c->size, gamma_ns, us, exact ? "" : "about ",
                 expected);
    }
}

static const int sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11,
                            12, 13, 16, 17, 23, 31, 32, 33, 64, 100};

/* Reductions that cost nothing, and less than a transfer of as much. */
static const double gammas_ns[] = {0, 0.02, 0.07};

static void expect_all(const dense_builder_t *builder)
{
    const baton_algorithm_t *algorithm = &builder->algorithm;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t p = (size_t)sizes[i];
        dense_case_t c = {.builder = builder,
                          .size = sizes[i],
                          .element = 8,
                          .dtype = BATON_F64,
                          .op = BATON_SUM,
                          .count = BLOCK * p};
        if (dense_counts_blocks(builder)) {
            c.count = BLOCK;
        }
        if (algorithm->segmented) {
            c.chunk_bytes = SEGMENT * c.element;
            c.count = (size_t)SEGMENT * SEGMENTS;
        }
        for (size_t j = 0; j < sizeof gammas_ns / sizeof gammas_ns[0]; j++) {
            expect(algorithm, &c, gammas_ns[j]);
        }
    }
}

static void test_each_algorithm_takes_what_its_formula_says(void **state)
{
    (void)state;
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        if (!builder->chooses) {
            expect_all(builder);
        }
    }
}

/* 4 blocks on 3 ranks, 1 us each: the paper's figure 2c has 9 steps, and reduce
   and broadcast in turn take 10. */
static void test_the_linear_pipeline_is_filled_once(void **state)
{
    (void)state;
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = 3;
    options.link.alpha_us = 1;
    const char *names[] = {"reduce_linear_pipeline",
                           "broadcast_linear_pipeline",
                           "allreduce_linear_pipeline"};
    double steps[3];
    for (size_t i = 0; i < 3; i++) {
        dense_case_t c = {.builder = dense_builder(names[i]),
                          .size = 3,
                          .root = 2,
                          .count = 4,
                          .element = 4,
                          .chunk_bytes = 4,
                          .dtype = BATON_F32,
                          .op = BATON_SUM};
        baton_sim_t *sim = NULL;
        support_ok(baton_sim_create(&options, &sim));
        support_ok(baton_sim_build(sim, "steps", build, &c));
        support_ok(baton_sim_epoch(sim, &steps[i]));
        support_ok(baton_sim_destroy(sim));
    }
    assert_true(steps[0] + steps[1] == 10);
    assert_true(steps[2] == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_algorithm_takes_what_its_formula_says),
        cmocka_unit_test(test_the_linear_pipeline_is_filled_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
