/* A libcuda.so.1 of version FAKE_VERSION without GPUs. Its cuInit returns
   FAKE_INIT. It has the functions that the CUDA runtime calls before it knows
   the result of cuInit. */
#include <stdint.h>
#include <string.h>

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **out, int version,
                        uint64_t flags, int *found);

int cuInit(unsigned flags)
{
    return flags == 0 ? FAKE_INIT : 1;
}

int cuDriverGetVersion(int *version)
{
    *version = FAKE_VERSION;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return 0;
}

/* All other functions return CUDA_ERROR_NOT_INITIALIZED. */
static int fail(void)
{
    return 3;
}

int cuGetProcAddress_v2(const char *name, void **out, int version,
                        uint64_t flags, int *found)
{
    (void)version;
    (void)flags;
    int (*function)(void) = fail;
    memcpy(out, &function, sizeof *out);
    static const struct {
        const char *name;
        uintptr_t address;
    } known[] = {
        {"cuInit", (uintptr_t)cuInit},
        {"cuDriverGetVersion", (uintptr_t)cuDriverGetVersion},
        {"cuDeviceGetCount", (uintptr_t)cuDeviceGetCount},
        {"cuGetProcAddress", (uintptr_t)cuGetProcAddress_v2},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) == 0) {
            memcpy(out, &known[i].address, sizeof *out);
        }
    }
    if (found != NULL) {
        *found = 0;
    }
    return 0;
}

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
