/* One table, with the set of commands that take each option: so an option means
   the same wherever it is taken. */
#include "sim_option_table.h"
#include <assert.h>

enum {
    COLLECTIVES = SIM_ALLREDUCE | SIM_BROADCAST | SIM_BARRIER,
    PARTIALS = SIM_PARTIAL | SIM_SKEW,
    ALL = COLLECTIVES | PARTIALS,
    WITH_DATA = ALL & ~SIM_BARRIER,
    WITH_DRAWN_SKEW = ALL & ~SIM_SKEW
};

static const struct {
    unsigned commands;
    struct argp_option option;
} table[] = {
    {SIM_ALLREDUCE,
     {"algorithm", KEY_ALGORITHM, "LIST", 0,
      "Of recursive_doubling, binomial, ring (default: all)", 0}},
    {PARTIALS,
     {"mode", KEY_MODE, "LIST", 0,
      "Of full, solo, majority, quorum, any, all: the last two of candidates "
      "(default: all)",
      0}},
    {PARTIALS,
     {"mode-ranks", KEY_MODE_RANKS, "N", 0,
      "Of a quorum, or candidates (default: half of the ranks)", 0}},
    {PARTIALS,
     {"inner", KEY_INNER, "ALGORITHM", 0,
      "recursive_doubling, binomial or ring (default: the library's, by size)",
      0}},
    {ALL, {"ranks", KEY_RANKS, "N", 0, "1 to 16777216 (default 32)", 0}},
    {WITH_DATA,
     {"bytes", KEY_BYTES, "SIZE", 0,
      "A multiple of 8, with K, M or G (default 64K)", 0}},
    {SIM_ALLREDUCE,
     {"chunk-bytes", KEY_CHUNK_BYTES, "SIZE", 0,
      "ring: the grain of its pipeline (default: the library's)", 0}},
    {SIM_BROADCAST,
     {"root", KEY_ROOT, "RANK", 0, "Who has the data (default 0)", 0}},
    {ALL & ~SIM_SKEW,
     {"epochs", KEY_EPOCHS, "N", 0, "1 to 1000000 (default 1)", 0}},
    {SIM_SKEW,
     {"iterations", KEY_ITERATIONS, "N", 0, "1 to 1000000 (default 64)", 0}},
    {SIM_SKEW,
     {"skew-ms", KEY_SKEW_MS, "MS", 0,
      "Between the arrivals of neighbours, 0.001 to 10000 (default 1)", 0}},
    {ALL,
     {"seed", KEY_SEED, "N", 0, "Of all draws (default: BATON_SEED, else 1)",
      0}},
    {WITH_DATA,
     {"payload", KEY_PAYLOAD, NULL, 0,
      "Move and reduce data, and check every result", 0}},
    {WITH_DATA,
     {"prove", KEY_PROVE, NULL, 0,
      "The same with sets of contributors: whose data is in each element", 0}},

    {ALL, {NULL, 0, NULL, 0, "Model:", 1}},
    {ALL, {"alpha-us", KEY_ALPHA, "US", 0, "Of a message (default 1.5)", 1}},
    {ALL,
     {"gbit", KEY_GBIT, "GBIT/S", 0,
      "Of a link, for the cost of a byte (default 100)", 1}},
    {ALL, {"gamma-ns", KEY_GAMMA, "NS", 0, "Of a reduced byte (default 0)", 1}},
    {ALL,
     {"overhead-us", KEY_OVERHEAD, "US", 0,
      "Processor time of a message, at each end (default 0)", 1}},
    {ALL,
     {"host-ranks", KEY_HOST_RANKS, "N", 0,
      "Ranks of a host, with links of their own inside (default 1)", 1}},
    {ALL,
     {"host-alpha-us", KEY_HOST_ALPHA, "US", 0,
      "Of a message inside a host (default 0.3)", 1}},
    {ALL,
     {"host-gbit", KEY_HOST_GBIT, "GBIT/S", 0,
      "Of a link inside a host (default 400)", 1}},
    {WITH_DRAWN_SKEW,
     {"skew", KEY_SKEW, "DIST", 0,
      "Microseconds that a rank comes late to an epoch, drawn for each", 1}},
    {ALL,
     {"lag", KEY_LAG, "DIST", 0,
      "Microseconds on a message's way beyond its transfer", 1}},
    {ALL,
     {"speed", KEY_SPEED, "DIST", 0,
      "Of a rank's processor, drawn once; 1 is normal", 1}},
    {ALL,
     {"multi-ported", KEY_MULTI_PORTED, NULL, 0,
      "A rank sends and receives any number of messages at once", 1}},
    {ALL,
     {"eager-bytes", KEY_EAGER_BYTES, "SIZE", 0,
      "Sends of less than SIZE are done when they are posted", 1}},
    {ALL,
     {"sync-bytes", KEY_SYNC_BYTES, "SIZE", 0,
      "Sends of at least SIZE end only when their receive is posted", 1}},

    {ALL, {NULL, 0, NULL, 0, "Output:", 2}},
    {ALL,
     {"sweep", KEY_SWEEP, "AXIS=VALUES", 0,
      "A row for each value of ranks or bytes: ranks=2..1024, doubling, or "
      "bytes=64,4K,1M",
      2}},
    {ALL, {"csv", KEY_CSV, "FILE", 0, "Write the table as CSV", 2}},
    {ALL, {"json", KEY_JSON, "FILE", 0, "Write the table as JSON", 2}},
    {ALL,
     {"plot", KEY_PLOT, "FILE", 0,
      "Draw the sweep, to a .svg or .png file (needs gnuplot)", 2}},
    {ALL,
     {"trace", KEY_TRACE, "FILE", 0,
      "Write what ports and processors do, in Chrome's trace format (for "
      "ui.perfetto.dev)",
      2}},
    {COLLECTIVES,
     {"dot", KEY_DOT, "FILE", 0, "Write a rank's schedule for Graphviz", 2}},
    {COLLECTIVES,
     {"dot-rank", KEY_DOT_RANK, "N", 0, "Which rank's (default 0)", 2}},
    {COLLECTIVES,
     {"goal", KEY_GOAL, "FILE", 0,
      "Write all ranks' schedules for LogGOPSim, in GOAL", 2}},
};

enum { TABLE_COUNT = sizeof(table) / sizeof(table[0]) };

static const struct argp_option common[] = {CLI_COMMON_OPTIONS, {0}};

enum { COMMON_COUNT = sizeof(common) / sizeof(common[0]) };

static_assert((int)TABLE_COUNT + (int)COMMON_COUNT <= (int)SIM_MAX_OPTIONS,
              "room for all options");

void sim_option_table(unsigned command, struct argp_option out[SIM_MAX_OPTIONS])
{
    size_t count = 0;
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if ((table[i].commands & command) != 0) {
            out[count++] = table[i].option;
        }
    }
    for (size_t i = 0; i < COMMON_COUNT; i++) {
        out[count++] = common[i];
    }
}
