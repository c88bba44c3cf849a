/* The idle policy: whether a driver polls, yields or sleeps when nothing moves;
   see progress/driving/idle.h. */
#include "progress/driving/idle.h"
#include "support/cmocka.h"

/* Returns the state of a driver whose ranks share processors, and whose yields
   have often let others run. */
static baton__idle_t crowded(void)
{
    baton__idle_t idle;
    baton__idle_init(&idle, 32, 1000000);
    baton__idle_share(&idle);
    idle.shared_ns = idle.share_ns;
    return idle;
}

static const uint64_t long_vectors = UINT64_C(1) << 40;

/* A wait sleeps. But if it awaits long vectors, it yields at first. */
TEST(test_idle_crowded_wait_sleeps_or_yields)
{
    static const struct {
        uint64_t since_ns, yield_ns; /* 0: the value of crowded() */
        baton__hurry_t hurry;
        uint64_t bytes;
        baton__pause_t pause;
    } cases[] = {
        {0, 1, BATON__HURRY_WAIT, 0, BATON__PAUSE_SLEEP},
        {0, 1, BATON__HURRY_WAIT, UINT64_C(1) << 40, BATON__PAUSE_YIELD},
        /* The wait has lasted since the machine booted. */
        {1, 1, BATON__HURRY_WAIT, 1 << 20, BATON__PAUSE_SLEEP},
        {1, 1, BATON__HURRY_WAIT, UINT64_C(1) << 40, BATON__PAUSE_SLEEP},
        /* Yields are switched off. */
        {0, 0, BATON__HURRY_WAIT, UINT64_C(1) << 40, BATON__PAUSE_SLEEP},
        /* No thread waits for the epoch, whatever armed receives may bring. */
        {0, 1, BATON__HURRY_NONE, UINT64_C(1) << 40, BATON__PAUSE_SLEEP},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        baton__idle_t idle = crowded();
        idle.since_ns =
            cases[i].since_ns > 0 ? cases[i].since_ns : idle.since_ns;
        idle.yield_ns = cases[i].yield_ns > 0 ? idle.yield_ns : 0;
        assert_int_equal(
            baton__idle_next(&idle, cases[i].hurry, cases[i].bytes),
            cases[i].pause);
    }
}

/* Polls, and pretends that a yield has taken 10 ms. */
static void yield_slowly(baton__idle_t *idle, uint64_t awaited_bytes)
{
    (void)baton__idle_next(idle, BATON__HURRY_WAIT, awaited_bytes);
    idle->now_ns -= 10000000;
    baton__idle_yielded(idle);
}

/* A yield during which ranks copy long vectors lasts as long as these copies.
   It does not count as slow, since this rank waits for just these ranks. After
   other slow yields polls sleep for a while, and for a shorter while if more
   data are awaited. */
TEST(test_idle_slow_yield_deters)
{
    baton__idle_t idle = crowded();
    yield_slowly(&idle, long_vectors);
    assert_int_equal(idle.slow_left, 0);
    for (int i = 0; i < 10; i++) {
        idle.slow_left = 0;
        idle.shared_ns = 0;
        yield_slowly(&idle, 1 << 20);
    }
    idle.shared_ns = 0;
    assert_int_equal(idle.slow_left, 400);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(baton__idle_next(&idle, BATON__HURRY_WAIT, 1 << 21),
                         BATON__PAUSE_SLEEP);
    }
    assert_int_equal(idle.slow_left, 0);
}

/* A single slow yield, such as that of the first rank that has computed, keeps
   only one poll from yielding. So does the next slow one, after a quick
   yield. */
TEST(test_idle_slow_yield_is_forgotten)
{
    baton__idle_t idle = crowded();
    idle.yield_ns = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        yield_slowly(&idle, 0);
        idle.shared_ns = 0;
        assert_int_equal(baton__idle_next(&idle, BATON__HURRY_WAIT, 0),
                         BATON__PAUSE_SLEEP);
        assert_int_equal(baton__idle_next(&idle, BATON__HURRY_WAIT, 0),
                         BATON__PAUSE_YIELD);
        /* From here on no yield counts as slow. */
        idle.patience_ns = UINT64_MAX;
        baton__idle_yield(&idle);
    }
}
