/* A multilayer perceptron that computes layer by layer, so that its caller can
   do something between two layers. Products are OpenBLAS's. */
#ifndef EXAMPLES_LAYERWISE_NET_H
#define EXAMPLES_LAYERWISE_NET_H

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
   last layer's first, as back-propagation goes. Gradients of layers that are
   ready one after another are so a range, which an all-reduce can take without
   a copy. */
typedef struct net {
    size_t layer_count;
    layer_t layers[NET_MOST_LAYERS];
    size_t parameter_count;
    size_t batch; /* images of this rank in a step */
    float *weights, *gradient, *velocity;
    float
        *values[NET_MOST_LAYERS + 1]; /* [batch][in]: of layer 0, the images */
    float *deltas[NET_MOST_LAYERS + 1]; /* the loss's derivatives by these */
} net_t;

/* `widths` has layer_count + 1 numbers: of inputs, of each layer's outputs. All
   ranks begin with the same weights. False when there is no memory. */
bool net_open(net_t *net, const size_t *widths, size_t layer_count,
              size_t batch);
void net_close(net_t *net);

/* Images to values[0], then layers 0, 1, ... */
void net_forward(net_t *net, size_t layer);

/* Sum of the cross-entropy over the batch, after the last layer. Sets the
   derivatives of the loss's mean over `images`, those of all ranks' batches. */
double net_loss(net_t *net, const uint8_t *labels, size_t images);

/* Layers from the last to 0: sets the layer's part of the gradient. */
void net_backward(net_t *net, size_t layer);

/* A step of SGD with momentum for a range of the parameters. */
void net_update(net_t *net, size_t first, size_t count);

/* How many of the batch's images have their label's output as the largest. */
size_t net_correct(const net_t *net, const uint8_t *labels);

#endif
