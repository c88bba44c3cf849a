/* The processes of a job, one for each rank. There are two implementations:
   job_mpi.c, for processes that mpirun has started, and job_world.c, for those
   that baton_group_create_world finds (store.h), in a build without MPI. All
   functions but job_mpi_version and job_abort are collective. An error ends the
   job. */
#pragma once

#include <baton/baton.h>

/* Returns the first line of MPI's version, or "none". May be called before
   job_begin. */
const char *job_mpi_version(void);

/* Starts MPI, or makes a group of all ranks. */
void job_begin(int *rank_out, int *size_out);
void job_end(void);

/* Ends the process. The other ranks are ended by mpirun, or fail, because they
   have lost this one. */
_Noreturn void job_abort(void);

/* Creates a group of all ranks, over MPI or without it. */
baton_status_t job_create_group(baton_engine_t *engine, baton_group_t **out);

/* Copies the bytes of rank 0 to all other ranks. */
void job_broadcast(void *data, size_t bytes);

/* Gathers `bytes` bytes from each rank on all ranks, in the order of ranks. */
void job_gather(const void *mine, size_t bytes, void *all);

/* Calls MPI_Allreduce, which sums vectors of `count` integers. NULL if the
   program can't call MPI. */
extern void (*const job_sum_by_mpi)(const uint64_t *source, uint64_t *target,
                                    size_t count);
