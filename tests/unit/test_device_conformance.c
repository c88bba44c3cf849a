/* The conformance suite of device ports on the emulated device, and tests of
   the emulated device itself. */
#include "support/cmocka.h"
#include "support/device_conformance.h"
#include "support/emulated.h"
#include "support/sanitized.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the fixture -------------------------------------------------------- */

static baton_stream_t user_stream(device_subject_t *self)
{
    return emulated_stream(self->device);
}

static void slow_work(device_subject_t *self, baton_stream_t stream, int us)
{
    emulated_delay(self->device, stream, us);
}

static void read_memory(device_subject_t *self, void *host, const void *memory,
                        size_t bytes)
{
    emulated_read(self->device, host, memory, bytes);
}

static void write_memory(device_subject_t *self, void *memory, const void *host,
                         size_t bytes)
{
    emulated_write(self->device, memory, host, bytes);
}

static void fail_next_work(device_subject_t *self)
{
    emulated_fail_work(self->device, 1);
}

static void repair(device_subject_t *self)
{
    emulated_repair(self->device);
}

static device_subject_t open_subject(const emulated_options_t *options)
{
    emulated_t *device = emulated_open(options);
    return (device_subject_t){.port = emulated_port(device),
                              .device = device,
                              .user_stream = user_stream,
                              .slow_work = slow_work,
                              .read = read_memory,
                              .write = write_memory,
                              .fail_next_work = fail_next_work,
                              .repair = repair,
                              .rounds = SUPPORT_SANITIZED ? 2000 : 10000,
                              .seed = support_seed()};
}

/* A device that is usually fast, one with delays, and one with one thread and
   no handles. */
static void run_case(void **state)
{
    const device_conformance_case_t *test = *state;
    const emulated_options_t options[] = {
        {.seed = support_seed(), .delay_us = 1},
        {.seed = support_seed() + 1, .delay_us = 60, .workers = 3},
        {.seed = support_seed() + 2, .workers = 1, .no_handles = true}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        device_subject_t subject = open_subject(&options[i]);
        device_subject_t other = open_subject(&options[i]);
        subject.other = &other;
        bool passed = device_conformance_run(test, &subject);
        emulated_counters_t counters = emulated_counters(subject.device);
        subject.port->close(subject.device);
        other.port->close(other.device);
        if (!passed) {
            fail_msg("%s", subject.failure);
        }
        assert_int_equal(counters.allocated, 0);
        assert_int_equal(counters.events, 0);
    }
}

/* ---- the emulated device's own ------------------------------------------- */

#if !SUPPORT_SANITIZED /* a sanitizer installs signal handlers of its own */

/* Runs fn in a child, and returns the signal that ended it. A sanitizer's own
   handler would exit instead. */
static int ends_by(void (*fn)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        fn();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void read_by_the_host(void)
{
    emulated_t *device = emulated_open(NULL);
    volatile char *memory = emulated_allocate(device, 64);
    _exit(memory[0] != 0 ? 0 : 1);
}

static void release_what_is_in_use(void)
{
    emulated_t *device = emulated_open(NULL);
    const baton_device_port_t *port = emulated_port(device);
    char *memory = emulated_allocate(device, 64);
    void *gate = emulated_gate(device);
    if (port->await(device, NULL, gate, 1) ||
        port->copy(device, NULL, memory, memory + 32, 16)) {
        _exit(1);
    }
    emulated_release(device, memory);
}

TEST(test_emulated_memory_in_use_is_not_released)
{
    assert_int_equal(ends_by(release_what_is_in_use), SIGABRT);
}

TEST(test_emulated_memory_is_not_the_hosts)
{
    assert_int_equal(ends_by(read_by_the_host), SIGSEGV);
}
#endif

int main(int argc, char **argv)
{
    support_seed();
    device_conformance_add(run_case);
    return support_run_tests(argc, argv, NULL, NULL);
}
