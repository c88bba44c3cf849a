/* A program outside Baton's tree, to test what is installed. It reduces one
   array into another, alone, and says which MPI it is linked with.

       start --> reduce: total = left + right                            */
#include <baton/build.h>
#include <baton/engine.h>
#include <baton/inproc.h>
#include <baton/mpi.h>
#include <stdio.h>

#define CHECK(call)                                                            \
    do {                                                                       \
        if ((call) != BATON_OK) {                                              \
            fprintf(stderr, "%s: %s\n", #call, baton_error_message());         \
            return 1;                                                          \
        }                                                                      \
    } while (0)

int main(void)
{
    const int32_t left[3] = {1, 2, 3};
    const int32_t right[3] = {10, 20, 30};
    int32_t total[3] = {0};
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    baton_engine_t *engine = NULL;
    baton_group_t *group = NULL;
    baton_schedule_t *s = NULL;

    CHECK(baton_engine_open(NULL, &engine));
    CHECK(baton_group_create_self(engine, &group));
    CHECK(baton_schedule_create(group, "consumer", &s));
    baton_buffer_t a = baton_buffer_bind_input(s, left, sizeof left);
    baton_buffer_t b = baton_buffer_bind_input(s, right, sizeof right);
    baton_buffer_t sum = baton_buffer_bind(s, total, sizeof total);
    baton_add_reduce_local(
        s, BATON_I32, BATON_SUM, baton_view(sum, 0, sizeof total),
        baton_view(a, 0, sizeof left), baton_view(b, 0, sizeof right));
    CHECK(baton_schedule_commit(s));
    CHECK(baton_schedule_start(s));
    CHECK(baton_schedule_wait(s, -1));
    (void)!baton_schedule_destroy(s);
    CHECK(baton_group_destroy(group));
    CHECK(baton_engine_close(engine));

    MPI_Get_library_version(mpi, &length);
    printf("baton %s, %.17s: %d %d %d\n", baton_version(), mpi, total[0],
           total[1], total[2]);
    return total[0] == 11 && total[1] == 22 && total[2] == 33 ? 0 : 1;
}
