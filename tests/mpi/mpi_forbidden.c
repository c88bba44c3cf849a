/* Hosts that forbid something, as containers do: a system call that the library
   would like to use fails in all ranks. Groups can be made nevertheless,
   results are right, and one rank warns once. The argument selects what is
   forbidden:

     cma     process_vm_readv fails with EPERM
     pidfd   pidfd_open fails with EPERM
     late    process_vm_readv and process_vm_writev fail once there is a group
     private rank 1 forbids others to read its memory once there is a group
     shm     /dev/shm has no room, and there is no other shared memory
     memfd   memfd_create fails
     files   rank 1 may have too few descriptors

   The test is skipped if there is no seccomp. The exit code is the result. */
#include "support/mpi.h"
#include <baton/engine.h>
#include <baton/memory.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SKIPPED = 125 };

typedef struct ban {
    const char *name;
    unsigned call;
    unsigned error;
    const char *says; /* a part of the warning */
    int by;           /* number of ranks of a host that warn; 0: each rank */
    bool late;        /* the call is forbidden only once there is a group */
} ban_t;

static const char refused[] = "may no longer access the memory of rank";

static const ban_t bans[] = {
    {"cma", SYS_process_vm_readv, EPERM,
     "process_vm_readv (rank 0: Operation not permitted): messages above", 1,
     false},
    {"pidfd", SYS_pidfd_open, EPERM,
     "watch each other by pidfd_open (rank 0: Operation not", 1, false},
    {"late", SYS_process_vm_readv, EPERM, refused, 1, true},
    {"private", 0, EPERM, refused, 1, true},
    {"shm", SYS_fallocate, ENOSPC,
     "can't share memory (rank 0: shared memory: posix_fallocate", 1, false},
    {"memfd", SYS_memfd_create, EPERM, "use ordinary memory", 0, false},
    {"files", 0, EMFILE, "can't share memory (rank 1: ", 1, false},
};

static const ban_t *banned;
static atomic_int said;
static bool reads = true; /* false: ranks can't read each other's memory */

/* Makes a system call fail in all threads of this process. */
static bool forbid(unsigned call, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                   SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/* Gives up the right to read other processes' private memory (CAP_SYS_PTRACE),
   for this thread and those that it starts. */
static bool give_up_right(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2];
    bool read = syscall(SYS_capget, &head, rights) == 0;
    rights[0].effective &= ~(1U << CAP_SYS_PTRACE);
    return read && syscall(SYS_capset, &head, rights) == 0;
}

static bool begin_late(const ban_t *ban)
{
    return ban->call != 0 ? forbid(ban->call, ban->error) &&
                                forbid(SYS_process_vm_writev, ban->error)
                          : world.rank != 1 || prctl(PR_SET_DUMPABLE, 0) == 0;
}

static void on_log(void *arg, baton_log_level_t level, const char *message)
{
    if (level == BATON_LOG_WARN && strstr(message, banned->says) != NULL) {
        atomic_fetch_add(&said, 1);
    }
    reads &= strstr(message, "may not read each other") == NULL;
}

static void sum(int32_t *memory, size_t count)
{
    int32_t ranks = world.size;
    baton_schedule_t *s = support_mpi_sum(
        world.group, memory, count * sizeof *memory, BATON_I32, "ring");
    for (size_t i = 0; i < count; i++) {
        memory[i] = world.rank + (int32_t)i;
    }
    support_mpi_run(s);
    for (size_t i = 0; i < count; i++) {
        support_mpi_check(memory[i] ==
                              ranks * (ranks - 1) / 2 + ranks * (int32_t)i,
                          "wrong sum");
    }
    support_mpi_ok(baton_schedule_destroy(s));
}

static void use(void)
{
    static const size_t counts[] = {2, 1024, 16 * 1024, (1 << 18) + 1};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        void *shared = NULL;
        size_t bytes = counts[i] * sizeof(int32_t);
        int32_t *own = malloc(bytes);
        support_mpi_ok(baton_memory_alloc(world.group, bytes, &shared));
        sum(own, counts[i]);
        sum(shared, counts[i]);
        support_mpi_ok(baton_memory_free(world.group, shared));
        free(own);
    }
}

/* Allows one more descriptor each time, until a group can be made, without
   shared memory. */
static void create_with_few_files(void)
{
    enum { FILES = 256 };
    int held[FILES], count = 0;
    const struct rlimit limit = {FILES, FILES};
    baton_status_t status = BATON_ERR_SYSTEM;
    support_mpi_ok(baton_engine_open(NULL, &world.engine));
    if (world.rank == 1 && setrlimit(RLIMIT_NOFILE, &limit) == 0) {
        while ((held[count] = dup(STDERR_FILENO)) >= 0) {
            count++;
        }
    }
    while (status == BATON_ERR_SYSTEM) {
        if (count > 0) {
            close(held[--count]);
        }
        status =
            baton_group_create_mpi(world.engine, MPI_COMM_WORLD, &world.group);
        support_mpi_check(status == BATON_OK || world.rank != 1 ||
                              strstr(baton_error_message(), "RLIMIT_NOFILE") !=
                                  NULL,
                          "the limit is named");
    }
    support_mpi_ok(status);
    while (count > 0) {
        close(held[--count]);
    }
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof bans / sizeof bans[0]; i++) {
        banned =
            argc > 1 && strcmp(argv[1], bans[i].name) == 0 ? &bans[i] : banned;
    }
    if (banned == NULL) {
        fprintf(
            stderr,
            "usage: mpi_forbidden cma|pidfd|late|private|shm|memfd|files\n");
        return 2;
    }
    support_mpi_running = banned->name;
    if (banned->late
            ? !give_up_right()
            : banned->call != 0 && !forbid(banned->call, banned->error)) {
        fprintf(stderr, "mpi_forbidden: skipped: prctl: %s\n", strerror(errno));
        return SKIPPED;
    }
    baton_log_set(on_log, NULL);
    support_mpi_begin(argc, argv);
    if (banned->error == EMFILE) {
        create_with_few_files();
    } else {
        support_mpi_open();
    }
    use();
    MPI_Bcast(&reads, 1, MPI_C_BOOL, 0, MPI_COMM_WORLD);
    if (banned->late && !(reads && begin_late(banned))) {
        fprintf(stderr, "mpi_forbidden: skipped: %s\n", strerror(errno));
        return SKIPPED;
    }
    use();
    support_mpi_ok(baton_group_destroy(world.group));
    support_mpi_ok(baton_group_create_mpi(world.engine, MPI_COMM_WORLD,
                                          /* Make a second group. */
                                          &world.group));
    use();
    int by = atomic_load(&said);
    MPI_Allreduce(MPI_IN_PLACE, &by, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    int expected = banned->by > 0 ? banned->by : world.size;
    support_mpi_end();
    support_mpi_check(by == expected, "it is logged once");
    return 0;
}
