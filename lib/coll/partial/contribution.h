/* The data of a partial collective, which is called the owner below: the
   pending contribution, the one that the running epoch has taken, the result of
   that epoch, and the last results. None of them is copied. Contributions are
   two vectors, which change places:

       pending --take--> taken        (recover exchanges a failed epoch's again)

   A vector consists of parts, one for each tensor. A part that the application
   has lent is used where it lies, instead of its place in the vector, until the
   application has waited for the part's step. The part is copied to its place
   if that wait returns before an epoch has taken it, or if the epoch of a later
   step takes it.

   Results are slots of a pool. A slot stays where it is, and only its use
   changes:

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
   to one that has become pending meanwhile. So the vector `carried` keeps it,
   and the next epoch takes `carried` alone.

   A partial sparse all-reduce (coll/sparse/backends/partial.c) has no vector
   `nothing`, since an epoch to which this rank contributes nothing does not
   need one. Its results are lists, in memory of its own. Its epochs wait for
   the application rather than take nothing. */
#pragma once

#include <baton/baton.h>
#include <pthread.h>
#include <stdatomic.h>

/* The contributions of this rank that an epoch has taken: those of the steps
   from `first` to `last`. Steps are numbered from 1. */
typedef struct baton__steps {
    uint64_t first; /* 0: the epoch took nothing */
    uint64_t last;
    uint64_t waiting; /* the oldest pending step, if the epoch took nothing */
    /* An earlier epoch has taken a part of the contributions of step
       `first`. */
    bool in_parts;
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
    /* For each part, the address of the application's memory that is used
       instead of the part's place in `memory`, or NULL if the part is not lent.
       If no part is lent, this may be NULL instead of an array. */
    const char **lent;
} baton__vector_t;

typedef struct baton__contribution {
    /* The owner sets the fields from here to `living` before init. */
    size_t count;
    size_t parts; /* the number of parts of each vector; 0 stands for 1 */
    /* For each part, the number of elements before it. One more entry has the
       number of all elements. */
    const size_t *begins;
    /* The bytes of a slot: those of `count` elements, and of data that the
       owner keeps after them. init rounds this number up to whole cache
       lines. */
    size_t slot_bytes;
    baton_dtype_t dtype;
    const baton_op_t *op;
    uint32_t history; /* W, the number of results that are kept */
    /* S, the bound of staleness: the option max_staleness or, if the option is
       0, the bound that KEEP_ALL implies. If this field is 0, there is no
       bound. */
    uint32_t max_staleness;
    /* The engine on whose device the slots are. NULL: they are in main
       memory. */
    baton_engine_t *engine;
    bool sparse;
    uint32_t living; /* the number of ranks that take part */

    size_t element_bytes;
    /* The memory of the vectors and, unless `sparse`, of the results. */
    char *memory;
    const char **loans; /* the memory of the `lent` arrays of all vectors */
    size_t whole[2];    /* the array `begins`, if vectors have one part */

    pthread_mutex_t contribute_lock;
    baton__vector_t pending;
    /* Set to true, for good, when the application lends a part. */
    _Atomic bool lends;
    /* The oldest and the newest step in `pending`. first_step is 0 if nothing
       is pending. */
    uint64_t first_step, last_step;
    uint64_t newest_taken; /* the newest step that an epoch has taken, or 0 */
    /* A copy of first_step, or 1 while a contribution is carried over a
       recovery. Threads read this field without contribute_lock. */
    _Atomic uint64_t oldest;
    /* The first step that the running epoch has taken. Threads read this field
       without contribute_lock. */
    _Atomic uint64_t oldest_taken;
    /* The next four fields are used only if the vectors are in device memory.
       contribute_lock guards them. */
    bool busy; /* the device is adding to `pending`, or copying it */
    /* `carried` holds a contribution, which is older than `pending`. */
    bool is_carrying;
    char *carried;
    /* The vector to which the device writes the sum of `pending` and a
       contribution. */
    char *sum;
    /* True if `staged` has memory of its own. The owner sets this field before
       init. */
    bool stages;
    /* The contributions to the tensors of the next step. */
    baton__vector_t staged;

    pthread_mutex_t history_lock;
    char *results; /* the slots of results */
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t pinned; /* the slot that the application reads, or NO_SLOT */
    /* The slot that is being copied to the application, or NO_SLOT. */
    uint32_t lent;
    uint32_t result; /* the slot that the running epoch fills, or NO_SLOT */
    /* The results that are kept, in an array of `history` elements. The result
       of epoch e is at index e % history. */
    baton__outcome_t *outcomes;
    uint64_t newest; /* the newest epoch with a published result */

    /* The fields from here on are the state of the running epoch. The driver,
       the thread that makes the engine's progress, uses them. After the epoch
       has failed, end_loan and recover use them, too. */
    /* A vector of neutral elements of `op`, which takes the place of a
       contribution if there is none. */
    char *nothing;
    baton__vector_t taken; /* the contribution that the epoch has taken */
    char *source;          /* `nothing`, or the memory of `taken` */
    /* The last epoch that has called take; 0: no epoch has called it since the
       last recovery. */
    uint64_t taken_for;
    baton__steps_t steps;
} baton__contribution_t;

/* The number of slots for results in addition to the W slots of the history.
   One slot holds the result that the application has pinned, and one the result
   that the running epoch fills. In device memory a third slot holds the result
   that is copied to the application. */
enum {
    BATON__CONTRIBUTION_RESULTS = 2,
    BATON__CONTRIBUTION_DEVICE_RESULTS = 3
};

/* Allocates the vectors and the slots for results. Fills `nothing` with
   neutral elements, unless it is in device memory. Returns BATON_ERR_NO_MEMORY,
   or an error of baton_device_alloc, if it fails. */
baton_status_t baton__contribution_init(baton__contribution_t *self);
void baton__contribution_fini(baton__contribution_t *self);

/* Adds `data` to the pending contribution, as a contribution to `step`. If
   `lent`, and if nothing is pending, `data` is not copied: it is used where it
   lies until the loan ends, when wait has returned for the step or a recovery
   begins. If the owner keeps data of its own after the `count` elements of a
   slot, such as the count of active ranks, `lent` must be false: lent memory
   has no room for that data. */
void baton__contribution_add(baton__contribution_t *self, const void *data,
                             uint64_t step, bool lent);
/* Adds `staged` to the pending contribution, as a contribution to `step`. The
   owner has written or lent all parts of `staged`. */
void baton__contribution_add_staged(baton__contribution_t *self, uint64_t step);
/* Ends the loans: copies lent parts that are still needed. Called when wait has
   returned for a step. `failed` is true if wait has returned an error. */
void baton__contribution_end_loan(baton__contribution_t *self, bool failed);

/* Called after the owner has added a contribution of `step` to `pending` itself
   (or has written it there, if first_step is 0). The caller holds
   contribute_lock. */
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

/* Returns the address of a part of the running epoch's source: of the
   contribution that the epoch has taken or, if it has taken nothing, of
   `nothing`. */
static inline const char *
baton__contribution_source(const baton__contribution_t *self, size_t part)
{
    const baton__vector_t nothing = {self->nothing, NULL};
    return baton__contribution_part(
        self, self->steps.first != 0 ? &self->taken : &nothing, part);
}

/* Returns the address of a result, given its slot. */
static inline char *
baton__contribution_result(const baton__contribution_t *self, uint32_t slot)
{
    return self->results + (size_t)slot * self->slot_bytes;
}

/* For vectors in device memory. From this call until end_add or end_use, the
   owner may copy the sum of *carried_out and *pending_out, either of which may
   be NULL. Or it may add a contribution to *pending_out, with `sum` as the
   target. */
void baton__contribution_begin_use(baton__contribution_t *self,
                                   char **carried_out, char **pending_out);
/* Ends a use in which the owner has written the sum of the pending vector and
   of a contribution to `step` to `sum`. Makes `sum` the pending vector. */
void baton__contribution_end_add(baton__contribution_t *self, uint64_t step);
/* Ends a use in which the owner has only copied, or in which its addition has
   failed. `pending` stays the same. */
void baton__contribution_end_use(baton__contribution_t *self);

/* For results in device memory. Returns the address of the result of `epoch`
   or, if `newest` is set and there is a later result, of the newest one. The
   slot of this result is not reused until this function is called again.
   Returns NULL if the result is not in the history. */
char *baton__contribution_lend(baton__contribution_t *self, uint64_t epoch,
                               bool newest);

/* Copies the pending contribution to `data`, and returns true. If nothing is
   pending, fills `data` with neutral elements, and returns false. */
bool baton__contribution_pending(baton__contribution_t *self, void *data);

/* Copies lent parts to their places in the vector. The caller holds
   contribute_lock or, for `staged`, the lock that guards it. */
void baton__contribution_return_loan(const baton__contribution_t *self,
                                     baton__vector_t *vector);

typedef enum baton__take {
    BATON__TAKE_NOTHING,
    BATON__TAKE_ALL,
    BATON__TAKE_LATER /* nothing has changed; call take again */
} baton__take_t;

/* Called when an epoch begins to work. Sets `source` to the contribution that
   was carried over a recovery, if there is one, or else to the whole pending
   contribution. If there is neither, or if the application or the device is
   adding to the contribution, sets `source` to `nothing` instead.

   Returns BATON__TAKE_LATER if the application is adding to the contribution,
   and if `sparse` is set or the contribution would be too old for the next
   epoch.

   The epoch may use `source` until the next take or recover. It fills the slot
   `result`, which belongs to it until publish. The bytes after the elements of
   `source` are for the owner's data; in `nothing` they keep what the owner has
   written. */
baton__take_t baton__contribution_take(baton__contribution_t *self,
                                       uint64_t epoch);

/* Sets `result` to a free slot. Does nothing if `result` is a slot already. */
void baton__contribution_begin_result(baton__contribution_t *self);

/* Returns true if the last epoch that has called take has not published a
   result: it is still working, or it has failed. An epoch can't
   take a contribution while the caller holds contribute_lock. */
bool baton__contribution_is_working(baton__contribution_t *self);

/* Returns true if an epoch would take nothing because the device is adding to
   the pending contribution, or copying it. */
bool baton__contribution_is_busy(baton__contribution_t *self);

/* Puts the slot `result` into the history, as the result of `epoch`, in which
   `active` ranks were active. The oldest result leaves the history. */
void baton__contribution_publish(baton__contribution_t *self, uint64_t epoch,
                                 uint32_t active);

/* Adapts contributions and results to a recovery. `epoch` is the last epoch
   that any rank has completed; all epochs after it have failed. A contribution
   that a later epoch has taken becomes pending again. A contribution that
   `epoch` has taken does not: it is in the result of `epoch`, even if only
   other ranks have this result.

   `next` is the number of the next step and epoch; results from that number on
   are dropped. If `next` is 0, the numbers of steps continue, and this rank
   already has the result of `epoch`, if it needs one. */
void baton__contribution_recover(baton__contribution_t *self, uint64_t epoch,
                                 uint64_t next);

/* Returns the newest epoch with a published result. If active_out is not NULL
   and that result is still in the history, sets *active_out to its number of
   active ranks. */
uint64_t baton__contribution_newest(baton__contribution_t *self,
                                    uint32_t *active_out);

/* Fills `result` with a copy of the newest result, if `has` is true, or with
   zeros. Returns the address of `result`. */
char *baton__contribution_hand_over(baton__contribution_t *self, bool has);

/* Pins the result of `epoch` (0: the newest result): until this function is
   called again, no other result is written to its slot. Describes the result in
   *out, for a caller that waits for `step`. Returns false if the result is not
   in the history. */
bool baton__contribution_pin(baton__contribution_t *self, uint64_t epoch,
                             uint64_t step, baton_partial_result_t *out);
