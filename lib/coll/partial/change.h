/* Changes of mode: each rank's record, with the mode that it asks for, is
   reduced over all ranks beside the inner collective. So all of them learn of a
   change, and of an epoch's figures, in the same epoch. */
#ifndef BATON_COLL_PARTIAL_CHANGE_H
#define BATON_COLL_PARTIAL_CHANGE_H

#include <baton/partial.h>
#include <pthread.h>

typedef enum baton__wish {
    BATON__WISH_NONE,
    BATON__WISH_POLICY, /* the lowest such rank's choice is taken, unless a
                           user asks for another */
    BATON__WISH_USER    /* must be the same on all ranks */
} baton__wish_t;

typedef struct baton__request {
    baton__wish_t wish;
    int rank;
    baton_partial_choice_t choice;
} baton__request_t;

typedef struct baton__control {
    uint32_t active;
    uint32_t staleness;      /* largest of any rank's contribution */
    baton__request_t first;  /* the one that takes effect */
    baton__request_t second; /* a user's request that contradicts it */
} baton__control_t;

/* Reduces baton__control_t, one of which is one element. */
extern const baton_op_t baton__control_op;

enum { BATON__CHANGES = 8 };

/* The k-th calls of set_mode on all ranks ask for one and the same change. */
typedef struct baton__change {
    pthread_mutex_t lock;
    uint32_t asked;   /* changes that this rank's user has asked for */
    uint32_t applied; /* those that have taken effect */
    baton_partial_choice_t wanted[BATON__CHANGES]; /* by number of the change */
    baton__request_t done[BATON__CHANGES];
    bool wishes; /* this rank's policy asks for `wish` */
    baton_partial_choice_t wish;
    baton_partial_observation_t newest;
} baton__change_t;

void baton__change_init(baton__change_t *change);
void baton__change_fini(baton__change_t *change);

/* Restores the state after init. */
void baton__change_reset(baton__change_t *change);

/* The request that this rank's record carries in the next epoch. */
baton__request_t baton__change_request(baton__change_t *change, int rank);

/* At the end of an epoch: stores the mode of the next one in `choice`. Where
   ranks contradict each other it fails the call by baton_call_fail. */
baton_status_t baton__change_apply(baton__change_t *change, int rank,
                                   const baton__control_t *control,
                                   baton_call_t *call,
                                   baton_partial_choice_t *choice);

/* Asks for a mode, which the caller has checked. */
baton_status_t baton__change_ask(baton__change_t *change, const char *name,
                                 int rank, baton_partial_choice_t choice);

#endif
