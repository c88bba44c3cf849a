/* Counts the allocations of the whole process, also under the sanitizers (the
   thread sanitizer hides aligned_alloc). This file defines malloc and its
   relatives, so only one file of a program may include it. */
#pragma once

#include "support/sanitized.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* The number of blocks allocated so far, and the number of those that were not
   freed yet. */
static _Atomic int64_t malloc_asked;
static _Atomic int64_t malloc_live;

static void *malloc_count(void *block)
{
    if (block != NULL) {
        atomic_fetch_add_explicit(&malloc_asked, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&malloc_live, 1, memory_order_relaxed);
    }
    return block;
}

static void malloc_uncount(const volatile void *block)
{
    if (block != NULL) {
        atomic_fetch_sub_explicit(&malloc_live, 1, memory_order_relaxed);
    }
}

#define MALLOC_SEES_ALL (!SUPPORT_SANITIZED_THREAD)

#if SUPPORT_SANITIZED

int __sanitizer_install_malloc_and_free_hooks(
    void (*malloc_hook)(const volatile void *, size_t),
    void (*free_hook)(const volatile void *));

static void on_malloc(const volatile void *block, size_t bytes)
{
    (void)malloc_count((void *)(uintptr_t)block);
}

__attribute__((constructor)) static void malloc_watch(void)
{
    (void)__sanitizer_install_malloc_and_free_hooks(on_malloc, malloc_uncount);
}

#else

/* The functions of glibc that the functions below call. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

void *malloc(size_t bytes)
{
    return malloc_count(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return malloc_count(__libc_calloc(count, bytes));
}

void *realloc(void *block, size_t bytes)
{
    malloc_uncount(block);
    return malloc_count(__libc_realloc(block, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return malloc_count(__libc_memalign(alignment, bytes));
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = malloc_count(__libc_memalign(alignment, bytes));
    *out = block != NULL ? block : *out;
    return block != NULL ? 0 : ENOMEM;
}

void free(void *block)
{
    malloc_uncount(block);
    __libc_free(block);
}

#endif
