/* Wrong use over MPI. A process can initialise MPI only once, so the argument
   selects a test:

     (none)      MPI is not yet initialised, or was finalised; communicators
                 that are wrong; attributes of communicators
     serialized  MPI has a thread level that is too low for a progress thread
     verified    schedules that commit refuses with BATON_VERIFY=1, on 3 ranks
     closed      the program has closed descriptors 0 to 2

   The exit code is the result. */
#include "support/mpi.h"
#include "support/stuck.h"
#include <baton/memory.h>
#include <baton/mpi_at.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static baton_engine_t *open_engine(baton_progress_t progress)
{
    baton_engine_t *engine = NULL;
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = progress;
    support_mpi_ok(baton_engine_open(&options, &engine));
    return engine;
}

static void expect_refused(baton_engine_t *engine, MPI_Comm comm,
                           baton_status_t status, const char *says)
{
    baton_group_t *none = NULL;
    support_mpi_expect(baton_group_create_mpi(engine, comm, &none), status);
    support_mpi_says(says);
    support_mpi_check(none == NULL, "a failed create wrote its result");
}

static void use_wrong_communicators(baton_engine_t *engine)
{
    MPI_Comm half, inter;
    expect_refused(engine, MPI_COMM_NULL, BATON_ERR_INVALID, "MPI_COMM_NULL");
    expect_refused(NULL, MPI_COMM_WORLD, BATON_ERR_INVALID, "engine");
    expect_refused(world.rank == 0 ? NULL : engine, MPI_COMM_WORLD,
                   BATON_ERR_INVALID,
                   world.rank == 0 ? "engine is NULL" : "on another rank");
    if (world.size >= 2) {
        MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, world.rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - world.rank % 2, 3,
                             &inter);
        expect_refused(engine, inter, BATON_ERR_INVALID, "intercommunicator");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
}

/* Makes a group of a communicator that is given by its address, as other
   languages give it. */
static void use_addresses(baton_engine_t *engine)
{
    baton_group_t *group = NULL;
    MPI_Comm half, none = MPI_COMM_NULL;
    support_mpi_expect(baton_group_create_mpi_at(engine, NULL, &group),
                       BATON_ERR_INVALID);
    support_mpi_says("baton_group_create_mpi_at: comm_address is NULL");
    support_mpi_expect(baton_group_create_mpi_at(engine, &none, &group),
                       BATON_ERR_INVALID);
    support_mpi_says("MPI_COMM_NULL");
    support_mpi_check(group == NULL, "a failed create wrote its result");
    MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, world.rank, &half);
    support_mpi_ok(baton_group_create_mpi_at(engine, &half, &group));
    support_mpi_check(baton_group_size(group) ==
                          (world.size + 1 - world.rank % 2) / 2,
                      "the group has the ranks of another communicator");
    support_mpi_ok(baton_group_destroy(group));
    MPI_Comm_free(&half);
}

static int count_copies(MPI_Comm comm, int keyval, void *count, void *in,
                        void *out, int *copies)
{
    *copies = 0;
    ++*(int *)count;
    return MPI_SUCCESS;
}

/* The creation of a group calls none of the functions that the application has
   set for attributes. */
static void leave_attributes_alone(baton_engine_t *engine)
{
    int keyval, count = 0;
    baton_group_t *group;
    MPI_Comm_create_keyval(count_copies, MPI_COMM_NULL_DELETE_FN, &keyval,
                           &count);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &count);
    support_mpi_ok(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    support_mpi_ok(baton_group_destroy(group));
    MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
    MPI_Comm_free_keyval(&keyval);
    support_mpi_check(count == 0, "an attribute was copied");
}

/* Returns the set of signals that a thread of the library blocks, read from its
   file in /proc. Returns 0 for a thread of another library. */
static unsigned long long blocked_signals(const char *thread)
{
    char path[80], line[200];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", thread);
    FILE *file = fopen(path, "r");
    bool own = fgets(line, sizeof line, file) != NULL &&
               strncmp(line, "Name:\tbaton", 11) == 0;
    while (own && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "SigBlk: %llx", &blocked) != 1) {
    }
    fclose(file);
    return blocked & 0x7fffffff;
}

/* The application's signal handlers run on none of the library's threads,
   unless the thread itself has raised the signal. */
static void leave_signals_alone(baton_engine_t *engine)
{
    static const int raised[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,
                                 SIGTRAP, SIGSYS, SIGKILL, SIGSTOP};
    unsigned long long right = 0x7fffffff, blocked;
    int threads = 0;
    baton_group_t *group;
    baton_partial_t *partial;
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    options.count = 1;
    options.dtype = BATON_I32;
    options.on_loss = BATON_ON_LOSS_CONTINUE;
    support_mpi_ok(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    support_mpi_ok(baton_partial_create(group, &options, &partial));
    for (int i = 0; i < 8; i++) {
        right &= ~(1ull << (raised[i] - 1));
    }
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.') {
            continue;
        }
        int tries = 0;
        /* Repeats this until the thread has begun, since it blocks all signals
           before that. */
        do {
            blocked = blocked_signals(task->d_name);
        } while (blocked != 0 && blocked != right && ++tries < 100000);
        support_mpi_check(blocked == 0 || blocked == right,
                          "a thread blocks other signals than it should");
        threads += blocked != 0;
    }
    closedir(tasks);
    support_mpi_check(threads == 3, "not three threads");
    support_mpi_ok(baton_partial_destroy(partial));
    support_mpi_ok(baton_group_destroy(group));
}

static void use_wrongly(int argc, char **argv)
{
    bool open_before = fcntl(0, F_GETFD) >= 0;
    baton_engine_t *engine = open_engine(BATON_PROGRESS_DEFAULT);
    expect_refused(engine, MPI_COMM_WORLD, BATON_ERR_STATE,
                   "MPI_Init has not been called");
    support_mpi_begin(argc, argv);
    use_wrong_communicators(engine);
    use_addresses(engine);
    leave_attributes_alone(engine);
    leave_signals_alone(engine);
    support_mpi_end();
    expect_refused(engine, MPI_COMM_WORLD, BATON_ERR_STATE,
                   "MPI_Finalize has been called");
    support_mpi_ok(baton_engine_close(engine));
    support_mpi_check(!open_before || fcntl(0, F_GETFD) >= 0,
                      "a descriptor was closed that is not the library's");
}

/* A group can't be made if the engines of all ranks, or that of one rank, have
   a progress thread. The error on one rank reaches the others. Nothing remains
   of these groups, so groups of manual engines can be made afterwards. */
static void use_too_low_a_level(void)
{
    baton_group_t *group;
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    baton_engine_t *thread = open_engine(BATON_PROGRESS_THREAD);
    baton_engine_t *manual = open_engine(BATON_PROGRESS_MANUAL);
    for (int i = 0; i < 20 && level < MPI_THREAD_MULTIPLE; i++) {
        bool refused = i == 0 || world.rank == 0;
        expect_refused(refused ? thread : manual, MPI_COMM_WORLD,
                       BATON_ERR_STATE,
                       refused ? "MPI_THREAD_MULTIPLE" : "on another rank");
        support_mpi_ok(baton_group_create_mpi(manual, MPI_COMM_WORLD, &group));
        support_mpi_healthy(group);
        support_mpi_ok(baton_group_destroy(group));
    }
    support_mpi_ok(baton_engine_close(thread));
    support_mpi_ok(baton_engine_close(manual));
    MPI_Finalize();
}

/* For each mistake the first ranks make a group. Its commit fails, and the
   group works afterwards. */
static void commit_mistakes(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    baton_engine_t *engine = open_engine(BATON_PROGRESS_DEFAULT);
    for (size_t i = 0; i < stuck_refusal_count; i++) {
        bool one = world.rank < stuck_refusals[i].ranks;
        MPI_Comm some;
        baton_group_t *group;
        MPI_Comm_split(MPI_COMM_WORLD, one ? 0 : MPI_UNDEFINED, 0, &some);
        if (one) {
            support_mpi_ok(baton_group_create_mpi(engine, some, &group));
            support_mpi_check(stuck_refuse(group, &stuck_refusals[i]),
                              stuck_refusals[i].text);
            support_mpi_healthy(group);
            support_mpi_ok(baton_group_destroy(group));
            MPI_Comm_free(&some);
        }
    }
    support_mpi_ok(baton_engine_close(engine));
    support_mpi_end();
}

enum { DESCRIPTORS = 512, MOST = 1 << 18 };

/* Stores the flags of each descriptor; -1: the descriptor is not open. */
static void list_descriptors(int flags[DESCRIPTORS])
{
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        flags[fd] = fcntl(fd, F_GETFD);
    }
}

/* Returns the number of listening sockets that this process has opened since
   `before`. */
static int count_listeners(const int *before, const int *now)
{
    int count = 0;
    for (int fd = 3; fd < DESCRIPTORS; fd++) {
        int listens = 0;
        socklen_t bytes = sizeof listens;
        if (now[fd] >= 0 && before[fd] < 0) {
            (void)getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes);
        }
        count += listens;
    }
    return count;
}

/* Sums vectors of all lengths, in memory that the ranks of a host read in
   place. */
static void sum_all_lengths(baton_group_t *group, int32_t *data)
{
    for (size_t count = 1; count <= MOST; count *= 8) {
        for (size_t i = 0; i < count; i++) {
            data[i] = world.rank + (int)i;
        }
        support_mpi_ok(baton_allreduce_now(group, NULL, data, count, BATON_I32,
                                           BATON_SUM));
        for (size_t i = 0; i < count; i++) {
            int right = world.size * (world.size - 1) / 2;
            support_mpi_check(data[i] == right + world.size * (int)i,
                              "wrong sum");
        }
    }
}

/* A program may have closed its standard descriptors. The library must not use
   their numbers for its own descriptors, because other code writes to these
   numbers. exec must close all of the library's descriptors, and fork those by
   which other processes find out that this process lives. */
static void close_standard(int argc, char **argv)
{
    int before[DESCRIPTORS], now[DESCRIPTORS], copies[3], own = 0, left;
    int sent[8] = {0}, received[8];
    baton_group_t *group;
    int32_t *data;
    support_mpi_begin(argc, argv);
    for (int fd = 0; fd < 3; fd++) {
        copies[fd] = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTORS);
    }
    /* MPI opens its own descriptors when it first sends. */
    MPI_Alltoall(sent, 1, MPI_INT, received, 1, MPI_INT, MPI_COMM_WORLD);
    list_descriptors(before);
    for (int fd = 0; fd < 3; fd++) {
        close(fd);
    }
    baton_engine_t *engine = open_engine(BATON_PROGRESS_DEFAULT);
    support_mpi_ok(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    support_mpi_ok(baton_memory_alloc(group, MOST * 4, (void **)&data));
    sum_all_lengths(group, data);
    list_descriptors(now);
    for (int fd = 0; fd < 3; fd++) {
        dup2(copies[fd], fd); /* messages of this test go there */
        support_mpi_check(now[fd] < 0, "a standard descriptor was taken");
    }
    for (int fd = 3; fd < DESCRIPTORS; fd++) {
        own += now[fd] >= 0 && before[fd] < 0;
        support_mpi_check(before[fd] >= 0 || now[fd] < 0 ||
                              now[fd] == FD_CLOEXEC,
                          "exec leaves a descriptor open");
    }
    support_mpi_check(own >= 8, "no descriptors were seen");
    support_mpi_check(count_listeners(before, now) > 0, "no listener was seen");
    const pid_t child = fork();
    if (child == 0) {
        _exit(count_listeners(before, now));
    }
    (void)waitpid(child, &left, 0);
    support_mpi_check(left == 0, "a forked child listens for its parent");
    support_mpi_ok(baton_memory_free(group, data));
    support_mpi_ok(baton_group_destroy(group));
    support_mpi_ok(baton_engine_close(engine));
    support_mpi_end();
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "verified") == 0) {
        commit_mistakes(argc, argv);
    } else if (argc > 1 && strcmp(argv[1], "closed") == 0) {
        close_standard(argc, argv);
    } else if (argc > 1) {
        use_too_low_a_level();
    } else {
        use_wrongly(argc, argv);
    }
    return 0;
}
