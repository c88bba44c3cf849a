/* Errors of adders and of calls in the wrong state, with the node's name and
   numbers. test_commit.c has the errors of commit. */
#include "support/cmocka.h"
#include "support/refusal.h"
#include <limits.h>

/* ---- adders: views ----------------------------------------------------- */

static void test_schedule_refuses_unknown_buffer(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_nop(s);
    (void)baton_add_send(s, 1, baton_view((baton_buffer_t){7}, 0, 4));
    refused(s, BATON_ERR_INVALID, "send#1: its view names buffer 7, of 1");
}

static void test_schedule_refuses_view_past_end(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_recv(s, 1, refusal_part(8, 16));
    refused(s, BATON_ERR_INVALID,
            "recv#0: its view is 16 bytes at 8 of buffer 0, which has 16");
}

static void test_schedule_refuses_empty_view_past_end(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_copy(s, refusal_part(17, 0), refusal_part(0, 0));
    refused(s, BATON_ERR_INVALID,
            "copy#0: its view is 0 bytes at 17 of buffer 0, which has 16");
}

static void test_schedule_refuses_view_whose_end_overflows(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_send(s, 1, refusal_part(4, SIZE_MAX));
    refused(s, BATON_ERR_INVALID,
            "send#0: its view is 18446744073709551615 bytes at 4 of buffer 0, "
            "which has 16");
}

static void test_schedule_refuses_copy_of_unequal_views(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_copy(s, refusal_part(0, 8), refusal_part(8, 4));
    refused(s, BATON_ERR_INVALID, "copy#0: its views have 8 and 4 bytes");
}

static void test_schedule_refuses_reduce_of_unequal_views(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_reduce(s, BATON_F32, BATON_SUM, refusal_part(0, 8),
                           refusal_part(0, 8), refusal_part(8, 4));
    refused(s, BATON_ERR_INVALID, "reduce#0: its views have 8 and 4 bytes");
}

static void
test_schedule_refuses_views_that_overlap_in_refusal_part(void **state)
{
    baton_schedule_t *copy = refusal_begin();
    (void)baton_add_copy(copy, refusal_part(0, 12), refusal_part(4, 12));
    refused(copy, BATON_ERR_INVALID,
            "copy#0 writes 12 bytes at 0 of buffer 0 and reads 12 at 4");
    baton_schedule_t *reduce = refusal_begin();
    (void)baton_add_reduce(reduce, BATON_F32, BATON_SUM, refusal_part(8, 8),
                           refusal_part(8, 8), refusal_part(4, 8));
    refused(reduce, BATON_ERR_INVALID,
            "reduce#0 writes 8 bytes at 8 of buffer 0 and reads 8 at 4");
}

static void test_schedule_takes_views_that_are_one(void **state)
{
    baton_schedule_t *s = refusal_begin();
    refusal_memory[0] = 1;
    refusal_memory[1] = 2;
    baton_node_t copy =
        baton_add_copy(s, refusal_part(0, 8), refusal_part(0, 8));
    baton_node_t reduce =
        baton_add_reduce(s, BATON_F32, BATON_SUM, refusal_part(0, 8),
                         refusal_part(0, 8), refusal_part(0, 8));
    baton_before(s, copy, reduce);
    support_ok(baton_schedule_commit(s));
    support_run(s);
    assert_float_equal(refusal_memory[0], 2, 0);
    assert_float_equal(refusal_memory[1], 4, 0);
    support_ok(baton_schedule_destroy(s));
}

/* ---- adders: the rest -------------------------------------------------- */

static void test_schedule_refuses_peer_out_of_range(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_send(s, -1, refusal_part(0, 4));
    refused(s, BATON_ERR_INVALID, "send#0: peer -1 is not in 0..2");
    s = refusal_begin();
    (void)baton_add_recv(s, 3, refusal_part(0, 4));
    refused(s, BATON_ERR_INVALID, "recv#0: peer 3 is not in 0..2");
    s = refusal_begin();
    (void)baton_add_armed_recv(s, 3);
    refused(s, BATON_ERR_INVALID, "armed_recv#0: peer 3 is not in 0..2");
    s = refusal_begin();
    (void)baton_add_activate(s, INT_MIN);
    refused(s, BATON_ERR_INVALID,
            "activate#0: peer -2147483648 is not in 0..2");
}

static void test_schedule_refuses_what_is_no_type(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_reduce(s, (baton_dtype_t)99, BATON_SUM, refusal_part(0, 4),
                           refusal_part(0, 4), refusal_part(4, 4));
    refused(s, BATON_ERR_INVALID, "reduce#0: 99 is no element type");
}

static void test_schedule_refuses_broken_elements(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_reduce(s, BATON_F32, BATON_SUM, refusal_part(0, 6),
                           refusal_part(0, 6), refusal_part(8, 6));
    refused(s, BATON_ERR_INVALID,
            "reduce#0: 6 bytes are no whole number of elements of 4 bytes");
}

static void test_schedule_refuses_reduce_without_reduction(void **state)
{
    static const baton_op_t hollow = {.name = "hollow"};
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_reduce(s, BATON_F32, NULL, refusal_part(0, 4),
                           refusal_part(0, 4), refusal_part(4, 4));
    refused(s, BATON_ERR_INVALID, "reduce#0: it has no reduction");
    s = refusal_begin();
    (void)baton_add_reduce(s, BATON_F32, &hollow, refusal_part(0, 4),
                           refusal_part(0, 4), refusal_part(4, 4));
    refused(s, BATON_ERR_INVALID, "reduce#0: it has no reduction");
}

static void test_schedule_refuses_call_without_function(void **state)
{
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_call(s, NULL, NULL);
    refused(s, BATON_ERR_INVALID, "call#0: it has no function");
}

static void test_schedule_refuses_unknown_nodes(void **state)
{
    baton_schedule_t *s = refusal_begin();
    baton_before(s, baton_add_nop(s), refusal_foreign);
    refused(s, BATON_ERR_INVALID, "before names node 9, of 1");
    s = refusal_begin();
    baton_before(s, refusal_foreign, baton_add_nop(s));
    refused(s, BATON_ERR_INVALID, "before names node 9, of 1");
    s = refusal_begin();
    baton_set_need(s, refusal_foreign, BATON_NEED_ANY);
    refused(s, BATON_ERR_INVALID, "set_need names node 9, of 0");
    s = refusal_begin();
    baton_set_optional(s, refusal_foreign);
    refused(s, BATON_ERR_INVALID, "set_optional names node 9, of 0");
    s = refusal_begin();
    baton_enclose_end(s, baton_enclose_begin(s), refusal_foreign,
                      refusal_foreign);
    refused(s, BATON_ERR_INVALID, "enclose_end names node 9, of 0");
}

static void test_schedule_first_error_sticks(void **state)
{
    baton_schedule_t *s = refusal_begin();
    baton_node_t bad = baton_add_send(s, 5, refusal_part(0, 4));
    baton_before(s, bad, baton_add_nop(s));
    (void)baton_add_call(s, NULL, NULL);
    baton_schedule_fail(s, BATON_ERR_LIMIT, "too late");
    refuses(s, BATON_ERR_INVALID, "send#0: peer 5 is not in 0..2");
    refused(s, BATON_ERR_INVALID, "send#0: peer 5 is not in 0..2");
}

static void test_schedule_builders_error_sticks(void **state)
{
    baton_schedule_t *s = refusal_begin();
    baton_schedule_fail(s, BATON_ERR_LIMIT, "ring of %d", 7);
    (void)baton_add_send(s, 5, refusal_part(0, 4));
    refused(s, BATON_ERR_LIMIT, "ring of 7");
}

/* ---- calls out of turn ------------------------------------------------- */

static void test_schedule_refuses_to_rebind_what_is_not_bound(void **state)
{
    baton_schedule_t *s = refusal_begin();
    baton_buffer_t scratch = baton_buffer_scratch(s, 8);
    support_expect(baton_buffer_rebind(s, scratch, refusal_memory),
                   BATON_ERR_INVALID);
    support_says("rebind in \"wrong\": buffer 1 is scratch");
    support_expect(baton_buffer_rebind(s, (baton_buffer_t){2}, refusal_memory),
                   BATON_ERR_INVALID);
    support_says("buffer 2 is not one of its buffers");
    support_ok(baton_schedule_destroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule_refuses_unknown_buffer),
        cmocka_unit_test(test_schedule_refuses_view_past_end),
        cmocka_unit_test(test_schedule_refuses_empty_view_past_end),
        cmocka_unit_test(test_schedule_refuses_view_whose_end_overflows),
        cmocka_unit_test(test_schedule_refuses_copy_of_unequal_views),
        cmocka_unit_test(test_schedule_refuses_reduce_of_unequal_views),
        cmocka_unit_test(
            test_schedule_refuses_views_that_overlap_in_refusal_part),
        cmocka_unit_test(test_schedule_takes_views_that_are_one),
        cmocka_unit_test(test_schedule_refuses_peer_out_of_range),
        cmocka_unit_test(test_schedule_refuses_what_is_no_type),
        cmocka_unit_test(test_schedule_refuses_broken_elements),
        cmocka_unit_test(test_schedule_refuses_reduce_without_reduction),
        cmocka_unit_test(test_schedule_refuses_call_without_function),
        cmocka_unit_test(test_schedule_refuses_unknown_nodes),
        cmocka_unit_test(test_schedule_first_error_sticks),
        cmocka_unit_test(test_schedule_builders_error_sticks),
        cmocka_unit_test(test_schedule_refuses_to_rebind_what_is_not_bound),
    };
    return cmocka_run_group_tests(tests, refusal_open, refusal_close);
}
