/* What ranks of one host share: doorbells and slots. Both ranks of each test
   are in this process. */
#include "base/alloc.h"
#include "transport/doorbell.h"
#include "transport/share.h"
#include "transport/slots.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- doorbells -------------------------------------------------------- */

typedef struct bells {
    baton__doorbell_t *of[2];
} bells_t;

static bells_t open_bells(void)
{
    char name[BATON__SHARE_NAME_BYTES];
    bells_t bells;
    baton__share_name(name);
    assert_int_equal(baton__doorbell_open(name, 2, 0, true, &bells.of[0]),
                     BATON_OK);
    assert_int_equal(baton__doorbell_open(name, 2, 1, false, &bells.of[1]),
                     BATON_OK);
    baton__share_unlink(name);
    return bells;
}

static void close_bells(bells_t *bells)
{
    baton__doorbell_close(bells->of[0]);
    baton__doorbell_close(bells->of[1]);
}

static bool rings(const baton__doorbell_t *bell)
{
    struct pollfd fd = {baton__doorbell_descriptor(bell), POLLIN, 0};
    return poll(&fd, 1, 0) == 1;
}

static void test_doorbell_leaves_who_is_awake_alone(void **state)
{
    (void)state;
    bells_t bells = open_bells();
    baton__doorbell_ring(bells.of[0], 1);
    assert_false(rings(bells.of[1]));
    assert_false(baton__doorbell_is_silent(bells.of[1]));
    assert_false(baton__doorbell_sleep(bells.of[1]));
    close_bells(&bells);
}

static void test_doorbell_notes_at_rest(void **state)
{
    (void)state;
    bells_t bells = open_bells();
    assert_true(baton__doorbell_rest(bells.of[1]));
    assert_true(baton__doorbell_is_silent(bells.of[1]));
    assert_false(baton__doorbell_rest(bells.of[1]));
    baton__doorbell_ring(bells.of[0], 1);
    assert_false(baton__doorbell_is_silent(bells.of[1]));
    assert_false(baton__doorbell_sleep(bells.of[1]));
    assert_false(rings(bells.of[1]));
    assert_true(baton__doorbell_rest(bells.of[1]));
    assert_true(baton__doorbell_sleep(bells.of[1]));
    close_bells(&bells);
}

static void test_doorbell_wakes_once_a_sleep(void **state)
{
    (void)state;
    bells_t bells = open_bells();
    for (int i = 0; i < 3; i++) {
        assert_true(baton__doorbell_rest(bells.of[1]));
        assert_true(baton__doorbell_sleep(bells.of[1]));
        assert_false(rings(bells.of[1]));
        baton__doorbell_ring(bells.of[0], 1);
        baton__doorbell_ring(bells.of[0], 1);
        assert_true(rings(bells.of[1]));
        baton__doorbell_hush(bells.of[1]);
        assert_false(rings(bells.of[1]));
    }
    close_bells(&bells);
}

/* Another thread of a sleeping rank looks after it, and lets it sleep on. */
static void test_doorbell_rests_out_of_a_sleep(void **state)
{
    (void)state;
    bells_t bells = open_bells();
    assert_true(baton__doorbell_rest(bells.of[1]));
    assert_true(baton__doorbell_sleep(bells.of[1]));
    assert_false(baton__doorbell_rest(bells.of[1]));
    baton__doorbell_ring(bells.of[0], 1);
    assert_false(rings(bells.of[1]));
    baton__doorbell_awake(bells.of[1]);
    assert_true(baton__doorbell_rest(bells.of[1]));
    close_bells(&bells);
}

/* ---- slots ------------------------------------------------------------ */

typedef struct ends {
    baton__slots_t *of[2];
} ends_t;

static ends_t open_slots(void)
{
    char name[BATON__SHARE_NAME_BYTES];
    ends_t ends;
    baton__share_name(name);
    assert_int_equal(
        baton__slots_open(name, 2, 0, BATON__SLOTS, true, &ends.of[0]),
        BATON_OK);
    assert_int_equal(
        baton__slots_open(name, 2, 1, BATON__SLOTS, false, &ends.of[1]),
        BATON_OK);
    baton__share_unlink(name);
    return ends;
}

static void close_slots(ends_t *ends)
{
    baton__slots_close(ends->of[0]);
    baton__slots_close(ends->of[1]);
}

static void test_slots_carry_messages_in_any_order(void **state)
{
    (void)state;
    ends_t ends = open_slots();
    char *data = malloc(BATON__SLOT_BYTES);
    char *got = malloc(BATON__SLOT_BYTES);
    int slots[BATON__SLOTS];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BATON__SLOTS; i++) {
            memset(data, 'a' + i, BATON__SLOT_BYTES);
            slots[i] = baton__slots_put(ends.of[0], data,
                                        (size_t)(BATON__SLOT_BYTES - i));
            assert_in_range(slots[i], 0, BATON__SLOTS - 1);
        }
        assert_int_equal(baton__slots_put(ends.of[0], data, 1), -1);
        assert_int_not_equal(baton__slots_put(ends.of[1], data, 1), -1);
        for (int i = BATON__SLOTS; i-- > 0;) {
            size_t bytes = baton__slots_take(ends.of[1], 0, slots[i], got,
                                             BATON__SLOT_BYTES);
            assert_int_equal(bytes, BATON__SLOT_BYTES - i);
            memset(data, 'a' + i, bytes);
            assert_memory_equal(got, data, bytes);
        }
    }
    free(data);
    free(got);
    close_slots(&ends);
}

static void test_slots_do_not_overrun_the_receiver(void **state)
{
    (void)state;
    ends_t ends = open_slots();
    char got[4] = "xyz";
    int slot = baton__slots_put(ends.of[0], "abcdef", 6);
    assert_int_equal(baton__slots_take(ends.of[1], 0, slot, got, 4), 6);
    assert_string_equal(got, "xyz");
    assert_int_equal(baton__slots_put(ends.of[0], "abcd", 4), slot);
    baton__slots_clear(ends.of[0], 0, slot);
    assert_int_equal(baton__slots_put(ends.of[0], "abcd", 4), slot);
    close_slots(&ends);
}

static void test_slots_are_not_for_too_many_ranks(void **state)
{
    (void)state;
    char name[BATON__SHARE_NAME_BYTES];
    baton__slots_t *slots = NULL;
    assert_in_range(baton__slots_afford(2), 0, BATON__SLOTS);
    assert_int_equal(baton__slots_afford(1 << 20), 0);
    baton__share_name(name); /* which nobody makes */
    assert_int_equal(baton__slots_open(name, 2, 1, 1, false, &slots),
                     BATON_ERR_SYSTEM);
    assert_null(slots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doorbell_leaves_who_is_awake_alone),
        cmocka_unit_test(test_doorbell_notes_at_rest),
        cmocka_unit_test(test_doorbell_wakes_once_a_sleep),
        cmocka_unit_test(test_doorbell_rests_out_of_a_sleep),
        cmocka_unit_test(test_slots_carry_messages_in_any_order),
        cmocka_unit_test(test_slots_do_not_overrun_the_receiver),
        cmocka_unit_test(test_slots_are_not_for_too_many_ranks),
    };
    return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
