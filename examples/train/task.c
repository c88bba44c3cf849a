#include "task.h"

#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FULL_DIMENSIONS 8192
#define FULL_POINTS     32768
#define FULL_CHECKS     4096
#define POINT_NOISE     0.1F

enum { STEPS_AN_EPOCH = 16, DIGITS_TRAINED = 1408 };

/* The lengths of UCF101's videos, which Li et al. give: 29 to 1,776 images,
   with a mean of 187 and a standard deviation of 97. Here they are lognormal.
 */
#define LENGTH_MEDIAN 166.0
#define LENGTH_SIGMA  0.49
#define LENGTH_LEAST  29.0
#define LENGTH_MOST   1776.0
#define IMAGE_NOISE   0.5F

/* ---- the hyperplane --------------------------------------------------- */

/* Points first, first + 1, ... of the data, which all ranks number alike. */
static void make_points(size_t dimensions, size_t first, size_t count,
                        float **x_out, float **y_out)
{
    float *all = zeroed(count * dimensions, sizeof *all);
    float *y = zeroed(count, sizeof *y);
    float *plane = zeroed(dimensions, sizeof *plane);
    for (size_t i = 0; i < dimensions; i++) {
        plane[i] = centred(PLANE, i);
    }
    for (size_t p = 0; p < count; p++) {
        uint64_t stream = POINTS + first + p;
        float *x = &all[p * dimensions];
        y[p] = POINT_NOISE * centred(stream, dimensions);
        for (size_t i = 0; i < dimensions; i++) {
            x[i] = centred(stream, i);
            y[p] += plane[i] * x[i];
        }
    }
    free(plane);
    *x_out = all;
    *y_out = y;
}

static size_t at_least_one(double count)
{
    return count > 1 ? (size_t)count : 1;
}

static void open_hyperplane(task_t *task)
{
    double batch = settings.batch > 0
                       ? (double)settings.batch
                       : FULL_POINTS * settings.scale / STEPS_AN_EPOCH;
    task->inputs = (size_t)(FULL_DIMENSIONS * settings.scale);
    task->outputs = 1;
    task->batch = at_least_one(batch / size);
    task->most_rows = task->batch;
    task->steps = STEPS_AN_EPOCH;
    task->checks = (size_t)(FULL_CHECKS * settings.scale) + 64;
    size_t points = task->batch * task->steps;
    make_points(task->inputs, (size_t)rank * points, points, &task->x,
                &task->y);
    make_points(task->inputs, (size_t)size * points,
                rank == 0 ? task->checks : 0, &task->check_x, &task->check_y);
}

/* ---- digits and sequences of them ------------------------------------- */

static void add_noise(float *row, uint64_t number)
{
    for (uint64_t i = 0; i < DIGITS_PIXELS; i++) {
        row[i] += IMAGE_NOISE * centred(IMAGES, number * DIGITS_PIXELS + i);
    }
}

/* Of the sequences in a rank's batch of a step. */
static size_t length_of(const task_t *task, uint64_t step)
{
    if (task->kind != SEQUENCES) {
        return 1;
    }
    uint64_t number = step * (uint64_t)size + (uint64_t)rank;
    double length = LENGTH_MEDIAN * exp(LENGTH_SIGMA * normal(LENGTHS, number));
    return at_least_one(settings.scale *
                        fmin(fmax(length, LENGTH_LEAST), LENGTH_MOST));
}

static void open_digits(task_t *task)
{
    uint64_t batch = settings.batch > 0 ? settings.batch : 88;
    task->inputs = DIGITS_PIXELS;
    task->outputs = DIGITS_CLASSES;
    task->batch = at_least_one((double)batch / size);
    task->most_rows = task->batch;
    task->steps =
        at_least_one(DIGITS_TRAINED / (double)(task->batch * (size_t)size));
    task->x = zeroed((size_t)DIGITS_COUNT * DIGITS_PIXELS, sizeof *task->x);
    task->y = zeroed(DIGITS_COUNT, sizeof *task->y);
    task->source = digits_load(settings.digits, task->x, task->y);
    task->checks = DIGITS_COUNT - DIGITS_TRAINED;
    task->check_x = &task->x[DIGITS_TRAINED * DIGITS_PIXELS];
    task->check_y = &task->y[DIGITS_TRAINED];
    if (task->kind == SEQUENCES) {
        task->most_rows *= at_least_one(settings.scale * LENGTH_MOST);
        for (size_t i = 0; i < task->checks; i++) {
            add_noise(&task->check_x[i * DIGITS_PIXELS], UINT64_MAX / 128 - i);
        }
    }
}

/* ---- any task --------------------------------------------------------- */

void task_open(task_t *out)
{
    *out = (task_t){.kind = HYPERPLANE, .source = "made up"};
    if (strcmp(settings.task, "hyperplane") == 0) {
        open_hyperplane(out);
    } else {
        out->kind = settings.task[0] == 'd' ? DIGITS : SEQUENCES;
        open_digits(out);
    }
}

void task_close(task_t *task)
{
    if (task->kind == HYPERPLANE) {
        free(task->check_x);
        free(task->check_y);
    }
    free(task->x);
    free(task->y);
}

/* Of a hyperplane each rank has its own points; the images are shared. */
size_t task_batch(const task_t *task, uint64_t step, float *rows,
                  float *targets)
{
    size_t length = length_of(task, step), count = 0;
    size_t examples =
        task->kind == HYPERPLANE ? task->batch * task->steps : DIGITS_TRAINED;
    uint64_t turn = task->kind == HYPERPLANE
                        ? step
                        : step * (uint64_t)size + (uint64_t)rank;
    for (size_t i = 0; i < task->batch; i++) {
        uint64_t number = turn * task->batch + i;
        size_t example = (size_t)(number % examples);
        for (size_t k = 0; k < length; k++, count++) {
            float *row = &rows[count * task->inputs];
            memcpy(row, &task->x[example * task->inputs],
                   task->inputs * sizeof *row);
            targets[count] = task->y[example];
            if (task->kind == SEQUENCES) {
                add_noise(row, number * (uint64_t)LENGTH_MOST + k);
            }
        }
    }
    return count;
}
