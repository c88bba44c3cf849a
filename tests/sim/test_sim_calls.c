/* Calls that applications make at a virtual time, and calls that fail there. */
#include "support/sim.h"

#include <math.h>

/* ---- calls at a time ---------------------------------------------------- */

enum { NOTES = 16 };

typedef struct diary {
    baton_sim_t *sim;
    char names[NOTES + 1];
    double times[NOTES];
    size_t count;
} diary_t;

typedef struct note {
    diary_t *diary;
    char name;
    struct note *next; /* a note whose call is due `after_us` later; or NULL */
    double after_us;
} note_t;

static void take_note(void *arg)
{
    const note_t *note = arg;
    diary_t *diary = note->diary;
    diary->times[diary->count] = baton_sim_now_us(diary->sim);
    diary->names[diary->count++] = note->name;
    if (note->next != NULL) {
        support_ok(baton_sim_at(diary->sim,
                                baton_sim_now_us(diary->sim) + note->after_us,
                                take_note, note->next));
    }
}

TEST(test_sim_calls_may_ask_for_calls)
{
    diary_t diary = {.sim = support_sim_of(1)};
    note_t third = {&diary, '3', NULL, 0};
    note_t second = {&diary, '2', &third, 5};
    /* This call is due at the same time as the first one. */
    note_t first = {&diary, '1', &second, 0};
    note_t tie = {&diary, 't', NULL, 0};
    note_t last = {&diary, '4', NULL, 0};
    support_ok(baton_sim_at(diary.sim, 20, take_note, &last));
    support_ok(baton_sim_at(diary.sim, 4, take_note, &first));
    support_ok(baton_sim_at(diary.sim, 4, take_note, &tie));
    support_expect(baton_sim_run(diary.sim, 19), BATON_ERR_TIMEOUT);
    assert_string_equal(diary.names, "1t23");
    support_us(diary.times[2], 4);
    support_us(diary.times[3], 9);
    support_ok(baton_sim_run(diary.sim, -1));
    support_us(diary.times[4], 20);
    support_ok(baton_sim_destroy(diary.sim));
}

/* The third call stops the run. Virtual time can continue later. */
static bool stop_the_third(void *arg)
{
    int *calls = arg;
    return ++*calls != 3;
}

static void call_again(void *arg)
{
    baton_sim_t *sim = arg;
    double now_us = baton_sim_now_us(sim);
    if (now_us < 100000) {
        support_ok(baton_sim_at(sim, now_us + 1, call_again, sim));
    }
}

TEST(test_sim_calls_on_progress_which_may_stop_it)
{
    int calls = 0;
    baton_sim_options_t options = support_sim_options(1);
    options.on_progress = stop_the_third;
    options.on_progress_arg = &calls;
    baton_sim_t *sim = support_sim_open(&options);
    support_ok(baton_sim_at(sim, 0, call_again, sim));
    support_fails(baton_sim_run(sim, -1), BATON_ERR_CANCELLED,
                  "on_progress returned false");
    assert_int_equal(calls, 3);
    assert_true(baton_sim_now_us(sim) < 100000);
    support_ok(baton_sim_run(sim, -1));
    support_us(baton_sim_now_us(sim), 100000);
    assert_true(calls > 3);
    support_ok(baton_sim_destroy(sim));
}

TEST(test_sim_calls_at_once_what_has_passed)
{
    diary_t diary = {.sim = support_sim_of(1)};
    note_t early = {&diary, 'e', NULL, 0};
    note_t late = {&diary, 'l', NULL, 0};
    support_expect(baton_sim_at(diary.sim, (double)NAN, take_note, &early),
                   BATON_ERR_INVALID);
    support_fails(baton_sim_at(diary.sim, (double)INFINITY, take_note, &early),
                  BATON_ERR_INVALID, "inf");
    support_ok(baton_sim_at(diary.sim, 10, take_note, &early));
    support_fails(baton_sim_run(diary.sim, 5), BATON_ERR_TIMEOUT,
                  "and callbacks or messages remain");
    support_ok(baton_sim_run(diary.sim, -1));
    support_ok(baton_sim_at(diary.sim, 3, take_note, &late));
    support_ok(baton_sim_at(diary.sim, -1, take_note, &late));
    /* The call is not made before time passes. */
    assert_string_equal(diary.names, "e");
    support_ok(baton_sim_run(diary.sim, -1));
    assert_string_equal(diary.names, "ell");
    support_us(diary.times[1], 10);
    support_us(diary.times[2], 10);
    support_ok(baton_sim_destroy(diary.sim));
}

/* The interrupted wait can be continued by the next one. */
TEST_WORDS(test_sim_waits_are_interrupted)
{
    support_words_start(words);
    baton_engine_interrupt(baton_group_engine(baton_sim_group(words->sim, 0)));
    support_expect(baton_schedule_wait(words->recv, -1), BATON_ERR_INTERRUPTED);
    support_us(baton_sim_now_us(words->sim), 0);
    support_ok(baton_schedule_wait(words->recv, -1));
}

/* ---- calls that are refused --------------------------------------------- */

static void expect_refusals(void *arg)
{
    const support_words_t *words = arg;
    double us = -1;
    bool done = true;
    double now_us = baton_sim_now_us(words->sim);
    support_expect(baton_schedule_wait(words->recv, -1), BATON_ERR_STATE);
    support_expect(baton_sim_run(words->sim, -1), BATON_ERR_STATE);
    support_expect(baton_sim_epoch(words->sim, &us), BATON_ERR_STATE);
    support_expect(baton_sim_destroy(words->sim), BATON_ERR_STATE);
    support_ok(baton_schedule_test(words->recv, &done));
    assert_false(done);
    support_us(baton_sim_now_us(words->sim), now_us);
}

static void wait_for_what_has_ended(void *arg)
{
    const support_words_t *words = arg;
    support_ok(baton_schedule_wait(words->recv, -1));
    support_ok(baton_schedule_wait(words->send, 0));
}

TEST_WORDS(test_sim_calls_let_no_time_pass)
{
    support_ok(baton_sim_build(words->sim, "built", support_sim_add_nop, NULL));
    support_words_start(words);
    support_ok(baton_sim_at(words->sim, 1, expect_refusals, words));
    support_ok(baton_sim_at(words->sim, 7, wait_for_what_has_ended, words));
    support_ok(baton_sim_run(words->sim, -1));
    /* The start that was refused has started nothing. */
    double us = -1;
    support_ok(baton_sim_epoch(words->sim, &us));
    support_us(us, 0);
}
