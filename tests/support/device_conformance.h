/* The suite that every device port passes. A case is written against the port
   and a few functions of a fixture, so that it runs over the emulated device,
   and over a GPU: test_device_conformance.c is an example.

   Cases use no framework: a failure is a sentence in the subject. */
#pragma once

#include <baton/device.h>

/* A device under test. The fixture fills all but the last fields. */
typedef struct device_subject {
    const baton_device_port_t *port;
    void *device;
    /* A stream as an application has one, which lives as long as the device. */
    baton_stream_t (*user_stream)(struct device_subject *self);
    /* Puts work into a stream that takes about so long. */
    void (*slow_work)(struct device_subject *self, baton_stream_t stream,
                      int us);
    /* Copy between host and device memory at once, whatever streams do. */
    void (*read)(struct device_subject *self, void *host, const void *memory,
                 size_t bytes);
    void (*write)(struct device_subject *self, void *memory, const void *host,
                  size_t bytes);
    /* Optional. Makes the next piece of work that is done fail; makes the
       device work again. NULL where no fault can be planted. */
    void (*fail_next_work)(struct device_subject *self);
    void (*repair)(struct device_subject *self);
    /* Optional. Another device, of the same kin if it has one; or NULL. */
    struct device_subject *other;
    uint64_t seed;
    int rounds; /* of sleeping and waking; 0: 10,000 */

    void *fixture;
    char failure[512]; /* the first failed expectation, or "" */
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

enum {
#define DEVICE_CONFORMANCE_COUNT(name) +1
    DEVICE_CONFORMANCE_CASES =
        0 DEVICE_CONFORMANCE_LIST(DEVICE_CONFORMANCE_COUNT)
#undef DEVICE_CONFORMANCE_COUNT
};

typedef struct device_conformance_case {
    const char *name;
    void (*run)(device_subject_t *self);
} device_conformance_case_t;

extern const device_conformance_case_t
    device_conformance_cases[DEVICE_CONFORMANCE_CASES];

/* Runs a case; true if it passed. The device is as before it, but after
   failed_work_*, where a repair function is needed. */
bool device_conformance_run(const device_conformance_case_t *test,
                            device_subject_t *self);
