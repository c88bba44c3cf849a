/* baton_cuda_attach: on this machine, whatever it has; or with an argument, the
   reason that it must give: see cuda.cmake. */
#include "cuda/gpu.h"
#include "support/cmocka.h"

#include <baton/cuda.h>
#include <dlfcn.h>
#include <string.h>

static const char *expected; /* or NULL */

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

static void test_attach_wants_an_engine(void **state)
{
    assert_int_equal(baton_cuda_attach(NULL, 0), BATON_ERR_INVALID);
    assert_says("engine is NULL");
}

/* Without a driver, or with one that was made to fail, the reason is known. A
   machine with a GPU attaches it. */
static void test_attach_says_why_not(void **state)
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

static void test_attach_refuses_other_numbers(void **state)
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

/* It is refused before CUDA is asked for anything. */
static void test_vectors_have_to_be_aligned(void **state)
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

int main(int argc, char **argv)
{
    expected = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attach_wants_an_engine),
        cmocka_unit_test(test_attach_says_why_not),
        cmocka_unit_test(test_attach_refuses_other_numbers),
        cmocka_unit_test(test_vectors_have_to_be_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
