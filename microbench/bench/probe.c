#include "bench/probe.h"
#include "common/harness.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 200, BATCHES = 9 };

#define NEAR_NS  80.0
#define LIMIT_US 2000.0 /* of a batch: longer, and they share a processor */

/* Even: the pinger's turn; odd: the ponger's. */
typedef struct ball {
    _Atomic int turn;
    _Atomic int stop;
} ball_t;

/* Waits for the turn, but not past LIMIT_US. The acquire pairs with the
   release store of the other side. */
static bool await(ball_t *ball, int turn, double deadline_us)
{
    for (unsigned spins = 1;
         atomic_load_explicit(&ball->turn, memory_order_acquire) != turn;
         spins++) {
        if (atomic_load_explicit(&ball->stop, memory_order_relaxed) != 0 ||
            (spins % 1024 == 0 && clock_now_us() > deadline_us)) {
            return false;
        }
    }
    return true;
}

static void *pong(void *arg)
{
    ball_t *ball = arg;
    double deadline_us = clock_now_us() + LIMIT_US * BATCHES;
    for (int turn = 1; await(ball, turn, deadline_us); turn += 2) {
        atomic_store_explicit(&ball->turn, turn + 1, memory_order_release);
    }
    return NULL;
}

/* Plays from `turn` on; the time of one crossing in ns, 0 past the limit. */
static double play(ball_t *ball, int turn)
{
    double begin_us = clock_now_us();
    for (int round = 0; round < ROUNDS; round++, turn += 2) {
        atomic_store_explicit(&ball->turn, turn + 1, memory_order_release);
        if (!await(ball, turn + 2, begin_us + LIMIT_US)) {
            return 0;
        }
    }
    return (clock_now_us() - begin_us) * 1e3 / (2.0 * ROUNDS);
}

/* A processor of this process's other than the one this thread is on; -1: there
   is none. */
static int other_processor(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return -1;
    }
    int mine = sched_getcpu();
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if ((int)i != mine && CPU_ISSET(i, &allowed)) {
            return (int)i;
        }
    }
    return -1;
}

/* Starts the ponger on another processor: left to itself, the kernel may put it
   on this one and take milliseconds to think better of it. */
static bool start_ponger(ball_t *ball, pthread_t *out)
{
    int processor = other_processor();
    pthread_attr_t attributes;
    if (processor < 0 || pthread_attr_init(&attributes) != 0) {
        return false;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    bool started =
        pthread_attr_setaffinity_np(&attributes, sizeof(set), &set) == 0 &&
        pthread_create(out, &attributes, pong, ball) == 0;
    (void)pthread_attr_destroy(&attributes);
    return started;
}

/* The fastest batch: whatever disturbs one only makes it slower. */
double probe_line_ns(void)
{
    ball_t ball = {0};
    pthread_t ponger;
    if (!start_ponger(&ball, &ponger)) {
        return 0;
    }
    double fastest = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        double line_ns = play(&ball, batch * 2 * ROUNDS);
        if (line_ns <= 0) {
            break;
        }
        if (fastest <= 0 || line_ns < fastest) {
            fastest = line_ns;
        }
    }
    atomic_store_explicit(&ball.stop, 1, memory_order_relaxed);
    (void)pthread_join(ponger, NULL);
    return fastest;
}

bool probe_is_near(double line_ns)
{
    return line_ns > 0 && line_ns < NEAR_NS;
}
