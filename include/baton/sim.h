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
   rank by rank, as a program would, and schedule the application's actions at
   virtual times with baton_sim_at. start returns at once. wait lets virtual
   time pass until the epoch has ended; its timeout is virtual, too. If no event
   is left that could end the epoch, wait returns BATON_ERR_DEADLOCK. test
   processes the next events, and never reports a deadlock. destroy cancels a
   running epoch and does not wait. recover is collective: call it for each rank
   with a timeout of 0, also in callbacks, and call it again after virtual time
   has passed.

   The transfer of a message of n bytes takes alpha + n * beta. It occupies both
   ports, sender's and receiver's, and the message arrives `lag` later. A port
   carries one message at a time (single-ported ranks), in the order in which
   transfers begin. A message costs `overhead` of processor time at each end, a
   reduction gamma per byte. A rank's processor does one of these things at a
   time; `speed` divides both costs. Copies, calls and nops are free. Async
   nodes are polled every 10 us.

   The same seed gives the same run, bit for bit, on any machine.

   Threads: one thread at a time may use a simulator and its groups. Callbacks
   run inside the calls that let time pass: run, epoch, wait, test. */
#ifndef BATON_SIM_H
#define BATON_SIM_H

#include <baton/build.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- distributions ---------------------------------------------------- */

/* Named distributions: enumerator, name, parameters. Only the normal's mean may
   be negative; high is at least low, and a shape is above 0. Samples below 0
   count as 0. No parameter or sample exceeds 1e15. */
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
    double a, b; /* the kind's parameters, in the order of the list */
} baton_distribution_t;

/* Parses "uniform:0:5", "exponential:20", or a number alone, which is a
   constant. The message of BATON_ERR_INVALID has the allowed forms. */
BATON_CHECKED baton_status_t
baton_distribution_parse(const char *text, baton_distribution_t *out);

/* Returns the k-th sample of a stream (of a rank, say) for a seed. The result
   depends on the arguments alone. The distribution must be valid. */
double baton_distribution_sample(const baton_distribution_t *distribution,
                                 uint64_t seed, uint64_t stream, uint64_t k);

/* ---- the simulator ---------------------------------------------------- */

typedef struct baton_sim baton_sim_t;

typedef struct baton_sim_link {
    double alpha_us; /* cost of a message */
    double beta_ns;  /* cost of a byte: 8 / (Gbit/s) */
} baton_sim_link_t;

/* Returns the link between two ranks, for a topology of your own. It is called
   often, and must be pure. Costs are clamped to the range from 0 to 1e15. */
typedef baton_sim_link_t (*baton_sim_topology_fn)(void *arg, int from, int to);

/* A cost, a skew or a lag of 0 is just that: 0 does not stand for a default, as
   it does in other options. For other fields, their comments say what 0 means.
   Costs are from 0 to 1e15. `ranks` has no default. */
typedef struct baton_sim_options {
    size_t size; /* set by BATON_SIM_OPTIONS */
    int ranks;   /* number of ranks, 1 to 2^24 */
    /* Scratch has no memory, bound memory is not touched, and reductions only
       take time. Call nodes and activations run as usual. */
    bool cost_only;
    uint64_t seed;         /* seed for the samples of all distributions */
    baton_sim_link_t link; /* the link between two ranks */
    double gamma_ns;       /* cost of reducing a byte */
    double overhead_us;    /* cost of a message at each of its ends */
    bool multi_ported;     /* ports carry any number of messages at once */
    /* Sends of fewer bytes complete when posted, as short sends do in MPI; only
       their transfer waits for the port. Longer sends complete with their
       transfer. Must be at most sync_bytes, unless sync_bytes is 0. */
    size_t eager_bytes;
    /* A send of at least this many bytes completes only when its receive has
       taken the message, as long sends do in MPI. 0: sends of no size do so. */
    size_t sync_bytes;
    /* The number of consecutive ranks that share a host; host_link is the link
       between them. With 0 or 1 each rank has its own host. */
    int host_ranks;
    baton_sim_link_t host_link;
    baton_sim_topology_fn topology; /* replaces both links, unless NULL */
    void *topology_arg;             /* passed to `topology` */
    /* Speed of a rank's processor; 1 is normal, samples below 1e-9 count as
       1e-9; {0}: all are 1. */
    baton_distribution_t speed;
    /* time in us by which a rank is late at each start of baton_sim_epoch */
    baton_distribution_t skew;
    /* time in us that a message takes after its transfer; messages may overtake
       each other */
    baton_distribution_t lag;
    /* If true, ranks learn from messages that a peer has committed a schedule,
       as outside the simulator. They may commit at any time, also in callbacks;
       sends to a peer wait until it has committed. If false, all ranks must
       commit before time passes, and the simulator compares their schedules. */
    bool introductions;
    /* Called every 16,384 events of run and epoch, unless NULL. The function
       may ask for the totals and the virtual time. If it returns false, run and
       epoch return BATON_ERR_CANCELLED, and another run goes on from there. */
    bool (*on_progress)(void *arg);
    void *on_progress_arg; /* passed to on_progress */
} baton_sim_options_t;

#define BATON_SIM_OPTIONS BATON_INITIALIZER(baton_sim_options_t)

/* Creates a simulator. BATON_ERR_INVALID: the message names the option, its
   value and its range; or out is NULL. BATON_ERR_NO_MEMORY: the message says
   how much is needed and available. */
BATON_CHECKED baton_status_t
baton_sim_create(const baton_sim_options_t *options, baton_sim_t **out);

/* Destroys the simulator, its groups, and the schedules of baton_sim_build.
   NULL is allowed. BATON_ERR_BUSY: another schedule still exists, which is
   named; nothing is destroyed. BATON_ERR_STATE: in a callback. */
BATON_CHECKED baton_status_t baton_sim_destroy(baton_sim_t *sim);

/* Returns one rank's group, owned by the simulator; NULL if there is no such
   rank. */
baton_group_t *baton_sim_group(baton_sim_t *sim, int rank);

/* ---- a builder on every rank ------------------------------------------ */

typedef void (*baton_sim_build_fn)(void *arg, baton_schedule_t *schedule);

/* Creates a schedule for each rank, calls `build` to fill it
   (baton_schedule_rank returns the rank), commits all, and compares every send
   with its receive. Call it once for a simulator; a second call returns
   BATON_ERR_STATE. Errors as for create and commit; BATON_ERR_MISMATCH names
   both ranks and nodes. BATON_ERR_INVALID: name or build is NULL.
   BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_sim_build(baton_sim_t *sim, const char *name,
                                             baton_sim_build_fn build,
                                             void *arg);

/* Returns the schedule built for this rank, owned by the simulator; NULL if
   there is none. */
baton_schedule_t *baton_sim_schedule(baton_sim_t *sim, int rank);

/* Starts an epoch on every living rank, and runs until it has ended on all of
   them. Each rank starts late by its own sample of the option `skew`
   (baton_sim_options_t). *us_out: the time from the first start to the last
   end. Returns the error of the epoch, if it failed, or an error of
   baton_sim_run. BATON_ERR_STATE: nothing was built. */
BATON_CHECKED baton_status_t baton_sim_epoch(baton_sim_t *sim, double *us_out);

/* ---- virtual time ----------------------------------------------------- */

/* Returns the virtual microseconds since the simulator was created. In a
   callback of a rank: the time of that rank at which the callback runs. */
double baton_sim_now_us(const baton_sim_t *sim);

/* Returns the time when the last epoch ended, in virtual microseconds. */
double baton_schedule_ended_us(const baton_schedule_t *schedule);

/* Calls fn(arg), an application's action, at a virtual time, or now if that
   time has passed. The function may start, test, contribute, cancel, recover,
   and destroy schedules. If it calls baton_sim_run, baton_sim_epoch or
   baton_sim_destroy, or waits for an epoch that has not ended, that call
   returns BATON_ERR_STATE.

   baton_sim_at returns BATON_ERR_INVALID if the time is not finite or a pointer
   is NULL, or BATON_ERR_NO_MEMORY. */
typedef void (*baton_sim_fn)(void *arg);
BATON_CHECKED baton_status_t baton_sim_at(baton_sim_t *sim, double at_us,
                                          baton_sim_fn fn, void *arg);

/* Lets time pass until no event is left. Returns BATON_ERR_TIMEOUT if events
   are left at `until_us` (negative: no limit). BATON_ERR_DEADLOCK: nothing can
   end some started epochs; baton_error_message() says which rank and node waits
   for which other one, round the cycle or up to the rank at fault. The first
   call compares all committed schedules across ranks, unless `introductions` is
   set: BATON_ERR_MISMATCH. BATON_ERR_STATE: in a callback. BATON_ERR_NO_MEMORY:
   for messages and events. BATON_ERR_CANCELLED: on_progress returned false. */
BATON_CHECKED baton_status_t baton_sim_run(baton_sim_t *sim, double until_us);

/* Totals so far, over all ranks. */
typedef struct baton_sim_totals {
    uint64_t messages;
    uint64_t bytes;
    uint64_t events;
} baton_sim_totals_t;
baton_sim_totals_t baton_sim_totals(const baton_sim_t *sim);

/* ---- faults ----------------------------------------------------------- */

/* These functions may be called at any time, also in callbacks.
   BATON_ERR_INVALID: there is no such rank, or a cause that is named below. */

/* Sets the lag of messages whose transfer begins from now on; {0}: none.
   BATON_ERR_INVALID: baton_sim_create would not take it as the option `lag`. */
BATON_CHECKED baton_status_t baton_sim_set_lag(baton_sim_t *sim,
                                               baton_distribution_t lag);

/* Sets the speed of this rank's processor from now on; 1 is normal.
   BATON_ERR_INVALID: it is not from 1e-9 to 1e15. */
BATON_CHECKED baton_status_t baton_sim_set_speed(baton_sim_t *sim, int rank,
                                                 double speed);

/* Kills the rank: it does nothing from now on. Its messages under way still
   arrive. All other receives from it, and all sends to it that have not
   completed, end in BATON_ERR_TRANSPORT. */
BATON_CHECKED baton_status_t baton_sim_kill(baton_sim_t *sim, int rank);

/* Makes this rank's k-th send from now on fail, counted from 1. k = 0: no send
   will fail. */
BATON_CHECKED baton_status_t baton_sim_fail_send(baton_sim_t *sim, int rank,
                                                 uint64_t k);

/* ---- trace ------------------------------------------------------------ */

typedef enum baton_sim_what {
    BATON_SIM_SEND,   /* the transfer, at its sender */
    BATON_SIM_RECV,   /* the transfer, at its receiver */
    BATON_SIM_REDUCE, /* the processor reduces */
    BATON_SIM_EPOCH   /* an epoch, from begin to end */
} baton_sim_what_t;

typedef struct baton_sim_event {
    baton_sim_what_t what;
    int rank;
    int peer;      /* the other rank, for SEND and RECV; else -1 */
    uint32_t node; /* the node's number; 0 in the event of an epoch */
    double begin_us;
    double end_us;
    size_t bytes;         /* for SEND, RECV and REDUCE; else 0 */
    const char *schedule; /* the schedule's name */
    uint64_t epoch; /* the current epoch when the event is reported: an eager
                       send's transfer may begin after the send's epoch */
} baton_sim_event_t;

/* From now on `fn` is called for each event once the event's end time is known,
   in a deterministic order, on the thread that lets time pass. A NULL fn ends
   the trace. */
typedef void (*baton_sim_trace_fn)(void *arg, const baton_sim_event_t *event);
void baton_sim_trace(baton_sim_t *sim, baton_sim_trace_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
