/* Part of baton-bench kernels: adding a gradient to a residual and selecting
   from the sum. */
#ifndef BATON_MICROBENCH_BENCH_SELECTION_H
#define BATON_MICROBENCH_BENCH_SELECTION_H

#include <stdio.h>

/* Compares both steps, one after the other, with the one pass that does both,
   beside a plain pass that reads the sum. Prints a table; appends rows to a
   JSON array that has some (NULL: none). Returns 0 on success: also an error is
   that the results differ. */
int bench_selection(FILE *json);

#endif
