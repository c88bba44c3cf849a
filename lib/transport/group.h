/* A group: this rank's place among P, and its schedules by identity.

   Schedules that belong together on different ranks have one identity: the
   hash of their name and the attempt, which counts the schedules of that name
   that a rank has made in the group. Messages carry it, so that a schedule that
   exists only on some ranks takes no messages of others. */
#pragma once

#include "base/list.h"
#include "transport/device.h"

#include <baton/build.h>
#include <baton/transport.h>
#include <stdatomic.h>

/* A hash table: of the schedules of each name, and the groups that were made of
   this one by the same call, by a hash, how many were made; or of committed
   schedules, by identity, of hellos for others, and of those that are gone; or
   of groups, by channel. */
typedef struct baton__place {
    uint64_t key; /* 0: the place is free */
    union {
        uint32_t attempts;
        baton_schedule_t *schedule;
        baton_group_t *group;
        struct baton__kept *kept;
        struct baton__departed *departed;
    };
} baton__place_t;

typedef struct baton__table {
    baton__place_t *places; /* 2^k of them, at most half used; or NULL */
    uint32_t size;
    uint32_t count;
} baton__table_t;

/* A block of memory that the user has; see baton/memory.h. */
typedef struct baton__memory {
    struct baton__memory *next;
    void *address;
    size_t bytes;
    bool shared; /* by the transport */
} baton__memory_t;

/* A pointer that is kept with the group; see baton_group_attribute. */
typedef struct baton__attribute {
    struct baton__attribute *next;
    const void *key;
    void *value;
    baton_attribute_destroy_fn destroy; /* or NULL */
} baton__attribute_t;

/* All ranks of a group come to the same point, and learn the highest number
   that any has; see recovery.c. */
typedef struct baton__agreement {
    uint32_t sent;    /* ranks that were told so far */
    uint32_t seen;    /* bits: ranks that have told this one */
    uint64_t highest; /* number so far */
} baton__agreement_t;

typedef struct baton__loss {
    int peer;
    int teller;         /* the rank that tells other hosts; -1: none so far */
    bool ended;         /* that is known; else it may live, out of reach */
    const char *detail; /* the transport's sentence that says why */
} baton__loss_t;

/* A notice without content that is kept for later; or a reply or an inquiry
   that is due to a rank, see progress/notice.h. */
typedef struct baton__kept {
    struct baton__kept *next;
    uint64_t channel;
    baton_header_t header;
    int peer;
} baton__kept_t;

BATON__LIST(baton__kept_list, baton__kept_t)

/* What a peer of a schedule is to be told, and what the two know of each
   other. */
typedef struct baton__peer_notice {
    struct baton__peer_notice *next;
    baton_schedule_t *schedule;
    uint8_t what;         /* bits, see progress/stepper.h; 0: nothing */
    uint8_t acquaintance; /* baton__acquaintance_t */
} baton__peer_notice_t;

BATON__LIST(baton__due_list, baton__peer_notice_t)

/* What a rank is to be told, in order: replies and inquiries first. */
typedef struct baton__peer_queue {
    struct baton__peer_queue *next; /* of the stepper's that are not empty */
    baton_group_t *group;
    baton__kept_list_t answers;
    baton__due_list_t due;
    bool full; /* the rank had no room when it was tried last */
} baton__peer_queue_t;

BATON__LIST(baton__queue_list, baton__peer_queue_t)

enum { BATON__CAUSE_BYTES = 232 };

/* A schedule that was destroyed here before all peers that this rank had said
   hello to had committed theirs. When they do they are told from which epoch on
   this rank has no part in it, and how it failed. */
typedef struct baton__departed {
    uint64_t epoch;       /* the first without this rank */
    uint16_t incarnation; /* of the group, when it was destroyed */
    /* The first cause, and in which epoch of which rank it was. */
    baton_status_t status;
    int rank;
    uint64_t failed;
    char cause[BATON__CAUSE_BYTES];
    uint32_t unheard; /* peers that are still to be told, and which */
    int peers[];
} baton__departed_t;

/* What is read at a time of a message that is lent without being in memory; a
   group has room for a part of each operand. */
enum { BATON__PART_BYTES = 128 * 1024 };

enum { BATON__UNKNOWN_BYTES = 48 };

/* A recovery of the group, on this rank:

       none --recover--> stopping --nothing moves--> joined --all have--> over
       over --recover returns--> none

   A rank that gives up, because a peer is lost, is over at once. One that
   destroys the group is parting until all have come to that, or one is lost. */
typedef enum baton__recovery_state {
    BATON__RECOVERY_NONE,
    BATON__RECOVERY_STOPPING, /* epochs fail, and what moves ends */
    BATON__RECOVERY_JOINED, /* in the next incarnation, before all ranks are */
    BATON__RECOVERY_PARTING,
    BATON__RECOVERY_OVER, /* recover or destroy has not returned yet */
    BATON__RECOVERY_STATE_COUNT
} baton__recovery_state_t;

/* What a step touches comes first. */
struct baton_group {
    const baton_transport_t *transport;
    void *endpoint;
    struct baton__stepper *stepper;       /* that steps its schedules */
    const struct baton__kind_info *kinds; /* what its nodes do */
    char *parts; /* of lent messages, where the transport reads them */
    baton__device_t *device; /* the engine's, or NULL */
    baton_group_t *next;     /* of the engine's groups that are roots, or of a
                                root's subsets */
    /* Of some ranks of another: the group that was made of no other, and whose
       endpoint it shares; else NULL. See subset.h. */
    baton_group_t *root;
    uint16_t incarnation; /* how often it has been recovered */
    bool all_lost; /* there was no memory to remember which peers are lost */
    bool retired;  /* destroyed: it only answers its peers */
    bool dormant;  /* and waits for them; see recovery.h */
    uint32_t lost_count; /* peers that are lost */
    int shrunk; /* 1 + a rank after whose loss it was, and starts nothing
                   more; or 0 */
    int rank;
    int size;
    bool cost_only;  /* simulated: buffers have no memory */
    bool borrowed;   /* owned by a simulator */
    bool collective; /* its ranks destroy it together */
    bool introduces; /* sends wait until the peer has committed the schedule;
                        without it that is known */
    struct baton__sharing *sharing; /* simulated: of plans; or NULL */
    baton_engine_t *engine;

    baton__table_t table; /* committed schedules; the driver's */

    /* Under the engine's driver lock. */
    uint32_t schedules;      /* that exist, without the verifier's */
    uint32_t lost_capacity;  /* places in `lost` */
    baton__memory_t *memory; /* that the user has */
    baton__table_t names;
    baton__loss_t *lost; /* peers */
    baton__loss_t first; /* that was lost; until then, that a peer has told of;
                            no detail: none. Errors name it */
    /* Of the recovery to an incarnation, by its lowest bit: peers may be one
       ahead. */
    baton__agreement_t agreements[2];
    baton__agreement_t farewell;
    _Atomic uint32_t recovery_left; /* agreements that are not over: the
                                       group's, and those of schedules */
    baton__peer_queue_t *queues; /* one for each rank; a simulator's ranks have
                                    one for all, as there is always room */
    uint32_t answer_count;       /* in them, */
    uint32_t due_count;          /* and of the other kind */
    baton__kept_t *spare;        /* room for more of them, and for early ones */
    baton__table_t early; /* hellos for schedules not committed here; one for
                             each that a peer has */
    baton_header_t asked; /* of the last inquiry about a schedule that is not
                             here: which schedule and epoch it was about */
    int asked_by;         /* the rank that asked about that epoch first */
    uint32_t leaving;     /* schedules that were destroyed, with notices due */
    baton__table_t departed; /* schedules of which peers may still ask */
    baton__kept_t *deferred; /* recovery messages of schedules unknown here,
                                until this rank joins the recovery */
    uint32_t unrecovered;    /* schedules that can't be recovered */
    int awaited; /* 1 + the peer that it waited for when last watched */
    baton__recovery_state_t recovery;
    struct baton__verifier *verifier; /* with BATON_VERIFY=1 */
    baton__attribute_t *attributes;   /* under a lock of group.c */

    baton_group_t *parent; /* of which it has the survivors; or NULL */
    uint32_t children;     /* such groups of it that exist */
    int *origins;          /* of each rank: the one in the group
                              that it was made of; or NULL */
    char *name;            /* that it was made by; or NULL */
    uint64_t channel;      /* by which its messages are known; 0 for a root's */
    /* A root's. */
    baton_group_t *subsets;  /* groups that share its endpoint, */
    baton__table_t channels; /* and the same by channel */
    baton__kept_t *strays;   /* of those that have not been made here yet */
    struct baton__shrink *shrink; /* once it was shrunk: progress/shrink.c */

    /* For error messages: the last schedule that a peer has committed and this
       rank does not know. */
    int unknown_peer; /* or -1 */
    char unknown_name[BATON__UNKNOWN_BYTES];
};

/* "rank 1 of 2", or "rank 1 of 2 in \"name\"", for one message of this thread.
 */
const char *baton__group_place(const baton_group_t *group);

/* "rank 3 (host n1, process 1234)", or "rank 3" where that is not known; for
   one message of this thread, which may name two ranks so. */
const char *baton__group_rank_text(const baton_group_t *group, int rank);

/* True if a rank's process is on this host, and stopped by a signal or a
   debugger. */
bool baton__group_is_stopped(const baton_group_t *group, int rank);

/* False, with this thread's error, where the group is NULL or destroyed. */
bool baton__is_group(const baton_group_t *group, const char *function);

/* The most messages of a schedule to one rank are 2^24: their numbers fill so
   many bits of a tag. */
enum { BATON__TAG_BITS = 24 };

/* The identity of the `attempt`-th schedule of a name. */
uint64_t baton__identity(const char *name, uint32_t attempt);

/* How many schedules of this name there were so far, or, without one, of what
   any other key below 2^63 counts; NULL if there is no memory. */
uint32_t *baton__group_counter(baton_group_t *group, const char *name,
                               uint64_t key);

/* True if this rank has made a schedule of this identity. */
bool baton__group_has_made(const baton_group_t *group, uint64_t identity);

/* The record of a schedule that was destroyed here in that incarnation, which a
   peer that asks may still be in; or NULL. */
const baton__departed_t *baton__group_departed(const baton_group_t *group,
                                               uint64_t identity,
                                               uint16_t incarnation);

/* A peer has been told of that schedule's end. The last one frees the record.
 */
void baton__group_told(baton_group_t *group, uint64_t identity, int peer);

/* Frees these records, but those of an incarnation; -1: all. */
void baton__group_forget_departed(baton_group_t *group, int but);

/* reserve makes room for some more, and is false if there is no memory; enter
   needs that room; find returns NULL if the key is not in the table. */
bool baton__table_reserve(baton__table_t *table, uint32_t more);
baton__place_t *baton__table_enter(baton__table_t *table, uint64_t key);
void baton__table_remove(baton__table_t *table, uint64_t key);
baton__place_t *baton__table_find(const baton__table_t *table, uint64_t key);

/* A committed schedule, or NULL. */
baton_schedule_t *baton__group_find(const baton_group_t *group,
                                    uint64_t identity);

/* The queue of what a rank is to be told. */
static inline baton__peer_queue_t *
baton__group_queue(const baton_group_t *group, int rank)
{
    return &group->queues[group->borrowed ? 0 : rank];
}

/* The next one of an engine's groups, roots and subsets, from its first on. */
static inline baton_group_t *baton__group_next(const baton_group_t *group)
{
    return group->subsets != NULL ? group->subsets
           : group->next != NULL  ? group->next
           : group->root != NULL  ? group->root->next
                                  : NULL;
}

/* Memory for an answer or a hello that came early, without allocating if there
   is some to spare; NULL: there is none. */
baton__kept_t *baton__group_take_kept(baton_group_t *group);
void baton__group_give_kept(baton_group_t *group, baton__kept_t *kept);

/* Keeps a header for later, if there is memory; and frees all that were. */
void baton__group_keep(baton__kept_t **list, uint64_t channel,
                       const baton_header_t *header, int peer);
void baton__group_drop_kept(baton__kept_t **list);

/* The one place where the state of a recovery changes. */
void baton__group_set_recovery(baton_group_t *group,
                               baton__recovery_state_t state);

/* True until all ranks have joined. */
static inline bool baton__group_recovers(const baton_group_t *group)
{
    return group->recovery == BATON__RECOVERY_STOPPING ||
           group->recovery == BATON__RECOVERY_JOINED;
}

/* Peers that are lost, and why; NULL if they are not. Without memory to
   remember one, all of them are. */
void baton__group_lose(baton_group_t *group, int peer, const char *detail);

/* A lost peer is known to have ended, or to have left. */
void baton__group_note_end(baton_group_t *group, int peer);

/* The number of a rank's host; 0 of all if nothing is known of hosts. */
int baton__group_host(const baton_group_t *group, int rank);

/* True if the rank is on this host, or nothing is known of hosts. */
bool baton__group_is_near(const baton_group_t *group, int rank);

/* Why a peer is lost that has lost this rank: the others go on without it. */
extern const char baton__disowned[];
const char *baton__group_loss(const baton_group_t *group, int peer);

/* 1 + the first that was lost, of which others may have to be told; or 0. */
uint64_t baton__group_first_lost(const baton_group_t *group);

/* Numbers hosts in the order of their first ranks: `host_of`, which has the
   lowest rank on the host of each, gets the numbers, and `transport` their
   count and, if ranks follow one another on each, how many. */
void baton__group_number_hosts(baton_transport_t *transport, int *host_of,
                               int size);

/* Destroys what is kept with the group. */
void baton__group_drop_attributes(baton_group_t *group);

void baton__group_fini(baton_group_t *group);
