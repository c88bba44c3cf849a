/* Two ranks add up their vectors.

       mpirun -np 2 ./02_two_ranks

       rank 0                                   rank 1

       send#1 -----------------.   .----------- send#1
                                \ /
                                 X
                                / \
       recv#0 <----------------'   '----------> recv#0
          |                                        |
          v                                        v
       sum#2 = mine + theirs                    sum#2 = mine + theirs

   Sends and receives are matched in the order in which they were added: the
   first send that rank 0 adds to rank 1 meets the first receive that rank 1
   adds from rank 0. There is no edge between a rank's send and its receive, so
   both run at the same time. The edge from the receive to the sum makes the sum
   wait for the vector that it adds. */
#include <baton/build.h>
#include <baton/mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    /* The engine has a thread that calls MPI at the same time as this thread
       does, so the program asks for MPI_THREAD_MULTIPLE. */
    int level, ranks;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) {
        fprintf(stderr, "run it on two ranks: mpirun -np 2 %s\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *exchange;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    must(baton_schedule_create(group, "exchange", &exchange));
    int rank = baton_group_rank(group);
    int peer = 1 - rank;

    static double mine[COUNT], sum[COUNT];
    size_t n = sizeof(mine);
    baton_view_t my_view =
        baton_view(baton_buffer_bind_input(exchange, mine, n), 0, n);
    baton_view_t sum_view =
        baton_view(baton_buffer_bind(exchange, sum, n), 0, n);
    baton_view_t theirs = baton_view(baton_buffer_scratch(exchange, n), 0, n);

    baton_node_t recv = baton_add_recv(exchange, peer, theirs);
    baton_add_send(exchange, peer, my_view);
    baton_node_t add = baton_add_reduce_local(exchange, BATON_F64, BATON_SUM,
                                              sum_view, my_view, theirs);
    baton_before(exchange, recv, add);
    must(baton_schedule_commit(exchange));

    int wrong = 0;
    for (int epoch = 1; epoch <= 3; epoch++) {
        for (int i = 0; i < COUNT; i++) {
            mine[i] = epoch * (rank == 0 ? i : 1000);
        }
        must(baton_schedule_start(exchange));
        /* A program can compute here, while the engine sends and receives. */
        must(baton_schedule_wait(exchange, -1));
        for (int i = 0; i < COUNT; i++) {
            wrong += sum[i] != epoch * (i + 1000);
        }
        printf("rank %d epoch %d: sum[7] = %g\n", rank, epoch, sum[7]);
    }

    must(baton_schedule_destroy(exchange));
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}
