/* baton-bench: measures the costs of Baton's parts. See `baton-bench
   --help`. */
#include "bench/bench.h"
#include <inttypes.h>
#include <stdlib.h>

/* The exit status if there is no GPU. */
enum { NO_GPU = 77 };

static const struct {
    bool (*run)(bench_run_t *run);
    const char *what; /* the text above the results */
} benches[] = {
    [BENCH_COLLECTIVE] = {bench_collective_run,
                          "us: microseconds a call, the median over turns, "
                          "whose results were checked; best MPI: the time of "
                          "MPI's fastest system divided by this one's"},
    [BENCH_SPARSE] = {bench_sparse_run,
                      "steps of f32, whose results were checked\n# formula: "
                      "bytes, messages and rounds by the closed form; ratio: "
                      "the time divided by mpi_residual's"},
    [BENCH_ENGINE] = {bench_engine_run, "an engine's costs"},
    [BENCH_KERNELS] = {bench_kernels_run,
                       "against us: the time of a plain loop for a sum, of two "
                       "steps for accumulate (which adds and selects in one "
                       "pass), of a copy on a device; ratio: against us "
                       "divided by us, for each byte if more bytes are moved"},
};

static bool bench_measure(bench_run_t *run, const char *name)
{
    const bench_options_t *options = &run->options;
    steal_t before = steal_read();
    harness_open(&run->harness, options->memory == BENCH_MEMORY_DEVICE
                                    ? bench_device.attach
                                    : NULL);
    if (run->prints) {
        (void)printf("# %s, %d ranks, %" PRIu64 " turns of the slowest rank: "
                     "%s\n",
                     name, run->harness.size, options->repetitions,
                     benches[options->command].what);
    }
    progress_begin();
    bool passed = benches[options->command].run(run);
    if (run->prints) {
        (void)printf("# CPU steal: %.1f %%\n",
                     100 * steal_share(before, steal_read()));
        passed = table_close(&run->table, passed);
    }
    harness_barrier(&run->harness);
    harness_close(&run->harness);
    return harness_agree(passed);
}

int main(int argc, char **argv)
{
    static bench_run_t run; /* too large for a stack */
    harness_begin();
    bench_options_parse(argc, argv, &run.options);
    run.prints = harness_go_on();
    const char *lacks =
        run.options.memory == BENCH_MEMORY_DEVICE ? bench_device.lacks() : NULL;
    if (lacks != NULL && run.prints) {
        (void)fprintf(stderr, "baton-bench: --memory device: %s\n", lacks);
    }
    if (!harness_agree(lacks == NULL)) {
        return NO_GPU;
    }
    return harness_agree(!run.prints ||
                         table_open(&run.table, &run.options.files)) &&
                   bench_measure(&run, argv[1])
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}
