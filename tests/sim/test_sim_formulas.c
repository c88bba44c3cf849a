/* Each builder's time in the simulator's model is the library's closed form,
   for any number of ranks. */
#include "support/cluster.h"
#include "support/cmocka.h"

#include <baton/baton.h>
#include <math.h>
#include <stddef.h>

#define ALPHA_US 1.5
#define BETA_NS  0.08
/* Inside a host. */
#define NEAR_ALPHA_US 0.3
#define NEAR_BETA_NS  0.02
#define BOUND         1e-9

typedef struct given {
    size_t bytes;
    baton_allreduce_fn allreduce; /* NULL: another builder */
    int host_ranks;               /* 0 means 1 */
} given_t;

static void build_barrier(void *arg, baton_schedule_t *schedule)
{
    baton_barrier_dissemination(schedule);
}

static void build_broadcast(void *arg, baton_schedule_t *schedule)
{
    const given_t *given = arg;
    int root = baton_schedule_size(schedule) / 2;
    baton_broadcast_binomial(schedule, root,
                             support_scratch(schedule, given->bytes));
}

static void build_allreduce(void *arg, baton_schedule_t *schedule)
{
    const given_t *given = arg;
    baton_allreduce_t args = {
        .size = sizeof args,
        .source = support_scratch(schedule, given->bytes),
        .target = support_scratch(schedule, given->bytes),
        .dtype = BATON_F64,
        .op = BATON_SUM,
    };
    given->allreduce(schedule, &args);
}

static double simulate(int ranks, double gamma_ns, baton_sim_build_fn build,
                       given_t *given)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.cost_only = true;
    options.link.alpha_us = ALPHA_US;
    options.link.beta_ns = BETA_NS;
    options.gamma_ns = gamma_ns;
    options.host_ranks = given->host_ranks;
    options.host_link.alpha_us = NEAR_ALPHA_US;
    options.host_link.beta_ns = NEAR_BETA_NS;
    baton_sim_t *sim = NULL;
    double us = 0;
    assert_int_equal(baton_sim_create(&options, &sim), BATON_OK);
    assert_int_equal(baton_sim_build(sim, "test", build, given), BATON_OK);
    assert_int_equal(baton_sim_epoch(sim, &us), BATON_OK);
    assert_int_equal(baton_sim_destroy(sim), BATON_OK);
    return us;
}

static void expect(int ranks, double gamma_ns, baton_sim_build_fn build,
                   given_t *given, baton_collective_t collective,
                   const char *name)
{
    int host_ranks = given->host_ranks > 0 ? given->host_ranks : 1;
    baton_algorithm_t algorithm;
    const baton_cost_case_t of = {
        .ranks = ranks,
        .bytes = (double)given->bytes,
        .alpha_us = ALPHA_US,
        .beta_us = BETA_NS / 1e3,
        .gamma_us = gamma_ns / 1e3,
        .hosts = (ranks - 1) / host_ranks + 1,
        .inside_alpha_us = NEAR_ALPHA_US,
        .inside_beta_us = NEAR_BETA_NS / 1e3,
    };
    assert_int_equal(baton_algorithm_find(collective, name, &algorithm),
                     BATON_OK);
    assert_true(baton_algorithm_is_exact(&algorithm, &of));
    double expected = baton_algorithm_cost_us(&algorithm, &of);
    double us = simulate(ranks, gamma_ns, build, given);
    if (fabs(us - expected) > BOUND * expected) {
        fail_msg("%d ranks, %zu bytes, gamma %g ns: %.9f us, expected %.9f",
                 ranks, given->bytes, gamma_ns, us, expected);
    }
}

static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 23, 64, 100, 1024};

enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };

/* Reductions that cost nothing, less than a transfer, more than one. */
static const double gammas_ns[] = {0, 0.02, 0.5};

enum { GAMMA_COUNT = sizeof gammas_ns / sizeof gammas_ns[0] };

static void test_barrier_dissemination(void **state)
{
    given_t given = {0};
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        expect(sizes[i], 0, build_barrier, &given, BATON_COLLECTIVE_BARRIER,
               "dissemination");
    }
}

static void test_broadcast_binomial(void **state)
{
    given_t given = {.bytes = 100000};
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        expect(sizes[i], 0, build_broadcast, &given, BATON_COLLECTIVE_BROADCAST,
               "binomial");
    }
}

static void expect_allreduce(given_t *given, const char *name)
{
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        for (size_t j = 0; j < GAMMA_COUNT; j++) {
            expect(sizes[i], gammas_ns[j], build_allreduce, given,
                   BATON_COLLECTIVE_ALLREDUCE, name);
        }
    }
}

static void test_allreduce_recursive_doubling(void **state)
{
    given_t small = {8, baton_allreduce_recursive_doubling, 1};
    given_t large = {800000, baton_allreduce_recursive_doubling, 1};
    expect_allreduce(&small, "recursive_doubling");
    expect_allreduce(&large, "recursive_doubling");
}

static void test_allreduce_binomial(void **state)
{
    given_t small = {8, baton_allreduce_binomial, 1};
    given_t large = {800000, baton_allreduce_binomial, 1};
    expect_allreduce(&small, "binomial");
    expect_allreduce(&large, "binomial");
}

/* Equal blocks, of a chunk each. A ring of 1024 would be 2 million messages. */
static void test_allreduce_ring(void **state)
{
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        given_t given = {(size_t)sizes[i] * 1024, baton_allreduce_ring, 1};
        for (size_t j = 0; j < GAMMA_COUNT && sizes[i] < 1000; j++) {
            expect(sizes[i], gammas_ns[j], build_allreduce, &given,
                   BATON_COLLECTIVE_ALLREDUCE, "ring");
        }
    }
}

/* Any number of ranks on any number of hosts, as many on each. */
static void test_allreduce_hierarchical(void **state)
{
    for (int host_ranks = 1; host_ranks <= 9; host_ranks++) {
        for (int hosts = 1; hosts <= 9; hosts++) {
            int ranks = hosts * host_ranks;
            given_t given = {(size_t)ranks * 1024, baton_allreduce_hierarchical,
                             host_ranks};
            for (size_t j = 0; j < GAMMA_COUNT; j++) {
                expect(ranks, gammas_ns[j], build_allreduce, &given,
                       BATON_COLLECTIVE_ALLREDUCE, "hierarchical");
            }
        }
    }
}

/* Those whose partners are 2^k apart, on hosts of 2^k ranks. */
static void test_allreduces_of_pairs_on_hosts(void **state)
{
    static const struct {
        baton_allreduce_fn build;
        const char *name;
    } pairs[] = {
        {baton_allreduce_recursive_doubling, "recursive_doubling"},
        {baton_allreduce_binomial, "binomial"},
        {baton_allreduce_rabenseifner, "rabenseifner"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        for (int host_ranks = 1; host_ranks <= 16; host_ranks *= 2) {
            for (int ranks = host_ranks; ranks <= 256; ranks *= 2) {
                given_t given = {(size_t)ranks * 1024, pairs[i].build,
                                 host_ranks};
                for (size_t j = 0; j < GAMMA_COUNT; j++) {
                    expect(ranks, gammas_ns[j], build_allreduce, &given,
                           BATON_COLLECTIVE_ALLREDUCE, pairs[i].name);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barrier_dissemination),
        cmocka_unit_test(test_broadcast_binomial),
        cmocka_unit_test(test_allreduce_recursive_doubling),
        cmocka_unit_test(test_allreduce_binomial),
        cmocka_unit_test(test_allreduce_ring),
        cmocka_unit_test(test_allreduce_hierarchical),
        cmocka_unit_test(test_allreduces_of_pairs_on_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
