/* Operations on lists of entries, and multiplication by a factor, in stream
   order. Each thread handles one entry or element. No index occurs twice in a
   list, so no two threads write the same element. */
#include "cuda/element.cuh"
#include "cuda/launch.h"

namespace baton_cuda
{

using baton_element::combine;
using baton_element::load_words;
using baton_element::scaled;
using baton_element::store_words;
using baton_element::value;

enum { ENTRY_THREADS = 256, INDEX_BYTES = 4 };

const size_t MOST_ENTRY_BLOCKS = 4096;

/* ---- on the device ----------------------------------------------------- */

template <baton_dtype_t D> struct entries {
    char *data;
    uint64_t capacity;
    const uint64_t *count;
};

/* Entries are aligned to 2 bytes (f16, bf16) or 4 bytes only, so they are read
   and written in words of that size. */
template <baton_dtype_t D>
using word = std::conditional_t<sizeof(typename element<D>::bits_t) == 2,
                                uint16_t, uint32_t>;

/* One entry of a list. `at` points into the list's memory. */
template <baton_dtype_t D> struct entry {
    typedef typename element<D>::bits_t bits_t;
    typedef word<D> word_t;
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
        store_words<word_t>(at, index);
    }
    __device__ void set_value(bits_t value)
    {
        store_words<word_t>(at + INDEX_BYTES, value);
    }
};

/* Calls visit(i, entry) for each entry. Each thread of the grid visits its
   share. */
template <baton_dtype_t D, class function>
__device__ void visit_entries(const entries<D> &list, function visit)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t all = list.count != NULL ? *list.count : list.capacity;
    const uint64_t count = all < list.capacity ? all : list.capacity;
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
        value<D> more = same_bits<value<D>>(one.value());
        if (factor != 1) {
            more = scaled(more, factor);
        }
        dense[index] = same_bits<bits_t>(
            combine<BATON__CUDA_SUM>(same_bits<value<D>>(before), more));
        one.set_value(before);
    });
}

template <baton_dtype_t D>
__global__ void scale(value<D> *target, const value<D> *source, uint64_t count,
                      double factor)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += stride) {
        target[i] = scaled(source[i], factor);
    }
}

/* ---- launches ---------------------------------------------------------- */

static unsigned entry_blocks(size_t count)
{
    size_t blocks = (count + ENTRY_THREADS - 1) / ENTRY_THREADS;
    return (unsigned)(blocks < MOST_ENTRY_BLOCKS ? blocks : MOST_ENTRY_BLOCKS);
}

template <baton_dtype_t D>
static cudaError_t entries_transfer(cudaStream_t stream,
                                    const baton_device_transfer_t *t)
{
    const unsigned blocks = entry_blocks(t->list.capacity);
    const entries<D> list = {(char *)t->list.data, t->list.capacity,
                             t->list.count};
    typename element<D>::bits_t *dense =
        (typename element<D>::bits_t *)t->dense;
    switch (t->direction) {
    case BATON_DEVICE_PUT:
        return launch(put<D>, blocks, ENTRY_THREADS, stream, list, dense);
    case BATON_DEVICE_ADD:
        return launch(add<D>, blocks, ENTRY_THREADS, stream, list, t->factor,
                      dense);
    case BATON_DEVICE_GATHER:
    case BATON_DEVICE_TAKE:
    default:
        return launch(gather<D>, blocks, ENTRY_THREADS, stream, list,
                      t->indices, dense, t->direction == BATON_DEVICE_TAKE);
    }
}

} // namespace baton_cuda

using namespace baton_cuda;

cudaError_t baton__cuda_entries_load(void)
{
    return for_each_type([](auto type) {
        constexpr baton_dtype_t D = type;
        return load(gather<D>, put<D>, add<D>, scale<D>);
    });
}

cudaError_t baton__cuda_entries(cudaStream_t stream,
                                const baton_device_transfer_t *transfer)
{
    if (transfer->list.capacity == 0) {
        return cudaSuccess;
    }
    return by_type(transfer->list.dtype, [&](auto type) {
        return baton_cuda::entries_transfer<type>(stream, transfer);
    });
}

cudaError_t baton__cuda_scale(cudaStream_t stream, baton_dtype_t dtype,
                              void *target, const void *source, size_t count,
                              double factor)
{
    if (count == 0) {
        return cudaSuccess;
    }
    return by_type(dtype, [&](auto type) {
        constexpr baton_dtype_t D = type;
        return launch(scale<D>, entry_blocks(count), ENTRY_THREADS, stream,
                      (value<D> *)target, (const value<D> *)source,
                      (uint64_t)count, factor);
    });
}
