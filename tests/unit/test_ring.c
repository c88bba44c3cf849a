/* The rings in shared memory, which are queues of records: their exact
   capacity, their end, fairness, and producers that are killed or stopped in
   the middle of a record, or while they ring a doorbell, which wakes the
   consumer. */
#include "support/cluster.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/ring.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PRODUCERS = 3, CELLS = 64, MANY = 5000, PATIENCE_S = 60 };

typedef struct memory {
    baton__cell_t cells[PRODUCERS * BATON__RING_STRIDE(CELLS)];
    baton__credit_t credits[PRODUCERS];
    _Atomic uint8_t counts[PRODUCERS];
} memory_t;

static memory_t *shared;
static uint8_t taken[PRODUCERS];
static baton__inbox_t inbox;
static baton__ring_t rings[PRODUCERS];

static int set_up(void **state)
{
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    shared = memory;
    memset(taken, 0, sizeof taken);
    inbox = (baton__inbox_t){.cells = shared->cells,
                             .credits = shared->credits,
                             .counts = shared->counts,
                             .taken = taken,
                             .producers = PRODUCERS,
                             .size = CELLS};
    for (int i = 0; i < PRODUCERS; i++) {
        rings[i] = (baton__ring_t){
            .cells = &shared->cells[(size_t)i * BATON__RING_STRIDE(CELLS)],
            .credit = &shared->credits[i],
            .count = &shared->counts[i],
            .size = CELLS};
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)munmap(shared, sizeof *shared);
    return 0;
}

#define RING_TEST(name) TEST_BETWEEN(name, set_up, tear_down)

static void fill(unsigned char *record, size_t bytes, unsigned char number)
{
    memset(record + sizeof(uint32_t), number, bytes - sizeof(uint32_t));
}

/* Puts a record whose bytes all have the value `number`. */
static bool put(int producer, size_t bytes, unsigned char number)
{
    unsigned char *record = baton__ring_claim(&rings[producer], bytes);
    if (record != NULL) {
        fill(record, bytes, number);
        baton__ring_commit(&rings[producer]);
    }
    return record != NULL;
}

static bool take(size_t bytes, unsigned char number)
{
    const unsigned char *record = baton__inbox_front(&inbox);
    bool whole = record != NULL;
    for (size_t i = sizeof(uint32_t); i < bytes && whole; i++) {
        whole = record[i] == number;
    }
    if (record != NULL) {
        baton__inbox_pop(&inbox);
    }
    return whole;
}

/* A ring holds one record less than it has cells. */
RING_TEST(test_ring_holds_exactly_its_cells)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CELLS - 1; i++) {
            assert_true(put(0, BATON__CELL_BYTES, (unsigned char)i));
        }
        assert_false(put(0, 1 + sizeof(uint32_t), 1));
        assert_false(baton__ring_is_empty(&rings[0]));
        assert_true(take(BATON__CELL_BYTES, 0));
        assert_false(put(0, BATON__CELL_BYTES + 1, 1));
        assert_true(put(0, BATON__CELL_BYTES, CELLS - 1));
        for (int i = 1; i < CELLS; i++) {
            assert_true(take(BATON__CELL_BYTES, (unsigned char)i));
        }
        assert_null(baton__inbox_front(&inbox));
        assert_true(baton__ring_is_empty(&rings[0]));
    }
}

/* A record that does not fit at the end goes to the beginning, if that is free.
   The cells that are skipped count as used. */
RING_TEST(test_ring_skips_its_end)
{
    enum { LARGE = 5 * BATON__CELL_BYTES };
    for (int i = 0; i < CELLS - 3; i++) {
        assert_true(put(1, 16, 1));
    }
    for (int i = 0; i < 6; i++) {
        assert_false(put(1, LARGE, 2));
        assert_true(take(16, 1));
    }
    assert_true(put(1, LARGE, 2)); /* 3 cells are skipped, and 5 used */
    assert_false(put(1, 16, 3));
    for (int i = 0; i < CELLS - 9; i++) {
        assert_true(take(16, 1));
    }
    assert_true(take(LARGE, 2));
    assert_null(baton__inbox_front(&inbox));
}

/* A record is seen only when it was committed, whatever its cells contained
   before, and however often a count has wrapped. */
RING_TEST(test_ring_shows_what_was_committed)
{
    for (uint32_t i = 0; i < MANY; i++) {
        size_t bytes = 16 + i * 37 % 300;
        assert_true(put((int)(i % 2), bytes, 0xff));
        assert_true(take(bytes, 0xff));
        assert_null(baton__inbox_front(&inbox));
    }
    unsigned char *first = baton__ring_claim(&rings[0], 100);
    assert_non_null(first);
    assert_null(baton__inbox_front(&inbox));
    assert_true(put(1, 50, 2));
    assert_true(take(50, 2));
    fill(first, 100, 1);
    baton__ring_commit(&rings[0]);
    assert_true(take(100, 1));
}

RING_TEST(test_ring_producers_take_turns)
{
    for (unsigned char i = 0; i < 3; i++) {
        assert_true(put(0, 16, i));
        assert_true(put(2, 16, 100 + i));
    }
    for (unsigned char i = 0; i < 3; i++) {
        assert_true(take(16, i));
        assert_true(take(16, 100 + i));
    }
}

/* ---- processes --------------------------------------------------------- */

/* Runs a process that puts one record into the ring, and gets a signal in the
   middle of the next one. */
static pid_t fork_struck(int producer, int signal)
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    (void)put(producer, 100, 7);
    void *record = baton__ring_claim(&rings[producer], 300);
    (void)kill(getpid(), signal);
    fill(record, 300, 8);
    baton__ring_commit(&rings[producer]);
    _exit(0);
}

static pid_t fork_producer(int producer)
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    for (int i = 0; i < MANY; i++) {
        while (!put(producer, 16 + (size_t)i % 300, (unsigned char)i)) {
            (void)usleep(10);
        }
    }
    _exit(0);
}

/* Like take(), but waits until there is a record. */
static bool await(size_t bytes, unsigned char number)
{
    while (baton__inbox_front(&inbox) == NULL) {
        (void)usleep(10);
    }
    return take(bytes, number);
}

RING_TEST(test_ring_costs_a_struck_producer_its_own_records)
{
    int status;
    (void)alarm(PATIENCE_S);
    pid_t killed = fork_struck(0, SIGKILL);
    assert_int_equal(waitpid(killed, NULL, 0), killed);
    pid_t stopped = fork_struck(1, SIGSTOP);
    assert_int_equal(waitpid(stopped, &status, WUNTRACED), stopped);
    assert_true(WIFSTOPPED(status));
    assert_true(take(100, 7));
    assert_true(take(100, 7));
    pid_t other = fork_producer(2);
    for (int i = 0; i < MANY; i++) {
        assert_true(await(16 + (size_t)i % 300, (unsigned char)i));
    }
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_null(baton__inbox_front(&inbox));
    assert_int_equal(kill(stopped, SIGCONT), 0);
    assert_true(await(300, 8));
    assert_int_equal(waitpid(stopped, NULL, 0), stopped);
    (void)alarm(0);
}

/* ---- doorbells ----------------------------------------------------------- */

enum { BEFORE = 1, BEHIND };
/* The moment of the signal, before or after the call of sendto; 0: no
   signal. */
static int strikes;
static int strike; /* the signal that is raised */

/* This definition replaces the C library's. */
ssize_t sendto(int fd, const void *data, size_t bytes, int flags,
               __CONST_SOCKADDR_ARG to, socklen_t size)
{
    const void *address;
    memcpy(&address, &to, sizeof address);
    if (strikes == BEFORE) {
        (void)kill(getpid(), strike);
    }
    ssize_t sent = syscall(SYS_sendto, fd, data, bytes, flags, address, size);
    if (strikes == BEHIND) {
        (void)kill(getpid(), strike);
    }
    return sent;
}

static bool is_rung(const baton__doorbell_t *bell)
{
    struct pollfd fd = {.fd = bell->socket, .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

/* Arms the sleeper. A process that rings the sleeper's bell gets the signal
   meanwhile. The sleeper must be woken by this process or, if the signal came
   before the ring, by another process. After the sleeper is armed again,
   another process must wake it, too. */
static void expect_woken(baton__doorbell_t bells[3], baton__bell_t armed_for,
                         int where)
{
    int status;
    baton__doorbell_arm(&bells[0], armed_for);
    pid_t struck = fork();
    if (struck == 0) {
        strikes = where;
        baton__doorbell_ring(&bells[1], 0, true);
        _exit(0);
    }
    assert_int_equal(waitpid(struck, &status, WUNTRACED), struck);
    if (where == BEFORE) {
        baton__doorbell_ring(&bells[2], 0, true);
    }
    assert_true(is_rung(&bells[0]));
    for (int round = 0; round < 2; round++) {
        while (is_rung(&bells[0])) {
            baton__doorbell_drain(&bells[0]);
        }
        baton__doorbell_disarm(&bells[0]);
        baton__doorbell_arm(&bells[0], armed_for);
        if (round == 0 && WIFSTOPPED(status)) {
            assert_int_equal(kill(struck, SIGCONT), 0);
            assert_int_equal(waitpid(struck, NULL, 0), struck);
        }
        baton__doorbell_ring(&bells[2], 0, true);
        assert_true(is_rung(&bells[0]));
    }
}

TEST(test_bell_of_a_struck_process_is_heard)
{
    static const int signals[] = {SIGKILL, SIGSTOP};
    static const baton__bell_t kinds[] = {BATON__BELL_ALL, BATON__BELL_URGENT};
    baton__doorbell_t bells[3] = {{.due_count = 0}};
    baton__peer_state_t *states =
        mmap(NULL, 3 * sizeof *states, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(states, MAP_FAILED);
    for (int i = 0; i < 3; i++) {
        support_ok(baton__doorbell_open(&bells[i], states, i));
    }
    (void)alarm(PATIENCE_S);
    for (int i = 0; i < 8; i++) {
        strike = signals[i & 1];
        expect_woken(bells, kinds[i >> 1 & 1], i < 4 ? BEFORE : BEHIND);
    }
    (void)alarm(0);
    for (int i = 0; i < 3; i++) {
        baton__doorbell_close(&bells[i]);
    }
    (void)munmap(states, 3 * sizeof *states);
}
