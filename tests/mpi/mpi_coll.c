/* Every builder over MPI, at any number of ranks: exact on integers, the same
   bits on all ranks for floats. Rank 0 prints one line; the exit code is the
   result. */
#include "support/mpi.h"
#include "support/values.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EPOCHS  2
#define WAIT_MS 100000

static int rank, size;
static baton_group_t *group;
static uint64_t seed;

static void *memory_of(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    if (memory == NULL) {
        support_mpi_die("out of memory");
    }
    return memory;
}

static void run_epoch(baton_schedule_t *schedule)
{
    support_mpi_expect(baton_schedule_start(schedule), BATON_OK);
    support_mpi_expect(baton_schedule_wait(schedule, WAIT_MS), BATON_OK);
}

typedef struct allreduce_case {
    baton_allreduce_fn build;
    const char *name;
    support_op_t op;
    baton_dtype_t dtype;
    size_t count;
    size_t chunk_bytes;
    bool in_place;
    bool any_bits;
} allreduce_case_t;

static void fill(void *input, const allreduce_case_t *test, int of,
                 uint64_t stream)
{
    support_random_t random =
        support_random(seed, stream * (uint64_t)size + (uint64_t)of);
    if (test->any_bits) {
        support_fill_bits(input, test->count * baton_dtype_size(test->dtype),
                          &random);
    } else {
        support_fill_exact(input, test->count, test->dtype, test->op, of,
                           &random);
    }
}

/* The expected result: the oracle's, or rank 0's. */
static void expect(void *expected, void *scratch, const allreduce_case_t *test,
                   const void *target, uint64_t stream)
{
    size_t bytes = test->count * baton_dtype_size(test->dtype);
    if (test->any_bits) {
        memcpy(expected, target, bytes);
        MPI_Bcast(expected, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
        return;
    }
    fill(expected, test, 0, stream);
    for (int other = 1; other < size; other++) {
        fill(scratch, test, other, stream);
        support_reduce(expected, scratch, test->count, test->dtype, test->op);
    }
}

static void check(const void *actual, const void *expected,
                  const allreduce_case_t *test, const char *what)
{
    size_t bytes = test->count * baton_dtype_size(test->dtype);
    if (memcmp(actual, expected, bytes) == 0) {
        return;
    }
    char text[200];
    snprintf(text, sizeof(text),
             "%s: wrong %s: %s of %zu %s%s in chunks of %zu bytes", test->name,
             what, support_op(test->op)->name, test->count,
             baton_dtype_name(test->dtype), test->in_place ? ", in place" : "",
             test->chunk_bytes);
    support_mpi_die(text);
}

static void run_case(const allreduce_case_t *test)
{
    static uint64_t stream;
    size_t bytes = test->count * baton_dtype_size(test->dtype);
    void *input = memory_of(bytes), *expected = memory_of(bytes);
    void *target = memory_of(bytes), *source = memory_of(bytes);

    baton_schedule_t *schedule;
    support_mpi_expect(baton_schedule_create(group, test->name, &schedule),
                       BATON_OK);
    baton_allreduce_t args = {
        .size = sizeof(args),
        .target =
            baton_view(baton_buffer_bind(schedule, target, bytes), 0, bytes),
        .dtype = test->dtype,
        .op = support_op(test->op),
        .chunk_bytes = test->chunk_bytes,
    };
    args.source = args.target;
    if (!test->in_place) {
        args.source = baton_view(
            baton_buffer_bind_input(schedule, source, bytes), 0, bytes);
    }
    test->build(schedule, &args);
    support_mpi_expect(baton_schedule_commit(schedule), BATON_OK);
    for (int epoch = 1; epoch <= EPOCHS; epoch++, stream++) {
        fill(input, test, rank, stream);
        memset(target, 0xa5, bytes);
        memcpy(test->in_place ? target : source, input, bytes);
        run_epoch(schedule);
        expect(expected, input, test, target, stream);
        check(target, expected, test, "result");
        if (!test->in_place) {
            fill(input, test, rank, stream);
            check(source, input, test, "source afterwards");
        }
    }
    (void)!baton_schedule_destroy(schedule);
    free(input);
    free(expected);
    free(target);
    free(source);
}

static int check_allreduce(baton_allreduce_fn build, const char *name)
{
    int cases = 0;
    size_t p = (size_t)size;
    /* Empty, fewer than ranks, indivisible, and beyond the eager limit. */
    const size_t counts[] = {0, 1, p - 1, p, p + 1, 1009, 30011};
    allreduce_case_t test = {.build = build, .name = name};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        test.count = counts[i];
        test.dtype = i % 2 == 0 ? BATON_I64 : BATON_U8;
        test.chunk_bytes = i < 5 ? 0 : (size_t)16384 >> (i - 5);
        for (int in_place = 0; in_place < 2; in_place++, cases++) {
            test.in_place = in_place != 0;
            run_case(&test);
        }
    }
    test.count = 1009;
    test.chunk_bytes = 512;
    for (int dtype = 0; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < (int)SUPPORT_OP_COUNT; op++, cases++) {
            test.dtype = (baton_dtype_t)dtype;
            test.op = (support_op_t)op;
            test.in_place = (dtype + op) % 2 == 0;
            test.any_bits = false;
            run_case(&test);
            if (support_is_float(test.dtype)) {
                test.any_bits = true;
                run_case(&test);
                cases++;
            }
        }
    }
    return cases;
}

/* A vector of several default chunks, with any bits. */
static int check_long_vector(void)
{
    allreduce_case_t test = {
        .build = baton_allreduce_ring,
        .name = "ring",
        .dtype = BATON_F32,
        .count = 1000003,
        .any_bits = true,
    };
    run_case(&test);
    test.in_place = true;
    run_case(&test);
    return 2;
}

static int check_broadcast(void)
{
    int cases = 0;
    static const size_t sizes[] = {0, 1, 50001};
    for (int root = 0; root < size; root++) {
        for (size_t i = 0; i < 3; i++, cases++) {
            size_t bytes = sizes[i];
            unsigned char *data = memory_of(bytes);
            baton_schedule_t *schedule;
            support_mpi_expect(
                baton_schedule_create(group, "broadcast", &schedule), BATON_OK);
            baton_broadcast_binomial(
                schedule, root,
                baton_view(baton_buffer_bind(schedule, data, bytes), 0, bytes));
            support_mpi_expect(baton_schedule_commit(schedule), BATON_OK);
            for (size_t epoch = 1; epoch <= EPOCHS; epoch++) {
                for (size_t j = 0; j < bytes; j++) {
                    data[j] = (unsigned char)(rank == root ? j * 7 + epoch : 0);
                }
                run_epoch(schedule);
                for (size_t j = 0; j < bytes; j++) {
                    if (data[j] != (unsigned char)(j * 7 + epoch)) {
                        support_mpi_die("broadcast: wrong data");
                    }
                }
            }
            (void)!baton_schedule_destroy(schedule);
            free(data);
        }
    }
    return cases;
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
    support_mpi_expect(baton_schedule_create(group, "many", &schedule),
                       BATON_OK);
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
    support_mpi_expect(baton_schedule_commit(schedule), BATON_OK);
    for (int epoch = 0; epoch < MANY_EPOCHS; epoch++) {
        int before = (rank + size - 1) % size;
        for (size_t i = 0; i < MANY; i++) {
            memset(out + i * LARGEST, (int)i + epoch + rank,
                   SIZES[i % SIZE_COUNT]);
        }
        if (epoch % size == rank) {
            nanosleep(&(struct timespec){0, 3000000}, NULL);
        }
        run_epoch(schedule);
        for (size_t i = 0; i < MANY; i++) {
            unsigned char expected = (unsigned char)((int)i + epoch + before);
            for (size_t j = 0; j < SIZES[i % SIZE_COUNT]; j++) {
                if (in[i * LARGEST + j] != expected) {
                    support_mpi_die("many: wrong data");
                }
            }
        }
    }
    (void)!baton_schedule_destroy(schedule);
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
    support_mpi_expect(baton_schedule_create(group, "barrier", &schedule),
                       BATON_OK);
    baton_barrier_dissemination(schedule);
    support_mpi_expect(baton_schedule_commit(schedule), BATON_OK);
    for (int last = 0; last < size; last++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = 0.0;
        if (rank == last) {
            double until = now() + 2e-3;
            while (now() < until) {
            }
            begun = now();
        }
        run_epoch(schedule);
        double through = now();
        MPI_Bcast(&begun, 1, MPI_DOUBLE, last, MPI_COMM_WORLD);
        if (through < begun) {
            support_mpi_die("barrier: through before the last rank had begun");
        }
    }
    (void)!baton_schedule_destroy(schedule);
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
    support_mpi_expect(baton_engine_open(NULL, &engine), BATON_OK);
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
                       BATON_OK);
    double began = MPI_Wtime();
    int cases = check_allreduce(baton_allreduce_recursive_doubling,
                                "recursive doubling");
    cases += check_allreduce(baton_allreduce_binomial, "binomial tree");
    cases += check_allreduce(baton_allreduce_ring, "ring");
    cases += check_long_vector();
    cases += check_broadcast();
    cases += check_many();
    cases += check_barrier();
    if (rank == 0) {
        printf("mpi_coll: %d ranks, %d cases, all right, %.1f s\n", size, cases,
               MPI_Wtime() - began);
    }
    support_mpi_expect(baton_group_destroy(group), BATON_OK);
    support_mpi_expect(baton_engine_close(engine), BATON_OK);
    MPI_Finalize();
    return 0;
}
