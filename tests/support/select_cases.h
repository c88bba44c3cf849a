/* Selections against a sort: one table of cases for the functions of
   <baton/select.h> (unit/test_select.c) and for the kernels of libbaton_cuda
   (cuda/test_select.cpp). Failures are cmocka's. */
#pragma once

#include "support/random.h"

#include <baton/device.h>

enum { SELECT_TYPES = 4 };

extern const baton_dtype_t select_types[SELECT_TYPES];

/* What a vector consists of. */
typedef enum select_kind {
    SELECT_NORMAL,
    SELECT_HEAVY,       /* tails */
    SELECT_FEW_VALUES,  /* ties everywhere */
    SELECT_STAIRS,      /* ties above which there is a little more than 1% */
    SELECT_EQUAL,       /* all of one magnitude */
    SELECT_MOSTLY_ZERO, /* fewer than k may be left */
    SELECT_ALL_ZERO,
    SELECT_SORTED,
    SELECT_SUBNORMAL,
    SELECT_SMALLEST,         /* few of the smallest magnitude, among zeros */
    SELECT_NOT_FINITE,       /* NaNs and infinities among them */
    SELECT_BITS,             /* any */
    SELECT_NANS,             /* of any payload */
    SELECT_SAMPLE_TOO_LARGE, /* where a sample looks, there are large elements
                              */
    SELECT_SAMPLE_TOO_SMALL, /* or zeros */
    SELECT_KINDS
} select_kind_t;

/* Where a selection looks for its estimate: which of `count` elements is the
   i-th of its sample of `size`. */
typedef size_t (*select_position_fn)(size_t count, size_t size, size_t i);

/* The value is rounded to the type. */
void select_store(baton_dtype_t dtype, void *values, size_t i, double value);

void select_fill(select_kind_t kind, baton_dtype_t dtype, void *values,
                 size_t count, select_position_fn position,
                 support_random_t *random);

/* What is tested. `select` is the port's, with memory of the host, and brings
   its own scratch memory. */
typedef struct select_subject {
    void (*select)(const baton_device_selection_t *selection);
    select_position_fn position;
    size_t longest;  /* elements of a vector */
    unsigned trials; /* of random lengths */
    bool brief;      /* it is slow: one k for each vector */
} select_subject_t;

/* Short vectors; each kind with each type, of a length that is sampled; and
   random ones. */
void select_cases_run(const select_subject_t *subject);

/* Writes the indices of the k largest, by a sort, and returns how many. */
size_t select_sorted(const baton_selection_t *from, size_t k,
                     uint32_t *indices);
