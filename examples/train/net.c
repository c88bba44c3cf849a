#include "net.h"

#include "train.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
static void set_weights(net_t *net, uint64_t seed)
{
    for (size_t l = 0; l < net->layer_count; l++) {
        const layer_t *layer = &net->layers[l];
        float deviation = sqrtf(2 / (float)layer->in);
        uint64_t first = seed << 32;
        for (size_t i = 0; i < layer->in * layer->out; i++) {
            net->weights[layer->first + i] =
                deviation * centred(LAYERS + l, first + i);
        }
    }
}

void net_open(net_t *net, const size_t *widths, size_t layer_count,
              size_t most_rows, uint64_t seed)
{
    *net = (net_t){.layer_count = layer_count, .most_rows = most_rows};
    set_layers(net, widths);
    net->targets = zeroed(most_rows, sizeof(float));
    net->weights = zeroed(net->parameter_count, sizeof(float));
    net->gradient = zeroed(net->parameter_count, sizeof(float));
    net->velocity = zeroed(net->parameter_count, sizeof(float));
    for (size_t l = 0; l <= layer_count; l++) {
        net->values[l] = zeroed(most_rows * widths[l], sizeof(float));
        net->deltas[l] =
            zeroed(l > 0 ? most_rows * widths[l] : 1, sizeof(float));
    }
    set_weights(net, seed);
}

void net_close(net_t *net)
{
    for (size_t l = 0; l <= net->layer_count; l++) {
        free(net->values[l]);
        free(net->deltas[l]);
    }
    free(net->targets);
    free(net->weights);
    free(net->gradient);
    free(net->velocity);
}

/* ---- layers ----------------------------------------------------------- */

/* outputs = max(0, inputs * weights + biases); the last layer has no max. */
void net_forward(net_t *net, size_t l)
{
    const layer_t *layer = &net->layers[l];
    const float *weights = &net->weights[layer->first];
    const float *biases = weights + layer->in * layer->out;
    float *outputs = net->values[l + 1];
    for (size_t row = 0; row < net->rows; row++) {
        memcpy(&outputs[row * layer->out], biases, layer->out * sizeof *biases);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)net->rows,
                (int)layer->out, (int)layer->in, 1, net->values[l],
                (int)layer->in, weights, (int)layer->out, 1, outputs,
                (int)layer->out);
    bool last = l + 1 == net->layer_count;
    for (size_t i = 0; !last && i < net->rows * layer->out; i++) {
        outputs[i] = outputs[i] > 0 ? outputs[i] : 0;
    }
}

/* Softmax and cross entropy of one example. */
static double class_loss(const float *outputs, size_t classes, size_t class,
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
        deltas[c] = share * (float)(probability - (c == class ? 1 : 0));
    }
    return log(sum) - (double)(outputs[class] - largest);
}

/* The loss of one row, whose derivatives become deltas. */
static double row_loss(net_t *net, size_t row, float share)
{
    size_t last = net->layer_count, outputs = net->layers[last - 1].out;
    const float *values = &net->values[last][row * outputs];
    float *deltas = &net->deltas[last][row * outputs];
    if (outputs > 1) {
        return class_loss(values, outputs, (size_t)net->targets[row], share,
                          deltas);
    }
    float error = values[0] - net->targets[row];
    deltas[0] = share * error;
    return (double)error * (double)error;
}

void net_loss(net_t *net, size_t examples)
{
    for (size_t row = 0; row < net->rows; row++) {
        (void)row_loss(net, row, 1.0F / (float)examples);
    }
}

static void set_gradient(net_t *net, size_t l)
{
    const layer_t *layer = &net->layers[l];
    const float *deltas = net->deltas[l + 1];
    float *weights = &net->gradient[layer->first];
    float *biases = weights + layer->in * layer->out;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)layer->in,
                (int)layer->out, (int)net->rows, 1, net->values[l],
                (int)layer->in, deltas, (int)layer->out, 0, weights,
                (int)layer->out);
    memset(biases, 0, layer->out * sizeof *biases);
    for (size_t row = 0; row < net->rows; row++) {
        for (size_t i = 0; i < layer->out; i++) {
            biases[i] += deltas[row * layer->out + i];
        }
    }
}

void net_backward(net_t *net, size_t l)
{
    const layer_t *layer = &net->layers[l];
    set_gradient(net, l);
    if (l == 0) {
        return; /* inputs have no parameters */
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)net->rows,
                (int)layer->in, (int)layer->out, 1, net->deltas[l + 1],
                (int)layer->out, &net->weights[layer->first], (int)layer->out,
                0, net->deltas[l], (int)layer->in);
    for (size_t i = 0; i < net->rows * layer->in; i++) {
        net->deltas[l][i] = net->values[l][i] > 0 ? net->deltas[l][i] : 0;
    }
}

void net_update(net_t *net, const float *gradient, size_t first, size_t count,
                double rate, double momentum)
{
    float *velocity = &net->velocity[first], *weights = &net->weights[first];
    for (size_t i = 0; i < count; i++) {
        velocity[i] = (float)momentum * velocity[i] - (float)rate * gradient[i];
        weights[i] += velocity[i];
    }
}

/* ---- check ------------------------------------------------------------ */

static bool is_right(const net_t *net, size_t row)
{
    size_t classes = net->layers[net->layer_count - 1].out, best = 0;
    const float *outputs = &net->values[net->layer_count][row * classes];
    for (size_t c = 1; c < classes; c++) {
        best = outputs[c] > outputs[best] ? c : best;
    }
    return best == (size_t)net->targets[row];
}

/* In parts that fit the network. */
score_t net_check(net_t *net, const float *inputs, const float *targets,
                  size_t count)
{
    size_t width = net->layers[0].in, right = 0;
    double loss = 0;
    for (size_t first = 0; first < count; first += net->rows) {
        size_t left = count - first;
        net->rows = left < net->most_rows ? left : net->most_rows;
        memcpy(net->values[0], &inputs[first * width],
               net->rows * width * sizeof *inputs);
        memcpy(net->targets, &targets[first], net->rows * sizeof *targets);
        for (size_t l = 0; l < net->layer_count; l++) {
            net_forward(net, l);
        }
        for (size_t row = 0; row < net->rows; row++) {
            loss += row_loss(net, row, 0);
            right += is_right(net, row);
        }
    }
    bool classifies = net->layers[net->layer_count - 1].out > 1;
    return (score_t){loss / (double)count,
                     classifies ? (double)right / (double)count : NAN};
}
