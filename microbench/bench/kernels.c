/* baton-bench kernels: compares Baton's f32 sum with a plain loop. Also
   compares two forms of selecting from gradient plus residual: the one pass
   that Baton uses, and two steps. Compared forms run in alternation, so that
   both see the same clock rate and load. */
#include "bench/bench.h"
#include "common/sparse_check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* The vectors are at different places in their pages; the places differ by
       this number of bytes. If they were equal, loads would wait for stores to
       another vector (4K aliasing). */
    STAGGER = 320,
    MOST = 1 << 24
};

/* A measurement repeats a sum until it has summed about this many bytes. */
#define BYTES_A_MEASUREMENT ((size_t)128 << 20)

/* The data of one measurement. If the threshold is 0, the k largest elements
   are selected. */
typedef struct trial {
    float *left, *right, *target; /* target equals left if in place */
    size_t count, repeats, k;
    baton_magnitude_t threshold;
    /* The indices that two_steps has selected (two), and those that one_pass
       has selected (one). Each array has room for 2k. */
    uint32_t *two, *one;
    size_t two_found, one_found;
    void *scratch;
} trial_t;

typedef void (*form_fn)(trial_t *trial);

static void sum_baton(trial_t *t)
{
    BATON_SUM->reduce(BATON_SUM->arg, t->target, t->left, t->right, t->count,
                      BATON_F32);
}

static void sum_native(trial_t *t)
{
    if (t->target == t->left) {
        bench_native_add(t->target, t->right, t->count);
    } else {
        bench_native_sum(t->target, t->left, t->right, t->count);
    }
}

static void two_steps(trial_t *t)
{
    const baton_selection_t from = {
        .dtype = BATON_F32, .values = t->target, .count = t->count};
    sum_baton(t);
    t->two_found =
        t->threshold == 0
            ? baton_select_topk(&from, t->k, t->two, t->scratch, NULL)
            : baton_select_at_least(&from, t->threshold, t->two, 2 * t->k);
}

static void one_pass(trial_t *t)
{
    const baton_accumulation_t of = {.dtype = BATON_F32,
                                     .sum = t->target,
                                     .left = t->left,
                                     .right = t->right,
                                     .count = t->count};
    t->one_found =
        t->threshold == 0
            ? baton_accumulate_topk(&of, t->k, t->one, t->scratch, NULL)
            : baton_accumulate_at_least(&of, t->threshold, t->one, 2 * t->k);
}

/* Measures two forms in alternation, and reports the first one against the
 * second. */
static void measure_forms(bench_run_t *run, trial_t *trial,
                          const form_fn forms[2], const char *op,
                          const char *form_name)
{
    size_t rounds = (size_t)run->options.repetitions;
    double times[2][BENCH_MAX_REPETITIONS];
    forms[0](trial);
    forms[1](trial);
    for (size_t i = 0; i < 2 * rounds; i++) {
        size_t form = (i + i / 2) % 2;
        double begin_us = clock_now_us();
        for (size_t n = 0; n < trial->repeats; n++) {
            forms[form](trial);
        }
        times[form][i / 2] =
            (clock_now_us() - begin_us) / (double)trial->repeats;
    }
    stats_t us = stats_of(times[0], rounds);
    double against_us = stats_of(times[1], rounds).median;
    bench_kernel_row(run, op, "f32", form_name, trial->count * sizeof(float),
                     trial->k, us, against_us, against_us / us.median);
}

/* ---- sums --------------------------------------------------------------- */

static void measure_sums(bench_run_t *run, trial_t *trial)
{
    /* Sizes of vectors in bytes, which fit into the L1, L2 or L3 cache, or only
       into main memory. */
    static const size_t sizes[] = {8 << 10, 16 << 10, 256 << 10, 4 << 20,
                                   64 << 20};
    static const form_fn forms[] = {sum_baton, sum_native};
    float *left = trial->left;
    for (size_t i = 0; i < 2 * (sizeof sizes / sizeof *sizes); i++) {
        trial->left = i % 2 == 0 ? trial->target : left;
        trial->count = sizes[i / 2] / sizeof(float);
        trial->repeats = 1 + BYTES_A_MEASUREMENT / sizes[i / 2];
        measure_forms(run, trial, forms, "sum",
                      i % 2 == 0 ? "in place" : "three buffers");
    }
}

/* ---- selections --------------------------------------------------------- */

static bool measure_selection(bench_run_t *run, trial_t *trial)
{
    static const form_fn forms[] = {one_pass, two_steps};
    measure_forms(run, trial, forms, "accumulate",
                  trial->threshold == 0 ? "top-k" : "threshold");
    bool same = trial->one_found == trial->two_found &&
                memcmp(trial->one, trial->two,
                       trial->two_found * sizeof *trial->two) == 0;
    if (!same) {
        (void)fprintf(stderr,
                      "baton-bench: selections from %zu elements differ\n",
                      trial->count);
    }
    return same;
}

static bool measure_selections(bench_run_t *run, trial_t *trial)
{
    static const size_t counts[] = {1 << 16, 1 << 20, MOST};
    bool passed = true;
    trial->repeats = 1;
    for (size_t i = 0; passed && i < 6; i++) {
        trial->count = counts[i / 2];
        trial->k = trial->count / (i % 2 == 0 ? 100 : 1000);
        trial->threshold = 0;
        passed = measure_selection(run, trial);
        const baton_selection_t from = {
            .dtype = BATON_F32, .values = trial->target, .count = trial->count};
        (void)baton_select_topk(&from, trial->k, trial->two, trial->scratch,
                                &trial->threshold);
        passed = passed && measure_selection(run, trial);
    }
    return passed;
}

bool bench_kernels_run(bench_run_t *run)
{
    const size_t stride = MOST + STAGGER;
    if (!run->prints) {
        return true;
    }
    if (run->options.memory == BENCH_MEMORY_DEVICE) {
        return bench_device.run_kernels(run);
    }
    float *memory = harness_alloc(3 * stride + 16, sizeof(float));
    float *aligned = memory + (64 - (uintptr_t)memory % 64) / sizeof(float);
    trial_t trial = {
        .left = aligned,
        .right = aligned + stride,
        .target = aligned + 2 * stride,
        .two = harness_alloc(MOST / 50, sizeof *trial.two),
        .one = harness_alloc(MOST / 50, sizeof *trial.one),
        .scratch =
            harness_alloc(baton_select_scratch_bytes(MOST, MOST / 100), 1),
    };
    /* The vectors hold zeros here, which never overflow, even if they are
       summed in place again and again. */
    measure_sums(run, &trial);
    gradient_fill(1, trial.left, 2 * stride - STAGGER);
    bool passed = measure_selections(run, &trial);
    free(memory);
    free(trial.two);
    free(trial.one);
    free(trial.scratch);
    return passed;
}
