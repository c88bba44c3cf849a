/* The driver of a simulated engine, which lets virtual time pass:

       pop the events of the next time --> ranks become due
             ^                                   |
             |                                   v
       sends make events <-- baton__step for each due rank, until it has
                             nothing to do at its time

   A real engine has progress/engine.c instead. */
#ifndef BATON_SIM_DRIVER_H
#define BATON_SIM_DRIVER_H

#include "sim/sim.h"

extern const baton__driver_t baton__sim_driver;

/* BATON_ERR_STATE in a callback, where `operation` is not allowed. */
baton_status_t baton__sim_check_outside(const baton_sim_t *sim,
                                        const char *operation);

#endif
