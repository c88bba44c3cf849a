/* The table of baton-sim's commands. */
#ifndef MICROBENCH_SIM_COMMANDS_H
#define MICROBENCH_SIM_COMMANDS_H

#include "sim/command.h"

enum { SIM_COMMAND_COUNT = 6 };
extern const sim_command_t sim_commands[SIM_COMMAND_COUNT];

#endif
