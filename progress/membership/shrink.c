/* How survivors agree; see shrink.h. */
#include "progress/membership/shrink.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "progress/membership/loss.h"
#include "progress/membership/notice.h"

#include <string.h>

enum {
    VIEW_BYTES = BATON__SHRINK_RANKS / 8,
    /* The index of the first bit for ended ranks; see view_t. */
    ENDS_FROM = BATON__SHRINK_RANKS / 2
};
/* How long a rank waits for a report, by the process's host or by the end of a
   connection, that a lost process has ended; a quarter of BATON_PEER_TIMEOUT_MS
   if that is less. */
static const uint64_t END_NS = 1000000000;
static_assert(VIEW_BYTES <= BATON_NOTICE_BYTES, "a view is a notice");

/* Bits of a view's tag. */
enum {
    /* This is the sender's first view; the sender has dropped all views that it
       got before. */
    ASKS = 1,
    /* The sender has agreed on this view, and the receiver takes it over. */
    AGREED = 2
};

typedef struct view {
    /* Bit r: rank r is lost. In groups of at most ENDS_FROM ranks, bit
       ENDS_FROM + r: rank r is known to have ended. */
    unsigned char bits[VIEW_BYTES];
} view_t;

/* The exchange of views with one rank. */
typedef struct exchange {
    /* sent: 1 + the number of bits that are set in the view that was last sent
       to the rank; 0: no view was sent. received: the same for the view that
       was last received from the rank. Each of these views is a part of this
       rank's view, so equal numbers mean equal views. */
    uint32_t sent, received;
    bool asked; /* a view with the bit ASKS was sent to the rank */
    bool due;   /* the rank must get the agreed view */
} exchange_t;

struct baton__shrink {
    _Atomic int state; /* baton__shrinking_t */
    uint64_t number; /* the number of the current shrink, or of the last one */
    uint64_t agreed_number; /* the number of the shrink that set `agreed` */
    uint32_t known;         /* number of bits that are set in `view` */
    /* From this time on the rank agrees on `view` even if its side is then the
       minority of a partition; 0: not set. */
    uint64_t minority_ns;
    bool adopted; /* `view` is a view on which another rank has agreed */
    view_t view, agreed;
    exchange_t exchanges[];
};
typedef struct baton__shrink shrink_t;

/* ---- views ------------------------------------------------------------- */

static bool is_lost(const view_t *view, int rank)
{
    return (view->bits[rank / 8] >> rank % 8 & 1) != 0;
}

static void set_bit(view_t *view, int rank)
{
    view->bits[rank / 8] |= (unsigned char)(1 << rank % 8);
}

static uint32_t progress_shrink_count_bits(const view_t *view)
{
    uint32_t count = 0;
    for (int i = 0; i < BATON__SHRINK_RANKS; i++) {
        count += is_lost(view, i);
    }
    return count;
}

/* True if the ranks that live in a view go on; see shrink.h. Two sides can't
   both go on: each counts the other's ranks as lost ones that may live, so each
   would need more ranks than the other; and only one side has the lowest
   rank. */
static bool is_majority(const baton_group_t *group, const view_t *view)
{
    /* The number of living ranks minus the number of lost ranks that may
       live. */
    int lead = 0;
    bool lowest = false;
    for (int rank = group->size - 1; rank >= 0; rank--) {
        bool ended =
            group->size <= ENDS_FROM && is_lost(view, ENDS_FROM + rank);
        if (!ended) {
            lowest = !is_lost(view, rank);
            lead += lowest ? 1 : -1;
        }
    }
    return lead > 0 || (lead == 0 && lowest);
}

/* Returns the number that stands for this rank's present view in
   exchange_t.sent and exchange_t.received. */
static uint32_t version_of(const shrink_t *shrink)
{
    return shrink->known + 1;
}

/* True if a lost rank can't go on with others, and so counts as ended. A
   partition never divides a host, so this is true of a lost rank of this host,
   even if that rank is only stopped. It is false if that rank has lost this
   one. */
static bool is_over(const baton_group_t *group, int rank, const char *loss)
{
    return baton__has_ended(group, rank) ||
           (baton__group_is_local(group, rank) && loss != baton__disowned);
}

/* Adds to the view the losses that the transport, or a LEFT notice, has
   reported. */
static void look_for_lost(const baton_group_t *group, shrink_t *shrink)
{
    for (int rank = 0; rank < group->size; rank++) {
        const char *loss = baton__group_loss(group, rank);
        if (rank == group->rank || loss == NULL) {
            continue;
        }
        set_bit(&shrink->view, rank);
        if (group->size <= ENDS_FROM && is_over(group, rank, loss)) {
            set_bit(&shrink->view, ENDS_FROM + rank);
        }
    }
    shrink->known = progress_shrink_count_bits(&shrink->view);
}

/* True if another rank has lost this one. With `local`, true only if that rank
   is on this host, since there this rank counts as ended. */
static bool is_disowned(const baton_group_t *group, bool local)
{
    bool disowned = false;
    for (int rank = 0; rank < group->size; rank++) {
        disowned |= baton__group_loss(group, rank) == baton__disowned &&
                    (!local || baton__group_is_local(group, rank));
    }
    return disowned;
}

/* Makes a rank that other ranks have lost a lost rank here, too. */
static void lose_too(baton_group_t *group, int peer)
{
    static const char why[] = "other ranks have lost it";
    if (group->transport->lose != NULL) {
        group->transport->lose(group->endpoint, peer, BATON_ERR_TIMEOUT, why);
    } else {
        baton__loss_take(group, peer, why);
    }
}

/* Makes this rank lose all ranks of this host that are lost in the view.
   Returns true if it has lost all of them: only then does this rank know
   whether any of them had lost it before. */
static bool has_lost_all(baton_group_t *group, const view_t *view)
{
    bool all = true;
    for (int peer = 0; peer < group->size; peer++) {
        if (peer != group->rank && is_lost(view, peer) &&
            baton__group_is_local(group, peer) &&
            baton__group_loss(group, peer) == NULL) {
            lose_too(group, peer);
            all &= baton__group_loss(group, peer) != NULL;
        }
    }
    return all;
}

/* ---- states ------------------------------------------------------------ */

static baton__shrinking_t state_of(const shrink_t *shrink)
{
    /* Pairs with the store in set_state(). */
    return (baton__shrinking_t)atomic_load_explicit(&shrink->state,
                                                    memory_order_acquire);
}

baton__shrinking_t baton__shrink_state(const baton_group_t *group)
{
    const baton__member_t *member = baton__member_of(group);
    return member->shrink != NULL ? state_of(member->shrink)
                                  : BATON__SHRINK_NONE;
}

static void set_state(shrink_t *shrink, baton__shrinking_t state)
{
    atomic_store_explicit(&shrink->state, state, memory_order_seq_cst);
}

uint64_t baton__shrink_number(const baton_group_t *group)
{
    const shrink_t *shrink = baton__member_of(group)->shrink;
    return shrink == NULL
               ? 1
               : shrink->number + (state_of(shrink) == BATON__SHRINK_NONE);
}

void baton__shrink_end(baton_group_t *group)
{
    assert(baton__driven_here(group));
    set_state(baton__member_of(group)->shrink, BATON__SHRINK_NONE);
}

/* Ends the exchange of views. */
static void stop_asking(baton_group_t *group, baton__shrinking_t state)
{
    baton__stepper_t *stepper = group->stepper;
    stepper->recovering--;
    set_state(baton__member_of(group)->shrink, state);
    if (stepper->hooks->on_recovered != NULL) {
        stepper->hooks->on_recovered(group);
    }
}

static baton_status_t progress_shrink_make(baton_group_t *group)
{
    size_t size = (size_t)group->size;
    if (size > BATON__SHRINK_RANKS) {
        return baton__error(BATON_ERR_LIMIT,
                            "shrink on rank %d of %zu: a group of more than %d "
                            "ranks can't shrink",
                            group->rank, size, BATON__SHRINK_RANKS);
    }
    shrink_t *shrink =
        baton__alloc(1, sizeof *shrink + size * sizeof(exchange_t));
    if (shrink == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory to shrink a group");
    }
    atomic_init(&shrink->state, BATON__SHRINK_NONE);
    baton__member_of(group)->shrink = shrink;
    return BATON_OK;
}

/* Connects this rank to all living ranks, so that the death of any of them is
   noticed, even if this rank has exchanged no messages with the dead one. */
static baton_status_t contact_all(const baton_group_t *group)
{
    baton_status_t status = BATON_OK;
    for (int peer = 0; peer < group->size && status == BATON_OK; peer++) {
        if (peer != group->rank && baton__group_loss(group, peer) == NULL) {
            status = group->transport->reserve(group->endpoint, peer, 0, 0);
        }
    }
    return status;
}

baton_status_t baton__shrink_begin(baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton__member_t *member = baton__member_of(group);
    baton_status_t status =
        member->shrink == NULL ? progress_shrink_make(group) : BATON_OK;
    if (member->shrink == NULL ||
        state_of(member->shrink) != BATON__SHRINK_NONE) {
        return status;
    }
    status = contact_all(group);
    if (status != BATON_OK) {
        return status;
    }
    shrink_t *shrink = member->shrink;
    for (int peer = 0; peer < group->size; peer++) {
        exchange_t *exchange = &shrink->exchanges[peer];
        *exchange = (exchange_t){.due = exchange->due};
    }
    shrink->number++;
    shrink->view = (view_t){{0}};
    shrink->known = 0;
    shrink->minority_ns = 0;
    shrink->adopted = false;
    set_state(shrink, BATON__SHRINK_ASKING);
    group->stepper->recovering++;
    return BATON_OK;
}

int baton__shrink_survivors(const baton_group_t *group, int *ranks_out)
{
    int count = 0;
    for (int rank = 0; rank < group->size; rank++) {
        if (!is_lost(&baton__member_of(group)->shrink->agreed, rank)) {
            ranks_out[count++] = rank;
        }
    }
    return count;
}

int baton__shrink_unreached(const baton_group_t *group, int *count_out)
{
    const view_t *view = &baton__member_of(group)->shrink->agreed;
    int first = -1;
    *count_out = 0;
    for (int rank = group->size - 1; rank >= 0; rank--) {
        if (is_lost(view, rank) &&
            (group->size > ENDS_FROM || !is_lost(view, ENDS_FROM + rank))) {
            first = rank;
            ++*count_out;
        }
    }
    return first;
}

/* ---- agreement --------------------------------------------------------- */

int baton__shrink_awaits(const baton_group_t *group, int from)
{
    assert(baton__driven_here(group));
    const shrink_t *shrink = baton__member_of(group)->shrink;
    for (int peer = from; peer < group->size; peer++) {
        const exchange_t *exchange = &shrink->exchanges[peer];
        if (peer != group->rank && !is_lost(&shrink->view, peer) &&
            (exchange->sent != version_of(shrink) ||
             exchange->received != version_of(shrink))) {
            return peer;
        }
    }
    return -1;
}

static baton__shrinking_t progress_shrink_outcome_of(const baton_group_t *group,
                                                     const view_t *view)
{
    const bool all = baton__config_number(BATON__CONFIG_MINORITY) != 0;
    const bool counts = !all && is_majority(group, view);
    if (is_disowned(group, true) || (!counts && is_disowned(group, false))) {
        return BATON__SHRINK_EXCLUDED;
    }
    return all || counts ? BATON__SHRINK_AGREED : BATON__SHRINK_MINORITY;
}

static void queue_agreed_view(const baton_group_t *group, exchange_t *exchange)
{
    group->stepper->recovering += !exchange->due;
    exchange->due = true;
}

/* Adopts a view as the agreed one. Ranks that only others have lost are lost to
   this rank, too, from now on. If another rank has agreed on the view, the view
   is also sent to all living ranks, since any of them may have sent a different
   view before and wait for an answer. */
static void progress_shrink_agree(baton_group_t *group, const view_t *view)
{
    shrink_t *shrink = baton__member_of(group)->shrink;
    shrink->agreed = *view;
    shrink->agreed_number = shrink->number;
    for (int peer = 0; peer < group->size; peer++) {
        if (!is_lost(view, peer)) {
            if (shrink->adopted && peer != group->rank) {
                queue_agreed_view(group, &shrink->exchanges[peer]);
            }
        } else if (baton__group_loss(group, peer) == NULL) {
            lose_too(group, peer);
        }
    }
    stop_asking(group, progress_shrink_outcome_of(group, view));
}

/* True while a rank whose side would be the minority of a partition waits for
   proof that lost processes have ended: MPI may report a death before there is
   a proof. */
static bool may_prove_ends(const baton_group_t *group)
{
    shrink_t *shrink = baton__member_of(group)->shrink;
    if (progress_shrink_outcome_of(group, &shrink->view) !=
        BATON__SHRINK_MINORITY) {
        return false;
    }
    const uint64_t now = baton__clock_ns();
    if (shrink->minority_ns == 0) {
        const int64_t ms = baton__config_number(BATON__CONFIG_PEER_TIMEOUT_MS);
        const uint64_t quarter = (uint64_t)ms * 250000;
        shrink->minority_ns =
            now + (quarter > 0 && quarter < END_NS ? quarter : END_NS);
    }
    /* this step's poll then finds ended ranks */
    group->transport->drain(group->endpoint);
    group->stepper->must_retry = true; /* nothing else would wake this rank */
    return now < shrink->minority_ns;
}

void baton__shrink_receive(baton_group_t *group, baton_message_t *message)
{
    const baton_header_t header = message->header;
    int peer = message->peer;
    shrink_t *shrink = baton__member_of(group)->shrink;
    view_t view;
    baton__group_take_notice(group, message, &view, sizeof view);
    if (shrink == NULL) {
        return; /* when this rank begins to shrink it asks for views */
    }
    exchange_t *exchange = &shrink->exchanges[peer];
    if (header.epoch == shrink->agreed_number) {
        if (is_lost(&view, group->rank)) {
            baton__loss_take(group, peer, baton__disowned);
            return;
        }
        bool other = memcmp(&view, &shrink->agreed, sizeof view) != 0;
        if ((header.tag & AGREED) == 0 && ((header.tag & ASKS) != 0 || other)) {
            queue_agreed_view(group, exchange);
        }
        return;
    }
    if (header.epoch != shrink->number || shrink->adopted ||
        state_of(shrink) != BATON__SHRINK_ASKING ||
        ((header.tag & AGREED) != 0 && is_lost(&shrink->view, peer))) {
        return;
    }
    shrink->adopted = (header.tag & AGREED) != 0;
    if (shrink->adopted) {
        shrink->view = (view_t){{0}};
    }
    for (int i = 0; i < VIEW_BYTES; i++) {
        shrink->view.bits[i] |= view.bits[i];
    }
    exchange->received = progress_shrink_count_bits(&view) + 1;
    exchange->sent = (header.tag & ASKS) != 0 ? 0 : exchange->sent;
    if (is_lost(&shrink->view, group->rank)) {
        stop_asking(group, BATON__SHRINK_EXCLUDED);
    }
}

/* ---- sending ----------------------------------------------------------- */

/* Sends a view. Returns false if the peer has no space. Another error means
   that the peer is lost. */
static bool send_view(const baton_group_t *group, int peer, uint64_t number,
                      uint32_t tag, const view_t *view)
{
    const baton_header_t header = {.epoch = number,
                                   .tag = tag,
                                   .incarnation = group->incarnation,
                                   .kind = BATON__MESSAGE_VIEW};
    bool sent = group->transport->notify(group->endpoint, peer, &header, view,
                                         sizeof *view) != BATON_AGAIN;
    group->stepper->must_retry |= !sent;
    return sent;
}

/* Sends a peer the views that are due. A rank that only others have lost gets
   them, too, and so learns that it is excluded. */
static bool progress_shrink_tell(const baton_group_t *group, int peer)
{
    shrink_t *shrink = baton__member_of(group)->shrink;
    exchange_t *exchange = &shrink->exchanges[peer];
    bool gone = baton__group_loss(group, peer) != NULL;
    bool moved = false;
    if (exchange->due && (send_view(group, peer, shrink->agreed_number, AGREED,
                                    &shrink->agreed) ||
                          gone)) {
        exchange->due = false;
        group->stepper->recovering--;
        moved = true;
    }
    if (state_of(shrink) == BATON__SHRINK_ASKING && !gone &&
        exchange->sent != version_of(shrink) &&
        send_view(group, peer, shrink->number, exchange->asked ? 0 : ASKS,
                  &shrink->view)) {
        exchange->sent = version_of(shrink);
        exchange->asked = true;
        moved = true;
    }
    return moved;
}

/* Fails all epochs that this rank has not started, in the group and in groups
   that share its endpoint and have a lost rank. So peers do not wait for epochs
   that this rank will not start, and can shrink, too. */
static void progress_shrink_give_up(baton_group_t *group)
{
    int lost = 0;
    while (!is_lost(&baton__member_of(group)->shrink->view, lost)) {
        lost++;
    }
    baton__notice_shrink(group, lost);
    for (baton_group_t *g = group->subsets; g != NULL; g = g->next) {
        if (baton__member_has_lost(baton__member_of(g))) {
            baton__notice_shrink(g, baton__member_of(g)->first.peer);
        }
    }
}

/* Called when a rank of this host has lost this rank, which excludes this rank.
   Reports this rank itself as lost to all ranks that it has not lost, so that
   they do not wait for its view. It sends no view, since its view would say
   that the ranks that go on are lost. */
static void progress_shrink_stay_out(baton_group_t *group)
{
    const baton_header_t header = {.epoch = (uint64_t)group->rank + 1,
                                   .tag = BATON__LEFT_NOT | BATON__LEFT_ENDED,
                                   .incarnation = group->incarnation};
    for (int peer = 0; peer < group->size; peer++) {
        if (peer != group->rank && baton__group_loss(group, peer) == NULL) {
            baton__stepper_answer(group, header, BATON__MESSAGE_LEFT, peer);
        }
    }
    stop_asking(group, BATON__SHRINK_EXCLUDED);
}

static bool progress_shrink_advance(baton_group_t *group)
{
    shrink_t *shrink = baton__member_of(group)->shrink;
    bool asks = state_of(shrink) == BATON__SHRINK_ASKING;
    bool moved = false;
    uint32_t known = shrink->known;
    if (asks && is_disowned(group, true)) {
        progress_shrink_stay_out(group);
        return true;
    }
    if (asks && !shrink->adopted) {
        look_for_lost(group, shrink);
    }
    if (shrink->known > known) {
        shrink->minority_ns = 0;
        progress_shrink_give_up(group);
    }
    for (int peer = 0; peer < group->size; peer++) {
        moved |= peer != group->rank && progress_shrink_tell(group, peer);
    }
    if (asks && has_lost_all(group, &shrink->view) &&
        (shrink->adopted ||
         (baton__shrink_awaits(group, 0) < 0 && !may_prove_ends(group)))) {
        progress_shrink_agree(group, &shrink->view);
        moved = true;
    }
    return moved;
}

bool baton__shrink_advance(baton__stepper_t *stepper)
{
    assert(baton__stepper_driven_here(stepper));
    bool moved = false;
    for (baton_group_t *group = stepper->groups; group != NULL;
         group = baton__group_next(group)) {
        moved |= baton__member_of(group)->shrink != NULL &&
                 progress_shrink_advance(group);
    }
    return moved;
}

void baton__shrink_give_up(baton_group_t *group)
{
    assert(baton__driven_here(group));
    shrink_t *shrink = baton__member_of(group)->shrink;
    for (int peer = 0; shrink != NULL && peer < group->size; peer++) {
        group->stepper->recovering -= shrink->exchanges[peer].due;
        shrink->exchanges[peer].due = false;
    }
    if (baton__shrink_state(group) == BATON__SHRINK_ASKING) {
        stop_asking(group, BATON__SHRINK_EXCLUDED);
    }
}
