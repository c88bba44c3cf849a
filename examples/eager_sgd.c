/* Data-parallel SGD with partial all-reduces: the pattern to copy.

       mpirun -np 8 --oversubscribe ./eager_sgd --plot loss.svg

       for each step:
           gradient of this rank's part of the batch
           contribute --> start --> wait        instead of MPI_Allreduce
           weights -= rate * sum of the gradients

   The task is the hyperplane regression of Li et al. 2020 (eager-SGD, section
   7.2.1): find the coefficients of a hyperplane of 8,192 dimensions from 32,768
   noisy points, with a one-layer perceptron, batches of 2,048 points of all
   ranks, and 48 epochs. In each step one rank, at random, is delayed; with
   --severe all of them are, by 50 to 400 ms, shifted by one rank each step
   (section 7.2.3). --scale makes dimensions, points, batches and delays smaller
   by one factor, so that the ratios between them stay.

   With BATON_KEEP_ALL (--keep all) every rank applies the sum of every epoch,
   in order, so the weights are the same on all ranks, bit for bit, at every
   step. With BATON_KEEP_LATEST a rank that comes late applies the latest sum
   alone, once: it never holds others up, but its weights drift, so the ranks
   average theirs at the end of each epoch. */
#include "eager_sgd_report.h"

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

#define FULL_DIMENSIONS 8192
#define FULL_POINTS     32768
#define FULL_CHECKS     4096 /* points of the validation set */
#define RATE            0.05F
#define NOISE           0.1F

/* What was asked for. */
static double scale = 0.02;
static double delay_ms = 300;
static bool severe;
static bool keep_all = true;
static uint32_t quorum; /* 0: half of the ranks */
static const char *csv_name, *json_name, *plot_name;

static int rank, size;
static size_t dimensions, points, checks; /* points and checks of this rank */

/* A rank's part of the data: [points][dimensions], and a value for each. */
typedef struct data {
    float *x, *y;
} data_t;

static void die(const char *what)
{
    fprintf(stderr, "eager_sgd: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        die(baton_error_message());
    }
}

static float *floats(size_t count)
{
    float *memory = calloc(count > 0 ? count : 1, sizeof *memory);
    if (memory == NULL) {
        die("no memory");
    }
    return memory;
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---- random numbers --------------------------------------------------- */

/* The k-th of a stream (splitmix64), from 0 to 1. */
static double uniform(uint64_t stream, uint64_t k)
{
    uint64_t x = (stream << 40) + (k + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

/* Mean 0, variance 1. */
static float centred(uint64_t stream, uint64_t k)
{
    return (float)((uniform(stream, k) - 0.5) * sqrt(12.0));
}

enum { PLANE, DELAYS, FIRST_POINT };

/* ---- the task --------------------------------------------------------- */

static float dot(const float *a, const float *b)
{
    float sum = 0;
    for (size_t i = 0; i < dimensions; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Points first, first + 1, ... of the data, which all ranks number alike. */
static data_t make_data(size_t first, size_t count)
{
    data_t data = {floats(count * dimensions), floats(count)};
    float *plane = floats(dimensions);
    for (size_t i = 0; i < dimensions; i++) {
        plane[i] = centred(PLANE, i);
    }
    for (size_t p = 0; p < count; p++) {
        uint64_t stream = FIRST_POINT + first + p;
        float *x = &data.x[p * dimensions];
        for (size_t i = 0; i < dimensions; i++) {
            x[i] = centred(stream, i);
        }
        data.y[p] = dot(plane, x) + NOISE * centred(stream, dimensions);
    }
    free(plane);
    return data;
}

/* Of the mean squared error over the batch of all ranks. */
static void compute_gradient(const data_t *data, const float *weights, int step,
                             float *gradient)
{
    size_t batch = points / STEPS_AN_EPOCH;
    size_t first = (size_t)(step % STEPS_AN_EPOCH) * batch;
    float share = 1.0F / (float)(batch * (size_t)size);
    memset(gradient, 0, dimensions * sizeof *gradient);
    for (size_t p = first; p < first + batch; p++) {
        const float *x = &data->x[p * dimensions];
        float error = (dot(weights, x) - data->y[p]) * share;
        for (size_t i = 0; i < dimensions; i++) {
            gradient[i] += error * x[i];
        }
    }
}

static double loss_of(const data_t *data, const float *weights)
{
    double sum = 0;
    for (size_t p = 0; p < checks; p++) {
        double error =
            (double)(dot(weights, &data->x[p * dimensions]) - data->y[p]);
        sum += error * error;
    }
    return sum / (double)checks;
}

static void delay(int step)
{
    double ms = 0;
    if (severe) {
        ms = size > 1 ? 50 + 350.0 * ((rank + step) % size) / (size - 1) : 50;
    } else if ((int)(uniform(DELAYS, (uint64_t)step) * size) == rank) {
        ms = delay_ms;
    }
    double seconds = ms * scale / 1e3;
    struct timespec time = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)(fmod(seconds, 1) * 1e9)};
    nanosleep(&time, NULL);
}

/* ---- training --------------------------------------------------------- */

static baton_partial_t *open_partial(baton_group_t *group, system_t system)
{
    static const baton_partial_mode_t modes[SYSTEMS] = {
        [FULL] = BATON_FULL,
        [SOLO] = BATON_SOLO,
        [MAJORITY] = BATON_MAJORITY,
        [QUORUM] = BATON_QUORUM};
    const baton_partial_options_t options = {
        .size = sizeof options,
        .name = names[system],
        .mode = modes[system],
        .mode_ranks = system == QUORUM ? quorum : 0,
        .keep = keep_all ? BATON_KEEP_ALL : BATON_KEEP_LATEST,
        .history = keep_all ? 32 : 1,
        .seed = 1,
        .count = dimensions,
        .dtype = BATON_F32};
    baton_partial_t *partial = NULL;
    must(baton_partial_create(group, &options, &partial));
    return partial;
}

/* The sum of the ranks' gradients: with a partial all-reduce, of those that are
   there, and of what late ranks have left from earlier steps. NULL: a late rank
   is behind the latest epoch, whose sum it has applied. */
static const float *reduce(baton_partial_t *partial, const float *gradient,
                           float *sum, uint64_t *applied)
{
    if (partial == NULL) {
        MPI_Allreduce(gradient, sum, (int)dimensions, MPI_FLOAT, MPI_SUM,
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

static void show(system_t system, int step)
{
    if (rank == 0 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%s: epoch %d of %d \x1b[K", names[system],
                step / STEPS_AN_EPOCH + 1, (int)EPOCHS);
    }
}

static void average(float *weights)
{
    MPI_Allreduce(MPI_IN_PLACE, weights, (int)dimensions, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    for (size_t i = 0; i < dimensions; i++) {
        weights[i] /= (float)size;
    }
}

/* `kept`: rank 0's weights at the end of each epoch, to be looked at later. */
static void train(baton_partial_t *partial, system_t system, const data_t *data,
                  float *weights, float *kept, run_t *out)
{
    float *gradient = floats(dimensions), *memory = floats(dimensions);
    uint64_t applied = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = now_s();
    for (int step = 0; step < STEPS; step++) {
        compute_gradient(data, weights, step, gradient);
        delay(step);
        const float *sum = reduce(partial, gradient, memory, &applied);
        for (size_t i = 0; sum != NULL && i < dimensions; i++) {
            weights[i] -= RATE * sum[i];
        }
        if (step % STEPS_AN_EPOCH == STEPS_AN_EPOCH - 1) {
            int epoch = step / STEPS_AN_EPOCH;
            show(system, step);
            if (partial != NULL && !keep_all) {
                average(weights);
            }
            out->at[epoch] = now_s() - began;
            memcpy(&kept[(size_t)epoch * dimensions], weights,
                   dimensions * sizeof *weights);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    out->seconds = now_s() - began;
    free(gradient);
    free(memory);
}

static double divergence_of(const float *weights)
{
    float *least = floats(dimensions), *most = floats(dimensions);
    MPI_Reduce(weights, least, (int)dimensions, MPI_FLOAT, MPI_MIN, 0,
               MPI_COMM_WORLD);
    MPI_Reduce(weights, most, (int)dimensions, MPI_FLOAT, MPI_MAX, 0,
               MPI_COMM_WORLD);
    double largest = 0;
    for (size_t i = 0; i < dimensions; i++) {
        largest = fmax(largest, (double)(most[i] - least[i]));
    }
    free(least);
    free(most);
    return largest;
}

static void run_system(baton_group_t *group, system_t system,
                       const data_t *data, const data_t *validation, run_t *out)
{
    float *weights = floats(dimensions), *kept = floats(EPOCHS * dimensions);
    baton_partial_t *partial =
        system == MPI ? NULL : open_partial(group, system);
    train(partial, system, data, weights, kept, out);
    out->divergence = divergence_of(weights);
    for (int epoch = 0; rank == 0 && epoch < EPOCHS; epoch++) {
        out->loss[epoch] =
            loss_of(validation, &kept[(size_t)epoch * dimensions]);
    }
    must(baton_partial_destroy(partial));
    free(weights);
    free(kept);
}

/* ---- the command ------------------------------------------------------ */

static const char usage[] =
    "Usage: mpirun -np P eager_sgd [OPTION...]\n"
    "  --scale F       of data and delays, 0.002 to 1 (default 0.02)\n"
    "  --delay-ms MS   of one rank a step, before scaling (default 300)\n"
    "  --severe        all ranks are late, by 50 to 400 ms\n"
    "  --quorum Q      ranks of the quorum (default: half of them)\n"
    "  --keep WHAT     all: the same weights everywhere (default); latest\n"
    "  --csv FILE, --json FILE, --plot FILE (.svg, .png; needs gnuplot)\n";

static bool read_number(const char *text, double least, double most,
                        double *out)
{
    char *end;
    *out = strtod(text, &end);
    bool valid = end != text && *end == '\0' && *out >= least && *out <= most;
    if (!valid && rank == 0) {
        fprintf(stderr, "eager_sgd: \"%s\" is not a number from %g to %g\n",
                text, least, most);
    }
    return valid;
}

static bool read_option(int option, const char *text)
{
    double number = 0;
    bool valid = true;
    switch (option) {
    case 's':
        return read_number(text, 0.002, 1, &scale);
    case 'd':
        return read_number(text, 0, 60000, &delay_ms);
    case 'q':
        valid = read_number(text, 1, size, &number);
        quorum = (uint32_t)number;
        return valid;
    case 'k':
        keep_all = strcmp(text, "all") == 0;
        return keep_all || strcmp(text, "latest") == 0;
    case 'v':
        severe = true;
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
        {"scale", required_argument, NULL, 's'},
        {"delay-ms", required_argument, NULL, 'd'},
        {"severe", no_argument, NULL, 'v'},
        {"quorum", required_argument, NULL, 'q'},
        {"keep", required_argument, NULL, 'k'},
        {"csv", required_argument, NULL, 'c'},
        {"json", required_argument, NULL, 'j'},
        {"plot", required_argument, NULL, 'p'},
        {0}};
    opterr = rank == 0;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (!read_option(option, optarg)) {
            return false;
        }
    }
    if (quorum == 0) {
        quorum = ((uint32_t)size + 1) / 2;
    }
    return optind == argc;
}

/* A rank's points are a whole number in each step. */
static void set_sizes(void)
{
    size_t batch = (size_t)(FULL_POINTS * scale) / STEPS_AN_EPOCH;
    size_t share = batch / (size_t)size > 0 ? batch / (size_t)size : 1;
    dimensions = (size_t)(FULL_DIMENSIONS * scale);
    points = share * STEPS_AN_EPOCH;
    checks = (size_t)(FULL_CHECKS * scale) + 64;
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
    set_sizes();
    baton_engine_t *engine;
    baton_group_t *group;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));

    data_t data = make_data((size_t)rank * points, points);
    data_t validation =
        make_data((size_t)size * points, rank == 0 ? checks : 0);
    static run_t runs[SYSTEMS];
    if (rank == 0) {
        printf("%d ranks, %zu dimensions, %zu points, %d steps, quorum "
               "%" PRIu32 ", keep %s\n",
               size, dimensions, points * (size_t)size, (int)STEPS, quorum,
               keep_all ? "all" : "latest");
    }
    for (int s = 0; s < SYSTEMS; s++) {
        run_system(group, (system_t)s, &data, &validation, &runs[s]);
    }
    bool passed = true;
    if (rank == 0) {
        show(SYSTEMS - 1, STEPS - 1);
        print_runs(runs);
        passed = write_csv(csv_name, runs);
        passed &= write_json(json_name, runs, size, scale);
        passed &= write_plot(plot_name, runs);
    }
    /* What --keep all promises. */
    for (int s = 0; rank == 0 && keep_all && s < SYSTEMS; s++) {
        passed &= s == MPI || runs[s].divergence == 0;
    }

    free(data.x);
    free(data.y);
    free(validation.x);
    free(validation.y);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return passed ? 0 : 1;
}
