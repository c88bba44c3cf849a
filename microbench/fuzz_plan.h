/* What a seed draws: a world to run, and what goes wrong in it. */
#ifndef MICROBENCH_FUZZ_PLAN_H
#define MICROBENCH_FUZZ_PLAN_H

#include "fuzz_random.h"
#include <baton/partial.h>
#include <baton/sim.h>
#include <stdio.h>

enum { FUZZ_TASKS = 3, FUZZ_RANKS = 32, FUZZ_LIVES = 3 };

/* What a task runs: name. QUORUM: a root that goes on with the first `need`
   answers. ALARM: activation, by one rank and with nothing behind it, so that
   ranks run ahead by many epochs, or by several with a barrier behind. LOCAL:
   reductions without messages, sometimes cancelled. BRANCH: messages that some
   send and others don't wait for. LENGTHS: messages as long as their sender
   decides in the epoch. ASYNC: nodes that complete later. */
#define FUZZ_KIND_LIST(X)                                                      \
    X(PARTIAL, "partial")                                                      \
    X(ALLREDUCE, "all-reduce")                                                 \
    X(BROADCAST, "broadcast")                                                  \
    X(BARRIER, "barrier")                                                      \
    X(QUORUM, "quorum")                                                        \
    X(ALARM, "alarm")                                                          \
    X(LOCAL, "local")                                                          \
    X(BRANCH, "branch")                                                        \
    X(LENGTHS, "lengths")                                                      \
    X(ASYNC, "async")

typedef enum fuzz_kind {
#define FUZZ_KIND_ENUM(NAME, name) FUZZ_##NAME,
    FUZZ_KIND_LIST(FUZZ_KIND_ENUM)
#undef FUZZ_KIND_ENUM
        FUZZ_KIND_COUNT
} fuzz_kind_t;

/* One collective, which every rank runs `steps` times beside the other tasks of
   the world. */
/* Modes of partial all-reduces. */
enum { FUZZ_MODES = BATON_CANDIDATES_ALL + 1 };

typedef struct fuzz_task_plan {
    fuzz_kind_t kind;
    uint32_t steps;
    size_t count;
    baton_dtype_t dtype;
    bool own_op; /* a reduction of the user's; else BATON_SUM */
    /* All-reduces, also those inside of partial ones. */
    uint32_t algorithm; /* index into fuzz_algorithms */
    size_t chunk_bytes;
    bool in_place;
    int root;      /* broadcast, quorum */
    uint32_t need; /* quorum; alarm: 1, one rank initiates */
    baton_partial_mode_t mode;
    uint32_t mode_ranks, sync_every, max_staleness; /* as the options */
    baton_keep_t keep;
    uint32_t history;
    bool watches; /* is told of recoveries */
} fuzz_task_plan_t;

typedef struct fuzz_algorithm {
    const char *name;
    baton_allreduce_fn add;
} fuzz_algorithm_t;
enum { FUZZ_ALGORITHMS = 3, FUZZ_BINOMIAL = 0 };
extern const fuzz_algorithm_t fuzz_algorithms[FUZZ_ALGORITHMS];

/* What may go wrong until the world heals, each switched on or off for a whole
   world: together all the time, they would hide each other. */
#define FUZZ_FAULT_LIST(X)                                                     \
    X(LAG, "lag that reorders messages")                                       \
    X(SLOW, "slow ranks")                                                      \
    X(LATE, "late applications")                                               \
    X(ABSENT, "applications that stay away")                                   \
    X(AGAIN, "steps with several contributions")                               \
    X(EMPTY, "steps without a contribution")                                   \
    X(EARLY, "contributions for the next step while one runs")                 \
    X(CANCEL, "cancelled epochs")

typedef enum fuzz_fault {
#define FUZZ_FAULT_ENUM(NAME, name) FUZZ_FAULT_##NAME,
    FUZZ_FAULT_LIST(FUZZ_FAULT_ENUM)
#undef FUZZ_FAULT_ENUM
        FUZZ_FAULT_COUNT
} fuzz_fault_t;

/* What does not heal. */
typedef enum fuzz_blow {
    FUZZ_BLOW_NONE,
    FUZZ_BLOW_KILL,     /* a rank dies */
    FUZZ_BLOW_FAIL_SEND /* one of its sends fails */
} fuzz_blow_t;

typedef struct fuzz_plan {
    uint64_t seed;
    baton_sim_options_t model;
    fuzz_task_plan_t tasks[FUZZ_TASKS];
    int task_count;
    uint32_t faults; /* bits 1 << fuzz_fault_t */
    double pause_us; /* what applications take between two actions */
    double heal_us;  /* when all faults end */
    bool lone;       /* one rank takes its first step before all others, so that
                        its messages can be counted */
    fuzz_blow_t blow;
    int victim;       /* rank */
    double blow_us;   /* when it strikes */
    uint64_t blow_at; /* the send that fails, counted from then */
    /* What is recovered from: so often a rank cancels an epoch, or a node of
       its fails. Then all ranks recover, each at its own time: at once, or
       when nothing happens any more. */
    uint32_t upsets;
    double upset_us; /* when, after the begin and after each recovery */
    bool prompt;
    double commit_us; /* introductions: the last commit */
} fuzz_plan_t;

static inline bool fuzz_has(const fuzz_plan_t *plan, fuzz_fault_t fault)
{
    return (plan->faults >> fault & 1) != 0;
}

fuzz_plan_t fuzz_plan_draw(uint64_t seed);

/* Some lag, as a world may have it. */
baton_distribution_t fuzz_plan_lag(fuzz_random_t *random, double scale_us);

void fuzz_plan_print(const fuzz_plan_t *plan, FILE *to);

/* "partial solo, keep all": what a task is, for messages. */
const char *fuzz_kind_name(fuzz_kind_t kind);

#endif
