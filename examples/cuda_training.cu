/* An all-reduce in a CUDA training loop, which streams overlap with
   computation. Four ranks share a GPU, each with an engine and two layers. Each
   rank fits y = 3x + 1 to its own part of the data, and all must end with the
   same weights.

       compute stream   backward 2 -> | backward 1 -> |               | update
                                      v               v               ^
       Baton                          all-reduce 2 -> all-reduce 1 -> |

   start_on: the all-reduce of a layer begins when the layer's gradient is
   there, while the next layer's gradient is computed. wait_on: the update waits
   for both sums. The CPU only queues work, a few steps ahead of the GPU, and
   synchronises to print. */
#include <baton/cuda.h>
#include <baton/inproc.h>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

enum { RANKS = 4, LAYERS = 2, SAMPLES = 1 << 16, STEPS = 200 };
constexpr float RATE = 1;

/* Ends the program if a call fails. */
static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        std::fprintf(stderr, "%s\n", baton_error_message());
        std::exit(1);
    }
}

static void must(cudaError_t error)
{
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

/* Computes the gradient of one weight over this rank's samples: of the bias
   (layer 0) or of the slope (layer 1). There is one block, and x is in [0,
   1). */
__global__ void backward(float *gradient, const float *weights, int layer,
                         int rank)
{
    __shared__ float sums[256];
    float sum = 0;
    for (int i = threadIdx.x; i < SAMPLES; i += blockDim.x) {
        float x = (float)(i * RANKS + rank) / (SAMPLES * RANKS);
        float error = weights[0] + weights[1] * x - (1 + 3 * x);
        sum += error * (layer == 0 ? 1 : x);
    }
    sums[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        gradient[layer] = sums[0] / SAMPLES;
    }
}

__global__ void update(float *weights, const float *gradient)
{
    int layer = threadIdx.x;
    weights[layer] -= RATE * gradient[layer] / RANKS;
}

struct rank_t {
    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *sums[LAYERS]; /* one for each layer's gradient */
    cudaStream_t stream;
    float *weights, *gradient; /* on the GPU */
};

/* Opens a rank, and creates the schedules gradient[layer] = its sum over all
   ranks. Ends the program if there is no GPU. */
static void open_rank(rank_t &rank, baton_inproc_t *medium, int number)
{
    must(baton_engine_open(nullptr, &rank.engine));
    baton_status_t status = baton_cuda_attach(rank.engine, 0);
    if (status == BATON_ERR_UNSUPPORTED) {
        std::printf("skipped: %s\n", baton_error_message());
        std::exit(77);
    }
    must(status);
    must(baton_group_create_inproc(rank.engine, medium, number, &rank.group));
    must(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
    must(cudaMalloc(&rank.weights, LAYERS * sizeof(float)));
    must(cudaMalloc(&rank.gradient, LAYERS * sizeof(float)));
    must(cudaMemsetAsync(rank.weights, 0, LAYERS * sizeof(float), rank.stream));
    for (int layer = 0; layer < LAYERS; layer++) {
        baton_operands_t operands{};
        operands.target = rank.gradient + layer;
        operands.count = 1;
        operands.dtype = BATON_F32;
        operands.op = BATON_SUM;
        operands.memory = BATON_MEMORY_DEVICE;
        operands.name = layer == 0 ? "bias" : "slope";
        must(baton_allreduce_create(rank.group, &operands, &rank.sums[layer]));
    }
}

/* Queues the next epoch in the stream. If too many epochs are queued already,
   the CPU is far enough ahead, and waits for them first. */
static void start_on(baton_schedule_t *sum, cudaStream_t stream)
{
    baton_status_t status = baton_schedule_start_on(sum, stream);
    if (status == BATON_ERR_BUSY) {
        must(baton_schedule_wait(sum, -1));
        status = baton_schedule_start_on(sum, stream);
    }
    must(status);
}

/* Queues a training step in the rank's stream. */
static void train(const rank_t &rank, int number)
{
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        backward<<<1, 256, 0, rank.stream>>>(rank.gradient, rank.weights, layer,
                                             number);
        start_on(rank.sums[layer], rank.stream);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        must(baton_schedule_wait_on(rank.sums[layer], rank.stream));
    }
    update<<<1, LAYERS, 0, rank.stream>>>(rank.weights, rank.gradient);
    must(cudaGetLastError());
}

/* Prints the weights. Returns whether the rank has learned. */
static bool training_report(const rank_t &rank, int number)
{
    float weights[LAYERS];
    /* Synchronise before copying. A copy to memory that is not pinned would
       block CUDA's calls of all threads while it waits for the stream,
       including Baton's. */
    must(cudaStreamSynchronize(rank.stream));
    must(cudaMemcpy(weights, rank.weights, sizeof weights,
                    cudaMemcpyDeviceToHost));
    std::printf("rank %d: y = %.4f x + %.4f\n", number, weights[1], weights[0]);
    float slope_error = weights[1] - 3, bias_error = weights[0] - 1;
    return slope_error * slope_error + bias_error * bias_error < 1e-4f;
}

static void close_rank(rank_t &rank)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        must(baton_schedule_wait(rank.sums[layer], -1));
        must(baton_schedule_destroy(rank.sums[layer]));
    }
    must(baton_group_destroy(rank.group));
    must(baton_engine_close(rank.engine));
    must(cudaFree(rank.gradient));
    must(cudaFree(rank.weights));
    must(cudaStreamDestroy(rank.stream));
}

int main()
{
    rank_t ranks[RANKS] = {};
    baton_inproc_t *medium = nullptr;
    must(baton_inproc_create(RANKS, &medium));
    for (int r = 0; r < RANKS; r++) {
        open_rank(ranks[r], medium, r);
    }
    /* Load the kernels before the first wait_on. Otherwise CUDA loads a kernel
       at its first launch, and may wait for all streams before that. */
    cudaFuncAttributes attributes;
    must(cudaFuncGetAttributes(&attributes, backward));
    must(cudaFuncGetAttributes(&attributes, update));
    for (int step = 0; step < STEPS; step++) {
        for (int r = 0; r < RANKS; r++) {
            train(ranks[r], r);
        }
    }
    bool learned = true;
    for (int r = 0; r < RANKS; r++) {
        learned = training_report(ranks[r], r) && learned;
    }
    for (int r = 0; r < RANKS; r++) {
        close_rank(ranks[r]);
    }
    must(baton_inproc_destroy(medium));
    return learned ? 0 : 1;
}
