/* baton_group_create_sub, which makes a group of some ranks of another. Over
   MPI: mpi/mpi_subgroups.c. */
#include "progress/state/member.h"
#include "support/cluster.h"
#include "support/sanitized.h"
#include "support/subgroups.h"

#include <baton/coll.h>

enum { TRIALS = SUPPORT_REPEAT(12), ROUNDS = 120 };

static baton_group_t *make(const support_cluster_t *cluster, int rank,
                           const int *ranks, int size)
{
    baton_group_t *group;
    support_ok(baton_group_create_sub(cluster->groups[rank], ranks, size,
                                      "some", &group));
    return group;
}

/* ---- failures of any allocation ----------------------------------------- */

static void run_random(support_worker_t *worker)
{
    const uint64_t *seed = worker->arg;
    const char *what = subgroups_run(worker->group, *seed, ROUNDS);
    worker->cluster->groups[worker->rank] = NULL;
    (void)support_worker_check(worker, what == NULL, "%s", what);
}

TEST(test_subgroups_random_ones_work)
{
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        uint64_t seed = support_seed() + trial;
        support_cluster_t *cluster =
            support_cluster_open(1 + (int)(trial % 8), SUPPORT_OWN_ENGINES);
        support_cluster_run(cluster, run_random, &seed);
        support_cluster_close(cluster);
    }
}

/* ---- ranks that come late, or are lost ---------------------------------- */

/* Notices of a recovery that reach a rank before it has made the group are not
   lost. */
TEST_WITH(test_subgroups_late_rank_recovers, 3, SUPPORT_OWN_MANUAL)
{
    const int ranks[] = {2, 0};
    baton_group_t *early = make(cluster, 0, ranks, 2);
    support_fails(baton_group_recover(early, 0), BATON_ERR_TIMEOUT,
                  "recovery on rank 1 of 2 in \"some\": rank 0 has not "
                  "called baton_group_recover");
    for (int i = 0; i < 100; i++) {
        for (int r = 0; r < 3; r++) {
            (void)baton_engine_step(cluster->engines[r]);
        }
    }
    baton_group_t *late = make(cluster, 2, ranks, 2);
    support_ok(baton_group_recover(late, SUPPORT_WAIT_MS));
    support_ok(baton_group_recover(early, SUPPORT_WAIT_MS));
    support_ok(baton_group_destroy(early));
    support_ok(baton_group_destroy(late));
}

static baton_schedule_t *sum(baton_group_t *group, uint64_t *value)
{
    baton_schedule_t *s = support_schedule(group, "sum");
    baton_view_t view = support_view(s, value, sizeof *value);
    baton_allreduce_args_t args = BATON_ALLREDUCE_ARGS;
    args.source = args.target = view;
    args.dtype = BATON_U64;
    args.op = BATON_SUM;
    baton_add_allreduce_binomial(s, &args);
    support_ok(baton_schedule_commit(s));
    return s;
}

/* Rank 0 loses rank 2. So do its groups that contain rank 2, even one that is
   made later, and no others. */
TEST_MANUALLY(test_subgroups_loss_is_of_its_ranks, 3)
{
    const int with[] = {2, 0}, without[] = {0, 1};
    uint64_t values[2] = {1, 2};
    baton_group_t *lost = make(cluster, 0, with, 2);
    baton_group_t *whole[2] = {make(cluster, 0, without, 2),
                               make(cluster, 1, without, 2)};
    const baton_group_t *root = cluster->groups[0];
    root->transport->lose(root->endpoint, 2, BATON_ERR_TRANSPORT, "it is dead");
    support_drain(cluster);
    baton_group_t *later = make(cluster, 0, with, 2);
    assert_non_null(baton__group_loss(lost, 0));
    assert_non_null(baton__group_loss(later, 0));
    baton_schedule_t *s[2] = {sum(whole[0], &values[0]),
                              sum(whole[1], &values[1])};
    assert_string_equal(baton_schedule_name(s[0]), "some/sum");
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_start(s[1]));
    support_ends(s[0], BATON_OK);
    support_ends(s[1], BATON_OK);
    assert_int_equal(values[1], 3);
    for (int r = 0; r < 2; r++) {
        support_ok(baton_schedule_destroy(s[r]));
        support_ok(baton_group_destroy(whole[r]));
    }
    support_ok(baton_group_destroy(lost));
    support_ok(baton_group_destroy(later));
}

/* ---- wrong use ---------------------------------------------------------- */

TEST_MANUALLY(test_subgroups_wrong_lists_are_refused, 3)
{
    const int twice[] = {0, 0}, none[] = {0, 3}, others[] = {1, 2};
    baton_group_t *all = cluster->groups[0], *group;
    support_fails(baton_group_create_sub(all, twice, 2, "some", &group),
                  BATON_ERR_INVALID, "0 is listed twice");
    support_fails(baton_group_create_sub(all, none, 2, "some", &group),
                  BATON_ERR_INVALID, "3 is not a rank");
    support_fails(baton_group_create_sub(all, others, 2, "some", &group),
                  BATON_ERR_INVALID,
                  "ranks must contain rank 0, which has called");
}
