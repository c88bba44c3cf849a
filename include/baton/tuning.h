/* Which algorithm: the table of all dense builders with what they cost, and one
   name for each collective that takes the cheapest.

   The model: a message of n bytes takes alpha + n beta, a reduced byte gamma;
   a rank sends one message at a time and receives one. Where all ranks are on
   one host its processors make the copies, too, and nothing else meanwhile;
   ranks beyond their number share them. Links inside a host and between hosts
   have an alpha and beta of their own (costs.h). Where ranks are on several
   hosts, binomial broadcasts and reduces, and the all-reduces
   recursive_doubling, binomial, rabenseifner and hierarchical, count the
   messages that stay inside one; for the other algorithms all go between hosts.

   A choice is made when a builder is called, from what is the same on all
   ranks: sizes, number of ranks and of hosts, costs, variables. So variables
   and the calibration file must be the same on all ranks; where they are not,
   ranks build different schedules, which their first messages tell
   (BATON_ERR_MISMATCH). Builders called by their own names never choose.

   Where algorithms were measured (baton_group_tune, below), the one that was
   fastest is taken instead of the one that the model expects to be. */
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

/* "allreduce"; "?" for a value that is none. */
const char *baton_collective_name(baton_collective_t collective);

/* ---- what an algorithm costs ------------------------------------------- */

/* A case of the model. `bytes`: of the whole vector; where data is gathered,
   scattered or exchanged, of all blocks of a rank together. */
typedef struct baton_cost_case {
    int ranks;
    double bytes;
    double alpha_us;      /* a message */
    double beta_us;       /* a byte */
    double gamma_us;      /* a reduced byte */
    double segment_bytes; /* of those that work in segments */
    /* For baton_algorithm_host_us: of the host; 0 means one for each rank. */
    int processors;
    double turn_us; /* that a rank which waits keeps a processor it shares */
    /* For baton_algorithm_cost_us, where ranks share hosts: how many hosts, and
       what a message and its bytes take inside one. 0 hosts: one for each rank.
     */
    int hosts;
    bool scattered; /* as of baton_choice_case_t */
    double inside_alpha_us;
    double inside_beta_us;
} baton_cost_case_t;

/* The call that adds an algorithm's nodes, by collective. */
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
    void (*rooted)(baton_schedule_t *schedule,
                   const baton_rooted_args_t *args); /* scatter, gather */
    void (*alltoall)(baton_schedule_t *schedule,
                     const baton_alltoall_args_t *args);
    void (*scan)(baton_schedule_t *schedule,
                 const baton_scan_args_t *args); /* scan, exscan */
} baton_builder_t;

struct baton__terms;
struct baton__works;

/* An algorithm: static strings. */
typedef struct baton_algorithm {
    baton_collective_t collective;
    const char *name; /* as BATON_ALLREDUCE=name and messages have it */
    baton_builder_t build;
    bool ordered;         /* takes reductions that are not commutative */
    bool segmented;       /* has a segment size to choose */
    bool equal_blocks;    /* takes no sizes per rank */
    bool ordered_at_ends; /* takes them where the root is rank 0 or P - 1 */
    bool one_host;        /* is chosen for ranks of one host only: in a network
                             its messages would all meet before one port */
    /* What the functions below call. A cost or work that is NULL is that of
       the phases, one after the other; they have their own. */
    const struct baton_algorithm *phases[2];
    double (*cost)(const struct baton__terms *terms);
    bool (*exact)(const struct baton__terms *terms); /* NULL: never */
    struct baton__works (*work)(const struct baton__terms *terms);
} baton_algorithm_t;

/* cost_us: how long the algorithm takes by its formula. host_us: the same where
   all ranks are on one host. is_exact: true if the simulator takes cost_us, to
   1e-9, with equal blocks and segments of one chunk each. Elsewhere cost_us is
   an estimate to choose by. */
double baton_algorithm_cost_us(const baton_algorithm_t *algorithm,
                               const baton_cost_case_t *of);
double baton_algorithm_host_us(const baton_algorithm_t *algorithm,
                               const baton_cost_case_t *of);
bool baton_algorithm_is_exact(const baton_algorithm_t *algorithm,
                              const baton_cost_case_t *of);

/* The i-th of the table; false past its end, and where out is NULL. By name:
   BATON_ERR_INVALID lists the collective's algorithms and the nearest name, or
   says that `collective` is none, or that a pointer is NULL. */
bool baton_algorithm_get(size_t i, baton_algorithm_t *out);
BATON_CHECKED baton_status_t baton_algorithm_find(baton_collective_t collective,
                                                  const char *name,
                                                  baton_algorithm_t *out);

/* ---- the choice -------------------------------------------------------- */

/* What a choice depends on. */
typedef struct baton_choice_case {
    size_t size; /* set by BATON_CHOICE_CASE */
    baton_collective_t collective;
    int ranks;
    int hosts; /* that they are on, at most `ranks`; 0 means 1 */
    /* That they share if they are on one host; 0 means one for each. */
    int processors;
    size_t bytes; /* as of baton_cost_case_t */
    bool ordered; /* the reduction is not commutative; false for collectives
                     that reduce nothing */
    bool uneven;  /* sizes are given per rank */
    /* By name; NULL means what the collective's variable says (BATON_ALLREDUCE
       and so on), else the cheapest. */
    const char *algorithm;
    bool root_at_end; /* of a reduce: the root is rank 0 or P - 1, where the
                         linear pipeline keeps the order of ranks, too */
    bool scattered;   /* the ranks of a host do not follow one another, or not
                         as many on each; false where there is one host */
    bool in_place;    /* of an all-reduce: the target is the source; counts for
                         measured choices only */
} baton_choice_case_t;

#define BATON_CHOICE_CASE BATON_INITIALIZER(baton_choice_case_t)

typedef struct baton_choice {
    baton_algorithm_t algorithm;
    size_t segment_bytes; /* of those that work in segments; else 0 */
    double cost_us;       /* that is expected */
} baton_choice_t;

/* Takes the algorithm that is named, else the one that the calibration file has
   as measured for the case, else the cheapest. What a group has measured is not
   seen here. BATON_ERR_INVALID: no such algorithm, as of find; a value that is
   not allowed, which is named with its range; or a pointer is NULL.
   BATON_ERR_UNSUPPORTED: the algorithm can't do this; names those that can, or
   says that none can. Errors of baton_costs_get. */
BATON_CHECKED baton_status_t baton_choose(const baton_choice_case_t *of,
                                          baton_choice_t *out);

/* ---- choices that are measured ----------------------------------------- */

/* Measures on this group, for each collective and size, the few algorithms that
   the model ranks first, and has the builders below take the fastest from then
   on: the one whose median over epochs is least on the slowest rank, if it is
   a tenth less than that of the model's own choice.

       baton_tune_options_t options = BATON_TUNE_OPTIONS;
       options.collectives = BATON_TUNE(ALLREDUCE);
       options.in_place = true;
       options.file = "costs.txt";
       if (baton_group_tune(group, &options) != BATON_OK) {
           fprintf(stderr, "%s\n", baton_error_message());
       }
       baton_add_allreduce(schedule, &args); // as it was measured

   What is learned holds for this group until it is destroyed. From the file,
   which later programs name by BATON_CALIBRATION, it holds for all groups of as
   many ranks and hosts. Sizes are classes: 4^k bytes stand for all from half of
   that to less than twice. An all-reduce in place is measured apart from one
   that is not, so with measured choices it must be in place on all ranks or on
   none. Choices for vectors in device memory are measured ones, too, but of
   vectors in host memory.

   With BATON_TUNE=measure builders do the same for each size class when they
   meet it first, for at most a second: their calls then wait for the other
   ranks, which must make them in the same order, each in a thread of its own.
   Where a rank does not come in time (it lacks the variable, for example) the
   group measures nothing more, and the model's choice stays, on all ranks.

   Collective: all ranks call it with the same options, except `budget_ms` and
   `file`. Blocks for the budget and one epoch at most; where a rank stops to
   answer, for as long again. When the budget is used up on any rank, sizes that
   were not measured on all stay with the model, and the call returns BATON_OK.

   After an error all choices are as they were. BATON_ERR_INVALID: an option,
   which is named, or options that differ between ranks. BATON_ERR_TIMEOUT: a
   rank has not come within the budget, or stopped answering.
   BATON_ERR_UNSUPPORTED: the ranks are simulated. BATON_ERR_STATE in a call
   node. BATON_ERR_NO_MEMORY, _CANCELLED, _TRANSPORT: on any rank; and whatever
   else ended an epoch. BATON_ERR_SYSTEM: the file can't be written, on rank 0
   alone; the choices are in force. */
typedef struct baton_tune_options {
    size_t size;          /* set by BATON_TUNE_OPTIONS */
    int budget_ms;        /* 0 means 10 000 */
    unsigned collectives; /* BATON_TUNE(ALLREDUCE) | ...; 0 means all that have
                             several algorithms */
    size_t least_bytes;   /* sizes from this class; 0 means 8 */
    size_t most_bytes;    /* to this one; 0 means 4 MiB, at most 1 GiB */
    bool in_place;        /* all-reduces are in place */
    const char *file;     /* rank 0 adds what was learned to this calibration
                             file, which it creates with the costs in force if
                             there is none; NULL: nowhere */
} baton_tune_options_t;

#define BATON_TUNE_OPTIONS BATON_INITIALIZER(baton_tune_options_t)
#define BATON_TUNE(NAME)   (1u << BATON_COLLECTIVE_##NAME)

BATON_CHECKED baton_status_t
baton_group_tune(baton_group_t *group, const baton_tune_options_t *options);

#ifdef __cplusplus
}
#endif
#endif
