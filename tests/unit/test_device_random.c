/* Random programs (support/program.h) on ranks with emulated devices. They run
   side by side for some epochs, which are started directly or in the order of a
   stream. In half of the trials something fails in the first of two lives. The
   second life comes after a recovery, and nothing fails in it. The application
   is one thread, which never blocks.

   BATON_SEED repeats what is sampled; what the threads do may differ. */
#include "support/device_cluster.h"
#include "support/device_program.h"
#include "support/sanitized.h"
#include "support/values.h"

#include <sched.h>
#include <time.h>

enum {
    TRIALS = SUPPORT_SANITIZED ? 50 : 150,
    RANKS = 5,
    PART_BYTES = 8000,
    SLOT_BYTES = PROGRAM_PARTS * PART_BYTES,
    PROGRAMS = 3,
    EPOCHS = 6
};

/* A program on a rank. */
typedef struct run {
    device_program_t own; /* first: callbacks get its address */
    int program;
    baton_stream_t stream;
    bool failed, cleared;
    bool blind; /* compares nothing from now on */
    uint64_t started, settled;
    /* By epoch: the data put into slot 0 before it, and the data found there
       after it. */
    unsigned char inputs[EPOCHS + 1][SLOT_BYTES];
    unsigned char found[EPOCHS + 1][SLOT_BYTES];
    bool looks[EPOCHS + 1];
} run_t;

/* What fails. WORK: a piece of work of a device. SUBMIT: a call that puts
   something into a stream. NODE: a call node. */
typedef enum fault {
    NO_FAULT,
    FAIL_WORK,
    FAIL_SUBMIT,
    FAIL_NODE,
    CANCEL,
    FAULTS
} fault_t;

static program_t programs[PROGRAMS];
static run_t runs[PROGRAMS][RANKS];
static unsigned char *expected[PROGRAMS][EPOCHS + 1];

static struct {
    int number;
    support_cluster_t *cluster;
    int ranks, programs, life;
    uint64_t epochs;
    bool manual, inputs;
    fault_t fault;
    int victim, fault_program;
    uint64_t fault_epoch;
    support_random_t random;
} trial;

#define holds(condition, ...)                                                  \
    do {                                                                       \
        if (!(condition)) {                                                    \
            print_error(__VA_ARGS__);                                          \
            fail_msg(" (trial %d, life %d, fault %d, line %d, "                \
                     "BATON_SEED=%llu): %s",                                   \
                     trial.number, trial.life, (int)trial.fault, __LINE__,     \
                     (unsigned long long)support_seed(),                       \
                     baton_error_message());                                   \
        }                                                                      \
    } while (0)

static int below(int bound)
{
    return (int)support_random_below(&trial.random, (uint64_t)bound);
}

static bool once_in(int n)
{
    return below(n) == 0;
}

/* ---- functions of nodes ------------------------------------------------ */

/* Whether the fault is to happen in this run and epoch. */
static bool is_due(const run_t *run, uint64_t epoch)
{
    return trial.life == 0 && trial.victim == run->own.part.rank &&
           trial.fault_program == run->program && trial.fault_epoch == epoch;
}

static baton_status_t fail_node(program_part_t *part, uint64_t epoch)
{
    return trial.fault == FAIL_NODE && is_due((run_t *)part, epoch)
               ? BATON_ERR_LIMIT
               : BATON_OK;
}

/* ---- memory ------------------------------------------------------------ */

static const program_t *program_of(const run_t *run)
{
    return &programs[run->program];
}

static unsigned char *right_slot(const run_t *run, uint64_t epoch, int slot)
{
    return program_slot(program_of(run), expected[run->program][epoch],
                        run->own.part.rank, slot);
}

static void expect_slot(run_t *run, int slot, const unsigned char *right)
{
    holds(device_program_holds(&run->own, slot, right),
          "program %d, rank %d, epoch %d: slot %d is wrong", run->program,
          run->own.part.rank, (int)run->settled, slot);
}

static void begin_run(run_t *run)
{
    run->failed = run->blind = run->cleared = false;
    run->started = run->settled = 0;
    for (int slot = 0; slot < PROGRAM_SLOTS; slot++) {
        device_program_write(&run->own, slot, right_slot(run, 0, slot));
    }
}

/* Runs the reference through all epochs. */
static void run_reference(int index)
{
    const program_t *program = &programs[index];
    unsigned char **memory = expected[index];
    support_fill_bits(memory[0], program_bytes(program), &trial.random);
    for (uint64_t epoch = 1; epoch <= trial.epochs; epoch++) {
        memcpy(memory[epoch], memory[epoch - 1], program_bytes(program));
        for (int rank = 0; rank < trial.ranks && trial.inputs; rank++) {
            unsigned char *input = runs[index][rank].inputs[epoch];
            support_fill_bits(input, program->slot_bytes, &trial.random);
            memcpy(program_slot(program, memory[epoch], rank, 0), input,
                   program->slot_bytes);
        }
        program_run(program, epoch, memory[epoch]);
    }
}

/* After an epoch has failed, its memory is the application's again, and nothing
   writes to what the application writes. (Only its own stream may write to slot
   0.) */
static const unsigned char zeros[SLOT_BYTES];

static void clear_memory(run_t *run)
{
    for (int slot = 1; slot < PROGRAM_SLOTS; slot++) {
        device_program_write(&run->own, slot, zeros);
    }
    run->cleared = true;
}

/* ---- the application --------------------------------------------------- */

static int64_t now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void drive(const run_t *run, int64_t began_s)
{
    for (int rank = 0; rank < trial.ranks && trial.manual; rank++) {
        (void)baton_engine_step(trial.cluster->engines[rank]);
    }
    (void)sched_yield();
    holds(now_s() < began_s + 60, "program %d, rank %d waits for epoch %d",
          run->program, run->own.part.rank, (int)run->started);
}

static bool may_fail(void)
{
    return trial.life == 0 && trial.fault != NO_FAULT;
}

/* Repeats a call that puts something into a stream if it was made to fail: a
   failed call has done nothing. */
static baton_status_t first_status;
#define SUBMIT(call)                                                           \
    ((first_status = (call)) == BATON_ERR_SYSTEM && trial.fault == FAIL_SUBMIT \
         ? (call)                                                              \
         : first_status)

static bool went_well(run_t *run, baton_status_t status)
{
    holds(status == BATON_OK || may_fail(), "program %d, rank %d, epoch %d",
          run->program, run->own.part.rank, (int)run->started);
    run->failed = run->failed || status != BATON_OK;
    return status == BATON_OK;
}

/* Waits until the work in the stream is done, or is given up because the stream
   has failed. */
static baton_status_t synchronise(const run_t *run)
{
    emulated_t *device = run->own.device;
    const baton_device_port_t *port = emulated_port(device);
    int64_t began_s = now_s();
    void *event = NULL;
    baton_status_t status;
    support_ok(port->event_create(device, &event));
    support_ok(SUBMIT(port->record(device, run->stream, event)));
    while ((status = port->query(device, event)) == BATON_AGAIN) {
        drive(run, began_s);
    }
    port->event_destroy(device, event);
    return status;
}

static baton_status_t await_end(const run_t *run)
{
    int64_t began_s = now_s();
    bool done = false;
    baton_status_t status = BATON_OK;
    while (status == BATON_OK && !done) {
        status = baton_schedule_test(run->own.part.schedule, &done);
        drive(run, began_s);
    }
    return status;
}

/* Waits for all epochs that were started. */
static void settle(run_t *run)
{
    if (run->failed || run->settled == run->started) {
        return;
    }
    if (!went_well(run, await_end(run))) {
        clear_memory(run);
        return;
    }
    baton_status_t status = synchronise(run);
    holds(status == BATON_OK || may_fail(), "rank %d: its stream",
          run->own.part.rank);
    run->blind = run->blind || status != BATON_OK;
    for (uint64_t epoch = run->settled + 1;
         epoch <= run->started && !run->blind; epoch++) {
        holds(!run->looks[epoch] ||
                  memcmp(run->found[epoch], right_slot(run, epoch, 0),
                         program_of(run)->slot_bytes) == 0,
              "program %d, rank %d: its stream finds epoch %d wrong",
              run->program, run->own.part.rank, (int)epoch);
    }
    run->settled = run->started;
    for (int slot = 0; slot < PROGRAM_SLOTS && !run->blind; slot++) {
        expect_slot(run, slot, right_slot(run, run->settled, slot));
    }
}

static baton_status_t put_copy(const run_t *run, void *target,
                               const void *source)
{
    emulated_t *device = run->own.device;
    return SUBMIT(emulated_port(device)->copy(
        device, run->stream, target, source, program_of(run)->slot_bytes));
}

static bool start(run_t *run, uint64_t epoch)
{
    if (once_in(2)) {
        settle(run);
        if (!run->failed && trial.inputs) {
            device_program_write(&run->own, 0, run->inputs[epoch]);
        }
        return !run->failed &&
               went_well(run, baton_schedule_start(run->own.part.schedule));
    }
    if (trial.fault != FAIL_SUBMIT && once_in(4)) {
        emulated_delay(run->own.device, run->stream, below(300));
    }
    return (!trial.inputs ||
            went_well(run, put_copy(run, run->own.part.memory[0],
                                    run->inputs[epoch]))) &&
           went_well(run, SUBMIT(baton_schedule_start_on(run->own.part.schedule,
                                                         run->stream)));
}

static void cause_fault(run_t *run, uint64_t epoch)
{
    emulated_t *device = run->own.device;
    if (!is_due(run, epoch)) {
        return;
    }
    if (trial.fault == FAIL_WORK) {
        emulated_fail_work(device, 1 + below(40));
    } else if (trial.fault == FAIL_SUBMIT) {
        emulated_fail_submit(device, 1 + below(40));
    } else if (trial.fault == CANCEL) {
        baton_status_t status = baton_schedule_cancel(run->own.part.schedule);
        /* STATE: the epoch has ended. */
        holds(status == BATON_OK || status == BATON_ERR_STATE, "cancel");
    }
}

/* After a failed epoch, a schedule without messages runs its next epoch. So
   each of its epochs is waited for. */
static void run_epoch(run_t *run, uint64_t epoch)
{
    if (run->failed || !start(run, epoch)) {
        return;
    }
    run->started = epoch;
    if (went_well(run, SUBMIT(baton_schedule_wait_on(run->own.part.schedule,
                                                     run->stream)))) {
        run->looks[epoch] =
            once_in(2) && went_well(run, put_copy(run, run->found[epoch],
                                                  run->own.part.memory[0]));
    }
    cause_fault(run, epoch);
    if (may_fail() && !program_of(run)->talks[run->own.part.rank] &&
        !run->failed) {
        settle(run);
    }
}

/* Calls fn for each rank's part of each program. */
static void for_each(void (*fn)(run_t *run))
{
    for (int i = 0; i < trial.programs * trial.ranks; i++) {
        fn(&runs[i / trial.ranks][i % trial.ranks]);
    }
}

static void end_failed(run_t *run)
{
    (void)synchronise(run);
    if (run->failed && !run->cleared) {
        (void)await_end(run); /* a start may have returned the failure */
        clear_memory(run);
    }
}

static void check_cleared(run_t *run)
{
    for (int slot = 1; slot < PROGRAM_SLOTS && run->cleared; slot++) {
        expect_slot(run, slot, zeros);
    }
}

static void destroy(run_t *run)
{
    support_ok(baton_schedule_destroy(run->own.part.schedule));
}

static void close_program(run_t *run)
{
    device_program_close(&run->own);
}

static void make_schedules(void)
{
    for (int i = 0; i < trial.programs; i++) {
        baton_schedule_t *schedules[RANKS];
        for (int rank = 0; rank < trial.ranks; rank++) {
            schedules[rank] =
                support_schedule(trial.cluster->groups[rank], "random program");
            program_build(&runs[i][rank].own.part, schedules[rank]);
        }
        support_schedules_commit(trial.cluster, schedules);
    }
}

static void live(void)
{
    for (int i = 0; i < trial.programs; i++) {
        run_reference(i);
    }
    for_each(begin_run);
    for (uint64_t epoch = 1; epoch <= trial.epochs; epoch++) {
        for (int i = 0; i < trial.programs; i++) {
            for (int rank = 0; rank < trial.ranks; rank++) {
                run_epoch(&runs[i][rank], epoch);
            }
        }
    }
    for_each(settle);
    for_each(end_failed);
    for_each(check_cleared);
}

/* ---- trials ------------------------------------------------------------ */

static void set_number(const char *variable, int value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d", value);
    support_set_variable(variable, text);
}

static emulated_options_t sample_trial(int number)
{
    memset(&trial, 0, sizeof trial);
    trial.number = number;
    trial.random = support_random(support_seed(), (uint64_t)number);
    trial.ranks = 1 + below(RANKS);
    trial.programs = 1 + below(PROGRAMS);
    trial.epochs = 1 + (uint64_t)below(EPOCHS);
    trial.manual = once_in(3);
    trial.inputs = !once_in(3);
    trial.fault = once_in(2) ? (fault_t)below(FAULTS) : NO_FAULT;
    trial.victim = below(trial.ranks);
    trial.fault_program = below(trial.programs);
    trial.fault_epoch = 1 + (uint64_t)below((int)trial.epochs);
    for (int i = 0; i < trial.programs; i++) {
        const program_options_t options = {.ranks = trial.ranks,
                                           .part_bytes = PART_BYTES,
                                           .devices = true,
                                           .async = true};
        program_sample(&programs[i], &options, &trial.random);
        for (uint64_t epoch = 0; epoch <= trial.epochs; epoch++) {
            expected[i][epoch] =
                support_alloc(1, program_bytes(&programs[i]) + 1);
        }
    }
    set_number("BATON_DEVICE_BLOCK", 4096 << below(3));
    set_number("BATON_DEVICE_BUFFERS", 2 + below(5));
    set_number("BATON_DEVICE_DIRECT", !once_in(3));
    set_number("BATON_VERIFY", once_in(6));
    return (emulated_options_t){.seed = support_random_next(&trial.random),
                                .workers = 1 + below(3),
                                .delay_us = 1 + below(60),
                                .no_handles = once_in(2)};
}

static void run_trial(int number)
{
    emulated_options_t options = sample_trial(number);
    bool same_stream = once_in(2);
    trial.cluster = device_cluster_open(
        trial.ranks, trial.manual ? SUPPORT_OWN_MANUAL : SUPPORT_OWN_ENGINES,
        &options);
    for (int i = 0; i < trial.programs * trial.ranks; i++) {
        int rank = i % trial.ranks;
        run_t *run = &runs[i / trial.ranks][rank];
        run->program = i / trial.ranks;
        device_program_open(&run->own, program_of(run), rank,
                            trial.cluster->devices[rank]);
        run->own.part.fault = fail_node;
        run->stream = same_stream ? trial.cluster->streams[rank]
                                  : emulated_stream(run->own.device);
    }
    make_schedules();
    live();
    if (trial.fault != NO_FAULT) {
        for (int rank = 0; rank < trial.ranks; rank++) {
            emulated_synchronise_all(trial.cluster->devices[rank]);
            emulated_repair(trial.cluster->devices[rank]);
        }
        support_cluster_recover(trial.cluster);
        trial.life = 1;
        live();
    }
    for_each(destroy);
    for_each(close_program);
    for (int i = 0; i < trial.programs; i++) {
        for (uint64_t epoch = 0; epoch <= trial.epochs; epoch++) {
            free(expected[i][epoch]);
        }
    }
    support_cluster_close(trial.cluster);
}

TEST(test_random_programs)
{
    for (int number = 0; number < TRIALS; number++) {
        run_trial(number);
    }
    for (int i = 0; i < 4; i++) {
        static const char *const set[] = {
            "BATON_DEVICE_BLOCK", "BATON_DEVICE_BUFFERS", "BATON_DEVICE_DIRECT",
            "BATON_VERIFY"};
        support_set_variable(set[i], NULL);
    }
}
