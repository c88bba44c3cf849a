/* Data-parallel training with several ways to sum the gradients: patterns to
   copy, and a comparison of what each way achieves.

       mpirun -np 8 --oversubscribe ./train
       mpirun -np 4 --oversubscribe ./train --mode full
       mpirun -np 4 --oversubscribe ./train --mode sparse --systems topka:0.01

       for each step:                                             --mode
         for each layer, from the last:
           its gradient, of this rank's part of the batch
           if that completes a bucket: start its all-reduce   full
         contribute --> start --> wait                          partial
         start --> wait, for a few selected entries             sparse
         weights -= rate * sum of the gradients

   full: all-reduces of layers are in flight while earlier layers compute (Wang
   et al. 2017, see baton/coll.h; algorithms 1 to 3). This is the system
   "overlap". The system "fork" starts the same all-reduces only after the whole
   backward pass. "Communication" is the mean time that a step spends in the
   calls that start all-reduces and wait for them. "hidden" is the share of that
   time that an overlapped step saves.

   partial: in each step one rank is delayed: a random one, each in turn, or
   always the last one (--late). With --late all every rank is delayed, by 50 to
   400 ms, and the delays move on by one rank each step (Li et al. 2020, section
   7.2.3). With --keep all every rank applies the sum of every epoch, in order,
   so the weights are the same on all ranks, bit for bit. With --keep latest a
   late rank applies only the latest sum, once. It never delays others, but its
   weights drift, so the ranks average their weights after each pass over the
   data.

   sparse: the bytes are counted, and the network's time is computed by the
   closed form (baton_sparse_cost), so both are the same on any machine.

   All systems train the same network from the same weights with the same
   batches, one system after another. The network is a multilayer perceptron,
   and there are two tasks:

   hyperplane  the regression of Li et al. 2020 (eager-SGD, section 7.2.1): find
               the coefficients of a hyperplane of 8,192 dimensions from 32,768
               noisy points, with a one-layer perceptron and batches of 2,048
   digits      classification of handwritten digits, in place of the images of
               section 7.2.3

   In this file the options and the network come first. The ways to sum the
   gradients begin below the heading "full". */
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
#include <zlib.h>

static baton_group_t *group;
static int rank, ranks; /* in MPI_COMM_WORLD */

static bool is(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "train: %s\n", baton_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* ---- options ------------------------------------------------------------ */

static const char *mode = "partial", *systems, *task, *late = "random",
                  *behind = "compute", *keep = "all";
static double passes = 48, batch, width, seed = 1, scale = 0.02, delay_ms = -1,
              device_ms, bucket_kib = 256, required;

/* The keys are the places in `texts`, and then in `numbers`, below. */
static const struct argp_option options[] = {
    {"mode", 1, "full|partial|sparse", 0, "How gradients are summed", 0},
    {"systems", 2, "LIST", 0,
     "Of mpi, fork, overlap; full, solo, majority, quorum:Q, any:M, all:M; "
     "ALGORITHM:DENSITY",
     0},
    {"task", 3, "hyperplane|digits", 0, "What is learned", 0},
    {"late", 4, "random|rotate|last|all", 0, "Which ranks are delayed", 0},
    {"behind", 5, "compute|skip", 0, "What a late rank does", 0},
    {"keep", 6, "all|latest", 0, "Which sums a late rank applies", 0},
    {"epochs", 7, "N", 0, "Passes over the data", 0},
    {"batch", 8, "N", 0, "Examples of a batch", 0},
    {"width", 9, "N", 0, "Outputs of a hidden layer", 0},
    {"seed", 10, "N", 0, "Seed of the initial weights", 0},
    {"scale", 11, "X", 0, "Part of the paper's sizes and delays", 0},
    {"delay-ms", 12, "MS", 0, "Delay of a late rank, before scaling", 0},
    {"device-ms", 13, "MS", 0, "Time of a step on an accelerator", 0},
    {"bucket-kib", 14, "N", 0, "Least size of a bucket", 0},
    {"require", 15, "PERCENT", 0, "Accuracy below which the program fails", 0},
    {.key = 'h', .flags = OPTION_HIDDEN},
    {0}};

/* Sets an option, if the value is allowed: a word of those in the option's
   name of its value, or a number. Numbers of 1 or more must be whole. */
static error_t train_read_option(int key, char *value, struct argp_state *state)
{
    static const char **const texts[] = {&mode, &systems, &task,
                                         &late, &behind,  &keep};
    static double *const numbers[] = {&passes,    &batch,      &width,
                                      &seed,      &scale,      &delay_ms,
                                      &device_ms, &bucket_kib, &required};
    char *end = value, word[32], words[64];
    bool valid = key == 2;
    if (key == 'h') {
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP); /* exits */
    }
    if (key < 1 || key > 15) {
        return ARGP_ERR_UNKNOWN;
    }
    const struct argp_option *option = &options[key - 1];
    if (key <= 6) {
        *texts[key - 1] = value;
        snprintf(word, sizeof word, "|%s|", value);
        snprintf(words, sizeof words, "|%s|", option->arg);
        valid = valid || strstr(words, word) != NULL;
    } else {
        double number = *numbers[key - 7] = strtod(value, &end);
        valid = *end == '\0' && number >= 0 &&
                (number < 1 || number == floor(number));
    }
    if (!valid) {
        argp_error(state, "--%s: %s is not valid", option->name, value);
    }
    return 0;
}

/* ---- data --------------------------------------------------------------- */

enum { DIGITS = 1797, TRAINED = 1408, PIXELS = 64, CLASSES = 10 };
/* With --keep all, a rank may be at most HISTORY epochs behind the others. */
enum { MOST_LAYERS = 8, HISTORY = 32 };

static bool plane; /* whether the task is hyperplane, not digits */
/* `part` is the number of examples of each batch that this rank computes, and
   `steps` is the number of batches in a pass over the data. */
static int part, steps;
/* There are `all` examples. The network trains with the first `trained` of them
   and is tested with the others. */
static int trained, all;
/* x[all][inputs + 1] has the inputs of the examples, each with a 1 at the end,
   and y[all] the right answers: the value to predict (hyperplane), or the class
   (digits). */
static int inputs;
static float *x, *y;

/* Numbers of the streams of random numbers that uniform() computes. Each point
   of the hyperplane has a stream of its own, from number POINTS on. */
enum { ORDER, LABELS, NOISE, PROTOTYPES, PLANE = 6, DELAYS, LAYERS };
enum { POINTS = 72 };

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
    for (int i = 1; memory != NULL && i <= height; i++) {
        memory[i * wide - 1] = 1;
    }
    if (memory == NULL) {
        perror("train");
        exit(1);
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
   Kaynak 1998), from the file that scripts/digits.sh makes. If that cannot be
   read, makes up images: ten random prototypes with noise. The images are
   shuffled (Fisher and Yates), since the file is ordered by writer. Returns the
   source of the data. */
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

/* The parameters lie in one vector, and so do their gradients. The last layer
   comes first, as in back-propagation. So the gradients of layers that become
   ready one after another are adjacent, and one all-reduce can take them
   without a copy. A layer has weights [in][out], then biases [out]. The biases
   are the weights of an additional input, which is 1. */
static int layers, count; /* the numbers of layers and of parameters */
static float *weights, *gradient, *velocity;
static int firsts[MOST_LAYERS]; /* index of a layer's first parameter */
/* widths[l] is the number of layer l's inputs plus 1, and widths[layers] is the
   number of the network's outputs plus 1. The additional input is always 1, and
   its weights are the layer's biases. */
static int widths[MOST_LAYERS + 1];
/* values[l][row * widths[l] + i] is input i of layer l for example `row`.
   values[0] points into x, and values[layers] has the outputs of the network.
 */
static float *values[MOST_LAYERS + 1];
/* The derivative of the loss by each of `values`. */
static float *deltas[MOST_LAYERS + 1];
/* The examples that forward() has taken: their number and right answers. */
static int rows;
static const float *targets;

/* Makes the network and opens the data. Returns the source of the data. */
static const char *open_network(void)
{
    double whole = batch > 0 ? batch : plane ? 2048 * scale : 88;
    part = (int)fmax(whole / ranks, 1);
    steps = plane ? 16 : (int)fmax(1.0 * TRAINED / part / ranks, 1);
    trained = plane ? part * steps : TRAINED;
    all = plane ? trained + (int)(4096 * scale) + 64 : DIGITS;
    inputs = plane ? (int)(8192 * scale) : PIXELS;
    x = matrix(all, inputs + 1);
    y = matrix(all, 1);
    for (int l = layers; l >= 0; l--) {
        int outputs = plane ? 1 : CLASSES;
        widths[l] = 1 + (l == layers ? outputs : l > 0 ? (int)width : inputs);
        values[l] = l > 0 ? matrix(part, widths[l]) : NULL;
        deltas[l] = matrix(part, widths[l]);
        if (l < layers) {
            firsts[l] = count;
            count += widths[l] * (widths[l + 1] - 1);
        }
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
static void forward(int first, int n, useconds_t layer_us)
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
        usleep(layer_us);
    }
}

/* Returns the loss of a row: the squared error for hyperplane, whose mean is
   the loss of Li et al. 2020, and the cross entropy of the softmax for digits.
   Sets the row's deltas to the loss's derivatives times `share`. For digits,
   counts the row in *right if the right class has the largest output. */
static double row_loss(int row, float share, int *right)
{
    int width_1 = widths[layers], class = (int)targets[row];
    const float *outputs = &values[layers][row * width_1];
    float *delta = &deltas[layers][row * width_1], most = outputs[0];
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

/* Called on rank 0. Computes the mean loss of the examples to test with.
   Returns the percentage of right answers, or NAN for a regression. */
static double check_network(double *loss_out)
{
    int right = 0, checks = all - trained;
    *loss_out = 0;
    for (int i = trained; i < all; i += rows) {
        forward(i, all - i < part ? all - i : part, 0);
        for (int row = 0; row < rows; row++) {
            *loss_out += row_loss(row, 1, &right) / checks;
        }
    }
    return plane ? NAN : 100.0 * right / checks;
}

/* ---- the training of one system ----------------------------------------- */

/* A bucket has consecutive layers, whose gradients are summed at once. So small
   layers are fused, as in PyTorch's DDP. Bucket b ends with layer until[b], and
   its parameters are begins[b] to begins[b + 1] - 1; there are counts[b] of
   them. */
static int buckets, until[MOST_LAYERS], begins[MOST_LAYERS + 1];
static size_t counts[MOST_LAYERS];

static struct {
    const char *name;
    enum { MPI, FORK, OVERLAP, PARTIAL, SPARSE } kind;
    /* A baton_partial_mode_t, or a baton_sparse_algorithm_t. */
    int mode;
    /* The number behind the colon in the name: how many ranks the mode waits
       for, or the density of a sparse all-reduce. */
    double number;
    /* The number of buckets whose all-reduce this step has started, or which it
       has contributed. */
    int started;
    baton_schedule_t *sums[MOST_LAYERS]; /* all-reduce of each bucket */
    baton_partial_t *partial;
    uint64_t applied; /* the last epoch whose sum this rank applied */
    baton_sparse_t *sparse;
    baton_sparse_options_t sparse_options;
    double seconds; /* spent on communication in this step */
    double bytes, network_s;
} run;

/* The momentum of SGD, for the task digits only. */
#define MOMENTUM (plane ? 0 : 0.9)

/* Takes a step of SGD for the n parameters from `first` on, whose gradients are
   sum[0] to sum[n - 1]. Sparse sums contain the momentum already. The caller
   adds the time of this call to run.seconds, although it is not communication,
   so subtract it here. */
static void update(const float *sum, int first, int n)
{
    double began_s = MPI_Wtime();
    float rate = plane ? 0.025F : 0.05F;
    float kept = run.kind == SPARSE ? 0 : (float)MOMENTUM;
    for (int i = 0; i < n; i++) {
        float *speed = &velocity[first + i];
        *speed = kept * *speed - rate * sum[i];
        weights[first + i] += *speed;
    }
    run.seconds -= MPI_Wtime() - began_s;
}

/* ---- full: the sum of each bucket's gradients, in place ----------------- */

static void cut_buckets(void)
{
    for (int l = layers - 1; l >= 0; l--) {
        int end = l > 0 ? firsts[l - 1] : count;
        until[buckets] = l;
        counts[buckets] = (size_t)(end - begins[buckets]);
        if (l == 0 || 4 * counts[buckets] >= 1024 * (size_t)bucket_kib) {
            begins[++buckets] = end;
        }
    }
}

static void open_sums(void)
{
    for (int b = 0; b < buckets; b++) {
        baton_operands_t operands = {.target = &gradient[begins[b]],
                                     .count = counts[b],
                                     .dtype = BATON_F32,
                                     .op = BATON_SUM,
                                     .name = "gradients"};
        must(baton_allreduce_create(group, &operands, &run.sums[b]));
    }
}

/* Starts the all-reduce of the step's next bucket, or contributes the bucket to
   the partial all-reduce. The layers of the bucket must have gradients. */
static void start_bucket(void)
{
    int b = run.started++;
    double began_s = MPI_Wtime();
    must(run.kind == PARTIAL ? baton_partial_contribute_tensor(
                                   run.partial, (size_t)b, &gradient[begins[b]])
                             : baton_schedule_start(run.sums[b]));
    run.seconds += MPI_Wtime() - began_s;
}

/* Waits for each bucket and updates the layers of that bucket. */
static void finish_sums(void)
{
    while (run.kind == FORK && run.started < buckets) {
        start_bucket();
    }
    for (int b = 0; b < buckets; b++) {
        float *sum = &gradient[begins[b]];
        if (run.kind == MPI) {
            MPI_Allreduce(MPI_IN_PLACE, sum, (int)counts[b], MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
        } else {
            must(baton_schedule_wait(run.sums[b], -1));
        }
        update(sum, begins[b], (int)counts[b]);
    }
}

/* ---- partial: one all-reduce for all buckets of a rank's step ------------ */

static void open_partial(void)
{
    baton_partial_options_t of = BATON_PARTIAL_OPTIONS;
    of.name = run.name;
    of.mode = (baton_partial_mode_t)run.mode;
    of.mode_ranks = (uint32_t)run.number;
    of.keep = is(keep, "all") ? BATON_KEEP_ALL : BATON_KEEP_LATEST;
    of.history = is(keep, "all") ? HISTORY : 1;
    of.seed = (uint64_t)seed;
    of.tensors = (size_t)buckets;
    of.counts = counts;
    of.dtype = BATON_F32;
    must(baton_partial_create(group, &of, &run.partial));
}

/* Applies the sum of the gradients that the ranks had contributed when the
   epoch began; a late rank's gradient may be one of an earlier step. With
   BATON_KEEP_LATEST a late rank may get a sum that it has applied already, and
   does not apply it again. */
static void finish_partial(void)
{
    baton_partial_result_t result;
    must(baton_partial_start(run.partial));
    must(baton_partial_wait(run.partial, -1, &result));
    if (result.epoch > run.applied) {
        update(result.data, 0, count);
    }
    run.applied = result.epoch;
}

/* ---- sparse: the library applies the momentum ---------------------------- */

static void open_sparse(void)
{
    baton_sparse_options_t of = BATON_SPARSE_OPTIONS;
    of.algorithm = (baton_sparse_algorithm_t)run.mode;
    of.count = (size_t)count;
    of.density = run.number;
    of.momentum = MOMENTUM;
    of.link = (baton_link_cost_t){50, 8}; /* a link of 50 us and 1 Gbit/s */
    must(baton_sparse_create(group, &of, -1, &run.sparse));
    run.sparse_options = of;
}

/* Applies the sparse sum, and adds the step's bytes and network time to the
   totals. The library's statistics do not count the bytes of a dense
   all-reduce, so take these from the closed form. */
static void finish_sparse(void)
{
    baton_sparse_result_t result;
    baton_sparse_stats_t stats;
    baton_sparse_cost_t cost;
    must(baton_sparse_start(run.sparse, gradient));
    must(baton_sparse_wait(run.sparse, -1, &result));
    must(baton_sparse_dense(run.sparse, gradient));
    update(gradient, 0, count);
    must(baton_sparse_stats(run.sparse, &stats));
    run.sparse_options.algorithm = stats.algorithm;
    must(baton_sparse_cost(&run.sparse_options, ranks, &cost));
    bool dense = stats.algorithm == BATON_SPARSE_DENSE;
    run.bytes += dense ? cost.bytes : (double)stats.bytes_sent;
    run.network_s += cost.us / 1e6;
}

/* For each kind of system, the function that opens it, and the function that
   waits for a step's sum and applies it. */
static const struct {
    void (*open)(void), (*finish)(void);
} kinds[] = {[MPI] = {open_sums, finish_sums},
             [FORK] = {open_sums, finish_sums},
             [OVERLAP] = {open_sums, finish_sums},
             [PARTIAL] = {open_partial, finish_partial},
             [SPARSE] = {open_sparse, finish_sparse}};

/* ---- a step ------------------------------------------------------------- */

static double delay_of(int step)
{
    int one = is(late, "last")     ? ranks - 1
              : is(late, "random") ? (int)(uniform(DELAYS, step) * ranks)
                                   : step % ranks; /* the late rank */
    if (is(late, "all")) {
        return 50 + 350.0 * ((step + rank) % ranks) / fmax(ranks - 1, 1);
    }
    return rank == one ? delay_ms : 0;
}

/* Computes this rank's gradient. The rank also sleeps, to imitate an
   accelerator that needs device_ms for a step, two thirds of it in the backward
   pass. For hyperplane each rank has points of its own. For digits all ranks
   have the same images, and each takes another part of the batch. */
static void train_compute(int step)
{
    useconds_t third_us = (useconds_t)(1e3 * device_ms / layers / 3);
    usleep((useconds_t)(1e3 * delay_of(step) * scale));
    int turn = plane ? step % steps : step % steps * ranks + rank;
    forward(turn * part, part, third_us);
    for (int row = 0; row < rows; row++) {
        (void)row_loss(row, 1 / (float)(part * ranks), &(int){0});
    }
    for (int l = layers - 1; l >= 0; l--) {
        backward(l);
        usleep(2 * third_us);
        if ((run.kind == OVERLAP || run.kind == PARTIAL) &&
            until[run.started] == l) {
            start_bucket();
        }
    }
}

/* Computes the gradient, and waits for the sum. With --behind skip a rank
   computes no gradient for a step whose epoch the other ranks have run without
   it. */
static void take_step(int step)
{
    run.started = 0;
    run.seconds = 0;
    if (is(behind, "compute") || run.kind != PARTIAL ||
        baton_schedule_epoch(baton_partial_schedule(run.partial)) <=
            run.applied) {
        train_compute(step);
    }
    double began_s = MPI_Wtime();
    kinds[run.kind].finish();
    run.seconds += MPI_Wtime() - began_s;
}

/* ---- a system ----------------------------------------------------------- */

/* Trains one system and prints its row. Returns false if the weights differ
   between ranks, or the accuracy is too low. Baton's sums have the same bits on
   all ranks, so the weights have the same bits, too, except with --keep
   latest. comm_ms is the mean over all steps except those of the first pass
   over the data, which is a warm-up, unless there is only one pass. */
static bool run_system(void)
{
    static double fork_ms = NAN;
    double loss;
    reset_weights();
    kinds[run.kind].open();
    MPI_Barrier(MPI_COMM_WORLD);
    int end = (int)passes * steps, first = passes > 1 ? steps : 0;
    double began_s = MPI_Wtime(), ms = 0;
    for (int step = 0; step < end; step++) {
        take_step(step);
        ms += step >= first ? 1e3 * run.seconds / (end - first) : 0;
        if (is(keep, "latest") && run.kind == PARTIAL &&
            (step + 1) % steps == 0) {
            must(baton_allreduce_now(group, NULL, weights, (size_t)count,
                                     BATON_F32, BATON_AVG));
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - began_s;
    fork_ms = run.kind == FORK ? ms : fork_ms;
    uLong own = crc32(0, (const void *)weights, 4 * (uInt)count);
    uLong digests[2] = {own, ~own};
    MPI_Allreduce(MPI_IN_PLACE, digests, 2, MPI_UNSIGNED_LONG, MPI_MIN,
                  MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &run.bytes, 1, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    double accuracy = check_network(&loss);
    if (rank == 0) {
        printf("%-14s %9.2f %9.5f %9.2f %9.3f %9.1f %9.3f %9.4f  %08lx\n",
               run.name, seconds, loss, accuracy, ms,
               run.kind == OVERLAP ? 100 * (1 - ms / fork_ms) : 0,
               run.bytes / 1e6, run.network_s, own);
    }
    for (int b = 0; b < buckets; b++) {
        must(baton_schedule_destroy(run.sums[b]));
    }
    must(baton_partial_destroy(run.partial));
    must(baton_sparse_destroy(run.sparse));
    bool differ = digests[0] != ~digests[1];
    return (!differ || run.kind == MPI || is(keep, "latest")) &&
           (rank > 0 || accuracy >= required || required == 0);
}

/* Sets `run` to the system "NAME" or "NAME:NUMBER", and returns whether there
   is such a system. Without NUMBER, a mode waits for half of the ranks, and a
   sparse all-reduce has a density of 1 %. The library checks the number. */
static bool train_read_system(const char *text)
{
    /* In the order of baton_partial_mode_t, from "solo" on. The sparse
       all-reduces come after them. */
    static const char *const names[] = {"mpi",    "fork",     "overlap",
                                        "solo",   "majority", "full",
                                        "quorum", "any",      "all"};
    enum { AUTO = sizeof names / sizeof names[0] };
    enum { NAMES = AUTO + BATON_SPARSE_COUNT };
    char name[16] = "", rest;
    double number;
    int i = 0, read = sscanf(text, "%15[^:]:%lf%c", name, &number, &rest);
    while (i < NAMES &&
           !is(name,
               i < AUTO ? names[i] : baton_sparse_algorithm_name(i - AUTO))) {
        i++;
    }
    memset(&run, 0, sizeof run);
    run.name = text;
    run.kind = i < PARTIAL ? i : i < AUTO ? PARTIAL : SPARSE;
    run.mode = i - (i < AUTO ? PARTIAL : AUTO);
    run.number = i >= AUTO                     ? 0.01
                 : i >= PARTIAL + BATON_QUORUM ? (ranks + 1) / 2
                                               : 0;
    run.number = read == 2 ? number : run.number;
    return i < NAMES && (read == 2 || is(text, name));
}

/* ---- the command -------------------------------------------------------- */

static void train_set_defaults(void)
{
    bool partial = is(mode, "partial"), full = is(mode, "full");
    const char *others =
        partial ? "mpi,full,solo,majority,quorum"
        : full  ? "mpi,fork,overlap"
                : "dense,spardl,topka,topkdsa,gtopk,oktopk,redsync";
    systems = systems != NULL ? systems : others;
    plane = task != NULL ? is(task, "hyperplane") : partial;
    layers = plane ? 1 : partial ? 2 : full ? 5 : 3;
    width = width > 0 ? width : partial ? 32 : full ? 256 : 128;
    delay_ms = delay_ms >= 0 ? delay_ms : partial ? 300 : 0;
}

int main(int argc, char **argv)
{
    int level;
    bool passed = true;
    baton_engine_t *engine;
    const struct argp argp = {.options = options, .parser = train_read_option};
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    train_set_defaults();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    openblas_set_num_threads(1); /* each rank computes with one thread */
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    const char *source = open_network();
    cut_buckets();
    if (rank == 0) {
        printf("%s (%s): %d ranks, %d steps of %d examples an epoch, %g "
               "epochs, scale %g\nsystem           seconds      loss  accuracy"
               "   comm_ms  hidden_%%   mb_sent network_s  digest\n",
               plane ? "hyperplane" : "digits", source, ranks, steps,
               part * ranks, passes, scale);
    }
    char *rest = strdup(systems), *list = rest;
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
