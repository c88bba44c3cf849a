/* Collectives by one call, over MPI: with long vectors and short ones,
   repeated, completed by the call or started by it. The exit code is the
   result. */
#include "support/cmocka.h"
#include "support/mpi.h"
#include "transport/mpi/packet.h"

#include <baton/build.h>
#include <baton/engine.h>

static void check_sum(const float *x, size_t count)
{
    int ranks = world.size * (world.size + 1) / 2;
    for (size_t i = 0; i < count; i++) {
        float expected = (float)ranks + (float)world.size * (float)(i % 7);
        support_mpi_check(x[i] == expected, "the sum is right");
    }
}

static void fill(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)(world.rank + 1) + (float)(i % 7);
    }
}

static void check_count(size_t count)
{
    float *x = support_alloc(count + 1, sizeof *x);
    float *y = support_alloc(count + 1, sizeof *y);
    baton_schedule_t *sum;
    support_mpi_ok(baton_allreduce_create(world.group,
                                          &(baton_operands_t){
                                              .target = x,
                                              .count = count,
                                              .dtype = BATON_F32,
                                              .op = BATON_SUM,
                                          },
                                          &sum));
    for (int epoch = 0; epoch < 3; epoch++) {
        fill(x, count);
        support_mpi_ok(baton_allreduce_now(world.group, x, y, count, BATON_F32,
                                           BATON_SUM));
        check_sum(y, count);
        support_mpi_run(sum);
        check_sum(x, count);
        support_mpi_ok(
            baton_broadcast_now(world.group, y, count, BATON_F32, 0));
    }
    support_mpi_ok(baton_schedule_destroy(sum));
    free(x);
    free(y);
}

/* Calls of one shape. In each call another rank works in place, and the others
   do not. */
static void check_mixed(void)
{
    int sum = world.size * (world.size + 1) / 2;
    for (int call = 0; call < 2 * world.size; call++) {
        bool in_place = world.rank == call % world.size;
        int x = call + world.rank + 1, y = x;
        support_mpi_ok(baton_allreduce_now(world.group, in_place ? NULL : &x,
                                           &y, 1, BATON_I32, BATON_SUM));
        support_mpi_check(y == sum + world.size * call, "an all-reduce");
        y = x;
        support_mpi_ok(baton_reduce_now(
            world.group, world.rank == 0 && call % 2 == 0 ? NULL : &x,
            world.rank == 0 ? &y : NULL, 1, BATON_I32, BATON_SUM, 0));
        support_mpi_check(world.rank != 0 || y == sum + world.size * call,
                          "a reduce");
    }
}

/* All-reduces with different vectors, started ahead as far as the depth allows.
   The depth differs between ranks. */
static void check_queued(size_t count)
{
    enum { EPOCHS = 50, VECTORS = 8 };
    size_t depth = world.rank % 2 == 0 ? VECTORS : 3;
    float *x = support_alloc(VECTORS * count, sizeof *x);
    float *y = support_alloc(VECTORS * count, sizeof *y);
    baton_schedule_t *sum;
    const baton_operands_t operands = {.source = x,
                                       .target = y,
                                       .count = count,
                                       .dtype = BATON_F32,
                                       .op = BATON_SUM,
                                       .depth = depth};
    support_mpi_ok(baton_allreduce_create(world.group, &operands, &sum));
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        size_t at = epoch % VECTORS * count;
        if (epoch > depth) {
            uint64_t oldest = epoch - depth;
            support_mpi_ok(baton_schedule_wait_epoch(sum, oldest, -1));
            check_sum(y + oldest % VECTORS * count, count);
        }
        fill(x + at, count);
        support_mpi_ok(baton_schedule_rebind(sum, x + at, y + at));
        support_mpi_ok(baton_schedule_start(sum));
    }
    support_mpi_ok(baton_schedule_wait(sum, -1));
    support_mpi_check(baton_schedule_epoch(sum) == EPOCHS, "all have ended");
    check_sum(y + EPOCHS % VECTORS * count, count);
    support_mpi_ok(baton_schedule_destroy(sum));
    free(x);
    free(y);
}

static int warnings;

static void call_the_others(void *arg, baton_log_level_t level,
                            const char *message)
{
    warnings += strstr(message, "has waited") != NULL;
    for (int rank = 0; rank < world.size - 1 && warnings == 1; rank++) {
        MPI_Send(NULL, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD);
    }
}

/* The last rank makes its call first. The other ranks make theirs after the
   last rank has logged a warning. */
static void check_late(void)
{
    const int last = world.size - 1;
    support_mpi_ok(baton_group_destroy(world.group));
    world.group = NULL;
    if (world.rank < last) {
        MPI_Recv(NULL, 0, MPI_BYTE, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        baton_log_set(call_the_others, NULL);
        support_set_variable("BATON_STALL_MS", "1");
    }
    support_mpi_ok(
        baton_group_create_mpi(world.engine, MPI_COMM_WORLD, &world.group));
    baton_log_set(NULL, NULL);
    support_set_variable("BATON_STALL_MS", NULL);
    support_mpi_check(warnings == (world.rank == last && last > 0),
                      "it is said once");
}

/* The version and the wire format that this rank sends in its next exchange, in
   place of its own. */
static const char *version;
static int format;

/* This definition replaces MPI's. MPI's function has a second name,
   MPI_Iallreduce, through which it can still be called. */
int PMPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    char *own = (char *)to + count / world.size * world.rank;
    if (version != NULL) {
        memcpy(own, version, strlen(version) + 1);
        memcpy(own + 12, &format, sizeof format);
    }
    version = NULL;
    return MPI_Iallreduce(from, to, count, type, op, comm, request);
}

/* Pretends that the last rank has loaded a library of another version, or of
   another wire format. */
static void check_versions(const char *last_version, int last_format)
{
    if (world.size == 1) {
        return;
    }
    bool last = world.rank == world.size - 1;
    char other[80];
    baton_group_t *none = NULL;
    version = last ? last_version : NULL;
    format = last_format;
    snprintf(other, sizeof other,
             "rank %d runs Baton %s, wire format %d, and this one, rank ",
             last ? 0 : world.size - 1, last ? baton_version() : last_version,
             last ? BATON__WIRE_FORMAT : last_format);
    support_mpi_expect(
        baton_group_create_mpi(world.engine, MPI_COMM_WORLD, &none),
        BATON_ERR_MISMATCH);
    support_mpi_says(other);
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    support_mpi_open();
    check_late();
    check_versions("9.8.7", BATON__WIRE_FORMAT);
    check_versions(baton_version(), 0); /* older builds send no wire format */
    check_count(0);
    check_count(1);
    check_count(8192);
    check_count(300001);
    check_mixed();
    check_queued(1);
    check_queued(100001);
    support_mpi_ok(baton_barrier_now(world.group));
    support_mpi_end();
    return 0;
}
