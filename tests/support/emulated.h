/* An emulated device in one process. Its streams are queues. A pool of threads
   executes them, in random order between streams and with random delays, from a
   seed. So a program that is right only because the device was fast, or slow,
   fails sooner or later.

   The CPU cannot access an address of device memory: the addresses are mapped
   without any access, and the data are kept elsewhere. An access by the CPU is
   a segmentation fault.

   The emulated device is stricter than a GPU. The program aborts with a message
   if memory is released that queued work will use. Copies from the memory of
   another device need an address from open_handle. */
#pragma once

#include <baton/device.h>

typedef struct emulated emulated_t;

/* Options. Zero means the default. */
typedef struct emulated_options {
    uint64_t seed;
    int workers;       /* threads; default 2 */
    int delay_us;      /* longest random delay of a piece of work; default 50 */
    bool no_handles;   /* the port has neither get_handle nor open_handle */
    bool builtin_only; /* reduces() refuses the users' operators */
    bool no_selection; /* the port has no select, and no functions that belong
                          to select */
} emulated_options_t;

/* Opens a device. Never returns NULL: if there can be no device, the test
   aborts. The port's close function closes the device; if the device is
   attached to an engine, closing the engine calls that function. */
emulated_t *emulated_open(const emulated_options_t *options);

/* Returns the device's port. The device to pass with it is the emulated_t:

   baton_engine_attach_device(engine, emulated_port(device), device) */
const baton_device_port_t *emulated_port(const emulated_t *device);

/* ---- faults; k counts from 1 and from now on; 0: no fault --------------- */

/* Makes the k-th copy, reduction, selection or call fail when it is executed.
   The later work of the same stream is not executed, and queries of this work
   fail. The same holds for other streams, from the place where they wait for
   it. */
void emulated_fail_work(emulated_t *device, int k);
/* Makes the k-th call that puts something into a stream return an error. */
void emulated_fail_submit(emulated_t *device, int k);
/* Makes the k-th allocation return BATON_ERR_NO_MEMORY. */
void emulated_fail_allocate(emulated_t *device, int k);
/* Makes streams that have failed usable again. */
void emulated_repair(emulated_t *device);

/* ---- what was done ------------------------------------------------------ */

typedef enum emulated_direction {
    EMULATED_HOST_TO_DEVICE,
    EMULATED_DEVICE_TO_HOST,
    EMULATED_DEVICE_TO_DEVICE,
    EMULATED_HOST_TO_HOST,
    EMULATED_DIRECTIONS
} emulated_direction_t;

typedef struct emulated_counters {
    uint64_t queries;
    uint64_t submissions; /* pieces of work put into streams, without records */
    uint64_t copies[EMULATED_DIRECTIONS];
    uint64_t copied_bytes[EMULATED_DIRECTIONS];
    uint64_t unpinned; /* copies from or to main memory that is not pinned */
    uint64_t foreign;  /* copies from the memory of another device */
    uint64_t reduces;
    uint64_t on_entries; /* selections, and operations on lists of entries */
    uint64_t records, follows, raises;
    uint64_t allocated; /* live allocations of both kinds of memory */
    uint64_t events;    /* live events */
} emulated_counters_t;

emulated_counters_t emulated_counters(emulated_t *device);

/* ---- streams of a user ------------------------------------------------- */

/* Returns a new stream. It lives as long as the device. */
baton_stream_t emulated_stream(emulated_t *device);

/* Put work into a stream: a delay, or a call of a function. The function may
   block, but only in options.workers threads at a time. */
void emulated_delay(emulated_t *device, baton_stream_t stream, int us);
baton_status_t emulated_call(emulated_t *device, baton_stream_t stream,
                             void (*fn)(void *arg), void *arg);

/* emulated_gate returns a word that a stream can wait for with the port's
   await. The word is 0 at first; emulated_open_gate raises it at once.
   emulated_free_gate may free it while a stream waits for it: the stream then
   continues. */
void *emulated_gate(emulated_t *device);
void emulated_open_gate(emulated_t *device, void *gate, uint64_t value);
void emulated_free_gate(emulated_t *device, void *gate);

/* Wait until the work that is now in the stream, or in all streams, has been
   done. */
void emulated_synchronise(emulated_t *device, baton_stream_t stream);
void emulated_synchronise_all(emulated_t *device);

/* ---- memory -------------------------------------------------------------- */

/* Allocates device memory. Aborts if there is none left. */
void *emulated_allocate(emulated_t *device, size_t bytes);
void emulated_release(emulated_t *device, void *memory);

/* Read and write device memory at once, regardless of streams. */
void emulated_read(emulated_t *device, void *target, const void *source,
                   size_t bytes);
void emulated_write(emulated_t *device, void *target, const void *source,
                    size_t bytes);
