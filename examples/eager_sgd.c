/* Data-parallel SGD with partial all-reduces: the pattern to copy.

       mpirun -np 8 --oversubscribe ./eager_sgd --plot loss.svg

       for each step:
           gradient of this rank's part of the batch
           contribute --> start --> wait        instead of MPI_Allreduce
           weights -= rate * sum of the gradients

   --task hyperplane is the regression of Li et al. 2020 (eager-SGD, section
   7.2.1): find the coefficients of a hyperplane of 8,192 dimensions from 32,768
   noisy points, with a one-layer perceptron, batches of 2,048 points of all
   ranks, and 48 epochs. In each step one rank, at random, is delayed; with
   --severe all of them are, by 50 to 400 ms, shifted by one rank each step
   (section 7.2.3). --task digits classifies handwritten digits, and --task
   sequences does sequences of them, of very different length: there no rank
   needs to be delayed for batches to take different times (section 7.3).
   --scale makes delays, the hyperplane's data and the sequences smaller by one
   factor, so that the ratios between them stay.

   With BATON_KEEP_ALL (--keep all) every rank applies the sum of every epoch,
   in order, so the weights are the same on all ranks, bit for bit, at every
   step. With BATON_KEEP_LATEST a rank that comes late applies the latest sum
   alone, once: it never holds others up, but its weights drift, so the ranks
   average theirs at the end of each epoch. */
#include "eager_sgd_report.h"
#include "eager_sgd_task.h"

#include <baton/baton.h>
#include <baton/mpi.h>
#include <baton/partial.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What was asked for. */
static task_kind_t kind = HYPERPLANE;
static double scale = 0.02;
static double delay_ms = -1; /* of one rank; below 0: the task's own */
static bool severe;
static bool keep_all = true;
static uint32_t history = 32;
static uint32_t max_staleness; /* 0: unbounded */
static const char *digits_name, *csv_name, *json_name, *plot_name;
static system_t systems[MAX_SYSTEMS];
static int system_count;

static const char *option_name = ""; /* that is read */

static int rank, size;

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        die(baton_error_message());
    }
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void delay(int step)
{
    double ms = 0;
    if (severe) {
        ms = size > 1 ? 50 + 350.0 * ((rank + step) % size) / (size - 1) : 50;
    } else if ((int)(uniform(FREE_STREAM, (uint64_t)step) * size) == rank) {
        ms = delay_ms;
    }
    double seconds = ms * scale / 1e3;
    struct timespec time = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)(fmod(seconds, 1) * 1e9)};
    nanosleep(&time, NULL);
}

/* ---- training --------------------------------------------------------- */

static baton_partial_t *open_partial(baton_group_t *group,
                                     const system_t *system, size_t count)
{
    const baton_partial_options_t options = {
        .size = sizeof options,
        .name = system->name,
        .mode = system->choice.mode,
        .mode_ranks = system->choice.mode_ranks,
        .keep = keep_all ? BATON_KEEP_ALL : BATON_KEEP_LATEST,
        .history = keep_all ? history : 1,
        .max_staleness = max_staleness,
        .seed = 1,
        .count = count,
        .dtype = BATON_F32};
    baton_partial_t *partial = NULL;
    must(baton_partial_create(group, &options, &partial));
    return partial;
}

/* The sum of the ranks' gradients: with a partial all-reduce, of those that are
   there, and of what late ranks have left from earlier steps. NULL: a late rank
   is behind the latest epoch, whose sum it has applied. */
static const float *reduce(baton_partial_t *partial, const float *gradient,
                           float *sum, size_t count, uint64_t *applied)
{
    if (partial == NULL) {
        MPI_Allreduce(gradient, sum, (int)count, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
        return sum;
    }
    baton_partial_result_t result;
    must(baton_partial_contribute(partial, gradient));
    must(baton_partial_start(partial));
    must(baton_partial_wait(partial, -1, &result));
    bool is_new = result.epoch > *applied;
    *applied = result.epoch;
    return is_new ? result.data : NULL;
}

static void show(const char *name, int step)
{
    if (rank == 0 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%s: epoch %d of %d \x1b[K", name,
                step / STEPS_AN_EPOCH + 1, (int)EPOCHS);
    }
}

static void average(float *weights, size_t count)
{
    MPI_Allreduce(MPI_IN_PLACE, weights, (int)count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    for (size_t i = 0; i < count; i++) {
        weights[i] /= (float)size;
    }
}

/* `kept`: rank 0's weights at the end of each epoch, to be looked at later. */
static void train(baton_partial_t *partial, const task_t *task, float *weights,
                  float *kept, run_t *out)
{
    size_t count = task->weights;
    float *gradient = floats(count), *memory = floats(count);
    uint64_t applied = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = now_s();
    for (int step = 0; step < STEPS; step++) {
        task_gradient(task, weights, step, gradient);
        delay(step);
        const float *sum = reduce(partial, gradient, memory, count, &applied);
        for (size_t i = 0; sum != NULL && i < count; i++) {
            weights[i] -= task->rate * sum[i];
        }
        if (step % STEPS_AN_EPOCH == STEPS_AN_EPOCH - 1) {
            int epoch = step / STEPS_AN_EPOCH;
            show(out->system.name, step);
            if (partial != NULL && !keep_all) {
                average(weights, count);
            }
            out->at[epoch] = now_s() - began;
            memcpy(&kept[(size_t)epoch * count], weights,
                   count * sizeof *weights);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    out->seconds = now_s() - began;
    free(gradient);
    free(memory);
}

static double divergence_of(const float *weights, size_t count)
{
    float *least = floats(count), *most = floats(count);
    MPI_Reduce(weights, least, (int)count, MPI_FLOAT, MPI_MIN, 0,
               MPI_COMM_WORLD);
    MPI_Reduce(weights, most, (int)count, MPI_FLOAT, MPI_MAX, 0,
               MPI_COMM_WORLD);
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, (double)(most[i] - least[i]));
    }
    free(least);
    free(most);
    return largest;
}

static void run_system(baton_group_t *group, const system_t *system,
                       const task_t *task, run_t *out)
{
    float *weights = floats(task->weights);
    float *kept = floats(EPOCHS * task->weights);
    baton_partial_t *partial =
        system->is_mpi ? NULL : open_partial(group, system, task->weights);
    out->system = *system;
    task_init(task, weights);
    train(partial, task, weights, kept, out);
    out->divergence = divergence_of(weights, task->weights);
    for (int epoch = 0; rank == 0 && epoch < EPOCHS; epoch++) {
        out->score[epoch] =
            task_check(task, &kept[(size_t)epoch * task->weights]);
    }
    must(baton_partial_destroy(partial));
    free(weights);
    free(kept);
}

/* ---- the command ------------------------------------------------------ */

static const char usage[] =
    "Usage: mpirun -np P eager_sgd [OPTION...]\n"
    "  --task NAME       hyperplane (default), digits, sequences\n"
    "  --digits FILE     of scripts/digits.sh (default: where it writes)\n"
    "  --systems LIST    of mpi, full, solo, majority, quorum:Q, any:M, all:M\n"
    "                    (default: mpi,full,solo,majority,quorum of half)\n"
    "  --sweep           full, solo, majority, and every quorum from 2 to P - "
    "1\n"
    "  --scale F         of data and delays, 0.002 to 1 (default 0.02)\n"
    "  --delay-ms MS     of one rank a step, before scaling (default 300; 0\n"
    "                    for sequences)\n"
    "  --severe          all ranks are late, by 50 to 400 ms\n"
    "  --keep WHAT       all: the same weights everywhere (default); latest\n"
    "  --history W       with --keep all: epochs that a rank may be behind\n"
    "                    (default 32)\n"
    "  --max-staleness S epochs that a contribution may be late (default: "
    "any)\n"
    "  --csv FILE, --json FILE, --plot FILE (.svg, .png; needs gnuplot)\n";

static bool complain(const char *text, const char *expected)
{
    if (rank == 0) {
        fprintf(stderr, "eager_sgd: --%s: \"%s\" is not %s\n", option_name,
                text, expected);
    }
    return false;
}

static bool read_number(const char *text, double least, double most,
                        double *out)
{
    char *end, expected[80];
    *out = strtod(text, &end);
    snprintf(expected, sizeof expected, "a number from %.15g to %.15g", least,
             most);
    return (end != text && *end == '\0' && *out >= least && *out <= most) ||
           complain(text, expected);
}

static bool read_count(const char *text, double most, uint32_t *out)
{
    double number = 0;
    bool valid = read_number(text, 1, most, &number);
    *out = valid ? (uint32_t)number : 0;
    return valid && ((double)*out == number || complain(text, "whole"));
}

static bool read_kind(const char *text)
{
    static const char *const names[] = {"hyperplane", "digits", "sequences"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            kind = (task_kind_t)i;
            return true;
        }
    }
    return complain(text, "one of hyperplane, digits, sequences");
}

/* One of --systems. */
static bool add_system(const char *text)
{
    static const struct {
        const char *name;
        baton_partial_mode_t mode;
        bool is_mpi, has_ranks;
    } known[] = {{"mpi", BATON_FULL, true, false},
                 {"full", BATON_FULL, false, false},
                 {"solo", BATON_SOLO, false, false},
                 {"majority", BATON_MAJORITY, false, false},
                 {"quorum", BATON_QUORUM, false, true},
                 {"any", BATON_CANDIDATES_ANY, false, true},
                 {"all", BATON_CANDIDATES_ALL, false, true}};
    size_t length = strcspn(text, ":");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) != length ||
            strncmp(known[i].name, text, length) != 0 ||
            (text[length] == ':') != known[i].has_ranks) {
            continue;
        }
        system_t system = {.is_mpi = known[i].is_mpi,
                           .choice.mode = known[i].mode};
        snprintf(system.name, sizeof system.name, "%s", text);
        if (system_count == MAX_SYSTEMS) {
            return complain(text, "among the first 32 systems");
        }
        bool valid =
            !known[i].has_ranks ||
            read_count(&text[length + 1], size, &system.choice.mode_ranks);
        systems[system_count++] = system;
        return valid;
    }
    return complain(text, "one of mpi, full, solo, majority, quorum:Q, any:M, "
                          "all:M");
}

static bool read_systems(const char *list)
{
    bool valid = true;
    for (const char *next = list; valid && next != NULL;) {
        char item[SYSTEM_NAME];
        size_t length = strcspn(next, ",");
        snprintf(item, sizeof item, "%.*s", (int)length, next);
        next = next[length] == ',' ? next + length + 1 : NULL;
        valid = add_system(item);
    }
    return valid;
}

static bool add_sweep(void)
{
    bool valid = read_systems("full,solo,majority");
    for (int q = 2; valid && q < size; q++) {
        char name[SYSTEM_NAME];
        snprintf(name, sizeof name, "quorum:%d", q);
        valid = add_system(name);
    }
    return valid;
}

static bool add_default_systems(void)
{
    char list[80];
    snprintf(list, sizeof list, "mpi,full,solo,majority,quorum:%d",
             (size + 1) / 2);
    return read_systems(list);
}

static bool read_option(int option, const char *text)
{
    switch (option) {
    case 't':
        return read_kind(text);
    case 'y':
        return read_systems(text);
    case 'w':
        return add_sweep();
    case 's':
        return read_number(text, 0.002, 1, &scale);
    case 'd':
        return read_number(text, 0, 60000, &delay_ms);
    case 'k':
        keep_all = strcmp(text, "all") == 0;
        return keep_all || strcmp(text, "latest") == 0 ||
               complain(text, "all or latest");
    case 'h':
        return read_count(text, 1 << 20, &history);
    case 'm':
        return read_count(text, 1 << 20, &max_staleness);
    case 'v':
        severe = true;
        return true;
    case 'i':
        digits_name = text;
        return true;
    case 'c':
        csv_name = text;
        return true;
    case 'j':
        json_name = text;
        return true;
    case 'p':
        plot_name = text;
        return true;
    default:
        return false;
    }
}

static bool read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"task", required_argument, NULL, 't'},
        {"digits", required_argument, NULL, 'i'},
        {"systems", required_argument, NULL, 'y'},
        {"sweep", no_argument, NULL, 'w'},
        {"scale", required_argument, NULL, 's'},
        {"delay-ms", required_argument, NULL, 'd'},
        {"severe", no_argument, NULL, 'v'},
        {"keep", required_argument, NULL, 'k'},
        {"history", required_argument, NULL, 'h'},
        {"max-staleness", required_argument, NULL, 'm'},
        {"csv", required_argument, NULL, 'c'},
        {"json", required_argument, NULL, 'j'},
        {"plot", required_argument, NULL, 'p'},
        {0}};
    opterr = rank == 0;
    int option, index = 0;
    while ((option = getopt_long(argc, argv, "", options, &index)) != -1) {
        option_name = options[index].name;
        if (!read_option(option, optarg)) {
            return false;
        }
    }
    if (delay_ms < 0) {
        delay_ms = kind == SEQUENCES ? 0 : 300;
    }
    return optind == argc && (system_count > 0 || add_default_systems());
}

/* What --keep all promises. */
static bool is_identical(const run_t *runs)
{
    bool identical = true;
    for (int i = 0; i < system_count; i++) {
        identical &= systems[i].is_mpi || runs[i].divergence == 0;
    }
    return identical;
}

static bool report(const task_t *task, const run_t *runs)
{
    show(runs[system_count - 1].system.name, STEPS - 1);
    print_runs(runs, system_count);
    bool passed = write_csv(csv_name, runs, system_count);
    passed &= write_json(json_name, runs, system_count, task);
    passed &= write_plot(plot_name, runs, system_count);
    return passed;
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!read_options(argc, argv)) {
        if (rank == 0) {
            fputs(usage, stderr);
        }
        MPI_Finalize();
        return 2;
    }
    baton_engine_t *engine;
    baton_group_t *group;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));

    task_t task;
    task_open(kind, scale, rank, size, digits_name, &task);
    static run_t runs[MAX_SYSTEMS];
    if (rank == 0) {
        print_task(&task);
    }
    for (int i = 0; i < system_count; i++) {
        run_system(group, &systems[i], &task, &runs[i]);
    }
    bool passed = rank != 0 || report(&task, runs);
    passed &= rank != 0 || !keep_all || is_identical(runs);

    task_close(&task);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return passed ? 0 : 1;
}
