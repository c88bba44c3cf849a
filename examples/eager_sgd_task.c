#include "eager_sgd_task.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FULL_DIMENSIONS 8192
#define FULL_POINTS     32768
#define FULL_CHECKS     4096
#define NOISE           0.1F

enum {
    HIDDEN = 32,
    DIGITS_TRAINED = 1408, /* 88 in each step; the others are the checks */
    HIDDEN_WEIGHTS = HIDDEN * (DIGITS_PIXELS + 1),
    CLASS_WEIGHTS = DIGITS_CLASSES * (HIDDEN + 1)
};

/* Fast learning tolerates little staleness. Of 1, 1.5 and 2 for digits, 1.5 is
   the largest with which synchronous training is stable. */
#define HYPERPLANE_RATE 0.05F
#define DIGITS_RATE     1.5F
#define SEQUENCES_RATE  0.5F

/* The lengths of UCF101's videos, which Li et al. give: 29 to 1,776 images,
   with a mean of 187 and a standard deviation of 97. Here they are lognormal.
 */
#define LENGTH_MEDIAN  166.0
#define LENGTH_SIGMA   0.49
#define LENGTH_LEAST   29.0
#define LENGTH_MOST    1776.0
#define CHECKED_IMAGES 4 /* of a sequence of the validation set */
#define FULL_NOISE     0.5F

enum { WEIGHTS, PLANE, LENGTHS, IMAGES, FIRST_POINT };

void die(const char *what)
{
    fprintf(stderr, "eager_sgd: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

float *floats(size_t count)
{
    float *memory = calloc(count > 0 ? count : 1, sizeof *memory);
    if (memory == NULL) {
        die("no memory");
    }
    return memory;
}

/* ---- random numbers --------------------------------------------------- */

double uniform(uint64_t stream, uint64_t k)
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

/* Normal (Box and Muller). */
static double normal(uint64_t stream, uint64_t k)
{
    double radius = sqrt(-2 * log(1 - uniform(stream, 2 * k)));
    return radius * cos(6.283185307179586 * uniform(stream, 2 * k + 1));
}

/* ---- the hyperplane --------------------------------------------------- */

static float dot(const float *a, const float *b, size_t count)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Points first, first + 1, ... of the data, which all ranks number alike. */
static void make_points(const task_t *task, size_t first, size_t count,
                        float **x_out, float **y_out)
{
    size_t dimensions = task->weights;
    float *all = floats(count * dimensions), *y = floats(count);
    float *plane = floats(dimensions);
    for (size_t i = 0; i < dimensions; i++) {
        plane[i] = centred(PLANE, i);
    }
    for (size_t p = 0; p < count; p++) {
        uint64_t stream = FIRST_POINT + first + p;
        float *x = &all[p * dimensions];
        for (size_t i = 0; i < dimensions; i++) {
            x[i] = centred(stream, i);
        }
        y[p] = dot(plane, x, dimensions) + NOISE * centred(stream, dimensions);
    }
    free(plane);
    *x_out = all;
    *y_out = y;
}

static void open_hyperplane(task_t *task)
{
    size_t size = (size_t)task->size;
    size_t batch = (size_t)(FULL_POINTS * task->scale) / STEPS_AN_EPOCH;
    task->weights = (size_t)(FULL_DIMENSIONS * task->scale);
    task->rate = HYPERPLANE_RATE;
    task->batch = batch / size > 0 ? batch / size : 1;
    task->checks = (size_t)(FULL_CHECKS * task->scale) + 64;
    size_t points = task->batch * STEPS_AN_EPOCH;
    make_points(task, (size_t)task->rank * points, points, &task->x, &task->y);
    make_points(task, size * points, task->rank == 0 ? task->checks : 0,
                &task->check_x, &task->check_y);
}

static void plane_gradient(const task_t *task, const float *weights, int step,
                           float *gradient)
{
    size_t dimensions = task->weights;
    size_t first = (size_t)(step % STEPS_AN_EPOCH) * task->batch;
    float share = 1.0F / (float)(task->batch * (size_t)task->size);
    for (size_t p = first; p < first + task->batch; p++) {
        const float *x = &task->x[p * dimensions];
        float error = (dot(weights, x, dimensions) - task->y[p]) * share;
        for (size_t i = 0; i < dimensions; i++) {
            gradient[i] += error * x[i];
        }
    }
}

static score_t plane_check(const task_t *task, const float *weights)
{
    double sum = 0;
    for (size_t p = 0; p < task->checks; p++) {
        const float *x = &task->check_x[p * task->weights];
        double error =
            (double)(dot(weights, x, task->weights) - task->check_y[p]);
        sum += error * error;
    }
    return (score_t){sum / (double)task->checks, NAN};
}

/* ---- digits and sequences of them ------------------------------------- */

/* The model: for each image, hidden = tanh(W x + b); the mean of those goes
   into one linear layer, and the softmax of that is the answer. Weights lie as
   [HIDDEN][pixels + 1], then [classes][HIDDEN + 1]. */
typedef struct answer {
    float hidden[HIDDEN]; /* the mean */
    float share[DIGITS_CLASSES];
} answer_t;

/* A sequence of images of one digit, with noise that differs. */
typedef struct sequence {
    const float *pixels;
    int length;
    float noise;
    uint64_t number; /* of its first image, among all */
} sequence_t;

static void open_digits(task_t *task, const char *file)
{
    if (!digits_load(file, &task->digits)) {
        die(task->digits.source);
    }
    size_t share = DIGITS_TRAINED / STEPS_AN_EPOCH / (size_t)task->size;
    task->weights = HIDDEN_WEIGHTS + CLASS_WEIGHTS;
    task->rate = task->kind == DIGITS ? DIGITS_RATE : SEQUENCES_RATE;
    task->batch = share > 0 ? share : 1;
    task->checks = DIGITS_COUNT - DIGITS_TRAINED;
}

static void read_image(const sequence_t *sequence, int k, float *out)
{
    uint64_t first = (sequence->number + (uint64_t)k) * DIGITS_PIXELS;
    for (uint64_t i = 0; i < DIGITS_PIXELS; i++) {
        out[i] = sequence->pixels[i];
        if (sequence->noise > 0) {
            out[i] += sequence->noise * centred(IMAGES, first + i);
        }
    }
}

static void read_hidden(const float *weights, const float *image, float *out)
{
    for (int h = 0; h < HIDDEN; h++) {
        const float *row = &weights[h * (DIGITS_PIXELS + 1)];
        float sum = dot(row, image, DIGITS_PIXELS) + row[DIGITS_PIXELS];
        out[h] = tanhf(sum);
    }
}

static void softmax(float *values)
{
    float most = values[0], sum = 0;
    for (int c = 1; c < DIGITS_CLASSES; c++) {
        most = fmaxf(most, values[c]);
    }
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        values[c] = expf(values[c] - most);
        sum += values[c];
    }
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        values[c] /= sum;
    }
}

static void classify(const float *weights, const sequence_t *sequence,
                     answer_t *out)
{
    *out = (answer_t){{0}, {0}};
    for (int k = 0; k < sequence->length; k++) {
        float image[DIGITS_PIXELS], hidden[HIDDEN];
        read_image(sequence, k, image);
        read_hidden(weights, image, hidden);
        for (int h = 0; h < HIDDEN; h++) {
            out->hidden[h] += hidden[h] / (float)sequence->length;
        }
    }
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        const float *row = &weights[HIDDEN_WEIGHTS + c * (HIDDEN + 1)];
        out->share[c] = dot(row, out->hidden, HIDDEN) + row[HIDDEN];
    }
    softmax(out->share);
}

/* slope[h]: of the loss, by a hidden value's mean over the images. */
static void add_hidden_gradient(const float *weights,
                                const sequence_t *sequence, const float *slope,
                                float *gradient)
{
    for (int k = 0; k < sequence->length; k++) {
        float image[DIGITS_PIXELS], hidden[HIDDEN];
        read_image(sequence, k, image);
        read_hidden(weights, image, hidden);
        for (int h = 0; h < HIDDEN; h++) {
            float *row = &gradient[h * (DIGITS_PIXELS + 1)];
            float factor = slope[h] * (1 - hidden[h] * hidden[h]) /
                           (float)sequence->length;
            for (int i = 0; i < DIGITS_PIXELS; i++) {
                row[i] += factor * image[i];
            }
            row[DIGITS_PIXELS] += factor;
        }
    }
}

static void add_gradient(const float *weights, const sequence_t *sequence,
                         int label, float share, float *gradient)
{
    answer_t answer;
    float slope[HIDDEN] = {0};
    classify(weights, sequence, &answer);
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        const float *row = &weights[HIDDEN_WEIGHTS + c * (HIDDEN + 1)];
        float *out = &gradient[HIDDEN_WEIGHTS + c * (HIDDEN + 1)];
        float error = share * (answer.share[c] - (c == label ? 1.0F : 0.0F));
        for (int h = 0; h < HIDDEN; h++) {
            out[h] += error * answer.hidden[h];
            slope[h] += error * row[h];
        }
        out[HIDDEN] += error;
    }
    add_hidden_gradient(weights, sequence, slope, gradient);
}

/* Of the sequences in a batch. */
static int length_of(const task_t *task, int step)
{
    if (task->kind == DIGITS) {
        return 1;
    }
    uint64_t batch = (uint64_t)step * (uint64_t)task->size;
    double length =
        LENGTH_MEDIAN *
        exp(LENGTH_SIGMA * normal(LENGTHS, batch + (uint64_t)task->rank));
    length = task->scale * fmin(fmax(length, LENGTH_LEAST), LENGTH_MOST);
    return length > 1 ? (int)length : 1;
}

static sequence_t sequence_of(const task_t *task, size_t image, int length,
                              uint64_t number)
{
    return (sequence_t){&task->digits.pixels[image * DIGITS_PIXELS], length,
                        task->kind == SEQUENCES ? FULL_NOISE : 0, number};
}

static void digits_gradient(const task_t *task, const float *weights, int step,
                            float *gradient)
{
    int length = length_of(task, step);
    size_t part = task->batch * (size_t)task->size;
    size_t first = (size_t)(step % STEPS_AN_EPOCH) * part +
                   (size_t)task->rank * task->batch;
    for (size_t i = 0; i < task->batch; i++) {
        size_t image = (first + i) % DIGITS_TRAINED;
        uint64_t number =
            ((uint64_t)step * part + first + i) * (uint64_t)LENGTH_MOST;
        sequence_t sequence = sequence_of(task, image, length, number);
        add_gradient(weights, &sequence, task->digits.label[image],
                     1.0F / (float)part, gradient);
    }
}

static score_t digits_check(const task_t *task, const float *weights)
{
    int length = task->kind == SEQUENCES ? CHECKED_IMAGES : 1;
    double loss = 0;
    size_t right = 0;
    for (size_t i = 0; i < task->checks; i++) {
        size_t image = DIGITS_TRAINED + i;
        sequence_t sequence =
            sequence_of(task, image, length, UINT64_MAX / 128 - 64 * i);
        answer_t answer;
        classify(weights, &sequence, &answer);
        int best = 0;
        for (int c = 1; c < DIGITS_CLASSES; c++) {
            best = answer.share[c] > answer.share[best] ? c : best;
        }
        right += best == task->digits.label[image];
        loss -=
            log(fmax((double)answer.share[task->digits.label[image]], 1e-30));
    }
    return (score_t){loss / (double)task->checks,
                     (double)right / (double)task->checks};
}

/* ---- any task --------------------------------------------------------- */

void task_open(task_kind_t kind, double scale, int rank, int size,
               const char *digits, task_t *out)
{
    *out = (task_t){.kind = kind, .scale = scale, .rank = rank, .size = size};
    if (kind == HYPERPLANE) {
        open_hyperplane(out);
    } else {
        open_digits(out, digits);
    }
}

void task_close(task_t *task)
{
    free(task->x);
    free(task->y);
    free(task->check_x);
    free(task->check_y);
    digits_free(&task->digits);
}

void task_init(const task_t *task, float *weights)
{
    memset(weights, 0, task->weights * sizeof *weights);
    /* A hidden layer of equal values would stay so. */
    for (size_t i = 0; task->kind != HYPERPLANE && i < task->weights; i++) {
        size_t inputs = i < HIDDEN_WEIGHTS ? DIGITS_PIXELS : HIDDEN;
        weights[i] = centred(WEIGHTS, i) / sqrtf((float)inputs);
    }
}

void task_gradient(const task_t *task, const float *weights, int step,
                   float *gradient)
{
    memset(gradient, 0, task->weights * sizeof *gradient);
    if (task->kind == HYPERPLANE) {
        plane_gradient(task, weights, step, gradient);
    } else {
        digits_gradient(task, weights, step, gradient);
    }
}

score_t task_check(const task_t *task, const float *weights)
{
    return task->kind == HYPERPLANE ? plane_check(task, weights)
                                    : digits_check(task, weights);
}

size_t task_examples(const task_t *task)
{
    return task->batch * (size_t)task->size * STEPS_AN_EPOCH;
}
