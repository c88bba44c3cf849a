/* baton-info: prints the version of this Baton, the machine and the
   configuration. */
#include "common/cli.h"
#include "common/job.h"
#include "info/calibrate.h"
#include <baton/engine.h>
#include <baton/tuning.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* CMakeLists.txt defines these macros. */
#ifndef BATON_BUILD_TYPE
#define BATON_BUILD_TYPE     "unknown"
#define BATON_BUILD_COMPILER "unknown"
#define BATON_BUILD_FLAGS    ""
#endif

static const char doc[] =
    "Prints Baton's version, build, kernels and transports, and the BATON_* "
    "variables with their values. With options it prints which algorithms "
    "are chosen, or measures, under mpirun, the costs of messages and "
    "reductions.";

typedef struct request {
    uint64_t ranks; /* the value of --choices; 0: not given */
    uint64_t hosts;
    const char *calibrate;
} request_t;

static const cli_option_t options[] = {
    {CLI_ANY, "choices", 0, offsetof(request_t, ranks), CLI_COUNT(1, 1 << 24),
     NULL, "Print the algorithm chosen for each range of sizes on N ranks"},
    {CLI_ANY, "hosts", 0, offsetof(request_t, hosts), CLI_COUNT(1, 1 << 24),
     "1", "With --choices: number of hosts"},
    {CLI_ANY, "calibrate", 0, offsetof(request_t, calibrate), CLI_TEXT("FILE"),
     NULL, "Measure costs and write them to FILE, for BATON_CALIBRATION"},
    {0}};

/* ---- printing ---------------------------------------------------------- */

static void print_facts(void)
{
    const char *const facts[][2] = {
        {"Baton", baton_version()},         {"Build", BATON_BUILD_TYPE},
        {"Compiler", BATON_BUILD_COMPILER}, {"Flags", BATON_BUILD_FLAGS},
        {"Kernels", baton_kernels_name()},  {"MPI", job_mpi_version()},
        {"Transports", "mpi, inproc"},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        (void)printf("%-11s %s\n", facts[i][0], facts[i][1]);
    }
}

static void print_variables(void)
{
    static const char row[] = "  %-1s  %-21s  %-10s  %-10s  %s%s%s%s\n";
    baton_variable_t of;
    (void)puts("\nVariables (* set in the environment)");
    (void)printf(row, "", "name", "value", "default", "meaning [unit or words]",
                 "", "", "");
    for (size_t i = 0; baton_variable_get(i, &of); i++) {
        bool unit = of.unit[0] != '\0';
        (void)printf(row, getenv(of.name) != NULL ? "*" : "", of.name,
                     of.value[0] != '\0' ? of.value : "-",
                     of.default_value[0] != '\0' ? of.default_value : "-",
                     of.summary, unit ? " [" : "", of.unit, unit ? "]" : "");
    }
}

/* ---- choices ---------------------------------------------------------- */

static baton_choice_t info_choose(const baton_choice_case_t *of)
{
    baton_choice_t choice;
    if (baton_choose(of, &choice) != BATON_OK) {
        (void)fprintf(stderr, "baton-info: %s\n", baton_error_message());
        exit(EXIT_FAILURE);
    }
    return choice;
}

/* Prints which algorithm is used up to which size. Sizes are powers of two from
   8 bytes to 1 GiB. */
static void print_collective(baton_choice_case_t of)
{
    const size_t largest = (size_t)1 << 30;
    const char *beyond = "any size";
    char range[32];
    (void)printf("%s\n", baton_collective_name(of.collective));
    of.bytes = 8;
    for (baton_choice_t choice = info_choose(&of), next; of.bytes <= largest;
         choice = next) {
        (void)snprintf(range, sizeof range, "up to %11zu bytes", of.bytes);
        of.bytes *= 2;
        bool last = of.bytes > largest;
        next = last ? choice : info_choose(&of);
        if (last || next.algorithm.name != choice.algorithm.name ||
            next.segment_bytes != choice.segment_bytes) {
            (void)printf("  %-23s  %s", last ? beyond : range,
                         choice.algorithm.name);
            beyond = "beyond that";
            (void)printf(choice.segment_bytes > 0 ? " in segments of %zu\n"
                                                  : "\n",
                         choice.segment_bytes);
        }
    }
}

static int print_choices(const request_t *request)
{
    baton_choice_case_t of = BATON_CHOICE_CASE;
    of.ranks = (int)request->ranks;
    of.hosts = (int)request->hosts;
    of.processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < (int)BATON_COLLECTIVE_COUNT; i++) {
        of.collective = (baton_collective_t)i;
        print_collective(of);
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static const cli_program_t program = {
        .doc = doc, .options = options, .command = CLI_ANY};
    request_t request = {.hosts = 1};
    cli_parse(&program, argc, argv, &request);
    if (request.calibrate != NULL) {
        return info_calibrate(request.calibrate);
    }
    if (request.ranks > 0) {
        return print_choices(&request);
    }
    print_facts();
    print_variables();
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
