/* The modes of partial all-reduces in the simulator: when an epoch begins,
   which ranks it waits for, and what that costs. Ranks arrive in orders that
   the test knows, on one host, on two, or each on its own. */
#include "coll/partial/rule.h"
#include "sched/schedule.h"
#include "support/sim.h"

#include <baton/coll.h>
#include <baton/partial.h>

enum { MOST_RANKS = 400 };

typedef struct rank {
    baton_partial_t *partial;
} rank_t;

static struct world {
    baton_sim_t *sim;
    int size;
    uint64_t epoch;
    uint64_t contributed, results; /* sums of random numbers, modulo 2^64 */
    /* Number of active ranks in the last epoch. */
    uint32_t active;
    /* Number of ranks whose contribution to the last step is in its epoch. */
    uint32_t included;
    double apart_us; /* the time between two arrivals */
    support_random_t random;
    rank_t ranks[MOST_RANKS];
} world;

static baton_partial_options_t options_of(baton_partial_mode_t mode,
                                          uint32_t ranks)
{
    return (baton_partial_options_t){.size = sizeof(baton_partial_options_t),
                                     .mode = mode,
                                     .mode_ranks = ranks,
                                     .seed = 3,
                                     .count = 1,
                                     .dtype = BATON_U64};
}

/* Opens a partial on each rank. A message takes 1 us. */
static void open_world(int size, int host_ranks,
                       const baton_partial_options_t *given)
{
    baton_sim_options_t model = support_sim_options(size);
    model.link = (baton_sim_link_t){.alpha_us = 1};
    model.host_ranks = host_ranks;
    model.host_link = model.link;
    world = (struct world){.sim = support_sim_open(&model),
                           .size = size,
                           .apart_us = 1000,
                           .random = support_random(support_seed(), 17)};
    for (int r = 0; r < size; r++) {
        support_ok(baton_partial_create(baton_sim_group(world.sim, r), given,
                                        &world.ranks[r].partial));
    }
}

static void close_world(void)
{
    for (int r = 0; r < world.size; r++) {
        support_ok(baton_partial_destroy(world.ranks[r].partial));
    }
    support_ok(baton_sim_destroy(world.sim));
}

static void arrive(void *arg)
{
    rank_t *rank = arg;
    uint64_t value = support_random_next(&world.random);
    world.contributed += value;
    support_ok(baton_partial_contribute(rank->partial, &value));
    support_ok(baton_partial_start(rank->partial));
}

typedef enum order { IN_TURN, SHUFFLED, TOGETHER, RANDOM, ORDERS } order_t;

/* How ranks arrive: apart_us after one another, in the order of their numbers
   or in random order; all at once; or at random within 40 us. Each rank
   contributes a random number, starts, and waits for the epoch. */
static void step(order_t order)
{
    int place[MOST_RANKS] = {0};
    double now_us = baton_sim_now_us(world.sim);
    world.epoch++;
    for (int r = 0; r < world.size; r++) {
        int other = (int)support_random_below(&world.random, (uint64_t)r + 1);
        place[r] = order == SHUFFLED ? place[other] : r;
        place[order == SHUFFLED ? other : r] = r;
    }
    for (int r = 0; r < world.size; r++) {
        double late_us = order == TOGETHER ? 0 : place[r] * world.apart_us;
        if (order == RANDOM) {
            late_us = (double)support_random_below(&world.random, 40);
        }
        support_ok(
            baton_sim_at(world.sim, now_us + late_us, arrive, &world.ranks[r]));
    }
    support_ok(baton_sim_run(world.sim, -1));
    world.included = 0;
    for (int r = 0; r < world.size; r++) {
        baton_partial_result_t seen;
        support_ok(baton_partial_wait(world.ranks[r].partial, -1, &seen));
        assert_int_equal(seen.epoch, world.epoch);
        world.included += seen.included;
        if (r == 0) {
            world.results += *(const uint64_t *)seen.data;
            world.active = seen.active;
        }
        assert_int_equal(seen.active, world.active);
    }
}

static void expect_conserved(void)
{
    uint64_t pending = 0;
    for (int r = 0; r < world.size; r++) {
        uint64_t mine = 0;
        bool any;
        support_ok(baton_partial_pending(world.ranks[r].partial, &mine, &any));
        pending += mine;
    }
    assert_true(world.results + pending == world.contributed);
}

/* ---- how many are included --------------------------------------------- */

/* Expects at least `least` ranks in each epoch, and at most `most` if they
   arrive far apart. */
static void run_mode(int size, int host_ranks, baton__choice_t mode,
                     uint32_t least, uint32_t most)
{
    const baton_partial_options_t options =
        options_of(mode.mode, mode.mode_ranks);
    open_world(size, host_ranks, &options);
    for (int i = 0; i < 3 * ORDERS; i++) {
        order_t order = (order_t)(i % ORDERS);
        step(order);
        uint32_t limit = order <= SHUFFLED ? most : (uint32_t)size;
        if (world.included < least || world.active < least ||
            world.included > limit) {
            fail_msg("%d ranks, mode %d of %u, epoch %d: %u active, %u "
                     "included, expected %u to %u",
                     size, (int)mode.mode, mode.mode_ranks, i + 1, world.active,
                     world.included, least, limit);
        }
    }
    expect_conserved();
    close_world();
}

static void run_modes(int size, int host_ranks)
{
    uint32_t p = (uint32_t)size, m = (p + 1) / 2;
    run_mode(size, host_ranks, (baton__choice_t){BATON_SOLO, 0}, 1, 1);
    run_mode(size, host_ranks, (baton__choice_t){BATON_MAJORITY, 0}, 1, p);
    run_mode(size, host_ranks, (baton__choice_t){BATON_FULL, 0}, p, p);
    run_mode(size, host_ranks, (baton__choice_t){BATON_QUORUM, m}, m, m);
    run_mode(size, host_ranks, (baton__choice_t){BATON_CANDIDATES_ANY, m}, 1,
             p);
    run_mode(size, host_ranks, (baton__choice_t){BATON_CANDIDATES_ALL, m}, m,
             p);
}

TEST(test_modes_on_any_hosts)
{
    static const int sizes[] = {1, 2, 3, 5, 6, 7, 8, 9, 12, 16, 32, 64, 65};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_modes(sizes[i], sizes[i]);
        run_modes(sizes[i], (sizes[i] + 1) / 2);
        run_modes(sizes[i], 1);
    }
}

/* Tests every quorum at every small size, and sizes at which the last group is
   short: 31; 170 = 12 * 14 + 2. With 196 = 14 * 14 ranks a rank may be the root
   and a leader of the same peer. */
TEST(test_quorums_are_exact)
{
    static const int sizes[] = {31, 144, 145, 170, 196};
    for (int size = 1; size <= 17; size++) {
        for (uint32_t q = 1; q <= (uint32_t)size; q++) {
            run_mode(size, 1, (baton__choice_t){BATON_QUORUM, q}, q, q);
        }
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t p = (uint32_t)sizes[i];
        const uint32_t quorums[] = {2, p / 2, p - 1, p};
        for (int k = 0; k < 4; k++) {
            run_mode(sizes[i], 1, (baton__choice_t){BATON_QUORUM, quorums[k]},
                     quorums[k], quorums[k]);
        }
    }
}

/* Over whole blocks of elections all ranks are candidates equally often. So
   ranks in a fixed order have an exact mean if m = 1. Otherwise the standard
   error is about 1 % of P here. */
static void expect_mean(baton_partial_mode_t mode, int size, uint32_t m,
                        double expected)
{
    const baton_partial_options_t options = options_of(mode, m);
    const int epochs = 100 * size;
    double mean = 0;
    open_world(size, 1, &options);
    for (int i = 0; i < epochs; i++) {
        step(IN_TURN);
        mean += (double)world.included / epochs;
    }
    expect_conserved();
    close_world();
    if (mean < expected - 0.05 * size || mean > expected + 0.05 * size) {
        fail_msg("%d ranks, mode %d of %u: %.2f active, expected %.2f", size,
                 (int)mode, m, mean, expected);
    }
}

TEST(test_candidates_have_their_mean)
{
    static const int sizes[] = {2, 3, 5, 8, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int p = sizes[i];
        for (uint32_t m = 1; m <= (uint32_t)p; m += m < 3 ? 1 : 6) {
            expect_mean(BATON_CANDIDATES_ANY, p, m, (p + 1.0) / (m + 1.0));
            expect_mean(BATON_CANDIDATES_ALL, p, m, m * (p + 1.0) / (m + 1.0));
        }
    }
}

/* ---- when an epoch begins ---------------------------------------------- */

static void do_nothing(void *arg)
{
}

static const baton_schedule_t *schedule_of(int rank)
{
    return baton_partial_schedule(world.ranks[rank].partial);
}

/* Returns true if no contribution of the rank is pending. */
static bool has_given(int rank)
{
    uint64_t data;
    bool any;
    support_ok(baton_partial_pending(world.ranks[rank].partial, &data, &any));
    return !any;
}

/* Ranks arrive in order from `first` on, until the epoch ends. It ends with
   the last of `count` ranks or, if that is 0, with the first candidate. Ranks
   contribute when they arrive or, if `count` is 0, when the epoch is
   activated. */
static void begin(baton_partial_mode_t mode, uint32_t m, int first, int count)
{
    enum { RANKS = 4 };
    const baton_partial_options_t options = options_of(mode, m);
    bool done = false;
    int arrived = 0;
    open_world(RANKS, 1, &options);
    /* Until this event the simulator does not report that ranks wait in
       vain. */
    support_ok(baton_sim_at(world.sim, 1e6, do_nothing, NULL));
    while (!done) {
        assert_true(arrived < RANKS);
        arrive(&world.ranks[(first + arrived) % RANKS]);
        support_expect(
            baton_sim_run(world.sim, baton_sim_now_us(world.sim) + 1000),
            BATON_ERR_TIMEOUT);
        arrived++;
        done = baton_schedule_epoch(schedule_of(first)) == 1;
        for (int i = 0; i < arrived; i++) {
            assert_int_equal(has_given((first + i) % RANKS), count > 0 || done);
        }
    }
    assert_true(count == 0 || arrived == count);
    for (int i = 0; i < RANKS; i++) {
        baton_partial_result_t seen;
        if (i < arrived) {
            support_ok(baton_partial_wait(
                world.ranks[(first + i) % RANKS].partial, -1, &seen));
            assert_true(*(const uint64_t *)seen.data == world.contributed);
        } else {
            assert_int_equal(
                baton_schedule_epoch(schedule_of((first + i) % RANKS)), 1);
        }
    }
    close_world();
}

TEST(test_started_ranks_contribute_before_the_epoch_begins)
{
    begin(BATON_QUORUM, 3, 1, 3);
    begin(BATON_MAJORITY, 0, (baton_partial_elect(3, 1, 4) + 1) % 4, 4);
    begin(BATON_CANDIDATES_ANY, 2, 0, 0);
}

/* After a recovery, an epoch does not count arrivals that the failed epoch of
   the same number has counted. */
TEST(test_quorum_counts_anew_after_a_recovery)
{
    enum { RANKS = 5, QUORUM = 4 };
    const baton_partial_options_t options = options_of(BATON_QUORUM, QUORUM);
    open_world(RANKS, 1, &options);
    support_ok(baton_sim_at(world.sim, 1e6, do_nothing, NULL));
    for (int r = 0; r < 3; r++) {
        support_ok(baton_sim_fail_send(world.sim, 2, r == 2));
        arrive(&world.ranks[r]);
        support_expect(
            baton_sim_run(world.sim, baton_sim_now_us(world.sim) + 1000),
            BATON_ERR_TIMEOUT);
    }
    support_ok(baton_sim_fail_send(world.sim, 2, 0));
    support_sim_recover(world.sim, RANKS);
    world.epoch = 0;
    step(IN_TURN);
    assert_int_equal(world.included, QUORUM);
    expect_conserved();
    close_world();
}

/* ---- messages ---------------------------------------------------------- */

static uint64_t messages(void)
{
    return baton_sim_totals(world.sim).messages;
}

/* Two of 400 ranks arrive in each microsecond, and the root takes one message a
   microsecond. If each arrival were a message, all 400 would be included. The
   inner all-reduce and the activation take 3 P messages; counting takes less
   than 2 P, and here less than 3 P / 2. */
TEST(test_quorum_of_a_burst)
{
    enum { RANKS = 400, QUORUM = 200, EPOCHS = 2 };
    const baton_partial_options_t options = options_of(BATON_QUORUM, QUORUM);
    open_world(RANKS, 1, &options);
    step(IN_TURN); /* ranks introduce themselves in the first step */
    world.apart_us = 0.5;
    for (int i = 0; i < EPOCHS; i++) {
        uint64_t before = messages();
        step(SHUFFLED);
        assert_in_range(world.included, QUORUM, 3 * QUORUM / 2);
        assert_in_range(messages() - before, 0, 9 * RANKS / 2);
    }
    expect_conserved();
    close_world();
}

/* The messages are those of counting, of the activation, and of the inner
   all-reduce. With 16 ranks a leader may hold back reports that cannot reach
   the quorum: a member's arrival, and one or two reports of each other
   group. */
TEST(test_quorum_takes_few_messages)
{
    static const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t others = (uint64_t)sizes[i] - 1;
        for (uint32_t q = 2; q <= others; q++) {
            const baton_partial_options_t options = options_of(BATON_QUORUM, q);
            for (order_t order = IN_TURN; order <= TOGETHER; order++) {
                open_world(sizes[i], 1, &options);
                step(order);
                for (int root = 0; root < sizes[i]; root++) {
                    bool few = sizes[i] >= 16 && q == others;
                    uint64_t before = messages();
                    step(order);
                    assert_in_range(messages() - before, 0,
                                    few && order == SHUFFLED ? 5 * others - 1
                                                             : 5 * others);
                }
                close_world();
            }
        }
    }
}

static uint64_t messages_counted(void)
{
    uint64_t sum = 0;
    for (int r = 0; r < world.size; r++) {
        sum += baton_schedule_sent(schedule_of(r)).messages;
    }
    return sum;
}

/* On one host there are P - 1 activations, P - 1 contributions, some of them
   null, and P - 1 results, whichever rank comes first. A rank that arrives
   after a peer has begun the epoch activates no other. */
TEST(test_solo_takes_three_messages_a_rank)
{
    static const int sizes[] = {1, 2, 3, 8, 9, 16, 32, 65};
    const baton_partial_options_t options = options_of(BATON_SOLO, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t others = (uint64_t)sizes[i] - 1;
        open_world(sizes[i], sizes[i], &options);
        for (uint64_t epoch = 1; epoch <= 6; epoch++) {
            step(SHUFFLED);
            assert_int_equal(messages_counted(), epoch * 3 * others);
        }
        world.apart_us = 2; /* ranks still arrive while the epoch runs */
        uint64_t before = messages_counted();
        step(IN_TURN);
        assert_in_range(messages_counted() - before, 3 * others,
                        3 * others + others / 2 * others);
        close_world();
    }
}

/* A vector that a rank sends up the tree is read in place: each of its parent's
   receives is a loan. (Simulated messages are not lent.) */
TEST_MANUALLY(test_contributions_are_lent, 5)
{
    enum { SIZE = 5 };
    static const uint32_t children[SIZE] = {3, 0, 1, 0, 0};
    baton_partial_options_t options = options_of(BATON_FULL, 0);
    options.inner = baton_add_allreduce_binomial;
    baton_partial_t *partials[SIZE];
    for (int r = 0; r < SIZE; r++) {
        support_ok(
            baton_partial_create(cluster->groups[r], &options, &partials[r]));
        assert_int_equal(baton_partial_schedule(partials[r])->plan.loan_count,
                         children[r]);
    }
    for (int r = 0; r < SIZE; r++) {
        support_ok(baton_partial_destroy(partials[r]));
    }
}
