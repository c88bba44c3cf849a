/* Hazards: what commit says of two nodes that touch the same bytes, one of them
   writing. By hand, and against an oracle on random graphs. */
#include "support/cmocka.h"
#include "support/refusal.h"

/* A node that reads bytes (left) or writes them (right); the other half of the
   copy is scratch of its own. */
static baton_node_t reads(baton_schedule_t *s, size_t offset, size_t bytes)
{
    baton_buffer_t own = baton_buffer_scratch(s, bytes, BATON_MEMORY_HOST);
    return baton_add_copy(s, baton_view(own, 0, bytes),
                          refusal_part(offset, bytes));
}

static baton_node_t writes(baton_schedule_t *s, size_t offset, size_t bytes)
{
    baton_buffer_t own = baton_buffer_scratch(s, bytes, BATON_MEMORY_HOST);
    return baton_add_copy(s, refusal_part(offset, bytes),
                          baton_view(own, 0, bytes));
}

static void accepted(baton_schedule_t *s)
{
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_destroy(s));
}

/* ---- pairs ------------------------------------------------------------- */

static void test_hazard_two_writers(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    (void)writes(s, 0, 8);
    (void)baton_add_recv(s, 1, refusal_part(0, 8));
    refused(s, BATON_ERR_HAZARD,
            "copy#0 and recv#1 are in no order, but the first writes and the "
            "second writes bytes 0 to 8 of buffer 0");
}

static void test_hazard_reader_and_writer(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_send(s, 1, refusal_part(0, 8));
    (void)writes(s, 0, 8);
    refused(s, BATON_ERR_HAZARD,
            "send#0 and copy#1 are in no order, but the first reads and the "
            "second writes bytes 0 to 8 of buffer 0");
}

static void test_hazard_writer_and_reader(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    (void)writes(s, 0, 8);
    (void)baton_add_send(s, 1, refusal_part(0, 8));
    refused(s, BATON_ERR_HAZARD,
            "copy#0 and send#1 are in no order, but the first writes and the "
            "second reads bytes 0 to 8 of buffer 0");
}

static void test_hazard_names_the_bytes_that_overlap(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    (void)writes(s, 0, 9);
    (void)writes(s, 8, 8);
    refused(s, BATON_ERR_HAZARD, "bytes 8 to 9 of buffer 0");
}

static void test_hazard_not_between_neighbours(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    (void)writes(s, 0, 8);
    (void)writes(s, 8, 4);
    (void)reads(s, 12, 4);
    accepted(s);
}

static void test_hazard_not_between_readers(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    (void)reads(s, 0, 8);
    (void)reads(s, 4, 8);
    (void)baton_add_send(s, 1, refusal_part(0, 16));
    accepted(s);
}

static void test_hazard_not_of_empty_views(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    (void)writes(s, 0, 16);
    (void)writes(s, 4, 0);
    (void)reads(s, 4, 0);
    accepted(s);
}

static void test_hazard_not_with_itself(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    (void)baton_add_reduce(s, BATON_F32, BATON_SUM, refusal_part(0, 8),
                           refusal_part(0, 8), refusal_part(8, 8));
    accepted(s);
}

/* ---- order ------------------------------------------------------------- */

static void test_hazard_not_along_a_path(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    baton_node_t last = writes(s, 0, 8);
    baton_node_t first = writes(s, 0, 8);
    baton_node_t middle = baton_add_nop(s);
    baton_before(s, first, middle);
    baton_before(s, middle, last);
    accepted(s);
}

/* Two readers, one of them in front of the writer: the other one counts too. */
static void test_hazard_of_each_reader(void **state)
{
    (void)state;
    baton_schedule_t *s = refusal_begin();
    baton_node_t one = reads(s, 0, 8);
    (void)reads(s, 0, 8);
    baton_before(s, one, writes(s, 0, 8));
    refused(s, BATON_ERR_HAZARD, "copy#1 and copy#2 are in no order");
}

/* The writer in front of n nodes, all but `bare` of them behind it; `need` of
   them suffice for another writer. */
static baton_schedule_t *add_join(uint32_t n, uint32_t bare, uint32_t need)
{
    baton_schedule_t *s = refusal_begin();
    baton_node_t first = writes(s, 0, 8);
    baton_node_t last = writes(s, 0, 8);
    for (uint32_t i = 0; i < n; i++) {
        baton_node_t nop = baton_add_nop(s);
        if (i >= bare) {
            baton_before(s, first, nop);
        }
        baton_before(s, nop, last);
    }
    baton_set_need(s, last, need);
    return s;
}

static void test_hazard_of_any_with_one_way_round(void **state)
{
    (void)state;
    refused(add_join(2, 1, BATON_NEED_ANY), BATON_ERR_HAZARD,
            "copy#0 and copy#1 are in no order");
    accepted(add_join(2, 0, BATON_NEED_ANY));
    accepted(add_join(2, 1, BATON_NEED_ALL));
}

/* need k of n: the writers are in order as long as fewer than k of the n can be
   done without the first. */
static void test_hazard_of_k_of_n_is_exact(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 6; n++) {
        for (uint32_t need = 1; need <= n; need++) {
            for (uint32_t bare = 0; bare <= n; bare++) {
                baton_schedule_t *s = add_join(n, bare, need);
                if (bare < need) {
                    accepted(s);
                } else {
                    refused(s, BATON_ERR_HAZARD, "copy#0 and copy#1");
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hazard_two_writers),
        cmocka_unit_test(test_hazard_reader_and_writer),
        cmocka_unit_test(test_hazard_writer_and_reader),
        cmocka_unit_test(test_hazard_names_the_bytes_that_overlap),
        cmocka_unit_test(test_hazard_not_between_neighbours),
        cmocka_unit_test(test_hazard_not_between_readers),
        cmocka_unit_test(test_hazard_not_of_empty_views),
        cmocka_unit_test(test_hazard_not_with_itself),
        cmocka_unit_test(test_hazard_not_along_a_path),
        cmocka_unit_test(test_hazard_of_each_reader),
        cmocka_unit_test(test_hazard_of_any_with_one_way_round),
        cmocka_unit_test(test_hazard_of_k_of_n_is_exact),
    };
    return cmocka_run_group_tests(tests, refusal_open, refusal_close);
}
