#include "common/harness.h"
#include <baton/mpi.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void fail(const char *doing, const char *why)
{
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)fprintf(stderr, "rank %d: %s: %s\n", rank, doing, why);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    abort(); /* MPI_Abort is not declared noreturn */
}

void harness_require(baton_status_t status, const char *doing)
{
    if (status != BATON_OK) {
        fail(doing, baton_error_message());
    }
}

void *harness_alloc(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        fail("allocate", "out of memory");
    }
    return memory;
}

static void open_side(baton_progress_t progress, harness_side_t *out)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = progress;
    harness_require(baton_engine_open(&options, &out->engine),
                    "open an engine");
    harness_require(
        baton_group_create_mpi(out->engine, MPI_COMM_WORLD, &out->group),
        "create a group");
}

static void close_side(harness_side_t *side)
{
    harness_require(baton_group_destroy(side->group), "destroy a group");
    harness_require(baton_engine_close(side->engine), "close an engine");
}

void harness_open(harness_t *out)
{
    *out = (harness_t){0};
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &out->size);
    open_side(BATON_PROGRESS_DEFAULT, &out->measured);
    open_side(BATON_PROGRESS_MANUAL, &out->own);
    out->group = out->measured.group;
    harness_require(
        baton_schedule_create(out->own.group, "harness/barrier", &out->barrier),
        "create the barrier");
    baton_barrier_dissemination(out->barrier);
    harness_require(baton_schedule_commit(out->barrier), "commit the barrier");
}

void harness_close(harness_t *harness)
{
    (void)!baton_schedule_destroy(harness->barrier);
    close_side(&harness->own);
    close_side(&harness->measured);
}

void harness_barrier(const harness_t *harness)
{
    harness_run_epochs(harness->barrier, 1);
}

void harness_run_epochs(baton_schedule_t *schedule, uint64_t epochs)
{
    for (uint64_t i = 0; i < epochs; i++) {
        harness_require(baton_schedule_start(schedule), "start");
        harness_require(baton_schedule_wait(schedule, -1), "wait");
    }
}

bool harness_agree(bool answer)
{
    int value = answer;
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value != 0;
}

/* ---- clocks ----------------------------------------------------------- */

static double read_clock(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

double clock_now_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double clock_processor_us(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

double clock_thread_us(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void clock_sleep_until(double deadline_us)
{
    double seconds = floor(deadline_us / 1e6);
    struct timespec deadline = {
        .tv_sec = (time_t)seconds,
        .tv_nsec = (long)((deadline_us - seconds * 1e6) * 1e3),
    };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) ==
           EINTR) {
    }
}

/* ---- statistics ------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

void stats_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
}

double stats_percentile(const double *sorted, size_t count, double fraction)
{
    if (count == 0) {
        return 0;
    }
    size_t rank = (size_t)ceil(fraction * (double)count);
    return sorted[rank > 0 ? rank - 1 : 0];
}

double stats_median(double *values, size_t count)
{
    stats_sort(values, count);
    return stats_percentile(values, count, 0.5);
}

double stats_mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return count > 0 ? sum / (double)count : 0;
}
