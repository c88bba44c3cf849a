/* What train.c trains: a multilayer perceptron, and the data of two tasks.
   There is no call of Baton or MPI here. */
#pragma once

#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks; /* of this process, and how many */

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

/* Makes the network and opens the data. Returns the source of the data. */
static const char *open_network(int width, double batch, double scale)
{
    openblas_set_num_threads(1); /* each rank computes with one thread */
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
        widths[l] = 1 + (l == layers ? outputs : l > 0 ? width : inputs);
        values[l] = l > 0 ? matrix(part, widths[l]) : NULL;
        deltas[l] = matrix(part, widths[l]);
        if (l < layers) {
            int parameters = widths[l] * (widths[l + 1] - 1);
            firsts[l] = count;
            counts[layers - 1 - l] = (size_t)parameters;
            count += parameters;
        }
    }
    weights = matrix(1, count);
    gradient = matrix(1, count);
    velocity = matrix(1, count);
    return plane ? make_points() : open_digits();
}

/* Sets the initial weights, the same on all ranks: uniform with variance 2 / in
   (He et al. 2015). */
static void reset_weights(int64_t seed)
{
    memset(weights, 0, (size_t)count * sizeof(float));
    memset(velocity, 0, (size_t)count * sizeof(float));
    for (int l = 0; l < layers; l++) {
        float deviation = sqrtf(2 / (float)(widths[l] - 1));
        for (int i = 0; i < (widths[l] - 1) * (widths[l + 1] - 1); i++) {
            weights[firsts[l] + i] =
                deviation * centred(LAYERS + l, (seed << 32) + i);
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
