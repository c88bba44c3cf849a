/* Optional receives, which their epoch may overtake: a message belongs to the
   epoch that it was sent in, or is dropped. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/random.h"

enum { RANKS = 3 };

/* Rank 0: straggler <- rank 1 --> copy --> note     (optional)
           gate <- rank 2                            (holds the epoch open)
   Rank 1 sends the number of its epoch. */
typedef struct race {
    baton_schedule_t *schedules[3];
    uint64_t sent;
    uint64_t got;
    uint64_t noted; /* the last epoch whose straggler came in time */
    uint64_t wrong; /* messages that another epoch got */
} race_t;

static baton_status_t note(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    race_t *race = arg;
    race->wrong += race->got != epoch || race->noted == epoch;
    race->noted = epoch;
    return BATON_OK;
}

static void open_race(race_t *race)
{
    *race = (race_t){.sent = 0};
    for (int rank = 0; rank < 3; rank++) {
        race->schedules[rank] =
            support_schedule(support_cluster_of(RANKS)->groups[rank], "race");
    }
    baton_schedule_t *s = race->schedules[0];
    baton_view_t scratch = support_scratch(s, 8);
    baton_view_t got = support_view(s, &race->got, 8);
    baton_node_t chain[3] = {baton_add_recv(s, 1, scratch),
                             baton_add_copy(s, got, scratch),
                             baton_add_call(s, note, race)};
    for (int i = 0; i < 3; i++) {
        baton_set_optional(s, chain[i]);
        if (i > 0) {
            baton_before(s, chain[i - 1], chain[i]);
        }
    }
    (void)baton_add_recv(s, 2, baton_view(got.buffer, 0, 0));
    s = race->schedules[1];
    (void)baton_add_send(s, 0, support_view(s, &race->sent, 8));
    s = race->schedules[2];
    (void)baton_add_send(s, 0, support_scratch(s, 0));
    for (int rank = 0; rank < 3; rank++) {
        support_ok(baton_schedule_commit(race->schedules[rank]));
    }
}

static void close_race(race_t *race)
{
    for (int rank = 0; rank < 3; rank++) {
        support_ok(baton_schedule_destroy(race->schedules[rank]));
    }
}

static void run_rank(race_t *race, int rank)
{
    race->sent += rank == 1;
    support_run(race->schedules[rank]);
}

/* Rank 0's next epoch, in which rank 1 sends `sends` times. */
static void run_epoch(race_t *race, uint64_t sends)
{
    support_ok(baton_schedule_start(race->schedules[0]));
    for (uint64_t i = 0; i < sends; i++) {
        run_rank(race, 1);
    }
    support_drain(support_cluster_of(RANKS));
    run_rank(race, 2);
    support_ok(baton_schedule_wait(race->schedules[0], SUPPORT_WAIT_MS));
}

static void test_stragglers_in_time_count(void **state)
{
    race_t race;
    open_race(&race);
    for (uint64_t epoch = 1; epoch <= 5; epoch++) {
        run_epoch(&race, 1);
        assert_int_equal(race.noted, epoch);
    }
    assert_int_equal(race.wrong, 0);
    close_race(&race);
}

static void test_stragglers_never_count_for_a_later_epoch(void **state)
{
    for (uint64_t lag = 1; lag <= 4; lag++) {
        race_t race;
        open_race(&race);
        for (uint64_t epoch = 1; epoch <= lag; epoch++) {
            run_epoch(&race, 0);
        }
        run_epoch(&race, lag);
        assert_int_equal(race.noted, 0);
        run_epoch(&race, 2);
        assert_int_equal(race.noted, lag + 2);
        assert_int_equal(race.wrong, 0);
        close_race(&race);
    }
}

static void test_stragglers_at_random_find_their_epoch(void **state)
{
    race_t race;
    support_random_t random = support_random(support_seed(), 3);
    open_race(&race);
    for (uint64_t epoch = 1; epoch <= 3000; epoch++) {
        /* At most 4 behind, 4 ahead. */
        uint64_t low = race.sent + 4 < epoch ? epoch - 4 - race.sent : 0;
        uint64_t high = epoch + 4 - race.sent;
        high = high < low + 3 ? high : low + 3;
        run_epoch(&race, low + support_random_below(&random, high - low + 1));
        assert_int_equal(race.noted == epoch, race.sent >= epoch);
    }
    assert_int_equal(race.wrong, 0);
    close_race(&race);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stragglers_in_time_count),
        cmocka_unit_test(test_stragglers_never_count_for_a_later_epoch),
        cmocka_unit_test(test_stragglers_at_random_find_their_epoch),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
