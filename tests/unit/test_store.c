/* Groups that processes without MPI make through a store. Each rank is a child
   process. Its exit status is 0, or the line of the check that failed. */
#include "progress/driving/engine.h"
#include "support/cmocka.h"

#include <baton/baton.h>
#include <baton/memory.h>
#include <baton/store.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "transport/mpi/wire_ucx.c"

enum { MOST_RANKS = 24, COUNT = 300000 };

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            (void)fprintf(stderr, "%s:%d: rank %d: %s: %s\n", __FILE__,        \
                          __LINE__, rank, #condition, baton_error_message());  \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)
#define CHECK_OK(call)   CHECK((call) == BATON_OK)
#define CHECK_SAYS(text) CHECK(strstr(baton_error_message(), text) != NULL)

typedef void rank_program_t(int rank, int size, baton_engine_t *engine,
                            const baton_store_t *store);
typedef baton_status_t put_fn(void *context, const char *key, const void *value,
                              size_t bytes);
/* Defines a program, which may use the parameters above. */
#define PROGRAM(name)                                                          \
    static void name(int rank, int size, baton_engine_t *engine,               \
                     const baton_store_t *store)

/* The folder of the running test. */
static char folder[] = "/tmp/test_store.XXXXXX";

static int remove_file(const char *path, const struct stat *found, int type,
                       struct FTW *at)
{
    /* A rank may remove its record at the same time. */
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

static int make_folder(void **state)
{
    (void)snprintf(folder, sizeof folder, "/tmp/test_store.XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

/* Also removes the variables that a test may have set. */
static int remove_folder(void **state)
{
    static const char *const set[] = {"BATON_SHM", "BATON_CMA",
                                      "BATON_PEER_TIMEOUT_MS"};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        support_set_variable(set[i], NULL);
    }
    baton__engine_rechecks = false;
    return nftw(folder, remove_file, 8, FTW_DEPTH | FTW_PHYS);
}

/* Defines a test that has a folder. */
#define FOLDER_TEST(name) TEST_BETWEEN(name, make_folder, remove_folder)

static pid_t start_rank(rank_program_t *program, int rank, int size)
{
    pid_t child = fork();
    if (child == 0) {
        baton_engine_t *engine = NULL;
        baton_store_t store;
        (void)alarm(120);
        CHECK_OK(baton_engine_open(NULL, &engine));
        CHECK_OK(baton_store_open_folder(folder, &store));
        program(rank, size, engine, &store);
        baton_store_close_folder(&store);
        CHECK_OK(baton_engine_close(engine));
        _exit(0);
    }
    assert_true(child > 0);
    return child;
}

/* Runs `count` processes. Returns those that SIGKILL has killed, as bits. All
   others must succeed. */
static unsigned run_processes(rank_program_t *program, int count, int size)
{
    pid_t children[MOST_RANKS];
    unsigned killed = 0;
    for (int i = 0; i < count; i++) {
        children[i] = start_rank(program, i, size);
    }
    for (int i = 0; i < count; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
            killed |= 1U << i;
        } else {
            assert_int_equal(status, 0);
        }
    }
    return killed;
}

/* Runs a process for each rank. The rank `killed`, if any, must be killed. */
static void run_ranks(rank_program_t *program, int size, int killed)
{
    assert_int_equal(run_processes(program, size, size),
                     killed < 0 ? 0 : 1U << killed);
}

/* Defines a test that runs a program. */
#define STORE_TEST(name, program, size, killed)                                \
    FOLDER_TEST(name)                                                          \
    {                                                                          \
        run_ranks(program, size, killed);                                      \
    }

static baton_status_t put_inner(void *context, const char *key,
                                const void *value, size_t bytes)
{
    const baton_store_t *inner = context;
    return inner->put(inner->context, key, value, bytes);
}

static baton_status_t get_inner(void *context, const char *key, void *value,
                                size_t capacity, size_t *bytes_out)
{
    const baton_store_t *inner = context;
    return inner->get(inner->context, key, value, capacity, bytes_out);
}

/* Returns a store that calls `put` in place of the store's own function, which
   put_inner calls. */
static baton_store_t put_by(const baton_store_t *store, put_fn *put)
{
    return (baton_store_t){
        .context = (void *)(uintptr_t)store, .put = put, .get = get_inner};
}

static baton_group_t *make_group(baton_engine_t *engine,
                                 const baton_store_t *store, int rank, int size,
                                 const char *name)
{
    baton_group_t *group = NULL;
    CHECK_OK(baton_group_create_store(engine, store, rank, size, name, 60000,
                                      &group));
    return group;
}

__attribute__((format(printf, 1, 2))) static size_t
count_files(const char *pattern, ...)
{
    char path[100];
    glob_t found = {0};
    va_list values;
    va_start(values, pattern);
    (void)vsnprintf(path, sizeof path, pattern, values);
    va_end(values);
    const int status = glob(path, 0, NULL, &found);
    assert_true(status == 0 || status == GLOB_NOMATCH);
    const size_t count = found.gl_pathc;
    globfree(&found);
    return count;
}

/* Waits until another rank has called report(). */
static void wait_for_report(const baton_store_t *store)
{
    char byte;
    size_t bytes = 0;
    while (store->get(store->context, "report", &byte, 1, &bytes) ==
           BATON_AGAIN) {
        (void)usleep(1000);
    }
}

static void report(int rank, const baton_store_t *store)
{
    CHECK_OK(store->put(store->context, "report", "", 1));
}

/* Checks an all-reduce of short and of long vectors. */
static void check_sums(int rank, baton_group_t *group)
{
    static float vector[COUNT];
    const int size = baton_group_size(group);
    const int sum_of_ranks = size * (size - 1) / 2;
    for (int count = 1; count <= COUNT; count += COUNT - 1) {
        for (int i = 0; i < count; i++) {
            vector[i] = (float)(baton_group_rank(group) + i % 7);
        }
        CHECK_OK(baton_allreduce_now(group, NULL, vector, (size_t)count,
                                     BATON_F32, BATON_SUM));
        for (int i = 0; i < count; i++) {
            CHECK(vector[i] == (float)(size * (i % 7) + sum_of_ranks));
        }
    }
}

/* ---- groups that are made ------------------------------------------------ */

PROGRAM(sum)
{
    baton_group_t *group = make_group(engine, store, rank, size, "sum");
    CHECK(baton_group_rank(group) == rank && baton_group_size(group) == size);
    check_sums(rank, group);
    CHECK_OK(baton_group_destroy(group));
}

FOLDER_TEST(test_store_makes_groups)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        run_ranks(sum, sizes[i], -1);
        /* Only the last answer of rank 0 is left in the store. The next group
           has the same name. */
        assert_int_equal(count_files("%s/*", folder), 1);
    }
}

/* Sets BATON_PEER_TIMEOUT_MS to a second or, if the machine is loaded, to ten
   times as long as it now takes to make a group and to use it. */
static void set_short_timeout(void)
{
    struct timespec began, now;
    char text[24];
    (void)clock_gettime(CLOCK_MONOTONIC, &began);
    run_ranks(sum, 5, -1);
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const long ms = 10 * ((now.tv_sec - began.tv_sec) * 1000 +
                          (now.tv_nsec - began.tv_nsec) / 1000000);
    (void)snprintf(text, sizeof text, "%ld", ms > 1000 ? ms : 1000);
    support_set_variable("BATON_PEER_TIMEOUT_MS", text);
}

/* Ranks are soon asked whether they live, as in programs. */
static void ask_peers(void)
{
    set_short_timeout();
    baton__engine_rechecks = true;
}

FOLDER_TEST(test_store_ranks_may_not_read_each_other)
{
    support_set_variable("BATON_CMA", "0");
    run_ranks(sum, 3, -1);
}

/* A launcher sets variables that tell each process its rank and the number of
   processes. */
/* Names of the variables for rank, size, and ranks of a host. */
static const char *const *variables;

PROGRAM(find_world)
{
    char text[16];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(text, sizeof text, "%d", i == 0 ? rank : size);
        CHECK(setenv(variables[i], text, 1) == 0);
    }
    for (int i = 0; i < 2; i++) {
        baton_group_t *group = NULL;
        CHECK_OK(baton_group_create_world(engine, 60000, &group));
        CHECK(baton_group_rank(group) == rank);
        CHECK(baton_group_size(group) == size);
        check_sums(rank, group);
        CHECK_OK(baton_group_destroy(group));
    }
    if (size > 1) {
        /* Rank 0 of a larger world does not come. */
        baton_group_t *group = NULL;
        (void)snprintf(text, sizeof text, "%d", rank == 0 ? size : rank);
        CHECK(setenv(variables[0], text, 1) == 0);
        CHECK(setenv(variables[1], "4", 1) == 0);
        CHECK(unsetenv(variables[2]) == 0);
        CHECK(baton_group_create_world(engine, 300 + 100 * rank, &group) ==
              BATON_ERR_TIMEOUT);
        CHECK_SAYS("for rank 0. Ranks");
        (void)snprintf(text, sizeof text, "%d", rank);
        CHECK(setenv(variables[0], text, 1) == 0);
        CHECK(setenv(variables[1], "3", 1) == 0);
        CHECK(setenv(variables[2], "1(x2)", 1) == 0);
        CHECK(baton_group_create_world(engine, 60000, &group) ==
              BATON_ERR_INVALID);
        CHECK_SAYS("1 of the");
        CHECK_SAYS("set BATON_STORE to a folder that all hosts see");
        support_set_variable("BATON_STORE", folder);
        CHECK_OK(baton_group_create_world(engine, 60000, &group));
        check_sums(rank, group);
        CHECK_OK(baton_group_destroy(group));
    }
    if (size == 1) {
        CHECK(setenv(variables[1], "2", 1) == 0);
        CHECK(unsetenv(variables[2]) == 0);
        CHECK(baton_group_create_world(engine, 50, &(baton_group_t *){NULL}) ==
              BATON_ERR_TIMEOUT);
        CHECK_SAYS(
            "for rank 1. Ranks that a shell starts must be its children");
    }
    CHECK(setenv(variables[0], "3x", 1) == 0);
    CHECK(baton_group_create_world(engine, 60000, &(baton_group_t *){NULL}) ==
          BATON_ERR_INVALID);
    CHECK_SAYS("is \"3x\", and");
    CHECK(unsetenv(variables[0]) == 0);
    baton_group_t *alone = NULL;
    CHECK_OK(baton_group_create_world(engine, 60000, &alone));
    CHECK(baton_group_size(alone) == 1);
    CHECK_OK(baton_group_destroy(alone));
}

FOLDER_TEST(test_store_launchers_make_the_world)
{
    static const char *const launchers[][3] = {
        {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
         "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"}};
    for (int i = 0; i < 4; i++) {
        variables = launchers[i];
        run_ranks(find_world, 3, -1);
    }
    variables = launchers[0];
    run_ranks(find_world, 1, -1);
    assert_int_equal(count_files("/tmp/baton-*.%d.*", (int)getpid()), 0);
}

/* Rank 0 removes the folder as soon as it has the group, while another rank
   still waits for the last answer. */
static baton_status_t get_late(void *context, const char *key, void *value,
                               size_t capacity, size_t *bytes_out)
{
    (void)usleep(20000);
    return get_inner(context, key, value, capacity, bytes_out);
}

PROGRAM(leave_early)
{
    baton_group_t *group = NULL;
    baton_store_t slow = put_by(store, put_inner);
    slow.get = get_late;
    CHECK_OK(baton_group_create_store(engine, rank == 1 ? &slow : store, rank,
                                      size, "leave", 60000, &group));
    if (rank == 0) {
        CHECK(nftw(folder, remove_file, 8, FTW_DEPTH | FTW_PHYS) == 0);
    }
    check_sums(rank, group);
    CHECK_OK(baton_group_destroy(group));
}

TEST_BETWEEN(test_store_is_removed_by_rank_0, make_folder, NULL)
{
    time_t before = time(NULL);
    run_ranks(leave_early, 3, -1);
    assert_true(time(NULL) - before < 20);
}

/* Each rank destroys two groups, and one that was made of the first of them, in
   an order of its own. Of three ranks, one is killed meanwhile. */
PROGRAM(leave_in_any_order)
{
    const int ranks[] = {0, 1, 2, 3};
    baton_group_t *first = make_group(engine, store, rank, size, "first");
    baton_group_t *second = make_group(engine, store, rank, size, "second");
    baton_group_t *part;
    CHECK_OK(baton_group_create_sub(first, ranks, size, "part", &part));
    support_set_variable("BATON_DESTROY_MS", "86400000");
    CHECK_OK(baton_group_destroy(rank == 0 ? first : NULL));
    if (size == 4) {
        check_sums(rank, second);
        check_sums(rank, part);
    } else if (rank == 2) {
        (void)raise(SIGKILL);
    }
    CHECK_OK(baton_group_destroy(rank % 2 == 1 ? second : NULL));
    CHECK_OK(baton_group_destroy(rank == 0 ? NULL : first));
    CHECK_OK(baton_group_destroy(part));
    CHECK_OK(baton_group_destroy(rank % 2 == 1 ? NULL : second));
}

STORE_TEST(test_store_groups_are_left_in_any_order, leave_in_any_order, 4, -1)
STORE_TEST(test_store_rank_dies_while_others_leave, leave_in_any_order, 3, 2)

/* A rank is killed in the middle of its work: the others get an error that
   names it, and shrink the group. */
PROGRAM(lose)
{
    baton_group_t *group = make_group(engine, store, rank, size, "lose");
    baton_group_t *survivors = NULL;
    float one = 1;
    check_sums(rank, group);
    if (rank == 1) {
        (void)raise(SIGKILL);
    }
    CHECK(baton_allreduce_now(group, NULL, &one, 1, BATON_F32, BATON_SUM) ==
          BATON_ERR_TRANSPORT);
    CHECK_SAYS("rank 1");
    CHECK_OK(baton_group_shrink(group, 60000, &survivors));
    CHECK(baton_group_size(survivors) == size - 1);
    check_sums(rank, survivors);
    CHECK_OK(baton_group_destroy(survivors));
    CHECK_OK(baton_group_destroy(group));
}

STORE_TEST(test_store_groups_lose_a_rank, lose, 4, 1)

/* A rank is stopped until the others have lost it, have shrunk the group, and
   have left the old one. When it continues it does not go on by itself. */
static int stopped;
/* The other ranks end only after the stopped rank has ended. */
static bool stays;

PROGRAM(leave_behind)
{
    baton_group_t *group = make_group(engine, store, rank, size, "stop");
    baton_group_t *survivors = NULL;
    int32_t processes[3] = {0};
    processes[rank] = (int32_t)getpid();
    CHECK_OK(
        baton_allreduce_now(group, NULL, processes, 3, BATON_I32, BATON_SUM));
    if (rank == stopped) {
        (void)raise(SIGSTOP);
    }
    CHECK(baton_barrier_now(group) == BATON_ERR_TRANSPORT);
    if (rank == stopped) {
        CHECK(baton_group_shrink(group, 60000, &survivors) ==
              BATON_ERR_TRANSPORT);
        CHECK_SAYS("other ranks have lost this one, and go on without it");
        report(rank, store);
    } else {
        CHECK_OK(baton_group_shrink(group, 60000, &survivors));
        CHECK(baton_group_size(survivors) == size - 1);
        CHECK_OK(baton_group_destroy(group));
        check_sums(rank, survivors);
        CHECK_OK(baton_group_destroy(survivors));
        (void)kill(processes[stopped], SIGCONT);
        if (stays) {
            wait_for_report(store);
        }
        group = NULL;
    }
    CHECK_OK(baton_group_destroy(group));
}

FOLDER_TEST(test_store_a_stopped_rank_does_not_go_on_alone)
{
    static const struct {
        int size, stopped;
        bool stays;
        const char *shm;
    } cases[] = {{2, 0, true, "1"},
                 {3, 2, false, "1"},
#ifdef BATON_UCX
                 {2, 0, false, "0"},
#endif
                 {3, 0, true, "1"}};
    ask_peers();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stopped = cases[i].stopped;
        stays = cases[i].stays;
        support_set_variable("BATON_SHM", cases[i].shm);
        run_ranks(leave_behind, cases[i].size, -1);
        char path[64];
        (void)snprintf(path, sizeof path, "%s/report", folder);
        (void)unlink(path);
    }
}

/* Ranks 1 to size - 1 are stopped until rank 0 has lost them and has gone on.
   Then they continue together. They can reach each other, but must not go on,
   either. */
PROGRAM(wake_together)
{
    baton_group_t *group = make_group(engine, store, rank, size, "wake");
    baton_group_t *alone = NULL;
    int32_t processes[8] = {0};
    processes[rank] = (int32_t)getpid();
    CHECK_OK(
        baton_allreduce_now(group, NULL, processes, 8, BATON_I32, BATON_SUM));
    if (rank > 0) {
        (void)raise(SIGSTOP);
        CHECK(baton_group_shrink(group, 60000, &alone) == BATON_ERR_TRANSPORT);
        CHECK_SAYS("other ranks have lost this one, and go on without it");
    } else {
        CHECK(baton_barrier_now(group) == BATON_ERR_TRANSPORT);
        CHECK_OK(baton_group_shrink(group, 60000, &alone));
        CHECK(baton_group_size(alone) == 1);
        for (int i = 1; i < size; i++) {
            (void)kill(processes[i], SIGCONT);
        }
        CHECK_OK(baton_group_destroy(alone));
    }
    CHECK_OK(baton_group_destroy(group));
}

FOLDER_TEST(test_store_stopped_ranks_do_not_go_on_together)
{
    ask_peers();
    /* Without shared memory UCX 1.13.1 sometimes ends ranks by an assertion of
       its own when several continue. */
    for (int size = 3; size <= 8; size++) {
        run_ranks(wake_together, size, -1);
    }
}

/* Rank 1 is stopped while it reads rank 0's vector. When rank 1 continues, rank
   0 has counted it as lost, and has written to the vector and freed it. So rank
   1 must not take the data that it reads for the result, nor end by SIGSEGV. */
enum { LONG = 1 << 24 };
static int32_t *result; /* rank 1's result; rank 0 looks at it */

PROGRAM(read_what_is_left)
{
    baton_group_t *group = make_group(engine, store, rank, size, "left");
    int32_t process = (int32_t)getpid();
    void *vector = NULL;
    CHECK_OK(baton_broadcast_now(group, &process, 1, BATON_I32, 1));
    CHECK_OK(baton_memory_alloc(group, sizeof(int32_t) * LONG, &vector));
    int32_t *own = rank == 0 ? vector : result;
    const baton_operands_t of = {
        .target = own, .count = LONG, .dtype = BATON_I32};
    baton_schedule_t *broadcast = NULL;
    CHECK_OK(baton_broadcast_create(group, &of, &broadcast));
    for (int i = 0; rank == 0 && i < LONG; i++) {
        own[i] = 1;
    }
    CHECK_OK(baton_barrier_now(group));
    CHECK_OK(baton_schedule_start(broadcast));
    while (rank == 0 && *(volatile int32_t *)result == 0) {
        bool done;
        CHECK_OK(baton_schedule_test(broadcast, &done));
    }
    (void)(rank == 0 && kill(process, SIGSTOP));
    const baton_status_t status = baton_schedule_wait(broadcast, -1);
    CHECK(status == BATON_ERR_TRANSPORT || status == BATON_OK);
    for (int i = 0; rank == 0 && i < LONG; i++) {
        own[i] = 2;
    }
    for (int i = 0; rank == 1 && status == BATON_OK && i < LONG; i++) {
        CHECK(own[i] == 1);
    }
    CHECK_OK(baton_schedule_destroy(broadcast));
    CHECK_OK(baton_memory_free(group, vector));
    (void)(rank == 0 && kill(process, SIGCONT));
    CHECK_OK(baton_group_destroy(group));
}

FOLDER_TEST(test_store_a_stopped_rank_reads_no_other_data)
{
    const size_t bytes = sizeof(int32_t) * LONG;
    ask_peers();
    for (int i = 0; i < 2; i++) {
        result = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(result != MAP_FAILED);
        support_set_variable("BATON_CMA", i == 0 ? "1" : "0");
        run_ranks(read_what_is_left, 2, -1);
        assert_int_equal(munmap(result, bytes), 0);
    }
}

/* ---- groups that can't be made ------------------------------------------- */

/* Puts the record of rank 0 or 1, and waits for that of the other one. */
static baton_status_t put_and_meet(void *context, const char *key,
                                   const void *value, size_t bytes)
{
    char other[40];
    char byte;
    size_t stored = 0;
    const size_t last = strlen(key) - 1;
    (void)snprintf(other, sizeof other, "%s", key);
    other[last] = other[last] == '0' ? '1' : '0';
    baton_status_t status = put_inner(context, key, value, bytes);
    while (get_inner(context, other, &byte, 1, &stored) == BATON_AGAIN) {
        (void)usleep(1000);
    }
    return status;
}

PROGRAM(wait_for_others)
{
    baton_group_t *group = NULL;
    const baton_store_t waiting = put_by(store, put_and_meet);
    CHECK(baton_group_create_store(engine, &waiting, rank, size + 2, "late",
                                   300, &group) == BATON_ERR_TIMEOUT);
    CHECK_SAYS("for rank 2, 3");
}

STORE_TEST(test_store_names_ranks_that_do_not_come, wait_for_others, 2, -1)

/* Rank 1 is killed in its `puts`-th call of put. */
static int puts_left;

static baton_status_t put_and_die(void *context, const char *key,
                                  const void *value, size_t bytes)
{
    baton_status_t status = put_inner(context, key, value, bytes);
    if (--puts_left == 0) {
        (void)raise(SIGKILL);
    }
    return status;
}

PROGRAM(die_early)
{
    baton_group_t *group = NULL;
    const baton_store_t dying = put_by(store, put_and_die);
    char name[20];
    (void)snprintf(name, sizeof name, "early%d", puts_left);
    puts_left = rank == 1 ? puts_left : 0;
    CHECK(baton_group_create_store(engine, &dying, rank, size, name, 60000,
                                   &group) == BATON_ERR_TRANSPORT);
    CHECK_SAYS("rank 1");
}

FOLDER_TEST(test_store_names_a_rank_that_dies_early)
{
    for (int i = 1; i <= 8; i++) {
        puts_left = i;
        run_ranks(die_early, 3, 1);
    }
}

static baton_status_t put_later(void *context, const char *key,
                                const void *value, size_t bytes)
{
    return BATON_AGAIN;
}

/* An error of a store names its cause. */
PROGRAM(fail_to_put)
{
    baton_group_t *group = NULL;
    const baton_store_t later = put_by(store, put_later);
    CHECK(baton_group_create_store(engine, &later, rank, size, "later", 1000,
                                   &group) == BATON_ERR_INVALID);
    CHECK_SAYS("put of later.1.0 failed (not now");
    CHECK(rmdir(folder) == 0);
    CHECK(baton_group_create_store(engine, store, rank, size, "gone", 1000,
                                   &group) == BATON_ERR_SYSTEM);
    CHECK_SAYS("No such file");
}

TEST_BETWEEN(test_store_says_why_it_fails, make_folder, NULL)
{
    run_ranks(fail_to_put, 1, -1);
}

/* ---- groups of several hosts, and of ranks that share no memory ---------- */

/* Each host has a name and a boot id. */
static void go_elsewhere(int rank)
{
    CHECK(unshare(CLONE_NEWUTS) == 0 && sethostname("elsewhere", 9) == 0);
}

#ifdef BATON_UCX
/* UCX, and the number of its requests for messages that are not freed. */
static struct ucx uncounted;
static _Atomic int64_t requests;

static ucs_status_ptr_t count_begun(ucs_status_ptr_t begun)
{
    requests += UCS_PTR_IS_PTR(begun);
    return begun;
}

static ucs_status_ptr_t count_send(ucp_ep_h to, const void *data, size_t bytes,
                                   ucp_tag_t tag,
                                   const ucp_request_param_t *parameters)
{
    return count_begun(
        uncounted.ucp_tag_send_nbx(to, data, bytes, tag, parameters));
}

static ucs_status_ptr_t count_receive(ucp_worker_h worker, void *data,
                                      size_t bytes, ucp_tag_t tag,
                                      ucp_tag_t mask,
                                      const ucp_request_param_t *parameters)
{
    return count_begun(
        uncounted.ucp_tag_recv_nbx(worker, data, bytes, tag, mask, parameters));
}

static void count_free(void *request)
{
    requests--;
    uncounted.ucp_request_free(request);
}

static void count_requests(int rank)
{
    baton__wire_ucx_t *wire = NULL;
    /* This loads UCX. */
    CHECK(baton__wire_open_ucx(0, 1, &wire) == BATON_OK && wire != NULL);
    wire->shared.close(&wire->shared, true);
    uncounted = ucx;
    ucx.ucp_tag_send_nbx = count_send;
    ucx.ucp_tag_recv_nbx = count_receive;
    ucx.ucp_request_free = count_free;
}
#endif

PROGRAM(be_elsewhere)
{
    baton_group_t *group = NULL;
    if (rank == 2) {
        go_elsewhere(rank);
    }
#ifdef BATON_UCX
    count_requests(rank);
#endif
    baton_status_t status = baton_group_create_store(engine, store, rank, size,
                                                     "hosts", 60000, &group);
#ifdef BATON_UCX
    CHECK_OK(status);
    check_sums(rank, group);
    CHECK(requests > 0);
    CHECK_OK(baton_group_destroy(group));
    CHECK(requests <= 0); /* the request of the last flush was not counted */
#else
    CHECK(status == BATON_ERR_UNSUPPORTED);
    CHECK_SAYS("this libbaton was built without UCX");
#endif
}

FOLDER_TEST(test_store_groups_span_hosts)
{
    if (geteuid() != 0) {
        skip(); /* only root may name a host */
    }
    run_ranks(be_elsewhere, 4, -1);
    assert_int_equal(count_files("%s/*", folder), 0);
}

FOLDER_TEST(test_store_groups_share_nothing)
{
    support_set_variable("BATON_SHM", "0");
    run_ranks(be_elsewhere, 2, -1);
}

#ifdef BATON_UCX
PROGRAM(lack_ucx)
{
    baton_group_t *group = NULL;
    support_set_variable("UCX_TLS", rank == 1 ? "none" : NULL);
    CHECK(baton_group_create_store(engine, store, rank, size, "ucx", 60000,
                                   &group) == BATON_ERR_TRANSPORT);
    CHECK_SAYS(rank == 1 ? "rank 1: UCX can't be opened: "
                         : "rank 1 can't use it");
}

FOLDER_TEST(test_store_ranks_lack_ucx)
{
    support_set_variable("BATON_SHM", "0");
    run_ranks(lack_ucx, 3, -1);
}

static void remove_inner(void *context, const char *key)
{
    const baton_store_t *inner = context;
    inner->remove(inner->context, key);
}

/* The number of the last exchange whose answer this rank has asked for. The
   rank is slow to get the answer of the exchange `slow`; 0: of none. */
static unsigned last, slow;

static baton_status_t get_slowly(void *context, const char *key, void *value,
                                 size_t capacity, size_t *bytes_out)
{
    if (strstr(key, ".all") != NULL) {
        last = (unsigned)strtoul(strchr(key, '.') + 1, NULL, 10);
        if (last == slow) {
            slow = 0;
            /* Sleeps for longer than CONFIRM_NS in bootstrap_store.c, which is
               1 s. */
            (void)usleep(1500000);
        }
    }
    return get_inner(context, key, value, capacity, bytes_out);
}

/* Rank 0 does not wait for rank 1 to get the last answer. */
PROGRAM(be_slow)
{
    baton_store_t slowly = put_by(store, put_inner);
    slowly.get = rank == 1 ? get_slowly : get_inner;
    slowly.remove = remove_inner;
    if (rank == 1) {
        go_elsewhere(rank);
    }
    for (int i = 0; i < 2; i++) {
        baton_group_t *group = make_group(engine, &slowly, rank, size,
                                          i == 0 ? "first" : "second");
        check_sums(rank, group);
        CHECK_OK(baton_group_destroy(group));
        slow = i == 0 ? last : slow;
    }
    CHECK(rank == 0 || (last > 0 && slow == 0)); /* the rank was slow */
}

FOLDER_TEST(test_store_answer_is_got_late)
{
    if (geteuid() != 0) {
        skip();
    }
    support_set_variable("BATON_PEER_TIMEOUT_MS", "5000");
    run_ranks(be_slow, 2, -1);
}

PROGRAM(lose_elsewhere)
{
    if (rank == 1) {
        go_elsewhere(rank);
    }
    lose(rank, size, engine, store);
}

/* Rank 0, which is alone on its host, is stopped until the others have gone on
   without it and have ended. When it continues, it must not go on by itself. */
PROGRAM(come_too_late)
{
    if (rank == 0) {
        go_elsewhere(rank);
    }
    baton_group_t *group = make_group(engine, store, rank, size, "late");
    baton_group_t *survivors = NULL;
    int32_t process = (int32_t)getpid();
    CHECK_OK(baton_broadcast_now(group, &process, 1, BATON_I32, 0));
    CHECK_OK(baton_barrier_now(group));
    if (rank == 0) {
        (void)raise(SIGSTOP);
    }
    CHECK(baton_barrier_now(group) == BATON_ERR_TRANSPORT);
    if (rank == 0) {
        CHECK(baton_group_shrink(group, 60000, &survivors) ==
              BATON_ERR_TRANSPORT);
        CHECK_OK(baton_group_destroy(group));
        return;
    }
    CHECK_OK(baton_group_shrink(group, 60000, &survivors));
    check_sums(rank, survivors);
    if (rank == 2) {
        (void)usleep(100000); /* rank 1 has ended by now */
        (void)kill(process, SIGCONT);
    }
    _exit(0);
}

FOLDER_TEST(test_store_a_stopped_rank_of_a_host_comes_too_late)
{
    if (geteuid() != 0) {
        skip();
    }
    ask_peers();
    run_ranks(come_too_late, 3, -1);
}

/* Rank 1 dies. There are three hosts, or rank 1 is the only one of its host,
   where no rank sees that it has ended. The rank that is alone may have got the
   last answer before. */
PROGRAM(die_elsewhere)
{
    baton_group_t *group = NULL;
    const baton_store_t dying = put_by(store, put_and_die);
    if (rank == 2) {
        go_elsewhere(rank);
    }
    puts_left = rank == 1 ? puts_left : 0;
    baton_status_t status = baton_group_create_store(
        engine, &dying, rank, size, "elsewhere", 60000, &group);
    if (rank == 2 && status == BATON_OK) {
        CHECK_OK(baton_group_destroy(group));
        return;
    }
    CHECK(status == BATON_ERR_TRANSPORT);
    CHECK_SAYS("rank 1");
}

/* Rank 0 waits too long for rank 1, and ends; rank 2 notices that first. */
PROGRAM(die_alone)
{
    baton_group_t *group = NULL;
    const baton_store_t dying = put_by(store, put_and_die);
    if (rank == 1) {
        go_elsewhere(rank);
    }
    if (rank == 2) {
        support_set_variable("BATON_PEER_TIMEOUT_MS", "60000");
    }
    puts_left = rank == 1 ? 5 : 0;
    CHECK(baton_group_create_store(engine, &dying, rank, size, "alone", 60000,
                                   &group) == BATON_ERR_TRANSPORT);
    CHECK_SAYS(rank == 0 ? "rank 1 has called baton_group_create_store, and not"
                         : "ended, while this rank waited for rank 1: create");
}

FOLDER_TEST(test_store_names_ranks_of_hosts_that_die)
{
    if (geteuid() != 0) {
        skip();
    }
    run_ranks(lose_elsewhere, 4, 1);
    for (int i = 1; i <= 11; i++) {
        puts_left = i;
        run_ranks(die_elsewhere, 3, 1);
        assert_int_equal(remove_folder(state), 0);
        assert_int_equal(make_folder(state), 0);
    }
    set_short_timeout();
    run_ranks(die_alone, 3, 1);
}
#endif

/* One rank gives another size: all learn so at once, and which rank it is. */
static int odd_rank, odd_size;

PROGRAM(count_differently)
{
    baton_group_t *group = NULL;
    char name[20];
    char says[80];
    (void)snprintf(name, sizeof name, "size%d.%d", odd_rank, odd_size);
    CHECK(baton_group_create_store(engine, store, rank,
                                   rank == odd_rank ? odd_size : size, name,
                                   60000, &group) == BATON_ERR_MISMATCH);
    (void)snprintf(
        says, sizeof says,
        "has %d ranks according to rank 0, and %d according to rank %d",
        odd_rank == 0 ? odd_size : size, odd_rank == 0 ? size : odd_size,
        odd_rank);
    /* If rank 0 is the odd one, any other rank may be named. */
    says[strlen(says) - (odd_rank == 0)] = '\0';
    CHECK_SAYS(says);
}

FOLDER_TEST(test_store_ranks_know_another_size)
{
    static const int cases[][2] = {{1, 4}, {2, 9}, {0, 2}, {0, 4}, {0, 1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const time_t before = time(NULL);
        odd_rank = cases[i][0];
        odd_size = cases[i][1];
        run_ranks(count_differently, 3, -1);
        assert_true(time(NULL) - before < 20);
    }
}

PROGRAM(share_a_rank)
{
    baton_group_t *group = NULL;
    const int claimed = rank < 2 ? rank : 1;
    baton_status_t status = baton_group_create_store(
        engine, store, claimed, size - 1, "twice", 1000, &group);
    if (status == BATON_OK) {
        CHECK_OK(baton_group_destroy(group));
    } else {
        CHECK(status == BATON_ERR_TIMEOUT || status == BATON_ERR_TRANSPORT);
    }
}

FOLDER_TEST(test_store_ranks_are_claimed_twice)
{
    support_set_variable("BATON_PEER_TIMEOUT_MS", "1000");
    run_ranks(share_a_rank, 3, -1);
}

PROGRAM(refuse)
{
    baton_group_t *group = NULL;
    baton_store_t other;
    const baton_store_t empty = {0};
    char long_name[200];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    const struct {
        const baton_store_t *store;
        int rank, size;
        const char *name, *says;
    } calls[] = {{NULL, 0, 1, "n", "store is NULL"},
                 {&empty, 0, 1, "n", "the store lacks put or get"},
                 {store, 0, 0, "n", "rank 0 of 0"},
                 {store, -1, 1, "n", "rank -1 of 1"},
                 {store, 1, 1, "n", "rank 1 of 1"},
                 {store, 0, 1, NULL, "name is NULL"},
                 {store, 0, 1, "", "the name \"\""},
                 {store, 0, 1, "a/b", "the name \"a/b\""},
                 {store, 0, 1, long_name, "letters, digits"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        CHECK(baton_group_create_store(engine, calls[i].store, calls[i].rank,
                                       calls[i].size, calls[i].name, 1000,
                                       &group) == BATON_ERR_INVALID);
        CHECK_SAYS(calls[i].says);
    }
    CHECK(baton_group_create_store(NULL, store, rank, size, "none", 1000,
                                   &group) == BATON_ERR_INVALID);
    CHECK_SAYS("engine is NULL");
    CHECK(baton_store_open_folder("/nowhere", &other) == BATON_ERR_SYSTEM);
    CHECK_SAYS("/nowhere");
    CHECK(baton_store_open_folder(NULL, &other) == BATON_ERR_INVALID);
    baton_store_close_folder(NULL);
}

STORE_TEST(test_store_calls_are_refused, refuse, 1, -1)

/* ---- groups that change ------------------------------------------------- */

enum { ROUNDS = 20, GROWN = 4 };

/* Checks that the ranks `joined` (bits) are new, and the others have kept their
   numbers. */
static void check_origins(int rank, const baton_group_t *group, unsigned joined)
{
    for (int i = 0; i < baton_group_size(group); i++) {
        CHECK(baton_group_origin(group, i) == (joined >> i & 1 ? -1 : i));
    }
}

/* In each round a rank is killed, and one of the waiting processes takes its
   place. The other ranks tell it the number of the round. */
PROGRAM(replace)
{
    baton_group_t *group = NULL;
    baton_group_t *next = NULL;
    int32_t round = 0;
    float one = 1;
    if (rank < size) {
        group = make_group(engine, store, rank, size, "replace");
    } else {
        CHECK_OK(baton_group_join(engine, store, "replace", 60000, &group));
    }
    for (;;) {
        int root = 0;
        while (baton_group_origin(group, root) < 0) {
            root++;
        }
        check_sums(rank, group);
        CHECK_OK(baton_broadcast_now(group, &round, 1, BATON_I32, root));
        if (round == ROUNDS) {
            break;
        }
        const int own = baton_group_rank(group);
        if (own == round % size) {
            (void)raise(SIGKILL);
        }
        CHECK(baton_allreduce_now(group, NULL, &one, 1, BATON_F32, BATON_SUM) ==
              BATON_ERR_TRANSPORT);
        CHECK_OK(baton_group_reconfigure(group, store, size, "replace", 60000,
                                         &next));
        CHECK(baton_group_rank(next) == own && baton_group_size(next) == size);
        check_origins(rank, next, 1U << (round % size));
        CHECK_OK(baton_group_destroy(group));
        group = next;
        round++;
    }
    CHECK_OK(baton_group_destroy(group));
}

FOLDER_TEST(test_store_ranks_are_replaced)
{
    const unsigned killed = run_processes(replace, GROWN + ROUNDS, GROWN);
    assert_int_equal(__builtin_popcount(killed), ROUNDS);
}

/* A group grows, loses its first rank, and shrinks. The previous group can be
   used until it is destroyed. */
PROGRAM(grow)
{
    baton_group_t *groups[3] = {NULL};
    float one = 1;
    if (rank < 2) {
        groups[0] = make_group(engine, store, rank, 2, "grow");
        CHECK_OK(baton_group_reconfigure(groups[0], store, size, "grow", 60000,
                                         &groups[1]));
        check_sums(rank, groups[0]);
    } else {
        CHECK_OK(baton_group_join(engine, store, "grow", 60000, &groups[1]));
    }
    check_origins(rank, groups[1], 0xc);
    check_sums(rank, groups[1]);
    const int own = baton_group_rank(groups[1]);
    if (own == 0) {
        (void)raise(SIGKILL);
    }
    CHECK(baton_allreduce_now(groups[1], NULL, &one, 1, BATON_F32, BATON_SUM) ==
          BATON_ERR_TRANSPORT);
    CHECK(baton_group_reconfigure(groups[1], store, 2, "grow", 60000,
                                  &groups[2]) == BATON_ERR_INVALID);
    CHECK_SAYS("size is 2, and 3 ranks live; allowed: 3");
    CHECK_OK(baton_group_reconfigure(groups[1], store, size - 1, "grow", 60000,
                                     &groups[2]));
    CHECK(baton_group_rank(groups[2]) == own % 3 &&
          baton_group_origin(groups[2], own % 3) == own);
    check_sums(rank, groups[2]);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(baton_group_destroy(groups[i]));
    }
}

STORE_TEST(test_store_groups_grow_and_shrink, grow, 4, 0)

/* A rank of the old group, or a process that joins, is killed in its
   `puts_left`-th call of put. The others repeat their calls until they have a
   group. One process more than necessary joins. */
static int dying;

PROGRAM(persist)
{
    enum { OLD = 3 };
    baton_group_t *old = NULL;
    baton_group_t *group = NULL;
    const baton_store_t mortal = put_by(store, put_and_die);
    baton_status_t status = BATON_ERR_TRANSPORT;
    if (rank < OLD) {
        old = make_group(engine, store, rank, OLD, "old");
    }
    puts_left = rank == dying ? puts_left : 0;
    (void)usleep(rank == 3 ? 50000 : 0); /* so that rank 4 joins first */
    for (int i = 0; status != BATON_OK; i++) {
        CHECK(i < 8 &&
              (status == BATON_ERR_TRANSPORT || status == BATON_ERR_TIMEOUT));
        status = old != NULL
                     ? baton_group_reconfigure(old, &mortal, size - 1,
                                               "persist", 20000, &group)
                     : baton_group_join(engine, &mortal, "persist",
                                        rank == dying ? 1000 : 60000, &group);
        if (rank == dying) {
            (void)raise(SIGKILL); /* the group did not need this process */
        }
    }
    check_sums(rank, group);
    CHECK_OK(baton_group_destroy(old));
    CHECK_OK(baton_group_destroy(group));
}

FOLDER_TEST(test_store_ranks_die_while_others_join)
{
    static const int cases[][2] = {{0, 1}, {0, 2}, {0, 3}, {2, 1},
                                   {2, 3}, {4, 1}, {4, 2}, {4, 4}};
    support_set_variable("BATON_PEER_TIMEOUT_MS", "2000");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dying = cases[i][0];
        puts_left = cases[i][1];
        run_ranks(persist, 5, dying);
    }
}

/* A rank of the old group, or the process that joins, is killed when it has its
   place in the new group, and has not met the others there. */
static baton_status_t put_request_or_die(void *context, const char *key,
                                         const void *value, size_t bytes)
{
    if (strstr(key, ".join") == NULL) {
        (void)raise(SIGKILL);
    }
    return put_inner(context, key, value, bytes);
}

PROGRAM(die_in_place)
{
    baton_group_t *old = NULL;
    baton_group_t *group = NULL;
    char text[32];
    const baton_store_t mortal =
        put_by(store, rank == dying ? put_request_or_die : put_inner);
    if (rank < 2) {
        old = make_group(engine, store, rank, 2, "old");
    }
    CHECK((old != NULL ? baton_group_reconfigure(old, &mortal, size, "place",
                                                 60000, &group)
                       : baton_group_join(engine, &mortal, "place", 60000,
                                          &group)) == BATON_ERR_TRANSPORT);
    (void)snprintf(text, sizeof text, "rank %d (process ", dying);
    CHECK_SAYS(text);
    CHECK_SAYS("is gone: its process has ended");
    CHECK_OK(baton_group_destroy(old));
}

FOLDER_TEST(test_store_ranks_die_in_a_new_place)
{
    for (dying = 1; dying < 3; dying++) {
        run_ranks(die_in_place, 3, dying);
    }
}

/* Overwrites the first call at once, as does the leader of an earlier attempt
   that was stopped and continues. */
static baton_status_t put_and_overwrite(void *context, const char *key,
                                        const void *value, size_t bytes)
{
    static bool done;
    baton_status_t status = put_inner(context, key, value, bytes);
    if (status == BATON_OK && !done && strstr(key, ".call") != NULL) {
        int64_t call[64] = {0};
        memcpy(call, value, bytes < sizeof call ? bytes : sizeof call);
        call[0]++; /* the call now has another number */
        done = true;
        status = put_inner(context, key, call, bytes);
    }
    return status;
}

PROGRAM(overwrite)
{
    baton_group_t *old = NULL;
    baton_group_t *group = NULL;
    const baton_store_t overwritten = put_by(store, put_and_overwrite);
    if (rank == 0) {
        old = make_group(engine, store, 0, 1, "old");
        CHECK_OK(baton_group_reconfigure(old, &overwritten, size, "overwrite",
                                         60000, &group));
    } else {
        CHECK_OK(baton_group_join(engine, store, "overwrite", 60000, &group));
    }
    check_sums(rank, group);
    CHECK_OK(baton_group_destroy(old));
    CHECK_OK(baton_group_destroy(group));
}

STORE_TEST(test_store_call_is_overwritten, overwrite, 3, -1)

PROGRAM(refuse_change)
{
    baton_group_t *old = make_group(engine, store, rank, size, "old");
    baton_group_t *group = NULL;
    if (rank == 0) {
        CHECK(baton_group_reconfigure(old, store, size, "new", 20, &group) ==
              BATON_ERR_TIMEOUT);
        CHECK_SAYS("baton_group_reconfigure: shrink on rank 0");
        report(rank, store);
    }
    wait_for_report(store);
    CHECK(baton_group_reconfigure(old, store, size + rank, "new", 60000,
                                  &group) == BATON_ERR_MISMATCH);
    CHECK_SAYS(" differ: rank");
    CHECK(baton_group_reconfigure(old, store, size + 2, "new", 2000, &group) ==
          BATON_ERR_TIMEOUT);
    CHECK_SAYS("rank 0 has looked for processes that join: 2 of the 4 places");
    CHECK(baton_group_reconfigure(NULL, store, 3, "n", 0, &group) ==
          BATON_ERR_INVALID);
    CHECK_SAYS("baton_group_reconfigure: group is NULL");
    CHECK(baton_group_reconfigure(old, NULL, 3, "n", 0, &group) ==
          BATON_ERR_INVALID);
    CHECK(baton_group_reconfigure(old, store, 3, "a/b", 0, &group) ==
          BATON_ERR_INVALID);
    CHECK(baton_group_reconfigure(old, store, 3, "n", 0, NULL) ==
          BATON_ERR_INVALID);
    CHECK(baton_group_join(engine, store, "new", 200, &group) ==
          BATON_ERR_TIMEOUT);
    CHECK_SAYS("have not called baton_group_reconfigure within 200 ms");
    CHECK(baton_group_join(NULL, store, "n", 0, &group) == BATON_ERR_INVALID);
    CHECK(baton_group_join(engine, store, NULL, 0, &group) ==
          BATON_ERR_INVALID);
    CHECK(baton_group_join(engine, store, "n", 0, NULL) == BATON_ERR_INVALID);
    CHECK_OK(store->put(store->context, "bad.call", "x", 1));
    CHECK(baton_group_join(engine, store, "bad", 0, &group) ==
          BATON_ERR_MISMATCH);
    CHECK_SAYS("bad.call is not a call of this version");
    check_sums(rank, old);
    CHECK_OK(baton_group_destroy(old));
}

STORE_TEST(test_store_changes_are_refused, refuse_change, 2, -1)
