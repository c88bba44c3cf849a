/* The conformance suite over MPI or, with support_mpi_store, over UCX. Also
   tests endpoints that can't be opened. */
#include "base/alloc.h"
#include "support/cmocka.h"
#include "support/conformance.h"
#include "support/mpi.h"
#include "transport/mpi/bootstrap_store.h"
#include "transport/mpi/endpoint.h"
#include "transport/mpi/over_mpi.h"

#include <sched.h>

static conformance_rank_t self;

static bool yield(conformance_rank_t *rank)
{
    sched_yield();
    return rank->failure[0] == '\0';
}

static baton__mpi_t *mpi;

static baton_status_t open_over(baton__bootstrap_t *bootstrap,
                                baton_status_t local)
{
    baton__exchange_t exchange;
    support_mpi_ok(baton__exchange_begin(&exchange, bootstrap));
    baton_status_t status = baton__mpi_open(&exchange, local, &mpi);
    (void)!baton__exchange_agree(&exchange, status);
    baton__exchange_end(&exchange);
    return status;
}

static baton_status_t try_to_open(MPI_Comm comm, baton_status_t local)
{
    baton__bootstrap_mpi_t bootstrap;
    baton_store_t store;
    char name[60];
    baton_status_t status;
    mpi = NULL;
    support_mpi_ok(baton__bootstrap_open_mpi(&bootstrap, comm));
    if (support_mpi_store(&store, name)) {
        if (comm != MPI_COMM_WORLD) { /* two groups are made at the same time */
            name[0] = (char)('a' + world.rank % 2);
        }
        const baton__store_use_t use = {
            .function = "store", .store = &store, .name = name};
        baton__bootstrap_t *over_store = NULL;
        support_mpi_ok(baton__bootstrap_open_store(
            &use, bootstrap.shared.rank, bootstrap.shared.size,
            SUPPORT_MPI_WAIT_MS, &over_store));
        status = open_over(over_store, local);
        baton__bootstrap_close_store(over_store);
        baton_store_close_folder(&store);
    } else {
        status = open_over(&bootstrap.shared, local);
    }
    baton__bootstrap_close_mpi(&bootstrap);
    support_mpi_check((mpi != NULL) == (status == BATON_OK), "opened, or not");
    self.endpoint = mpi;
    self.transport = mpi != NULL ? &mpi->transport : NULL;
    return status;
}

static void open_endpoint(MPI_Comm comm)
{
    support_mpi_ok(try_to_open(comm, BATON_OK));
    MPI_Comm_rank(comm, &self.rank);
    MPI_Comm_size(comm, &self.size);
}

static void run_case(void **state)
{
    const conformance_case_t *test = *state;
    open_endpoint(MPI_COMM_WORLD);
    conformance_run(test, &self);
    support_mpi_check(self.failure[0] == '\0', self.failure);
    self.transport->close(self.endpoint);
}

/* Runs the suite in two groups at the same time. Their ranks are in another
   order than those of the world. */
TEST(run_in_halves)
{
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, -world.rank, &half);
    open_endpoint(half);
    for (int i = 0; i < CONFORMANCE_CASES; i++) {
        conformance_run(&conformance_cases[i], &self);
        support_mpi_check(self.failure[0] == '\0', self.failure);
    }
    self.transport->close(self.endpoint);
    MPI_Comm_free(&half);
}

TEST(an_error_of_one_rank_is_all_ranks)
{
    bool last = world.rank == world.size - 1;
    support_mpi_expect(
        try_to_open(MPI_COMM_WORLD, last ? BATON_ERR_NO_MEMORY : BATON_OK),
        BATON_ERR_NO_MEMORY);
}

/* On the last rank the n-th allocation fails, for each n until none fails. */
TEST(every_allocation_may_fail)
{
    baton_status_t status = BATON_ERR_NO_MEMORY;
    int64_t nth = 1;
    if (getenv("BATON_X_STORE") != NULL) {
        /* A store allocates memory before it can report an error to other
           ranks. */
        skip();
    }
    for (; status && nth < 50; nth++) {
        baton__alloc_fail_nth(world.rank == world.size - 1 ? nth : 0);
        status = try_to_open(MPI_COMM_WORLD, BATON_OK);
        baton__alloc_fail_nth(0);
        support_mpi_check(status == BATON_OK || status == BATON_ERR_NO_MEMORY,
                          "out of memory, or made");
    }
    support_mpi_check(status == BATON_OK && nth > 3, "made in the end");
    self.transport->close(self.endpoint);
}

int main(int argc, char **argv)
{
    /* A rank that has found a full ring or outbox looks at it again after this
       time. */
    setenv("BATON_SLEEP_US", "100", 0);
    support_mpi_begin(argc, argv);
    self.yield = yield;
    self.sleeps = true;
    self.seed = world.seed;
    /* Only one rank reports. */
    support_mpi_check(world.rank == 0 || freopen("/dev/null", "w", stdout),
                      "freopen");
    for (int i = 0; i < CONFORMANCE_CASES; i++) {
        support_add((struct CMUnitTest){conformance_cases[i].name, run_case,
                                        NULL, NULL,
                                        (void *)&conformance_cases[i]});
    }
    int failed = support_run_tests(argc, argv, NULL, NULL);
    support_mpi_end();
    return failed;
}
