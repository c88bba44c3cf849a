/* A DAG of four nodes in one process, run three times: 2x + y * y.

       double#0: left = x + x   ----+
                                    +---> add#2: z = left + right ---> print#3
       square#1: right = y * y  ----+

   Nodes run in any order, except that an edge makes its second node wait for
   its first. The schedule is built and checked once. After that an epoch (one
   execution) takes a start and a wait. */
#include <baton/build.h>
#include <baton/inproc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        exit(1);
    }
}

/* The engine calls this function when the call node print#3 runs, once in each
   epoch. baton_call_epoch returns the number of the epoch. */
static baton_status_t print(void *arg, baton_call_t *call)
{
    const float *z = arg;
    printf("epoch %" PRIu64 ": z = %g %g\n", baton_call_epoch(call), z[0],
           z[1]);
    return BATON_OK;
}

int main(void)
{
    baton_engine_t *engine;
    baton_group_t *self;
    baton_schedule_t *dag;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_self(engine, &self));
    must(baton_schedule_create(self, "dag", &dag));

    /* A node's operands are views, and a view is a part of a buffer. A buffer
       is memory of yours, or scratch memory that the schedule allocates. */
    float x[2], y[2], z[2];
    size_t n = sizeof(x);
    baton_view_t in_x = baton_view(baton_buffer_bind_input(dag, x, n), 0, n);
    baton_view_t in_y = baton_view(baton_buffer_bind_input(dag, y, n), 0, n);
    baton_view_t out = baton_view(baton_buffer_bind(dag, z, n), 0, n);
    baton_buffer_t scratch = baton_buffer_scratch(dag, 2 * n);
    baton_view_t left = baton_view(scratch, 0, n);
    baton_view_t right = baton_view(scratch, n, n);

    baton_node_t twice =
        baton_add_reduce_local(dag, BATON_F32, BATON_SUM, left, in_x, in_x);
    baton_node_t square =
        baton_add_reduce_local(dag, BATON_F32, BATON_PROD, right, in_y, in_y);
    baton_node_t add =
        baton_add_reduce_local(dag, BATON_F32, BATON_SUM, out, left, right);
    baton_node_t show = baton_add_call(dag, print, z);
    baton_before(dag, twice, add);
    baton_before(dag, square, add);
    baton_before(dag, add, show);
    must(baton_schedule_commit(dag));

    int wrong = 0;
    for (int i = 1; i <= 3; i++) {
        x[0] = y[0] = (float)i;
        x[1] = y[1] = (float)i / 2;
        must(baton_schedule_start(dag));
        must(baton_schedule_wait(dag, -1));
        wrong += z[0] != 2 * x[0] + y[0] * y[0];
        wrong += z[1] != 2 * x[1] + y[1] * y[1];
    }

    must(baton_schedule_destroy(dag));
    must(baton_group_destroy(self));
    must(baton_engine_close(engine));
    return wrong == 0 ? 0 : 1;
}
