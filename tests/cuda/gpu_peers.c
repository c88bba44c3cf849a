/* One process copies memory of another: handles that one CUDA process has made
   are opened in a second one. The child is forked before either process has
   called CUDA. */
#include "cuda/gpu.h"
#include "cuda/on_gpu.h"
#include "support/cmocka.h"

#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3 << 20, PARTS = 3 };

static int to_child[2], to_parent[2];

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 31 + (i >> 8));
}

/* ---- the child -------------------------------------------------------- */

static void require(bool condition, int exit_status)
{
    if (!condition) {
        _exit(exit_status);
    }
}

/* Copies from the address in the parent that the handle names, and checks the
   data. */
static void take(baton__gpu_t *gpu, const unsigned char *handle, size_t offset)
{
    size_t bytes = BYTES - offset;
    const void *theirs = NULL, *again = NULL;
    void *here = NULL;
    require(baton__gpu_open_handle(gpu, handle, &theirs) == BATON_OK, 2);
    require(baton__gpu_open_handle(gpu, handle, &again) == BATON_OK, 3);
    require(theirs == again, 4);
    require(baton__gpu_allocate(gpu, BATON_MEMORY_HOST, bytes, &here) ==
                BATON_OK,
            5);
    require(baton__gpu_copy(gpu, gpu->streams[1], here, theirs, bytes) ==
                BATON_OK,
            6);
    require(cudaStreamSynchronize(gpu->streams[1]) == cudaSuccess, 7);
    for (size_t i = 0; i < bytes; i++) {
        require(((unsigned char *)here)[i] == byte_at(offset + i), 8);
    }
    baton__gpu_release(gpu, BATON_MEMORY_HOST, here);
}

/* Takes a handle for each message of the parent, until the pipe is closed. */
static void be_child(void)
{
    unsigned char handle[BATON_DEVICE_HANDLE_BYTES];
    size_t offset = 0;
    baton__gpu_t *gpu = NULL;
    (void)close(to_child[1]);
    while (read(to_child[0], &offset, sizeof offset) == sizeof offset) {
        require(read(to_child[0], handle, sizeof handle) == sizeof handle, 1);
        require(gpu != NULL || baton__gpu_open(0, &gpu) == BATON_OK, 9);
        take(gpu, handle, offset);
        require(write(to_parent[1], "x", 1) == 1, 10);
    }
    baton__gpu_close(gpu);
    _exit(0);
}

/* ---- the parent ------------------------------------------------------- */

static void give(baton__gpu_t *gpu, const char *memory, size_t offset)
{
    unsigned char handle[BATON_DEVICE_HANDLE_BYTES];
    char answer = 0;
    assert_int_equal(baton__gpu_get_handle(gpu, memory + offset, handle),
                     BATON_OK);
    assert_int_equal(write(to_child[1], &offset, sizeof offset), sizeof offset);
    assert_int_equal(write(to_child[1], handle, sizeof handle), sizeof handle);
    assert_int_equal(read(to_parent[0], &answer, 1), 1);
}

TEST(test_another_process_copies)
{
    baton__gpu_t *gpu = NULL;
    void *memory = NULL;
    unsigned char *host = support_alloc(1, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        host[i] = byte_at(i);
    }
    assert_int_equal(baton__gpu_open(0, &gpu), BATON_OK);
    assert_int_equal(
        baton__gpu_allocate(gpu, BATON_MEMORY_DEVICE, BYTES, &memory),
        BATON_OK);
    gpu_must(cudaMemcpy(memory, host, BYTES, cudaMemcpyDefault), "cudaMemcpy");
    const size_t offsets[PARTS] = {0, 1, BYTES - 100};
    for (int i = 0; i < PARTS; i++) {
        give(gpu, memory, offsets[i]);
    }
    /* The child has closed the handles before this memory is freed. */
    int status = -1;
    (void)close(to_child[1]);
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
    baton__gpu_release(gpu, BATON_MEMORY_DEVICE, memory);
    baton__gpu_close(gpu);
    free(host);
}

int main(void)
{
    if (pipe(to_child) != 0 || pipe(to_parent) != 0) {
        return 1;
    }
    pid_t child = fork();
    if (child < 0) {
        return 1;
    }
    if (child == 0) {
        be_child();
    }
    (void)close(to_child[0]);
    (void)close(to_parent[1]);
    if (!gpu_there()) {
        (void)close(to_child[1]); /* the child ends when its pipe is closed */
        (void)wait(NULL);
        return GPU_SKIPPED;
    }
    return support_run_tests(0, NULL, NULL, NULL);
}
