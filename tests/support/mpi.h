/* For MPI programs that expect errors. A failed expectation aborts the job. */
#ifndef TESTS_SUPPORT_MPI_H
#define TESTS_SUPPORT_MPI_H

#include <baton/baton.h>
#include <baton/mpi.h>

/* The part of the program that runs, for messages. */
extern const char *support_mpi_running;

void support_mpi_die(const char *what);
void support_mpi_expect(baton_status_t status, baton_status_t expected);

/* Expects that the last error's message contains `text`. */
void support_mpi_says(const char *text);

/* Expects that an all-reduce over the group gives the right result. */
void support_mpi_healthy(baton_group_t *group);

#endif
