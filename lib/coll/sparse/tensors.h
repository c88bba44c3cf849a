/* Sets of tensors, inside: tensors.c has their life and steps,
   tensors_plan.c what becomes of each tensor, tensors_options.c defaults,
   checks and the comparison across ranks. */
#pragma once

#include "coll/sparse/sparse.h"

#include <baton/costs.h>
#include <baton/tensors.h>

/* A tensor of a set. */
typedef struct baton__member {
    baton_tensor_t tensor; /* with a name of its own */
    baton_tensor_plan_t plan;
    size_t unit;
    size_t offset; /* in the unit, elements */
    bool ready;    /* in this step, which nobody has waited for */
    bool shown;    /* partial: its part of the unit's result was returned */
} baton__member_t;

/* An all-reduce: of one tensor, or of all that are packed; partial: of all. */
typedef struct baton__unit {
    baton_sparse_t *sparse;
    size_t count;   /* elements */
    size_t members; /* tensors */
    size_t ready;   /* of these, in this step */
    const char *gradient;
    char *pack;     /* where that is a copy; or NULL */
    bool started;   /* with the gradients that came last */
    double density; /* in force; 0: of the options */
    /* Partial: the last result, while `has_result`, and its indices in their
       tensors. */
    baton_sparse_result_t result;
    bool has_result;
    uint32_t *indices;
} baton__unit_t;

struct baton_tensors {
    baton_group_t *group;
    char *name;
    baton_tensors_options_t options; /* defaults filled in */
    double *densities;               /* the options' */
    int ranks;
    bool payload;
    size_t element_bytes;
    baton_costs_t costs;
    baton_link_cost_t link; /* of the costs, that counts here */
    baton__member_t *members;
    size_t count;
    baton__unit_t *units;
    size_t unit_count;
    size_t ready_units; /* with clipping: whose gradients are all ready */

    baton_schedule_t *comparison;
    baton__wrong_t wrong; /* with this rank's options */
    bool agreed, connected;
};

/* Fills in defaults, checks options and tensors; what is wrong goes to
   set->wrong. Options and tensors are copied before. */
void baton__tensors_resolve(baton_tensors_t *set);

/* States what must be the same of a set; that, and begins the comparison. */
void baton__tensors_state(const void *set, baton_schedule_t *schedule);
baton_status_t baton__tensors_compare(baton_tensors_t *set);

/* The options of an all-reduce of the set, but for those of its tensors. */
baton_sparse_options_t baton__tensors_common(const baton_tensors_t *set);

/* Decides about all tensors, and divides them into units. */
void baton__tensors_decide(baton_tensors_t *set);
