/* Errors of wrong input over MPI: a commit that fails on one rank with
   BATON_VERIFY=1, schedules that do not match, and wrong communicators. The
   exit code is the result. */
#include "base/config.h"
#include "support/mpi.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 60000

static int rank, size;
static baton_group_t *group;

/* The group of the tests that follow. */
static void open_group(baton_engine_t *engine, bool verify)
{
    setenv("BATON_VERIFY", verify ? "1" : "0", 1);
    baton__config_forget();
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
                       BATON_OK);
}

static baton_schedule_t *create(const char *name)
{
    baton_schedule_t *s;
    support_mpi_expect(baton_schedule_create(group, name, &s), BATON_OK);
    return s;
}

static baton_view_t bind(baton_schedule_t *s, void *memory, size_t bytes)
{
    return baton_view(baton_buffer_bind(s, memory, bytes), 0, bytes);
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
    const size_t *sizes = rank == 0 ? sends : receives;
    for (size_t i = 0; rank < 2 && sizes[i] != 0; i++) {
        baton_view_t view = bind(s, memory, sizes[i]);
        if (rank == 0) {
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
    int failing_rank = size - 1;
    baton_schedule_t *s = create("local");
    baton_node_t a = baton_add_nop(s), b = baton_add_nop(s);
    baton_before(s, a, b);
    if (rank == failing_rank) {
        baton_before(s, b, a);
    }
    support_mpi_expect(baton_schedule_commit(s), BATON_ERR_CYCLE);
    support_mpi_says("dependency cycle");
    if (rank != failing_rank || size == 1) {
        char text[64];
        snprintf(text, sizeof(text), "failed on all ranks: rank %d",
                 failing_rank);
        support_mpi_says(text);
    }
    support_mpi_expect(baton_schedule_destroy(s), BATON_OK);
    support_mpi_healthy(group);

    s = create("sticky");
    if (rank == failing_rank) {
        (void)baton_add_send(s, size, bind(s, NULL, 0));
    }
    support_mpi_expect(baton_schedule_commit(s), BATON_ERR_INVALID);
    support_mpi_says("\"sticky\"");
    support_mpi_expect(baton_schedule_destroy(s), BATON_OK);
    support_mpi_healthy(group);
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
        support_mpi_expect(baton_schedule_commit(s), BATON_OK);
        baton_status_t status = baton_schedule_start(s);
        if (rank < 2 && status == BATON_OK) {
            support_mpi_expect(baton_schedule_wait(s, WAIT_MS),
                               BATON_ERR_MISMATCH);
        } else {
            support_mpi_expect(status, rank < 2 ? BATON_ERR_FAILED : BATON_OK);
        }
        if (rank < 2) {
            support_mpi_says("\"unverified\" on rank");
            support_mpi_says("differ");
            support_mpi_says("BATON_VERIFY=1");
            support_mpi_expect(baton_schedule_start(s), BATON_ERR_FAILED);
        } else {
            support_mpi_expect(baton_schedule_wait(s, WAIT_MS), BATON_OK);
        }
        support_mpi_expect(baton_schedule_destroy(s), BATON_OK);
        support_mpi_healthy(group);
    }
}

/* ---- the groups' own -------------------------------------------------- */

static void test_wrong_communicators_are_refused(baton_engine_t *engine)
{
    baton_group_t *none = NULL;
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_NULL, &none),
                       BATON_ERR_INVALID);
    support_mpi_says("MPI_COMM_NULL");
    support_mpi_expect(baton_group_create_mpi(NULL, MPI_COMM_WORLD, &none),
                       BATON_ERR_INVALID);
    if (size >= 2) {
        MPI_Comm half, inter;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 3, &inter);
        support_mpi_expect(baton_group_create_mpi(engine, inter, &none),
                           BATON_ERR_INVALID);
        support_mpi_says("intercommunicator");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    if (none != NULL) {
        support_mpi_die("a failed create wrote its result");
    }
}

static void run_all(void)
{
    baton_engine_t *engine;
    support_mpi_expect(baton_engine_open(NULL, &engine), BATON_OK);
    support_mpi_running = "wrong communicators";
    test_wrong_communicators_are_refused(engine);
    open_group(engine, true);
    support_mpi_running = "verify, a local error";
    test_verify_tells_of_a_local_error();
    support_mpi_expect(baton_group_destroy(group), BATON_OK);
    open_group(engine, false);
    if (size >= 2) {
        test_mismatch_is_an_error_on_both();
    }
    support_mpi_running = "end";
    bool open_before = fcntl(0, F_GETFD) >= 0;
    support_mpi_expect(baton_group_destroy(group), BATON_OK);
    support_mpi_expect(baton_engine_close(engine), BATON_OK);
    if (open_before && fcntl(0, F_GETFD) < 0) {
        support_mpi_die("a descriptor was closed that is not the library's");
    }
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    run_all();
    if (rank == 0) {
        printf("mpi_errors: %d ranks, all as it should be\n", size);
    }
    MPI_Finalize();
    return 0;
}
