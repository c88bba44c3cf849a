/* Graphs: what is put into some streams is captured (cudaStreamBeginCapture),
   and launched as one.

       begin:  origin ---+---+            end:  streams[1] --+
                         |   |                  streams[2] --+--> origin
               streams[1]    streams[2]

   A capture begins in one stream. Others join it by waiting for an event of
   that one, and have to be joined to it again before the end. Neither event
   makes a node: each stream begins with nothing ahead of it, as if it stood
   alone.

   The streams are made for one capture and destroyed with it: what others put
   into the GPU's own streams meanwhile is not captured. They don't wait for the
   default stream, nor it for them, so the program may use that. The capture is
   of this thread: while it lasts, calls of the program that a graph can't
   record fail in this thread, and nothing is forbidden to other threads. */
#include "cuda/gpu.h"

#include <stdlib.h>

typedef struct baton__gpu_graph {
    struct baton__gpu_graph *next; /* of those that are being recorded */
    int count;
    cudaStream_t streams[BATON_DEVICE_GRAPH_STREAMS]; /* the first: origin */
    cudaEvent_t joint; /* between the origin and another stream */
    bool capturing;
    cudaGraphExec_t exec; /* NULL until the end */
} graph_t;

/* ---- which streams are captured ---------------------------------------- */

static void enlist(baton__gpu_t *gpu, graph_t *graph)
{
    (void)pthread_mutex_lock(&gpu->graph_lock);
    graph->next = gpu->recorded;
    gpu->recorded = graph;
    (void)pthread_mutex_unlock(&gpu->graph_lock);
    atomic_fetch_add(&gpu->recordings, 1);
}

static void delist(baton__gpu_t *gpu, const graph_t *graph)
{
    (void)pthread_mutex_lock(&gpu->graph_lock);
    graph_t **link = &gpu->recorded;
    while (*link != NULL && *link != graph) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = graph->next;
        atomic_fetch_sub(&gpu->recordings, 1);
    }
    (void)pthread_mutex_unlock(&gpu->graph_lock);
}

bool baton__gpu_records(baton__gpu_t *gpu, baton_stream_t stream)
{
    bool found = false;
    if (atomic_load(&gpu->recordings) == 0) {
        return false;
    }
    (void)pthread_mutex_lock(&gpu->graph_lock);
    for (const graph_t *at = gpu->recorded; at != NULL; at = at->next) {
        for (int k = 0; k < at->count; k++) {
            found |= at->streams[k] == stream;
        }
    }
    (void)pthread_mutex_unlock(&gpu->graph_lock);
    return found;
}

baton_status_t baton__gpu_check_stream(baton__gpu_t *gpu, baton_stream_t stream)
{
    enum cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
    if (baton__gpu_owns(gpu, stream) || baton__gpu_records(gpu, stream)) {
        return BATON_OK;
    }
    cudaError_t error = cudaStreamIsCapturing(stream, &is);
    if (error != cudaErrorStreamCaptureImplicit && error != cudaSuccess) {
        return baton__gpu_report(gpu, error, "cudaStreamIsCapturing");
    }
    if (error == cudaSuccess && is == cudaStreamCaptureStatusNone) {
        return BATON_OK;
    }
    (void)cudaGetLastError();
    return baton_error_set(BATON_ERR_UNSUPPORTED,
                           "%s: the program captures this stream, or one that "
                           "it waits for, in a graph, of which an epoch can't "
                           "be a part",
                           gpu->name);
}

/* ---- recording ---------------------------------------------------------- */

static baton_status_t create_streams(const baton__gpu_t *gpu, graph_t *graph)
{
    cudaError_t error =
        cudaEventCreateWithFlags(&graph->joint, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        graph->joint = NULL;
        return baton__gpu_report(gpu, error, "cudaEventCreateWithFlags");
    }
    for (int k = 0; k < graph->count; k++) {
        error = cudaStreamCreateWithFlags(&graph->streams[k],
                                          cudaStreamNonBlocking);
        if (error != cudaSuccess) {
            graph->streams[k] = NULL;
            return baton__gpu_report(gpu, error, "cudaStreamCreateWithFlags");
        }
    }
    return BATON_OK;
}

/* What is put into `later` from now on is behind what is in `earlier` now. */
static baton_status_t join(const baton__gpu_t *gpu, const graph_t *graph,
                           cudaStream_t earlier, cudaStream_t later)
{
    cudaError_t error = cudaEventRecord(graph->joint, earlier);
    if (error == cudaSuccess) {
        error = cudaStreamWaitEvent(later, graph->joint, 0);
    }
    return baton__gpu_report(gpu, error, "joining the streams of a capture");
}

static baton_status_t begin_capture(const baton__gpu_t *gpu, graph_t *graph)
{
    cudaStream_t origin = graph->streams[0];
    cudaError_t error =
        cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal);
    baton_status_t status =
        baton__gpu_report(gpu, error, "cudaStreamBeginCapture");
    graph->capturing = status == BATON_OK;
    for (int k = 1; k < graph->count && status == BATON_OK; k++) {
        status = join(gpu, graph, origin, graph->streams[k]);
    }
    return status;
}

/* Ends the capture, also one that has failed: then there is no graph. */
static baton_status_t end_capture(const baton__gpu_t *gpu, graph_t *graph,
                                  cudaGraph_t *out)
{
    cudaStream_t origin = graph->streams[0];
    baton_status_t status = BATON_OK;
    *out = NULL;
    for (int k = 1; k < graph->count && status == BATON_OK; k++) {
        status = join(gpu, graph, graph->streams[k], origin);
    }
    cudaError_t error = cudaStreamEndCapture(origin, out);
    graph->capturing = false;
    if (status == BATON_OK) {
        return baton__gpu_report(gpu, error, "cudaStreamEndCapture");
    }
    (void)cudaGetLastError();
    return status;
}

/* The capture fails, since its streams are not joined: there is no graph. The
   message of the error that led here stays. */
static void give_up_capture(graph_t *graph)
{
    cudaGraph_t captured = NULL;
    if (graph->capturing &&
        (cudaStreamEndCapture(graph->streams[0], &captured) != cudaSuccess ||
         cudaGraphDestroy(captured) != cudaSuccess)) {
        (void)cudaGetLastError();
    }
    graph->capturing = false;
}

static void destroy_streams(baton__gpu_t *gpu, graph_t *graph)
{
    delist(gpu, graph);
    for (int k = 0; k < graph->count; k++) {
        if (graph->streams[k] != NULL) {
            (void)baton__gpu_report(gpu, cudaStreamDestroy(graph->streams[k]),
                                    "cudaStreamDestroy");
        }
    }
    graph->count = 0;
    if (graph->joint != NULL) {
        (void)baton__gpu_report(gpu, cudaEventDestroy(graph->joint),
                                "cudaEventDestroy");
        graph->joint = NULL;
    }
}

baton_status_t baton__gpu_graph_begin(void *device, int count,
                                      baton_stream_t *streams_out, void **out)
{
    baton__gpu_t *gpu = device;
    graph_t *graph = calloc(1, sizeof *graph);
    if (graph == NULL) {
        return baton_error_set(BATON_ERR_NO_MEMORY,
                               "%s: there is no memory for a graph", gpu->name);
    }
    graph->count = count;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        free(graph);
        return status;
    }
    status = create_streams(gpu, graph);
    if (status == BATON_OK) {
        enlist(gpu, graph);
        status = begin_capture(gpu, graph);
    }
    baton__gpu_leave(gpu);
    if (status != BATON_OK) {
        baton__gpu_graph_destroy(gpu, graph);
        return status;
    }
    for (int k = 0; k < count; k++) {
        streams_out[k] = graph->streams[k];
    }
    *out = graph;
    return BATON_OK;
}

/* ---- the end ------------------------------------------------------------ */

/* Makes what can be launched, and brings it to the GPU: no launch has to. */
static baton_status_t instantiate(const baton__gpu_t *gpu, graph_t *graph,
                                  cudaGraph_t captured)
{
    const char *function = "cudaGraphInstantiate";
    cudaStream_t stream = graph->streams[0];
    cudaError_t error = cudaGraphInstantiate(&graph->exec, captured, 0);
    if (error != cudaSuccess) {
        graph->exec = NULL;
    } else {
        function = "cudaGraphUpload";
        error = cudaGraphUpload(graph->exec, stream);
    }
    if (error == cudaSuccess) {
        function = "cudaStreamSynchronize";
        error = cudaStreamSynchronize(stream);
    }
    return baton__gpu_report(gpu, error, function);
}

baton_status_t baton__gpu_graph_end(void *device, void *handle)
{
    baton__gpu_t *gpu = device;
    graph_t *graph = handle;
    cudaGraph_t captured = NULL;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    status = end_capture(gpu, graph, &captured);
    if (status == BATON_OK) {
        status = instantiate(gpu, graph, captured);
    }
    if (captured != NULL && cudaGraphDestroy(captured) != cudaSuccess) {
        (void)cudaGetLastError(); /* what is launched does not need it */
    }
    destroy_streams(gpu, graph);
    baton__gpu_leave(gpu);
    return status;
}

baton_status_t baton__gpu_graph_launch(void *device, void *handle,
                                       baton_stream_t stream)
{
    baton__gpu_t *gpu = device;
    const graph_t *graph = handle;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    status = baton__gpu_check_stream(gpu, stream);
    if (status == BATON_OK) {
        status = baton__gpu_report(gpu, cudaGraphLaunch(graph->exec, stream),
                                   "cudaGraphLaunch");
    }
    baton__gpu_leave(gpu);
    baton__gpu_busy(gpu, stream);
    return status;
}

void baton__gpu_graph_destroy(void *device, void *handle)
{
    baton__gpu_t *gpu = device;
    graph_t *graph = handle;
    if (graph == NULL) {
        return;
    }
    if (baton__gpu_enter(gpu) == BATON_OK) {
        give_up_capture(graph);
        if (graph->exec != NULL) {
            (void)baton__gpu_report(gpu, cudaGraphExecDestroy(graph->exec),
                                    "cudaGraphExecDestroy");
        }
        destroy_streams(gpu, graph);
        baton__gpu_leave(gpu);
    } else {
        delist(gpu, graph); /* the context is gone, and all of it there */
    }
    free(graph);
}
