/* Declarations that the files of the partial collectives share. */
#pragma once

#include "coll/kit/null_contribution.h"
#include "coll/kit/stream_requests.h"
#include "coll/kit/wrong.h"
#include "coll/partial/begin.h"
#include "coll/partial/contribution.h"

#include <baton/partial.h>

typedef struct baton__survival baton__survival_t;

/* A piece of the vector, which has an inner all-reduce of its own: a long
   tensor, which the application may lend, or the short tensors between two long
   ones. */
typedef struct baton__piece {
    size_t tensor; /* the piece's first tensor */
    size_t bytes;
    /* The source of the inner all-reduce. Each epoch binds this buffer to the
       contribution that it has taken. */
    baton_buffer_t source;
    struct baton_given given;
} baton__piece_t;

/* The tensors of a step; see set.c. */
typedef struct baton__partial_set {
    /* The number of tensors; 0: a step is one vector, which is one piece. */
    size_t tensors;
    /* For each tensor, the number of elements before it. One more entry has the
       number of all elements. */
    size_t *begins;
    baton__piece_t *pieces;
    size_t piece_count;
    pthread_mutex_t lock;
    bool *contributed; /* for each tensor, whether contribution.staged has a
                    contribution to it */
    /* True if contribution.staged has a contribution to at least one tensor of
       the next step. */
    bool any;
} baton__partial_set_t;

struct baton_partial {
    baton_schedule_t *schedule;
    char *name;
    baton_partial_options_t options; /* with defaults filled in */
    baton__survival_t *survival;     /* NULL: a loss fails the schedule */
    /* The target of the inner all-reduces. Each epoch binds this buffer to the
       slot of results that it fills. */
    baton_buffer_t target;
    bool payload; /* false in a cost-only simulation: vectors are empty */
    /* True if the count of active ranks is summed as one more element at the
       end of the vector; see partial.c. */
    bool rides;
    /* Unless `rides`: the vector of the all-reduce that counts the active
       ranks. */
    uint32_t active_count;
    size_t vector_bytes; /* bytes of the vector in `target` */
    /* The last epoch that has begun to take a contribution. */
    uint64_t epoch;
    bool active;                 /* this rank's contribution is in `epoch` */
    _Atomic uint64_t steps;      /* number of steps started so far */
    _Atomic uint64_t generation; /* number of recoveries so far */
    uint64_t claimed;            /* last step for which a wait has succeeded */
    pthread_mutex_t limit_lock;
    /* True from the time when the schedule was built to the time when its
       destroy begins. Only then baton__partial_limit passes limits to the
       schedule. */
    bool is_limited;
    /* The last step that this rank has started or, for steps started on a
       stream, the last step that the stream has reached. */
    uint64_t arrived;
    uint64_t seen; /* last step whose result was returned */
    baton__contribution_t contribution;
    baton__partial_set_t set;

    struct baton__partial_device *device; /* NULL: vectors are in main memory */

    baton__begin_t begin; /* how epochs begin; used by the driver */
};

/* Fills in the defaults. If an option is wrong, returns an error that names the
   option. */
baton_status_t
baton__partial_resolve_options(const baton_partial_options_t *passed,
                               const baton_group_t *group,
                               baton_partial_options_t *out);

/* States (baton_schedule_agree) the options that must be the same on all
   ranks. */
void baton__partial_agree(const baton_partial_t *partial,
                          baton_schedule_t *schedule);

/* If there are tensors, sets options->count to the sum of their counts. Returns
   false if an option about tensors is wrong. */
bool baton__partial_resolve_tensors(baton_partial_options_t *options,
                                    baton__wrong_t *wrong);

/* Allocates the arrays of a set. Fails only with BATON_ERR_NO_MEMORY. */
baton_status_t baton__partial_set_init(baton__partial_set_t *self,
                                       const baton_partial_options_t *options);
/* Frees the arrays of a set. May also be called if init has failed, or was not
   called. */
void baton__partial_set_fini(baton__partial_set_t *self);

/* Called before a step is started. Makes the contributions to the step's
   tensors pending, as one contribution. */
void baton__partial_set_close(baton_partial_t *partial);

/* Copies the pending contribution to `data`, and adds the contributions to
   tensors of the next step. Returns true if there are any contributions. */
bool baton__partial_set_pending(baton_partial_t *partial, void *data);

/* Called in a recovery. Copies tensors that were lent for the next step. */
void baton__partial_set_end_loan(baton_partial_t *partial);

/* Returns options->inner; or, if that is NULL, the all-reduce that suits the
   bytes of the piece, the ranks' hosts, and the number of ranks that are
   expected to be active. The defaults of `options` have been filled in. */
baton_allreduce_fn
baton__partial_choose_inner(const baton_partial_options_t *options,
                            size_t bytes, const baton_schedule_t *schedule);

/* Returns true if `count` elements take more than BATON_PARTIAL_TREE_BYTES. */
static inline bool
baton__partial_is_long(const baton_partial_options_t *options, size_t count)
{
    return count > BATON_PARTIAL_TREE_BYTES /
                       baton_op_element_bytes(options->op, options->dtype);
}

/* Returns false, with this thread's error, if the partial is NULL or
   destroyed. */
bool baton__partial_is_alive(const baton_partial_t *partial,
                             const char *function);

/* Returns the number of steps started so far. Any thread may call this. */
uint64_t baton__partial_steps(const baton_partial_t *partial);
/* Counts a step if `status`, which the step's start has returned, is
   BATON_OK. */
void baton__partial_count_step(baton_partial_t *partial, baton_status_t status);

/* Returns BATON_ERR_STATE if there is no step whose result may be waited for.
   If no step was started and the schedule has failed, returns the error of that
   failure instead. */
baton_status_t baton__partial_check_step(const baton_partial_t *partial);

/* Raises *count, which is partial->arrived or partial->seen, to `step`, so that
   peers may begin more epochs on this rank. If `step` is 0, resets *count to 0;
   the other count is 0 already. Any thread may call this function. */
void baton__partial_limit(baton_partial_t *partial, uint64_t *count,
                          uint64_t step);

/* Begins or ends the time in which the schedule gets limits; see is_limited.
   This time ends before the schedule is destroyed or replaced, because requests
   in a device's streams may still end after that, and ask for a limit. */
void baton__partial_begin_limit(baton_partial_t *partial, bool begin);

/* ---- partial.c: an epoch ------------------------------------------------ */

/* The part of an epoch that differs between a partial all-reduce and a partial
   sparse all-reduce. */
typedef struct baton__epoch {
    /* A call that runs after the node that takes the contribution, and that
       sets partial->epoch and partial->active. If there is no such node, this
       call takes the contribution. */
    baton_call_fn prepare;
    /* Adds the nodes that do the work of the epoch. They run after
       `prepare`. */
    void (*add)(baton_partial_t *partial);
    baton_call_fn publish; /* the call after the nodes that do the work */
} baton__epoch_t;

/* Adds an epoch's nodes to partial->schedule, for the mode in its options. The
   calls' argument is the partial. Returns BATON_ERR_NO_MEMORY if it fails. */
baton_status_t baton__partial_build(baton_partial_t *partial,
                                    const baton__epoch_t *epoch);

/* Starts a step's epoch, and counts the step. */
baton_status_t baton__partial_start_step(baton_partial_t *partial);

/* ---- survive.c: ranks are lost ------------------------------------------ */

/* The functions by which a partial all-reduce, or a partial sparse all-reduce,
   goes on after a loss. They are called while no epoch of the partial's
   schedules is in progress. */
typedef struct baton__survivor {
    /* Builds and commits partial->schedule, which was created before, and sets
       partial->vector_bytes. Each later call sets it to the same number. */
    baton_status_t (*commit)(baton_partial_t *partial);
    /* States in a schedule (baton_schedule_agree) the options that must be the
       same on all ranks. NULL if the ranks have compared these options
       before. */
    void (*agree)(const baton_partial_t *partial, baton_schedule_t *schedule);
    /* Returns memory of vector_bytes bytes, from which and into which the last
       epoch's result is handed over. If `has` is true, this rank has that
       result, and the memory contains it; otherwise it contains zeros. */
    char *(*give)(baton_partial_t *partial, bool has);
    /* Completes `epoch`, which this rank has begun and not completed, and in
       which `active` ranks were active. The memory that `give` has returned
       contains the result of the epoch now. (A rank that has imported a state
       of fewer steps has not begun the epoch.) */
    void (*get)(baton_partial_t *partial, uint64_t epoch, uint32_t active);
} baton__survivor_t;

/* Creates partial->survival, and the schedule in a group of its own. If this
   fails, partial->survival may exist, and must be destroyed. */
baton_status_t baton__survival_create(baton_partial_t *partial,
                                      baton_group_t *group,
                                      const baton__survivor_t *kind);
/* Destroys partial->survival and the schedule. */
baton_status_t baton__survival_destroy(baton_partial_t *partial);

/* baton__survival_start does what baton_partial_start does. The other function
   does what baton_partial_wait does or, if done_out is not NULL, what
   baton_partial_test does. */
baton_status_t baton__survival_start(baton_partial_t *partial);
baton_status_t baton__survival_wait(baton_partial_t *partial, int timeout_ms,
                                    bool *done_out);

/* Between enter and leave the schedules are not replaced after a loss. enter
   returns BATON_ERR_BUSY if they are being replaced at the moment. If the
   partial has ended, enter returns the error that ended it. `partial` may be
   NULL. */
baton_status_t baton__survival_enter(baton_partial_t *partial,
                                     const char *doing);
void baton__survival_leave(baton_partial_t *partial);

/* ---- device.c ---------------------------------------------------------- */

/* Requests to copy a vector in device memory, or to add two vectors. */
typedef struct baton__mover {
    baton_partial_t *partial;
    baton__requests_t requests;
    /* The operands of the request that is being served, which the driver sets:
       target = left (op) right. If `left` is NULL, `right` is copied to
       `target`. If `right` is NULL, nothing is done. */
    void *target, *left, *right;
} baton__mover_t;

typedef struct baton__partial_device {
    baton_partial_t *partial;
    baton_engine_t *engine;
    const baton_device_port_t *port;
    void *device;
    baton_group_t *own_group; /* a group of this rank alone */
    baton__mover_t additions, results;
    /* A contribution was pending when baton__partial_device_pending copied it
       last. */
    bool any;
} baton__partial_device_t;

/* Creates partial->device, and fills `nothing` of the contribution, which
   exists by then. If this fails, partial->device may exist, and must be
   destroyed. */
baton_status_t baton__partial_device_create(baton_partial_t *partial,
                                            baton_group_t *group);
/* Called after the collective's schedule was destroyed. `self` may be NULL.
   Returns BATON_ERR_TIMEOUT if one of the mover's requests has not ended (see
   baton__requests_fini); the caller may then call this again. */
baton_status_t baton__partial_device_destroy(baton__partial_device_t *self);

/* Returns false while the device adds to the pending contribution, or copies
   it. Called by the driver. */
bool baton__partial_device_may_take(const baton__partial_device_t *self);

/* Called by baton_partial_contribute and baton_partial_pending. These functions
   block until the device has added or copied the vector. */
baton_status_t baton__partial_device_contribute(baton_partial_t *partial,
                                                const void *data);
baton_status_t baton__partial_device_pending(baton_partial_t *partial,
                                             void *data, bool *any_out);

/* If the last contribution was lost because the device has failed, returns the
   error of that failure. */
baton_status_t baton__partial_device_check(baton_partial_t *partial);
