/* A world of the fuzzer with devices: ranks in one process, each with an
   engine, an emulated device and an application that is a thread. They run one
   or two programs side by side, for some epochs that are started directly or on
   a stream of the user, and compare what they find with the reference. Then
   comes a second life, in which nothing fails: behind a recovery, or with other
   schedules.

   What happens depends on the seed and on the threads. So a seed that has
   failed may pass; what it samples is always the same.

   Files, from the bottom up: program.c, build.c (a program's schedules),
   world.c (engines, devices, memory), application.c, run.c. */
#ifndef TESTS_FUZZ_DEVICE_WORLD_H
#define TESTS_FUZZ_DEVICE_WORLD_H

#include "fuzz/device/program.h"
#include "fuzz/run.h"
#include "support/emulated.h"
#include <baton/baton.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    WORLD_PROGRAMS = 3,
    WORLD_EPOCHS = 6,
    WORLD_FLIGHT = 8, /* epochs that may be started on streams at a time */
    WORLD_WAIT_MS = 20000
};

/* What happens in the first life. WORK: a piece of work of a device fails.
   SUBMIT: a call that puts something into a stream returns an error. NODE: a
   call node fails. CANCEL: a rank cancels. DESTROY: a rank destroys a schedule
   while its epoch runs. LEAVE: it destroys its group, too. */
#define WORLD_FAULT_LIST(X)                                                    \
    X(NONE, "no fault")                                                        \
    X(WORK, "work of the device fails")                                        \
    X(SUBMIT, "putting work into a stream fails")                              \
    X(NODE, "a node fails")                                                    \
    X(CANCEL, "a rank cancels")                                                \
    X(DESTROY, "a rank destroys its schedule")                                 \
    X(LEAVE, "a rank leaves")

typedef enum world_fault {
#define WORLD_FAULT_ENUM(NAME, name) FAULT_##NAME,
    WORLD_FAULT_LIST(WORLD_FAULT_ENUM)
#undef WORLD_FAULT_ENUM
        WORLD_FAULTS
} world_fault_t;

typedef struct world_plan {
    uint64_t seed;
    int ranks;
    int program_count;
    world_program_t programs[WORLD_PROGRAMS];
    uint64_t epochs;
    bool manual;   /* engines without a thread */
    bool together; /* one engine, and one device, for all ranks */
    bool verify;
    bool inputs; /* applications write slot 0 before each epoch */
    bool same_stream;
    bool few_allocations; /* some commits fail, and are tried again */
    size_t block_bytes;
    int buffers;
    bool direct;
    emulated_options_t device;
    world_fault_t fault;
    int victim;
    int fault_program;
    uint64_t fault_epoch;
    int countdown; /* WORK, SUBMIT */
} world_plan_t;

typedef struct world world_t;
typedef struct world_rank world_rank_t;
typedef struct world_run world_run_t;

/* What the functions of a step's nodes get. */
typedef struct world_site {
    struct world_site *next; /* of those to complete */
    world_run_t *run;
    const world_step_t *step;
    baton_view_t view;
    baton_length_t length, received;
    uint64_t epoch;
    void *address;
    unsigned char *copy; /* of the view, for device calls */
    baton_async_t async;
    int polls;
} world_site_t;

/* A program on a rank. */
struct world_run {
    world_rank_t *rank;
    int index;
    const world_program_t *program;
    baton_schedule_t *schedule;
    void *memory[WORLD_ALL_SLOTS]; /* that is bound; or NULL */
    baton_buffer_t buffers[WORLD_ALL_SLOTS];
    world_site_t sites[WORLD_STEPS];
    baton_stream_t stream;
    bool failed;
    bool blind; /* compares nothing any more */
    bool scribbled;
    uint64_t started, settled; /* epochs */
    /* By epoch: what the application puts into slot 0, what its stream has
       found there behind it, and whether it was to look. */
    unsigned char *inputs[WORLD_EPOCHS + 1];
    unsigned char *found[WORLD_EPOCHS + 1];
    bool looks[WORLD_EPOCHS + 1];
};

struct world_rank {
    world_t *world;
    int rank;
    baton_engine_t *engine;
    baton_group_t *group;
    emulated_t *device;
    fuzz_random_t random;
    pthread_t thread;
    world_run_t runs[WORLD_PROGRAMS];
};

struct world {
    const world_plan_t *plan;
    int life;
    baton_inproc_t *medium;
    world_rank_t ranks[WORLD_RANKS];
    /* By program and epoch: what all slots hold then. */
    world_memory_t expected[WORLD_PROGRAMS][WORLD_EPOCHS + 1];
    atomic_int working; /* applications with epochs */
    atomic_int staying; /* with schedules */

    /* Completes async nodes. */
    pthread_t completer;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    world_site_t *begun;
    bool closing;

    pthread_mutex_t failure_mutex;
    char failure[FUZZ_FAILURE_BYTES]; /* the first one; "" without */
};

/* The first failure of the world. Any thread. */
void world_fail(world_t *world, const char *format, ...) BATON_PRINTF(2, 3);
bool world_failed(world_t *world);

/* Whether a call that has to succeed did; if not, the world has failed. */
bool world_ok(world_rank_t *rank, const char *call, baton_status_t status);

/* Whether what happens in this life may fail the epochs of any rank. */
static inline bool world_may_fail(const world_t *world)
{
    return world->life == 0 && world->plan->fault != FAULT_NONE;
}

/* build.c: a schedule of the program, to be committed. */
void world_build(world_run_t *run);

/* world.c */
void world_open(world_t *world, const world_plan_t *plan);
void world_close(world_t *world);
/* Between lives nothing runs: fills all memory. */
void world_begin_life(world_t *world, int life);
/* Compares all slots of a rank that are bound with what they hold after an
   epoch. */
void world_compare(world_run_t *run, uint64_t epoch);
/* Behind an epoch that has failed memory is the application's again: nobody
   writes where it writes. (Into slot 0 its own stream may.) */
void world_scribble(world_run_t *run);
void world_compare_scribble(world_run_t *run);
/* Completes the async node after a while, from another thread. */
void world_complete_later(world_t *world, world_site_t *site);

/* application.c: one life of a rank. */
void world_live(world_rank_t *rank);

#endif
