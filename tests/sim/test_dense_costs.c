/* The time of each builder in the simulator equals its formula, to 1e-9, if the
   algorithm's record says that the formula is exact. Otherwise the formula is
   an estimate, which is only used for choices. The work that a record states
   must be what the builder sends. */
#include "base/random.h"
#include "coll/kit/cost.h"
#include "support/dense.h"
#include "support/sim.h"

#include <math.h>

#define ALPHA_US      1.5
#define BETA_NS       0.08
#define NEAR_ALPHA_US 0.3 /* the link inside a host */
#define NEAR_BETA_NS  0.02
#define BOUND         1e-9

/* The bounds for an estimate: the time in the simulator divided by that of the
   formula. */
#define LEAST       0.4
#define MOST        1.25
#define MOST_UNEVEN 1.4 /* for hosts of different sizes */

enum { SEGMENT = 1000, SEGMENTS = 24, BLOCK = 4096 };

typedef struct world {
    int host_ranks; /* number of ranks of each host; 0 means 1 */
    double gamma_ns;
} world_t;

static void build(void *arg, baton_schedule_t *schedule)
{
    dense_build(arg, schedule, NULL, NULL);
}

static double simulate(dense_case_t *c, world_t world,
                       baton_traffic_t *sent_out)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = c->size;
    options.cost_only = true;
    options.link.alpha_us = ALPHA_US;
    options.link.beta_ns = BETA_NS;
    options.gamma_ns = world.gamma_ns;
    options.host_ranks = world.host_ranks;
    options.host_link.alpha_us = NEAR_ALPHA_US;
    options.host_link.beta_ns = NEAR_BETA_NS;
    baton_sim_t *sim = support_sim_open(&options);
    double us = -1;
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

/* If all ranks of a host share one processor, an epoch takes as long as all of
   the work: half of each message's alpha, and the bytes. It takes longer for
   algorithms that also copy within a rank, that pass on sums, or that have a
   second phase which reads what the first one wrote. */
static void expect_work(const dense_case_t *c, baton_cost_case_t of,
                        baton_traffic_t sent)
{
    const baton_algorithm_t *algorithm = &c->builder->algorithm;
    baton_collective_t collective = algorithm->collective;
    if (collective == BATON_COLLECTIVE_SCAN ||
        collective == BATON_COLLECTIVE_EXSCAN) {
        /* With one algorithm per collective there is nothing to compare. */
        return;
    }
    bool packs = strcmp(algorithm->name, "bruck") == 0;
    bool passes = collective == BATON_COLLECTIVE_REDUCE ||
                  collective == BATON_COLLECTIVE_ALLREDUCE ||
                  algorithm->phases[1] != NULL ||
                  (!algorithm->one_host && c->size > 2 &&
                   (dense_reduces(c->builder) ||
                    collective == BATON_COLLECTIVE_ALLGATHER));
    of.processors = 1;
    of.alpha_us = 2;
    of.beta_us = of.gamma_us = 0;
    double messages = baton_algorithm_host_us(algorithm, &of);
    of.alpha_us = 0;
    of.beta_us = 1;
    double bytes = baton_algorithm_host_us(algorithm, &of);
    of.beta_us = 0;
    of.gamma_us = 1;
    assert_true(dense_reduces(c->builder) ||
                baton_algorithm_host_us(algorithm, &of) <= 0);
    if (messages < (double)sent.messages - 0.5 ||
        (!packs && messages > (double)sent.messages + 0.5) ||
        (!packs && !passes && fabs(bytes - (double)sent.bytes) > 0.5) ||
        (passes && bytes > 3 * (double)sent.bytes + 0.5) ||
        bytes < (double)sent.bytes - 0.5) {
        fail_msg("%s, %d ranks: %llu messages, %llu bytes; expected %.1f, %.1f",
                 c->builder->name, c->size, (unsigned long long)sent.messages,
                 (unsigned long long)sent.bytes, messages, bytes);
    }
}

/* Returns whether the formula is exact for the case. */
static bool expect(dense_case_t *c, world_t world, bool exact_alone)
{
    const baton_algorithm_t *algorithm = &c->builder->algorithm;
    size_t elements =
        dense_counts_blocks(c->builder) ? c->count * (size_t)c->size : c->count;
    const baton_cost_case_t of = {
        .ranks = c->size,
        .bytes = (double)(elements * c->element),
        .alpha_us = ALPHA_US,
        .beta_us = BETA_NS / 1e3,
        .gamma_us = world.gamma_ns / 1e3,
        .segment_bytes = (double)c->chunk_bytes,
        .hosts =
            world.host_ranks > 0 ? (c->size - 1) / world.host_ranks + 1 : 0,
        .inside_alpha_us = NEAR_ALPHA_US,
        .inside_beta_us = NEAR_BETA_NS / 1e3,
    };
    double expected = baton_algorithm_cost_us(algorithm, &of);
    bool exact = baton_algorithm_is_exact(algorithm, &of);
    if (exact_alone && !exact) {
        return false;
    }
    baton_traffic_t sent;
    double us = simulate(c, world, &sent);
    bool flat = world.host_ranks == 0;
    double most = flat ? MOST : MOST_UNEVEN;
    /* The blocks of these cases are equal, even for ranks that fold. So the
       formula of rabenseifner does not exceed the time. */
    bool folds = flat && strcmp(algorithm->name, "rabenseifner") == 0;
    double least = folds ? 1 - BOUND : LEAST;
    bool right = exact ? fabs(us - expected) <= BOUND * expected
                       : us >= least * expected && us <= most * expected;
    if (!right) {
        fail_msg("%s, %d ranks, %d on a host, root %d, gamma %g ns: %.9f us, "
                 "expected %s%.9f",
                 c->builder->name, c->size, world.host_ranks, c->root,
                 world.gamma_ns, us, exact ? "" : "about ", expected);
    }
    if (flat) {
        expect_work(c, of, sent);
    }
    return exact;
}

static dense_case_t case_of(const dense_builder_t *builder, int size)
{
    dense_case_t c = {.builder = builder,
                      .size = size,

                      .element = 8,
                      .dtype = BATON_F64,
                      .op = BATON_SUM,
                      .count = (size_t)BLOCK * (size_t)size};
    if (dense_counts_blocks(builder)) {
        c.count = BLOCK;
    }
    if (builder->algorithm.segmented) {
        c.chunk_bytes = SEGMENT * c.element;
        c.count = (size_t)SEGMENT * SEGMENTS;
    }
    return c;
}

static const int sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11,
                            12, 13, 16, 17, 23, 31, 32, 33, 64, 100};

/* The cost of a reduction: nothing, less than the transfer of as many bytes, or
   more. */
static const double gammas_ns[] = {0, 0.02, 0.07, 0.5};
enum { GAMMAS = sizeof gammas_ns / sizeof gammas_ns[0] };

TEST(test_each_algorithm_takes_what_its_formula_says)
{
    const dense_builder_t *builder;
    for (size_t b = 0; (builder = dense_builder_at(b)) != NULL; b++) {
        for (size_t i = 0;
             !builder->chooses && i < sizeof sizes / sizeof sizes[0]; i++) {
            dense_case_t c = case_of(builder, sizes[i]);
            for (size_t j = 0; j < GAMMAS; j++) {
                bool slow = gammas_ns[j] > BETA_NS;
                (void)expect(&c, (world_t){0, gammas_ns[j]}, slow);
            }
        }
    }
}

/* With two ranks, a rank receives one vector. With more, an inner rank receives
   two. Each rank reduces one vector. Data that are passed on are divided among
   all ranks. */
TEST(test_the_linear_pipeline_counts_the_work_of_a_rank)
{
    static const double expected_us[] = {1 + 1, 2 + 1 + 1. / 3, 2 + 1 + 2. / 4};
    const dense_builder_t *builder = dense_builder("allreduce_linear_pipeline");
    for (int i = 0; i < 3; i++) {
        const baton_cost_case_t of = {.ranks = 2 + i,
                                      .bytes = 1000,
                                      .beta_us = 1e-3,
                                      .gamma_us = 1e-3,
                                      .segment_bytes = 10};
        double us = baton_algorithm_host_us(&builder->algorithm, &of);
        assert_true(fabs(us - expected_us[i]) < BOUND);
    }
}

/* With 12 ranks on 3 hosts, recursive doubling folds to 8 ranks, which do 3
   rounds. Messages of 2 rounds go between hosts. Those of the third round, and
   the messages of the other 4 ranks before and after the rounds, stay on a
   host. */
TEST(test_recursive_doubling_folds_inside_of_hosts)
{
    const dense_builder_t *builder =
        dense_builder("allreduce_recursive_doubling");
    const baton_cost_case_t of = {.ranks = 12,
                                  .hosts = 3,
                                  .bytes = 1,
                                  .inside_alpha_us = 1,
                                  .alpha_us = 100,
                                  .gamma_us = 10000};
    double us = baton_algorithm_cost_us(&builder->algorithm, &of);
    assert_true(fabs(us - 40203) < BOUND);
}

/* The algorithms whose formulas count the messages inside of hosts. */
TEST(test_formulas_that_know_hosts)
{
    int known = 0;
    const dense_builder_t *builder;
    for (size_t b = 0; (builder = dense_builder_at(b)) != NULL; b++) {
        bool knows = false;
        for (int host_ranks = 2; !builder->chooses && host_ranks <= 9;
             host_ranks++) {
            for (int hosts = 1; hosts <= 9; hosts++) {
                dense_case_t c = case_of(builder, hosts * host_ranks);
                bool exact = expect(&c, (world_t){host_ranks, 0.5}, true);
                knows = knows || (exact && hosts > 1);
            }
        }
        known += knows;
    }
    assert_int_equal(known, 6);
}

/* If the last host has fewer ranks, the smallest host limits the pieces that
   are sent between hosts. The messages of a round count as inside of a host if
   they stay inside of the largest host. */
TEST(test_the_estimates_on_uneven_hosts)
{
    static const char *const names[] = {
        "allreduce_hierarchical", "allreduce_recursive_doubling",
        "allreduce_binomial", "broadcast_binomial", "reduce_binomial"};
    for (int host_ranks = 2; host_ranks <= 8; host_ranks++) {
        for (int size = host_ranks + 1; size <= 30; size++) {
            int hosts = (size - 1) / host_ranks + 1;
            if ((size - 1) / hosts + 1 != host_ranks) {
                /* All hosts of a case have the same number of ranks, as far as
                   possible. */
                continue;
            }
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                dense_case_t c = case_of(dense_builder(names[i]), size);
                (void)expect(&c, (world_t){host_ranks, 0.02}, false);
            }
        }
    }
}

/* With 4 blocks on 3 ranks, figure 2c of the paper has 9 steps. A reduce
   followed by a broadcast takes 10. */
TEST(test_the_linear_pipeline_is_filled_once)
{
    static const char *const names[] = {"reduce_linear_pipeline",
                                        "broadcast_linear_pipeline",
                                        "allreduce_linear_pipeline"};
    double steps[3];
    for (size_t i = 0; i < 3; i++) {
        baton_traffic_t sent;
        dense_case_t c = {.builder = dense_builder(names[i]),
                          .size = 3,
                          .root = 2,
                          .count = 4,
                          .element = 4,
                          .chunk_bytes = 4,
                          .dtype = BATON_F32,
                          .op = BATON_SUM};
        steps[i] = simulate(&c, (world_t){0, 0}, &sent) /
                   (ALPHA_US + 4 * BETA_NS / 1e3);
    }
    assert_true(fabs(steps[0] + steps[1] - 10) < BOUND);
    assert_true(fabs(steps[2] - 8) < BOUND);
}

/* No message is longer than 1 GiB, whatever chunk size is requested. */
TEST(test_segments_are_bounded)
{
    dense_case_t c = case_of(dense_builder("broadcast_linear_pipeline"), 2);
    baton_traffic_t sent;
    c.count = (size_t)3 << 27;
    c.chunk_bytes = (size_t)1 << 33;
    (void)simulate(&c, (world_t){0, 0}, &sent);
    assert_int_equal(sent.messages, 3);
}

/* A change of any estimate, or of where formulas are exact, changes the
   number. */
TEST(test_estimates)
{
    baton_algorithm_t algorithm;
    uint64_t hash = 0;
    for (int i = 0; baton_algorithm_get((size_t)i / 180, &algorithm); i++) {
        const baton_cost_case_t of = {.ranks = 2 + 3 * (i % 5),
                                      .bytes = ldexp(3, 4 + 8 * (i / 5 % 3)),
                                      .segment_bytes = i / 15 % 2 * 3000.0,
                                      .processors = 2 * (i / 30 % 3),
                                      .hosts = 2 * (i / 90 % 2),
                                      .alpha_us = ALPHA_US,
                                      .beta_us = BETA_NS / 1e3,
                                      .gamma_us = BETA_NS / 1e4,
                                      .turn_us = 3,
                                      .inside_alpha_us = NEAR_ALPHA_US,
                                      .inside_beta_us = NEAR_BETA_NS / 1e3};
        double host_us = baton_algorithm_host_us(&algorithm, &of),
               between_us = baton__between_us(&algorithm, &of);
        assert_true(host_us >= 0 && between_us >= 0);
        hash = baton__mix(hash + (uint64_t)(host_us * 1e3) +
                          ((uint64_t)(between_us * 1e3) << 32) +
                          baton_algorithm_is_exact(&algorithm, &of));
    }
    assert_int_equal(hash, UINT64_C(0xcee385cc270eeb00));
}
