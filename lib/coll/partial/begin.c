/* How an epoch of a partial collective begins, in each mode:

     on_start --+----------------------------------------> begin
                |                                            ^
     solo,      +--> may_initiate ---+                       |
     majority,  |                    |                       |
     any        |                    +--> activation --+--> activated
     quorum,    +--> counting tree --+                 |
     all        |      (quorum.c)                      |
                |                                      |
     full       +--> is_full --------------------------+

   A rank that has started the epoch begins it at once. So its contribution is
   on its way when the epoch is activated, and from then on the epoch waits only
   for ranks that have not started. If several ranks, but not all, may activate
   the epoch (any), a rank begins it when it is activated. The epoch ends after
   `activated`.

   A partial has only the branches that its mode needs. In mode FULL nothing is
   activated. */
#include "coll/partial/begin.h"

#include "base/error.h"

static int size_of(const baton__begin_t *self)
{
    return baton_schedule_size(self->schedule);
}

/* ---- the mode of an epoch --------------------------------------------- */

static baton__rule_t rule_at(const baton__begin_t *self, uint64_t epoch)
{
    return baton__rule_of(baton__choice_at(&self->modes, epoch), size_of(self));
}

/* Returns BATON_OK if this rank has to activate the epoch; otherwise
   BATON_SKIP. A rank does not activate an epoch that a peer has activated
   already, since the messages of that activation are on their way to all
   ranks. */
static baton_status_t may_initiate(void *arg, baton_call_t *call)
{
    baton__begin_t *self = arg;
    uint64_t epoch = baton__epoch_of(&self->modes, call);
    baton__rule_t rule = rule_at(self, epoch);
    return rule.needed == 1 && !baton__rule_is_full(rule, size_of(self)) &&
                   !baton_call_completed(call, self->reached) &&
                   baton__rule_counts(rule, self->modes.seed, epoch,
                                      size_of(self),
                                      baton_schedule_rank(self->schedule))
               ? BATON_OK
               : BATON_SKIP;
}

/* Returns true if a rank begins the epoch as soon as it has started it, even
   before the activation.

   This is false if some ranks, but not all, may activate the epoch: then there
   may be several trees of messages, and no rank may end the epoch before all
   ranks were activated. If all ranks may activate it, a rank that has started
   the epoch activates it anyway. */
static bool begins_at_start(baton__rule_t rule, int size)
{
    return rule.needed > 1 || rule.counting == 1 ||
           rule.counting == (uint32_t)size;
}

static baton_status_t is_full(void *arg, baton_call_t *call)
{
    baton__begin_t *self = arg;
    uint64_t epoch = baton__epoch_of(&self->modes, call);
    return baton__rule_is_full(rule_at(self, epoch), size_of(self))
               ? BATON_OK
               : BATON_SKIP;
}

/* ---- life -------------------------------------------------------------- */

baton_status_t baton__begin_init(baton__begin_t *self)
{
    int size = size_of(self);
    baton__rule_t rule = baton__rule_of(self->modes.choice, size);
    if (rule.needed == 1 || baton__rule_is_full(rule, size)) {
        return BATON_OK;
    }
    self->quorum = baton__quorum_create(self);
    return self->quorum != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_NO_MEMORY,
                              "partial \"%s\": no memory for a quorum",
                              baton_schedule_name(self->schedule));
}

static void ignore(void *arg, baton_status_t status)
{
}

void baton__begin_fail_if_lost(baton_schedule_t *schedule)
{
    baton_schedule_on_failure(schedule, ignore, NULL);
}

void baton__begin_fini(baton__begin_t *self)
{
    baton__quorum_destroy(self->quorum);
    self->quorum = NULL;
}

/* ---- building --------------------------------------------------------- */

static void add_branch(baton__begin_t *self, baton_call_fn fn,
                       baton_node_t start, baton_node_t to)
{
    baton_node_t call = baton_add_call(self->schedule, fn, self);
    baton_set_optional(self->schedule, call);
    baton_set_no_scratch(self->schedule, call);
    baton_before(self->schedule, start, call);
    baton_before(self->schedule, call, to);
}

/* Returns the group size of the activation tree; 0 stands for binomial trees.
   On one host an activation takes time mainly for waking ranks. Each rank has
   to be woken anyway, so the fewest hops are best: up to TELLS_ALL ranks get
   the message from the initiator itself, and up to MOST_RANKS ranks in two
   hops. Binomial trees are used between hosts, and for more ranks. */
static int group_of(const baton_schedule_t *schedule)
{
    enum { TELLS_ALL = 8, MOST_RANKS = 256 };
    int size = baton_schedule_size(schedule);
    if (baton_schedule_hosts(schedule) > 1 || size > MOST_RANKS) {
        return 0;
    }
    int group = size;
    while (size > TELLS_ALL && (group - 1) * (group - 1) >= size) {
        group--;
    }
    return group;
}

baton_node_t baton__begin_add(baton__begin_t *self)
{
    baton_schedule_t *s = self->schedule;
    baton__rule_t rule = baton__rule_of(self->modes.choice, size_of(self));
    baton_node_t start = baton_add_on_start(s);
    self->start = start;
    if (baton__rule_is_full(rule, size_of(self))) {
        baton_node_t begin = baton_add_nop(s);
        baton_before(s, start, begin);
        self->activated = begin;
        return begin;
    }
    baton_node_t initiate = baton_add_nop(s);
    baton_set_optional(s, initiate);
    baton_set_need(s, initiate, BATON_NEED_ANY);
    if (self->quorum != NULL) {
        baton_before(s, baton__add_quorum(self->quorum, start), initiate);
    }
    if (rule.needed == 1) {
        add_branch(self, may_initiate, start, initiate);
    }
    self->reached = baton__add_activation(s, initiate, group_of(s));
    self->activated = self->reached;
    if (self->modes.sync_every != 0) {
        baton_set_optional(s, self->reached);
        self->activated = baton_add_nop(s);
        baton_set_need(s, self->activated, BATON_NEED_ANY);
        baton_before(s, self->reached, self->activated);
        add_branch(self, is_full, start, self->activated);
    }
    baton_node_t begin = baton_add_nop(s);
    baton_set_need(s, begin, BATON_NEED_ANY);
    baton_before(s, self->activated, begin);
    if (begins_at_start(rule, size_of(self))) {
        baton_before(s, start, begin);
    }
    return begin;
}
