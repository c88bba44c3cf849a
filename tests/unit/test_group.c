/* The tables of a group: names and the numbers of schedules with that name,
   committed schedules, schedules that were destroyed before their peers had
   committed them, and lost peers. Each recovery begins another incarnation of
   the group's schedules. */
#include "base/alloc.h"
#include "progress/state/member.h"
#include "support/cmocka.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 200 };

static baton_schedule_t *fake_schedule(uintptr_t number)
{
    return (baton_schedule_t *)(number * 16);
}

TEST(test_group_counts_attempts_of_each_name)
{
    baton_group_t group = {0};
    char name[16];
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        for (int i = 0; i < MANY; i++) {
            (void)snprintf(name, sizeof name, "name %d", i);
            assert_int_equal(++*baton__group_counter(&group, name, 0), attempt);
            assert_true(
                baton__group_has_made(&group, baton__identity(name, attempt)));
            assert_false(baton__group_has_made(
                &group, baton__identity(name, attempt + 1)));
        }
    }
    assert_int_equal(*baton__group_counter(&group, "name 8", 0), 3);
    assert_false(baton__group_has_made(&group, baton__identity("nobody's", 1)));
    baton__group_fini(&group);
}

/* The table is at most half full, so a search for an entry that is not there
   ends. An entry that was moved from its place is found after others were
   removed. */
TEST(test_group_finds_committed_schedules)
{
    baton_group_t group = {0};
    assert_null(baton__group_find(&group, 1));
    for (uint64_t i = 1; i <= MANY; i++) {
        assert_true(baton__table_reserve(&group.table, 1));
        baton__table_enter(&group.table, i)->schedule = fake_schedule(i);
        assert_true(2 * group.table.count <= group.table.size);
        assert_null(baton__group_find(&group, i + 1));
    }
    for (uint64_t removed = 1; removed <= MANY; removed++) {
        baton__table_remove(&group.table, removed);
        for (uint64_t i = 1; i <= MANY; i++) {
            assert_ptr_equal(baton__group_find(&group, i),
                             i <= removed ? NULL : fake_schedule(i));
        }
    }
    assert_int_equal(group.table.count, 0);
    baton__group_fini(&group);
}

/* Each peer that had not yet committed the schedule is told, and then the
   schedule is forgotten. */
TEST(test_group_tells_of_what_has_departed)
{
    baton__member_t member = {.magic = BATON__MEMBER_MAGIC};
    baton_group_t *group = &member.group;
    for (uint64_t identity = 1; identity <= 3; identity++) {
        baton__destroyed_t *destroyed =
            baton__alloc(1, sizeof *destroyed + 2 * sizeof(int));
        assert_non_null(destroyed);
        *destroyed = (baton__destroyed_t){
            .epoch = 10 * identity, .incarnation = 4, .peer_count = 2};
        destroyed->peers[1] = 1;
        assert_true(baton__table_reserve(&member.destroyed, 1));
        baton__table_enter(&member.destroyed, identity)->destroyed = destroyed;
    }
    for (int peer = 0; peer < 2; peer++) {
        assert_int_equal(baton__group_destroyed(group, 2, 4)->epoch, 20);
        baton__group_notified(group, 2, peer);
        baton__group_notified(group, 2, 0); /* this peer was told already */
    }
    assert_null(baton__group_destroyed(group, 2, 4));
    baton__group_notified(group, 2, 5); /* this peer needs no notice */
    assert_int_equal(baton__group_destroyed(group, 3, 4)->epoch, 30);
    assert_null(baton__group_destroyed(group, 9, 4));
    /* This schedule was destroyed before the recovery. */
    assert_null(baton__group_destroyed(group, 1, 5));
    baton__member_forget_destroyed(&member, 4);
    assert_int_equal(baton__group_destroyed(group, 1, 4)->epoch, 10);
    baton__member_forget_destroyed(&member, 5);
    assert_null(baton__group_destroyed(group, 1, 4));
    assert_null(baton__group_destroyed(group, 3, 4));
    baton__member_fini(&member);
}

static int process; /* the number of rank 1's process */

static int find_process(const void *endpoint, int rank, const char **host_out)
{
    *host_out = "n1";
    return rank == 1 ? process : 0;
}

TEST(test_group_says_where_a_rank_is_and_that_it_is_stopped)
{
    const baton_transport_t port = {.process = find_process};
    const baton_group_t group = {.transport = &port, .size = 3};
    char text[64];
    process = fork();
    if (process == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(process, &status, WUNTRACED), process);
    assert_true(baton__group_is_stopped(&group, 1));
    assert_false(baton__group_is_stopped(&group, 2));
    snprintf(text, sizeof text, "rank 1 (host n1, process %d)", process);
    assert_string_equal(baton__group_rank_text(&group, 1), text);
    assert_string_equal(baton__group_rank_text(&group, 2), "rank 2");
    assert_int_equal(kill(process, SIGCONT), 0);
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_false(baton__group_is_stopped(&group, 1));
}

TEST(test_group_remembers_lost_peers)
{
    const baton__member_t none = {.magic = BATON__MEMBER_MAGIC};
    baton__member_t member = none;
    baton_group_t *group = &member.group;
    for (int peer = 0; peer < 20; peer += 2) {
        baton__group_lose(group, peer, "why");
    }
    for (int peer = 0; peer < 20; peer++) {
        assert_int_equal(baton__group_loss(group, peer) != NULL, peer % 2 == 0);
    }
    baton__member_fini(&member);
    member = none;
    baton__alloc_fail_nth(1);
    baton__group_lose(group, 5, NULL);
    baton__alloc_fail_nth(0);
    assert_non_null(baton__group_loss(group, 5));
    /* There was no memory to record which rank was lost. So all ranks count as
       lost. */
    assert_non_null(baton__group_loss(group, 6));
    baton__group_lose(group, 6, "why");
    assert_int_equal(baton__group_first_lost(group), 5 + 1);
    baton__member_fini(&member);
}
