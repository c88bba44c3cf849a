/* What a hang is told by: the timeout of a wait, and the stall report. */
#include "support_pair.h"
#include "support_ranks.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define BYTES 64

/* Rank 0: recv#0 from rank 1, then nop#1. Rank 1: the send. */
static void open_waiting(support_crew_t *crew, baton_schedule_t *schedules[2],
                         char memory[2][BYTES])
{
    for (int rank = 0; rank < 2; rank++) {
        baton_schedule_t *s;
        support_ok(baton_schedule_create(crew->groups[rank], "awaited", &s));
        baton_view_t view = baton_view(
            baton_buffer_bind(s, memory[rank], BYTES, BATON_MEMORY_HOST), 0,
            BYTES);
        if (rank == 0) {
            baton_node_t recv = baton_add_recv(s, 1, view);
            baton_before(s, recv, baton_add_nop(s));
        } else {
            (void)baton_add_send(s, 0, view);
        }
        support_ok(baton_schedule_commit(s));
        schedules[rank] = s;
    }
}

static const char *const awaited[] = {
    "\"awaited\"", "epoch 2", "rank 0 of 2", "recv#0 from rank 1",
    "64 bytes",    "tag ",    "nop#1",
};
#define AWAITED (sizeof(awaited) / sizeof(awaited[0]))

static void test_timeout_names_what_is_awaited(void **state)
{
    (void)state;
    static const int timeouts[] = {0, 1, 20, 0};
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(2, &support_variants[i]);
        baton_schedule_t *schedules[2];
        char memory[2][BYTES] = {{0}};
        open_waiting(crew, schedules, memory);
        support_ok(baton_schedule_start(schedules[0]));
        support_run(schedules[1]);
        support_ok(baton_schedule_wait(schedules[0], SUPPORT_WAIT_MS));

        support_ok(baton_schedule_start(schedules[0]));
        for (size_t t = 0; t < sizeof(timeouts) / sizeof(timeouts[0]); t++) {
            support_expect(baton_schedule_wait(schedules[0], timeouts[t]),
                           BATON_ERR_TIMEOUT);
            for (size_t a = 0; a < AWAITED; a++) {
                support_says(awaited[a]);
            }
            char text[64];
            snprintf(text, sizeof(text), "gave up after %d ms", timeouts[t]);
            support_says(text);
        }
        snprintf(memory[1], BYTES, "late, but here");
        support_run(schedules[1]);
        support_ok(baton_schedule_wait(schedules[0], SUPPORT_WAIT_MS));
        assert_string_equal(memory[0], "late, but here");
        baton_schedule_destroy(schedules[0]);
        baton_schedule_destroy(schedules[1]);
        support_crew_close(crew);
    }
}

/* Nothing is in flight, but a required node will never fire. */
static baton_status_t refuse(void *arg, uint64_t epoch)
{
    (void)arg;
    (void)epoch;
    return BATON_SKIP;
}

static void test_timeout_names_a_branch_not_taken(void **state)
{
    (void)state;
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(1, &support_variants[i]);
        baton_schedule_t *s;
        support_ok(baton_schedule_create(crew->groups[0], "branch", &s));
        baton_before(s, baton_add_call(s, refuse, NULL), baton_add_nop(s));
        support_ok(baton_schedule_commit(s));
        support_ok(baton_schedule_start(s));
        support_expect(baton_schedule_wait(s, 5), BATON_ERR_TIMEOUT);
        support_says("1 of its nodes have not fired");
        support_ok(baton_schedule_cancel(s));
        support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                       BATON_ERR_CANCELLED);
        baton_schedule_destroy(s);
        support_crew_close(crew);
    }
}

/* ---- the stall report ------------------------------------------------- */

typedef struct journal {
    pthread_mutex_t lock;
    int warnings;
    char last[1100];
} journal_t;

static void note(void *arg, baton_log_level_t level, const char *message)
{
    journal_t *journal = arg;
    pthread_mutex_lock(&journal->lock);
    if (level == BATON_LOG_WARN) {
        journal->warnings++;
        snprintf(journal->last, sizeof(journal->last), "%s", message);
    }
    pthread_mutex_unlock(&journal->lock);
}

static int warnings(journal_t *journal)
{
    pthread_mutex_lock(&journal->lock);
    int count = journal->warnings;
    pthread_mutex_unlock(&journal->lock);
    return count;
}

/* Comes again and again while the stall lasts, with a thread also when nobody
   waits; and not at all for one that moves. */
static void test_stall_is_reported_to_the_log(void **state)
{
    (void)state;
    journal_t journal = {.lock = PTHREAD_MUTEX_INITIALIZER};
    baton_log_set(note, &journal);
    for (int threaded = 0; threaded < 2; threaded++) {
        support_crew_t crew = {.size = 2};
        baton_engine_t *engine;
        baton_group_t *groups[2];
        baton_schedule_t *schedules[2];
        char memory[2][BYTES] = {{0}};
        baton_engine_options_t options = BATON_ENGINE_OPTIONS;
        options.progress =
            threaded != 0 ? BATON_PROGRESS_THREAD : BATON_PROGRESS_MANUAL;
        options.stall_ms = 5;
        support_ok(baton_engine_open(&options, &engine));
        support_ok(baton_loop_create(2, &crew.loop));
        for (int rank = 0; rank < 2; rank++) {
            support_ok(baton_group_create_loop(engine, crew.loop, rank,
                                               &groups[rank]));
        }
        crew.groups = groups;
        open_waiting(&crew, schedules, memory);
        support_ok(baton_schedule_start(schedules[0]));
        support_run(schedules[1]);
        support_ok(baton_schedule_wait(schedules[0], SUPPORT_WAIT_MS));
        support_ok(baton_schedule_start(schedules[0]));
        int before = warnings(&journal);
        for (int i = 0; warnings(&journal) < before + 3; i++) {
            assert_true(i < 1000);
            if (threaded != 0) {
                sched_yield();
                nanosleep(&(struct timespec){0, 10000000}, NULL);
            } else {
                support_expect(baton_schedule_wait(schedules[0], 10),
                               BATON_ERR_TIMEOUT);
            }
        }
        pthread_mutex_lock(&journal.lock);
        for (size_t a = 0; a < AWAITED; a++) {
            if (strstr(journal.last, awaited[a]) == NULL) {
                fail_msg("\"%s\" is not in: %s", awaited[a], journal.last);
            }
        }
        pthread_mutex_unlock(&journal.lock);
        support_run(schedules[1]);
        support_ok(baton_schedule_wait(schedules[0], SUPPORT_WAIT_MS));
        for (int rank = 0; rank < 2; rank++) {
            baton_schedule_destroy(schedules[rank]);
            support_ok(baton_group_destroy(groups[rank]));
        }
        baton_loop_destroy(crew.loop);
        support_ok(baton_engine_close(engine));
    }
    baton_log_set(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeout_names_what_is_awaited),
        cmocka_unit_test(test_timeout_names_a_branch_not_taken),
        cmocka_unit_test(test_stall_is_reported_to_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
