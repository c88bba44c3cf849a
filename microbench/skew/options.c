#include "skew/skew.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char doc[] =
    "Measures the latency of all-reduce when ranks arrive one after another "
    "(Li et al. 2020, figures 8 and 9). Run it under mpirun."
    "\vIn each iteration rank r arrives (r+1) * skew after a barrier, and the "
    "time from its call to its completion is measured. The systems take turns "
    "inside each iteration. Every result is checked: it shows exactly which "
    "contributions of which iterations it contains.\n\n"
    "Examples: mpirun -np 8 --oversubscribe baton-skew --plot skew.svg\n"
    "  mpirun -np 32 --oversubscribe baton-skew --systems "
    "mpi,quorum:2,quorum:16,all:4";

static const char *const kinds[SKEW_KIND_COUNT] = {
    "solo", "majority", "full", "quorum", "any", "all", "mpi"};

static bool has_ranks(size_t kind)
{
    return kind >= SKEW_QUORUM && kind <= SKEW_ALL;
}

/* ---- the limit -------------------------------------------------------- */

/* Returns the time that `ranks` ranks wait for the k-th arrival: the mean over
   the ranks, in units of the skew. */
static double skew_options_wait_for(int k, int ranks)
{
    return (double)k * (k - 1) / 2 / ranks;
}

/* Returns the time that ranks wait for the first, or for the last, of m elected
   ranks. The k-th of all ranks is the first elected one with probability
   C(P - k, m - 1) / C(P, m). */
static double wait_for_elected(uint32_t m, int ranks, bool last)
{
    double probability = (double)m / ranks;
    double sum = 0;
    for (int k = 1; k <= ranks - (int)m + 1; k++) {
        sum += probability *
               skew_options_wait_for(last ? ranks + 1 - k : k, ranks);
        if (k < ranks) {
            probability *= (double)(ranks - k - (int)m + 1) / (ranks - k);
        }
    }
    return sum;
}

double skew_limit_us(skew_choice_t choice, int ranks, double skew_us)
{
    switch (choice.kind) {
    case SKEW_SOLO:
        return 0;
    case SKEW_MAJORITY:
        return skew_us * wait_for_elected(1, ranks, false);
    case SKEW_ANY:
    case SKEW_ALL:
        return skew_us *
               wait_for_elected(choice.ranks, ranks, choice.kind == SKEW_ALL);
    case SKEW_QUORUM:
        return skew_us * skew_options_wait_for((int)choice.ranks, ranks);
    case SKEW_MPI:
    case SKEW_FULL:
    case SKEW_KIND_COUNT:
        break;
    }
    return skew_us * skew_options_wait_for(ranks, ranks);
}

/* ---- the command line ------------------------------------------------- */

#define AT(member) offsetof(skew_options_t, member)

/* Reads a system, such as "solo" or "quorum:16". */
static skew_choice_t read_system(const cli_parser_t *parser, const char *text)
{
    int ranks = ((const skew_options_t *)parser->values)->ranks;
    size_t length = strcspn(text, ":"), kind = 0;
    uint64_t number = 0;
    while (kind < SKEW_KIND_COUNT &&
           (strlen(kinds[kind]) != length ||
            strncmp(kinds[kind], text, length) != 0)) {
        kind++;
    }
    if (kind == SKEW_KIND_COUNT || (text[length] == ':' && !has_ranks(kind))) {
        cli_refuse(parser,
                   "--systems: '%s' is not one of mpi, full, solo, majority, "
                   "quorum:Q, any:M, all:M",
                   text);
    }
    if (has_ranks(kind) &&
        (text[length] != ':' || !cli_read_count(text + length + 1, &number) ||
         number < 1 || number > (uint64_t)ranks)) {
        cli_refuse(parser,
                   "--systems: '%s' is not %s with a number from 1 to %d, the "
                   "ranks",
                   text, kinds[kind], ranks);
    }
    return (skew_choice_t){(skew_kind_t)kind, (uint32_t)number, text};
}

static void skew_options_resolve(const cli_parser_t *parser)
{
    skew_options_t *values = parser->values;
    for (size_t i = 0; i < values->systems.count; i++) {
        values->choices[i] = read_system(parser, values->systems.texts[i]);
    }
}

static const cli_option_t options[] = {
    {CLI_ANY, "systems", 's', AT(systems), CLI_TEXTS, "mpi,full,solo,majority",
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

void skew_options_parse(int argc, char **argv, int ranks, skew_options_t *out)
{
    static const cli_program_t program = {doc, options, CLI_ANY,
                                          skew_options_resolve, NULL};
    *out = (skew_options_t){.ranks = ranks, .seed = cli_default_seed()};
    cli_parse(&program, argc, argv, out);
}
