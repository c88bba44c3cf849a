/* Structs of options that are older or newer than the library, and invalid
   statuses. */
#include "support/cluster.h"

#include "base/error.h"
#include "base/options.h"
#include "transport/inproc/rank.h"

typedef struct options {
    size_t size;
    uint32_t first;
    uint32_t second;
} options_t;

typedef struct newer {
    options_t known;
    uint64_t later;
} newer_t;

static baton_status_t read_options(options_t *out, const void *given)
{
    return baton__options_read(out, sizeof *out, given, "some options",
                               "SOME_OPTIONS");
}

TEST(test_options_of_an_older_header)
{
    const options_t older = {offsetof(options_t, second), 3, 77};
    options_t out = {0, 9, 9};
    support_ok(read_options(&out, &older));
    assert_int_equal(out.size, sizeof out);
    assert_int_equal(out.first, 3);
    assert_int_equal(out.second, 0);
}

TEST(test_options_of_a_newer_header)
{
    newer_t newer = {{sizeof newer, 3, 4}, 0};
    options_t out = {0};
    support_ok(read_options(&out, &newer));
    assert_int_equal(out.size, sizeof out);
    assert_int_equal(out.second, 4);
    newer.later = 1;
    support_fails(read_options(&out, &newer), BATON_ERR_INVALID,
                  "some options: size is 24");
}

TEST(test_options_that_were_not_initialised)
{
    static const size_t sizes[] = {0, 4, SIZE_MAX};
    options_t out = {5, 6, 7};
    for (size_t i = 0; i < 3; i++) {
        const options_t given = {sizes[i], 1, 2};
        support_fails(read_options(&out, &given), BATON_ERR_INVALID,
                      "initialise with SOME_OPTIONS");
    }
    support_expect(read_options(&out, NULL), BATON_ERR_INVALID);
    assert_int_equal(out.second, 7);
}

/* A struct that the library fills has the size that the caller's header gives
   it. */
TEST(test_a_struct_that_is_filled_keeps_its_size)
{
    const options_t whole = {sizeof whole, 3, 4};
    options_t older = {offsetof(options_t, second), 9, 9};
    newer_t newer = {{sizeof newer, 9, 9}, 9};
    support_ok(baton__options_write(&older, &whole, sizeof whole, "some",
                                    "SOME_OPTIONS"));
    assert_int_equal(older.size, offsetof(options_t, second));
    assert_int_equal(older.first, 3);
    assert_int_equal(older.second, 9);
    support_ok(baton__options_write(&newer, &whole, sizeof whole, "some",
                                    "SOME_OPTIONS"));
    assert_int_equal(newer.known.size, sizeof newer);
    assert_int_equal(newer.known.second, 4);
    assert_int_equal(newer.later, 0);
    older.size = 7;
    support_fails(baton__options_write(&older, &whole, sizeof whole, "some",
                                       "SOME_OPTIONS"),
                  BATON_ERR_INVALID, "some: size is 7");
    support_expect(baton__options_write(NULL, &whole, sizeof whole, "some",
                                        "SOME_OPTIONS"),
                   BATON_ERR_INVALID);
    assert_int_equal(older.first, 3);
}

static bool withdraw_receive(void *endpoint, baton_token_t token, int peer)
{
    return true;
}

TEST(test_a_transport_lacks_a_function)
{
    baton_engine_t *engine;
    baton_group_t *group = NULL;
    baton_transport_t transport = baton__inproc_transport;
    support_ok(baton_engine_open(NULL, &engine));
    transport.size = offsetof(baton_transport_t, close);
    support_fails(
        baton_group_create(engine, &transport, &transport, 0, 1, &group),
        BATON_ERR_INVALID, "a function of transport \"inproc\" is NULL");
    transport = baton__inproc_transport;
    transport.withdraw_receive = withdraw_receive;
    support_fails(
        baton_group_create(engine, &transport, &transport, 0, 1, &group),
        BATON_ERR_INVALID, "only one of post_receive and withdraw_receive");
    assert_null(group);
    support_ok(baton_engine_close(engine));
}

TEST(test_codes_that_are_no_status)
{
    assert_int_equal(baton__failure_of(BATON_ERR_DEADLOCK), BATON_ERR_DEADLOCK);
    assert_int_equal(baton__failure_of(BATON_SKIP), BATON_ERR_INVALID);
    assert_int_equal(baton__failure_of(-1000), BATON_ERR_INVALID);
    assert_int_equal(baton__failure_of(17), BATON_ERR_INVALID);
}

static baton_status_t return_nonsense(void *arg, baton_call_t *call)
{
    return *(const baton_status_t *)arg;
}

/* The value that a call node returns reaches the application as a status. */
TEST_MANUALLY(test_a_call_node_returns_no_status, 1)
{
    const int nonsense[] = {-1000, -99, 2, 1000};
    for (int i = 0; i < 4; i++) {
        char text[32];
        baton_status_t returned;
        memcpy(&returned, &nonsense[i], sizeof returned);
        baton_schedule_t *schedule =
            support_schedule(cluster->groups[0], "nonsense");
        (void)baton_add_call(schedule, return_nonsense, &returned);
        support_ok(baton_schedule_commit(schedule));
        support_ok(baton_schedule_start(schedule));
        support_ends(schedule, BATON_ERR_INVALID);
        (void)snprintf(text, sizeof text, "returned %d", nonsense[i]);
        support_says(text);
        returned = BATON_OK;
        support_run(schedule);
        support_ok(baton_schedule_destroy(schedule));
    }
}
