/* Kernels that read whole vectors, for ptxas.sh to look at: one of each that is
   short to compile. */
#include "cuda/select_kernels.cuh"

namespace baton_cuda
{

#define KERNELS(D)                                                             \
    template __global__ void filter_tiles<D>(vector<D>, workspace<D>);         \
    template __global__ void tally<D>(vector<D>, workspace<D>);                \
    template __global__ void emit<D>(vector<D>, workspace<D>, uint32_t *,      \
                                     uint64_t);

KERNELS(BATON_F16)
KERNELS(BATON_F32)
KERNELS(BATON_F64)

} // namespace baton_cuda
