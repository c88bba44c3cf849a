/* The commands of baton-sim, each with a summary. A new command is an entry
   here and its function. */
#ifndef MICROBENCH_SIM_COMMANDS_H
#define MICROBENCH_SIM_COMMANDS_H

#define SIM_COMMAND_LIST(X)                                                    \
    X(allreduce, "all-reduce, by each algorithm there is")                     \
    X(broadcast, "broadcast by binomial tree")                                 \
    X(barrier, "dissemination barrier")                                        \
    X(partial, "partial all-reduce: solo, majority, full")                     \
    X(skew, "eager-SGD's experiment: ranks arrive one after another")

/* Takes the command line from the command's name on; messages begin with
   argv[0]. Returns the exit status: CLI_EXIT_USAGE for a bad command line. */
#define SIM_COMMAND_DECLARE(name, summary)                                     \
    int sim_command_##name(int argc, char **argv);
SIM_COMMAND_LIST(SIM_COMMAND_DECLARE)
#undef SIM_COMMAND_DECLARE

#endif
