/* MPI programs that expect errors: what is not as expected ends the job. */
#ifndef TESTS_SUPPORT_MPI_H
#define TESTS_SUPPORT_MPI_H

#include <baton/baton.h>
#include <baton/mpi.h>

/* What the program is at, for messages. */
extern const char *support_mpi_running;

void support_mpi_die(const char *what);
void support_mpi_expect(baton_status_t status, baton_status_t expected);

/* The last error's sentence contains `text`. */
void support_mpi_says(const char *text);

/* The group works, and its ranks agree on the tags: an all-reduce is right. */
void support_mpi_healthy(baton_group_t *group);

#endif
