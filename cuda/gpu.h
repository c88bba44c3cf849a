/* A GPU as a device of an engine: inside libbaton_cuda.

   attach.c    finds the GPU and says why there is none; opens and closes it
   driver.c    the driver's functions, found at run time
   error.c     what CUDA said, as a status and a message
   memory.c    allocation, what a pointer points to, copies
   streams.c   streams, which engines share; events; words to wait for
   wake.c      a descriptor that becomes readable when work has been done
   peers.c     memory of other engines and processes
   port.c      the table of all these, as <baton/device.h> wants it
   reduce.cu   reductions; element.cuh: of one element
   select.cu   selection; select_kernels.cuh: its kernels
   entries.cu  lists of entries; select_element.h: arithmetic of one element

   Context. Every function may be called on any thread, and the application
   owns its threads' current device. So work is done between baton__gpu_enter
   and baton__gpu_leave, which push the GPU's primary context on the thread's
   stack of contexts and pop it again. The runtime uses what is on top.
   cudaSetDevice would do too, but would have to be undone by another one, which
   makes a context on a GPU that the program may never use.

   A program may capture a graph in one of its threads meanwhile. By default
   CUDA then forbids cudaEventQuery and the like in all threads, and such a call
   makes the program's capture invalid. So enter also sets the thread's mode to
   "relaxed", in which its calls are nobody's business, and leave sets it back.

   The runtime is linked statically: this library loads where there is none, and
   its record of the thread's last error is not the application's. Streams,
   events and pointers are the driver's, and so common to all copies of the
   runtime in a process. */
#pragma once

#include <baton/device.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The driver's functions. */
typedef struct baton__driver {
    PFN_cuDeviceGet_v2000 device_get;
    PFN_cuDeviceGetAttribute_v2000 device_get_attribute;
    PFN_cuDevicePrimaryCtxRetain_v7000 context_retain;
    PFN_cuDevicePrimaryCtxRelease_v11000 context_release;
    PFN_cuCtxPushCurrent_v4000 context_push;
    PFN_cuCtxPopCurrent_v4000 context_pop;
    PFN_cuThreadExchangeStreamCaptureMode_v10010 exchange_capture_mode;
    PFN_cuPointerGetAttributes_v7000 pointer_attributes;
    PFN_cuStreamWaitValue64_v11070 stream_wait_value;
    PFN_cuStreamWriteValue64_v11070 stream_write_value;
} baton__driver_t;

/* What tells the engine that a stream has got so far; see wake.c. */
typedef struct baton__wake {
    atomic_bool busy;        /* work was put there since the last arm */
    atomic_bool outstanding; /* a callback has been queued and not run */
    int descriptor;          /* of the GPU */
} baton__wake_t;

struct baton__mapping;

typedef struct baton__gpu {
    int ordinal;
    CUdevice device;
    CUcontext context; /* NULL: not retained */
    char name[300];    /* "cuda:0 NVIDIA H100" */
    baton__driver_t driver;
    unsigned blocks; /* that run on it at a time, of any reduction */

    cudaStream_t streams[BATON_DEVICE_STREAMS];
    baton__wake_t wakes[BATON_DEVICE_STREAMS];
    int descriptor; /* an eventfd */

    bool managed_by_host; /* the host may access managed memory at any time */
    struct baton__mapping *mappings;
} baton__gpu_t;

/* ---- driver.c --------------------------------------------------------- */

/* BATON_ERR_UNSUPPORTED names the function that the driver lacks. */
baton_status_t baton__driver_load(baton__driver_t *out);

/* ---- error.c ---------------------------------------------------------- */

/* BATON_OK for cudaSuccess. Otherwise sets the message, which names the GPU,
   the function and what CUDA said: BATON_ERR_NO_MEMORY or _SYSTEM. Also for the
   driver's errors, whose numbers the runtime has, too. */
baton_status_t baton__gpu_report(const baton__gpu_t *gpu, cudaError_t error,
                                 const char *function);

/* Makes the GPU's context current, and what was current before again. Calls may
   nest. An error: the context has been destroyed, or the process ends. */
baton_status_t baton__gpu_enter(const baton__gpu_t *gpu);
void baton__gpu_leave(const baton__gpu_t *gpu);

/* Reports an error, and leaves. So does put, after work has been put into a
   stream. */
baton_status_t baton__gpu_end(const baton__gpu_t *gpu, const char *function,
                              cudaError_t error);
baton_status_t baton__gpu_put(baton__gpu_t *gpu, baton_stream_t stream,
                              const char *function, cudaError_t error);

/* ---- the port --------------------------------------------------------- */

baton_status_t baton__gpu_allocate(void *device, baton_memory_t kind,
                                   size_t bytes, void **out);
void baton__gpu_release(void *device, baton_memory_t kind, void *memory);
baton_status_t baton__gpu_check(void *device, const void *memory, size_t bytes,
                                baton_memory_t kind);
baton_status_t baton__gpu_copy(void *device, baton_stream_t stream,
                               void *target, const void *source, size_t bytes);

baton_status_t baton__gpu_streams_open(baton__gpu_t *gpu);
void baton__gpu_streams_close(baton__gpu_t *gpu);
baton_status_t baton__gpu_event_create(void *device, void **out);
void baton__gpu_event_destroy(void *device, void *event);
baton_status_t baton__gpu_record(void *device, baton_stream_t stream,
                                 void *event);
baton_status_t baton__gpu_follow(void *device, baton_stream_t stream,
                                 void *event);
baton_status_t baton__gpu_query(void *device, void *event);

/* Work has been put into this stream, which may be the application's. */
void baton__gpu_busy(baton__gpu_t *gpu, baton_stream_t stream);
baton_status_t baton__gpu_wakes_open(baton__gpu_t *gpu);
baton_status_t baton__gpu_arm(void *device);

baton_status_t baton__gpu_await(void *device, baton_stream_t stream,
                                uint64_t *word, uint64_t value);
baton_status_t baton__gpu_raise(void *device, baton_stream_t stream,
                                uint64_t *word, uint64_t value);

uint64_t baton__gpu_kin(void);
void baton__gpu_mappings_close(baton__gpu_t *gpu);
baton_status_t
baton__gpu_get_handle(void *device, const void *memory,
                      unsigned char handle_out[BATON_DEVICE_HANDLE_BYTES]);
baton_status_t
baton__gpu_open_handle(void *device,
                       const unsigned char handle[BATON_DEVICE_HANDLE_BYTES],
                       const void **out);

baton_status_t baton__gpu_reduce(void *device, baton_stream_t stream,
                                 const baton_op_t *op, baton_dtype_t dtype,
                                 void *target, const void *left,
                                 const void *right, size_t count);

/* Opens the GPU of this number, or says why not, as baton_cuda_attach does. */
baton_status_t baton__gpu_open(int ordinal, baton__gpu_t **out);

/* Frees the GPU, also one that was opened in part. NULL is allowed. */
void baton__gpu_close(void *device);

/* A port with these functions. */
baton_device_port_t baton__gpu_port(const baton__gpu_t *gpu);
