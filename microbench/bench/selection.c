/* See selection.h. The forms take turns in one run, so that all see the same
   clock rate and the same load. */
#include "bench/selection.h"

#include "bench/kernels_native.h"
#include "common/harness.h"

#include <baton/baton.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, STAGGER = 320 };

/* Forms: the k largest, or all from a known threshold on. */
typedef struct trial {
    float *residual, *gradient, *sum; /* `count` normal values each */
    size_t count, k;
    baton_magnitude_t threshold; /* 0: the k largest are selected */
    uint32_t *two, *one;         /* indices; room for 2k */
    size_t two_found, one_found;
    void *scratch;
    float magnitudes; /* so that the read pass is needed */
} trial_t;

static void two_steps(trial_t *t)
{
    const baton_selection_t from = {
        .dtype = BATON_F32, .values = t->sum, .count = t->count};
    BATON_SUM->reduce(BATON_SUM->arg, t->sum, t->residual, t->gradient,
                      t->count, BATON_F32);
    t->two_found =
        t->threshold == 0
            ? baton_select_topk(&from, t->k, t->two, t->scratch, NULL)
            : baton_select_at_least(&from, t->threshold, t->two, 2 * t->k);
}

static void one_pass(trial_t *t)
{
    const baton_accumulation_t of = {.dtype = BATON_F32,
                                     .sum = t->sum,
                                     .left = t->residual,
                                     .right = t->gradient,
                                     .count = t->count};
    t->one_found =
        t->threshold == 0
            ? baton_accumulate_topk(&of, t->k, t->one, t->scratch, NULL)
            : baton_accumulate_at_least(&of, t->threshold, t->one, 2 * t->k);
}

static void read_pass(trial_t *t)
{
    t->magnitudes += bench_native_magnitudes(t->sum, t->count);
}

/* ---- one measurement --------------------------------------------------- */

enum { TWO_STEPS, ONE_PASS, READ_PASS, FORMS };

static double time_us(void (*form)(trial_t *trial), trial_t *trial)
{
    double begin_us = clock_now_us();
    form(trial);
    return clock_now_us() - begin_us;
}

static void measure(trial_t *trial, double medians_us[FORMS])
{
    static void (*const forms[FORMS])(trial_t *) = {two_steps, one_pass,
                                                    read_pass};
    double times_us[FORMS][ROUNDS];
    two_steps(trial);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < FORMS; i++) {
            int form = (round + i) % FORMS;
            times_us[form][round] = time_us(forms[form], trial);
        }
    }
    for (int form = 0; form < FORMS; form++) {
        medians_us[form] = stats_median(times_us[form], ROUNDS);
    }
}

static bool same(const trial_t *trial)
{
    return trial->one_found == trial->two_found &&
           memcmp(trial->one, trial->two,
                  trial->two_found * sizeof *trial->two) == 0;
}

static bool report(FILE *json, trial_t *trial)
{
    double us[FORMS];
    const char *by = trial->threshold == 0 ? "top-k" : "threshold";
    measure(trial, us);
    if (!same(trial)) {
        fprintf(stderr, "baton-bench: selections from %zu elements differ\n",
                trial->count);
        return false;
    }
    double ratio = us[ONE_PASS] / us[TWO_STEPS];
    printf("%10zu  %8zu  %-9s  %10.1f  %10.1f  %6.3f  %10.1f\n", trial->count,
           trial->k, by, us[TWO_STEPS], us[ONE_PASS], ratio, us[READ_PASS]);
    fflush(stdout);
    if (json != NULL) {
        fprintf(
            json,
            ",\n  {\"op\": \"accumulate and select\", \"dtype\": \"f32\", "
            "\"n\": %zu, \"k\": %zu, \"by\": \"%s\", \"kernels\": \"%s\", "
            "\"two_steps_us\": %.2f, \"one_pass_us\": %.2f, \"time_ratio\": "
            "%.4f, \"read_us\": %.2f}",
            trial->count, trial->k, by, baton_kernels_name(), us[TWO_STEPS],
            us[ONE_PASS], ratio, us[READ_PASS]);
    }
    return true;
}

/* ---- all --------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *state >> 40;
}

/* Nearly normal: the sum of four uniform values. */
static void fill(float *values, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t sum = next(state) + next(state) + next(state) + next(state);
        values[i] = (float)sum / (float)(1 << 24) - 2;
    }
}

static bool report_density(FILE *json, trial_t *trial, size_t count, size_t k)
{
    const baton_selection_t from = {
        .dtype = BATON_F32, .values = trial->sum, .count = count};
    trial->count = count;
    trial->k = k;
    trial->threshold = 0;
    if (!report(json, trial)) {
        return false;
    }
    (void)baton_select_topk(&from, k, trial->two, trial->scratch,
                            &trial->threshold);
    return report(json, trial);
}

int bench_selection(FILE *json)
{
    static const size_t counts[] = {1 << 16, 1 << 20, 1 << 24};
    const size_t most = counts[2], stride = most + STAGGER;
    float *memory = aligned_alloc(64, 3 * stride * sizeof(float));
    trial_t trial = {
        .two = malloc(most / 50 * sizeof *trial.two),
        .one = malloc(most / 50 * sizeof *trial.one),
        .scratch = malloc(baton_select_scratch_bytes(most, most / 100)),
    };
    bool ok = memory != NULL && trial.two != NULL && trial.one != NULL &&
              trial.scratch != NULL;
    if (!ok) {
        fprintf(stderr, "baton-bench: no memory for %zu elements\n", most);
    } else {
        uint64_t state = 1;
        trial.residual = memory;
        trial.gradient = memory + stride;
        trial.sum = memory + 2 * stride;
        fill(memory, 2 * stride, &state);
        printf("\nf32 residual + gradient, and a selection from the sum: two "
               "steps, one pass, and a pass that reads; median of %d\n",
               ROUNDS);
        printf("%10s  %8s  %-9s  %10s  %10s  %6s  %10s\n", "n", "k", "by",
               "two us", "one us", "ratio", "read us");
    }
    for (size_t i = 0; ok && i < 6; i++) {
        size_t count = counts[i / 2];
        ok = report_density(json, &trial, count,
                            count / (i % 2 == 0 ? 100 : 1000));
    }
    free(memory);
    free(trial.two);
    free(trial.one);
    free(trial.scratch);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
