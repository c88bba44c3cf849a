/* Rank 0's output: the table and the files. */
#ifndef MICROBENCH_SKEW_REPORT_H
#define MICROBENCH_SKEW_REPORT_H

#include "common/table.h"
#include "skew/plot.h"

/* The output files are opened before the measurement, so that a bad path fails
   at once and not after minutes. */
typedef struct skew_report {
    const skew_options_t *options;
    int ranks;
    table_t table;
    output_plot_t plot;
} skew_report_t;

/* Prints what failed on standard error. */
bool skew_report_open(const skew_options_t *options, int ranks,
                      skew_report_t *out);

void skew_report_heading(const skew_report_t *report);

/* Prints one size's results, [system_count], and writes them to the files. */
void skew_report_table(skew_report_t *report, const skew_result_t *results);

/* Draws the plot from all results, [size_count][system_count], and closes the
   files. Prints what failed on standard error. */
bool skew_report_close(skew_report_t *report, const skew_result_t *results);

/* Closes without a plot, after a failed check. */
void skew_report_abandon(skew_report_t *report);

#endif
