/* A device in one process: its streams are queues that a pool of threads works
   off, in random order between streams and with random delays, from a seed.
   Whatever only is right because the device was fast, or slow, fails sooner or
   later.

   An address in its memory is never one that the host can follow: the range is
   mapped without any access, and what is "there" is kept elsewhere. A host
   access is a segmentation fault.

   It is stricter than a GPU is. The program aborts, with a sentence, when
   memory is released that queued work will touch. Copies from the memory of
   another device need an address that open_handle gave. */
#pragma once

#include <baton/device.h>

typedef struct emulated emulated_t;

/* Zero means the default. */
typedef struct emulated_options {
    uint64_t seed;
    int workers;       /* threads; 2 */
    int delay_us;      /* the longest random delay of a piece of work; 50 */
    bool no_handles;   /* the port has neither get_handle nor open_handle */
    bool builtin_only; /* reduces() refuses the operators of users */
    bool no_selection; /* the port has no select and what belongs to it */
} emulated_options_t;

/* Never NULL: a test that can't have a device aborts. The device is closed by
   the port's close, which an engine calls that it is attached to. */
emulated_t *emulated_open(const emulated_options_t *options);

/* Its port. The device to pass beside it is the emulated_t:
       baton_engine_attach_device(engine, emulated_port(device), device) */
const baton_device_port_t *emulated_port(const emulated_t *device);

/* ---- faults; each counted from 1 from now on, 0 for none --------------- */

/* The k-th copy, reduction, selection or call that is reached fails. What is
   behind it in its stream is not done, queries of it fail, and so it is in
   streams that follow. */
void emulated_fail_work(emulated_t *device, int k);
/* The k-th call that puts something into a stream returns an error. */
void emulated_fail_submit(emulated_t *device, int k);
/* The k-th allocation returns BATON_ERR_NO_MEMORY. */
void emulated_fail_allocate(emulated_t *device, int k);
/* Streams that failed work again. */
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
    uint64_t submissions; /* of anything but records */
    uint64_t copies[EMULATED_DIRECTIONS];
    uint64_t copied_bytes[EMULATED_DIRECTIONS];
    uint64_t unpinned; /* copies with an end in other host memory */
    uint64_t foreign;  /* copies out of the memory of another device */
    uint64_t reduces;
    uint64_t on_entries; /* selections, and work on lists of entries */
    uint64_t records, follows, raises;
    uint64_t allocated; /* allocations of both kinds that are alive */
    uint64_t events;    /* alive */
} emulated_counters_t;

emulated_counters_t emulated_counters(emulated_t *device);

/* ---- streams of a user ------------------------------------------------- */

/* Streams live as long as their device. */
baton_stream_t emulated_stream(emulated_t *device);

/* Puts work into a stream that takes so long, or that calls a function. The
   function may block; there are options.workers threads that can. */
void emulated_delay(emulated_t *device, baton_stream_t stream, int us);
baton_status_t emulated_call(emulated_t *device, baton_stream_t stream,
                             void (*fn)(void *arg), void *arg);

/* A word for the port's await, 0 at first; the host raises it at once. It may
   be freed while a stream waits for it, which then goes on. */
void *emulated_gate(emulated_t *device);
void emulated_open_gate(emulated_t *device, void *gate, uint64_t value);
void emulated_free_gate(emulated_t *device, void *gate);

/* Waits until what is in the stream now has been done; in all streams. */
void emulated_synchronise(emulated_t *device, baton_stream_t stream);
void emulated_synchronise_all(emulated_t *device);

/* ---- memory -------------------------------------------------------------- */

/* Device memory; aborts when there is none left. */
void *emulated_allocate(emulated_t *device, size_t bytes);
void emulated_release(emulated_t *device, void *memory);

/* Reads and writes device memory at once, beside all streams. */
void emulated_read(emulated_t *device, void *target, const void *source,
                   size_t bytes);
void emulated_write(emulated_t *device, void *target, const void *source,
                    size_t bytes);
