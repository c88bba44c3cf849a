/* The data of a partial collective: the pending contribution, the one that the
   running epoch has taken, the result of that epoch, and the last results. None
   of them is copied. Contributions are two vectors, which change places:

       pending --take--> taken        (recover exchanges a failed epoch's again)

   A vector consists of parts, one for each tensor. A part that the application
   has lent is used where it lies, instead of its place in the vector, until the
   application has waited for the part's step. The part is copied to its place
   if that wait returns before an epoch has taken it, or if the epoch of a later
   step takes it.

   Results are slots of a pool, which move by changing owners:

       free --take--> result --publish--> history --> free
                                             |         ^
                                             +-pinned--+

   There are two locks. The application holds `contribute_lock` while it adds to
   the pending contribution, for as long as that takes. An epoch only tries this
   lock. If the application holds it, the epoch takes nothing, unless the
   pending contribution must not get older: then the epoch tries again later.
   Both sides hold `history_lock` for a few assignments. A thread that needs
   both locks takes contribute_lock first.

   The host can't read vectors in device memory, or add to them. Schedules of
   the owner do that (device.c), between begin_use and end_add or end_use. They
   write a sum to a vector that is only for this, `sum`. While such a schedule
   adds, or copies the pending contribution, an epoch would take nothing, so the
   owner makes the epoch wait. The contribution of a failed epoch can't be added
   to one that has become pending meanwhile. So it is carried over in `carried`,
   and the next epoch takes that alone.

   A partial sparse all-reduce (coll/sparse/backends/partial.c) has no identity,
   since an epoch to which this rank contributes nothing does not need one. Its
   results are lists, in memory of its own. Its epochs wait for the application
   rather than take nothing. */
#pragma once

#include <baton/baton.h>
#include <pthread.h>
#include <stdatomic.h>

/* The contributions that an epoch took from this rank: those of the steps from
   `first` to `last`. Steps are numbered from 1. */
typedef struct baton__steps {
    uint64_t first; /* 0: the epoch took nothing */
    uint64_t last;
    uint64_t waiting; /* if the epoch took nothing: the oldest pending step */
    bool in_parts;    /* an earlier epoch took a part of step `first` */
} baton__steps_t;

/* A result in the history. */
typedef struct baton__outcome {
    uint64_t epoch; /* 0: there is no result */
    uint32_t slot;
    uint32_t active;
    uint32_t living;
    baton__steps_t taken;
} baton__outcome_t;

typedef struct baton__vector {
    char *memory;
    /* By part: the address at which the application has lent it, or NULL if it
       is not lent. NULL instead of the array: no part is lent. */
    const char **lent;
} baton__vector_t;

typedef struct baton__contribution {
    /* The owner sets the fields down to `living` before init. */
    size_t count;
    size_t parts; /* of each vector; 0 stands for 1 */
    /* By part: the number of elements before it. One more entry has the number
       of all elements. */
    const size_t *begins;
    /* Bytes of a slot: those of `count` elements, and of data that the owner
       keeps after them. init rounds the number up to whole cache lines. */
    size_t slot_bytes;
    baton_dtype_t dtype;
    const baton_op_t *op;
    uint32_t history; /* W: results that are kept */
    /* S, or the bound that KEEP_ALL implies; 0: none. */
    uint32_t max_staleness;
    /* The engine on whose device the slots are. NULL: slots are in main
       memory. */
    baton_engine_t *engine;
    bool sparse;
    uint32_t living; /* ranks that take part */

    size_t element_bytes;
    /* The vectors and, unless `sparse`, the results. */
    char *memory;
    const char **loans; /* the `lent` of all vectors */
    size_t whole[2];    /* `begins` of a single part */

    pthread_mutex_t contribute_lock;
    baton__vector_t pending;
    _Atomic bool lends; /* a part was lent at least once */
    /* The steps in `pending`. first_step is 0 if nothing is pending. */
    uint64_t first_step, last_step;
    uint64_t newest_taken; /* last step that was taken, or 0 */
    /* A copy of first_step, or 1 while a contribution is carried over. Threads
       that do not hold contribute_lock read it. */
    _Atomic uint64_t oldest;
    /* The first step that the running epoch took. The same threads read it. */
    _Atomic uint64_t oldest_taken;
    /* Only in device memory; contribute_lock guards them. */
    bool busy;        /* the device adds to `pending`, or copies it */
    bool is_carrying; /* `carried` is in use, and older than `pending` */
    char *carried;
    char *sum; /* the target of additions to `pending` */
    /* Set by the owner before init: `staged` has memory. */
    bool stages;
    baton__vector_t staged; /* the next step's tensors */

    pthread_mutex_t history_lock;
    char *results; /* the slots */
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t pinned; /* slot that the application reads, or NO_SLOT */
    uint32_t lent;   /* slot that is copied to the application, or NO_SLOT */
    uint32_t result; /* slot that the running epoch fills, or NO_SLOT */
    /* The result of epoch e is at e % W. */
    baton__outcome_t *outcomes;
    uint64_t newest; /* the newest published epoch */

    /* State of the running epoch, used by the driver. Once the epoch has
       failed, end_loan and recover use it, too. */
    char *nothing;         /* the identity, as a null contribution */
    baton__vector_t taken; /* the contribution of the epoch */
    char *source;          /* `nothing`, or the memory of `taken` */
    /* The last epoch that called take; 0: none since the last recovery. */
    uint64_t taken_for;
    baton__steps_t steps;
} baton__contribution_t;

/* Slots for results beyond the history. */
enum {
    BATON__CONTRIBUTION_RESULTS = 2,
    BATON__CONTRIBUTION_DEVICE_RESULTS = 3
};

/* Allocates vectors and slots, and fills `nothing` if it is in main memory.
   Returns BATON_ERR_NO_MEMORY, or an error of baton_device_alloc. */
baton_status_t baton__contribution_init(baton__contribution_t *self);
void baton__contribution_fini(baton__contribution_t *self);

/* Adds `data` to the pending contribution, as a contribution to `step`. If
   `lent`, and if nothing is pending, `data` is not copied: it is used where it
   lies until the loan ends, when wait has returned for the step or a recovery
   begins. `lent` must be false if the owner keeps data after the elements of a
   slot. */
void baton__contribution_add(baton__contribution_t *self, const void *data,
                             uint64_t step, bool lent);
/* Adds `staged` to the pending contribution. The owner has written or lent all
   parts of `staged`. */
void baton__contribution_add_staged(baton__contribution_t *self, uint64_t step);
/* Ends the loans, and copies lent parts that are still needed. Called when wait
   has returned for the step; `failed`: with an error. */
void baton__contribution_end_loan(baton__contribution_t *self, bool failed);

/* Notes a contribution of `step` that the owner has added to `pending` itself,
   or has written there if first_step is 0. contribute_lock is held. */
void baton__contribution_added(baton__contribution_t *self, uint64_t step);

static inline size_t
baton__contribution_bytes(const baton__contribution_t *self)
{
    return self->count * self->element_bytes;
}

/* Returns the address of a part of a vector. */
static inline const char *
baton__contribution_part(const baton__contribution_t *self,
                         const baton__vector_t *vector, size_t part)
{
    return vector->lent != NULL && vector->lent[part] != NULL
               ? vector->lent[part]
               : vector->memory + self->begins[part] * self->element_bytes;
}

/* Returns the address of a part of the contribution that the epoch has taken
   or, if it has taken nothing, of `nothing`. */
static inline const char *
baton__contribution_source(const baton__contribution_t *self, size_t part)
{
    const baton__vector_t nothing = {self->nothing, NULL};
    return baton__contribution_part(
        self, self->steps.first != 0 ? &self->taken : &nothing, part);
}

/* Returns the address of a result's slot. */
static inline char *
baton__contribution_result(const baton__contribution_t *self, uint32_t slot)
{
    return self->results + (size_t)slot * self->slot_bytes;
}

/* Called for vectors in device memory. Until end_add or end_use the owner may
   copy the sum of *carried_out and *pending_out, either of which may be NULL;
   or it may add a contribution to *pending_out, with `sum` as the target. */
void baton__contribution_begin_use(baton__contribution_t *self,
                                   char **carried_out, char **pending_out);
/* Makes `sum` the pending vector, after the owner has written to it the sum of
   the pending vector and a contribution to `step`. */
void baton__contribution_end_add(baton__contribution_t *self, uint64_t step);
/* Called after a copy, or after an addition that has failed. Leaves `pending`
   unchanged. */
void baton__contribution_end_use(baton__contribution_t *self);

/* Lends a result in device memory until the next call: the result of `epoch`
   or, if `newest`, the newest result if that is later. Returns NULL if the
   result is not in the history. */
char *baton__contribution_lend(baton__contribution_t *self, uint64_t epoch,
                               bool newest);

/* Copies the pending contribution, or the identity if there is none. Returns
   true if there is one. */
bool baton__contribution_pending(baton__contribution_t *self, void *data);

/* Copies the lent parts of `staged` to their places. The caller holds the lock
   that guards `staged`. */
void baton__contribution_end_staged_loan(baton__contribution_t *self);

typedef enum baton__take {
    BATON__TAKE_NOTHING,
    BATON__TAKE_ALL,
    BATON__TAKE_LATER /* try again: nothing was changed */
} baton__take_t;

/* Called when an epoch begins to work. Sets `source` to the whole pending
   contribution, or to the one that was carried over a recovery; or to the
   identity, if there is neither or the application is adding to the
   contribution. `source` belongs to the epoch until the next take or recover.
   `result` belongs to it until publish, and the epoch fills it. Returns
   BATON__TAKE_LATER if the application is adding to a contribution that would
   be too old for the next epoch, or that is sparse. The bytes after the
   elements of `source` are the caller's; in `nothing` they keep what the caller
   has written. */
baton__take_t baton__contribution_take(baton__contribution_t *self,
                                       uint64_t epoch);

/* Makes a free slot `result`, unless `result` is a slot already. */
void baton__contribution_begin_result(baton__contribution_t *self);

/* True if the last epoch that has called take has not published: it is working,
   or has failed. While contribute_lock is held, no epoch takes a
   contribution. */
bool baton__contribution_is_working(baton__contribution_t *self);

/* True if an epoch would take nothing because the device is adding to the
   pending contribution, or copies it. */
bool baton__contribution_is_busy(baton__contribution_t *self);

/* Puts `result` into the history, as the result of the epoch. */
void baton__contribution_publish(baton__contribution_t *self, uint64_t epoch,
                                 uint32_t active);

/* Adapts contributions and results to a recovery: all epochs after `epoch`, the
   last one that any rank has completed, have failed. A contribution that a
   later epoch has taken becomes pending again. One that `epoch` has taken does
   not, since it is in the result of `epoch`, even if only other ranks have this
   result. `next` is the number of the next step and epoch; results from that
   number on are dropped. If `next` is 0, numbers go on, and this rank has the
   result of `epoch`, if it still needs one. */
void baton__contribution_recover(baton__contribution_t *self, uint64_t epoch,
                                 uint64_t next);

/* Returns the newest published epoch. Sets *active_out, unless it is NULL, to
   the number of active ranks if the result is still there. */
uint64_t baton__contribution_newest(baton__contribution_t *self,
                                    uint32_t *active_out);

/* Fills `result` with a copy of the newest result, or with zeros if `has` is
   false. Returns the address of `result`. */
char *baton__contribution_hand_over(baton__contribution_t *self, bool has);

/* Pins the result of `epoch`, or the newest one if `epoch` is 0, until the next
   call, and describes it for a caller that waits for `step`. Returns false if
   the result is not in the history. */
bool baton__contribution_pin(baton__contribution_t *self, uint64_t epoch,
                             uint64_t step, baton_partial_result_t *out);
