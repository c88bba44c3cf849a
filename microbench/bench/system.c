/* The systems that baton-bench compares: MPI's forms of a collective, and
   Baton's. Also allocates the vectors of the systems. */
#include "bench/bench.h"
#include <baton/memory.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

/* MPI 4 has persistent collectives, and Open MPI 4 has them as an extension.
   MPICH 4.0's persistent gather and scatter give wrong results or end the job
   (MPICH's issue 7078; pull request 7550 was open in 2025), so persistent
   collectives of MPICH are not used. */
#if (MPI_VERSION >= 4 && !defined(MPICH_VERSION)) ||                           \
    (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_PERSISTENT        1
#define PERSISTENT(name, ...) MPI_##name##_init(__VA_ARGS__)
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ) && OMPI_HAVE_MPI_EXT_PCOLLREQ
#define HAS_PERSISTENT        1
#define PERSISTENT(name, ...) MPIX_##name##_init(__VA_ARGS__)
#else
#define HAS_PERSISTENT        0
/* bench_remove_unable() removes systems that would use this form, so it is
   never called. */
#define PERSISTENT(name, ...) MPI_SUCCESS
#endif

/* ---- memory ------------------------------------------------------------- */

/* Each vector has one element more than the operation needs, since not every
   kind of memory can be empty. A vector in the device's memory has a copy in
   main memory. */
void bench_memory_open(const bench_run_t *run, bench_operation_t *operation)
{
    float **const host[] = {&operation->target, &operation->source};
    const size_t counts[] = {operation->target_count, operation->source_count};
    operation->in_place = run->options.in_place;
    for (int i = 0; i < (operation->in_place ? 1 : 2); i++) {
        size_t bytes = (counts[i] + 1) * sizeof(float);
        void *memory = NULL;
        if (run->options.memory == BENCH_MEMORY_SHARED) {
            must(baton_memory_alloc(run->harness.group, bytes, &memory));
        } else {
            memory = harness_alloc(bytes, 1);
        }
        *host[i] = memory;
        if (run->options.memory == BENCH_MEMORY_DEVICE) {
            operation->on_device[i] = bench_device.alloc(bytes);
        }
    }
    if (operation->in_place) {
        operation->source = operation->target;
        operation->on_device[1] = operation->on_device[0];
    }
}

void bench_memory_close(const bench_run_t *run, bench_operation_t *operation)
{
    float *const host[] = {operation->target, operation->source};
    for (int i = 0; i < (operation->in_place ? 1 : 2); i++) {
        if (run->options.memory == BENCH_MEMORY_SHARED) {
            must(baton_memory_free(run->harness.group, host[i]));
        } else {
            free(host[i]);
        }
        if (operation->on_device[i] != NULL) {
            bench_device.free(operation->on_device[i]);
        }
    }
}

/* Copies the vectors to the device, or back from it. Does nothing if the
   operation has no vectors on a device. */
static void move(const bench_operation_t *operation, bool to_device)
{
    float *const host[] = {operation->target, operation->source};
    const size_t counts[] = {operation->target_count, operation->source_count};
    for (int i = 0; i < 2 && operation->on_device[i] != NULL; i++) {
        size_t bytes = counts[i] * sizeof(float);
        void *device = operation->on_device[i];
        bench_device.copy(to_device ? device : host[i],
                          to_device ? host[i] : device, bytes);
    }
}

void bench_fill(bench_operation_t *operation)
{
    bench_operation_fill(operation);
    move(operation, true);
}

void bench_clear(bench_operation_t *operation)
{
    memset(operation->target, 0, operation->target_count * sizeof(float));
    move(operation, true);
}

void bench_check(const bench_runner_t *runner)
{
    const bench_operation_t *operation = runner->operation;
    move(operation, false);
    size_t i = bench_operation_check(operation);
    if (i < operation->target_count) {
        harness_fail("%s by %s: element %zu of %zu is %g, expected %g",
                     baton_collective_name(operation->collective),
                     runner->system.name, i, operation->target_count,
                     (double)operation->target[i],
                     (double)bench_operation_expected(operation, i));
    }
}

/* ---- the systems -------------------------------------------------------- */

/* Selects libnbc's all-reduce algorithm; 0 leaves the choice to libnbc. Returns
   false if libnbc has no such variable. */
static bool set_libnbc(int algorithm)
{
    static const char variable[] = "coll_libnbc_iallreduce_algorithm";
    MPI_T_cvar_handle handle;
    int index = 0, out = 0;
    bool set = false;
    MPI_T_init_thread(MPI_THREAD_MULTIPLE, &out);
    if (MPI_T_cvar_get_index(variable, &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &out) == MPI_SUCCESS) {
        set = MPI_T_cvar_write(handle, &algorithm) == MPI_SUCCESS;
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
    return set;
}

/* Returns whether the system uses persistent requests. */
static bool is_persistent(const bench_system_t *system)
{
    return system->kind == BENCH_SYSTEM_PERSISTENT ||
           system->kind == BENCH_SYSTEM_RING;
}

size_t bench_remove_unable(bench_run_t *run)
{
    bench_options_t *options = &run->options;
    size_t all = options->system_count;
    options->system_count = 0;
    for (size_t i = 0; i < all; i++) {
        const bench_system_t *system = &options->systems[i];
        if ((!is_persistent(system) || HAS_PERSISTENT) &&
            (system->kind != BENCH_SYSTEM_RING || set_libnbc(0))) {
            options->systems[options->system_count++] = *system;
        } else if (run->prints) {
            (void)printf("# %s: skipped: it does not work with this MPI\n",
                         system->name);
        }
    }
    return options->system_count;
}

/* ---- MPI ---------------------------------------------------------------- */

enum { RING = 1 }; /* libnbc's number of the ring algorithm */

typedef enum form {
    BLOCKING,
    NONBLOCKING,
    PREPARED /* MPI_Start starts a prepared request */
} form_t;

/* Calls one form of MPI's collective with the operation's root. */
static void call_mpi(bench_runner_t *runner, form_t form)
{
    const bench_operation_t *of = runner->operation;
    const float *source = of->in_place ? MPI_IN_PLACE : of->source;
    float *target = of->target;
    int count = (int)of->count;
    int block = (int)of->block;
    int root = of->root;
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Request *request = &runner->requests[root];
    switch ((int)of->collective) {
#define COLLECTIVE(id, Name, name, ...)                                        \
    case BATON_COLLECTIVE_##id:                                                \
        if (form == BLOCKING) {                                                \
            (void)MPI_##Name(__VA_ARGS__);                                     \
        } else if (form == NONBLOCKING) {                                      \
            (void)MPI_I##name(__VA_ARGS__, request);                           \
        } else {                                                               \
            (void)PERSISTENT(Name, __VA_ARGS__, MPI_INFO_NULL, request);       \
        }                                                                      \
        break;
        COLLECTIVE(BROADCAST, Bcast, bcast, target, count, MPI_FLOAT, root,
                   world)
        COLLECTIVE(REDUCE, Reduce, reduce, source, target, count, MPI_FLOAT,
                   MPI_SUM, root, world)
        COLLECTIVE(ALLREDUCE, Allreduce, allreduce, source, target, count,
                   MPI_FLOAT, MPI_SUM, world)
        COLLECTIVE(REDUCE_SCATTER, Reduce_scatter, reduce_scatter, source,
                   target, runner->counts, MPI_FLOAT, MPI_SUM, world)
        COLLECTIVE(ALLGATHER, Allgather, allgather, source, block, MPI_FLOAT,
                   target, block, MPI_FLOAT, world)
        COLLECTIVE(SCATTER, Scatter, scatter, source, block, MPI_FLOAT, target,
                   block, MPI_FLOAT, root, world)
        COLLECTIVE(GATHER, Gather, gather, source, block, MPI_FLOAT, target,
                   block, MPI_FLOAT, root, world)
        COLLECTIVE(ALLTOALL, Alltoall, alltoall, source, block, MPI_FLOAT,
                   target, block, MPI_FLOAT, world)
        COLLECTIVE(BARRIER, Barrier, barrier, world)
#undef COLLECTIVE
    }
}

/* ---- Baton -------------------------------------------------------------- */

static baton_create_fn *const create_fns[] = {
    [BATON_COLLECTIVE_BROADCAST] = baton_broadcast_create,
    [BATON_COLLECTIVE_REDUCE] = baton_reduce_create,
    [BATON_COLLECTIVE_ALLREDUCE] = baton_allreduce_create,
    [BATON_COLLECTIVE_REDUCE_SCATTER] = baton_reduce_scatter_create,
    [BATON_COLLECTIVE_ALLGATHER] = baton_allgather_create,
    [BATON_COLLECTIVE_ALLTOALL] = baton_alltoall_create,
    [BATON_COLLECTIVE_SCATTER] = baton_scatter_create,
    [BATON_COLLECTIVE_GATHER] = baton_gather_create,
    [BATON_COLLECTIVE_BARRIER] = baton_barrier_create,
};

/* Stores and signals the end of an epoch. */
static void signal_end(void *arg, uint64_t epoch, baton_status_t status)
{
    bench_end_t *end = arg;
    end->us = clock_now_us();
    (void)sem_post(&end->signalled);
}

static baton_schedule_t *bench_system_create(const bench_run_t *run,
                                             bench_runner_t *runner)
{
    const bench_operation_t *of = runner->operation;
    bool on_device = of->on_device[0] != NULL;
    bool has_source = of->source_count > 0 && !of->in_place;
    bool reduces = baton_collective_facts(of->collective)->reduces;
    const void *source = on_device ? of->on_device[1] : of->source;
    const baton_operands_t operands = {
        .source = has_source ? source : NULL,
        .target = on_device ? of->on_device[0] : of->target,
        .count = of->block,
        .dtype = BATON_F32,
        .op = reduces ? BATON_SUM : NULL,
        .root = of->root,
        .algorithm = runner->system.algorithm,
        .name = runner->system.name,
        .memory = on_device ? BATON_MEMORY_DEVICE : BATON_MEMORY_HOST,
    };
    baton_schedule_t *schedule = NULL;
    must(create_fns[of->collective](run->harness.group, &operands, &schedule));
    if (runner->watched) {
        baton_schedule_on_end(schedule, signal_end, &runner->end);
    }
    return schedule;
}

/* ---- all systems -------------------------------------------------------- */

static void open_root(const bench_run_t *run, bench_runner_t *runner)
{
    int root = runner->operation->root;
    bool ring = runner->system.kind == BENCH_SYSTEM_RING;
    runner->requests[root] = MPI_REQUEST_NULL;
    if (runner->system.kind == BENCH_SYSTEM_BATON) {
        runner->schedules[root] = bench_system_create(run, runner);
    } else if (is_persistent(&runner->system)) {
        (void)(ring && set_libnbc(RING));
        call_mpi(runner, PREPARED);
        (void)(ring && set_libnbc(0));
    }
}

void bench_runner_open(const bench_run_t *run, const bench_system_t *system,
                       bench_operation_t *operation, bool unwaited,
                       bench_runner_t *out)
{
    size_t roots = (size_t)operation->roots;
    *out = (bench_runner_t){
        .system = *system,
        .operation = operation,
        .watched = unwaited,
        .counts = harness_alloc((size_t)operation->ranks, sizeof(int)),
        .requests = harness_alloc(roots, sizeof(MPI_Request)),
        .schedules = harness_alloc(roots, sizeof(baton_schedule_t *)),
    };
    (void)sem_init(&out->end.signalled, 0, 0);
    for (int rank = 0; rank < operation->ranks; rank++) {
        out->counts[rank] = (int)operation->block;
    }
    for (int root = 0; root < operation->roots; root++) {
        operation->root = root;
        open_root(run, out);
    }
    operation->root = 0;
}

void bench_runner_close(bench_runner_t *runner)
{
    for (int root = 0; root < runner->operation->roots; root++) {
        if (is_persistent(&runner->system)) {
            MPI_Request_free(&runner->requests[root]);
        }
        must(baton_schedule_destroy(runner->schedules[root]));
    }
    free(runner->requests);
    free(runner->schedules);
    free(runner->counts);
}

/* MPI's systems take vectors in main memory. So this function first copies
   vectors on a device to main memory, and bench_runner_wait copies them
   back. */
void bench_runner_start(bench_runner_t *runner)
{
    int root = runner->operation->root;
    if (runner->system.kind == BENCH_SYSTEM_BATON) {
        must(baton_schedule_start(runner->schedules[root]));
        return;
    }
    move(runner->operation, false);
    if (is_persistent(&runner->system)) {
        MPI_Start(&runner->requests[root]);
    } else {
        call_mpi(runner, runner->system.kind == BENCH_SYSTEM_MPI ? BLOCKING
                                                                 : NONBLOCKING);
    }
}

void bench_runner_wait(bench_runner_t *runner)
{
    int root = runner->operation->root;
    if (runner->system.kind == BENCH_SYSTEM_BATON) {
        must(baton_schedule_wait(runner->schedules[root], -1));
        return;
    }
    MPI_Wait(&runner->requests[root], MPI_STATUS_IGNORE);
    move(runner->operation, true);
}

double bench_runner_watch(bench_runner_t *runner)
{
    while (sem_wait(&runner->end.signalled) != 0) {
    }
    return runner->end.us;
}
