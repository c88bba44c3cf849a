/* The cost model: distributions, the simulator's options, and the links between
   ranks. All functions are pure. */
#pragma once

#include <baton/sim.h>

/* The largest number of ranks: small enough that a dozen objects for each rank
   can be counted in 32 bits. */
#define BATON__SIM_RANKS_MOST (1 << 24)

/* The largest parameter, cost and sample: thirty years in us. No sum or product
   of them that the simulator computes is infinite. */
#define BATON__SIM_MOST 1e15

/* The lowest speed of a rank. At a lower speed times would be too long to add
   up. */
#define BATON__SIM_LEAST_SPEED 1e-9

/* Numbers of random streams, which all derive from the simulator's seed
   (base/random.h). A rank's speed is the sample of this rank in the stream
   SPEED, and a message's lag that of this message in LAG. The ranks' skews in
   an epoch have a stream of their own: SKEW + the number of epochs that have
   ended before. */
#define BATON__STREAM_SPEED UINT64_C(0x100000000)
#define BATON__STREAM_LAG   UINT64_C(0x200000000)
#define BATON__STREAM_SKEW  UINT64_C(0x300000000)

/* Returns the sample that belongs to 64 random bits (base/random.h): a number
   from 0 to BATON__SIM_MOST, which is the same on every machine. */
double baton__distribution_sample(const baton_distribution_t *distribution,
                                  uint64_t random);

/* Returns true when every sample is 0. */
bool baton__distribution_is_zero(const baton_distribution_t *distribution);

/* Returns BATON_ERR_INVALID if a parameter of the distribution is out of range.
   The error message begins with `subject`, and names the parameter. */
baton_status_t
baton__distribution_check(const char *subject,
                          const baton_distribution_t *distribution);

/* Returns BATON_ERR_INVALID unless a number is at least `least` (greater, if
   `above`) and at most BATON__SIM_MOST. The message begins with `subject`, and
   `name` is the number's name in it. */
baton_status_t baton__sim_check_number(const char *subject, const char *name,
                                       double value, double least, bool above);

/* Returns BATON_ERR_INVALID, with a message that names the first option that is
   out of range, if there is one. */
baton_status_t baton__sim_check_options(const baton_sim_options_t *options);

/* Returns the link from one rank to another, as the options define it. */
baton_sim_link_t baton__sim_link(const baton_sim_options_t *options, int from,
                                 int to);
