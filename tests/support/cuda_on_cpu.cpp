/* Runs a kernel's blocks. Each thread of a block is a fiber. A fiber runs until
   it has to wait for other fibers, or has ended; then the next fiber runs. */

/* With _FORTIFY_SOURCE longjmp refuses to jump to another stack. */
#undef _FORTIFY_SOURCE

#include "support/cuda_on_cpu.h"

extern "C" {
#include "support/random.h"
}

#include <set>
#include <setjmp.h>
#include <stdio.h>
#include <ucontext.h>

/* Stacks are small, since the address sanitizer goes through a whole stack at
   each switch. */
enum { MOST_THREADS = 1024, WARP_LANES = 32, STACK_BYTES = 64 << 10 };

uint3 threadIdx, blockIdx, blockDim, gridDim;

/* A barrier of several threads. `generation` changes when the last thread has
   arrived. */
typedef struct meeting {
    unsigned arrived, generation;
    int operation;
} meeting_t;

/* fibers[i] runs thread i of one block after the other. */
typedef struct fiber {
    void *stack;
    bool ended;
    ucontext_t context;
#if !defined(__SANITIZE_ADDRESS__)
    jmp_buf at; /* where the fiber goes on, once it has begun */
    bool begun;
#endif
} fiber_t;

static fiber_t fibers[MOST_THREADS];
static meeting_t block_meeting, warp_meetings[MOST_THREADS / WARP_LANES];
/* The values that the lanes of each warp exchange. There are two arrays for
   each warp, since a lane may be in the next exchange while other lanes still
   read the values of this one. */
static uint64_t exchanged[MOST_THREADS / WARP_LANES][2][WARP_LANES];
#if defined(__SANITIZE_ADDRESS__)
static ucontext_t scheduler;
#endif
static unsigned current;
static uint64_t progress; /* counts arrivals and ends of fibers */
static void (*body)(void *);
static void *body_arg;

static void fail(const char *what)
{
    (void)fprintf(stderr, "cuda_on_cpu: block %u thread %u: %s\n", blockIdx.x,
                  threadIdx.x, what);
    abort();
}

/* ---- switching --------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__)

/* The address sanitizer knows swapcontext, but no jumps between stacks. */
static void yield(void)
{
    if (swapcontext(&fibers[current].context, &scheduler) != 0) {
        fail("swapcontext failed");
    }
}

static void resume(unsigned i)
{
    current = i;
    threadIdx.x = i;
    if (swapcontext(&scheduler, &fibers[i].context) != 0) {
        fail("swapcontext failed");
    }
}

#else

/* A fiber begins by setcontext. Later switches are jumps, which make no system
   call. */
static jmp_buf scheduler_at;

static void yield(void)
{
    if (_setjmp(fibers[current].at) == 0) {
        _longjmp(scheduler_at, 1);
    }
}

static void resume(unsigned i)
{
    current = i;
    threadIdx.x = i;
    if (_setjmp(scheduler_at) != 0) {
        return; /* the fiber has yielded */
    }
    if (fibers[i].begun) {
        _longjmp(fibers[i].at, 1);
    }
    fibers[i].begun = true;
    (void)setcontext(&fibers[i].context);
    fail("setcontext failed");
}

#endif

/* ---- meeting ----------------------------------------------------------- */

/* Waits until `members` threads have called this. Returns the generation that
   this meeting had. */
static unsigned meet(meeting_t *meeting, unsigned members, int operation)
{
    const unsigned generation = meeting->generation;
    if (meeting->arrived == 0) {
        meeting->operation = operation;
    }
    if (meeting->operation != operation) {
        fail("threads call different operations where they have to meet");
    }
    progress++;
    if (++meeting->arrived == members) {
        meeting->arrived = 0;
        meeting->generation++;
    }
    while (meeting->generation == generation) {
        yield();
    }
    return generation;
}

void __syncthreads(void)
{
    (void)meet(&block_meeting, blockDim.x, 0);
}

unsigned cpu_lane(void)
{
    return threadIdx.x % WARP_LANES;
}

const uint64_t *cpu_exchange(uint64_t value, int operation)
{
    const unsigned warp = threadIdx.x / WARP_LANES;
    meeting_t *meeting = &warp_meetings[warp];
    uint64_t *values = exchanged[warp][meeting->generation % 2];
    values[cpu_lane()] = value;
    (void)meet(meeting, WARP_LANES, operation);
    return values;
}

/* ---- blocks ------------------------------------------------------------ */

static void run_fiber(void)
{
    for (;;) {
        body(body_arg);
        fibers[current].ended = true;
        progress++;
        yield();
    }
}

static void prepare(unsigned i)
{
    fiber_t *fiber = &fibers[i];
    fiber->ended = false;
    if (fiber->stack != NULL) {
        return;
    }
    if (getcontext(&fiber->context) != 0) {
        fail("getcontext failed");
    }
    fiber->stack = malloc(STACK_BYTES);
    if (fiber->stack == NULL) {
        fail("there is no memory for a stack");
    }
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL; /* run_fiber never returns */
    makecontext(&fiber->context, run_fiber, 0);
}

/* Numbers 0 to count - 1 in the order i * step + offset, with a step that has
   no common factor with the count. */
typedef struct order {
    unsigned count, step, offset;
} order_t;

static order_t order_of(unsigned count, support_random_t *random)
{
    order_t order = {count, 1, 0};
    order.offset = (unsigned)support_random_below(random, count);
    for (unsigned tries = 0; tries < 8; tries++) {
        unsigned step = 1 + (unsigned)support_random_below(random, count);
        unsigned a = step, b = count;
        while (b != 0) {
            unsigned rest = a % b;
            a = b;
            b = rest;
        }
        order.step = a == 1 ? step : order.step;
    }
    return order;
}

static unsigned ordered(const order_t *order, unsigned i)
{
    return (unsigned)(((uint64_t)i * order->step + order->offset) %
                      order->count);
}

static void run_block(unsigned threads, support_random_t *random)
{
    const order_t order = order_of(threads, random);
    for (unsigned i = 0; i < threads; i++) {
        prepare(i);
    }
    memset(&block_meeting, 0, sizeof block_meeting);
    memset(warp_meetings, 0, sizeof warp_meetings);
    for (unsigned running = threads; running > 0;) {
        const uint64_t before = progress;
        running = 0;
        for (unsigned i = 0; i < threads; i++) {
            unsigned at = ordered(&order, i);
            if (!fibers[at].ended) {
                resume(at);
                running += !fibers[at].ended;
            }
        }
        if (progress == before && running > 0) {
            fail("threads wait for others that have ended, or wait elsewhere");
        }
    }
}

static std::set<const void *> loaded;

void cpu_load(const void *kernel)
{
    loaded.insert(kernel);
}

void cpu_launch(const void *kernel, unsigned blocks, unsigned threads,
                void (*run)(void *), void *arg)
{
    static uint64_t launches;
    support_random_t random = support_random(support_seed(), launches++);
    const order_t order = order_of(blocks, &random);
    if (blocks == 0 || threads == 0 || threads > MOST_THREADS) {
        fail("a launch of no or too many threads");
    }
    if (loaded.count(kernel) == 0) {
        fail("a launch of a kernel that was not loaded");
    }
    body = run;
    body_arg = arg;
    gridDim.x = blocks;
    blockDim.x = threads;
    for (unsigned i = 0; i < blocks; i++) {
        blockIdx.x = ordered(&order, i);
        run_block(threads, &random);
    }
}
