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
       run.c             creates, runs, heals, checks, destroys
       recovery.c
       participant.c     a rank's schedule and its application
       kinds_program.c, kinds_quorum.c
       cluster.c, plan.c */
#pragma once

#include "fuzz/plan.h"
#include "fuzz/run.h"

typedef enum fuzz_phase {
    FUZZ_ABSENT, /* the rank has not committed the schedule */
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

/* A program's state on one rank, and the reference that computes the contents
   of all ranks' memory. */
typedef struct fuzz_part fuzz_part_t;
typedef struct fuzz_reference fuzz_reference_t;

/* A scheduled action of a participant. It is void in later incarnations. */
typedef struct fuzz_action {
    fuzz_participant_t *participant;
    uint32_t incarnation;
} fuzz_action_t;

struct fuzz_participant {
    fuzz_task_t *task;
    int rank;
    support_random_t random;
    fuzz_phase_t phase;
    uint32_t step;   /* the step that is started, or is being started */
    uint32_t waited; /* number of steps that have ended */
    uint32_t polls;  /* number of polls for the end of this step */
    baton_schedule_t *schedule;
    bool cancelled;      /* a cancel of this step was tried, perhaps too late */
    uint32_t recoveries; /* number of calls of on_recover */
    uint32_t open;       /* begun async nodes that have not completed */
    fuzz_part_t *part;
    /* Quorum: the step's number (fuzz_number) as sent to the root, and as sent
       back; at the root, the last number of each rank. */
    uint64_t number, answer, received[FUZZ_RANKS];
    /* Alarm: the last epoch with an alarm, and its incarnation. */
    uint64_t alarmed;
    uint32_t alarm_incarnation;
    fuzz_action_t actions[FUZZ_INCARNATIONS];
};

/* How tasks of a kind work. All but build and check may be NULL. */
typedef struct fuzz_rules {
    /* `open` allocates the task's state that exists once, for all ranks.
       `build` builds its schedule on one rank. */
    void (*open)(fuzz_task_t *task);
    void (*build)(fuzz_participant_t *participant);
    /* `fill` prepares the data of the next step. `check` checks the step's
       result. */
    void (*fill)(fuzz_participant_t *participant);
    void (*check)(fuzz_participant_t *participant);
    void (*on_recover)(fuzz_participant_t *participant);
    void (*close)(fuzz_task_t *task);
} fuzz_rules_t;

extern const fuzz_rules_t fuzz_program, fuzz_quorum, fuzz_alarm;

struct fuzz_task {
    fuzz_cluster_t *cluster;
    const fuzz_task_plan_t *plan;
    int index;
    const fuzz_rules_t *rules;
    fuzz_reference_t *reference;
    fuzz_participant_t participants[FUZZ_RANKS];
    /* By incarnation, at its end: the last epoch that the rank has
       completed. */
    uint64_t retired[FUZZ_INCARNATIONS][FUZZ_RANKS];
};

/* The failure that is injected in an incarnation. */
typedef struct fuzz_injection {
    bool planned;  /* the rank and the task have been chosen */
    bool cancels;  /* the epoch is cancelled; otherwise a node fails */
    bool happened; /* an epoch failed; a cancel may come too late */
    int task;
    int rank;
    uint64_t epoch;
} fuzz_injection_t;

/* The state of a rank that belongs to no participant. */
typedef struct fuzz_rank_state {
    fuzz_cluster_t *cluster;
    int rank;
    uint32_t incarnation;
    bool recovers;
    uint32_t polls; /* number of polls for the end of a recovery */
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
    support_random_t fault_random; /* transient faults change as time passes */
    /* the time at which all transient faults end */
    double heal_us;
    bool healed;
    bool broken; /* the permanent fault has happened */
    /* a hash of everything that has happened */
    uint64_t digest;
    /* the message of the first failure; "" if there is none */
    char failure[FUZZ_FAILURE_BYTES];
};

/* ---- failures, digest, memory ------------------------------------------ */

/* Reports that a check has failed. The first message is kept, and the
   simulation stops. */
void fuzz_fail(fuzz_participant_t *participant, const char *format, ...)
    BATON_PRINTF(2, 3);

static inline bool fuzz_failed(const fuzz_cluster_t *cluster)
{
    return cluster->failure[0] != '\0';
}

/* Adds a number to the digest. */
void fuzz_note(fuzz_cluster_t *cluster, uint64_t number);
void fuzz_note_real(fuzz_cluster_t *cluster, double number);

/* Like calloc, but ends the program if there is no memory. */
void *fuzz_alloc(size_t count, size_t size);

/* ---- state ------------------------------------------------------------- */

static inline int fuzz_ranks(const fuzz_task_t *task)
{
    return task->cluster->plan.model.ranks;
}

/* Returns the seed of a participant's values, which is the same in every
   run. */
uint64_t fuzz_key(const fuzz_task_t *task, int rank, uint64_t number);

/* Returns a number that is different for each step of each incarnation. */
static inline uint64_t fuzz_number(uint32_t incarnation, uint64_t step)
{
    return (uint64_t)incarnation * 1000 + step;
}

/* Returns whether the participant's rank has been killed. */
static inline bool fuzz_is_dead(const fuzz_participant_t *participant)
{
    const fuzz_cluster_t *cluster = participant->task->cluster;
    return cluster->broken && cluster->plan.permanent == FUZZ_PERMANENT_KILL &&
           cluster->plan.victim == participant->rank;
}

/* Returns the incarnation that the participant's rank is in. */
static inline uint32_t fuzz_incarnation(const fuzz_participant_t *participant)
{
    return participant->task->cluster->rank_states[participant->rank]
        .incarnation;
}

/* Returns a view of a whole new buffer. */
static inline baton_view_t fuzz_bind(fuzz_participant_t *participant,
                                     void *memory, size_t bytes)
{
    return baton_view(baton_buffer_bind(participant->schedule, memory, bytes),
                      0, bytes);
}

/* Returns whether a rank has started, or is starting, this step of this
   incarnation. */
static inline bool fuzz_has_begun(const fuzz_task_t *task, int rank,
                                  uint32_t incarnation, uint64_t step)
{
    uint32_t now = task->cluster->rank_states[rank].incarnation;
    return now > incarnation ||
           (now == incarnation && task->participants[rank].step >= step);
}

/* Returns the last epoch of an earlier incarnation that any rank has completed.
   Fails the run if a rank has not left that incarnation yet. */
uint64_t fuzz_last_epoch(fuzz_participant_t *participant, uint32_t incarnation);

/* ---- faults ------------------------------------------------------------ */

/* Returns whether this transient fault is in force. */
static inline bool fuzz_in_force(const fuzz_participant_t *participant,
                                 fuzz_transient_t fault)
{
    const fuzz_cluster_t *cluster = participant->task->cluster;
    return !cluster->healed && fuzz_has(&cluster->plan, fault);
}

/* Returns whether the permanent fault may cause this error: because a peer
   can't be reached, an earlier epoch failed, or a rank that is dead had to act
   by itself. */
bool fuzz_is_consequence(const fuzz_participant_t *participant,
                         baton_status_t status);

/* The status with which an injected failure makes a node fail. */
#define FUZZ_INJECTED_STATUS BATON_ERR_LIMIT

/* Returns whether a node of the participant must fail now. Returns true only
   once. */
bool fuzz_injection_due(fuzz_participant_t *participant, uint64_t epoch);

/* Returns the status that an injected failure has on the rank where it
   occurs. */
baton_status_t fuzz_injected_status(const fuzz_injection_t *injection);

/* Returns whether the injected failure may cause this error. */
bool fuzz_is_injected(const fuzz_participant_t *participant,
                      baton_status_t status);

/* ---- polling ----------------------------------------------------------- */

/* The most polls of a participant for something that may never happen. Each
   poll comes twice as late as the one before. The limit makes the simulation
   end. */
enum { FUZZ_MAX_POLLS = 48 };

static inline double fuzz_poll_delay_us(uint32_t polls)
{
    return 0.25 * (double)(UINT64_C(1) << polls);
}
