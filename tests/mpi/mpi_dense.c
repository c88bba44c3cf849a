/* Every dense builder over MPI, at any number of ranks: every element type, odd
   counts, in place and not; to the last bit. And many messages at once. Rank 0
   prints one line; the exit code tells. */
#include "support/dense_data.h"

#include <baton/mpi.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EPOCHS = 2, WAIT_MS = 100000 };

static int rank, size;
static baton_group_t *group;
static uint64_t seed;
static uint64_t stream;

static void die(const dense_case_t *c, const char *what)
{
    fprintf(stderr, "mpi_dense: rank %d: %s: %s (BATON_SEED=%" PRIu64 ")\n",
            rank, c != NULL ? dense_text(c) : "", what, seed);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void must(const dense_case_t *c, baton_status_t status)
{
    if (status != BATON_OK) {
        die(c, baton_error_message());
    }
}

static void *memory_of(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);
    if (memory == NULL) {
        die(NULL, "out of memory");
    }
    return memory;
}

static void run_epoch(const dense_case_t *c, baton_schedule_t *schedule)
{
    must(c, baton_schedule_start(schedule));
    must(c, baton_schedule_wait(schedule, WAIT_MS));
}

static int run_case(const dense_case_t *c, support_op_t op)
{
    size_t room = dense_room(c, rank) * c->element + 1;
    void *source = memory_of(room);
    void *target = memory_of(room);
    baton_schedule_t *schedule = NULL;
    must(c, baton_schedule_create(group, c->builder->name, &schedule));
    dense_build(c, schedule, source, target);
    must(c, baton_schedule_commit(schedule));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        dense_data_t data = {c, op, seed, stream++};
        dense_fill(&data, rank, dense_input(c, rank, source, target));
        run_epoch(c, schedule);
        if (!dense_is_right(&data, rank,
                            dense_output(c, rank, source, target))) {
            die(c, "wrong result");
        }
        if (dense_keeps_source(c, rank) &&
            !dense_is_untouched(&data, rank, source)) {
            die(c, "source was written");
        }
    }
    must(c, baton_schedule_destroy(schedule));
    free(source);
    free(target);
    return 1;
}

/* Every type and operation; empty, short, indivisible, and beyond what goes in
   one packet; in place and not, from any root. Hosts of three ranks, or the
   group's own where chunks are short. */
static int check_builder(const dense_builder_t *builder, baton_hosts_t *hosts)
{
    static const size_t counts[] = {0, 1, 7, 1009, 30011};
    int cases = 0;
    for (int i = 0; i < (int)BATON_DTYPE_COUNT; i++) {
        support_op_t op = (support_op_t)(i % (int)SUPPORT_OP_COUNT);
        dense_case_t c = {.builder = builder,
                          .size = size,
                          .root = i % size,
                          .count = counts[i % 5],
                          .dtype = (baton_dtype_t)i,
                          .element = baton_dtype_size((baton_dtype_t)i),
                          .op = support_op(op),
                          .varied = dense_can_vary(builder) && i % 3 == 1,
                          .in_place = i % 2 == 0,
                          .chunk_bytes = i % 5 == 4   ? 16384
                                         : i % 4 == 3 ? 256
                                                      : 0,
                          .arg = i % 4 == 3 ? NULL : hosts};
        if (builder->algorithm.collective == BATON_COLLECTIVE_ALLTOALL ||
            c.varied) {
            c.count /= 8;
        }
        cases += run_case(&c, op);
    }
    return cases;
}

/* What the group says of each rank's host is what MPI says. */
static void check_hosts(void)
{
    MPI_Comm near;
    int lowest = rank;
    int *all = malloc((size_t)size * sizeof *all);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &near);
    MPI_Bcast(&lowest, 1, MPI_INT, 0, near);
    MPI_Comm_free(&near);
    MPI_Allgather(&lowest, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    baton_schedule_t *schedule = NULL;
    must(NULL, baton_schedule_create(group, "hosts", &schedule));
    int hosts = baton_schedule_hosts(schedule);
    int block = baton_schedule_host_block(schedule);
    int leaders = 0;
    for (int i = 0; i < size; i++) {
        int host = baton_schedule_host_of(schedule, i);
        leaders += all[i] == i;
        if (host != baton_schedule_host_of(schedule, all[i]) ||
            (all[i] == i && host != leaders - 1) ||
            (block > 0 && host != i / block)) {
            (void)fprintf(stderr, "rank %d: rank %d is on host %d\n", rank, i,
                          host);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (leaders != hosts) {
        (void)fprintf(stderr, "rank %d: %d hosts, not %d\n", rank, hosts,
                      leaders);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    must(NULL, baton_schedule_destroy(schedule));
    free(all);
}

/* More messages at once than MPI tests in one call, by each protocol, to a rank
   that waits or comes later. */
static int check_many(void)
{
    static const size_t SIZES[] = {8, 300, 0, 33, 5000, 8, 69568, 70000};
    enum { MANY = 160, SIZE_COUNT = sizeof SIZES / sizeof SIZES[0] };
    enum { MANY_EPOCHS = 16, LARGEST = 70000 };
    unsigned char *out = memory_of((size_t)MANY * LARGEST);
    unsigned char *in = memory_of((size_t)MANY * LARGEST);
    baton_schedule_t *schedule;
    must(NULL, baton_schedule_create(group, "many", &schedule));
    baton_buffer_t from =
        baton_buffer_bind(schedule, out, (size_t)MANY * LARGEST);
    baton_buffer_t to = baton_buffer_bind(schedule, in, (size_t)MANY * LARGEST);
    for (size_t i = 0; i < MANY; i++) {
        size_t bytes = SIZES[i % SIZE_COUNT];
        baton_add_send(schedule, (rank + 1) % size,
                       baton_view(from, i * LARGEST, bytes));
        baton_add_recv(schedule, (rank + size - 1) % size,
                       baton_view(to, i * LARGEST, bytes));
    }
    must(NULL, baton_schedule_commit(schedule));
    for (int epoch = 0; epoch < MANY_EPOCHS; epoch++) {
        int before = (rank + size - 1) % size;
        for (size_t i = 0; i < MANY; i++) {
            memset(out + i * LARGEST, (int)i + epoch + rank,
                   SIZES[i % SIZE_COUNT]);
        }
        if (epoch % size == rank) {
            nanosleep(&(struct timespec){0, 3000000}, NULL);
        }
        run_epoch(NULL, schedule);
        for (size_t i = 0; i < MANY; i++) {
            unsigned char expected = (unsigned char)((int)i + epoch + before);
            for (size_t j = 0; j < SIZES[i % SIZE_COUNT]; j++) {
                if (in[i * LARGEST + j] != expected) {
                    die(NULL, "many: wrong data");
                }
            }
        }
    }
    must(NULL, baton_schedule_destroy(schedule));
    free(out);
    free(in);
    return MANY_EPOCHS;
}

/* The host's clock: MPI_Wtime begins anew in each process. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Each rank comes last in turn, and no barrier ends before that rank has begun.
   Only ranks of one host share a clock. */
static int check_barrier(void)
{
    baton_schedule_t *schedule;
    must(NULL, baton_schedule_create(group, "barrier", &schedule));
    baton_barrier_dissemination(schedule);
    must(NULL, baton_schedule_commit(schedule));
    for (int last = 0; last < size; last++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = 0.0;
        if (rank == last) {
            double until = now() + 2e-3;
            while (now() < until) {
            }
            begun = now();
        }
        run_epoch(NULL, schedule);
        double through = now();
        MPI_Bcast(&begun, 1, MPI_DOUBLE, last, MPI_COMM_WORLD);
        if (through < begun) {
            die(NULL, "barrier: through before the last rank had begun");
        }
    }
    must(NULL, baton_schedule_destroy(schedule));
    return size;
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    seed = rank == 0 ? support_seed() : 0;
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);

    baton_engine_t *engine;
    must(NULL, baton_engine_open(NULL, &engine));
    must(NULL, baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    double began = MPI_Wtime();
    check_hosts();
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    int cases = 0;
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        cases += check_builder(builder, &hosts);
    }
    cases += check_many();
    cases += check_barrier();
    if (rank == 0) {
        printf("mpi_dense: %d ranks, %d cases, all right, %.1f s\n", size,
               cases, MPI_Wtime() - began);
    }
    must(NULL, baton_group_destroy(group));
    must(NULL, baton_engine_close(engine));
    MPI_Finalize();
    return 0;
}
