/* Calls with NULL or in the wrong state fail at once. Both are tested for
   build.h and engine.h, and NULL for coll.h, tuning.h, partial.h, select.h,
   sim.h and proof.h. */
#include "support/cluster.h"
#include "support/dense.h"

#include <baton/memory.h>
#include <baton/partial.h>
#include <baton/proof.h>
#include <baton/sim.h>
#include <baton/sparse.h>

#include <sys/wait.h>
#include <unistd.h>

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

static bool forget(void *arg, uint64_t epoch)
{
    return true;
}

/* Expects that the last error says that this argument is NULL. */
static void says_null(const char *function, const char *what)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s: %s is NULL", function, what);
    support_says(text);
}

/* These macros expect that function(arguments ...) sets a message that its
   argument `what` is NULL. REFUSES also expects that the function returns an
   error, and GIVES that it returns `value`. */
#define REFUSES(what, function, ...)                                           \
    (support_expect(function(__VA_ARGS__), BATON_ERR_INVALID),                 \
     says_null(#function, what))
#define GIVES(value, what, function, ...)                                      \
    (assert_true(function(__VA_ARGS__) == (value)), says_null(#function, what))
#define IGNORES(what, function, ...)                                           \
    (function(__VA_ARGS__), says_null(#function, what))

static void refuses(baton_status_t status, const char *text)
{
    support_fails(status, BATON_ERR_INVALID, text);
}

/* ---- processes that fork ------------------------------------------------- */

typedef struct inherited {
    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *schedule, *open;
    baton_partial_t *partial;
    baton_sparse_t *sparse;
    void *memory;
} inherited_t;

static int count_wrong(const char *call, baton_status_t status)
{
    bool right = status == BATON_ERR_STATE &&
                 strstr(baton_error_message(), "forked") != NULL;
    if (!right) {
        print_error("%s: %s\n", call, baton_error_message());
    }
    return !right;
}

/* Runs in the child. Returns the number of calls that were not refused. */
static int use_inherited(inherited_t *own)
{
    static float vector[8];
    baton_partial_result_t result;
    baton_sparse_result_t entries;
    void *made = NULL;
    bool done = false;
    int wrong = 0;
#define FORKED(call) (wrong += count_wrong(#call, call))
    FORKED(baton_schedule_start(own->schedule));
    FORKED(baton_schedule_test(own->schedule, &done));
    FORKED(baton_schedule_wait(own->schedule, -1));
    FORKED(baton_schedule_cancel(own->schedule));
    FORKED(baton_schedule_rebind(own->schedule, vector, vector));
    FORKED(baton_schedule_commit(own->open));
    FORKED(baton_schedule_destroy(own->open));
    FORKED(baton_schedule_destroy(own->schedule));
    FORKED(baton_partial_contribute(own->partial, vector));
    FORKED(baton_partial_start(own->partial));
    FORKED(baton_partial_test(own->partial, &done));
    FORKED(baton_partial_wait(own->partial, -1, &result));
    FORKED(baton_partial_pending(own->partial, vector, &done));
    FORKED(baton_partial_destroy(own->partial));
    FORKED(baton_sparse_start(own->sparse, vector));
    FORKED(baton_sparse_wait(own->sparse, -1, &entries));
    FORKED(baton_sparse_residual(own->sparse, vector));
    FORKED(baton_sparse_shrink(own->sparse, own->group, -1));
    FORKED(baton_sparse_destroy(own->sparse));
    FORKED(baton_barrier_now(own->group));
    FORKED(baton_barrier_create(own->group, NULL, &own->open));
    FORKED(baton_memory_alloc(own->group, 8192, &made));
    FORKED(baton_memory_free(own->group, own->memory));
    FORKED(baton_group_recover(own->group, -1));
    FORKED(baton_group_shrink(own->group, -1, &own->group));
    FORKED(baton_group_destroy(own->group));
    FORKED(baton_group_create_self(own->engine, &own->group));
    FORKED(baton_engine_close(own->engine));
    FORKED(baton_engine_open(NULL, &own->engine));
#undef FORKED
    return wrong + baton_engine_step(own->engine);
}

/* None of these calls hangs, although another thread may have held a lock, and
   the parent goes on. */
TEST_WITH(test_forked_children_are_refused, 1, SUPPORT_OWN_ENGINES)
{
    float vector[8] = {1};
    baton_partial_options_t dense = BATON_PARTIAL_OPTIONS;
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    inherited_t own = {.engine = cluster->engines[0],
                       .group = cluster->groups[0]};
    dense.on_loss = BATON_ON_LOSS_CONTINUE;
    dense.count = options.count = 8;
    dense.dtype = BATON_F32;
    options.k = 2;
    support_ok(baton_barrier_create(own.group, NULL, &own.schedule));
    own.open = support_schedule(own.group, "open");
    support_ok(baton_partial_create(own.group, &dense, &own.partial));
    support_ok(baton_sparse_create(own.group, &options, -1, &own.sparse));
    support_ok(baton_memory_alloc(own.group, 8192, &own.memory));
    support_run(own.schedule);
    pid_t child = fork();
    if (child == 0) {
        _exit(use_inherited(&own));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    baton_partial_result_t result;
    support_run(own.schedule);
    support_ok(baton_partial_contribute(own.partial, vector));
    support_ok(baton_partial_start(own.partial));
    support_ok(baton_partial_wait(own.partial, -1, &result));
    support_ok(baton_memory_free(own.group, own.memory));
    support_ok(baton_sparse_destroy(own.sparse));
    support_ok(baton_partial_destroy(own.partial));
    support_ok(baton_schedule_destroy(own.open));
    support_ok(baton_schedule_destroy(own.schedule));
}

/* ---- functions that build ---------------------------------------------- */

static uint64_t memory[2];
static const baton_view_t whole = {{0}, 0, 8};
static const baton_node_t first = {0};
static const baton_length_t length = {0};

/* Calls the i-th function that builds, and returns its name. Returns NULL after
   the last one. */
static const char *add(baton_schedule_t *s, int i)
{
    switch (i) {
#define ADDER(number, function, ...)                                           \
    case number:                                                               \
        (void)function(__VA_ARGS__);                                           \
        return #function;
#define SETTER(number, function, ...)                                          \
    case number:                                                               \
        function(__VA_ARGS__);                                                 \
        return #function;
        ADDER(0, baton_buffer_bind, s, memory, 8)
        ADDER(1, baton_buffer_bind_input, s, memory, 8)
        ADDER(2, baton_buffer_scratch, s, 8)
        ADDER(3, baton_add_send, s, 1, whole)
        ADDER(4, baton_add_recv, s, 1, whole)
        ADDER(5, baton_add_reduce_local, s, BATON_I64, BATON_SUM, whole, whole,
              whole)
        ADDER(6, baton_add_copy, s, whole, whole)
        ADDER(7, baton_add_nop, s)
        ADDER(8, baton_add_call, s, support_succeed, NULL)
        ADDER(9, baton_add_async, s, &completes, NULL)
        ADDER(10, baton_add_length, s)
        ADDER(11, baton_add_on_start, s)
        ADDER(12, baton_add_armed_recv, s, 1)
        ADDER(13, baton_add_activate, s, 1)
        SETTER(14, baton_set_length, s, first, length)
        SETTER(15, baton_before, s, first, first)
        SETTER(16, baton_set_need, s, first, 1)
        SETTER(17, baton_set_optional, s, first)
        SETTER(18, baton_enclose_end, s, (baton_enclosure_t){0, 0}, first,
               first)
        SETTER(19, baton_schedule_on_recover, s, forget, NULL)
        SETTER(20, baton_schedule_agree, s, "root %d", 0)
#undef ADDER
#undef SETTER
    default:
        return NULL;
    }
}

TEST(test_adders_refuse_no_schedule)
{
    const char *name;
    for (int i = 0; (name = add(NULL, i)) != NULL; i++) {
        says_null(name, "schedule");
    }
    (void)baton_enclose_begin(NULL);
    says_null("baton_enclose_begin", "schedule");
    assert_int_equal(baton_add_nop(NULL).index, UINT32_MAX);
}

/* The schedule stays as it was committed. Its next start returns the error. */
TEST(test_adders_refuse_a_committed_schedule)
{
    const char *name = "";
    for (int i = 0; name != NULL; i++) {
        baton_schedule_t *s = support_schedule(ranks->groups[0], "full");
        (void)baton_buffer_bind(s, memory, 8);
        (void)baton_add_copy(s, whole, whole);
        (void)baton_add_length(s);
        support_ok(baton_schedule_commit(s));
        support_run(s);
        name = add(s, i);
        if (name != NULL) {
            support_says(name);
            support_says("\"full\" is committed");
            support_fails(baton_schedule_start(s), BATON_ERR_STATE, name);
            support_says("after its commit and had no effect: build before it");
        }
        support_ok(baton_schedule_destroy(s));
    }
}

/* ---- functions that run schedules -------------------------------------- */

TEST(test_calls_refuse_nothing)
{
    baton_schedule_t *s = NULL;
    baton_failure_t failure;
    bool done;
    refuses(baton_schedule_create(NULL, "x", &s), "group is NULL");
    refuses(baton_schedule_create(ranks->groups[0], NULL, &s), "name is NULL");
    refuses(baton_schedule_create(ranks->groups[0], "x", NULL), "out is NULL");
    assert_null(s);
    REFUSES("schedule", baton_schedule_commit, NULL);
    support_ok(baton_schedule_destroy(NULL));
    REFUSES("schedule", baton_schedule_start, NULL);
    REFUSES("schedule", baton_schedule_test, NULL, &done);
    REFUSES("schedule", baton_schedule_wait, NULL, -1);
    REFUSES("schedule", baton_schedule_run, NULL, -1);
    REFUSES("schedule", baton_schedule_cancel, NULL);
    REFUSES("schedule", baton_schedule_failure, NULL, &failure);
    REFUSES("schedule", baton_buffer_rebind, NULL, (baton_buffer_t){0}, memory);
    REFUSES("group", baton_group_recover, NULL, -1);
    refuses(baton_async_complete((baton_async_t){NULL, 0}, BATON_OK),
            "baton_async_complete");
    IGNORES("schedule", baton_schedule_limit, NULL, 1);
    IGNORES("schedule", baton_schedule_fail, NULL, BATON_ERR_LIMIT, "x");
    GIVES(0, "schedule", baton_schedule_epoch, NULL);
    GIVES(-1, "schedule", baton_schedule_rank, NULL);
    GIVES(-1, "schedule", baton_schedule_size, NULL);
    assert_string_equal(baton_schedule_name(NULL), "");
    support_says("baton_schedule_name: schedule is NULL");
    GIVES(SIZE_MAX, "schedule", baton_buffer_bytes, NULL, whole.buffer);
    GIVES(NULL, "schedule", baton_view_address, NULL, whole);
    GIVES(false, "schedule", baton_view_is_private, NULL, whole);
    assert_int_equal(baton_group_rank(NULL), -1);
    assert_int_equal(baton_group_size(NULL), -1);
    support_ok(baton_group_destroy(NULL));
    support_ok(baton_engine_close(NULL));
    assert_false(baton_engine_step(NULL));
    int fd = -1;
    REFUSES("engine", baton_engine_arm, NULL, &fd);
    REFUSES("fd_out", baton_engine_arm, ranks->engines[0], NULL);
    support_expect(baton_engine_arm(ranks->engines[0], &fd),
                   BATON_ERR_UNSUPPORTED);
    support_says("no progress thread");
    REFUSES("engine", baton_engine_wait, NULL, NULL, NULL, 0);
    REFUSES("condition", baton_engine_wait, ranks->engines[0], NULL, NULL, 0);
    baton_engine_interrupt(NULL);
    baton_engine_notify(NULL);
}

TEST(test_calls_refuse_no_epoch)
{
    GIVES(0, "call", baton_call_epoch, NULL);
    GIVES(NULL, "call", baton_call_address, NULL, whole);
    GIVES(false, "call", baton_call_completed, NULL, first);
    GIVES(SIZE_MAX, "call", baton_call_length, NULL, length);
    REFUSES("call", baton_call_set_length, NULL, length, 1);
    GIVES(0, "call", baton_call_word, NULL, first);
    REFUSES("call", baton_call_set_word, NULL, first, 1);
    support_expect(baton_call_fail(NULL, BATON_ERR_LIMIT, "x"),
                   BATON_ERR_INVALID);
}

static void expect_state(baton_status_t status, const char *text)
{
    support_fails(status, BATON_ERR_STATE, text);
}

TEST(test_calls_refuse_a_schedule_without_commit)
{
    baton_failure_t failure;
    bool done = false;
    baton_schedule_t *s = support_schedule(ranks->groups[0], "raw");
    expect_state(baton_schedule_start(s), "\"raw\" is not committed: call "
                                          "baton_schedule_commit first");
    expect_state(baton_schedule_test(s, &done), "\"raw\"");
    expect_state(baton_schedule_wait(s, -1), "\"raw\"");
    expect_state(baton_schedule_cancel(s), "\"raw\"");
    expect_state(baton_schedule_failure(s, &failure), "\"raw\"");
    assert_false(done);
    assert_int_equal(baton_schedule_epoch(s), 0);
    support_ok(baton_schedule_destroy(s));
}

TEST(test_calls_refuse_a_schedule_at_rest)
{
    baton_failure_t failure;
    baton_schedule_t *s = support_schedule(ranks->groups[0], "rest");
    (void)baton_add_nop(s);
    support_ok(baton_schedule_commit(s));
    expect_state(baton_schedule_commit(s), "\"rest\"");
    expect_state(baton_schedule_cancel(s), "\"rest\"");
    expect_state(baton_schedule_failure(s, &failure),
                 "\"rest\" has not failed");
    refuses(baton_schedule_test(s, NULL), "done_out is NULL");
    refuses(baton_schedule_failure(s, NULL), "out is NULL");
    support_run(s);
    support_ok(baton_schedule_destroy(s));
}

/* ---- collectives ------------------------------------------------------- */

/* Replaces the last message by that of another call. */
static void forget_message(void)
{
    support_expect(baton_group_recover(NULL, 0), BATON_ERR_INVALID);
}

static void expect_refusals(const dense_builder_t *builder)
{
    const dense_case_t none = {.builder = builder, .size = 2, .no_args = true};
    const dense_case_t empty = {.builder = builder, .size = 2};
    forget_message();
    dense_build(&empty, NULL, NULL, NULL);
    support_says(": schedule is NULL");
    baton_schedule_t *s = support_schedule(ranks->groups[0], "none");
    dense_build(&none, s, NULL, NULL);
    refuses(baton_schedule_commit(s), ": args is NULL");
    support_ok(baton_schedule_destroy(s));
}

TEST(test_builders_refuse_nothing)
{
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        if (builder->algorithm.collective != BATON_COLLECTIVE_BARRIER) {
            expect_refusals(builder);
        }
    }
    forget_message();
    baton_add_barrier(NULL);
    support_says("barrier by dissemination: schedule is NULL");
    baton_add_broadcast_binomial(NULL, NULL);
    support_says("binomial broadcast: schedule is NULL");
    assert_int_equal(baton_add_activation(NULL, first).index, UINT32_MAX);
    support_says("activation: schedule is NULL");
}

TEST(test_tuning_refuses_nothing)
{
    baton_algorithm_t algorithm;
    baton_choice_t choice;
    GIVES(false, "out", baton_algorithm_get, 0, NULL);
    REFUSES("name", baton_algorithm_find, BATON_COLLECTIVE_SCAN, NULL,
            &algorithm);
    REFUSES("name", baton_op_find, NULL, NULL);
    REFUSES("out", baton_dtype_find, "f32", NULL);
    refuses(baton_costs_get(NULL), "out: NULL");
    refuses(baton_choose(NULL, &choice), "case: NULL");
    REFUSES("out", baton_choose, &(baton_choice_case_t)BATON_CHOICE_CASE, NULL);
    assert_true(baton_algorithm_get(0, &algorithm));
    assert_true(baton_algorithm_cost_us(&algorithm, NULL) == 0);
    assert_true(baton_algorithm_host_us(&algorithm, NULL) == 0);
    assert_true(baton_algorithm_host_us(NULL, &(baton_cost_case_t){0}) == 0);
    assert_true(baton_algorithm_is_exact(&algorithm, NULL));
    assert_int_equal(baton_op_element_bytes(NULL, BATON_F64), 8);
    assert_false(baton_variable_get(0, NULL));
}

TEST(test_simulators_and_proofs_refuse_nothing)
{
    baton_distribution_t none = {0};
    baton_proof_t *proof;
    uint32_t element;
    refuses(baton_sim_epoch(NULL, NULL), "sim is NULL");
    refuses(baton_sim_run(NULL, -1), "sim is NULL");
    refuses(baton_sim_at(NULL, 0, NULL, NULL), "sim is NULL");
    refuses(baton_sim_set_lag(NULL, none), "sim is NULL");
    refuses(baton_sim_set_speed(NULL, 0, 1), "sim is NULL");
    refuses(baton_sim_kill(NULL, 0), "sim is NULL");
    refuses(baton_sim_fail_send(NULL, 0, 1), "sim is NULL");
    IGNORES("sim", baton_sim_trace, NULL, NULL, NULL);
    assert_null(baton_sim_group(NULL, 0));
    assert_null(baton_sim_schedule(NULL, 0));
    assert_true(baton_sim_now_us(NULL) == 0);
    assert_int_equal(baton_sim_totals(NULL).messages, 0);
    GIVES(0, "schedule", baton_schedule_ended_us, NULL);
    REFUSES("text", baton_distribution_parse, NULL, &none);
    REFUSES("out", baton_distribution_parse, "0", NULL);
    assert_true(baton_distribution_sample(NULL, 1, 1, 1) == 0);
    REFUSES("out", baton_proof_create, 1, NULL);
    GIVES(NULL, "proof", baton_proof_op, NULL);
    REFUSES("proof", baton_proof_fill, NULL, 0, 0, 1, &element);
    REFUSES("proof", baton_proof_check, NULL, NULL, 0, 1, &element);
    support_ok(baton_proof_create(1, &proof));
    REFUSES("elements", baton_proof_fill, proof, 0, 0, 1, NULL);
    REFUSES("elements", baton_proof_check, proof, NULL, 0, 1, NULL);
    support_ok(baton_proof_destroy(proof));
    assert_int_equal(baton_partial_elect(1, 1, 0), 0);
}

TEST(test_partials_refuse_nothing)
{
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    baton_partial_t *p = NULL;
    baton_partial_result_t seen;
    bool flag;
    options.count = 1;
    options.dtype = BATON_F32;
    refuses(baton_partial_create(NULL, &options, &p), "group is NULL");
    refuses(baton_partial_create(ranks->groups[0], NULL, &p),
            "partial options: NULL");
    REFUSES("out", baton_partial_create, ranks->groups[0], &options, NULL);
    support_ok(baton_partial_destroy(NULL));
    REFUSES("partial", baton_partial_contribute, NULL, memory);
    REFUSES("partial", baton_partial_start, NULL);
    REFUSES("partial", baton_partial_wait, NULL, 0, &seen);
    REFUSES("partial", baton_partial_pending, NULL, memory, &flag);
    support_ok(baton_partial_create(ranks->groups[0], &options, &p));
    refuses(baton_partial_contribute(p, NULL), "data is NULL");
    REFUSES("out", baton_partial_wait, p, 0, NULL);
    REFUSES("done_out", baton_partial_test, p, NULL);
    REFUSES("targets", baton_partial_wait_into, p, 0, NULL, &seen);
    refuses(baton_partial_pending(p, memory, NULL), "any_out is NULL");
    support_ok(baton_partial_destroy(p));
}

/* Every function, without each of its pointers. */
TEST(test_selections_refuse_nothing)
{
    const baton_dtype_t f32 = BATON_F32;
    static const float values[2] = {1, 2};
    const baton_selection_t two = {.dtype = f32, .values = values, .count = 2};
    float sum[2] = {0};
    baton_accumulation_t of = {.dtype = f32, .count = 2};
    uint32_t at[2];
    uint64_t room[64], list[2] = {0};
    size_t n;
    baton_candidates_t found = {.entries = list, .capacity = 1, .low = 1};
    baton_candidates_t none = {.capacity = 1};
    baton_entries_t one = {list, 1}, empty = {NULL, 1};
    GIVES(0, "from", baton_select_topk, NULL, 1, at, room, NULL);
    GIVES(0, "from", baton_select_trimmed, NULL, 1, at, room);
    GIVES(0, "from", baton_select_search, NULL, 1, at, room);
    GIVES(0, "indices", baton_select_topk, &two, 1, NULL, room, NULL);
    GIVES(0, "scratch", baton_select_topk, &two, 1, at, NULL, NULL);
    GIVES(0, "from", baton_select_at_least, NULL, 1, at, 2);
    GIVES(0, "indices", baton_select_at_least, &two, 1, NULL, 2);
    GIVES(0, "from", baton_select_count, NULL, 1);
    GIVES(0, "of->sum", baton_accumulate_topk, &of, 1, at, room, NULL);
    GIVES(0, "of->sum", baton_accumulate_at_least, &of, 1, at, 2);
    IGNORES("of->sum", baton_candidates_find, &of, 1, &found, room);
    of.sum = sum;
    of.left = of.right = of.velocity = values;
    GIVES(0, "of->new_velocity", baton_accumulate_at_least, &of, 1, at, 2);
    of.velocity = NULL;
    GIVES(0, "indices", baton_accumulate_topk, &of, 1, NULL, room, NULL);
    GIVES(0, "indices", baton_accumulate_at_least, &of, 1, NULL, 2);
    IGNORES("candidates", baton_candidates_find, &of, 1, NULL, room);
    IGNORES("candidates->entries", baton_candidates_find, &of, 1, &none, room);
    IGNORES("scratch", baton_candidates_find, &of, 1, &found, NULL);
    /* No magnitude is as large. */
    assert_int_equal(baton_accumulate_at_least(&of, UINT64_MAX, at, 2), 0);
    assert_true(sum[0] == 2 && sum[1] == 4);
    IGNORES("entries", baton_entries_gather, f32, NULL, at, 1, sum);
    IGNORES("indices", baton_entries_gather, f32, list, NULL, 1, sum);
    IGNORES("entries", baton_entries_split, f32, NULL, 1, at, NULL);
    GIVES(0, "entries", baton_entry_index, f32, NULL, 0);
    GIVES(0, "lists", baton_entries_sum, f32, NULL, 1, at);
    GIVES(0, "lists->data", baton_entries_sum, f32, &empty, 1, at);
    GIVES(0, "out", baton_entries_sum, f32, &one, 1, NULL);
    GIVES(0, "dense", baton_entries_sum_onto, f32, NULL, &one, 1, at);
    GIVES(0, "entries", baton_entries_common, f32, NULL, 1, at, 1, true, room);
    GIVES(0, "indices", baton_entries_common, f32, list, 1, NULL, 1, 0, room);
    GIVES(0, "out", baton_entries_common, f32, list, 1, at, 1, true, NULL);
#define LARGEST(what, ...)                                                     \
    GIVES(0, what, baton_entries_largest, f32, __VA_ARGS__)
    LARGEST("candidates", list, 1, 1, NULL, at, room);
    LARGEST("entries", NULL, 1, 1, &found, at, room);
    LARGEST("out", list, 1, 1, &found, NULL, room);
    LARGEST("scratch", list, 1, 1, &found, at, NULL);
    GIVES(0, "entries", baton_entries_topk, f32, NULL, 1, 1, NULL, &n, room);
    GIVES(0, "dropped_out", baton_entries_topk, f32, list, 1, 1, NULL, NULL,
          at);
    GIVES(0, "scratch", baton_entries_topk, f32, list, 1, 1, NULL, &n, NULL);
    IGNORES("values", baton_elements_scale, f32, NULL, 1, 2);
    assert_true(baton_elements_measure(f32, NULL, 1).sum == 0);
    says_null("baton_elements_measure", "values");
    assert_true(sum[0] == 2 && sum[1] == 4);
}

RUN_TESTS_BETWEEN(open_ranks, close_ranks)
