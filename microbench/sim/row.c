#include "sim/row.h"
#include <math.h>

static const table_column_t all_columns[SIM_COLUMN_COUNT] = {
    [SIM_NAME] = {NULL, NULL, TABLE_TEXT, 18, 0},
    [SIM_RANKS] = {"ranks", "ranks", TABLE_FIXED, 7, 0},
    [SIM_BYTES] = {"bytes", "bytes", TABLE_FIXED, 9, 0},
    [SIM_EPOCHS] = {"epochs", "epochs", TABLE_FIXED, 6, 0},
    [SIM_MEAN] = {"us", "time us", TABLE_FIXED, 12, 3},
    [SIM_LOW] = {"low_us", "least us", TABLE_FIXED, 12, 3},
    [SIM_HIGH] = {"high_us", "most us", TABLE_FIXED, 12, 3},
    [SIM_FORMULA] = {"formula_us", "formula us", TABLE_FIXED, 12, 3},
    [SIM_DIFFERENCE] = {"difference", "relative", TABLE_TINY, 8, 0},
    [SIM_LATENCY] = {"latency_us", "mean us", TABLE_FIXED, 12, 3},
    [SIM_MEDIAN] = {"latency_median_us", "median us", TABLE_FIXED, 12, 3},
    [SIM_P99] = {"latency_p99_us", "p99 us", TABLE_FIXED, 12, 3},
    [SIM_RATIO] = {"full_over_this", "full/this", TABLE_FIXED, 9, 2},
    [SIM_PAPER] = {"paper", "paper", TABLE_FIXED, 5, 2},
    [SIM_ACTIVE] = {"active", "active", TABLE_FIXED, 9, 2},
    [SIM_ERROR] = {"active_error", "+-", TABLE_FIXED, 6, 2},
    [SIM_EXPECTED] = {"active_expected", "expected", TABLE_FIXED, 9, 1},
    [SIM_MESSAGES] = {"messages", "messages", TABLE_FIXED, 10, 0},
    [SIM_BUILD] = {"build_s", "build s", TABLE_FIXED, 7, 2},
    [SIM_RUN] = {"run_s", "run s", TABLE_FIXED, 7, 2},
    [SIM_RATE] = {"messages_per_s", "messages/s", TABLE_FIXED, 10, 0},
};

void sim_row_columns(uint32_t shown, uint32_t written, const char *compared,
                     table_column_t columns[SIM_COLUMN_COUNT])
{
    for (size_t i = 0; i < SIM_COLUMN_COUNT; i++) {
        columns[i] = all_columns[i];
        if (i == SIM_NAME) {
            columns[i].key = columns[i].heading = compared;
        }
        if ((shown >> i & 1) == 0) {
            columns[i].heading = NULL;
        }
        if ((written >> i & 1) == 0) {
            columns[i].key = NULL;
        }
    }
}

/* The relative difference of the time from the formula. */
static double difference(const sim_result_t *result)
{
    double difference = result->mean_us - result->formula_us;
    return difference == 0 ? 0 : difference / result->formula_us;
}

/* Latency of full over this one's; NAN before full has run. */
static double ratio(const sim_case_t *c, const sim_result_t *results,
                    size_t place)
{
    for (size_t i = 0; i <= place; i++) {
        if (c->options->variants[i] == SIM_FULL) {
            return results[i].latency_us / results[place].latency_us;
        }
    }
    return NAN;
}

/* The same ratio in Li et al. 2020, figure 9, for 32 ranks that are 1 ms apart:
   the mean over the message sizes. */
static double ratio_of_paper(const sim_case_t *c)
{
    if (c->ranks != 32 || c->options->spacing_ms != 1) {
        return NAN;
    }
    return c->variant == SIM_SOLO       ? 53.32
           : c->variant == SIM_MAJORITY ? 2.46
                                        : NAN;
}

void sim_row_fill(const sim_case_t *c, const sim_result_t *results,
                  size_t place, table_cell_t cells[SIM_COLUMN_COUNT])
{
    const sim_result_t *result = &results[place];
    const double numbers[SIM_COLUMN_COUNT] = {
        [SIM_RANKS] = c->ranks,
        [SIM_BYTES] = (double)c->bytes,
        [SIM_EPOCHS] = (double)c->options->epochs,
        [SIM_MEAN] = result->mean_us,
        [SIM_LOW] = result->low_us,
        [SIM_HIGH] = result->high_us,
        [SIM_FORMULA] = result->formula_us,
        [SIM_DIFFERENCE] = difference(result),
        [SIM_LATENCY] = result->latency_us,
        [SIM_MEDIAN] = result->latency_median_us,
        [SIM_P99] = result->latency_p99_us,
        [SIM_RATIO] = ratio(c, results, place),
        [SIM_PAPER] = ratio_of_paper(c),
        [SIM_ACTIVE] = result->active,
        [SIM_ERROR] = result->active_error,
        [SIM_EXPECTED] = result->active_expected,
        [SIM_MESSAGES] = (double)result->messages,
        [SIM_BUILD] = result->build_s,
        [SIM_RUN] = result->run_s,
        [SIM_RATE] = (double)result->messages / result->run_s,
    };
    for (size_t i = 0; i < SIM_COLUMN_COUNT; i++) {
        cells[i] = table_number(numbers[i]);
    }
    cells[SIM_NAME] = table_text(c->name);
}
