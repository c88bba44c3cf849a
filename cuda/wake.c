/* Sleep: a descriptor that becomes readable when the streams have done what is
   in them now.

   A callback is queued in each stream that is not idle, and writes to an
   eventfd. There is at most one under way for each stream: an arm that finds
   one leaves the stream marked, and the arm that follows the wake-up queues the
   next. What is put into the stream behind a callback waits until the host has
   run it; but a driver that arms has put there what it had.

   cudaLaunchHostFunc would be the newer call, but is silent once the context
   has failed; and then too an engine that sleeps must wake, and ask. */
#include "cuda/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

baton_status_t baton__gpu_wakes_open(baton__gpu_t *gpu)
{
    gpu->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (gpu->descriptor >= 0 && gpu->descriptor <= STDERR_FILENO) {
        /* Or what is written to standard error goes there. */
        int standard = gpu->descriptor;
        gpu->descriptor = fcntl(standard, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        (void)close(standard);
    }
    if (gpu->descriptor < 0) {
        return baton_error_set(BATON_ERR_SYSTEM, "%s: eventfd failed: %s",
                               gpu->name, strerror(errno));
    }
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        gpu->wakes[k].descriptor = gpu->descriptor;
    }
    return BATON_OK;
}

/* Any thread. Marked after the work was put there: an arm that begins later
   sees it, and one that has begun need not. */
void baton__gpu_busy(baton__gpu_t *gpu, baton_stream_t stream)
{
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        if (gpu->streams[k] == stream) {
            atomic_store(&gpu->wakes[k].busy, true);
            return;
        }
    }
}

static void wake_notify(int descriptor)
{
    const uint64_t one = 1;
    /* It fails if the counter is full; then it is readable. */
    (void)!write(descriptor, &one, sizeof one);
}

/* On a thread of the driver's. Must not call CUDA. */
static void CUDART_CB reached(cudaStream_t stream, cudaError_t error, void *arg)
{
    (void)stream;
    (void)error; /* whoever wakes asks, and is told */
    baton__wake_t *wake = arg;
    /* Before the write: the arm that follows the wake-up must queue another. */
    atomic_store(&wake->outstanding, false);
    wake_notify(wake->descriptor);
}

/* A stream that is idle needs no callback: the driver looks once more before it
   sleeps. One that has failed is asked at once. */
static baton_status_t arm_stream(const baton__gpu_t *gpu, cudaStream_t stream,
                                 baton__wake_t *wake)
{
    const char *function = "cudaStreamQuery";
    cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        function = "cudaStreamAddCallback";
        error = cudaStreamAddCallback(stream, reached, wake, 0);
        if (error == cudaSuccess) {
            return BATON_OK;
        }
    }
    atomic_store(&wake->outstanding, false);
    if (error != cudaSuccess) {
        wake_notify(wake->descriptor);
    }
    return baton__gpu_report(gpu, error, function);
}

baton_status_t baton__gpu_arm(void *device)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    for (int k = 0; k < BATON_DEVICE_STREAMS && status == BATON_OK; k++) {
        baton__wake_t *wake = &gpu->wakes[k];
        if (!atomic_load(&wake->busy) ||
            atomic_exchange(&wake->outstanding, true)) {
            continue;
        }
        /* First: what is put there from now on marks it again. */
        atomic_store(&wake->busy, false);
        status = arm_stream(gpu, gpu->streams[k], wake);
    }
    baton__gpu_leave(gpu);
    return status;
}
