/* The exact messages about sends and receives that do not match. */
#include "support/cmocka.h"
#include "support/stuck.h"

/* What each of two ranks adds. */
typedef void (*side_fn)(baton_schedule_t *schedule);

static void build_sides(void *arg, baton_schedule_t *s)
{
    const side_fn *sides = arg;
    (void)baton_add_nop(s); /* so that messages have other numbers than 0 */
    sides[baton_schedule_rank(s)](s);
}

static void differ(side_fn zero, side_fn one, const char *text)
{
    side_fn sides[] = {zero, one};
    baton_sim_t *sim = stuck_open(2, 0);
    stuck_says(baton_sim_build(sim, "x", build_sides, sides),
               BATON_ERR_MISMATCH, text);
    assert_null(baton_sim_schedule(sim, 0));
    support_ok(baton_sim_destroy(sim));
}

static void sends(baton_schedule_t *s, const size_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        baton_buffer_t buffer = baton_buffer_scratch(s, bytes[i]);
        (void)baton_add_send(s, 1, baton_view(buffer, 0, bytes[i]));
    }
}

static void receives(baton_schedule_t *s, const size_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        baton_buffer_t buffer = baton_buffer_scratch(s, bytes[i]);
        (void)baton_add_recv(s, 0, baton_view(buffer, 0, bytes[i]));
    }
}

static const size_t sizes[] = {8, 16, 32};

static void send_1(baton_schedule_t *s)
{
    sends(s, sizes, 1);
}

static void send_16(baton_schedule_t *s)
{
    sends(s, sizes + 1, 1);
}

static void send_3(baton_schedule_t *s)
{
    sends(s, sizes, 3);
}

static void recv_0(baton_schedule_t *s)
{
}

static void recv_1(baton_schedule_t *s)
{
    receives(s, sizes, 1);
}

static void recv_2(baton_schedule_t *s)
{
    receives(s, sizes, 2);
}

static void recv_last_2(baton_schedule_t *s)
{
    receives(s, sizes + 1, 2);
}

static void test_mismatch_of_sizes(void **state)
{
    differ(send_16, recv_1,
           "\"x\": send#1 of rank 0 has 16 bytes and its receiver, recv#1 of "
           "rank 1, 8");
}

static void test_mismatch_of_sizes_and_numbers(void **state)
{
    differ(send_3, recv_last_2,
           "\"x\": send#1 of rank 0 has 8 bytes and its receiver, recv#1 of "
           "rank 1, 16; 3 sends are to meet 2 receives");
}

static void test_mismatch_of_a_send_that_nobody_receives(void **state)
{
    differ(send_3, recv_2,
           "\"x\": send#3 of rank 0 has no receive on rank 1, which has 2 from "
           "there");
    differ(send_1, recv_0,
           "\"x\": send#1 of rank 0 has no receive on rank 1, which has 0 from "
           "there");
}

static void test_mismatch_of_a_receive_that_nobody_sends(void **state)
{
    differ(send_1, recv_2,
           "\"x\": recv#2 of rank 1 has no send on rank 0, which has 1 to "
           "there");
}

/* ---- activations ------------------------------------------------------- */

/* 16 bytes, like a header. */
static void activate_and_send(baton_schedule_t *s)
{
    (void)baton_add_activate(s, 1);
    send_16(s);
}

static void activate(baton_schedule_t *s)
{
    (void)baton_add_activate(s, 1);
}

static void recv_16(baton_schedule_t *s)
{
    receives(s, sizes + 1, 1);
}

static void recv_16_twice(baton_schedule_t *s)
{
    recv_16(s);
    recv_16(s);
}

static void arm(baton_schedule_t *s)
{
    (void)baton_add_armed_recv(s, 0);
}

static void arm_and_recv_twice(baton_schedule_t *s)
{
    arm(s);
    recv_16_twice(s);
}

static void test_mismatch_keeps_activations_apart(void **state)
{
    differ(send_16, arm,
           "\"x\": send#1 of rank 0 has no receive on rank 1, which has 0 from "
           "there");
    differ(activate, recv_16,
           "\"x\": activate#1 of rank 0 has no armed receive on rank 1, which "
           "has 0 from there");
    differ(activate_and_send, recv_16_twice,
           "\"x\": activate#1 of rank 0 has no armed receive on rank 1, which "
           "has 0 from there");
    differ(send_16, arm_and_recv_twice,
           "\"x\": recv#3 of rank 1 has no send on rank 0, which has 1 to "
           "there");
    differ(activate_and_send, arm_and_recv_twice,
           "\"x\": recv#3 of rank 1 has no send on rank 0, which has 1 to "
           "there");
}

/* ---- several schedules ------------------------------------------------- */

static baton_schedule_t *commit(baton_sim_t *sim, int rank, const char *name,
                                side_fn build)
{
    baton_schedule_t *s = support_schedule(baton_sim_group(sim, rank), name);
    build(s);
    support_ok(baton_schedule_commit(s));
    return s;
}

static void test_mismatch_of_a_schedule_that_one_rank_lacks(void **state)
{
    baton_sim_t *sim = stuck_open(2, 0);
    baton_schedule_t *a = commit(sim, 0, "a", send_1);
    baton_schedule_t *b = commit(sim, 1, "a", recv_1);
    baton_schedule_t *c = commit(sim, 0, "c", send_1);
    stuck_says(baton_sim_run(sim, -1.0), BATON_ERR_MISMATCH,
               "\"c\": send#0 of rank 0 has no receive on rank 1, which has "
               "not committed it");
    baton_schedule_t *d = commit(sim, 1, "c", recv_1);
    support_ok(baton_sim_run(sim, -1.0));
    support_ok(baton_schedule_destroy(a));
    support_ok(baton_schedule_destroy(b));
    support_ok(baton_schedule_destroy(c));
    support_ok(baton_schedule_destroy(d));
    support_ok(baton_sim_destroy(sim));
}

static void test_schedules_meet_by_name_in_any_order(void **state)
{
    baton_sim_t *sim = stuck_open(2, 0);
    baton_schedule_t *s[] = {
        commit(sim, 0, "a", send_1),
        commit(sim, 0, "b", send_16),
        commit(sim, 1, "b", recv_16),
        commit(sim, 1, "a", recv_1),
    };
    for (int i = 0; i < 4; i++) {
        support_ok(baton_schedule_start(s[i]));
    }
    support_ok(baton_sim_run(sim, -1.0));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(baton_schedule_epoch(s[i]), 1);
        support_ok(baton_schedule_destroy(s[i]));
    }
    support_ok(baton_sim_destroy(sim));
}

/* A schedule that only one rank has does no harm, but its name counts. */
static void test_mismatch_of_attempts(void **state)
{
    baton_sim_t *sim = stuck_open(2, 0);
    support_ok(baton_schedule_destroy(commit(sim, 0, "a", send_1)));
    baton_schedule_t *b = commit(sim, 0, "b", send_1);
    baton_schedule_t *c = commit(sim, 1, "b", recv_1);
    support_ok(baton_sim_run(sim, -1.0));
    baton_schedule_t *second = commit(sim, 0, "a", send_1);
    baton_schedule_t *first = commit(sim, 1, "a", recv_1);
    stuck_says(
        baton_sim_run(sim, -1.0), BATON_ERR_MISMATCH,
        "\"a\": send#0 of rank 0 has no receive on rank 1, which has not "
        "committed it");
    support_ok(baton_schedule_destroy(first));
    first = commit(sim, 1, "a", recv_1);
    support_ok(baton_sim_run(sim, -1.0));
    support_ok(baton_schedule_destroy(first));
    support_ok(baton_schedule_destroy(second));
    support_ok(baton_schedule_destroy(b));
    support_ok(baton_schedule_destroy(c));
    support_ok(baton_sim_destroy(sim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch_of_sizes),
        cmocka_unit_test(test_mismatch_of_sizes_and_numbers),
        cmocka_unit_test(test_mismatch_of_a_send_that_nobody_receives),
        cmocka_unit_test(test_mismatch_of_a_receive_that_nobody_sends),
        cmocka_unit_test(test_mismatch_keeps_activations_apart),
        cmocka_unit_test(test_mismatch_of_a_schedule_that_one_rank_lacks),
        cmocka_unit_test(test_schedules_meet_by_name_in_any_order),
        cmocka_unit_test(test_mismatch_of_attempts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
