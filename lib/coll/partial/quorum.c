/* Counts arrivals along a tree of two levels that rotates with the epoch.

   The root of epoch e is rank e mod P. A rank's offset is (rank - root) mod P.
   Groups are `fan` = ceil(sqrt P) neighbouring offsets; the first of a group is
   its leader, and offset 0 is the root, which leads the first group.

       9 ranks, by offset:

           0 <--------- 3 <--------- 6      a leader's reports, to the root
           ^ ^          ^ ^          ^ ^
           1 2          4 5          7 8    a member's arrival, to its leader

   An arrival costs at most two messages, one after the other, and a third if
   the root answers. So an epoch counts with fewer than 2 P messages, or 3 P if
   the root answers. A rank sends to at most 2 (fan - 1) ranks and receives from
   as many, whichever rank is the root.

       on_start --> arrive --> own -------+
                      |                   v
                      +--> member 1..  [count] x fan --> report 1..fan (need n)
                             |            ^                |  |
                             v            |                |  +--> [tally] --+
                        activate -1..     |                v                 |
                                   armed recv +1..      (below)              |
                                                                             v
                        armed recv +fan.. x fan --> [tally] -----------> reached

   A leader has at most one message to the root in flight. The arrivals that it
   learns of meanwhile, or in one step of the engine, go into one message, whose
   word (baton_call_word) is their number. A message is in flight until it has
   been sent or, if the fan is larger than FAN_UNANSWERED, until the root's
   answer has come. So a burst of arrivals keeps the root busy with at most one
   message of each leader, however many ranks have arrived.

                   +---> [send k] ---> activate -fan.. ----+
       report k ---+      (some)                           |
                   |                  armed recv -fan.. ---+ (the answer)
                   |                                       v
                   +---> [pass k] ----------------------> done k
                   |      (none: report k - 1 had it)
       done k-1 ---+

       at the root:  armed recv +fan.. ---> [answer] ---> activate +fan..

   A leader does not report arrivals that the quorum implies. When the quorum is
   reached, at most `missing` = P - needed ranks are absent; so of a group of
   s ranks at least s - missing have arrived. Therefore the group's first
   s - missing - 1 arrivals are not reported, and the root waits for as many
   fewer. With needed = P - 1 a leader sends at most two reports. This is exact:
   without those arrivals the other ranks could not reach the quorum. */
#include "coll/partial/begin.h"

#include "base/alloc.h"
#include "coll/kit/pattern.h"

/* If the fan is larger, there are more leaders, and the root answers their
   reports. */
enum { FAN_UNANSWERED = 12 };

/* A condition on this rank's offset. A call node with this gate succeeds if the
   rank's offset modulo `modulus` is `offset`. There is such a call node for
   each peer that may be this rank's leader or root, and in an epoch only that
   of the right peer succeeds. */
typedef struct gate {
    baton__quorum_t *quorum;
    int offset, modulus;
} gate_t;

/* The nodes for the k-th message from a leader to the root, for one distance in
   groups between the two. `activate` sends the message if this rank is the
   leader. `armed` receives it if this rank is the root. */
typedef struct message {
    baton__quorum_t *quorum;
    baton_node_t activate, armed;
} message_t;

/* The k-th report that this rank makes as a leader. */
typedef struct report {
    baton__quorum_t *quorum;
    uint32_t number; /* k, which is counted from 1 */
    /* The number of arrivals that this report contains; valid after
       quorum_decide was called for the report. */
    uint32_t arrivals;
    /* An array of `groups` elements: the nodes for each distance to the
       root. */
    message_t *messages;
} report_t;

struct baton__quorum {
    const baton__begin_t *begin;
    int rank, size;
    int fan;
    int groups;
    gate_t *members; /* `fan` gates, by the member's offset in the group */
    /* An array of `groups` gates, by the leader's group. The first one is not
       used. */
    gate_t *leaders;
    report_t *reports; /* an array of `fan` reports */
    /* An array of `fan` rows of `groups` messages. Each report points to a
       row. */
    message_t *messages;
    /* The fields from here on are the state of the running epoch. The driver,
       the thread that makes the engine's progress, uses them. */
    uint64_t epoch;
    baton__rule_t rule;
    int offset;
    /* If this rank is a leader: the number of arrivals in its group, from the
       first on, that it does not report; see unreported_of. */
    uint32_t unreported;
    /* Number of arrivals so far in the group of this rank. */
    uint32_t arrivals;
    uint32_t reported; /* number of arrivals in the reports decided so far */
    uint32_t decided;  /* number of reports whose content is decided */
    uint32_t tallied;  /* number of arrivals that the root knows of */
    /* The value of `tallied` with which the quorum is reached. */
    uint32_t awaited;
};

baton__quorum_t *baton__quorum_create(const baton__begin_t *begin)
{
    int size = baton_schedule_size(begin->schedule);
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
        .begin = begin,
        .rank = baton_schedule_rank(begin->schedule),
        .size = size,
        .fan = fan,
        .groups = groups,
        .members = baton__alloc((size_t)fan, sizeof(gate_t)),
        .leaders = baton__alloc((size_t)groups, sizeof(gate_t)),
        .reports = baton__alloc((size_t)fan, sizeof(report_t)),
        .messages =
            baton__alloc((size_t)fan * (size_t)groups, sizeof(message_t)),
    };
    if (quorum->members == NULL || quorum->leaders == NULL ||
        quorum->reports == NULL || quorum->messages == NULL) {
        baton__quorum_destroy(quorum);
        return NULL;
    }
    for (int i = 1; i < groups; i++) {
        quorum->leaders[i] = (gate_t){quorum, i * fan, size};
    }
    for (int i = 0; i < fan; i++) {
        quorum->members[i] = (gate_t){quorum, i, fan};
        quorum->reports[i] = (report_t){
            .quorum = quorum,
            .number = (uint32_t)i + 1,
            .messages = &quorum->messages[(size_t)i * (size_t)groups]};
    }
    return quorum;
}

void baton__quorum_destroy(baton__quorum_t *quorum)
{
    if (quorum != NULL) {
        baton__free(quorum->members);
        baton__free(quorum->leaders);
        baton__free(quorum->reports);
        baton__free(quorum->messages);
        baton__free(quorum);
    }
}

void baton__quorum_recover(baton__quorum_t *quorum)
{
    if (quorum != NULL) {
        quorum->epoch = 0;
    }
}

/* ---- an epoch --------------------------------------------------------- */

/* Returns how many arrivals in the group at `offset`, from the first on, its
   leader does not report. If all ranks count, at most size - needed ranks are
   missing when the quorum is reached. So the quorum cannot be reached before
   this number of ranks of the group, and one more, have arrived. Therefore the
   root counts these arrivals from the beginning. */
static uint32_t unreported_of(const baton__quorum_t *quorum, int offset)
{
    if (offset == 0 || quorum->rule.counting != (uint32_t)quorum->size) {
        return 0; /* a group may contain no elected rank */
    }
    int left = quorum->size - offset;
    uint32_t group = (uint32_t)(left < quorum->fan ? left : quorum->fan);
    uint32_t missing = (uint32_t)quorum->size - quorum->rule.needed;
    return group > missing + 1 ? group - missing - 1 : 0;
}

/* Resets the state for a new epoch. Each call node of an epoch calls this
   function, and the first one of them resets the state. */
static void quorum_enter(baton__quorum_t *quorum, const baton_call_t *call)
{
    uint64_t epoch = baton__epoch_of(&quorum->begin->modes, call);
    if (quorum->epoch == epoch) {
        return;
    }
    quorum->epoch = epoch;
    quorum->rule = baton__rule_of(
        baton__choice_at(&quorum->begin->modes, epoch), quorum->size);
    int root = (int)(epoch % (uint64_t)quorum->size);
    quorum->offset =
        baton__rank_shift(quorum->rank, -(int64_t)root, quorum->size);
    quorum->unreported =
        unreported_of(quorum, quorum->offset - quorum->offset % quorum->fan);
    quorum->arrivals = 0;
    quorum->reported = 0;
    quorum->decided = 0;
    quorum->tallied = 0;
    quorum->awaited = quorum->rule.needed;
    for (int g = 1; g < quorum->groups; g++) {
        quorum->awaited -= unreported_of(quorum, g * quorum->fan);
    }
}

/* Returns BATON_OK if this rank's arrival counts, and if the quorum is not
   known to be reached yet. */
static baton_status_t quorum_arrive(void *arg, baton_call_t *call)
{
    baton__quorum_t *quorum = arg;
    quorum_enter(quorum, call);
    bool counts = !baton__rule_is_full(quorum->rule, quorum->size) &&
                  !baton_call_completed(call, quorum->begin->reached) &&
                  baton__rule_counts(quorum->rule, quorum->begin->modes.seed,
                                     quorum->epoch, quorum->size, quorum->rank);
    return counts ? BATON_OK : BATON_SKIP;
}

static baton_status_t pass(void *arg, baton_call_t *call)
{
    const gate_t *gate = arg;
    quorum_enter(gate->quorum, call);
    return gate->quorum->offset % gate->modulus == gate->offset ? BATON_OK
                                                                : BATON_SKIP;
}

/* Counts an arrival in this rank's group. Returns BATON_OK if the root has to
   learn of it. */
static baton_status_t count(void *arg, baton_call_t *call)
{
    baton__quorum_t *quorum = arg;
    quorum_enter(quorum, call);
    return ++quorum->arrivals > quorum->unreported &&
                   !baton_call_completed(call, quorum->begin->reached)
               ? BATON_OK
               : BATON_SKIP;
}

/* Decides how many arrivals a report contains. A report has two call nodes,
   [send k] and [pass k] above. Both call this function, and the one that runs
   first decides. The calls of several reports run in the order of their
   numbers. */
static void quorum_decide(report_t *report)
{
    baton__quorum_t *quorum = report->quorum;
    if (report->number > quorum->decided) {
        uint32_t known = quorum->arrivals - quorum->unreported;
        quorum->decided = report->number;
        report->arrivals = known - quorum->reported;
        quorum->reported = known;
    }
}

static baton_status_t send_report(void *arg, baton_call_t *call)
{
    report_t *report = arg;
    baton__quorum_t *quorum = report->quorum;
    quorum_enter(quorum, call);
    quorum_decide(report);
    if (quorum->offset == 0 || report->arrivals == 0 ||
        baton_call_completed(call, quorum->begin->reached)) {
        return BATON_SKIP;
    }
    return baton_call_set_word(
        call, report->messages[quorum->offset / quorum->fan].activate,
        report->arrivals);
}

static baton_status_t pass_report(void *arg, baton_call_t *call)
{
    report_t *report = arg;
    quorum_enter(report->quorum, call);
    quorum_decide(report);
    return report->arrivals == 0 ? BATON_OK : BATON_SKIP;
}

/* Counts more arrivals at the root. Returns BATON_OK if the quorum is reached
   with these arrivals, and was not before. */
static baton_status_t tally(baton__quorum_t *quorum, uint32_t arrivals)
{
    bool awaits = quorum->tallied < quorum->awaited;
    quorum->tallied += arrivals;
    return awaits && quorum->tallied >= quorum->awaited ? BATON_OK : BATON_SKIP;
}

static baton_status_t tally_own(void *arg, baton_call_t *call)
{
    baton__quorum_t *quorum = arg;
    quorum_enter(quorum, call);
    return quorum->offset == 0 ? tally(quorum, 1) : BATON_SKIP;
}

static baton_status_t tally_report(void *arg, baton_call_t *call)
{
    const message_t *message = arg;
    quorum_enter(message->quorum, call);
    return tally(message->quorum,
                 (uint32_t)baton_call_word(call, message->armed));
}

/* Returns BATON_OK if this rank is the root, and if the leader may have more
   arrivals to report after this report. */
static baton_status_t quorum_answer(void *arg, baton_call_t *call)
{
    baton__quorum_t *quorum = arg;
    quorum_enter(quorum, call);
    return quorum->offset == 0 && quorum->tallied < quorum->awaited
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

/* Adds the nodes by which members tell their leader that they have arrived. The
   leader is this rank or one of the fan - 1 ranks before it, which depends on
   the epoch's root. */
static void add_group(const tree_t *tree, baton_node_t arrived,
                      baton_node_t *counts)
{
    baton_schedule_t *s = tree->schedule;
    baton__quorum_t *quorum = tree->quorum;
    baton_node_t arrival = add_call(tree, quorum_arrive, quorum, arrived);
    counts[0] = add_call(tree, count, quorum,
                         add_call(tree, pass, &quorum->members[0], arrival));
    for (int i = 1; i < quorum->fan; i++) {
        baton_node_t gate = add_call(tree, pass, &quorum->members[i], arrival);
        int leader = baton__rank_shift(quorum->rank, -(int64_t)i, quorum->size);
        int member = baton__rank_shift(quorum->rank, i, quorum->size);
        baton_before(s, gate, baton_add_activate(s, leader));
        counts[i] =
            add_call(tree, count, quorum, baton_add_armed_recv(s, member));
    }
}

/* Returns the node after which a leader's message to the root is no longer in
   flight. The next message may be sent then. */
static baton_node_t add_in_flight(const tree_t *tree, baton_node_t activate,
                                  int root)
{
    return tree->quorum->fan > FAN_UNANSWERED
               ? baton_add_armed_recv(tree->schedule, root)
               : activate;
}

/* Adds the nodes that receive a leader's message if this rank is the root. */
static void add_incoming(const tree_t *tree, message_t *message, int leader)
{
    baton_schedule_t *s = tree->schedule;
    message->armed = baton_add_armed_recv(s, leader);
    baton_before(s, add_call(tree, tally_report, message, message->armed),
                 tree->reached);
    if (tree->quorum->fan > FAN_UNANSWERED) {
        baton_node_t ask =
            add_call(tree, quorum_answer, tree->quorum, message->armed);
        baton_before(s, ask, baton_add_activate(s, leader));
    }
}

/* Adds the nodes that send the k-th report to each rank that may be the root,
   and those that receive the k-th reports of the leaders if this rank is the
   root. `gates` run with the first report: the gate of the epoch's root
   succeeds. Returns the node after which the next report may be sent. */
static baton_node_t quorum_add_messages(const tree_t *tree, report_t *report,
                                        const baton_node_t *gates,
                                        baton_node_t send)
{
    baton_schedule_t *s = tree->schedule;
    baton__quorum_t *quorum = tree->quorum;
    baton_node_t done = baton_add_nop(s);
    baton_set_need(s, done, BATON_NEED_ANY);
    baton_set_optional(s, done);
    for (int g = 1; g < quorum->groups; g++) {
        int64_t distance = (int64_t)g * quorum->fan;
        int root = baton__rank_shift(quorum->rank, -distance, quorum->size);
        baton_node_t activate = baton_add_activate(s, root);
        baton_before(s, gates[g], activate);
        baton_before(s, send, activate);
        report->messages[g] =
            (message_t){.quorum = quorum, .activate = activate};
        /* The order matters: if there are 2 g groups, the leader and the root
           may be the same rank. The messages of that rank are matched with
           those of this rank in the order in which their nodes were added:
           first the reports, and then the answers. */
        add_incoming(tree, &report->messages[g],
                     baton__rank_shift(quorum->rank, distance, quorum->size));
        baton_before(s, add_in_flight(tree, activate, root), done);
    }
    return done;
}

static void add_reports(const tree_t *tree, const baton_node_t *counts,
                        baton_node_t *gates)
{
    baton_schedule_t *s = tree->schedule;
    baton__quorum_t *quorum = tree->quorum;
    baton_node_t done = {0};
    for (int k = 1; k <= quorum->fan; k++) {
        report_t *report = &quorum->reports[k - 1];
        baton_node_t arrived = baton_add_nop(s);
        baton_set_optional(s, arrived);
        baton_set_need(s, arrived, (uint32_t)k);
        for (int i = 0; i < quorum->fan; i++) {
            baton_before(s, counts[i], arrived);
        }
        baton_before(s, add_call(tree, tally_own, quorum, arrived),
                     tree->reached);
        for (int g = 1; k == 1 && g < quorum->groups; g++) {
            gates[g] = add_call(tree, pass, &quorum->leaders[g], arrived);
        }
        baton_node_t send = add_call(tree, send_report, report, arrived);
        baton_node_t pass = add_call(tree, pass_report, report, arrived);
        if (k > 1) {
            baton_before(s, done, send);
            baton_before(s, done, pass);
        }
        done = quorum_add_messages(tree, report, gates, send);
        baton_before(s, pass, done);
    }
}

baton_node_t baton__add_quorum(baton__quorum_t *quorum, baton_node_t arrived)
{
    baton_schedule_t *schedule = quorum->begin->schedule;
    tree_t tree = {schedule, quorum, baton_add_nop(schedule)};
    baton_set_need(schedule, tree.reached, BATON_NEED_ANY);
    baton_set_optional(schedule, tree.reached);
    baton_node_t *counts = baton__alloc((size_t)quorum->fan, sizeof *counts);
    baton_node_t *gates = baton__alloc((size_t)quorum->groups, sizeof *gates);
    if (counts != NULL && gates != NULL) {
        add_group(&tree, arrived, counts);
        add_reports(&tree, counts, gates);
    } else {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "no memory for a quorum");
    }
    baton__free(counts);
    baton__free(gates);
    return tree.reached;
}
