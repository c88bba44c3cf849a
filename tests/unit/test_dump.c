/* Schedules as pictures: the text of small ones, and the errors. */
#include "base/alloc.h"
#include "support/cmocka.h"
#include "support/refusal.h"

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

static void test_dot_refuses_what_it_cannot_write(void **state)
{
    baton_schedule_t *schedule = begin("poor");
    support_ok(baton_schedule_commit(schedule));
    support_expect(baton_schedule_dot(schedule, NULL, NULL), BATON_ERR_INVALID);
    support_says("dot of \"poor\": write is NULL");
    used = 0;
    for (int64_t nth = 1; nth <= 2; nth++) {
        baton__alloc_fail_nth(nth);
        support_expect(baton_schedule_dot(schedule, collect, text),
                       BATON_ERR_NO_MEMORY);
        assert_int_equal(used, 0);
    }
    baton__alloc_fail_nth(0);
    support_ok(baton_schedule_destroy(schedule));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dot_is_the_same_before_and_after_the_commit),
        cmocka_unit_test(test_dot_draws_what_commit_refuses),
        cmocka_unit_test(test_dot_takes_long_names),
        cmocka_unit_test(test_dot_refuses_what_it_cannot_write),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
