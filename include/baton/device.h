/* Devices: schedules whose buffers are in the memory of an accelerator, and
   epochs that begin and end in the order of its streams.

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
       baton_schedule_start_on(s, stream);             // neither of the two
       other_work<<<grid, block, 0, stream>>>();       // blocks the host, or
       baton_schedule_wait_on(s, stream);              // synchronises anything
       update<<<grid, block, 0, stream>>>(weights, gradient);

   A reduce or copy with a view in device memory is done by the device. All
   operands of a reduce are in one kind of memory; a copy may go from one to the
   other. Such nodes in a row are queued one behind the other, without a visit
   to the host between them. Messages may be sent from device memory and
   received into it on any transport; who receives what was sent from device
   memory has a device, too, also if its target is in host memory. Scratch is in
   device memory where a reduce or a copy connects it with a buffer that is,
   directly or through other scratch; baton_buffer_set_memory says otherwise.
   Call nodes run on the host, and find addresses of device memory there that
   the host must not follow.

   Partial collectives have calls of the same kind (partial.h).

   While a stream stands at wait_on, no thread of the program should allocate or
   free memory of the device, or pinned memory, copy to or from host memory that
   is not pinned, nor launch a kernel for the first time. The driver may first
   wait until all of the device's streams are idle, and hold up other calls and
   streams meanwhile, also those of the engine that would end the wait. Allocate
   before the first step, or from a pool (cudaMallocAsync), and load kernels
   there. docs/cuda.md says how, and how many streams may stand there.

   Without a device, a schedule with device buffers fails to commit with
   BATON_ERR_UNSUPPORTED.

   The second part of this header is the port that a device implements. A
   library of its own implements it for CUDA, so that this one needs no driver;
   tests/support has one whose queues are threads. */
#ifndef BATON_DEVICE_H
#define BATON_DEVICE_H

#include <baton/build.h>
#include <baton/select.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A queue of work of the device, which is done in order: a cudaStream_t. NULL
   is a stream, too: CUDA's default stream. */
typedef void *baton_stream_t;

/* ---- epochs in stream order ------------------------------------------- */

/* Starts this rank's next epoch, as baton_schedule_start does, but it begins
   when the work that is in the stream now has been done, or when a peer
   activates it. Returns within
   microseconds; up to 8 epochs may be started before the first of them has
   ended, and run one after the other; when one fails or is cancelled, those
   behind it fail with it. BATON_ERR_BUSY: as many have been.
   BATON_ERR_UNSUPPORTED: the engine has no device, or the stream is one that
   the program captures; and as baton_schedule_start. */
BATON_CHECKED baton_status_t baton_schedule_start_on(baton_schedule_t *schedule,
                                                     baton_stream_t stream);

/* What is put into the stream from now on is done when the last epoch that was
   started has ended, with success or not; test or wait tell which. Does not
   block. BATON_ERR_UNSUPPORTED, _STATE as for start_on. */
BATON_CHECKED baton_status_t baton_schedule_wait_on(baton_schedule_t *schedule,
                                                    baton_stream_t stream);

/* ---- nodes ------------------------------------------------------------ */

/* Calls a function that puts work of its own (kernels, copies) into `stream`,
   and neither waits for it nor synchronises. The work comes after that of the
   node's predecessors, and successors come after it. Returns BATON_OK or an
   error, which fails the epoch. The function is called on the driving thread,
   as a call node's; baton_call_address gives it device addresses. All schedules
   of the process share the stream: work that waits for something there holds up
   the others. */
typedef baton_status_t (*baton_device_call_fn)(void *arg, baton_call_t *call,
                                               baton_stream_t stream);
baton_node_t baton_add_device_call(baton_schedule_t *schedule,
                                   baton_device_call_fn fn, void *arg);

/* ---- memory ------------------------------------------------------------ */

/* Memory of the engine's device, or of the host such that the device copies it
   at its full speed (pinned); aligned to 256 bytes, not initialised, and the
   caller's until baton_device_free. May block. Any thread, but not in a call
   node. BATON_ERR_INVALID: engine or out is NULL, bytes is 0, or kind is
   neither of them. BATON_ERR_UNSUPPORTED: the engine has no device.
   BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_device_alloc(baton_engine_t *engine,
                                                baton_memory_t kind,
                                                size_t bytes, void **out);

/* Frees it, with the kind that it was allocated as, before the engine is
   closed. Nothing that uses the memory may be in a stream. NULL is allowed. */
void baton_device_free(baton_engine_t *engine, baton_memory_t kind,
                       void *memory);

/* Whether all of this is memory of that kind, for the engine's device, whoever
   has allocated it. Any thread. BATON_ERR_INVALID says what it is instead.
   BATON_ERR_UNSUPPORTED: the engine has no device. */
BATON_CHECKED baton_status_t baton_device_check(baton_engine_t *engine,
                                                const void *memory,
                                                size_t bytes,
                                                baton_memory_t kind);

/* ---- the port --------------------------------------------------------- */

/* What a selection leaves in device memory, aligned to 8 bytes. */
typedef struct baton_device_selected {
    uint64_t count;
    baton_magnitude_t threshold; /* of the smallest selected; 0: none was */
} baton_device_selected_t;

/* A list of entries in device memory, as select.h has it: {index, value}
   without padding. */
typedef struct baton_device_entries {
    baton_dtype_t dtype;
    void *data; /* aligned to 2 bytes for f16 and bf16, to 4 for f32 and f64 */
    size_t capacity;
    /* How many entries there are, in device memory; of more than `capacity` the
       first `capacity` count. NULL: `capacity` is their number. */
    const uint64_t *count;
} baton_device_entries_t;

/* How a device selects. TOPK: as baton_select_topk, whose result
   baton_select_trimmed has, too. SAMPLED, k at least 1: RedSync's selection by
   a threshold, which is the one that baton_select_search finds, or, where it
   finds none that leaves at most 2k, that of the k largest. REUSED: as SAMPLED,
   but with selected->threshold as it is, unless that is 0 or leaves more than
   2k. */
typedef enum baton_device_method {
    BATON_DEVICE_TOPK,
    BATON_DEVICE_SAMPLED,
    BATON_DEVICE_REUSED
} baton_device_method_t;

/* A selection on a device. All but this struct itself is in its memory. */
typedef struct baton_device_selection {
    baton_device_method_t method;
    baton_selection_t from;
    size_t k;
    uint32_t *indices; /* room for k; of SAMPLED and REUSED for 2k, or for all
                          elements where these are fewer */
    baton_device_selected_t *selected;
    void *scratch; /* aligned to 256 bytes, and in use until the stream has done
                      the work */
} baton_device_selection_t;

/* Entries between a list and a dense vector. GATHER and TAKE: as
   baton_entries_gather and _take; the list gets as many entries as its count
   says, of the first indices. PUT and ADD: as baton_entries_put and _add;
   indices may come in any order, but none twice. */
typedef enum baton_device_direction {
    BATON_DEVICE_GATHER,
    BATON_DEVICE_TAKE,
    BATON_DEVICE_PUT,
    BATON_DEVICE_ADD
} baton_device_direction_t;

typedef struct baton_device_transfer {
    baton_device_direction_t direction;
    baton_device_entries_t list;
    const uint32_t *indices; /* GATHER, TAKE */
    double factor;           /* ADD */
    void *dense;
} baton_device_transfer_t;

/* How device memory is known to others; see get_handle. */
#define BATON_DEVICE_HANDLE_BYTES 128

/* A device's own streams, in the order in which data mostly take them. */
enum {
    BATON_DEVICE_IN,   /* copies from the host */
    BATON_DEVICE_WORK, /* all else */
    BATON_DEVICE_OUT,  /* copies to the host */
    BATON_DEVICE_STREAMS
};

/* Rules for an implementation
   - Unless a function says otherwise, one thread at a time calls it, the
     engine's driver, and it neither blocks nor computes nor allocates.
   - A function that puts work into a stream returns at once. An error that it
     returns has put nothing there. Work that fails later makes query fail for
     every event behind it in its stream.
   - Errors are BATON_ERR_SYSTEM, or what a function names, with a message
     (baton_error_set) that names the device and what its driver said. */
typedef struct baton_device_port {
    size_t size;      /* of this struct; an engine keeps a copy of it */
    const char *name; /* "cuda:0 NVIDIA H100"; outlives the engine */

    /* Memory of the device, or of the host such that the device copies it at
       its full speed (pinned), aligned to 256 bytes. Any thread; may block.
       BATON_ERR_NO_MEMORY. */
    baton_status_t (*allocate)(void *device, baton_memory_t kind, size_t bytes,
                               void **out);
    void (*release)(void *device, baton_memory_t kind, void *memory);

    /* Whether all of this is memory of that kind, for this device. Any thread.
       BATON_ERR_INVALID, and the message says what it is instead ("host memory"
       or "memory of device 1"). */
    baton_status_t (*check)(void *device, const void *memory, size_t bytes,
                            baton_memory_t kind);

    /* The device's own streams, which other engines may have in common with
       this one. The engine has none of them wait for a stream of a user. */
    baton_stream_t streams[BATON_DEVICE_STREAMS];

    /* Puts a copy into the stream. Either end may be device memory, this
       device's or what open_handle gave, or host memory; host memory that is
       not pinned may make it block for as long as the copy takes. */
    baton_status_t (*copy)(void *device, baton_stream_t stream, void *target,
                           const void *source, size_t bytes);

    /* Whether the device can do this reduction: asked at commit. reduce puts
       one into the stream: target[i] = left[i] (op) right[i]; with the same
       bits as on the host. */
    bool (*reduces)(void *device, const baton_op_t *op, baton_dtype_t dtype);
    baton_status_t (*reduce)(void *device, baton_stream_t stream,
                             const baton_op_t *op, baton_dtype_t dtype,
                             void *target, const void *left, const void *right,
                             size_t count);

    /* Events. create and destroy: any thread; may allocate. record: the event
       is what is in the stream now, and no longer what it was before. follow:
       what is put into the stream from now on is done after the event. query:
       BATON_OK when that has been done (or nothing was ever recorded),
       BATON_AGAIN, or an error. record and follow: any thread. */
    baton_status_t (*event_create)(void *device, void **out);
    void (*event_destroy)(void *device, void *event);
    baton_status_t (*record)(void *device, baton_stream_t stream, void *event);
    baton_status_t (*follow)(void *device, baton_stream_t stream, void *event);
    baton_status_t (*query)(void *device, void *event);

    /* Words that only grow, in pinned memory that `allocate` gave: the engine
       writes and reads them, too, as atomics. await: what is put into the
       stream from now on is done when the word is at least `value`; any thread.
       raise: the stream sets the word when it gets there, and whoever sees that
       sees what was done before in the stream. */
    baton_status_t (*await)(void *device, baton_stream_t stream, uint64_t *word,
                            uint64_t value);
    baton_status_t (*raise)(void *device, baton_stream_t stream, uint64_t *word,
                            uint64_t value);

    /* Sleep: an eventfd that does not block. arm: for each of the device's
       streams, when what is in it now has been done, the descriptor becomes
       readable; spurious wake-ups are possible. What has been done before may
       not be told. */
    int descriptor;
    baton_status_t (*arm)(void *device);

    /* Optional, both or neither. Memory of this device as others may know it:
       get_handle writes a handle for other processes of the host, and for other
       engines of this one, whose devices have the same `kin`. open_handle gives
       an address that copy takes as a source, until the device is closed; it
       remembers what it has opened, so that a second time is quick. They may
       block. BATON_ERR_UNSUPPORTED: not for this memory. */
    baton_status_t (*get_handle)(
        void *device, const void *memory,
        unsigned char handle_out[BATON_DEVICE_HANDLE_BYTES]);
    baton_status_t (*open_handle)(
        void *device, const unsigned char handle[BATON_DEVICE_HANDLE_BYTES],
        const void **out);
    uint64_t kin; /* 0: none */

    /* Frees the device. Nothing of it is in use. */
    void (*close)(void *device);

    /* Optional, all or none: selection and lists of entries, in device memory
       and with the bits of select.h's functions, for f32, f64, f16 and bf16.
       All but select_bytes put work into the stream; the structs are read
       before they return, the arrays when the stream gets there.

       select_bytes: the bytes of `scratch`, of selections of up to k of up to
       `count` elements; it grows with both. */
    size_t (*select_bytes)(void *device, baton_dtype_t dtype, size_t count,
                           size_t k);
    baton_status_t (*select)(void *device, baton_stream_t stream,
                             const baton_device_selection_t *selection);
    baton_status_t (*entries)(void *device, baton_stream_t stream,
                              const baton_device_transfer_t *transfer);

    /* scale: target[i] = factor * source[i], rounded as baton_elements_scale
       does; target may be source; zeros where source is NULL. square_sum: that
       of baton_elements_measure, with the same bits unless it is a NaN; scratch
       as above, k being 1. */
    baton_status_t (*scale)(void *device, baton_stream_t stream,
                            baton_dtype_t dtype, void *target,
                            const void *source, size_t count, double factor);
    baton_status_t (*square_sum)(void *device, baton_stream_t stream,
                                 baton_dtype_t dtype, const void *values,
                                 size_t count, double *sum_out, void *scratch);
} baton_device_port_t;

#define BATON_DEVICE_PORT BATON_INITIALIZER(baton_device_port_t)

/* Attaches a device, which the engine closes when it is closed. Before the
   engine's first group. BATON_ERR_INVALID (a function is missing), _STATE (it
   has a device, or a group), _NO_MEMORY. On an error the device is still the
   caller's. */
BATON_CHECKED baton_status_t baton_engine_attach_device(
    baton_engine_t *engine, const baton_device_port_t *port, void *device);

/* The engine's device, and the engine's copy of its port, until the engine is
   closed: for the functions of device calls, which may put work into their
   stream by it. BATON_ERR_INVALID: a pointer is NULL. BATON_ERR_UNSUPPORTED:
   the engine has no device. Any thread. */
BATON_CHECKED baton_status_t
baton_engine_device(const baton_engine_t *engine,
                    const baton_device_port_t **port_out, void **device_out);

#ifdef __cplusplus
}
#endif
#endif
