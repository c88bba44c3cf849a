/* Schedules as text: the dumps of small ones, and the errors. */
#include "base/alloc.h"
#include "support/cmocka.h"
#include "support/refusal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what was written -------------------------------------------------- */

static char text[1 << 17];
static size_t used;

static void collect(void *arg, const char *piece)
{
    assert_ptr_equal(arg, text);
    size_t length = strlen(piece);
    assert_true(used + length < sizeof(text));
    memcpy(text + used, piece, length + 1);
    used += length;
}

static const char *dot_of(const baton_schedule_t *schedule)
{
    used = 0;
    text[0] = '\0';
    support_ok(baton_schedule_dot(schedule, collect, text));
    return text;
}

/* Appends, so that the blocks of all ranks form a file. */
static void add_goal(const baton_schedule_t *schedule, double gamma_ns)
{
    support_ok(baton_schedule_goal(schedule, gamma_ns, collect, text));
}

static void begin_text(const char *format, int value)
{
    used = (size_t)snprintf(text, sizeof(text), format, value);
}

static void refuses_goal(const baton_schedule_t *schedule, double gamma_ns,
                         baton_status_t status, const char *says)
{
    begin_text("nothing", 0);
    support_expect(baton_schedule_goal(schedule, gamma_ns, collect, text),
                   status);
    assert_string_equal(text, "nothing");
    assert_non_null(strstr(baton_error_message(), "GOAL of \""));
    assert_non_null(strstr(baton_error_message(), says));
}

/* ---- small schedules --------------------------------------------------- */

static baton_schedule_t *begin(const char *name)
{
    baton_schedule_t *schedule =
        support_schedule(support_cluster_of(3)->groups[0], name);
    return schedule;
}

/* Every kind of node, an optional one, needs, and an edge that was added twice.
 */
static baton_schedule_t *one_of_each(void)
{
    static baton_op_t nameless, quoted = {.name = "a\"b"};
    nameless.reduce = quoted.reduce = BATON_SUM->reduce;
    baton_schedule_t *s = begin("so \"to\" \\ speak\n<&>");
    baton_view_t a = support_scratch(s, 16);
    baton_view_t b = support_scratch(s, 16);
    baton_view_t c = support_scratch(s, 16);
    baton_node_t recv = baton_add_recv(s, 1, a);
    baton_node_t late = baton_add_recv(s, 2, b);
    baton_node_t sum = baton_add_reduce(s, BATON_F32, BATON_SUM, a, a, a);
    baton_node_t other = baton_add_reduce(s, BATON_U8, &nameless, a, a, a);
    baton_node_t third = baton_add_reduce(s, BATON_U8, &quoted, a, a, a);
    baton_node_t copy = baton_add_copy(s, c, a);
    baton_node_t send = baton_add_send(s, 2, c);
    baton_node_t call = baton_add_call(s, support_count, NULL);
    baton_node_t started = baton_add_on_start(s);
    baton_node_t armed = baton_add_armed_recv(s, 1);
    baton_node_t activate = baton_add_activate(s, 2);
    baton_node_t any = baton_add_nop(s);
    baton_set_optional(s, late);
    baton_before(s, copy, send);
    baton_before(s, third, copy);
    baton_before(s, recv, sum);
    baton_before(s, sum, other);
    baton_before(s, other, third);
    baton_before(s, started, any);
    baton_before(s, call, any);
    baton_before(s, armed, any);
    baton_before(s, call, any);
    baton_before(s, any, activate);
    baton_set_need(s, any, 2);
    baton_set_need(s, send, 1);
    return s;
}

static const char one_of_each_dot[] =
    "digraph {\n"
    "    label=\"so \\\"to\\\" \\\\ speak <&amp;>, rank 0 of 3\";\n"
    "    labelloc=t;\n"
    "    n0 [shape=house label=\"recv#0\\nfrom 1, 16 B\"];\n"
    "    n1 [shape=house style=dashed label=\"recv#1\\nfrom 2, 16 B\"];\n"
    "    n2 [shape=box label=\"reduce#2\\nsum of f32, 16 B\"];\n"
    "    n3 [shape=box label=\"reduce#3\\n? of u8, 16 B\"];\n"
    "    n4 [shape=box label=\"reduce#4\\na\\\"b of u8, 16 B\"];\n"
    "    n5 [shape=parallelogram label=\"copy#5\\n16 B\"];\n"
    "    n6 [shape=invhouse label=\"send#6\\nto 2, 16 B\"];\n"
    "    n7 [shape=hexagon label=\"call#7\"];\n"
    "    n8 [shape=doublecircle style=dashed label=\"on_start#8\"];\n"
    "    n9 [shape=doubleoctagon style=dashed "
    "label=\"armed_recv#9\\nfrom 1, 16 B\"];\n"
    "    n10 [shape=octagon style=dashed "
    "label=\"activate#10\\nto 2, 16 B\"];\n"
    "    n11 [shape=ellipse label=\"nop#11\\nneeds 2 of 3\"];\n"
    "    n0 -> n2;\n"
    "    n2 -> n3;\n"
    "    n3 -> n4;\n"
    "    n4 -> n5;\n"
    "    n5 -> n6;\n"
    "    n7 -> n11;\n"
    "    n8 -> n11;\n"
    "    n9 -> n11;\n"
    "    n11 -> n10;\n"
    "}\n";

static void test_dot_is_the_same_before_and_after_the_commit(void **state)
{
    baton_schedule_t *schedule = one_of_each();
    assert_string_equal(dot_of(schedule), one_of_each_dot);
    support_ok(baton_schedule_commit(schedule));
    assert_string_equal(dot_of(schedule), one_of_each_dot);
    support_ok(baton_schedule_destroy(schedule));
}

/* A dump also shows a graph whose commit fails. */
static void test_dot_draws_what_commit_refuses(void **state)
{
    baton_schedule_t *schedule = begin("round");
    baton_node_t a = baton_add_nop(schedule);
    baton_node_t b = baton_add_nop(schedule);
    baton_before(schedule, a, b);
    baton_before(schedule, b, a);
    baton_before(schedule, b, b);
    baton_set_need(schedule, a, 7);
    support_expect(baton_schedule_commit(schedule), BATON_ERR_UNREACHABLE);
    assert_string_equal(dot_of(schedule),
                        "digraph {\n"
                        "    label=\"round, rank 0 of 3\";\n"
                        "    labelloc=t;\n"
                        "    n0 [shape=ellipse label=\"nop#0\\n"
                        "needs 7 of 1\"];\n"
                        "    n1 [shape=ellipse label=\"nop#1\"];\n"
                        "    n0 -> n1;\n"
                        "    n1 -> n0;\n"
                        "    n1 -> n1;\n"
                        "}\n");
    support_ok(baton_schedule_destroy(schedule));
}

/* Names of a schedule and a reduction that are longer than the text buffer. */
static void test_dot_takes_long_names(void **state)
{
    char name[1001];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    baton_op_t op = {.name = name, .reduce = BATON_SUM->reduce};
    baton_schedule_t *schedule = begin(name);
    baton_view_t a = support_scratch(schedule, 1);
    (void)baton_add_reduce(schedule, BATON_U8, &op, a, a, a);
    const char *dot = dot_of(schedule);
    const char *first = strstr(dot, name);
    assert_non_null(first);
    assert_non_null(strstr(first + 1000, name));
    support_ok(baton_schedule_destroy(schedule));
}

/* Messages to itself, an empty message, an optional node, a reduction of 16
   bytes at 1.6 ns each. */
static void test_goal_text(support_cluster_t *ranks)
{
    baton_schedule_t *s = support_schedule(ranks->groups[1], "goal");
    baton_view_t a = support_scratch(s, 16);
    baton_view_t b = support_scratch(s, 16);
    baton_node_t send = baton_add_send(s, 1, a);
    baton_node_t recv = baton_add_recv(s, 1, b);
    baton_node_t sum = baton_add_reduce(s, BATON_F32, BATON_SUM, b, b, a);
    baton_node_t copy = baton_add_copy(s, a, b);
    baton_node_t started = baton_add_on_start(s);
    baton_node_t more = baton_add_send(s, 0, b);
    baton_node_t empty = baton_add_recv(s, 0, baton_view(a.buffer, 0, 0));
    baton_node_t again = baton_add_send(s, 1, a);
    (void)baton_add_recv(s, 1, support_scratch(s, 8));
    baton_before(s, copy, again);
    baton_before(s, send, copy);
    baton_before(s, sum, copy);
    baton_before(s, recv, sum);
    baton_before(s, sum, copy);
    baton_before(s, sum, more);
    baton_before(s, started, empty);
    baton_set_need(s, copy, 2);
    baton_set_need(s, empty, BATON_NEED_ANY);
    support_ok(baton_schedule_commit(s));
    begin_text("num_ranks %d\n", 2);
    add_goal(s, 1.6);
    assert_string_equal(text, "num_ranks 2\n"
                              "rank 1 {\n"
                              "l0: send 16b to 1 tag 0\n"
                              "l1: recv 16b from 1 tag 0\n"
                              "l2: calc 26\n"
                              "l3: calc 0\n"
                              "l4: calc 0\n"
                              "l5: send 16b to 0 tag 0\n"
                              "l6: recv 1b from 0 tag 0\n"
                              "l7: send 16b to 1 tag 1\n"
                              "l8: recv 8b from 1 tag 1\n"
                              "l3 requires l0\n"
                              "l2 requires l1\n"
                              "l3 requires l2\n"
                              "l5 requires l2\n"
                              "l7 requires l3\n"
                              "l6 requires l4\n"
                              "}\n");
    support_ok(baton_schedule_destroy(s));
}

static void test_goal_of_nothing_is_one_operation(void **state)
{
    baton_schedule_t *schedule = begin("nothing");
    support_ok(baton_schedule_commit(schedule));
    begin_text("", 0);
    add_goal(schedule, 1.0);
    assert_string_equal(text, "rank 0 {\nl0: calc 0\n}\n");
    support_ok(baton_schedule_destroy(schedule));
}

/* ---- refusals ---------------------------------------------------------- */

/* What GOAL does not know: before a commit, and after it. */
static void test_goal_refuses_what_it_does_not_know(void **state)
{
    static const char *const says[] = {"nop#2 needs 1 of 2 incoming edges",
                                       "armed_recv#3", "activate#"};
    for (int what = 0; what < 3; what++) {
        baton_schedule_t *s = begin("unknown");
        baton_node_t nodes[] = {baton_add_nop(s), baton_add_nop(s),
                                baton_add_nop(s)};
        baton_before(s, nodes[0], nodes[2]);
        baton_before(s, nodes[1], nodes[2]);
        if (what == 0) {
            baton_set_need(s, nodes[2], BATON_NEED_ANY);
        } else if (what == 1) {
            (void)baton_add_armed_recv(s, 1);
        } else {
            baton_before(s, baton_add_on_start(s), baton_add_activate(s, 1));
        }
        refuses_goal(s, 1.0, BATON_ERR_STATE, "\"unknown\": commit it first");
        support_ok(baton_schedule_commit(s));
        refuses_goal(s, 1.0, BATON_ERR_UNSUPPORTED, says[what]);
        support_ok(baton_schedule_destroy(s));
    }
}

static void test_dump_refuses_wrong_arguments(void **state)
{
    baton_schedule_t *schedule = begin("wrong");
    support_ok(baton_schedule_commit(schedule));
    refuses_goal(schedule, -1.0, BATON_ERR_INVALID, "gamma_ns is -1");
    refuses_goal(schedule, (double)NAN, BATON_ERR_INVALID, "0 to 1e+09");
    refuses_goal(schedule, (double)INFINITY, BATON_ERR_INVALID, "is inf");
    support_expect(baton_schedule_goal(schedule, 1.0, NULL, NULL),
                   BATON_ERR_INVALID);
    support_expect(baton_schedule_dot(schedule, NULL, NULL), BATON_ERR_INVALID);
    assert_string_equal(baton_error_message(),
                        "dot of \"wrong\": write is NULL");
    support_ok(baton_schedule_destroy(schedule));
}

static void test_dump_without_memory_writes_nothing(void **state)
{
    baton_schedule_t *schedule = begin("poor");
    support_ok(baton_schedule_commit(schedule));
    for (int64_t nth = 1; nth <= 2; nth++) {
        begin_text("nothing", 0);
        baton__alloc_fail_nth(nth);
        support_expect(baton_schedule_dot(schedule, collect, text),
                       BATON_ERR_NO_MEMORY);
        assert_string_equal(text, "nothing");
        baton__alloc_fail_nth(nth);
        refuses_goal(schedule, 1.0, BATON_ERR_NO_MEMORY, "no memory");
    }
    baton__alloc_fail_nth(0);
    begin_text("", 0);
    add_goal(schedule, 1.0);
    support_ok(baton_schedule_destroy(schedule));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dot_is_the_same_before_and_after_the_commit),
        cmocka_unit_test(test_dot_draws_what_commit_refuses),
        cmocka_unit_test(test_dot_takes_long_names),
        SUPPORT_MANUALLY(test_goal_text, 2),
        cmocka_unit_test(test_goal_of_nothing_is_one_operation),
        cmocka_unit_test(test_goal_refuses_what_it_does_not_know),
        cmocka_unit_test(test_dump_refuses_wrong_arguments),
        cmocka_unit_test(test_dump_without_memory_writes_nothing),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
