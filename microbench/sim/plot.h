/* Plots each variant along the sweep, on logarithmic axes. */
#ifndef MICROBENCH_SIM_PLOT_H
#define MICROBENCH_SIM_PLOT_H

#include "common/output.h"
#include "sim/command.h"

/* Writes the script from [value_count][variant_count] results. Does nothing if
   there is no plot. */
void sim_plot_write(output_plot_t *plot, const sim_command_t *command,
                    const sim_options_t *options, const sim_result_t *results);

#endif
