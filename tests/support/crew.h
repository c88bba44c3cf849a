/* P loop ranks, and a thread for each that plays its application: on one engine
   together, or on an engine each; with progress threads or without. */
#ifndef TESTS_SUPPORT_CREW_H
#define TESTS_SUPPORT_CREW_H

#include <baton/baton.h>
#include <stdatomic.h>

#define SUPPORT_WAIT_MS 20000

typedef struct support_crew {
    int size;
    int engine_count; /* 1 or size */
    baton_inproc_t *loop;
    baton_engine_t **engines;
    baton_group_t **groups; /* by rank */
    atomic_bool failed;     /* relaxed: it only ends loops */
} support_crew_t;

/* Manual engines, threads, and a thread each: what most tests go through. */
typedef struct support_variant {
    const char *name;
    baton_progress_t progress;
    bool own_engines;
} support_variant_t;
#define SUPPORT_VARIANTS 3
extern const support_variant_t support_variants[SUPPORT_VARIANTS];

/* Main thread: failures are cmocka's. */
support_crew_t *support_crew_open(int size, const support_variant_t *variant);
void support_crew_close(support_crew_t *crew);

/* One rank's application, in a thread of its own. */
typedef struct support_player {
    support_crew_t *crew;
    int rank;
    baton_group_t *group;
    void *arg;
    char failure[600]; /* "": none yet */
} support_player_t;

typedef void (*support_play_fn)(support_player_t *player);

/* Plays all ranks at once and joins them; fails the test with what the first
   one that failed says. */
void support_crew_play(support_crew_t *crew, support_play_fn play, void *arg);

/* For players: false, and the player fails, unless it is as it should be. They
   return then; the others stop at their next check. */
bool support_player_ok(support_player_t *player, baton_status_t status);
bool support_player_check(support_player_t *player, bool right,
                          const char *format, ...) BATON_PRINTF(3, 4);

/* Runs fn(arg) in another thread. join: main thread. */
typedef struct support_thread support_thread_t;
support_thread_t *support_thread_start(void (*fn)(void *arg), void *arg);
void support_thread_join(support_thread_t *thread);

#endif
