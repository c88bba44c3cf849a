/* Nodes that need not fire: branches not taken, k of n and its stragglers, and
   epochs that a limit holds back. */
#include "support_pair.h"
#include "support_random.h"
#include "support_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static baton_status_t count_call(void *arg, uint64_t epoch)
{
    (void)epoch;
    ++*(uint64_t *)arg;
    return BATON_OK;
}

static baton_status_t skip_odd(void *arg, uint64_t epoch)
{
    (void)arg;
    return epoch % 2 == 1 ? BATON_SKIP : BATON_OK;
}

/* A skip takes one branch away, and what has another way still fires:

       skip_odd --> branch (optional)
           |
           +------> join (any) --> last
       nop --------/                                                         */
static void test_skip_leaves_the_branch_out(void **state)
{
    (void)state;
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_crew_t *crew = support_crew_open(1, &support_variants[i]);
        baton_schedule_t *s;
        uint64_t branches = 0, joins = 0;
        support_ok(baton_schedule_create(crew->groups[0], "skip", &s));
        baton_node_t skip = baton_add_call(s, skip_odd, NULL);
        baton_node_t branch = baton_add_call(s, count_call, &branches);
        baton_node_t nop = baton_add_nop(s);
        baton_node_t join = baton_add_call(s, count_call, &joins);
        baton_set_optional(s, branch);
        baton_set_need(s, join, BATON_NEED_ANY);
        baton_before(s, skip, branch);
        baton_before(s, skip, join);
        baton_before(s, nop, join);
        support_ok(baton_schedule_commit(s));
        for (uint64_t epoch = 1; epoch <= 20; epoch++) {
            support_run(s);
            assert_int_equal(branches, epoch / 2);
            assert_int_equal(joins, epoch);
        }
        baton_schedule_destroy(s);
        support_crew_close(crew);
    }
}

/* ---- stragglers ------------------------------------------------------- */

#define SENDERS 4
#define QUORUM  2

/* Rank 0 needs 2 of 4 messages; the others' are late by any number of epochs.

       recv i (optional) --> copy i (optional) --> 2 of 4                    */
typedef struct quorum {
    baton_schedule_t *receiver;
    baton_schedule_t *senders[SENDERS];
    uint64_t got[SENDERS], value[SENDERS], sent[SENDERS];
    uint64_t calls;
} quorum_t;

static void open_quorum(quorum_t *quorum, support_crew_t *crew)
{
    memset(quorum, 0, sizeof(*quorum));
    baton_schedule_t *s;
    support_ok(baton_schedule_create(crew->groups[0], "quorum", &s));
    quorum->receiver = s;
    baton_buffer_t scratch =
        baton_buffer_scratch(s, sizeof(quorum->got), BATON_MEMORY_HOST);
    baton_buffer_t got = baton_buffer_bind(s, quorum->got, sizeof(quorum->got),
                                           BATON_MEMORY_HOST);
    baton_node_t enough = baton_add_call(s, count_call, &quorum->calls);
    baton_set_need(s, enough, QUORUM);
    for (int i = 0; i < SENDERS; i++) {
        baton_view_t place = baton_view(scratch, (size_t)i * 8, 8);
        baton_node_t recv = baton_add_recv(s, i + 1, place);
        baton_node_t copy =
            baton_add_copy(s, baton_view(got, (size_t)i * 8, 8), place);
        baton_set_optional(s, recv);
        baton_set_optional(s, copy);
        baton_before(s, recv, copy);
        baton_before(s, copy, enough);
    }
    support_ok(baton_schedule_commit(s));
    for (int i = 0; i < SENDERS; i++) {
        support_ok(baton_schedule_create(crew->groups[i + 1], "sender", &s));
        (void)baton_add_send(s, 0,
                             baton_view(baton_buffer_bind(s, &quorum->value[i],
                                                          8, BATON_MEMORY_HOST),
                                        0, 8));
        support_ok(baton_schedule_commit(s));
        quorum->senders[i] = s;
    }
}

static void send_up_to(quorum_t *quorum, int sender, uint64_t epoch)
{
    while (quorum->sent[sender] < epoch) {
        quorum->value[sender] = ++quorum->sent[sender];
        support_run(quorum->senders[sender]);
    }
}

/* The k-th message of a sender is epoch k's, however late it comes. */
static void expect_own_messages(const quorum_t *quorum, uint64_t epoch)
{
    int count = 0;
    for (int i = 0; i < SENDERS; i++) {
        if (quorum->got[i] != 0 && quorum->got[i] != epoch) {
            fail_msg("epoch %d got the message of epoch %d from rank %d",
                     (int)epoch, (int)quorum->got[i], i + 1);
        }
        count += quorum->got[i] != 0;
    }
    assert_true(count >= QUORUM);
    assert_int_equal(quorum->calls, epoch);
}

static void test_stragglers_are_charged_to_their_own_epoch(void **state)
{
    (void)state;
    support_random_t random = support_random(support_seed(), 1);
    for (int variant = 0; variant < SUPPORT_VARIANTS; variant++) {
        support_crew_t *crew =
            support_crew_open(SENDERS + 1, &support_variants[variant]);
        quorum_t quorum;
        open_quorum(&quorum, crew);
        for (uint64_t epoch = 1; epoch <= 2000; epoch++) {
            memset(quorum.got, 0, sizeof(quorum.got));
            support_ok(baton_schedule_start(quorum.receiver));
            int first = (int)support_random_below(&random, SENDERS);
            for (int i = 0; i < SENDERS; i++) {
                int sender = (first + i) % SENDERS;
                uint64_t some =
                    quorum.sent[sender] + support_random_below(&random, 3);
                /* Two are on time, the others late or even early. */
                send_up_to(&quorum, sender,
                           i < QUORUM ? epoch
                                      : (some < epoch + 3 ? some : epoch + 3));
            }
            support_ok(baton_schedule_wait(quorum.receiver, SUPPORT_WAIT_MS));
            expect_own_messages(&quorum, epoch);
        }
        baton_schedule_destroy(quorum.receiver);
        for (int i = 0; i < SENDERS; i++) {
            baton_schedule_destroy(quorum.senders[i]);
        }
        support_crew_close(crew);
    }
}

/* ---- limit ------------------------------------------------------------ */

/* Rank 0 activates; rank 1 never starts. */
static void test_limit_holds_external_epochs_back(void **state)
{
    (void)state;
    support_ranks_t *ranks = support_ranks_open(2);
    baton_schedule_t **s = support_schedules_create(ranks, "limited");
    uint64_t calls[2] = {0, 0};
    for (int rank = 0; rank < 2; rank++) {
        baton_node_t begin =
            baton_add_activation(s[rank], baton_add_on_start(s[rank]));
        baton_node_t call = baton_add_call(s[rank], count_call, &calls[rank]);
        baton_before(s[rank], begin, call);
    }
    baton_schedule_limit(s[1], 1);
    support_schedules_commit(ranks, s);
    for (int epoch = 1; epoch <= 5; epoch++) {
        support_run(s[0]);
    }
    support_settle(ranks);
    assert_int_equal(calls[0], 5);
    assert_int_equal(calls[1], 1); /* the messages of the others are kept */
    baton_schedule_limit(s[1], 3);
    support_settle(ranks);
    assert_int_equal(calls[1], 3);
    baton_schedule_limit(s[1], 2); /* never lowered */
    support_settle(ranks);
    for (int epoch = 1; epoch <= 4; epoch++) {
        support_run(s[1]); /* 1 to 3 have been; the 4th its own start begins */
    }
    assert_int_equal(calls[1], 4);
    assert_int_equal(baton_schedule_epoch(s[1]), 4);
    baton_schedule_limit(s[1], 100);
    support_settle(ranks);
    assert_int_equal(calls[1], 5);
    support_schedules_destroy(ranks, s);
    support_ranks_close(ranks);
}

static void test_limit_of_zero_is_a_limit(void **state)
{
    (void)state;
    support_ranks_t *ranks = support_ranks_open(2);
    baton_schedule_t **s = support_schedules_create(ranks, "limited");
    for (int rank = 0; rank < 2; rank++) {
        (void)baton_add_activation(s[rank], baton_add_on_start(s[rank]));
    }
    support_schedules_commit(ranks, s);
    baton_schedule_limit(s[1], 0);
    support_run(s[0]);
    support_settle(ranks);
    assert_int_equal(baton_schedule_epoch(s[1]), 0);
    baton_schedule_limit(s[1], 1);
    support_settle(ranks);
    assert_int_equal(baton_schedule_epoch(s[1]), 1);
    support_schedules_destroy(ranks, s);
    support_ranks_close(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skip_leaves_the_branch_out),
        cmocka_unit_test(test_stragglers_are_charged_to_their_own_epoch),
        cmocka_unit_test(test_limit_holds_external_epochs_back),
        cmocka_unit_test(test_limit_of_zero_is_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
