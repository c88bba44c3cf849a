/* Words as elements; see values.h. */
#include "fuzz/values.h"

#include <string.h>

static void exclusive_or(void *arg, void *target, const void *left,
                         const void *right, size_t count, baton_dtype_t dtype)
{
    unsigned char *to = target;
    const unsigned char *a = left;
    const unsigned char *b = right;
    (void)arg;
    size_t bytes = count * baton_dtype_size(dtype);
    for (size_t i = 0; i < bytes; i++) {
        to[i] = a[i] ^ b[i];
    }
}

static void xor_identity(void *arg, void *target, size_t count,
                         baton_dtype_t dtype)
{
    (void)arg;
    memset(target, 0, count * baton_dtype_size(dtype));
}

const baton_op_t *fuzz_op(const fuzz_task_plan_t *task)
{
    static const baton_op_t op = {.name = "exclusive or",
                                  .reduce = exclusive_or,
                                  .identity = xor_identity,
                                  .commutative = true};
    return task->own_op ? &op : BATON_SUM;
}

size_t fuzz_bytes(const fuzz_task_plan_t *task)
{
    return task->count * baton_dtype_size(task->dtype);
}

void fuzz_fill(const fuzz_task_plan_t *task, uint64_t key, uint64_t *values)
{
    fuzz_random_t random = {key};
    /* A cluster adds up less than 2^12 vectors. */
    unsigned shift = task->dtype == BATON_F32   ? 64 - 12
                     : task->dtype == BATON_F64 ? 64 - 40
                                                : 0;
    for (size_t i = 0; i < task->count; i++) {
        values[i] = fuzz_next(&random) >> shift;
    }
}

/* ---- elements --------------------------------------------------------- */

/* One type of each size is enough for the integers: signed ones have the same
   bits. */
#define STORE(type)                                                            \
    do {                                                                       \
        type element = (type)value;                                            \
        memcpy(at, &element, sizeof element);                                  \
    } while (0)

static void store(baton_dtype_t dtype, uint64_t value, char *at)
{
    if (dtype == BATON_F32) {
        STORE(float);
    } else if (dtype == BATON_F64) {
        STORE(double);
    } else if (baton_dtype_size(dtype) == 1) {
        STORE(uint8_t);
    } else if (baton_dtype_size(dtype) == 2) {
        STORE(uint16_t);
    } else if (baton_dtype_size(dtype) == 4) {
        STORE(uint32_t);
    } else {
        STORE(uint64_t);
    }
}

#define LOAD(type)                                                             \
    do {                                                                       \
        type element;                                                          \
        memcpy(&element, at, sizeof element);                                  \
        return (uint64_t)element;                                              \
    } while (0)

static uint64_t load(baton_dtype_t dtype, const char *at)
{
    if (dtype == BATON_F32) {
        LOAD(float);
    } else if (dtype == BATON_F64) {
        LOAD(double);
    } else if (baton_dtype_size(dtype) == 1) {
        LOAD(uint8_t);
    } else if (baton_dtype_size(dtype) == 2) {
        LOAD(uint16_t);
    } else if (baton_dtype_size(dtype) == 4) {
        LOAD(uint32_t);
    }
    LOAD(uint64_t);
}

void fuzz_store(const fuzz_task_plan_t *task, const uint64_t *values,
                void *elements)
{
    size_t size = baton_dtype_size(task->dtype);
    for (size_t i = 0; i < task->count; i++) {
        store(task->dtype, values[i], (char *)elements + i * size);
    }
}

static uint64_t combined(const fuzz_task_plan_t *task, uint64_t a, uint64_t b)
{
    return task->own_op ? a ^ b : a + b;
}

void fuzz_combine(const fuzz_task_plan_t *task, uint64_t *into,
                  const uint64_t *from)
{
    for (size_t i = 0; i < task->count; i++) {
        into[i] = combined(task, into[i], from[i]);
    }
}

void fuzz_combine_elements(const fuzz_task_plan_t *task, uint64_t *into,
                           const void *elements)
{
    size_t size = baton_dtype_size(task->dtype);
    for (size_t i = 0; i < task->count; i++) {
        const char *at = (const char *)elements + i * size;
        into[i] = combined(task, into[i], load(task->dtype, at));
    }
}

/* +0 or -0. */
static bool is_float_zero(const fuzz_task_plan_t *task, const char *at)
{
    float single = 1;
    double wide = 1;
    if (task->dtype == BATON_F32) {
        memcpy(&single, at, sizeof single);
    } else if (task->dtype == BATON_F64) {
        memcpy(&wide, at, sizeof wide);
    }
    return single == 0 || wide == 0;
}

size_t fuzz_difference(const fuzz_task_plan_t *task, const uint64_t *values,
                       const void *elements)
{
    size_t size = baton_dtype_size(task->dtype);
    for (size_t i = 0; i < task->count; i++) {
        const char *at = (const char *)elements + i * size;
        char right[sizeof(uint64_t)];
        store(task->dtype, values[i], right);
        /* A float sum of nothing is -0. */
        if (memcmp(right, at, size) != 0 &&
            !(values[i] == 0 && is_float_zero(task, at))) {
            return i;
        }
    }
    return task->count;
}
