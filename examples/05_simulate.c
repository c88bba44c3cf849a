/* A builder of your own on ranks that you don't have: how large should the
   blocks of a pipeline be?

       rank 0          rank 1                   rank 2

       send#0 -------> recv#0 --> send#1 -----> recv#0
       send#1 -------> recv#2 --> send#3 -----> recv#1
       send#2 -------> recv#4 --> send#5 -----> recv#2      a block each

   A broadcast along the chain of ranks: block i is on its way to one rank while
   block i + 1 is on its way to the rank before. pipeline() builds one rank's
   part of this picture, in the same way as for a group over MPI. The simulator
   runs the schedules of all ranks, in one process and in virtual time. */
#include <baton/sim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS    256
#define BYTES    ((size_t)1 << 20)
#define ALPHA_US 1.5  /* time of each message, of any size */
#define BETA_NS  0.08 /* time of each byte: 100 Gbit/s */

static void pipeline(void *arg, baton_schedule_t *s)
{
    const size_t *block = arg;
    int rank = baton_schedule_rank(s);
    int last = baton_schedule_size(s) - 1;
    baton_buffer_t data = baton_buffer_scratch(s, BYTES);
    for (size_t offset = 0; offset < BYTES; offset += *block) {
        baton_view_t view = baton_view(data, offset, *block);
        baton_node_t recv = {0};
        if (rank > 0) {
            recv = baton_add_recv(s, rank - 1, view);
        }
        if (rank < last) {
            baton_node_t send = baton_add_send(s, rank + 1, view);
            if (rank > 0) {
                baton_before(s, recv, send);
            }
        }
    }
}

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        exit(1);
    }
}

int main(void)
{
    int wrong = 0;
    printf("broadcast of %zu bytes along a chain of %d ranks\n", BYTES, RANKS);
    for (size_t block = BYTES; block >= 1024; block /= 4) {
        baton_sim_options_t options = BATON_SIM_OPTIONS;
        options.ranks = RANKS;
        options.cost_only = true; /* compute times only, move no data */
        options.link.alpha_us = ALPHA_US;
        options.link.beta_ns = BETA_NS;

        baton_sim_t *sim;
        double us;
        must(baton_sim_create(&options, &sim));
        must(baton_sim_build(sim, "pipeline", pipeline, &block));
        must(baton_sim_epoch(sim, &us));
        must(baton_sim_destroy(sim));
        printf("  blocks of %7zu bytes: %9.1f us\n", block, us);

        /* Rank 0 sends the last block after all other blocks. The block then
           needs one transfer to reach each rank after rank 0, the last of them
           at the end of the chain. */
        size_t transfers = BYTES / block - 1 + RANKS - 1;
        double expected =
            (double)transfers * (ALPHA_US + (double)block * BETA_NS / 1e3);
        wrong += fabs(us - expected) > 1e-9 * expected;
    }
    return wrong == 0 ? 0 : 1;
}
