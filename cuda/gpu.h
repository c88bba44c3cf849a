/* The internals of libbaton_cuda, which makes a GPU a device of an engine.

   gpu.c       finds the GPU, or explains why there is none; opens and closes it
   driver.c    the driver's functions, looked up at run time
   error.c     the GPU's context; CUDA's errors as a status and a message
   memory.c    allocation, checks of pointers, copies
   streams.c   streams, which engines share; events; words to wait for
   wake.c      a descriptor that becomes readable when work has been done
   peers.c     memory of other engines and processes
   port.c      the table of all these as <baton/device.h> has it; attaches it
   reduce.cu   reductions; element.cuh: arithmetic of one element
   select.cu   selection; select_kernels.cuh: its kernels
   entries.cu  lists of entries; select_element.h: keys of one element

   Context. Every function may be called on any thread, but the current device
   of a thread belongs to the application. So each function works between
   baton__gpu_enter and baton__gpu_leave, which push the GPU's primary context
   on the thread's stack of contexts and pop it again; the runtime uses the
   context on top. cudaSetDevice would work too, but could only be undone by
   another cudaSetDevice, which creates a context on a GPU that the program may
   never use.

   A program may meanwhile capture a graph in one of its threads. By default
   CUDA then forbids cudaEventQuery and similar calls in all threads: such a
   call invalidates the program's capture. So enter also sets the thread's
   capture mode to "relaxed", in which its calls do not affect captures, and
   leave restores the mode.

   The runtime is linked statically. So this library also loads on machines
   without the runtime, and its record of a thread's last error is separate
   from the application's. Streams, events and pointers belong to the driver,
   and so are valid in all copies of the runtime in a process. */
#pragma once

#include <baton/device.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The driver's functions, as driver.c finds them. */
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

/* The state by which one stream wakes the engine; see wake.c. */
typedef struct baton__wake {
    atomic_bool busy; /* the stream got work since the engine was last armed */
    atomic_bool outstanding; /* a callback has been queued and has not run */
    int descriptor;          /* the GPU's eventfd, to which callbacks write */
} baton__wake_t;

struct baton__mapping;

typedef struct baton__gpu {
    int ordinal;
    CUdevice device;
    CUcontext context; /* the primary context; NULL: not retained */
    char name[300];    /* "cuda:0 NVIDIA H100" */
    baton__driver_t driver;
    unsigned processors; /* the number of multiprocessors */
    /* The number of blocks of a reduction kernel that can run on the GPU at the
       same time. It differs between kernels; this is the least of their
       numbers. */
    unsigned blocks;

    cudaStream_t streams[BATON_DEVICE_STREAMS];
    baton__wake_t wakes[BATON_DEVICE_STREAMS];
    int descriptor; /* an eventfd to which callbacks of all streams write */

    bool managed_by_host; /* the CPU may access managed memory at any time */
    struct baton__mapping *mappings;
} baton__gpu_t;

/* ---- driver.c --------------------------------------------------------- */

/* Looks up all functions. If the driver lacks one, returns
   BATON_ERR_UNSUPPORTED with a message that names the function. */
baton_status_t baton__driver_load(baton__gpu_t *gpu);

/* ---- error.c ---------------------------------------------------------- */

/* Returns BATON_OK for cudaSuccess, else BATON_ERR_NO_MEMORY or
   BATON_ERR_SYSTEM with a message that names the GPU, the function and CUDA's
   error. `error` may also be an error of the driver, whose numbers are the same
   as the runtime's. */
baton_status_t baton__gpu_report(const baton__gpu_t *gpu, cudaError_t error,
                                 const char *function);

/* baton__gpu_enter makes the GPU's context current, and baton__gpu_leave
   restores the previous context. Calls may nest. baton__gpu_enter fails if the
   context has been destroyed or the process is exiting; then baton__gpu_leave
   must not be called. */
baton_status_t baton__gpu_enter(const baton__gpu_t *gpu);
void baton__gpu_leave(const baton__gpu_t *gpu);

/* Leaves the GPU and reports `error`. */
baton_status_t baton__gpu_end(const baton__gpu_t *gpu, const char *function,
                              cudaError_t error);

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

/* Used instead of baton__gpu_end after a call that has put work into the
   stream: also marks the stream busy for the next arm. */
baton_status_t baton__gpu_put(baton__gpu_t *gpu, baton_stream_t stream,
                              const char *function, cudaError_t error);
baton_status_t baton__gpu_wakes_open(baton__gpu_t *gpu);
baton_status_t baton__gpu_arm(void *device);

baton_status_t baton__gpu_await(void *device, baton_stream_t stream,
                                uint64_t *word, uint64_t value);
baton_status_t baton__gpu_raise(void *device, baton_stream_t stream,
                                uint64_t *word, uint64_t value);

uint64_t baton__gpu_handle_scope(void);
void baton__gpu_mappings_close(baton__gpu_t *gpu);
baton_status_t
baton__gpu_get_handle(void *device, const void *memory,
                      unsigned char handle_out[BATON_DEVICE_HANDLE_BYTES]);
baton_status_t
baton__gpu_open_handle(void *device,
                       const unsigned char handle[BATON_DEVICE_HANDLE_BYTES],
                       const void **out);

/* Opens the GPU with number `ordinal`. Fails as baton_cuda_attach does. */
baton_status_t baton__gpu_open(int ordinal, baton__gpu_t **out);

/* Closes and frees the GPU, which may be open only in part. `device` may be
   NULL. */
void baton__gpu_close(void *device);

/* Returns the port that consists of the functions above. */
baton_device_port_t baton__gpu_port(const baton__gpu_t *gpu);
