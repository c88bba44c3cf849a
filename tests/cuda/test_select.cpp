/* Selection on a device against selection on the host, bit for bit: on a GPU,
   or, compiled with BATON_CUDA_ON_CPU, with the kernels run by the processor
   (support/cuda_on_cpu.h). */
#include "cuda/launch.h"
#include "cuda/select_element.h"

#include "cuda/select.h"

#if defined(BATON_CUDA_ON_CPU)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "cuda/select_kernels.cuh"
#pragma GCC diagnostic pop
#endif

extern "C" {
#include "support/cmocka.h"
#include "support/random.h"
#include "support/sanitized.h"
}

#include <stdio.h>
#include <stdlib.h>

using namespace baton_cuda;

#if defined(BATON_CUDA_ON_CPU)
enum { MOST = 30000, KIND_COUNT = 4000, RANDOM_TRIALS = 12 };
#else
enum { MOST = 1 << 25, KIND_COUNT = 1 << 20, RANDOM_TRIALS = 60 };
#endif

/* With TEST_ROUNDS, under a tool that follows each access, vectors are short.
 */
static size_t at_most(size_t count)
{
    const size_t few = 20000;
    return getenv("TEST_ROUNDS") != NULL && count > few ? few : count;
}

static const baton_dtype_t types[] = {BATON_F16, BATON_BF16, BATON_F32,
                                      BATON_F64};
enum { TYPES = sizeof types / sizeof *types };

/* ---- memory of the device ---------------------------------------------- */

static cudaStream_t stream;

static void succeed(cudaError_t error)
{
    if (error != cudaSuccess) {
        fail_msg("%s", cudaGetErrorString(error));
    }
}

static void *device_new(size_t bytes)
{
    void *memory = NULL;
    succeed(cudaMalloc(&memory, bytes > 0 ? bytes : 1));
    succeed(cudaMemset(memory, 0xa5, bytes));
    return memory;
}

static void to_device(void *to, const void *from, size_t bytes)
{
    succeed(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

static void from_device(void *to, const void *from, size_t bytes)
{
    succeed(cudaStreamSynchronize(stream));
    succeed(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fail_msg("%s", baton_error_message());
    }
}

/* ---- vectors ----------------------------------------------------------- */

typedef enum kind {
    NORMAL,
    UNIFORM,
    LAPLACE,
    FEW_VALUES,  /* ties everywhere */
    EQUAL,       /* all of one magnitude */
    MOSTLY_ZERO, /* fewer than k may be left */
    ALL_ZERO,
    SORTED,
    NOT_FINITE, /* NaNs and infinities among them */
    SUBNORMAL,
    SAMPLE_TOO_LARGE, /* where a sample looks, there are large elements */
    SAMPLE_TOO_SMALL, /* or zeros */
    KINDS
} kind_t;

static double unit(support_random_t *random)
{
    return ((double)(support_random_next(random) >> 11) + 0.5) * 0x1p-53;
}

static double value_of_kind(kind_t kind, size_t i, size_t count,
                            support_random_t *random)
{
    const double u = unit(random), v = unit(random);
    const double sign = support_random_below(random, 2) == 0 ? 1 : -1;
    const double normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
    switch (kind) {
    case UNIFORM:
        return 2 * u - 1;
    case LAPLACE:
        return sign * log(u);
    case FEW_VALUES:
        return sign * (double)support_random_below(random, 5);
    case EQUAL:
        return sign * 3;
    case MOSTLY_ZERO:
        return u < 0.01 ? normal : sign * 0.0;
    case ALL_ZERO:
        return sign * 0.0;
    case SORTED:
        return (double)i / (double)count - 0.5;
    case NOT_FINITE:
        return u < 0.01 ? sign * HUGE_VAL : u < 0.02 ? NAN : normal;
    case SUBNORMAL:
        return sign * u * 0x1p-130;
    default:
        return normal;
    }
}

static void store(baton_dtype_t dtype, void *values, size_t i, double value)
{
    const uint64_t key = baton_magnitude_of(dtype, value);
    const uint64_t sign = signbit(value) != 0;
    const size_t size = baton_dtype_size(dtype);
    const uint64_t bits = key | sign << (8 * size - 1);
    memcpy((char *)values + i * size, &bits, size); /* little-endian */
}

static void fill(kind_t kind, baton_dtype_t dtype, void *values, size_t count,
                 support_random_t *random)
{
    for (size_t i = 0; i < count; i++) {
        store(dtype, values, i, value_of_kind(kind, i, count, random));
    }
    const size_t size = sample_of(count) < count ? sample_of(count) : count;
    for (size_t i = 0; i < size && kind >= SAMPLE_TOO_LARGE; i++) {
        size_t at = (size_t)position_of(count, size, i);
        double value = kind == SAMPLE_TOO_LARGE ? 100.0 + (double)(i % 7) : 0;
        store(dtype, values, at, value);
    }
}

/* ---- one selection ----------------------------------------------------- */

/* A vector on both sides, and room for results. On the device it begins at any
   multiple of an element's size. */
typedef struct trial {
    baton_selection_t host, device;
    size_t k;
    void *block; /* of the device's vector */
    void *scratch;
    uint32_t *expected, *actual, *indices; /* 2k; the last on the device */
    baton_cuda_selected_t *selected;
    baton_cuda_workspace_t workspace;
} trial_t;

static void *allocated(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static size_t room_of(const trial_t *trial)
{
    return (2 * trial->k + 2) * sizeof(uint32_t);
}

static trial_t trial_of(baton_dtype_t dtype, kind_t kind, baton_side_t side,
                        size_t count, size_t k, support_random_t *random)
{
    const size_t size = baton_dtype_size(dtype);
    const size_t head = support_random_below(random, 16 / size);
    trial_t trial = {};
    void *values = allocated(count * size);
    fill(kind, dtype, values, count, random);
    trial.k = k;
    trial.block = device_new((head + count) * size);
    char *at = (char *)trial.block + head * size;
    to_device(at, values, count * size);
    uint32_t first = (uint32_t)support_random_below(random, 1000);
    trial.host = {dtype, side, values, count, first};
    trial.device = {dtype, side, at, count, first};
    trial.scratch = allocated(baton_select_scratch_bytes(count, k));
    trial.expected = (uint32_t *)allocated(room_of(&trial));
    trial.actual = (uint32_t *)allocated(room_of(&trial));
    trial.indices = (uint32_t *)device_new(room_of(&trial));
    trial.selected =
        (baton_cuda_selected_t *)device_new(sizeof *trial.selected);
    trial.workspace.bytes = baton_cuda_select_bytes(dtype, count, k);
    trial.workspace.memory = device_new(trial.workspace.bytes);
    trial.workspace.stream = stream;
    return trial;
}

static void trial_end(trial_t *trial)
{
    free((void *)(uintptr_t)trial->host.values);
    free(trial->scratch);
    free(trial->expected);
    free(trial->actual);
    succeed(cudaFree(trial->block));
    succeed(cudaFree(trial->indices));
    succeed(cudaFree(trial->selected));
    succeed(cudaFree(trial->workspace.memory));
}

/* The device's count and indices are those that are expected; and nothing was
   written behind them. */
static void check_indices(trial_t *trial, size_t count, size_t room,
                          baton_cuda_selected_t *out)
{
    const size_t written = count < room ? count : room;
    from_device(out, trial->selected, sizeof *out);
    assert_int_equal(out->count, count);
    from_device(trial->actual, trial->indices, room_of(trial));
    if (memcmp(trial->actual, trial->expected, written * sizeof(uint32_t)) !=
        0) {
        fail_msg("indices differ: %zu of %zu elements of type %s", trial->k,
                 trial->host.count, baton_dtype_name(trial->host.dtype));
    }
    assert_int_equal(trial->actual[written], 0xa5a5a5a5);
}

static void clear_indices(trial_t *trial)
{
    succeed(cudaMemset(trial->indices, 0xa5, room_of(trial)));
}

/* Room for one more than k: what lies there must not be written to. */
static void check_topk(trial_t *trial)
{
    baton_cuda_selected_t out;
    baton_magnitude_t threshold;
    size_t count = baton_select_topk(&trial->host, trial->k, trial->expected,
                                     trial->scratch, &threshold);
    clear_indices(trial);
    must(baton_cuda_select_topk(&trial->device, trial->k, trial->indices,
                                trial->selected, &trial->workspace));
    check_indices(trial, count, trial->k, &out);
    assert_int_equal(out.threshold, threshold);
    clear_indices(trial);
    must(baton_cuda_select_trimmed(&trial->device, trial->k, trial->indices,
                                   trial->selected, &trial->workspace));
    check_indices(trial, count, trial->k, &out);
    assert_int_equal(out.threshold, threshold);
}

/* Indices, and the count, of the elements from a threshold on. */
static void check_at_least(trial_t *trial, baton_magnitude_t threshold)
{
    baton_cuda_selected_t out = {0, threshold};
    const size_t room = trial->k;
    size_t count =
        baton_select_at_least(&trial->host, threshold, trial->expected, room);
    clear_indices(trial);
    to_device(trial->selected, &out, sizeof out);
    must(baton_cuda_select_at_least(
        &trial->device, &trial->selected->threshold, trial->indices, room,
        &trial->selected->count, &trial->workspace));
    check_indices(trial, count, room, &out);
    assert_int_equal(out.threshold, threshold);
    out.count = 12345;
    to_device(trial->selected, &out, sizeof out);
    must(baton_cuda_select_count(&trial->device, &trial->selected->threshold,
                                 &trial->selected->count, stream));
    from_device(&out, trial->selected, sizeof out);
    assert_int_equal(out.count, baton_select_count(&trial->host, threshold));
}

static void check_search(trial_t *trial)
{
    baton_cuda_selected_t out;
    baton_magnitude_t threshold = baton_select_search(
        &trial->host, trial->k, trial->expected, trial->scratch);
    must(baton_cuda_select_search(&trial->device, trial->k,
                                  &trial->selected->threshold,
                                  &trial->workspace));
    from_device(&out, trial->selected, sizeof out);
    assert_int_equal(out.threshold, threshold);
}

/* As lib/coll/sparse/topka.c selects. */
static size_t host_sampled(trial_t *trial, bool reuse,
                           baton_magnitude_t *threshold)
{
    const baton_selection_t *from = &trial->host;
    const size_t most = 2 * trial->k;
    size_t found;
    if (reuse && *threshold != 0) {
        found = baton_select_at_least(from, *threshold, trial->expected, most);
        if (found <= most) {
            return found;
        }
    }
    *threshold =
        baton_select_search(from, trial->k, trial->expected, trial->scratch);
    found = baton_select_at_least(from, *threshold, trial->expected, most);
    return *threshold != 0 && found <= most
               ? found
               : baton_select_topk(from, trial->k, trial->expected,
                                   trial->scratch, threshold);
}

static void check_sampled(trial_t *trial, bool reuse,
                          baton_magnitude_t threshold)
{
    baton_cuda_selected_t out = {77, threshold};
    size_t count = host_sampled(trial, reuse, &threshold);
    clear_indices(trial);
    to_device(trial->selected, &out, sizeof out);
    must(baton_cuda_select_sampled(&trial->device, trial->k, reuse,
                                   trial->indices, trial->selected,
                                   &trial->workspace));
    check_indices(trial, count, 2 * trial->k, &out);
    assert_int_equal(out.threshold, threshold);
}

/* Equal, or both NaNs. */
static void check_square_sum(trial_t *trial)
{
    const baton_selection_t *from = &trial->device;
    const double right =
        baton_elements_measure(from->dtype, trial->host.values, from->count)
            .square_sum;
    double *device_sum = (double *)device_new(sizeof *device_sum);
    double sum = -1;
    must(baton_cuda_elements_square_sum(from->dtype, from->values, from->count,
                                        device_sum, &trial->workspace));
    from_device(&sum, device_sum, sizeof sum);
    if (right == right) {
        assert_memory_equal(&sum, &right, sizeof sum);
    } else {
        assert_true(sum != sum);
    }
    succeed(cudaFree(device_sum));
}

static void check_all(baton_dtype_t dtype, kind_t kind, baton_side_t side,
                      size_t count, size_t k, support_random_t *random)
{
    trial_t trial = trial_of(dtype, kind, side, count, k, random);
    baton_magnitude_t threshold = 0;
    check_topk(&trial);
    if (count > 0) {
        baton_select_topk(&trial.host, k, trial.expected, trial.scratch,
                          &threshold);
    }
    check_at_least(&trial, threshold);
    check_at_least(&trial, 0);
    check_at_least(&trial, UINT64_MAX);
    if (k > 0) {
        check_search(&trial);
        check_sampled(&trial, false, 0);
        check_sampled(&trial, true, 0);
        check_sampled(&trial, true, 1);
        check_sampled(&trial, true, threshold + 1);
        check_sampled(&trial, true, UINT64_MAX);
        check_square_sum(&trial);
    }
    trial_end(&trial);
}

/* ---- tests ------------------------------------------------------------- */

static void test_small_vectors(void **)
{
    support_random_t random = support_random(support_seed(), 1);
    const size_t counts[] = {0, 1, 2, 7, 33, 300};
    for (unsigned type = 0; type < TYPES; type++) {
        for (unsigned c = 0; c < 6; c++) {
            const size_t n = counts[c];
            const size_t ks[] = {0, 1, n / 2, n, n + 5};
            for (unsigned i = 0; i < 5; i++) {
                kind_t kind = (kind_t)support_random_below(&random, KINDS);
                baton_side_t side =
                    (baton_side_t)support_random_below(&random, 3);
                check_all(types[type], kind, side, n, ks[i], &random);
            }
        }
    }
}

/* Each kind of vector with each type (with a sanitizer, with one of them), of a
   length that is sampled. */
static void test_every_kind_and_type(void **)
{
    support_random_t random = support_random(support_seed(), 2);
    for (unsigned type = 0; type < TYPES; type++) {
        for (unsigned kind = 0; kind < KINDS; kind++) {
            if (SUPPORT_SANITIZED && kind % TYPES != type) {
                continue;
            }
            size_t n =
                4100 + support_random_below(&random, at_most(KIND_COUNT));
            /* The large elements that mislead the sample are fewer than k. */
            size_t k = kind == SAMPLE_TOO_LARGE
                           ? n / 16
                           : 1 + support_random_below(&random, n / 50);
            baton_side_t side =
                kind % 4 != 0 ? BATON_SIDE_BOTH
                              : (baton_side_t)support_random_below(&random, 3);
            check_all(types[type], (kind_t)kind, side, n, k, &random);
        }
    }
}

static void test_random_vectors(void **)
{
    support_random_t random = support_random(support_seed(), 3);
    for (unsigned trial = 0; trial < SUPPORT_REPEAT(RANDOM_TRIALS); trial++) {
        baton_dtype_t dtype = types[support_random_below(&random, TYPES)];
        kind_t kind = (kind_t)support_random_below(&random, KINDS);
        baton_side_t side = (baton_side_t)support_random_below(&random, 3);
        double scale = unit(&random);
        size_t n = (size_t)((double)at_most(MOST) * scale * scale * scale);
        size_t k = (size_t)((double)n * pow(unit(&random), 6));
        check_all(dtype, kind, side, n, k, &random);
    }
}

#if defined(BATON_CUDA_ON_CPU)
/* Zeros are ties of no threshold: with those beside the vector there may be
   more than a tally has room for, at 2^32 - 1 elements. */
static void test_zeros_are_no_ties(void **)
{
    const size_t count = 20000, k = 16;
    const size_t bytes = baton_cuda_select_bytes(BATON_F32, count, k);
    void *values = device_new(count * sizeof(float));
    uint32_t *indices = (uint32_t *)device_new(k * sizeof *indices);
    baton_cuda_selected_t *selected =
        (baton_cuda_selected_t *)device_new(sizeof *selected);
    const baton_cuda_workspace_t workspace = {device_new(bytes), bytes, stream};
    const baton_selection_t from = {BATON_F32, BATON_SIDE_BOTH, values, count,
                                    0};
    succeed(cudaMemset(values, 0, count * sizeof(float)));
    must(baton_cuda_select_topk(&from, k, indices, selected, &workspace));
    state_t state;
    from_device(&state, workspace.memory, sizeof state);
    assert_int_equal(selected->count, 0);
    assert_true(state.threshold > nan_key<BATON_F32>());
    cudaFree(values);
    cudaFree(indices);
    cudaFree(selected);
    cudaFree(workspace.memory);
}
#endif

/* ---- lists of entries -------------------------------------------------- */

typedef struct lists {
    baton_dtype_t dtype;
    size_t n, count, bytes;     /* bytes of the vector */
    char *dense, *list;         /* of the host */
    char *device_dense, *block; /* of the device; the list lies in the block */
    uint32_t *indices, *device_indices;
    uint64_t *device_count;
    baton_cuda_entries_t entries;
} lists_t;

static lists_t lists_of(baton_dtype_t dtype, size_t n, size_t slack,
                        support_random_t *random)
{
    lists_t l = {};
    l.dtype = dtype;
    l.n = n;
    l.bytes = n * baton_dtype_size(dtype);
    l.dense = (char *)allocated(l.bytes);
    fill(NOT_FINITE, dtype, l.dense, n, random);
    l.indices = (uint32_t *)allocated((n + slack) * sizeof *l.indices);
    for (size_t i = 0; i < n; i++) {
        if (support_random_below(random, 3) == 0) {
            l.indices[l.count++] = (uint32_t)i;
        }
    }
    const size_t room = l.count + slack;
    const size_t list_bytes = room * baton_entry_bytes(dtype);
    const size_t offset = baton_dtype_size(dtype) == 2 ? 2 : 4;
    l.list = (char *)allocated(list_bytes);
    memset(l.list, 0xa5, list_bytes);
    l.block = (char *)device_new(list_bytes + offset);
    l.device_dense = (char *)device_new(l.bytes);
    l.device_indices = (uint32_t *)device_new(room * sizeof *l.indices);
    l.device_count = (uint64_t *)device_new(sizeof *l.device_count);
    const uint64_t count = l.count;
    to_device(l.device_dense, l.dense, l.bytes);
    to_device(l.device_indices, l.indices, l.count * sizeof *l.indices);
    to_device(l.device_count, &count, sizeof count);
    l.entries = {dtype, l.block + offset, room, l.device_count};
    return l;
}

static void lists_end(lists_t *l)
{
    free(l->dense);
    free(l->list);
    free(l->indices);
    succeed(cudaFree(l->block));
    succeed(cudaFree(l->device_dense));
    succeed(cudaFree(l->device_indices));
    succeed(cudaFree(l->device_count));
}

/* Lists and vectors have the same bits on both sides, also behind the list's
   end. */
static void check_lists(const lists_t *l)
{
    const size_t bytes = l->entries.capacity * baton_entry_bytes(l->dtype);
    char *copy = (char *)allocated(bytes > l->bytes ? bytes : l->bytes);
    from_device(copy, l->entries.data, bytes);
    assert_memory_equal(copy, l->list, bytes);
    from_device(copy, l->device_dense, l->bytes);
    assert_memory_equal(copy, l->dense, l->bytes);
    free(copy);
}

static void check_entries(lists_t *l, support_random_t *random)
{
    const double factors[] = {1, -1, 1.0 / 3};
    must(baton_cuda_entries_gather(&l->entries, l->device_indices,
                                   l->device_dense, stream));
    baton_entries_gather(l->dtype, l->list, l->indices, l->count, l->dense);
    check_lists(l);
    must(baton_cuda_entries_take(&l->entries, l->device_indices,
                                 l->device_dense, stream));
    baton_entries_take(l->dtype, l->list, l->indices, l->count, l->dense);
    check_lists(l);
    fill(NORMAL, l->dtype, l->dense, l->n, random);
    to_device(l->device_dense, l->dense, l->bytes);
    for (unsigned i = 0; i < 3; i++) {
        must(baton_cuda_entries_add(&l->entries, factors[i], l->device_dense,
                                    stream));
        baton_entries_add(l->dtype, l->list, l->count, factors[i], l->dense);
        check_lists(l);
    }
    must(baton_cuda_entries_put(&l->entries, l->device_dense, stream));
    baton_entries_put(l->dtype, l->list, l->count, l->dense);
    check_lists(l);
}

static void test_lists(void **)
{
    support_random_t random = support_random(support_seed(), 4);
    const size_t counts[] = {1, 10, 5000};
    for (unsigned type = 0; type < TYPES; type++) {
        for (unsigned c = 0; c < 3; c++) {
            lists_t l = lists_of(types[type], counts[c], 3, &random);
            check_entries(&l, &random);
            lists_end(&l);
        }
    }
}

/* Times a factor, from one vector to another and in place. */
static void check_scale(lists_t *l, double factor)
{
    char *other = (char *)device_new(l->bytes);
    must(baton_cuda_elements_scale(l->dtype, other, l->device_dense, l->n,
                                   factor, stream));
    must(baton_cuda_elements_scale(l->dtype, l->device_dense, l->device_dense,
                                   l->n, factor, stream));
    baton_elements_scale(l->dtype, l->dense, l->n, factor);
    check_lists(l);
    char *copy = (char *)allocated(l->bytes);
    from_device(copy, other, l->bytes);
    assert_memory_equal(copy, l->dense, l->bytes);
    free(copy);
    succeed(cudaFree(other));
}

static void test_scale(void **)
{
    static const double factors[] = {0.5, 1, -0.3, 1e-30, 0};
    support_random_t random = support_random(support_seed(), 6);
    for (unsigned type = 0; type < TYPES; type++) {
        for (size_t n = 1; n < at_most(9000); n = n * 7 + 3) {
            lists_t l = lists_of(types[type], n, 1, &random);
            must(baton_cuda_entries_gather(&l.entries, l.device_indices,
                                           l.device_dense, stream));
            baton_entries_gather(l.dtype, l.list, l.indices, l.count, l.dense);
            for (double factor : factors) {
                check_scale(&l, factor);
            }
            lists_end(&l);
        }
    }
}

/* A selection that found more than there is room for: the list ends there. */
static void test_list_ends_at_its_capacity(void **)
{
    support_random_t random = support_random(support_seed(), 5);
    lists_t l = lists_of(BATON_F32, 1000, 0, &random);
    const uint64_t more = l.count + 100;
    to_device(l.device_count, &more, sizeof more);
    check_entries(&l, &random);
    l.entries.count = NULL;
    check_entries(&l, &random);
    l.entries.capacity = 0;
    must(baton_cuda_entries_put(&l.entries, l.device_dense, stream));
    lists_end(&l);
}

/* ---- wrong use --------------------------------------------------------- */

static void says(baton_status_t status, const char *text)
{
    assert_int_equal(status, BATON_ERR_INVALID);
    if (strstr(baton_error_message(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", baton_error_message(), text);
    }
}

static void test_wrong_arguments_are_named(void **)
{
    support_random_t random = support_random(support_seed(), 6);
    trial_t t = trial_of(BATON_F32, NORMAL, BATON_SIDE_BOTH, 100, 5, &random);
    baton_selection_t bad = t.device;
    baton_cuda_workspace_t small = t.workspace;
    says(baton_cuda_select_topk(NULL, 5, t.indices, t.selected, &t.workspace),
         "baton_cuda_select_topk: from is NULL");
    says(baton_cuda_select_topk(&t.device, 5, NULL, t.selected, &t.workspace),
         "indices is NULL");
    says(baton_cuda_select_topk(&t.device, 5, t.indices, NULL, &t.workspace),
         "selected_out is NULL");
    says(baton_cuda_select_topk(&t.device, 5, t.indices, t.selected, NULL),
         "workspace is NULL");
    small.bytes--;
    says(baton_cuda_select_topk(&t.device, 5, t.indices, t.selected, &small),
         "bytes; ");
    bad.values = (const char *)bad.values + 1;
    says(baton_cuda_select_topk(&bad, 5, t.indices, t.selected, &t.workspace),
         "not aligned to 4 bytes");
    bad = t.device;
    bad.dtype = BATON_I32;
    says(baton_cuda_select_count(&bad, &t.selected->threshold,
                                 &t.selected->count, stream),
         "the element type is i32");
    bad = t.device;
    bad.first = UINT32_MAX;
    says(
        baton_cuda_select_search(&bad, 5, &t.selected->threshold, &t.workspace),
        "100 elements from index 4294967295");
    says(baton_cuda_select_search(&t.device, 0, &t.selected->threshold,
                                  &t.workspace),
         "k is 0");
    says(baton_cuda_select_at_least(&t.device, NULL, t.indices, 5,
                                    &t.selected->count, &t.workspace),
         "threshold is NULL");
    baton_cuda_entries_t list = {BATON_F64, (char *)t.indices + 2, 1, NULL};
    says(baton_cuda_entries_put(&list, t.indices, stream), "list->data is");
    list.data = t.indices;
    says(baton_cuda_entries_add(&list, 1, NULL, stream), "dense is NULL");
    says(baton_cuda_entries_gather(&list, NULL, t.indices, stream),
         "indices is NULL");
    trial_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_vectors),
        cmocka_unit_test(test_every_kind_and_type),
        cmocka_unit_test(test_random_vectors),
#if defined(BATON_CUDA_ON_CPU)
        cmocka_unit_test(test_zeros_are_no_ties),
#endif
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_list_ends_at_its_capacity),
        cmocka_unit_test(test_wrong_arguments_are_named),
    };
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        printf("skipped: %s\n", error != cudaSuccess ? cudaGetErrorString(error)
                                                     : "there is no GPU");
        return 77;
    }
    if (cudaStreamCreate(&stream) != cudaSuccess) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)cudaStreamDestroy(stream);
    return failed;
}
