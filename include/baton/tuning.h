/* The choice of algorithms: the table of all dense builders with their costs,
   and how each collective's builder chooses the cheapest.

   The model: a message of n bytes takes alpha + n beta, and reducing a byte
   takes gamma. A rank sends one message at a time and receives one. If all
   ranks are on one host, its processors also make the copies, and do nothing
   else meanwhile; if it has more ranks than processors, the ranks share them.
   Links inside a host and between hosts have their own alpha and beta
   (costs.h). With several hosts, the costs of binomial broadcasts and reduces,
   and of the all-reduces recursive_doubling, binomial, rabenseifner and
   hierarchical, account for messages inside a host; those of other algorithms
   assume that all messages go between hosts.

   A builder chooses when it is called, from inputs that are the same on all
   ranks: sizes, numbers of ranks and hosts, costs, variables. So variables and
   the calibration file must be the same on all ranks. If they differ, ranks
   build different schedules, which their first messages reveal
   (BATON_ERR_MISMATCH names both choices and the variables). Builders named
   after an algorithm never choose.

   If algorithms were measured (baton_group_tune, below), builders take the
   fastest instead of the one that the model expects to be fastest. */
#ifndef BATON_TUNING_H
#define BATON_TUNING_H

#include <baton/coll.h>
#include <baton/costs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every collective: enumerator, name. */
#define BATON_COLLECTIVE_LIST(X)                                               \
    X(BROADCAST, "broadcast")                                                  \
    X(REDUCE, "reduce")                                                        \
    X(ALLREDUCE, "allreduce")                                                  \
    X(REDUCE_SCATTER, "reduce_scatter")                                        \
    X(ALLGATHER, "allgather")                                                  \
    X(SCATTER, "scatter")                                                      \
    X(GATHER, "gather")                                                        \
    X(ALLTOALL, "alltoall")                                                    \
    X(SCAN, "scan")                                                            \
    X(EXSCAN, "exscan")                                                        \
    X(BARRIER, "barrier")

typedef enum baton_collective {
#define BATON_COLLECTIVE_ENUM(NAME, name) BATON_COLLECTIVE_##NAME,
    BATON_COLLECTIVE_LIST(BATON_COLLECTIVE_ENUM)
#undef BATON_COLLECTIVE_ENUM
        BATON_COLLECTIVE_COUNT
} baton_collective_t;

/* Returns "allreduce" and so on, or "?" for an invalid value. */
const char *baton_collective_name(baton_collective_t collective);

/* The extent of a collective's source or target. */
typedef enum baton_span {
    BATON_SPAN_NONE,  /* the collective has no such vector */
    BATON_SPAN_PART,  /* `count` elements, or this rank's block */
    BATON_SPAN_BLOCKS /* a block for each rank */
} baton_span_t;

typedef struct baton_collective_facts {
    baton_span_t source, target; /* a broadcast has a target alone */
    bool reduces, rooted;
    bool source_at_root, target_at_root; /* only the root has this vector */
} baton_collective_facts_t;

/* Returns what is true of every algorithm of the collective. NULL if
   `collective` is invalid. */
const baton_collective_facts_t *
baton_collective_facts(baton_collective_t collective);

/* ---- the cost of an algorithm ------------------------------------------ */

/* The input of the cost model. `bytes` is the size of the whole vector; if data
   is gathered, scattered or exchanged, it is the size of all blocks of a rank
   together. */
typedef struct baton_cost_case {
    int ranks;
    double bytes;
    double alpha_us; /* cost of a message */
    double beta_us;  /* cost of a byte */
    double gamma_us; /* cost of reducing a byte */
    /* size of a segment, for algorithms that have segments */
    double segment_bytes;
    /* For baton_algorithm_host_us: the number of the host's processors; 0 means
       one per rank. */
    int processors;
    double turn_us; /* how long a waiting rank keeps a shared processor */
    /* The fields from here on are for baton_algorithm_cost_us, if ranks share
       hosts: the number of hosts (0: one per rank), and the costs of messages
       inside a host. */
    int hosts;
    /* ranks of a host are not consecutive; see baton_choice_case_t */
    bool scattered;
    double inside_alpha_us;
    double inside_beta_us;
} baton_cost_case_t;

/* The function that adds an algorithm's nodes, by collective. */
typedef union baton_builder {
    void (*barrier)(baton_schedule_t *schedule);
    void (*broadcast)(baton_schedule_t *schedule,
                      const baton_broadcast_args_t *args);
    void (*reduce)(baton_schedule_t *schedule, const baton_reduce_args_t *args);
    baton_allreduce_fn allreduce;
    void (*reduce_scatter)(baton_schedule_t *schedule,
                           const baton_reduce_scatter_args_t *args);
    void (*allgather)(baton_schedule_t *schedule,
                      const baton_allgather_args_t *args);
    /* for scatter and gather */
    void (*rooted)(baton_schedule_t *schedule, const baton_rooted_args_t *args);
    void (*alltoall)(baton_schedule_t *schedule,
                     const baton_alltoall_args_t *args);
    /* for scan and exscan */
    void (*scan)(baton_schedule_t *schedule, const baton_scan_args_t *args);
} baton_builder_t;

struct baton__terms;
struct baton__work_model;

/* An algorithm. Its strings are static. */
typedef struct baton_algorithm {
    baton_collective_t collective;
    const char *name; /* the name in BATON_ALLREDUCE=name and in messages */
    baton_builder_t build;
    bool ordered;         /* supports non-commutative reductions */
    bool segmented;       /* has a segment size to choose */
    bool equal_blocks;    /* supports only blocks of equal sizes */
    bool ordered_at_ends; /* as `ordered`, but only for root 0 or P - 1 */
    bool one_host;        /* chosen only if all ranks are on one host: in a
                             network its messages would all queue at one port */
    /* The fields from here on are for the functions below. If `cost` or `work`
       is NULL, the algorithm has the sum of the costs or the work of `phases`,
       which run one after the other. */
    const struct baton_algorithm *phases[2];
    double (*cost)(const struct baton__terms *terms);
    bool (*exact)(const struct baton__terms *terms); /* NULL: never exact */
    const struct baton__work_model *work;
} baton_algorithm_t;

/* baton_algorithm_cost_us returns the algorithm's time by its formula, and
   baton_algorithm_host_us its time if all ranks are on one host.
   baton_algorithm_is_exact returns true if the simulator, with equal blocks and
   segments of one chunk each, takes this time (cost_us), to 1e-9. Otherwise
   cost_us is an estimate to choose by. */
double baton_algorithm_cost_us(const baton_algorithm_t *algorithm,
                               const baton_cost_case_t *of);
double baton_algorithm_host_us(const baton_algorithm_t *algorithm,
                               const baton_cost_case_t *of);
bool baton_algorithm_is_exact(const baton_algorithm_t *algorithm,
                              const baton_cost_case_t *of);

/* baton_algorithm_get stores the i-th algorithm of the table, and returns false
   past the table's end or if out is NULL. baton_algorithm_find looks for a
   name. The message of BATON_ERR_INVALID lists the collective's algorithms and
   the nearest name, or says that `collective` is invalid or a pointer NULL. */
bool baton_algorithm_get(size_t i, baton_algorithm_t *out);
BATON_CHECKED baton_status_t baton_algorithm_find(baton_collective_t collective,
                                                  const char *name,
                                                  baton_algorithm_t *out);

/* Adds an algorithm of your own to the table. From then on its name can be used
   like those of the library: in operands and args, in BATON_ALLREDUCE and its
   like, and in `baton-bench --systems baton:NAME` and `baton-sim --algorithm
   NAME`, if LD_PRELOAD loads a shared object whose constructor calls this
   function (examples/03_own_allreduce.c is one). An algorithm of your own is
   used by its name alone: it has no model of its cost, so it is never chosen,
   and baton_group_tune does not measure it.

   `collective`, `name`, `build` and the flags describe the algorithm; the
   fields from `phases` on must be NULL. All is copied. The builder must add the
   same kind of nodes on all ranks that call it, for any number of ranks.
   Call this function in each process before the name is used; any thread may.
   BATON_ERR_INVALID: a field is wrong, or the collective has an algorithm of
   this name. BATON_ERR_LIMIT: there are 32 algorithms of your own. */
BATON_CHECKED baton_status_t
baton_algorithm_add(const baton_algorithm_t *algorithm);

/* ---- the choice -------------------------------------------------------- */

/* The inputs of a choice. */
typedef struct baton_choice_case {
    size_t size; /* set by BATON_CHOICE_CASE */
    baton_collective_t collective;
    int ranks;
    int hosts; /* number of the ranks' hosts, at most `ranks`; 0 means 1 */
    /* Processors of a host, which its ranks share; 0 means one per rank. */
    int processors;
    size_t bytes; /* size of the vector; see baton_cost_case_t */
    /* True if the reduction is not commutative; must be false if the collective
       does not reduce. */
    bool ordered;
    bool uneven; /* true if each rank has a size of its own */
    /* The algorithm's name. NULL means the name in the collective's variable
       (BATON_ALLREDUCE and so on), or the cheapest algorithm if that is not
       set. */
    const char *algorithm;
    /* For a reduce: true if the root is rank 0 or P - 1, for which the linear
       pipeline, too, keeps the order of ranks. */
    bool root_at_end;
    bool scattered; /* ranks of a host are not consecutive, or hosts differ in
                       their number of ranks; false with one host */
    /* For an all-reduce: true if the target is the source; matters to measured
       choices only. */
    bool in_place;
    size_t segment_bytes; /* size of a segment; 0: it is chosen, too */
} baton_choice_case_t;

#define BATON_CHOICE_CASE BATON_INITIALIZER(baton_choice_case_t)

typedef struct baton_choice {
    baton_algorithm_t algorithm;
    size_t segment_bytes; /* chosen size of a segment; 0 without segments */
    double cost_us; /* expected cost; includes cache misses of reductions. NAN
                       if costs can't be read, and the choice does not depend on
                       them */
} baton_choice_t;

/* Chooses the named algorithm. Without a name it chooses the algorithm that was
   measured for this case, if the calibration file has one, or else the
   cheapest. Ignores a group's own measurements. BATON_ERR_INVALID: no such
   algorithm (see find); a value is out of range, and is named with its range;
   or a pointer is NULL. BATON_ERR_UNSUPPORTED: the algorithm can't do this; the
   message names those that can, or says that none can. Other errors as for
   baton_costs_get; these can't occur if costs do not matter, i.e. the algorithm
   is named or the only one, and it has no segments or their size is given. */
BATON_CHECKED baton_status_t baton_choose(const baton_choice_case_t *of,
                                          baton_choice_t *out);

/* ---- choices that are measured ----------------------------------------- */

/* Measures on this group, for each collective and size, the four algorithms
   that the model ranks first. From then on builders take the fastest: the
   algorithm whose median time is least on the slowest rank. If it is not at
   least a tenth faster than the model's choice, that choice stays.

       baton_tune_options_t options = BATON_TUNE_OPTIONS;
       options.collectives = BATON_TUNE(ALLREDUCE);
       options.in_place = true;
       options.file = "costs.txt";
       if (baton_group_tune(group, &options) != BATON_OK) {
           fprintf(stderr, "%s\n", baton_error_message());
       }
       baton_add_allreduce(schedule, &args); // as measured

   The results hold for this group until it is destroyed. In later programs that
   name the file in BATON_CALIBRATION, they hold for all groups of as many ranks
   and hosts. Sizes are classes: 4^k bytes stand for all from half of that to
   less than twice. All-reduces in place are measured separately, so with
   measured choices an all-reduce must be in place on all ranks or on none.
   Vectors in device memory use the choices measured for host memory.

   With BATON_TUNE=measure, builders measure a size class, up to that of 64 MiB,
   when they first meet it, for at most a second. Their calls then wait for the
   other ranks, which must make the same calls in the same order, each rank in a
   thread of its own. If a measurement fails (a rank lacks the variable, say),
   the group measures no more and keeps the model's choice.

   Collective: all ranks pass the same options (NULL: defaults), except
   `budget_ms` and `file`. Blocks for at most the budget and one epoch; if a
   rank stops answering, for at most twice that. A size for which a rank's
   budget did not suffice keeps the model's choice; the call returns BATON_OK
   all the same.

   After an error all choices are as before. BATON_ERR_INVALID: an option, which
   is named; options or costs that differ between ranks; group is NULL.
   BATON_ERR_TIMEOUT: a rank did not come within the budget, or stopped
   answering. BATON_ERR_UNSUPPORTED: the ranks are simulated. BATON_ERR_STATE:
   in a call node. BATON_ERR_NO_MEMORY, _CANCELLED, _TRANSPORT, or another error
   that ended an epoch on any rank, or an error of baton_costs_get. On rank 0
   alone, with the new choices in force: BATON_ERR_SYSTEM, if the file can't be
   written, or an error of baton_costs_read. */
typedef struct baton_tune_options {
    size_t size;   /* set by BATON_TUNE_OPTIONS */
    int budget_ms; /* the longest time to measure; 0 means 10 000 */
    /* the collectives to measure: BATON_TUNE(ALLREDUCE) | ...; 0 means all that
       have several algorithms */
    unsigned collectives;
    size_t least_bytes; /* the smallest size class; 0 means 8 */
    /* the largest size class, at most 1 GiB; 0 means 4 MiB */
    size_t most_bytes;
    bool in_place; /* all-reduces are measured in place */
    /* The calibration file to which rank 0 adds the results. If it does not
       exist, rank 0 creates it, with the costs in force. NULL: the results are
       not written to a file. */
    const char *file;
    /* Unless NULL, this function is called now and then on the calling thread.
       `part` is the part of the budget, 0 to 1, that the slowest rank has used.
       Ranks may have different functions. */
    void (*on_progress)(void *arg, double part);
    void *on_progress_arg;
} baton_tune_options_t;

#define BATON_TUNE_OPTIONS BATON_INITIALIZER(baton_tune_options_t)
#define BATON_TUNE(NAME)   (1u << BATON_COLLECTIVE_##NAME)

BATON_CHECKED baton_status_t
baton_group_tune(baton_group_t *group, const baton_tune_options_t *options);

#ifdef __cplusplus
}
#endif
#endif
