/* The suite that every device port passes. A case is written against the port
   and a few functions of a fixture, so that it runs over the emulated device
   and over a GPU. test_device_conformance.c is an example of a fixture.

   Cases use no test framework: a failure is a sentence in the subject's
   `failure`. */
#pragma once

#include <baton/device.h>

/* A device under test. The fixture sets the fields from here to `rounds`. */
typedef struct device_subject {
    const baton_device_port_t *port;
    void *device;
    /* Returns a stream that was created as an application creates it. The
       stream lives as long as the device. */
    baton_stream_t (*user_stream)(struct device_subject *self);
    /* Puts work that takes about `us` microseconds into a stream. */
    void (*slow_work)(struct device_subject *self, baton_stream_t stream,
                      int us);
    /* Copy between main memory and device memory at once, without waiting for
       streams. */
    void (*read)(struct device_subject *self, void *host, const void *memory,
                 size_t bytes);
    void (*write)(struct device_subject *self, void *memory, const void *host,
                  size_t bytes);
    /* fail_next_work makes the next piece of work that is executed fail. repair
       makes the device usable again. Both are NULL if the fixture cannot make
       work fail. */
    void (*fail_next_work)(struct device_subject *self);
    void (*repair)(struct device_subject *self);
    /* Another device, of the same kind if possible; or NULL. */
    struct device_subject *other;
    uint64_t seed;
    int rounds; /* the number of sleeps in no_wake_up_is_lost; 0: 10,000 */

    void *fixture;
    char failure[512]; /* the first failed expectation, or empty */
} device_subject_t;

#define DEVICE_CONFORMANCE_LIST(X)                                             \
    X(streams_are_there)                                                       \
    X(memory_of_both_kinds)                                                    \
    X(check_names_other_memory)                                                \
    X(copies_of_any_size_and_place)                                            \
    X(reduces_as_the_host)                                                     \
    X(flags)                                                                   \
    X(submissions_return_at_once)                                              \
    X(no_wake_up_is_lost)                                                      \
    X(handles)                                                                 \
    X(failed_work_fails_queries)                                               \
    X(random_work)

typedef struct device_conformance_case {
    const char *name;
    void (*run)(device_subject_t *self);
} device_conformance_case_t;

/* Adds a test to the program for each case. `state` is the case. */
void device_conformance_add(void (*run)(void **state));

/* Runs a case. Returns true if it has passed. The device is then as it was
   before. Only after the cases failed_work_* the fixture must call repair. */
bool device_conformance_run(const device_conformance_case_t *test,
                            device_subject_t *self);
