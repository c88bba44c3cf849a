/* For programs that know MPI alone: they are run with libbaton_mpi.so. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Persistent collectives, which Open MPI 4 has as an extension. */
#if OMPI_MAJOR_VERSION >= 5
#define PERSISTENT(Name)     MPI_##Name##_init
#define MPIX_Allreduce_init  MPI_Allreduce_init
#define mpix_allreduce_init_ mpi_allreduce_init_
#else
#include <mpi-ext.h>
#define PERSISTENT(Name) MPIX_##Name##_init
#endif

static int dropin_failures;
static const char *dropin_test = "";

/* The function of this name that a library has, or the next one has. */
#define LOOKED_UP(where, name)                                                 \
    (*(__typeof__(&name) *)&(void *){dlsym(where, #name)})
#define NEXT(name) LOOKED_UP(RTLD_NEXT, name)

/* Returns whether Baton makes progress while the program makes no call. */
static inline bool dropin_in_background(void)
{
    const char *thread = getenv("BATON_MPI_THREAD");
    return thread == NULL || thread[0] != '0';
}

/* Reads plain memory that another thread writes. The thread sanitizer is right:
   MPI has no such read. */
__attribute__((no_sanitize("thread"))) static inline int
dropin_look(const volatile int *value)
{
    return *value;
}

/* Prints a failed expectation, at most a few times. */
#define EXPECT(condition, ...)                                                 \
    do {                                                                       \
        if (!(condition) && dropin_failures++ < 8) {                           \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__,           \
                          dropin_test);                                        \
            (void)fprintf(stderr, __VA_ARGS__);                                \
            (void)fputc('\n', stderr);                                         \
        }                                                                      \
    } while (0)
