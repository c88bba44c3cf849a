/* Internals of sets of tensors. tensors.c creates and destroys sets and runs
   their steps, plan.c decides how each tensor is reduced, and options.c has
   defaults, checks and the comparison across ranks. */
#pragma once

#include "coll/sparse/object/object.h"

#include <baton/costs.h>
#include <baton/tensors.h>

/* A tensor of a set. */
typedef struct baton__member {
    baton_tensor_t tensor; /* tensor.name is the set's own copy */
    baton_tensor_plan_t plan;
    size_t unit;
    /* The index of the tensor's first element in the vector of the unit. */
    size_t offset;
    /* True if the tensor's gradient was passed to the set, and no wait for the
       tensor has returned since. */
    bool ready;
    /* With options.partial: true if a wait has returned the tensor's part of
       the unit's result. */
    bool shown;
} baton__member_t;

/* A sparse all-reduce of one tensor, or of all packed tensors. With
   options.partial, it is of all tensors of the set. */
typedef struct baton__unit {
    baton_sparse_t *sparse;
    size_t count;   /* number of elements */
    size_t members; /* number of tensors */
    /* Number of tensors whose gradients were passed for this step. */
    size_t ready;
    const char *gradient;
    /* Memory to which the gradients of the unit's tensors are copied, one after
       another. NULL: the unit's only gradient is used where it is. */
    char *pack;
    /* The step with the gradients that were passed last was started. */
    bool started;
    double density; /* the density that was set last; 0: no density was set */
    /* The result whose parts are returned by waits. */
    baton_sparse_result_t result;
    bool has_result; /* used with options.partial */
    /* If tensors are packed: the result's indices, relative to their
       tensors. */
    uint32_t *indices;
} baton__unit_t;

struct baton_tensors {
    baton_group_t *group;
    char *name;
    /* The user's options, with defaults filled in. */
    baton_tensors_options_t options;
    double *densities; /* the set's copy of options.densities */
    int ranks;
    bool payload;
    size_t element_bytes;
    baton_costs_t costs;
    baton_link_cost_t link; /* costs of messages between these ranks */
    baton__member_t *members;
    size_t count;
    baton__unit_t *units;
    size_t unit_count;
    /* With clipping: the number of units whose gradients have all been
       passed. */
    size_t ready_units;

    baton_schedule_t *comparison;
    baton__wrong_t wrong; /* an error in this rank's options */
    bool agreed, connected;
};

/* Returns true if the tensor's unit is of all packed tensors. With
   options.partial all tensors are packed. */
static inline bool baton__tensors_packs(const baton_tensors_t *set,
                                        const baton__member_t *member)
{
    return set->options.partial || member->plan.form == BATON_TENSOR_PACKED;
}

/* Fills in defaults, and checks options and tensors, which are copies by then.
   An error goes to set->wrong. */
void baton__tensors_resolve(baton_tensors_t *set);

/* States in a schedule (baton_schedule_agree) the set's options and tensors,
   which must be equal on all ranks. */
void baton__tensors_state(const void *set, baton_schedule_t *schedule);

/* Returns the options of the set's all-reduces that do not depend on the
   tensors. */
baton_sparse_options_t baton__tensors_common(const baton_tensors_t *set);

/* Decides how each tensor is reduced, and divides the tensors into units. */
void baton__tensors_decide(baton_tensors_t *set);
