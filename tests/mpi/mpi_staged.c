/* Messages of device memory over MPI: the conformance suite, with an emulated
   device in each process; and all-reduces of device buffers, of sizes around
   those of blocks and buffers. Devices of different processes have no kin here,
   so that all data pass through the host, but for messages of a rank to itself.
 */
#include "base/config.h"
#include "support/conformance_device.h"
#include "support/mpi.h"
#include "transport/mpi/endpoint.h"

#include <baton/tuning.h>

#include <sched.h>
#include <stdlib.h>

static conformance_rank_t self;

static bool yield(conformance_rank_t *rank)
{
    sched_yield();
    return rank->failure[0] == '\0';
}

/* ---- the suite ---------------------------------------------------------- */

static void run_case(const conformance_case_t *test,
                     const conformance_staging_t *staging)
{
    support_mpi_ok(baton__mpi_open(MPI_COMM_WORLD, BATON_OK, &self.transport,
                                   &self.endpoint));
    support_mpi_check(conformance_stage(&self, staging), test->name);
    conformance_run(test, &self);
    support_mpi_check(self.failure[0] == '\0', self.failure);
    self.transport->close(self.endpoint);
    const char *wrong = conformance_close_device(&self);
    support_mpi_check(wrong == NULL, wrong != NULL ? wrong : "");
}

/* ---- all-reduces ----------------------------------------------------------
 */

enum { BLOCK = 4096, BUFFERS = 3 };

/* Whole numbers, whose sums are exact. */
static float element(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 101);
}

static void check_sums(emulated_t *device, const void *memory, size_t count,
                       const char *name)
{
    float *got = malloc(count * sizeof *got + 1);
    emulated_read(device, got, memory, count * sizeof *got);
    bool right = true;
    for (size_t i = 0; i < count && right; i++) {
        float sum = 0;
        for (int rank = 0; rank < self.size; rank++) {
            sum += element(rank, i);
        }
        right = got[i] == sum;
    }
    support_mpi_check(right, name);
    free(got);
}

static void run_allreduce(baton_group_t *group, emulated_t *device,
                          const char *algorithm, size_t count)
{
    size_t bytes = count * sizeof(float);
    float *data = malloc(bytes);
    void *memory = emulated_allocate(device, bytes);
    baton_schedule_t *schedule = NULL;
    support_mpi_ok(baton_schedule_create(group, algorithm, &schedule));
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, bytes);
    baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
    baton_allreduce_t args = BATON_ALLREDUCE;
    args.source = args.target = baton_view(buffer, 0, bytes);
    args.dtype = BATON_F32;
    args.op = BATON_SUM;
    args.algorithm = algorithm;
    baton_allreduce(schedule, &args);
    support_mpi_ok(baton_schedule_commit(schedule));
    for (int epoch = 0; epoch < 3; epoch++) {
        for (size_t i = 0; i < count; i++) {
            data[i] = element(self.rank, i);
        }
        emulated_write(device, memory, data, bytes);
        support_mpi_ok(baton_schedule_start(schedule));
        support_mpi_ok(baton_schedule_wait(schedule, 60000));
        check_sums(device, memory, count, algorithm);
    }
    support_mpi_ok(baton_schedule_destroy(schedule));
    emulated_release(device, memory);
    free(data);
}

static void run_allreduces(baton_progress_t progress)
{
    static const char *const algorithms[] = {"ring", "recursive_doubling",
                                             "linear_pipeline", "binomial"};
    static const size_t sizes[] = {
        4, BLOCK - 4, BLOCK, BLOCK + 4, BLOCK * BUFFERS, 10 * BLOCK * BUFFERS};
    const emulated_options_t device_options = {
        .seed = self.seed + (uint64_t)self.rank, .delay_us = 5, .workers = 1};
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    baton_engine_t *engine = NULL;
    baton_group_t *group = NULL;
    emulated_t *device = emulated_open(&device_options);
    options.progress = progress;
    support_mpi_ok(baton_engine_open(&options, &engine));
    support_mpi_ok(
        baton_engine_attach_device(engine, emulated_port(device), device));
    support_mpi_ok(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            run_allreduce(group, device, algorithms[a],
                          sizes[i] / sizeof(float));
        }
    }
    support_mpi_check(self.size == 1 || emulated_counters(device).foreign == 0,
                      "devices of different processes have no kin");
    support_mpi_check(emulated_counters(device).unpinned == 0,
                      "all host memory of copies is pinned");
    support_mpi_ok(baton_group_destroy(group));
    support_mpi_ok(baton_engine_close(engine));
}

/* ---- MPI that knows devices -----------------------------------------------
 */

/* MPI is left to take what it pulls from other hosts, if it says that it can,
   or the user does. */
static void ask_for_gpu_aware_mpi(const char *word, bool expected)
{
    setenv("BATON_GPU_AWARE_MPI", word, 1);
    baton__config_forget();
    support_mpi_ok(baton__mpi_open(MPI_COMM_WORLD, BATON_OK, &self.transport,
                                   &self.endpoint));
    for (int peer = 0; peer < self.size; peer++) {
        bool far = ((const baton__mpi_t *)self.endpoint)->peers[peer].near < 0;
        support_mpi_check(
            self.transport->takes_device(self.endpoint, peer, 1 << 20) ==
                (expected && far),
            "takes_device of a long message");
        support_mpi_check(
            !self.transport->takes_device(self.endpoint, peer, 4096),
            "takes_device of a short message");
    }
    self.transport->close(self.endpoint);
    unsetenv("BATON_GPU_AWARE_MPI");
    baton__config_forget();
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    self.rank = world.rank;
    self.size = world.size;
    self.seed = world.seed;
    self.yield = yield;
    self.sleeps = true;
    for (int i = 0; i < CONFORMANCE_CASES; i++) {
        run_case(&conformance_cases[i],
                 &conformance_stagings[CONFORMANCE_STAGED_BLOCKS]);
        run_case(&conformance_cases[i],
                 &conformance_stagings[CONFORMANCE_STAGED_MIXED]);
    }
    setenv("BATON_DEVICE_BLOCK", "4096", 1);
    setenv("BATON_DEVICE_BUFFERS", "3", 1);
    baton__config_forget();
    run_allreduces(BATON_PROGRESS_MANUAL);
    run_allreduces(BATON_PROGRESS_THREAD);
    ask_for_gpu_aware_mpi("1", true);
    ask_for_gpu_aware_mpi("0", false);
    support_mpi_end();
    return 0;
}
