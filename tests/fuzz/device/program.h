/* Programs of the fuzzer's worlds with devices: what each rank does with its
   slots of memory, as one sequence of steps over all ranks. A step happens
   after all those before it that touch the same memory; everything else may
   overlap. So one reference can run the sequence, and the schedules that are
   built from it have to come to the same contents. */
#ifndef TESTS_FUZZ_DEVICE_PROGRAM_H
#define TESTS_FUZZ_DEVICE_PROGRAM_H

#include "fuzz/random.h"
#include <baton/device.h>
#include <stdio.h>

enum {
    WORLD_RANKS = 5,
    WORLD_SLOTS = 7, /* of a rank, without those of branches */
    WORLD_PARTS = 3, /* of a slot */
    WORLD_STEPS = 40,
    WORLD_BRANCHES = 2, /* on a rank */
    WORLD_ALL_SLOTS = WORLD_SLOTS + 2 * WORLD_BRANCHES
};

/* Where a slot lies: where the plan says, or where the library puts it, which
   is for scratch alone. */
typedef enum world_place { PLACE_HOST, PLACE_DEVICE, PLACE_ANY } world_place_t;

typedef struct world_slot {
    bool used;
    bool scratch;
    bool pinned; /* host memory */
    bool input;  /* bound so that no node may write it */
    world_place_t place;
} world_slot_t;

/* COPY    target = left
   REDUCE  target = left (op) right
   CALL, DEVICE_CALL, POLLED, COMPLETED
           change the target in place: a call node, work that a device call puts
           into its stream, async nodes
   MESSAGE the peer's target = left
   LENGTH  the same for a part of it, as long as the sender decides in the
           epoch; then on the peer right = that part of its target
   BRANCH  in some epochs target = target (op) left
   JOIN    a nop behind some nodes of which it needs some
   START   a node that fires when the application starts the epoch */
#define WORLD_STEP_LIST(X)                                                     \
    X(COPY, "copy")                                                            \
    X(REDUCE, "reduce")                                                        \
    X(CALL, "call")                                                            \
    X(DEVICE_CALL, "device call")                                              \
    X(POLLED, "polled")                                                        \
    X(COMPLETED, "completed")                                                  \
    X(MESSAGE, "message")                                                      \
    X(LENGTH, "message of a length")                                           \
    X(BRANCH, "branch")                                                        \
    X(JOIN, "join")                                                            \
    X(START, "start")

typedef enum world_step_kind {
#define WORLD_STEP_ENUM(NAME, name) STEP_##NAME,
    WORLD_STEP_LIST(WORLD_STEP_ENUM)
#undef WORLD_STEP_ENUM
        STEP_KINDS
} world_step_kind_t;

typedef struct world_step {
    world_step_kind_t kind;
    int rank;
    int peer; /* of messages */
    int target, left, right;
    int first, end; /* parts, of all slots alike */
    uint64_t salt;
    /* Chances, of edges that the data do not ask for. */
    uint64_t chance;
} world_step_t;

typedef struct world_program {
    int ranks;
    baton_dtype_t dtype;
    bool own_op;
    bool activates; /* rank 0 begins the epochs of all others */
    size_t offsets[WORLD_PARTS + 1];
    world_slot_t slots[WORLD_RANKS][WORLD_ALL_SLOTS];
    int step_count;
    world_step_t steps[WORLD_STEPS];
} world_program_t;

void world_program_sample(fuzz_random_t *random, int ranks,
                          world_program_t *out);
void world_program_print(const world_program_t *program, FILE *to);

static inline size_t world_slot_bytes(const world_program_t *program)
{
    return program->offsets[WORLD_PARTS];
}

static inline size_t world_step_bytes(const world_program_t *program,
                                      const world_step_t *step)
{
    return program->offsets[step->end] - program->offsets[step->first];
}

const baton_op_t *world_op(const world_program_t *program);

/* What the steps do with memory, wherever that is. */
void world_change(const world_step_t *step, uint64_t epoch, void *memory,
                  size_t bytes);
bool world_branch_taken(const world_step_t *step, uint64_t epoch);
/* SIZE_MAX: it is not set. */
size_t world_length(const world_program_t *program, const world_step_t *step,
                    uint64_t epoch);

/* The contents of all slots, one rank behind the other. */
typedef struct world_memory {
    unsigned char *slots[WORLD_RANKS][WORLD_ALL_SLOTS];
} world_memory_t;

world_memory_t world_memory_create(const world_program_t *program);
void world_memory_destroy(world_memory_t *memory);
/* The contents before the first epoch, and what a rank puts into slot 0 before
   an epoch, in programs that have inputs. */
void world_memory_fill(const world_program_t *program, uint64_t key,
                       world_memory_t *memory);
void world_fill_input(const world_program_t *program, uint64_t key, int rank,
                      uint64_t epoch, unsigned char *input);

/* Runs one epoch in the order of the steps. */
void world_reference(const world_program_t *program, uint64_t epoch,
                     world_memory_t *memory);

#endif
