/* A process that is one rank of a job (job.h), and of Baton groups of all
   ranks. Used by all programs that measure. */
#pragma once

#include "common/measure.h"
#include <baton/baton.h>

typedef struct harness {
    int rank;
    int size;
    /* The engine of the measured schedules, which makes progress in the default
       way, and the group that they use. */
    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *barrier;
} harness_t;

/* Begins the job, and returns its number of ranks. Then rank 0 reads the
   command line alone, because argp prints help and errors, and then ends the
   process. On the other ranks this function returns when rank 0 has called
   harness_go_on. If rank 0 has ended instead, it ends the process, too. */
int harness_begin(void);

/* Returns whether this is rank 0. */
bool harness_go_on(void);

/* Attaches a device to an engine before the engine's group is created. */
typedef baton_status_t (*harness_attach_fn)(baton_engine_t *engine);

/* Opens the measured engine. Collective. A failure ends the job. `attach`,
   which may be NULL, is called for it. */
void harness_open(harness_t *out, harness_attach_fn attach);

void harness_close(harness_t *harness);

/* Baton's dissemination barrier. It replaces MPI_Barrier between measurements,
   because a rank that waits in it sleeps. If ranks share processors, a rank
   that spins in MPI_Barrier would take time from ranks that are still measured,
   and would also be charged for that time. The barrier has an engine of its own
   without a progress thread, so its messages never wake the measured engine. */
void harness_barrier(const harness_t *harness);

/* Returns rank 0's answer on every rank. Collective. */
bool harness_agree(bool answer);

/* Gathers `bytes` bytes from each rank, in the order of ranks. The caller frees
   the array. Collective. */
void *harness_gather(const void *mine, size_t bytes);

/* Prints this rank's number and the message, and ends the whole job. A rank
   that has failed inside a collective has no other way to tell its peers. */
_Noreturn void harness_fail(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Calls harness_fail with the library's message if status is not BATON_OK. */
void must(baton_status_t status);

/* Creates a schedule. A failure ends the job. */
baton_schedule_t *harness_schedule(baton_group_t *group, const char *name);

/* Runs epochs of a schedule one after another. A failure ends the job. */
void harness_run_epochs(baton_schedule_t *schedule, uint64_t epochs);

/* Calls calloc. A failure ends the job. */
void *harness_alloc(size_t count, size_t size);
