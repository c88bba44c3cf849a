/* Compares selections with a sort. The functions of <baton/select.h>
   (unit/test_select.c) and the kernels of libbaton_cuda (cuda/test_select.cpp)
   use the same table of cases. Failures are reported to cmocka. */
#pragma once

#include "support/random.h"

#include <baton/device.h>

#define SELECT_ONE(...) +1
enum { SELECT_TYPES = 0 BATON_FLOAT_LIST(SELECT_ONE) };

extern const baton_dtype_t select_types[SELECT_TYPES];

/* Kinds of vectors, which differ in their values. */
typedef enum select_kind {
    SELECT_NORMAL,
    SELECT_HEAVY,      /* a distribution with heavy tails */
    SELECT_FEW_VALUES, /* few values, so that many elements are tied */
    SELECT_STAIRS,     /* about 1% large elements, and many ties below them */
    SELECT_EQUAL,      /* all elements have the same magnitude */
    /* The vector may have fewer than k elements that are not zero. */
    SELECT_MOSTLY_ZERO,
    SELECT_ALL_ZERO,
    SELECT_SORTED,
    SELECT_SUBNORMAL,
    /* Zeros, and a few elements of the smallest magnitude. */
    SELECT_SMALLEST,
    SELECT_NOT_FINITE,       /* some NaNs and infinities among other values */
    SELECT_BITS,             /* random bits */
    SELECT_NANS,             /* NaNs with random payloads */
    SELECT_SAMPLE_TOO_LARGE, /* the elements that a sample reads are large */
    SELECT_SAMPLE_TOO_SMALL, /* the elements that a sample reads are zeros */
    SELECT_KINDS
} select_kind_t;

/* A function that returns the position of the i-th element of a sample. A
   selection takes a sample of `size` of `count` elements to estimate its
   threshold. */
typedef size_t (*select_position_fn)(size_t count, size_t size, size_t i);

/* Stores a value as element i. Rounds the value to the type. */
void select_store(baton_dtype_t dtype, void *values, size_t i, double value);

void select_fill(select_kind_t kind, baton_dtype_t dtype, void *values,
                 size_t count, select_position_fn position,
                 support_random_t *random);

/* The selection under test. `select` is the function of that name of a device
   port. It takes main memory, and has scratch memory of its own. */
typedef struct select_subject {
    void (*select)(const baton_device_selection_t *selection);
    select_position_fn position;
    size_t longest;  /* the most elements of a vector */
    unsigned trials; /* number of vectors of random length */
    /* The selection is slow, so only one k is tested for each vector. */
    bool brief;
} select_subject_t;

/* Tests short vectors, vectors of each kind and type that are long enough to be
   sampled, and random ones. */
void select_cases_run(const select_subject_t *subject);

/* Finds the k largest elements by a sort, and writes their indices. Returns
   their number. */
size_t select_sorted(const baton_selection_t *from, size_t k,
                     uint32_t *indices);
