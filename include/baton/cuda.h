/* GPUs of NVIDIA, by libbaton_cuda: a library of its own, so that programs
   without a GPU need neither it nor the CUDA runtime.

       baton_engine_open(NULL, &engine);
       baton_cuda_attach(engine, 0);

   From then on baton_stream_t is cudaStream_t, and memory of
   BATON_MEMORY_DEVICE is what cudaMalloc gives on that GPU (or
   cudaMallocAsync, cudaMallocManaged, a framework's allocator). Device.h says
   what can be done with it.

   Link with baton::cuda (CMake), or -lbaton_cuda -lbaton. The library has the
   CUDA runtime inside and opens the driver when a GPU is attached: it loads on
   machines without either. It works in the GPU's primary context, which the
   CUDA runtime of the program uses too; no call of Baton changes the current
   device of the thread that makes it. */
#ifndef BATON_CUDA_H
#define BATON_CUDA_H

#include <baton/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Attaches a GPU to the engine, before its first group; the engine closes it.
   `ordinal` is CUDA's number of the GPU, from 0. Blocks: it makes the GPU's
   context if there is none, loads all kernels and creates the streams, so that
   no epoch has to.

   The device reduces integers and floats with BATON_SUM, _PROD, _MIN and _MAX,
   integers and bool with BATON_BAND, _BOR and _BXOR, floats with BATON_AVG, and
   complex numbers with BATON_SUM and _AVG, with the bits that the host gets (of
   the sum or product of two NaNs of f32 or f64 the payload is that of either,
   as on the host). It can't reduce otherwise (BATON_ERR_UNSUPPORTED at commit),
   nor with operations of the program's own: there baton_add_device_call is the
   way.

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
