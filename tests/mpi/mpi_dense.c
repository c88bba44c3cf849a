/* Every dense builder over MPI, on any number of ranks, with every element type
   and with odd counts, in place and not. Results must be right to the last bit.
   Rank 0 prints one line. The exit code is the result. */
#include "support/dense_data.h"
#include "support/mpi.h"

#include <stdlib.h>
#include <string.h>

enum { EPOCHS = 2 };

static uint64_t stream;

static void *memory_of(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);
    support_mpi_check(memory != NULL, "out of memory");
    return memory;
}

static void run_case(const dense_case_t *c, support_op_t op)
{
    int rank = world.rank;
    support_mpi_running = dense_text(c);
    size_t room = dense_room(c, rank) * c->element + 1;
    void *source = memory_of(room);
    void *target = memory_of(room);
    baton_schedule_t *schedule = NULL;
    support_mpi_ok(
        baton_schedule_create(world.group, c->builder->name, &schedule));
    dense_build(c, schedule, source, target);
    support_mpi_ok(baton_schedule_commit(schedule));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        dense_data_t data = {c, op, world.seed, stream++};
        dense_fill(&data, rank, dense_input(c, rank, source, target));
        support_mpi_run(schedule);
        support_mpi_check(
            dense_is_right(&data, rank, dense_output(c, rank, source, target)),
            "wrong result");
        support_mpi_check(!dense_keeps_source(c, rank) ||
                              dense_is_untouched(&data, rank, source),
                          "source was written");
    }
    support_mpi_ok(baton_schedule_destroy(schedule));
    free(source);
    free(target);
}

/* Tests a builder with every type and operation, with empty, short, indivisible
   and long vectors (which exceed a packet), in place and not, and from any
   root. Ranks are divided into hosts of three, or into the group's own hosts if
   chunks are short. */
static void check_builder(const dense_builder_t *builder, baton_hosts_t *hosts)
{
    static const size_t counts[] = {0, 1, 7, 1009, 30011};
    for (int i = 1; i < (int)BATON_DTYPE_COUNT; i++) {
        support_op_t op = dense_op_for(builder, (baton_dtype_t)i, (size_t)i);
        dense_case_t c = {.builder = builder,
                          .size = world.size,
                          .root = i % world.size,
                          .count = counts[i % 5],
                          .dtype = (baton_dtype_t)i,
                          .element = baton_dtype_size((baton_dtype_t)i),
                          .op = support_op(op),
                          .varied = dense_can_vary(builder) && i % 3 == 1,
                          .in_place = i % 2 == 0,
                          .chunk_bytes = i % 4 == 3 ? 256 : 0,
                          .arg = i % 4 == 3 ? NULL : hosts};
        c.chunk_bytes = i % 5 == 4 ? 16384 : c.chunk_bytes;
        if (builder->algorithm.collective == BATON_COLLECTIVE_ALLTOALL ||
            c.varied) {
            c.count /= 8;
        }
        run_case(&c, op);
    }
}

/* Checks that the group and MPI agree on which ranks share a host. */
static void check_hosts(void)
{
    MPI_Comm near;
    int lowest = world.rank;
    int *all = malloc((size_t)world.size * sizeof *all);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &near);
    MPI_Bcast(&lowest, 1, MPI_INT, 0, near);
    MPI_Comm_free(&near);
    MPI_Allgather(&lowest, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    baton_schedule_t *schedule = NULL;
    support_mpi_ok(baton_schedule_create(world.group, "hosts", &schedule));
    int hosts = baton_schedule_hosts(schedule);
    int block = baton_schedule_host_block(schedule);
    int leaders = 0;
    for (int i = 0; i < world.size; i++) {
        int host = baton_schedule_host_of(schedule, i);
        leaders += all[i] == i;
        if (host != baton_schedule_host_of(schedule, all[i]) ||
            (all[i] == i && host != leaders - 1) ||
            (block > 0 && host != i / block)) {
            support_mpi_die("a rank is on another host");
        }
    }
    support_mpi_check(leaders == hosts, "the number of hosts");
    support_mpi_ok(baton_schedule_destroy(schedule));
    free(all);
}

int main(int argc, char **argv)
{
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    const dense_builder_t *builder;
    support_mpi_begin(argc, argv);
    support_mpi_open();
    support_mpi_running = "hosts";
    check_hosts();
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        check_builder(builder, &hosts);
    }
    support_mpi_end();
    return 0;
}
