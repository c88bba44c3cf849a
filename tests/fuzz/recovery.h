/* Injected failures, and the recoveries from them. On one rank:

       ... injected failure (somewhere) ... told to recover --> recovers
                                                                   |
       first steps of all tasks <--(baton_group_recover: OK)-------+        */
#pragma once

#include "fuzz/cluster.h"

/* Schedules the failure of this incarnation, if the plan has one. */
baton_status_t fuzz_schedule_injection(fuzz_cluster_t *cluster);

/* Returns whether ranks recover only when nothing happens any more, and must do
   so now. */
bool fuzz_wants_recovery(const fuzz_cluster_t *cluster);

/* Checks that all tasks have ended or failed as they had to, and lets all ranks
   recover. */
void fuzz_recover_when_idle(fuzz_cluster_t *cluster);
