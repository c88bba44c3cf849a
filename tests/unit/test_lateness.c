/* Which rank is late. A rank that must be late waits until the others have
   come, and then eight times as long as that took. So it is clearly late, even
   on a loaded machine. */
#include "base/clock.h"
#include "progress/state/board.h"
#include "support/cluster.h"

#include <baton/coll.h>
#include <baton/lateness.h>
#include <baton/store.h>

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 5, EPOCHS = 16, DELAY_NS = 20000000 };

/* ---- ranks that are late ------------------------------------------------- */

/* Returns the ranks that are late in an epoch, as bits. */
typedef unsigned late_fn(int size, int epoch);

typedef struct world {
    late_fn *late;
    int schedules; /* ranks are late only in the last one */
    int epochs;
    /* The counts, by the schedule's number and the rank. */
    baton_lateness_t of[2][MOST_RANKS];
    baton_lateness_t all[MOST_RANKS]; /* by rank: the counts of the group */
} world_t;

/* Waits until all ranks that are not in `late` have come, and then longer. */
static bool come_late(support_worker_t *worker,
                      const baton_schedule_t *schedule, unsigned late,
                      uint64_t epoch)
{
    uint64_t began_ns = baton__clock_ns();
    for (int rank = 0; rank < worker->cluster->size; rank++) {
        baton_lateness_t of = {0};
        while ((late >> rank & 1) == 0 && of.started < epoch) {
            baton_status_t status =
                baton_schedule_lateness(schedule, rank, &of);
            if (status != BATON_ERR_UNSUPPORTED &&
                !support_worker_ok(worker, status)) {
                return false;
            }
            sched_yield();
        }
    }
    uint64_t delay_ns = 8 * (baton__clock_ns() - began_ns);
    delay_ns = delay_ns > DELAY_NS ? delay_ns : DELAY_NS;
    (void)nanosleep(&(struct timespec){(time_t)(delay_ns / 1000000000),
                                       (long)(delay_ns % 1000000000)},
                    NULL);
    return true;
}

static void run_late(support_worker_t *worker)
{
    world_t *world = worker->arg;
    baton_schedule_t *s[2] = {NULL};
    uint64_t sum = 1;
    for (int i = 0; i < world->schedules; i++) {
        const baton_operands_t of = {
            .target = &sum, .count = 1, .dtype = BATON_U64, .op = BATON_MAX};
        if (!support_worker_ok(
                worker, baton_allreduce_create(worker->group, &of, &s[i]))) {
            return;
        }
    }
    for (int epoch = 1; epoch <= world->epochs; epoch++) {
        for (int i = 0; i < world->schedules; i++) {
            unsigned late = world->late != NULL && i == world->schedules - 1
                                ? world->late(worker->cluster->size, epoch)
                                : 0;
            if (((late >> worker->rank & 1) != 0 &&
                 !come_late(worker, s[i], late, (uint64_t)epoch)) ||
                !support_worker_run(worker, s[i])) {
                return;
            }
        }
    }
    for (int i = 0; i < world->schedules; i++) {
        (void)support_worker_ok(
            worker, baton_schedule_lateness(s[i], worker->rank,
                                            &world->of[i][worker->rank]));
    }
    (void)support_worker_ok(worker,
                            baton_group_lateness(worker->group, worker->rank,
                                                 &world->all[worker->rank]));
    for (int i = 0; i < world->schedules; i++) {
        (void)support_worker_ok(worker, baton_schedule_destroy(s[i]));
    }
}

static uint64_t sum_of(const uint64_t *bins, size_t from)
{
    uint64_t sum = 0;
    for (size_t i = from; i < BATON_LATENESS_BINS; i++) {
        sum += bins[i];
    }
    return sum;
}

static unsigned rank_1(int size, int epoch)
{
    return 1 << 1;
}

static unsigned ranks_1_and_3(int size, int epoch)
{
    return 1 << 1 | 1 << 3;
}

static unsigned each_in_turn(int size, int epoch)
{
    return 1U << epoch % size;
}

static void check_one_is_late(support_cluster_t *cluster)
{
    int late[MOST_RANKS];
    world_t world = {.late = rank_1, .schedules = 1, .epochs = EPOCHS};
    support_cluster_run(cluster, run_late, &world);
    const baton_lateness_t *of = &world.of[0][1];
    assert_int_equal(baton_lateness_find(world.of[0], cluster->size, late), 1);
    assert_int_equal(late[0], 1);
    assert_int_equal(of->timed, EPOCHS);
    assert_int_equal(of->last, EPOCHS);
    assert_true(of->late_ns >= of->behind_ns);
    assert_true(of->behind_ns >= (uint64_t)EPOCHS * DELAY_NS);
    /* 20 ms are more than 2^14 us */
    assert_int_equal(sum_of(of->late_bins, 15), EPOCHS);
    assert_int_equal(sum_of(of->late_bins, 0), EPOCHS);
    for (int rank = 0; rank < cluster->size; rank++) {
        of = &world.of[0][rank];
        assert_int_equal(of->epochs, EPOCHS);
        assert_int_equal(of->started, EPOCHS);
        assert_int_equal(of->ended, EPOCHS);
        assert_int_equal(of->failed + of->missed, 0);
        assert_true(of->bytes > 0);
        assert_true(of->took_ns >= of->waited_ns);
        assert_true(rank == 1 || of->last == 0);
        assert_true(rank == 1 || of->waited_ns >= (uint64_t)EPOCHS * DELAY_NS);
        assert_memory_equal(of, &world.all[rank],
                            offsetof(baton_lateness_t, started));
        assert_memory_equal(of->late_bins, world.all[rank].late_bins,
                            sizeof of->late_bins);
    }
}

TEST_WITH(test_lateness_names_one_of_two, 2, SUPPORT_OWN_ENGINES)
{
    check_one_is_late(cluster);
}

TEST_WITH(test_lateness_names_one_of_five, 5, SUPPORT_OWN_ENGINES)
{
    check_one_is_late(cluster);
}

TEST_WITH(test_lateness_names_two, 4, SUPPORT_OWN_ENGINES)
{
    int late[MOST_RANKS];
    world_t world = {.late = ranks_1_and_3, .schedules = 1, .epochs = EPOCHS};
    support_cluster_run(cluster, run_late, &world);
    assert_int_equal(baton_lateness_find(world.of[0], 4, late), 2);
    assert_int_equal(late[0] + late[1], 4);
    /* If both ranks came in the same nanosecond, neither of them was the
       last. */
    assert_in_range(world.of[0][1].last + world.of[0][3].last, EPOCHS - 1,
                    EPOCHS);
}

TEST_WITH(test_lateness_names_none_where_each_is_late_in_turn, 3,
          SUPPORT_OWN_ENGINES)
{
    int late[MOST_RANKS];
    world_t world = {.late = each_in_turn, .schedules = 1, .epochs = 18};
    support_cluster_run(cluster, run_late, &world);
    assert_int_equal(baton_lateness_find(world.of[0], 3, late), 0);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(world.of[0][rank].last, 6);
    }
}

/* A group's counts are those of its schedules. */
TEST_WITH(test_lateness_is_counted_by_schedule, 3, SUPPORT_OWN_ENGINES)
{
    int late[MOST_RANKS];
    world_t world = {.late = rank_1, .schedules = 2, .epochs = EPOCHS};
    support_cluster_run(cluster, run_late, &world);
    assert_int_equal(baton_lateness_find(world.of[1], 3, late), 1);
    assert_int_equal(late[0], 1);
    assert_int_equal(world.of[1][1].last, EPOCHS);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(world.all[rank].epochs, 2 * EPOCHS);
        assert_int_equal(world.all[rank].late_ns,
                         world.of[0][rank].late_ns + world.of[1][rank].late_ns);
    }
}

/* Not every fast epoch is timed. But an epoch that is timed is timed by all
   ranks. */
static void check_none_is_late(support_cluster_t *cluster)
{
    int late[MOST_RANKS];
    for (int i = 0; i < 10; i++) {
        world_t world = {.schedules = 1, .epochs = 2000};
        support_cluster_run(cluster, run_late, &world);
        int found = baton_lateness_find(world.of[0], cluster->size, late);
        for (int k = 0; k < found; k++) {
            print_error("rank %d is named\n", late[k]);
        }
        assert_int_equal(found, 0);
        for (int rank = 0; rank < cluster->size; rank++) {
            assert_int_equal(world.of[0][rank].epochs, 2000);
            assert_true(world.of[0][rank].timed >= 1);
        }
    }
}

TEST_WITH(test_lateness_names_none_of_two, 2, SUPPORT_OWN_ENGINES)
{
    check_none_is_late(cluster);
}

TEST_WITH(test_lateness_names_none_of_four, 4, SUPPORT_OWN_ENGINES)
{
    check_none_is_late(cluster);
}

/* ---- other epochs -------------------------------------------------------- */

static baton_status_t fail_third(void *arg, baton_call_t *call)
{
    return baton_call_epoch(call) % 3 == 0 ? BATON_ERR_LIMIT : BATON_OK;
}

TEST_EACH(test_lateness_of_one_rank_whose_epochs_fail, 1)
{
    baton_lateness_t of;
    int late[1];
    baton_schedule_t *s = support_schedule(cluster->groups[0], "failing");
    (void)baton_add_call(s, fail_third, NULL);
    support_fails(baton_schedule_lateness(s, 0, &of), BATON_ERR_STATE,
                  "\"failing\" is not committed");
    support_ok(baton_schedule_commit(s));
    for (int epoch = 1; epoch <= 30; epoch++) {
        support_ok(baton_schedule_start(s));
        support_ends(s, epoch % 3 == 0 ? BATON_ERR_LIMIT : BATON_OK);
    }
    support_ok(baton_schedule_lateness(s, 0, &of));
    assert_int_equal(of.epochs, 30);
    assert_int_equal(of.failed, 10);
    assert_int_equal(of.ended, 30);
    assert_true(of.timed >= 1 && of.timed <= 20);
    assert_int_equal(of.late_ns + of.last + of.waited_ns, 0);
    assert_int_equal(baton_lateness_find(&of, 1, late), 0);
    support_fails(baton_schedule_lateness(s, 1, &of), BATON_ERR_INVALID,
                  "rank is 1; allowed: 0 to 0");
    support_fails(baton_group_lateness(cluster->groups[0], -1, &of),
                  BATON_ERR_INVALID, "rank is -1");
    support_ok(baton_schedule_destroy(s));
}

/* Rank 0 begins the epochs, even on rank 1, whose application takes part in
   none. */
TEST_MANUALLY(test_lateness_counts_epochs_that_ended_before_a_rank_came, 2)
{
    baton_schedule_t **s = support_schedules_create(cluster, "partial");
    baton_lateness_t of;
    for (int i = 0; i < 2; i++) {
        (void)baton_add_activation(s[i], baton_add_on_start(s[i]));
    }
    support_schedules_commit(cluster, s);
    for (int epoch = 1; epoch <= 5; epoch++) {
        support_run(s[0]);
        support_drain(cluster);
    }
    support_ok(baton_schedule_lateness(s[0], 1, &of));
    assert_int_equal(of.epochs, 5);
    assert_int_equal(of.missed, 5);
    assert_int_equal(of.started, 0);
    assert_int_equal(of.ended, 5);
    support_ok(baton_schedule_lateness(s[1], 0, &of));
    assert_int_equal(of.missed, 0);
    assert_int_equal(of.started, 5);
    /* Rank 0 waits in none of these epochs. */
    assert_int_equal(of.timed + of.elapsed_epochs, 0);
    support_schedules_destroy(cluster, s);
}

/* Rank 0 has waited for rank 1, but not for rank 2, which starts only after the
   end of rank 0's epoch. */
TEST_MANUALLY(test_lateness_counts_no_wait_for_who_comes_later, 3)
{
    baton_schedule_t **s = support_schedules_create(cluster, "uneven");
    baton_lateness_t of;
    support_message(s, 1, 0, NULL, NULL, 0);
    support_message(s, 0, 2, NULL, NULL, 0);
    support_schedules_commit(cluster, s);
    for (int i = 0; i < 6; i++) {
        support_ok(baton_schedule_start(s[i % 3]));
        support_drain(cluster);
        (void)usleep(i % 3 == 1 ? DELAY_NS / 1000 : 0);
    }
    support_ok(baton_schedule_lateness(s[0], 0, &of));
    /* The first epoch was timed when the second one began. */
    assert_int_equal(of.timed, 1);
    assert_true(of.waited_ns > 0 && of.waited_ns <= of.took_ns);
    support_schedules_destroy(cluster, s);
}

/* When a schedule is destroyed, another one gets its place. */
TEST_MANUALLY(test_lateness_is_counted_for_128_schedules, 1)
{
    baton_schedule_t *s[129];
    baton_lateness_t of;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 129; i++) {
            s[i] = support_schedule(cluster->groups[0], "one");
            support_ok(baton_schedule_commit(s[i]));
            support_run(s[i]);
        }
        support_ok(baton_schedule_lateness(s[127], 0, &of));
        assert_int_equal(of.epochs, 1);
        support_fails(baton_schedule_lateness(s[128], 0, &of),
                      BATON_ERR_UNSUPPORTED, "had 128 other schedules");
        for (int i = 0; i < 129; i++) {
            support_ok(baton_schedule_destroy(s[i]));
        }
    }
    support_ok(baton_group_lateness(cluster->groups[0], 0, &of));
    assert_int_equal(of.epochs, 0);
}

/* A forked child counts nothing, and its calls return errors. */
TEST_MANUALLY(test_lateness_is_unknown_in_a_forked_child, 1)
{
    baton_lateness_t of;
    int status;
    baton_schedule_t *s = support_schedule(cluster->groups[0], "own");
    support_ok(baton_schedule_commit(s));
    support_run(s);
    pid_t child = fork();
    if (child == 0) {
        _exit(baton_schedule_start(s) == BATON_ERR_STATE &&
              baton_schedule_lateness(s, 0, &of) == BATON_ERR_STATE);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    support_ok(baton_schedule_lateness(s, 0, &of));
    assert_int_equal(of.epochs, 1);
    support_ok(baton_schedule_destroy(s));
}

/* ---- other processes ----------------------------------------------------- */

enum { JOB_RANKS = 3, JOB_LATE = 1 };

static void job_ok(baton_status_t status)
{
    if (status != BATON_OK) {
        (void)fprintf(stderr, "%s\n", baton_error_message());
        _exit(1);
    }
}

/* Runs a rank of a job in which rank 1 is late, until the process is killed.
   The last rank waits for ever in a schedule that no other rank has, in a group
   in which it has another number. Another group has a schedule of the same
   name. */
static void run_job(const char *folder, const char *name, int rank)
{
    baton_engine_t *engine;
    baton_group_t *group, *pair, *again;
    baton_schedule_t *s, *more;
    baton_store_t store;
    uint64_t sum = 1;
    const baton_operands_t of = {.target = &sum,
                                 .count = 1,
                                 .dtype = BATON_U64,
                                 .op = BATON_MAX,
                                 .name = name};
    (void)alarm(120);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    job_ok(baton_engine_open(NULL, &engine));
    job_ok(baton_store_open_folder(folder, &store));
    job_ok(baton_group_create_store(engine, &store, rank, JOB_RANKS, "job",
                                    60000, &group));
    job_ok(baton_allreduce_create(group, &of, &s));
    job_ok(baton_group_create_store(engine, &store, rank, JOB_RANKS, "again",
                                    60000, &again));
    job_ok(baton_allreduce_create(again, &of, &more));
    if (rank > 0) {
        job_ok(baton_group_create_sub(group, (int[]){1, 2}, 2, "pair", &pair));
    }
    if (rank == JOB_RANKS - 1) {
        job_ok(baton_allreduce_create(pair, &of, &more));
        job_ok(baton_schedule_start(more));
    }
    for (uint64_t epoch = 1;; epoch++) {
        for (int other = 0; rank == JOB_LATE && other < JOB_RANKS; other++) {
            baton_lateness_t seen = {0};
            while (other != rank && seen.started < epoch) {
                (void)!baton_schedule_lateness(s, other, &seen);
                sched_yield();
            }
        }
        if (rank == JOB_LATE) {
            (void)usleep(DELAY_NS / 1000);
        }
        job_ok(baton_schedule_start(s));
        job_ok(baton_schedule_wait(s, -1));
    }
}

static FILE *open_top(const char *options, long process)
{
    char command[300];
    assert_in_range(snprintf(command, sizeof command, "%s %s %ld 2>&1",
                             getenv("BATON_X_TOP"), options, process),
                    1, sizeof command - 1);
    FILE *top = popen(command, "r");
    assert_non_null(top);
    return top;
}

/* Searches the JSON that baton-top prints for the next "job". Returns its
   number, or 0 at the end. */
static long job_of(FILE *top)
{
    char line[2000];
    long job = 0;
    while (job == 0 && fgets(line, sizeof line, top) != NULL) {
        (void)sscanf(line, "{\"job\": %ld", &job);
    }
    return job;
}

/* Runs baton-top, stores what it prints, and returns its exit status. */
static int run_top(const char *options, long process, char *out, size_t bytes)
{
    FILE *top = open_top(options, process);
    size_t got = fread(out, 1, bytes - 1, top);
    out[got] = '\0';
    int status = pclose(top);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Checks that the metrics of a job are printed, and replace an existing
   file. */
static void check_metrics(const char *folder, const pid_t *ranks)
{
    char text[40000];
    char words[300];
    (void)snprintf(words, sizeof words, "--once --prometheus %s/job.prom",
                   folder);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_top(words, ranks[0], text, sizeof text), 0);
        assert_string_equal(text, "");
    }
    (void)snprintf(words, sizeof words, "%s/job.prom", folder);
    FILE *file = fopen(words, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    (void)snprintf(words, sizeof words,
                   "\n# TYPE baton_late_seconds_total counter\n"
                   "baton_late_seconds_total{job_process=\"%d\","
                   "schedule=\"steps \\\"1\\\"\",key=\"",
                   (int)ranks[0]);
    assert_non_null(strstr(text, words));
    (void)snprintf(words, sizeof words, "rank=\"2\",ranks=\"3\",process=\"%d\"",
                   (int)ranks[2]);
    assert_non_null(strstr(text, words));
    (void)snprintf(words, sizeof words, "--once --prometheus %s/no/job.prom",
                   folder);
    assert_int_equal(run_top(words, ranks[0], text, sizeof text), 1);
    assert_non_null(strstr(text, "/no/job.prom: No such file"));
}

TEST(test_lateness_is_seen_from_another_process)
{
    char folder[] = "/tmp/test_lateness.XXXXXX";
    char text[8000] = "";
    pid_t ranks[JOB_RANKS];
    baton_board_t *board = NULL, *again;
    baton_board_entry_t entry = {0}, same = {0};
    if (getenv("BATON_X_TOP") == NULL) {
        skip();
    }
    /* This is a FIFO to which no process writes. */
    (void)snprintf(text, sizeof text, "/dev/shm/test_lateness.%d", getpid());
    assert_int_equal(mkfifo(text, 0600), 0);
    int fifo = open(text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fifo >= 0 && unlink(text) == 0);
    support_fails(baton_board_open((int)getpid(), 0, &board), BATON_ERR_INVALID,
                  "has no group of several processes");
    (void)close(fifo);
    assert_int_equal(run_top("--once", getpid(), text, sizeof text), 1);
    assert_non_null(strstr(text, "has no group of several processes"));
    assert_non_null(mkdtemp(folder));
    for (int rank = 0; rank < JOB_RANKS; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] == 0) {
            run_job(folder, "steps \"1\"", rank);
        }
    }
    /* At first there is no group, and then there are too few epochs. */
    while (run_top("--once --json", ranks[2], text, sizeof text) != 0 ||
           strstr(text, "rank 1 is late by") == NULL) {
        assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
    }
    assert_non_null(strstr(text, "of \\\"steps"));
    assert_non_null(strstr(text, "\n  {\"rank\": 1, "));
    assert_non_null(strstr(text, "{\"schedule\": \"steps"));
    assert_int_equal(run_top("--once --job", ranks[0], text, sizeof text), 0);
    assert_non_null(strstr(text, "3 ranks on this host"));
    assert_non_null(strstr(text, "rank 2 waits, and all ranks that have it"));
    check_metrics(folder, ranks);
    support_ok(baton_board_open((int)ranks[0], 0, &board));
    support_ok(baton_board_open((int)ranks[0], 1, &again));
    assert_true(baton_board_next(board, &(size_t){0}, &entry) &&
                baton_board_next(again, &(size_t){0}, &same));
    assert_true(entry.key != same.key);
    baton_board_close(again);
    do { /* the process may have been stopped in an epoch */
        (void)kill(ranks[JOB_LATE], SIGCONT);
        (void)usleep(DELAY_NS / 1000);
        (void)kill(ranks[JOB_LATE], SIGSTOP);
        assert_int_equal(run_top("--once", ranks[0], text, sizeof text), 0);
    } while (strstr(text, "2 ranks wait for rank 1, which has not come") ==
             NULL);
    size_t at = 0;
    FILE *top = open_top("--json -i 0.1", ranks[0]);
    long job = job_of(top);
    assert_int_equal(job, ranks[0]);
    for (int rank = 0; rank < JOB_RANKS; rank++) {
        (void)kill(ranks[rank], SIGKILL);
        assert_int_equal(waitpid(ranks[rank], NULL, 0), ranks[rank]);
        /* Baton-top goes on with another process of the job. */
        while (job == ranks[0]) {
            job = job_of(top);
        }
        assert_true(job != 0);
        /* The counts of a process that has ended can still be read. */
        assert_true(baton_board_next(board, &at, &entry));
        assert_int_equal(entry.rank, rank);
        assert_int_equal(entry.size, JOB_RANKS);
        assert_int_equal(entry.process, ranks[rank]);
        assert_string_equal(entry.name, "steps \"1\"");
        assert_true(entry.lateness.timed >= BATON_LATENESS_LEAST);
    }
    assert_true(baton_board_next(board, &at, &entry));
    /* the number of this rank in the group "pair" */
    assert_int_equal(entry.rank, 1);
    assert_false(baton_board_next(board, &at, &entry));
    baton_board_close(board);
    /* Baton-top ends when all processes have ended. */
    while (job_of(top) != 0) {
    }
    assert_int_equal(pclose(top), 0);
    (void)snprintf(text, sizeof text, "rm -r %s", folder);
    assert_int_equal(system(text), 0);
}

/* Reads this process's board. Returns the rows that have entries, as bits. */
static unsigned read_rows(void)
{
    baton_board_t *board = NULL;
    baton_board_entry_t got = {0};
    unsigned rows = 0;
    support_ok(baton_board_open((int)getpid(), 0, &board));
    for (size_t at = 0; baton_board_next(board, &at, &got);) {
        const int row = got.rank;
        baton_board_entry_t is = {.rank = row,
                                  .size = 9,
                                  .process = row + 100,
                                  .container = 7,
                                  .key = 40 + (uint64_t)row};
        memset(is.name, 'a' + row, sizeof is.name - 1);
        is.lateness.started = is.came[row] = 5;
        assert_memory_equal(&got, &is, sizeof got);
        rows |= 1U << row;
        memset(&got, 0, sizeof got);
    }
    baton_board_close(board);
    return rows;
}

/* The file has three rows and a part of another one. */
TEST(test_lateness_is_read_from_a_file)
{
    enum { ROWS = 3 };
    const int own = (int)getpid();
    char path[64];
    baton_board_t *board = NULL;
    (void)snprintf(path, sizeof path, "/dev/shm/test_lateness.%d", own);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(file >= 0 && unlink(path) == 0);
    char *memory = mmap(NULL, (size_t)ROWS * BATON_BOARD_BYTES,
                        PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    for (int bytes = BATON_BOARD_BYTES - 1; bytes < 300000; bytes += 180000) {
        assert_int_equal(ftruncate(file, bytes), 0);
        support_fails(baton_board_open(own, 0, &board), BATON_ERR_INVALID,
                      "has no group of several processes");
    }
    baton__row_t *rows[ROWS];
    for (int i = 0; i < ROWS; i++) {
        baton__row_t *row = (void *)(memory + (size_t)i * BATON_BOARD_BYTES);
        baton__slot_t *slot = &row->slots[127 - i];
        *slot = (baton__slot_t){.rank = i, .size = 9};
        memset(slot->name, 'a' + i, sizeof slot->name);
        *BATON__COUNT(slot, started) = slot->starts[i] = 5;
        row->keys[127 - i] = 40 + (uint64_t)i;
        row->format = BATON__BOARD_FORMAT;
        row->process = 100 + i;
        row->container = 7;
        row->magic = BATON__BOARD_MAGIC;
        rows[i] = row;
    }
    rows[0]->rows = 4;
    assert_int_equal(read_rows(), 7);
    rows[1]->magic = 0;
    assert_int_equal(read_rows(), 5);
    rows[0]->rows = 2;
    assert_int_equal(read_rows(), 1);
    support_fails(baton_board_open(own, 1, &board), BATON_ERR_INVALID,
                  "has no group of several processes with this index");
    rows[0]->format++;
    support_fails(baton_board_open(own, 0, &board), BATON_ERR_MISMATCH,
                  "runs another version of Baton");
    (void)munmap(memory, (size_t)ROWS * BATON_BOARD_BYTES);
    (void)close(file);
    support_fails(baton_board_open(INT_MAX, 0, &board), BATON_ERR_SYSTEM,
                  "process 2147483647: there is none");
}

/* Forks a process that is process 1 of a container. */
static pid_t fork_container(long flags)
{
    return (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD | flags, NULL, NULL,
                          NULL, NULL);
}

/* Gives this process, in a container, a /dev/shm of its own. */
static bool isolate(void)
{
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("shm", "/dev/shm", "tmpfs", 0, NULL) == 0;
}

/* Runs rank 0 of a job whose ranks are in containers, each with a /dev/shm of
   its own. The other ranks end with this one. */
static void run_contained_job(const char *folder, const char *name)
{
    if (!isolate()) {
        _exit(2);
    }
    for (int rank = 1; rank < JOB_RANKS; rank++) {
        if (fork_container(0) == 0) {
            run_job(folder, name, rank);
        }
    }
    run_job(folder, name, 0);
}

/* Two jobs in two containers: their processes have the same numbers, and their
   boards the same inode numbers. The name of the job is not valid text, and is
   cut off within a character. */
TEST(test_lateness_tells_containers_apart)
{
    char folders[][26] = {"/tmp/test_lateness.XXXXXX",
                          "/tmp/test_lateness.XXXXXX"};
    char text[8000] = "";
    pid_t jobs[2];
    baton_board_t *boards[2] = {NULL};
    int failed = 1;
    jobs[0] = geteuid() == 0 ? fork_container(CLONE_NEWNS) : -1;
    if (jobs[0] == 0) {
        _exit(!isolate());
    }
    /* isolate() may be forbidden inside a container or after a chroot. */
    if (jobs[0] > 0) {
        assert_int_equal(waitpid(jobs[0], &failed, 0), jobs[0]);
    }
    if (getenv("BATON_X_TOP") == NULL || failed != 0) {
        skip();
    }
    for (int i = 0; i < 2; i++) {
        assert_non_null(mkdtemp(folders[i]));
        jobs[i] = fork_container(CLONE_NEWNS);
        if (jobs[i] == 0) {
            run_contained_job(
                folders[i], "\033[31m\xff"
                            "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
                            "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
                            "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
                            "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9");
        }
    }
    for (int i = 0; i < 2; i++) {
        while (run_top("--once --json", jobs[i], text, sizeof text) != 0 ||
               strstr(text, "rank 1 is late by") == NULL) {
            assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
        }
        assert_non_null(strstr(text, "?[31m?\u00e9"));
        assert_non_null(strstr(text, "\u00e9?\\\""));
        assert_int_equal(run_top("--once", jobs[i], text, sizeof text), 0);
        assert_non_null(strstr(text, "3 ranks on this host"));
        support_ok(baton_board_open((int)jobs[i], 0, &boards[i]));
    }
    assert_true(baton_board_id(boards[0]) != baton_board_id(boards[1]));
    for (int i = 0; i < 2; i++) {
        baton_board_close(boards[i]);
        assert_int_equal(kill(jobs[i], SIGKILL), 0);
        (void)waitpid(jobs[i], NULL, 0);
        (void)snprintf(text, sizeof text, "rm -r %s", folders[i]);
        assert_int_equal(system(text), 0);
    }
}

/* ---- the rule ------------------------------------------------------------ */

TEST(test_lateness_quantiles_are_spread_in_bins)
{
    uint64_t bins[BATON_LATENESS_BINS] = {[0] = 10, [3] = 80, [23] = 10};
    assert_int_equal(baton_lateness_quantile_ns(bins, 0.1), 1000);
    assert_int_equal(baton_lateness_quantile_ns(bins, 0.5), 6000);
    assert_int_equal(baton_lateness_quantile_ns(bins, 0.9), 8000);
    assert_int_equal(baton_lateness_quantile_ns(bins, 0.91), UINT64_MAX);
}

/* Returns the counts of a rank that was 2^bin us late in 100 epochs of 1 ms,
   except for `early` of them. */
static baton_lateness_t was_late(size_t bin, uint64_t early)
{
    baton_lateness_t of = {.timed = 100,
                           .elapsed_ns = 100000000,
                           .elapsed_epochs = 100,
                           .late_ns = ((uint64_t)1000 << bin) * (100 - early),
                           .waited_ns = 1000000};
    of.late_bins[0] = early;
    of.late_bins[bin] += 100 - early;
    of.own_bins[6] = 100; /* its own work took 32 to 64 us */
    return of;
}

TEST(test_lateness_rule)
{
    int late[3];
    baton_lateness_t of[3] = {was_late(0, 0), was_late(8, 24), was_late(0, 0)};
    assert_int_equal(baton_lateness_find(of, 3, late), 1);
    assert_int_equal(late[0], 1);
    of[1] = was_late(8, 25); /* late in less than three of four epochs */
    assert_int_equal(baton_lateness_find(of, 3, late), 0);
    of[1] = was_late(7, 0); /* 80 us are not above 0.75 + 2 * 35.2 + 32 us */
    assert_int_equal(baton_lateness_find(of, 3, late), 0);
    of[1] = was_late(8, 0);
    of[0] = was_late(8, 0); /* only one of three ranks is early */
    assert_int_equal(baton_lateness_find(of, 3, late), 0);
    of[0] = of[2];
    of[0].waited_ns = of[2].waited_ns = 999999; /* less than 1 % of the time */
    assert_int_equal(baton_lateness_find(of, 3, late), 0);
    of[0].waited_ns = of[2].waited_ns = 1000000;
    of[1].timed = BATON_LATENESS_LEAST - 1;
    assert_int_equal(baton_lateness_find(of, 3, late), 0);
}
