#include "bench/probe.h"
#include "common/harness.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 200, BATCHES = 9 };

#define NEAR_NS 80.0
#define LIMIT_US                                                               \
    2000.0 /* of a batch; if it takes longer, the threads share a processor */

/* The state of a ping-pong. An even turn is the pinger's, an odd one the
   ponger's. */
typedef struct ping_pong {
    _Atomic int turn;
    _Atomic int stop;
} ping_pong_t;

/* Waits for the turn until the deadline. The acquire pairs with the other
   thread's release store. */
static bool await(ping_pong_t *game, int turn, double deadline_us)
{
    for (unsigned spins = 1;
         atomic_load_explicit(&game->turn, memory_order_acquire) != turn;
         spins++) {
        if (atomic_load_explicit(&game->stop, memory_order_relaxed) != 0 ||
            (spins % 1024 == 0 && clock_now_us() > deadline_us)) {
            return false;
        }
    }
    return true;
}

static void *pong(void *arg)
{
    ping_pong_t *game = arg;
    double deadline_us = clock_now_us() + LIMIT_US * BATCHES;
    for (int turn = 1; await(game, turn, deadline_us); turn += 2) {
        atomic_store_explicit(&game->turn, turn + 1, memory_order_release);
    }
    return NULL;
}

/* Plays a batch from `turn` on. Returns the time of one transfer in ns, or 0
   past the limit. */
static double play(ping_pong_t *game, int turn)
{
    double begin_us = clock_now_us();
    for (int round = 0; round < ROUNDS; round++, turn += 2) {
        atomic_store_explicit(&game->turn, turn + 1, memory_order_release);
        if (!await(game, turn + 2, begin_us + LIMIT_US)) {
            return 0;
        }
    }
    return (clock_now_us() - begin_us) * 1e3 / (2.0 * ROUNDS);
}

/* Another processor of this process than that of the calling thread, or -1. */
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

/* Starts the ponger on another processor. By default the kernel may start it on
   this one and take milliseconds to move it. */
static bool start_ponger(ping_pong_t *game, pthread_t *out)
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
        pthread_create(out, &attributes, pong, game) == 0;
    (void)pthread_attr_destroy(&attributes);
    return started;
}

/* Takes the fastest batch, since disturbances only make a batch slower. */
double probe_cache_line_ns(void)
{
    ping_pong_t game = {0};
    pthread_t ponger;
    if (!start_ponger(&game, &ponger)) {
        return 0;
    }
    double fastest = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        double latency_ns = play(&game, batch * 2 * ROUNDS);
        if (latency_ns <= 0) {
            break;
        }
        if (fastest <= 0 || latency_ns < fastest) {
            fastest = latency_ns;
        }
    }
    atomic_store_explicit(&game.stop, 1, memory_order_relaxed);
    (void)pthread_join(ponger, NULL);
    return fastest;
}

bool probe_is_near(double latency_ns)
{
    return latency_ns > 0 && latency_ns < NEAR_NS;
}
