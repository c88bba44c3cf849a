/* The cost model: the simulator's options and the links between ranks. All
   functions are pure. */
#ifndef BATON_SIM_MODEL_H
#define BATON_SIM_MODEL_H

#include <baton/sim.h>
#include <stdint.h>

/* Ranks, and a dozen of anything for each of them, are counted in 32 bits. */
#define BATON__SIM_RANKS_MOST (1 << 24)

/* Streams of random numbers under a simulator's seed (base/random.h): a number
   for each rank, for each message, and for each rank in an epoch, which is
   added to the stream. */
#define BATON__STREAM_SPEED UINT64_C(0x100000000)
#define BATON__STREAM_LAG   UINT64_C(0x200000000)
#define BATON__STREAM_SKEW  UINT64_C(0x300000000)

/* BATON_ERR_INVALID when no rank may have this speed. */
baton_status_t baton__sim_check_speed(double speed);

/* BATON_ERR_INVALID names the first option that is out of range. */
baton_status_t baton__sim_check_options(const baton_sim_options_t *options);

/* The link from one rank to another under these options. */
baton_sim_link_t baton__sim_link(const baton_sim_options_t *options, int from,
                                 int to);

#endif
