/* Hosts that forbid something, as containers do: a system call that the library
   would like to use fails in all ranks. Groups are made all the same, results
   are right, and one rank says once what is missing. By argument:

     cma, absent   process_vm_readv gives EPERM, ENOSYS
     shm           there is no room in /dev/shm, nor for any shared memory
     memfd         there are no descriptors of memory

   Skipped where there is no seccomp. The exit code is the result. */
#include "support/mpi.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { SKIPPED = 125, WAIT_MS = 60000 };

typedef struct ban {
    const char *name;
    unsigned call;
    unsigned error;
    const char *says; /* a part of what is logged */
    int by;           /* how many ranks of a host say it; 0: each */
} ban_t;

static const ban_t bans[] = {
    {"cma", SYS_process_vm_readv, EPERM, "may not read each other's memory", 1},
    {"absent", SYS_process_vm_readv, ENOSYS, "may not read each other's memory",
     1},
    {"shm", SYS_fallocate, ENOSPC, "can't share memory", 1},
    {"memfd", SYS_memfd_create, EPERM, "take ordinary memory", 0},
};

static const ban_t *banned;
static atomic_int said;

static bool forbid(const ban_t *ban)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ban->call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ban->error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void on_log(void *arg, baton_log_level_t level, const char *message)
{
    (void)arg;
    if (level == BATON_LOG_WARN && strstr(message, banned->says) != NULL) {
        atomic_fetch_add(&said, 1);
    }
}

static void sum(baton_group_t *group, int32_t *memory, size_t count)
{
    baton_schedule_t *s;
    int32_t rank = baton_group_rank(group);
    int32_t size = baton_group_size(group);
    for (size_t i = 0; i < count; i++) {
        memory[i] = rank + (int32_t)i;
    }
    support_mpi_expect(baton_schedule_create(group, "sum", &s), BATON_OK);
    size_t bytes = count * sizeof *memory;
    baton_view_t view =
        baton_view(baton_buffer_bind(s, memory, bytes), 0, bytes);
    baton_allreduce_t args = {.size = sizeof args,
                              .source = view,
                              .target = view,
                              .dtype = BATON_I32,
                              .op = BATON_SUM,
                              .algorithm = "ring"};
    baton_allreduce(s, &args);
    support_mpi_expect(baton_schedule_commit(s), BATON_OK);
    support_mpi_expect(baton_schedule_start(s), BATON_OK);
    support_mpi_expect(baton_schedule_wait(s, WAIT_MS), BATON_OK);
    for (size_t i = 0; i < count; i++) {
        if (memory[i] != size * (size - 1) / 2 + size * (int32_t)i) {
            support_mpi_die("wrong sum");
        }
    }
    support_mpi_expect(baton_schedule_destroy(s), BATON_OK);
}

static void use(baton_group_t *group)
{
    static const size_t counts[] = {2, 1024, 16 * 1024, (1 << 18) + 1};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        void *shared = NULL;
        size_t bytes = counts[i] * sizeof(int32_t);
        int32_t *own = malloc(bytes);
        support_mpi_expect(baton_memory_alloc(group, bytes, &shared), BATON_OK);
        sum(group, own, counts[i]);
        sum(group, shared, counts[i]);
        support_mpi_expect(baton_memory_free(group, shared), BATON_OK);
        free(own);
    }
}

int main(int argc, char **argv)
{
    int level, rank, size;
    for (size_t i = 0; i < sizeof bans / sizeof bans[0]; i++) {
        banned =
            argc > 1 && strcmp(argv[1], bans[i].name) == 0 ? &bans[i] : banned;
    }
    if (banned == NULL) {
        fprintf(stderr, "usage: mpi_forbidden cma|absent|shm|memfd\n");
        return 2;
    }
    support_mpi_running = banned->name;
    if (!forbid(banned)) {
        fprintf(stderr, "mpi_forbidden: skipped: prctl: %s\n", strerror(errno));
        return SKIPPED;
    }
    baton_log_set(on_log, NULL);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    baton_engine_t *engine;
    support_mpi_expect(baton_engine_open(NULL, &engine), BATON_OK);
    for (int again = 0; again < 2; again++) {
        baton_group_t *group;
        support_mpi_expect(
            baton_group_create_mpi(engine, MPI_COMM_WORLD, &group), BATON_OK);
        use(group);
        support_mpi_expect(baton_group_destroy(group), BATON_OK);
    }
    support_mpi_expect(baton_engine_close(engine), BATON_OK);
    if (atomic_load(&said) != (rank == 0 || banned->by == 0)) {
        support_mpi_die("it is logged once");
    }
    MPI_Finalize();
    return 0;
}
