/* The plan of a run, sampled from its seed: the cluster, its tasks and the
   faults. */
#pragma once

#include "support/random.h"
#include <baton/sim.h>
#include <stdio.h>

enum { FUZZ_TASKS = 3, FUZZ_RANKS = 32, FUZZ_STEPS = 8, FUZZ_INCARNATIONS = 3 };

/* Kinds of tasks, and their names. PROGRAM: a random program of all ranks.
   LOCAL: one without messages, sometimes cancelled. QUORUM: a root that goes on
   with the first `need` answers. ALARM: activation, either by one rank with
   nothing after it, so that ranks run ahead by many epochs, or by several ranks
   with a barrier after it. */
#define FUZZ_KIND_LIST(X)                                                      \
    X(PROGRAM, "program")                                                      \
    X(LOCAL, "local")                                                          \
    X(QUORUM, "quorum")                                                        \
    X(ALARM, "alarm")

typedef enum fuzz_kind {
#define FUZZ_KIND_ENUM(NAME, name) FUZZ_##NAME,
    FUZZ_KIND_LIST(FUZZ_KIND_ENUM)
#undef FUZZ_KIND_ENUM
        FUZZ_KIND_COUNT
} fuzz_kind_t;

/* One schedule, which every rank runs `steps` times while the other tasks of
   the cluster run, too. */
typedef struct fuzz_task_plan {
    fuzz_kind_t kind;
    uint32_t steps;
    int part_bytes; /* for PROGRAM and LOCAL: bytes of a slot's longest part */
    bool polls;     /* for PROGRAM and LOCAL: async nodes are polled */
    int root;       /* for QUORUM: the rank that is the root */
    /* For quorum, the number of messages needed. For alarm, 1 if one rank
       initiates. */
    uint32_t need;
    /* for ALARM: how many epochs may run ahead of the application */
    uint32_t limit;
    bool watches; /* the schedule has an on_recover function */
} fuzz_task_plan_t;

/* Transient faults, which end when the cluster heals. Each is on or off for a
   whole run: if all were always on they would hide each other. */
#define FUZZ_TRANSIENT_LIST(X)                                                 \
    X(LAG, "lag that reorders messages")                                       \
    X(SLOW, "slow ranks")                                                      \
    X(LATE, "late applications")                                               \
    X(ABSENT, "applications that stay away")                                   \
    X(CANCEL, "cancelled epochs")

typedef enum fuzz_transient {
#define FUZZ_TRANSIENT_ENUM(NAME, name) FUZZ_TRANSIENT_##NAME,
    FUZZ_TRANSIENT_LIST(FUZZ_TRANSIENT_ENUM)
#undef FUZZ_TRANSIENT_ENUM
        FUZZ_TRANSIENT_COUNT
} fuzz_transient_t;

/* Permanent faults. */
typedef enum fuzz_permanent {
    FUZZ_PERMANENT_NONE,
    FUZZ_PERMANENT_KILL,     /* a rank dies */
    FUZZ_PERMANENT_FAIL_SEND /* a send of a rank fails */
} fuzz_permanent_t;

typedef struct fuzz_plan {
    uint64_t seed;
    baton_sim_options_t model;
    fuzz_task_plan_t tasks[FUZZ_TASKS];
    int task_count;
    uint32_t transients; /* a set of bits 1 << fuzz_transient_t */
    double pause_us; /* longest time between two actions of an application */
    double heal_us;  /* the time at which all transient faults end */
    fuzz_permanent_t permanent;
    int victim;            /* the rank that has the permanent fault */
    double permanent_us;   /* the time at which the fault happens */
    uint64_t failing_send; /* the send that fails, counted from then on */
    /* Injected failures: how often a rank cancels an epoch or one of its nodes
       fails. Then all ranks recover, each at its own time: at once, or when
       nothing happens any more. */
    uint32_t injections;
    /* from the beginning, or a recovery, to the next failure */
    double injection_us;
    bool at_once;
    double commit_us; /* with introductions: the time of the last commit */
} fuzz_plan_t;

static inline bool fuzz_has(const fuzz_plan_t *plan, fuzz_transient_t fault)
{
    return (plan->transients >> fault & 1) != 0;
}

fuzz_plan_t fuzz_plan_sample(uint64_t seed);

/* A random distribution of lag. */
baton_distribution_t fuzz_plan_lag(support_random_t *random, double scale_us);

void fuzz_plan_print(const fuzz_plan_t *plan, FILE *to);

/* The kind's name in messages. */
const char *fuzz_kind_name(fuzz_kind_t kind);
