/* The state that a rank keeps for a group; see member.h. */
#include "progress/state/member.h"

#include "base/alloc.h"
#include "transport/subset.h"

/* ---- destroyed schedules ------------------------------------------------ */

const baton__destroyed_t *baton__group_destroyed(const baton_group_t *group,
                                                 uint64_t identity,
                                                 uint16_t incarnation)
{
    const baton__place_t *place =
        baton__table_find(&baton__member_of(group)->destroyed, identity);
    return place != NULL && place->destroyed->incarnation == incarnation
               ? place->destroyed
               : NULL;
}

void baton__group_notified(baton_group_t *group, uint64_t identity, int peer)
{
    baton__member_t *member = baton__member_of(group);
    const baton__place_t *place =
        baton__table_find(&member->destroyed, identity);
    baton__destroyed_t *record = place != NULL ? place->destroyed : NULL;
    for (uint32_t i = 0; record != NULL && i < record->peer_count; i++) {
        if (record->peers[i] == peer) {
            record->peers[i] = record->peers[--record->peer_count];
        }
    }
    if (record != NULL && record->peer_count == 0) {
        baton__table_remove(&member->destroyed, identity);
        baton__free(record);
    }
}

void baton__member_forget_destroyed(baton__member_t *member, int but)
{
    for (uint32_t i = 0; i < member->destroyed.size; i++) {
        const baton__place_t *place = &member->destroyed.places[i];
        while (place->key != 0 && place->destroyed->incarnation != but) {
            baton__free(place->destroyed);
            baton__table_remove(&member->destroyed, place->key);
        }
    }
}

/* ---- notices that are kept for later ---------------------------------- */

baton__notice_t *baton__member_take_notice(baton__member_t *member)
{
    baton__notice_t *notice = member->spare;
    if (notice == NULL) {
        return baton__alloc(1, sizeof *notice);
    }
    member->spare = notice->next;
    return notice;
}

void baton__member_give_notice(baton__member_t *member, baton__notice_t *notice)
{
    notice->next = member->spare;
    member->spare = notice;
}

bool baton__group_keep(baton__notice_t **list, uint64_t channel,
                       const baton_header_t *header, int peer)
{
    baton__notice_t *notice = baton__alloc(1, sizeof *notice);
    if (notice != NULL) {
        *notice = (baton__notice_t){
            .next = *list, .channel = channel, .header = *header, .peer = peer};
        *list = notice;
    }
    return notice != NULL;
}

void baton__group_drop_notices(baton__notice_t **list)
{
    while (*list != NULL) {
        baton__notice_t *notice = *list;
        *list = notice->next;
        baton__free(notice);
    }
}

/* ---- peers that are gone ---------------------------------------------- */

void baton__group_set_recovery(baton_group_t *group,
                               baton__recovery_state_t state)
{
    baton__member_t *member = baton__member_of(group);
    /* The allowed changes of the state: each row is the state before a change,
       and the columns are the states after it, in the order NONE, STOPPING,
       JOINED, PARTING, OVER. */
    static const bool
        legal[BATON__RECOVERY_STATE_COUNT][BATON__RECOVERY_STATE_COUNT] = {
            [BATON__RECOVERY_NONE] = {false, true, false, true, false},
            [BATON__RECOVERY_STOPPING] = {false, false, true, true, true},
            [BATON__RECOVERY_JOINED] = {false, false, false, true, true},
            [BATON__RECOVERY_PARTING] = {false, false, false, false, true},
            [BATON__RECOVERY_OVER] = {true, false, false, true, false},
        };
    assert(legal[member->recovery][state]);
    (void)legal; /* `legal` is unused without assertions */
    member->recovery = state;
}

void baton__group_lose(baton_group_t *group, int peer, const char *detail)
{
    baton__member_t *member = baton__member_of(group);
    const baton__loss_t loss = {
        .peer = peer,
        .teller = -1,
        .detail =
            detail != NULL ? detail : baton_status_text(BATON_ERR_TRANSPORT)};
    member->first = baton__member_has_lost(member) ? member->first : loss;
    if (member->lost_count == member->lost_capacity) {
        uint32_t capacity = member->lost_capacity * 2 + 4;
        if (!baton__extend(&member->lost, member->lost_count, capacity,
                           sizeof *member->lost)) {
            member->all_lost = true;
            return;
        }
        member->lost_capacity = capacity;
    }
    member->lost[member->lost_count++] = loss;
}

void baton__group_note_end(baton_group_t *group, int peer)
{
    baton__member_t *member = baton__member_of(group);
    for (uint32_t i = 0; i < member->lost_count; i++) {
        member->lost[i].ended |= member->lost[i].peer == peer;
    }
}

const char *baton__group_loss(const baton_group_t *group, int peer)
{
    const baton__member_t *member = baton__member_of(group);
    for (uint32_t i = 0; i < member->lost_count; i++) {
        if (member->lost[i].peer == peer) {
            return member->lost[i].detail;
        }
    }
    return member->all_lost ? baton_status_text(BATON_ERR_TRANSPORT) : NULL;
}

uint64_t baton__group_first_lost(const baton_group_t *group)
{
    const baton__member_t *member = baton__member_of(group);
    return member->first.detail != NULL &&
                   member->first.detail != baton__disowned
               ? (uint64_t)member->first.peer + 1
               : 0;
}

void baton__group_note_report(baton_group_t *group, int peer, uint32_t lost)
{
    baton__member_t *member = baton__member_of(group);
    const int rank = (int)lost - 1;
    if (lost > 0 && rank < group->size && rank != group->rank &&
        member->first.detail == NULL &&
        baton__group_loss(group, peer) == NULL) {
        member->first =
            (baton__loss_t){.peer = rank, .detail = "another rank has lost it"};
    }
}

bool baton__has_ended(const baton_group_t *group, int rank)
{
    const baton__member_t *member = baton__member_of(group);
    bool ended =
        group->root != NULL &&
        baton__has_ended(group->root,
                         baton__subset_root_rank(group->endpoint, rank));
    for (uint32_t i = 0; i < member->lost_count; i++) {
        ended |= member->lost[i].peer == rank && member->lost[i].ended;
    }
    return ended;
}

void baton__member_fini(baton__member_t *member)
{
    for (uint32_t i = 0; i < member->hellos.size; i++) {
        baton__place_t *place = &member->hellos.places[i];
        if (place->key != 0) {
            baton__group_drop_notices(&place->hellos);
        }
    }
    baton__member_forget_destroyed(member, -1);
    baton__free(member->destroyed.places);
    baton__group_drop_notices(&member->spare);
    baton__group_drop_notices(&member->recovery_headers);
    baton__group_drop_notices(&member->leaves);
    baton__group_drop_notices(&member->subset_headers);
    baton__free(member->lost);
    baton__free(member->reporters);
    if (member->group.borrowed) {
        baton__free(member->unknown_name);
    }
    baton__free(member->hellos.places);
    baton__free(member->shrink);
    baton__group_fini(&member->group);
}
