/* Data-parallel training of a multilayer perceptron by each way in which Baton
   sums gradients: patterns to copy, and a comparison. docs/training.md explains
   them. Begin with the heading "Baton", which has all calls of the library but
   those of main, at the end; skip "data" and "the perceptron", which have none.

       mpirun -np 8 --oversubscribe ./train
       mpirun -np 4 --oversubscribe ./train --mode full
       mpirun -np 4 --oversubscribe ./train --mode sparse --systems topka:0.01

   The systems of a mode, or of --systems, train one after another, with the
   same batches, from the same weights: mpi and overlap (mode full); partial
   modes (solo, majority, full, quorum:Q, any:M, all:M); sparse algorithms, each
   with a density. There are two tasks:

   hyperplane  the regression of Li et al. 2020 (eager-SGD, section 7.2.1): find
               the coefficients of a hyperplane of 8,192 dimensions from 32,768
               noisy points, with a one-layer perceptron and batches of 2,048
   digits      classification of handwritten digits, in place of the images of
               section 7.2.3

   One rank is late in each step: each in turn, or always the last (--late).
   With `all`, every rank is, by 50 to 400 ms, and the delays move on by one
   rank each step (section 7.2.3). */
#include <argp.h>
#include <baton/mpi.h>
#include <baton/partial.h>
#include <baton/sparse.h>
#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks; /* of this process, and how many */

static bool is(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

/* ---- options ------------------------------------------------------------ */

static const char *mode_name = "partial", *systems, *task, *late = "rotate",
                  *behind = "compute";
static double passes = 48, batch, seed = 1, scale = 0.02, delay_ms = -1;

/* The keys are the places in `texts`, and then in `numbers`, below. */
static const struct argp_option options[] = {
    {"mode", 1, "full|partial|sparse", 0, "How gradients are summed", 0},
    {"systems", 2, "LIST", 0,
     "Of mpi, overlap; full, solo, majority, quorum:Q, any:M, all:M; "
     "ALGORITHM:DENSITY",
     0},
    {"task", 3, "hyperplane|digits", 0, "What is learned", 0},
    {"late", 4, "rotate|last|all", 0, "Which ranks are delayed", 0},
    {"behind", 5, "compute|skip", 0, "What a late rank does", 0},
    {"epochs", 6, "N", 0, "Passes over the data", 0},
    {"batch", 7, "N", 0, "Examples of a batch", 0},
    {"seed", 8, "N", 0, "Seed of the initial weights", 0},
    {"scale", 9, "X", 0, "Part of the paper's sizes and delays", 0},
    {"delay-ms", 10, "MS", 0, "Delay of a late rank, before scaling", 0},
    {.key = 'h', .flags = OPTION_HIDDEN},
    {0}};

/* Sets an option, if the value is allowed: a word of those in the option's
   name of its value, or a number. Numbers of 1 or more must be whole. */
static error_t train_read_option(int key, char *value, struct argp_state *state)
{
    static const char **const texts[] = {&mode_name, &systems, &task, &late,
                                         &behind};
    static double *const numbers[] = {&passes, &batch, &seed, &scale,
                                      &delay_ms};
    char *end = value, word[32], words[64];
    bool valid = key == 2;
    if (key == 'h') {
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP); /* exits */
    }
    if (key < 1 || key > 10) {
        return ARGP_ERR_UNKNOWN;
    }
    const struct argp_option *option = &options[key - 1];
    if (key <= 5) {
        *texts[key - 1] = value;
        snprintf(word, sizeof word, "|%s|", value);
        snprintf(words, sizeof words, "|%s|", option->arg);
        valid = valid || strstr(words, word) != NULL;
    } else {
        double number = *numbers[key - 6] = strtod(value, &end);
        valid = *end == '\0' && number >= 0 &&
                (number < 1 || number == floor(number));
    }
    if (!valid) {
        argp_error(state, "--%s: %s is not valid", option->name, value);
    }
    return 0;
}

/* What --mode sets where no other option does. */
struct mode {
    const char *name, *systems;
    bool plane;        /* the task */
    int layers, width; /* of the network for digits, and its hidden layers */
    double delay_ms;
};
static const struct mode modes[] = {
    {.name = "partial",
     .systems = "mpi,full,solo,majority,quorum",
     .plane = true,
     .layers = 2,
     .width = 32,
     .delay_ms = 300},
    {.name = "full", .systems = "mpi,overlap", .layers = 5, .width = 256},
    {.name = "sparse",
     .systems = "dense,spardl,topka,topkdsa,gtopk,oktopk,redsync",
     .layers = 3,
     .width = 128}};

/* ---- data --------------------------------------------------------------- */

enum { DIGITS = 1797, TRAINED = 1408, PIXELS = 64, CLASSES = 10 };

static bool plane; /* whether the task is hyperplane, not digits */
/* Each batch has `part` examples of each rank, and a pass over the data `steps`
   batches. The network trains with the first `trained` of `all` examples, and
   is tested with the others. x[all][inputs + 1] has their inputs, each with a 1
   at the end, and y[all] the right answers: a value to predict, or a class. */
static int part, steps, trained, all, inputs;
static float *x, *y;

/* Streams of random numbers. Each point of the hyperplane, and each layer, has
   a stream of its own, from the last two numbers on. */
enum { ORDER, LABELS, NOISE, PROTOTYPES, PLANE = 6, LAYERS = 8, POINTS = 72 };

/* Returns the k-th number of a stream, from 0 to 1, by splitmix64 (Steele, Lea,
   Flood 2014). */
static double uniform(int stream, int64_t k)
{
    uint64_t n = ((uint64_t)stream << 40) +
                 ((uint64_t)k + 1) * UINT64_C(0x9e3779b97f4a7c15);
    n = (n ^ (n >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    n = (n ^ (n >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((n ^ (n >> 31)) >> 11) / 9007199254740992.0;
}

/* Returns a random number with mean 0 and variance 1. */
static float centred(int stream, int64_t k)
{
    return (float)((uniform(stream, k) - 0.5) * sqrt(12.0));
}

/* Returns a matrix whose last column is 1 and whose other elements are 0. */
static float *matrix(int height, int wide)
{
    float *memory = calloc((size_t)height * (size_t)wide, sizeof(float));
    if (memory == NULL) {
        abort();
    }
    for (int i = 1; i <= height; i++) {
        memory[i * wide - 1] = 1;
    }
    return memory;
}

/* Makes points of the hyperplane. Each rank makes its own points to train with,
   and rank 0 also makes the points to test with. */
static const char *make_points(void)
{
    for (int p = 0; p < (rank == 0 ? all : trained); p++) {
        int stream = POINTS + (p < trained ? rank : ranks - 1) * trained + p;
        float *point = &x[p * (inputs + 1)];
        y[p] = 0.1F * centred(stream, inputs);
        for (int i = 0; i < inputs; i++) {
            point[i] = centred(stream, i);
            y[p] += centred(PLANE, i) * point[i];
        }
    }
    return "made up";
}

/* Reads images of 8 x 8 pixels, each with the digit that it shows (Alpaydin,
   Kaynak 1998), from the file that scripts/digits.sh makes, or else makes up
   images: ten random prototypes with noise. Shuffles them, since the file is
   ordered by writer. Returns the source of the data. */
static const char *open_digits(void)
{
    FILE *file = popen("zcat " DIGITS_FILE " 2>/dev/null", "r");
    bool read = file != NULL;
    for (int i = 0; i < DIGITS; i++) {
        float *image = &x[i * (PIXELS + 1)];
        y[i] = (float)(int)(uniform(LABELS, i) * CLASSES);
        for (int p = 0; p < PIXELS; p++) {
            double pixel = uniform(PROTOTYPES, (int)y[i] * PIXELS + p) +
                           1.5 * (uniform(NOISE, i * PIXELS + p) - 0.5);
            image[p] = (float)fmin(fmax(pixel, 0), 1);
            read = read && fscanf(file, "%f,", &image[p]) == 1;
            image[p] /= read ? 16 : 1;
        }
        read = read && fscanf(file, "%f", &y[i]) == 1 && y[i] >= 0 &&
               y[i] < CLASSES;
    }
    (void)(file != NULL && pclose(file));
    for (int i = DIGITS - 1; i > 0; i--) {
        int other = (int)(uniform(ORDER, i) * (i + 1));
        cblas_sswap(PIXELS, &x[i * (PIXELS + 1)], 1, &x[other * (PIXELS + 1)],
                    1);
        cblas_sswap(1, &y[i], 1, &y[other], 1);
    }
    return read ? DIGITS_FILE : "made up";
}

/* ---- the perceptron ----------------------------------------------------- */

/* The parameters lie in one vector, and so do their gradients, the last layer
   first. So gradients that become ready one after another are adjacent, and one
   all-reduce can take them without a copy. A layer has weights [in][out], then
   biases [out]: the weights of an additional input, which is always 1. */
enum { MOST_LAYERS = 5 };
static int layers, count; /* the numbers of layers and of parameters */
static float *weights, *gradient, *velocity;
static int firsts[MOST_LAYERS];    /* index of a layer's first parameter */
static size_t counts[MOST_LAYERS]; /* of parameters, of the last layer first */
/* widths[l] is the number of layer l's inputs plus 1, and widths[layers] is the
   number of the network's outputs plus 1. values[l][row * widths[l] + i] is
   input i of layer l for example `row`: values[0] points into x, and
   values[layers] has the outputs. `deltas` are the loss's derivatives. */
static int widths[MOST_LAYERS + 1];
static float *values[MOST_LAYERS + 1], *deltas[MOST_LAYERS + 1];
static int rows; /* of the examples that forward() has taken, and their */
static const float *targets; /* right answers */

/* Allocates layer l, whose inputs, without the 1, have the width `in`. */
static void open_layer(int l, int in, int out)
{
    widths[l] = in + 1;
    widths[l + 1] = out + 1;
    values[l + 1] = matrix(part, out + 1);
    deltas[l + 1] = matrix(part, out + 1);
    firsts[l] = count;
    counts[layers - 1 - l] = (size_t)(in + 1) * (size_t)out;
    count += (in + 1) * out;
}

/* Makes the network, whose hidden layers have this width, and opens the data.
   Returns the source of the data. */
static const char *open_network(int width)
{
    openblas_set_num_threads(1); /* each rank computes with one thread */
    double usual = plane ? 2048 * scale : 88;
    part = (int)fmax((batch > 0 ? batch : usual) / ranks, 1);
    steps = plane ? 16 : (int)fmax(1.0 * TRAINED / part / ranks, 1);
    trained = plane ? part * steps : TRAINED;
    all = plane ? trained + (int)(4096 * scale) + 64 : DIGITS;
    inputs = plane ? (int)(8192 * scale) : PIXELS;
    int outputs = plane ? 1 : CLASSES;
    x = matrix(all, inputs + 1);
    y = matrix(all, 1);
    for (int l = layers - 1; l >= 0; l--) {
        open_layer(l, l > 0 ? width : inputs, l + 1 < layers ? width : outputs);
    }
    weights = matrix(1, count);
    gradient = matrix(1, count);
    velocity = matrix(1, count);
    return plane ? make_points() : open_digits();
}

/* Sets the initial weights, the same on all ranks: uniform with variance 2 / in
   (He et al. 2015). */
static void reset_weights(void)
{
    memset(weights, 0, (size_t)count * sizeof(float));
    memset(velocity, 0, (size_t)count * sizeof(float));
    for (int l = 0; l < layers; l++) {
        float deviation = sqrtf(2 / (float)(widths[l] - 1));
        for (int i = 0; i < (widths[l] - 1) * (widths[l + 1] - 1); i++) {
            weights[firsts[l] + i] =
                deviation * centred(LAYERS + l, ((int64_t)seed << 32) + i);
        }
    }
}

/* Takes n examples, from `first` on. Computes each layer's outputs = max(0,
   inputs * weights + biases). The last layer has no max. */
static void forward(int first, int n)
{
    rows = n;
    values[0] = &x[first * widths[0]];
    targets = &y[first];
    for (int l = 0; l < layers; l++) {
        int in = widths[l], out = widths[l + 1];
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, out - 1, in,
                    1, values[l], in, &weights[firsts[l]], out - 1, 0,
                    values[l + 1], out);
        for (int i = 0; l + 1 < layers && i < n * out; i++) {
            values[l + 1][i] = fmaxf(values[l + 1][i], 0);
        }
    }
}

/* Returns the loss of a row: the squared error for hyperplane, and the cross
   entropy of the softmax for digits. Sets the row's deltas to the loss's
   derivatives times `share`. For digits, counts the row in *right if the right
   class has the largest output. */
static double row_loss(int row, float share, int *right)
{
    const float *outputs = &values[layers][row * widths[layers]];
    float *delta = &deltas[layers][row * widths[layers]], most = outputs[0];
    int class = (int)targets[row];
    double sum = 0;
    if (plane) {
        delta[0] = 2 * share * (outputs[0] - targets[row]);
        return pow((double)(outputs[0] - targets[row]), 2);
    }
    for (int c = 1; c < CLASSES; c++) {
        most = fmaxf(most, outputs[c]);
    }
    for (int c = 0; c < CLASSES; c++) {
        sum += exp((double)(outputs[c] - most));
    }
    for (int c = 0; c < CLASSES; c++) {
        double probability = exp((double)(outputs[c] - most)) / sum;
        delta[c] = share * (float)(probability - (c == class));
    }
    *right += outputs[class] == most;
    return log(sum) - (double)(outputs[class] - most);
}

/* Sets the layer's part of the gradient, and the deltas of the layer's inputs,
   except in the first layer, where they are not needed. */
static void backward(int l)
{
    int in = widths[l], out = widths[l + 1];
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, in, out - 1, rows, 1,
                values[l], in, deltas[l + 1], out, 0, &gradient[firsts[l]],
                out - 1);
    if (l == 0) {
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, in, out - 1, 1,
                deltas[l + 1], out, &weights[firsts[l]], out - 1, 0, deltas[l],
                in);
    for (int i = 0; i < rows * in; i++) {
        deltas[l][i] = values[l][i] > 0 ? deltas[l][i] : 0;
    }
}

/* Computes the mean loss of the examples to test with, which rank 0 has.
   Returns the percentage of right answers, or NAN for a regression. */
static double check_network(double *loss_out)
{
    int right = 0, checks = all - trained;
    *loss_out = 0;
    for (int i = trained; i < all; i += rows) {
        forward(i, all - i < part ? all - i : part);
        for (int row = 0; row < rows; row++) {
            *loss_out += row_loss(row, 1, &right) / checks;
        }
    }
    return plane ? NAN : 100.0 * right / checks;
}

/* ---- Baton -------------------------------------------------------------- */

static baton_group_t *group;

static struct {
    const char *name;
    enum { MPI, OVERLAP, PARTIAL, SPARSE } kind;
    int which;     /* a baton_partial_mode_t, or a baton_sparse_algorithm_t */
    double number; /* how many ranks a mode waits for, or the density */
    baton_schedule_t *sums[MOST_LAYERS]; /* of each layer */
    baton_partial_t *partial;
    baton_sparse_t *sparse;
    baton_sparse_options_t sparse_options;
    double bytes, network_s; /* in sum */
} run;

/* The momentum of SGD, for the task digits only. */
#define MOMENTUM (plane ? 0 : 0.9)

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "train: %s\n", baton_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void open_system(void)
{
    for (int l = 0; run.kind == OVERLAP && l < layers; l++) {
        baton_operands_t operands = {.target = &gradient[firsts[l]],
                                     .count = counts[layers - 1 - l],
                                     .dtype = BATON_F32,
                                     .op = BATON_SUM,
                                     .name = "gradients"};
        must(baton_allreduce_create(group, &operands, &run.sums[l]));
    }
    if (run.kind == PARTIAL) { /* one for all layers */
        baton_partial_options_t of = BATON_PARTIAL_OPTIONS;
        of.name = run.name;
        of.mode = (baton_partial_mode_t)run.which;
        of.mode_ranks = (uint32_t)run.number;
        of.history = 32; /* no rank is further behind the others */
        of.seed = (uint64_t)seed;
        of.tensors = (size_t)layers;
        of.counts = counts;
        of.dtype = BATON_F32;
        must(baton_partial_create(group, &of, &run.partial));
    }
    if (run.kind == SPARSE) {
        baton_sparse_options_t of = BATON_SPARSE_OPTIONS;
        of.algorithm = (baton_sparse_algorithm_t)run.which;
        of.count = (size_t)count;
        of.density = run.number;
        of.momentum = MOMENTUM;               /* the library applies it */
        of.link = (baton_link_cost_t){50, 8}; /* of 50 us and 1 Gbit/s */
        must(baton_sparse_create(group, &of, -1, &run.sparse));
        run.sparse_options = of;
    }
}

/* Called when the layer has its gradient. While earlier layers compute theirs,
   its all-reduce is in flight (Wang et al. 2017, see baton/coll.h). */
static void give_layer(int l)
{
    if (run.kind == OVERLAP) {
        must(baton_schedule_start(run.sums[l]));
    } else if (run.kind == PARTIAL) {
        must(baton_partial_contribute_tensor(
            run.partial, (size_t)(layers - 1 - l), &gradient[firsts[l]]));
    }
}

/* Adds a sparse step's bytes and network time to the totals. The time is that
   of the closed form, so both are the same on any machine. Statistics do not
   count the bytes of a dense all-reduce, so these are the closed form's, too.
 */
static void count_sparse(void)
{
    baton_sparse_stats_t stats;
    baton_sparse_cost_t cost;
    must(baton_sparse_stats(run.sparse, &stats));
    run.sparse_options.algorithm = stats.algorithm;
    must(baton_sparse_cost(&run.sparse_options, ranks, &cost));
    run.bytes += stats.algorithm == BATON_SPARSE_DENSE
                     ? cost.bytes
                     : (double)stats.bytes_sent;
    run.network_s += cost.us / 1e6;
}

/* Waits for the sum of the ranks' gradients, and returns it. */
static const float *take_sum(void)
{
    if (run.kind == MPI) {
        MPI_Allreduce(MPI_IN_PLACE, gradient, count, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    }
    for (int l = 0; run.kind == OVERLAP && l < layers; l++) {
        must(baton_schedule_wait(run.sums[l], -1));
    }
    if (run.kind == PARTIAL) { /* a late rank's part may be of a step before */
        baton_partial_result_t result;
        must(baton_partial_start(run.partial));
        must(baton_partial_wait(run.partial, -1, &result));
        return result.data;
    }
    if (run.kind == SPARSE) {
        baton_sparse_result_t result; /* the selected entries */
        must(baton_sparse_start(run.sparse, gradient));
        must(baton_sparse_wait(run.sparse, -1, &result));
        must(baton_sparse_dense(run.sparse, gradient));
        count_sparse();
    }
    return gradient;
}

/* ---- a system ----------------------------------------------------------- */

/* Returns this rank's delay in a step, in ms, before scaling. */
static double delay_of(int step)
{
    if (is(late, "all")) {
        return 50 + 350.0 * ((step + rank) % ranks) / fmax(ranks - 1, 1);
    }
    int late_rank = is(late, "last") ? ranks - 1 : step % ranks;
    return rank == late_rank ? delay_ms : 0;
}

/* Computes this rank's gradient, of its part of the batch. A late rank sleeps
   before. For hyperplane each rank has points of its own, for digits all
   images. */
static void compute_gradient(int step)
{
    usleep((useconds_t)(1e3 * delay_of(step) * scale));
    int place = plane ? step % steps : step % steps * ranks + rank;
    forward(place * part, part);
    for (int row = 0; row < rows; row++) {
        (void)row_loss(row, 1 / (float)(part * ranks), &(int){0});
    }
    for (int l = layers - 1; l >= 0; l--) {
        backward(l);
        give_layer(l);
    }
}

/* Takes a step of SGD. With --behind skip a rank computes no gradient for a
   step whose epoch the other ranks have run without it; epochs count from 1. */
static void take_step(int step)
{
    float rate = plane ? 0.025F : 0.05F;
    float momentum = run.kind == SPARSE ? 0 : (float)MOMENTUM;
    if (is(behind, "compute") || run.kind != PARTIAL ||
        baton_schedule_epoch(baton_partial_schedule(run.partial)) <=
            (uint64_t)step) {
        compute_gradient(step);
    }
    const float *sum = take_sum();
    for (int i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] - rate * sum[i];
        weights[i] += velocity[i];
    }
}

/* Trains one system and prints its row. Returns false if the weights are not
   those of rank 0: Baton's sums have the same bits on all ranks. */
static bool run_system(void)
{
    reset_weights();
    open_system();
    MPI_Barrier(MPI_COMM_WORLD);
    double loss, began_s = MPI_Wtime();
    for (int step = 0; step < (int)passes * steps; step++) {
        take_step(step);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - began_s, accuracy = check_network(&loss);
    must(baton_allreduce_now(group, NULL, &run.bytes, 1, BATON_F64, BATON_MAX));
    if (rank == 0) {
        printf("%-14s %9.2f %9.5f %9.2f %9.3f %9.4f\n", run.name, seconds, loss,
               accuracy, run.bytes / 1e6, run.network_s);
    }
    memcpy(gradient, weights, (size_t)count * sizeof(float));
    must(baton_broadcast_now(group, gradient, (size_t)count, BATON_F32, 0));
    for (int l = 0; l < layers; l++) {
        must(baton_schedule_destroy(run.sums[l]));
    }
    must(baton_partial_destroy(run.partial));
    must(baton_sparse_destroy(run.sparse));
    return run.kind == MPI ||
           memcmp(gradient, weights, (size_t)count * sizeof(float)) == 0;
}

/* Sets `run` to the system "NAME" or "NAME:NUMBER", and returns whether there
   is such a system. Without NUMBER, a mode waits for half of the ranks, and a
   sparse all-reduce has a density of 1 %. The library checks the number. */
static bool train_read_system(const char *text)
{
    /* From "solo" on they are in the order of baton_partial_mode_t. */
    static const char *const names[] = {"mpi",  "overlap", "solo", "majority",
                                        "full", "quorum",  "any",  "all"};
    enum { AUTO = sizeof names / sizeof names[0] };
    char name[16] = "", rest;
    double number;
    int i = 0, read = sscanf(text, "%15[^:]:%lf%c", name, &number, &rest);
    while (i < AUTO + BATON_SPARSE_COUNT &&
           !is(name,
               i < AUTO ? names[i] : baton_sparse_algorithm_name(i - AUTO))) {
        i++;
    }
    memset(&run, 0, sizeof run);
    run.name = text;
    run.kind = i;
    if (i >= AUTO) {
        run.kind = SPARSE;
        run.which = i - AUTO;
        run.number = 0.01;
    } else if (i >= PARTIAL) {
        run.kind = PARTIAL;
        run.which = i - PARTIAL;
        run.number = run.which >= BATON_QUORUM ? (ranks + 1) / 2 : 0;
    }
    if (read == 2) {
        run.number = number;
    }
    return i < AUTO + BATON_SPARSE_COUNT && (read == 2 || is(text, name));
}

int main(int argc, char **argv)
{
    int level;
    bool passed = true;
    baton_engine_t *engine;
    const struct argp argp = {.options = options, .parser = train_read_option};
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    const struct mode *mode = modes;
    while (!is(mode->name, mode_name)) {
        mode++;
    }
    plane = task != NULL ? is(task, "hyperplane") : mode->plane;
    layers = plane ? 1 : mode->layers;
    delay_ms = delay_ms >= 0 ? delay_ms : mode->delay_ms;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    const char *source = open_network(mode->width);
    if (rank == 0) {
        printf("%s (%s): %d ranks, %d steps of %d examples an epoch, %g "
               "epochs, scale %g\nsystem           seconds      loss  accuracy"
               "   mb_sent network_s\n",
               plane ? "hyperplane" : "digits", source, ranks, steps,
               part * ranks, passes, scale);
    }
    char *rest = strdup(systems != NULL ? systems : mode->systems),
         *list = rest;
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        if (!train_read_system(name)) {
            fprintf(stderr, "train: --systems: there is no %s\n", name);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        passed &= run_system();
    }
    free(list);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return passed ? 0 : 1;
}
