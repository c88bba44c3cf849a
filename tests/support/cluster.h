/* A cluster: P ranks in one process. They are all on one engine, or each on its
   own engine, with or without progress threads.

   With one manual engine the whole cluster runs in the test's thread. Such a
   test needs no sleep and no lock, since waiting for one rank drives all of
   them.

   These functions report failures to cmocka. So only the main thread may call
   them, unless a comment says otherwise. */
#pragma once

#include "support/cmocka.h"
#include "support/emulated.h"

#include <baton/build.h>
#include <baton/engine.h>
#include <baton/inproc.h>
#include <baton/transport.h>
#include <stdatomic.h>

#define SUPPORT_WAIT_MS 60000

typedef struct support_cluster {
    int size;
    int engine_count; /* 1, or `size` if each rank has its own engine */
    baton_inproc_t *inproc;
    baton_engine_t **engines; /* an array of [size] */
    baton_group_t **groups;   /* an array of [size] */
    /* An array of [size]; NULL: the ranks have no devices. */
    emulated_t **devices;
    /* An array of [size]: a stream that the user has on each rank's device.
       NULL: the ranks have no devices. */
    baton_stream_t *streams;
    /* A worker has failed. Accesses are relaxed, since the flag guards no other
       memory. */
    atomic_bool failed;
} support_cluster_t;

/* The variants: ways in which a cluster makes progress. Most tests run with
   each of the first three. Each rank has its own engine in all variants but the
   first two. */
enum {
    SUPPORT_MANUAL,      /* one manual engine for all ranks */
    SUPPORT_ONE_THREAD,  /* one engine for all ranks, with a progress thread */
    SUPPORT_OWN_ENGINES, /* an engine with a progress thread for each rank */
    SUPPORT_VARIANTS,
    SUPPORT_OWN_MANUAL = SUPPORT_VARIANTS, /* a manual engine for each rank */
    /* For each rank, an engine with a progress thread and a device. */
    SUPPORT_DEVICES,
    SUPPORT_DEVICES_MANUAL, /* for each rank, a manual engine with a device */
};
extern const char *const support_variant_names[SUPPORT_VARIANTS];

support_cluster_t *support_cluster_open(int size, int variant);
support_cluster_t *support_cluster_manual(int size);

/* Opens a cluster. Calls `prepare` for each engine before the engine's first
   group is created. */
typedef void (*support_prepare_fn)(void *arg, int rank, baton_engine_t *engine);
support_cluster_t *support_cluster_prepare(int size, int variant,
                                           support_prepare_fn prepare,
                                           void *arg);

/* Opens a cluster whose groups use `transport`, a variation of the inproc
   transport. */
support_cluster_t *support_cluster_through(int size, int variant,
                                           const baton_transport_t *transport);

void support_cluster_close(support_cluster_t *cluster);

/* Recovers the groups of all ranks, each in its own thread. */
void support_cluster_recover(support_cluster_t *cluster);

/* Fixtures of a program: open, before all its tests, a manual cluster of each
   of these sizes, and close the clusters after them. The sizes are 1 to 17 and
   32 ranks, which covers every case of folding to a power of two, and up to
   five rounds. */
#define SUPPORT_SIZES   18
#define SUPPORT_LARGEST 32
extern const int support_sizes[SUPPORT_SIZES];
int support_clusters_open(void **state);
int support_clusters_close(void **state);
support_cluster_t *support_cluster_of(int size);

/* A test (cmocka.h) that gets a new cluster of `ranks` ranks. TEST_EACH runs it
   with each of the first SUPPORT_VARIANTS variants, TEST_ON_DEVICES with the
   two variants that have devices, and TEST_WITH with one variant. */
typedef struct support_test {
    void (*run)(support_cluster_t *cluster);
    /* The number of ranks, and the range of variants with which the test runs:
       from `first` to end - 1. */
    int ranks, first, end;
} support_test_t;
void support_test(void **state);
#define TEST_VARIANTS(name, ranks, first, end)                                 \
    static void name(support_cluster_t *cluster);                              \
    static support_test_t of_##name = {name, ranks, first, end};               \
    SUPPORT_ADD(name, support_test, NULL, NULL, &of_##name)                    \
    static void name(support_cluster_t *cluster)
#define TEST_EACH(name, ranks) TEST_VARIANTS(name, ranks, 0, SUPPORT_VARIANTS)
#define TEST_ON_DEVICES(name, ranks)                                           \
    TEST_VARIANTS(name, ranks, SUPPORT_DEVICES, SUPPORT_DEVICES_MANUAL + 1)
#define TEST_WITH(name, ranks, variant)                                        \
    TEST_VARIANTS(name, ranks, variant, variant + 1)
#define TEST_MANUALLY(name, ranks) TEST_WITH(name, ranks, SUPPORT_MANUAL)

/* Steps a manual cluster until several consecutive steps have done nothing. */
void support_drain(support_cluster_t *cluster);

/* ---- expectations ------------------------------------------------------ */

/* Fails the test unless `status` is `expected`. The failure's text is the
   library's error message. */
#define support_expect(status, expected)                                       \
    support_expect_at((status), (expected), __FILE__, __LINE__)
#define support_ok(status) support_expect((status), BATON_OK)
void support_expect_at(baton_status_t status, baton_status_t expected,
                       const char *file, int line);

/* Fails the test unless the last error's message contains `text`. */
#define support_says(text) support_says_at((text), __FILE__, __LINE__)
void support_says_at(const char *text, const char *file, int line);

/* Fails the test unless `status` is `expected` and the last error's message
   contains `text`. */
#define support_fails(status, expected, text)                                  \
    (support_expect((status), (expected)), support_says(text))

/* ---- schedules --------------------------------------------------------- */

/* Returns an empty schedule. */
baton_schedule_t *support_schedule(baton_group_t *group, const char *name);

/* Add a buffer to the schedule, and return a view of the whole buffer.
   support_view binds the buffer to `memory`. support_scratch makes it scratch
   memory. */
baton_view_t support_view(baton_schedule_t *schedule, void *memory,
                          size_t bytes);
baton_view_t support_scratch(baton_schedule_t *schedule, size_t bytes);

/* Starts an epoch and waits for it. */
void support_run(baton_schedule_t *schedule);

/* Waits for the running epoch, and expects that it ends with this status. */
#define support_ends(schedule, expected)                                       \
    support_expect(baton_schedule_wait((schedule), SUPPORT_WAIT_MS), (expected))

/* Waits for timeout_ms, and expects that the epoch has not ended, and that the
   error contains `text`. The wait is repeated if another thread keeps the
   engine for so long that the error can't say what the epoch waits for. */
#define support_times_out(schedule, timeout_ms, text)                          \
    support_times_out_at((schedule), (timeout_ms), (text), __FILE__, __LINE__)
void support_times_out_at(baton_schedule_t *schedule, int timeout_ms,
                          const char *text, const char *file, int line);

/* Runs epochs until one fails or cannot be started, and returns its status.
   Some epochs may succeed before this rank hears of a peer's failure. */
baton_status_t support_run_until_failure(baton_schedule_t *schedule);

/* Functions for call nodes. support_count adds 1 to the uint64_t at `arg`.
   support_succeed returns BATON_OK, and support_skip BATON_SKIP. */
baton_status_t support_count(void *arg, baton_call_t *call);
baton_status_t support_succeed(void *arg, baton_call_t *call);
baton_status_t support_skip(void *arg, baton_call_t *call);

/* Creates an empty schedule for each rank. Returns an array of `size`
   schedules. */
baton_schedule_t **support_schedules_create(support_cluster_t *cluster,
                                            const char *name);
void support_schedules_commit(support_cluster_t *cluster,
                              baton_schedule_t **schedules);

/* Runs one epoch: starts all schedules, in the order of ranks, and then waits
   for all. */
void support_schedules_run(support_cluster_t *cluster,
                           baton_schedule_t **schedules);

/* Adds the two ends of a message: a send to rank `from`, and a receive to rank
   `to`. */
void support_message(baton_schedule_t **schedules, int from, int to,
                     void *source, void *target, size_t bytes);

/* Destroys the schedules and frees the array. */
void support_schedules_destroy(support_cluster_t *cluster,
                               baton_schedule_t **schedules);

/* A pair of schedules, which are the smallest ones with a message: rank 1 sends
   `sent`, and rank 0 receives it into `got`. */
typedef struct support_pair {
    support_cluster_t *cluster;
    baton_schedule_t **schedules; /* the schedules of ranks 0 and 1 */
    uint64_t sent, got;
} support_pair_t;

void support_pair_open(support_pair_t *pair, support_cluster_t *cluster,
                       const char *name);
void support_pair_close(support_pair_t *pair);

/* Runs an epoch that rank 1 starts, in which it sends `value`. Rank 0 does not
   start an epoch. */
void support_pair_send(support_pair_t *pair, uint64_t value);

/* ---- ranks as threads -------------------------------------------------- */

/* The application of one rank, in a thread of its own. */
typedef struct support_worker {
    support_cluster_t *cluster;
    int rank;
    baton_group_t *group;
    void *arg;
    char failure[600]; /* the message of the first failed check, or empty */
} support_worker_t;

typedef void (*support_worker_fn)(support_worker_t *worker);

/* Runs `run` in a thread for each rank, and joins the threads. Fails the test
   with the message of the first rank that failed. */
void support_cluster_run(support_cluster_t *cluster, support_worker_fn run,
                         void *arg);

/* The functions by which a worker checks something. They return false if the
   check fails, or if this worker or another one has failed before. Then the
   worker must return. */
bool support_worker_ok(support_worker_t *worker, baton_status_t status);
bool support_worker_check(support_worker_t *worker, bool right,
                          const char *format, ...) BATON_PRINTF(3, 4);
bool support_worker_run(support_worker_t *worker, baton_schedule_t *schedule);

/* A thread that runs fn(arg). */
typedef struct support_thread support_thread_t;
support_thread_t *support_thread_start(void (*fn)(void *arg), void *arg);
void support_thread_join(support_thread_t *thread);
