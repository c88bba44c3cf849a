/* The model that is trained, a multilayer perceptron, and the data of two
   tasks. Nothing here concerns Baton.

   hyperplane  the regression of Li et al. 2020 (eager-SGD, section 7.2.1): find
               the coefficients of a hyperplane of 8,192 dimensions from 32,768
               noisy points, with a one-layer perceptron and batches of 2,048
   digits      classification of handwritten digits, in place of the images of
               section 7.2.3 */
#ifndef EXAMPLES_MODEL_H
#define EXAMPLES_MODEL_H

#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    DIGITS = 1797,
    TRAINED = 1408,
    PIXELS = 64,
    CLASSES = 10,
    MOST_LAYERS = 8
};

/* The parameters lie in one vector, and so do their gradients. The last layer
   comes first, as in back-propagation. So the gradients of layers that become
   ready one after another are adjacent, and one all-reduce can take them
   without a copy. A layer has weights [in][out], then biases [out]. */
static struct {
    bool plane;        /* the task is hyperplane, not digits */
    double scale;      /* of the hyperplane's dimensions and points */
    size_t rank, size; /* of this process among those that train */
    /* Examples of this rank in a batch, and batches in a pass over the data. */
    size_t batch, steps;
    size_t layers;
    size_t widths[MOST_LAYERS + 1]; /* number of inputs, then of each layer's
                                       outputs */
    size_t first[MOST_LAYERS];      /* index of a layer's first parameter */
    size_t count;                   /* number of all parameters */
    float *weights, *gradient, *velocity;
} model;

/* Training examples, test examples, and rows of the current batch. */
static size_t examples, checks, rows;
/* Inputs [examples][inputs] and targets [examples], to train and to test
   with. */
static float *x, *y, *check_x, *check_y;
static float *values[MOST_LAYERS + 1]; /* [rows][width], each layer's
                                          outputs */
static float *deltas[MOST_LAYERS + 1]; /* derivatives of the loss by
                                          `values` */
static float *targets;                 /* [rows] */

/* Streams of random numbers. From POINTS on each point has its own stream. */
enum {
    ORDER,
    LABELS,
    NOISE,
    PROTOTYPES,
    PLANE = 6,
    DELAYS,
    LAYERS,
    POINTS = 72
};

/* Returns the k-th number of a stream, from 0 to 1, by splitmix64 (Steele, Lea,
   Flood 2014). */
static double uniform(uint64_t stream, uint64_t k)
{
    uint64_t n = (stream << 40) + (k + 1) * UINT64_C(0x9e3779b97f4a7c15);
    n = (n ^ (n >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    n = (n ^ (n >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((n ^ (n >> 31)) >> 11) / 9007199254740992.0;
}

/* Returns a random number with mean 0 and variance 1. */
static float centred(uint64_t stream, uint64_t k)
{
    return (float)((uniform(stream, k) - 0.5) * sqrt(12.0));
}

static float *floats(size_t count)
{
    float *memory = calloc(count, sizeof(float));
    if (memory == NULL) {
        perror("train");
        exit(1);
    }
    return memory;
}

/* ---- data -------------------------------------------------------------- */

/* Makes points of the hyperplane. Point `first` + i is the same on all
   ranks. */
static void make_points(size_t first, size_t count, float *xs, float *ys)
{
    size_t width = model.widths[0];
    for (size_t p = 0; p < count; p++) {
        ys[p] = 0.1F * centred(POINTS + first + p, width);
        for (size_t i = 0; i < width; i++) {
            xs[p * width + i] = centred(POINTS + first + p, i);
            ys[p] += centred(PLANE, i) * xs[p * width + i];
        }
    }
}

/* Reads images of 8 x 8 pixels, each with the digit that it shows (Alpaydin,
   Kaynak 1998), from the file that scripts/digits.sh makes. */
static bool model_read_digits(void)
{
    char line[512], *at;
    size_t i = 0;
    gzFile file = gzopen(DIGITS_FILE, "rb");
    while (file != NULL && i < DIGITS && gzgets(file, line, sizeof line)) {
        at = line;
        for (size_t p = 0; p < PIXELS; p++, at += *at == ',') {
            x[i * PIXELS + p] = strtof(at, &at) / 16;
        }
        y[i] = strtof(at, &at);
        i += *at == '\n' && y[i] >= 0 && y[i] < CLASSES ? 1 : DIGITS + 1;
    }
    if (file != NULL) {
        gzclose(file);
    }
    return i == DIGITS;
}

/* Makes images up: ten random prototypes with noise. */
static void make_digits(void)
{
    for (size_t i = 0; i < (size_t)DIGITS * PIXELS; i++) {
        double digit = floor(uniform(LABELS, i / PIXELS) * CLASSES);
        size_t pixel = (size_t)digit * PIXELS + i % PIXELS;
        double noise = 1.5 * (uniform(NOISE, i) - 0.5);
        x[i] = (float)fmin(fmax(uniform(PROTOTYPES, pixel) + noise, 0), 1);
        y[i / PIXELS] = (float)digit;
    }
}

/* Loads or makes the data, and returns their source. The images are shuffled
   (Fisher and Yates), since the file is ordered by writer. */
static const char *model_open_data(void)
{
    bool made = model.plane;
    if (model.plane) {
        make_points(model.rank * examples, examples, x, y);
        make_points(model.size * examples, model.rank == 0 ? checks : 0,
                    check_x, check_y);
    } else if (!model_read_digits()) {
        make_digits();
        made = true;
    }
    for (size_t i = DIGITS - 1; !model.plane && i > 0; i--) {
        size_t other = (size_t)(uniform(ORDER, i) * (double)(i + 1));
        cblas_sswap(PIXELS, &x[i * PIXELS], 1, &x[other * PIXELS], 1);
        cblas_sswap(1, &y[i], 1, &y[other], 1);
    }
    return made ? "made up" : DIGITS_FILE;
}

/* Loads this rank's part of a step's batch. For the hyperplane each rank has
   its own points; the images are shared by all ranks. */
static void model_batch(size_t step)
{
    size_t width = model.widths[0];
    size_t turn = model.plane ? step : step * model.size + model.rank;
    rows = model.batch;
    for (size_t row = 0; row < rows; row++) {
        size_t i = (turn * rows + row) % examples;
        memcpy(&values[0][row * width], &x[i * width], width * sizeof *x);
        targets[row] = y[i];
    }
}

/* ---- the perceptron ---------------------------------------------------- */

/* Opens the model. `batch` counts the examples of all ranks; 0 means the task's
   default. The task, scale, rank and size are set before. Returns the source of
   the data. */
static const char *model_open(size_t batch, size_t hidden_layers, size_t width)
{
    bool plane = model.plane;
    double whole = batch > 0 ? (double)batch : plane ? 2048 * model.scale : 88;
    model.batch = (size_t)fmax(whole / (double)model.size, 1);
    model.steps = plane ? 16 : TRAINED / (model.batch * model.size);
    model.steps = model.steps > 0 ? model.steps : 1;
    model.layers = plane ? 1 : hidden_layers + 1;
    for (size_t l = model.layers + 1; l-- > 0;) {
        size_t inputs = plane ? (size_t)(8192 * model.scale) : PIXELS;
        model.widths[l] = l == 0             ? inputs
                          : l < model.layers ? width
                          : plane            ? 1
                                             : CLASSES;
        values[l] = floats(model.batch * model.widths[l]);
        deltas[l] = floats(model.batch * model.widths[l]);
        if (l < model.layers) {
            model.first[l] = model.count;
            model.count += (model.widths[l] + 1) * model.widths[l + 1];
        }
    }
    model.weights = floats(model.count);
    model.gradient = floats(model.count);
    model.velocity = floats(model.count);
    targets = floats(model.batch);
    examples = plane ? model.batch * model.steps : TRAINED;
    checks = plane ? (size_t)(4096 * model.scale) + 64 : DIGITS - TRAINED;
    x = floats((examples + checks) * model.widths[0]);
    y = floats(examples + checks);
    check_x = &x[examples * model.widths[0]];
    check_y = &y[examples];
    return model_open_data();
}

/* Sets the initial weights, the same on all ranks: uniform with variance 2 / in
   (He et al. 2015). */
static void model_reset(uint64_t seed)
{
    memset(model.weights, 0, model.count * sizeof(float));
    memset(model.velocity, 0, model.count * sizeof(float));
    for (size_t l = 0; l < model.layers; l++) {
        float deviation = sqrtf(2 / (float)model.widths[l]);
        for (size_t i = 0; i < model.widths[l] * model.widths[l + 1]; i++) {
            model.weights[model.first[l] + i] =
                deviation * centred(LAYERS + l, (seed << 32) + i);
        }
    }
}

/* Computes c = a b + beta c, where a is m x k, b k x n and c m x n. */
static void multiply(CBLAS_TRANSPOSE turn_a, CBLAS_TRANSPOSE turn_b, size_t m,
                     size_t n, size_t k, const float *a, const float *b,
                     float beta, float *c)
{
    size_t row_a = turn_a == CblasTrans ? m : k;
    size_t row_b = turn_b == CblasTrans ? k : n;
    cblas_sgemm(CblasRowMajor, turn_a, turn_b, (int)m, (int)n, (int)k, 1, a,
                (int)row_a, b, (int)row_b, beta, c, (int)n);
}

/* Computes outputs = max(0, inputs * weights + biases). The last layer has no
   max. */
static void model_forward(size_t l)
{
    size_t in = model.widths[l], out = model.widths[l + 1];
    const float *weights = &model.weights[model.first[l]];
    float *outputs = values[l + 1];
    for (size_t i = 0; i < rows * out; i++) {
        outputs[i] = weights[in * out + i % out];
    }
    multiply(CblasNoTrans, CblasNoTrans, rows, out, in, values[l], weights, 1,
             outputs);
    for (size_t i = 0; l + 1 < model.layers && i < rows * out; i++) {
        outputs[i] = fmaxf(outputs[i], 0);
    }
}

/* Returns the loss of a row, and sets the row's deltas to its derivatives. The
   loss is the squared error, or softmax with cross entropy for classes. */
static double row_loss(size_t row, float share, size_t *right)
{
    size_t classes = model.widths[model.layers];
    const float *outputs = &values[model.layers][row * classes];
    float *delta = &deltas[model.layers][row * classes], most = outputs[0];
    double sum = 0;
    if (model.plane) {
        delta[0] = share * (outputs[0] - targets[row]);
        return pow((double)(outputs[0] - targets[row]), 2);
    }
    for (size_t c = 1; c < classes; c++) {
        most = fmaxf(most, outputs[c]);
    }
    for (size_t c = 0; c < classes; c++) {
        sum += exp((double)(outputs[c] - most));
    }
    size_t class = (size_t)targets[row];
    for (size_t c = 0; c < classes; c++) {
        double probability = exp((double)(outputs[c] - most)) / sum;
        delta[c] = share * (float)(probability - (c == class ? 1 : 0));
    }
    *right += outputs[class] == most;
    return log(sum) - (double)(outputs[class] - most);
}

/* Returns the sum of the rows' losses. The deltas are the derivatives of the
   mean over `of` examples. */
static double model_loss(float of, size_t *right)
{
    double loss = 0;
    for (size_t row = 0; row < rows; row++) {
        loss += row_loss(row, 1 / of, right);
    }
    return loss;
}

/* Sets the layer's part of the gradient. The inputs' deltas are not needed. */
static void model_backward(size_t l)
{
    size_t in = model.widths[l], out = model.widths[l + 1];
    float *weights = &model.gradient[model.first[l]], *delta = deltas[l + 1];
    multiply(CblasTrans, CblasNoTrans, in, out, rows, values[l], delta, 0,
             weights);
    memset(&weights[in * out], 0, out * sizeof *weights);
    for (size_t i = 0; i < rows * out; i++) {
        weights[in * out + i % out] += delta[i];
    }
    if (l > 0) {
        multiply(CblasNoTrans, CblasTrans, rows, in, out, delta,
                 &model.weights[model.first[l]], 0, deltas[l]);
    }
    for (size_t i = 0; l > 0 && i < rows * in; i++) {
        deltas[l][i] = values[l][i] > 0 ? deltas[l][i] : 0;
    }
}

/* Takes an SGD step on a range of the parameters. gradient[0] is that of
   parameter `first`. */
static void model_update(const float *gradient, size_t first, size_t count,
                         double rate, double momentum)
{
    float *velocity = &model.velocity[first], *weights = &model.weights[first];
    for (size_t i = 0; i < count; i++) {
        velocity[i] = (float)momentum * velocity[i] - (float)rate * gradient[i];
        weights[i] += velocity[i];
    }
}

/* Computes on rank 0, with examples that are not trained with, the mean loss
   and the percentage of right answers (NAN for a regression). */
static void model_check(double *loss_out, double *accuracy_out)
{
    size_t right = 0, width = model.widths[0];
    double loss = 0;
    for (size_t first = 0; first < checks; first += rows) {
        rows = checks - first < model.batch ? checks - first : model.batch;
        memcpy(values[0], &check_x[first * width], rows * width * sizeof *x);
        memcpy(targets, &check_y[first], rows * sizeof *y);
        for (size_t l = 0; l < model.layers; l++) {
            model_forward(l);
        }
        loss += model_loss(1, &right);
    }
    *loss_out = loss / (double)checks;
    *accuracy_out = model.plane ? NAN : 100 * (double)right / (double)checks;
}

#endif
