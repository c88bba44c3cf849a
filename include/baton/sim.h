/* The simulator: all ranks of a group in one process and one thread, in virtual
   time. Schedules are built, committed and stepped by the same code as in
   production; only the transport, the clock and the wait differ.

   There are two ways to use it. Run a builder on every rank at once:

       baton_sim_options_t options = BATON_SIM_OPTIONS;
       options.ranks = 1024;
       options.link.alpha_us = 1.5;
       baton_sim_create(&options, &sim);
       baton_sim_build(sim, "mine", build, NULL);
       baton_sim_epoch(sim, &us);

   Or create schedules and partial collectives on baton_sim_group(sim, rank),
   rank by rank, as a program would, and schedule the applications' actions at
   virtual times with baton_sim_at. start returns at once. wait lets virtual
   time pass until the epoch has ended; its timeout is virtual too. When nothing
   is left that could end the epoch, wait returns BATON_ERR_DEADLOCK. test
   processes the next events, and never reports a deadlock. destroy cancels a
   running epoch and does not wait. recover, which is collective, is called for
   each rank with a timeout of 0, in callbacks too, and again when time has
   passed.

   Cost of a message of n bytes: its transfer takes alpha + n * beta, holds the
   sender's port and the receiver's port for as long, and comes in `lag` later.
   A port carries one message at a time (single-ported ranks), in the order in
   which their transfers begin. Each end pays `overhead` of processor time for
   a message, a reduction gamma a byte; a rank does one thing at a time and its
   `speed` divides both. Copies, calls and nops take no time.

   The same seed gives the same run, bit for bit, on any machine.

   Threads: one thread at a time uses a simulator and all that belongs to it.
   Callbacks come from the calls that let time pass: run, epoch, wait, test. */
#ifndef BATON_SIM_H
#define BATON_SIM_H

#include <baton/build.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- distributions ---------------------------------------------------- */

/* Named distributions: enumerator, name, parameters. No parameter is negative,
   but the normal's mean; a shape is above 0. Samples below 0 count as 0;
   no parameter and no sample is above 1e15. */
#define BATON_DISTRIBUTION_LIST(X)                                             \
    X(CONSTANT, "constant", "value")                                           \
    X(UNIFORM, "uniform", "low", "high")                                       \
    X(EXPONENTIAL, "exponential", "mean")                                      \
    X(NORMAL, "normal", "mean", "deviation")                                   \
    X(LOGNORMAL, "lognormal", "median", "sigma")                               \
    X(PARETO, "pareto", "minimum", "shape")

typedef enum baton_distribution_kind {
#define BATON_DISTRIBUTION_ENUM(NAME, ...) BATON_DISTRIBUTION_##NAME,
    BATON_DISTRIBUTION_LIST(BATON_DISTRIBUTION_ENUM)
#undef BATON_DISTRIBUTION_ENUM
        BATON_DISTRIBUTION_COUNT
} baton_distribution_kind_t;

/* {0} is the constant 0. */
typedef struct baton_distribution {
    baton_distribution_kind_t kind;
    double a, b; /* its parameters, in the order of the list */
} baton_distribution_t;

/* Reads "uniform:0:5", "exponential:20", or a number alone, a constant.
   BATON_ERR_INVALID says what is allowed. */
BATON_CHECKED baton_status_t
baton_distribution_parse(const char *text, baton_distribution_t *out);

/* The k-th sample of a stream (of a rank, say) under a seed: a function of its
   arguments alone. The distribution must be valid. */
double baton_distribution_sample(const baton_distribution_t *distribution,
                                 uint64_t seed, uint64_t stream, uint64_t k);

/* ---- the simulator ---------------------------------------------------- */

typedef struct baton_sim baton_sim_t;

typedef struct baton_sim_link {
    double alpha_us; /* a message */
    double beta_ns;  /* a byte: 8 / (Gbit/s) */
} baton_sim_link_t;

/* The link between two ranks, for a topology of the user's own. Called often;
   pure. Costs below 0 count as 0, those above 1e15 as that. */
typedef baton_sim_link_t (*baton_sim_topology_fn)(void *arg, int from, int to);

/* Zero is a value like others here: a cost of 0, no skew, no lag. Costs are
   from 0 to 1e15. */
typedef struct baton_sim_options {
    size_t size; /* set by BATON_SIM_OPTIONS */
    int ranks;   /* 1 to 2^24 */
    /* Buffers have no memory, bound memory is not touched, and copies and
       reductions only take time. Call nodes and activations run as ever. */
    bool cost_only;
    uint64_t seed;
    baton_sim_link_t link;
    double gamma_ns;    /* a reduced byte */
    double overhead_us; /* a message, at each end */
    bool multi_ported;  /* ports carry any number of messages at once */
    /* A send of fewer bytes completes when it is posted, as short ones do in
       MPI: only its transfer waits for the port. Others complete with their
       transfer. At most sync_bytes, unless that is 0. */
    size_t eager_bytes;
    /* A send of at least this many bytes completes only when its receive has
       taken the message, as long ones do in MPI. 0 means that none does. */
    size_t sync_bytes;
    /* The ranks of a host, in rank order, which have a link of their own
       between them; with 0 or 1 each rank is a host. */
    int host_ranks;
    baton_sim_link_t host_link;
    baton_sim_topology_fn topology; /* in place of both links, unless NULL */
    void *topology_arg;
    baton_distribution_t speed; /* of a rank, 1 is normal; samples below 1e-9
                                   count as that; {0}: all are 1 */
    baton_distribution_t skew;  /* us that a rank comes late to an epoch that
                                   baton_sim_epoch starts */
    baton_distribution_t lag;   /* us that a message takes beyond its transfer:
                                   messages may overtake each other */
    /* Ranks learn from messages, as elsewhere, that a peer has committed a
       schedule: it may be committed at any time, in callbacks too, and what is
       sent before the peer has is sent when it has. Otherwise all ranks commit
       before time passes, know it, and the simulator compares what they did. */
    bool introductions;
} baton_sim_options_t;

#define BATON_SIM_OPTIONS BATON_INITIALIZER(baton_sim_options_t)

/* BATON_ERR_INVALID names the option, its value and its range;
   BATON_ERR_NO_MEMORY says how much is needed and how much there is, before it
   is allocated. */
BATON_CHECKED baton_status_t
baton_sim_create(const baton_sim_options_t *options, baton_sim_t **out);

/* Destroys the simulator, its groups, and the schedules of baton_sim_build.
   NULL is allowed. Other schedules must have been destroyed before:
   BATON_ERR_BUSY names one that was not, and nothing has happened. */
BATON_CHECKED baton_status_t baton_sim_destroy(baton_sim_t *sim);

/* The group of one rank, owned by the simulator. NULL when there is no such
   rank. */
baton_group_t *baton_sim_group(baton_sim_t *sim, int rank);

/* ---- a builder on every rank ------------------------------------------ */

typedef void (*baton_sim_build_fn)(void *arg, baton_schedule_t *schedule);

/* Makes a schedule for each rank, lets `build` fill it (baton_schedule_rank
   tells whose it is), commits all, and compares every send with its receive.
   Once a simulator, else BATON_ERR_STATE. Errors of create and commit;
   BATON_ERR_MISMATCH names both ranks and nodes; BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_sim_build(baton_sim_t *sim, const char *name,
                                             baton_sim_build_fn build,
                                             void *arg);

/* The schedule of this rank that was built, owned by the simulator; or NULL. */
baton_schedule_t *baton_sim_schedule(baton_sim_t *sim, int rank);

/* Starts an epoch on every rank, each late by its skew, and runs until all have
   ended. *us_out: from the first start to the last end. An epoch's error;
   as baton_sim_run, and BATON_ERR_STATE when nothing was built. */
BATON_CHECKED baton_status_t baton_sim_epoch(baton_sim_t *sim, double *us_out);

/* ---- virtual time ----------------------------------------------------- */

/* Microseconds since the simulator was created. In a callback of a rank: when
   it runs there. */
double baton_sim_now_us(const baton_sim_t *sim);

/* When the last epoch ended. */
double baton_schedule_ended_us(const baton_schedule_t *schedule);

/* Calls fn(arg) at a virtual time, or at once when it has passed: an
   application's action. It may start, test, contribute, cancel, recover, and
   destroy schedules. BATON_ERR_STATE is what it gets from run, epoch, destroy
   of the simulator, and a wait for an epoch that has not ended.
   BATON_ERR_INVALID (the time is not finite), BATON_ERR_NO_MEMORY. */
typedef void (*baton_sim_fn)(void *arg);
BATON_CHECKED baton_status_t baton_sim_at(baton_sim_t *sim, double at_us,
                                          baton_sim_fn fn, void *arg);

/* Lets time pass until nothing is left to happen, or, with
   BATON_ERR_TIMEOUT, until `until_us` (negative: for ever).
   BATON_ERR_DEADLOCK when started epochs are left that nothing can end any
   more: baton_error_message() says who waits for whom, by rank and node, round
   the cycle or up to the one that is to blame. Before the first time it
   compares all committed schedules across ranks, unless ranks introduce them:
   BATON_ERR_MISMATCH. BATON_ERR_STATE in a callback,
   BATON_ERR_NO_MEMORY for messages and events. */
BATON_CHECKED baton_status_t baton_sim_run(baton_sim_t *sim, double until_us);

/* Counts of what has happened so far. */
typedef struct baton_sim_totals {
    uint64_t messages;
    uint64_t bytes;
    uint64_t events;
} baton_sim_totals_t;
baton_sim_totals_t baton_sim_totals(const baton_sim_t *sim);

/* ---- faults ----------------------------------------------------------- */

/* These may be called at any time, in callbacks too. BATON_ERR_INVALID: there
   is no such rank, or what is said below. */

/* From now on: another lag for every message whose transfer begins, or {0} for
   none. BATON_ERR_INVALID: as for the option. */
BATON_CHECKED baton_status_t baton_sim_set_lag(baton_sim_t *sim,
                                               baton_distribution_t lag);

/* From now on this rank's processor works at `speed`; 1 is normal.
   BATON_ERR_INVALID: it is not from 1e-9 up to 1e15. */
BATON_CHECKED baton_status_t baton_sim_set_speed(baton_sim_t *sim, int rank,
                                                 double speed);

/* Kills the rank: it does nothing from now on. Its messages that are under way
   arrive. All other receives from it, and sends to it that have not completed,
   now or later, end in BATON_ERR_TRANSPORT. */
BATON_CHECKED baton_status_t baton_sim_kill(baton_sim_t *sim, int rank);

/* Makes the k-th send of this rank from now, counted from 1, fail. 0 undoes
   that. */
BATON_CHECKED baton_status_t baton_sim_fail_send(baton_sim_t *sim, int rank,
                                                 uint64_t k);

/* ---- trace ------------------------------------------------------------ */

typedef enum baton_sim_what {
    BATON_SIM_SEND,   /* the transfer, at its sender */
    BATON_SIM_RECV,   /* the transfer, at its receiver */
    BATON_SIM_REDUCE, /* the processor reduces */
    BATON_SIM_EPOCH   /* from an epoch's begin to its end */
} baton_sim_what_t;

typedef struct baton_sim_event {
    baton_sim_what_t what;
    int rank;
    int peer;      /* send, recv; else -1 */
    uint32_t node; /* its number; epochs: 0 */
    double begin_us;
    double end_us;
    size_t bytes;         /* send, recv, reduce */
    const char *schedule; /* its name */
    uint64_t epoch; /* that runs as it is told: an eager send's transfer may
                       begin after its own has ended */
} baton_sim_event_t;

/* Calls fn for each event once its end time is known, in a deterministic order.
   NULL: no longer. */
typedef void (*baton_sim_trace_fn)(void *arg, const baton_sim_event_t *event);
void baton_sim_trace(baton_sim_t *sim, baton_sim_trace_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
