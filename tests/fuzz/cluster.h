/* One simulated cluster of the fuzzer, and the tasks that run side by side on
   all of its ranks. A task has a participant on each rank, whose application is
   a state machine in virtual time:

       prepares --start--> waits --(its epoch has ended)--> prepares ... done
          |                  |
          +-- an error ------+--> out        (only after a permanent fault)
          |                  |
          +-- an injected ---+--> failed     (a cancel, a node that failed)
              failure               |
       prepares <--(recovered)-- recovers <--(its rank must recover)-- any

   Transient faults happen until the cluster heals. From then on every
   application goes on to its last step, and all epochs must end. A recovery
   begins another incarnation on each rank, in which all tasks run from their
   first step on.

   Of these files each one uses those below it:

       main.c
       run.c                  creates, runs, heals, checks, destroys
       participant.c, recovery.c
       partial.c, plain.c     the rules of partial and of plain schedules
       kinds_fixed.c, kinds_dynamic.c
       cluster.c, values.c, plan.c */
#ifndef TESTS_FUZZ_CLUSTER_H
#define TESTS_FUZZ_CLUSTER_H

#include "fuzz/plan.h"
#include "fuzz/run.h"

typedef enum fuzz_phase {
    FUZZ_ABSENT, /* its schedule is not committed */
    FUZZ_PREPARES,
    FUZZ_WAITS,
    FUZZ_DONE,
    FUZZ_OUT,
    FUZZ_FAILED,
    FUZZ_RECOVERS
} fuzz_phase_t;

typedef struct fuzz_cluster fuzz_cluster_t;
typedef struct fuzz_task fuzz_task_t;
typedef struct fuzz_participant fuzz_participant_t;

/* What the rules of a task keep for each participant, and for the task. */
typedef struct fuzz_state fuzz_state_t;
typedef struct fuzz_account fuzz_account_t;

/* A scheduled action of a participant. It is void in later incarnations. */
typedef struct fuzz_action {
    fuzz_participant_t *participant;
    uint32_t incarnation;
} fuzz_action_t;

struct fuzz_participant {
    fuzz_task_t *task;
    int rank;
    fuzz_random_t random;
    fuzz_phase_t phase;
    uint32_t todo;   /* contributions that the next step still gets */
    uint32_t step;   /* started, or being started */
    uint32_t waited; /* steps whose result was asked for */
    uint32_t polls;  /* of this step's end */
    fuzz_state_t *state;
    fuzz_action_t actions[FUZZ_INCARNATIONS];
};

/* How tasks of a kind work. */
typedef struct fuzz_rules {
    /* Allocates what the task has once. */
    void (*open)(fuzz_task_t *task);
    /* Builds and commits it on one rank. */
    baton_status_t (*commit)(fuzz_participant_t *participant);
    const baton_schedule_t *(*schedule)(const fuzz_participant_t *participant);
    /* Cancels the running epoch. May be NULL. */
    baton_status_t (*cancel)(fuzz_participant_t *participant);
    /* One action before the start of the next step. Returns true when more
       follow. */
    bool (*prepare)(fuzz_participant_t *participant);
    baton_status_t (*start)(fuzz_participant_t *participant);
    /* Tests whether the epoch has ended; may contribute or cancel, too. */
    baton_status_t (*test)(fuzz_participant_t *participant, bool *done_out);
    /* Gets the result of an epoch that has ended, and checks it. */
    baton_status_t (*finish)(fuzz_participant_t *participant);
    baton_status_t (*wait)(fuzz_participant_t *participant, int timeout_ms);
    /* Checks what must hold once its group has recovered. */
    void (*recovered)(fuzz_participant_t *participant);
    /* Checks what must hold after the last step. */
    void (*audit)(fuzz_task_t *task);
    void (*close)(fuzz_task_t *task);
} fuzz_rules_t;

struct fuzz_task {
    fuzz_cluster_t *cluster;
    const fuzz_task_plan_t *plan;
    int index;
    const fuzz_rules_t *rules;
    fuzz_account_t *account;
    fuzz_participant_t participants[FUZZ_RANKS];
    /* At the end of each incarnation: the last epoch that the rank completed.
     */
    uint64_t retired[FUZZ_INCARNATIONS][FUZZ_RANKS];
};

/* The failure that is injected in an incarnation. */
typedef struct fuzz_injection {
    bool planned;  /* rank and task are chosen */
    bool cancels;  /* the epoch is cancelled; otherwise a node fails */
    bool happened; /* an epoch failed; a cancel may come too late */
    int task;
    int rank;
    uint64_t epoch;
} fuzz_injection_t;

/* What a rank has besides its participants. */
typedef struct fuzz_rank_state {
    fuzz_cluster_t *cluster;
    int rank;
    uint32_t incarnation;
    bool recovers;
    uint32_t polls; /* of its recovery */
} fuzz_rank_state_t;

struct fuzz_cluster {
    fuzz_plan_t plan;
    baton_sim_t *sim;
    fuzz_task_t tasks[FUZZ_TASKS];
    fuzz_rank_state_t rank_states[FUZZ_RANKS];
    /* By incarnation: its failure, how many ranks have been told to recover
       from it, and how many have recovered. */
    fuzz_injection_t injections[FUZZ_INCARNATIONS];
    uint32_t called[FUZZ_INCARNATIONS];
    uint32_t recovered[FUZZ_INCARNATIONS];
    fuzz_random_t fault_random; /* transient faults change as time passes */
    double heal_us;             /* when all transient faults end */
    bool alone; /* only the participant that goes first takes steps */
    bool healed;
    bool broken;                      /* the permanent fault has happened */
    uint64_t digest;                  /* of everything that happened */
    char failure[FUZZ_FAILURE_BYTES]; /* the first one; "" without */
};

/* ---- failures, digest, memory ------------------------------------------ */

/* A check has failed. The first message is kept, and nothing goes on. */
void fuzz_fail(fuzz_participant_t *participant, const char *format, ...)
    BATON_PRINTF(2, 3);

static inline bool fuzz_failed(const fuzz_cluster_t *cluster)
{
    return cluster->failure[0] != '\0';
}

/* Adds a number to the digest. */
void fuzz_note(fuzz_cluster_t *cluster, uint64_t number);
void fuzz_note_real(fuzz_cluster_t *cluster, double number);

/* calloc that ends the program when there is no memory. */
void *fuzz_alloc(size_t count, size_t size);

/* ---- state ------------------------------------------------------------- */

static inline int fuzz_ranks(const fuzz_task_t *task)
{
    return task->cluster->plan.model.ranks;
}

/* The seed of a participant's values: the same in every run. */
uint64_t fuzz_key(const fuzz_task_t *task, int rank, uint64_t number);

/* A number for each step of each incarnation. */
static inline uint64_t fuzz_number(uint32_t incarnation, uint64_t step)
{
    return (uint64_t)incarnation * 1000 + step;
}

/* Whether its rank has been killed. */
static inline bool fuzz_is_dead(const fuzz_participant_t *participant)
{
    const fuzz_cluster_t *cluster = participant->task->cluster;
    return cluster->broken && cluster->plan.permanent == FUZZ_PERMANENT_KILL &&
           cluster->plan.victim == participant->rank;
}

/* The incarnation that its rank is in. */
static inline uint32_t fuzz_incarnation(const fuzz_participant_t *participant)
{
    return participant->task->cluster->rank_states[participant->rank]
        .incarnation;
}

/* Whether a rank has started (or is starting) this step of this incarnation. */
static inline bool fuzz_has_begun(const fuzz_task_t *task, int rank,
                                  uint32_t incarnation, uint64_t step)
{
    uint32_t now = task->cluster->rank_states[rank].incarnation;
    return now > incarnation ||
           (now == incarnation && task->participants[rank].step >= step);
}

/* The last epoch of an earlier incarnation that any rank has completed. Fails
   the run if a rank has not left that incarnation yet. */
uint64_t fuzz_last_epoch(fuzz_participant_t *participant, uint32_t incarnation);

/* ---- faults ------------------------------------------------------------ */

/* Whether this transient fault is in force. */
static inline bool fuzz_in_force(const fuzz_participant_t *participant,
                                 fuzz_transient_t fault)
{
    const fuzz_cluster_t *cluster = participant->task->cluster;
    return !cluster->healed && fuzz_has(&cluster->plan, fault);
}

/* Whether the permanent fault may cause this error: a peer can't be reached, an
   earlier epoch failed, or a dead rank is awaited that had to act by itself. */
bool fuzz_is_consequence(const fuzz_participant_t *participant,
                         baton_status_t status);

/* The status of a node that is made to fail. */
#define FUZZ_INJECTED_STATUS BATON_ERR_LIMIT

/* Whether a node of the participant is to fail now. True once. */
bool fuzz_injection_due(fuzz_participant_t *participant, uint64_t epoch);

/* The status that an injected failure has on its own rank. */
baton_status_t fuzz_injected_status(const fuzz_injection_t *injection);

/* Whether the injected failure may cause this error. */
bool fuzz_is_injected(const fuzz_participant_t *participant,
                      baton_status_t status);

/* ---- polling ----------------------------------------------------------- */

/* A participant polls for something that may never happen, each time twice as
   late as before, and this often: the simulation must come to an end. */
enum { FUZZ_MAX_POLLS = 48 };

static inline double fuzz_poll_delay_us(uint32_t polls)
{
    return 0.25 * (double)(UINT64_C(1) << polls);
}

#endif
