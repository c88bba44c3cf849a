/* Random programs. A program is a sequence of steps over the memory slots of
   all ranks. A step happens after all earlier steps that use the same memory;
   all other steps may overlap. So running the steps in order shows what memory
   must contain after an epoch of the schedules that are built from the program.

   Some steps are done in some epochs only: a call before them skips them in the
   others. Some messages have a length that their sender sets in the epoch, and
   some steps of the receiver use the same length. All of this is a function of
   the step and the epoch. */
#pragma once

#include "support/random.h"
#include <baton/device.h>

enum {
    PROGRAM_RANKS = 32,
    /* The number of slots of a rank. The first two slots are bound to memory of
       the program; the others are scratch. */
    PROGRAM_SLOTS = 6,
    PROGRAM_PARTS = 3, /* the number of parts of a slot */
    PROGRAM_STEPS = 40 + PROGRAM_RANKS,
    PROGRAM_NODES = 6 * PROGRAM_STEPS,
    PROGRAM_NONE = -1
};

/* The kinds of steps. COPY: target = left. REDUCE: target = left (op) right.
   MESSAGE: the peer's target = left. The other kinds change the target in
   place: CALL by a call node, ASYNC by an async node, and DEVICE_CALL by work
   that a device call puts into its stream. */
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
    /* The two ranks of a message; in other steps they are equal. */
    int rank, peer;
    int target, left, right;
    /* The range of parts, which is the same in all slots of the step. */
    int first, end;
    /* The message whose length the step uses; this may be the step itself.
       PROGRAM_NONE: the step has no length. */
    int length;
    bool chosen; /* some epochs skip the step */
    /* The message may be sent in an epoch in which its peer does not receive
       it. */
    bool may_stray;
    uint64_t salt;
} program_step_t;

/* The kinds of memory in which a slot may be. PROGRAM_ANY: the library
   chooses. */
enum { PROGRAM_HOST = 1, PROGRAM_DEVICE = 2, PROGRAM_ANY = 4 };

typedef struct program_slot {
    int place;
    bool scratch;
    /* For each part of a slot. defined: steps may read it. read: no further
       step may write it. sealed: no further step may use it. */
    bool defined[PROGRAM_PARTS], read[PROGRAM_PARTS], sealed[PROGRAM_PARTS];
} program_slot_t;

typedef struct program_options {
    int ranks;
    int part_bytes; /* bytes of the longest part */
    bool devices;   /* slot 0 is in device memory, and there are device calls */
    bool async;     /* the program has async nodes */
    bool local;     /* the program has no messages */
    bool connected; /* each rank sends at least one message to the next rank */
} program_options_t;

typedef struct program {
    program_options_t options;
    baton_dtype_t dtype;
    const baton_op_t *op;
    /* For each rank: whether it sends or receives messages. */
    bool talks[PROGRAM_RANKS];
    size_t offsets[PROGRAM_PARTS + 1];
    size_t slot_bytes;
    program_slot_t slots[PROGRAM_RANKS][PROGRAM_SLOTS];
    int step_count;
    program_step_t steps[PROGRAM_STEPS];
} program_t;

void program_sample(program_t *program, const program_options_t *options,
                    support_random_t *random);

/* program_bytes returns the bytes of all slots of all ranks. program_slot
   returns the address of a slot in memory of that size. */
size_t program_bytes(const program_t *program);
unsigned char *program_slot(const program_t *program, unsigned char *memory,
                            int rank, int slot);

/* The reference: runs the steps of an epoch in order. `memory` has the slots of
   all ranks. */
void program_run(const program_t *program, uint64_t epoch,
                 unsigned char *memory);

/* ---- schedules --------------------------------------------------------- */

typedef struct program_part program_part_t;

/* A step on a rank. It is the argument of the functions of the step's nodes. */
typedef struct program_site {
    program_part_t *part;
    const program_step_t *step;
    baton_view_t view;
    /* The length of the message that the step sends, or of a message that was
       received before the step. */
    baton_length_t length;
    /* The epoch of an async node or device call that has begun. */
    uint64_t epoch;
    void *address; /* the memory that this node or call changes */
} program_site_t;

/* program_begin stores in the site the epoch of a call and the address of the
   memory that the step changes. A function that begins an async node or a
   device call must call program_begin first. Later, program_change makes the
   step's change in `memory`: this is the memory at the stored address, or a
   copy of that memory in main memory. */
void program_begin(program_site_t *site, baton_call_t *call);
void program_change(const program_site_t *site, void *memory);

typedef struct program_touch {
    baton_node_t node;
    int slot, first, end;
    bool writes;
} program_touch_t;

/* A program on one rank. The caller sets the fields up to `fault`, and
   program_build sets the others. */
struct program_part {
    const program_t *program;
    int rank;
    void *memory[PROGRAM_SLOTS]; /* the memory of the slots that are bound */
    /* The functions of async nodes and device calls. Their argument is the
       site. */
    const baton_async_ops_t *async;
    baton_device_call_fn device_call;
    /* Each call node calls this function. If the function returns an error, the
       node fails with it. May be NULL. */
    baton_status_t (*fault)(program_part_t *part, uint64_t epoch);

    baton_schedule_t *schedule;
    baton_buffer_t buffers[PROGRAM_SLOTS];
    program_site_t sites[PROGRAM_STEPS];
    baton_node_t receives[PROGRAM_STEPS]; /* for each step, its receive node */
    baton_length_t received[PROGRAM_STEPS];
    program_touch_t touches[PROGRAM_NODES];
    int touch_count;
    /* The nodes so far. finish() may make a later node come after one of
       them. */
    baton_node_t nodes[PROGRAM_NODES];
    int node_count;
};

void program_build(program_part_t *part, baton_schedule_t *schedule);
