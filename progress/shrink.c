/* How survivors agree; see shrink.h. */
#include "progress/shrink.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "progress/notice.h"
#include "progress/recovery.h"
#include "transport/subset.h"

#include <string.h>

enum {
    VIEW_BYTES = 248,
    MOST_RANKS = 8 * VIEW_BYTES,
    ENDS_FROM = MOST_RANKS / 2 /* in groups of no more ranks */
};
/* For so long the end of a lost process may still be told, by its host or its
   connection; or for a quarter of BATON_PEER_TIMEOUT_MS. */
static const uint64_t END_NS = 1000000000;
static_assert(VIEW_BYTES <= BATON_NOTICE_BYTES, "a view is a notice");

/* Bits of a view's tag. */
enum {
    ASKS = 1,  /* the sender's first one: it has dropped all before that */
    AGREED = 2 /* an answer: what was agreed, to be taken over */
};

typedef struct view {
    /* By rank, and from ENDS_FROM on which of these are known to have ended. */
    unsigned char bits[VIEW_BYTES];
} view_t;

typedef struct member {
    /* 1 and how many bits were set in the view that it was told, or has told,
       last; 0 for none. Its view is a part of this rank's, so the number says
       whether they are equal. */
    uint32_t told, heard;
    bool asked;
    bool owed; /* what was agreed */
} member_t;

struct baton__shrink {
    _Atomic int state; /* baton__shrinking_t */
    uint64_t number;
    uint64_t agreed_number; /* which `agreed` is of */
    uint32_t known;         /* bits that are set in the view */
    uint64_t parts_ns; /* when it parts with this view; 0: not determined */
    view_t view, agreed;
    member_t members[];
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

static uint32_t count_bits(const view_t *view)
{
    uint32_t count = 0;
    for (int i = 0; i < MOST_RANKS; i++) {
        count += is_lost(view, i);
    }
    return count;
}

/* Whether those that live in a view go on; see shrink.h. With others it can't
   be that these do, too: they would be out of reach here, and more. */
static bool is_majority(const baton_group_t *group, const view_t *view)
{
    int lead = 0; /* of those that live on those that may */
    bool lowest = false;
    for (int rank = group->size - 1; rank >= 0; rank--) {
        bool ended =
            group->size <= ENDS_FROM && is_lost(view, ENDS_FROM + rank);
        lead += ended ? 0 : is_lost(view, rank) ? -1 : 1;
        lowest = ended ? lowest : !is_lost(view, rank);
    }
    return lead > 0 || (lead == 0 && lowest);
}

/* The number by which a member is known to have this rank's view. */
static uint32_t version_of(const shrink_t *shrink)
{
    return shrink->known + 1;
}

/* No partition is within a host: a lost rank of this one, which may be stopped
   only, goes on with nobody, unless it has lost this rank. */
static bool is_over(const baton_group_t *group, int rank, const char *loss)
{
    return baton__has_ended(group, rank) ||
           (baton__group_is_near(group, rank) && loss != baton__disowned);
}

/* Adds what the transport, or a LEFT, has told since. */
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
    shrink->known = count_bits(&shrink->view);
}

static bool is_disowned(const baton_group_t *group)
{
    bool disowned = false;
    for (int rank = 0; rank < group->size; rank++) {
        disowned |= baton__group_loss(group, rank) == baton__disowned;
    }
    return disowned;
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
    return group->shrink != NULL ? state_of(group->shrink) : BATON__SHRINK_NONE;
}

static void set_state(shrink_t *shrink, baton__shrinking_t state)
{
    atomic_store_explicit(&shrink->state, state, memory_order_seq_cst);
}

uint64_t baton__shrink_number(const baton_group_t *group)
{
    const shrink_t *shrink = group->shrink;
    return shrink == NULL
               ? 1
               : shrink->number + (state_of(shrink) == BATON__SHRINK_NONE);
}

void baton__shrink_end(baton_group_t *group)
{
    set_state(group->shrink, BATON__SHRINK_NONE);
}

/* Asks no longer. */
static void stop_asking(baton_group_t *group, baton__shrinking_t state)
{
    baton__stepper_t *stepper = group->stepper;
    stepper->recovering--;
    set_state(group->shrink, state);
    if (stepper->on_recovered != NULL) {
        stepper->on_recovered(group);
    }
}

static baton_status_t make(baton_group_t *group)
{
    size_t size = (size_t)group->size;
    if (size > MOST_RANKS) {
        return baton__error(BATON_ERR_LIMIT,
                            "shrink on rank %d of %zu: a group of more than %d "
                            "ranks can't shrink",
                            group->rank, size, MOST_RANKS);
    }
    shrink_t *shrink =
        baton__alloc(1, sizeof *shrink + size * sizeof(member_t));
    if (shrink == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory to shrink a group");
    }
    atomic_init(&shrink->state, BATON__SHRINK_NONE);
    group->shrink = shrink;
    return BATON_OK;
}

/* So that the death of any of them is noticed, also of one that this rank had
   no messages with. */
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
    baton_status_t status = group->shrink == NULL ? make(group) : BATON_OK;
    if (group->shrink == NULL ||
        state_of(group->shrink) != BATON__SHRINK_NONE) {
        return status;
    }
    status = contact_all(group);
    if (status != BATON_OK) {
        return status;
    }
    shrink_t *shrink = group->shrink;
    for (int peer = 0; peer < group->size; peer++) {
        member_t *member = &shrink->members[peer];
        *member = (member_t){.owed = member->owed};
    }
    shrink->number++;
    shrink->view = (view_t){{0}};
    shrink->known = 0;
    shrink->parts_ns = 0;
    set_state(shrink, BATON__SHRINK_ASKING);
    group->stepper->recovering++;
    return BATON_OK;
}

int baton__shrink_survivors(const baton_group_t *group, int *ranks_out)
{
    int count = 0;
    for (int rank = 0; rank < group->size; rank++) {
        if (!is_lost(&group->shrink->agreed, rank)) {
            ranks_out[count++] = rank;
        }
    }
    return count;
}

int baton__shrink_parted(const baton_group_t *group, int *count_out)
{
    const view_t *view = &group->shrink->agreed;
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

/* One that has not got this rank's view, or has not told that it is its own. */
int baton__shrink_awaits(const baton_group_t *group, int from)
{
    const shrink_t *shrink = group->shrink;
    for (int peer = from; peer < group->size; peer++) {
        const member_t *member = &shrink->members[peer];
        if (peer != group->rank && !is_lost(&shrink->view, peer) &&
            (member->told != version_of(shrink) ||
             member->heard != version_of(shrink))) {
            return peer;
        }
    }
    return -1;
}

static baton__shrinking_t outcome_of(const baton_group_t *group,
                                     const view_t *view)
{
    const bool all = baton__config_number(BATON__CONFIG_MINORITY) != 0;
    return !all && is_majority(group, view) ? BATON__SHRINK_AGREED
           : is_disowned(group)             ? BATON__SHRINK_EXCLUDED
           : all                            ? BATON__SHRINK_AGREED
                                            : BATON__SHRINK_PARTED;
}

/* From here on those that are lost to others are lost to this rank, too. */
static void agree(baton_group_t *group, const view_t *view)
{
    static const char why[] = "other ranks have lost it";
    shrink_t *shrink = group->shrink;
    if (is_lost(view, group->rank)) {
        stop_asking(group, BATON__SHRINK_EXCLUDED);
        return;
    }
    shrink->agreed = *view;
    shrink->agreed_number = shrink->number;
    for (int peer = 0; peer < group->size; peer++) {
        if (!is_lost(view, peer) || baton__group_loss(group, peer) != NULL) {
            continue;
        }
        if (group->transport->lose != NULL) {
            group->transport->lose(group->endpoint, peer, BATON_ERR_TIMEOUT,
                                   why);
        } else {
            baton__recovery_lose(group, peer, why);
        }
    }
    stop_asking(group, outcome_of(group, view));
}

/* MPI may report a death before its proof arrives: true while a rank that would
   part is to look for that. */
static bool may_prove_ends(const baton_group_t *group)
{
    shrink_t *shrink = group->shrink;
    if (outcome_of(group, &shrink->view) != BATON__SHRINK_PARTED) {
        return false;
    }
    const uint64_t now = baton__clock_ns();
    if (shrink->parts_ns == 0) {
        const int64_t ms = baton__config_number(BATON__CONFIG_PEER_TIMEOUT_MS);
        const uint64_t quarter = (uint64_t)ms * 250000;
        shrink->parts_ns =
            now + (quarter > 0 && quarter < END_NS ? quarter : END_NS);
    }
    group->transport->drain(group->endpoint); /* this step polls it then */
    group->stepper->untold = true;            /* nothing else wakes it */
    return now < shrink->parts_ns;
}

void baton__shrink_receive(baton_group_t *group, baton_message_t *message)
{
    const baton_header_t header = message->header;
    int peer = message->peer;
    shrink_t *shrink = group->shrink;
    view_t view;
    baton__notice_take(group, message, &view, sizeof view);
    if (shrink == NULL) {
        return; /* it will ask */
    }
    member_t *member = &shrink->members[peer];
    if (header.epoch == shrink->agreed_number) {
        if (is_lost(&view, group->rank)) {
            baton__recovery_lose(group, peer, baton__disowned);
            return;
        }
        bool other = memcmp(&view, &shrink->agreed, sizeof view) != 0;
        if ((header.tag & AGREED) == 0 && !member->owed &&
            ((header.tag & ASKS) != 0 || other)) {
            member->owed = true;
            group->stepper->recovering++;
        }
        return;
    }
    if (header.epoch != shrink->number ||
        state_of(shrink) != BATON__SHRINK_ASKING) {
        return;
    }
    if ((header.tag & AGREED) != 0) {
        agree(group, &view);
        return;
    }
    for (int i = 0; i < VIEW_BYTES; i++) {
        shrink->view.bits[i] |= view.bits[i];
    }
    member->heard = count_bits(&view) + 1;
    member->told = (header.tag & ASKS) != 0 ? 0 : member->told;
    if (is_lost(&shrink->view, group->rank)) {
        stop_asking(group, BATON__SHRINK_EXCLUDED);
    }
}

/* ---- sending ----------------------------------------------------------- */

/* False if there is no room. Any other error means that the peer is lost. */
static bool send_view(const baton_group_t *group, int peer, uint64_t number,
                      uint32_t tag, const view_t *view)
{
    const baton_header_t header = {.epoch = number,
                                   .tag = tag,
                                   .incarnation = group->incarnation,
                                   .kind = BATON__MESSAGE_VIEW};
    bool told = group->transport->notify(group->endpoint, peer, &header, view,
                                         sizeof *view) != BATON_AGAIN;
    group->stepper->untold |= !told;
    return told;
}

/* Also to a rank that others believe lost: so it learns that it is excluded. */
static bool tell(const baton_group_t *group, int peer)
{
    shrink_t *shrink = group->shrink;
    member_t *member = &shrink->members[peer];
    bool gone = baton__group_loss(group, peer) != NULL;
    bool moved = false;
    if (member->owed && (send_view(group, peer, shrink->agreed_number, AGREED,
                                   &shrink->agreed) ||
                         gone)) {
        member->owed = false;
        group->stepper->recovering--;
        moved = true;
    }
    if (state_of(shrink) == BATON__SHRINK_ASKING && !gone &&
        member->told != version_of(shrink) &&
        send_view(group, peer, shrink->number, member->asked ? 0 : ASKS,
                  &shrink->view)) {
        member->told = version_of(shrink);
        member->asked = true;
        moved = true;
    }
    return moved;
}

/* Peers that still use the group, or others of a lost rank that share its
   endpoint, must not wait for what this rank starts no more: they are to come,
   too. */
static void give_up(baton_group_t *group)
{
    int lost = 0;
    while (!is_lost(&group->shrink->view, lost)) {
        lost++;
    }
    baton__notice_shrink(group, lost);
    for (baton_group_t *g = group->subsets; g != NULL; g = g->next) {
        if (g->lost_count > 0) {
            baton__notice_shrink(g, g->lost[0].peer);
        }
    }
}

static bool advance(baton_group_t *group)
{
    shrink_t *shrink = group->shrink;
    bool asks = state_of(shrink) == BATON__SHRINK_ASKING;
    bool moved = false;
    uint32_t known = shrink->known;
    if (asks) {
        look_for_lost(group, shrink);
    }
    if (shrink->known > known) {
        shrink->parts_ns = 0;
        give_up(group);
    }
    for (int peer = 0; peer < group->size; peer++) {
        moved |= peer != group->rank && tell(group, peer);
    }
    if (asks && baton__shrink_awaits(group, 0) < 0 && !may_prove_ends(group)) {
        agree(group, &shrink->view);
        moved = true;
    }
    return moved;
}

bool baton__shrink_advance(baton__stepper_t *stepper)
{
    bool moved = false;
    for (baton_group_t *group = stepper->groups; group != NULL;
         group = baton__group_next(group)) {
        moved |= group->shrink != NULL && advance(group);
    }
    return moved;
}

void baton__shrink_give_up(baton_group_t *group)
{
    shrink_t *shrink = group->shrink;
    for (int peer = 0; shrink != NULL && peer < group->size; peer++) {
        group->stepper->recovering -= shrink->members[peer].owed;
        shrink->members[peer].owed = false;
    }
    if (baton__shrink_state(group) == BATON__SHRINK_ASKING) {
        stop_asking(group, BATON__SHRINK_EXCLUDED);
    }
}
