/* The conformance suite of device ports, run on a GPU. Under a sanitizer
   TEST_ROUNDS lowers the number of rounds. */
#include "cuda/gpu.h"
#include "cuda/gpu_cluster.h"
#include "support/device_conformance.h"

static cudaStream_t private_stream; /* used by `read` and `write` */

static baton_stream_t user_stream(device_subject_t *self)
{
    cudaStream_t stream = NULL;
    gpu_must(cudaStreamCreate(&stream), "cudaStreamCreate");
    return stream;
}

static void slow_work(device_subject_t *self, baton_stream_t stream, int us)
{
    gpu_spin(stream, (unsigned)us);
}

static void read_memory(device_subject_t *self, void *host, const void *memory,
                        size_t bytes)
{
    gpu_copy(private_stream, host, memory, bytes);
    gpu_synchronise(private_stream);
}

static void write_memory(device_subject_t *self, void *memory, const void *host,
                         size_t bytes)
{
    read_memory(self, memory, host, bytes);
}

static int rounds(void)
{
    const char *text = getenv("TEST_ROUNDS");
    return text == NULL ? 10000 : atoi(text);
}

/* A GPU that was opened as an engine opens it. */
typedef struct opened {
    baton__gpu_t *gpu;
    baton_device_port_t port;
    device_subject_t subject;
} opened_t;

static void open_gpu(opened_t *out, int ordinal)
{
    support_ok(baton__gpu_open(ordinal, &out->gpu));
    out->port = baton__gpu_port(out->gpu);
    out->subject = (device_subject_t){.port = &out->port,
                                      .device = out->gpu,
                                      .user_stream = user_stream,
                                      .slow_work = slow_work,
                                      .read = read_memory,
                                      .write = write_memory,
                                      .rounds = rounds(),
                                      .seed = support_seed()};
}

static void run_on(const device_conformance_case_t *test, int other)
{
    opened_t first, second;
    open_gpu(&first, 0);
    if (other >= 0) {
        open_gpu(&second, other);
        first.subject.other = &second.subject;
    }
    bool passed = device_conformance_run(test, &first.subject);
    baton__gpu_close(first.gpu);
    if (other >= 0) {
        baton__gpu_close(second.gpu);
    }
    if (!passed) {
        fail_msg("%s", first.subject.failure);
    }
}

/* Uses a second GPU if there is one. Handles are also passed between two
   engines on the same GPU. */
static void run_case(void **state)
{
    const device_conformance_case_t *test = *state;
    int gpus = 0;
    gpu_must(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
    run_on(test, gpus > 1 ? 1 : -1);
    if (strcmp(test->name, "handles") == 0) {
        run_on(test, 0);
    }
}

int main(int argc, char **argv)
{
    if (!gpu_there()) {
        return GPU_SKIPPED;
    }
    private_stream = gpu_stream();
    support_seed();
    device_conformance_add(run_case);
    return support_run_tests(argc, argv, NULL, NULL);
}
