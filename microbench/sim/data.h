/* The contributions of simulated ranks and the expected results: sums of linear
   models (common/linear_model.h) or sets of contributors (baton/proof.h). */
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
    uint32_t iterations;  /* consecutive ones that one sum may contain */
    baton_proof_t *proof; /* NULL for linear models */
    linear_model_t expected;
    bool *contributors; /* [ranks * iterations], in the expected sum */
} sim_data_t;

/* Like the functions below, prints what failed. A cost-only simulation gets
   only the type and the reduction. */
bool sim_data_open(const sim_case_t *c, uint64_t iterations, sim_data_t *out);
void sim_data_close(sim_data_t *data);

/* Stores the `count` elements that the rank contributes in this iteration,
   which counts from 1. */
bool sim_data_fill(const sim_data_t *data, int rank, uint64_t iteration,
                   void *elements);

/* Set the expected sum to no contribution, and add one. */
void sim_data_expect_none(sim_data_t *data);
void sim_data_expect(sim_data_t *data, int rank, uint64_t iteration);

/* True when the elements are the expected sum. */
bool sim_data_check(const sim_data_t *data, int rank, uint64_t epoch,
                    const void *elements);

#endif
