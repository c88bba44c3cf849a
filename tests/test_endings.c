/* Epochs that are given up: cancel, and destroy while one runs. */
#include "base/config.h"
#include "support_pair.h"
#include "support_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void set_patience(const char *ms)
{
    if (ms != NULL) {
        setenv("BATON_DESTROY_MS", ms, 1);
    } else {
        unsetenv("BATON_DESTROY_MS");
    }
    baton__config_forget();
}

/* ---- cancel ----------------------------------------------------------- */

static baton_status_t skip_odd(void *arg, uint64_t epoch)
{
    (void)arg;
    return epoch % 2 == 1 ? BATON_SKIP : BATON_OK;
}

/* skip_odd --> nop: an odd epoch hangs, until it is cancelled. */
static baton_schedule_t *open_local(support_crew_t *crew)
{
    baton_schedule_t *s;
    support_ok(baton_schedule_create(crew->groups[0], "local", &s));
    baton_before(s, baton_add_call(s, skip_odd, NULL), baton_add_nop(s));
    support_ok(baton_schedule_commit(s));
    return s;
}

static void test_cancel_without_an_epoch_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(2, &support_variants[i]);
        support_pair_t pair;
        support_pair_open(&pair, crew, "idle");
        support_expect(baton_schedule_cancel(pair.schedules[0]),
                       BATON_ERR_STATE);
        support_says("cancel of \"idle\": no epoch is running");
        support_ok(baton_schedule_start(pair.schedules[0]));
        support_pair_send(&pair, 3);
        support_ok(baton_schedule_wait(pair.schedules[0], SUPPORT_WAIT_MS));
        support_expect(baton_schedule_cancel(pair.schedules[0]),
                       BATON_ERR_STATE);
        support_pair_close(&pair);
        support_crew_close(crew);
    }
}

static void test_cancel_ends_a_local_epoch(void **state)
{
    (void)state;
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(1, &support_variants[i]);
        baton_schedule_t *s = open_local(crew);
        for (uint64_t epoch = 1; epoch <= 1000; epoch += 2) {
            support_ok(baton_schedule_start(s));
            support_ok(baton_schedule_cancel(s));
            support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                           BATON_ERR_CANCELLED);
            assert_int_equal(baton_schedule_epoch(s), epoch);
            support_run(s);
        }
        baton_schedule_destroy(s);
        support_crew_close(crew);
    }
}

/* A cancel that comes too late leaves the next epoch alone. */
static void test_cancel_is_for_one_epoch(void **state)
{
    (void)state;
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(1, &support_variants[i]);
        baton_schedule_t *s;
        support_ok(baton_schedule_create(crew->groups[0], "race", &s));
        (void)baton_add_nop(s);
        support_ok(baton_schedule_commit(s));
        for (int round = 0; round < 5000; round++) {
            support_ok(baton_schedule_start(s));
            baton_status_t status = baton_schedule_cancel(s);
            assert_true(status == BATON_OK || status == BATON_ERR_STATE);
            status = baton_schedule_wait(s, SUPPORT_WAIT_MS);
            assert_true(status == BATON_OK || status == BATON_ERR_CANCELLED);
            support_run(s);
        }
        baton_schedule_destroy(s);
        support_crew_close(crew);
    }
}

static void test_cancel_fails_a_schedule_with_messages(void **state)
{
    (void)state;
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(2, &support_variants[i]);
        support_pair_t pair;
        support_pair_open(&pair, crew, "given up");
        support_ok(baton_schedule_start(pair.schedules[0]));
        support_ok(baton_schedule_cancel(pair.schedules[0]));
        support_expect(baton_schedule_wait(pair.schedules[0], SUPPORT_WAIT_MS),
                       BATON_ERR_CANCELLED);
        support_expect(baton_schedule_cancel(pair.schedules[0]),
                       BATON_ERR_STATE);
        support_expect(baton_schedule_start(pair.schedules[0]),
                       BATON_ERR_FAILED);
        support_says("\"given up\"");
        support_pair_send(&pair, 9); /* to one who no longer receives */
        assert_int_equal(pair.got, 0);
        support_pair_close(&pair);
        support_crew_close(crew);
    }
}

static void wait_there(void *arg)
{
    support_pair_t *pair = arg;
    pair->sent =
        (uint64_t)-baton_schedule_wait(pair->schedules[0], SUPPORT_WAIT_MS);
}

static void test_cancel_wakes_who_waits(void **state)
{
    (void)state;
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(2, &support_variants[i]);
        for (int round = 0; round < 50; round++) {
            support_pair_t pair;
            support_pair_open(&pair, crew, "waited for");
            support_ok(baton_schedule_start(pair.schedules[0]));
            support_thread_t *thread = support_thread_start(wait_there, &pair);
            support_ok(baton_schedule_cancel(pair.schedules[0]));
            support_thread_join(thread);
            assert_int_equal(pair.sent, -BATON_ERR_CANCELLED);
            support_pair_close(&pair);
        }
        support_crew_close(crew);
    }
}

/* ---- destroy ---------------------------------------------------------- */

/* The message never comes: after BATON_DESTROY_MS the epoch is cancelled, and a
   message that comes then finds nobody. */
static void test_destroy_cancels_after_its_patience(void **state)
{
    (void)state;
    static const char *const patience[] = {"0", "10"};
    for (int i = 0; i < 2 * SUPPORT_VARIANTS; i++) {
        set_patience(patience[i % 2]);
        support_crew_t *crew = support_crew_open(2, &support_variants[i / 2]);
        support_pair_t pair;
        support_pair_open(&pair, crew, "abandoned");
        support_ok(baton_schedule_start(pair.schedules[0]));
        baton_schedule_destroy(pair.schedules[0]);
        support_pair_send(&pair, 4);
        assert_int_equal(pair.got, 0);
        baton_schedule_destroy(pair.schedules[1]);
        support_crew_close(crew);
    }
    set_patience(NULL);
}

static void destroy_there(void *arg)
{
    baton_schedule_destroy(arg);
}

static void test_destroy_waits_for_a_running_epoch(void **state)
{
    (void)state;
    set_patience("60000");
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(2, &support_variants[i]);
        for (uint64_t round = 1; round <= 50; round++) {
            support_pair_t pair;
            support_pair_open(&pair, crew, "in time");
            support_ok(baton_schedule_start(pair.schedules[0]));
            support_thread_t *thread =
                support_thread_start(destroy_there, pair.schedules[0]);
            support_pair_send(&pair, round);
            support_thread_join(thread);
            assert_int_equal(pair.got, round);
            baton_schedule_destroy(pair.schedules[1]);
        }
        support_crew_close(crew);
    }
    set_patience(NULL);
}

/* A local epoch that hangs, a failed one, one never started. */
static void test_destroy_in_any_state(void **state)
{
    (void)state;
    set_patience("5");
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(2, &support_variants[i]);
        baton_schedule_destroy(open_local(crew));
        baton_schedule_t *s = open_local(crew);
        support_ok(baton_schedule_start(s));
        baton_schedule_destroy(s);
        s = open_local(crew);
        support_ok(baton_schedule_start(s));
        support_ok(baton_schedule_cancel(s));
        baton_schedule_destroy(s);
        support_ok(baton_schedule_create(crew->groups[0], "raw", &s));
        (void)baton_add_nop(s);
        baton_schedule_destroy(s);
        support_crew_close(crew);
    }
    set_patience(NULL);
}

/* An armed schedule whose epoch a peer began, and one that nobody touched. */
static void test_destroy_of_armed_schedules(void **state)
{
    (void)state;
    set_patience("5");
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        for (int starts = 0; starts < 3; starts++) {
            support_crew_t *crew = support_crew_open(3, &support_variants[i]);
            baton_schedule_t *s[3];
            for (int rank = 0; rank < 3; rank++) {
                support_ok(baton_schedule_create(crew->groups[rank], "armed",
                                                 &s[rank]));
                (void)baton_add_activation(s[rank],
                                           baton_add_on_start(s[rank]));
                support_ok(baton_schedule_commit(s[rank]));
            }
            for (int rank = 0; rank < starts; rank++) {
                support_run(s[rank]);
                support_run(s[rank]);
            }
            for (int rank = 0; rank < 3; rank++) {
                baton_schedule_destroy(s[rank]);
            }
            support_crew_close(crew);
        }
    }
    set_patience(NULL);
}

/* A large send that no peer takes reads its memory for ever: the schedule is
   kept, the group says so, and a later destroy succeeds. */
static void test_destroy_keeps_what_a_send_reads(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20 };
    set_patience("5");
    support_ranks_t *ranks = support_ranks_open(2);
    baton_schedule_t **s = support_schedules_create(ranks, "large");
    char *memory = calloc(2, LARGE);
    assert_non_null(memory);
    for (int rank = 0; rank < 2; rank++) {
        baton_view_t view =
            baton_view(baton_buffer_bind(s[rank], memory + rank * LARGE, LARGE,
                                         BATON_MEMORY_HOST),
                       0, LARGE);
        if (rank == 0) {
            (void)baton_add_send(s[0], 1, view);
        } else {
            (void)baton_add_recv(s[1], 0, view);
        }
    }
    support_schedules_commit(ranks, s);
    support_ok(baton_schedule_start(s[0]));
    baton_schedule_destroy(s[0]);
    support_says("\"large\"");
    support_expect(baton_group_destroy(ranks->groups[0]), BATON_ERR_BUSY);
    support_says("\"large\"");
    memory[0] = 42;
    support_run(s[1]);
    assert_int_equal(memory[LARGE], 42);
    support_settle(ranks);
    support_schedules_destroy(ranks, s);
    support_ranks_close(ranks);
    free(memory);
    set_patience(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_without_an_epoch_is_refused),
        cmocka_unit_test(test_cancel_ends_a_local_epoch),
        cmocka_unit_test(test_cancel_is_for_one_epoch),
        cmocka_unit_test(test_cancel_fails_a_schedule_with_messages),
        cmocka_unit_test(test_cancel_wakes_who_waits),
        cmocka_unit_test(test_destroy_cancels_after_its_patience),
        cmocka_unit_test(test_destroy_waits_for_a_running_epoch),
        cmocka_unit_test(test_destroy_in_any_state),
        cmocka_unit_test(test_destroy_of_armed_schedules),
        cmocka_unit_test(test_destroy_keeps_what_a_send_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
