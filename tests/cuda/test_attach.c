/* Tests baton_cuda_attach. Without an argument the test accepts whatever this
   machine has; an argument is the text that the error message must contain (see
   cuda.cmake). Also tests the streams that engines share. */
#include "cuda/gpu.h"
#include "support/cmocka.h"

#include <baton/cuda.h>
#include <baton/engine.h>
#include <dlfcn.h>

static const char *expected; /* NULL: no error message is expected */

static bool has_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver != NULL) {
        (void)dlclose(driver);
    }
    return driver != NULL;
}

static baton_engine_t *open_engine(void)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = BATON_PROGRESS_MANUAL;
    baton_engine_t *engine = NULL;
    assert_int_equal(baton_engine_open(&options, &engine), BATON_OK);
    return engine;
}

static void assert_says(const char *part)
{
    if (strstr(baton_error_message(), part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", baton_error_message(), part);
    }
}

TEST(test_attach_wants_an_engine)
{
    assert_int_equal(baton_cuda_attach(NULL, 0), BATON_ERR_INVALID);
    assert_says("engine is NULL");
}

/* If there is no driver, or a driver that was made to fail, the message names
   the reason. On a machine with a GPU the call attaches it. */
TEST(test_attach_says_why_not)
{
    baton_engine_t *engine = open_engine();
    baton_status_t status = baton_cuda_attach(engine, 0);
    if (expected != NULL) {
        assert_int_equal(status, BATON_ERR_UNSUPPORTED);
        assert_says(expected);
    } else if (!has_driver()) {
        assert_int_equal(status, BATON_ERR_UNSUPPORTED);
        assert_says("there is no NVIDIA driver on this machine");
    } else if (status == BATON_OK) {
        assert_int_equal(baton_cuda_attach(engine, 0), BATON_ERR_STATE);
        assert_says("device");
    } else {
        assert_int_equal(status, BATON_ERR_UNSUPPORTED);
        print_message("not attached: %s\n", baton_error_message());
    }
    assert_int_equal(baton_engine_close(engine), BATON_OK);
}

TEST(test_attach_refuses_other_numbers)
{
    baton_engine_t *engine = open_engine();
    bool there = baton_cuda_attach(engine, 0) == BATON_OK;
    assert_int_equal(baton_engine_close(engine), BATON_OK);
    const int numbers[] = {-1, 1000};
    for (size_t i = 0; i < 2; i++) {
        engine = open_engine();
        assert_int_equal(baton_cuda_attach(engine, numbers[i]),
                         there ? BATON_ERR_INVALID : BATON_ERR_UNSUPPORTED);
        assert_int_equal(baton_engine_close(engine), BATON_OK);
    }
}

/* The port refuses the vector before it calls CUDA. */
TEST(test_vectors_have_to_be_aligned)
{
    baton__gpu_t gpu = {.name = "cuda:7"};
    const baton_device_port_t port = baton__gpu_port(&gpu);
    float values[2] = {0};
    double sum = 0;
    const void *source = (char *)values + 2;
    assert_int_equal(port.scale(&gpu, NULL, BATON_F32, values, source, 1, 2.0),
                     BATON_ERR_INVALID);
    assert_says("cuda:7: a vector of f32 begins at");
    assert_int_equal(
        port.square_sum(&gpu, NULL, BATON_F32, source, 1, &sum, NULL),
        BATON_ERR_INVALID);
    assert_says("not aligned to its elements");
}

/* ---- streams ----------------------------------------------------------- */

/* cuda.cmake makes the linker redirect calls of these CUDA functions to the
   wrappers below. The wrappers call CUDA unless the test has set `faked`. */
cudaError_t __real_cudaStreamCreateWithPriority(cudaStream_t *out,
                                                unsigned flags, int priority);
cudaError_t __real_cudaStreamDestroy(cudaStream_t stream);
cudaError_t __real_cudaStreamSynchronize(cudaStream_t stream);
cudaError_t __wrap_cudaStreamCreateWithPriority(cudaStream_t *out,
                                                unsigned flags, int priority);
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t stream);
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream);

static char made[100]; /* a faked stream is an address in this array */
static bool faked;
static int created, destroyed, fails_at;

cudaError_t __wrap_cudaStreamCreateWithPriority(cudaStream_t *out,
                                                unsigned flags, int priority)
{
    if (!faked) {
        return __real_cudaStreamCreateWithPriority(out, flags, priority);
    }
    if (created + 1 == fails_at) {
        return cudaErrorMemoryAllocation;
    }
    *out = (cudaStream_t)(void *)&made[created++];
    return cudaSuccess;
}

cudaError_t __wrap_cudaStreamDestroy(cudaStream_t stream)
{
    destroyed++;
    return faked ? cudaSuccess : __real_cudaStreamDestroy(stream);
}

cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream)
{
    return faked ? cudaSuccess : __real_cudaStreamSynchronize(stream);
}

/* Engines of one process share a GPU's streams. The last engine that is closed
   destroys them. */
TEST(test_streams_are_shared)
{
    baton__gpu_t first = {.ordinal = 0}, second = {.ordinal = 0},
                 other = {.ordinal = 1};
    faked = true;
    destroyed = 0; /* on a GPU the earlier tests have destroyed streams */
    fails_at = 2;
    assert_int_equal(baton__gpu_streams_open(&first), BATON_ERR_NO_MEMORY);
    assert_int_equal(destroyed, 1);
    created = destroyed = fails_at = 0;
    assert_int_equal(baton__gpu_streams_open(&first), BATON_OK);
    assert_int_equal(baton__gpu_streams_open(&other), BATON_OK);
    assert_int_equal(baton__gpu_streams_open(&second), BATON_OK);
    assert_int_equal(created, 2 * BATON_DEVICE_STREAMS);
    assert_memory_equal(second.streams, first.streams, sizeof first.streams);
    assert_ptr_not_equal(other.streams[0], first.streams[0]);
    baton__gpu_streams_close(&first);
    assert_int_equal(destroyed, 0);
    baton__gpu_streams_close(&second);
    assert_int_equal(destroyed, BATON_DEVICE_STREAMS);
    baton__gpu_streams_close(&other);
    assert_int_equal(destroyed, created);
    faked = false;
}

int main(int argc, char **argv)
{
    expected = argc > 1 ? argv[1] : NULL;
    return support_run_tests(0, NULL, NULL, NULL);
}
