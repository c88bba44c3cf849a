#include "common/modes.h"
#include "skew/skew.h"
#include <inttypes.h>
#include <string.h>

static const char doc[] =
    "Measures the latency of all-reduce when ranks arrive one after another "
    "(Li et al. 2020, figures 8 and 9). Run it under mpirun, or, if it was "
    "built without MPI, under srun or the like."
    "\vIn each iteration rank r arrives (r+1) * skew after a barrier, and the "
    "time from its call to its completion is measured. The systems take turns "
    "inside each iteration. Every result is checked: it shows exactly which "
    "contributions of which iterations it contains.\n\n"
    "Examples: mpirun -np 8 --oversubscribe baton-skew --plot skew.svg\n"
    "  mpirun -np 32 --oversubscribe baton-skew --systems "
    "mpi,quorum:2,quorum:16,all:4";

#define MODE_TEXT(MODE, name, ranks) name ranks ", "

double skew_limit_us(skew_choice_t choice, int ranks, double skew_us)
{
    mode_arrival_t arrival = mode_arrival(choice.mode, choice.ranks, ranks);
    return skew_us * arrival.mean_product / (2 * ranks);
}

/* ---- the command line ------------------------------------------------- */

#define AT(member) offsetof(skew_options_t, member)

/* The systems to compare by default, where there is no MPI. */
#define WITHOUT_MPI "full,solo,majority"

/* Reads a system, such as "solo" or "quorum:16". */
static skew_choice_t skew_read_system(const cli_parser_t *parser,
                                      const char *text)
{
    const skew_options_t *values = parser->values;
    int ranks = values->ranks;
    char name[16] = "", rest;
    unsigned number = 0;
    int read = sscanf(text, "%15[^:]:%u%c", name, &number, &rest);
    size_t mode = 0;
    if (strcmp(text, "mpi") == 0 && values->has_mpi) {
        return (skew_choice_t){
            .is_mpi = true, .mode = BATON_FULL, .name = text};
    }
    while (mode_names[mode] != NULL && strcmp(name, mode_names[mode]) != 0) {
        mode++;
    }
    bool right = mode_names[mode] != NULL && strcmp(text, name) == 0;
    if (mode_names[mode] != NULL && mode_has_ranks(mode)) {
        right = read == 2 && number >= 1 && number <= (unsigned)ranks;
    }
    if (!right) {
        cli_refuse(parser,
                   "--systems: '%s' is not one of " BATON_PARTIAL_MODE_LIST(
                       MODE_TEXT) "or mpi, if built with MPI; Q and M are 1 to "
                                  "%d, the ranks",
                   text, ranks);
    }
    return (skew_choice_t){
        .mode = (baton_partial_mode_t)mode, .ranks = number, .name = text};
}

static const cli_option_t options[] = {
    {CLI_ANY, "systems", 's', AT(systems), CLI_TEXTS, "mpi," WITHOUT_MPI,
     "Systems to compare: mpi, full, solo, majority, quorum:Q (an "
     "iteration begins at the Q-th arrival), any:M (at the first of M "
     "elected ranks), all:M (at the last of them)"},
    {CLI_ANY, "bytes", 'b', AT(bytes), CLI_SIZES(8, 8, 1 << 30),
     "64,4096,65536", "Message sizes"},
    {CLI_ANY, "skew-ms", 'k', AT(skew_ms), CLI_REAL("MS", 0, 10000), "1",
     "Milliseconds between the arrivals of consecutive ranks"},
    {CLI_ANY, "iterations", 'i', AT(iterations), CLI_COUNT(1, 100000), "64",
     "Measured iterations of each system"},
    {CLI_ANY, "seed", 0, AT(seed), CLI_COUNT(0, UINT64_MAX), NULL,
     "Seed of elections, contributions and turns; default BATON_SEED, else 1"},
    {CLI_ANY, "csv", 0, AT(files.csv), CLI_TEXT("FILE"), NULL,
     "Write a CSV file"},
    {CLI_ANY, "json", 0, AT(files.json), CLI_TEXT("FILE"), NULL,
     "Write a JSON file"},
    {CLI_ANY, "plot", 0, AT(files.plot), CLI_PLOT, NULL,
     "Plot the mean latencies; needs gnuplot"},
    {0}};

static void skew_options_resolve(const cli_parser_t *parser)
{
    skew_options_t *values = parser->values;
    if (!values->has_mpi && !cli_is_set(parser, "systems")) {
        cli_read(parser, "systems", &options[0].type, WITHOUT_MPI,
                 &values->systems);
    }
    for (size_t i = 0; i < values->systems.count; i++) {
        values->choices[i] = skew_read_system(parser, values->systems.texts[i]);
    }
}

void skew_options_parse(int argc, char **argv, skew_options_t *out)
{
    static const cli_program_t program = {.doc = doc,
                                          .options = options,
                                          .command = CLI_ANY,
                                          .resolve = skew_options_resolve};
    out->seed = cli_default_seed();
    cli_parse(&program, argc, argv, out);
}
