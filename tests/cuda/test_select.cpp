/* Selection and lists of entries on a device, which must give the same bits as
   on the CPU. The kernels run on a GPU or, compiled with BATON_CUDA_ON_CPU, on
   the CPU (support/cuda_on_cpu.h). */
#include "cuda/select_element.h"

#if defined(BATON_CUDA_ON_CPU)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "cuda/select_kernels.cuh"
#pragma GCC diagnostic pop
#else
#include "cuda/kernels.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "support/cmocka.h"
#include "support/select_cases.h"
}

#include <initializer_list>

using namespace baton_cuda;

/* ---- memory of the device ---------------------------------------------- */

static void succeed(cudaError_t error)
{
    if (error != cudaSuccess) {
        fail_msg("%s", cudaGetErrorString(error));
    }
}

/* A copy of CPU memory on the device. It begins `offset` bytes after an aligned
   address, and no spare byte follows it. */
struct there {
    char *block, *at;
    void *host;
    size_t bytes;

    there(const void *from, size_t bytes, size_t offset = 0)
        : host((void *)(uintptr_t)from), bytes(bytes)
    {
        succeed(cudaMalloc((void **)&block, offset + bytes + (bytes == 0)));
        at = block + offset;
        if (from != NULL) {
            succeed(cudaMemcpy(at, from, bytes, cudaMemcpyHostToDevice));
        }
    }
    /* Copies the data to CPU memory. */
    void fetch()
    {
        succeed(cudaMemcpy(host, at, bytes, cudaMemcpyDeviceToHost));
    }
    ~there()
    {
        succeed(cudaFree(block));
    }
};

static void *allocated(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* ---- selections -------------------------------------------------------- */

static support_random_t numbers;

/* The sum of squares uses the scratch memory of a selection. */
static void check_square_sum(const baton_selection_t *from, const char *values,
                             void *scratch)
{
    const double right =
        baton_elements_measure(from->dtype, from->values, from->count)
            .square_sum;
    double found = -1;
    there sum(&found, sizeof found);
    succeed(baton__cuda_square_sum(NULL, from->dtype, values, from->count,
                                   (double *)sum.at, scratch));
    sum.fetch();
    if (right == right) {
        assert_memory_equal(&found, &right, sizeof found);
    } else {
        assert_true(found != found);
    }
}

/* The vector may begin at any multiple of an element's size. */
static void select_there(const baton_device_selection_t *s)
{
    const size_t size = baton_dtype_size(s->from.dtype), n = s->from.count;
    size_t room = s->method >= BATON_DEVICE_SAMPLED ? 2 * s->k : s->k;
    room = (room < n ? room : n) * sizeof *s->indices;
    there values(s->from.values, n * size,
                 support_random_below(&numbers, 16 / size) * size);
    there indices(s->indices, room);
    there selected(s->selected, sizeof *s->selected);
    there scratch(NULL, baton__cuda_select_bytes(s->from.dtype, n, s->k));
    succeed(cudaMemset(scratch.at, 0xa5, scratch.bytes));
    baton_device_selection_t device = *s;
    device.from.values = values.at;
    device.indices = (uint32_t *)indices.at;
    device.selected = (baton_device_selected_t *)selected.at;
    device.scratch = scratch.at;
    succeed(baton__cuda_select(NULL, &device));
    indices.fetch();
    selected.fetch();
    if (s->method == BATON_DEVICE_TOPK) {
        check_square_sum(&s->from, values.at, scratch.at);
    }
}

static size_t position(size_t count, size_t size, size_t i)
{
    return (size_t)position_of(count, size, i);
}

static void test_selections_are_those_of_a_sort(void **)
{
#if defined(BATON_CUDA_ON_CPU)
    const select_subject_t subject = {select_there, position, 8000, 12, true};
#else /* fewer rounds (TEST_ROUNDS) under a tool that checks each access */
    const select_subject_t subject = {
        select_there, position,
        getenv("TEST_ROUNDS") != NULL ? (size_t)20000 : (size_t)1 << 21, 60,
        false};
#endif
    select_cases_run(&subject);
}

#if defined(BATON_CUDA_ON_CPU)
/* Zeros are not ties of any threshold. Counted with the zeros beside the
   vector, there might be more ties than a tally can hold, at 2^32 - 1
   elements. */
static void test_zeros_are_no_ties(void **)
{
    static const float zeros[20000] = {0};
    uint32_t indices[16];
    baton_device_selected_t selected;
    const size_t bytes = baton__cuda_select_bytes(BATON_F32, 20000, 16);
    there scratch(NULL, bytes);
    const baton_device_selection_t selection = {
        BATON_DEVICE_TOPK,
        {BATON_F32, BATON_SIDE_BOTH, zeros, 20000, 0},
        16,
        indices,
        &selected,
        scratch.at};
    succeed(baton__cuda_select(NULL, &selection));
    assert_int_equal(selected.count, 0);
    assert_true(((state_t *)scratch.at)->threshold > nan_key<BATON_F32>());
}
#endif

/* ---- lists of entries -------------------------------------------------- */

typedef struct lists {
    baton_dtype_t dtype;
    size_t n, count, capacity;
    char *dense, *list;
    uint32_t *indices;
} lists_t;

static lists_t lists_of(baton_dtype_t dtype, size_t n, size_t slack)
{
    lists_t l = {dtype, n, 0, 0, NULL, NULL, NULL};
    l.dense = (char *)allocated(n * baton_dtype_size(dtype));
    select_fill(SELECT_NOT_FINITE, dtype, l.dense, n, position, &numbers);
    l.indices = (uint32_t *)allocated(n * sizeof *l.indices);
    for (size_t i = 0; i < n; i++) {
        if (support_random_below(&numbers, 3) == 0) {
            l.indices[l.count++] = (uint32_t)i;
        }
    }
    l.capacity = l.count + slack;
    const size_t bytes = l.capacity * baton_entry_bytes(dtype);
    l.list = (char *)allocated(bytes);
    memset(l.list, 0xa5, bytes);
    return l;
}

static void lists_end(lists_t *l)
{
    free(l->dense);
    free(l->list);
    free(l->indices);
}

static void transfer_here(lists_t *l, baton_device_direction_t direction,
                          double factor)
{
    switch (direction) {
    case BATON_DEVICE_GATHER:
        baton_entries_gather(l->dtype, l->list, l->indices, l->count, l->dense);
        break;
    case BATON_DEVICE_TAKE:
        baton_entries_take(l->dtype, l->list, l->indices, l->count, l->dense);
        break;
    case BATON_DEVICE_ADD:
        baton_entries_add(l->dtype, l->list, l->count, factor, l->dense);
        break;
    case BATON_DEVICE_PUT:
        baton_entries_put(l->dtype, l->list, l->count, l->dense);
        break;
    }
}

static void same(there *actual, const void *expected)
{
    actual->host = allocated(actual->bytes);
    actual->fetch();
    assert_memory_equal(actual->host, expected, actual->bytes);
    free(actual->host);
}

/* Both ends get the same bits, and also the same bits after the end of the
   list. `told` is the number of entries that the device is told; NULL: as many
   as the list can hold. */
static void transfer(lists_t *l, baton_device_direction_t direction,
                     double factor, const uint64_t *told)
{
    const size_t size = baton_dtype_size(l->dtype);
    there list(l->list, l->capacity * baton_entry_bytes(l->dtype),
               size == 2 ? 2 : 4);
    there dense(l->dense, l->n * size);
    there indices(l->indices, l->count * sizeof *l->indices);
    there count(told, sizeof *told);
    const baton_device_transfer_t transfer = {
        direction,
        {l->dtype, list.at, l->capacity,
         told != NULL ? (uint64_t *)count.at : NULL},
        (uint32_t *)indices.at,
        factor,
        dense.at};
    succeed(baton__cuda_entries(NULL, &transfer));
    transfer_here(l, direction, factor);
    same(&list, l->list);
    same(&dense, l->dense);
}

static void transfer_all(lists_t *l, const uint64_t *told)
{
    transfer(l, BATON_DEVICE_GATHER, 0, told);
    transfer(l, BATON_DEVICE_TAKE, 0, told);
    select_fill(SELECT_NORMAL, l->dtype, l->dense, l->n, position, &numbers);
    for (double factor : {1.0, -1.0, 1.0 / 3}) {
        transfer(l, BATON_DEVICE_ADD, factor, told);
    }
    transfer(l, BATON_DEVICE_PUT, 0, told);
}

/* A selection may have found more entries than the list can hold. The list ends
   there. */
static void test_lists(void **)
{
    for (baton_dtype_t dtype : select_types) {
        for (size_t n : {(size_t)1, (size_t)10, (size_t)5000}) {
            lists_t l = lists_of(dtype, n, 3);
            const uint64_t count = l.count, more = l.count + 100;
            transfer_all(&l, &count);
            l.capacity = l.count;
            transfer_all(&l, &more);
            transfer_all(&l, NULL);
            lists_end(&l);
        }
    }
}

/* Multiplies by a factor, from one vector to another and in place. */
static void test_scale(void **)
{
    for (baton_dtype_t dtype : select_types) {
        const size_t size = baton_dtype_size(dtype);
        for (size_t n : {(size_t)1, (size_t)3601, (size_t)65536}) {
            lists_t l = lists_of(dtype, n, 0);
            for (size_t i = 0; i < n && n == 65536 && size == 2; i++) {
                ((uint16_t *)(void *)l.dense)[i] =
                    (uint16_t)i; /* all values of 16 bits */
            }
            for (double factor : {3.14159265, 1.0, -0.3, 1e-30, 0.0}) {
                const size_t bytes = n * size;
                there from(l.dense, bytes), to(NULL, bytes);
                succeed(
                    baton__cuda_scale(NULL, dtype, to.at, from.at, n, factor));
                succeed(baton__cuda_scale(NULL, dtype, from.at, from.at, n,
                                          factor));
                baton_elements_scale(dtype, l.dense, n, factor);
                same(&to, l.dense);
                same(&from, l.dense);
            }
            lists_end(&l);
        }
    }
}

#if defined(BATON_CUDA_ON_CPU)
/* There are more tiles than lanes that add up their sums. */
static void test_square_sum_of_many_tiles(void **)
{
    const size_t count = 300 * MEASURE_TILE + 5;
    lists_t l = lists_of(BATON_F32, count, 0);
    select_fill(SELECT_NORMAL, BATON_F32, l.dense, count, position, &numbers);
    const baton_selection_t from = {BATON_F32, BATON_SIDE_BOTH, l.dense, count,
                                    0};
    there scratch(NULL, baton__cuda_select_bytes(BATON_F32, count, 1));
    check_square_sum(&from, l.dense, scratch.at);
    lists_end(&l);
}

/* ---- one element or number ---------------------------------------------- */

/* Tests any doubles, doubles half-way between two values, and those next to
   them. */
template <baton_dtype_t D> static void check_rounding(void)
{
    support_random_t random = support_random(support_seed(), 20 + D);
    for (unsigned i = 0; i < 60000; i++) {
        const double any = same_bits<double>(support_random_next(&random));
        uint64_t key = support_random_next(&random) % infinity_key<D>();
        if (i % 4 == 0) {
            key %= (uint64_t)4 << element<D>::fraction;
        }
        const double middle = baton_magnitude_value(D, key) / 2 +
                              baton_magnitude_value(D, key + 1) / 2;
        for (double value :
             {any, middle, nextafter(middle, 0), nextafter(middle, HUGE_VAL)}) {
            assert_int_equal(magnitude_of<D>(value),
                             baton_magnitude_of(D, value));
        }
    }
}

static void test_thresholds_are_rounded_as_on_the_host(void **)
{
    check_rounding<BATON_F16>();
    check_rounding<BATON_BF16>();
    check_rounding<BATON_F32>();
    check_rounding<BATON_F64>();
}

static void test_sample_has_one_of_each_stratum(void **)
{
    const uint64_t counts[] = {4097, 100000, 1234567, UINT32_MAX};
    for (unsigned c = 0; c < 4; c++) {
        uint64_t count = counts[c], size = sample_of(count), begin = 0;
        for (uint64_t i = 0; i < size; i++) {
            uint64_t at = position_of(count, size, i);
            uint64_t end = begin + count / size + (i < count % size);
            assert_true(at >= begin && at < end);
            begin = end;
        }
        assert_true(begin == count);
    }
}

static void test_candidates_grow_with_count_and_need(void **)
{
    size_t before = 0;
    for (size_t count = 1; count < UINT32_MAX; count += 1 + count / 50) {
        size_t now = baton_candidates_room(count, 1000 < count ? 1000 : count);
        assert_true(now >= before && now <= count);
        before = now;
        assert_true(baton_candidates_room(count, count / 2) >=
                    baton_candidates_room(count, count / 3));
        assert_true(baton_candidates_room(count, count / 2) >= count / 2);
    }
}

/* With a mean of 0 and a maximum of 1, the i-th threshold of the descending
   search is 2^-i. */
static void test_search_ends_after_20_steps(void **)
{
    const uint64_t last = magnitude_of<BATON_F64>(0x1p-20);
    assert_int_equal(search<BATON_F64>(0, 1, last, last - 1), last);
    assert_int_equal(search<BATON_F64>(0, 1, last - 1, last - 2), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_selections_are_those_of_a_sort),
#if defined(BATON_CUDA_ON_CPU)
        cmocka_unit_test(test_zeros_are_no_ties),
        cmocka_unit_test(test_square_sum_of_many_tiles),
        cmocka_unit_test(test_thresholds_are_rounded_as_on_the_host),
        cmocka_unit_test(test_sample_has_one_of_each_stratum),
        cmocka_unit_test(test_candidates_grow_with_count_and_need),
        cmocka_unit_test(test_search_ends_after_20_steps),
#endif
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_scale),
    };
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        printf("skipped: %s\n", error != cudaSuccess ? cudaGetErrorString(error)
                                                     : "there is no GPU");
        return 77;
    }
    if (baton__cuda_select_load() != cudaSuccess ||
        baton__cuda_entries_load() != cudaSuccess) {
        return 1;
    }
    numbers = support_random(support_seed(), 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
