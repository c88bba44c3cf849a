/* CANDIDATES in the simulator: as many ranks are active, on average, as the
   elections make likely; no contribution is lost. */
#include "support/arrivals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Over whole blocks of elections every rank is a candidate as often as the
   others, so ranks in a fixed order have an exact mean where m = 1; elsewhere
   the standard error is below 1 % of P here. */
static void expect_mean(baton_partial_mode_t mode, int size, uint32_t m,
                        double expected)
{
    static arrivals_t world;
    const baton_partial_options_t options = arrivals_options(mode, m);
    arrivals_open(&world, size, &options);
    double sum = 0;
    const int epochs = 200 * size;
    for (int i = 0; i < epochs; i++) {
        arrivals_step(&world, IN_TURN);
        sum += world.included;
    }
    arrivals_expect_conserved(&world);
    arrivals_close(&world);
    double mean = sum / epochs;
    if (mean < expected - 0.04 * size || mean > expected + 0.04 * size) {
        fail_msg("%d ranks, mode %d of %u: %.2f active, expected %.2f", size,
                 (int)mode, m, mean, expected);
    }
}

static void test_candidates_have_their_mean(void **state)
{
    (void)state;
    static const int some[] = {2, 3, 5, 8, 16};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        int p = some[i];
        for (uint32_t m = 1; m <= (uint32_t)p; m += m < 3 ? 1 : 3) {
            expect_mean(BATON_CANDIDATES_ANY, p, m, (p + 1.0) / (m + 1.0));
            expect_mean(BATON_CANDIDATES_ALL, p, m, m * (p + 1.0) / (m + 1.0));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates_have_their_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
