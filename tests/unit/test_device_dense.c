/* Every dense builder on device memory, unchanged, on ranks with emulated
   devices of their own, in the order of streams of the user: with staged
   messages, and with those that a peer's device reads itself. */
#include "support/cmocka.h"
#include "support/dense_data.h"
#include "support/device_cluster.h"

#include <string.h>

enum {
    LARGEST = 8,
    EPOCHS = 2,
    COUNT = 5003,
    MOST = (LARGEST + 1) * (COUNT + 1) * 16 + 1 /* blocks vary: 9 of 8 */
};

/* What is copied to each rank's memory and from it. */
static char copies[LARGEST][2 * MOST];

/* A rank's memory: on the device, and what is copied to it and from it. */
typedef struct memory {
    size_t bytes; /* of each */
    char *source, *target;
} memory_t;

typedef struct trial {
    device_cluster_t *ranks;
    const dense_case_t *c;
    baton_schedule_t **schedules;
    memory_t memory[LARGEST];
} trial_t;

static void open_memory(trial_t *trial)
{
    for (int rank = 0; rank < trial->c->size; rank++) {
        memory_t *memory = &trial->memory[rank];
        emulated_t *device = trial->ranks->devices[rank];
        memory->bytes = dense_room(trial->c, rank) * trial->c->element + 1;
        memory->source = emulated_allocate(device, memory->bytes);
        memory->target = emulated_allocate(device, memory->bytes);
        assert_in_range(memory->bytes, 1, MOST);
    }
}

static void close_memory(trial_t *trial)
{
    for (int rank = 0; rank < trial->c->size; rank++) {
        emulated_t *device = trial->ranks->devices[rank];
        emulated_release(device, trial->memory[rank].source);
        emulated_release(device, trial->memory[rank].target);
    }
}

/* What the builder has bound is device memory. */
static void say_memory(baton_schedule_t *schedule)
{
    baton_buffer_t buffer = {0};
    while (baton_buffer_bytes(schedule, buffer) != SIZE_MAX) {
        if (baton_view_address(schedule, baton_view(buffer, 0, 0)) != NULL) {
            baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
        }
        buffer.index++;
    }
}

static void build(trial_t *trial)
{
    support_cluster_t *cluster = trial->ranks->cluster;
    trial->schedules = support_schedules_create(cluster, "dense");
    for (int rank = 0; rank < trial->c->size; rank++) {
        dense_build(trial->c, trial->schedules[rank],
                    trial->memory[rank].source, trial->memory[rank].target);
        say_memory(trial->schedules[rank]);
    }
    support_schedules_commit(cluster, trial->schedules);
}

/* Where an address on the device is in the host's copy of both memories. */
static char *host_of(const memory_t *memory, int rank, const void *address)
{
    const char *at = address;
    return at >= memory->target && at <= memory->target + memory->bytes
               ? copies[rank] + memory->bytes + (at - memory->target)
               : copies[rank] + (at - memory->source);
}

static void fill(trial_t *trial, const dense_data_t *data, int rank)
{
    memory_t *memory = &trial->memory[rank];
    memset(copies[rank], 0, 2 * memory->bytes);
    dense_fill(
        data, rank,
        host_of(memory, rank,
                dense_input(trial->c, rank, memory->source, memory->target)));
}

static void check(trial_t *trial, const dense_data_t *data, int rank)
{
    memory_t *memory = &trial->memory[rank];
    const void *output =
        dense_output(trial->c, rank, memory->source, memory->target);
    if (!dense_is_right(data, rank, host_of(memory, rank, output)) ||
        (dense_keeps_source(trial->c, rank) &&
         !dense_is_untouched(data, rank, copies[rank]))) {
        fail_msg("%s: wrong on rank %d (BATON_SEED=%llu)", dense_text(trial->c),
                 rank, (unsigned long long)support_seed());
    }
}

/* All in the rank's stream: the data in, the epoch, the data out. */
static void start(trial_t *trial, int rank)
{
    memory_t *memory = &trial->memory[rank];
    emulated_t *device = trial->ranks->devices[rank];
    const baton_device_port_t *port = emulated_port(device);
    baton_stream_t stream = trial->ranks->streams[rank];
    char *host[] = {copies[rank], copies[rank] + memory->bytes};
    char *there[] = {memory->source, memory->target};
    for (int i = 0; i < 2; i++) {
        support_ok(
            port->copy(device, stream, there[i], host[i], memory->bytes));
    }
    support_ok(baton_schedule_start_on(trial->schedules[rank], stream));
    support_ok(baton_schedule_wait_on(trial->schedules[rank], stream));
    for (int i = 0; i < 2; i++) {
        support_ok(
            port->copy(device, stream, host[i], there[i], memory->bytes));
    }
}

static void run_case(trial_t *trial, const dense_case_t *c, support_op_t op)
{
    trial->c = c;
    open_memory(trial);
    build(trial);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        dense_data_t data = {c, op, support_seed(), epoch};
        for (int rank = 0; rank < c->size; rank++) {
            fill(trial, &data, rank);
            start(trial, rank);
        }
        for (int rank = 0; rank < c->size; rank++) {
            support_ok(
                baton_schedule_wait(trial->schedules[rank], SUPPORT_WAIT_MS));
            device_cluster_synchronise(trial->ranks, rank);
        }
        for (int rank = 0; rank < c->size; rank++) {
            check(trial, &data, rank);
        }
    }
    support_schedules_destroy(trial->ranks->cluster, trial->schedules);
    close_memory(trial);
}

/* Each builder with counts and types that differ from one to the next. */
static void run_builders(trial_t *trial, int size)
{
    static const size_t counts[] = {0, 1, 5, 37, 1009, COUNT};
    enum { COUNTS = sizeof counts / sizeof *counts };
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 2};
    for (size_t i = 0; dense_builder_at(i) != NULL; i++) {
        for (size_t k = 0; k < COUNTS; k++) {
            size_t turn = i + k + (size_t)size;
            if (turn % 2 == 1) {
                continue;
            }
            baton_dtype_t dtype =
                (baton_dtype_t)(1 + turn % (BATON_DTYPE_COUNT - 1));
            support_op_t op = dense_op_for(dense_builder_at(i), dtype, turn);
            dense_case_t c = {.builder = dense_builder_at(i),
                              .size = size,
                              .root = size / 2,
                              .count = counts[k],
                              .dtype = dtype,
                              .op = support_op(op),
                              .varied =
                                  turn % 3 == 0 &&
                                  !dense_builder_at(i)->algorithm.equal_blocks,
                              .in_place = turn / 2 % 2 == 0,
                              .chunk_bytes = k % 2 == 0 ? 0 : 256,
                              .arg = &hosts};
            c.element = baton_dtype_size(c.dtype);
            run_case(trial, &c, op);
        }
    }
}

/* What their results are is test_dense's: here what lies where, and how a
   message gets there. */
TEST(test_builders)
{
    static const int sizes[] = {1, 3, 5, 8};
    for (int i = 0; i < 4; i++) {
        const emulated_options_t options = {.seed = support_seed(),
                                            .delay_us = 5,
                                            .workers = 1,

                                            .no_handles = i % 2 != 0};
        trial_t trial = {.ranks = device_cluster_open(
                             sizes[i], SUPPORT_OWN_ENGINES, &options)};
        run_builders(&trial, sizes[i]);
        device_cluster_close(trial.ranks);
    }
}

RUN_TESTS()
