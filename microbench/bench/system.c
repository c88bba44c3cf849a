#include "bench/system.h"
#include "bench/libnbc.h"
#include <stdlib.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

/* MPI 4 has persistent collectives; Open MPI 4 has them as an extension. */
#if MPI_VERSION >= 4
#define HAS_PERSISTENT   1
#define PERSISTENT(name) MPI_##name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ) && OMPI_HAVE_MPI_EXT_PCOLLREQ
#define HAS_PERSISTENT   1
#define PERSISTENT(name) MPIX_##name##_init
#else
#define HAS_PERSISTENT 0
#endif

/* ---- memory ------------------------------------------------------------- */

static float *allocate(const harness_t *harness, bench_memory_t memory,
                       size_t count)
{
    void *out = NULL;
    if (memory == BENCH_MEMORY_MALLOC) {
        return harness_alloc(count, sizeof(float));
    }
    if (count > 0) {
        harness_require(
            baton_memory_alloc(harness->group, count * sizeof(float), &out),
            "allocate memory");
    }
    return out;
}

static void release(const harness_t *harness, bench_memory_t memory,
                    void *block)
{
    if (memory == BENCH_MEMORY_MALLOC) {
        free(block);
    } else {
        harness_require(baton_memory_free(harness->group, block),
                        "free memory");
    }
}

void bench_memory_alloc(const harness_t *harness, bench_memory_t memory,
                        bench_operation_t *operation)
{
    operation->source = allocate(harness, memory, operation->source_count);
    operation->target = allocate(harness, memory, operation->target_count);
}

void bench_memory_free(const harness_t *harness, bench_memory_t memory,
                       const bench_operation_t *operation)
{
    release(harness, memory, operation->source);
    release(harness, memory, operation->target);
}

/* ---- what there is ------------------------------------------------------ */

const char *bench_system_lacks(const bench_system_t *system,
                               baton_collective_t collective)
{
    switch (system->kind) {
    case BENCH_SYSTEM_IMPI_RING:
        return collective != BATON_COLLECTIVE_ALLREDUCE
                   ? "the ring is an all-reduce of MPI_Iallreduce's"
               : !libnbc_can_choose()
                   ? "this MPI has no coll_libnbc_iallreduce_algorithm to set"
                   : NULL;
    case BENCH_SYSTEM_PERSISTENT:
        return HAS_PERSISTENT ? NULL : "this MPI has no persistent collectives";
    case BENCH_SYSTEM_MPI:
    case BENCH_SYSTEM_IMPI:
    case BENCH_SYSTEM_BATON:
    case BENCH_SYSTEM_KINDS:
        break;
    }
    return NULL;
}

/* ---- MPI ---------------------------------------------------------------- */

/* Each collective: enumerator, MPI's names, arguments. Of the three functions
   below each calls one form of it. The barrier has no arguments. */
#define MPI_CALLS(X)                                                           \
    X(BROADCAST, Bcast, bcast, target, count, MPI_FLOAT, root)                 \
    X(REDUCE, Reduce, reduce, source, target, count, MPI_FLOAT, MPI_SUM, root) \
    X(ALLREDUCE, Allreduce, allreduce, source, target, count, MPI_FLOAT,       \
      MPI_SUM)                                                                 \
    X(REDUCE_SCATTER, Reduce_scatter, reduce_scatter, source, target,          \
      runner->counts, MPI_FLOAT, MPI_SUM)                                      \
    X(ALLGATHER, Allgather, allgather, source, block, MPI_FLOAT, target,       \
      block, MPI_FLOAT)                                                        \
    X(SCATTER, Scatter, scatter, source, block, MPI_FLOAT, target, block,      \
      MPI_FLOAT, root)                                                         \
    X(GATHER, Gather, gather, source, block, MPI_FLOAT, target, block,         \
      MPI_FLOAT, root)                                                         \
    X(ALLTOALL, Alltoall, alltoall, source, block, MPI_FLOAT, target, block,   \
      MPI_FLOAT)

#define ARGUMENTS                                                              \
    const float *source = runner->operation->source;                           \
    float *target = runner->operation->target;                                 \
    int count = (int)runner->operation->count;                                 \
    int block = (int)runner->operation->block;                                 \
    int root = runner->operation->root;

static void call_mpi(bench_runner_t *runner)
{
    ARGUMENTS
    switch ((int)runner->operation->collective) {
#define CALL(id, Name, name, ...)                                              \
    case BATON_COLLECTIVE_##id:                                                \
        MPI_##Name(__VA_ARGS__, MPI_COMM_WORLD);                               \
        break;
        MPI_CALLS(CALL)
#undef CALL
    default:
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void post_mpi(bench_runner_t *runner)
{
    ARGUMENTS
    switch ((int)runner->operation->collective) {
#define POST(id, Name, name, ...)                                              \
    case BATON_COLLECTIVE_##id:                                                \
        MPI_I##name(__VA_ARGS__, MPI_COMM_WORLD, &runner->requests[root]);     \
        break;
        MPI_CALLS(POST)
#undef POST
    default:
        MPI_Ibarrier(MPI_COMM_WORLD, &runner->requests[root]);
    }
}

#if HAS_PERSISTENT
static void init_mpi(bench_runner_t *runner)
{
    ARGUMENTS
    switch ((int)runner->operation->collective) {
#define INIT(id, Name, name, ...)                                              \
    case BATON_COLLECTIVE_##id:                                                \
        PERSISTENT(Name)                                                       \
        (__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, &runner->requests[root]); \
        break;
        MPI_CALLS(INIT)
#undef INIT
    default:
        PERSISTENT(Barrier)
        (MPI_COMM_WORLD, MPI_INFO_NULL, &runner->requests[root]);
    }
}
#else
static void init_mpi(bench_runner_t *runner)
{
    (void)runner; /* bench_system_lacks says so before */
}
#endif

static void set_counts(bench_runner_t *runner)
{
    const bench_operation_t *operation = runner->operation;
    runner->counts = harness_alloc((size_t)operation->ranks, sizeof(int));
    for (int rank = 0; rank < operation->ranks; rank++) {
        runner->counts[rank] = (int)operation->block;
    }
}

/* ---- Baton -------------------------------------------------------------- */

/* An operation's arguments as Baton has them. */
typedef struct views {
    baton_view_t source, target;
} views_t;

static views_t bind(baton_schedule_t *schedule,
                    const bench_operation_t *operation)
{
    views_t views = {0};
    size_t source_bytes = operation->source_count * sizeof(float);
    size_t target_bytes = operation->target_count * sizeof(float);
    if (source_bytes > 0) {
        views.source = baton_view(
            baton_buffer_bind_input(schedule, operation->source, source_bytes),
            0, source_bytes);
    }
    if (target_bytes > 0) {
        views.target = baton_view(
            baton_buffer_bind(schedule, operation->target, target_bytes), 0,
            target_bytes);
    }
    return views;
}

static void build_whole(const bench_runner_t *runner, views_t views,
                        baton_schedule_t *schedule)
{
    const char *algorithm = runner->system.algorithm;
    if (runner->operation->collective == BATON_COLLECTIVE_BROADCAST) {
        baton_broadcast_t args = BATON_BROADCAST;
        args.root = runner->operation->root;
        args.data = views.target;
        args.algorithm = algorithm;
        baton_broadcast(schedule, &args);
    } else if (runner->operation->collective == BATON_COLLECTIVE_REDUCE) {
        baton_reduce_t args = BATON_REDUCE;
        args.root = runner->operation->root;
        args.source = views.source;
        args.target = views.target;
        args.dtype = BATON_F32;
        args.op = BATON_SUM;
        args.algorithm = algorithm;
        baton_reduce(schedule, &args);
    } else {
        baton_allreduce_t args = BATON_ALLREDUCE;
        args.source = views.source;
        args.target = views.target;
        args.dtype = BATON_F32;
        args.op = BATON_SUM;
        args.algorithm = algorithm;
        baton_allreduce(schedule, &args);
    }
}

static void build_blocks(const bench_runner_t *runner, views_t views,
                         baton_schedule_t *schedule)
{
    const char *algorithm = runner->system.algorithm;
    if (runner->operation->collective == BATON_COLLECTIVE_REDUCE_SCATTER) {
        baton_reduce_scatter_t args = BATON_REDUCE_SCATTER;
        args.source = views.source;
        args.target = views.target;
        args.dtype = BATON_F32;
        args.op = BATON_SUM;
        args.algorithm = algorithm;
        baton_reduce_scatter(schedule, &args);
    } else if (runner->operation->collective == BATON_COLLECTIVE_ALLGATHER) {
        baton_allgather_t args = BATON_ALLGATHER;
        args.source = views.source;
        args.target = views.target;
        args.algorithm = algorithm;
        baton_allgather(schedule, &args);
    } else {
        baton_alltoall_t args = BATON_ALLTOALL;
        args.source = views.source;
        args.target = views.target;
        args.algorithm = algorithm;
        baton_alltoall(schedule, &args);
    }
}

static void build_rooted(const bench_runner_t *runner, views_t views,
                         baton_schedule_t *schedule)
{
    baton_rooted_t args = BATON_ROOTED;
    args.root = runner->operation->root;
    args.source = views.source;
    args.target = views.target;
    if (runner->operation->collective == BATON_COLLECTIVE_SCATTER) {
        baton_scatter(schedule, &args);
    } else {
        baton_gather(schedule, &args);
    }
}

static void build(const bench_runner_t *runner, baton_schedule_t *schedule)
{
    views_t views = bind(schedule, runner->operation);
    switch ((int)runner->operation->collective) {
    case BATON_COLLECTIVE_BROADCAST:
    case BATON_COLLECTIVE_REDUCE:
    case BATON_COLLECTIVE_ALLREDUCE:
        build_whole(runner, views, schedule);
        break;
    case BATON_COLLECTIVE_SCATTER:
    case BATON_COLLECTIVE_GATHER:
        build_rooted(runner, views, schedule);
        break;
    case BATON_COLLECTIVE_BARRIER:
        baton_barrier(schedule);
        break;
    default:
        build_blocks(runner, views, schedule);
    }
}

static baton_schedule_t *commit(const harness_t *harness,
                                const bench_runner_t *runner)
{
    baton_schedule_t *schedule = NULL;
    harness_require(
        baton_schedule_create(harness->group, runner->system.name, &schedule),
        "create a schedule");
    build(runner, schedule);
    harness_require(baton_schedule_commit(schedule), "commit");
    return schedule;
}

/* ---- all systems -------------------------------------------------------- */

static void open_root(const harness_t *harness, bench_runner_t *runner)
{
    int root = runner->operation->root;
    runner->requests[root] = MPI_REQUEST_NULL;
    if (runner->system.kind == BENCH_SYSTEM_BATON) {
        runner->schedules[root] = commit(harness, runner);
    } else if (runner->system.kind == BENCH_SYSTEM_PERSISTENT) {
        init_mpi(runner);
    }
}

void bench_runner_open(const harness_t *harness, const bench_system_t *system,
                       bench_operation_t *operation, bench_runner_t *out)
{
    size_t roots = (size_t)operation->roots;
    *out = (bench_runner_t){
        .system = *system,
        .operation = operation,
        .requests = harness_alloc(roots, sizeof(MPI_Request)),
        .schedules = harness_alloc(roots, sizeof(baton_schedule_t *)),
    };
    set_counts(out);
    for (int root = 0; root < operation->roots; root++) {
        operation->root = root;
        open_root(harness, out);
    }
    operation->root = 0;
}

void bench_runner_close(bench_runner_t *runner)
{
    for (int root = 0; root < runner->operation->roots; root++) {
        if (runner->system.kind == BENCH_SYSTEM_PERSISTENT) {
            MPI_Request_free(&runner->requests[root]);
        }
        harness_require(baton_schedule_destroy(runner->schedules[root]),
                        "destroy");
    }
    free(runner->requests);
    free(runner->schedules);
    free(runner->counts);
}

void bench_runner_begin_turn(const bench_runner_t *runner)
{
    if (runner->system.kind == BENCH_SYSTEM_IMPI_RING) {
        libnbc_choose_ring(true);
    }
}

void bench_runner_end_turn(const bench_runner_t *runner)
{
    if (runner->system.kind == BENCH_SYSTEM_IMPI_RING) {
        libnbc_choose_ring(false);
    }
}

void bench_runner_start(bench_runner_t *runner)
{
    switch (runner->system.kind) {
    case BENCH_SYSTEM_MPI:
        call_mpi(runner);
        break;
    case BENCH_SYSTEM_IMPI:
    case BENCH_SYSTEM_IMPI_RING:
        post_mpi(runner);
        break;
    case BENCH_SYSTEM_PERSISTENT:
        MPI_Start(&runner->requests[runner->operation->root]);
        break;
    case BENCH_SYSTEM_BATON:
        harness_require(
            baton_schedule_start(runner->schedules[runner->operation->root]),
            "start");
        break;
    case BENCH_SYSTEM_KINDS:
        break;
    }
}

void bench_runner_wait(bench_runner_t *runner)
{
    int root = runner->operation->root;
    if (runner->system.kind == BENCH_SYSTEM_BATON) {
        harness_require(baton_schedule_wait(runner->schedules[root], -1),
                        "wait");
    } else if (runner->system.kind != BENCH_SYSTEM_MPI) {
        MPI_Wait(&runner->requests[root], MPI_STATUS_IGNORE);
    }
}
