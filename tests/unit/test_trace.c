/* The records of a process. The file of a process is created only once, so all
   tests of this process share it. Each looks at the records since its
   beginning. Tests of files have processes of their own, whose exit status is
   the line of the check that failed. */
#include "support/sanitized.h"
#include "support/sim.h"

#include <baton/coll.h>
#include <baton/lateness.h>
#include <baton/store.h>
#include <baton/trace.h>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECORDS = 16384, MOST = 40000, JOB_RANKS = 3, EPOCHS = 20 };

/* A file of a trace. */
typedef struct file {
    const baton_trace_head_t *head;
    const baton_trace_schedule_t *schedules;
    const baton_trace_name_t *names;
    const baton_trace_record_t *records;
    uint64_t mark; /* the first record that the test considers */
} file_t;

/* The records that the test considers, and the schedules that they belong
   to. */
typedef struct seen {
    baton_trace_record_t of;
    baton_trace_schedule_t schedule; /* all fields are 0: no schedule */
} seen_t;
static seen_t seen[MOST];
static size_t seen_count;

static file_t open_file(const char *path)
{
    struct stat found = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &found) == 0);
    const char *memory =
        mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED && close(fd) == 0);
    file_t file = {.head = (const void *)memory};
    assert_true(file.head->magic == BATON_TRACE_MAGIC);
    assert_int_equal(file.head->format, BATON_TRACE_FORMAT);
    file.schedules = (const void *)(file.head + 1);
    file.names = (const void *)(file.schedules + file.head->schedules);
    file.records = (const void *)(file.names + file.head->names);
    assert_ptr_equal(file.records + file.head->records, memory + found.st_size);
    return file;
}

/* Opens the file of the folder whose name ends with `ends`, and deletes it. Its
   records can still be read. */
static file_t take_file(const char *folder, const char *ends)
{
    char path[400] = "";
    DIR *all = opendir(folder);
    assert_non_null(all);
    for (const struct dirent *each; (each = readdir(all)) != NULL;) {
        size_t length = strlen(each->d_name);
        if (length >= strlen(ends) &&
            strcmp(each->d_name + length - strlen(ends), ends) == 0) {
            (void)snprintf(path, sizeof path, "%s/%s", folder, each->d_name);
        }
    }
    (void)closedir(all);
    file_t file = open_file(path);
    assert_int_equal(unlink(path), 0);
    return file;
}

static char own_folder[] = "/tmp/test_trace.XXXXXX";

/* Begins a test of this process's own file: later records count. */
static file_t *own(void)
{
    static file_t file;
    if (file.head == NULL) {
        char records[20];
        assert_non_null(mkdtemp(own_folder));
        (void)snprintf(records, sizeof records, "%d", RECORDS);
        support_set_variable("BATON_TRACE_RECORDS", records);
        support_fails(baton_trace_start(NULL), BATON_ERR_INVALID,
                      "there is no trace yet");
        support_ok(baton_trace_start(own_folder));
        file = take_file(own_folder, ".trace");
        assert_int_equal(file.head->records, RECORDS);
        assert_int_equal(file.head->process, getpid());
        assert_int_equal(rmdir(own_folder), 0);
    }
    file.mark = file.head->written;
    return &file;
}

/* Adds the records since the mark to those seen, and checks that each is
   complete. */
static void look(const file_t *file)
{
    const uint64_t written = file->head->written;
    const uint64_t records = file->head->records;
    uint64_t i =
        written > file->mark + records ? written - records : file->mark;
    for (; i < written; i++) {
        const baton_trace_record_t *of = &file->records[i % records];
        assert_int_equal(of->lap, i / records % 256);
        assert_in_range(of->what, BATON_TRACE_START, BATON_TRACE_STARTED);
        assert_true(of->time_ns >= file->head->monotonic_ns);
        assert_true(of->value < of->time_ns && seen_count + 3 <= MOST);
        seen_t one = {.of = *of};
        if (of->schedule > 0) {
            one.schedule = file->schedules[of->schedule - 1];
            assert_true(one.schedule.key != 0);
        }
        if (of->what != BATON_TRACE_STARTED) {
            seen[seen_count++] = one;
            continue;
        }
        for (one.of.what = BATON_TRACE_START; one.of.what <= BATON_TRACE_COME;
             one.of.what++) {
            seen[seen_count++] = one;
        }
    }
}

static void look_anew(const file_t *file)
{
    seen_count = 0;
    look(file);
}

/* Returns the number of records of a kind, on one rank or on all (-1). */
static size_t count_of(baton_trace_what_t what, int rank)
{
    size_t count = 0;
    for (size_t i = 0; i < seen_count; i++) {
        count += seen[i].of.what == what &&
                 (rank < 0 || seen[i].schedule.rank == rank);
    }
    return count;
}

/* Returns the only record of the kind `what` on rank `rank` that has the epoch
   and schedule of the record `of`. NULL: there is none. If `peer` is not -1,
   the record must have this peer, and the tag of `of`. */
static const seen_t *find(const seen_t *of, baton_trace_what_t what, int rank,
                          int peer)
{
    const seen_t *found = NULL;
    for (size_t i = 0; i < seen_count; i++) {
        const seen_t *at = &seen[i];
        if (at->of.what == what && at->of.epoch == of->of.epoch &&
            at->schedule.key == of->schedule.key &&
            at->schedule.incarnation == of->schedule.incarnation &&
            at->schedule.rank == rank &&
            (peer < 0 || (at->of.peer == peer && at->of.tag == of->of.tag))) {
            assert_null(found);
            found = at;
        }
    }
    return found;
}

/* Checks that each message that was received had been sent, and that the
   records of each epoch are in order. */
static void check_epochs(void)
{
    for (size_t i = 0; i < seen_count; i++) {
        const seen_t *at = &seen[i];
        const int rank = at->schedule.rank;
        if (at->of.what == BATON_TRACE_RECEIVED) {
            const seen_t *from = find(at, BATON_TRACE_SEND, at->of.peer, rank);
            assert_true(from != NULL && from->of.time_ns <= at->of.time_ns);
            assert_int_equal(from->of.value, at->of.value);
        } else if (at->of.what == BATON_TRACE_SENT) {
            const seen_t *from = find(at, BATON_TRACE_SEND, rank, at->of.peer);
            assert_true(from != NULL && from->of.time_ns <= at->of.time_ns);
        } else if (at->of.what == BATON_TRACE_END) {
            const seen_t *start = find(at, BATON_TRACE_START, rank, -1);
            const seen_t *begin = find(at, BATON_TRACE_BEGIN, rank, -1);
            const seen_t *come = find(at, BATON_TRACE_COME, rank, -1);
            const seen_t *wait = find(at, BATON_TRACE_WAIT, rank, -1);
            assert_true(start != NULL && begin != NULL && come != NULL &&
                        start->of.time_ns <= come->of.time_ns &&
                        begin->of.time_ns <= come->of.time_ns &&
                        come->of.time_ns <= at->of.time_ns);
            assert_true(wait == NULL || (wait->of.time_ns >= at->of.time_ns &&
                                         wait->of.peer == at->of.peer));
        }
    }
}

/* ---- epochs and messages ------------------------------------------------- */

static baton_traffic_t sent[8];

static void run_allreduces(support_worker_t *worker)
{
    static const size_t counts[] = {1, 300, 50000};
    float *sum = calloc(50000, sizeof *sum);
    baton_traffic_t all = {0};
    for (int i = 0; i < 3 && sum != NULL; i++) {
        baton_schedule_t *s;
        const baton_operands_t of = {.target = sum,
                                     .count = counts[i],
                                     .dtype = BATON_F32,
                                     .op = BATON_SUM};
        if (!support_worker_ok(
                worker, baton_allreduce_create(worker->group, &of, &s))) {
            break;
        }
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            (void)support_worker_run(worker, s);
        }
        all.messages += baton_schedule_sent(s).messages;
        all.bytes += baton_schedule_sent(s).bytes;
        (void)support_worker_ok(worker, baton_schedule_destroy(s));
    }
    free(sum);
    sent[worker->rank] = all;
}

static void check_allreduces(support_cluster_t *cluster)
{
    file_t *file = own();
    support_cluster_run(cluster, run_allreduces, NULL);
    look_anew(file);
    check_epochs();
    for (int rank = 0; rank < cluster->size; rank++) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < seen_count; i++) {
            bytes += seen[i].of.what == BATON_TRACE_SEND &&
                             seen[i].schedule.rank == rank
                         ? seen[i].of.value
                         : 0;
        }
        assert_int_equal(bytes, sent[rank].bytes);
        assert_int_equal(count_of(BATON_TRACE_SEND, rank), sent[rank].messages);
        assert_int_equal(count_of(BATON_TRACE_START, rank), 3 * EPOCHS);
        assert_int_equal(count_of(BATON_TRACE_WAIT, rank), 3 * EPOCHS);
        assert_int_equal(count_of(BATON_TRACE_END, rank), 3 * EPOCHS);
    }
    assert_int_equal(count_of(BATON_TRACE_SEND, -1),
                     count_of(BATON_TRACE_RECEIVED, -1));
    /* Only the longest vectors have such records. */
    assert_true(cluster->size == 1 || count_of(BATON_TRACE_WORK, -1) >= EPOCHS);
}
TEST_EACH(test_trace_of_one_rank, 1)
{
    check_allreduces(cluster);
}
TEST_EACH(test_trace_of_four_ranks, 4)
{
    check_allreduces(cluster);
}

static baton_status_t fail_once(void *arg, baton_call_t *call)
{
    int *left = arg;
    (void)call;
    return --*left == 0 ? BATON_ERR_CANCELLED : BATON_OK;
}

/* After the recovery a schedule counts as another one. So its first epochs are
   not confused with those before the recovery. */
TEST_MANUALLY(test_trace_of_a_failed_epoch, 2)
{
    file_t *file = own();
    uint64_t numbers[2] = {0};
    int left = 1;
    baton_schedule_t **s = support_schedules_create(cluster, "fails");
    support_message(s, 0, 1, &numbers[0], &numbers[1], 8);
    baton_before(s[0], baton_add_call(s[0], fail_once, &left),
                 (baton_node_t){0});
    support_schedules_commit(cluster, s);
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_schedule_start(s[rank]));
    }
    for (int rank = 0; rank < 2; rank++) {
        support_ends(s[rank], BATON_ERR_CANCELLED);
    }
    look_anew(file);
    check_epochs();
    assert_int_equal(count_of(BATON_TRACE_END, -1), 2);
    for (size_t i = 0; i < seen_count; i++) {
        if (seen[i].of.what == BATON_TRACE_END) {
            assert_int_equal(seen[i].of.peer, BATON_ERR_CANCELLED);
            assert_non_null(
                find(&seen[i], BATON_TRACE_WAIT, seen[i].schedule.rank, -1));
        }
    }
    support_cluster_recover(cluster);
    support_schedules_run(cluster, s);
    look_anew(file);
    check_epochs();
    assert_int_equal(count_of(BATON_TRACE_END, -1), 4);
    assert_int_equal(seen[seen_count - 1].of.epoch, 1);
    assert_int_equal(seen[seen_count - 1].schedule.incarnation, 1);
    support_schedules_destroy(cluster, s);
}

TEST(test_trace_leaves_the_simulator_out)
{
    double us;
    const support_message_t message = {0, 1, 5000};
    support_messages_t messages = {&message, 1};
    file_t *file = own();
    baton_sim_t *sim = support_sim_of(2);
    support_ok(baton_sim_build(sim, "sim", support_sim_messages, &messages));
    support_ok(baton_sim_epoch(sim, &us));
    support_ok(baton_sim_destroy(sim));
    assert_int_equal(file->head->written, file->mark);
}

/* ---- spans, and the ring ------------------------------------------------ */

/* Adds so many spans that they fill a quarter of the ring. */
static void add_spans(void *arg)
{
    for (int i = 0; i < RECORDS / 8; i++) {
        baton_trace_begin(arg);
        baton_trace_end();
    }
}

/* The spans of each thread begin and end in turn. No record is lost, but the
   first ones are overwritten. */
TEST(test_trace_of_two_threads)
{
    file_t *file = own();
    for (int i = 0; i < 6; i++) {
        add_spans("before");
    }
    support_thread_t *other = support_thread_start(add_spans, "the other");
    add_spans("this one");
    support_thread_join(other);
    look_anew(file);
    assert_int_equal(file->head->written - file->mark, 2 * RECORDS);
    assert_int_equal(seen_count, RECORDS);
    for (size_t i = RECORDS / 2; i < RECORDS; i++) {
        size_t k = i + 1;
        while (k < seen_count && seen[k].of.thread != seen[i].of.thread) {
            k++;
        }
        assert_true(k == seen_count || seen[k].of.what != seen[i].of.what);
        if (seen[i].of.what == BATON_TRACE_SPAN) {
            assert_string_equal(file->names[seen[i].of.value].name,
                                (pid_t)seen[i].of.thread == getpid()
                                    ? "this one"
                                    : "the other");
        }
    }
}

TEST(test_trace_stops_and_starts)
{
    file_t *file = own();
    baton_trace_stop();
    baton_trace_begin("nothing");
    support_fails(baton_trace_start("/tmp"), BATON_ERR_INVALID,
                  "this process has its trace in \"/tmp/test_trace.");
    baton_trace_end();
    assert_int_equal(file->head->written, file->mark);
    support_ok(baton_trace_start(NULL));
    baton_trace_end();
    support_ok(baton_trace_start(own_folder));
    assert_int_equal(file->head->written, file->mark + 1);
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Most of these times are computed from the processor's counter. They agree
   with the clock but for less than 100 us. */
TEST(test_trace_has_the_times_of_the_clock)
{
    enum { OFF_NS = 100000, UNTIL_NS = 50000000 };
    file_t *file = own();
    const uint64_t began_ns = clock_ns();
    uint64_t after_ns = began_ns;
    while (after_ns - began_ns < UNTIL_NS) {
        const uint64_t at = file->head->written;
        const uint64_t before_ns = clock_ns();
        baton_trace_end();
        after_ns = clock_ns();
        assert_in_range(file->records[at % RECORDS].time_ns, before_ns - OFF_NS,
                        after_ns + OFF_NS);
    }
}

static const char *long_name(int number)
{
    static char name[80];
    (void)snprintf(name, sizeof name,
                   "%03d, and then more than the file has room for, so this is "
                   "cut off",
                   number);
    return name;
}

TEST(test_trace_names_255_spans)
{
    file_t *file = own();
    baton_trace_begin(NULL);
    for (int i = 0; i < 600; i++) {
        baton_trace_begin(long_name(i % 300));
    }
    look_anew(file);
    assert_int_equal(seen_count, 601);
    assert_string_equal(file->names[seen[0].of.value].name, "?");
    for (size_t i = 0; i < 600; i++) {
        const uint64_t at = seen[i + 1].of.value;
        const char *name = file->names[at].name;
        assert_int_equal(at, seen[i % 300 + 1].of.value);
        if (at < BATON_TRACE_NAMES - 1) {
            assert_int_equal(strlen(name), BATON_TRACE_NAME - 1);
            assert_memory_equal(name, long_name((int)i % 300), strlen(name));
        } else {
            assert_string_equal(name, "other");
            assert_true(i % 300 > 200);
        }
    }
}

/* ---- files and processes ------------------------------------------------ */

#define CHECK(right) ((right) ? (void)0 : child_fails(__LINE__))
static void child_fails(int line)
{
    (void)fprintf(stderr, "line %d: %s\n", line, baton_error_message());
    _exit(1);
}

/* Runs `run` in a process of its own, which gets a new folder. Returns the
   number of the process. */
static pid_t run_child(void (*run)(const char *folder), char folder[26])
{
    memcpy(folder, "/tmp/test_trace.XXXXXX", 23);
    assert_non_null(mkdtemp(folder));
    int status;
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(120);
        run(folder);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return child;
}

static void run_forked(const char *folder)
{
    int status;
    CHECK(baton_trace_start(folder) == BATON_OK);
    baton_trace_begin("parent");
    pid_t child = fork();
    if (child == 0) {
        baton_trace_begin("nothing");
        CHECK(baton_trace_start(NULL) == BATON_ERR_INVALID);
        CHECK(baton_trace_start(folder) == BATON_OK);
        baton_trace_begin("child");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    baton_trace_end();
}

TEST(test_trace_of_a_forked_process)
{
    char folder[26];
    char ends[30];
    (void)own();
    (void)snprintf(ends, sizeof ends, ".%d.trace",
                   (int)run_child(run_forked, folder));
    file_t parent = take_file(folder, ends);
    file_t child = take_file(folder, ".trace");
    look_anew(&parent);
    assert_int_equal(seen_count, 2);
    look_anew(&child);
    assert_int_equal(seen_count, 1);
    assert_string_equal(child.names[seen[0].of.value].name, "child");
    assert_int_equal(rmdir(folder), 0);
}

/* The name of the file is taken, as by a process of another container.
   Descriptors 0 to 2 are closed, and the application may get their numbers
   next. */
static void run_named(const char *folder)
{
    char host[65] = "";
    char path[200];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(path, sizeof path, "%s/%s.%d.trace", folder, host, getpid());
    int taken = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(close(taken) == 0);
    CHECK(close(STDIN_FILENO) == 0);
    CHECK(baton_trace_start(folder) == BATON_OK);
    CHECK(open("/dev/null", O_RDONLY | O_CLOEXEC) == STDIN_FILENO);
    CHECK(open("/dev/null", O_RDONLY | O_CLOEXEC) == taken);
    baton_trace_end();
    CHECK(unlink(path) == 0);
}

TEST(test_trace_takes_another_name)
{
    char folder[26];
    (void)run_child(run_named, folder);
    file_t file = take_file(folder, "-2.trace");
    look_anew(&file);
    assert_int_equal(seen_count, 1);
    assert_int_equal(rmdir(folder), 0);
}

/* The first records of a process cause no page faults. */
static void run_lap(const char *folder)
{
    struct rusage before;
    struct rusage after;
    CHECK(baton_trace_start(folder) == BATON_OK);
    CHECK(getrusage(RUSAGE_SELF, &before) == 0);
    add_spans("first");
    CHECK(getrusage(RUSAGE_SELF, &after) == 0);
    /* A sanitizer's own memory causes others. */
    CHECK(SUPPORT_SANITIZED || after.ru_minflt - before.ru_minflt < 20);
}

TEST(test_trace_has_its_pages)
{
    char folder[26];
    (void)own(); /* sets the number of records */
    (void)run_child(run_lap, folder);
    (void)take_file(folder, ".trace");
    assert_int_equal(rmdir(folder), 0);
}

static void run_without_room(const char *folder)
{
    const struct rlimit none = {100000, 100000};
    baton_engine_t *engine;
    CHECK(baton_trace_start("/proc/self/exe") == BATON_ERR_SYSTEM);
    CHECK(strstr(baton_error_message(), "Not a directory") != NULL);
    if (unshare(CLONE_NEWNS) == 0 &&
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("tmpfs", folder, "tmpfs", 0, "size=500k") == 0) {
        CHECK(baton_trace_start(folder) == BATON_ERR_SYSTEM);
        CHECK(strstr(baton_error_message(), "No space left") != NULL);
        CHECK(umount(folder) == 0);
    }
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    CHECK(baton_trace_start(folder) == BATON_ERR_SYSTEM);
    CHECK(strstr(baton_error_message(), "RLIMIT_FSIZE") != NULL);
    CHECK(setenv("BATON_TRACE_RECORDS", "5000", 1) == 0);
    CHECK(setenv("BATON_TRACE", folder, 1) == 0);
    support_set_variable("BATON_LOG", "none");
    CHECK(baton_trace_start(folder) == BATON_ERR_INVALID);
    CHECK(baton_engine_open(NULL, &engine) == BATON_OK);
    CHECK(baton_engine_close(engine) == BATON_OK);
}

TEST(test_trace_needs_room)
{
    char folder[26];
    (void)run_child(run_without_room, folder);
    assert_int_equal(rmdir(folder), 0); /* nothing is left in the folder */
}

static void run_many(const char *folder)
{
    const baton_engine_options_t options = {.size = sizeof options,
                                            .progress = BATON_PROGRESS_MANUAL};
    baton_engine_t *engine;
    baton_group_t *group;
    CHECK(setenv("BATON_TRACE", folder, 1) == 0);
    support_set_variable("BATON_TRACE_RECORDS", NULL);
    CHECK(baton_engine_open(&options, &engine) == BATON_OK);
    CHECK(baton_group_create_self(engine, &group) == BATON_OK);
    for (int i = 0; i < BATON_TRACE_SCHEDULES + 10; i++) {
        baton_schedule_t *s;
        CHECK(baton_schedule_create(group, "one of many", &s) == BATON_OK);
        (void)baton_add_nop(s);
        CHECK(baton_schedule_commit(s) == BATON_OK);
        CHECK(baton_schedule_run(s, -1) == BATON_OK);
        CHECK(baton_schedule_destroy(s) == BATON_OK);
    }
}

/* The place of a schedule that was destroyed is not used again. */
TEST(test_trace_has_4096_schedules)
{
    char folder[26];
    (void)run_child(run_many, folder);
    file_t file = take_file(folder, ".trace");
    look_anew(&file);
    assert_int_equal(count_of(BATON_TRACE_END, 0), BATON_TRACE_SCHEDULES);
    for (size_t i = 0, ends = 0; i < seen_count; i++) {
        ends += seen[i].of.what == BATON_TRACE_START;
        assert_int_equal(seen[i].of.schedule, ends);
        assert_string_equal(seen[i].schedule.name, "one of many");
    }
    assert_int_equal(rmdir(folder), 0);
}

/* ---- a job that loses a rank -------------------------------------------- */

static void run_job(const char *folder, int rank)
{
    static float sum[60000];
    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *s;
    baton_store_t store;
    char text[BATON_TRACE_NAME];
    const baton_operands_t of = {
        .target = sum, .count = 60000, .dtype = BATON_F32, .op = BATON_SUM};
    CHECK(baton_engine_open(NULL, &engine) == BATON_OK);
    CHECK(baton_store_open_folder(folder, &store) == BATON_OK);
    CHECK(baton_group_create_store(engine, &store, rank, JOB_RANKS, "job",
                                   60000, &group) == BATON_OK);
    CHECK(baton_allreduce_create(group, &of, &s) == BATON_OK);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        CHECK(baton_schedule_run(s, -1) == BATON_OK);
    }
    for (int other = 0; rank == JOB_RANKS - 1 && other < rank; other++) {
        baton_lateness_t seen_of = {0};
        while (seen_of.started <= EPOCHS) {
            CHECK(baton_schedule_lateness(s, other, &seen_of) == BATON_OK);
            sched_yield();
        }
    }
    if (rank == JOB_RANKS - 1) {
        (void)raise(SIGKILL);
    }
    CHECK(baton_schedule_run(s, -1) == BATON_ERR_TRANSPORT);
    (void)snprintf(text, sizeof text, "%llu %llu",
                   (unsigned long long)baton_schedule_sent(s).messages,
                   (unsigned long long)baton_schedule_sent(s).bytes);
    baton_trace_begin(text);
}

static void run_ranks(const char *folder)
{
    pid_t ranks[JOB_RANKS];
    int status;
    CHECK(setenv("BATON_TRACE", folder, 1) == 0);
    support_set_variable("BATON_LOG", "none");
    for (int rank = 0; rank < JOB_RANKS; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] == 0) {
            run_job(folder, rank);
            _exit(0);
        }
    }
    for (int rank = 0; rank < JOB_RANKS; rank++) {
        CHECK(waitpid(ranks[rank], &status, 0) == ranks[rank]);
        CHECK(rank == JOB_RANKS - 1 ? WIFSIGNALED(status) : status == 0);
    }
}

/* The traces of the survivors and of the killed rank can be read. */
TEST(test_trace_outlives_its_process)
{
    char folder[26];
    char text[BATON_TRACE_NAME];
    file_t files[JOB_RANKS];
    (void)run_child(run_ranks, folder);
    seen_count = 0;
    for (int i = 0; i < JOB_RANKS; i++) {
        files[i] = take_file(folder, ".trace");
        look(&files[i]);
    }
    check_epochs();
    for (int i = 0; i < JOB_RANKS; i++) {
        const int rank = files[i].schedules[0].rank;
        const bool killed = rank == JOB_RANKS - 1;
        uint64_t bytes = 0;
        int losses = 0; /* number of losses of the killed rank */
        for (size_t k = 0; k < seen_count; k++) {
            const baton_trace_record_t *at = &seen[k].of;
            if (seen[k].schedule.rank != rank || at->schedule == 0) {
                continue;
            }
            bytes += at->what == BATON_TRACE_SEND ? at->value : 0;
            losses += at->what == BATON_TRACE_LOST && at->peer == JOB_RANKS - 1;
            if (at->what == BATON_TRACE_END) {
                assert_int_equal(at->peer, at->epoch > EPOCHS
                                               ? BATON_ERR_TRANSPORT
                                               : BATON_OK);
            }
        }
        assert_int_equal(losses, !killed);
        assert_int_equal(count_of(BATON_TRACE_END, rank), EPOCHS + !killed);
        (void)snprintf(text, sizeof text, "%zu %llu",
                       count_of(BATON_TRACE_SEND, rank),
                       (unsigned long long)bytes);
        assert_string_equal(files[i].names[0].name, killed ? "" : text);
    }
    (void)snprintf(text, sizeof text, "rm -r %s", folder);
    assert_int_equal(system(text), 0);
}
