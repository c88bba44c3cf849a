/* A member: this rank in a group. The group itself says who its ranks are and
   how messages get to them. A member also has the state that the driver keeps
   for the group: which ranks are lost, recoveries and shrinks, and notices. An
   application's handle points to the group. The member embeds the group, so
   that the address of either follows from that of the other without a load.

   The engine's driver lock (progress/driving/engine.h) protects all fields,
   unless their comment says otherwise. */
#pragma once

#include "base/list.h"
#include "progress/state/board.h"
#include "transport/group.h"

/* An agreement: an exchange of messages by which all ranks of a group learn
   that all have reached the same point, and the highest number that any of them
   has sent; see recovery.c. */
typedef struct baton__agreement {
    uint32_t sent; /* number of ranks to which this rank has sent so far */
    /* One bit for this rank's parent and for each child in the tree of
       recovery.c. A bit is set when the message of that rank has come. */
    uint32_t seen;
    /* the highest of this rank's own number and those received so far */
    uint64_t highest;
} baton__agreement_t;

typedef struct baton__loss {
    int peer;
    /* The rank that reports the loss to other hosts; -1: not chosen yet. */
    int teller;
    /* The peer is known to have ended. If false, it may still live, out of
       reach. */
    bool ended;
    const char *detail; /* the transport's sentence about the cause */
} baton__loss_t;

/* The header of a notice: a message by which ranks tell each other about a
   schedule or a group (progress/membership/notice.h). Either the notice has
   arrived and is kept for later, or it is queued for a rank, as a reply, an
   inquiry or the report of a loss. */
typedef struct baton__notice {
    struct baton__notice *next;
    uint64_t channel;
    baton_header_t header;
    int peer;
} baton__notice_t;

BATON__LIST(baton__notice_list, baton__notice_t)

/* The notices about a schedule that are due to one of its peers, and the state
   of the introduction between this rank and that peer. */
typedef struct baton__peer_notice {
    struct baton__peer_notice *next;
    struct baton__task *task; /* the schedule's task */
    /* Bits BATON__TELL_*, see progress/state/stepper.h; 0: nothing is due. */
    uint8_t what;
    uint8_t acquaintance; /* baton__acquaintance_t */
} baton__peer_notice_t;

BATON__LIST(baton__due_list, baton__peer_notice_t)

/* The notices that are due to one rank. `answers` has the replies, the
   inquiries and the reports of losses, which are sent first. `due` has all
   other notices. */
typedef struct baton__peer_queue {
    /* The next queue in the stepper's list of non-empty queues. */
    struct baton__peer_queue *next;
    struct baton__member *member;
    baton__notice_list_t answers;
    baton__due_list_t due;
    /* The transport had no space for a notice to the rank when this rank last
       tried to send one. */
    bool full;
} baton__peer_queue_t;

BATON__LIST(baton__queue_list, baton__peer_queue_t)

/* The rank that reports the stalls of a schedule: the first one that has asked
   this rank about them; see inquiry.h. */
typedef struct baton__reporter {
    uint64_t schedule; /* the schedule's identity */
    uint64_t at_ns;    /* the time of the last inquiry of `rank` */
    uint64_t progress; /* this rank's progress in the schedule at that time */
    int rank;
} baton__reporter_t;

enum { BATON__REPORTERS = 32 };

enum { BATON__CAUSE_BYTES = 232 };

/* A record of a schedule that was destroyed here, for peers that may commit it
   later. Such a peer is told from which epoch on this rank takes no part, and
   how the schedule failed. */
typedef struct baton__destroyed {
    uint64_t epoch; /* the first epoch in which this rank takes no part */
    /* The group's incarnation, its number of recoveries, when the schedule was
       destroyed. */
    uint16_t incarnation;
    /* The first cause of the failure: status, text, and the rank and epoch
       where it occurred. */
    baton_status_t status;
    int rank;
    uint64_t failed;
    char cause[BATON__CAUSE_BYTES];
    /* The number of peers that have not been notified yet; `peers` lists
       them. */
    uint32_t peer_count;
    int peers[];
} baton__destroyed_t;

enum { BATON__UNKNOWN_BYTES = 48 };

/* The state of a group's recovery on this rank:

       none --recover--> stopping --nothing moves--> joined --all have--> over
       over --recover returns--> none

   A rank that gives up, because a peer is lost, goes to OVER at once. A rank
   that destroys the group is PARTING until all ranks are, or a peer is lost. */
typedef enum baton__recovery_state {
    BATON__RECOVERY_NONE,
    BATON__RECOVERY_STOPPING, /* running epochs fail, and their transfers end */
    /* This rank is in the next incarnation, but not all others are. */
    BATON__RECOVERY_JOINED,
    BATON__RECOVERY_PARTING,
    /* The recovery is over, but recover or destroy has not returned yet. */
    BATON__RECOVERY_OVER,
    BATON__RECOVERY_STATE_COUNT
} baton__recovery_state_t;

enum { BATON__MEMBER_MAGIC = 0x626d656d };

/* The fields that steps access come first, so they are near those of the
   group. */
typedef struct baton__member {
    /* The queues of notices, by rank. A simulator's group has a single queue,
       because its transport always has space. */
    baton__peer_queue_t *queues;
    uint32_t answer_count; /* number of notices in `answers` of all queues */
    uint32_t due_count;    /* number of notices in `due` of all queues */
    /* number of destroyed schedules that still have notices due */
    uint32_t leaving;
    baton__recovery_state_t recovery;
    /* 1 + the lost rank that caused the shrink, after which this rank starts
       nothing more in the group; 0: not shrunk. */
    int shrunk;
    uint32_t lost_count; /* number of entries in `lost` */
    /* All peers count as lost, because there was no memory to list them, or
       because the group waits for nobody any more. */
    bool all_lost;
    /* The user has destroyed the group, and steps leave it alone until a peer's
       message comes or a rank is lost; see baton__recovery_rouse. */
    bool dormant;
    bool parts; /* the group has begun its farewell */
    /* The user has destroyed the group, a root, and no thread waits for its
       farewell: it parts in the background. */
    bool unattended;
    /* If true, sends wait until the peer is known to have committed the
       schedule. If false, all peers are known to have committed it. */
    bool introduces;
    uint32_t magic; /* BATON__MEMBER_MAGIC; see baton__member_of */

    baton_group_t group;

    baton__loss_t *lost;      /* the lost peers, with the cause of each loss */
    uint32_t lost_capacity;   /* allocated entries in `lost` */
    uint32_t neighbour_count; /* entries in `neighbours` */
    /* The peer that was lost first, which errors name. As long as this rank
       itself has lost no peer, this field names a rank whose loss a peer has
       reported. `first.detail` is NULL if no loss is known. */
    baton__loss_t first;
    /* The agreements of this recovery and of the next one, since peers may be
       one recovery ahead. The index is the lowest bit of the incarnation that
       the recovery leads to. */
    baton__agreement_t agreements[2];
    /* The agreement by which all ranks destroy the group together. */
    baton__agreement_t farewell;
    /* The number of agreements that are not over: the group's, and those of its
       schedules. */
    _Atomic uint32_t recovery_left;
    uint32_t unrecovered; /* number of schedules that can't be recovered */
    /* Recovery messages about schedules that do not exist here. They are kept
       until this rank joins the recovery. */
    baton__notice_t *recovery_headers;
    /* Notices of peers that leave the group after a loss. They are kept until
       the transport has reported that loss here. */
    baton__notice_t *leaves;
    /* A list of unused records, for `answers` and `hellos`. */
    baton__notice_t *spare;
    /* By the identity of a schedule that is not committed here: the list of its
       hellos. A hello is the notice by which a peer says that it has committed
       a schedule. */
    baton__table_t hellos;
    /* Records of destroyed schedules about which peers may still ask. */
    baton__table_t destroyed;
    /* In a root group (transport/group.h): the headers of messages for subsets
       that are not created here yet. */
    baton__notice_t *subset_headers;
    /* The ranks of this host, by rank, with their rows of the board; none if
       the transport has no board. Constant. */
    baton__neighbour_t *neighbours;
    /* BATON__REPORTERS records of schedules that are not committed here; NULL
       until a peer sends an inquiry about such a schedule. */
    baton__reporter_t *reporters;
    /* 1 + the peer that the group waited for when the watchdog last looked; 0:
       the group waited for none. */
    int awaited;
    /* number of groups that shrinks of this group made and that still exist */
    uint32_t children;
    struct baton__verifier *verifier; /* set only with BATON_VERIFY=1 */
    /* The member of the group whose survivors form this group, or NULL. */
    struct baton__member *parent;
    /* The state of the shrink, see shrink.c; NULL until the group is shrunk. */
    struct baton__shrink *shrink;
    /* For error messages: the last peer that has committed a schedule unknown
       to this rank, and the schedule's name. */
    int unknown_peer; /* -1: there is no such peer */
    /* in a simulated group NULL until there is such a peer */
    char *unknown_name;
} baton__member_t;

/* The only function that computes the address of a group's member. */
static inline baton__member_t *baton__member_at(const baton_group_t *group)
{
    baton__member_t *member =
        (void *)((uintptr_t)group - offsetof(baton__member_t, group));
    assert(member->magic == BATON__MEMBER_MAGIC);
    return member;
}

/* Returns the member that embeds a group; const if the group is. */
/* clang-format off */
#define baton__member_of(g)                                                    \
    _Generic((g), baton_group_t *: baton__member_at(g),                        \
             default: (const baton__member_t *)baton__member_at(g))
/* clang-format on */

/* Returns true if this rank has lost a peer, or waits for no peer any more. If
   it has lost a peer, `first` names one. */
static inline bool baton__member_has_lost(const baton__member_t *member)
{
    return member->lost_count > 0 || member->all_lost;
}

/* Returns a rank's row of the board; NULL if this rank can't read that row. */
static inline baton__row_t *baton__member_row(const baton_group_t *group,
                                              int rank)
{
    const baton__member_t *member = baton__member_of(group);
    for (uint32_t i = 0; i < member->neighbour_count; i++) {
        if (member->neighbours[i].rank == rank) {
            return member->neighbours[i].row;
        }
    }
    return NULL;
}

/* Returns the queue of notices for a rank. */
static inline baton__peer_queue_t *
baton__group_queue(const baton_group_t *group, int rank)
{
    return &baton__member_of(group)->queues[group->borrowed ? 0 : rank];
}

/* Returns the record of a schedule that was destroyed here in this incarnation;
   NULL if there is no record. A record exists as long as peers may ask about
   the schedule. */
const baton__destroyed_t *baton__group_destroyed(const baton_group_t *group,
                                                 uint64_t identity,
                                                 uint16_t incarnation);

/* Notes that a peer was told of the end of a destroyed schedule. Frees the
   schedule's record after the last peer. */
void baton__group_notified(baton_group_t *group, uint64_t identity, int peer);

/* Frees the records of destroyed schedules, except for those of incarnation
   `but`. If `but` is -1, frees all records. */
void baton__member_forget_destroyed(baton__member_t *member, int but);

/* Returns memory for a reply, an inquiry or an early hello: a free record or,
   if none is left, a new one. NULL if there is no memory. */
baton__notice_t *baton__member_take_notice(baton__member_t *member);
/* Gives a record back, so that baton__member_take_notice can return it
   again. */
void baton__member_give_notice(baton__member_t *member,
                               baton__notice_t *notice);

/* Adds the header of a notice from `peer` to a list. Returns false if there is
   no memory. */
bool baton__group_keep(baton__notice_t **list, uint64_t channel,
                       const baton_header_t *header, int peer);
/* Frees a list of headers. */
void baton__group_drop_notices(baton__notice_t **list);

/* Changes the state of the recovery, which no other function does. */
void baton__group_set_recovery(baton_group_t *group,
                               baton__recovery_state_t state);

/* True while a recovery goes on: until all ranks have joined. */
static inline bool baton__group_recovers(const baton_group_t *group)
{
    baton__recovery_state_t recovery = baton__member_of(group)->recovery;
    return recovery == BATON__RECOVERY_STOPPING ||
           recovery == BATON__RECOVERY_JOINED;
}

/* The condition for which baton_group_recover and baton_group_destroy wait: no
   recovery or farewell of the group goes on, and no recovery of its schedules.
   `arg` is the group. */
static inline bool baton__group_is_recovered(const void *arg)
{
    const baton_group_t *group = arg;
    return atomic_load_explicit(&baton__member_of(group)->recovery_left,
                                memory_order_seq_cst) == 0;
}

/* Records that a peer is lost, and why. Without memory to record it, all peers
   count as lost. */
void baton__group_lose(baton_group_t *group, int peer, const char *detail);

/* Records that a lost peer is known to have ended, or to have left. */
void baton__group_note_end(baton_group_t *group, int peer);

/* Returns why a peer is lost; NULL if the peer is not lost. */
const char *baton__group_loss(const baton_group_t *group, int peer);

/* Returns 1 + the peer that was lost first, for a report to other ranks; 0 if
   there is none, or if that peer has itself lost this rank. */
uint64_t baton__group_first_lost(const baton_group_t *group);

/* Notes a loss that a peer's notice mentions; `lost` is 1 + the lost rank. This
   rank will notice the loss itself, but failures before that, here and on its
   own peers, should name this cause. Reports from a rank that is itself lost
   are ignored. */
void baton__group_note_report(baton_group_t *group, int peer, uint32_t lost);

/* True if `group` or its root has noted that this lost rank has ended or left
   (baton__group_note_end). */
bool baton__has_ended(const baton_group_t *group, int rank);

/* Frees what the member and its group own. */
void baton__member_fini(baton__member_t *member);
