/* The device for NVIDIA's GPUs. It is in a separate library, libbaton_cuda, so
   that programs without a GPU need neither this library nor the CUDA runtime.

       baton_engine_open(NULL, &engine);
       baton_cuda_attach(engine, 0);

   From then on a baton_stream_t is a cudaStream_t, and BATON_MEMORY_DEVICE is
   memory from cudaMalloc on that GPU (or from cudaMallocAsync,
   cudaMallocManaged, a framework's allocator). The header device.h has the
   calls that use streams and this memory.

   Link with baton::cuda (CMake), or -lbaton_cuda -lbaton. The library contains
   the CUDA runtime and opens the driver when a GPU is attached, so it loads on
   machines without either. It works in the GPU's primary context, like the
   program's CUDA runtime; no call of Baton changes the current device of the
   calling thread. */
#ifndef BATON_CUDA_H
#define BATON_CUDA_H

#include <baton/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Attaches a GPU to the engine, before its first group; the engine closes it.
   `ordinal` is CUDA's number of the GPU, from 0. Blocks: it makes the GPU's
   context if there is none, loads all kernels and creates the streams, so that
   epochs need not.

   The device reduces integers and floats with BATON_SUM, _PROD, _MIN and _MAX,
   integers and bool with BATON_BAND, _BOR and _BXOR, floats with BATON_AVG, and
   complex numbers with BATON_SUM and _AVG, with the same bits as on the host.
   (The sum or product of two NaNs of f32 or f64 has the payload of either, as
   on the host.) Commit returns BATON_ERR_UNSUPPORTED for other reductions, and
   for the program's own: use baton_add_device_call for those.

   BATON_ERR_UNSUPPORTED: there is no driver, it is older than the runtime that
   the library was built with, there is no GPU, or the GPU is older than what
   the library was compiled for; the message says which, and the engine can be
   used as before. BATON_ERR_INVALID: the engine is NULL, or there are GPUs but
   not with this number. BATON_ERR_STATE: the engine has a device, or a group.
   BATON_ERR_NO_MEMORY, _SYSTEM. */
BATON_CHECKED baton_status_t baton_cuda_attach(baton_engine_t *engine,
                                               int ordinal);

#ifdef __cplusplus
}
#endif
#endif
