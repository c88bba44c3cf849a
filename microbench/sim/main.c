/* baton-sim: runs collectives on any number of ranks in virtual time. See
   `baton-sim --help`. */
#include "sim/sim.h"
#include <stdio.h>
#include <string.h>

/* Parts of several help texts. */
#define DIST                                                                   \
    "DIST is a number, uniform:LOW:HIGH, exponential:MEAN, "                   \
    "normal:MEAN:DEVIATION, lognormal:MEDIAN:SIGMA or pareto:MINIMUM:SHAPE; "  \
    "samples below 0 count as 0.\n\n"
#define TIME                                                                   \
    "Time us is the virtual time of an epoch, from the first rank's start to " \
    "the last one's end, averaged over the epochs. "
#define FORMULA                                                                \
    "the closed form of the cost model: alpha for each message, beta for "     \
    "each byte, gamma for each reduced byte; single-ported ranks, no "         \
    "overhead, skew or lag. Relative is how far the simulated time "           \
    "deviates: long blocks are sent in chunks, and each costs an alpha "       \
    "that the formula leaves out. Build s and run s are real time.\n\n"
#define MODEL TIME "The formula is " FORMULA DIST "Example: baton-sim "
#define LATENCY                                                                \
    "Latencies are virtual, from a rank's call to its end of the epoch, or 0 " \
    "if the epoch had already ended. Active are the ranks whose contribution " \
    "to an epoch is in its result, with the standard error of their mean. "

static const sim_command_t sim_commands[] = {
    {
        .bit = SIM_ALLREDUCE,
        .collective = BATON_COLLECTIVE_ALLREDUCE,
        .name = "allreduce",
        .doc = "Simulates all-reduce, of 64-bit integers in place."
               "\v" MODEL "allreduce --sweep ranks=2..1024 --bytes 1M "
               "--plot allreduce.svg",
        .variant_names = sim_allreduce_names,
        .run = sim_run_collective,
    },
    {
        .bit = SIM_BROADCAST,
        .collective = BATON_COLLECTIVE_BROADCAST,
        .name = "broadcast",
        .doc = "Simulates broadcast by binomial tree."
               "\v" MODEL "broadcast --ranks 1000 --bytes 4K --prove",
        .variant_names = sim_broadcast_names,
        .run = sim_run_collective,
    },
    {
        .bit = SIM_BARRIER,
        .collective = BATON_COLLECTIVE_BARRIER,
        .name = "barrier",
        .doc = "Simulates the dissemination barrier."
               "\v" MODEL "barrier --ranks 1000000 --skew "
               "exponential:20 --epochs 10",
        .variant_names = sim_barrier_names,
        .run = sim_run_collective,
    },
    {
        .bit = SIM_PARTIAL,
        .name = "partial",
        .doc = "Simulates partial all-reduce: all ranks begin an epoch "
               "together, each late by its skew, and begin the next one when "
               "all have ended it."
               "\v" LATENCY TIME
               "The formula, for full's inner all-reduce, is " FORMULA
               "--skew-ms repeats the experiment of Li et al. 2020, figures 8 "
               "and 9: in each epoch rank r calls (r + 1) * skew after all "
               "have begun. Expected active ranks are 1 for solo and (P + 1)/2 "
               "for majority. Majority's is exact over multiples of P epochs, "
               "since P epochs elect every rank once. Full/this is full's "
               "mean latency over this mode's.\n\n" DIST
               "Example: baton-sim partial --ranks 256 --skew exponential:500 "
               "--epochs 100",
        .variant_names = mode_names,
        .run = sim_run_partial,
    },
    {
        .bit = SIM_SPARSE,
        .name = "sparse",
        .doc = "Simulates the steps of sparse all-reduces of 32-bit floating "
               "point numbers."
               "\vTime us is the virtual time of a step, without selections "
               "and sums. By default nothing is selected: messages are those "
               "of full blocks. If lengths depend on the data, the best case "
               "is assumed: all ranks of topkdsa and oktopk select the same "
               "entries, and bsag's h is the first. With --payload gradients "
               "are normally distributed; entries are selected, sent and "
               "summed, and results are checked: equal on all ranks, and "
               "nothing lost. The formula is the closed form under "
               "the same assumptions. Messages and entries are those of the "
               "rank that sends most; /spardl is the time "
               "over spardl's.\n\n" DIST
               "Example: baton-sim sparse --ranks 14 --count 15M --density "
               "0.01 --alpha-us 50 --gbit 1",
        .variant_names = sim_sparse_names,
        .run = sim_run_sparse,
    },
};
enum { SIM_COMMAND_COUNT = sizeof(sim_commands) / sizeof(sim_commands[0]) };

/* ---- the command line ---------------------------------------------------- */

static const char doc[] =
    "Simulates collectives in virtual time: the library's own schedules, on "
    "any number of ranks."
    "\vCommands:\n"
    "  allreduce  all-reduce, by every algorithm\n"
    "  broadcast  broadcast by binomial tree\n"
    "  barrier    dissemination barrier\n"
    "  partial    partial all-reduce: solo, majority, full\n"
    "  sparse     sparse all-reduce: SparDL, Ok-Topk, gTopk and others\n"
    "\nOne process, no MPI. The same seed gives the same run. Each command "
    "takes --help. To simulate other collectives or your own, write a "
    "program: see baton/sim.h and examples/05_simulate.c.\n\nExample: "
    "baton-sim allreduce --algorithm ring --ranks 1024 --bytes 100M "
    "--alpha-us 1.5 --gbit 100";

int main(int argc, char **argv)
{
    const char *names[SIM_COMMAND_COUNT + 1] = {NULL};
    for (size_t i = 0; i < SIM_COMMAND_COUNT; i++) {
        names[i] = sim_commands[i].name;
    }
    sim_options_init();
    size_t index = cli_parse_command("baton-sim", doc, names, argc, argv);
    return sim_sweep(&sim_commands[index], argc - 1, argv + 1);
}
