/* baton-bench sparse: a step of each sparse all-reduce, selection included,
   beside a dense all-reduce by Baton and by MPI. All systems take turns, so
   they see the same states of the machine. */
#include "bench/bench.h"
#include "bench/report.h"
#include "common/cli.h"
#include "common/harness.h"

#include <baton/sparse.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#define DENSITY 0.01

enum { MPI_DENSE = BATON_SPARSE_COUNT, SYSTEMS, WARM_UP = 2 };

typedef struct contest {
    const harness_t *harness;
    size_t count;
    float *gradient, *sum;
    baton_sparse_t *systems[BATON_SPARSE_COUNT]; /* by algorithm */
    double *times[SYSTEMS];
} contest_t;

/* Sums of uniform numbers: a bell, as gradients have. */
static void fill(float *gradient, size_t count, int rank)
{
    uint64_t state = 88172645463325252u + (uint64_t)rank;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += (double)(state >> 11) / (double)(UINT64_C(1) << 53);
        }
        gradient[i] = (float)(sum - 2);
    }
}

static void open_contest(contest_t *contest, const harness_t *harness,
                         size_t count, size_t repetitions)
{
    *contest = (contest_t){.harness = harness, .count = count};
    contest->gradient = harness_alloc(count, sizeof(float));
    contest->sum = harness_alloc(count, sizeof(float));
    fill(contest->gradient, count, harness->rank);
    for (int i = BATON_SPARSE_SPARDL; i < SYSTEMS; i++) {
        contest->times[i] = harness_alloc(repetitions, sizeof(double));
    }
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_COUNT; i++) {
        baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
        options.algorithm = (baton_sparse_algorithm_t)i;
        options.count = count;
        options.density = DENSITY;
        harness_require(baton_sparse_create(harness->group, &options, -1,
                                            &contest->systems[i]),
                        "create a sparse all-reduce");
    }
}

static void close_contest(contest_t *contest)
{
    for (int i = BATON_SPARSE_SPARDL; i < SYSTEMS; i++) {
        if (i < BATON_SPARSE_COUNT) {
            harness_require(baton_sparse_destroy(contest->systems[i]),
                            "destroy a sparse all-reduce");
        }
        free(contest->times[i]);
    }
    free(contest->gradient);
    free(contest->sum);
}

static void take_turn(contest_t *contest, int system)
{
    if (system == MPI_DENSE) {
        MPI_Allreduce(contest->gradient, contest->sum, (int)contest->count,
                      MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
    }
    baton_sparse_result_t result;
    harness_require(
        baton_sparse_start(contest->systems[system], contest->gradient),
        "start a step");
    harness_require(baton_sparse_wait(contest->systems[system], -1, &result),
                    "wait for a step");
    if (result.count == 0) {
        harness_require(BATON_ERR_FAILED, "get a result that is not empty");
    }
}

static void measure(contest_t *contest, size_t repetitions)
{
    for (size_t turn = 0; turn < repetitions + WARM_UP; turn++) {
        for (int i = BATON_SPARSE_SPARDL; i < SYSTEMS; i++) {
            harness_barrier(contest->harness);
            double begin_us = clock_now_us();
            take_turn(contest, i);
            if (turn >= WARM_UP) {
                contest->times[i][turn - WARM_UP] = clock_now_us() - begin_us;
            }
        }
    }
}

static void report_system(contest_t *contest, int system, size_t repetitions,
                          bench_report_t *report)
{
    double *slowest = harness_alloc(repetitions, sizeof(double));
    MPI_Reduce(contest->times[system], slowest, (int)repetitions, MPI_DOUBLE,
               MPI_MAX, 0, MPI_COMM_WORLD);
    const char *word =
        system == MPI_DENSE
            ? "mpi_allreduce"
            : baton_sparse_algorithm_name((baton_sparse_algorithm_t)system);
    char name[64], text[160], size[16];
    (void)cli_format_bytes(contest->count * sizeof(float), size, sizeof size);
    (void)snprintf(name, sizeof name, "sparse_%s_%s", word, size);
    (void)snprintf(text, sizeof text, "%s of %s bytes", word, size);
    bench_report_add(report, name, text, bench_value(slowest, repetitions),
                     "us");
    free(slowest);
    if (system == MPI_DENSE || system == BATON_SPARSE_DENSE) {
        return;
    }
    baton_sparse_stats_t stats;
    harness_require(baton_sparse_stats(contest->systems[system], &stats),
                    "get statistics");
    (void)snprintf(text, sizeof text,
                   "    sends %llu messages, %llu bytes; %u rounds; %llu "
                   "entries",
                   (unsigned long long)stats.messages_sent,
                   (unsigned long long)stats.bytes_sent, stats.rounds,
                   (unsigned long long)stats.nnz);
    bench_report_note(report, text);
}

int bench_sparse(const bench_options_t *options, FILE *json)
{
    harness_t harness;
    harness_open(&harness);
    bench_report_t report =
        bench_report_begin(harness.rank, harness.size, json);
    size_t repetitions = (size_t)options->repetitions;
    if (report.speak) {
        (void)printf("baton-bench sparse: a step of f32 at density %g by %d "
                     "ranks; its time is the slowest rank's\n",
                     DENSITY, harness.size);
    }
    for (size_t i = 0; i < options->size_count; i++) {
        contest_t contest;
        open_contest(&contest, &harness,
                     (size_t)(options->bytes[i] / sizeof(float)), repetitions);
        measure(&contest, repetitions);
        for (int system = BATON_SPARSE_SPARDL; system < SYSTEMS; system++) {
            report_system(&contest, system, repetitions, &report);
        }
        close_contest(&contest);
    }
    bench_report_end(&report);
    harness_close(&harness);
    return 0;
}
