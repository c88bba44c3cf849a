/* Counting arrivals along a tree of two levels that rotates with the epoch.

   The root of epoch e is rank e mod P; a rank's offset is its distance from the
   root, going up and round. Groups are `fan` = ceil(sqrt P) neighbouring
   offsets; the first of a group is its leader, and offset 0 is the root, which
   leads the first group.

       9 ranks, by offset:

           0 <--------- 3 <--------- 6      every report of a leader,
           ^ ^          ^ ^          ^ ^    to the root
           1 2          4 5          7 8    a member's arrival, to its leader

   An arrival is worth at most two messages, so an epoch counts with less than
   2 P of them, two deep; and a rank has 2 (fan - 1) neighbours in each
   direction, whatever the root is.

       on_start --> arrive --> own -------+
                      |                   v
                      +--> member 1..  [count] x fan --> report 1..fan (need n)
                             |            ^                |   |
                             v            |                |   +--> [tally]--+
                        activate -1..     |                v                 |
                                   armed recv +1..      leader 1..           |
                                                           |                 |
                        armed recv +fan.. x fan            v                 v
                             |                        activate -fan..    reached
                             +--> [tally] ----------------------------------^

   A report stands for one arrival, except a leader's first: where only
   `missing` = P - needed ranks may be absent, a group of s ranks has s -
   missing of them when the quorum is reached, so the first s - missing - 1
   arrivals are not reported, and the root waits for so many less. With needed =
   P - 1 a leader sends two reports at most. It is exact: without those arrivals
   the other ranks together could not reach the quorum. */
#include "coll/quorum.h"

#include "base/alloc.h"
#include "coll/pattern.h"

/* A choice of one peer among those at different distances. */
typedef struct gate {
    baton__quorum_t *quorum;
    int offset; /* that opens it, for leaders; within its group, for members */
} gate_t;

struct baton__quorum {
    int rank, size;
    uint64_t seed;
    baton__rule_fn rule_fn;
    void *rule_arg;
    int fan;
    int groups;
    gate_t *members; /* [fan - 1] */
    gate_t *leaders; /* [groups - 1] */
    baton_node_t begun;
    /* Of the running epoch; the driver's. */
    uint64_t epoch;
    baton__rule_t rule;
    int offset;
    uint32_t unreported; /* arrivals that a leader keeps to itself */
    uint32_t arrivals;   /* in this rank's group */
    uint32_t tallied;    /* at the root */
    uint32_t awaited;    /* reports that reach the quorum */
};

baton__quorum_t *baton__quorum_create(int rank, int size, uint64_t seed,
                                      baton__rule_fn rule, void *arg)
{
    int fan = 1;
    while ((int64_t)fan * fan < size) {
        fan++;
    }
    int groups = (size + fan - 1) / fan;
    baton__quorum_t *quorum = baton__alloc(1, sizeof *quorum);
    if (quorum == NULL) {
        return NULL;
    }
    *quorum = (baton__quorum_t){
        .rank = rank,
        .size = size,
        .seed = seed,
        .rule_fn = rule,
        .rule_arg = arg,
        .fan = fan,
        .groups = groups,
        .members = baton__alloc((size_t)fan, sizeof(gate_t)),
        .leaders = baton__alloc((size_t)groups, sizeof(gate_t)),
    };
    if (quorum->members == NULL || quorum->leaders == NULL) {
        baton__quorum_destroy(quorum);
        return NULL;
    }
    for (int i = 1; i < fan; i++) {
        quorum->members[i] = (gate_t){quorum, i};
    }
    for (int i = 1; i < groups; i++) {
        quorum->leaders[i] = (gate_t){quorum, i * fan};
    }
    return quorum;
}

void baton__quorum_destroy(baton__quorum_t *quorum)
{
    if (quorum != NULL) {
        baton__free(quorum->members);
        baton__free(quorum->leaders);
        baton__free(quorum);
    }
}

void baton__quorum_recover(baton__quorum_t *quorum)
{
    quorum->epoch = 0;
}

void baton__quorum_until(baton__quorum_t *quorum, baton_node_t begun)
{
    quorum->begun = begun;
}

/* ---- an epoch --------------------------------------------------------- */

/* Arrivals of the group at `offset` that its leader does not report. */
static uint32_t unreported_of(const baton__quorum_t *quorum, int offset)
{
    if (offset == 0 || quorum->rule.counting != (uint32_t)quorum->size) {
        return 0; /* of elected ranks a group may have none */
    }
    int left = quorum->size - offset;
    uint32_t group = (uint32_t)(left < quorum->fan ? left : quorum->fan);
    uint32_t missing = (uint32_t)quorum->size - quorum->rule.needed;
    return group > missing + 1 ? group - missing - 1 : 0;
}

/* The state of the call's epoch, from its first call on. */
static void enter(baton__quorum_t *quorum, const baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    if (quorum->epoch == epoch) {
        return;
    }
    quorum->epoch = epoch;
    quorum->rule = quorum->rule_fn(quorum->rule_arg, epoch);
    int root = (int)(epoch % (uint64_t)quorum->size);
    quorum->offset =
        baton__rank_shift(quorum->rank, -(int64_t)root, quorum->size);
    quorum->unreported =
        unreported_of(quorum, quorum->offset - quorum->offset % quorum->fan);
    quorum->arrivals = 0;
    quorum->tallied = 0;
    quorum->awaited = quorum->rule.needed;
    for (int g = 1; g < quorum->groups; g++) {
        quorum->awaited -= unreported_of(quorum, g * quorum->fan);
    }
}

/* Whether this rank's arrival counts, and still matters. */
static baton_status_t arrive(void *arg, baton_call_t *call)
{
    baton__quorum_t *quorum = arg;
    enter(quorum, call);
    bool counts = quorum->rule.needed > 1 &&
                  !baton__rule_is_full(quorum->rule, quorum->size) &&
                  !baton_call_completed(call, quorum->begun) &&
                  baton__rule_counts(quorum->rule, quorum->seed, quorum->epoch,
                                     quorum->size, quorum->rank);
    return counts ? BATON_OK : BATON_SKIP;
}

static baton_status_t pass_member(void *arg, baton_call_t *call)
{
    const gate_t *gate = arg;
    enter(gate->quorum, call);
    return gate->quorum->offset % gate->quorum->fan == gate->offset
               ? BATON_OK
               : BATON_SKIP;
}

static baton_status_t pass_own(void *arg, baton_call_t *call)
{
    baton__quorum_t *quorum = arg;
    enter(quorum, call);
    return quorum->offset % quorum->fan == 0 ? BATON_OK : BATON_SKIP;
}

static baton_status_t pass_leader(void *arg, baton_call_t *call)
{
    const gate_t *gate = arg;
    enter(gate->quorum, call);
    return gate->quorum->offset == gate->offset ? BATON_OK : BATON_SKIP;
}

/* An arrival in this rank's group: whether it is reported. */
static baton_status_t count(void *arg, baton_call_t *call)
{
    baton__quorum_t *quorum = arg;
    enter(quorum, call);
    return ++quorum->arrivals > quorum->unreported &&
                   !baton_call_completed(call, quorum->begun)
               ? BATON_OK
               : BATON_SKIP;
}

/* A report: whether it is the root's last. */
static baton_status_t tally(void *arg, baton_call_t *call)
{
    baton__quorum_t *quorum = arg;
    enter(quorum, call);
    return quorum->offset == 0 && ++quorum->tallied == quorum->awaited
               ? BATON_OK
               : BATON_SKIP;
}

/* ---- building --------------------------------------------------------- */

typedef struct tree {
    baton_schedule_t *schedule;
    baton__quorum_t *quorum;
    baton_node_t reached;
} tree_t;

static baton_node_t add_call(const tree_t *tree, baton_call_fn fn, void *arg,
                             baton_node_t after)
{
    baton_node_t call = baton_add_call(tree->schedule, fn, arg);
    baton_set_optional(tree->schedule, call);
    baton_set_no_scratch(tree->schedule, call);
    baton_before(tree->schedule, after, call);
    return call;
}

static void add_tally(const tree_t *tree, baton_node_t report)
{
    baton_before(tree->schedule, add_call(tree, tally, tree->quorum, report),
                 tree->reached);
}

/* Members' arrivals go to the leader: that is `distance` before this rank, or
   this rank itself. */
static void add_group(const tree_t *tree, baton_node_t arrived,
                      baton_node_t *counts)
{
    baton_schedule_t *s = tree->schedule;
    baton__quorum_t *quorum = tree->quorum;
    baton_node_t arrival = add_call(tree, arrive, quorum, arrived);
    counts[0] = add_call(tree, count, quorum,
                         add_call(tree, pass_own, quorum, arrival));
    for (int i = 1; i < quorum->fan; i++) {
        baton_node_t gate =
            add_call(tree, pass_member, &quorum->members[i], arrival);
        int leader = baton__rank_shift(quorum->rank, -(int64_t)i, quorum->size);
        int member = baton__rank_shift(quorum->rank, i, quorum->size);
        baton_before(s, gate, baton_add_activate(s, leader));
        counts[i] =
            add_call(tree, count, quorum, baton_add_armed_recv(s, member));
    }
}

/* The k-th report of this rank as a leader, for each of the roots that it may
   have: behind the first report it is known which. */
static void add_reports(const tree_t *tree, const baton_node_t *counts)
{
    baton_schedule_t *s = tree->schedule;
    baton__quorum_t *quorum = tree->quorum;
    baton_node_t *gates = baton__alloc((size_t)quorum->groups, sizeof *gates);
    if (gates == NULL) {
        baton_schedule_fail(s, BATON_ERR_NO_MEMORY, "no memory for a quorum");
        return;
    }
    for (int k = 1; k <= quorum->fan; k++) {
        baton_node_t report = baton_add_nop(s);
        baton_set_optional(s, report);
        baton_set_need(s, report, (uint32_t)k);
        for (int i = 0; i < quorum->fan; i++) {
            baton_before(s, counts[i], report);
        }
        add_tally(tree, report);
        for (int g = 1; g < quorum->groups; g++) {
            int distance = g * quorum->fan;
            if (k == 1) {
                gates[g] =
                    add_call(tree, pass_leader, &quorum->leaders[g], report);
            }
            baton_node_t activate = baton_add_activate(
                s, baton__rank_shift(quorum->rank, -(int64_t)distance,
                                     quorum->size));
            baton_before(s, gates[g], activate);
            baton_before(s, report, activate);
            add_tally(tree, baton_add_armed_recv(
                                s, baton__rank_shift(quorum->rank, distance,
                                                     quorum->size)));
        }
    }
    baton__free(gates);
}

baton_node_t baton__add_quorum(baton_schedule_t *schedule,
                               baton__quorum_t *quorum, baton_node_t arrived)
{
    tree_t tree = {schedule, quorum, baton_add_nop(schedule)};
    baton_set_need(schedule, tree.reached, BATON_NEED_ANY);
    baton_set_optional(schedule, tree.reached);
    baton_node_t *counts = baton__alloc((size_t)quorum->fan, sizeof *counts);
    if (counts == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "no memory for a quorum");
        return tree.reached;
    }
    add_group(&tree, arrived, counts);
    add_reports(&tree, counts);
    baton__free(counts);
    return tree.reached;
}
