/* The vectors of a run, and the reduction that its results are compared with.
   They are 64-bit words, whatever the element type. Integers count modulo
   the type's size; floats are small enough for every sum to be exact. */
#ifndef TESTS_FUZZ_VALUES_H
#define TESTS_FUZZ_VALUES_H

#include "fuzz/plan.h"

const baton_op_t *fuzz_op(const fuzz_task_plan_t *task);

size_t fuzz_bytes(const fuzz_task_plan_t *task); /* of the vector */

/* The values of a vector, which are a function of `key`. */
void fuzz_fill(const fuzz_task_plan_t *task, uint64_t key, uint64_t *values);

/* into = into (op) from. Zeros are the identity. */
void fuzz_combine(const fuzz_task_plan_t *task, uint64_t *into,
                  const uint64_t *from);

/* Converts values to elements of the task's type. */
void fuzz_store(const fuzz_task_plan_t *task, const uint64_t *values,
                void *elements);

/* into = into (op) elements. */
void fuzz_combine_elements(const fuzz_task_plan_t *task, uint64_t *into,
                           const void *elements);

/* The index of the first element that differs; `count` when none does. */
size_t fuzz_difference(const fuzz_task_plan_t *task, const uint64_t *values,
                       const void *elements);

#endif
