/* The activation tree, on the inproc transport: P ranks in one thread. */
#include "coll/partial/begin.h"
#include "sched/schedule.h"
#include "support/cluster.h"
#include <baton/coll.h>

#define LARGEST 40

/* The trees: a binomial tree, or a tree of two levels, with groups of `group`
   ranks. In the last tree the initiator sends to all ranks. */
static const int groups[] = {0, 1, 2, 3, 6, LARGEST};
#define GROUPS (sizeof groups / sizeof groups[0])

/* The counts of one rank: how often `begin` has fired, the epoch in which it
   last did, and the number of messages that the rank has sent. */
typedef struct tally {
    uint64_t begins;
    uint64_t epoch;
    uint64_t messages;
} tally_t;

static baton_status_t count_begin(void *arg, baton_call_t *call)
{
    tally_t *tally = arg;
    tally->begins++;
    tally->epoch = baton_call_epoch(call);
    return BATON_OK;
}

static baton_status_t count_message(void *arg, baton_call_t *call)
{
    tally_t *tally = arg;
    tally->messages++;
    return BATON_OK;
}

/* on_start --> [activation] --> begin --> count_begin. After `begin` the
   builder adds an armed receive and an activate for each step. A call node
   after each activate counts the messages. */
static void build(baton_schedule_t *schedule, int group, tally_t *tally)
{
    baton_node_t initiate = baton_add_on_start(schedule);
    baton_node_t begin = group == 0
                             ? baton_add_activation(schedule, initiate)
                             : baton__add_activation(schedule, initiate, group);
    uint32_t end = baton_enclose_begin(schedule).node;
    baton_node_t call = baton_add_call(schedule, count_begin, tally);
    baton_before(schedule, begin, call);
    for (uint32_t i = begin.index + 2; i < end; i += 2) {
        baton_node_t activate = {i};
        baton_node_t count = baton_add_call(schedule, count_message, tally);
        baton_set_optional(schedule, count);
        baton_before(schedule, activate, count);
    }
}

typedef struct tree {
    support_cluster_t *ranks;
    baton_schedule_t **schedules;
    tally_t tallies[LARGEST];
    uint64_t epoch;
} tree_t;

static void open_tree(tree_t *tree, int size, int group)
{
    memset(tree, 0, sizeof(*tree));
    tree->ranks = support_cluster_manual(size);
    tree->schedules = support_schedules_create(tree->ranks, "activation");
    for (int rank = 0; rank < size; rank++) {
        build(tree->schedules[rank], group, &tree->tallies[rank]);
    }
    support_schedules_commit(tree->ranks, tree->schedules);
}

static void close_tree(tree_t *tree)
{
    support_schedules_destroy(tree->ranks, tree->schedules);
    support_cluster_close(tree->ranks);
}

static uint64_t messages_of(const tree_t *tree)
{
    uint64_t messages = 0;
    for (int rank = 0; rank < tree->ranks->size; rank++) {
        messages += tree->tallies[rank].messages;
    }
    return messages;
}

/* An epoch that one rank initiates begins once on every rank. The others then
   start it, too, which has no effect. */
static void run_epoch(tree_t *tree, int initiator)
{
    uint64_t before = messages_of(tree);
    tree->epoch++;
    support_ok(baton_schedule_start(tree->schedules[initiator]));
    support_drain(tree->ranks);
    assert_int_equal(messages_of(tree) - before, tree->ranks->size - 1);
    for (int rank = 0; rank < tree->ranks->size; rank++) {
        assert_int_equal(tree->tallies[rank].begins, tree->epoch);
        assert_int_equal(tree->tallies[rank].epoch, tree->epoch);
        assert_int_equal(baton_schedule_epoch(tree->schedules[rank]),
                         tree->epoch);
    }
    for (int rank = 0; rank < tree->ranks->size; rank++) {
        if (rank != initiator) {
            support_ok(baton_schedule_start(tree->schedules[rank]));
        }
        support_ok(baton_schedule_wait(tree->schedules[rank], SUPPORT_WAIT_MS));
    }
    support_drain(tree->ranks);
    assert_int_equal(messages_of(tree) - before, tree->ranks->size - 1);
}

/* Each rank initiates an epoch in turn. */
static void initiate_in_turn(int group)
{
    for (int size = 1; size <= LARGEST; size++) {
        tree_t tree;
        open_tree(&tree, size, group);
        for (int initiator = 0; initiator < size; initiator++) {
            run_epoch(&tree, initiator);
        }
        close_tree(&tree);
    }
}

TEST(test_activation_one_initiator_sends_p_minus_1)
{
    for (size_t i = 0; i < GROUPS; i++) {
        initiate_in_turn(groups[i]);
    }
}

/* exit waits for begin, but not for activates, armed receives or on_start, so
   epochs also retire on ranks that do not start them. */
TEST_MANUALLY(test_activation_may_be_enclosed, 5)
{
    tally_t tallies[5] = {{0}};
    baton_schedule_t **s = support_schedules_create(cluster, "enclosed");
    for (int rank = 0; rank < cluster->size; rank++) {
        baton_node_t entry = baton_add_nop(s[rank]);
        baton_node_t exit =
            baton_add_call(s[rank], count_begin, &tallies[rank]);
        baton_enclosure_t inside = baton_enclose_begin(s[rank]);
        (void)baton_add_activation(s[rank], baton_add_on_start(s[rank]));
        baton_enclose_end(s[rank], inside, entry, exit);
    }
    support_schedules_commit(cluster, s);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        support_run(s[2]);
        support_drain(cluster);
        for (int rank = 0; rank < cluster->size; rank++) {
            assert_int_equal(baton_schedule_epoch(s[rank]), epoch);
            assert_int_equal(tallies[rank].begins, epoch);
        }
        for (int rank = 0; rank < cluster->size; rank++) {
            if (rank != 2) {
                support_ok(baton_schedule_start(s[rank]));
            }
        }
    }
    support_schedules_destroy(cluster, s);
}

/* If the epoch waits for no enclosed node, exit comes directly after entry. */
TEST_MANUALLY(test_enclose_of_optional_nodes_alone, 1)
{
    tally_t tally = {0};
    baton_schedule_t **s = support_schedules_create(cluster, "optional");
    baton_node_t entry = baton_add_nop(s[0]);
    baton_node_t exit = baton_add_call(s[0], count_begin, &tally);
    baton_enclosure_t inside = baton_enclose_begin(s[0]);
    (void)baton_add_on_start(s[0]);
    baton_enclose_end(s[0], inside, entry, exit);
    support_schedules_commit(cluster, s);
    support_schedules_run(cluster, s);
    assert_int_equal(tally.begins, 1);
    support_schedules_destroy(cluster, s);
}

/* The distances of the groups' leaders come first, since leaders have to pass
   the activation on. */
TEST_MANUALLY(test_activation_of_two_levels_begins_with_leaders, 23)
{
    enum { SIZE = 23, GROUP = 5 };
    baton_schedule_t **s = support_schedules_create(cluster, "levels");
    for (int rank = 0; rank < SIZE; rank++) {
        (void)baton__add_activation(s[rank], baton_add_on_start(s[rank]),
                                    GROUP);
    }
    support_schedules_commit(cluster, s);
    for (int rank = 0; rank < SIZE; rank++) {
        int steps = 0;
        for (uint32_t i = 0; i < s[rank]->count; i++) {
            const baton__op_t *op = &s[rank]->ops[i];
            if (op->kind == BATON__ACTIVATE) {
                int distance = steps < 4 ? (steps + 1) * GROUP : steps - 3;
                assert_int_equal(op->peer, (rank + distance) % SIZE);
                steps++;
            }
        }
        assert_int_equal(steps, (SIZE - 1) / GROUP + GROUP - 1);
    }
    support_schedules_destroy(cluster, s);
}

/* ---- a run that is driven by hand --------------------------------------- */

/* Pops all ready nodes without completing them. Returns them as a mask. */
static uint32_t pop_all(baton__run_t *run)
{
    uint32_t mask = 0;
    while (baton__run_has_ready(run)) {
        mask |= 1u << baton__run_pop(run);
    }
    return mask;
}

/* on_start, armed --> any --> activate. The node that fires first determines
   the origin of the activation. The epoch is not stuck as long as an activation
   may arrive. */
TEST_MANUALLY(test_activation_after_the_start_keeps_its_origin, 7)
{
    baton_schedule_t *s = support_schedule(cluster->groups[1], "driven");
    baton_node_t start = baton_add_on_start(s);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    baton_node_t activate = baton_add_activate(s, 2);
    baton_before(s, start, activate);
    baton_before(s, armed, activate);
    baton_set_need(s, activate, BATON_NEED_ANY);
    baton_before(s, armed, baton_add_nop(s));
    support_ok(baton_schedule_commit(s));
    baton__run_t *run = &s->run;
    baton__run_begin(run);
    baton__run_started(run);
    assert_int_equal(pop_all(run), 1u << start.index);
    baton__run_complete(run, start.index);
    assert_int_equal(pop_all(run), 1u << activate.index);
    assert_false(baton__run_is_stuck(run));
    baton__run_activate(run, armed.index, (baton__activation_t){.origin = 0});
    assert_int_equal(
        run->activations[s->ops[activate.index].message.slot].origin, 1);
    baton__run_set_phase(run, BATON__RUN_IDLE);
    support_ok(baton_schedule_destroy(s));
}

/* ---- words ------------------------------------------------------------- */

typedef struct words {
    baton_node_t sent, call, next;
    uint64_t came;
} words_t;

static baton_status_t set_words(void *arg, baton_call_t *call)
{
    const words_t *words = arg;
    support_fails(baton_call_set_word(call, (baton_node_t){99}, 1),
                  BATON_ERR_INVALID, "node 99 of 3 is not an activate node");
    support_fails(baton_call_set_word(call, words->call, 1), BATON_ERR_INVALID,
                  "node 1 of 3 is not an activate node");
    support_fails(baton_call_set_word(call, words->sent, 1), BATON_ERR_INVALID,
                  "activate#0 has sent its word already");
    return baton_call_set_word(call, words->next, 5);
}

static baton_status_t take_word(void *arg, baton_call_t *call)
{
    words_t *words = arg;
    words->came = baton_call_word(call, words->next);
    return BATON_OK;
}

TEST_MANUALLY(test_activation_has_a_word_before_it_is_sent, 2)
{
    words_t words[2] = {{.came = 0}};
    baton_schedule_t **s = support_schedules_create(cluster, "words");
    words[0].sent = baton_add_activate(s[0], 1);
    words[0].call = baton_add_call(s[0], set_words, &words[0]);
    words[0].next = baton_add_activate(s[0], 1);
    baton_before(s[0], words[0].sent, words[0].call);
    baton_before(s[0], words[0].call, words[0].next);
    words[1].sent = baton_add_armed_recv(s[1], 0);
    words[1].next = baton_add_armed_recv(s[1], 0);
    words[1].call = baton_add_call(s[1], take_word, &words[1]);
    baton_before(s[1], words[1].next, words[1].call);
    support_schedules_commit(cluster, s);
    support_ok(baton_schedule_start(s[0]));
    support_ends(s[0], BATON_OK);
    support_drain(cluster);
    assert_int_equal(words[1].came, 5);
    support_schedules_destroy(cluster, s);
}
