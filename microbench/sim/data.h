/* What the ranks of a simulation contribute, and what must come out: sums of
   lines (common/linear_model.h), or sets of contributors (baton/proof.h). */
#ifndef MICROBENCH_SIM_DATA_H
#define MICROBENCH_SIM_DATA_H

#include "common/linear_model.h"
#include "sim/case.h"
#include <baton/proof.h>

typedef struct sim_data {
    const sim_case_t *of;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t count;         /* elements */
    uint32_t iterations;  /* so many in a row may meet in one sum */
    baton_proof_t *proof; /* NULL: lines */
    line_t expected;
    bool *contributors; /* [ranks * iterations], in the expected sum */
} sim_data_t;

/* Says what failed, as all of these do. In a cost-only simulation it has the
   type and the reduction alone. */
bool sim_data_open(const sim_case_t *c, uint64_t iterations, sim_data_t *out);
void sim_data_close(sim_data_t *data);

/* What the rank contributes in this iteration, from 1: `count` elements. */
bool sim_data_fill(const sim_data_t *data, int rank, uint64_t iteration,
                   void *elements);

/* The sum that is expected next: first none, then one more contribution. */
void sim_data_expect_none(sim_data_t *data);
void sim_data_expect(sim_data_t *data, int rank, uint64_t iteration);

/* Whether this is it. */
bool sim_data_check(const sim_data_t *data, int rank, uint64_t epoch,
                    const void *elements);

#endif
