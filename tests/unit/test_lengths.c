/* Lengths that are only known in the epoch: a receive or a call node sets a
   length, and other nodes work on as many bytes. */
#include "support/cluster.h"

enum { COUNT = 1000, BYTES = COUNT * 8 };

/* ---- lengths that vary ------------------------------------------------- */

/* Rank 0 sends as many numbers as its call says; rank 1 doubles the numbers
   that it receives, and sends them back.

       rank 0   set --> send         recv (a length of its own)
       rank 1   recv --> reduce --> copy --> send */
typedef struct echo {
    support_cluster_t *cluster;
    baton_schedule_t **schedules; /* the schedules of the two ranks */
    uint64_t sent[COUNT], kept[COUNT], back[COUNT];
    size_t wanted; /* in bytes; SIZE_MAX: the call does not set the length */
    size_t seen;
    baton_length_t out, in;
    char message[256]; /* the error message that the call has got */
} echo_t;

static baton_status_t set_wanted(void *arg, baton_call_t *call)
{
    echo_t *echo = arg;
    if (echo->wanted == SIZE_MAX) {
        return BATON_OK;
    }
    baton_status_t status =
        baton_call_set_length(call, echo->out, echo->wanted);
    if (status != BATON_OK) {
        (void)snprintf(echo->message, sizeof echo->message, "%s",
                       baton_error_message());
    }
    return status;
}

static baton_status_t see(void *arg, baton_call_t *call)
{
    echo_t *echo = arg;
    echo->seen = baton_call_length(call, echo->in);
    return BATON_OK;
}

static void build_sender(baton_schedule_t *s, echo_t *echo)
{
    baton_node_t set = baton_add_call(s, set_wanted, echo);
    baton_node_t send =
        baton_add_send(s, 1, support_view(s, echo->sent, BYTES));
    baton_node_t recv =
        baton_add_recv(s, 1, support_view(s, echo->back, BYTES));
    echo->out = baton_add_length(s);
    echo->in = baton_add_length(s);
    baton_set_length(s, send, echo->out);
    baton_set_length(s, recv, echo->in);
    baton_before(s, set, send);
    baton_before(s, recv, baton_add_call(s, see, echo));
}

static void build_echo(baton_schedule_t *s, echo_t *echo)
{
    baton_view_t in = support_scratch(s, BYTES);
    baton_view_t kept = support_view(s, echo->kept, BYTES);
    baton_node_t nodes[] = {
        baton_add_recv(s, 0, in),
        baton_add_reduce_local(s, BATON_U64, BATON_SUM, in, in, in),
        baton_add_copy(s, kept, in),
        baton_add_send(s, 0, kept),
    };
    baton_length_t length = baton_add_length(s);
    for (int i = 0; i < 4; i++) {
        baton_set_length(s, nodes[i], length);
        if (i > 0) {
            baton_before(s, nodes[i - 1], nodes[i]);
        }
    }
}

static void open_echo(echo_t *echo, support_cluster_t *cluster)
{
    memset(echo, 0, sizeof *echo);
    echo->cluster = cluster;
    echo->schedules = support_schedules_create(cluster, "echo");
    build_sender(echo->schedules[0], echo);
    build_echo(echo->schedules[1], echo);
    support_schedules_commit(cluster, echo->schedules);
}

static void close_echo(echo_t *echo)
{
    support_schedules_destroy(echo->cluster, echo->schedules);
}

TEST_EACH(test_length_is_each_epochs_own, 2)
{
    static echo_t echo;
    support_random_t random = support_random(support_seed(), 5);
    open_echo(&echo, cluster);
    for (uint64_t epoch = 1; epoch <= 200; epoch++) {
        uint64_t sample = support_random_below(&random, 4);
        size_t count =
            sample < 2 ? sample * COUNT : support_random_below(&random, COUNT);
        for (size_t k = 0; k < COUNT; k++) {
            echo.sent[k] = epoch * COUNT + k;
            echo.kept[k] = echo.back[k] = 7;
        }
        bool set = support_random_below(&random, 5) != 0;
        /* Without a length, nodes work on their whole views. */
        count = set ? count : COUNT;
        echo.wanted = set ? count * 8 : SIZE_MAX;
        support_schedules_run(cluster, echo.schedules);
        assert_int_equal(echo.seen, count * 8);
        for (size_t k = 0; k < COUNT; k++) {
            uint64_t wanted = k < count ? 2 * (epoch * COUNT + k) : 7;
            assert_int_equal(echo.back[k], wanted);
            assert_int_equal(echo.kept[k], wanted);
        }
    }
    close_echo(&echo);
}

/* ---- refusals in an epoch ---------------------------------------------- */

TEST_MANUALLY(test_length_above_the_view_is_refused, 2)
{
    static echo_t echo;
    open_echo(&echo, cluster);
    echo.wanted = BYTES + 1;
    support_ok(baton_schedule_start(echo.schedules[0]));
    support_ends(echo.schedules[0], BATON_ERR_INVALID);
    assert_non_null(
        strstr(echo.message,
               "length 0 can't be 8001: its smallest view has 8000 bytes"));
    close_echo(&echo);
}

TEST_EACH(test_length_of_broken_elements_fails_the_epoch, 2)
{
    static echo_t echo;
    open_echo(&echo, cluster);
    echo.wanted = 12;
    support_ok(baton_schedule_start(echo.schedules[0]));
    support_ok(baton_schedule_start(echo.schedules[1]));
    for (int rank = 0; rank < 2; rank++) {
        support_ends(echo.schedules[rank], BATON_ERR_INVALID);
        support_says("not a whole number of elements of 8 bytes");
    }
    close_echo(&echo);
}

/* A message that is longer than the view of its receive. */
TEST_EACH(test_length_of_a_message_above_the_view_fails, 2)
{
    baton_schedule_t **s = support_schedules_create(cluster, "more");
    uint64_t numbers[3] = {1, 2, 3};
    (void)baton_add_send(s[0], 1, support_view(s[0], numbers, 16));
    baton_node_t recv =
        baton_add_recv(s[1], 0, support_view(s[1], &numbers[2], 8));
    baton_set_length(s[1], recv, baton_add_length(s[1]));
    support_schedules_commit(cluster, s);
    support_ok(baton_schedule_start(s[1]));
    support_ok(baton_schedule_start(s[0]));
    support_ends(s[1], BATON_ERR_MISMATCH);
    support_says("up to 8 bytes and got 16");
    assert_int_equal(numbers[2], 3);
    support_schedules_destroy(cluster, s);
}

/* ---- refusals by commit ------------------------------------------------ */

static void expect_refused(baton_schedule_t *s, baton_status_t status,
                           const char *text)
{
    support_fails(baton_schedule_commit(s), status, text);
    support_ok(baton_schedule_destroy(s));
}

TEST_MANUALLY(test_length_is_checked_by_commit, 2)
{
    uint64_t numbers[4] = {0};
    baton_schedule_t *s = support_schedule(cluster->groups[0], "unordered");
    baton_length_t length = baton_add_length(s);
    baton_set_length(s, baton_add_recv(s, 1, support_view(s, &numbers[0], 8)),
                     length);
    baton_set_length(s, baton_add_send(s, 1, support_view(s, &numbers[1], 8)),
                     length);
    expect_refused(s, BATON_ERR_HAZARD,
                   "send#1 works on length 0, which recv#0 sets, but is not "
                   "ordered after it");

    s = support_schedule(cluster->groups[0], "two");
    length = baton_add_length(s);
    baton_set_length(s, baton_add_recv(s, 1, support_view(s, &numbers[0], 8)),
                     length);
    baton_set_length(s, baton_add_recv(s, 1, support_view(s, &numbers[1], 8)),
                     length);
    expect_refused(s, BATON_ERR_INVALID, "recv#0 and recv#1 both set length 0");
}
