/* How an epoch of a partial collective begins, in each mode:

     solo        on_start --------------------------+
     majority,   on_start --> may_initiate ---------+
     any                                            |
     quorum,     on_start --> counting tree --------+--> activation --> begin
     all                      (quorum.c)                                  ^
                                                                          |
     full        on_start --> is_full ------------------------------------+

   A partial has the branches that its modes can need. Where only FULL can,
   begin is behind on_start, and nothing is activated.

   An activation carries a word that says what its sender was asked for: ranks
   that were given different options learn it from the first activation. */
#include "coll/partial_begin.h"

#include "base/error.h"

static int rank_of(const baton__begin_t *self)
{
    return baton_schedule_rank(self->schedule);
}

static int size_of(const baton__begin_t *self)
{
    return baton_schedule_size(self->schedule);
}

/* ---- the mode of an epoch --------------------------------------------- */

static baton_partial_choice_t choice_at(const baton__begin_t *self,
                                        uint64_t epoch)
{
    return self->sync_every != 0 && epoch % self->sync_every == 0
               ? (baton_partial_choice_t){.mode = BATON_FULL}
               : self->choice;
}

static baton__rule_t rule_at(void *arg, uint64_t epoch)
{
    const baton__begin_t *self = arg;
    return baton__rule_of(choice_at(self, epoch), size_of(self));
}

static baton_status_t may_initiate(void *arg, baton_call_t *call)
{
    baton__begin_t *self = arg;
    uint64_t epoch = baton_call_epoch(call);
    baton__rule_t rule = rule_at(self, epoch);
    return rule.needed == 1 && !baton__rule_is_full(rule, size_of(self)) &&
                   baton__rule_counts(rule, self->seed, epoch, size_of(self),
                                      rank_of(self))
               ? BATON_OK
               : BATON_SKIP;
}

static baton_status_t is_full(void *arg, baton_call_t *call)
{
    baton__begin_t *self = arg;
    return baton__rule_is_full(rule_at(self, baton_call_epoch(call)),
                               size_of(self))
               ? BATON_OK
               : BATON_SKIP;
}

/* ---- life -------------------------------------------------------------- */

baton_status_t baton__begin_init(baton__begin_t *self)
{
    int size = size_of(self);
    baton__rule_t rule = baton__rule_of(self->choice, size);
    bool changes = self->changes && size > 1;
    if (!changes && (rule.needed == 1 || baton__rule_is_full(rule, size))) {
        return BATON_OK;
    }
    self->quorum =
        baton__quorum_create(rank_of(self), size, self->seed, rule_at, self);
    return self->quorum != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_NO_MEMORY,
                              "partial \"%s\": no memory for a quorum",
                              baton_schedule_name(self->schedule));
}

void baton__begin_fini(baton__begin_t *self)
{
    baton__quorum_destroy(self->quorum);
    self->quorum = NULL;
}

void baton__begin_recover(baton__begin_t *self, baton_partial_choice_t choice)
{
    self->choice = choice;
    if (self->quorum != NULL) {
        baton__quorum_recover(self->quorum);
    }
}

/* ---- comparing options ------------------------------------------------ */

/* mode: 4 bits; its ranks: 28; the other options' digest: 32. */
enum { MODE_BITS = 4, RANKS_BITS = 28 };

static uint64_t word_of(const baton__begin_t *self,
                        baton_partial_choice_t choice)
{
    return (uint64_t)self->digest << (MODE_BITS + RANKS_BITS) |
           (uint64_t)choice.mode_ranks << MODE_BITS | (uint64_t)choice.mode;
}

static baton_partial_choice_t choice_of(uint64_t word)
{
    return (baton_partial_choice_t){
        .mode = (baton_partial_mode_t)(word & ((1u << MODE_BITS) - 1)),
        .mode_ranks =
            (uint32_t)(word >> MODE_BITS) & ((UINT32_C(1) << RANKS_BITS) - 1),
    };
}

/* Fires as the epoch begins, ahead of the activates. */
static baton_status_t stamp(void *arg, baton_call_t *call)
{
    const baton__begin_t *self = arg;
    uint64_t word = word_of(self, choice_at(self, baton_call_epoch(call)));
    baton_status_t status = BATON_OK;
    for (int i = 0; i < self->wave.steps && status == BATON_OK; i++) {
        status = baton_call_set_word(call, self->wave.activate[i], word);
    }
    return status;
}

static baton_status_t refuse_peer(const baton__begin_t *self,
                                  baton_call_t *call, int peer, uint64_t mine,
                                  uint64_t theirs)
{
    char my_mode[BATON__RULE_TEXT];
    char their_mode[BATON__RULE_TEXT];
    baton__rule_format(choice_of(mine), my_mode);
    baton__rule_format(choice_of(theirs), their_mode);
    bool modes = ((mine ^ theirs) & UINT32_MAX) != 0;
    return baton_call_fail(
        call, BATON_ERR_MISMATCH,
        "partial \"%s\": rank %d was asked for %s and rank %d for %s%s",
        baton_schedule_name(self->schedule), rank_of(self), my_mode, peer,
        their_mode,
        modes ? ": must be the same on all ranks"
              : ", but with another count, result_count, dtype, seed, "
                "sync_every, max_staleness, keep or history: must be the same "
                "on all ranks");
}

baton_status_t baton__begin_check_peers(const baton__begin_t *self,
                                        baton_call_t *call)
{
    uint64_t mine = word_of(self, choice_at(self, baton_call_epoch(call)));
    for (int i = 0; i < self->wave.steps; i++) {
        if (!baton_call_completed(call, self->wave.armed[i])) {
            continue;
        }
        uint64_t theirs = baton_call_word(call, self->wave.armed[i]);
        if (theirs != mine) {
            int64_t peer =
                ((int64_t)rank_of(self) - ((int64_t)1 << i)) % size_of(self);
            return refuse_peer(self, call,
                               (int)(peer < 0 ? peer + size_of(self) : peer),
                               mine, theirs);
        }
    }
    return BATON_OK;
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

baton_node_t baton__begin_add(baton__begin_t *self)
{
    baton_schedule_t *s = self->schedule;
    baton__rule_t rule = baton__rule_of(self->choice, size_of(self));
    bool changes = self->changes && size_of(self) > 1;
    baton_node_t start = baton_add_on_start(s);
    self->start = start;
    if (baton__rule_is_full(rule, size_of(self)) && !changes) {
        baton_node_t begin = baton_add_nop(s);
        baton_before(s, start, begin);
        return begin;
    }
    baton_set_no_scratch(s, baton_add_call(s, stamp, self));
    baton_node_t initiate = start;
    bool always = rule.counting == (uint32_t)size_of(self) &&
                  rule.needed == 1 && self->sync_every == 0 && !changes;
    if (!always) {
        initiate = baton_add_nop(s);
        baton_set_optional(s, initiate);
        baton_set_need(s, initiate, BATON_NEED_ANY);
    }
    if (self->quorum != NULL) {
        baton_before(s, baton__add_quorum(s, self->quorum, start), initiate);
    }
    if (!always && (rule.needed == 1 || changes)) {
        add_branch(self, may_initiate, start, initiate);
    }
    baton_node_t begin = baton__add_activation(s, initiate, &self->wave);
    if (self->sync_every != 0 || changes) {
        add_branch(self, is_full, start, begin);
    }
    if (self->quorum != NULL) {
        baton__quorum_until(self->quorum, begin);
    }
    return begin;
}
