#include "support/mpi.h"
#include "support/cluster.h"
#include <baton/coll.h>
#include <inttypes.h>
#include <unistd.h>

support_mpi_t world = {.rank = -1};
const char *support_mpi_running = "start";

void support_mpi_begin(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    uint64_t numbers[] = {world.rank == 0 ? support_seed() : 0,
                          (uint64_t)getpid()};
    MPI_Bcast(numbers, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    world.seed = numbers[0];
    world.job = numbers[1];
}

void support_mpi_open(void)
{
    support_mpi_ok(baton_engine_open(NULL, &world.engine));
    support_mpi_ok(
        support_mpi_group(world.engine, MPI_COMM_WORLD, &world.group));
}

bool support_mpi_store(baton_store_t *store, char name[60])
{
    static int made;
    const char *folder = getenv("BATON_X_STORE");
    if (folder != NULL) {
        (void)snprintf(name, 60, "%" PRIu64 ".%d", world.job, ++made);
        support_mpi_ok(baton_store_open_folder(folder, store));
    }
    return folder != NULL;
}

baton_status_t support_mpi_group(baton_engine_t *engine, MPI_Comm comm,
                                 baton_group_t **out)
{
    baton_store_t store;
    char name[60];
    int rank, size;
    if (!support_mpi_store(&store, name)) {
        return baton_group_create_mpi(engine, comm, out);
    }
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    baton_status_t status = baton_group_create_store(
        engine, &store, rank, size, name, SUPPORT_MPI_WAIT_MS, out);
    baton_store_close_folder(&store);
    return status;
}

void support_mpi_end(void)
{
    support_mpi_running = "end";
    if (world.group != NULL) {
        support_mpi_ok(baton_group_destroy(world.group));
    }
    if (world.engine != NULL) {
        support_mpi_ok(baton_engine_close(world.engine));
    }
    MPI_Finalize();
}

void support_mpi_die(const char *what)
{
    int ready = 0, over = 0;
    MPI_Initialized(&ready);
    MPI_Finalized(&over);
    fprintf(stderr, "rank %d, %s: %s (%s; BATON_SEED=%" PRIu64 ")\n",
            world.rank, support_mpi_running, what, baton_error_message(),
            world.seed);
    if (ready && !over) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    exit(1);
}

void support_mpi_check(bool right, const char *what)
{
    if (!right) {
        support_mpi_die(what);
    }
}

void support_mpi_expect(baton_status_t status, baton_status_t expected)
{
    if (status != expected) {
        char text[100];
        snprintf(text, sizeof(text), "%s is not %s", baton_status_name(status),
                 baton_status_name(expected));
        support_mpi_die(text);
    }
}

void support_mpi_ok(baton_status_t status)
{
    support_mpi_expect(status, BATON_OK);
}

void support_mpi_says(const char *text)
{
    if (strstr(baton_error_message(), text) == NULL) {
        char what[200];
        snprintf(what, sizeof(what), "\"%s\" is not in the message", text);
        support_mpi_die(what);
    }
}

baton_schedule_t *support_mpi_sum(baton_group_t *group, void *memory,
                                  size_t bytes, baton_dtype_t dtype,
                                  const char *algorithm)
{
    baton_schedule_t *s;
    support_mpi_ok(baton_schedule_create(group, "sum", &s));
    baton_view_t view = support_view(s, memory, bytes);
    const baton_allreduce_args_t args = {.size = sizeof(args),
                                         .source = view,
                                         .target = view,
                                         .dtype = dtype,
                                         .op = BATON_SUM,
                                         .algorithm = algorithm};
    baton_add_allreduce(s, &args);
    support_mpi_ok(baton_schedule_commit(s));
    return s;
}

void support_mpi_run(baton_schedule_t *schedule)
{
    support_mpi_ok(baton_schedule_run(schedule, SUPPORT_MPI_WAIT_MS));
}

void support_mpi_healthy(baton_group_t *group)
{
    uint64_t size = (uint64_t)baton_group_size(group);
    uint64_t sum = (uint64_t)baton_group_rank(group);
    baton_schedule_t *s =
        support_mpi_sum(group, &sum, 8, BATON_U64, "recursive_doubling");
    support_mpi_run(s);
    support_mpi_check(sum == size * (size - 1) / 2, "wrong sum");
    support_mpi_ok(baton_schedule_destroy(s));
}
