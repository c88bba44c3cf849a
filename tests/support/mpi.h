/* Helpers for MPI programs in which each process is a rank. A failed
   expectation aborts the job. */
#pragma once

#include <baton/mpi.h>
#include <baton/store.h>

enum { SUPPORT_MPI_WAIT_MS = 100000 };

/* This process's rank, the number of ranks, the seed and the job's number,
   which are the same on all ranks, and, after support_mpi_open, a group of all
   ranks. */
typedef struct support_mpi {
    int rank, size;
    uint64_t seed, job;
    baton_engine_t *engine;
    baton_group_t *group;
} support_mpi_t;
extern support_mpi_t world;

/* support_mpi_begin initialises MPI for several threads. support_mpi_open makes
   an engine and a group. support_mpi_end destroys both, if they exist, and
   finalises MPI. */
void support_mpi_begin(int argc, char **argv);
void support_mpi_open(void);
void support_mpi_end(void);

/* Opens the store in the folder BATON_X_STORE, and writes the name of the next
   group to `name`. Returns false if this variable is not set; then groups are
   made over MPI. */
bool support_mpi_store(baton_store_t *store, char name[60]);

/* Makes a group of the communicator's ranks: through that store, or over MPI.
 */
baton_status_t support_mpi_group(baton_engine_t *engine, MPI_Comm comm,
                                 baton_group_t **out);

/* Names the running part of the program, for messages. */
extern const char *support_mpi_running;

void support_mpi_die(const char *what);
/* Ends the job if `right` is false. */
void support_mpi_check(bool right, const char *what);
void support_mpi_expect(baton_status_t status, baton_status_t expected);
void support_mpi_ok(baton_status_t status);

/* Expects that the last error's message contains `text`. */
void support_mpi_says(const char *text);

/* support_mpi_sum returns a committed schedule that sums `memory` in place.
   support_mpi_run runs one epoch of any schedule. */
baton_schedule_t *support_mpi_sum(baton_group_t *group, void *memory,
                                  size_t bytes, baton_dtype_t dtype,
                                  const char *algorithm);
void support_mpi_run(baton_schedule_t *schedule);

/* Expects that an all-reduce over the group gives the right result. */
void support_mpi_healthy(baton_group_t *group);
