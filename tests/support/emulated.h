/* An emulated device in one process. Its streams are queues. A pool of threads
   executes the work in them, with random delays and in random order between
   streams; a seed determines both. So a program that is right only because the
   device was fast, or slow, fails sooner or later.

   The CPU cannot access an address of device memory: the addresses are mapped
   without any access, and the data are elsewhere. So an access by the CPU is a
   segmentation fault.

   The emulated device is stricter than a GPU. It aborts the program, with a
   message, if memory is released that queued work will use. A copy from the
   memory of another device needs an address from open_handle. */
#pragma once

#include <baton/device.h>

typedef struct emulated emulated_t;

/* Options. Zero means the default. */
typedef struct emulated_options {
    uint64_t seed;
    int workers; /* the number of threads; default 2 */
    /* The longest random delay of a piece of work in us; default 50. */
    int delay_us;
    bool no_handles; /* the port has neither get_handle nor open_handle */
    /* The port's function `reduces` returns false for operators that users have
       defined. */
    bool builtin_only;
    /* The port lacks `select`, and the functions that belong to it. */
    bool no_selection;
} emulated_options_t;

/* Opens a device. Never returns NULL: if there can be no device, aborts the
   test. The function `close` of the device's port closes the device. If the
   device is attached to an engine, closing the engine calls that function. */
emulated_t *emulated_open(const emulated_options_t *options);

/* Returns the device's port. The device to pass with it is the emulated_t:

   baton_engine_attach_device(engine, emulated_port(device), device) */
const baton_device_port_t *emulated_port(const emulated_t *device);

/* ---- faults: k is counted from 1, from now on; 0: no fault -------------- */

/* Makes the k-th copy, reduction, selection or call fail when it is executed.
   Later work in the same stream is not executed, and queries about that work
   fail. The same holds for work in another stream after the place where that
   stream waits for the failed work. */
void emulated_fail_work(emulated_t *device, int k);
/* Makes the k-th call that puts something into a stream return an error. */
void emulated_fail_submit(emulated_t *device, int k);
/* Makes the k-th allocation return BATON_ERR_NO_MEMORY. */
void emulated_fail_allocate(emulated_t *device, int k);
/* Makes streams that have failed usable again. */
void emulated_repair(emulated_t *device);

/* ---- counters ----------------------------------------------------------- */

typedef enum emulated_direction {
    EMULATED_HOST_TO_DEVICE,
    EMULATED_DEVICE_TO_HOST,
    EMULATED_DEVICE_TO_DEVICE,
    EMULATED_HOST_TO_HOST,
    EMULATED_DIRECTIONS
} emulated_direction_t;

typedef struct emulated_counters {
    uint64_t queries;
    /* Number of pieces of work that were put into streams, except records of
       events. */
    uint64_t submissions;
    uint64_t copies[EMULATED_DIRECTIONS];
    uint64_t copied_bytes[EMULATED_DIRECTIONS];
    /* Number of copies from or to main memory that is not pinned. */
    uint64_t unpinned;
    uint64_t foreign; /* number of copies from the memory of another device */
    uint64_t reduces;
    /* Number of selections, and of operations on lists of entries. */
    uint64_t on_entries;
    uint64_t records, follows, raises;
    /* Number of live allocations, in both kinds of memory. */
    uint64_t allocated;
    uint64_t events; /* number of live events */
} emulated_counters_t;

emulated_counters_t emulated_counters(emulated_t *device);

/* ---- streams of a user ------------------------------------------------- */

/* Returns a new stream. It lives as long as the device. */
baton_stream_t emulated_stream(emulated_t *device);

/* emulated_delay puts a delay into a stream, and emulated_call puts a call of a
   function into it. A thread of the device calls the function, which may block.
   While options.workers functions block, the device does no other work. */
void emulated_delay(emulated_t *device, baton_stream_t stream, int us);
baton_status_t emulated_call(emulated_t *device, baton_stream_t stream,
                             void (*fn)(void *arg), void *arg);

/* emulated_gate returns a word for which a stream can wait with the port's
   function `await`. The word is 0 at first. emulated_open_gate raises it at
   once. emulated_free_gate frees it; a stream that waits for the word then
   continues. */
void *emulated_gate(emulated_t *device);
void emulated_open_gate(emulated_t *device, void *gate, uint64_t value);
void emulated_free_gate(emulated_t *device, void *gate);

/* emulated_synchronise waits until the work that is now in the stream is done.
   emulated_synchronise_all waits for all streams of the device. */
void emulated_synchronise(emulated_t *device, baton_stream_t stream);
void emulated_synchronise_all(emulated_t *device);

/* ---- memory -------------------------------------------------------------- */

/* Allocates device memory. Aborts if there is none left. */
void *emulated_allocate(emulated_t *device, size_t bytes);
void emulated_release(emulated_t *device, void *memory);

/* Read and write device memory at once, without waiting for streams. */
void emulated_read(emulated_t *device, void *target, const void *source,
                   size_t bytes);
void emulated_write(emulated_t *device, void *target, const void *source,
                    size_t bytes);
