/* A group: this rank's place among P, and its schedules by identity.

   Schedules that belong together on different ranks have one identity: the
   hash of their name and the attempt, which counts the schedules that a rank
   has made of that name in the group. Messages carry it, so that a schedule
   that is there on some ranks only takes no messages of others. */
#ifndef BATON_TRANSPORT_GROUP_H
#define BATON_TRANSPORT_GROUP_H

#include <baton/schedule.h>
#include <baton/transport.h>
#include <stdatomic.h>

/* The schedules that were made of a name. */
typedef struct baton__name {
    uint64_t hash;
    uint32_t attempts;
    bool used; /* this place of the table */
} baton__name_t;

/* A committed schedule; no identity is 0. */
typedef struct baton__place {
    uint64_t identity;
    baton_schedule_t *schedule;
} baton__place_t;

/* A dissemination: in round t a rank tells rank + 2^t what it knows, once it
   has heard from rank - 2^(t-1); after log2 P rounds it has heard from all.
   What is passed on is the highest number that any rank has. */
typedef struct baton__rounds {
    uint32_t sent;    /* rounds so far */
    uint32_t seen;    /* bits: rounds of which the message has come */
    uint64_t highest; /* so far */
} baton__rounds_t;

enum { BATON__STRANGER_BYTES = 64 };

/* What a step touches comes first. */
struct baton_group {
    const baton_transport_t *transport;
    void *endpoint;
    const struct baton__kind_info *kinds; /* what its nodes do */
    baton_group_t *next;                  /* of the engine's groups */
    uint16_t incarnation;                 /* how often it has been recovered */
    int rank;
    int size;
    bool cost_only;  /* simulated: buffers have no memory */
    bool borrowed;   /* owned by a simulator */
    bool introduces; /* schedules wait until their peers have committed them;
                        else that is known */
    baton_engine_t *engine;
    struct baton__stepper *stepper; /* that steps its schedules */

    /* Committed schedules, a hash table by identity; the driver's. */
    baton__place_t *table; /* a power of two long, at most half full; NULL */
    uint32_t table_size;
    uint32_t table_count;

    /* Under the engine's driver lock. */
    uint32_t schedules; /* that exist */
    baton__name_t *names;
    uint32_t name_count;
    uint32_t name_capacity;
    int *lost; /* peers from which nothing comes any more */
    uint32_t lost_count;
    uint32_t lost_capacity;
    bool all_lost; /* as far as is known */
    /* By the lowest bit of the incarnation: of the present one, until all ranks
       have come, and of the next, of which peers may tell already. */
    baton__rounds_t rounds[2];
    _Atomic uint32_t recovery_left;   /* what is to be found out yet: of the
                                         group, and of schedules; 0: it is over */
    baton_message_t *refused;         /* of schedules that this rank has not any
                                         more; their peers are to be told */
    baton_message_t *held;            /* of a recovery that this rank has not
                                         come to, and schedules it does not know */
    uint32_t unrecovered;             /* schedules that failed for good before
                                         that */
    bool recovering;                  /* this rank was called to */
    bool came;                        /* and nothing moved here any more */
    bool called;                      /* whoever called has not been told yet
                                         how it ended */
    struct baton__verifier *verifier; /* with BATON_VERIFY=1 */

    /* A schedule that a peer has committed, and this rank does not know: the
       last, for messages. */
    int stranger_peer; /* -1: none */
    char stranger[BATON__STRANGER_BYTES];
};

/* The identity of the `attempt`-th schedule of a name. */
uint64_t baton__identity(const char *name, uint32_t attempt);

/* The attempt that the next schedule of this name is, counted; 0 without
   memory. */
uint32_t baton__group_attempt(baton_group_t *group, const char *name);

/* How many there were so far; and one less, of which nobody has heard. */
uint32_t baton__group_attempts(const baton_group_t *group, const char *name);
void baton__group_take_back(baton_group_t *group, const char *name);

/* Whether this rank has made a schedule of this identity. */
bool baton__group_has_made(const baton_group_t *group, uint64_t identity);

/* The table: room for one schedule more, false without memory; enter, where
   there is room; remove; find: NULL where there is none. */
bool baton__group_reserve(baton_group_t *group);
void baton__group_enter(baton_group_t *group, uint64_t identity,
                        baton_schedule_t *schedule);
void baton__group_remove(baton_group_t *group, uint64_t identity);
baton_schedule_t *baton__group_find(const baton_group_t *group,
                                    uint64_t identity);

/* Peers that are gone. Without memory to remember one, all are. */
void baton__group_lose(baton_group_t *group, int peer);
bool baton__group_has_lost(const baton_group_t *group, int peer);

void baton__group_fini(baton_group_t *group);

#endif
