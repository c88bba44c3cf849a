#include "layerwise_net.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE     0.05F
#define MOMENTUM 0.9F

/* The k-th of a stream (splitmix64), from -1 to 1. */
static double centred(uint64_t stream, uint64_t k)
{
    uint64_t x = (stream << 40) + (k + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) / 4503599627370496.0 - 1;
}

/* ---- life ------------------------------------------------------------- */

static void set_layers(net_t *net, const size_t *widths)
{
    for (size_t l = net->layer_count; l-- > 0;) {
        layer_t *layer = &net->layers[l];
        layer->in = widths[l];
        layer->out = widths[l + 1];
        layer->first = net->parameter_count;
        layer->count = (layer->in + 1) * layer->out;
        net->parameter_count += layer->count;
    }
}

/* Uniform with the variance 2 / in (He et al. 2015). */
static void set_weights(net_t *net)
{
    for (size_t l = 0; l < net->layer_count; l++) {
        const layer_t *layer = &net->layers[l];
        double bound = sqrt(6.0 / (double)layer->in);
        for (size_t i = 0; i < layer->in * layer->out; i++) {
            net->weights[layer->first + i] = (float)(bound * centred(l, i));
        }
    }
}

static bool allocate(float **out, size_t count)
{
    *out = calloc(count, sizeof **out);
    return *out != NULL;
}

bool net_open(net_t *net, const size_t *widths, size_t layer_count,
              size_t batch)
{
    *net = (net_t){.layer_count = layer_count, .batch = batch};
    set_layers(net, widths);
    bool done = allocate(&net->weights, net->parameter_count) &&
                allocate(&net->gradient, net->parameter_count) &&
                allocate(&net->velocity, net->parameter_count);
    for (size_t l = 0; done && l <= layer_count; l++) {
        done = allocate(&net->values[l], batch * widths[l]) &&
               allocate(&net->deltas[l], batch * widths[l]);
    }
    if (done) {
        set_weights(net);
    } else {
        net_close(net);
    }
    return done;
}

void net_close(net_t *net)
{
    for (size_t l = 0; l <= net->layer_count; l++) {
        free(net->values[l]);
        free(net->deltas[l]);
    }
    free(net->weights);
    free(net->gradient);
    free(net->velocity);
    *net = (net_t){0};
}

/* ---- layers ----------------------------------------------------------- */

/* outputs = max(0, inputs * weights + biases); the last layer has no max. */
void net_forward(net_t *net, size_t l)
{
    const layer_t *layer = &net->layers[l];
    const float *weights = &net->weights[layer->first];
    const float *biases = weights + layer->in * layer->out;
    float *outputs = net->values[l + 1];
    for (size_t image = 0; image < net->batch; image++) {
        memcpy(&outputs[image * layer->out], biases,
               layer->out * sizeof *biases);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)net->batch,
                (int)layer->out, (int)layer->in, 1, net->values[l],
                (int)layer->in, weights, (int)layer->out, 1, outputs,
                (int)layer->out);
    bool last = l + 1 == net->layer_count;
    for (size_t i = 0; !last && i < net->batch * layer->out; i++) {
        outputs[i] = outputs[i] > 0 ? outputs[i] : 0;
    }
}

/* Softmax and cross-entropy of one image. */
static double image_loss(const float *outputs, size_t classes, size_t label,
                         float share, float *deltas)
{
    float largest = outputs[0];
    double sum = 0;
    for (size_t c = 1; c < classes; c++) {
        largest = fmaxf(largest, outputs[c]);
    }
    for (size_t c = 0; c < classes; c++) {
        sum += exp((double)(outputs[c] - largest));
    }
    for (size_t c = 0; c < classes; c++) {
        double probability = exp((double)(outputs[c] - largest)) / sum;
        deltas[c] = share * (float)(probability - (c == label ? 1 : 0));
    }
    return log(sum) - (double)(outputs[label] - largest);
}

double net_loss(net_t *net, const uint8_t *labels, size_t images)
{
    size_t last = net->layer_count;
    size_t classes = net->layers[last - 1].out;
    double sum = 0;
    for (size_t image = 0; image < net->batch; image++) {
        sum += image_loss(&net->values[last][image * classes], classes,
                          labels[image], 1.0F / (float)images,
                          &net->deltas[last][image * classes]);
    }
    return sum;
}

static void set_gradient(net_t *net, size_t l)
{
    const layer_t *layer = &net->layers[l];
    const float *deltas = net->deltas[l + 1];
    float *weights = &net->gradient[layer->first];
    float *biases = weights + layer->in * layer->out;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)layer->in,
                (int)layer->out, (int)net->batch, 1, net->values[l],
                (int)layer->in, deltas, (int)layer->out, 0, weights,
                (int)layer->out);
    memset(biases, 0, layer->out * sizeof *biases);
    for (size_t image = 0; image < net->batch; image++) {
        for (size_t i = 0; i < layer->out; i++) {
            biases[i] += deltas[image * layer->out + i];
        }
    }
}

void net_backward(net_t *net, size_t l)
{
    const layer_t *layer = &net->layers[l];
    set_gradient(net, l);
    if (l == 0) {
        return; /* images have no parameters */
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)net->batch,
                (int)layer->in, (int)layer->out, 1, net->deltas[l + 1],
                (int)layer->out, &net->weights[layer->first], (int)layer->out,
                0, net->deltas[l], (int)layer->in);
    for (size_t i = 0; i < net->batch * layer->in; i++) {
        net->deltas[l][i] = net->values[l][i] > 0 ? net->deltas[l][i] : 0;
    }
}

void net_update(net_t *net, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        net->velocity[i] =
            MOMENTUM * net->velocity[i] - RATE * net->gradient[i];
        net->weights[i] += net->velocity[i];
    }
}

size_t net_correct(const net_t *net, const uint8_t *labels)
{
    size_t classes = net->layers[net->layer_count - 1].out;
    size_t correct = 0;
    for (size_t image = 0; image < net->batch; image++) {
        const float *outputs = &net->values[net->layer_count][image * classes];
        size_t best = 0;
        for (size_t c = 1; c < classes; c++) {
            best = outputs[c] > outputs[best] ? c : best;
        }
        correct += best == labels[image];
    }
    return correct;
}
