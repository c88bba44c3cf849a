/* Devices: schedules with buffers in the memory of an accelerator, and epochs
   in the order of its streams.

   An engine has at most one device, which is attached before its first group.
   <baton/cuda.h> attaches a GPU:

       baton_cuda_attach(engine, 0);
       ...
       baton_buffer_t grad = baton_buffer_bind(s, gradient, bytes);
       baton_buffer_set_memory(s, grad, BATON_MEMORY_DEVICE);
       baton_add_allreduce(s, &args);                  // any builder, unchanged
       baton_schedule_commit(s);
       ...
       backward<<<grid, block, 0, stream>>>(gradient);
       baton_schedule_start_on(s, stream);             // does not block
       other_work<<<grid, block, 0, stream>>>();
       baton_schedule_wait_on(s, stream);              // does not block
       update<<<grid, block, 0, stream>>>(weights, gradient);

   The device executes every reduce and copy with a view in device memory. All
   operands of a reduce must be in one kind of memory; a copy may go from one
   kind to the other. Consecutive reduces and copies are queued on the device,
   without returning to the host. Every transport sends from device memory and
   receives into it. A rank that receives from device memory needs a device,
   even if the target is in host memory. Scratch is in device memory if a reduce
   or copy connects it with a device buffer, directly or through other scratch.
   So is scratch that only messages use, if a bound buffer is in device memory
   and no call or async node may read scratch (baton_set_no_scratch).
   baton_buffer_set_memory overrides this. Call nodes run on the host, and must
   not dereference device addresses.

   partial.h has the corresponding calls for partial collectives.

   While a stream is blocked at wait_on, no thread of the program should
   allocate or free device or pinned memory, copy to or from unpinned host
   memory, or launch a kernel for the first time. In such a call CUDA may wait
   until all streams are idle, and block other calls and streams meanwhile,
   among them the engine's: a deadlock. Allocate before the first step or from a
   pool (cudaMallocAsync), and load kernels before the first step. docs/cuda.md
   says how, and how many streams may be blocked.

   Without a device, commit of a schedule with nodes that use device memory or
   are device calls fails with BATON_ERR_UNSUPPORTED.

   The second part of this header is the port that a device implements.
   libbaton_cuda implements it for CUDA, so libbaton itself needs no driver;
   tests/support has a device whose streams are threads. */
#ifndef BATON_DEVICE_H
#define BATON_DEVICE_H

#include <baton/build.h>
#include <baton/select.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A queue of work that the device executes in order: a cudaStream_t. NULL is a
   valid stream: CUDA's default stream. */
typedef void *baton_stream_t;

/* ---- epochs in stream order ------------------------------------------- */

/* Starts this rank's next epoch as baton_schedule_start does, but the epoch
   begins when the work now in the stream has completed, or when a peer
   activates it. Does not block. Up to 8 epochs, or as many as a depth above 1
   allows, may be in flight; they run one after another. If one fails or is
   cancelled, the later ones fail, too. BATON_ERR_BUSY: as many epochs are in
   flight already. BATON_ERR_UNSUPPORTED: the engine has no device, or the
   stream is being captured. Other errors as for baton_schedule_start. */
BATON_CHECKED baton_status_t baton_schedule_start_on(baton_schedule_t *schedule,
                                                     baton_stream_t stream);

/* Work put into the stream from now on runs when the last started epoch has
   ended, with success or not; test or wait returns its status. Does not block.
   BATON_ERR_STATE: no epoch was started. Other errors as for start_on. */
BATON_CHECKED baton_status_t baton_schedule_wait_on(baton_schedule_t *schedule,
                                                    baton_stream_t stream);

/* ---- nodes ------------------------------------------------------------ */

/* `fn` puts work of its own (kernels, copies) into `stream`, and must neither
   wait for that work nor synchronise. The work runs after that of the node's
   predecessors and before that of its successors. `fn` returns BATON_OK or an
   error, which fails the epoch. `fn` is called on the driving thread, like a
   call node's function; baton_call_address gives it device addresses. All
   schedules of the process share the stream, so work that waits there delays
   the others. */
typedef baton_status_t (*baton_device_call_fn)(void *arg, baton_call_t *call,
                                               baton_stream_t stream);
baton_node_t baton_add_device_call(baton_schedule_t *schedule,
                                   baton_device_call_fn fn, void *arg);

/* ---- memory ------------------------------------------------------------ */

/* Allocates memory of the engine's device, or pinned host memory, which the
   device copies at full speed. It is aligned to 256 bytes and not initialised,
   and the caller owns it until baton_device_free. May block. Any thread, but
   not in a call node. BATON_ERR_INVALID: engine or out is NULL, bytes is 0, or
   kind is invalid. BATON_ERR_UNSUPPORTED: the engine has no device.
   BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_device_alloc(baton_engine_t *engine,
                                                baton_memory_t kind,
                                                size_t bytes, void **out);

/* Frees memory of baton_device_alloc, with the same `kind`, before the engine
   is closed. No work in a stream may still use it. NULL is allowed. */
void baton_device_free(baton_engine_t *engine, baton_memory_t kind,
                       void *memory);

/* Returns BATON_OK if all `bytes` bytes are memory of this kind for the
   engine's device, whether or not Baton allocated them. BATON_ERR_INVALID: the
   message names the actual kind. Any thread. BATON_ERR_UNSUPPORTED: the engine
   has no device. */
BATON_CHECKED baton_status_t baton_device_check(baton_engine_t *engine,
                                                const void *memory,
                                                size_t bytes,
                                                baton_memory_t kind);

/* ---- the port --------------------------------------------------------- */

/* The result of a selection, in device memory, aligned to 8 bytes. */
typedef struct baton_device_selected {
    uint64_t count;
    /* The smallest selected magnitude; 0 if nothing is selected. */
    baton_magnitude_t threshold;
} baton_device_selected_t;

/* A list of {index, value} entries in device memory, without padding, as in
   select.h. */
typedef struct baton_device_entries {
    baton_dtype_t dtype;
    void *data; /* aligned to 2 bytes for f16 and bf16, to 4 for f32 and f64 */
    size_t capacity;
    /* The number of entries, in device memory. If it exceeds `capacity`, only
       the first `capacity` are used. NULL means `capacity`. */
    const uint64_t *count;
} baton_device_entries_t;

/* How a device selects. TOPK: as baton_select_topk and baton_select_trimmed,
   whose results are the same. SAMPLED, for k of at least 1: RedSync's selection
   of all elements from a threshold up. The threshold is the one that
   baton_select_search finds, or, if no threshold found leaves at most 2k
   elements, the magnitude of the k-th largest. REUSED: with the current
   selected->threshold, if that is not 0 and leaves at most 2k elements;
   otherwise as SAMPLED. */
typedef enum baton_device_method {
    BATON_DEVICE_TOPK,
    BATON_DEVICE_SAMPLED,
    BATON_DEVICE_REUSED
} baton_device_method_t;

/* A selection on a device. All pointers are to device memory. */
typedef struct baton_device_selection {
    baton_device_method_t method;
    baton_selection_t from;
    size_t k;
    /* Room for k indices; with SAMPLED and REUSED for 2k, or for all elements
       if these are fewer. */
    uint32_t *indices;
    baton_device_selected_t *selected;
    void *scratch; /* select_bytes() bytes, aligned to 256; in use until the
                      stream has done the work */
} baton_device_selection_t;

/* Moves entries between a list and a dense vector. GATHER and TAKE: as
   baton_entries_gather and _take, for the list's count of indices. PUT and ADD:
   as baton_entries_put and _add; indices may be in any order, without
   duplicates. */
typedef enum baton_device_direction {
    BATON_DEVICE_GATHER,
    BATON_DEVICE_TAKE,
    BATON_DEVICE_PUT,
    BATON_DEVICE_ADD
} baton_device_direction_t;

typedef struct baton_device_transfer {
    baton_device_direction_t direction;
    baton_device_entries_t list;
    const uint32_t *indices; /* used by GATHER and TAKE */
    double factor;           /* used by ADD */
    void *dense;
} baton_device_transfer_t;

/* The size of a handle to device memory; see get_handle. */
#define BATON_DEVICE_HANDLE_BYTES 128

/* A device's own streams, in the order that data usually takes. */
enum {
    BATON_DEVICE_IN,   /* copies from the host */
    BATON_DEVICE_WORK, /* everything else */
    BATON_DEVICE_OUT,  /* copies to the host */
    BATON_DEVICE_STREAMS
};

/* Rules for an implementation
   - Unless its comment says otherwise, a function is called by one thread at a
     time, the engine's driver, and must not block, compute or allocate.
   - A function that puts work into a stream returns at once. If it returns an
     error, it has put nothing there. If work fails later, query fails for every
     event recorded after it.
   - Errors are BATON_ERR_SYSTEM, or those that a function names. The message
     (baton_error_set) names the device and quotes its driver. */
typedef struct baton_device_port {
    size_t size; /* size of this struct; an engine keeps a copy of it */
    /* Names the device, for example "cuda:0 NVIDIA H100". The string must
       outlive the engine. */
    const char *name;

    /* allocate allocates device memory, or pinned host memory, which the device
       copies fastest. The memory is aligned to 256 bytes. release frees it. Any
       thread may call the two, and they may block. BATON_ERR_NO_MEMORY. */
    baton_status_t (*allocate)(void *device, baton_memory_t kind, size_t bytes,
                               void **out);
    void (*release)(void *device, baton_memory_t kind, void *memory);

    /* Returns BATON_OK if all `bytes` bytes are memory of this kind for this
       device. Any thread. BATON_ERR_INVALID: the message names the actual kind
       ("host memory" or "memory of device 1"). */
    baton_status_t (*check)(void *device, const void *memory, size_t bytes,
                            baton_memory_t kind);

    /* The device's own streams; other engines may share them. The engine never
       makes one of them wait for a user's stream. */
    baton_stream_t streams[BATON_DEVICE_STREAMS];

    /* Puts a copy into the stream. Source and target may each be host memory or
       memory of this device; the source may also be an address that open_handle
       gave. With unpinned host memory this function may block until the copy is
       done. */
    baton_status_t (*copy)(void *device, baton_stream_t stream, void *target,
                           const void *source, size_t bytes);

    /* reduces returns true if the device supports a reduction; commit calls it.
       reduce puts a reduction into the stream: target[i] = left[i] (op)
       right[i], for `count` elements, with the same bits as on the host. */
    bool (*reduces)(void *device, const baton_op_t *op, baton_dtype_t dtype);
    baton_status_t (*reduce)(void *device, baton_stream_t stream,
                             const baton_op_t *op, baton_dtype_t dtype,
                             void *target, const void *left, const void *right,
                             size_t count);

    /* An event marks a point in a stream. event_create and event_destroy may
       allocate. After record the event stands for all work that is in the
       stream at that time, and no longer for what was recorded before. After
       follow, work that is put into the stream runs after the event's work.
       query returns BATON_OK if the event's work is done, or if none was
       recorded; BATON_AGAIN if it is not done; or an error. Any thread may call
       all but query. */
    baton_status_t (*event_create)(void *device, void **out);
    void (*event_destroy)(void *device, void *event);
    baton_status_t (*record)(void *device, baton_stream_t stream, void *event);
    baton_status_t (*follow)(void *device, baton_stream_t stream, void *event);
    baton_status_t (*query)(void *device, void *event);

    /* await and raise work on words whose values only grow. The words are in
       pinned memory from `allocate`, and the engine also writes and reads them,
       as atomics. After await, work that is put into the stream runs when the
       word is at least `value`, by signed difference. Any thread may call
       await. After raise, the stream sets the word to `value` when it gets to
       this point; a reader that sees `value` also sees all earlier work of the
       stream. */
    baton_status_t (*await)(void *device, baton_stream_t stream, uint64_t *word,
                            uint64_t value);
    baton_status_t (*raise)(void *device, baton_stream_t stream, uint64_t *word,
                            uint64_t value);

    /* For sleeping. `descriptor` is a non-blocking eventfd. After arm, it
       becomes readable, for each of the device's streams, when the work that
       the stream had at the time of arm is done. Spurious wake-ups are
       possible. Work that was done before arm need not be reported. */
    int descriptor;
    baton_status_t (*arm)(void *device);

    /* Optional: a port has both functions or neither. get_handle writes a
       handle to memory of this device, for devices with an equal `kin`, which
       are in other processes of the host or in other engines of this process.
       open_handle returns an address that copy takes as a source, until the
       device is closed; opened handles are cached. Both may block.
       BATON_ERR_UNSUPPORTED: this memory can have no handle. */
    baton_status_t (*get_handle)(
        void *device, const void *memory,
        unsigned char handle_out[BATON_DEVICE_HANDLE_BYTES]);
    baton_status_t (*open_handle)(
        void *device, const unsigned char handle[BATON_DEVICE_HANDLE_BYTES],
        const void **out);
    /* equal for devices that can open each other's handles; 0: the device has
       no handles */
    uint64_t kin;

    /* Frees the device, which is no longer in use. */
    void (*close)(void *device);

    /* Optional: a port has all of the following functions or none. They select,
       and work on lists of entries, in device memory, with the same bits as
       select.h's functions, for f32, f64, f16 and bf16. All but select_bytes
       put work into the stream. They read the structs before they return; the
       work reads the arrays when the stream executes it.

       select_bytes returns the size of `scratch` for selections of up to k of
       up to `count` elements; it grows with both. */
    size_t (*select_bytes)(void *device, baton_dtype_t dtype, size_t count,
                           size_t k);
    baton_status_t (*select)(void *device, baton_stream_t stream,
                             const baton_device_selection_t *selection);
    baton_status_t (*entries)(void *device, baton_stream_t stream,
                              const baton_device_transfer_t *transfer);

    /* scale computes target[i] = factor * source[i], and rounds as
       baton_elements_scale does. `target` may be `source`; if `source` is NULL,
       the result is zeros. square_sum computes the square_sum of
       baton_elements_measure, with the same bits unless it is a NaN. Its
       scratch memory has the size for a selection with k = 1. */
    baton_status_t (*scale)(void *device, baton_stream_t stream,
                            baton_dtype_t dtype, void *target,
                            const void *source, size_t count, double factor);
    baton_status_t (*square_sum)(void *device, baton_stream_t stream,
                                 baton_dtype_t dtype, const void *values,
                                 size_t count, double *sum_out, void *scratch);
} baton_device_port_t;

#define BATON_DEVICE_PORT BATON_INITIALIZER(baton_device_port_t)

/* Attaches a device, which the engine then owns and closes. Call this function
   before the engine's first group. BATON_ERR_INVALID: engine or port is NULL,
   or a function is missing. BATON_ERR_STATE: the engine has a device or a
   group. BATON_ERR_NO_MEMORY. On an error the device is still the caller's. */
BATON_CHECKED baton_status_t baton_engine_attach_device(
    baton_engine_t *engine, const baton_device_port_t *port, void *device);

/* Returns the engine's device and the engine's copy of the port, both valid
   until the engine is closed. With these, the function of a device call can put
   work into its stream. BATON_ERR_INVALID: a pointer is NULL.
   BATON_ERR_UNSUPPORTED: the engine has no device. Any thread. */
BATON_CHECKED baton_status_t
baton_engine_device(const baton_engine_t *engine,
                    const baton_device_port_t **port_out, void **device_out);

#ifdef __cplusplus
}
#endif
#endif
