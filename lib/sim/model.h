/* What the simulator draws and checks: pure functions. */
#ifndef BATON_SIM_MODEL_H
#define BATON_SIM_MODEL_H

#include <baton/sim.h>
#include <stdbool.h>
#include <stdint.h>

/* The largest parameter, cost and draw: thirty years in us. No sum or product
   of them that the simulator makes is infinite. */
#define BATON__SIM_MOST 1e15

/* Ranks, and what they have by the dozen, are counted in 32 bits. */
#define BATON__SIM_RANKS_MOST (1 << 24)

/* A value of the distribution for 64 random bits (base/random.h); never below
   0, never above BATON__SIM_MOST. The same on every machine. */
double baton__distribution_draw(const baton_distribution_t *distribution,
                                uint64_t random);

/* No draw is below this, whatever the bits. */
double baton__distribution_least(const baton_distribution_t *distribution);

/* Streams of random numbers under a simulator's seed (base/random.h). */
#define BATON__STREAM_SPEED UINT64_C(0x100000000) /* a draw for each rank */
#define BATON__STREAM_LAG   UINT64_C(0x200000000) /* for each message */
#define BATON__STREAM_SKEW  UINT64_C(0x300000000) /* + epoch: for each rank */

/* Whether it always gives 0. */
bool baton__distribution_is_zero(const baton_distribution_t *distribution);

/* BATON_ERR_INVALID says what is out of its range; `of` begins the sentence. */
baton_status_t
baton__distribution_check(const char *of,
                          const baton_distribution_t *distribution);

/* BATON_ERR_INVALID: not a rank's speed. */
baton_status_t baton__sim_check_speed(double speed);

/* BATON_ERR_INVALID names the first option that is out of its range. */
baton_status_t baton__sim_check_options(const baton_sim_options_t *options);

/* The link from one rank to another under these options. */
baton_sim_link_t baton__sim_link(const baton_sim_options_t *options, int from,
                                 int to);

#endif
