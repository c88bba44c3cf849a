/* What eager_sgd trains: three tasks, each with its data and its model. */
#ifndef EXAMPLES_EAGER_SGD_TASK_H
#define EXAMPLES_EAGER_SGD_TASK_H

#include "digits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EPOCHS = 48, STEPS_AN_EPOCH = 16, STEPS = EPOCHS * STEPS_AN_EPOCH };

typedef enum task_kind {
    HYPERPLANE, /* Regression of points of a hyperplane by a one-layer
                   perceptron (Li et al. 2020, section 7.2.1). */
    DIGITS,     /* Classification of handwritten digits, in the place of
                   section 7.2.3's images. */
    SEQUENCES   /* Classification of sequences of noisy images of a digit, in
                   the place of section 7.3's videos. All sequences of a batch
                   have one length, and the time for a batch grows with it. */
} task_kind_t;

/* A rank's part of a task. The last two have one hidden layer; its values are
   averaged over the images of a sequence. */
typedef struct task {
    task_kind_t kind;
    double scale;
    int rank, size;
    size_t weights; /* of the model */
    float rate;     /* of learning */
    size_t batch;   /* examples of this rank in a step */
    size_t checks;  /* examples of the validation set */
    /* HYPERPLANE: inputs, [examples][weights], and a value for each: of the
       training of this rank, and of the validation. */
    float *x, *y, *check_x, *check_y;
    digits_t digits; /* the others */
} task_t;

typedef struct score {
    double loss; /* of the validation set: mean squared error, cross entropy */
    double accuracy; /* share of right answers, 0 to 1; NAN in a regression */
} score_t;

/* scale: of the hyperplane's data and of the sequences' lengths. digits: a
   file, or NULL (digits.h). */
void task_open(task_kind_t kind, double scale, int rank, int size,
               const char *digits, task_t *out);
void task_close(task_t *task);

/* The first weights: the same on all ranks. */
void task_init(const task_t *task, float *weights);

/* The gradient of the mean loss over the batch of all ranks, as far as this
   rank's examples go: the sum over all ranks is the gradient. */
void task_gradient(const task_t *task, const float *weights, int step,
                   float *gradient);

score_t task_check(const task_t *task, const float *weights);

/* Examples of all ranks that are trained with. */
size_t task_examples(const task_t *task);

/* Prints the reason, and ends all ranks. */
void die(const char *what);

/* Zeros. */
float *floats(size_t count);

/* The k-th number of a random stream, from 0 to 1. */
double uniform(uint64_t stream, uint64_t k);

/* Streams below are taken by tasks. */
enum { FREE_STREAM = 1 << 23 };

#endif
