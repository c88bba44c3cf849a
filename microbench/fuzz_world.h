/* One world of the fuzzer: a simulator, and tasks that run side by side on all
   of its ranks. A task has a seat on each rank, whose application is a state
   machine in virtual time:

       prepares --start--> waits --(its epoch has ended)--> prepares ... done
          |                  |
          +-- an error ------+--> out     (only where a rank was struck)

   Faults happen until the world heals. From then on every application goes on
   to its last step, and all epochs must end. */
#ifndef MICROBENCH_FUZZ_WORLD_H
#define MICROBENCH_FUZZ_WORLD_H

#include "fuzz_plan.h"

enum { FUZZ_FAILURE_BYTES = 512 };

typedef enum fuzz_phase {
    FUZZ_PREPARES,
    FUZZ_WAITS,
    FUZZ_DONE,
    FUZZ_OUT
} fuzz_phase_t;

typedef struct fuzz_world fuzz_world_t;
typedef struct fuzz_task fuzz_task_t;
typedef struct fuzz_part fuzz_part_t; /* what a kind of task keeps for a seat */
typedef struct fuzz_book fuzz_book_t; /* and for the task */

typedef struct fuzz_seat {
    fuzz_task_t *task;
    int rank;
    fuzz_random_t random;
    fuzz_phase_t phase;
    uint32_t todo;   /* contributions that the next step shall have */
    uint32_t step;   /* started, or being started */
    uint32_t waited; /* steps whose result was asked for */
    uint32_t polls;  /* of this step's end */
    fuzz_part_t *part;
} fuzz_seat_t;

/* What a kind of task does. */
typedef struct fuzz_rules {
    /* Builds and commits it on every rank. */
    baton_status_t (*open)(fuzz_task_t *task);
    /* One action before the start of the next step: true when more follow. */
    bool (*prepare)(fuzz_seat_t *seat);
    baton_status_t (*start)(fuzz_seat_t *seat);
    /* Looks whether the epoch has ended, and does what else comes to mind. */
    baton_status_t (*test)(fuzz_seat_t *seat, bool *done_out);
    /* Gets the result of an epoch that has ended, and checks it. */
    baton_status_t (*finish)(fuzz_seat_t *seat);
    baton_status_t (*wait)(fuzz_seat_t *seat, int timeout_ms);
    /* Checks what must hold after the last step. */
    void (*audit)(fuzz_task_t *task);
    void (*close)(fuzz_task_t *task);
} fuzz_rules_t;

extern const fuzz_rules_t fuzz_partial_rules, fuzz_plain_rules;

struct fuzz_task {
    fuzz_world_t *world;
    const fuzz_task_plan_t *plan;
    int index;
    const fuzz_rules_t *rules;
    fuzz_book_t *book;
    fuzz_seat_t seats[FUZZ_RANKS];
};

struct fuzz_world {
    fuzz_plan_t plan;
    baton_sim_t *sim;
    fuzz_task_t tasks[FUZZ_TASKS];
    fuzz_random_t weather; /* faults that change as time passes */
    double heal_us;        /* when all faults end */
    bool alone;            /* the seat that goes first is the only one */
    bool healed;
    bool struck;
    uint64_t digest;                  /* of everything that happened */
    char failure[FUZZ_FAILURE_BYTES]; /* the first; "" without */
};

typedef struct fuzz_outcome {
    bool passed;
    uint64_t digest; /* equal digests: the same happened, in the same order */
    uint64_t messages;
    char failure[FUZZ_FAILURE_BYTES];
} fuzz_outcome_t;

/* Makes the world of a seed, runs it to its end, checks it, destroys it. */
fuzz_outcome_t fuzz_run(uint64_t seed);

/* The application goes on to its next step. */
void fuzz_seat_begin(fuzz_seat_t *seat);

/* ---- for the rules ---------------------------------------------------- */

/* The world is not as it must be: the first sentence is kept, and nothing goes
   on. */
void fuzz_fail(fuzz_seat_t *seat, const char *format, ...) BATON_PRINTF(2, 3);

static inline bool fuzz_failed(const fuzz_world_t *world)
{
    return world->failure[0] != '\0';
}

/* Whether its rank has been killed. */
static inline bool fuzz_is_dead(const fuzz_seat_t *seat)
{
    const fuzz_world_t *world = seat->task->world;
    return world->struck && world->plan.blow == FUZZ_BLOW_KILL &&
           world->plan.victim == seat->rank;
}

/* What a rank may be told after the blow: that a peer can't be reached, that it
   is waited for in vain, or that this was so before. */
bool fuzz_is_consequence(const fuzz_world_t *world, baton_status_t status);

/* Adds a number to the digest. */
void fuzz_note(fuzz_world_t *world, uint64_t what);
void fuzz_note_real(fuzz_world_t *world, double what);

/* What seats of a task draw their values from: the same in every run. */
uint64_t fuzz_key(const fuzz_task_t *task, int rank, uint64_t number);

/* calloc that ends the program when there is no memory. */
void *fuzz_alloc(size_t count, size_t size);

static inline int fuzz_ranks(const fuzz_task_t *task)
{
    return task->world->plan.model.ranks;
}

/* Whether this fault is in force. */
static inline bool fuzz_suffers(const fuzz_seat_t *seat, fuzz_fault_t fault)
{
    const fuzz_world_t *world = seat->task->world;
    return !world->healed && fuzz_has(&world->plan, fault);
}

#endif
