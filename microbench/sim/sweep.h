/* Runs a command of baton-sim: a simulation for each value of its sweep and for
   each of its variants, with a row of the table for each. */
#ifndef MICROBENCH_SIM_SWEEP_H
#define MICROBENCH_SIM_SWEEP_H

#include "sim/command.h"

/* Runs the simulations that the command line asks for. Returns the exit
   status. */
int sim_sweep(const sim_command_t *command, int argc, char **argv);

#endif
