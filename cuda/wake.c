/* Sleep: a descriptor that becomes readable when the streams have done the work
   that they have now.

   Arming queues a callback in each stream that is not idle; the callback writes
   to an eventfd. A stream has at most one callback under way. An arm that finds
   a callback under way leaves the stream marked as busy, and the first arm
   after the wake-up queues the next callback. Work put into a stream after a
   callback waits until the CPU has run the callback. That does no harm, since a
   thread that arms has no more work for the stream.

   The callback is queued by cudaStreamAddCallback, although CUDA recommends
   cudaLaunchHostFunc instead. The latter never calls back after the context
   has failed, and a sleeping engine must wake then, too, and read the error. */
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
        /* If the process has closed a standard stream (such as standard
           output), the eventfd may get its number, and then text that was meant
           for the stream. So the eventfd is moved to a higher number. */
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

/* Marks one of the GPU's own streams as busy. Any thread may call this, after
   it has put work there. So an arm that begins later sees the mark. An arm that
   has begun already need not see it, since it need not report work that was put
   there meanwhile. Streams of the application need no wake-up. */
static void wake_mark(baton__gpu_t *gpu, baton_stream_t stream)
{
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        if (gpu->streams[k] == stream) {
            atomic_store(&gpu->wakes[k].busy, true);
            return;
        }
    }
}

baton_status_t baton__gpu_put(baton__gpu_t *gpu, baton_stream_t stream,
                              const char *function, cudaError_t error)
{
    baton_status_t status = baton__gpu_end(gpu, function, error);
    wake_mark(gpu, stream);
    return status;
}

static void wake_notify(int descriptor)
{
    const uint64_t one = 1;
    /* The write fails if the counter is full; then the eventfd is readable
       anyway. */
    (void)!write(descriptor, &one, sizeof one);
}

/* The callback, which a thread of CUDA's driver calls. Must not call CUDA. */
static void CUDART_CB reached(cudaStream_t stream, cudaError_t error, void *arg)
{
    /* The thread that wakes gets the error when it queries the stream. */
    baton__wake_t *wake = arg;
    /* `outstanding` is reset before the write, since the first arm after the
       wake-up must queue another callback. */
    atomic_store(&wake->outstanding, false);
    wake_notify(wake->descriptor);
}

/* Queues a callback. An idle stream needs none, because the driving thread
   polls once more before it sleeps. A stream that has failed wakes this thread
   at once. */
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
        /* `busy` is reset before the callback is queued, so that work put into
           the stream from now on marks the stream again. */
        atomic_store(&wake->busy, false);
        status = arm_stream(gpu, gpu->streams[k], wake);
    }
    baton__gpu_leave(gpu);
    return status;
}
