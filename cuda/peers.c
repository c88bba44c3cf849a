/* Shares this GPU's memory with other engines of the process and other
   processes of the host, and opens memory that these share.

   A handle has two parts. The address is valid within the process that made the
   handle. CUDA's IPC handle is for other processes; only some allocations have
   one (those of cudaMalloc do, those of cudaMallocAsync and of virtual memory
   do not). */
#include "cuda/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct handle {
    int64_t process;
    uint64_t address; /* the memory's address in `process` */
    /* The address at which the allocation that contains the memory begins. */
    uint64_t base;
    /* The number that CUDA gave the allocation. It tells apart two allocations
       that had the same address one after another. */
    uint64_t allocation;
    int32_t ordinal; /* the GPU's number in `process` */
    int32_t shared;  /* 1 if `ipc` is valid */
    cudaIpcMemHandle_t ipc;
} handle_t;
_Static_assert(sizeof(handle_t) <= BATON_DEVICE_HANDLE_BYTES,
               "the port has space for a handle");

/* An allocation of another process that is open in this one. */
typedef struct baton__mapping {
    struct baton__mapping *next;
    handle_t handle; /* the handle by which the allocation was opened */
    char *memory;    /* where the allocation begins in this process */
} baton__mapping_t;

/* ---- the processes that may exchange handles --------------------------- */

/* Adds data to a hash sum (FNV-1a). */
static uint64_t peers_hash(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ from[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

/* Returns a number that is equal for the processes that may exchange handles:
   those on one host that share a namespace of process ids, since handles
   contain process ids. All GPUs of the host qualify, since CUDA copies between
   any two. */
uint64_t baton__gpu_handle_scope(void)
{
    uint64_t scope = UINT64_C(0xcbf29ce484222325);
    char boot[64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t bytes = file == NULL ? 0 : fread(boot, 1, sizeof boot, file);
    if (file != NULL) {
        (void)fclose(file);
    }
    struct stat space;
    if (bytes == 0 || stat("/proc/self/ns/pid", &space) != 0) {
        /* If the host cannot be identified, the number is this process's
           alone. */
        int64_t process = getpid();
        return peers_hash(scope, &process, sizeof process) | 1;
    }
    scope = peers_hash(scope, boot, bytes);
    scope = peers_hash(scope, &space.st_ino, sizeof space.st_ino);
    return scope | 1;
}

/* ---- handles of this GPU's memory ------------------------------------- */

/* Fills in the handle's fields about the memory's allocation, and whether CUDA
   can share the allocation with other processes. */
static baton_status_t peers_describe(const baton__gpu_t *gpu,
                                     const void *memory, handle_t *out)
{
    unsigned kind = 0;
    CUdeviceptr base = 0;
    unsigned long long number = 0;
    int sharable = 0;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *values[] = {&kind, &base, &number, &sharable};
    CUresult error =
        gpu->driver.pointer_attributes(4, names, values, (CUdeviceptr)memory);
    if (error != CUDA_SUCCESS) {
        return baton__gpu_report(gpu, (cudaError_t)error,
                                 "cuPointerGetAttributes");
    }
    if (kind != CU_MEMORYTYPE_DEVICE || base == 0) {
        return baton_error_set(BATON_ERR_UNSUPPORTED,
                               "%s: only device memory has a handle",
                               gpu->name);
    }
    out->base = base;
    out->allocation = number;
    if (sharable != 0) {
        cudaError_t shared = cudaIpcGetMemHandle(&out->ipc, (void *)base);
        out->shared = shared == cudaSuccess;
        if (shared != cudaSuccess) {
            /* Other processes can't use the handle; that is no error. */
            (void)cudaGetLastError();
        }
    }
    return BATON_OK;
}

baton_status_t
baton__gpu_get_handle(void *device, const void *memory,
                      unsigned char handle_out[BATON_DEVICE_HANDLE_BYTES])
{
    const baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    handle_t handle;
    memset(&handle, 0, sizeof handle);
    handle.process = getpid();
    handle.address = (uint64_t)(uintptr_t)memory;
    handle.ordinal = gpu->ordinal;
    status = peers_describe(gpu, memory, &handle);
    baton__gpu_leave(gpu);
    if (status == BATON_OK) {
        memset(handle_out, 0, BATON_DEVICE_HANDLE_BYTES);
        memcpy(handle_out, &handle, sizeof handle);
    }
    return status;
}

/* ---- handles of other memory ------------------------------------------ */

/* Enables direct copies between two GPUs. Without that, copies go through main
   memory: slower, but correct. */
static baton_status_t reach(const baton__gpu_t *gpu, int peer)
{
    int direct = 0;
    if (peer == gpu->ordinal) {
        return BATON_OK;
    }
    cudaError_t error = cudaDeviceCanAccessPeer(&direct, gpu->ordinal, peer);
    if (error != cudaSuccess) {
        return baton__gpu_report(gpu, error, "cudaDeviceCanAccessPeer");
    }
    if (direct != 0) {
        error = cudaDeviceEnablePeerAccess(peer, 0);
        if (error != cudaSuccess &&
            error != cudaErrorPeerAccessAlreadyEnabled) {
            return baton__gpu_report(gpu, error, "cudaDeviceEnablePeerAccess");
        }
        (void)cudaGetLastError();
    }
    return BATON_OK;
}

/* Finds the mapping of the handle's allocation. A mapping of the same address
   that has another number is that of an earlier allocation, which its process
   has freed: this function closes such a mapping. */
static baton__mapping_t *peers_find(baton__gpu_t *gpu, const handle_t *handle)
{
    for (baton__mapping_t **at = &gpu->mappings; *at != NULL;
         at = &(*at)->next) {
        baton__mapping_t *mapping = *at;
        if (mapping->handle.process != handle->process ||
            mapping->handle.base != handle->base) {
            continue;
        }
        if (mapping->handle.allocation == handle->allocation) {
            return mapping;
        }
        *at = mapping->next;
        (void)baton__gpu_report(gpu, cudaIpcCloseMemHandle(mapping->memory),
                                "cudaIpcCloseMemHandle");
        free(mapping);
        return NULL;
    }
    return NULL;
}

/* Opens an allocation of another process. Several engines of this process may
   open the same allocation, since CUDA counts the openings. */
static cudaError_t peers_map(baton__gpu_t *gpu, const handle_t *handle,
                             baton__mapping_t **out)
{
    baton__mapping_t *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        return cudaErrorMemoryAllocation;
    }
    cudaError_t error = cudaIpcOpenMemHandle(
        (void **)&mapping->memory, handle->ipc, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        free(mapping);
        return error;
    }
    mapping->handle = *handle;
    mapping->next = gpu->mappings;
    gpu->mappings = mapping;
    *out = mapping;
    return cudaSuccess;
}

static baton_status_t open_theirs(baton__gpu_t *gpu, const handle_t *handle,
                                  const void **out)
{
    if (handle->process == getpid()) {
        baton_status_t status = reach(gpu, handle->ordinal);
        if (status == BATON_OK) {
            *out = (const void *)(uintptr_t)handle->address;
        }
        return status;
    }
    if (handle->shared == 0) {
        return baton_error_set(
            BATON_ERR_UNSUPPORTED,
            "%s: memory of process %lld is of a kind that CUDA does not share "
            "between processes; use memory from cudaMalloc",
            gpu->name, (long long)handle->process);
    }
    baton__mapping_t *mapping = peers_find(gpu, handle);
    cudaError_t error =
        mapping == NULL ? peers_map(gpu, handle, &mapping) : cudaSuccess;
    if (error == cudaSuccess) {
        *out = mapping->memory + (handle->address - handle->base);
        return BATON_OK;
    }
    /* Unless memory is short, the caller can send the data in another way. */
    baton_status_t status =
        baton__gpu_report(gpu, error, "cudaIpcOpenMemHandle");
    return status == BATON_ERR_NO_MEMORY ? status : BATON_ERR_UNSUPPORTED;
}

baton_status_t
baton__gpu_open_handle(void *device,
                       const unsigned char handle[BATON_DEVICE_HANDLE_BYTES],
                       const void **out)
{
    baton__gpu_t *gpu = device;
    handle_t theirs;
    memcpy(&theirs, handle, sizeof theirs);
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    status = open_theirs(gpu, &theirs, out);
    baton__gpu_leave(gpu);
    return status;
}

void baton__gpu_mappings_close(baton__gpu_t *gpu)
{
    while (gpu->mappings != NULL) {
        baton__mapping_t *mapping = gpu->mappings;
        gpu->mappings = mapping->next;
        (void)baton__gpu_report(gpu, cudaIpcCloseMemHandle(mapping->memory),
                                "cudaIpcCloseMemHandle");
        free(mapping);
    }
}
