#include "support/device_conformance.h"

#include "support/cmocka.h"
#include "support/values.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define CASE(name)    static void name(device_subject_t *self)
#define DECLARE(name) CASE(name);
DEVICE_CONFORMANCE_LIST(DECLARE)

static const device_conformance_case_t cases[] = {
#define ENTRY(name) {#name, name},
    DEVICE_CONFORMANCE_LIST(ENTRY)};

void device_conformance_add(void (*run)(void **state))
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        support_add((struct CMUnitTest){cases[i].name, run, NULL, NULL,
                                        (void *)&cases[i]});
    }
}

/* Records a failure and continues. After a failure all waits return. */
#define EXPECT(self, condition)                                                \
    expect(self, condition, #condition, __func__, __LINE__)

static bool expect(device_subject_t *self, bool condition, const char *text,
                   const char *function, int line)
{
    if (!condition && self->failure[0] == '\0') {
        snprintf(self->failure, sizeof self->failure,
                 "%s: %s, line %d: %s (seed %" PRIu64 ") %.200s",
                 self->port->name, function, line, text, self->seed,
                 baton_error_message());
    }
    return condition;
}

bool device_conformance_run(const device_conformance_case_t *test,
                            device_subject_t *self)
{
    self->failure[0] = '\0';
    test->run(self);
    return self->failure[0] == '\0';
}

/* ---- short forms of the port ------------------------------------------- */

static const int SLOW_US = 20000;

static void *allocate(device_subject_t *self, baton_memory_t kind, size_t bytes)
{
    void *memory = NULL;
    EXPECT(self, self->port->allocate(self->device, kind, bytes, &memory) ==
                     BATON_OK);
    EXPECT(self, memory != NULL);
    if (memory == NULL) {
        fprintf(stderr, "%s\n", self->failure);
        abort(); /* no case can continue */
    }
    return memory;
}

static void *on_device(device_subject_t *self, size_t bytes)
{
    return allocate(self, BATON_MEMORY_DEVICE, bytes);
}

static void *pinned(device_subject_t *self, size_t bytes)
{
    return allocate(self, BATON_MEMORY_HOST, bytes);
}

static void release(device_subject_t *self, baton_memory_t kind, void *memory)
{
    self->port->release(self->device, kind, memory);
}

static baton_stream_t stream(device_subject_t *self, int k)
{
    return self->port->streams[k];
}

static void *event(device_subject_t *self)
{
    void *made = NULL;
    EXPECT(self, self->port->event_create(self->device, &made) == BATON_OK);
    return made;
}

static void destroy_event(device_subject_t *self, void *made)
{
    self->port->event_destroy(self->device, made);
}

/* Allocates a word for which streams can wait. Its value is 0. */
static void *flag(device_subject_t *self)
{
    void *made = pinned(self, sizeof(uint64_t));
    atomic_init((_Atomic uint64_t *)made, 0);
    return made;
}

static void raise_now(void *of, uint64_t value)
{
    atomic_store((_Atomic uint64_t *)of, value);
}

static void free_flag(device_subject_t *self, void *of)
{
    release(self, BATON_MEMORY_HOST, of);
}

static void await(device_subject_t *self, baton_stream_t in, void *of,
                  uint64_t value)
{
    EXPECT(self, self->port->await(self->device, in, of, value) == BATON_OK);
}

static void copy(device_subject_t *self, baton_stream_t in, void *target,
                 const void *source, size_t bytes)
{
    EXPECT(self, self->port->copy(self->device, in, target, source, bytes) ==
                     BATON_OK);
}

static void record(device_subject_t *self, baton_stream_t in, void *of)
{
    EXPECT(self, self->port->record(self->device, in, of) == BATON_OK);
}

static void follow(device_subject_t *self, baton_stream_t in, void *of)
{
    EXPECT(self, self->port->follow(self->device, in, of) == BATON_OK);
}

static baton_status_t query(device_subject_t *self, void *of)
{
    return self->port->query(self->device, of);
}

/* Waits until an event was reached or has failed. Returns the status of the
   last query. */
static baton_status_t wait_for(device_subject_t *self, void *of)
{
    baton_status_t status = query(self, of);
    while (status == BATON_AGAIN) {
        sched_yield();
        status = query(self, of);
    }
    return status;
}

/* Waits until the work that is now in the stream has been done. */
static void synchronise(device_subject_t *self, baton_stream_t in)
{
    void *end = event(self);
    record(self, in, end);
    EXPECT(self, wait_for(self, end) == BATON_OK);
    destroy_event(self, end);
}

static void fill(void *data, size_t bytes, uint64_t key)
{
    support_random_t random = support_random(key, 17);
    unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) {
        byte[i] = (unsigned char)support_random_next(&random);
    }
}

static void set_word(device_subject_t *self, void *memory, uint32_t value)
{
    self->write(self, memory, &value, sizeof value);
}

static uint32_t word(device_subject_t *self, const void *memory)
{
    uint32_t value = 0;
    self->read(self, &value, memory, sizeof value);
    return value;
}

/* ---- streams and memory ------------------------------------------------ */

CASE(streams_are_there)
{
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        for (int other = 0; other < k; other++) {
            EXPECT(self, stream(self, k) != stream(self, other));
        }
        synchronise(self, stream(self, k));
    }
    EXPECT(self, self->port->name != NULL && self->port->name[0] != '\0');
}

CASE(memory_of_both_kinds)
{
    static const size_t sizes[] = {1, 3, 256, 4097, 1000003};
    enum { SIZES = 5 };
    static const baton_memory_t kinds[] = {BATON_MEMORY_HOST,
                                           BATON_MEMORY_DEVICE};
    for (int k = 0; k < 2; k++) {
        void *memory[SIZES];
        for (int i = 0; i < SIZES; i++) {
            memory[i] = allocate(self, kinds[k], sizes[i]);
            EXPECT(self, (uintptr_t)memory[i] % 256 == 0);
            EXPECT(self, self->port->check(self->device, memory[i], sizes[i],
                                           kinds[k]) == BATON_OK);
            EXPECT(self, self->port->check(self->device,
                                           (char *)memory[i] + sizes[i] - 1, 1,
                                           kinds[k]) == BATON_OK);
            if (kinds[k] == BATON_MEMORY_HOST) {
                memset(memory[i], 42, sizes[i]);
            }
        }
        for (int i = SIZES - 1; i >= 0; i--) {
            release(self, kinds[k], memory[i]);
        }
    }
    release(self, BATON_MEMORY_DEVICE, NULL);
    void *none = NULL;
    EXPECT(self,
           self->port->allocate(self->device, BATON_MEMORY_DEVICE,
                                (size_t)1 << 46, &none) == BATON_ERR_NO_MEMORY);
    EXPECT(self, none == NULL && baton_error_message()[0] != '\0');
    /* The call that failed must not affect later work. */
    synchronise(self, stream(self, 2));
}

static void expect_refused(device_subject_t *self, const void *memory,
                           size_t bytes, baton_memory_t kind, const char *words)
{
    EXPECT(self, self->port->check(self->device, memory, bytes, kind) ==
                     BATON_ERR_INVALID);
    EXPECT(self, strstr(baton_error_message(), words) != NULL);
}

CASE(check_names_other_memory)
{
    static char fixed[64];
    char local[64];
    char *heap = malloc(64);
    char *memory = on_device(self, 4096);
    char *host = pinned(self, 4096);
    expect_refused(self, fixed, 64, BATON_MEMORY_DEVICE, "host memory");
    expect_refused(self, local, 64, BATON_MEMORY_DEVICE, "host memory");
    expect_refused(self, heap, 64, BATON_MEMORY_DEVICE, "host memory");
    expect_refused(self, host, 64, BATON_MEMORY_DEVICE, "host memory");
    expect_refused(self, memory, 64, BATON_MEMORY_HOST, "memory of device");
    expect_refused(self, memory + 4095, 1, BATON_MEMORY_HOST,
                   "memory of device");
    EXPECT(self, self->port->check(self->device, heap, 64, BATON_MEMORY_HOST) ==
                     BATON_OK);
    EXPECT(self, self->port->check(self->device, local, 64,
                                   BATON_MEMORY_HOST) == BATON_OK);
    EXPECT(self, self->port->check(self->device, memory + 100, 3996,
                                   BATON_MEMORY_DEVICE) == BATON_OK);
    if (self->other != NULL) {
        void *far = on_device(self->other, 64);
        expect_refused(self, far, 64, BATON_MEMORY_DEVICE, "memory of device");
        release(self->other, BATON_MEMORY_DEVICE, far);
    }
    release(self, BATON_MEMORY_DEVICE, memory);
    release(self, BATON_MEMORY_HOST, host);
    free(heap);
}

/* ---- copies ------------------------------------------------------------ */

enum { COPY_BYTES = 300000 };

/* Copies in all directions: CPU -> device -> device -> CPU. */
static void there_and_back(device_subject_t *self, char *out, char *a, char *b,
                           char *in, size_t bytes)
{
    baton_stream_t s = stream(self, 2);
    copy(self, s, a, out, bytes);
    copy(self, s, b, a, bytes);
    copy(self, s, in, b, bytes);
    synchronise(self, s);
    EXPECT(self, memcmp(in, out, bytes) == 0);
}

CASE(copies_of_any_size_and_place)
{
    static const size_t sizes[] = {0,  1,  2,    3,    7,    8,     15,
                                   16, 17, 4095, 4096, 4097, 65537, 262145};
    char *pinned_out = pinned(self, COPY_BYTES);
    char *pinned_in = pinned(self, COPY_BYTES);
    char *out = malloc(COPY_BYTES);
    char *in = malloc(COPY_BYTES);
    char *a = on_device(self, COPY_BYTES);
    char *b = on_device(self, COPY_BYTES);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t offset = 0; offset < 18; offset += 1 + offset % 5) {
            fill(pinned_out, COPY_BYTES, i);
            fill(out, COPY_BYTES, i + 100);
            there_and_back(self, pinned_out + offset, a + offset / 2, b + 1,
                           pinned_in + 17 - offset, sizes[i]);
            there_and_back(self, out + 3, a + offset, b + 2 * offset,
                           in + offset, sizes[i]);
        }
    }
    release(self, BATON_MEMORY_HOST, pinned_out);
    release(self, BATON_MEMORY_HOST, pinned_in);
    release(self, BATON_MEMORY_DEVICE, a);
    release(self, BATON_MEMORY_DEVICE, b);
    free(out);
    free(in);
}

/* ---- reductions -------------------------------------------------------- */

/* Tests each operator and type. Checks only that the device computes the right
   function. Other tests show that its kernels give the same bits as the CPU. */
CASE(reduces_as_the_host)
{
    enum { COUNT = 1000, BYTES = COUNT * 16 };
    static char left[BYTES], right[BYTES], found[BYTES];
    char *memory = on_device(self, 3 * BYTES);
    support_random_t random = support_random(self->seed, 8);
    for (int i = 0; i < SUPPORT_XOR * (BATON_DTYPE_COUNT - 1); i++) {
        support_op_t op = (support_op_t)(i / (BATON_DTYPE_COUNT - 1));
        baton_dtype_t dtype = (baton_dtype_t)(1 + i % (BATON_DTYPE_COUNT - 1));
        size_t bytes = COUNT * baton_dtype_size(dtype);
        baton_op_t reduction = *support_op(op);
        reduction.arg = (void *)3; /* only an average uses `arg` */
        support_fill_exact(left, COUNT, dtype, op, 0, &random);
        support_fill_exact(right, COUNT, dtype, op, 1, &random);
        self->write(self, memory + BYTES, left, bytes);
        self->write(self, memory + 2 * BYTES, right, bytes);
        if (!baton_op_takes(&reduction, dtype) ||
            !self->port->reduces(self->device, &reduction, dtype)) {
            EXPECT(self, op > SUPPORT_MAX || dtype > BATON_F64);
            continue;
        }
        EXPECT(self,
               self->port->reduce(self->device, stream(self, 2), &reduction,
                                  dtype, memory, memory + BYTES,
                                  memory + 2 * BYTES, COUNT) == BATON_OK);
        EXPECT(self,
               self->port->reduce(self->device, stream(self, 2), &reduction,
                                  dtype, memory, memory + BYTES, memory + BYTES,
                                  /* a call without elements does nothing */
                                  0) == BATON_OK);
        synchronise(self, stream(self, 2));
        self->read(self, found, memory, bytes);
        support_reduce(left, right, COUNT, dtype, op);
        support_divide(left, COUNT, dtype, op, 3);
        EXPECT(self, memcmp(found, left, bytes) == 0);
    }
    release(self, BATON_MEMORY_DEVICE, memory);
}

/* ---- flags ------------------------------------------------------------- */

CASE(flags)
{
    const uint64_t large = UINT64_C(1) << 40;
    void *made = flag(self);
    void *end = event(self);
    for (uint64_t value = 1; value <= 20; value++) {
        await(self, stream(self, 2), made, value);
        record(self, stream(self, 2), end);
        EXPECT(self, query(self, end) == BATON_AGAIN);
        if (value % 2 == 0) {
            raise_now(made, value);
        } else {
            EXPECT(self, self->port->raise(self->device, stream(self, 1), made,
                                           value) == BATON_OK);
        }
        EXPECT(self, wait_for(self, end) == BATON_OK);
    }
    /* The flag already has the value 20, so all these waits end at once. */
    for (uint64_t value = 0; value <= 20; value++) {
        await(self, stream(self, 2), made, value);
    }
    EXPECT(self, self->port->raise(self->device, stream(self, 0), made,
                                   large) == BATON_OK);
    await(self, stream(self, 2), made, large);
    synchronise(self, stream(self, 2));
    destroy_event(self, end);
    free_flag(self, made);
}

/* ---- asynchrony, sleep ------------------------------------------------- */

/* All submissions come after a closed gate in their stream. The CPU opens the
   gate only at the end, so a submission that waited for it would never
   return. */
CASE(submissions_return_at_once)
{
    void *gate = flag(self);
    void *after = flag(self);
    void *made = event(self);
    char *memory = on_device(self, 4096);
    char *host = pinned(self, 1024);
    fill(host, 1024, 3);
    baton_stream_t s = stream(self, 2);
    /* An event that was never recorded counts as reached. */
    EXPECT(self, query(self, made) == BATON_OK);
    follow(self, s, made); /* that wait delays nothing */
    await(self, s, gate, 1);
    copy(self, s, memory, host, 1024);
    copy(self, s, memory + 1024, memory, 1024);
    EXPECT(self, self->port->reduce(self->device, s, BATON_SUM, BATON_U8,
                                    memory + 2048, memory, memory + 1024,
                                    1024) == BATON_OK);
    record(self, s, made);
    follow(self, stream(self, 1), made);
    copy(self, stream(self, 1), host, memory + 2048, 1024);
    EXPECT(self, self->port->raise(self->device, stream(self, 1), after, 1) ==
                     BATON_OK);
    await(self, stream(self, 0), after, 1);
    record(self, stream(self, 0), made);
    EXPECT(self, query(self, made) == BATON_AGAIN);
    unsigned char expected[1024];
    for (int i = 0; i < 1024; i++) {
        expected[i] = (unsigned char)(2 * (unsigned char)host[i]);
    }
    raise_now(gate, 1);
    EXPECT(self, wait_for(self, made) == BATON_OK);
    EXPECT(self, memcmp(host, expected, 1024) == 0);
    destroy_event(self, made);
    free_flag(self, gate);
    free_flag(self, after);
    release(self, BATON_MEMORY_HOST, host);
    release(self, BATON_MEMORY_DEVICE, memory);
}

static void drain(const device_subject_t *self)
{
    uint64_t count;
    ssize_t got = read(self->port->descriptor, &count, sizeof count);
    (void)got; /* EAGAIN: the descriptor was not readable */
}

/* Returns whether the descriptor becomes readable within timeout_ms
   milliseconds. */
static bool wakes(device_subject_t *self, int timeout_ms)
{
    struct pollfd fd = {.fd = self->port->descriptor, .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

enum { LONG_MS = 20000 }; /* a wake-up that takes this many ms counts as lost */

/* Sleeps as an engine does: arms, polls again, and sleeps. Meanwhile another
   stream is blocked, since it waits for `gate`. */
CASE(no_wake_up_is_lost)
{
    int rounds = self->rounds > 0 ? self->rounds : 10000;
    void *gate = flag(self);
    void *made = event(self);
    char *memory = on_device(self, 64);
    await(self, stream(self, 0), gate, 1);
    for (int i = 0; i < rounds && self->failure[0] == '\0'; i++) {
        baton_stream_t in = stream(self, 1 + i % 2);
        copy(self, in, memory, memory + 32, 16);
        record(self, in, made);
        while (query(self, made) == BATON_AGAIN && self->failure[0] == '\0') {
            drain(self);
            EXPECT(self, self->port->arm(self->device) == BATON_OK);
            if (query(self, made) == BATON_AGAIN) {
                EXPECT(self, wakes(self, LONG_MS));
            }
        }
        EXPECT(self, query(self, made) == BATON_OK);
    }
    raise_now(gate, 1);
    synchronise(self, stream(self, 0));
    drain(self);
    destroy_event(self, made);
    free_flag(self, gate);
    release(self, BATON_MEMORY_DEVICE, memory);
}

/* ---- handles ----------------------------------------------------------- */

CASE(handles)
{
    EXPECT(self, (self->port->get_handle == NULL) ==
                     (self->port->open_handle == NULL));
    if (self->port->get_handle == NULL || self->port->open_handle == NULL ||
        self->other == NULL || self->other->port->get_handle == NULL ||
        self->other->port->kin != self->port->kin || self->port->kin == 0) {
        return;
    }
    device_subject_t *owner = self->other;
    char out[1000], in[1000];
    char *far = on_device(owner, 4096);
    char *near = on_device(self, 1000);
    for (size_t offset = 0; offset < 3096; offset += 1021) {
        unsigned char handle[BATON_DEVICE_HANDLE_BYTES];
        const void *opened = NULL;
        fill(out, sizeof out, offset);
        owner->write(owner, far + offset, out, sizeof out);
        EXPECT(self, owner->port->get_handle(owner->device, far + offset,
                                             handle) == BATON_OK);
        for (int twice = 0; twice < 2; twice++) {
            EXPECT(self, self->port->open_handle(self->device, handle,
                                                 &opened) == BATON_OK);
        }
        if (opened == NULL) {
            break;
        }
        copy(self, stream(self, 2), near, opened, sizeof out);
        synchronise(self, stream(self, 2));
        self->read(self, in, near, sizeof in);
        EXPECT(self, memcmp(in, out, sizeof in) == 0);
    }
    unsigned char unused[BATON_DEVICE_HANDLE_BYTES];
    EXPECT(self, owner->port->get_handle(owner->device, out, unused) ==
                     BATON_ERR_UNSUPPORTED);
    release(self, BATON_MEMORY_DEVICE, near);
    release(owner, BATON_MEMORY_DEVICE, far);
}

/* ---- errors ------------------------------------------------------------ */

CASE(failed_work_fails_queries)
{
    if (self->fail_next_work == NULL) {
        return;
    }
    char *memory = on_device(self, 8);
    void *before = event(self);
    void *behind = event(self);
    void *later = event(self);
    baton_stream_t s = stream(self, 2);
    record(self, s, before);
    EXPECT(self, wait_for(self, before) == BATON_OK);
    set_word(self, memory, 1);
    set_word(self, memory + 4, 2);
    self->fail_next_work(self);
    copy(self, s, memory + 4, memory, 4);
    record(self, s, behind);
    EXPECT(self, wait_for(self, behind) == BATON_ERR_SYSTEM);
    EXPECT(self, strstr(baton_error_message(), "failed") != NULL ||
                     strstr(baton_error_message(), self->port->name) != NULL);
    copy(self, s, memory + 4, memory, 4);
    record(self, s, later);
    EXPECT(self, wait_for(self, later) == BATON_ERR_SYSTEM);
    EXPECT(self, wait_for(self, behind) == BATON_ERR_SYSTEM);
    self->repair(self);
    copy(self, s, memory + 4, memory, 4);
    synchronise(self, s);
    EXPECT(self, word(self, memory + 4) == 1);
    destroy_event(self, before);
    destroy_event(self, behind);
    destroy_event(self, later);
    release(self, BATON_MEMORY_DEVICE, memory);
}

/* ---- all together ------------------------------------------------------ */

/* Runs random copies and sums of words, in random streams. The CPU does the
   same work at once, as a reference, and remembers for each word the stream
   that has used it last. Before another stream uses the word, it waits for that
   stream. */
CASE(random_work)
{
    enum { WORDS = 12, STEPS = 1500, STREAMS = 5 };
    uint32_t expected[WORDS], got[WORDS];
    int last[WORDS] = {0};
    void *ends[STREAMS];
    baton_stream_t in[STREAMS] = {stream(self, 0), stream(self, 1),
                                  stream(self, 2), self->user_stream(self),
                                  NULL};
    char *memory = on_device(self, sizeof expected);
    support_random_t random = support_random(self->seed, 2024);
    fill(expected, sizeof expected, self->seed);
    self->write(self, memory, expected, sizeof expected);
    for (int k = 0; k < STREAMS; k++) {
        ends[k] = event(self);
    }
    for (int step = 0; step < STEPS; step++) {
        size_t at[3];
        int k = (int)support_random_below(&random, STREAMS);
        for (int i = 0; i < 3; i++) {
            at[i] = support_random_below(&random, WORDS);
            if (last[at[i]] != k) {
                record(self, in[last[at[i]]], ends[last[at[i]]]);
                follow(self, in[k], ends[last[at[i]]]);
            }
            last[at[i]] = k;
        }
        if (step % 100 == 0) {
            self->slow_work(self, in[k], SLOW_US / 4);
        }
        char *target = memory + 4 * at[0];
        if (step % 3 == 0) {
            copy(self, in[k], target, memory + 4 * at[1], 4);
            expected[at[0]] = expected[at[1]];
        } else {
            EXPECT(self,
                   self->port->reduce(self->device, in[k], BATON_SUM, BATON_U32,
                                      target, memory + 4 * at[1],
                                      memory + 4 * at[2], 1) == BATON_OK);
            expected[at[0]] = expected[at[1]] + expected[at[2]];
        }
    }
    for (int k = 0; k < STREAMS; k++) {
        synchronise(self, in[k]);
        destroy_event(self, ends[k]);
    }
    self->read(self, got, memory, sizeof got);
    EXPECT(self, memcmp(got, expected, sizeof got) == 0);
    release(self, BATON_MEMORY_DEVICE, memory);
}
