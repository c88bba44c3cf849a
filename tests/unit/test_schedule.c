/* Errors of adders, with the node's name and numbers: each sticks until commit
   reports it. test_commit.c has the errors of commit. Also the drawing of a
   schedule. */
#include "support/refusal.h"
#include <limits.h>
#include <unistd.h>

/* Expects that commit fails after adder(schedule, arguments ...) in a new
   schedule, and that node 0 is not there if it is wrong. */
#define REFUSED(text, adder, ...)                                              \
    do {                                                                       \
        baton_schedule_t *s_ = refusal_begin();                                \
        (void)adder(s_, __VA_ARGS__);                                          \
        assert_true(baton_enclose_begin(s_).node == 0 ||                       \
                    strstr(text, "#0: ") == NULL);                             \
        refused(s_, BATON_ERR_INVALID, text);                                  \
    } while (0)

/* Returns a view of a part of the buffer, which has 16 bytes. */
static baton_view_t part(size_t offset, size_t bytes)
{
    return refusal_part(offset, bytes);
}

TEST(test_schedule_refuses_wrong_views)
{
    REFUSED("send#0: its view names buffer 7, and \"wrong\" has 1: "
            "baton_buffer_bind gives one",
            baton_add_send, 1, baton_view((baton_buffer_t){7}, 0, 4));
    REFUSED("recv#0: its view is 16 bytes at 8 of buffer 0, which has 16",
            baton_add_recv, 1, part(8, 16));
    REFUSED("copy#0: its view is 0 bytes at 17 of buffer 0, which has 16",
            baton_add_copy, part(17, 0), part(0, 0));
    REFUSED("send#0: its view is 18446744073709551615 bytes at 4 of buffer 0",
            baton_add_send, 1, part(4, SIZE_MAX));
    REFUSED("copy#0: its views have 8 and 4 bytes", baton_add_copy, part(0, 8),
            part(8, 4));
    REFUSED("reduce#0: its views have 8 and 4 bytes", baton_add_reduce_local,
            BATON_F32, BATON_SUM, part(0, 8), part(0, 8), part(8, 4));
    REFUSED("copy#0 writes 12 bytes at 0 of buffer 0 and reads 12 at 4",
            baton_add_copy, part(0, 12), part(4, 12));
    REFUSED("reduce#0 writes 8 bytes at 8 of buffer 0 and reads 8 at 4",
            baton_add_reduce_local, BATON_F32, BATON_SUM, part(8, 8),
            part(8, 8), part(4, 8));
}

TEST(test_schedule_takes_views_that_are_one)
{
    baton_schedule_t *s = refusal_begin();
    refusal_memory[0] = 1;
    refusal_memory[1] = 2;
    baton_node_t copy = baton_add_copy(s, part(0, 8), part(0, 8));
    baton_node_t reduce = baton_add_reduce_local(
        s, BATON_F32, BATON_SUM, part(0, 8), part(0, 8), part(0, 8));
    baton_before(s, copy, reduce);
    support_ok(baton_schedule_commit(s));
    support_run(s);
    assert_float_equal(refusal_memory[0], 2, 0);
    assert_float_equal(refusal_memory[1], 4, 0);
    support_ok(baton_schedule_destroy(s));
}

TEST(test_schedule_refuses_wrong_arguments)
{
    static const baton_op_t hollow = {.name = "hollow"};
    static const baton_async_ops_t nothing = {.start = NULL};
    REFUSED("send#0: peer is -1, must be a rank of the group, 0 to 2",
            baton_add_send, -1, part(0, 4));
    REFUSED("recv#0: peer is 3, must be a rank of the group, 0 to 2",
            baton_add_recv, 3, part(0, 4));
    REFUSED("armed_recv#0: peer is 3, must be a rank of the group, 0 to 2",
            baton_add_armed_recv, 3);
    REFUSED(
        "activate#0: peer is -2147483648, must be a rank of the group, 0 to 2",
        baton_add_activate, INT_MIN);
    REFUSED("reduce#0: dtype is 99, which is no element type",
            baton_add_reduce_local, (baton_dtype_t)99, BATON_SUM, part(0, 4),
            part(0, 4), part(4, 4));
    REFUSED("reduce#0: dtype is 0, which is no element type; set BATON_F32",
            baton_add_reduce_local, BATON_DTYPE_NONE, BATON_SUM, part(0, 4),
            part(0, 4), part(4, 4));
    REFUSED("reduce#0: 6 bytes are not a whole number of elements of 4 bytes",
            baton_add_reduce_local, BATON_F32, BATON_SUM, part(0, 6),
            part(0, 6), part(8, 6));
    REFUSED("reduce#0: op is NULL", baton_add_reduce_local, BATON_F32, NULL,
            part(0, 4), part(0, 4), part(4, 4));
    REFUSED("reduce#0: op->reduce is NULL", baton_add_reduce_local, BATON_F32,
            &hollow, part(0, 4), part(0, 4), part(4, 4));
    REFUSED("reduce#0: op is minloc, which does not reduce f32; allowed: sum, "
            "prod, min, max",
            baton_add_reduce_local, BATON_F32, BATON_MINLOC, part(0, 4),
            part(0, 4), part(4, 4));
    REFUSED("call#0: it has no function", baton_add_call, NULL, NULL);
    REFUSED("async#0: it has no start", baton_add_async, &nothing, NULL);
    REFUSED("async#0: it has no functions", baton_add_async, NULL, NULL);
    REFUSED("there is no buffer 1; the schedule has 1", baton_buffer_set_memory,
            (baton_buffer_t){1}, BATON_MEMORY_HOST);
    REFUSED("belongs to another schedule", baton_enclose_end,
            (baton_enclosure_t){0, 1}, baton_add_nop(s_), baton_add_nop(s_));
}

TEST(test_schedule_refuses_unknown_nodes)
{
    const baton_node_t other = refusal_foreign;
    REFUSED("baton_before names node 9, and \"wrong\" has 1", baton_before,
            baton_add_nop(s_), other);
    REFUSED("baton_before names node 9, and \"wrong\" has 1", baton_before,
            other, baton_add_nop(s_));
    REFUSED("baton_set_need names node 9, and \"wrong\" has 0", baton_set_need,
            other, BATON_NEED_ANY);
    REFUSED("baton_set_optional names node 9, and \"wrong\" has 0",
            baton_set_optional, other);
    REFUSED("baton_enclose_end names node 9, and \"wrong\" has 0",
            baton_enclose_end, baton_enclose_begin(s_), other, other);
    REFUSED("node 0 and length 3, and the schedule has 1 and 0",
            baton_set_length, baton_add_recv(s_, 1, part(0, 8)),
            (baton_length_t){3});
    REFUSED("nop#0 has no operand", baton_set_length, baton_add_nop(s_),
            baton_add_length(s_));
}

TEST(test_schedule_first_error_sticks)
{
    baton_schedule_t *s = refusal_begin();
    baton_node_t bad = baton_add_send(s, 5, part(0, 4));
    baton_before(s, bad, baton_add_nop(s));
    (void)baton_add_call(s, NULL, NULL);
    baton_schedule_fail(s, BATON_ERR_LIMIT, "too late");
    refuses(s, BATON_ERR_INVALID,
            "send#0: peer is 5, must be a rank of the group, 0 to 2");
    refused(s, BATON_ERR_INVALID,
            "send#0: peer is 5, must be a rank of the group, 0 to 2");
}

TEST(test_schedule_builders_error_sticks)
{
    baton_schedule_t *s = refusal_begin();
    baton_schedule_fail(s, BATON_ERR_LIMIT, "ring of %d", 7);
    (void)baton_add_send(s, 5, part(0, 4));
    refused(s, BATON_ERR_LIMIT, "ring of 7");
}

TEST(test_schedule_tells_hosts_of_its_ranks_alone)
{
    baton_schedule_t *s = refusal_begin();
    const int wrong[] = {INT_MIN, -1, 3, INT_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(baton_schedule_host_of(s, wrong[i]), -1);
        support_says("rank is ");
        support_says("; allowed: 0 to 2");
    }
    assert_int_equal(baton_schedule_host_of(s, 2), 0);
    support_ok(baton_schedule_destroy(s));
}

/* ---- the drawing ------------------------------------------------------- */

static void draws(const baton_schedule_t *schedule, const char *expected)
{
    char path[] = "/tmp/test_schedule.XXXXXX";
    char text[1024];
    int file = mkstemp(path);
    support_ok(baton_schedule_write_dot(schedule, path));
    ssize_t bytes = read(file, text, sizeof text - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
    assert_string_equal(text, expected);
    close(file);
    unlink(path);
}

TEST(test_schedule_is_drawn_before_and_after_the_commit)
{
    static const char drawn[] =
        "strict digraph {\n"
        "    label=\"rank 0 of 3: a \\\"quoted\\\" name\";\n"
        "    node [shape=box];\n"
        "    \"recv#0\" [label=\"recv#0\\nfrom rank 1\\n4 bytes\"];\n"
        "    \"recv#1\" [label=\"recv#1\\nfrom rank 2\\n4 bytes\", "
        "color=gray];\n"
        "    \"nop#2\" [label=\"nop#2\"];\n"
        "    \"send#3\" [label=\"send#3\\nto rank 2\\n8 bytes\"];\n"
        "    \"recv#0\" -> \"nop#2\" [style=dashed, label=\"1 of 2\"];\n"
        "    \"recv#1\" -> \"nop#2\" [style=dashed, label=\"1 of 2\"];\n"
        "    \"nop#2\" -> \"send#3\";\n"
        "}\n";
    baton_schedule_t *s = refusal_begin_named("a \"quoted\" name");
    baton_node_t first = baton_add_recv(s, 1, part(0, 4));
    baton_node_t second = baton_add_recv(s, 2, part(4, 4));
    baton_node_t either = baton_add_nop(s);
    baton_set_optional(s, second);
    baton_set_need(s, either, BATON_NEED_ANY);
    baton_before(s, first, either);
    baton_before(s, second, either);
    baton_before(s, either, baton_add_send(s, 2, part(8, 8)));
    draws(s, drawn);
    support_ok(baton_schedule_commit(s));
    draws(s, drawn);
    support_fails(baton_schedule_write_dot(s, "/no/such/file"),
                  BATON_ERR_SYSTEM,
                  "name\" can't be drawn in \"/no/such/file\": No such file");
    support_fails(baton_schedule_write_dot(s, NULL), BATON_ERR_INVALID, "path");
    support_ok(baton_schedule_destroy(s));
}

RUN_TESTS_BETWEEN(refusal_open, refusal_close)
