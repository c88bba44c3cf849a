/* Compares selections with a sort. The functions of <baton/select.h>
   (unit/test_select.c) and the kernels of libbaton_cuda (cuda/test_select.cpp)
   use the same table of cases. Failures are reported to cmocka. */
#pragma once

#include "support/random.h"

#include <baton/device.h>

enum { SELECT_TYPES = 4 };

extern const baton_dtype_t select_types[SELECT_TYPES];

/* Kinds of vectors. */
typedef enum select_kind {
    SELECT_NORMAL,
    SELECT_HEAVY,       /* a distribution with heavy tails */
    SELECT_FEW_VALUES,  /* few values, so that many elements are tied */
    SELECT_STAIRS,      /* about 1% large elements, and many ties below them */
    SELECT_EQUAL,       /* all elements have one magnitude */
    SELECT_MOSTLY_ZERO, /* fewer than k elements may be nonzero */
    SELECT_ALL_ZERO,
    SELECT_SORTED,
    SELECT_SUBNORMAL,
    SELECT_SMALLEST,         /* a few elements of the smallest magnitude among
                                zeros */
    SELECT_NOT_FINITE,       /* some NaNs and infinities */
    SELECT_BITS,             /* random bits */
    SELECT_NANS,             /* NaNs with random payloads */
    SELECT_SAMPLE_TOO_LARGE, /* large elements where a sample looks */
    SELECT_SAMPLE_TOO_SMALL, /* zeros where a sample looks */
    SELECT_KINDS
} select_kind_t;

/* Returns which of `count` elements is the i-th of a sample of `size`, by which
   a selection estimates its threshold. */
typedef size_t (*select_position_fn)(size_t count, size_t size, size_t i);

/* select_store rounds the value to the type. */
void select_store(baton_dtype_t dtype, void *values, size_t i, double value);

void select_fill(select_kind_t kind, baton_dtype_t dtype, void *values,
                 size_t count, select_position_fn position,
                 support_random_t *random);

/* The selection under test. `select` is a port's function, takes main memory,
   and brings its own scratch memory. */
typedef struct select_subject {
    void (*select)(const baton_device_selection_t *selection);
    select_position_fn position;
    size_t longest;  /* most elements of a vector */
    unsigned trials; /* number of vectors of random length */
    bool brief;      /* the selection is slow: test one k a vector */
} select_subject_t;

/* Tests short vectors, vectors of each kind and type that are long enough to be
   sampled, and random ones. */
void select_cases_run(const select_subject_t *subject);

/* Writes the indices of the k largest elements, found by a sort. Returns how
   many there are. */
size_t select_sorted(const baton_selection_t *from, size_t k,
                     uint32_t *indices);
