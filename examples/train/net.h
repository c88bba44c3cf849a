/* A multilayer perceptron that computes layer by layer, so that its caller can
   do something between two layers. Products are OpenBLAS's. With one output it
   is a regression (squared error), else a classification (softmax and cross
   entropy). */
#ifndef EXAMPLES_NET_H
#define EXAMPLES_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_MOST_LAYERS = 64 };

/* Parameters: weights [in][out], then biases [out]. */
typedef struct layer {
    size_t in, out;
    size_t first; /* in the vectors of all parameters */
    size_t count;
} layer_t;

/* Parameters of all layers lie in one vector, and so do their gradients: the
   last layer's first, as back-propagation goes. So gradients of layers that
   are ready one after another are a range, which an all-reduce can take without
   a copy. */
typedef struct net {
    size_t layer_count;
    layer_t layers[NET_MOST_LAYERS];
    size_t parameter_count;
    size_t rows, most_rows;             /* examples at a time */
    float *values[NET_MOST_LAYERS + 1]; /* [rows][in]: of layer 0, the inputs */
    float *deltas[NET_MOST_LAYERS + 1]; /* the loss's derivatives by these */
    float *targets;                     /* [rows]: numbers, or classes */
    float *weights, *gradient, *velocity;
} net_t;

/* Of a set of examples. */
typedef struct score {
    double loss;     /* mean squared error, or cross entropy */
    double accuracy; /* share of right answers, 0 to 1; NAN in a regression */
} score_t;

/* `widths` has layer_count + 1 numbers: of inputs, of each layer's outputs. All
   ranks begin with the same weights. */
void net_open(net_t *net, const size_t *widths, size_t layer_count,
              size_t most_rows, uint64_t seed);
void net_close(net_t *net);

/* Inputs to values[0], then layers 0, 1, ... */
void net_forward(net_t *net, size_t layer);

/* After the last layer: sets the derivatives of the loss's mean over
   `examples`, those of all ranks' batches. */
void net_loss(net_t *net, size_t examples);

/* Layers from the last to 0: sets the layer's part of the gradient. */
void net_backward(net_t *net, size_t layer);

/* A step of SGD with momentum for a range of the parameters; `gradient` begins
   with that of the first of them. */
void net_update(net_t *net, const float *gradient, size_t first, size_t count,
                double rate, double momentum);

score_t net_check(net_t *net, const float *inputs, const float *targets,
                  size_t count);

#endif
