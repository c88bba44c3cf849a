/* Streams, events, and words in memory that streams wait for. */
#include "cuda/gpu.h"

#include <pthread.h>
#include <string.h>

/* The streams of each GPU. All engines of the process share them, since the
   driver has few hardware queues. Work that Baton puts into them never waits
   for another engine, so no engine can block another for good. */
enum { GPUS = 128 }; /* more GPUs than a driver supports */
static struct {
    int users;
    cudaStream_t streams[BATON_DEVICE_STREAMS];
} shared[GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* CUDA replaces a priority that is above the highest one by the highest one. */
enum { HIGHEST = -1000 };

static void destroy_streams(const baton__gpu_t *gpu)
{
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        cudaStream_t *stream = &shared[gpu->ordinal].streams[k];
        if (*stream != NULL) {
            (void)baton__gpu_report(gpu, cudaStreamDestroy(*stream),
                                    "cudaStreamDestroy");
        }
        *stream = NULL;
    }
}

/* Creates the streams. They do not wait for the default stream, nor for each
   other. They have the highest priority, since their work is short and other
   work waits for it. But streams of all priorities share the driver's hardware
   queues: if many streams of the application wait for a flag, they can hold up
   the stream whose work raises it. */
static cudaError_t create_streams(const baton__gpu_t *gpu)
{
    cudaError_t error = cudaSuccess;
    for (int k = 0; k < BATON_DEVICE_STREAMS && error == cudaSuccess; k++) {
        cudaStream_t stream = NULL;
        error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                             HIGHEST);
        shared[gpu->ordinal].streams[k] = error == cudaSuccess ? stream : NULL;
    }
    if (error != cudaSuccess) {
        destroy_streams(gpu);
    }
    return error;
}

baton_status_t baton__gpu_streams_open(baton__gpu_t *gpu)
{
    cudaError_t error = cudaSuccess;
    if (gpu->ordinal >= GPUS) {
        return baton_error_set(
            BATON_ERR_LIMIT,
            "%s: the GPU has a number above %d, the largest that is supported",
            gpu->name, GPUS - 1);
    }
    (void)pthread_mutex_lock(&lock);
    if (shared[gpu->ordinal].users == 0) {
        error = create_streams(gpu);
    }
    if (error == cudaSuccess) {
        shared[gpu->ordinal].users++;
        memcpy(gpu->streams, shared[gpu->ordinal].streams, sizeof gpu->streams);
    }
    (void)pthread_mutex_unlock(&lock);
    return baton__gpu_report(gpu, error, "cudaStreamCreateWithPriority");
}

/* Ends this GPU's use of the shared streams. First waits for all work in them,
   since callbacks of this work use `gpu`. */
void baton__gpu_streams_close(baton__gpu_t *gpu)
{
    if (gpu->streams[0] == NULL) {
        return; /* the streams were not opened */
    }
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        (void)baton__gpu_report(gpu, cudaStreamSynchronize(gpu->streams[k]),
                                "cudaStreamSynchronize");
    }
    (void)pthread_mutex_lock(&lock);
    if (--shared[gpu->ordinal].users == 0) {
        destroy_streams(gpu);
    }
    (void)pthread_mutex_unlock(&lock);
}

/* Enters the GPU. Returns BATON_ERR_UNSUPPORTED if the stream is one of the
   program's, and the program is capturing it. */
static baton_status_t enter_stream(const baton__gpu_t *gpu,
                                   baton_stream_t stream)
{
    enum cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaSuccess;
    bool own = false;
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        own = own || gpu->streams[k] == stream;
    }
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK || own) {
        return status;
    }
    error = cudaStreamIsCapturing(stream, &is);
    if (error == cudaSuccess && is == cudaStreamCaptureStatusNone) {
        return BATON_OK;
    }
    if (error == cudaSuccess || error == cudaErrorStreamCaptureImplicit) {
        (void)cudaGetLastError();
        status = baton_error_set(
            BATON_ERR_UNSUPPORTED,
            "%s: the program is capturing this stream, or a stream that it "
            "waits for, into a CUDA graph, which can't contain an epoch",
            gpu->name);
    } else {
        status = baton__gpu_report(gpu, error, "cudaStreamIsCapturing");
    }
    baton__gpu_leave(gpu);
    return status;
}

/* ---- events ----------------------------------------------------------- */

baton_status_t baton__gpu_event_create(void *device, void **out)
{
    const baton__gpu_t *gpu = device;
    cudaEvent_t event = NULL;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status == BATON_OK) {
        status = baton__gpu_end(
            gpu, "cudaEventCreateWithFlags",
            cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    if (status == BATON_OK) {
        *out = event;
    }
    return status;
}

void baton__gpu_event_destroy(void *device, void *event)
{
    const baton__gpu_t *gpu = device;
    if (event != NULL && baton__gpu_enter(gpu) == BATON_OK) {
        (void)baton__gpu_end(gpu, "cudaEventDestroy", cudaEventDestroy(event));
    } /* else the context is gone, and so is the event */
}

baton_status_t baton__gpu_record(void *device, baton_stream_t stream,
                                 void *event)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = enter_stream(gpu, stream);
    return status != BATON_OK ? status
                              : baton__gpu_put(gpu, stream, "cudaEventRecord",
                                               cudaEventRecord(event, stream));
}

baton_status_t baton__gpu_follow(void *device, baton_stream_t stream,
                                 void *event)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = enter_stream(gpu, stream);
    return status != BATON_OK
               ? status
               : baton__gpu_put(gpu, stream, "cudaStreamWaitEvent",
                                cudaStreamWaitEvent(stream, event, 0));
}

baton_status_t baton__gpu_query(void *device, void *event)
{
    const baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    cudaError_t error = cudaEventQuery(event);
    if (error != cudaErrorNotReady) {
        return baton__gpu_end(gpu, "cudaEventQuery", error);
    }
    (void)cudaGetLastError();
    baton__gpu_leave(gpu);
    return BATON_AGAIN;
}

/* ---- words ------------------------------------------------------------ */

/* The word is in pinned memory, which has the same address on the GPU. */
baton_status_t baton__gpu_await(void *device, baton_stream_t stream,
                                uint64_t *word, uint64_t value)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = enter_stream(gpu, stream);
    if (status != BATON_OK) {
        return status;
    }
    CUresult error = gpu->driver.stream_wait_value(
        stream, (CUdeviceptr)word, value, CU_STREAM_WAIT_VALUE_GEQ);
    return baton__gpu_put(gpu, stream, "cuStreamWaitValue64",
                          (cudaError_t)error);
}

/* The write needs no fence, because the driver puts a system-wide fence before
   it. */
baton_status_t baton__gpu_raise(void *device, baton_stream_t stream,
                                uint64_t *word, uint64_t value)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    CUresult error = gpu->driver.stream_write_value(
        stream, (CUdeviceptr)word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    return baton__gpu_put(gpu, stream, "cuStreamWriteValue64",
                          (cudaError_t)error);
}
