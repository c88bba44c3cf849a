/* The data of a partial collective: the pending contribution, the one that the
   running epoch has taken, its result, and the last results. Nothing is copied.
   Contributions are two vectors, which change places:

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

   Two locks. The application holds `contribute_lock` while it adds to the
   pending contribution, for as long as that takes. An epoch only tries this
   lock, and tries again if the pending contribution must not get older. Both
   sides hold `history_lock` for a few assignments. Order: contribute_lock, then
   history_lock.

   In device memory the host reads and adds nothing: schedules of the owner do
   that (device.c), between begin_use and end_add or end_use, and add into a
   vector of its own, `sum`. While such a schedule adds, or copies the pending
   contribution, an epoch would take nothing, so the owner makes the epoch wait.
   The contribution of a failed epoch can't be added to one that is pending by
   then. So it is carried over, and the next epoch takes nothing else.

   A partial sparse all-reduce (coll/sparse/backends/partial.c) has no identity,
   since its epochs can do without a contribution. Its results are lists, in
   memory of its own. Its epochs wait for the application rather than take
   nothing. */
#pragma once

#include <baton/baton.h>
#include <pthread.h>
#include <stdatomic.h>

/* What an epoch took from this rank. Steps are numbered from 1. */
typedef struct baton__steps {
    uint64_t first; /* 0: it took nothing */
    uint64_t last;
    uint64_t waiting; /* if it took nothing: the oldest pending one */
    bool in_parts;    /* an earlier epoch took a part of step `first` */
} baton__steps_t;

/* A result in the history. */
typedef struct baton__outcome {
    uint64_t epoch; /* 0: there is none */
    uint32_t slot;
    uint32_t active;
    uint32_t living;
    baton__steps_t taken;
} baton__outcome_t;

typedef struct baton__vector {
    char *memory;
    const char **lent; /* each part's lent address, or NULL */
} baton__vector_t;

typedef struct baton__contribution {
    /* Set by the owner before init. */
    size_t count;
    size_t parts;         /* of each vector; 0: vectors are whole */
    const size_t *begins; /* elements before each part; and their sum */
    size_t slot_bytes;    /* of `count` elements, and of what the owner adds */
    baton_dtype_t dtype;
    const baton_op_t *op;
    uint32_t history; /* W: results that are kept */
    /* S, or the bound that KEEP_ALL implies; 0: none. */
    uint32_t max_staleness;
    /* Its device has the slots. NULL: slots are in main memory. */
    baton_engine_t *engine;
    bool sparse;
    uint32_t living; /* ranks that take part */

    size_t element_bytes;
    char *memory;       /* all vectors and results */
    const char **loans; /* the `lent` of all vectors */
    size_t whole[2];    /* `begins` of a single part */

    pthread_mutex_t contribute_lock;
    baton__vector_t pending;
    _Atomic bool lends;             /* something was lent at least once */
    uint64_t first_step, last_step; /* of `pending`; first_step 0: nothing */
    uint64_t newest_taken;          /* last step that was taken, or 0 */
    /* For threads without contribute_lock: first_step, or 1 while something is
       carried over. */
    _Atomic uint64_t oldest;
    /* For the same threads: the first step that the running epoch took. */
    _Atomic uint64_t oldest_taken;
    /* Only in device memory; contribute_lock guards them. */
    bool busy;        /* `pending` is being added to, or copied */
    bool is_carrying; /* `carried` is in use, and older than `pending` */
    char *carried;
    char *sum; /* additions go there */
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
    baton__outcome_t *outcomes; /* of epoch e at e % W */
    uint64_t newest;            /* the newest published epoch */

    /* Of the running epoch; only the driver uses these. */
    char *nothing;         /* the identity, as a null contribution */
    baton__vector_t taken; /* what the epoch took */
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
   BATON_ERR_NO_MEMORY, and baton_device_alloc's. */
baton_status_t baton__contribution_init(baton__contribution_t *self);
void baton__contribution_fini(baton__contribution_t *self);

/* Adds `data` to the pending contribution. lent: if nothing is pending, `data`
   is used where it lies until the loan ends: when wait has returned for the
   step, or a recovery begins. Vectors can't be lent if the owner adds to slots.
 */
void baton__contribution_add(baton__contribution_t *self, const void *data,
                             uint64_t step, bool lent);
/* Adds `staged`, all of whose parts the owner has written, or lent. */
void baton__contribution_add_staged(baton__contribution_t *self, uint64_t step);
/* Wait has returned for the step; failed: with an error. Copies lent parts that
   are still needed. */
void baton__contribution_end_loan(baton__contribution_t *self, bool failed);

/* Notes a contribution of `step` that the owner has added to `pending` itself,
   or has written there if first_step is 0. contribute_lock is held. */
void baton__contribution_added(baton__contribution_t *self, uint64_t step);

static inline size_t
baton__contribution_bytes(const baton__contribution_t *self)
{
    return self->count * self->element_bytes;
}

/* The address of a part of a vector. */
static inline const char *
baton__contribution_part(const baton__contribution_t *self,
                         const baton__vector_t *vector, size_t part)
{
    return vector->lent != NULL && vector->lent[part] != NULL
               ? vector->lent[part]
               : vector->memory + self->begins[part] * self->element_bytes;
}

/* The address of a part of what the epoch has taken, or of `nothing`. */
static inline const char *
baton__contribution_source(const baton__contribution_t *self, size_t part)
{
    const baton__vector_t nothing = {self->nothing, NULL};
    return baton__contribution_part(
        self, self->steps.first != 0 ? &self->taken : &nothing, part);
}

/* The address of a result's slot. */
static inline char *
baton__contribution_result(const baton__contribution_t *self, uint32_t slot)
{
    return self->results + (size_t)slot * self->slot_bytes;
}

/* In device memory, until end_add or end_use: the owner copies the sum of these
   two, either of which may be NULL; or adds a contribution to *pending_out,
   with `sum` as the target. */
void baton__contribution_begin_use(baton__contribution_t *self,
                                   char **carried_out, char **pending_out);
/* `sum` has a contribution of `step` now, and becomes `pending`. */
void baton__contribution_end_add(baton__contribution_t *self, uint64_t step);
/* After a copy, or an addition that failed: `pending` is unchanged. */
void baton__contribution_end_use(baton__contribution_t *self);

/* In device memory: lends the result of `epoch`, or the newest one if `newest`
   and it is later, until the next one is lent. NULL: the result is not there.
 */
char *baton__contribution_lend(baton__contribution_t *self, uint64_t epoch,
                               bool newest);

/* Copies the pending contribution, or the identity if there is none. Returns
   whether there is one. */
bool baton__contribution_pending(baton__contribution_t *self, void *data);

/* Copies the lent parts of `staged` to their places. The owner's lock is held.
 */
void baton__contribution_end_staged_loan(baton__contribution_t *self);

typedef enum baton__take {
    BATON__TAKE_NOTHING,
    BATON__TAKE_ALL,
    BATON__TAKE_LATER /* try again: nothing was changed */
} baton__take_t;

/* An epoch begins to work. Until the next take or recover, `source` is the
   epoch's own: the whole pending contribution; or the identity, if nothing is
   pending or the application is adding to it. `result` is the epoch's own until
   publish, and the epoch fills it. LATER: the application is adding to a
   contribution that would be too old for the next epoch, or is sparse. The
   bytes after the elements of `source` are the caller's; in `nothing` they keep
   what the caller has written. */
baton__take_t baton__contribution_take(baton__contribution_t *self,
                                       uint64_t epoch);

/* Takes a free slot as `result`, unless there is one. */
void baton__contribution_begin_result(baton__contribution_t *self);

/* True if an epoch has taken and not published: it is working, or has failed.
   While contribute_lock is held no epoch begins to work. */
bool baton__contribution_is_working(baton__contribution_t *self);

/* True if an epoch would take nothing because the device is adding to the
   pending contribution, or copies it. */
bool baton__contribution_is_busy(baton__contribution_t *self);

/* Makes `result` the result of the epoch. */
void baton__contribution_publish(baton__contribution_t *self, uint64_t epoch,
                                 uint32_t active);

/* Epochs after `epoch`, the last one that any rank has completed, have failed.
   A later epoch's contribution is pending again; that of `epoch` is in its
   result, perhaps only on another rank. next: the number of the next step
   and epoch; results from that number on are dropped. 0: numbers go on, and
   this rank has the result of `epoch`. */
void baton__contribution_recover(baton__contribution_t *self, uint64_t epoch,
                                 uint64_t next);

/* Returns the newest published epoch. Sets *active_out, unless it is NULL, to
   the number of active ranks if the result is still there. */
uint64_t baton__contribution_newest(baton__contribution_t *self,
                                    uint32_t *active_out);

/* Returns the slot of `result`, which gets a copy of the newest result; or
   zeros if `has` is false. */
char *baton__contribution_hand_over(baton__contribution_t *self, bool has);

/* Pins the result of `epoch`, or the newest for 0, until the next call, and
   describes it for `step`. False: the result is not there. */
bool baton__contribution_pin(baton__contribution_t *self, uint64_t epoch,
                             uint64_t step, baton_partial_result_t *out);
