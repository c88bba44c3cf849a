#include "net.h"
#include "train.h"

#include <baton/sparse.h>
#include <getopt.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

settings_t settings = {
    .mode = "partial",
    .keep = "all",
    .late = "random",
    .behind = "compute",
    .scale = 0.02,
    .delay_ms = -1,
    .rate = 0.05,
    .momentum = -1,
    .alpha_us = 50,
    .gbit = 1,
    .epochs = 48,
    .bucket_kib = 256,
    .seed = 1,
};

static const char usage[] =
    "Usage: mpirun -np P train [OPTION...]\n"
    "  --mode NAME      what is compared: full, partial (default), sparse\n"
    "  --systems LIST   instead, of mpi, fork, overlap; full, solo, majority,\n"
    "                   quorum:Q, any:M, all:M; ALGORITHM:DENSITY (0.01)\n"
    "  --task NAME      hyperplane, digits, sequences (default: by the mode)\n"
    "  --digits FILE    of scripts/digits.sh (default: where it writes)\n"
    "  --epochs N, --batch N, --layers N, --width N, --rate R, --momentum M,\n"
    "  --seed N         of the training; batches are of all ranks\n"
    "  --scale F        of data and delays, 0.002 to 1 (default 0.02)\n"
    "  --late WHICH     ranks a step: one at random (random, the default), "
    "one\n"
    "                   after another (rotate), always the last one (last), "
    "or\n"
    "                   all of them, by 50 to 400 ms (all)\n"
    "  --delay-ms MS    of the one that is late, before scaling (partial: "
    "300)\n"
    "  --behind WHAT    a rank whose step the others have ended without it: "
    "takes\n"
    "                   it all the same (compute, the default), or only "
    "applies\n"
    "                   its sum, to catch up (skip)\n"
    "  --device-ms MS   sleep in each step besides computing\n"
    "  --bucket-kib N   least size of an all-reduce (default 256)\n"
    "  --keep WHAT      all: the same weights everywhere (default); latest\n"
    "  --alpha-us US, --gbit G   of the network (defaults 50, 1)\n"
    "  --save PREFIX at the end, --load PREFIX to go on; no partial systems\n"
    "  --require F      fail unless all systems reach this accuracy\n"
    "  --csv FILE       writes the end of each epoch\n";

static const struct {
    const char *name;
    enum { TEXT, REAL, WHOLE } type;
    void *out;
    double least, most;
} rows[] = {
    {"mode", TEXT, &settings.mode, 0, 0},
    {"systems", TEXT, &settings.systems, 0, 0},
    {"task", TEXT, &settings.task, 0, 0},
    {"digits", TEXT, &settings.digits, 0, 0},
    {"epochs", WHOLE, &settings.epochs, 1, 1e6},
    {"batch", WHOLE, &settings.batch, 1, 1e6},
    {"layers", WHOLE, &settings.layers, 1, NET_MOST_LAYERS - 1},
    {"width", WHOLE, &settings.width, 1, 8192},
    {"rate", REAL, &settings.rate, 0, 100},
    {"momentum", REAL, &settings.momentum, 0, 0.999},
    {"seed", WHOLE, &settings.seed, 0, 1e6},
    {"scale", REAL, &settings.scale, 0.002, 1},
    {"delay-ms", REAL, &settings.delay_ms, 0, 60000},
    {"late", TEXT, &settings.late, 0, 0},
    {"behind", TEXT, &settings.behind, 0, 0},
    {"device-ms", REAL, &settings.device_ms, 0, 10000},
    {"bucket-kib", WHOLE, &settings.bucket_kib, 0, 65536},
    {"keep", TEXT, &settings.keep, 0, 0},
    {"alpha-us", REAL, &settings.alpha_us, 0, 1e9},
    {"gbit", REAL, &settings.gbit, 1e-6, 1e6},
    {"save", TEXT, &settings.save, 0, 0},
    {"load", TEXT, &settings.load, 0, 0},
    {"require", REAL, &settings.required, 0, 1},
    {"csv", TEXT, &settings.csv, 0, 0},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* Always false. */
static bool complain(const char *name, const char *text, const char *expected)
{
    if (rank == 0) {
        fprintf(stderr, "train: --%s: \"%s\" is not %s\n", name, text,
                expected);
    }
    return false;
}

static bool read_number(const char *name, const char *text, double least,
                        double most, double *out)
{
    char *end, range[80];
    *out = strtod(text, &end);
    snprintf(range, sizeof range, "from %.15g to %.15g", least, most);
    return (end != text && *end == '\0' && *out >= least && *out <= most) ||
           complain(name, text, range);
}

static bool read_row(int index, const char *text)
{
    double number, least = rows[index].least, most = rows[index].most;
    const char *name = rows[index].name;
    void *out = rows[index].out;
    switch (rows[index].type) {
    case TEXT:
        *(const char **)out = text;
        return true;
    case REAL:
        return read_number(name, text, least, most, out);
    case WHOLE:
    default:
        if (!read_number(name, text, least, most, &number)) {
            return false;
        }
        *(uint64_t *)out = (uint64_t)number;
        return number == floor(number) || complain(name, text, "whole");
    }
}

static bool is_one_of(const char *name, const char *text, const char *list)
{
    const char *found = strstr(list, text);
    size_t length = strlen(text);
    return (length > 0 && found != NULL &&
            (found == list || found[-1] == ' ') &&
            strchr(" ,", found[length]) != NULL) ||
           complain(name, text, list);
}

static bool is_mode(const char *mode)
{
    return strcmp(settings.mode, mode) == 0;
}

/* Defaults that depend on the mode. */
static bool complete(void)
{
    bool partial = is_mode("partial");
    if (settings.task == NULL) {
        settings.task = partial ? "hyperplane" : "digits";
    }
    bool plane = strcmp(settings.task, "hyperplane") == 0;
    if (settings.layers == 0) {
        settings.layers = is_mode("full") ? 4 : partial ? 1 : 2;
    }
    if (settings.width == 0) {
        settings.width = is_mode("full") ? 256 : partial ? 32 : 128;
    }
    if (settings.delay_ms < 0) {
        bool late = partial && strcmp(settings.task, "sequences") != 0;
        settings.delay_ms = late ? 300 : 0;
    }
    if (settings.momentum < 0) {
        settings.momentum = plane ? 0 : 0.9;
    }
    settings.layers = plane ? 0 : settings.layers;
    return is_one_of("task", settings.task, "hyperplane, digits, sequences") &&
           is_one_of("mode", settings.mode, "full, partial, sparse") &&
           is_one_of("late", settings.late, "random, rotate, last, all") &&
           is_one_of("behind", settings.behind, "compute, skip") &&
           is_one_of("keep", settings.keep, "all, latest");
}

bool read_options(int argc, char **argv)
{
    struct option options[ROWS + 2] = {{0}};
    for (size_t i = 0; i < ROWS; i++) {
        options[i] =
            (struct option){rows[i].name, required_argument, NULL, 'o'};
    }
    options[ROWS] = (struct option){"help", no_argument, NULL, 'h'};
    opterr = rank == 0;
    int option, index = 0;
    bool valid = true;
    while (valid &&
           (option = getopt_long(argc, argv, "h", options, &index)) != -1) {
        if (option == 'h') {
            fputs(rank == 0 ? usage : "", stdout);
            MPI_Finalize();
            exit(0);
        }
        valid = option == 'o' && read_row(index, optarg);
    }
    valid = valid && optind == argc && complete();
    if (!valid && rank == 0) {
        fputs(usage, stderr);
    }
    return valid;
}

/* ---- systems ---------------------------------------------------------- */

static const struct {
    const char *name;
    kind_t kind;
    baton_partial_mode_t mode;
    bool has_ranks;
} known[] = {{"mpi", MPI, BATON_FULL, false},
             {"fork", FORK_JOIN, BATON_FULL, false},
             {"overlap", OVERLAP, BATON_FULL, false},
             {"full", PARTIAL, BATON_FULL, false},
             {"solo", PARTIAL, BATON_SOLO, false},
             {"majority", PARTIAL, BATON_MAJORITY, false},
             {"quorum", PARTIAL, BATON_QUORUM, true},
             {"any", PARTIAL, BATON_CANDIDATES_ANY, true},
             {"all", PARTIAL, BATON_CANDIDATES_ALL, true}};

static bool is_sparse(const char *name, baton_sparse_algorithm_t *out)
{
    for (int i = 0; i < BATON_SPARSE_COUNT; i++) {
        *out = (baton_sparse_algorithm_t)i;
        if (strcmp(name, baton_sparse_algorithm_name(*out)) == 0) {
            return true;
        }
    }
    return false;
}

/* NAME or NAME:NUMBER; half of the ranks where a number of them is left out. */
static bool read_system(const char *text, system_t *out)
{
    char name[SYSTEM_NAME];
    const int half = (size + 1) / 2;
    double ranks = half;
    *out = (system_t){.density = 0.01};
    snprintf(out->name, sizeof out->name, "%s", text);
    snprintf(name, sizeof name, "%s", text);
    const char *number = strchr(text, ':');
    name[strcspn(name, ":")] = '\0';
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) == 0 &&
            (number == NULL || known[i].has_ranks)) {
            bool valid = number == NULL ||
                         read_number("systems", number + 1, 1, size, &ranks);
            out->kind = known[i].kind;
            out->mode = known[i].mode;
            out->mode_ranks = known[i].has_ranks ? (uint32_t)ranks : 0;
            return valid;
        }
    }
    out->kind = SPARSE;
    return is_sparse(name, &out->algorithm)
               ? number == NULL ||
                     read_number("systems", number + 1, 1e-9, 1, &out->density)
               : complain("systems", text, "a system");
}

size_t read_systems(run_t runs[MOST_SYSTEMS])
{
    char list[1024], *rest = NULL;
    size_t count = 0;
    const char *of_mode =
        is_mode("full") ? "mpi,fork,overlap"
        : is_mode("partial")
            ? "mpi,full,solo,majority,quorum"
            : "dense,spardl,topka,topkdsa,gtopk,oktopk,redsync";
    snprintf(list, sizeof list, "%s",
             settings.systems != NULL ? settings.systems : of_mode);
    for (char *item = strtok_r(list, ",", &rest); item != NULL;
         item = strtok_r(NULL, ",", &rest)) {
        if (count == MOST_SYSTEMS ||
            !read_system(item, &runs[count++].system)) {
            return 0;
        }
    }
    return count;
}
