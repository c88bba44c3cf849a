/* The conformance suite over MPI, and the errors of groups that can't be
   created. Each process is a rank; one that fails aborts all. */
#include "base/alloc.h"
#include "support/cmocka.h"
#include "support/conformance.h"
#include "support/random.h"
#include "transport/mpi/endpoint.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static conformance_rank_t self;

static bool yield(conformance_rank_t *rank)
{
    sched_yield();
    return rank->failure[0] == '\0';
}

/* The others would wait for a rank that failed. */
static void require(bool condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "rank %d: failed: %s\n", self.rank, text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void open_endpoint(MPI_Comm comm)
{
    require(baton__mpi_open(comm, BATON_OK, &self.transport, &self.endpoint) ==
                BATON_OK,
            baton_error_message());
    MPI_Comm_rank(comm, &self.rank);
    MPI_Comm_size(comm, &self.size);
    self.rings = ((const baton__mpi_t *)self.endpoint)->far.peers > 0;
}

static void run_case(void **state)
{
    const conformance_case_t *test = *state;
    open_endpoint(MPI_COMM_WORLD);
    conformance_run(test, &self);
    require(self.failure[0] == '\0', self.failure);
    self.transport->close(self.endpoint);
}

/* Ranks in another order than the world's, two groups at once. */
static void run_in_halves(void **state)
{
    int world_rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &half);
    open_endpoint(half);
    for (int i = 0; i < CONFORMANCE_CASES; i++) {
        conformance_run(&conformance_cases[i], &self);
        require(self.failure[0] == '\0', self.failure);
    }
    self.transport->close(self.endpoint);
    MPI_Comm_free(&half);
}

static void an_error_of_one_rank_is_all_ranks(void **state)
{
    int size;
    int rank;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    baton_status_t local = rank == size - 1 ? BATON_ERR_NO_MEMORY : BATON_OK;
    const baton_transport_t *transport = NULL;
    void *endpoint = NULL;
    baton_status_t status =
        baton__mpi_open(MPI_COMM_WORLD, local, &transport, &endpoint);
    require(status == BATON_ERR_NO_MEMORY && !transport && !endpoint,
            "all ranks fail as the last did");
}

/* The n-th allocation fails on the last rank, until none does. */
static void every_allocation_may_fail(void **state)
{
    int size;
    int rank;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    baton_status_t status = BATON_ERR_NO_MEMORY;
    int64_t nth = 1;
    for (; status && nth < 50; nth++) {
        baton__alloc_fail_nth(rank == size - 1 ? nth : 0);
        status = baton__mpi_open(MPI_COMM_WORLD, BATON_OK, &self.transport,
                                 &self.endpoint);
        baton__alloc_fail_nth(0);
        require(status == BATON_OK || status == BATON_ERR_NO_MEMORY,
                "out of memory, or made");
    }
    require(status == BATON_OK && nth > 3, "made in the end");
    self.transport->close(self.endpoint);
}

static void intercommunicators_are_refused(void **state)
{
    int size;
    int rank;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const baton_transport_t *transport = NULL;
    void *endpoint = NULL;
    baton_status_t status =
        baton__mpi_open(MPI_COMM_NULL, BATON_OK, &transport, &endpoint);
    require(status == BATON_ERR_INVALID, "MPI_COMM_NULL is refused");
    if (size < 2) {
        return;
    }
    MPI_Comm half;
    MPI_Comm inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 1, &inter);
    status = baton__mpi_open(inter, BATON_OK, &transport, &endpoint);
    require(status == BATON_ERR_INVALID && !endpoint,
            "an intercommunicator is refused");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    enum { OWN = 4 };
    static struct CMUnitTest tests[OWN + CONFORMANCE_CASES] = {
        cmocka_unit_test(an_error_of_one_rank_is_all_ranks),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(intercommunicators_are_refused),
        cmocka_unit_test(run_in_halves),
    };
    static conformance_case_t cases[CONFORMANCE_CASES];
    int level;
    int rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    self.yield = yield;
    self.sleeps = true;
    /* One rank reports, and all use its seed. */
    if (rank != 0 && !freopen("/dev/null", "w", stdout)) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    self.seed = rank == 0 ? support_seed() : 0;
    MPI_Bcast(&self.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int i = 0; i < CONFORMANCE_CASES; i++) {
        cases[i] = conformance_cases[i];
        tests[OWN + i] =
            (struct CMUnitTest){cases[i].name, run_case, NULL, NULL, &cases[i]};
    }
    int failed = cmocka_run_group_tests_name("mpi", tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
