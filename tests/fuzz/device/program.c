/* Sampling programs, and the reference; see program.h. */
#include "fuzz/device/program.h"

#include "fuzz/exclusive_or.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a step does -------------------------------------------------- */

void world_change(const world_step_t *step, uint64_t epoch, void *memory,
                  size_t bytes)
{
    unsigned char *at = memory;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(at[i] * 5U + step->salt + 31 * epoch + 7 * i);
    }
}

static uint64_t drawn(const world_step_t *step, uint64_t epoch)
{
    fuzz_random_t random = {step->salt + epoch};
    return fuzz_next(&random);
}

bool world_branch_taken(const world_step_t *step, uint64_t epoch)
{
    return drawn(step, epoch) % 2 == 0;
}

size_t world_length(const world_program_t *program, const world_step_t *step,
                    uint64_t epoch)
{
    size_t element = baton_dtype_size(program->dtype);
    size_t count = world_step_bytes(program, step) / element;
    uint64_t draw = drawn(step, epoch);
    return draw % 4 == 0 ? SIZE_MAX
                         : (size_t)(draw / 4) % (count + 1) * element;
}

const baton_op_t *world_op(const world_program_t *program)
{
    static const baton_op_t op = {.name = "exclusive or",
                                  .reduce = fuzz_exclusive_or,
                                  .commutative = true};
    return program->own_op ? &op : BATON_SUM;
}

/* ---- the reference ----------------------------------------------------- */

/* Integers of `size` bytes, the first one the least. */
static void add(unsigned char *target, const unsigned char *left,
                const unsigned char *right, size_t bytes, size_t size)
{
    unsigned carry = 0;
    for (size_t i = 0; i < bytes; i++) {
        carry = i % size == 0 ? 0 : carry;
        unsigned sum = left[i] + right[i] + carry;
        target[i] = (unsigned char)sum;
        carry = sum >> 8;
    }
}

static void reduce(const world_program_t *program, unsigned char *target,
                   const unsigned char *left, const unsigned char *right,
                   size_t bytes)
{
    size_t size = baton_dtype_size(program->dtype);
    if (program->own_op) {
        fuzz_exclusive_or(NULL, target, left, right, bytes / size,
                          program->dtype);
    } else {
        add(target, left, right, bytes, size);
    }
}

static void run_step(const world_program_t *program, const world_step_t *step,
                     uint64_t epoch, world_memory_t *memory)
{
    size_t from = program->offsets[step->first];
    size_t bytes = world_step_bytes(program, step);
    unsigned char **own = memory->slots[step->rank];
    unsigned char **peer = memory->slots[step->peer];
    size_t length = world_length(program, step, epoch);
    switch (step->kind) {
    case STEP_COPY:
        memmove(own[step->target] + from, own[step->left] + from, bytes);
        break;
    case STEP_REDUCE:
        reduce(program, own[step->target] + from, own[step->left] + from,
               own[step->right] + from, bytes);
        break;
    case STEP_CALL:
    case STEP_DEVICE_CALL:
    case STEP_POLLED:
    case STEP_COMPLETED:
        world_change(step, epoch, own[step->target] + from, bytes);
        break;
    case STEP_MESSAGE:
        memmove(peer[step->target] + from, own[step->left] + from, bytes);
        break;
    case STEP_LENGTH:
        length = length == SIZE_MAX ? bytes : length;
        memmove(peer[step->target] + from, own[step->left] + from, length);
        memmove(peer[step->right] + from, peer[step->target] + from, length);
        break;
    case STEP_BRANCH:
        if (world_branch_taken(step, epoch)) {
            reduce(program, own[step->target] + from, own[step->target] + from,
                   own[step->left] + from, bytes);
        }
        break;
    case STEP_JOIN:
    case STEP_START:
    case STEP_KINDS:
        break;
    }
}

void world_reference(const world_program_t *program, uint64_t epoch,
                     world_memory_t *memory)
{
    for (int i = 0; i < program->step_count; i++) {
        run_step(program, &program->steps[i], epoch, memory);
    }
}

/* ---- memory ------------------------------------------------------------ */

world_memory_t world_memory_create(const world_program_t *program)
{
    world_memory_t memory = {0};
    for (int rank = 0; rank < program->ranks; rank++) {
        for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
            memory.slots[rank][slot] = calloc(world_slot_bytes(program) + 1, 1);
            if (memory.slots[rank][slot] == NULL) {
                (void)fprintf(stderr, "fuzz: no memory for a slot\n");
                exit(EXIT_FAILURE);
            }
        }
    }
    return memory;
}

void world_memory_destroy(world_memory_t *memory)
{
    for (int rank = 0; rank < WORLD_RANKS; rank++) {
        for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
            free(memory->slots[rank][slot]);
        }
    }
}

static void fill(const world_program_t *program, fuzz_random_t random,
                 unsigned char *slot)
{
    for (size_t i = 0; i < world_slot_bytes(program); i++) {
        slot[i] = (unsigned char)(fuzz_next(&random) >> 56);
    }
}

void world_memory_fill(const world_program_t *program, uint64_t key,
                       world_memory_t *memory)
{
    for (int rank = 0; rank < program->ranks; rank++) {
        for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
            uint64_t number = (uint64_t)rank * WORLD_ALL_SLOTS + (uint64_t)slot;
            fill(program, fuzz_stream(key, number), memory->slots[rank][slot]);
        }
    }
}

void world_fill_input(const world_program_t *program, uint64_t key, int rank,
                      uint64_t epoch, unsigned char *input)
{
    fill(program, fuzz_stream(key, 1000 + epoch * WORLD_RANKS + (uint64_t)rank),
         input);
}

/* ---- sampling ---------------------------------------------------------- */

/* What is known while a program is sampled: which scratch has been written. */
typedef struct sampler {
    fuzz_random_t *random;
    world_program_t *program;
    bool defined[WORLD_RANKS][WORLD_ALL_SLOTS][WORLD_PARTS];
    int branches[WORLD_RANKS];
} sampler_t;

static int below(const sampler_t *self, int bound)
{
    return (int)fuzz_below(self->random, (uint64_t)bound);
}

/* Slot 0 is bound device memory, slot 1 bound host memory. */
static void sample_slot(sampler_t *self, int rank, int index)
{
    world_slot_t *slot = &self->program->slots[rank][index];
    *slot = (world_slot_t){.used = true,
                           .scratch = index > 1 && below(self, 3) == 0,
                           .pinned = below(self, 2) == 0,
                           .place = (world_place_t)below(self, 2)};
    if (index < 2) {
        slot->place = index == 0 ? PLACE_DEVICE : PLACE_HOST;
    } else if (slot->scratch && below(self, 2) == 0) {
        slot->place = PLACE_ANY;
    }
    for (int part = 0; part < WORLD_PARTS; part++) {
        self->defined[rank][index][part] = !slot->scratch;
    }
}

static void sample_sizes(sampler_t *self)
{
    size_t element = baton_dtype_size(self->program->dtype);
    size_t *offsets = self->program->offsets;
    bool small = below(self, 3) == 0;
    offsets[0] = 0;
    for (int part = 0; part < WORLD_PARTS; part++) {
        size_t most = small ? 20 : below(self, 6) == 0 ? 30000 : 4000;
        size_t bytes = below(self, 8) == 0
                           ? 0
                           : (size_t)fuzz_below(self->random, most + 1);
        offsets[part + 1] = offsets[part] + bytes / element * element;
    }
}

static bool is_defined(const sampler_t *self, int rank, int slot,
                       const world_step_t *step)
{
    for (int part = step->first; part < step->end; part++) {
        if (!self->defined[rank][slot][part]) {
            return false;
        }
    }
    return true;
}

static void define(sampler_t *self, int rank, int slot,
                   const world_step_t *step)
{
    for (int part = step->first; part < step->end; part++) {
        self->defined[rank][slot][part] = true;
    }
}

/* Kinds of places, as masks. */
enum {
    ON_HOST = 1 << PLACE_HOST,
    ON_DEVICE = 1 << PLACE_DEVICE,
    ANYWHERE = ON_HOST | ON_DEVICE | 1 << PLACE_ANY
};

/* A slot in one of these places, whose parts have been written if it is to be
   read; -1 if there is none. */
static int choose_slot(const sampler_t *self, int rank, int places, bool read,
                       const world_step_t *step)
{
    int begin = below(self, WORLD_SLOTS);
    for (int i = 0; i < WORLD_SLOTS; i++) {
        int slot = (begin + i) % WORLD_SLOTS;
        const world_slot_t *at = &self->program->slots[rank][slot];
        if (at->used && (places >> at->place & 1) != 0 &&
            (!read || is_defined(self, rank, slot, step))) {
            return slot;
        }
    }
    return -1;
}

static bool sample_local(sampler_t *self, world_step_t *step)
{
    int rank = step->rank;
    if (step->kind == STEP_COPY) {
        step->left = choose_slot(self, rank, ANYWHERE, true, step);
        step->target = choose_slot(self, rank, ANYWHERE, false, step);
        return step->left >= 0 && step->left != step->target;
    }
    if (step->kind == STEP_REDUCE) {
        int places = below(self, 3) == 0 ? ON_HOST : ANYWHERE & ~ON_HOST;
        step->left = choose_slot(self, rank, places, true, step);
        step->right = choose_slot(self, rank, places, true, step);
        step->target = choose_slot(self, rank, places, false, step);
        return step->left >= 0 && step->right >= 0 && step->target >= 0;
    }
    int places = step->kind == STEP_DEVICE_CALL ? ON_DEVICE : ON_HOST;
    step->target = choose_slot(self, rank, places, true, step);
    return step->target >= 0;
}

/* Of a length only a part is written: into what has been written before. */
static bool sample_message(sampler_t *self, world_step_t *step)
{
    bool length = step->kind == STEP_LENGTH;
    step->peer = below(self, self->program->ranks);
    step->left = choose_slot(self, step->rank, ANYWHERE, true, step);
    step->target = choose_slot(self, step->peer, ANYWHERE, length, step);
    step->right =
        length ? choose_slot(self, step->peer, ANYWHERE, true, step) : 0;
    bool to_self = step->peer == step->rank;
    return step->left >= 0 && step->target >= 0 && step->right >= 0 &&
           !(to_self && step->left == step->target) &&
           !(length && (step->right == step->target ||
                        (to_self && step->right == step->left)));
}

/* What a branch reads and writes nobody else touches: a node behind a branch
   that may be left out is after nothing. */
static bool sample_branch(sampler_t *self, world_step_t *step)
{
    if (self->branches[step->rank] == WORLD_BRANCHES) {
        return false;
    }
    step->left = WORLD_SLOTS + 2 * self->branches[step->rank]++;
    step->target = step->left + 1;
    world_place_t place = (world_place_t)below(self, 2);
    for (int slot = step->left; slot <= step->target; slot++) {
        self->program->slots[step->rank][slot] =
            (world_slot_t){.used = true,
                           .pinned = below(self, 2) == 0,
                           .input = slot == step->left,
                           .place = place};
    }
    return true;
}

static bool sample_operands(sampler_t *self, world_step_t *step)
{
    switch (step->kind) {
    case STEP_COPY:
    case STEP_REDUCE:
    case STEP_CALL:
    case STEP_DEVICE_CALL:
    case STEP_POLLED:
    case STEP_COMPLETED:
        return sample_local(self, step);
    case STEP_MESSAGE:
    case STEP_LENGTH:
        return sample_message(self, step);
    case STEP_BRANCH:
        return sample_branch(self, step);
    case STEP_JOIN:
    case STEP_START:
        return true;
    case STEP_KINDS:
        break;
    }
    return false;
}

static void sample_step(sampler_t *self)
{
    static const world_step_kind_t often[] = {STEP_COPY, STEP_REDUCE,
                                              STEP_MESSAGE};
    world_program_t *program = self->program;
    world_step_t step = {.rank = below(self, program->ranks),
                         .kind = below(self, 2) == 0 ? often[below(self, 3)]
                                                     : (world_step_kind_t)below(
                                                           self, STEP_KINDS),
                         .salt = fuzz_next(self->random),
                         .chance = fuzz_next(self->random)};
    step.peer = step.rank;
    step.first = below(self, WORLD_PARTS);
    step.end = step.first + 1 + below(self, WORLD_PARTS - step.first);
    if (!sample_operands(self, &step)) {
        return;
    }
    if (step.kind == STEP_COPY || step.kind == STEP_REDUCE) {
        define(self, step.rank, step.target, &step);
    } else if (step.kind == STEP_MESSAGE) {
        define(self, step.peer, step.target, &step);
    }
    program->steps[program->step_count++] = step;
}

void world_program_sample(fuzz_random_t *random, int ranks,
                          world_program_t *out)
{
    static const baton_dtype_t dtypes[] = {BATON_U8, BATON_U16, BATON_I32,
                                           BATON_U64};
    sampler_t self = {.random = random, .program = out};
    *out = (world_program_t){.ranks = ranks};
    out->dtype = dtypes[below(&self, 4)];
    out->own_op = below(&self, 4) == 0;
    out->activates = below(&self, 4) == 0;
    sample_sizes(&self);
    for (int rank = 0; rank < ranks; rank++) {
        for (int slot = 0; slot < WORLD_SLOTS; slot++) {
            sample_slot(&self, rank, slot);
        }
    }
    int steps = 1 + below(&self, WORLD_STEPS);
    for (int i = 0; i < steps; i++) {
        sample_step(&self);
    }
}

/* ---- printing ---------------------------------------------------------- */

static void print_slot(const world_program_t *program, int rank, int index,
                       FILE *to)
{
    static const char *const places[] = {"host", "device", "any"};
    const world_slot_t *slot = &program->slots[rank][index];
    if (slot->used) {
        (void)fprintf(to, " %d:%s%s", index, places[slot->place],
                      slot->scratch ? " scratch" : "");
    }
}

void world_program_print(const world_program_t *program, FILE *to)
{
    static const char *const names[] = {
#define WORLD_STEP_NAME(NAME, name) [STEP_##NAME] = (name),
        WORLD_STEP_LIST(WORLD_STEP_NAME)
#undef WORLD_STEP_NAME
    };
    (void)fprintf(to, "  slots of %zu + %zu + %zu bytes, %s%s%s\n",
                  program->offsets[1],
                  program->offsets[2] - program->offsets[1],
                  program->offsets[3] - program->offsets[2],
                  baton_dtype_name(program->dtype),
                  program->own_op ? ", an op of its own" : "",
                  program->activates ? ", activated by rank 0" : "");
    for (int rank = 0; rank < program->ranks; rank++) {
        (void)fprintf(to, "  rank %d:", rank);
        for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
            print_slot(program, rank, slot, to);
        }
        (void)fprintf(to, "\n");
    }
    for (int i = 0; i < program->step_count; i++) {
        const world_step_t *step = &program->steps[i];
        (void)fprintf(to,
                      "  %2d: rank %d: %s, target %d, left %d, right %d, parts "
                      "%d to %d, peer %d\n",
                      i, step->rank, names[step->kind], step->target,
                      step->left, step->right, step->first, step->end - 1,
                      step->peer);
    }
}
