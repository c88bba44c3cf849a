/* The loss of a rank; see loss.h. */
#include "progress/membership/loss.h"

#include "progress/epoch/epoch.h"
#include "progress/membership/recovery.h"
#include "transport/subset.h"

void baton__loss_take(baton_group_t *group, int peer, const char *detail)
{
    assert(baton__driven_here(group));
    baton__group_lose(group, peer, detail);
    for (baton__task_t *t = NULL; (t = baton__stepper_next(group, t));) {
        baton__epoch_lose(&t->schedule, peer);
    }
    baton__recovery_give_up(group);
    baton__recovery_rouse(group);
    for (baton_group_t *g = group->subsets; g != NULL; g = g->next) {
        int rank = baton__subset_rank(g->endpoint, peer);
        if (rank >= 0 && baton__group_loss(g, rank) == NULL) {
            baton__loss_take(g, rank, baton__group_loss(group, peer));
        }
    }
}

/* ---- reports ------------------------------------------------------------ */

/* Returns the rank that reports a loss to other hosts: the first living rank on
   the host of the lost one or, if none is left there, of the group. */
static int find_teller(const baton_group_t *group, int lost)
{
    const int host = baton__group_host(group, lost);
    int first = -1;
    for (int rank = 0; rank < group->size; rank++) {
        if (rank == lost || baton__group_loss(group, rank) != NULL) {
            continue;
        }
        if (baton__group_host(group, rank) == host) {
            return rank;
        }
        first = first < 0 ? rank : first;
    }
    return first;
}

static void tell_of(baton_group_t *group, baton__loss_t *loss, bool tells_host)
{
    const int lost = loss->peer;
    const baton_header_t header = {
        .epoch = (uint64_t)lost + 1,
        .tag = BATON__LEFT_NOT |
               (baton__has_ended(group, lost) ? BATON__LEFT_ENDED : 0),
        .incarnation = group->incarnation};
    const int teller = find_teller(group, lost);
    loss->teller = teller;
    for (int peer = 0; peer < group->size; peer++) {
        bool due = baton__group_is_local(group, peer)
                       ? tells_host
                       : group->rank == teller || peer == teller;
        if (due && peer != group->rank &&
            baton__group_loss(group, peer) == NULL) {
            baton__stepper_answer(group, header, BATON__MESSAGE_LEFT, peer);
        }
    }
}

/* Reports a loss to the ranks of this host, and to one rank, the teller, that
   reports it to all other hosts: the first living rank on the host of the lost
   one. If the teller is lost, too, the loss is reported to the next teller. So
   ranks learn of a loss without a connection to any rank that noticed it, and
   few messages go to ranks that may be dying.

   Reports nothing about a peer that was lost because it has lost this rank. A
   rank that leaves the group reports the loss when it leaves. If the group is
   not collective (transport/group.h), ranks leave it independently: a rank that
   has left is no loss, and nothing is reported. */
static void loss_report(baton_group_t *group, int lost)
{
    baton__member_t *member = baton__member_of(group);
    if (lost < 0 || !baton__group_is_collective(group) ||
        baton__group_loss(group, lost) == baton__disowned) {
        return;
    }
    bool leaves = group->retired || member->recovery == BATON__RECOVERY_PARTING;
    for (baton_group_t *g = group->subsets; leaves && g != NULL; g = g->next) {
        loss_report(g, baton__subset_rank(g->endpoint, lost));
    }
    for (uint32_t i = 0; i < member->lost_count && !leaves; i++) {
        baton__loss_t *each = &member->lost[i];
        if (each->peer == lost || each->teller == lost) {
            tell_of(group, each, each->peer == lost);
        }
    }
}

/* Called when a rank is lost to all ranks. Reports the loss to ranks that would
   not notice it: they have no messages with the lost rank, or have lost their
   own connection to it. */
static void lose_for_all(baton_group_t *group, int peer, baton_status_t status,
                         const char *detail)
{
    bool is_new = baton__group_loss(group, peer) == NULL;
    if (is_new) {
        baton__loss_take(group, peer, detail);
    }
    if (status != BATON_ERR_TIMEOUT && !baton__has_ended(group, peer)) {
        baton__group_note_end(group, peer);
        is_new = true;
    }
    if (is_new) {
        loss_report(group, peer);
    }
}

/* Handles a peer's report that a rank is lost; the peer itself leaves the
   group, or stays. The transport first delivers what the lost rank had sent,
   and then reports the loss; a transport without `lose` can't do that, so the
   loss is handled at once. If the lost rank is on this host and may live, the
   report is sent on to it, so that it does not go on without the others. */
static void heed_loss(baton_group_t *group, const baton_header_t *header,
                      int lost)
{
    const baton_transport_t *transport = group->transport;
    bool stays = (header->tag & BATON__LEFT_NOT) != 0;
    bool ended = (header->tag & BATON__LEFT_ENDED) != 0;
    baton_status_t status = ended ? BATON_ERR_TRANSPORT : BATON_ERR_TIMEOUT;
    const char *why = "another rank has seen that it has ended";
    if (!ended) {
        why = stays ? "another rank has lost it"
                    : "another rank has lost it, and left";
    }
    if (stays && !ended && baton__group_loss(group, lost) == NULL &&
        baton__group_is_local(group, lost)) {
        (void)transport->notify(group->endpoint, lost, header, NULL, 0);
    }
    /* After this call the transport's close does not wait for the lost rank. */
    if (transport->lose != NULL) {
        transport->lose(group->endpoint, lost, status, why);
    } else {
        lose_for_all(group, lost, status, why);
    }
}

void baton__loss_receive(baton_group_t *group, const baton_header_t *header,
                         int peer)
{
    uint64_t lost = header->epoch; /* 1 + the lost rank, or 0 */
    bool stays = (header->tag & BATON__LEFT_NOT) != 0;
    bool disowns = lost == (uint64_t)group->rank + 1;
    bool heeded = baton__group_loss(group, peer) == NULL;
    if (heeded && stays && disowns) {
        baton__loss_take(group, peer, baton__disowned);
        /* This call also ends transfers with the peer. */
        if (group->transport->lose != NULL) {
            group->transport->lose(group->endpoint, peer, BATON_ERR_TIMEOUT,
                                   baton__disowned);
        }
    } else if (heeded && lost > 0 && lost <= (uint64_t)group->size &&
               !disowns) {
        heed_loss(group, header, (int)lost - 1);
        if (!stays && baton__group_loss(group, (int)lost - 1) == NULL &&
            baton__group_keep(&baton__member_of(group)->leaves, 0, header,
                              peer)) {
            return;
        }
    }
    if (!stays) {
        baton__loss_take(group, peer,
                         disowns ? baton__disowned
                                 : "it has destroyed the group after a loss");
        if (!disowns) { /* otherwise the peer goes on without this rank */
            baton__group_note_end(group, peer);
        }
    }
}

/* Called when the transport has reported a loss. Handles the LEFT notices that
   the group has kept until then; see baton__loss_receive. */
static void heed_leaves(baton_group_t *group)
{
    baton__notice_t *leaves = baton__member_of(group)->leaves;
    baton__member_of(group)->leaves = NULL;
    for (baton__notice_t *each = leaves; each != NULL; each = each->next) {
        baton__loss_receive(group, &each->header, each->peer);
    }
    baton__group_drop_notices(&leaves);
}

void baton__loss_happen(baton_group_t *group, const baton_event_t *event)
{
    assert(baton__driven_here(group));
    if (event->status != BATON_ERR_STATE) {
        lose_for_all(group, event->peer, event->status, event->detail);
    } else if (baton__group_loss(group, event->peer) == NULL) {
        baton__loss_take(group, event->peer, event->detail);
    }
    heed_leaves(group);
    for (baton_group_t *g = group->subsets; g != NULL; g = g->next) {
        heed_leaves(g);
    }
}
