/* The processes of a job, one for each rank. There are two implementations:
   job_mpi.c, for processes that mpirun has started, and job_world.c, for those
   that baton_group_create_world finds (store.h), in a build without MPI. */
#pragma once

#include <baton/baton.h>

/* Returns the first line of MPI's version, or "none". May be called before
   job_begin. */
const char *job_mpi_version(void);

/* Start and end MPI. */
void job_begin(void);
void job_end(void);

/* Ends the process. The other ranks are ended by mpirun, or fail, because they
   have lost this one. */
_Noreturn void job_abort(void);

/* Creates a group of all ranks, over MPI or without it. Collective. */
baton_status_t job_create_group(baton_engine_t *engine, baton_group_t **out);

/* Calls MPI_Allreduce, which sums vectors of `count` integers. NULL if the
   program can't call MPI. */
extern void (*const job_sum_by_mpi)(const uint64_t *source, uint64_t *target,
                                    size_t count);
