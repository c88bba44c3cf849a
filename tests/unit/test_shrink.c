/* baton_group_shrink with ranks that die at any moment, even while they report
   to others, and whose deaths not every rank notices by itself. Also
   partitions, and partials that go on by themselves after one. All ranks take
   turns in one thread. Over MPI: mpi/mpi_survivors.c. Ranks report losses,
   recoveries and farewells by notices, which are short messages. */
#include "base/alloc.h"
#include "ops/op.h"
#include "progress/state/member.h"
#include "progress/state/stepper.h"
#include "support/cluster.h"
#include "support/malloc.h"
#include "transport/subset.h"
#include <baton/coll.h>
#include <baton/partial.h>

enum { MOST = 8, TRIALS = 400, TURNS = 100000 };

typedef struct rank {
    baton_engine_t *engine;
    baton_group_t *group, *survivors;
    baton_partial_t *partial; /* NULL: the rank shrinks its group */
    baton_partial_result_t result;
    /* The group's transport, but it sends nothing once the rank has died. */
    baton_transport_t port;
    const baton_transport_t *given;
    bool dead;
    int notices; /* number of notices until the rank dies; -1: it lives */
    /* Number of answers with an agreement that the rank has sent. */
    int answers;
} rank_t;

static rank_t ranks[MOST];
static baton_inproc_t *medium;
static int size;
static support_random_t dice;
/* The ranks on one side of a partition, as bits; 0: there is none. */
static unsigned side;

static int below(int n)
{
    return (int)support_random_below(&dice, (uint64_t)n);
}

static rank_t *rank_of(const void *endpoint)
{
    int r = 0;
    while (ranks[r].group == NULL || ranks[r].group->endpoint != endpoint) {
        r++;
    }
    return &ranks[r];
}

/* Sends a notice. The rank may die after it, and then sends no more. */
static baton_status_t notify(void *endpoint, int peer,
                             const baton_header_t *header, const void *data,
                             size_t bytes)
{
    rank_t *rank = rank_of(endpoint);
    if (rank->notices == 0) {
        rank->dead = true;
    }
    if (rank->dead) {
        return BATON_AGAIN;
    }
    if (((side >> peer ^ side >> (rank - ranks)) & 1) != 0) {
        return BATON_OK; /* the notice is lost on its way */
    }
    rank->notices -= rank->notices > 0;
    rank->answers += header->kind == BATON__MESSAGE_VIEW && header->tag == 2;
    return rank->given->notify(endpoint, peer, header, data, bytes);
}

static void open_ranks(int count)
{
    baton_engine_options_t manual = BATON_ENGINE_OPTIONS;
    manual.progress = BATON_PROGRESS_MANUAL;
    size = count;
    support_ok(baton_inproc_create(size, &medium));
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank_t){.notices = -1};
        support_ok(baton_engine_open(&manual, &ranks[r].engine));
        support_ok(baton_group_create_inproc(ranks[r].engine, medium, r,
                                             &ranks[r].group));
        ranks[r].given = ranks[r].group->transport;
        ranks[r].port = *ranks[r].given;
        ranks[r].port.notify = notify;
        ranks[r].group->transport = &ranks[r].port;
    }
}

static int close_ranks(void **state)
{
    for (int r = 0; r < size; r++) {
        rank_t *rank = &ranks[r];
        rank->dead = false;
        support_ok(baton_partial_destroy(rank->partial));
        bool old_first = below(2) == 0;
        baton_group_t *both[] = {old_first ? rank->group : rank->survivors,
                                 old_first ? rank->survivors : rank->group};
        if (rank->group != NULL) {
            rank->group->transport = rank->given;
            rank->group->collective = false;
        }
        support_ok(baton_group_destroy(both[0]));
        support_ok(baton_group_destroy(both[1]));
        support_ok(baton_engine_close(rank->engine));
    }
    support_ok(baton_inproc_destroy(medium));
    return 0;
}

#define SHRINK_TEST(name) TEST_BETWEEN(name, NULL, close_ranks)

/* Makes steps of the first `count` ranks in turn. */
static void step(int count, int steps)
{
    for (int i = 0; i < steps; i++) {
        (void)baton_engine_step(ranks[i % count].engine);
    }
}

/* A subgroup that is destroyed needs no more steps once it has said farewell,
   but not before. It is freed when its peer has said farewell, too. */
SHRINK_TEST(test_a_subgroup_rests_behind_its_farewell)
{
    static const int both[] = {0, 1};
    baton_group_t *of[2];
    open_ranks(2);
    for (int r = 0; r < 2; r++) {
        ranks[r].group->collective = true; /* like groups over MPI */
        support_ok(
            baton_group_create_sub(ranks[r].group, both, 2, "some", &of[r]));
    }
    const baton__stepper_t *stepper = of[1]->stepper;
    ranks[1].dead = true; /* rank 1 has no room for notices */
    support_ok(baton_group_destroy(of[1]));
    step(2, TURNS / 1000);
    assert_int_equal(stepper->recovering, 1);
    ranks[1].dead = false;
    step(2, TURNS / 1000);
    assert_int_equal(stepper->recovering, 0);
    support_ok(baton_group_destroy(of[0]));
    step(2, TURNS / 1000);
    assert_ptr_equal(stepper->groups, ranks[1].group);
    /* A subgroup whose peer does not end is given up, with the notices for that
       peer. */
    support_ok(
        baton_group_create_sub(ranks[1].group, both, 2, "other", &of[1]));
    baton_schedule_t *s = support_schedule(of[1], "owed");
    baton_add_barrier(s);
    support_ok(baton_schedule_commit(s));
    ranks[1].dead = true;
    support_set_variable("BATON_DESTROY_MS", "1");
    support_ok(baton_schedule_start(s));
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_group_destroy(of[1]));
    assert_int_equal(baton__member_of(of[1])->leaving, 1);
    support_ok(baton_group_destroy(ranks[1].group));
    ranks[1].group = NULL;
    support_set_variable("BATON_DESTROY_MS", NULL);
}

/* A living rank notices by itself that the victim is dead. */
static void learn(int r, int victim)
{
    const rank_t *rank = &ranks[r];
    if (!rank->dead && baton__group_loss(rank->group, victim) == NULL) {
        rank->given->lose(rank->group->endpoint, victim, BATON_ERR_TRANSPORT,
                          "it is dead");
    }
}

/* A rank finds that another one does not answer. */
static void suspect(int r, int other)
{
    ranks[r].given->lose(ranks[r].group->endpoint, other, BATON_ERR_TIMEOUT,
                         "it is silent");
}

static int count_living(void)
{
    int count = 0;
    for (int r = 0; r < size; r++) {
        count += !ranks[r].dead;
    }
    return count;
}

/* Lets a random living rank continue to shrink its group. Returns true if all
   have done so. */
static bool take_turn(void)
{
    rank_t *rank = &ranks[below(size)];
    if (!rank->dead && rank->survivors == NULL && below(4) > 0) {
        baton_status_t status =
            baton_group_shrink(rank->group, 0, &rank->survivors);
        if (status != BATON_ERR_TIMEOUT) {
            support_expect(status, BATON_OK);
        }
    } else if (!rank->dead) {
        /* The rank answers peers, or computes. */
        (void)baton_engine_step(rank->engine);
    }
    int done = 0;
    for (int r = 0; r < size; r++) {
        done += !ranks[r].dead && ranks[r].survivors != NULL;
    }
    return done == count_living();
}

/* Checks that the groups of all living ranks have the same members, which
   include each of these ranks. */
static void check_survivors(void)
{
    const baton_group_t *first = NULL;
    for (int r = 0; r < size; r++) {
        const baton_group_t *mine = ranks[r].survivors;
        if (ranks[r].dead) {
            continue;
        }
        first = first == NULL ? mine : first;
        assert_int_equal(mine->channel, first->channel);
        assert_int_equal(baton_group_size(mine), baton_group_size(first));
        for (int i = 0; i < baton_group_size(mine); i++) {
            assert_int_equal(baton_group_origin(mine, i),
                             baton_group_origin(first, i));
        }
        assert_int_equal(baton_group_origin(mine, baton_group_rank(mine)), r);
        assert_true(baton_group_size(mine) >= count_living());
    }
}

/* All living ranks shrink their groups, and must agree. */
static void shrink_all(void)
{
    for (int turn = 0; !take_turn(); turn++) {
        assert_true(turn < TURNS);
    }
    check_survivors();
}

/* A rank sends a view: that it knows no rank to be lost. (A view is the set of
   ranks that a rank knows to be lost: shrink.h.) */
static void send_view(int from, int to, uint32_t tag)
{
    const baton_header_t header = {
        .kind = BATON__MESSAGE_VIEW, .epoch = 1, .tag = tag, .incarnation = 1};
    const unsigned char view[248] = {0};
    support_expect(ranks[from].given->notify(ranks[from].group->endpoint, to,
                                             &header, view, sizeof view),
                   BATON_DONE);
}

/* The ranks from 1 on begin to shrink. */
static void begin_without_0(int count)
{
    open_ranks(count);
    for (int r = 1; r < count; r++) {
        support_expect(
            baton_group_shrink(ranks[r].group, 0, &ranks[r].survivors),
            BATON_ERR_TIMEOUT);
    }
}

static void kill_some_meanwhile(void)
{
    bool learned[MOST] = {false};
    for (int victims = below(size); victims > 0; victims--) {
        ranks[below(size)].notices = below(3 * size);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        bool done = take_turn();
        bool all_learned = true;
        for (int victim = 0; victim < size; victim++) {
            if (ranks[victim].dead && !learned[victim]) {
                int who = below(size);
                learned[victim] = !ranks[who].dead && below(4) == 0;
                if (learned[victim]) {
                    learn(who, victim);
                }
                all_learned &= learned[victim];
            }
            if (ranks[victim].dead && learned[victim] && below(50) == 0) {
                /* So that no death remains unknown: the rank that has noticed
                   it may have died since. */
                learn(below(size), victim);
            }
        }
        if (done && all_learned) {
            return;
        }
    }
    fail_msg("the ranks that live have not agreed");
}

TEST(test_shrink_agrees_whoever_dies_when)
{
    int died = 0;
    dice = support_random(support_seed(), 22);
    for (int trial = 0; trial < TRIALS; trial++) {
        open_ranks(2 + below(MOST - 1));
        kill_some_meanwhile();
        check_survivors();
        died += size - count_living();
        (void)close_ranks(NULL);
    }
    print_message("%d ranks died\n", died);
    assert_true(died > TRIALS / 2);
}

/* Each rank is on a host of its own. */
static int host_of(const void *endpoint, int rank)
{
    return rank;
}

static baton_status_t go_on(rank_t *rank)
{
    return rank->partial != NULL
               ? baton_partial_wait(rank->partial, 0, &rank->result)
               : baton_group_shrink(rank->group, 0, &rank->survivors);
}

/* Each rank notices by itself, in any order, that the ranks on the other side
   do not answer and, for ranks on its side, that those in `ended` have ended.
   Returns the ranks that go on. All others must be told of the partition. The
   ranks shrink their groups or, if `options` is not NULL, wait for a step of a
   partial. */
static unsigned part(int count, unsigned cut, unsigned ended,
                     const baton_partial_options_t *options)
{
    const unsigned all = (1U << count) - 1;
    unsigned on = 0, over = ended;
    open_ranks(count);
    for (int r = 0; r < count; r++) {
        ranks[r].port.host_of = host_of;
        support_ok(options != NULL
                       ? baton_partial_create(ranks[r].group, options,
                                              &ranks[r].partial)
                       : BATON_OK);
    }
    side = cut;
    for (int i = 0; i < count; i++) {
        for (int r = 0; r < count; r++) {
            int other = (r + i) % count;
            ranks[r].dead = (ended >> r & 1) != 0;
            if ((ended >> other & 1) != 0) {
                learn(r, other);
            } else if (((cut >> other ^ cut >> r) & 1) != 0) {
                suspect(r, other);
            }
        }
    }
    /* All ranks notice the partition. */
    step(count, options != NULL ? count : 0);
    for (int r = 0; r < count && options != NULL; r++) {
        support_ok(baton_partial_start(ranks[r].partial));
    }
    for (int turn = 0; turn < TURNS && over != all; turn++) {
        int r = below(count);
        baton_status_t status =
            (over >> r & 1) != 0 ? BATON_ERR_TIMEOUT : go_on(&ranks[r]);
        (void)baton_engine_step(ranks[r].engine);
        over |= status != BATON_ERR_TIMEOUT ? 1U << r : 0;
        on |= status == BATON_OK ? 1U << r : 0;
    }
    assert_int_equal(over, all);
    side = 0; /* the sides can reach each other again */
    for (int turn = 0; turn < 4 * count; turn++) {
        int r = turn % count;
        (void)baton_engine_step(ranks[r].engine);
        if (((on | ended) >> r & 1) == 0) {
            const unsigned others = (cut >> r & 1 ? ~cut : cut) & all & ~ended;
            const int lowest = __builtin_ctz(others);
            char says[160];
            /* The error has the reason for the rank that is lost first. */
            (void)snprintf(says, sizeof says,
                           "partition: %d rank%s, the lowest of which is rank "
                           "%d%s, can't be reached",
                           __builtin_popcount(others),
                           (others & (others - 1)) == 0 ? "" : "s", lowest,
                           __builtin_ctz(others | ended) == lowest
                               ? " (it has destroyed its group)"
                               : "");
            support_fails(go_on(&ranks[r]), BATON_ERR_TRANSPORT,
                          options != NULL ? "partition" : says);
        } else if ((on >> r & 1) != 0) {
            unsigned own = (cut >> r & 1) != 0 ? cut : ~cut;
            assert_int_equal(options != NULL
                                 ? (int)ranks[r].result.living
                                 : baton_group_size(ranks[r].survivors),
                             __builtin_popcount(on & own));
        }
    }
    (void)close_ranks(NULL);
    return on;
}

/* Of two sides the larger one goes on. Of two halves, the one with the lowest
   rank does. Ranks that have ended count for neither side. */
static void cut_all(int most, const baton_partial_options_t *options)
{
    dice = support_random(support_seed(), 23);
    /* A partition is recognised after 250 us. */
    support_set_variable("BATON_PEER_TIMEOUT_MS", "1");
    for (int count = 2; count <= most; count++) {
        for (unsigned cut = 1; cut < 1U << (count - 1); cut++) {
            for (int i = 0; i < 2; i++) {
                unsigned all = (1U << count) - 1;
                unsigned ended = i == 0 ? 0 : (unsigned)below((int)all);
                unsigned one = cut & ~ended, two = ~cut & ~ended & all;
                int lead = __builtin_popcount(one) - __builtin_popcount(two);
                bool first =
                    lead > 0 || (lead == 0 && (one & -one) < (two & -two));
                assert_int_equal(part(count, cut, ended, options),
                                 first ? one : two);
            }
        }
    }
    support_set_variable("BATON_PEER_TIMEOUT_MS", NULL);
}

TEST(test_every_cut_leaves_one_side)
{
    const baton_partial_options_t full = {.size = sizeof full,
                                          .mode = BATON_FULL,
                                          .count = 1,
                                          .dtype = BATON_U64,
                                          .on_loss = BATON_ON_LOSS_CONTINUE};
    cut_all(7, NULL);
    /* The ranks destroy their groups one after another, so each waits in vain
       for those after it. */
    support_set_variable("BATON_DESTROY_MS", "1");
    cut_all(5, &full);
    support_set_variable("BATON_DESTROY_MS", NULL);
}

/* MPI reports that rank 0 can't be reached, and then its link reports that it
   has ended. */
SHRINK_TEST(test_shrink_parts_not_before_an_end_is_told)
{
    open_ranks(2);
    ranks[1].port.host_of = host_of;
    suspect(1, 0);
    (void)baton_engine_step(ranks[1].engine);
    support_expect(baton_group_shrink(ranks[1].group, 0, &ranks[1].survivors),
                   BATON_ERR_TIMEOUT);
    (void)baton_engine_step(ranks[1].engine);
    baton__group_note_end(ranks[1].group, 0);
    support_ok(baton_group_shrink(ranks[1].group, SUPPORT_WAIT_MS,
                                  &ranks[1].survivors));
}

TEST(test_shrink_of_a_minority_can_be_asked_for)
{
    support_set_variable("BATON_MINORITY", "1");
    assert_int_equal(part(5, 3, 0, NULL), 31);
    support_set_variable("BATON_MINORITY", NULL);
}

SHRINK_TEST(test_shrink_without_a_loss_copies_the_group)
{
    open_ranks(3);
    shrink_all();
    assert_int_equal(baton_group_size(ranks[2].survivors), 3);
    assert_int_equal(baton_group_origin(ranks[2].survivors, 3), -1);
    assert_int_equal(baton_group_origin(ranks[2].group, 1), 1);
}

/* Another allocation fails in each call. In the second round no resource stays
   allocated. */
SHRINK_TEST(test_shrink_without_memory_leaves_nothing_behind)
{
    open_ranks(1);
    for (int round = 0; round < 2; round++) {
        baton_group_t **made = &ranks[0].survivors;
        baton_status_t status = BATON_ERR_NO_MEMORY;
        int64_t nth = 0;
        support_ok(baton_group_destroy(*made));
        while (status == BATON_ERR_NO_MEMORY) {
            const int64_t live = malloc_live;
            baton__alloc_fail_nth(++nth);
            status = baton_group_shrink(ranks[0].group, 0, made);
            baton__alloc_fail_nth(0);
            assert_true(status == BATON_OK || round == 0 ||
                        malloc_live == live || !MALLOC_SEES_ALL);
        }
        support_ok(status);
        assert_true(nth > 3);
    }
}

SHRINK_TEST(test_shrink_names_who_has_not_come)
{
    baton_group_t *none = NULL;
    open_ranks(2);
    support_fails(baton_group_shrink(ranks[0].group, 0, &none),
                  BATON_ERR_TIMEOUT,
                  "rank 1 has not called baton_group_shrink");
    baton_engine_interrupt(ranks[0].engine);
    support_expect(baton_group_shrink(ranks[0].group, -1, &none),
                   BATON_ERR_INTERRUPTED);
    support_expect(baton_group_shrink(NULL, 0, &none), BATON_ERR_INVALID);
    support_expect(baton_group_shrink(ranks[0].group, 0, NULL),
                   BATON_ERR_INVALID);
}

SHRINK_TEST(test_shrink_tells_a_rank_that_is_left_out)
{
    open_ranks(3);
    learn(0, 2); /* rank 2 lives */
    (void)baton_engine_step(ranks[0].engine);
    baton_status_t status = BATON_ERR_TIMEOUT;
    for (int turn = 0; turn < TURNS && (status == BATON_ERR_TIMEOUT ||
                                        ranks[1].survivors == NULL);
         turn++) {
        for (int r = 0; r < 2; r++) {
            if (ranks[r].survivors == NULL) {
                (void)!baton_group_shrink(ranks[r].group, 0,
                                          &ranks[r].survivors);
            }
        }
        status = baton_group_shrink(ranks[2].group, 0, &ranks[2].survivors);
    }
    support_fails(status, BATON_ERR_TRANSPORT, "go on without it");
    assert_int_equal(baton_group_size(ranks[1].survivors), 2);
}

/* Rank 2 calls shrink after the others have agreed and made their group. */
SHRINK_TEST(test_shrink_tells_a_rank_that_was_left_out_before)
{
    open_ranks(3);
    learn(0, 2); /* rank 2 lives */
    ranks[2].dead = true;
    shrink_all();
    ranks[2].dead = false;
    step(3, 3); /* rank 2 drops the notices that it has got so far */
    /* Rank 2 was told, and is lost to rank 1. */
    assert_non_null(baton__group_loss(ranks[1].group, 2));
    baton_status_t status = BATON_ERR_TIMEOUT;
    for (int turn = 0; turn < 20 && status == BATON_ERR_TIMEOUT; turn++) {
        status = baton_group_shrink(ranks[2].group, 0, &ranks[2].survivors);
        step(2, 2);
    }
    support_fails(status, BATON_ERR_TRANSPORT, "go on without it");
}

/* Rank 0 had no room to send an answer when it shrinks the group again. Rank 1
   must get the answer nevertheless. */
SHRINK_TEST(test_shrink_owes_an_answer_while_it_begins_again)
{
    baton_group_t *again = NULL;
    open_ranks(2);
    shrink_all();
    step(2, 20);
    ranks[0].answers = 0;
    ranks[0].dead = true;
    send_view(1, 0, 1);
    step(1, 2);
    support_expect(baton_group_shrink(ranks[0].group, 0, &again),
                   BATON_ERR_TIMEOUT);
    ranks[0].dead = false;
    step(1, 2);
    assert_int_equal(ranks[0].answers, 1);
}

/* Rank 0 has agreed with rank 1 that all live, and dies. When rank 1 takes over
   that view, it has got another one from rank 2, which awaits an answer. */
SHRINK_TEST(test_shrink_passes_on_what_others_have_agreed)
{
    begin_without_0(3);
    send_view(0, 1, 2);
    ranks[0].dead = true;
    learn(2, 0);
    for (int i = 0; i < 10; i++) {
        (void)baton_engine_step(ranks[2].engine);
    }
    shrink_all();
    assert_int_equal(baton_group_size(ranks[2].survivors), 3);
}

/* The view on which the lost rank 0 had agreed arrives late: ranks 2 and 3 have
   agreed on another view, which rank 1 has sent them. */
SHRINK_TEST(test_shrink_takes_over_no_view_of_a_lost_rank)
{
    begin_without_0(4);
    ranks[0].dead = true;
    learn(2, 0);
    for (int i = 0; i < 20; i++) {
        (void)baton_engine_step(ranks[2 - i / 10].engine);
    }
    send_view(0, 1, 2);
    for (int i = 0; i < 20; i++) {
        (void)baton_engine_step(ranks[2 + i % 2].engine);
    }
    shrink_all();
    assert_int_equal(baton_group_size(ranks[1].survivors), 3);
}

/* A rank that was left out may have a group with the same number, and send
   messages in it before the survivors have made their group. */
SHRINK_TEST(test_shrink_heeds_no_rank_that_is_left_out)
{
    const baton_header_t left = {.kind = BATON__MESSAGE_LEFT};
    open_ranks(3);
    learn(0, 2);
    ranks[2].dead = true;
    for (int r = 0; r < 2; r++) {
        baton_group_t *group = ranks[r].group;
        baton__group_keep(&baton__member_of(group)->subset_headers,
                          baton__subset_channel(0, 1), &left, 2);
    }
    shrink_all();
    for (int r = 0; r < 2; r++) {
        assert_null(baton__member_of(ranks[r].group)->subset_headers);
        assert_int_equal(baton__member_of(ranks[r].survivors)->lost_count, 0);
    }
}

static int lost_to_port;

static void note_lost(void *endpoint, int peer, baton_status_t status,
                      const char *detail)
{
    lost_to_port = peer;
}

/* Rank 1 gets the notice that rank 0 has left after the loss of rank 2, before
   it notices that loss itself. Its transport learns of the loss, too: else it
   would wait for rank 2 when it is closed. Until the transport has delivered
   what rank 2 had sent, and reports the loss, no rank is lost to rank 1. */
SHRINK_TEST(test_who_leaves_says_whom_it_has_lost)
{
    open_ranks(3);
    ranks[1].port.lose = note_lost;
    learn(0, 2);
    (void)baton_engine_step(ranks[0].engine);
    ranks[0].group->collective = true; /* like a group over MPI */
    support_ok(baton_group_destroy(ranks[0].group));
    ranks[0].group = NULL;
    (void)baton_engine_step(ranks[1].engine);
    assert_int_equal(lost_to_port, 2);
    for (int r = 0; r < 3; r++) {
        assert_null(baton__group_loss(ranks[1].group, r));
    }
    learn(1, 2);
    (void)baton_engine_step(ranks[1].engine);
    assert_non_null(baton__group_loss(ranks[1].group, 2));
    assert_string_equal(baton__group_loss(ranks[1].group, 0),
                        "it has destroyed the group after a loss");
    assert_int_equal(baton__group_first_lost(ranks[1].group), 1 + 2);
}

/* Opens ranks whose groups are like those over MPI: the ranks report losses to
   each other. */
static void open_collective(int count)
{
    open_ranks(count);
    for (int r = 0; r < size; r++) {
        ranks[r].group->collective = true;
    }
}

/* The same as test_who_leaves_says_whom_it_has_lost, in a subgroup. */
SHRINK_TEST(test_who_leaves_a_subgroup_says_whom_it_has_lost)
{
    const int all[] = {0, 1, 2};
    baton_group_t *subgroups[2];
    open_collective(3);
    for (int r = 0; r < 2; r++) {
        support_ok(baton_group_create_sub(ranks[r].group, all, 3, "sub",
                                          &subgroups[r]));
    }
    ranks[1].port.lose = note_lost;
    learn(0, 2);
    (void)baton_engine_step(ranks[0].engine);
    support_ok(baton_group_destroy(subgroups[0]));
    (void)baton_engine_step(ranks[1].engine);
    assert_null(baton__group_loss(subgroups[1], 0));
    learn(1, 2);
    (void)baton_engine_step(ranks[1].engine);
    assert_string_equal(baton__group_loss(subgroups[1], 0),
                        "it has destroyed the group after a loss");
    support_ok(baton_group_destroy(subgroups[1]));
}

/* Rank 1 waits for rank 0 in a recovery, and notices no loss itself. Rank 0
   does, but has no room for notices at first. */
SHRINK_TEST(test_a_loss_is_told_to_all_ranks)
{
    open_collective(4);
    support_expect(baton_group_recover(ranks[1].group, 0), BATON_ERR_TIMEOUT);
    learn(0, 2);
    ranks[0].dead = true;
    step(1, 5);
    assert_int_equal(baton__member_of(ranks[0].group)->answer_count, 2);
    ranks[0].dead = false;
    step(2, 2);
    support_fails(baton_group_recover(ranks[1].group, 0), BATON_ERR_TRANSPORT,
                  "rank 2 is gone");
    assert_null(baton__group_loss(ranks[1].group, 0));
}

/* Rank 0 dies after its first notice, which is to rank 1. */
SHRINK_TEST(test_who_hears_of_a_loss_tells_it_on)
{
    open_collective(4);
    learn(0, 3);
    ranks[0].notices = 1;
    step(3, 9);
    assert_true(ranks[0].dead);
    assert_non_null(baton__group_loss(ranks[2].group, 3));
    assert_null(baton__group_loss(ranks[2].group, 0));
}

/* Rank 1 hears from rank 0 that rank 2, which lives, is lost, and tells rank 2.
   Rank 2's transport must learn that rank 1 goes on without rank 2. Otherwise
   transfers to rank 1 would not end. */
SHRINK_TEST(test_who_is_taken_for_lost_is_told)
{
    open_collective(3);
    ranks[2].port.lose = note_lost;
    lost_to_port = -1;
    suspect(0, 2);
    step(3, 3);
    assert_ptr_equal(baton__group_loss(ranks[2].group, 1), baton__disowned);
    assert_int_equal(lost_to_port, 1);
    suspect(2, 0);
    (void)baton_engine_step(ranks[2].engine);
    support_fails(baton_group_shrink(ranks[2].group, 0, &ranks[2].survivors),
                  BATON_ERR_TRANSPORT, "go on without it");
    assert_null(baton__group_loss(ranks[0].group, 1));
}

/* Rank 0 is only stopped, and is on the host of rank 1, so there is no
   partition. Later it continues, and finds that it is lost. */
SHRINK_TEST(test_shrink_goes_on_without_a_stopped_rank_of_the_host)
{
    baton_status_t status = BATON_ERR_TIMEOUT;
    open_collective(2);
    suspect(1, 0);
    (void)baton_engine_step(ranks[1].engine);
    support_ok(baton_group_shrink(ranks[1].group, SUPPORT_WAIT_MS,
                                  &ranks[1].survivors));
    for (int turn = 0; turn < 20 && status == BATON_ERR_TIMEOUT; turn++) {
        status = baton_group_shrink(ranks[0].group, 0, &ranks[0].survivors);
        (void)baton_engine_step(ranks[turn % 2].engine);
    }
    support_fails(status, BATON_ERR_TRANSPORT, "go on without it");
}

static baton_schedule_t *make_barrier(int r, const char *name)
{
    baton_schedule_t *schedule = support_schedule(ranks[r].group, name);
    baton_add_barrier(schedule);
    return schedule;
}

/* Rank 0 has not noticed the loss. It waits for rank 1, which shrinks the
   group. */
SHRINK_TEST(test_shrink_fails_what_peers_still_start)
{
    open_ranks(3);
    baton_schedule_t *s[] = {make_barrier(0, "idle"), make_barrier(0, "lacked"),
                             make_barrier(1, "idle")};
    for (int i = 0; i < 3; i++) {
        support_ok(baton_schedule_commit(s[i]));
    }
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_start(s[1]));
    learn(1, 2);
    support_fails(baton_group_shrink(ranks[1].group, 0, &ranks[1].survivors),
                  BATON_ERR_TIMEOUT,
                  "shrink on rank 1 of 3: rank 0 has not called "
                  "baton_group_shrink within 0 ms");
    step(2, 8);
    support_fails(baton_schedule_wait(s[0], 0), BATON_ERR_TRANSPORT,
                  "\"idle\" was given up on rank 1; rank 2 is gone");
    support_fails(baton_schedule_wait(s[1], 0), BATON_ERR_TRANSPORT,
                  "lacked the schedule, was shrunk on rank 1; rank 2 is gone");
    for (int i = 0; i < 3; i++) {
        support_ok(baton_schedule_destroy(s[i]));
    }
}

static baton_status_t refuse(void *endpoint, baton_token_t token, int peer,
                             const baton_header_t *header, const void *data,
                             size_t bytes)
{
    if (peer != 2) {
        return ranks[0].given->send(endpoint, token, peer, header, data, bytes);
    }
    ranks[0].given->lose(endpoint, peer, BATON_ERR_TRANSPORT, NULL);
    return BATON_ERR_TRANSPORT;
}

/* Rank 0 finds by a send that rank 2 is lost, and tells rank 1, which may
   recover. Rank 1 tells rank 3, which commits later. */
static void lose_and_commit_late(const char *name, bool recovers,
                                 const char *says)
{
    baton_schedule_t *s[4];
    open_ranks(4);
    for (int r = 0; r < 4; r++) {
        s[r] = support_schedule(ranks[r].group, name);
        for (int peer = 0; peer < 4; peer++) {
            (void)baton_add_send(s[r], peer, support_scratch(s[r], 1));
            (void)baton_add_recv(s[r], peer, support_scratch(s[r], 1));
        }
    }
    for (int r = 0; r < 3; r++) {
        support_ok(baton_schedule_commit(s[r]));
    }
    for (int r = 1; r < 3; r++) {
        /* This start introduces the schedules of these ranks to each other. */
        support_ok(baton_schedule_start(s[r]));
    }
    step(3, 6);
    ranks[0].port.send = refuse;
    support_ok(baton_schedule_start(s[0]));
    if (recovers) {
        (void)!baton_group_recover(ranks[1].group, 0);
    }
    step(2, 6);
    support_fails(baton_group_recover(ranks[1].group, 0), BATON_ERR_TRANSPORT,
                  "rank 2 is gone");
    ranks[0].dead = true; /* rank 0 no longer answers */
    if (!recovers) {
        support_ok(baton_schedule_destroy(s[1]));
        s[1] = NULL;
    }
    /* The result of this step does not matter. */
    (void)baton_engine_step(ranks[3].engine);
    support_ok(baton_schedule_commit(s[3]));
    support_ok(baton_schedule_start(s[3]));
    for (int turn = 0; turn < 8; turn++) {
        (void)baton_engine_step(ranks[1 + turn % 2 * 2].engine);
    }
    support_fails(baton_schedule_wait(s[3], 0), BATON_ERR_TRANSPORT, says);
    baton_failure_t failure;
    support_ok(baton_schedule_failure(s[3], &failure));
    assert_int_equal(failure.rank, recovers ? 3 : 0);
    for (int r = 0; r < 4; r++) {
        support_ok(baton_schedule_destroy(s[r]));
    }
    (void)close_ranks(NULL);
}

TEST(test_a_late_commit_learns_who_is_lost)
{
    lose_and_commit_late("late", true, "a failure; rank 2 is gone: ");
}

TEST(test_a_late_commit_learns_why_what_was_destroyed_failed)
{
    char name[300] = "";
    lose_and_commit_late(memset(name, 'x', sizeof name - 1), false,
                         "on rank 0: rank 2 is gone: ");
}

static int asked;

static void find_left(void *endpoint, int peer)
{
    asked = peer;
    ranks[0].given->lose(endpoint, peer, BATON_ERR_TRANSPORT,
                         "nobody answers there any more");
}

/* Rank 1 has left without a farewell. Rank 0 has a notice for it: that rank 2
   is lost, or that rank 0 has destroyed a schedule. */
static void leave_untold(bool loses)
{
    baton_schedule_t *s = NULL;
    open_collective(loses ? 3 : 2);
    asked = -1;
    ranks[0].port.ask = find_left;
    if (loses) {
        learn(0, 2);
    } else {
        s = make_barrier(0, "left");
        support_ok(baton_schedule_commit(s));
        support_ok(baton_schedule_start(s));
        step(1, 3);
    }
    ranks[0].dead = true; /* rank 0's transport has no room for notices */
    (void)baton_engine_step(ranks[0].engine);
    assert_int_equal(baton__member_of(ranks[0].group)->answer_count, loses);
    support_set_variable("BATON_DESTROY_MS", "1");
    support_ok(baton_schedule_destroy(s));
    support_set_variable("BATON_DESTROY_MS", NULL);
    support_ok(baton_group_destroy(ranks[0].group));
    ranks[0].group = NULL;
    assert_int_equal(asked, 1);
    (void)close_ranks(NULL);
}

TEST(test_who_leaves_asks_whom_it_can_not_tell)
{
    support_set_variable("BATON_STALL_MS", "8");
    leave_untold(true);
    leave_untold(false);
    support_set_variable("BATON_STALL_MS", NULL);
}
