/* What a partial collective keeps: the pending contribution, what the running
   epoch has taken, its result, and the last results. Nothing is copied.
   Contributions are two vectors, which change places:

       pending --take--> taken        a failed epoch's changes back in recover

   A vector has parts, a tensor each. One that is lent stands for its place in
   the vector, and moves with that, until the application has waited for its
   step. If that ends first, or a later epoch takes it, it is copied there.

   Results are slots of a pool, which move by changing owners:

       free --take--> result --publish--> history --> free
                                             |         ^
                                             +-pinned--+

   Two locks. `contribute_lock` is held by the application while it adds to the
   pending contribution, for as long as that takes; an epoch only tries it, and
   tries again where what is pending may not get older.
   `history_lock` is held for a few assignments on either side. Order: first the
   one, then the other.

   In device memory the host follows no address, and adds nothing: schedules of
   the owner do (device.c), from begin_add to end_add into a vector of its own.
   While one does, or copies what is pending, an epoch would take nothing,
   so the owner has it wait. What a failed epoch gives back can't
   be added to what is pending by then, so it is carried over, and the next
   epoch takes nothing else.

   A partial sparse all-reduce (coll/sparse/partial.c) has no identity, since
   its epochs do without a contribution, and its results are lists, whose memory
   it has itself. Its epochs wait rather than take nothing. */
#pragma once

#include <baton/baton.h>
#include <pthread.h>
#include <stdatomic.h>

/* What an epoch took from this rank. Steps are numbered from 1. */
typedef struct baton__steps {
    uint64_t first; /* 0: nothing */
    uint64_t last;
    uint64_t waiting; /* the oldest step that it did not take */
    bool in_parts;    /* an earlier epoch took a part of first's */
} baton__steps_t;

/* A result in the history. */
typedef struct baton__outcome {
    uint64_t epoch; /* or 0 */
    uint32_t slot;
    uint32_t active;
    uint32_t living;
    baton__steps_t taken;
} baton__outcome_t;

typedef struct baton__vector {
    char *memory;
    const char **lent; /* each part's place instead, or NULL */
} baton__vector_t;

typedef struct baton__contribution {
    /* The owner's, before init. */
    size_t count;
    size_t parts;         /* of vectors; 0: they are whole */
    const size_t *begins; /* elements before each part, and in all of them */
    size_t slot_bytes;    /* `count` elements, and what the owner adds */
    baton_dtype_t dtype;
    const baton_op_t *op;
    uint32_t history;       /* W */
    uint32_t max_staleness; /* S, or what KEEP_ALL bounds it by; 0: unbounded */
    baton_engine_t *engine; /* with the device of the slots; NULL: host memory
                             */
    bool sparse;
    uint32_t living; /* ranks that take part */

    size_t element_bytes;
    char *memory; /* of all vectors and results */
    const char **loans;
    size_t whole[2]; /* `begins` of a single part */

    pthread_mutex_t contribute_lock;
    baton__vector_t pending;
    _Atomic bool lends; /* something was lent once */
    uint64_t first_step, last_step;
    uint64_t newest_taken; /* the newest step that was taken from, or 0 */
    /* For threads without that lock: first_step, and the first step of what the
       running epoch has taken. */
    _Atomic uint64_t oldest;
    _Atomic uint64_t oldest_taken;
    /* In device memory; under contribute_lock. */
    bool busy;        /* what is pending is being added to, or copied */
    bool is_carrying; /* `carried` is of before what is pending */
    char *carried;
    char *sum;              /* that is added into */
    bool stages;            /* the owner's, before init */
    baton__vector_t staged; /* a contribution that the owner still makes */

    pthread_mutex_t history_lock;
    char *results; /* slots */
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t pinned; /* slot that the application reads, or NO_SLOT */
    uint32_t lent;   /* slot that is copied to the application, or NO_SLOT */
    uint32_t result; /* slot that the epoch works on, or NO_SLOT */
    baton__outcome_t *outcomes; /* the epoch's is at epoch % W */
    uint64_t newest;            /* epoch */

    /* The running epoch's; the engine's alone. */
    char *nothing;         /* the identity: a null contribution */
    baton__vector_t taken; /* what it took */
    char *source;          /* the memory of one of them */
    uint64_t taken_for;    /* the epoch; 0: none since the last recovery */
    baton__steps_t steps;
} baton__contribution_t;

/* Slots for results beyond the history. */
enum {
    BATON__CONTRIBUTION_RESULTS = 2,
    BATON__CONTRIBUTION_DEVICE_RESULTS = 3
};

/* Allocates vectors and slots. `nothing` is filled on the host alone.
   BATON_ERR_NO_MEMORY, and baton_device_alloc's. */
baton_status_t baton__contribution_init(baton__contribution_t *self);
void baton__contribution_fini(baton__contribution_t *self);

/* Adds `data`, or `staged`, the whole of which the owner has written or was
   lent. What is `lent` is used where it is if that can be, until the end of the
   loan: wait has returned for the step, which has `failed` or not, or a
   recovery begins. Not where the owner adds to slots. */
void baton__contribution_add(baton__contribution_t *self, const void *data,
                             uint64_t step, bool lent);
void baton__contribution_add_staged(baton__contribution_t *self, uint64_t step);
void baton__contribution_end_loan(baton__contribution_t *self, bool failed);

/* The same, once the owner has added to `pending`, or has written it where
   first_step is 0. The contribute lock is held. */
void baton__contribution_added(baton__contribution_t *self, uint64_t step);

static inline size_t
baton__contribution_bytes(const baton__contribution_t *self)
{
    return self->count * self->element_bytes;
}

/* A part of a vector. */
static inline const char *
baton__contribution_part(const baton__contribution_t *self,
                         const baton__vector_t *vector, size_t part)
{
    return vector->lent != NULL && vector->lent[part] != NULL
               ? vector->lent[part]
               : vector->memory + self->begins[part] * self->element_bytes;
}

/* A part of what the epoch has taken, or of `nothing`. */
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

/* In device memory: from begin to the end of the use the owner copies the sum
   of these, of which either may be NULL; or it adds a contribution of `step` to
   *pending_out, into `sum`. end_use is also of an addition that failed: what
   was pending still is. */
void baton__contribution_begin_use(baton__contribution_t *self,
                                   char **carried_out, char **pending_out);
void baton__contribution_end_add(baton__contribution_t *self, uint64_t step);
void baton__contribution_end_use(baton__contribution_t *self);

/* In device memory: lends the result of `epoch`, or the newest if that is of a
   later one, until the next one is lent; NULL when it is not there. */
char *baton__contribution_lend(baton__contribution_t *self, uint64_t epoch,
                               bool newest);

/* Copies the pending contribution; whether there is any. */
bool baton__contribution_pending(baton__contribution_t *self, void *data);

/* Copies the parts of `staged` that are lent; the owner's lock is held. */
void baton__contribution_end_staged_loan(baton__contribution_t *self);

typedef enum baton__take {
    BATON__TAKE_NOTHING,
    BATON__TAKE_ALL,
    BATON__TAKE_LATER /* not yet: try again; nothing has happened */
} baton__take_t;

/* An epoch begins to work: `source` is its own until the next take or recover,
   the whole pending contribution, or the identity when there is none or the
   application is adding to it; and `result` until publish, which it fills.
   LATER: the application is adding to what would be too old for the next epoch.
   What follows the elements of `source` is the caller's; of the identity it is
   as the caller has left it. */
baton__take_t baton__contribution_take(baton__contribution_t *self,
                                       uint64_t epoch);

/* `result` is a slot, if it was none. */
void baton__contribution_begin_result(baton__contribution_t *self);

/* Whether an epoch has taken and not published, and may be doing so, or has
   failed. With the contribute lock held none begins to. */
bool baton__contribution_is_working(baton__contribution_t *self);

/* Whether it would take nothing because the device is adding, or copies. */
bool baton__contribution_is_busy(baton__contribution_t *self);

/* The result is the epoch's now. */
void baton__contribution_publish(baton__contribution_t *self, uint64_t epoch,
                                 uint32_t active);

/* The epochs so far have failed after `epoch`, the last that any rank has
   completed: what a later one has taken is pending again, what that one has
   taken is in a result of another rank. `next` is the number of the next step
   and epoch, from which on results are gone; 0: numbers go on, and this rank
   has the result of `epoch`. */
void baton__contribution_recover(baton__contribution_t *self, uint64_t epoch,
                                 uint64_t next);

/* The newest epoch that was published, and how many were active in it, where
   that is asked for and its result is there. */
uint64_t baton__contribution_newest(baton__contribution_t *self,
                                    uint32_t *active_out);

/* The slot of the result that is made, with a copy of the newest one, or with
   zeros, where `has` is false. */
char *baton__contribution_hand_over(baton__contribution_t *self, bool has);

/* Pins the result of `epoch`, or the newest for 0, until the next call; false
   when it is not there. */
bool baton__contribution_pin(baton__contribution_t *self, uint64_t epoch,
                             uint64_t step, baton_partial_result_t *out);
