#include "support/device_conformance.h"

#include "support/random.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CASE(name)    static void name(device_subject_t *self)
#define DECLARE(name) CASE(name);
DEVICE_CONFORMANCE_LIST(DECLARE)

const device_conformance_case_t
    device_conformance_cases[DEVICE_CONFORMANCE_CASES] = {
#define ENTRY(name) {#name, name},
        DEVICE_CONFORMANCE_LIST(ENTRY)};

/* Records a failure and goes on; every wait ends then. */
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

/* ---- short forms of the port -----------------------------------------------
 */

static const int SLOW_US = 20000;

static void *allocate(device_subject_t *self, baton_memory_t kind, size_t bytes)
{
    void *memory = NULL;
    EXPECT(self, self->port->allocate(self->device, kind, bytes, &memory) ==
                     BATON_OK);
    EXPECT(self, memory != NULL);
    if (memory == NULL) {
        fprintf(stderr, "%s\n", self->failure);
        abort(); /* no case can go on */
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

/* A word that streams wait for, 0 at first. */
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

/* Waits for an event; its last status. */
static baton_status_t wait_for(device_subject_t *self, void *of)
{
    baton_status_t status = query(self, of);
    while (status == BATON_AGAIN) {
        sched_yield();
        status = query(self, of);
    }
    return status;
}

/* Waits until what is in the stream now has been done. */
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

/* ---- streams and memory
 * ------------------------------------------------------ */

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
}

CASE(memory_runs_out)
{
    void *memory = NULL;
    const size_t too_much = (size_t)1 << 46;
    EXPECT(self,
           self->port->allocate(self->device, BATON_MEMORY_DEVICE, too_much,
                                &memory) == BATON_ERR_NO_MEMORY);
    EXPECT(self, memory == NULL);
    EXPECT(self, baton_error_message()[0] != '\0');
    memory = on_device(self, 64); /* the device is as it was */
    synchronise(self, stream(self, 2));
    release(self, BATON_MEMORY_DEVICE, memory);
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

/* ---- copies
 * ---------------------------------------------------------------------
 */

enum { COPY_BYTES = 300000 };

/* Copies through all directions: host -> device -> device -> host. */
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
    static const size_t sizes[] = {1,  2,    3,    7,    8,     15,    16,
                                   17, 4095, 4096, 4097, 65537, 262145};
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

CASE(nothing_takes_nothing)
{
    char *memory = on_device(self, 64);
    set_word(self, memory, 5);
    copy(self, stream(self, 2), memory, memory + 32, 0);
    EXPECT(self, self->port->reduce(self->device, stream(self, 2), BATON_SUM,
                                    BATON_F32, memory, memory + 4, memory + 8,
                                    0) == BATON_OK);
    synchronise(self, stream(self, 2));
    EXPECT(self, word(self, memory) == 5);
    release(self, BATON_MEMORY_DEVICE, memory);
}

/* ---- events
 * ---------------------------------------------------------------------
 */

CASE(query_of_an_event_never_recorded)
{
    void *made = event(self);
    EXPECT(self, query(self, made) == BATON_OK);
    follow(self, stream(self, 2), made); /* nothing to come after */
    synchronise(self, stream(self, 2));
    destroy_event(self, made);
}

CASE(query_says_when_work_is_done)
{
    void *gate = flag(self);
    void *made = event(self);
    char *memory = on_device(self, 8);
    set_word(self, memory, 3);
    set_word(self, memory + 4, 0);
    baton_stream_t s = stream(self, 2);
    EXPECT(self, self->port->await(self->device, s, gate, 1) == BATON_OK);
    copy(self, s, memory + 4, memory, 4);
    record(self, s, made);
    for (int i = 0; i < 100; i++) {
        EXPECT(self, query(self, made) == BATON_AGAIN);
    }
    EXPECT(self, word(self, memory + 4) == 0);
    raise_now(gate, 1);
    EXPECT(self, wait_for(self, made) == BATON_OK);
    EXPECT(self, query(self, made) == BATON_OK);
    EXPECT(self, word(self, memory + 4) == 3);
    destroy_event(self, made);
    free_flag(self, gate);
    release(self, BATON_MEMORY_DEVICE, memory);
}

/* Recorded in a stream that is held up, then in one that is free. */
CASE(an_event_is_what_was_recorded_last)
{
    void *gate = flag(self);
    void *made = event(self);
    EXPECT(self, self->port->await(self->device, stream(self, 2), gate, 1) ==
                     BATON_OK);
    record(self, stream(self, 2), made);
    EXPECT(self, query(self, made) == BATON_AGAIN);
    record(self, stream(self, 1), made);
    EXPECT(self, wait_for(self, made) == BATON_OK);
    record(self, stream(self, 2), made);
    EXPECT(self, query(self, made) == BATON_AGAIN);
    raise_now(gate, 1);
    EXPECT(self, wait_for(self, made) == BATON_OK);
    destroy_event(self, made);
    free_flag(self, gate);
}

/* The event is recorded again, behind work that is held up; what followed it
   before is not. */
CASE(follow_is_of_the_record_before_it)
{
    void *gate = flag(self);
    void *made = event(self);
    record(self, stream(self, 0), made);
    follow(self, stream(self, 1), made);
    EXPECT(self, self->port->await(self->device, stream(self, 2), gate, 1) ==
                     BATON_OK);
    record(self, stream(self, 2), made);
    synchronise(self, stream(self, 1));
    EXPECT(self, query(self, made) == BATON_AGAIN);
    raise_now(gate, 1);
    EXPECT(self, wait_for(self, made) == BATON_OK);
    destroy_event(self, made);
    free_flag(self, gate);
}

/* Thousands, destroyed in another order, some before what they are of has been
   done. */
CASE(many_events)
{
    enum { EVENTS = 2000 };
    static void *made[EVENTS];
    for (int i = 0; i < EVENTS; i++) {
        made[i] = event(self);
        if (i % 3 != 0) {
            record(self, stream(self, i % 3), made[i]);
        }
    }
    for (int i = 0; i < EVENTS; i++) {
        int k = i * 7 % EVENTS; /* 7 does not divide EVENTS */
        if (k % 2 == 0) {
            EXPECT(self, wait_for(self, made[k]) == BATON_OK);
        }
        destroy_event(self, made[k]);
    }
    for (int k = 0; k < 3; k++) {
        synchronise(self, stream(self, k));
    }
}

/* ---- reductions
 * -----------------------------------------------------------------
 */

static const baton_op_t *const operators[] = {&baton_op_sum, &baton_op_prod,
                                              &baton_op_min, &baton_op_max};
enum { OPERATORS = 4, REDUCE_COUNT = 4099 };

/* Random bits, and now and then what floats are difficult with. */
static void fill_elements(void *data, size_t count, baton_dtype_t dtype,
                          support_random_t *random)
{
    static const uint64_t specials[] = {0,
                                        UINT64_MAX,
                                        0x8000000000000000,
                                        0x7ff0000000000000,
                                        0x7f800000,
                                        0xff800000,
                                        0x7fc00001,
                                        0x80000000,
                                        0x00000001,
                                        0x7c00,
                                        0xfc00,
                                        0x8000,
                                        0x7e01,
                                        0x7f80,
                                        0xff80,
                                        0x7fc1,
                                        0x0001,
                                        0x3c00,
                                        0x3f80,
                                        0x7bff};
    enum { SPECIALS = sizeof specials / sizeof specials[0] };
    size_t bytes = baton_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = support_random_below(random, 4) == 0
                            ? specials[support_random_below(random, SPECIALS)]
                            : support_random_next(random);
        memcpy((char *)data + i * bytes, &bits, bytes);
    }
}

/* Bits of the exponent, which are all set in a NaN, and of the fraction, of
   which one is. */
static bool is_nan(baton_dtype_t dtype, const void *element)
{
    uint64_t bits = 0;
    memcpy(&bits, element, baton_dtype_size(dtype));
    uint64_t exponent = dtype == BATON_F16    ? 0x7c00
                        : dtype == BATON_BF16 ? 0x7f80
                        : dtype == BATON_F32  ? 0x7f800000
                        : dtype == BATON_F64  ? 0x7ff0000000000000
                                              : 0;
    uint64_t sign = UINT64_C(1) << (8 * baton_dtype_size(dtype) - 1);
    return exponent != 0 && (bits & ~sign) > exponent;
}

static bool are_same(const device_subject_t *self, const char *a, const char *b,
                     size_t count, baton_dtype_t dtype)
{
    size_t size = baton_dtype_size(dtype);
    bool same = true;
    for (size_t i = 0; i < count && same; i++) {
        same = memcmp(a + i * size, b + i * size, size) == 0 ||
               (self->any_nan && is_nan(dtype, a + i * size) &&
                is_nan(dtype, b + i * size));
    }
    return same;
}

/* Reduces `count` elements at these offsets (in elements) on both, and
   compares. Operands are at 0, 1 and 2 times REDUCE_COUNT + 32 elements. */
static void compare_reduce(device_subject_t *self, const baton_op_t *op,
                           baton_dtype_t dtype, size_t count,
                           const size_t offset[3], char *memory, char *host)
{
    size_t size = baton_dtype_size(dtype);
    size_t room = (REDUCE_COUNT + 32) * size;
    char *expected = host + 3 * room;
    support_random_t random =
        support_random(self->seed, (uint64_t)dtype * 8 + count);
    fill_elements(host, 3 * (REDUCE_COUNT + 32), dtype, &random);
    memcpy(expected, host, room);
    self->write(self, memory, host, 3 * room);
    op->reduce(op->arg, expected + offset[0] * size,
               host + room + offset[1] * size,
               host + 2 * room + offset[2] * size, count, dtype);
    EXPECT(self, self->port->reduce(self->device, stream(self, 2), op, dtype,
                                    memory + offset[0] * size,
                                    memory + room + offset[1] * size,
                                    memory + 2 * room + offset[2] * size,
                                    count) == BATON_OK);
    synchronise(self, stream(self, 2));
    self->read(self, host, memory, room);
    EXPECT(self, are_same(self, host, expected, REDUCE_COUNT + 32, dtype));
    if (self->failure[0] != '\0' && strstr(self->failure, "(of ") == NULL) {
        size_t used = strlen(self->failure);
        snprintf(self->failure + used, sizeof self->failure - used,
                 " (of %s, %s, %zu elements at %zu, %zu, %zu)", op->name,
                 baton_dtype_name(dtype), count, offset[0], offset[1],
                 offset[2]);
    }
}

typedef struct operands {
    char *memory, *host;
} operands_t;

static operands_t make_operands(device_subject_t *self)
{
    size_t room = (REDUCE_COUNT + 32) * 8;
    return (operands_t){on_device(self, 3 * room), malloc(4 * room)};
}

static void free_operands(device_subject_t *self, operands_t operands)
{
    release(self, BATON_MEMORY_DEVICE, operands.memory);
    free(operands.host);
}

CASE(reduce_gives_the_bits_of_the_host)
{
    static const size_t counts[] = {1, 2, 3, 15, 16, 17, 255, 1024, 4099};
    const size_t none[3] = {0, 0, 0};
    operands_t operands = make_operands(self);
    for (int o = 0; o < OPERATORS; o++) {
        for (int dtype = 0; dtype < BATON_DTYPE_COUNT; dtype++) {
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                EXPECT(self, self->port->reduces(self->device, operators[o],
                                                 (baton_dtype_t)dtype));
                compare_reduce(self, operators[o], (baton_dtype_t)dtype,
                               counts[i], none, operands.memory, operands.host);
            }
        }
    }
    free_operands(self, operands);
}

CASE(reduce_of_any_alignment)
{
    static const baton_dtype_t dtypes[] = {BATON_I8, BATON_BF16, BATON_F32,
                                           BATON_F64};
    operands_t operands = make_operands(self);
    support_random_t random = support_random(self->seed, 99);
    for (int i = 0; i < 120; i++) {
        size_t offset[3];
        for (int k = 0; k < 3; k++) {
            offset[k] = support_random_below(&random, 20);
        }
        if (i % 2 == 0) {
            offset[1] = offset[2] = offset[0];
        }
        size_t count = 1 + support_random_below(&random, i % 3 ? 70 : 4000);
        compare_reduce(self, operators[i % OPERATORS], dtypes[i / 4 % 4], count,
                       offset, operands.memory, operands.host);
    }
    free_operands(self, operands);
}

/* ---- selection and lists of entries
 * ------------------------------------------------------------------------
 */

enum { SELECT_MOST = 9000, SELECT_WIDEST = 8 };

/* One step of a sparse all-reduce, on the device and here. */
typedef struct selecting {
    baton_dtype_t dtype;
    size_t count, k;
    char *dense, *list, *scratch; /* in device memory */
    uint32_t *indices;
    baton_device_selected_t *selected;
    char right[SELECT_MOST * SELECT_WIDEST]; /* what `dense` is to be */
    char entries[SELECT_MOST * (SELECT_WIDEST + 4)];
    uint32_t chosen[SELECT_MOST];
    size_t chosen_count;
} selecting_t;

/* Finite numbers, of few magnitudes, so that many are equal. */
static void fill_to_select_from(selecting_t *is, support_random_t *random)
{
    for (size_t i = 0; i < is->count; i++) {
        double magnitude = (double)support_random_below(random, 40) / 32;
        baton_magnitude_t bits = baton_magnitude_of(is->dtype, magnitude);
        size_t bytes = baton_dtype_size(is->dtype);
        bits |= support_random_below(random, 2) << (8 * bytes - 1);
        memcpy(is->right + i * bytes, &bits, bytes); /* little endian */
    }
}

static void select_there(device_subject_t *self, const selecting_t *is,
                         baton_device_method_t method, baton_stream_t in)
{
    const baton_device_selection_t selection = {
        .method = method,
        .from = {.dtype = is->dtype, .values = is->dense, .count = is->count},
        .k = is->k,
        .indices = is->indices,
        .selected = is->selected,
        .scratch = is->scratch};
    EXPECT(self, self->port->select(self->device, in, &selection) == BATON_OK);
}

static void transfer(device_subject_t *self, const selecting_t *is,
                     baton_device_direction_t direction, double factor,
                     baton_stream_t in)
{
    const baton_device_transfer_t of = {
        .direction = direction,
        .list = {is->dtype, is->list, is->k, &is->selected->count},
        .indices = is->indices,
        .factor = factor,
        .dense = is->dense};
    EXPECT(self, self->port->entries(self->device, in, &of) == BATON_OK);
}

/* The device's half, in one stream and without a look at a result. */
static void put_selection(device_subject_t *self, const selecting_t *is,
                          baton_device_method_t method, baton_stream_t in)
{
    select_there(self, is, method, in);
    transfer(self, is, BATON_DEVICE_TAKE, 0, in);
    EXPECT(self, self->port->scale(self->device, in, is->dtype, is->dense,
                                   is->dense, is->count, -0.3) == BATON_OK);
    transfer(self, is, BATON_DEVICE_ADD, 0.5, in);
    transfer(self, is, BATON_DEVICE_PUT, 0, in);
    transfer(self, is, BATON_DEVICE_ADD, 1, in);
    transfer(self, is, BATON_DEVICE_GATHER, 0, in);
}

static void select_here(selecting_t *is)
{
    const baton_selection_t from = {
        .dtype = is->dtype, .values = is->right, .count = is->count};
    void *scratch = malloc(baton_select_scratch_bytes(is->count, is->k));
    baton_dtype_t dtype = is->dtype;
    size_t n = baton_select_topk(&from, is->k, is->chosen, scratch, NULL);
    is->chosen_count = n;
    baton_entries_take(dtype, is->entries, is->chosen, n, is->right);
    baton_elements_scale(dtype, is->right, is->count, -0.3);
    baton_entries_add(dtype, is->entries, n, 0.5, is->right);
    baton_entries_put(dtype, is->entries, n, is->right);
    baton_entries_add(dtype, is->entries, n, 1, is->right);
    baton_entries_gather(dtype, is->entries, is->chosen, n, is->right);
    free(scratch);
}

static void compare_selection(device_subject_t *self, const selecting_t *is)
{
    static char found[SELECT_MOST * (SELECT_WIDEST + 4)];
    size_t bytes = is->count * baton_dtype_size(is->dtype);
    baton_device_selected_t selected = {0};
    self->read(self, &selected, is->selected, sizeof selected);
    EXPECT(self, selected.count == is->chosen_count);
    self->read(self, found, is->indices,
               is->chosen_count * sizeof *is->indices);
    EXPECT(self, memcmp(found, is->chosen,
                        is->chosen_count * sizeof *is->chosen) == 0);
    self->read(self, found, is->dense, bytes);
    EXPECT(self, memcmp(found, is->right, bytes) == 0);
    bytes = is->chosen_count * baton_entry_bytes(is->dtype);
    self->read(self, found, is->list, bytes);
    EXPECT(self, memcmp(found, is->entries, bytes) == 0);
}

/* Returns whether `threshold` leaves as many as there is room for. */
static bool select_from_here(selecting_t *is, const baton_selection_t *from,
                             baton_magnitude_t threshold)
{
    size_t most = 2 * is->k < is->count ? 2 * is->k : is->count;
    is->chosen_count = baton_select_at_least(from, threshold, is->chosen, most);
    return threshold != 0 && is->chosen_count <= 2 * is->k;
}

static void sample_here(selecting_t *is, bool reuse,
                        baton_magnitude_t *threshold)
{
    const baton_selection_t from = {
        .dtype = is->dtype, .values = is->right, .count = is->count};
    void *scratch = malloc(baton_select_scratch_bytes(is->count, is->k));
    if (!reuse || !select_from_here(is, &from, *threshold)) {
        *threshold = baton_select_search(&from, is->k, is->chosen, scratch);
        if (!select_from_here(is, &from, *threshold)) {
            is->chosen_count =
                baton_select_topk(&from, is->k, is->chosen, scratch, threshold);
        }
    }
    free(scratch);
}

/* RedSync's selection, of the elements that there are now. */
static void check_sampled(device_subject_t *self, selecting_t *is, bool reuse,
                          baton_magnitude_t threshold)
{
    static char found[SELECT_MOST * sizeof(uint32_t)];
    baton_device_selected_t selected = {77, threshold};
    self->write(self, is->selected, &selected, sizeof selected);
    select_there(self, is, reuse ? BATON_DEVICE_REUSED : BATON_DEVICE_SAMPLED,
                 stream(self, 2));
    synchronise(self, stream(self, 2));
    sample_here(is, reuse, &threshold);
    self->read(self, &selected, is->selected, sizeof selected);
    EXPECT(self, selected.count == is->chosen_count);
    EXPECT(self, selected.threshold == threshold);
    self->read(self, found, is->indices,
               is->chosen_count * sizeof *is->indices);
    EXPECT(self, memcmp(found, is->chosen,
                        is->chosen_count * sizeof *is->chosen) == 0);
}

/* A threshold that is searched, one that holds, one that leaves too many, and
   none. */
static void check_thresholds(device_subject_t *self, selecting_t *is)
{
    baton_magnitude_t largest =
        baton_elements_measure(is->dtype, is->right, is->count).largest;
    check_sampled(self, is, false, 0);
    check_sampled(self, is, true, largest);
    check_sampled(self, is, true, 1);
    check_sampled(self, is, true, 0);
}

/* Into where the list was. */
static void check_square_sum(device_subject_t *self, const selecting_t *is)
{
    double right =
        baton_elements_measure(is->dtype, is->right, is->count).square_sum;
    double sum = -1;
    EXPECT(self, self->port->square_sum(self->device, stream(self, 2),
                                        is->dtype, is->dense, is->count,
                                        (double *)(void *)is->list,
                                        is->scratch) == BATON_OK);
    synchronise(self, stream(self, 2));
    self->read(self, &sum, is->list, sizeof sum);
    EXPECT(self, sum == right);
}

static void select_once(device_subject_t *self, selecting_t *is,
                        support_random_t *random)
{
    size_t bytes = is->count * baton_dtype_size(is->dtype);
    size_t scratch =
        self->port->select_bytes(self->device, is->dtype, is->count, is->k);
    is->dense = on_device(self, bytes);
    is->list = on_device(self, (is->k + 1) * baton_entry_bytes(is->dtype));
    is->indices = on_device(self, 2 * is->k * sizeof *is->indices);
    is->selected = on_device(self, sizeof *is->selected);
    is->scratch = on_device(self, scratch + 1);
    fill_to_select_from(is, random);
    self->write(self, is->dense, is->right, bytes);
    put_selection(self, is,
                  support_random_below(random, 2) == 0 ? BATON_DEVICE_TOPK
                                                       : BATON_DEVICE_TRIMMED,
                  stream(self, 2));
    synchronise(self, stream(self, 2));
    select_here(is);
    compare_selection(self, is);
    check_square_sum(self, is);
    self->write(self, is->list, is->entries,
                is->chosen_count * baton_entry_bytes(is->dtype));
    EXPECT(self, self->port->clear(self->device, stream(self, 2), is->dense,
                                   bytes) == BATON_OK);
    synchronise(self, stream(self, 2));
    memset(is->right, 0, bytes);
    compare_selection(self, is);
    check_square_sum(self, is);
    check_thresholds(self, is);
    fill_to_select_from(is, random);
    self->write(self, is->dense, is->right, bytes);
    check_thresholds(self, is);
    void *const all[] = {is->dense, is->list, is->indices, is->selected,
                         is->scratch};
    for (int i = 0; i < 5; i++) {
        release(self, BATON_MEMORY_DEVICE, all[i]);
    }
}

CASE(selection_gives_the_bits_of_the_host)
{
    static selecting_t is;
    static const baton_dtype_t dtypes[] = {BATON_F16, BATON_BF16, BATON_F32,
                                           BATON_F64};
    static const size_t counts[] = {1, 5, 300, SELECT_MOST};
    support_random_t random = support_random(self->seed, 123);
    for (int i = 0; i < 16 && self->port->select != NULL; i++) {
        is.dtype = dtypes[i % 4];
        is.count = counts[i / 4];
        is.k = 1 + support_random_below(&random, is.count);
        select_once(self, &is, &random);
    }
}

/* ---- flags
 * ------------------------------------------------------------------------
 */

static void await(device_subject_t *self, baton_stream_t in, void *of,
                  uint64_t value)
{
    EXPECT(self, self->port->await(self->device, in, of, value) == BATON_OK);
}

CASE(flag_awaited_then_raised)
{
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
    destroy_event(self, end);
    free_flag(self, made);
}

CASE(flag_raised_then_awaited)
{
    const uint64_t large = UINT64_C(1) << 40;
    void *made = flag(self);
    await(self, stream(self, 2), made, 0); /* it is 0 at first */
    synchronise(self, stream(self, 2));
    raise_now(made, 5);
    for (uint64_t value = 0; value <= 5; value++) {
        await(self, stream(self, 2), made, value);
    }
    synchronise(self, stream(self, 2));
    EXPECT(self, self->port->raise(self->device, stream(self, 0), made,
                                   large) == BATON_OK);
    synchronise(self, stream(self, 0));
    await(self, stream(self, 1), made, large - 1);
    await(self, stream(self, 1), made, large);
    synchronise(self, stream(self, 1));
    free_flag(self, made);
}

/* All streams wait, for different values, in one of the user's, too. */
CASE(flag_of_many_waiters)
{
    enum { WAITERS = 6 };
    void *made = flag(self);
    void *ends[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        baton_stream_t in = i < 3 ? stream(self, i) : self->user_stream(self);
        await(self, in, made, (uint64_t)i % 3 + 1);
        ends[i] = event(self);
        record(self, in, ends[i]);
    }
    for (uint64_t value = 1; value <= 3; value++) {
        for (uint64_t i = 0; i < WAITERS; i++) {
            EXPECT(self,
                   i % 3 + 1 < value || query(self, ends[i]) == BATON_AGAIN);
        }
        raise_now(made, value);
        for (uint64_t i = 0; i < WAITERS; i++) {
            EXPECT(self,
                   i % 3 + 1 > value || wait_for(self, ends[i]) == BATON_OK);
        }
    }
    for (int i = 0; i < WAITERS; i++) {
        destroy_event(self, ends[i]);
    }
    free_flag(self, made);
}

/* ---- asynchrony, sleep
 * ----------------------------------------------------------
 */

/* All of this is put behind a gate that the host opens afterwards: a call that
   waited for it would never return. */
CASE(submissions_return_at_once)
{
    void *gate = flag(self);
    void *after = flag(self);
    void *made = event(self);
    char *memory = on_device(self, 4096);
    char *host = pinned(self, 1024);
    fill(host, 1024, 3);
    baton_stream_t s = stream(self, 2);
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
    (void)got; /* EAGAIN: it was not readable */
}

/* Whether the descriptor becomes readable within the time. */
static bool wakes(device_subject_t *self, int timeout_ms)
{
    struct pollfd fd = {.fd = self->port->descriptor, .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

enum { LONG_MS = 20000 }; /* a wake-up that takes so long is lost */

CASE(armed_device_wakes)
{
    void *gate = flag(self);
    void *made = event(self);
    EXPECT(self, self->port->descriptor >= 0);
    for (int k = 0; k < 3; k++) {
        drain(self);
        await(self, stream(self, k), gate, (uint64_t)k + 1);
        record(self, stream(self, k), made);
        EXPECT(self, self->port->arm(self->device) == BATON_OK);
        EXPECT(self, query(self, made) == BATON_AGAIN);
        raise_now(gate, (uint64_t)k + 1);
        EXPECT(self, wakes(self, LONG_MS));
        EXPECT(self, wait_for(self, made) == BATON_OK);
        drain(self);
    }
    destroy_event(self, made);
    free_flag(self, gate);
}

/* As an engine sleeps: arm, look once more, sleep; one stream may be held up
   meanwhile. */
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

/* ---- handles
 * -----------------------------------------------------------------------
 */

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
    char out[1000];
    char in[1000];
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

/* ---- errors
 * --------------------------------------------------------------------------
 */

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

/* ---- all together
 * ---------------------------------------------------------------------
 */

/* Random copies and sums of words in random streams. The host does the same at
   once, and knows in which stream each word was last touched: a stream that
   touches a word follows that one first. */
CASE(random_work)
{
    enum { WORDS = 12, STEPS = 1500, STREAMS = 5 };
    uint32_t expected[WORDS];
    uint32_t got[WORDS];
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
