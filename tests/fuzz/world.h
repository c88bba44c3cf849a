/* One world of the fuzzer: a simulator, and tasks that run side by side on all
   of its ranks. A task has a seat on each rank, whose application is a state
   machine in virtual time:

       prepares --start--> waits --(its epoch has ended)--> prepares ... done
          |                  |
          +-- an error ------+--> out        (only where a rank was struck)
          |                  |
          +-- an upset ------+--> failed     (a cancel, a node that failed)
                                    |
       prepares <--(recovered)-- recovers <--(the rank is called to)-- any

   Faults happen until the world heals. From then on every application goes on
   to its last step, and all epochs must end. With a recovery each rank begins
   another life, in which all tasks are run from their first step on. */
#ifndef MICROBENCH_FUZZ_WORLD_H
#define MICROBENCH_FUZZ_WORLD_H

#include "fuzz/plan.h"

enum { FUZZ_FAILURE_BYTES = 512 };

typedef enum fuzz_phase {
    FUZZ_ABSENT, /* its schedule is not committed */
    FUZZ_PREPARES,
    FUZZ_WAITS,
    FUZZ_DONE,
    FUZZ_OUT,
    FUZZ_FAILED,
    FUZZ_RECOVERS
} fuzz_phase_t;

typedef struct fuzz_world fuzz_world_t;
typedef struct fuzz_task fuzz_task_t;
typedef struct fuzz_part fuzz_part_t; /* what a kind of task keeps for a seat */
typedef struct fuzz_book fuzz_book_t; /* and for the task */

typedef struct fuzz_seat fuzz_seat_t;

/* An action of a seat in one of its lives. */
typedef struct fuzz_ticket {
    fuzz_seat_t *seat;
    uint32_t life;
} fuzz_ticket_t;

struct fuzz_seat {
    fuzz_task_t *task;
    int rank;
    fuzz_random_t random;
    fuzz_phase_t phase;
    uint32_t todo;   /* contributions that the next step shall have */
    uint32_t step;   /* started, or being started */
    uint32_t waited; /* steps whose result was asked for */
    uint32_t polls;  /* of this step's end */
    fuzz_part_t *part;
    fuzz_ticket_t tickets[FUZZ_LIVES];
};

/* What a kind of task does. */
typedef struct fuzz_rules {
    /* What there is once. */
    void (*open)(fuzz_task_t *task);
    /* Builds and commits it on one rank. */
    baton_status_t (*commit)(fuzz_seat_t *seat);
    const baton_schedule_t *(*schedule)(const fuzz_seat_t *seat);
    /* Cancels the running epoch. NULL: can't be. */
    baton_status_t (*cancel)(fuzz_seat_t *seat);
    /* One action before the start of the next step: true when more follow. */
    bool (*prepare)(fuzz_seat_t *seat);
    baton_status_t (*start)(fuzz_seat_t *seat);
    /* Looks whether the epoch has ended, and does what else comes to mind. */
    baton_status_t (*test)(fuzz_seat_t *seat, bool *done_out);
    /* Gets the result of an epoch that has ended, and checks it. */
    baton_status_t (*finish)(fuzz_seat_t *seat);
    baton_status_t (*wait)(fuzz_seat_t *seat, int timeout_ms);
    /* Its group is recovered: checks what must hold then. */
    void (*recovered)(fuzz_seat_t *seat);
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
    /* At the end of each life: the last epoch that the rank has completed. */
    uint64_t retired[FUZZ_LIVES][FUZZ_RANKS];
};

/* What went wrong in a life. */
typedef struct fuzz_upset {
    bool planned;  /* a rank and a task are chosen, */
    bool cancels;  /* and whether it is cancelled, or a node fails */
    bool happened; /* to an epoch; it may have ended before it was cancelled */
    int task;
    int rank;
    uint64_t epoch;
} fuzz_upset_t;

/* A rank, as far as it is more than its seats. */
typedef struct fuzz_place {
    fuzz_world_t *world;
    int rank;
    uint32_t life;
    bool recovers;
    uint32_t polls; /* of its recovery */
} fuzz_place_t;

struct fuzz_world {
    fuzz_plan_t plan;
    baton_sim_t *sim;
    fuzz_task_t tasks[FUZZ_TASKS];
    fuzz_place_t places[FUZZ_RANKS];
    fuzz_upset_t upsets[FUZZ_LIVES]; /* by life */
    uint32_t called[FUZZ_LIVES];     /* ranks that were called to recover */
    uint32_t back[FUZZ_LIVES];       /* and that are recovered */
    fuzz_random_t weather;           /* faults that change as time passes */
    double heal_us;                  /* when all faults end */
    bool alone; /* the seat that goes first is the only one */
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

/* What a seat may be told after the blow: that a peer can't be reached, that
   this was so before, or, where a rank is dead that had to do something of its
   own accord, that it is waited for in vain. */
bool fuzz_is_consequence(const fuzz_seat_t *seat, baton_status_t status);

/* The life that the rank is in. */
static inline uint32_t fuzz_life(const fuzz_seat_t *seat)
{
    return seat->task->world->places[seat->rank].life;
}

/* Whether a rank has started (or is starting) this step of this life. */
static inline bool fuzz_has_begun(const fuzz_task_t *task, int rank,
                                  uint32_t life, uint64_t step)
{
    uint32_t now = task->world->places[rank].life;
    return now > life || (now == life && task->seats[rank].step >= step);
}

/* Whether a node of the seat's is to fail now: once. */
bool fuzz_upset_due(fuzz_seat_t *seat, uint64_t epoch);

/* What a node fails with that is upset. */
#define FUZZ_UPSET_STATUS BATON_ERR_LIMIT

/* The last epoch of an earlier life that any rank has completed. Fails the
   world where ranks are left that have not ended that life. */
uint64_t fuzz_last_epoch(fuzz_seat_t *seat, uint32_t life);

/* See upset.c. */
baton_status_t fuzz_forecast_upset(fuzz_world_t *world);
bool fuzz_is_upset(const fuzz_seat_t *seat, baton_status_t status);
void fuzz_recover_in_peace(fuzz_world_t *world);
bool fuzz_wants_recovery(const fuzz_world_t *world);

/* Adds a number to the digest. */
void fuzz_note(fuzz_world_t *world, uint64_t what);
void fuzz_note_real(fuzz_world_t *world, double what);

/* What seats of a task draw their values from: the same in every run. */
uint64_t fuzz_key(const fuzz_task_t *task, int rank, uint64_t number);

/* A number for each step of each life. */
static inline uint64_t fuzz_number(uint32_t life, uint64_t step)
{
    return (uint64_t)life * 1000 + step;
}

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
