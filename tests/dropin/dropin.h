/* Declarations for programs that know only MPI, and are run with
   libbaton_mpi.so in front of it. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Open MPI 4 has persistent collectives only as an extension, with the prefix
   MPIX_. */
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

/* Looks up a function of this name in a library, or the next one in the order
   of symbol lookup. */
#define LOOKED_UP(where, name)                                                 \
    (*(__typeof__(&name) *)&(void *){dlsym(where, #name)})
#define NEXT(name) LOOKED_UP(RTLD_NEXT, name)

/* Returns whether Baton makes progress while the program makes no call. */
static inline bool dropin_in_background(void)
{
    const char *thread = getenv("BATON_MPI_THREAD");
    return thread == NULL || thread[0] != '0';
}

/* Reads plain memory that another thread writes. The thread sanitizer would
   report that, and rightly: MPI has no atomic read. */
__attribute__((no_sanitize("thread"))) static inline int
dropin_look(const volatile int *value)
{
    return *value;
}

/* Prints a failed expectation. Only the first few failures are printed. */
#define EXPECT(condition, ...)                                                 \
    do {                                                                       \
        if (!(condition) && dropin_failures++ < 8) {                           \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__,           \
                          dropin_test);                                        \
            (void)fprintf(stderr, __VA_ARGS__);                                \
            (void)fputc('\n', stderr);                                         \
        }                                                                      \
    } while (0)
