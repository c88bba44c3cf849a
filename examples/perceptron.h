/* A multilayer perceptron with two hidden layers, to train with: its weights
   are one vector, and so is their gradient. */
#ifndef EXAMPLES_PERCEPTRON_H
#define EXAMPLES_PERCEPTRON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct perceptron {
    size_t inputs, hidden, classes;
    size_t count; /* weights, biases among them */
    size_t batch; /* the most samples at a time */
    float *scratch;
} perceptron_t;

/* Samples in rows of `inputs`, and what each of them is. */
typedef struct samples {
    const float *rows;
    const uint8_t *labels;
    size_t count;
} samples_t;

/* The hidden layers' width with which there are about so many weights. */
size_t perceptron_width(size_t inputs, size_t classes, size_t weights);

/* False: no memory. */
bool perceptron_init(perceptron_t *net, size_t inputs, size_t hidden,
                     size_t classes, size_t batch);
void perceptron_fini(perceptron_t *net);

/* Random weights, the same for the same seed. */
void perceptron_fill(const perceptron_t *net, uint64_t seed, float *weights);

/* Stores the gradient of the mean loss of at most `batch` samples; returns that
   loss (cross entropy). */
double perceptron_gradient(perceptron_t *net, const float *weights,
                           const samples_t *samples, float *gradient);

/* Returns the mean loss of any number of samples; *right_out: the part of them
   whose class is the likeliest, 0 to 1. */
double perceptron_loss(perceptron_t *net, const float *weights,
                       const samples_t *samples, double *right_out);

#endif
