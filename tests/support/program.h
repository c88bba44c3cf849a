/* Random programs. A program is one sequence of steps over the slots of memory
   of all ranks. A step happens after all those before it that touch the same
   memory; everything else may overlap. So running the sequence tells what
   memory holds after an epoch of the schedules that are built from it.

   Some steps are done in some epochs only, behind a call that skips in others;
   some messages have a length that their sender sets in the epoch, and steps of
   their receiver have it, too. All of this follows from a step and the epoch.
 */
#pragma once

#include "support/random.h"
#include <baton/device.h>

enum {
    PROGRAM_RANKS = 32,
    PROGRAM_SLOTS = 6, /* of a rank; the first two are bound */
    PROGRAM_PARTS = 3, /* of a slot */
    PROGRAM_STEPS = 40 + PROGRAM_RANKS,
    PROGRAM_NODES = 6 * PROGRAM_STEPS,
    PROGRAM_NONE = -1
};

/* COPY: target = left. REDUCE: target = left (op) right. MESSAGE: the peer's
   target = left. The others change the target in place: a call node, an async
   node, and work that a device call puts into its stream. */
typedef enum program_kind {
    PROGRAM_COPY,
    PROGRAM_REDUCE,
    PROGRAM_MESSAGE,
    PROGRAM_CALL,
    PROGRAM_ASYNC,
    PROGRAM_DEVICE_CALL
} program_kind_t;

typedef struct program_step {
    program_kind_t kind;
    int rank, peer; /* only of messages they differ */
    int target, left, right;
    int first, end; /* parts, of all slots alike */
    /* The message whose length it has, perhaps itself; or PROGRAM_NONE. */
    int length;
    bool chosen;    /* it is not done in every epoch */
    bool may_stray; /* it may be sent to a rank that does not receive it */
    uint64_t salt;
} program_step_t;

/* Where a slot lies. ANY: the library chooses. */
enum { PROGRAM_HOST = 1, PROGRAM_DEVICE = 2, PROGRAM_ANY = 4 };

typedef struct program_slot {
    int place;
    bool scratch;
    /* By part: whether all steps may read it, whether none may write it any
       more, and whether none may touch it. */
    bool defined[PROGRAM_PARTS], read[PROGRAM_PARTS], sealed[PROGRAM_PARTS];
} program_slot_t;

typedef struct program_options {
    int ranks;
    int part_bytes; /* the most */
    bool devices;   /* slot 0 is device memory; there are device calls */
    bool async;     /* there are async nodes */
    bool local;     /* there are no messages */
    bool connected; /* each rank sends a message to the next one */
} program_options_t;

typedef struct program {
    program_options_t options;
    baton_dtype_t dtype;
    const baton_op_t *op;
    bool talks[PROGRAM_RANKS]; /* whether the rank has messages */
    size_t offsets[PROGRAM_PARTS + 1];
    size_t slot_bytes;
    program_slot_t slots[PROGRAM_RANKS][PROGRAM_SLOTS];
    int step_count;
    program_step_t steps[PROGRAM_STEPS];
} program_t;

void program_sample(program_t *program, const program_options_t *options,
                    support_random_t *random);

/* The memory of all slots of all ranks, and where a slot is in it. */
size_t program_bytes(const program_t *program);
unsigned char *program_slot(const program_t *program, unsigned char *memory,
                            int rank, int slot);

/* The reference: takes this memory through an epoch. */
void program_run(const program_t *program, uint64_t epoch,
                 unsigned char *memory);

/* ---- schedules --------------------------------------------------------- */

typedef struct program_part program_part_t;

/* What the functions of a step's nodes get. */
typedef struct program_site {
    program_part_t *part;
    const program_step_t *step;
    baton_view_t view;
    baton_length_t length; /* sent, or received before the step */
    /* Of an async node or a device call that has begun. */
    uint64_t epoch;
    void *address;
} program_site_t;

/* Takes down where the epoch's call works. A function that begins an async
   node or a device call starts with it; program_change is what is to be done
   there then (to a copy of the memory, if that is a device's). */
void program_begin(program_site_t *site, baton_call_t *call);
void program_change(const program_site_t *site, void *memory);

typedef struct program_touch {
    baton_node_t node;
    int slot, first, end;
    bool writes;
} program_touch_t;

/* A program on a rank. The user sets the first fields; the builder the rest. */
struct program_part {
    const program_t *program;
    int rank;
    void *memory[PROGRAM_SLOTS]; /* of bound slots */
    /* The functions of async nodes and device calls, which get the site. */
    const baton_async_ops_t *async;
    baton_device_call_fn device_call;
    /* May be NULL. Asked by each call node; an error fails it. */
    baton_status_t (*fault)(program_part_t *part, uint64_t epoch);

    baton_schedule_t *schedule;
    baton_buffer_t buffers[PROGRAM_SLOTS];
    program_site_t sites[PROGRAM_STEPS];
    baton_node_t receives[PROGRAM_STEPS]; /* by step */
    baton_length_t received[PROGRAM_STEPS];
    program_touch_t touches[PROGRAM_NODES];
    int touch_count;
    baton_node_t nodes[PROGRAM_NODES]; /* what others may be put behind */
    int node_count;
};

void program_build(program_part_t *part, baton_schedule_t *schedule);
