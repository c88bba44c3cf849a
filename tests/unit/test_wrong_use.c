/* Calls with NULL or in the wrong state fail at once: schedule.h and engine.h.
 */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/pair.h"

#include <string.h>

static support_cluster_t *ranks;

static int open_ranks(void **state)
{
    ranks = support_cluster_manual(2);
    return 0;
}

static int close_ranks(void **state)
{
    support_cluster_close(ranks);
    return 0;
}

static baton_status_t complete(void *arg, baton_call_t *call,
                               baton_async_t async)
{
    return BATON_DONE;
}

static const baton_async_ops_t completes = {.start = complete};

static void forget(void *arg, uint64_t epoch)
{
}

/* ---- what builds ------------------------------------------------------- */

static uint64_t memory[2];
static const baton_view_t whole = {{0}, 0, 8};
static const baton_node_t first = {0};
static const baton_length_t length = {0};

static void bind(baton_schedule_t *s)
{
    (void)baton_buffer_bind(s, memory, 8);
}

static void bind_input(baton_schedule_t *s)
{
    (void)baton_buffer_bind_input(s, memory, 8);
}

static void add_scratch(baton_schedule_t *s)
{
    (void)baton_buffer_scratch(s, 8);
}

static void add_send(baton_schedule_t *s)
{
    (void)baton_add_send(s, 1, whole);
}

static void add_recv(baton_schedule_t *s)
{
    (void)baton_add_recv(s, 1, whole);
}

static void add_reduce(baton_schedule_t *s)
{
    (void)baton_add_reduce(s, BATON_I64, BATON_SUM, whole, whole, whole);
}

static void add_copy(baton_schedule_t *s)
{
    (void)baton_add_copy(s, whole, whole);
}

static void add_nop(baton_schedule_t *s)
{
    (void)baton_add_nop(s);
}

static void add_call(baton_schedule_t *s)
{
    (void)baton_add_call(s, support_succeed, NULL);
}

static void add_async(baton_schedule_t *s)
{
    (void)baton_add_async(s, &completes, NULL);
}

static void add_length(baton_schedule_t *s)
{
    (void)baton_add_length(s);
}

static void set_length(baton_schedule_t *s)
{
    baton_set_length(s, first, length);
}

static void add_on_start(baton_schedule_t *s)
{
    (void)baton_add_on_start(s);
}

static void add_armed_recv(baton_schedule_t *s)
{
    (void)baton_add_armed_recv(s, 1);
}

static void add_activate(baton_schedule_t *s)
{
    (void)baton_add_activate(s, 1);
}

static void before(baton_schedule_t *s)
{
    baton_before(s, first, first);
}

static void set_need(baton_schedule_t *s)
{
    baton_set_need(s, first, 1);
}

static void set_optional(baton_schedule_t *s)
{
    baton_set_optional(s, first);
}

static void enclose(baton_schedule_t *s)
{
    const baton_enclosure_t mark = {0, 0};
    baton_enclose_end(s, mark, first, first);
}

static void on_recover(baton_schedule_t *s)
{
    baton_schedule_on_recover(s, forget, NULL);
}

static const struct adder {
    const char *name;
    void (*add)(baton_schedule_t *schedule);
} adders[] = {
    {"baton_buffer_bind", bind},
    {"baton_buffer_bind_input", bind_input},
    {"baton_buffer_scratch", add_scratch},
    {"baton_add_send", add_send},
    {"baton_add_recv", add_recv},
    {"baton_add_reduce", add_reduce},
    {"baton_add_copy", add_copy},
    {"baton_add_nop", add_nop},
    {"baton_add_call", add_call},
    {"baton_add_async", add_async},
    {"baton_add_length", add_length},
    {"baton_set_length", set_length},
    {"baton_add_on_start", add_on_start},
    {"baton_add_armed_recv", add_armed_recv},
    {"baton_add_activate", add_activate},
    {"baton_before", before},
    {"baton_set_need", set_need},
    {"baton_set_optional", set_optional},
    {"baton_enclose_end", enclose},
    {"baton_schedule_on_recover", on_recover},
};
enum { ADDERS = sizeof adders / sizeof adders[0] };

static void test_adders_refuse_no_schedule(void **state)
{
    for (int i = 0; i < ADDERS; i++) {
        adders[i].add(NULL);
        support_says(adders[i].name);
        support_says("schedule is NULL");
    }
    (void)baton_enclose_begin(NULL);
    support_says("baton_enclose_begin: schedule is NULL");
    assert_int_equal(baton_add_nop(NULL).index, UINT32_MAX);
}

/* The schedule is as it was committed, and its next start returns the error. */
static void test_adders_refuse_a_committed_schedule(void **state)
{
    for (int i = 0; i < ADDERS; i++) {
        baton_schedule_t *s = support_schedule(ranks->groups[0], "full");
        (void)baton_buffer_bind(s, memory, 8);
        (void)baton_add_copy(s, whole, whole);
        (void)baton_add_length(s);
        support_ok(baton_schedule_commit(s));
        support_run(s);
        adders[i].add(s);
        support_says(adders[i].name);
        support_says("\"full\" is committed");
        support_expect(baton_schedule_start(s), BATON_ERR_STATE);
        support_says(adders[i].name);
        support_ok(baton_schedule_destroy(s));
    }
}

/* ---- what runs --------------------------------------------------------- */

static void expect_says(baton_status_t status, baton_status_t wanted,
                        const char *text)
{
    support_expect(status, wanted);
    support_says(text);
}

static void test_calls_refuse_nothing(void **state)
{
    baton_schedule_t *s = NULL;
    baton_failure_t failure;
    bool done;
    expect_says(baton_schedule_create(NULL, "x", &s), BATON_ERR_INVALID,
                "group is NULL");
    expect_says(baton_schedule_create(ranks->groups[0], NULL, &s),
                BATON_ERR_INVALID, "name is NULL");
    expect_says(baton_schedule_create(ranks->groups[0], "x", NULL),
                BATON_ERR_INVALID, "out is NULL");
    assert_null(s);
    expect_says(baton_schedule_commit(NULL), BATON_ERR_INVALID,
                "baton_schedule_commit: schedule is NULL");
    support_ok(baton_schedule_destroy(NULL));
    expect_says(baton_schedule_start(NULL), BATON_ERR_INVALID,
                "baton_schedule_start: schedule is NULL");
    expect_says(baton_schedule_test(NULL, &done), BATON_ERR_INVALID,
                "baton_schedule_test: schedule is NULL");
    expect_says(baton_schedule_wait(NULL, -1), BATON_ERR_INVALID,
                "baton_schedule_wait: schedule is NULL");
    expect_says(baton_schedule_cancel(NULL), BATON_ERR_INVALID,
                "baton_schedule_cancel: schedule is NULL");
    expect_says(baton_schedule_failure(NULL, &failure), BATON_ERR_INVALID,
                "baton_schedule_failure: schedule is NULL");
    expect_says(baton_buffer_rebind(NULL, (baton_buffer_t){0}, memory),
                BATON_ERR_INVALID, "baton_buffer_rebind: schedule is NULL");
    expect_says(baton_group_recover(NULL, -1), BATON_ERR_INVALID,
                "baton_group_recover: group is NULL");
    expect_says(baton_async_complete((baton_async_t){NULL, 0}, BATON_OK),
                BATON_ERR_INVALID, "baton_async_complete");
    baton_schedule_limit(NULL, 1);
    support_says("baton_schedule_limit: schedule is NULL");
    baton_schedule_fail(NULL, BATON_ERR_LIMIT, "x");
    support_says("baton_schedule_fail: schedule is NULL");
    assert_int_equal(baton_schedule_epoch(NULL), 0);
    support_says("baton_schedule_epoch: schedule is NULL");
    assert_int_equal(baton_schedule_rank(NULL), -1);
    support_says("baton_schedule_rank: schedule is NULL");
    assert_int_equal(baton_schedule_size(NULL), -1);
    support_says("baton_schedule_size: schedule is NULL");
    assert_string_equal(baton_schedule_name(NULL), "");
    support_says("baton_schedule_name: schedule is NULL");
    assert_true(baton_buffer_bytes(NULL, whole.buffer) == SIZE_MAX);
    support_says("baton_buffer_bytes: schedule is NULL");
    assert_null(baton_view_address(NULL, whole));
    support_says("baton_view_address: schedule is NULL");
    assert_int_equal(baton_group_rank(NULL), -1);
    assert_int_equal(baton_group_size(NULL), -1);
    support_ok(baton_group_destroy(NULL));
    support_ok(baton_engine_close(NULL));
    assert_false(baton_engine_step(NULL));
}

static void test_calls_refuse_no_epoch(void **state)
{
    assert_int_equal(baton_call_epoch(NULL), 0);
    support_says("baton_call_epoch: call is NULL");
    assert_null(baton_call_address(NULL, whole));
    support_says("baton_call_address: call is NULL");
    assert_false(baton_call_completed(NULL, first));
    support_says("baton_call_completed: call is NULL");
    assert_true(baton_call_length(NULL, length) == SIZE_MAX);
    support_says("baton_call_length: call is NULL");
    expect_says(baton_call_set_length(NULL, length, 1), BATON_ERR_INVALID,
                "baton_call_set_length: call is NULL");
    assert_int_equal(baton_call_word(NULL, first), 0);
    support_says("baton_call_word: call is NULL");
    expect_says(baton_call_set_word(NULL, first, 1), BATON_ERR_INVALID,
                "baton_call_set_word: call is NULL");
}

static void test_calls_refuse_a_schedule_without_commit(void **state)
{
    baton_schedule_t *s;
    baton_failure_t failure;
    bool done = false;
    s = support_schedule(ranks->groups[0], "raw");
    expect_says(baton_schedule_start(s), BATON_ERR_STATE, "\"raw\"");
    expect_says(baton_schedule_test(s, &done), BATON_ERR_STATE, "\"raw\"");
    expect_says(baton_schedule_wait(s, -1), BATON_ERR_STATE, "\"raw\"");
    expect_says(baton_schedule_cancel(s), BATON_ERR_STATE, "\"raw\"");
    expect_says(baton_schedule_failure(s, &failure), BATON_ERR_STATE,
                "\"raw\"");
    assert_false(done);
    assert_int_equal(baton_schedule_epoch(s), 0);
    support_ok(baton_schedule_destroy(s));
}

static void test_calls_refuse_a_schedule_at_rest(void **state)
{
    baton_schedule_t *s;
    baton_failure_t failure;
    s = support_schedule(ranks->groups[0], "rest");
    (void)baton_add_nop(s);
    support_ok(baton_schedule_commit(s));
    expect_says(baton_schedule_commit(s), BATON_ERR_STATE, "\"rest\"");
    expect_says(baton_schedule_cancel(s), BATON_ERR_STATE, "\"rest\"");
    expect_says(baton_schedule_failure(s, &failure), BATON_ERR_STATE,
                "\"rest\" has not failed");
    expect_says(baton_schedule_test(s, NULL), BATON_ERR_INVALID,
                "done_out is NULL");
    expect_says(baton_schedule_failure(s, NULL), BATON_ERR_INVALID,
                "out is NULL");
    support_run(s);
    support_ok(baton_schedule_destroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adders_refuse_no_schedule),
        cmocka_unit_test(test_adders_refuse_a_committed_schedule),
        cmocka_unit_test(test_calls_refuse_nothing),
        cmocka_unit_test(test_calls_refuse_no_epoch),
        cmocka_unit_test(test_calls_refuse_a_schedule_without_commit),
        cmocka_unit_test(test_calls_refuse_a_schedule_at_rest),
    };
    return cmocka_run_group_tests(tests, open_ranks, close_ranks);
}
