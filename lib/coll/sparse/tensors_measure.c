/* What selecting and adding entries cost on this machine. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

#include <baton/tensors.h>
#include <string.h>

enum { COUNT = 1 << 20, SELECTED = COUNT / 100, REPETITIONS = 5 };

typedef struct bench {
    baton_dtype_t dtype;
    void *values;
    uint32_t *indices;
    void *entries;
    void *scratch;
    size_t found;
} bench_t;

static bool allocate(bench_t *bench)
{
    bench->values = baton__alloc(COUNT, baton_dtype_size(bench->dtype));
    bench->indices = baton__alloc(SELECTED, sizeof *bench->indices);
    bench->entries = baton__alloc(SELECTED, baton_entry_bytes(bench->dtype));
    bench->scratch =
        baton__alloc(1, baton_select_scratch_bytes(COUNT, SELECTED));
    return bench->values != NULL && bench->indices != NULL &&
           bench->entries != NULL && bench->scratch != NULL;
}

/* An element of magnitude 1 to 2, as a random one of a gradient is that is not
   among the smallest. */
static void fill(bench_t *bench)
{
    size_t size = baton_dtype_size(bench->dtype);
    for (size_t i = 0; i < COUNT; i++) {
        double value = 1 + (double)(baton__random(1, 2, i) >> 11) / 0x1p53;
        baton_magnitude_t key = baton_magnitude_of(bench->dtype, value);
        uint16_t narrow = (uint16_t)key;
        uint32_t middle = (uint32_t)key;
        const void *from = size == 2   ? (const void *)&narrow
                           : size == 4 ? (const void *)&middle
                                       : (const void *)&key;
        memcpy((char *)bench->values + i * size, from, size);
    }
}

static void select_once(bench_t *bench)
{
    baton_selection_t from = {
        .dtype = bench->dtype, .values = bench->values, .count = COUNT};
    bench->found = baton_select_topk(&from, SELECTED, bench->indices,
                                     bench->scratch, NULL);
}

static void add_once(bench_t *bench)
{
    baton_entries_add(bench->dtype, bench->entries, bench->found, 1,
                      bench->values);
}

static double shortest_ns(bench_t *bench, void (*once)(bench_t *bench))
{
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < REPETITIONS; i++) {
        uint64_t begin = baton__clock_ns();
        once(bench);
        uint64_t taken = baton__clock_ns() - begin;
        shortest = taken < shortest ? taken : shortest;
    }
    return (double)shortest;
}

baton_status_t baton_tensors_measure(baton_dtype_t dtype, double *select_ns_out,
                                     double *entry_ns_out)
{
    if (!baton_select_supports(dtype) || select_ns_out == NULL ||
        entry_ns_out == NULL) {
        return baton__error(BATON_ERR_INVALID, "measure tensors: %s",
                            baton_select_supports(dtype)
                                ? "an output is NULL"
                                : "dtype has no selection; allowed: f32, f64, "
                                  "f16, bf16");
    }
    bench_t bench = {.dtype = dtype};
    bool ok = allocate(&bench);
    if (ok) {
        fill(&bench);
        *select_ns_out = shortest_ns(&bench, select_once) / COUNT;
        baton_entries_gather(dtype, bench.entries, bench.indices, bench.found,
                             bench.values);
        *entry_ns_out = shortest_ns(&bench, add_once) / (double)bench.found;
    }
    baton__free(bench.values);
    baton__free(bench.indices);
    baton__free(bench.entries);
    baton__free(bench.scratch);
    return ok ? BATON_OK
              : baton__error(BATON_ERR_NO_MEMORY, "measure tensors: no memory");
}
