/* An all-reduce of your own, from nodes; any number of ranks.

       mpirun -np 4 ./03_own_allreduce

   Partial sums go up the chain of ranks, and the total comes down again:

       rank 0            rank 1            rank 2            rank 3

       send -----------> recv
                          |
                         sum --> send ---> recv
                                            |
                                           sum --> send ---> recv
                                                              |
                                                             sum
                                                              |
                                           recv <----------- send
                                            |
                         recv <----------- send
                          |
       recv <----------- send

   chain_allreduce() builds one rank's part of this picture. It has the
   signature of the library's own builders, so it can be used like them: here by
   a name, and in 04_solo_training.c as the inner all-reduce of a partial one.

   Compiled as a shared object, this file makes the name known to other programs
   and to Baton's commands, too:

       mpicc -shared -fPIC 03_own_allreduce.c -o chain.so \
           $(pkg-config --cflags --libs baton-mpi)
       LD_PRELOAD=./chain.so baton-sim allreduce --algorithm chain --ranks 64
       LD_PRELOAD=./chain.so BATON_ALLREDUCE=chain ./a_program */
#include <baton/coll.h>
#include <baton/mpi.h>
#include <baton/tuning.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static void chain_allreduce(baton_schedule_t *s,
                            const baton_allreduce_args_t *args)
{
    int rank = baton_schedule_rank(s);
    int last = baton_schedule_size(s) - 1;
    size_t n = args->target.bytes;

    /* Up: this rank receives the sum of all lower ranks' vectors, and adds its
       own vector. One operation sets target = incoming + source, so the source
       need not be copied to the target first. Rank 0 has nothing to add, and
       sends its source. */
    baton_view_t partial = args->source;
    baton_node_t ready = baton_add_nop(s);
    if (rank > 0) {
        baton_view_t incoming = baton_view(baton_buffer_scratch(s, n), 0, n);
        baton_node_t recv = baton_add_recv(s, rank - 1, incoming);
        baton_node_t sum = baton_add_reduce_local(
            s, args->dtype, args->op, args->target, incoming, partial);
        baton_before(s, recv, sum);
        partial = args->target;
        ready = sum;
    }

    /* Down: this rank receives the total into the target, which holds the
       partial sum until that is sent. The edge from send to recv orders the
       two. Without it, baton_schedule_commit would refuse the schedule, since
       one node would read the target while another writes it. */
    if (rank < last) {
        baton_node_t send = baton_add_send(s, rank + 1, partial);
        baton_node_t recv = baton_add_recv(s, rank + 1, args->target);
        baton_before(s, ready, send);
        baton_before(s, send, recv);
        ready = recv;
    }
    if (rank > 0) {
        baton_node_t send = baton_add_send(s, rank - 1, args->target);
        baton_before(s, ready, send);
    }
    if (last == 0) {
        baton_add_copy(s, args->target, args->source);
    }
}

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        exit(1);
    }
}

/* Runs when this program, or a shared object of this file, is loaded. */
__attribute__((constructor)) static void add_chain(void)
{
    const baton_algorithm_t chain = {.collective = BATON_COLLECTIVE_ALLREDUCE,
                                     .name = "chain",
                                     .build.allreduce = chain_allreduce,
                                     .ordered = true};
    must(baton_algorithm_add(&chain));
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *chain;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    int rank = baton_group_rank(group);
    int size = baton_group_size(group);

    static int64_t mine[COUNT], total[COUNT];
    must(baton_allreduce_create(group,
                                &(baton_operands_t){.source = mine,
                                                    .target = total,
                                                    .count = COUNT,
                                                    .dtype = BATON_I64,
                                                    .op = BATON_SUM,
                                                    .algorithm = "chain"},
                                &chain));

    int wrong = 0;
    for (int epoch = 1; epoch <= 3; epoch++) {
        for (int i = 0; i < COUNT; i++) {
            mine[i] = i * epoch + rank;
        }
        must(baton_schedule_start(chain));
        must(baton_schedule_wait(chain, -1));
        for (int i = 0; i < COUNT; i++) {
            wrong += total[i] != size * i * epoch + size * (size - 1) / 2;
        }
    }
    if (rank == 0) {
        printf("%d ranks, 3 epochs: total[7] = %d\n", size, (int)total[7]);
    }

    must(baton_schedule_destroy(chain));
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}
