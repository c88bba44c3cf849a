/* What the files of the partial collectives share. */
#pragma once

#include "coll/kit/wrong.h"
#include "coll/partial/begin.h"
#include "coll/partial/contribution.h"
#include "coll/partial/given.h"
#include "coll/stream/requests.h"

#include <baton/partial.h>

typedef struct baton__survival baton__survival_t;

/* What has an all-reduce of its own: a long tensor, which may be lent, or the
   short ones between two of them. */
typedef struct baton__piece {
    size_t tensor; /* its first */
    size_t bytes;
    baton_buffer_t source; /* bound to what the epoch takes */
    struct baton_given given;
} baton__piece_t;

/* The tensors that a step is contributed as; set.c. */
typedef struct baton__partial_set {
    size_t tensors; /* 0: it is contributed as one vector, which is a piece */
    size_t *begins; /* elements before each, and in all of them */
    baton__piece_t *pieces;
    size_t piece_count;
    pthread_mutex_t lock;
    bool *given; /* what the contribution's `staged` has of the next step */
    bool any;    /* it has something */
} baton__partial_set_t;

struct baton_partial {
    baton_schedule_t *schedule;
    char *name;
    baton_partial_options_t options; /* resolved */
    baton__survival_t *survival;     /* NULL: a loss fails the schedule */
    baton_buffer_t target;  /* bound to the slot that the epoch works on */
    bool payload;           /* vectors have memory */
    bool rides;             /* the count is in the vector */
    double count_factor;    /* what it is to be multiplied by there */
    uint32_t active_count;  /* else here: in, and out */
    size_t vector_bytes;    /* of the target */
    uint64_t epoch;         /* that takes a contribution, or has taken it */
    bool active;            /* it has taken something */
    _Atomic uint64_t steps; /* starts so far */
    _Atomic uint64_t generation; /* recoveries so far */
    uint64_t claimed; /* last step that the application has waited for */
    pthread_mutex_t limit_lock;
    bool is_limited;  /* the schedule is there, and its epochs may begin */
    uint64_t arrived; /* steps that this rank has started; on streams, those
                         that the stream has got to */
    uint64_t seen;    /* last step whose result was returned */
    baton__contribution_t contribution;
    baton__partial_set_t set;

    struct baton__partial_device *device; /* NULL: vectors are on the host */

    baton__begin_t begin; /* the driver's */
};

/* Fills in the defaults. BATON_ERR_INVALID names the option that is wrong. */
baton_status_t
baton__partial_resolve_options(const baton_partial_options_t *given,
                               const baton_group_t *group,
                               baton_partial_options_t *out);

/* States what must be the same on all ranks. */
void baton__partial_agree(const baton_partial_t *partial,
                          baton_schedule_t *schedule);

/* options->count, from its tensors' where it has some. */
bool baton__partial_resolve_tensors(baton_partial_options_t *options,
                                    baton__wrong_t *wrong);

/* BATON_ERR_NO_MEMORY. fini: also where init has failed, or was not called. */
baton_status_t baton__partial_set_init(baton__partial_set_t *self,
                                       const baton_partial_options_t *options);
void baton__partial_set_fini(baton__partial_set_t *self);

/* The step is about to be started: what was contributed to its tensors is
   pending, as one contribution. */
void baton__partial_set_close(baton_partial_t *partial);

/* Adds to `data` what was contributed to the next step. Returns whether there
   is anything. */
bool baton__partial_set_pending(baton_partial_t *partial, void *data);

/* Before a recovery: what was lent for the next step is copied. */
void baton__partial_set_end_loan(baton_partial_t *partial);

/* The inner collective: options->inner, or the all-reduce that NULL stands for,
   by the bytes of the piece, where the ranks are, and how many of them are
   expected to be active. Options are resolved. */
baton_allreduce_fn
baton__partial_choose_inner(const baton_partial_options_t *options,
                            size_t bytes, const baton_schedule_t *schedule);

/* Whether so many elements are more than BATON_PARTIAL_TREE_BYTES. */
static inline bool
baton__partial_is_long(const baton_partial_options_t *options, size_t count)
{
    return count > BATON_PARTIAL_TREE_BYTES /
                       baton_op_element_bytes(options->op, options->dtype);
}

/* False, with this thread's error, where the partial is NULL or destroyed. */
bool baton__partial_is_alive(const baton_partial_t *partial,
                             const char *function);

/* Steps started so far. Any thread. count: one more, if it was started. */
uint64_t baton__partial_steps(const baton_partial_t *partial);
void baton__partial_count_step(baton_partial_t *partial, baton_status_t status);

/* BATON_ERR_STATE: there is no step whose result may be waited for. */
baton_status_t baton__partial_check_step(const baton_partial_t *partial);

/* Peers may begin more epochs here: `count`, which is partial->arrived or seen,
   has grown to the step; or is 0 again, as the other one must be then. Any
   thread. */
void baton__partial_limit(baton_partial_t *partial, uint64_t *count,
                          uint64_t step);

/* From now on the schedule has a limit. `begin` is false before it is destroyed
   or replaced: on a device what is still in streams sees results after that. */
void baton__partial_begin_limit(baton_partial_t *partial, bool begin);

/* ---- partial.c: an epoch ------------------------------------------------ */

/* What an epoch of one kind does. */
typedef struct baton__epoch {
    /* A call after the contribution was taken: partial->epoch and `active` are
       the epoch's. */
    baton_call_fn prepare;
    /* Adds the nodes that work, which follow that. */
    void (*add)(baton_partial_t *partial);
    baton_call_fn publish; /* a call after those */
} baton__epoch_t;

/* Adds the nodes of an epoch to partial->schedule, by the modes of its options;
   the calls' argument is the partial. BATON_ERR_NO_MEMORY. */
baton_status_t baton__partial_build(baton_partial_t *partial,
                                    const baton__epoch_t *epoch);

/* Starts a step's epoch, and counts the step. */
baton_status_t baton__partial_start_step(baton_partial_t *partial);

/* ---- survive.c: ranks are lost ------------------------------------------ */

/* A kind of partial that goes on. All are called while nothing of the schedules
   is in progress. */
typedef struct baton__survivor {
    /* Builds and commits partial->schedule, which was created; and sets
       vector_bytes, which stay the same. */
    baton_status_t (*commit)(baton_partial_t *partial);
    /* States what must be the same on all ranks. NULL: that was compared. */
    void (*agree)(const baton_partial_t *partial, baton_schedule_t *schedule);
    /* Memory of vector_bytes with the newest result, or, where `has` is false,
       with zeros. get: the result of the epoch, which this rank has begun and
       not completed, is there now: completes it. A rank
       that has imported a state of fewer steps has not begun it. */
    char *(*give)(baton_partial_t *partial, bool has);
    void (*get)(baton_partial_t *partial, uint64_t epoch, uint32_t active);
} baton__survivor_t;

/* Makes partial->survival, also where it fails, and in a group of its own the
   schedule. destroy: of both. */
baton_status_t baton__survival_create(baton_partial_t *partial,
                                      baton_group_t *group,
                                      const baton__survivor_t *kind);
baton_status_t baton__survival_destroy(baton_partial_t *partial);

/* As the public functions; wait is test where `done_out` is not NULL. */
baton_status_t baton__survival_start(baton_partial_t *partial);
baton_status_t baton__survival_wait(baton_partial_t *partial, int timeout_ms,
                                    bool *done_out);

/* Between the two it does not go on after a loss. BATON_ERR_BUSY: it does; and
   the error with which it has ended. NULL never does. */
baton_status_t baton__survival_enter(baton_partial_t *partial,
                                     const char *doing);
void baton__survival_leave(baton_partial_t *partial);

/* ---- device.c ---------------------------------------------------------- */

/* Requests to copy a vector in device memory, or to add two. */
typedef struct baton__mover {
    baton_partial_t *partial;
    baton__requests_t requests;
    /* The driver's, of the one that is served: target = left (op) right; where
       left is NULL it is copied, and where right is, nothing is done. */
    void *target, *left, *right;
} baton__mover_t;

typedef struct baton__partial_device {
    baton_partial_t *partial;
    baton_engine_t *engine;
    const baton_device_port_t *port;
    void *device;
    baton_group_t *own_group; /* a group of this rank */
    baton__mover_t additions, results;
    bool any; /* whether anything was pending when it was copied last */
} baton__partial_device_t;

/* Makes partial->device, also where it fails, and fills the slot of null
   contributions; the contribution has been made. destroy: behind the
   destruction of the collective's schedule; NULL is allowed. BATON_ERR_TIMEOUT:
   slots are still in use. */
baton_status_t baton__partial_device_create(baton_partial_t *partial,
                                            baton_group_t *group);
baton_status_t baton__partial_device_destroy(baton__partial_device_t *self);

/* On the driver: false while the device adds to what is pending, or copies it,
   which takes no longer than that. */
bool baton__partial_device_may_take(const baton__partial_device_t *self);

/* As the public functions, which block on the device. */
baton_status_t baton__partial_device_contribute(baton_partial_t *partial,
                                                const void *data);
baton_status_t baton__partial_device_pending(baton_partial_t *partial,
                                             void *data, bool *any_out);

/* The error of the contribution that was added last, if the device failed. */
baton_status_t baton__partial_device_check(baton_partial_t *partial);
