/* Engines, devices and memory of a world; see world.h. */
#include "fuzz/device/world.h"

#include "base/config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STREAM_COMPLETER = 90, STREAM_LIFE = 100, STREAM_RANK = 200 };

/* ---- failures ---------------------------------------------------------- */

void world_fail(world_t *world, const char *format, ...)
{
    char what[FUZZ_FAILURE_BYTES];
    va_list args;
    va_start(args, format);
    /* clang-tidy 14 loses sight of va_start here. */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    (void)pthread_mutex_lock(&world->failure_mutex);
    if (world->failure[0] == '\0') {
        (void)snprintf(world->failure, sizeof world->failure, "life %d, %.450s",
                       world->life, what);
    }
    (void)pthread_mutex_unlock(&world->failure_mutex);
}

bool world_failed(world_t *world)
{
    (void)pthread_mutex_lock(&world->failure_mutex);
    bool failed = world->failure[0] != '\0';
    (void)pthread_mutex_unlock(&world->failure_mutex);
    return failed;
}

bool world_ok(world_rank_t *rank, const char *call, baton_status_t status)
{
    if (status != BATON_OK) {
        world_fail(rank->world, "rank %d: %s: %s: %s", rank->rank, call,
                   baton_status_name(status), baton_error_message());
    }
    return status == BATON_OK;
}

/* ---- async nodes ------------------------------------------------------- */

void world_complete_later(world_t *world, world_site_t *site)
{
    (void)pthread_mutex_lock(&world->mutex);
    site->next = world->begun;
    world->begun = site;
    (void)pthread_cond_signal(&world->changed);
    (void)pthread_mutex_unlock(&world->mutex);
}

static void complete(world_t *world, world_site_t *site)
{
    world_change(site->step, site->epoch, site->address, site->view.bytes);
    baton_status_t status = baton_async_complete(site->async, BATON_OK);
    if (status != BATON_OK) {
        world_fail(world, "baton_async_complete: %s", baton_error_message());
    }
}

/* Takes all that have begun, the last one first. */
static void *complete_all(void *arg)
{
    world_t *world = arg;
    fuzz_random_t random = fuzz_stream(world->plan->seed, STREAM_COMPLETER);
    (void)pthread_mutex_lock(&world->mutex);
    while (!world->closing) {
        if (world->begun == NULL) {
            (void)pthread_cond_wait(&world->changed, &world->mutex);
            continue;
        }
        world_site_t *site = world->begun;
        world->begun = site->next;
        (void)pthread_mutex_unlock(&world->mutex);
        if (fuzz_once_in(&random, 2)) {
            (void)usleep((useconds_t)fuzz_below(&random, 100));
        }
        complete(world, site);
        (void)pthread_mutex_lock(&world->mutex);
    }
    (void)pthread_mutex_unlock(&world->mutex);
    return NULL;
}

/* ---- memory ------------------------------------------------------------ */

static bool is_bound(const world_slot_t *slot)
{
    return slot->used && !slot->scratch;
}

static const world_slot_t *slot_of(const world_run_t *run, int slot)
{
    return &run->program->slots[run->rank->rank][slot];
}

static void *allocate_bytes(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);
    if (memory == NULL) {
        (void)fprintf(stderr, "fuzz: no memory for %zu bytes\n", bytes);
        exit(EXIT_FAILURE);
    }
    return memory;
}

static void *allocate(world_run_t *run, const world_slot_t *slot)
{
    size_t bytes = world_slot_bytes(run->program) + 1;
    emulated_t *device = run->rank->device;
    void *memory = NULL;
    if (slot->place == PLACE_DEVICE) {
        return emulated_allocate(device, bytes);
    }
    if (slot->pinned) {
        (void)world_ok(run->rank, "allocate",
                       emulated_port(device)->allocate(
                           device, BATON_MEMORY_HOST, bytes, &memory));
    } else {
        memory = malloc(bytes);
    }
    if (memory == NULL) {
        (void)fprintf(stderr, "fuzz: no memory for a slot\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

static void release(world_run_t *run, int index)
{
    const world_slot_t *slot = slot_of(run, index);
    emulated_t *device = run->rank->device;
    void *memory = run->memory[index];
    if (slot->place == PLACE_DEVICE) {
        emulated_release(device, memory);
    } else if (slot->pinned) {
        emulated_port(device)->release(device, BATON_MEMORY_HOST, memory);
    } else {
        free(memory);
    }
}

static void write_slot(world_run_t *run, int index, const void *contents)
{
    size_t bytes = world_slot_bytes(run->program);
    if (slot_of(run, index)->place == PLACE_DEVICE) {
        emulated_write(run->rank->device, run->memory[index], contents, bytes);
    } else {
        memcpy(run->memory[index], contents, bytes);
    }
}

static void read_slot(world_run_t *run, int index, void *contents)
{
    size_t bytes = world_slot_bytes(run->program);
    if (slot_of(run, index)->place == PLACE_DEVICE) {
        emulated_read(run->rank->device, contents, run->memory[index], bytes);
    } else {
        memcpy(contents, run->memory[index], bytes);
    }
}

static void compare_slot(world_run_t *run, uint64_t epoch, int index,
                         unsigned char *found)
{
    const world_rank_t *rank = run->rank;
    size_t bytes = world_slot_bytes(run->program);
    const unsigned char *right =
        rank->world->expected[run->index][epoch].slots[rank->rank][index];
    read_slot(run, index, found);
    for (size_t i = 0; i < bytes; i++) {
        if (found[i] != right[i]) {
            world_fail(rank->world,
                       "program %d, rank %d, epoch %llu: slot %d is wrong from "
                       "byte %zu on: %d, not %d",
                       run->index, rank->rank, (unsigned long long)epoch, index,
                       i, found[i], right[i]);
            return;
        }
    }
}

void world_compare(world_run_t *run, uint64_t epoch)
{
    unsigned char *found = malloc(world_slot_bytes(run->program) + 1);
    for (int slot = 0; slot < WORLD_ALL_SLOTS && found != NULL; slot++) {
        if (is_bound(slot_of(run, slot))) {
            compare_slot(run, epoch, slot, found);
        }
    }
    free(found);
}

enum { SCRIBBLE = 0x5c };

void world_scribble(world_run_t *run)
{
    size_t bytes = world_slot_bytes(run->program);
    unsigned char *contents = allocate_bytes(bytes);
    memset(contents, SCRIBBLE, bytes);
    for (int slot = 1; slot < WORLD_ALL_SLOTS; slot++) {
        if (is_bound(slot_of(run, slot))) {
            write_slot(run, slot, contents);
        }
    }
    run->scribbled = true;
    free(contents);
}

void world_compare_scribble(world_run_t *run)
{
    size_t bytes = world_slot_bytes(run->program);
    unsigned char *found = allocate_bytes(bytes);
    unsigned char *right = allocate_bytes(bytes);
    memset(right, SCRIBBLE, bytes);
    for (int slot = 1; slot < WORLD_ALL_SLOTS; slot++) {
        if (!is_bound(slot_of(run, slot))) {
            continue;
        }
        read_slot(run, slot, found);
        if (memcmp(found, right, bytes) != 0) {
            world_fail(run->rank->world,
                       "program %d, rank %d: slot %d was written after an "
                       "epoch had failed",
                       run->index, run->rank->rank, slot);
        }
    }
    free(found);
    free(right);
}

/* ---- lives ------------------------------------------------------------- */

static uint64_t key_of(const world_t *world, int program)
{
    fuzz_random_t random = fuzz_stream(
        world->plan->seed,
        STREAM_LIFE + (uint64_t)(world->life * WORLD_PROGRAMS + program));
    return fuzz_next(&random);
}

static void copy_memory(const world_program_t *program, world_memory_t *to,
                        const world_memory_t *from)
{
    for (int rank = 0; rank < program->ranks; rank++) {
        for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
            memcpy(to->slots[rank][slot], from->slots[rank][slot],
                   world_slot_bytes(program));
        }
    }
}

/* Runs the reference through all epochs. */
static void expect(world_t *world, int index)
{
    const world_program_t *program = &world->plan->programs[index];
    world_memory_t *expected = world->expected[index];
    uint64_t key = key_of(world, index);
    world_memory_fill(program, key, &expected[0]);
    for (uint64_t epoch = 1; epoch <= world->plan->epochs; epoch++) {
        world_memory_t *now = &expected[epoch];
        copy_memory(program, now, &expected[epoch - 1]);
        for (int rank = 0; rank < program->ranks; rank++) {
            unsigned char *input = world->ranks[rank].runs[index].inputs[epoch];
            world_fill_input(program, key, rank, epoch, input);
            if (world->plan->inputs) {
                memcpy(now->slots[rank][0], input, world_slot_bytes(program));
            }
        }
        world_reference(program, epoch, now);
    }
}

static void begin_run(world_run_t *run)
{
    const world_rank_t *rank = run->rank;
    const world_memory_t *first = &rank->world->expected[run->index][0];
    run->failed = run->blind = run->scribbled = false;
    run->started = run->settled = 0;
    for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
        if (is_bound(slot_of(run, slot))) {
            write_slot(run, slot, first->slots[rank->rank][slot]);
        }
    }
}

void world_begin_life(world_t *world, int life)
{
    const world_plan_t *plan = world->plan;
    world->life = life;
    atomic_store(&world->working, plan->ranks);
    atomic_store(&world->staying, plan->ranks);
    for (int i = 0; i < plan->program_count; i++) {
        expect(world, i);
        for (int rank = 0; rank < plan->ranks; rank++) {
            begin_run(&world->ranks[rank].runs[i]);
        }
    }
}

/* ---- open -------------------------------------------------------------- */

static void set_number(const char *variable, size_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%zu", value);
    (void)setenv(variable, text, 1);
}

/* The library reads them again when it is used next. */
static void set_variables(const world_plan_t *plan)
{
    set_number("BATON_DEVICE_BLOCK", plan->block_bytes);
    set_number("BATON_DEVICE_BUFFERS", (size_t)plan->buffers);
    set_number("BATON_DEVICE_DIRECT", plan->direct);
    set_number("BATON_VERIFY", plan->verify);
    /* An epoch that a peer began may wait for a start that never comes. */
    set_number("BATON_DESTROY_MS", 2000);
    baton__config_forget();
}

static void open_engine(world_rank_t *rank)
{
    const world_plan_t *plan = rank->world->plan;
    if (plan->together && rank->rank > 0) {
        rank->engine = rank->world->ranks[0].engine;
        rank->device = rank->world->ranks[0].device;
        return;
    }
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    emulated_options_t device = plan->device;
    options.progress =
        plan->manual ? BATON_PROGRESS_MANUAL : BATON_PROGRESS_THREAD;
    device.seed += (uint64_t)rank->rank;
    rank->device = emulated_open(&device);
    if (!world_ok(rank, "open", baton_engine_open(&options, &rank->engine)) ||
        !world_ok(rank, "attach",
                  baton_engine_attach_device(rank->engine,
                                             emulated_port(rank->device),
                                             rank->device))) {
        abort(); /* there is nothing to close yet */
    }
}

static void open_run(world_rank_t *rank, int index)
{
    const world_plan_t *plan = rank->world->plan;
    world_run_t *run = &rank->runs[index];
    run->rank = rank;
    run->index = index;
    run->program = &plan->programs[index];
    run->stream = index > 0 && plan->same_stream
                      ? rank->runs[0].stream
                      : emulated_stream(rank->device);
    for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
        if (is_bound(slot_of(run, slot))) {
            run->memory[slot] = allocate(run, slot_of(run, slot));
        }
    }
    size_t bytes = world_slot_bytes(run->program);
    for (uint64_t epoch = 1; epoch <= plan->epochs; epoch++) {
        run->inputs[epoch] = allocate_bytes(bytes);
        run->found[epoch] = allocate_bytes(bytes);
    }
    for (int i = 0; i < run->program->step_count; i++) {
        run->sites[i].copy = run->program->steps[i].kind == STEP_DEVICE_CALL &&
                                     run->program->steps[i].rank == rank->rank
                                 ? allocate_bytes(world_step_bytes(
                                       run->program, &run->program->steps[i]))
                                 : NULL;
    }
}

static void open_rank(world_t *world, int index)
{
    world_rank_t *rank = &world->ranks[index];
    rank->world = world;
    rank->rank = index;
    rank->random =
        fuzz_stream(world->plan->seed, STREAM_RANK + (uint64_t)index);
    open_engine(rank);
    (void)world_ok(rank, "group",
                   baton_group_create_inproc(rank->engine, world->medium, index,
                                             &rank->group));
    for (int i = 0; i < world->plan->program_count; i++) {
        open_run(rank, i);
    }
}

void world_open(world_t *world, const world_plan_t *plan)
{
    world->plan = plan;
    (void)pthread_mutex_init(&world->mutex, NULL);
    (void)pthread_mutex_init(&world->failure_mutex, NULL);
    (void)pthread_cond_init(&world->changed, NULL);
    set_variables(plan);
    if (baton_inproc_create(plan->ranks, &world->medium) != BATON_OK ||
        pthread_create(&world->completer, NULL, complete_all, world) != 0) {
        abort();
    }
    for (int rank = 0; rank < plan->ranks; rank++) {
        open_rank(world, rank);
    }
    for (int i = 0; i < plan->program_count; i++) {
        for (uint64_t epoch = 0; epoch <= plan->epochs; epoch++) {
            world->expected[i][epoch] = world_memory_create(&plan->programs[i]);
        }
    }
}

/* ---- close ------------------------------------------------------------- */

static void close_completer(world_t *world)
{
    (void)pthread_mutex_lock(&world->mutex);
    world->closing = true;
    (void)pthread_cond_signal(&world->changed);
    (void)pthread_mutex_unlock(&world->mutex);
    (void)pthread_join(world->completer, NULL);
    (void)pthread_cond_destroy(&world->changed);
    (void)pthread_mutex_destroy(&world->mutex);
    (void)pthread_mutex_destroy(&world->failure_mutex);
}

static void close_run(world_run_t *run)
{
    for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
        if (is_bound(slot_of(run, slot))) {
            release(run, slot);
        }
    }
    for (uint64_t epoch = 1; epoch <= run->rank->world->plan->epochs; epoch++) {
        free(run->inputs[epoch]);
        free(run->found[epoch]);
    }
    for (int i = 0; i < run->program->step_count; i++) {
        free(run->sites[i].copy);
    }
}

/* The applications have destroyed their schedules. */
void world_close(world_t *world)
{
    const world_plan_t *plan = world->plan;
    for (int rank = 0; rank < plan->ranks; rank++) {
        world_rank_t *at = &world->ranks[rank];
        (void)world_ok(at, "group destroy", baton_group_destroy(at->group));
    }
    (void)world_ok(&world->ranks[0], "inproc destroy",
                   baton_inproc_destroy(world->medium));
    for (int rank = 0; rank < plan->ranks; rank++) {
        for (int i = 0; i < plan->program_count; i++) {
            close_run(&world->ranks[rank].runs[i]);
        }
    }
    for (int rank = 0; rank < plan->ranks; rank++) {
        world_rank_t *at = &world->ranks[rank];
        if (rank == 0 || !plan->together) {
            (void)world_ok(at, "close", baton_engine_close(at->engine));
        }
    }
    for (int i = 0; i < plan->program_count; i++) {
        for (uint64_t epoch = 0; epoch <= plan->epochs; epoch++) {
            world_memory_destroy(&world->expected[i][epoch]);
        }
    }
    close_completer(world);
}
