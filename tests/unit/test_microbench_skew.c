/* baton-skew's command line, the limits that it prints, and its reading of the
   processors' times. The code is compiled into this test, since the
   microbenchmarks are not a library. */
#include "../microbench/common/cli.c"
#include "../microbench/common/measure.c"
#include "../microbench/common/modes.c"
#include "../microbench/skew/options.c"
#include "support/cmocka.h"
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 8 };

/* ---- the time that the host took -------------------------------------- */

TEST(test_steal_is_read_from_its_line)
{
    static const struct {
        const char *line;
        double stolen, total;
    } cases[] = {
        {"cpu  1 2 3 4 5 6 7 8 0 0\n", 8, 36},
        /* The time of guests is already contained in user and nice. */
        {"cpu  100 20 30 4000 50 6 7 8 90 10\n", 8, 4221},
        /* The ticks of many processors over years exceed 32 bits. */
        {"cpu 9000000000 0 0 9000000000 0 0 0 5000000000", 5e9, 23e9},
        {"", 0, 0},
        {"cpu\n", 0, 0},
        /* Kernels before Linux 2.6.11 have fewer numbers. */
        {"cpu 1 2 3 4 5 6 7\n", 0, 0},
        {"cpu0 1 2 3 4 5 6 7 8\n", 0, 0},
        {"intr 1 2 3 4 5 6 7 8\n", 0, 0},
        {"cpu 1 2 3 4 x 6 7 8\n", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        steal_t reading = steal_parse(cases[i].line);
        assert_float_equal(reading.stolen, cases[i].stolen, 0);
        assert_float_equal(reading.total, cases[i].total, 0);
    }
}

TEST(test_steal_share_is_of_what_has_passed)
{
    steal_t before = {10, 1000};
    assert_float_equal(steal_share(before, (steal_t){35, 1100}), 0.25, 1e-12);
    assert_float_equal(steal_share(before, (steal_t){10, 1100}), 0, 0);
    assert_float_equal(steal_share(before, before), 0, 0);
    assert_float_equal(steal_share((steal_t){0, 0}, (steal_t){0, 0}), 0, 0);
}

/* ---- the systems ------------------------------------------------------ */

/* Parses a list. Ends this process if the list is wrong. */
static void parse_systems(const char *list, bool has_mpi, skew_options_t *out)
{
    char program[] = "baton-skew";
    char option[] = "--systems";
    char text[256];
    (void)snprintf(text, sizeof text, "%s", list);
    char *arguments[] = {program, option, text, NULL};
    *out = (skew_options_t){.ranks = RANKS, .has_mpi = has_mpi};
    skew_options_parse(3, arguments, out);
}

TEST(test_systems_have_numbers_of_ranks)
{
    skew_options_t parsed;
    parse_systems("solo,quorum:1,quorum:8,any:3,all:8,mpi", true, &parsed);
    static const skew_choice_t expected[] = {
        {false, BATON_SOLO, 0, ""},
        {false, BATON_QUORUM, 1, ""},
        {false, BATON_QUORUM, 8, ""},
        {false, BATON_CANDIDATES_ANY, 3, ""},
        {false, BATON_CANDIDATES_ALL, 8, ""},
        {true, BATON_FULL, 0, ""}};
    assert_int_equal(parsed.systems.count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(parsed.choices[i].is_mpi, expected[i].is_mpi);
        assert_int_equal(parsed.choices[i].mode, expected[i].mode);
        assert_int_equal(parsed.choices[i].ranks, expected[i].ranks);
    }
    assert_string_equal(parsed.choices[1].name, "quorum:1");
}

TEST(test_systems_that_are_refused)
{
    /* The first one would be right with MPI. */
    static const char *const lists[] = {
        "mpi,full", "",          "nothing",     "solo,",    "quorum",
        "quorum:",  "quorum:0",  "quorum:9",    "any:-1",   "all:2x",
        "solo:2",   "solo,solo", "any:2,any:2", "quorums:2"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        skew_options_t parsed;
        int status = 0;
        if (fork() == 0) {
            (void)close(STDERR_FILENO);
            parse_systems(lists[i], i > 0, &parsed);
            _exit(0);
        }
        (void)wait(&status);
        if (WEXITSTATUS(status) != 2) {
            fail_msg("\"%s\" was not refused", lists[i]);
        }
    }
}

/* ---- the limits ------------------------------------------------------- */

/* Returns the mean time, in skews, that a rank waits if the iteration begins
   with arrival k. */
static double mean_wait(int k, int ranks)
{
    double sum = 0;
    for (int arrival = 1; arrival <= k; arrival++) {
        sum += k - arrival;
    }
    return sum / ranks;
}

/* Computes the mean over all sets of m elected ranks, which are masks. */
static double mean_over_elections(uint32_t m, int ranks, bool last)
{
    double sum = 0;
    int sets = 0;
    for (uint32_t set = 1; set < 1u << ranks; set++) {
        if ((uint32_t)__builtin_popcount(set) == m) {
            int k = last ? 32 - __builtin_clz(set) : 1 + __builtin_ctz(set);
            sum += mean_wait(k, ranks);
            sets++;
        }
    }
    return sum / sets;
}

static void expect_limit(baton_partial_mode_t mode, uint32_t m, int ranks,
                         double expected)
{
    double limit_us =
        skew_limit_us((skew_choice_t){false, mode, m, ""}, ranks, 1000);
    if (limit_us < 1000 * expected - 1e-6 ||
        limit_us > 1000 * expected + 1e-6) {
        fail_msg("mode %d of %u, %d ranks: %g us, expected %g", (int)mode, m,
                 ranks, limit_us, 1000 * expected);
    }
}

TEST(test_limits_are_means_over_all_elections)
{
    for (int ranks = 1; ranks <= 9; ranks++) {
        expect_limit(BATON_SOLO, 0, ranks, 0);
        expect_limit(BATON_FULL, 0, ranks, mean_wait(ranks, ranks));
        expect_limit(BATON_MAJORITY, 0, ranks,
                     mean_over_elections(1, ranks, false));
        for (uint32_t m = 1; m <= (uint32_t)ranks; m++) {
            expect_limit(BATON_QUORUM, m, ranks, mean_wait((int)m, ranks));
            expect_limit(BATON_CANDIDATES_ANY, m, ranks,
                         mean_over_elections(m, ranks, false));
            expect_limit(BATON_CANDIDATES_ALL, m, ranks,
                         mean_over_elections(m, ranks, true));
        }
    }
}
