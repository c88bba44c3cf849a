/* Messages of device memory over MPI: the conformance suite, with an emulated
   device in each process; and all-reduces of device buffers, of sizes around
   those of blocks and buffers. Devices of different processes have no kin here,
   so that all data pass through the host, but for messages of a rank to itself.
 */
#include "base/config.h"
#include "support/conformance_device.h"
#include "support/random.h"
#include "transport/mpi/endpoint.h"

#include <baton/baton.h>
#include <baton/mpi.h>
#include <baton/tuning.h>

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static conformance_rank_t self;

/* The others would wait for a rank that failed. */
static void require(bool condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "rank %d: failed: %s: %s (seed %" PRIu64 ")\n",
                self.rank, text, baton_error_message(), self.seed);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static bool yield(conformance_rank_t *rank)
{
    sched_yield();
    return rank->failure[0] == '\0';
}

/* ---- the suite ---------------------------------------------------------- */

static void run_case(const conformance_case_t *test,
                     const conformance_staging_t *staging)
{
    require(baton__mpi_open(MPI_COMM_WORLD, BATON_OK, &self.transport,
                            &self.endpoint) == BATON_OK,
            test->name);
    self.rings = ((const baton__mpi_t *)self.endpoint)->far.peers > 0;
    self.synchronous = false;
    require(conformance_stage(&self, staging), test->name);
    conformance_run(test, &self);
    require(self.failure[0] == '\0', self.failure);
    self.transport->close(self.endpoint);
    const char *wrong = conformance_close_device(&self);
    require(wrong == NULL, wrong != NULL ? wrong : "");
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
    require(right, name);
    free(got);
}

static void run_allreduce(baton_group_t *group, emulated_t *device,
                          const char *algorithm, size_t count)
{
    size_t bytes = count * sizeof(float);
    float *data = malloc(bytes);
    void *memory = emulated_allocate(device, bytes);
    baton_schedule_t *schedule = NULL;
    require(baton_schedule_create(group, algorithm, &schedule) == BATON_OK,
            algorithm);
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, bytes);
    baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
    baton_allreduce_t args = BATON_ALLREDUCE;
    args.source = args.target = baton_view(buffer, 0, bytes);
    args.dtype = BATON_F32;
    args.op = BATON_SUM;
    args.algorithm = algorithm;
    baton_allreduce(schedule, &args);
    require(baton_schedule_commit(schedule) == BATON_OK, algorithm);
    for (int epoch = 0; epoch < 3; epoch++) {
        for (size_t i = 0; i < count; i++) {
            data[i] = element(self.rank, i);
        }
        emulated_write(device, memory, data, bytes);
        require(baton_schedule_start(schedule) == BATON_OK, algorithm);
        require(baton_schedule_wait(schedule, 60000) == BATON_OK, algorithm);
        check_sums(device, memory, count, algorithm);
    }
    require(baton_schedule_destroy(schedule) == BATON_OK, algorithm);
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
    require(baton_engine_open(&options, &engine) == BATON_OK, "engine");
    require(baton_engine_attach_device(engine, emulated_port(device), device) ==
                BATON_OK,
            "attach");
    require(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group) == BATON_OK,
            "group");
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            run_allreduce(group, device, algorithms[a],
                          sizes[i] / sizeof(float));
        }
    }
    require(self.size == 1 || emulated_counters(device).foreign == 0,
            "devices of different processes have no kin");
    require(emulated_counters(device).unpinned == 0,
            "all host memory of copies is pinned");
    require(baton_group_destroy(group) == BATON_OK, "destroy");
    require(baton_engine_close(engine) == BATON_OK, "close");
}

/* ---- from host memory ------------------------------------------------------
 */

enum { SHIFTED = 10 * BLOCK * BUFFERS + 7 };

/* Each rank sends host memory to the next one: a message that can't be read in
   place. Every other rank receives it into device memory. */
static void shift(baton_group_t *group, emulated_t *device)
{
    bool to_device = self.rank % 2 == 0;
    int next = (self.rank + 1) % self.size;
    int before = (self.rank + self.size - 1) % self.size;
    char *out = malloc(SHIFTED);
    char *in = malloc(SHIFTED);
    void *memory = emulated_allocate(device, SHIFTED);
    baton_schedule_t *s = NULL;
    require(baton_schedule_create(group, "shift", &s) == BATON_OK, "shift");
    baton_buffer_t from = baton_buffer_bind(s, out, SHIFTED);
    baton_buffer_t to = baton_buffer_bind(s, to_device ? memory : in, SHIFTED);
    if (to_device) {
        baton_buffer_set_memory(s, to, BATON_MEMORY_DEVICE);
    }
    (void)baton_add_send(s, next, baton_view(from, 0, SHIFTED));
    (void)baton_add_recv(s, before, baton_view(to, 0, SHIFTED));
    require(baton_schedule_commit(s) == BATON_OK, "commit");
    for (int epoch = 0; epoch < 3; epoch++) {
        memset(out, self.rank * 16 + epoch, SHIFTED);
        require(baton_schedule_start(s) == BATON_OK, "start");
        require(baton_schedule_wait(s, 60000) == BATON_OK, "wait");
        if (to_device) {
            emulated_read(device, in, memory, SHIFTED);
        }
        for (size_t i = 0; i < SHIFTED; i++) {
            require(in[i] == (char)(before * 16 + epoch), "data");
        }
    }
    require(baton_schedule_destroy(s) == BATON_OK, "destroy");
    emulated_release(device, memory);
    free(out);
    free(in);
}

static void shift_unreadable(void)
{
    const emulated_options_t device_options = {.seed = self.seed};
    baton_engine_t *engine = NULL;
    baton_group_t *group = NULL;
    emulated_t *device = emulated_open(&device_options);
    setenv("BATON_SHM", "0", 1);
    baton__config_forget();
    require(baton_engine_open(NULL, &engine) == BATON_OK, "engine");
    require(baton_engine_attach_device(engine, emulated_port(device), device) ==
                BATON_OK,
            "attach");
    require(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group) == BATON_OK,
            "group");
    shift(group, device);
    require(baton_group_destroy(group) == BATON_OK, "destroy");
    require(baton_engine_close(engine) == BATON_OK, "close");
    unsetenv("BATON_SHM");
    baton__config_forget();
}

/* MPI is left to take what it pulls from other hosts, if it says that it can,
   or the user does. */
static void ask_for_gpu_aware_mpi(const char *word, bool expected)
{
    setenv("BATON_GPU_AWARE_MPI", word, 1);
    baton__config_forget();
    require(baton__mpi_open(MPI_COMM_WORLD, BATON_OK, &self.transport,
                            &self.endpoint) == BATON_OK,
            word);
    for (int peer = 0; peer < self.size; peer++) {
        bool far = ((const baton__mpi_t *)self.endpoint)->peers[peer].near < 0;
        require(self.transport->takes_device(self.endpoint, peer, 1 << 20) ==
                    (expected && far),
                "takes_device of a long message");
        require(!self.transport->takes_device(self.endpoint, peer, 4096),
                "takes_device of a short message");
    }
    self.transport->close(self.endpoint);
    unsetenv("BATON_GPU_AWARE_MPI");
    baton__config_forget();
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &self.size);
    self.yield = yield;
    self.sleeps = true;
    self.seed = self.rank == 0 ? support_seed() : 0;
    MPI_Bcast(&self.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
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
    shift_unreadable();
    ask_for_gpu_aware_mpi("1", true);
    ask_for_gpu_aware_mpi("0", false);
    MPI_Finalize();
    return 0;
}
