#include "perceptron.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, LANES = 16 };

/* ---- shapes ----------------------------------------------------------- */

static size_t inputs_of(const perceptron_t *net, int layer)
{
    return layer == 0 ? net->inputs : net->hidden;
}

static size_t outputs_of(const perceptron_t *net, int layer)
{
    return layer == LAYERS - 1 ? net->classes : net->hidden;
}

/* Where a layer's weights begin; its biases are behind them. */
static size_t offset_of(const perceptron_t *net, int layer)
{
    size_t offset = 0;
    for (int i = 0; i < layer; i++) {
        offset += outputs_of(net, i) * (inputs_of(net, i) + 1);
    }
    return offset;
}

size_t perceptron_width(size_t inputs, size_t classes, size_t weights)
{
    /* width^2 + b width = weights */
    double b = (double)(inputs + classes + 2);
    double width = (sqrt(b * b + 4 * (double)weights) - b) / 2;
    return width < 1 ? 1 : (size_t)(width + 0.5);
}

bool perceptron_init(perceptron_t *net, size_t inputs, size_t hidden,
                     size_t classes, size_t batch)
{
    *net = (perceptron_t){
        .inputs = inputs, .hidden = hidden, .classes = classes, .batch = batch};
    net->count = offset_of(net, LAYERS);
    size_t widest = hidden > classes ? hidden : classes;
    /* Outputs of each layer, and two layers' derivatives. */
    net->scratch = calloc(batch * widest * (LAYERS + 2), sizeof(float));
    return net->scratch != NULL;
}

void perceptron_fini(perceptron_t *net)
{
    free(net->scratch);
}

static float *scratch_of(const perceptron_t *net, int part)
{
    size_t widest = net->hidden > net->classes ? net->hidden : net->classes;
    return net->scratch + (size_t)part * net->batch * widest;
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static double uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

void perceptron_fill(const perceptron_t *net, uint64_t seed, float *weights)
{
    memset(weights, 0, net->count * sizeof *weights);
    for (int layer = 0; layer < LAYERS; layer++) {
        float *at = weights + offset_of(net, layer);
        double limit = sqrt(6.0 / (double)inputs_of(net, layer));
        size_t count = outputs_of(net, layer) * inputs_of(net, layer);
        for (size_t i = 0; i < count; i++) {
            at[i] = (float)((2 * uniform(&seed) - 1) * limit);
        }
    }
}

/* ---- products --------------------------------------------------------- */

/* In lanes, so that a compiler may use vectors and bits stay the same. */
static float dot(const float *a, const float *b, size_t count)
{
    float lanes[LANES] = {0};
    float sum = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += a[i + lane] * b[i + lane];
        }
    }
    for (; i < count; i++) {
        sum += a[i] * b[i];
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

static void add_scaled(float *to, const float *from, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += factor * from[i];
    }
}

/* A row of weights serves all samples while it is in the cache. */
static void forward(const perceptron_t *net, const float *weights, int layer,
                    const float *in, size_t samples, float *out)
{
    size_t inputs = inputs_of(net, layer), outputs = outputs_of(net, layer);
    const float *rows = weights + offset_of(net, layer);
    const float *biases = rows + outputs * inputs;
    for (size_t i = 0; i < outputs; i++) {
        for (size_t s = 0; s < samples; s++) {
            float sum =
                biases[i] + dot(rows + i * inputs, in + s * inputs, inputs);
            bool cut = layer < LAYERS - 1 && sum < 0;
            out[s * outputs + i] = cut ? 0 : sum;
        }
    }
}

/* `out` holds derivatives by this layer's outputs; `in_derivative`, by its
   inputs, may be NULL. */
static void backward(const perceptron_t *net, const float *weights, int layer,
                     const float *in, size_t samples, const float *out,
                     float *gradient, float *in_derivative)
{
    size_t inputs = inputs_of(net, layer), outputs = outputs_of(net, layer);
    const float *rows = weights + offset_of(net, layer);
    float *rows_out = gradient + offset_of(net, layer);
    float *biases_out = rows_out + outputs * inputs;
    if (in_derivative != NULL) {
        memset(in_derivative, 0, samples * inputs * sizeof *in_derivative);
    }
    for (size_t i = 0; i < outputs; i++) {
        for (size_t s = 0; s < samples; s++) {
            float derivative = out[s * outputs + i];
            if (derivative == 0) {
                continue;
            }
            add_scaled(rows_out + i * inputs, in + s * inputs, derivative,
                       inputs);
            biases_out[i] += derivative;
            if (in_derivative != NULL) {
                add_scaled(in_derivative + s * inputs, rows + i * inputs,
                           derivative, inputs);
            }
        }
    }
    /* Through the rectifier in front of this layer. */
    for (size_t i = 0; in_derivative != NULL && i < samples * inputs; i++) {
        in_derivative[i] = in[i] > 0 ? in_derivative[i] : 0;
    }
}

/* ---- loss ------------------------------------------------------------- */

static void forward_all(const perceptron_t *net, const float *weights,
                        const samples_t *samples)
{
    const float *in = samples->rows;
    for (int layer = 0; layer < LAYERS; layer++) {
        forward(net, weights, layer, in, samples->count,
                scratch_of(net, layer));
        in = scratch_of(net, layer);
    }
}

/* Cross entropy of one sample's outputs, which become its derivative; *right:
   whether the likeliest class is the sample's. */
static double entropy(float *outputs, size_t classes, uint8_t label,
                      bool *right)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = outputs[c] > outputs[best] ? c : best;
    }
    double top = (double)outputs[best], sum = 0;
    double own = (double)outputs[label] - top;
    for (size_t c = 0; c < classes; c++) {
        sum += exp((double)outputs[c] - top);
    }
    for (size_t c = 0; c < classes; c++) {
        double likely = exp((double)outputs[c] - top) / sum;
        outputs[c] = (float)(likely - (c == label ? 1 : 0));
    }
    *right = best == label;
    return log(sum) - own;
}

/* Of at most `batch` samples; derivatives replace the last layer's outputs. */
static double entropy_of(const perceptron_t *net, const samples_t *samples,
                         size_t *right_count)
{
    float *outputs = scratch_of(net, LAYERS - 1);
    double loss = 0;
    for (size_t s = 0; s < samples->count; s++) {
        bool right;
        loss += entropy(outputs + s * net->classes, net->classes,
                        samples->labels[s], &right);
        *right_count += right;
    }
    return loss;
}

double perceptron_gradient(perceptron_t *net, const float *weights,
                           const samples_t *samples, float *gradient)
{
    size_t right = 0;
    forward_all(net, weights, samples);
    double loss = entropy_of(net, samples, &right) / (double)samples->count;
    float *derivative = scratch_of(net, LAYERS - 1);
    for (size_t i = 0; i < samples->count * net->classes; i++) {
        derivative[i] /= (float)samples->count;
    }
    memset(gradient, 0, net->count * sizeof *gradient);
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        const float *in =
            layer == 0 ? samples->rows : scratch_of(net, layer - 1);
        float *next = layer == 0 ? NULL : scratch_of(net, LAYERS + layer % 2);
        backward(net, weights, layer, in, samples->count, derivative, gradient,
                 next);
        derivative = next;
    }
    return loss;
}

double perceptron_loss(perceptron_t *net, const float *weights,
                       const samples_t *samples, double *right_out)
{
    size_t right = 0;
    double loss = 0;
    for (size_t done = 0; done < samples->count;) {
        size_t left = samples->count - done;
        samples_t part = {samples->rows + done * net->inputs,
                          samples->labels + done,
                          left < net->batch ? left : net->batch};
        forward_all(net, weights, &part);
        loss += entropy_of(net, &part, &right);
        done += part.count;
    }
    *right_out = (double)right / (double)samples->count;
    return loss / (double)samples->count;
}
