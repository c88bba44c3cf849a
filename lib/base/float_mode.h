/* The floating-point mode of reductions and call nodes, on any driving thread:
   round to nearest, subnormals kept, no traps. Applications set other modes for
   their threads (-ffast-math switches subnormals off), and timing decides which
   thread drives: without one mode, the bits of ranks' results would differ. */
#pragma once

#if defined(__SSE__)

#include <xmmintrin.h>

typedef unsigned int baton__float_mode_t;

/* In the default mode all exceptions are masked. The low bits, which are flags
   of exceptions that occurred, are not part of the mode. */
enum { BATON__MXCSR_DEFAULT = 0x1f80, BATON__MXCSR_FLAGS = 0x3f };

/* Reading the register costs next to nothing, writing it about 10 ns. So the
   register is written only if it has another mode. */
static inline baton__float_mode_t baton__float_mode_enter(void)
{
    baton__float_mode_t before = _mm_getcsr();
    if ((before & ~(unsigned)BATON__MXCSR_FLAGS) != BATON__MXCSR_DEFAULT) {
        _mm_setcsr(BATON__MXCSR_DEFAULT);
    }
    return before;
}

static inline void baton__float_mode_leave(baton__float_mode_t before)
{
    if ((before & ~(unsigned)BATON__MXCSR_FLAGS) != BATON__MXCSR_DEFAULT) {
        _mm_setcsr(before);
    }
}

#elif defined(__aarch64__)

#include <stdint.h>

typedef uint64_t baton__float_mode_t;

static inline baton__float_mode_t baton__float_mode_enter(void)
{
    baton__float_mode_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    if (before != 0) {
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    }
    return before;
}

static inline void baton__float_mode_leave(baton__float_mode_t before)
{
    if (before != 0) {
        __asm__ volatile("msr fpcr, %0" : : "r"(before));
    }
}

#else

#include <fenv.h>

typedef fenv_t baton__float_mode_t;

static inline baton__float_mode_t baton__float_mode_enter(void)
{
    baton__float_mode_t before;
    (void)fegetenv(&before);
    (void)fesetenv(FE_DFL_ENV);
    return before;
}

static inline void baton__float_mode_leave(baton__float_mode_t before)
{
    (void)fesetenv(&before);
}

#endif
