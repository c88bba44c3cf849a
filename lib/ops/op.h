/* What a node does: the record of one node, and the table of kinds.

   A record is one cache line. It is filled by an adder and stays where it is
   for the schedule's life: commit adds tags, ordinals and the first successor.
 */
#pragma once

#include <assert.h>
#include <baton/device.h>
#include <baton/transport.h>
#include <stdatomic.h>

typedef enum baton__kind {
    BATON__SEND,
    BATON__RECV,
    BATON__REDUCE,
    BATON__COPY,
    BATON__CALL,
    BATON__ASYNC,
    BATON__DEVICE_CALL,
    BATON__NOP,
    BATON__ON_START,
    BATON__ARMED_RECV,
    BATON__ACTIVATE,
    BATON__KIND_COUNT
} baton__kind_t;

enum {
    BATON__OPTIONAL = 1, /* the epoch does not wait for the node */
    /* Of a message that goes out: the peer has committed its receive. */
    BATON__INTRODUCED = 2,
    /* Of a call: it was timed, and ended soon. */
    BATON__QUICK = 4,
    /* Of a call, a device call or an async node: it does not look at scratch.
     */
    BATON__NO_SCRATCH = 8,
    /* Of a reduce: it may read a message in place; see sched/loans.h. */
    BATON__BORROWS = 16,
    /* Of a reduce, copy or device call: the device does it. */
    BATON__ON_DEVICE = 32,
    /* Of a send or receive: its view is in device memory. */
    BATON__DEVICE_VIEW = 64,
    /* Of a receive: its sender may write into its target. */
    BATON__POSTS = 128,
    /* Of a send: what it reads, or a part of it, was reduced in its epoch. */
    BATON__MADE = 256,
    /* Of a send: it can wait until it is read; sched/plan.c says which can. */
    BATON__PATIENT = 512,
    /* Of a copy: peers read its target where it lies; see copy.h. */
    BATON__SHARES = 1024,
    /* What adders set. All other flags follow from the group that commits the
       node, from its transport for one, and hold in no other group. */
    BATON__BUILT = BATON__OPTIONAL | BATON__NO_SCRATCH
};

enum { BATON__TARGET, BATON__LEFT, BATON__RIGHT, BATON__OPERANDS };

#define BATON__NO_LENGTH UINT32_MAX

typedef struct baton__op {
    uint8_t kind;
    uint8_t dtype;
    uint16_t flags;
    uint32_t first_successor; /* of the plan's successors; the next record's is
                                 the end */
    size_t bytes;             /* of each operand */
    uint32_t buffer[BATON__OPERANDS]; /* TARGET is what a receive fills; LEFT is
                                         what a send or copy reads */
    uint32_t length; /* which, or BATON__NO_LENGTH: always `bytes` */
    union {
        size_t offset[BATON__OPERANDS];
        struct {
            size_t slot; /* of the activation; else offset[TARGET] */
            union {
                size_t left; /* offset[LEFT] */
                size_t loan; /* of a receive: which of the plan's + 1; or 0 */
            };
            uint32_t tag;     /* which of the messages between the two ranks */
            uint32_t ordinal; /* which of the schedule's receives */
        } message;
        void *argument; /* of a call */
        struct {
            void *argument;
            uint32_t ordinal; /* which of the schedule's async nodes */
        } async;
    };
    union {
        const baton_op_t *reduction;
        baton_call_fn call;
        baton_device_call_fn device_call;
        const baton_async_ops_t *async_ops;
        int64_t peer;
    };
} baton__op_t;
static_assert(sizeof(void *) != 8 || sizeof(baton__op_t) == 64,
              "a node record is one cache line");

/* Of a node that is a message: whether it goes out; whether it belongs to the
   activation, which counts its messages by themselves. */
static inline bool baton__op_sends(const baton__op_t *op)
{
    return op->kind == BATON__SEND || op->kind == BATON__ACTIVATE;
}

/* The memory that a message lies in, for its token. */
static inline baton_memory_t baton__op_memory(const baton__op_t *op)
{
    return (op->flags & BATON__DEVICE_VIEW) != 0 ? BATON_MEMORY_DEVICE
                                                 : BATON_MEMORY_HOST;
}

static inline bool baton__op_activates(const baton__op_t *op)
{
    return op->kind == BATON__ACTIVATE || op->kind == BATON__ARMED_RECV;
}

/* What a header's `kind` says. Notices come behind BATON__MESSAGE_HELLO. */
typedef enum baton__message_kind {
    BATON__MESSAGE_DATA,
    BATON__MESSAGE_ACTIVATION,
    BATON__MESSAGE_HELLO,   /* the schedule was committed; see progress/notice.h
                             */
    BATON__MESSAGE_WELCOME, /* likewise; the answer */
    BATON__MESSAGE_FAILURE,
    BATON__MESSAGE_FAILURES, /* those of many, as a rank recovers its group */
    BATON__MESSAGE_RECOVERY,
    BATON__MESSAGE_FAREWELL, /* the group is being destroyed */
    BATON__MESSAGE_INQUIRY,  /* what does the schedule wait for there? */
    BATON__MESSAGE_STATE,    /* the answer; see progress/inquiry.h */
    /* It was, after a loss, by this rank alone: `epoch` is 1 + the one that is
       lost, or 0. Bits of the tag: BATON__LEFT_NOT: it was not, and this rank
       only tells of the loss; BATON__LEFT_ENDED: the process of the lost rank
       has. */
    BATON__MESSAGE_LEFT,
    BATON__MESSAGE_VIEW, /* who is lost; see progress/shrink.h */
    BATON__MESSAGE_KIND_COUNT
} baton__message_kind_t;

enum { BATON__LEFT_NOT = 1, BATON__LEFT_ENDED = 2 };

/* The content of an activation. */
typedef struct baton__activation {
    int64_t origin;
    uint64_t word;
} baton__activation_t;

/* An async node, between the driver and whoever completes it. */
typedef struct baton__async {
    void *owner;
    uint32_t node;
    /* Which of its turns it is, and in the lower bits BATON__ASYNC_IDLE,
       _BEGUN, or _DONE plus the status that it was completed with. */
    _Atomic uint64_t state;
} baton__async_t;
enum {
    BATON__ASYNC_IDLE,
    BATON__ASYNC_BEGUN,
    BATON__ASYNC_DONE = 1024,
    BATON__ASYNC_BITS = 12
};

static inline uint64_t baton__async_turn(uint64_t state)
{
    return state >> BATON__ASYNC_BITS;
}

static inline uint64_t baton__async_state(uint64_t turn, int what)
{
    return turn << BATON__ASYNC_BITS | (uint64_t)what;
}

static inline int baton__async_what(uint64_t state)
{
    return (int)(state & ((1 << BATON__ASYNC_BITS) - 1));
}

/* What an epoch works on beside the plan. */
typedef struct baton__context {
    const baton_transport_t *transport;
    void *endpoint;
    void *owner;          /* for tokens, and calls: the schedule */
    char *const *address; /* of each buffer */
    /* Where the part of the node's operands lies that is worked on, if not
       where their buffers say; else NULL. */
    const char *lent[BATON__OPERANDS];
    baton__activation_t *activations; /* of each slot */
    baton__async_t *asyncs;           /* of each async node */
    baton_header_t header; /* of its messages, but for tag and kind */
} baton__context_t;

/* What a call node's function sees: its schedule, its node. */
struct baton_call {
    void *owner;
    uint32_t node;
    bool explained; /* it has said why it fails: baton_call_fail */
};

/* Issuing returned: the node completes later. */
#define BATON__PENDING 4

/* Does, or begins, what the node says, on `bytes` of its operands from `begin`
   on (a part: reductions and copies only). BATON_OK: done. BATON__PENDING.
   BATON_SKIP. Else the error, with baton_error_message() set. */
typedef int (*baton__issue_fn)(const baton__op_t *op, uint32_t node,
                               const baton__context_t *context, size_t begin,
                               size_t bytes);

/* What a user's function has returned, as far as it may say that: a stray
   positive value would be taken for another outcome. An error has its message.
 */
int baton__op_outcome(const baton__op_t *op, const baton_call_t *call,
                      baton_status_t status);

typedef struct baton__kind_info {
    const char *name;      /* "recv" in "recv#17" */
    uint8_t reads, writes; /* masks of operands */
    bool message;          /* goes through the transport */
    baton__issue_fn issue; /* NULL if the engine does it, or nothing is to do */
} baton__kind_info_t;

extern const baton__kind_info_t baton__kinds[BATON__KIND_COUNT];

/* Whether the node has this operand. */
static inline bool baton__op_uses(const baton__op_t *op, int which)
{
    const baton__kind_info_t *kind = &baton__kinds[op->kind];
    return ((kind->reads | kind->writes) >> which & 1) != 0;
}

/* Whether the node calls a function of the user's that may look at scratch. */
static inline bool baton__op_sees_scratch(const baton__op_t *op)
{
    return (op->kind == BATON__CALL || op->kind == BATON__ASYNC ||
            op->kind == BATON__DEVICE_CALL) &&
           (op->flags & BATON__NO_SCRATCH) == 0;
}

/* Where an operand of a node lies; NULL where no memory is bound. */
static inline char *baton__operand(const baton__op_t *op, int which,
                                   char *const *address)
{
    char *base = address[op->buffer[which]];
    return base == NULL ? NULL : base + op->offset[which];
}

/* Where a node reads an operand from `begin` on: in its buffer, or in what it
   was lent. */
static inline const char *baton__source(const baton__op_t *op, int which,
                                        const baton__context_t *context,
                                        size_t begin)
{
    return context->lent[which] != NULL
               ? context->lent[which]
               : baton__operand(op, which, context->address) + begin;
}
