/* What a partial collective keeps: the pending contribution, what the running
   epoch has taken, its result, and the last results. All of them are slots of
   one pool, and move by changing owners, never by copying:

       free --> pending --take--> taken --publish, or recover-> free
         |         ^                |
         |         +--- recover ----+     a failed epoch's goes back
         |
         +---take---> result --publish--> history --> free
                                             |         ^
                                             +-pinned--+

   Two locks. `contribute_lock` is held by the application while it adds to the
   pending contribution, for as long as that takes; an epoch only tries it.
   `history_lock` is held for a few assignments on either side. Order: first the
   one, then the other. */
#ifndef BATON_COLL_CONTRIBUTION_H
#define BATON_COLL_CONTRIBUTION_H

#include <baton/partial.h>
#include <pthread.h>
#include <stdatomic.h>

/* What an epoch took from this rank. Steps are numbered from 1.
 */
typedef struct baton__taken {
    uint64_t first_step;
    uint64_t last_step;
    uint64_t waiting; /* the oldest step that it did not take */
    bool in_parts;    /* an earlier epoch took a part of first_step's */
} baton__taken_t;

/* A result in the history. */
typedef struct baton__outcome {
    uint64_t epoch; /* or 0 */
    uint32_t slot;
    uint32_t active;
    baton__taken_t taken;
} baton__outcome_t;

typedef struct baton__contribution {
    size_t count;
    size_t slot_bytes; /* `count` elements, and what the owner adds */
    size_t element_bytes;
    baton_dtype_t dtype;
    const baton_op_t *op;
    uint32_t history; /* W */

    pthread_mutex_t contribute_lock;
    uint32_t pending; /* slot */
    uint64_t first_step, last_step;
    uint64_t newest_taken; /* the newest step that was taken from, or 0 */
    /* For threads without that lock: first_step, and the first step of what the
       running epoch has taken. */
    _Atomic uint64_t oldest;
    _Atomic uint64_t oldest_taken;

    pthread_mutex_t history_lock;
    char *memory;
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t pinned; /* slot that the application reads, or NO_SLOT */
    baton__outcome_t *outcomes; /* the epoch's is at epoch % W */
    uint64_t newest;            /* epoch */

    /* The running epoch's; the engine's alone. */
    uint32_t nothing;   /* slot with the identity: a null contribution */
    uint32_t source;    /* slot that was taken, or `nothing` */
    uint32_t result;    /* slot that the epoch works on, or NO_SLOT */
    uint64_t taken_for; /* the epoch */
    baton__taken_t taken;
} baton__contribution_t;

/* Slots beyond the history. */
enum { BATON__CONTRIBUTION_SLOTS = 5 };

/* Allocates slots of `count` elements; `extra_bytes` behind them are the
   caller's. BATON_ERR_NO_MEMORY. */
baton_status_t baton__contribution_init(baton__contribution_t *self,
                                        const baton_partial_options_t *options,
                                        size_t count, size_t extra_bytes);
void baton__contribution_fini(baton__contribution_t *self);

void baton__contribution_add(baton__contribution_t *self, const void *data,
                             uint64_t step);

/* Copies the pending contribution; whether there is any. */
bool baton__contribution_pending(baton__contribution_t *self, void *data);

/* An epoch begins to work, on vectors that are its own, the result until
   publish, source until the next take or recover: source, the whole pending
   contribution, or the identity when there is none or the application is adding
   to it; and result, which it fills. True: there was a contribution. What
   follows the elements of `source` is the caller's; of the identity it is as
   the caller has left it. */
bool baton__contribution_take(baton__contribution_t *self, uint64_t epoch,
                              char **source_out, char **result_out);

/* The result is the epoch's now. */
void baton__contribution_publish(baton__contribution_t *self, uint64_t epoch,
                                 uint32_t active);

/* The epochs so far have failed after `epoch`, the last that any rank has
   completed, and the next is number 1: what a later one has taken is pending
   again, what that one has taken is in a result of another rank. */
void baton__contribution_recover(baton__contribution_t *self, uint64_t epoch);

/* Pins the result of `epoch`, or the newest for 0, until the next call; false
   when it is not there. */
bool baton__contribution_pin(baton__contribution_t *self, uint64_t epoch,
                             uint64_t step, baton_partial_result_t *out);

#endif
