/* Lists of entries, and elements times a factor, in stream order
   (select.h). One thread for each entry, or element; a list has no
   index twice, so threads do not meet. */
#include "cuda/select_element.h"
#include "cuda/select_host.h"

namespace baton_cuda
{

enum { ENTRY_THREADS = 256, INDEX_BYTES = 4 };

const size_t MOST_ENTRY_BLOCKS = 4096;

/* ---- on the device ----------------------------------------------------- */

template <baton_dtype_t D> struct entries {
    char *data;
    uint64_t capacity;
    const uint64_t *count;
};

/* An entry is at a multiple of 2 bytes (f16, bf16) or 4, no more: so are the
   words that it is read and written in. */
template <baton_dtype_t D> struct word {
    typedef uint32_t t;
};
template <> struct word<BATON_F16> {
    typedef uint16_t t;
};
template <> struct word<BATON_BF16> {
    typedef uint16_t t;
};

template <class value_t, class word_t>
__device__ value_t load_words(const char *at)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < sizeof(value_t) / sizeof(word_t); i++) {
        uint64_t part = ((const word_t *)(const void *)at)[i];
        value |= part << (8 * sizeof(word_t) * i);
    }
    return (value_t)value;
}

template <class value_t, class word_t>
__device__ void store_words(char *at, value_t value)
{
    for (unsigned i = 0; i < sizeof(value_t) / sizeof(word_t); i++) {
        ((word_t *)(void *)at)[i] =
            (word_t)((uint64_t)value >> (8 * sizeof(word_t) * i));
    }
}

/* One entry of a list, in the memory of the list. */
template <baton_dtype_t D> struct entry {
    typedef typename element<D>::bits_t bits_t;
    typedef typename word<D>::t word_t;
    char *at;

    __device__ uint32_t index() const
    {
        return load_words<uint32_t, word_t>(at);
    }
    __device__ bits_t value() const
    {
        return load_words<bits_t, word_t>(at + INDEX_BYTES);
    }
    __device__ void set_index(uint32_t index)
    {
        store_words<uint32_t, word_t>(at, index);
    }
    __device__ void set_value(bits_t value)
    {
        store_words<bits_t, word_t>(at + INDEX_BYTES, value);
    }
};

/* Calls visit(i, entry) for each entry; each thread of the grid for its
   share. */
template <baton_dtype_t D, class function>
__device__ void visit_entries(const entries<D> &list, function visit)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t given = list.count != NULL ? *list.count : list.capacity;
    const uint64_t count = given < list.capacity ? given : list.capacity;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += stride) {
        entry<D> one;
        one.at =
            list.data + i * (INDEX_BYTES + sizeof(typename element<D>::bits_t));
        visit(i, one);
    }
}

template <baton_dtype_t D>
__global__ void gather(entries<D> list, const uint32_t *indices,
                       typename element<D>::bits_t *dense, bool clears)
{
    visit_entries<D>(list, [&](uint64_t i, entry<D> one) {
        const uint32_t index = indices[i];
        one.set_index(index);
        one.set_value(dense[index]);
        if (clears) {
            dense[index] = 0;
        }
    });
}

template <baton_dtype_t D>
__global__ void put(entries<D> list, typename element<D>::bits_t *dense)
{
    visit_entries<D>(list, [&](uint64_t, entry<D> one) {
        dense[one.index()] = one.value();
    });
}

template <baton_dtype_t D>
__global__ void add(entries<D> list, double factor,
                    typename element<D>::bits_t *dense)
{
    typedef typename element<D>::bits_t bits_t;
    visit_entries<D>(list, [&](uint64_t, entry<D> one) {
        const uint32_t index = one.index();
        const bits_t before = dense[index];
        bits_t value = one.value();
        if (factor != 1) {
            value = arithmetic<D>::scaled(value, factor);
        }
        dense[index] = arithmetic<D>::sum(before, value);
        one.set_value(before);
    });
}

template <baton_dtype_t D>
__global__ void scale(typename element<D>::bits_t *target,
                      const typename element<D>::bits_t *source, uint64_t count,
                      double factor)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += stride) {
        target[i] = arithmetic<D>::scaled(source[i], factor);
    }
}

/* ---- launches ---------------------------------------------------------- */

template <baton_dtype_t D> struct with_entries {
    typedef typename element<D>::bits_t bits_t;

    static cudaError_t load_kernels(cudaError_t error)
    {
        error = load(error, gather<D>);
        error = load(error, put<D>);
        error = load(error, add<D>);
        return load(error, scale<D>);
    }

    static entries<D> of(const baton_cuda_entries_t *list)
    {
        entries<D> result;
        result.data = (char *)list->data;
        result.capacity = list->capacity;
        result.count = list->count;
        return result;
    }

    static unsigned blocks(size_t count)
    {
        size_t blocks = (count + ENTRY_THREADS - 1) / ENTRY_THREADS;
        return (unsigned)(blocks < MOST_ENTRY_BLOCKS ? blocks
                                                     : MOST_ENTRY_BLOCKS);
    }

    static cudaError_t gathering(const baton_cuda_entries_t *list,
                                 const uint32_t *indices, void *dense,
                                 bool clears, baton_stream_t stream)
    {
        return launch(gather<D>, blocks(list->capacity), ENTRY_THREADS,
                      (cudaStream_t)stream, of(list), indices, (bits_t *)dense,
                      clears);
    }

    static cudaError_t putting(const baton_cuda_entries_t *list, void *dense,
                               baton_stream_t stream)
    {
        return launch(put<D>, blocks(list->capacity), ENTRY_THREADS,
                      (cudaStream_t)stream, of(list), (bits_t *)dense);
    }

    static cudaError_t adding(const baton_cuda_entries_t *list, double factor,
                              void *dense, baton_stream_t stream)
    {
        return launch(add<D>, blocks(list->capacity), ENTRY_THREADS,
                      (cudaStream_t)stream, of(list), factor, (bits_t *)dense);
    }

    static cudaError_t scaling(void *target, const void *source, size_t count,
                               double factor, baton_stream_t stream)
    {
        return launch(scale<D>, blocks(count), ENTRY_THREADS,
                      (cudaStream_t)stream, (bits_t *)target,
                      (const bits_t *)source, (uint64_t)count, factor);
    }
};

#define BY_TYPE(dtype, function, ...)                                          \
    ((dtype) == BATON_F16    ? with_entries<BATON_F16>::function(__VA_ARGS__)  \
     : (dtype) == BATON_BF16 ? with_entries<BATON_BF16>::function(__VA_ARGS__) \
     : (dtype) == BATON_F32  ? with_entries<BATON_F32>::function(__VA_ARGS__)  \
                             : with_entries<BATON_F64>::function(__VA_ARGS__))

/* ---- arguments --------------------------------------------------------- */

static baton_status_t check_list(const baton_cuda_entries_t *list,
                                 const char *function)
{
    if (list == NULL) {
        return baton_error_set(BATON_ERR_INVALID, "%s: list is NULL", function);
    }
    if (!baton_select_supports(list->dtype)) {
        return unsupported(list->dtype, function);
    }
    const size_t size = baton_dtype_size(list->dtype);
    baton_status_t status = BATON_OK;
    if (list->capacity > 0) {
        status = check_pointer(list->data, size < 4 ? size : 4, function,
                               "list->data");
    }
    return status == BATON_OK && list->count != NULL
               ? check_pointer(list->count, sizeof *list->count, function,
                               "list->count")
               : status;
}

/* The list, and a vector that goes with it. */
static baton_status_t check_both(const baton_cuda_entries_t *list,
                                 const void *dense, const char *function)
{
    baton_status_t status = check_list(list, function);
    return status == BATON_OK && list->capacity > 0
               ? check_pointer(dense, baton_dtype_size(list->dtype), function,
                               "dense")
               : status;
}

static baton_status_t gather_or_take(const baton_cuda_entries_t *list,
                                     const uint32_t *indices, void *dense,
                                     bool clears, baton_stream_t stream,
                                     const char *function)
{
    baton_status_t status = check_both(list, dense, function);
    if (status == BATON_OK && list->capacity > 0) {
        status = check_pointer(indices, sizeof *indices, function, "indices");
    }
    if (status != BATON_OK || list->capacity == 0) {
        return status;
    }
    return status_of(
        BY_TYPE(list->dtype, gathering, list, indices, dense, clears, stream),
        function);
}

} // namespace baton_cuda

using namespace baton_cuda;

cudaError_t baton__cuda_entries_load(void)
{
    cudaError_t error = cudaSuccess;
    error = with_entries<BATON_F16>::load_kernels(error);
    error = with_entries<BATON_BF16>::load_kernels(error);
    error = with_entries<BATON_F32>::load_kernels(error);
    return with_entries<BATON_F64>::load_kernels(error);
}

/* ---- the functions ----------------------------------------------------- */

baton_status_t baton_cuda_entries_gather(const baton_cuda_entries_t *list,
                                         const uint32_t *indices,
                                         const void *dense,
                                         baton_stream_t stream)
{
    /* It is not written to. */
    return gather_or_take(list, indices, const_cast<void *>(dense), false,
                          stream, __func__);
}

baton_status_t baton_cuda_entries_take(const baton_cuda_entries_t *list,
                                       const uint32_t *indices, void *dense,
                                       baton_stream_t stream)
{
    return gather_or_take(list, indices, dense, true, stream, __func__);
}

baton_status_t baton_cuda_entries_put(const baton_cuda_entries_t *list,
                                      void *dense, baton_stream_t stream)
{
    baton_status_t status = check_both(list, dense, __func__);
    return status != BATON_OK || list->capacity == 0
               ? status
               : status_of(BY_TYPE(list->dtype, putting, list, dense, stream),
                           __func__);
}

baton_status_t baton_cuda_entries_add(const baton_cuda_entries_t *list,
                                      double factor, void *dense,
                                      baton_stream_t stream)
{
    baton_status_t status = check_both(list, dense, __func__);
    return status != BATON_OK || list->capacity == 0
               ? status
               : status_of(
                     BY_TYPE(list->dtype, adding, list, factor, dense, stream),
                     __func__);
}

baton_status_t baton_cuda_elements_scale(baton_dtype_t dtype, void *target,
                                         const void *source, size_t count,
                                         double factor, baton_stream_t stream)
{
    if (!baton_select_supports(dtype)) {
        return unsupported(dtype, __func__);
    }
    if (count == 0) {
        return BATON_OK;
    }
    const size_t size = baton_dtype_size(dtype);
    baton_status_t status = check_pointer(target, size, __func__, "target");
    if (status == BATON_OK) {
        status = check_pointer(source, size, __func__, "source");
    }
    return status != BATON_OK
               ? status
               : status_of(BY_TYPE(dtype, scaling, target, source, count,
                                   factor, stream),
                           __func__);
}
