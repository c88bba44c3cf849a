#include "support/mpi.h"
#include "support/cluster.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 60000

const char *support_mpi_running = "start";

void support_mpi_die(const char *what)
{
    int ready = 0, over = 0, rank = -1;
    MPI_Initialized(&ready);
    MPI_Finalized(&over);
    if (ready && !over) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    }
    fprintf(stderr, "rank %d, %s: %s (%s)\n", rank, support_mpi_running, what,
            baton_error_message());
    if (ready && !over) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    exit(1);
}

void support_mpi_expect(baton_status_t status, baton_status_t expected)
{
    if (status != expected) {
        char text[100];
        snprintf(text, sizeof(text), "%s is not %s", baton_status_name(status),
                 baton_status_name(expected));
        support_mpi_die(text);
    }
}

void support_mpi_says(const char *text)
{
    if (strstr(baton_error_message(), text) == NULL) {
        char what[200];
        snprintf(what, sizeof(what), "\"%s\" is not in the message", text);
        support_mpi_die(what);
    }
}

void support_mpi_healthy(baton_group_t *group)
{
    baton_schedule_t *s;
    uint64_t size = (uint64_t)baton_group_size(group);
    uint64_t sum = (uint64_t)baton_group_rank(group);
    support_mpi_expect(baton_schedule_create(group, "healthy", &s), BATON_OK);
    baton_view_t view = support_view(s, &sum, 8);
    baton_allreduce_t args = {.size = sizeof(args),
                              .source = view,
                              .target = view,
                              .dtype = BATON_U64,
                              .op = BATON_SUM};
    baton_allreduce_recursive_doubling(s, &args);
    support_mpi_expect(baton_schedule_commit(s), BATON_OK);
    support_mpi_expect(baton_schedule_start(s), BATON_OK);
    support_mpi_expect(baton_schedule_wait(s, WAIT_MS), BATON_OK);
    if (sum != size * (size - 1) / 2) {
        support_mpi_die("wrong sum");
    }
    support_mpi_expect(baton_schedule_destroy(s), BATON_OK);
}
