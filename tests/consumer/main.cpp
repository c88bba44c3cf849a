/* Tests what is installed from C++: makes a sum by one call, on all ranks. */
#include <baton/mpi.h>
#include <baton/sparse.h>
#include <cstdio>

int main(int argc, char **argv)
{
    int level = 0;
    int mine[2] = {1, 10};
    int sums[2] = {};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    baton_engine_t *engine = nullptr;
    baton_group_t *group = nullptr;
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    baton_operands_t on = {};
    baton_schedule_t *sum = nullptr;
    on.source = mine;
    on.target = sums;
    on.count = 2;
    on.dtype = BATON_I32;
    on.op = BATON_SUM;
#if __cplusplus >= 202002L
    on = {.source = mine,
          .target = sums,
          .count = 2,
          .dtype = BATON_I32,
          .op = BATON_SUM};
#endif
    bool right =
        baton_engine_open(nullptr, &engine) == BATON_OK &&
        baton_group_create_mpi(engine, MPI_COMM_WORLD, &group) == BATON_OK &&
        baton_allreduce_create(group, &on, &sum) == BATON_OK &&
        baton_schedule_start(sum) == BATON_OK &&
        baton_schedule_wait(sum, -1) == BATON_OK &&
        baton_schedule_destroy(sum) == BATON_OK &&
        baton_group_destroy(group) == BATON_OK &&
        baton_engine_close(engine) == BATON_OK &&
        options.size == sizeof options;
    std::printf("C++ %ld: %d %d %s\n", __cplusplus, sums[0], sums[1],
                right ? "" : baton_error_message());
    MPI_Finalize();
    return right && sums[1] == 10 * sums[0] ? 0 : 1;
}
