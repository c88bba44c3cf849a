/* baton-bench: measures the costs of Baton's parts. See `baton-bench
   --help`. */
#include "bench/bench.h"
#include <inttypes.h>
#include <stdlib.h>

/* The exit status if there is no GPU. */
enum { NO_GPU = 77 };

static const bench_t *bench_find(bench_command_t command)
{
    static const bench_t *const benches[] = {&bench_collective, &bench_sparse,
                                             &bench_engine, &bench_kernels};
    size_t i = 0;
    while (benches[i]->command != command) {
        i++;
    }
    return benches[i];
}

static bool bench_measure(bench_run_t *run, const bench_t *bench,
                          const char *name)
{
    steal_t before = steal_read();
    harness_open(&run->harness, run->options.memory == BENCH_MEMORY_DEVICE
                                    ? bench_device.attach
                                    : NULL);
    if (run->speak) {
        (void)printf("# %s, %d ranks, %" PRIu64 " turns of the slowest rank: "
                     "%s\n",
                     name, run->harness.size, run->options.repetitions,
                     bench->what);
    }
    progress_begin();
    bool passed = bench->run(run);
    if (run->speak) {
        (void)printf("# CPU steal: %.1f %%\n",
                     100 * steal_share(before, steal_read()));
    }
    harness_barrier(&run->harness);
    harness_close(&run->harness);
    return passed;
}

static int run_bench(bench_run_t *run, bench_command_t command,
                     const char *name)
{
    const bench_t *bench = bench_find(command);
    if (run->options.memory == BENCH_MEMORY_DEVICE) {
        const char *reason = bench_device.lacks();
        if (reason != NULL && run->speak) {
            (void)fprintf(stderr, "baton-bench: --memory device: %s\n", reason);
        }
        if (!harness_agree(reason == NULL)) {
            return NO_GPU;
        }
    }
    if (!harness_agree(!run->speak ||
                       table_open(&run->table, &run->options.files))) {
        return EXIT_FAILURE;
    }
    bool passed = bench_measure(run, bench, name);
    if (run->speak) {
        passed = table_close(&run->table, passed);
    }
    return harness_agree(passed) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static bench_run_t run; /* too large for a stack */
    bench_command_t command = BENCH_NO_COMMAND;
    int level = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    run.speak = rank == 0;
    cli_verdict_t verdict =
        bench_options_parse(argc, argv, run.speak, &command, &run.options);
    int status = verdict == CLI_DONE ? EXIT_SUCCESS : EXIT_FAILURE;
    if (verdict == CLI_RUN) {
        status = run_bench(&run, command, argv[1]);
    }
    MPI_Finalize();
    return status;
}
