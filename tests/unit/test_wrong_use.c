/* Calls with NULL or in the wrong state fail at once: schedule.h and engine.h;
   with NULL, coll.h, tuning.h, partial.h and select.h. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/dense.h"

#include <baton/select.h>

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

/* ---- collectives ------------------------------------------------------- */

/* The last message is of another call than the one that is checked. */
static void forget_message(void)
{
    support_expect(baton_group_recover(NULL, 0), BATON_ERR_INVALID);
}

/* With arguments that are all zero but for their size, or with none. */
static void call(const dense_builder_t *builder, baton_schedule_t *s,
                 bool given)
{
    const baton_builder_t *build = &builder->algorithm.build;
#define CALL(member, type)                                                     \
    build->member(s, given ? &(const type){.size = sizeof(type)} : NULL)
    switch (builder->algorithm.collective) {
    case BATON_COLLECTIVE_BROADCAST:
        CALL(broadcast, baton_broadcast_t);
        break;
    case BATON_COLLECTIVE_REDUCE:
        CALL(reduce, baton_reduce_t);
        break;
    case BATON_COLLECTIVE_ALLREDUCE:
        CALL(allreduce, baton_allreduce_t);
        break;
    case BATON_COLLECTIVE_REDUCE_SCATTER:
        CALL(reduce_scatter, baton_reduce_scatter_t);
        break;
    case BATON_COLLECTIVE_ALLGATHER:
        CALL(allgather, baton_allgather_t);
        break;
    case BATON_COLLECTIVE_SCATTER:
    case BATON_COLLECTIVE_GATHER:
        CALL(rooted, baton_rooted_t);
        break;
    case BATON_COLLECTIVE_ALLTOALL:
        CALL(alltoall, baton_alltoall_t);
        break;
    case BATON_COLLECTIVE_SCAN:
    case BATON_COLLECTIVE_EXSCAN:
        CALL(scan, baton_scan_t);
        break;
    case BATON_COLLECTIVE_BARRIER:
    case BATON_COLLECTIVE_COUNT:
        fail();
    }
#undef CALL
}

static void expect_refusals(const dense_builder_t *builder)
{
    forget_message();
    call(builder, NULL, true);
    support_says(": schedule is NULL");
    baton_schedule_t *s = support_schedule(ranks->groups[0], "none");
    call(builder, s, false);
    expect_says(baton_schedule_commit(s), BATON_ERR_INVALID, ": args is NULL");
    support_ok(baton_schedule_destroy(s));
}

static void test_builders_refuse_nothing(void **state)
{
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        if (builder->algorithm.collective != BATON_COLLECTIVE_BARRIER) {
            expect_refusals(builder);
        }
    }
    const dense_builder_t partial = {
        .algorithm = {.collective = BATON_COLLECTIVE_ALLREDUCE,
                      .build.allreduce = baton_partial_broadcast}};
    expect_refusals(&partial);
    baton_barrier(NULL);
    support_says("barrier by dissemination: schedule is NULL");
    forget_message();
    baton_barrier_dissemination(NULL);
    support_says("barrier by dissemination: schedule is NULL");
    baton_broadcast_binomial(NULL, 0, whole);
    support_says("binomial broadcast: schedule is NULL");
    assert_int_equal(baton_add_activation(NULL, first).index, UINT32_MAX);
    support_says("activation: schedule is NULL");
}

static void test_tuning_refuses_nothing(void **state)
{
    baton_algorithm_t algorithm;
    baton_costs_t costs = BATON_COSTS;
    baton_choice_case_t of = BATON_CHOICE_CASE;
    baton_choice_t choice;
    char text[8];
    size_t text_bytes;
    of.ranks = 2;
    assert_false(baton_algorithm_get(0, NULL));
    support_says("baton_algorithm_get: out is NULL");
    expect_says(baton_algorithm_find(BATON_COLLECTIVE_SCAN, NULL, &algorithm),
                BATON_ERR_INVALID, "baton_algorithm_find: name is NULL");
    expect_says(baton_algorithm_find(BATON_COLLECTIVE_SCAN, "x", NULL),
                BATON_ERR_INVALID, "baton_algorithm_find: out is NULL");
    expect_says(baton_costs_get(NULL), BATON_ERR_INVALID, "out: NULL");
    expect_says(baton_costs_write(NULL, &costs), BATON_ERR_INVALID,
                "baton_costs_write: path is NULL");
    expect_says(baton_costs_write("/nonexistent/costs", NULL),
                BATON_ERR_INVALID, "baton_costs_write: costs is NULL");
    expect_says(baton_costs_read(NULL, &costs), BATON_ERR_INVALID,
                "baton_costs_read: path is NULL");
    expect_says(baton_costs_read("/nonexistent/costs", NULL), BATON_ERR_INVALID,
                "baton_costs_read: out is NULL");
    expect_says(baton_choose(NULL, &choice), BATON_ERR_INVALID, "case: NULL");
    expect_says(baton_choose(&of, NULL), BATON_ERR_INVALID,
                "baton_choose: out is NULL");
    expect_says(baton_choices_text(2, 1, 0, NULL, 8, &text_bytes),
                BATON_ERR_INVALID, "baton_choices_text: text is NULL");
    expect_says(baton_choices_text(2, 1, 0, text, 8, NULL), BATON_ERR_INVALID,
                "baton_choices_text: length_out is NULL");
    support_ok(baton_choices_text(2, 1, 0, NULL, 0, &text_bytes));
}

static void test_partials_refuse_nothing(void **state)
{
    const baton_partial_choice_t solo = {BATON_SOLO, 0};
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    baton_partial_t *p = NULL;
    baton_partial_result_t seen;
    baton_partial_stats_t stats = {.ranks = 2};
    char text[BATON_PARTIAL_STATS_BYTES];
    bool flag;
    options.count = 1;
    expect_says(baton_partial_create(NULL, &options, &p), BATON_ERR_INVALID,
                "group is NULL");
    expect_says(baton_partial_create(ranks->groups[0], NULL, &p),
                BATON_ERR_INVALID, "partial options: NULL");
    expect_says(baton_partial_create(ranks->groups[0], &options, NULL),
                BATON_ERR_INVALID, "baton_partial_create: out is NULL");
    support_ok(baton_partial_destroy(NULL));
    expect_says(baton_partial_contribute(NULL, memory), BATON_ERR_INVALID,
                "contribute to a partial: it is NULL");
    expect_says(baton_partial_start(NULL), BATON_ERR_INVALID,
                "baton_partial_start: partial is NULL");
    expect_says(baton_partial_test(NULL, &flag), BATON_ERR_INVALID,
                "baton_partial_test: partial is NULL");
    expect_says(baton_partial_wait(NULL, 0, &seen), BATON_ERR_INVALID,
                "baton_partial_wait: partial is NULL");
    expect_says(baton_partial_set_mode(NULL, solo), BATON_ERR_INVALID,
                "baton_partial_set_mode: partial is NULL");
    expect_says(baton_partial_stats(NULL, &stats), BATON_ERR_INVALID,
                "baton_partial_stats: partial is NULL");
    expect_says(baton_partial_stats_text(NULL, text, sizeof text),
                BATON_ERR_INVALID, "stats is NULL");
    expect_says(baton_partial_stats_text(&stats, NULL, sizeof text),
                BATON_ERR_INVALID, "out is NULL");
    expect_says(baton_partial_stats_json(NULL, text, sizeof text),
                BATON_ERR_INVALID, "stats is NULL");
    expect_says(baton_partial_stats_json(&stats, NULL, sizeof text),
                BATON_ERR_INVALID, "out is NULL");
    assert_null(baton_partial_schedule(NULL));
    expect_says(baton_partial_pending(NULL, memory, &flag), BATON_ERR_INVALID,
                "pending of a partial: it is NULL");
    support_ok(baton_partial_create(ranks->groups[0], &options, &p));
    expect_says(baton_partial_contribute(p, NULL), BATON_ERR_INVALID,
                "data is NULL");
    expect_says(baton_partial_test(p, NULL), BATON_ERR_INVALID,
                "done_out is NULL");
    expect_says(baton_partial_wait(p, 0, NULL), BATON_ERR_INVALID,
                "baton_partial_wait: out is NULL");
    expect_says(baton_partial_stats(p, NULL), BATON_ERR_INVALID,
                "baton_partial_stats: out is NULL");
    forget_message();
    expect_says(baton_partial_pending(p, NULL, &flag), BATON_ERR_INVALID,
                "data is NULL");
    expect_says(baton_partial_pending(p, memory, NULL), BATON_ERR_INVALID,
                "any_out is NULL");
    support_ok(baton_partial_destroy(p));
}

/* ---- selection --------------------------------------------------------- */

static const float values[2] = {1, 2};
static const baton_selection_t two = {
    .dtype = BATON_F32, .values = values, .count = 2};
static const baton_selection_t nothing = {.dtype = BATON_F32, .count = 2};

static void test_selections_refuse_nothing(void **state)
{
    typedef size_t select_fn(const baton_selection_t *, size_t, uint32_t *,
                             void *);
    static select_fn *const all[] = {baton_select_trimmed, baton_select_search};
    uint32_t indices[2];
    uint64_t scratch[64];
    assert_true(baton_select_scratch_bytes(2, 1) <= sizeof scratch);
    for (int i = 0; i < 2; i++) {
        forget_message();
        assert_int_equal(all[i](NULL, 1, indices, scratch), 0);
        support_says(": from is NULL");
        assert_int_equal(all[i](&nothing, 1, indices, scratch), 0);
        support_says(": from->values is NULL");
        assert_int_equal(all[i](&two, 1, NULL, scratch), 0);
        support_says(": indices is NULL");
        assert_int_equal(all[i](&two, 1, indices, NULL), 0);
        support_says(": scratch is NULL");
    }
    assert_int_equal(baton_select_topk(NULL, 1, indices, scratch, NULL), 0);
    support_says("baton_select_topk: from is NULL");
    assert_int_equal(baton_select_topk(&nothing, 1, indices, scratch, NULL), 0);
    support_says("baton_select_topk: from->values is NULL");
    assert_int_equal(baton_select_topk(&two, 1, NULL, scratch, NULL), 0);
    support_says("baton_select_topk: indices is NULL");
    assert_int_equal(baton_select_topk(&two, 1, indices, NULL, NULL), 0);
    support_says("baton_select_topk: scratch is NULL");
    assert_int_equal(baton_select_topk(&two, 0, NULL, NULL, NULL), 0);
    assert_int_equal(baton_select_topk(&two, 1, indices, scratch, NULL), 1);
    assert_int_equal(baton_select_at_least(NULL, 1, indices, 2), 0);
    support_says("baton_select_at_least: from is NULL");
    assert_int_equal(baton_select_at_least(&two, 1, NULL, 2), 0);
    support_says("baton_select_at_least: indices is NULL");
    assert_int_equal(baton_select_count(NULL, 1), 0);
    support_says("baton_select_count: from is NULL");
}

static void test_accumulations_refuse_nothing(void **state)
{
    float sum[2] = {0};
    const float left[2] = {1, 2};
    const float right[2] = {3, 4};
    uint32_t indices[2];
    uint32_t list[2] = {0};
    uint64_t scratch[64];
    baton_accumulation_t of = {.dtype = BATON_F32, .count = 2};
    assert_int_equal(baton_accumulate_topk(NULL, 1, indices, scratch, NULL), 0);
    support_says("baton_accumulate_topk: of is NULL");
    assert_int_equal(baton_accumulate_topk(&of, 1, indices, scratch, NULL), 0);
    support_says("baton_accumulate_topk: of->sum is NULL");
    of.sum = sum;
    assert_int_equal(baton_accumulate_at_least(&of, 1, indices, 2), 0);
    support_says("baton_accumulate_at_least: of->left is NULL");
    of.left = left;
    assert_int_equal(baton_accumulate_at_least(&of, 1, indices, 2), 0);
    support_says("baton_accumulate_at_least: of->right is NULL");
    of.right = right;
    assert_int_equal(baton_accumulate_topk(&of, 1, NULL, scratch, NULL), 0);
    support_says("baton_accumulate_topk: indices is NULL");
    assert_int_equal(baton_accumulate_topk(&of, 1, indices, NULL, NULL), 0);
    support_says("baton_accumulate_topk: scratch is NULL");
    assert_int_equal(baton_accumulate_at_least(&of, 1, NULL, 2), 0);
    support_says("baton_accumulate_at_least: indices is NULL");
    assert_true(sum[0] == 0 && sum[1] == 0);
    assert_int_equal(baton_accumulate_topk(&of, 1, indices, scratch, NULL), 1);
    assert_int_equal(indices[0], 1);
    char entries[16];
    baton_candidates_t candidates = {.capacity = 2};
    baton_candidates_find(&of, 1, NULL, scratch);
    support_says("baton_candidates_find: candidates is NULL");
    baton_candidates_find(&of, 1, &candidates, scratch);
    support_says("baton_candidates_find: candidates->entries is NULL");
    candidates.entries = entries;
    baton_candidates_find(&of, 1, &candidates, NULL);
    support_says("baton_candidates_find: scratch is NULL");
    baton_candidates_find(&of, 1, &candidates, scratch);
    assert_int_equal(candidates.count, 2);
    assert_int_equal(
        baton_entries_largest(BATON_F32, entries, 2, 1, NULL, list, scratch),
        0);
    support_says("baton_entries_largest: candidates is NULL");
    assert_int_equal(baton_entries_largest(BATON_F32, entries, 2, 1,
                                           &candidates, list, scratch),
                     1);
    assert_int_equal(list[0], 1);
    /* No magnitude is that large. */
    sum[0] = 0;
    assert_int_equal(baton_accumulate_at_least(&of, UINT64_MAX, indices, 2), 0);
    assert_true(sum[0] == 4 && sum[1] == 6);
}

static void test_entries_refuse_nothing(void **state)
{
    const baton_dtype_t dtype = BATON_F32;
    const uint32_t indices[1] = {1};
    float dense[2] = {1, 2};
    uint32_t list[2] = {0, 0};
    uint64_t scratch[64];
    size_t dropped;
    assert_int_equal(baton_entry_index(dtype, NULL, 0), 0);
    support_says("baton_entry_index: entries is NULL");
    baton_entries_gather(dtype, NULL, indices, 1, dense);
    support_says("baton_entries_gather: entries is NULL");
    baton_entries_gather(dtype, list, NULL, 1, dense);
    support_says("baton_entries_gather: indices is NULL");
    baton_entries_gather(dtype, list, indices, 1, NULL);
    support_says("baton_entries_gather: dense is NULL");
    baton_entries_take(dtype, NULL, indices, 1, dense);
    support_says("baton_entries_take: entries is NULL");
    baton_entries_take(dtype, list, NULL, 1, dense);
    support_says("baton_entries_take: indices is NULL");
    baton_entries_take(dtype, list, indices, 1, NULL);
    support_says("baton_entries_take: dense is NULL");
    baton_entries_put(dtype, NULL, 1, dense);
    support_says("baton_entries_put: entries is NULL");
    baton_entries_put(dtype, list, 1, NULL);
    support_says("baton_entries_put: dense is NULL");
    baton_entries_add(dtype, NULL, 1, 1, dense);
    support_says("baton_entries_add: entries is NULL");
    baton_entries_add(dtype, list, 1, 1, NULL);
    support_says("baton_entries_add: dense is NULL");
    baton_entries_split(dtype, NULL, 1, list, dense);
    support_says("baton_entries_split: entries is NULL");
    baton_entries_t lists[1] = {{NULL, 1}};
    assert_int_equal(baton_entries_sum(dtype, NULL, 1, list), 0);
    support_says("baton_entries_sum: lists is NULL");
    assert_int_equal(baton_entries_sum(dtype, lists, 1, list), 0);
    support_says("baton_entries_sum: lists->data is NULL");
    lists[0].data = list;
    assert_int_equal(baton_entries_sum(dtype, lists, 1, NULL), 0);
    support_says("baton_entries_sum: out is NULL");
    assert_int_equal(
        baton_entries_topk(dtype, NULL, 1, 1, NULL, &dropped, scratch), 0);
    support_says("baton_entries_topk: entries is NULL");
    assert_int_equal(baton_entries_topk(dtype, list, 1, 1, NULL, NULL, scratch),
                     0);
    support_says("baton_entries_topk: dropped_out is NULL");
    assert_int_equal(
        baton_entries_topk(dtype, list, 1, 1, NULL, &dropped, NULL), 0);
    support_says("baton_entries_topk: scratch is NULL");
    baton_elements_scale(dtype, NULL, 1, 2);
    support_says("baton_elements_scale: values is NULL");
    assert_true(baton_elements_measure(dtype, NULL, 1).sum == 0);
    support_says("baton_elements_measure: values is NULL");
    assert_true(dense[0] == 1 && dense[1] == 2);
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
        cmocka_unit_test(test_builders_refuse_nothing),
        cmocka_unit_test(test_tuning_refuses_nothing),
        cmocka_unit_test(test_partials_refuse_nothing),
        cmocka_unit_test(test_selections_refuse_nothing),
        cmocka_unit_test(test_accumulations_refuse_nothing),
        cmocka_unit_test(test_entries_refuse_nothing),
    };
    return cmocka_run_group_tests(tests, open_ranks, close_ranks);
}
