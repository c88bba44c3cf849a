/* The conformance suite over the loop transport: ranks as threads, and ranks in
   turns, one running at a time from yield to yield, so that the interleaving is
   the same each time. */
#include "support_conformance.h"
#include "support_random.h"
#include "transport/loop_internal.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* What the ranks of a run share. */
typedef struct arena {
    const conformance_case_t *test;
    bool turns;
    int size;
    atomic_bool failed; /* relaxed: it only ends loops */
    pthread_mutex_t mutex;
    pthread_cond_t turned;
    int turn;
    bool *gone;
} arena_t;

typedef struct run {
    const conformance_case_t *test;
    bool turns;
} run_t;

static void take_turn(arena_t *arena, int rank)
{
    pthread_mutex_lock(&arena->mutex);
    while (arena->turn != rank) {
        pthread_cond_wait(&arena->turned, &arena->mutex);
    }
    pthread_mutex_unlock(&arena->mutex);
}

static void give_turn(arena_t *arena, int rank, bool gone)
{
    pthread_mutex_lock(&arena->mutex);
    arena->gone[rank] = gone;
    int next = rank;
    do {
        next = (next + 1) % arena->size;
    } while (next != rank && arena->gone[next]);
    arena->turn = next;
    pthread_cond_broadcast(&arena->turned);
    pthread_mutex_unlock(&arena->mutex);
}

static bool yield(conformance_rank_t *self)
{
    arena_t *arena = self->fixture;
    if (self->failure[0] != '\0') {
        atomic_store_explicit(&arena->failed, true, memory_order_relaxed);
    }
    if (arena->turns) {
        give_turn(arena, self->rank, false);
        take_turn(arena, self->rank);
    } else {
        sched_yield();
    }
    return !atomic_load_explicit(&arena->failed, memory_order_relaxed);
}

static void *run_rank(void *arg)
{
    conformance_rank_t *self = arg;
    arena_t *arena = self->fixture;
    if (arena->turns) {
        take_turn(arena, self->rank);
    }
    conformance_run(arena->test, self);
    if (self->failure[0] != '\0') {
        atomic_store_explicit(&arena->failed, true, memory_order_relaxed);
    }
    if (arena->turns) {
        give_turn(arena, self->rank, true);
    }
    return NULL;
}

static void run_case(const run_t *run, int size)
{
    size_t count = (size_t)size;
    arena_t arena = {.test = run->test, .turns = run->turns, .size = size};
    arena.gone = calloc(count, sizeof *arena.gone);
    pthread_mutex_init(&arena.mutex, NULL);
    pthread_cond_init(&arena.turned, NULL);
    conformance_rank_t *ranks = calloc(count, sizeof *ranks);
    pthread_t *threads = calloc(count, sizeof *threads);
    baton_loop_t *loop = NULL;
    assert_int_equal(baton_loop_create(size, &loop), BATON_OK);

    for (int i = 0; i < size; i++) {
        ranks[i].rank = i;
        ranks[i].size = size;
        ranks[i].yield = yield;
        ranks[i].fixture = &arena;
        ranks[i].seed = support_seed();
        assert_int_equal(
            baton__loop_join(loop, i, &ranks[i].transport, &ranks[i].endpoint),
            BATON_OK);
    }
    for (int i = 0; i < size; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]),
                         0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
    }

    for (int i = 0; i < size; i++) {
        ranks[i].transport->close(ranks[i].endpoint);
    }
    baton_loop_destroy(loop);
    for (int i = 0; i < size; i++) {
        if (ranks[i].failure[0] != '\0') {
            print_error("%s\n", ranks[i].failure);
        }
    }
    bool failed = atomic_load(&arena.failed);
    pthread_mutex_destroy(&arena.mutex);
    pthread_cond_destroy(&arena.turned);
    free(arena.gone);
    free(ranks);
    free(threads);
    assert_false(failed);
}

static void run_sizes(void **state)
{
    static const int SIZES[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        run_case(*state, SIZES[i]);
    }
}

int main(void)
{
    static run_t runs[2 * CONFORMANCE_CASES];
    static struct CMUnitTest tests[2 * CONFORMANCE_CASES];
    static char names[2 * CONFORMANCE_CASES][64];
    support_seed();
    for (int i = 0; i < 2 * CONFORMANCE_CASES; i++) {
        runs[i].test = &conformance_cases[i / 2];
        runs[i].turns = i % 2 == 0;
        snprintf(names[i], sizeof names[i], "%s_%s", runs[i].test->name,
                 runs[i].turns ? "turns" : "threads");
        tests[i] =
            (struct CMUnitTest){names[i], run_sizes, NULL, NULL, &runs[i]};
    }
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
