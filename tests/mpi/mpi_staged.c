/* Messages of device memory over MPI: random programs (support/program.h), with
   an emulated device in each process. A device can't access the memory of
   another process here. So all data pass through main memory, except in
   messages from a rank to itself. (test_conformance runs the conformance suite
   over a fake MPI.) */
#include "support/cmocka.h"
#include "support/device_program.h"
#include "support/mpi.h"
#include "support/values.h"
#include "transport/mpi/endpoint.h"
#include "transport/mpi/over_mpi.h"

#include <baton/engine.h>

enum { TRIALS = 40, EPOCHS = 4, PART_BYTES = 30000, PROGRAMS = 2 };

/* A program on this rank, and the reference, which computes the memory of all
   ranks. */
typedef struct run {
    program_t program;
    device_program_t own;
    unsigned char *memory;
    baton_schedule_t *schedule;
} run_t;

static void check_slots(const device_program_t *own, unsigned char *memory)
{
    for (int slot = 0; slot < PROGRAM_SLOTS; slot++) {
        support_mpi_check(
            device_program_holds(
                own, slot,
                program_slot(own->part.program, memory, world.rank, slot)),
            "a slot is wrong");
    }
}

static void open_program(run_t *run, baton_group_t *group, emulated_t *device,
                         support_random_t *random)
{
    const program_options_t options = {.ranks = world.size,
                                       .part_bytes = PART_BYTES,
                                       .devices = true,
                                       .async = true};
    program_t *program = &run->program;
    program_sample(program, &options, random);
    run->memory = malloc(program_bytes(program) + 1);
    support_mpi_check(run->memory != NULL, "no memory");
    support_fill_bits(run->memory, program_bytes(program), random);
    device_program_open(&run->own, program, world.rank, device);
    for (int slot = 0; slot < PROGRAM_SLOTS; slot++) {
        device_program_write(
            &run->own, slot,
            program_slot(program, run->memory, world.rank, slot));
    }
    support_mpi_ok(
        baton_schedule_create(group, "random program", &run->schedule));
    program_build(&run->own.part, run->schedule);
    support_mpi_ok(baton_schedule_commit(run->schedule));
}

static void close_program(run_t *run)
{
    support_mpi_ok(baton_schedule_destroy(run->schedule));
    device_program_close(&run->own);
    free(run->memory);
}

/* Runs programs side by side. Each epoch is started at once, or in the order of
   a stream, which may be late. */
static void run_together(baton_group_t *group, emulated_t *device,
                         baton_stream_t stream, uint64_t trial)
{
    static run_t runs[PROGRAMS];
    support_random_t random = support_random(world.seed, trial);
    for (int i = 0; i < PROGRAMS; i++) {
        open_program(&runs[i], group, device, &random);
    }
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        for (int i = 0; i < PROGRAMS; i++) {
            baton_schedule_t *schedule = runs[i].schedule;
            program_run(&runs[i].program, epoch, runs[i].memory);
            if (support_once_in(&random, 2)) {
                support_mpi_ok(baton_schedule_start(schedule));
                continue;
            }
            emulated_delay(device, stream,
                           (int)support_random_below(&random, 300));
            support_mpi_ok(baton_schedule_start_on(schedule, stream));
            support_mpi_ok(baton_schedule_wait_on(schedule, stream));
        }
        for (int i = 0; i < PROGRAMS; i++) {
            support_mpi_ok(
                baton_schedule_wait(runs[i].schedule, SUPPORT_MPI_WAIT_MS));
            check_slots(&runs[i].own, runs[i].memory);
        }
    }
    emulated_synchronise(device, stream);
    for (int i = 0; i < PROGRAMS; i++) {
        close_program(&runs[i]);
    }
}

static void run_programs(baton_progress_t progress, const char *block)
{
    const emulated_options_t device_options = {
        .seed = world.seed + (uint64_t)world.rank, .delay_us = 5, .workers = 1};
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    baton_engine_t *engine = NULL;
    baton_group_t *group = NULL;
    emulated_t *device = emulated_open(&device_options);
    support_set_variable("BATON_DEVICE_BLOCK", block);
    support_set_variable("BATON_DEVICE_BUFFERS", "3");
    options.progress = progress;
    support_mpi_ok(baton_engine_open(&options, &engine));
    support_mpi_ok(
        baton_engine_attach_device(engine, emulated_port(device), device));
    support_mpi_ok(support_mpi_group(engine, MPI_COMM_WORLD, &group));
    baton_stream_t stream = emulated_stream(device);
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        run_together(group, device, stream, trial);
    }
    support_mpi_check(emulated_counters(device).foreign == 0,
                      "devices of different processes have no kin");
    support_mpi_ok(baton_group_destroy(group));
    support_mpi_ok(baton_engine_close(engine));
}

/* A receiver pulls a long message from another host, by asking for its data.
   MPI transfers pulled messages in device memory if it says that it accepts
   device memory, or if the user says so. */
static void ask_for_gpu_aware_mpi(const char *word, bool expected)
{
    baton__bootstrap_mpi_t bootstrap;
    baton__exchange_t exchange;
    baton__mpi_t *mpi = NULL;
    support_set_variable("BATON_GPU_AWARE_MPI", word);
    support_mpi_ok(baton__bootstrap_open_mpi(&bootstrap, MPI_COMM_WORLD));
    support_mpi_ok(baton__exchange_begin(&exchange, &bootstrap.shared));
    support_mpi_ok(baton__mpi_open(&exchange, BATON_OK, &mpi));
    baton__exchange_end(&exchange);
    baton__bootstrap_close_mpi(&bootstrap);
    const baton_transport_t *transport = &mpi->transport;
    for (int peer = 0; peer < world.size; peer++) {
        bool far = mpi->peers[peer].local < 0;
        support_mpi_check(transport->takes_device(mpi, peer, 1 << 20) ==
                              (expected && far),
                          "takes_device of a long message");
        support_mpi_check(!transport->takes_device(mpi, peer, 4096),
                          "takes_device of a short message");
    }
    transport->close(mpi);
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    run_programs(BATON_PROGRESS_MANUAL, "4096");
    run_programs(BATON_PROGRESS_THREAD, "16384");
    ask_for_gpu_aware_mpi("1", true);
    ask_for_gpu_aware_mpi("0", false);
    support_mpi_end();
    return 0;
}
