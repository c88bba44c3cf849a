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
#include "coll/partial_parts.h"

/* ---- the mode of an epoch --------------------------------------------- */

static baton_partial_choice_t choice_at(const baton_partial_t *partial,
                                        uint64_t epoch)
{
    return partial->sync_every != 0 && epoch % partial->sync_every == 0
               ? (baton_partial_choice_t){.mode = BATON_FULL}
               : partial->choice;
}

baton__rule_t baton__partial_rule_at(void *arg, uint64_t epoch)
{
    const baton_partial_t *partial = arg;
    return baton__rule_of(choice_at(partial, epoch), partial->size);
}

static baton_status_t may_initiate(void *arg, baton_call_t *call)
{
    baton_partial_t *partial = arg;
    uint64_t epoch = baton_call_epoch(call);
    baton__rule_t rule = baton__partial_rule_at(partial, epoch);
    return rule.needed == 1 && !baton__rule_is_full(rule, partial->size) &&
                   baton__rule_counts(rule, partial->seed, epoch, partial->size,
                                      partial->rank)
               ? BATON_OK
               : BATON_SKIP;
}

static baton_status_t is_full(void *arg, baton_call_t *call)
{
    baton_partial_t *partial = arg;
    return baton__rule_is_full(
               baton__partial_rule_at(partial, baton_call_epoch(call)),
               partial->size)
               ? BATON_OK
               : BATON_SKIP;
}

/* ---- comparing options ------------------------------------------------ */

/* mode: 4 bits; its ranks: 28; the other options' digest: 32. */
enum { MODE_BITS = 4, RANKS_BITS = 28 };

static uint64_t word_of(const baton_partial_t *partial,
                        baton_partial_choice_t choice)
{
    return (uint64_t)partial->digest << (MODE_BITS + RANKS_BITS) |
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
    const baton_partial_t *partial = arg;
    uint64_t word =
        word_of(partial, choice_at(partial, baton_call_epoch(call)));
    baton_status_t status = BATON_OK;
    for (int i = 0; i < partial->wave.steps && status == BATON_OK; i++) {
        status = baton_call_set_word(call, partial->wave.activate[i], word);
    }
    return status;
}

static baton_status_t refuse_peer(const baton_partial_t *partial,
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
        baton_schedule_name(partial->schedule), partial->rank, my_mode, peer,
        their_mode,
        modes ? ": must be the same on all ranks"
              : ", but with another count, dtype, op, seed, sync_every or "
                "max_staleness: must be the same on all ranks");
}

baton_status_t baton__partial_check_peers(const baton_partial_t *partial,
                                          baton_call_t *call)
{
    uint64_t mine =
        word_of(partial, choice_at(partial, baton_call_epoch(call)));
    for (int i = 0; i < partial->wave.steps; i++) {
        if (!baton_call_completed(call, partial->wave.armed[i])) {
            continue;
        }
        uint64_t theirs = baton_call_word(call, partial->wave.armed[i]);
        if (theirs != mine) {
            int64_t peer =
                ((int64_t)partial->rank - ((int64_t)1 << i)) % partial->size;
            return refuse_peer(partial, call,
                               (int)(peer < 0 ? peer + partial->size : peer),
                               mine, theirs);
        }
    }
    return BATON_OK;
}

/* ---- building --------------------------------------------------------- */

static void add_branch(baton_partial_t *partial, baton_call_fn fn,
                       baton_node_t start, baton_node_t to)
{
    baton_node_t call = baton_add_call(partial->schedule, fn, partial);
    baton_set_optional(partial->schedule, call);
    baton_set_no_scratch(partial->schedule, call);
    baton_before(partial->schedule, start, call);
    baton_before(partial->schedule, call, to);
}

baton_node_t baton__partial_add_begin(baton_partial_t *partial)
{
    baton_schedule_t *s = partial->schedule;
    baton__rule_t rule = baton__rule_of(partial->choice, partial->size);
    bool changes = partial->changes && partial->size > 1;
    baton_node_t start = baton_add_on_start(s);
    partial->start = start;
    if (baton__rule_is_full(rule, partial->size) && !changes) {
        baton_node_t begin = baton_add_nop(s);
        baton_before(s, start, begin);
        return begin;
    }
    baton_set_no_scratch(s, baton_add_call(s, stamp, partial));
    baton_node_t initiate = start;
    bool always = rule.counting == (uint32_t)partial->size &&
                  rule.needed == 1 && partial->sync_every == 0 && !changes;
    if (!always) {
        initiate = baton_add_nop(s);
        baton_set_optional(s, initiate);
        baton_set_need(s, initiate, BATON_NEED_ANY);
    }
    if (partial->quorum != NULL) {
        baton_before(s, baton__add_quorum(s, partial->quorum, start), initiate);
    }
    if (!always && (rule.needed == 1 || changes)) {
        add_branch(partial, may_initiate, start, initiate);
    }
    baton_node_t begin = baton__add_activation(s, initiate, &partial->wave);
    if (partial->sync_every != 0 || changes) {
        add_branch(partial, is_full, start, begin);
    }
    if (partial->quorum != NULL) {
        baton__quorum_until(partial->quorum, begin);
    }
    return begin;
}
