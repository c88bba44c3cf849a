/* baton-bench kernels: the f32 sum and the plain loop take turns in one run, so
   that both see the same clock rate and the same load. selection.c has the
   rest.
 */
#include "bench/bench.h"
#include "bench/kernels_native.h"
#include "bench/selection.h"
#include "common/harness.h"

#include <baton/baton.h>
#include <stdlib.h>

#define ROUNDS 11
/* A measurement repeats the kernel until it has summed about so many bytes. */
#define BYTES_A_MEASUREMENT ((size_t)128 << 20)
/* The distance between the buffers. At the same offset in their pages, loads
   would wait for stores that only seem to alias them. */
#define STAGGER_FLOATS ((size_t)320)

typedef struct vectors {
    float *target, *left, *right; /* target equals left if in place */
    size_t count;
} vectors_t;

typedef void (*sum_fn)(const vectors_t *vectors);

static void sum_baton(const vectors_t *v)
{
    BATON_SUM->reduce(BATON_SUM->arg, v->target, v->left, v->right, v->count,
                      BATON_F32);
}

static void sum_native(const vectors_t *v)
{
    if (v->target == v->left) {
        bench_native_add(v->target, v->right, v->count);
    } else {
        bench_native_sum(v->target, v->left, v->right, v->count);
    }
}

static double time_us(sum_fn sum, const vectors_t *vectors, size_t repeats)
{
    double begin_us = clock_now_us();
    for (size_t i = 0; i < repeats; i++) {
        sum(vectors);
    }
    return clock_now_us() - begin_us;
}

typedef struct comparison {
    double baton_us, native_us; /* medians of one call */
} comparison_t;

static comparison_t compare(const vectors_t *vectors)
{
    double baton[ROUNDS], native[ROUNDS];
    size_t repeats = 1 + BYTES_A_MEASUREMENT / (vectors->count * sizeof(float));
    sum_baton(vectors);
    sum_native(vectors);
    for (size_t round = 0; round < ROUNDS; round++) {
        /* The second one finds the data of the first in the caches. */
        if (round % 2 == 0) {
            baton[round] = time_us(sum_baton, vectors, repeats);
            native[round] = time_us(sum_native, vectors, repeats);
        } else {
            native[round] = time_us(sum_native, vectors, repeats);
            baton[round] = time_us(sum_baton, vectors, repeats);
        }
    }
    return (comparison_t){stats_median(baton, ROUNDS) / (double)repeats,
                          stats_median(native, ROUNDS) / (double)repeats};
}

static void report(FILE *json, bool first, const vectors_t *vectors)
{
    size_t bytes = vectors->count * sizeof(float);
    const char *form =
        vectors->target == vectors->left ? "in place" : "three buffers";
    comparison_t result = compare(vectors);
    double ratio = result.native_us / result.baton_us;
    double gigabytes_us = 1e-3 * (double)bytes; /* GB/s times us */
    printf("%10zu  %-13s  %10.2f  %10.2f  %6.3f\n", bytes, form,
           gigabytes_us / result.baton_us, gigabytes_us / result.native_us,
           ratio);
    fflush(stdout);
    if (json != NULL) {
        fprintf(json,
                "%s\n  {\"op\": \"sum\", \"dtype\": \"f32\", \"bytes\": %zu, "
                "\"form\": \"%s\", \"kernels\": \"%s\", \"baton_us\": %.4f, "
                "\"plain_us\": %.4f, \"speed_ratio\": %.4f}",
                first ? "" : ",", bytes, form, baton_kernels_name(),
                result.baton_us, result.native_us, ratio);
    }
}

int bench_kernels(FILE *json)
{
    /* Bytes of a vector, for vectors in L1, L2, L3 and memory. */
    static const size_t sizes[] = {8 << 10, 16 << 10, 256 << 10, 4 << 20,
                                   64 << 20};
    const size_t most = sizes[sizeof sizes / sizeof *sizes - 1];
    size_t stride = most / sizeof(float) + STAGGER_FLOATS;
    float *memory = aligned_alloc(64, 3 * stride * sizeof(float));
    if (memory == NULL) {
        fprintf(stderr, "baton-bench: no memory for %zu bytes\n",
                3 * stride * sizeof(float));
        return 1;
    }
    for (size_t i = 0; i < 3 * stride; i++) {
        /* Zeros never overflow, also when they are summed in place. */
        memory[i] = 0.0f;
    }
    printf("f32 sum, %s kernels against the plain loop at -O3 -march=native; "
           "median of %d\n",
           baton_kernels_name(), ROUNDS);
    printf("%10s  %-13s  %10s  %10s  %6s\n", "bytes", "form", "Baton GB/s",
           "plain GB/s", "ratio");
    if (json != NULL) {
        fputs("[", json);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        vectors_t vectors = {memory, memory, memory + 2 * stride,
                             sizes[i] / sizeof(float)};
        report(json, i == 0, &vectors);
        vectors.left = memory + stride;
        report(json, false, &vectors);
    }
    free(memory);
    int status = bench_selection(json);
    if (json != NULL) {
        fputs("\n]\n", json);
    }
    return status;
}
