/* The processes of a job, one for each rank: those that mpirun has started or,
   in a build without MPI, those that baton_group_create_world finds
   (store.h). */
#pragma once

#include <baton/baton.h>

extern const bool job_has_mpi;

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

/* Calls MPI_Allreduce, which sums vectors of `count` integers. Only for builds
   with MPI. */
void job_sum_by_mpi(const uint64_t *source, uint64_t *target, size_t count);
