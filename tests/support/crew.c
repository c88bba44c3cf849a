#include "support/crew.h"
#include "support/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

const support_variant_t support_variants[SUPPORT_VARIANTS] = {
    {"one manual engine", BATON_PROGRESS_MANUAL, false},
    {"one engine with a thread", BATON_PROGRESS_THREAD, false},
    {"engines with threads", BATON_PROGRESS_THREAD, true},
};

support_crew_t *support_crew_open(int size, const support_variant_t *variant)
{
    support_crew_t *crew = calloc(1, sizeof(*crew));
    assert_non_null(crew);
    crew->size = size;
    crew->engine_count = variant->own_engines ? size : 1;
    crew->engines = calloc((size_t)size, sizeof(baton_engine_t *));
    crew->groups = calloc((size_t)size, sizeof(baton_group_t *));
    assert_non_null(crew->engines);
    assert_non_null(crew->groups);
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = variant->progress;
    support_ok(baton_inproc_create(size, &crew->loop));
    for (int rank = 0; rank < size; rank++) {
        if (rank < crew->engine_count) {
            support_ok(baton_engine_open(&options, &crew->engines[rank]));
        } else {
            crew->engines[rank] = crew->engines[0];
        }
        support_ok(baton_group_create_inproc(crew->engines[rank], crew->loop,
                                             rank, &crew->groups[rank]));
    }
    return crew;
}

void support_crew_close(support_crew_t *crew)
{
    for (int rank = 0; rank < crew->size; rank++) {
        support_ok(baton_group_destroy(crew->groups[rank]));
    }
    support_ok(baton_inproc_destroy(crew->loop));
    for (int rank = 0; rank < crew->engine_count; rank++) {
        support_ok(baton_engine_close(crew->engines[rank]));
    }
    free(crew->engines);
    free(crew->groups);
    free(crew);
}

/* ---- players ---------------------------------------------------------- */

static void fail_player(support_player_t *player)
{
    atomic_store_explicit(&player->crew->failed, true, memory_order_relaxed);
}

bool support_player_ok(support_player_t *player, baton_status_t status)
{
    if (status != BATON_OK && player->failure[0] == '\0') {
        snprintf(player->failure, sizeof(player->failure), "rank %d: %s: %s",
                 player->rank, baton_status_name(status),
                 baton_error_message());
        fail_player(player);
    }
    return !atomic_load_explicit(&player->crew->failed, memory_order_relaxed);
}

bool support_player_check(support_player_t *player, bool right,
                          const char *format, ...)
{
    if (!right && player->failure[0] == '\0') {
        int used = snprintf(player->failure, sizeof(player->failure),
                            "rank %d: ", player->rank);
        va_list values;
        va_start(values, format);
        vsnprintf(player->failure + used,
                  sizeof(player->failure) - (size_t)used, format, values);
        va_end(values);
        fail_player(player);
    }
    return !atomic_load_explicit(&player->crew->failed, memory_order_relaxed);
}

typedef struct part {
    support_player_t player;
    support_play_fn play;
    pthread_t thread;
} part_t;

static void *play_part(void *arg)
{
    part_t *part = arg;
    part->play(&part->player);
    return NULL;
}

void support_crew_play(support_crew_t *crew, support_play_fn play, void *arg)
{
    part_t *parts = calloc((size_t)crew->size, sizeof(*parts));
    assert_non_null(parts);
    atomic_store(&crew->failed, false);
    for (int rank = 0; rank < crew->size; rank++) {
        parts[rank].player = (support_player_t){
            .crew = crew,
            .rank = rank,
            .group = crew->groups[rank],
            .arg = arg,
        };
        parts[rank].play = play;
        assert_int_equal(
            pthread_create(&parts[rank].thread, NULL, play_part, &parts[rank]),
            0);
    }
    for (int rank = 0; rank < crew->size; rank++) {
        pthread_join(parts[rank].thread, NULL);
        if (parts[rank].player.failure[0] != '\0') {
            print_error("%s\n", parts[rank].player.failure);
        }
    }
    free(parts);
    assert_false(atomic_load(&crew->failed));
}

/* ---- a thread --------------------------------------------------------- */

struct support_thread {
    pthread_t thread;
    void (*fn)(void *arg);
    void *arg;
};

static void *thread_main(void *arg)
{
    support_thread_t *thread = arg;
    thread->fn(thread->arg);
    return NULL;
}

support_thread_t *support_thread_start(void (*fn)(void *arg), void *arg)
{
    support_thread_t *thread = calloc(1, sizeof(*thread));
    assert_non_null(thread);
    thread->fn = fn;
    thread->arg = arg;
    assert_int_equal(pthread_create(&thread->thread, NULL, thread_main, thread),
                     0);
    return thread;
}

void support_thread_join(support_thread_t *thread)
{
    pthread_join(thread->thread, NULL);
    free(thread);
}
