/* Whether a process of this host lives. A process that is killed is noticed at
   once, even if it has a child with all of its descriptors. */
#include "support/cluster.h"
#include "transport/shm/liveness.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OWN, OTHER, PROCESSES, PATIENCE_MS = 5000 };

static baton__peer_state_t *states; /* in memory that both processes share */
static baton__doorbell_t doorbell;
static baton__liveness_t liveness;
/* A pipe: the other process writes a byte when it has sent. */
static int told[2];

static void open_own(void)
{
    states = mmap(NULL, PROCESSES * sizeof *states, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(states, MAP_FAILED);
    support_ok(baton__doorbell_open(&doorbell, states, OWN));
    support_ok(baton__liveness_open(&liveness, PROCESSES));
    assert_int_equal(pipe(told), 0);
}

static void close_own(void)
{
    baton__liveness_close(&liveness);
    baton__doorbell_close(&doorbell);
    (void)munmap(states, PROCESSES * sizeof *states);
    (void)close(told[0]);
    (void)close(told[1]);
}

/* Forks a process that introduces itself with a nonce that differs by `off`,
   forks a child, and sleeps. The process makes no checks of cmocka, since it is
   a copy of the test. */
static pid_t fork_other(uint64_t off)
{
    pid_t pid = fork();
    if (pid > 0) {
        char byte;
        assert_int_equal(read(told[0], &byte, 1), 1);
        return pid;
    }
    bool ok = baton__doorbell_open(&doorbell, states, OTHER) == BATON_OK &&
              baton__liveness_open(&liveness, PROCESSES) == BATON_OK;
    baton__peer_state_t lie[PROCESSES] = {states[OWN], states[OTHER]};
    lie[OTHER].nonce += off;
    doorbell.states = lie;
    baton__liveness_send(&liveness, &doorbell, OWN);
    if (fork() == 0) {
        /* Ctest would wait until these are closed. */
        (void)close(STDOUT_FILENO);
        (void)close(STDERR_FILENO);
        (void)sleep(2);
        _exit(0);
    }
    (void)!write(told[1], "", ok);
    for (;;) {
        (void)pause();
    }
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

TEST(test_liveness_notices_a_killed_process)
{
    open_own();
    pid_t pid = fork_other(0);
    baton__liveness_take(&liveness, &doorbell);
    struct pollfd wait = {.fd = liveness.epoll, .events = POLLIN};
    int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (own < 0) {
        end(pid);
        close_own();
        skip(); /* this kernel has no pidfds */
    }
    (void)close(own);
    assert_true(baton__liveness_is_complete(&liveness, OWN));
    assert_int_equal(poll(&wait, 1, 0), 0);
    /* A stopped process has not ended. */
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(poll(&wait, 1, 10), 0);
    assert_int_equal(baton__liveness_next(&liveness), -1);
    end(pid);
    assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
    baton__liveness_drain(&liveness);
    assert_int_equal(poll(&wait, 1, 0), 0);
    assert_int_equal(baton__liveness_next(&liveness), OTHER);
    assert_int_equal(baton__liveness_next(&liveness), -1);
    close_own();
}

/* When this process looks, more processes have ended than it reads at a
   time. */
TEST(test_liveness_tells_of_all_that_have_ended)
{
    enum { ENDED = 20 };
    support_ok(baton__liveness_open(&liveness, ENDED));
    for (int i = 0; i < ENDED; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET,
                                    .data.u32 = (uint32_t)i};
        liveness.descriptors[i] = eventfd(1, EFD_CLOEXEC);
        assert_int_equal(epoll_ctl(liveness.epoll, EPOLL_CTL_ADD,
                                   liveness.descriptors[i], &event),
                         0);
    }
    baton__liveness_drain(&liveness);
    for (int i = 0; i < ENDED; i++) {
        assert_int_equal(baton__liveness_next(&liveness), i);
    }
    assert_int_equal(baton__liveness_next(&liveness), -1);
    baton__liveness_close(&liveness);
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

TEST(test_liveness_takes_no_descriptor_of_a_stranger)
{
    open_own();
    pid_t pid = fork_other(1);
    int before = count_descriptors();
    baton__liveness_take(&liveness, &doorbell);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(liveness.descriptors[OTHER], -1);
    assert_false(baton__liveness_is_complete(&liveness, OWN));
    end(pid);
    close_own();
}
