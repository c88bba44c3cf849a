/* baton-bench ring: all-reduce of long vectors. */
#include "bench/bench.h"
#include "bench/turns.h"
#include "common/cli.h"

/* A turn moves at least so many bytes. A shorter one measures its barrier. */
#define BYTES_A_TURN (UINT64_C(16) << 20)

static void measure_size(const harness_t *harness,
                         const bench_options_t *options, uint64_t bytes,
                         bench_report_t *report)
{
    bench_turns_t plan = {
        .count = (size_t)(bytes / sizeof(float)),
        .algo = baton_allreduce_ring,
        .turns = (size_t)options->repetitions,
        .calls = (size_t)(bytes < BYTES_A_TURN ? BYTES_A_TURN / bytes : 1),
        .warmup = 1,
    };
    bench_outcome_t outcome;
    bench_turns(harness, &plan, &outcome);
    char size[16];
    char name[32];
    (void)cli_format_bytes(bytes, size, sizeof(size));
    (void)snprintf(name, sizeof(name), "ring_%s", size);
    char text[32];
    (void)snprintf(text, sizeof(text), "%s bytes", size);
    bench_turns_report(report, name, text, &outcome);
}

int bench_ring(const bench_options_t *options, FILE *json)
{
    harness_t harness;
    harness_open(&harness);
    bench_report_t report =
        bench_report_begin(harness.rank, harness.size, json);
    if (harness.size == 1) {
        bench_report_note(&report, "ring: skipped, it takes 2 ranks");
    } else if (report.speak) {
        (void)printf("baton-bench ring: all-reduce of f32 by %d ranks; a "
                     "call's time is the slowest rank's\n",
                     harness.size);
    }
    for (size_t i = 0; harness.size > 1 && i < options->size_count; i++) {
        measure_size(&harness, options, options->bytes[i], &report);
    }
    bench_report_end(&report);
    harness_close(&harness);
    return 0;
}
