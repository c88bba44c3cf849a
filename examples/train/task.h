/* What is trained: three tasks, each with its data.

   hyperplane  the regression of Li et al. 2020 (eager-SGD, section 7.2.1): find
               the coefficients of a hyperplane of 8,192 dimensions from 32,768
               noisy points, with a one-layer perceptron and batches of 2,048
   digits      classification of handwritten digits, in the place of section
               7.2.3's images
   sequences   classification of sequences of noisy images of a digit, in the
               place of section 7.3's videos. All sequences of a batch have one
               length, and the time for a batch grows with it. */
#ifndef EXAMPLES_TASK_H
#define EXAMPLES_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGITS_COUNT = 1797, DIGITS_PIXELS = 64, DIGITS_CLASSES = 10 };

/* A rank's part of a task. An example has one row of inputs, or one for each
   image of a sequence. */
typedef struct task {
    enum { HYPERPLANE, DIGITS, SEQUENCES } kind;
    size_t inputs, outputs;
    size_t batch;     /* examples of this rank in a step */
    size_t most_rows; /* of a batch */
    size_t steps;     /* in an epoch */
    float *x, *y;     /* of training: [examples][inputs], [examples] */
    float *check_x, *check_y;
    size_t checks;      /* examples that are not trained with */
    const char *source; /* of the data, in words */
} task_t;

/* By the settings. The hyperplane is checked on rank 0 alone. */
void task_open(task_t *out);
void task_close(task_t *task);

/* The rows of a step and their targets. Returns how many. */
size_t task_batch(const task_t *task, uint64_t step, float *rows,
                  float *targets);

/* Handwritten digits: 1,797 images of 8 x 8 pixels, from 0 to 1, and the digit
   that each shows (Alpaydin, Kaynak 1998), in a random order that is always the
   same. Reads `file` (.csv or .csv.gz), or if it is NULL what scripts/digits.sh
   has written, or the file of Debian's package python3-sklearn. Where there is
   none, the images are made up: ten random prototypes with noise. Returns where
   they come from, in words. */
const char *digits_load(const char *file, float *pixels, float *labels);

#endif
