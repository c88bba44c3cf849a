/* A group: this rank's place among P ranks, and the schedules by identity.

   Schedules that belong together on different ranks have one identity: the hash
   of their name, and the attempt, which counts the schedules of that name that
   a rank has created in the group. Messages carry the identity, so that a
   schedule that exists only on some ranks takes no messages of others. */
#pragma once

#include "base/list.h"
#include "transport/device.h"

#include <baton/build.h>
#include <baton/transport.h>
#include <stdatomic.h>

/* An entry of a hash table. The field that is used depends on the table:
   attempts counts the schedules created by a name, or the groups made by equal
   calls (`names`); schedule is a committed schedule (`table`); kept lists the
   hellos for a schedule that is not committed here (`early`); departed is a
   destroyed schedule (`departed`); group is a subset (`channels`). */
typedef struct baton__place {
    uint64_t key; /* 0: the entry is free */
    union {
        uint32_t attempts;
        baton_schedule_t *schedule;
        baton_group_t *group;
        struct baton__kept *kept;
        struct baton__departed *departed;
    };
} baton__place_t;

typedef struct baton__table {
    baton__place_t *places; /* 2^k of them, at most half used; NULL at first */
    uint32_t size;
    uint32_t count;
} baton__table_t;

/* A block of memory that was allocated for the user; see baton/memory.h. */
typedef struct baton__memory {
    struct baton__memory *next;
    void *address;
    size_t bytes;
    bool shared; /* the transport allocated it, so that peers can read it */
} baton__memory_t;

/* A pointer that the user keeps with the group; see baton_group_attribute. */
typedef struct baton__attribute {
    struct baton__attribute *next;
    const void *key;
    void *value;
    baton_attribute_destroy_fn destroy; /* or NULL */
} baton__attribute_t;

/* An agreement: all ranks of a group reach the same point, and learn the
   highest number that any of them has; see recovery.c. */
typedef struct baton__agreement {
    uint32_t sent; /* ranks that this one has sent to so far */
    /* bits: neighbours in the tree of recovery.c that this one has received
       from. */
    uint32_t seen;
    uint64_t highest; /* highest number so far, this rank's included */
} baton__agreement_t;

typedef struct baton__loss {
    int peer;
    /* The rank that tells other hosts of the loss; -1: not chosen yet. */
    int teller;
    /* The peer is known to have ended; otherwise it may live, out of reach. */
    bool ended;
    const char *detail; /* the transport's sentence about the cause */
} baton__loss_t;

/* The header of a notice. Either the notice has arrived and is kept for later,
   or it is a reply or an inquiry that is queued for a rank, see
   progress/notice.h. */
typedef struct baton__kept {
    struct baton__kept *next;
    uint64_t channel;
    baton_header_t header;
    int peer;
} baton__kept_t;

BATON__LIST(baton__kept_list, baton__kept_t)

/* The notices that are due to one peer of a schedule, and how far the two have
   introduced themselves. */
typedef struct baton__peer_notice {
    struct baton__peer_notice *next;
    struct baton__task *task; /* of the schedule */
    /* Bits BATON__TELL_*, see progress/stepper.h; 0: nothing is due. */
    uint8_t what;
    uint8_t acquaintance; /* baton__acquaintance_t */
} baton__peer_notice_t;

BATON__LIST(baton__due_list, baton__peer_notice_t)

/* The notices that are due to one rank. Replies and inquiries go first. */
typedef struct baton__peer_queue {
    /* In the stepper's list of non-empty queues. */
    struct baton__peer_queue *next;
    baton_group_t *group;
    baton__kept_list_t answers;
    baton__due_list_t due;
    bool full; /* the transport had no space for the rank at the last try */
} baton__peer_queue_t;

BATON__LIST(baton__queue_list, baton__peer_queue_t)

enum { BATON__CAUSE_BYTES = 232 };

/* A record of a schedule that was destroyed here before all peers to which this
   rank had said hello had committed theirs. When a peer commits, it is told
   from which epoch on this rank takes no part, and how the schedule failed. */
typedef struct baton__departed {
    uint64_t epoch;       /* the first epoch in which this rank takes no part */
    uint16_t incarnation; /* the group's, when the schedule was destroyed */
    /* The first cause of the failure: status, text, and the rank and epoch
       where it occurred. */
    baton_status_t status;
    int rank;
    uint64_t failed;
    char cause[BATON__CAUSE_BYTES];
    /* The number of peers that must still be told; `peers` lists them. */
    uint32_t unheard;
    int peers[];
} baton__departed_t;

/* A message may be lent without being in memory. This many bytes of it are read
   at a time; a group has space for one such part of each operand. */
enum { BATON__PART_BYTES = 128 * 1024 };

enum { BATON__UNKNOWN_BYTES = 48 };

/* The state of a group's recovery on this rank:

       none --recover--> stopping --nothing moves--> joined --all have--> over
       over --recover returns--> none

   A rank that gives up, because a peer is lost, goes to OVER at once. A rank
   that destroys the group is PARTING until all ranks are, or a peer is lost. */
typedef enum baton__recovery_state {
    BATON__RECOVERY_NONE,
    BATON__RECOVERY_STOPPING, /* epochs fail, and transfers end */
    /* This rank is in the next incarnation, but not all others are. */
    BATON__RECOVERY_JOINED,
    BATON__RECOVERY_PARTING,
    /* Done, but recover or destroy has not returned yet. */
    BATON__RECOVERY_OVER,
    BATON__RECOVERY_STATE_COUNT
} baton__recovery_state_t;

/* The fields that each step accesses come first. */
struct baton_group {
    const baton_transport_t *transport;
    void *endpoint;
    struct baton__stepper *stepper;       /* drives the group's schedules */
    const struct baton__kind_info *kinds; /* functions of the node kinds */
    /* For parts of lent messages, if the transport copies them by `read`. */
    char *parts;
    baton__device_t *device; /* the engine's, or NULL */
    /* In the engine's list of roots, or in a root's list of subsets. */
    baton_group_t *next;
    /* Of a subset, the group whose endpoint it uses, and which is itself no
       subset; else NULL. See subset.h. */
    baton_group_t *root;
    uint16_t incarnation; /* number of recoveries of the group so far */
    /* All peers count as lost, because there was no memory to list them, or
       because the group waits for nobody any more. */
    bool all_lost;
    bool retired; /* destroyed by the user: it only answers its peers */
    /* Retired, and idle until a peer's message comes; see recovery.h. */
    bool dormant;
    uint32_t lost_count; /* entries in `lost` */
    /* 1 + the lost rank that caused the shrink, after which this rank starts
       nothing more in the group; 0: not shrunk. */
    int shrunk;
    int rank;
    int size;
    bool cost_only;  /* a simulation in which buffers have no memory */
    bool borrowed;   /* owned by a simulator */
    bool collective; /* all ranks destroy the group together */
    /* Sends wait until the peer is known to have committed the schedule. If
       false, all peers are known to have done so. */
    bool introduces;
    /* In a simulation, plans that ranks share; or NULL. */
    struct baton__sharing *sharing;
    baton_engine_t *engine;

    baton__table_t table; /* committed schedules; used by the driver alone */

    /* The fields from here on are protected by the engine's driver lock, unless
       their comment says otherwise. */
    uint32_t schedules;      /* existing schedules, without the verifier's */
    uint32_t lost_capacity;  /* allocated entries in `lost` */
    baton__memory_t *memory; /* blocks that the user has */
    baton__table_t names;
    baton__loss_t *lost; /* lost peers */
    /* The peer that was lost first, which errors name. Before this rank loses
       one, it is a rank whose loss a peer has reported. Without a detail there
       is none. */
    baton__loss_t first;
    /* Agreements of the recoveries, indexed by the lowest bit of the new
       incarnation, because peers may be one recovery ahead. */
    baton__agreement_t agreements[2];
    baton__agreement_t farewell;
    /* Agreements that are not over: the group's, and those of its schedules. */
    _Atomic uint32_t recovery_left;
    /* By rank. A simulator's group has a single one, because its transport
       always has space. */
    baton__peer_queue_t *queues;
    uint32_t answer_count; /* notices in `answers` of all queues */
    uint32_t due_count;    /* notices in `due` of all queues */
    baton__kept_t *spare; /* free records, for replies, inquiries and `early` */
    /* Hellos for schedules that are not committed here, one for each peer that
       has committed the schedule. */
    baton__table_t early;
    /* The last inquiry about a schedule that is not here: its header names the
       schedule and the epoch. */
    baton_header_t asked;
    int asked_by;     /* the rank that first asked about the epoch of `asked` */
    uint32_t leaving; /* destroyed schedules that have notices due */
    /* Destroyed schedules that peers may still ask about. */
    baton__table_t departed;
    /* Recovery messages for schedules that are unknown here, until this rank
       joins the recovery. */
    baton__kept_t *deferred;
    /* Notices that peers leave the group after a loss, until the transport has
       reported that loss here. */
    baton__kept_t *leaves;
    uint32_t unrecovered; /* number of schedules that can't be recovered */
    /* 1 + the peer that the group waited for when the watchdog last looked */
    int awaited;
    baton__recovery_state_t recovery;
    struct baton__verifier *verifier; /* with BATON_VERIFY=1 */
    baton__attribute_t *attributes;   /* protected by a lock of group.c */

    /* The group whose survivors form this one; or NULL. */
    baton_group_t *parent;
    uint32_t children; /* existing groups of this group's survivors */
    /* By rank, the rank in the group that this one was made of; or NULL. */
    int *origins;
    char *name;       /* the name that the group was created by; or NULL */
    uint64_t channel; /* identifies the group's messages; 0 for a root */
    /* The next three fields are used in roots. */
    baton_group_t *subsets;  /* the groups that use the root's endpoint */
    baton__table_t channels; /* the same groups by channel */
    /* Messages for subsets that are not created here yet. */
    baton__kept_t *strays;
    /* NULL until the group is shrunk; see progress/shrink.c */
    struct baton__shrink *shrink;

    /* For error messages: the last peer that has committed a schedule unknown
       to this rank, and the schedule's name. */
    int unknown_peer; /* -1: none */
    char unknown_name[BATON__UNKNOWN_BYTES];
};

/* Returns "rank 1 of 2", or "rank 1 of 2 in \"name\"". The text is valid until
   this thread's next call. */
const char *baton__group_place(const baton_group_t *group);

/* Returns "rank 3 (host n1, process 1234)", or "rank 3" if these are unknown.
   The text is valid until this thread's next call but one, so that a message
   can name two ranks. */
const char *baton__group_rank_text(const baton_group_t *group, int rank);

/* True if a rank's process is on this host, and is stopped by a signal or a
   debugger. */
bool baton__group_is_stopped(const baton_group_t *group, int rank);

/* False if the group is NULL or was destroyed, or this process is a forked
   child; then it sets this thread's error. */
bool baton__is_group(const baton_group_t *group, const char *function);

/* A schedule has at most 2^24 messages to one rank, because their numbers have
   this many bits of a tag. */
enum { BATON__TAG_BITS = 24 };

/* The identity of the `attempt`-th schedule of a name. */
uint64_t baton__identity(const char *name, uint32_t attempt);

/* Returns the counter of the schedules that were created by this name so far.
   Without a name, the counter of `key`, which is below 2^63. NULL if there is
   no memory. */
uint32_t *baton__group_counter(baton_group_t *group, const char *name,
                               uint64_t key);

/* True if this rank has created a schedule of this identity, which may be
   destroyed. */
bool baton__group_has_made(const baton_group_t *group, uint64_t identity);

/* departed(): the record of a schedule that was destroyed here in this
   incarnation, for peers that still ask about it; or NULL. */
const baton__departed_t *baton__group_departed(const baton_group_t *group,
                                               uint64_t identity,
                                               uint16_t incarnation);

/* told(): notes that a peer was told of that schedule's end. After the last
   peer, it frees the record. */
void baton__group_told(baton_group_t *group, uint64_t identity, int peer);

/* Frees the records of destroyed schedules, except for those of incarnation
   `but`; -1: all of them. */
void baton__group_forget_departed(baton_group_t *group, int but);

/* reserve(): makes space for `more` entries; false if there is no memory.
   enter(): adds a key that the table does not have; needs reserved space.
   find(): NULL if the table does not have the key. */
bool baton__table_reserve(baton__table_t *table, uint32_t more);
baton__place_t *baton__table_enter(baton__table_t *table, uint64_t key);
void baton__table_remove(baton__table_t *table, uint64_t key);
baton__place_t *baton__table_find(const baton__table_t *table, uint64_t key);

/* Returns the committed schedule of this identity, or NULL. */
baton_schedule_t *baton__group_find(const baton_group_t *group,
                                    uint64_t identity);

/* The queue of notices for a rank. */
static inline baton__peer_queue_t *
baton__group_queue(const baton_group_t *group, int rank)
{
    return &group->queues[group->borrowed ? 0 : rank];
}

/* The next group in a walk over all groups of an engine, which begins with its
   first root. Each root is followed by its subsets. */
static inline baton_group_t *baton__group_next(const baton_group_t *group)
{
    return group->subsets != NULL ? group->subsets
           : group->next != NULL  ? group->next
           : group->root != NULL  ? group->root->next
                                  : NULL;
}

/* take(): memory for a reply, an inquiry or an early hello. It is only
   allocated if no free record is left; NULL if there is no memory. give():
   makes the record free. */
baton__kept_t *baton__group_take_kept(baton_group_t *group);
void baton__group_give_kept(baton_group_t *group, baton__kept_t *kept);

/* keep(): adds a header to a list; false: there is no memory. drop(): frees the
   list. */
bool baton__group_keep(baton__kept_t **list, uint64_t channel,
                       const baton_header_t *header, int peer);
void baton__group_drop_kept(baton__kept_t **list);

/* Changes the state of the recovery. Nothing else does. */
void baton__group_set_recovery(baton_group_t *group,
                               baton__recovery_state_t state);

/* True while a recovery goes on: until all ranks have joined. */
static inline bool baton__group_recovers(const baton_group_t *group)
{
    return group->recovery == BATON__RECOVERY_STOPPING ||
           group->recovery == BATON__RECOVERY_JOINED;
}

/* Records that a peer is lost, and why. Without memory to record it, all peers
   count as lost. */
void baton__group_lose(baton_group_t *group, int peer, const char *detail);

/* Records that a lost peer is known to have ended, or to have left. */
void baton__group_note_end(baton_group_t *group, int peer);

/* The number of a rank's host; always 0 if nothing is known of hosts. */
int baton__group_host(const baton_group_t *group, int rank);

/* True if the rank is on this host, or nothing is known of hosts. */
bool baton__group_is_near(const baton_group_t *group, int rank);

/* disowned: the reason if a peer is lost because it has itself lost this rank:
   the others go on without this rank. loss(): why a peer is lost, or NULL if it
   is not. */
extern const char baton__disowned[];
const char *baton__group_loss(const baton_group_t *group, int peer);

/* 1 + the peer that was lost first, which is reported to others; 0 if there is
   none, or if that peer has itself lost this rank. */
uint64_t baton__group_first_lost(const baton_group_t *group);

/* Numbers the hosts in the order of their first ranks. `host_of` has the lowest
   rank on each rank's host, and gets the numbers. `transport` gets the number
   of hosts and, if the ranks of each host are consecutive, the number of ranks
   on each. */
void baton__group_number_hosts(baton_transport_t *transport, int *host_of,
                               int size);

void baton__group_drop_attributes(baton_group_t *group);

void baton__group_fini(baton_group_t *group);
