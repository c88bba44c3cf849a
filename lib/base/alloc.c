/* Allocation; see alloc.h. */
#include "base/alloc.h"

#include "base/available.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ALIGNMENT is the size of a cache line and of the widest vector register. HUGE
   is the size of a huge page. Memory in huge pages needs few address
   translations, so random accesses to it rarely miss the TLB. Allocations of at
   least two huge pages are aligned to HUGE. */
#define ALIGNMENT ((size_t)64)
#define HUGE      ((size_t)2 << 20)

/* The values of these four variables tell nothing about other memory, so
   relaxed order is enough. */
static _Atomic int64_t allocations;
/* Number of allocations until one fails; not positive: none fails. */
static _Atomic int64_t until_failure;
static _Atomic size_t uncompared; /* bytes allocated since the last comparison
                                     with available memory */
/* In tests: the bytes that the kernel is said to have left; SIZE_MAX: ask the
   kernel. */
static _Atomic size_t overridden = SIZE_MAX;

static bool failure_is_due(void)
{
    if (atomic_load_explicit(&until_failure, memory_order_relaxed) <= 0) {
        return false;
    }
    /* If several threads count down at the same time, exactly one of them gets
       the old value 1, and its allocation fails. The others leave a negative
       value, with which no allocation fails. */
    return atomic_fetch_sub_explicit(&until_failure, 1, memory_order_relaxed) ==
           1;
}

bool baton__memory_fits(size_t bytes)
{
    size_t sum = bytes + atomic_fetch_add_explicit(&uncompared, bytes,
                                                   memory_order_relaxed);
    if (sum >= bytes && sum < BATON__TOUCHED_BYTES) {
        /* So little memory is not compared with what is available: reading the
           kernel's files takes longer than touching the memory. */
        return true;
    }
    atomic_store_explicit(&uncompared, 0, memory_order_relaxed);
    size_t left = atomic_load_explicit(&overridden, memory_order_relaxed);
    left = left < SIZE_MAX ? left : baton__available_memory("");
    /* A sixteenth is left for other processes. */
    return bytes <= left - left / 16;
}

/* Fills memory with zeros. Returns false if the kernel runs out of memory. */
static bool clear(char *memory, size_t bytes)
{
    size_t part = BATON__TOUCHED_BYTES;
    for (size_t done = 0; done < bytes; done += part) {
        part = bytes - done < part ? bytes - done : part;
        if (done > 0 && !baton__memory_fits(bytes - done)) {
            return false;
        }
        memset(memory + done, 0, part);
    }
    return true;
}

void *baton__alloc_raw(size_t bytes)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    if (failure_is_due() || bytes > SIZE_MAX - HUGE ||
        !baton__memory_fits(bytes)) {
        return NULL;
    }
    size_t unit = bytes >= 2 * HUGE ? HUGE : ALIGNMENT;
    /* aligned_alloc needs a multiple of the alignment. 0 bytes become one unit,
       so that the pointer is not NULL. */
    size_t blocks = bytes / unit + (bytes % unit != 0 || bytes == 0);
    void *memory = aligned_alloc(unit, blocks * unit);
    if (memory != NULL && unit == HUGE) {
        /* If this call fails, the memory is only slower. */
        (void)madvise(memory, blocks * unit, MADV_HUGEPAGE);
    }
    return memory;
}

void *baton__alloc(size_t count, size_t size)
{
    bool overflows = size != 0 && count > SIZE_MAX / size;
    void *memory = baton__alloc_raw(overflows ? SIZE_MAX : count * size);
    if (memory != NULL && !clear(memory, count * size)) {
        free(memory);
        memory = NULL;
    }
    return memory;
}

void *baton__grow(void *old, size_t old_count, size_t count, size_t size)
{
    void *memory = baton__alloc(count, size);
    if (memory == NULL) {
        return NULL;
    }
    size_t common = old_count < count ? old_count : count;
    if (old != NULL && common * size != 0) {
        memcpy(memory, old, common * size);
    }
    baton__free(old);
    return memory;
}

bool baton__extend(void *array, size_t old_count, size_t count, size_t size)
{
    void *memory;
    memcpy(&memory, array, sizeof memory);
    memory = baton__grow(memory, old_count, count, size);
    if (memory != NULL) {
        memcpy(array, &memory, sizeof memory);
    }
    return memory != NULL;
}

void baton__free(void *memory)
{
    free(memory);
}

void baton__free_later(void *memory)
{
    static _Atomic(void *) unfreed[BATON__UNFREED_OBJECTS];
    static _Atomic unsigned next;
    unsigned at = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
    /* Acquire, because another thread may have put the object that is freed
       here into `unfreed`. The exchange by which it did so is a release. */
    baton__free(atomic_exchange_explicit(&unfreed[at % BATON__UNFREED_OBJECTS],
                                         memory, memory_order_acq_rel));
}

char *baton__copy_string(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = baton__alloc(bytes, 1);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

void baton__alloc_fail_nth(int64_t n)
{
    atomic_store_explicit(&until_failure, n, memory_order_relaxed);
}

void baton__memory_override(size_t left)
{
    atomic_store_explicit(&overridden, left, memory_order_relaxed);
}

int64_t baton__alloc_count(void)
{
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}
