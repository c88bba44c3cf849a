/* How ranks agree on the next mode, and what an epoch tells all of them: a
   record of each rank, reduced over all ranks beside the inner collective. */
#ifndef BATON_COLL_PARTIAL_CHANGE_H
#define BATON_COLL_PARTIAL_CHANGE_H

#include <baton/partial.h>
#include <pthread.h>

typedef enum baton__wish {
    BATON__WISH_NONE,
    BATON__WISH_POLICY, /* gives way: the lowest rank's counts */
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
    baton__request_t first;  /* the one that counts */
    baton__request_t second; /* a user's that contradicts it */
} baton__control_t;

/* Reduces them; as an operation of one element of that size. */
extern const baton_op_t baton__control_op;

enum { BATON__CHANGES = 8 };

/* The k-th call of set_mode on a rank and on another are one change. */
typedef struct baton__change {
    pthread_mutex_t lock;
    uint32_t asked;   /* by this rank's user, */
    uint32_t applied; /* and by all of them, so far */
    baton_partial_choice_t wanted[BATON__CHANGES]; /* by number */
    baton__request_t done[BATON__CHANGES];
    bool wishes; /* this rank's policy does */
    baton_partial_choice_t wish;
    baton_partial_observation_t newest;
} baton__change_t;

void baton__change_init(baton__change_t *change);
void baton__change_fini(baton__change_t *change);

/* All is as at first. */
void baton__change_reset(baton__change_t *change);

/* What this rank puts into an epoch. */
baton__request_t baton__change_request(baton__change_t *change, int rank);

/* The epoch has ended: whether the mode changes, and to what. An error, said by
   baton_call_fail, where ranks contradict each other. */
baton_status_t baton__change_apply(baton__change_t *change, int rank,
                                   const baton__control_t *control,
                                   baton_call_t *call,
                                   baton_partial_choice_t *choice);

/* Asks for a mode, which is valid. */
baton_status_t baton__change_ask(baton__change_t *change, const char *name,
                                 int rank, baton_partial_choice_t choice);

#endif
