/* Errors of wrong input over MPI: a commit that fails on one rank with
   BATON_VERIFY=1, schedules that do not match, and wrong communicators. The
   exit code is the result. */
#include "base/config.h"
#include "support/cluster.h"
#include "support/mpi.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The group of the tests that follow. */
static void open_group(bool verify)
{
    setenv("BATON_VERIFY", verify ? "1" : "0", 1);
    baton__config_forget();
    support_mpi_ok(
        baton_group_create_mpi(world.engine, MPI_COMM_WORLD, &world.group));
}

static baton_schedule_t *create(const char *name)
{
    baton_schedule_t *s;
    support_mpi_ok(baton_schedule_create(world.group, name, &s));
    return s;
}

/* ---- ranks that disagree ---------------------------------------------- */

/* Rank 0 has sends of these sizes to rank 1, which has receives of those. Ends
   with a zero. */
static baton_schedule_t *disagree(const char *name, const size_t *sends,
                                  const size_t *receives)
{
    static char memory[1 << 20];
    baton_schedule_t *s = create(name);
    (void)baton_add_nop(s); /* so that messages have other numbers than 0 */
    const size_t *sizes = world.rank == 0 ? sends : receives;
    for (size_t i = 0; world.rank < 2 && sizes[i] != 0; i++) {
        baton_view_t view = support_view(s, memory, sizes[i]);
        if (world.rank == 0) {
            (void)baton_add_send(s, 1, view);
        } else {
            (void)baton_add_recv(s, 0, view);
            break; /* one receive: two would write the same memory */
        }
    }
    return s;
}

/* All ranks get one rank's error, and the commit succeeds once it is corrected.
 */
static void test_verify_tells_of_a_local_error(void)
{
    int failing_rank = world.size - 1;
    baton_schedule_t *s = create("local");
    baton_node_t a = baton_add_nop(s), b = baton_add_nop(s);
    baton_before(s, a, b);
    if (world.rank == failing_rank) {
        baton_before(s, b, a);
    }
    support_mpi_expect(baton_schedule_commit(s), BATON_ERR_CYCLE);
    support_mpi_says("dependency cycle");
    if (world.rank != failing_rank || world.size == 1) {
        char text[64];
        snprintf(text, sizeof(text), "failed on all ranks: rank %d",
                 failing_rank);
        support_mpi_says(text);
    }
    support_mpi_ok(baton_schedule_destroy(s));
    support_mpi_healthy(world.group);

    s = create("sticky");
    if (world.rank == failing_rank) {
        (void)baton_add_send(s, world.size, support_view(s, NULL, 0));
    }
    support_mpi_expect(baton_schedule_commit(s), BATON_ERR_INVALID);
    support_mpi_says("\"sticky\"");
    support_mpi_ok(baton_schedule_destroy(s));
    support_mpi_healthy(world.group);
}

/* Without verification both ends find the mismatch when they introduce their
   schedules, before a message is sent. */
static void test_mismatch_is_an_error_on_both(void)
{
    static const size_t cases[][2][2] = {
        {{8, 0}, {16, 0}},       {{16, 0}, {8, 0}},
        {{3000, 0}, {3008, 0}},  {{3008, 0}, {3000, 0}},
        {{8, 0}, {1000000, 0}},  {{1000000, 0}, {8, 0}},
        {{1000000, 0}, {16, 0}}, {{999992, 0}, {1000000, 0}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[80];
        snprintf(text, sizeof(text), "%d bytes for %d", (int)cases[i][0][0],
                 (int)cases[i][1][0]);
        support_mpi_running = text;
        baton_schedule_t *s = disagree("unverified", cases[i][0], cases[i][1]);
        support_mpi_ok(baton_schedule_commit(s));
        baton_status_t status = baton_schedule_start(s);
        if (world.rank < 2 && status == BATON_OK) {
            support_mpi_expect(baton_schedule_wait(s, SUPPORT_MPI_WAIT_MS),
                               BATON_ERR_MISMATCH);
        } else {
            support_mpi_expect(status,
                               world.rank < 2 ? BATON_ERR_FAILED : BATON_OK);
        }
        if (world.rank < 2) {
            support_mpi_says("\"unverified\" on rank");
            support_mpi_says("differ");
            support_mpi_says("BATON_VERIFY=1");
            support_mpi_expect(baton_schedule_start(s), BATON_ERR_FAILED);
        } else {
            support_mpi_ok(baton_schedule_wait(s, SUPPORT_MPI_WAIT_MS));
        }
        support_mpi_ok(baton_schedule_destroy(s));
        support_mpi_healthy(world.group);
    }
}

/* ---- the groups' own -------------------------------------------------- */

static void test_wrong_communicators_are_refused(void)
{
    baton_group_t *none = NULL;
    support_mpi_expect(
        baton_group_create_mpi(world.engine, MPI_COMM_NULL, &none),
        BATON_ERR_INVALID);
    support_mpi_says("MPI_COMM_NULL");
    support_mpi_expect(baton_group_create_mpi(NULL, MPI_COMM_WORLD, &none),
                       BATON_ERR_INVALID);
    if (world.size >= 2) {
        MPI_Comm half, inter;
        MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, world.rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - world.rank % 2, 3,
                             &inter);
        support_mpi_expect(baton_group_create_mpi(world.engine, inter, &none),
                           BATON_ERR_INVALID);
        support_mpi_says("intercommunicator");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    if (none != NULL) {
        support_mpi_die("a failed create wrote its result");
    }
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    support_mpi_ok(baton_engine_open(NULL, &world.engine));
    support_mpi_running = "wrong communicators";
    test_wrong_communicators_are_refused();
    open_group(true);
    support_mpi_running = "verify, a local error";
    test_verify_tells_of_a_local_error();
    support_mpi_ok(baton_group_destroy(world.group));
    open_group(false);
    if (world.size >= 2) {
        test_mismatch_is_an_error_on_both();
    }
    bool open_before = fcntl(0, F_GETFD) >= 0;
    support_mpi_end();
    support_mpi_check(!open_before || fcntl(0, F_GETFD) >= 0,
                      "a descriptor was closed that is not the library's");
    return 0;
}
