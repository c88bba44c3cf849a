/* Distributions: sampling, text, and checks. All functions are pure. */
#ifndef BATON_SIM_DISTRIBUTION_H
#define BATON_SIM_DISTRIBUTION_H

#include "base/error.h"

#include <baton/sim.h>
#include <stdbool.h>
#include <stdint.h>

/* The largest parameter, cost and sample: thirty years in us. No sum or product
   of them that the simulator computes is infinite. */
#define BATON__SIM_MOST 1e15

/* The sample for 64 random bits (base/random.h), from 0 to BATON__SIM_MOST. It
   is the same on every machine. */
double baton__distribution_sample(const baton_distribution_t *distribution,
                                  uint64_t random);

/* A lower bound of all samples. */
double baton__distribution_least(const baton_distribution_t *distribution);

/* Returns true when every sample is 0. */
bool baton__distribution_is_zero(const baton_distribution_t *distribution);

/* Appends the distribution as baton_distribution_parse reads it. */
void baton__distribution_print(const baton_distribution_t *distribution,
                               baton__text_t *text);

/* BATON_ERR_INVALID names the part that is out of range; the message begins
   with `subject`. */
baton_status_t
baton__distribution_check(const char *subject,
                          const baton_distribution_t *distribution);

/* Checks that a number is `least` (above it, if `above`) to BATON__SIM_MOST. */
baton_status_t baton__sim_check_number(const char *subject, const char *name,
                                       double value, double least, bool above);

#endif
