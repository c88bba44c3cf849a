/* Random programs on ranks with emulated devices. A program is one sequence of
   steps over the slots of memory of all ranks. A step happens after all those
   before it that touch the same memory; everything else may overlap. So running
   the sequence tells what memory holds after each epoch of its schedules.

   Programs run side by side for some epochs, which are started directly or in
   the order of a stream. In half of the trials something fails in the first of
   two lives; the second one is behind a recovery, and all is right in it. The
   application is one thread, which never blocks.

   BATON_SEED repeats what is sampled; what the threads do differs. */
#include "base/config.h"
#include "support/cmocka.h"
#include "support/device_cluster.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "support/values.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TRIALS = SUPPORT_SANITIZED ? 50 : 150,
    RANKS = 5,
    SLOTS = 7, /* of a rank; slot 0 is bound device memory */
    PARTS = 3, /* of a slot */
    PART_BYTES = 8000,
    SLOT_BYTES = PARTS * PART_BYTES,
    STEPS = 40,
    NODES = 2 * STEPS,
    PROGRAMS = 3,
    EPOCHS = 6,
    NONE = -1
};

/* COPY: target = left. REDUCE: target = left (op) right. MESSAGE: the peer's
   target = left. CALL and DEVICE_CALL change the target in place: a call node,
   and work that a device call puts into its stream. */
typedef enum kind { COPY, REDUCE, MESSAGE, CALL, DEVICE_CALL, KINDS } kind_t;

typedef struct step {
    kind_t kind;
    int rank, peer;
    int target, left, right;
    int first, end; /* parts, of all slots alike */
    uint64_t salt;
} step_t;

enum { HOST = 1, DEVICE = 2, ANY = 4 }; /* ANY: the library chooses */

typedef struct slot {
    int place;
    bool scratch;
    bool defined[PARTS];
} slot_t;

struct run;

/* What the functions of a step's nodes get. */
typedef struct site {
    struct run *run;
    const step_t *step;
    baton_view_t view;
    uint64_t epoch;
    void *address;
} site_t;

typedef struct access {
    int writer; /* a node, or NONE */
    int readers[NODES];
    int reader_count;
} access_t;

/* A program on a rank. */
typedef struct run {
    struct program *program;
    int rank;
    baton_schedule_t *schedule;
    void *memory[SLOTS]; /* that is bound; or NULL */
    baton_buffer_t buffers[SLOTS];
    site_t sites[STEPS];
    access_t accesses[SLOTS][PARTS];
    baton_node_t nodes[NODES];
    int node_count;
    baton_stream_t stream;
    bool failed, cleared;
    bool blind; /* compares nothing any more */
    uint64_t started, settled;
    /* By epoch: what is put into slot 0 before, and was found there behind. */
    unsigned char inputs[EPOCHS + 1][SLOT_BYTES];
    unsigned char found[EPOCHS + 1][SLOT_BYTES];
    bool looks[EPOCHS + 1];
} run_t;

typedef struct program {
    int index;
    baton_dtype_t dtype;
    const baton_op_t *op;
    bool talks[RANKS];
    size_t offsets[PARTS + 1];
    slot_t slots[RANKS][SLOTS];
    int step_count;
    step_t steps[STEPS];
    run_t runs[RANKS];
    unsigned char expected[EPOCHS + 1][RANKS][SLOTS][SLOT_BYTES];
} program_t;

/* WORK: a piece of work of a device. SUBMIT: a call that puts something into a
   stream. NODE: a call node. */
typedef enum fault {
    NO_FAULT,
    FAIL_WORK,
    FAIL_SUBMIT,
    FAIL_NODE,
    CANCEL,
    FAULTS
} fault_t;

static program_t programs[PROGRAMS];

static struct {
    int number;
    device_cluster_t *cluster;
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

static size_t bytes_of(const program_t *program, const step_t *step)
{
    return program->offsets[step->end] - program->offsets[step->first];
}

static size_t slot_bytes(const program_t *program)
{
    return program->offsets[PARTS];
}

/* ---- what a step does -------------------------------------------------- */

static uint64_t sampled(const step_t *step, uint64_t epoch)
{
    support_random_t random = support_random(step->salt, epoch);
    return support_random_next(&random);
}

static void change(const step_t *step, uint64_t epoch, unsigned char *at,
                   size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(at[i] * 5U + step->salt + 31 * epoch + 7 * i);
    }
}

/* The reference: one step of an epoch. */
static void run_step(program_t *program, const step_t *step, uint64_t epoch)
{
    unsigned char(*own)[SLOT_BYTES] = program->expected[epoch][step->rank];
    unsigned char(*peer)[SLOT_BYTES] = program->expected[epoch][step->peer];
    size_t at = program->offsets[step->first];
    size_t bytes = bytes_of(program, step);
    if (step->kind == COPY || step->kind == MESSAGE) {
        memmove(peer[step->target] + at, own[step->left] + at, bytes);
    } else if (step->kind == REDUCE && bytes > 0) {
        program->op->reduce(program->op->arg, own[step->target] + at,
                            own[step->left] + at, own[step->right] + at,
                            bytes / baton_dtype_size(program->dtype),
                            program->dtype);
    } else if (step->kind >= CALL) {
        change(step, epoch, own[step->target] + at, bytes);
    }
}

/* ---- sampling ---------------------------------------------------------- */

static bool is_defined(const slot_t *slot, const step_t *step)
{
    bool defined = true;
    for (int part = step->first; part < step->end; part++) {
        defined = defined && slot->defined[part];
    }
    return defined;
}

/* A slot in one of these places, whose parts have been written if it is to be
   read; NONE if there is none. */
static int choose_slot(program_t *program, int rank, int places, bool reads,
                       const step_t *step)
{
    int begin = below(SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        const slot_t *slot = &program->slots[rank][(begin + i) % SLOTS];
        if ((slot->place & places) != 0 && (!reads || is_defined(slot, step))) {
            return (begin + i) % SLOTS;
        }
    }
    return NONE;
}

static bool sample_operands(program_t *program, step_t *step)
{
    const int all = HOST | DEVICE | ANY;
    int rank = step->rank, places = all;
    if (step->kind >= CALL) {
        places = step->kind == DEVICE_CALL ? DEVICE : HOST;
        step->target = choose_slot(program, rank, places, true, step);
        return step->target != NONE;
    }
    if (step->kind == MESSAGE) {
        step->peer = below(trial.ranks);
    }
    if (step->kind == REDUCE) {
        places = once_in(3) ? HOST : DEVICE | ANY;
        step->right = choose_slot(program, rank, places, true, step);
    }
    step->left = choose_slot(program, rank, places, true, step);
    step->target = choose_slot(program, step->peer, places, false, step);
    bool own = step->peer == rank && step->kind != REDUCE;
    return step->left != NONE && step->target != NONE && step->right != NONE &&
           !(own && step->left == step->target);
}

static void sample_step(program_t *program)
{
    int rank = below(trial.ranks), first = below(PARTS);
    step_t step = {.kind = (kind_t)below(once_in(2) ? MESSAGE + 1 : KINDS),
                   .rank = rank,
                   .peer = rank,
                   .first = first,
                   .end = first + 1 + below(PARTS - first),
                   .salt = support_random_next(&trial.random)};
    if (!sample_operands(program, &step)) {
        return;
    }
    for (int part = step.first; part < step.end && step.kind <= MESSAGE;
         part++) {
        program->slots[step.peer][step.target].defined[part] = true;
    }
    if (step.kind == MESSAGE) {
        program->talks[step.rank] = program->talks[step.peer] = true;
    }
    program->steps[program->step_count++] = step;
}

static void sample_program(program_t *program, int index)
{
    static const baton_dtype_t dtypes[] = {BATON_U8, BATON_I32, BATON_U64};
    bool small = once_in(3);
    memset(program, 0, offsetof(program_t, runs));
    program->index = index;
    program->dtype = dtypes[below(3)];
    program->op = support_op(once_in(4) ? SUPPORT_XOR : SUPPORT_SUM);
    for (int part = 0; part < PARTS; part++) {
        int most = small ? 20 : once_in(2) ? PART_BYTES : PART_BYTES / 4;
        int count = once_in(8)
                        ? 0
                        : below(most) / (int)baton_dtype_size(program->dtype);
        program->offsets[part + 1] =
            program->offsets[part] +
            (size_t)count * baton_dtype_size(program->dtype);
    }
    for (int rank = 0; rank < trial.ranks; rank++) {
        for (int i = 0; i < SLOTS; i++) {
            slot_t *slot = &program->slots[rank][i];
            slot->scratch = i > 1 && once_in(3);
            slot->place = i < 2                         ? DEVICE >> i
                          : slot->scratch && once_in(2) ? ANY
                                                        : 1 + below(2);
            memset(slot->defined, !slot->scratch, sizeof slot->defined);
        }
    }
    for (int steps = 1 + below(STEPS); steps > 0; steps--) {
        sample_step(program);
    }
}

/* ---- functions of nodes ------------------------------------------------ */

static baton_status_t change_in_call(void *arg, baton_call_t *call)
{
    const site_t *site = arg;
    uint64_t epoch = baton_call_epoch(call);
    if (trial.life == 0 && trial.fault == FAIL_NODE &&
        trial.victim == site->run->rank &&
        trial.fault_program == site->run->program->index &&
        trial.fault_epoch == epoch) {
        return BATON_ERR_LIMIT;
    }
    change(site->step, epoch, baton_call_address(call, site->view),
           site->view.bytes);
    return BATON_OK;
}

/* On a thread of the device, in the order of the stream. */
static void change_on_device(void *arg)
{
    const site_t *site = arg;
    emulated_t *device = trial.cluster->devices[site->run->rank];
    unsigned char copy[SLOT_BYTES];
    emulated_read(device, copy, site->address, site->view.bytes);
    change(site->step, site->epoch, copy, site->view.bytes);
    emulated_write(device, site->address, copy, site->view.bytes);
}

static baton_status_t queue_change(void *arg, baton_call_t *call,
                                   baton_stream_t stream)
{
    site_t *site = arg;
    site->epoch = baton_call_epoch(call);
    site->address = baton_call_address(call, site->view);
    return emulated_call(trial.cluster->devices[site->run->rank], stream,
                         change_on_device, site);
}

/* ---- schedules --------------------------------------------------------- */

static void put_before(const run_t *run, int before, baton_node_t node)
{
    if (before != NONE && before != (int)node.index) {
        baton_before(run->schedule, (baton_node_t){(uint32_t)before}, node);
    }
}

/* Edges follow from who writes and who reads which part of which slot. */
static void touch(run_t *run, baton_node_t node, int slot, const step_t *step,
                  bool writes)
{
    for (int part = step->first; part < step->end; part++) {
        access_t *access = &run->accesses[slot][part];
        put_before(run, access->writer, node);
        if (!writes) {
            access->readers[access->reader_count++] = (int)node.index;
            continue;
        }
        for (int i = 0; i < access->reader_count; i++) {
            put_before(run, access->readers[i], node);
        }
        access->reader_count = 0;
        access->writer = (int)node.index;
    }
}

/* The node is behind one of the first `known`, perhaps, which the data do not
   ask for. */
static void chain(run_t *run, baton_node_t node, const step_t *step, int known)
{
    uint64_t chance = sampled(step, 0);
    if (known > 0 && chance % 3 == 0) {
        uint64_t at = chance / 3 % (uint64_t)known;
        put_before(run, (int)run->nodes[at].index, node);
    }
    run->nodes[run->node_count++] = node;
}

static baton_view_t view_of(const run_t *run, int slot, const step_t *step)
{
    return baton_view(run->buffers[slot], run->program->offsets[step->first],
                      bytes_of(run->program, step));
}

static void add_local(run_t *run, const step_t *step, site_t *site)
{
    baton_schedule_t *s = run->schedule;
    baton_view_t target = view_of(run, step->target, step);
    baton_view_t left = view_of(run, step->left, step);
    baton_node_t node;
    int known = run->node_count;
    site->view = target;
    if (step->kind == COPY) {
        node = baton_add_copy(s, target, left);
    } else if (step->kind == REDUCE) {
        node = baton_add_reduce(s, run->program->dtype, run->program->op,
                                target, left, view_of(run, step->right, step));
        touch(run, node, step->right, step, false);
    } else {
        node = step->kind == CALL
                   ? baton_add_call(s, change_in_call, site)
                   : baton_add_device_call(s, queue_change, site);
    }
    if (step->kind <= REDUCE) {
        touch(run, node, step->left, step, false);
    }
    touch(run, node, step->target, step, true);
    chain(run, node, step, known);
}

/* A receive from the rank itself must not be behind its send, which may wait
   for it. */
static void add_message(run_t *run, const step_t *step)
{
    baton_schedule_t *s = run->schedule;
    int known = run->node_count;
    if (step->rank == run->rank) {
        baton_node_t send =
            baton_add_send(s, step->peer, view_of(run, step->left, step));
        touch(run, send, step->left, step, false);
        chain(run, send, step, known);
    }
    if (step->peer == run->rank) {
        baton_node_t recv =
            baton_add_recv(s, step->rank, view_of(run, step->target, step));
        touch(run, recv, step->target, step, true);
        chain(run, recv, step, known);
    }
}

static void add_step(run_t *run, const step_t *step, site_t *site)
{
    bool own = step->rank == run->rank;
    *site = (site_t){.run = run, .step = step};
    if (step->kind == MESSAGE) {
        add_message(run, step);
    } else if (own) {
        add_local(run, step, site);
    }
}

static void add_buffers(run_t *run)
{
    baton_schedule_t *s = run->schedule;
    size_t bytes = slot_bytes(run->program);
    for (int i = 0; i < SLOTS; i++) {
        const slot_t *slot = &run->program->slots[run->rank][i];
        run->buffers[i] = slot->scratch
                              ? baton_buffer_scratch(s, bytes)
                              : baton_buffer_bind(s, run->memory[i], bytes);
        if (slot->place != ANY) {
            baton_buffer_set_memory(s, run->buffers[i],
                                    slot->place == DEVICE ? BATON_MEMORY_DEVICE
                                                          : BATON_MEMORY_HOST);
        }
    }
}

static baton_schedule_t *build(run_t *run)
{
    const program_t *program = run->program;
    run->schedule = support_schedule(trial.cluster->cluster->groups[run->rank],
                                     "random program");
    run->node_count = 0;
    for (int i = 0; i < SLOTS * PARTS; i++) {
        run->accesses[i / PARTS][i % PARTS] = (access_t){.writer = NONE};
    }
    add_buffers(run);
    for (int i = 0; i < program->step_count; i++) {
        add_step(run, &program->steps[i], &run->sites[i]);
    }
    return run->schedule;
}

/* ---- memory ------------------------------------------------------------ */

static emulated_t *device_of(const run_t *run)
{
    return trial.cluster->devices[run->rank];
}

static bool is_on_device(const run_t *run, int slot)
{
    return run->program->slots[run->rank][slot].place == DEVICE;
}

static void open_memory(run_t *run)
{
    size_t bytes = slot_bytes(run->program) + 1;
    for (int i = 0; i < SLOTS; i++) {
        bool bound = !run->program->slots[run->rank][i].scratch;
        run->memory[i] = !bound ? NULL
                         : is_on_device(run, i)
                             ? emulated_allocate(device_of(run), bytes)
                             : malloc(bytes);
        assert_true(!bound || run->memory[i] != NULL);
    }
}

static void close_memory(run_t *run)
{
    for (int i = 0; i < SLOTS; i++) {
        if (is_on_device(run, i)) {
            emulated_release(device_of(run), run->memory[i]);
        } else {
            free(run->memory[i]);
        }
    }
}

static void write_slot(run_t *run, int slot, const unsigned char *contents)
{
    size_t bytes = slot_bytes(run->program);
    if (is_on_device(run, slot)) {
        emulated_write(device_of(run), run->memory[slot], contents, bytes);
    } else {
        memcpy(run->memory[slot], contents, bytes);
    }
}

static void expect_slot(run_t *run, int slot, const unsigned char *right)
{
    static unsigned char found[SLOT_BYTES];
    size_t bytes = slot_bytes(run->program);
    if (is_on_device(run, slot)) {
        emulated_read(device_of(run), found, run->memory[slot], bytes);
    } else {
        memcpy(found, run->memory[slot], bytes);
    }
    holds(memcmp(found, right, bytes) == 0,
          "program %d, rank %d, epoch %d: slot %d is wrong",
          run->program->index, run->rank, (int)run->settled, slot);
}

/* Runs the reference through all epochs. */
static void begin_life(program_t *program)
{
    for (int i = 0; i < trial.ranks * SLOTS; i++) {
        run_t *run = &program->runs[i / SLOTS];
        int slot = i % SLOTS;
        unsigned char *first = program->expected[0][run->rank][slot];
        support_fill_bits(first, slot_bytes(program), &trial.random);
        run->failed = run->blind = run->cleared = false;
        run->started = run->settled = 0;
        if (run->memory[slot] != NULL) {
            write_slot(run, slot, first);
        }
    }
    for (uint64_t epoch = 1; epoch <= trial.epochs; epoch++) {
        memcpy(program->expected[epoch], program->expected[epoch - 1],
               sizeof program->expected[epoch]);
        for (int rank = 0; rank < trial.ranks && trial.inputs; rank++) {
            unsigned char *input = program->runs[rank].inputs[epoch];
            support_fill_bits(input, slot_bytes(program), &trial.random);
            memcpy(program->expected[epoch][rank][0], input, SLOT_BYTES);
        }
        for (int i = 0; i < program->step_count; i++) {
            run_step(program, &program->steps[i], epoch);
        }
    }
}

/* Behind an epoch that has failed memory is the application's again: nobody
   writes where it writes. (Into slot 0 its own stream may.) */
static const unsigned char zeros[SLOT_BYTES];

static void clear_memory(run_t *run)
{
    for (int slot = 1; slot < SLOTS; slot++) {
        if (run->memory[slot] != NULL) {
            write_slot(run, slot, zeros);
        }
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
        (void)baton_engine_step(trial.cluster->cluster->engines[rank]);
    }
    (void)sched_yield();
    holds(now_s() < began_s + 60, "program %d, rank %d waits for epoch %d",
          run->program->index, run->rank, (int)run->started);
}

static bool may_fail(void)
{
    return trial.life == 0 && trial.fault != NO_FAULT;
}

/* A call that puts something into a stream is made again where it was made to
   fail: nothing has happened then. */
static baton_status_t first_status;
#define SUBMIT(call)                                                           \
    ((first_status = (call)) == BATON_ERR_SYSTEM && trial.fault == FAIL_SUBMIT \
         ? (call)                                                              \
         : first_status)

static bool went_well(run_t *run, baton_status_t status)
{
    holds(status == BATON_OK || may_fail(), "program %d, rank %d, epoch %d",
          run->program->index, run->rank, (int)run->started);
    run->failed = run->failed || status != BATON_OK;
    return status == BATON_OK;
}

/* Waits until what is in the stream has been done; or will not be, since the
   stream has failed. */
static baton_status_t synchronise(const run_t *run)
{
    emulated_t *device = device_of(run);
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
        status = baton_schedule_test(run->schedule, &done);
        drive(run, began_s);
    }
    return status;
}

/* Waits for all epochs that were started. */
static void settle(run_t *run)
{
    const program_t *program = run->program;
    if (run->failed || run->settled == run->started) {
        return;
    }
    if (!went_well(run, await_end(run))) {
        clear_memory(run);
        return;
    }
    baton_status_t status = synchronise(run);
    holds(status == BATON_OK || may_fail(), "rank %d: its stream", run->rank);
    run->blind = run->blind || status != BATON_OK;
    for (uint64_t epoch = run->settled + 1;
         epoch <= run->started && !run->blind; epoch++) {
        holds(!run->looks[epoch] ||
                  memcmp(run->found[epoch],
                         program->expected[epoch][run->rank][0],
                         slot_bytes(program)) == 0,
              "program %d, rank %d: its stream finds epoch %d wrong",
              program->index, run->rank, (int)epoch);
    }
    run->settled = run->started;
    for (int slot = 0; slot < SLOTS && !run->blind; slot++) {
        if (run->memory[slot] != NULL) {
            expect_slot(run, slot,
                        program->expected[run->settled][run->rank][slot]);
        }
    }
}

static baton_status_t put_copy(const run_t *run, void *target,
                               const void *source)
{
    emulated_t *device = device_of(run);
    return SUBMIT(emulated_port(device)->copy(
        device, run->stream, target, source, slot_bytes(run->program)));
}

static bool start(run_t *run, uint64_t epoch)
{
    if (once_in(2)) {
        settle(run);
        if (!run->failed && trial.inputs) {
            write_slot(run, 0, run->inputs[epoch]);
        }
        return !run->failed &&
               went_well(run, baton_schedule_start(run->schedule));
    }
    if (trial.fault != FAIL_SUBMIT && once_in(4)) {
        emulated_delay(device_of(run), run->stream, below(300));
    }
    return (!trial.inputs || went_well(run, put_copy(run, run->memory[0],
                                                     run->inputs[epoch]))) &&
           went_well(run, SUBMIT(baton_schedule_start_on(run->schedule,
                                                         run->stream)));
}

static void cause_fault(run_t *run, uint64_t epoch)
{
    emulated_t *device = device_of(run);
    if (trial.life > 0 || trial.victim != run->rank ||
        trial.fault_program != run->program->index ||
        trial.fault_epoch != epoch) {
        return;
    }
    if (trial.fault == FAIL_WORK) {
        emulated_fail_work(device, 1 + below(40));
    } else if (trial.fault == FAIL_SUBMIT) {
        emulated_fail_submit(device, 1 + below(40));
    } else if (trial.fault == CANCEL) {
        baton_status_t status = baton_schedule_cancel(run->schedule);
        /* Or it has ended. */
        holds(status == BATON_OK || status == BATON_ERR_STATE, "cancel");
    }
}

/* A schedule without messages goes on with its next epoch when one has failed,
   so each has to be waited for. */
static void run_epoch(run_t *run, uint64_t epoch)
{
    if (run->failed || !start(run, epoch)) {
        return;
    }
    run->started = epoch;
    if (went_well(run,
                  SUBMIT(baton_schedule_wait_on(run->schedule, run->stream)))) {
        run->looks[epoch] =
            once_in(2) &&
            went_well(run, put_copy(run, run->found[epoch], run->memory[0]));
    }
    cause_fault(run, epoch);
    if (may_fail() && !run->program->talks[run->rank] && !run->failed) {
        settle(run);
    }
}

/* Calls fn for each rank's part of each program. */
static void for_each(void (*fn)(run_t *run))
{
    for (int i = 0; i < trial.programs * trial.ranks; i++) {
        fn(&programs[i / trial.ranks].runs[i % trial.ranks]);
    }
}

static void end_failed(run_t *run)
{
    (void)synchronise(run);
    if (run->failed && !run->cleared) {
        (void)await_end(run); /* a start may have told of the failure */
        clear_memory(run);
    }
}

static void check_cleared(run_t *run)
{
    for (int slot = 1; slot < SLOTS && run->cleared; slot++) {
        if (run->memory[slot] != NULL) {
            expect_slot(run, slot, zeros);
        }
    }
}

static void destroy(run_t *run)
{
    support_ok(baton_schedule_destroy(run->schedule));
}

static void make_schedules(void)
{
    for (int i = 0; i < trial.programs; i++) {
        baton_schedule_t *schedules[RANKS];
        for (int rank = 0; rank < trial.ranks; rank++) {
            schedules[rank] = build(&programs[i].runs[rank]);
        }
        support_schedules_commit(trial.cluster->cluster, schedules);
    }
}

static void live(void)
{
    for (int i = 0; i < trial.programs; i++) {
        begin_life(&programs[i]);
    }
    for (uint64_t epoch = 1; epoch <= trial.epochs; epoch++) {
        for (int i = 0; i < trial.programs; i++) {
            for (int rank = 0; rank < trial.ranks; rank++) {
                run_epoch(&programs[i].runs[rank], epoch);
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
    assert_int_equal(setenv(variable, text, 1), 0);
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
        sample_program(&programs[i], i);
    }
    set_number("BATON_DEVICE_BLOCK", 4096 << below(3));
    set_number("BATON_DEVICE_BUFFERS", 2 + below(5));
    set_number("BATON_DEVICE_DIRECT", !once_in(3));
    set_number("BATON_VERIFY", once_in(6));
    baton__config_forget();
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
        program_t *program = &programs[i / trial.ranks];
        int rank = i % trial.ranks;
        run_t *run = &program->runs[rank];
        run->program = program;
        run->rank = rank;
        run->stream = same_stream ? trial.cluster->streams[rank]
                                  : emulated_stream(device_of(run));
        open_memory(run);
    }
    make_schedules();
    live();
    if (trial.fault != NO_FAULT) {
        for (int rank = 0; rank < trial.ranks; rank++) {
            emulated_synchronise_all(trial.cluster->devices[rank]);
            emulated_repair(trial.cluster->devices[rank]);
        }
        device_cluster_recover(trial.cluster);
        trial.life = 1;
        live();
    }
    for_each(destroy);
    for_each(close_memory);
    device_cluster_close(trial.cluster);
}

static void test_random_programs(void **state)
{
    for (int number = 0; number < TRIALS; number++) {
        run_trial(number);
    }
    for (int i = 0; i < 4; i++) {
        static const char *const set[] = {
            "BATON_DEVICE_BLOCK", "BATON_DEVICE_BUFFERS", "BATON_DEVICE_DIRECT",
            "BATON_VERIFY"};
        assert_int_equal(unsetenv(set[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
