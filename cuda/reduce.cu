/* Reductions: target[i] = left[i] (op) right[i].

     address:  .  .  16          32          48  ...            .  .  .
               head  |  vectors of 16 bytes: one access each  |  tail

   A reduction reads two vectors and writes one, so memory limits its speed.
   If the three addresses are equal modulo 16, threads access 16 bytes at a
   time, and each thread requests four vectors of each operand before it needs
   the first. Otherwise threads go element by element, or byte by byte if
   elements are not aligned. A grid has at most as many blocks as run at a time;
   each thread then continues with the next vectors. target may equal left or
   right: a thread writes only elements that it has read itself. */
#include "cuda/element.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.h"

namespace
{

using baton_element::combine;
using baton_element::load_words;
using baton_element::store_words;
using baton_element::value;

constexpr unsigned threads = 256; /* threads of a block */
constexpr unsigned depth = 4;     /* vectors that a thread requests at once */

/* first() is the index of a thread's first element or vector, and stride() the
   distance from one to the next. */
__device__ size_t first()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ size_t stride()
{
    return (size_t)gridDim.x * blockDim.x;
}

/* Combines 16 bytes, which are in registers after unrolling. */
template <baton__cuda_op OP, typename T>
__device__ uint4 combine_vector(uint4 left, uint4 right, double ranks)
{
    constexpr unsigned lanes = sizeof(uint4) / sizeof(T);
    T a[lanes], b[lanes];
    memcpy(a, &left, sizeof left);
    memcpy(b, &right, sizeof right);
#pragma unroll
    for (unsigned i = 0; i < lanes; i++) {
        a[i] = combine<OP>(a[i], b[i], ranks);
    }
    uint4 result;
    memcpy(&result, a, sizeof result);
    return result;
}

template <baton__cuda_op OP, typename T>
__device__ void reduce_body(uint4 *target, const uint4 *left,
                            const uint4 *right, size_t vectors, double ranks)
{
    for (size_t i = first(); i < vectors; i += depth * stride()) {
        uint4 a[depth], b[depth];
#pragma unroll
        for (unsigned k = 0; k < depth; k++) {
            size_t at = i + k * stride();
            if (at < vectors) {
                a[k] = left[at];
                b[k] = right[at];
            }
        }
#pragma unroll
        for (unsigned k = 0; k < depth; k++) {
            size_t at = i + k * stride();
            if (at < vectors) {
                target[at] = combine_vector<OP, T>(a[k], b[k], ranks);
            }
        }
    }
}

/* Reduces elements whose addresses are equal modulo 16: `head` elements, then
   the elements of `vectors` vectors of 16 bytes, and then the tail, up to
   `count` elements. A block has more threads than head and tail have
   elements. */
template <baton__cuda_op OP, typename T>
__global__ void __launch_bounds__(threads)
    reduce_vectors(void *target, const void *left, const void *right,
                   size_t head, size_t vectors, size_t count, double ranks)
{
    T *to = static_cast<T *>(target);
    const T *a = static_cast<const T *>(left);
    const T *b = static_cast<const T *>(right);
    reduce_body<OP, T>(reinterpret_cast<uint4 *>(to + head),
                       reinterpret_cast<const uint4 *>(a + head),
                       reinterpret_cast<const uint4 *>(b + head), vectors,
                       ranks);
    size_t body = vectors * (sizeof(uint4) / sizeof(T));
    size_t i = first();
    if (i < count - body) {
        size_t at = i < head ? i : i + body;
        to[at] = combine<OP>(a[at], b[at], ranks);
    }
}

template <baton__cuda_op OP, typename T>
__global__ void __launch_bounds__(threads)
    reduce_elements(void *target, const void *left, const void *right,
                    size_t count, double ranks, bool aligned)
{
    const T *lefts = static_cast<const T *>(left);
    const T *rights = static_cast<const T *>(right);
    T *targets = static_cast<T *>(target);
    for (size_t i = first(); i < count; i += stride()) {
        if (aligned) {
            targets[i] = combine<OP>(lefts[i], rights[i], ranks);
        } else {
            T a = load_words<T, unsigned char>(lefts + i);
            T b = load_words<T, unsigned char>(rights + i);
            store_words<unsigned char>(targets + i, combine<OP>(a, b, ranks));
        }
    }
}

/* ---- the table -------------------------------------------------------- */

struct kernels_t {
    void (*vectors)(void *, const void *, const void *, size_t, size_t, size_t,
                    double);
    void (*elements)(void *, const void *, const void *, size_t, double, bool);
};

/* The kernels of each operation and type. Signed integers use the kernels of
   unsigned ones, which give the same bits, except for MIN and MAX. Complex
   numbers use the kernels of their parts. */
struct table_t {
    kernels_t entries[BATON__CUDA_OPS][BATON_DTYPE_COUNT] = {};

    table_t()
    {
        add_all<BATON__CUDA_SUM>();
        add_all<BATON__CUDA_PROD>();
        add_all<BATON__CUDA_MIN>();
        add_all<BATON__CUDA_MAX>();
        add_floats<BATON__CUDA_AVG>();
        add_complex<BATON__CUDA_SUM>();
        add_complex<BATON__CUDA_AVG>();
        add_bitwise<BATON__CUDA_BAND>();
        add_bitwise<BATON__CUDA_BOR>();
        add_bitwise<BATON__CUDA_BXOR>();
    }

  private:
    template <baton__cuda_op OP, typename T> void add(baton_dtype_t dtype)
    {
        entries[OP][dtype] = {reduce_vectors<OP, T>, reduce_elements<OP, T>};
    }

#define ADD(NAME, name, bytes, type, ...) add<OP, type>(BATON_##NAME);
#define ADD_FLOAT(NAME, ...)              add<OP, value<BATON_##NAME>>(BATON_##NAME);
#define ADD_SIGNED(NAME, name, bytes, type, ...)                               \
    add<OP, std::conditional_t<ORDERED, type, std::make_unsigned_t<type>>>(    \
        BATON_##NAME);

    template <baton__cuda_op OP> void add_all()
    {
        constexpr bool ordered = OP == BATON__CUDA_MIN || OP == BATON__CUDA_MAX;
        add_floats<OP>();
        add_integers<OP, ordered>();
    }

    template <baton__cuda_op OP> void add_floats()
    {
        BATON_FLOAT_LIST(ADD_FLOAT)
    }

    template <baton__cuda_op OP> void add_complex()
    {
        BATON_COMPLEX_LIST(ADD)
    }

    template <baton__cuda_op OP> void add_bitwise()
    {
        add_integers<OP, false>();
        add<OP, uint8_t>(BATON_BOOL);
    }

    template <baton__cuda_op OP, bool ORDERED> void add_integers()
    {
        BATON_UNSIGNED_LIST(ADD)
        BATON_SIGNED_LIST(ADD_SIGNED)
    }
};

const table_t table;

template <typename Kernel>
cudaError_t load_kernel(Kernel kernel, unsigned *least)
{
    int blocks = 0;
    cudaError_t error = baton_cuda::load(kernel);
    if (error == cudaSuccess) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, reinterpret_cast<const void *>(kernel), threads, 0);
    }
    if (error == cudaSuccess && (unsigned)blocks < *least) {
        *least = (unsigned)blocks;
    }
    return error;
}

/* ---- launching -------------------------------------------------------- */

unsigned blocks_for(size_t work, unsigned most)
{
    size_t blocks = (work + threads - 1) / threads;
    blocks = blocks > 0 ? blocks : 1;
    return blocks < most ? (unsigned)blocks : most;
}

} // namespace

cudaError_t baton__cuda_reduce_load(unsigned *blocks_out)
{
    unsigned least = ~0u;
    for (int op = 0; op < BATON__CUDA_OPS; op++) {
        for (int dtype = 1; dtype < BATON_DTYPE_COUNT; dtype++) {
            const kernels_t &entry = table.entries[op][dtype];
            cudaError_t error = cudaSuccess;
            if (entry.vectors != nullptr) {
                error = load_kernel(entry.vectors, &least);
            }
            if (entry.vectors != nullptr && error == cudaSuccess) {
                error = load_kernel(entry.elements, &least);
            }
            if (error != cudaSuccess) {
                return error;
            }
        }
    }
    *blocks_out = least == 0 ? 1 : least;
    return cudaSuccess;
}

bool baton__cuda_reduces(baton__cuda_op_t op, baton_dtype_t dtype)
{
    return table.entries[op][dtype].vectors != nullptr;
}

cudaError_t baton__cuda_reduce(cudaStream_t stream, baton__cuda_op_t op,
                               baton_dtype_t dtype, void *target,
                               const void *left, const void *right,
                               size_t count, double ranks, unsigned blocks)
{
    const kernels_t &entry = table.entries[op][dtype];
    size_t bytes = baton_dtype_size(dtype);
    /* The two parts of a complex number are reduced as separate elements. */
#define IS(NAME, ...) || dtype == BATON_##NAME
    if (false BATON_COMPLEX_LIST(IS)) {
        bytes /= 2;
        count *= 2;
    }
    uintptr_t t = (uintptr_t)target, l = (uintptr_t)left, r = (uintptr_t)right;
    uintptr_t differ = (t ^ l) | (t ^ r);
    bool aligned = (t | l | r) % bytes == 0;
    if (!aligned || differ % sizeof(uint4) != 0) {
        return baton_cuda::launch(entry.elements, blocks_for(count, blocks),
                                  threads, stream, target, left, right, count,
                                  ranks, aligned);
    }
    size_t head = (0 - t) % sizeof(uint4) / bytes;
    head = head < count ? head : count;
    size_t vectors = (count - head) * bytes / sizeof(uint4);
    return baton_cuda::launch(entry.vectors, blocks_for(vectors, blocks),
                              threads, stream, target, left, right, head,
                              vectors, count, ranks);
}
