/* The record of one node, and the table of node kinds.

   A record is one cache line. An adder fills it in; commit adds tags, ordinals
   and the first successor. */
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
    /* Of a send or activate: the peer has committed the schedule. */
    BATON__INTRODUCED = 2,
    /* Of a call or async node: its function took little time when it was last
       timed. */
    BATON__QUICK = 4,
    /* Of a call, a device call or an async node: it does not read scratch. */
    BATON__NO_SCRATCH = 8,
    /* Of a reduce: it may read a message in place; see sched/loans.h. */
    BATON__BORROWS = 16,
    /* Of a reduce, copy or device call: the device executes it. */
    BATON__ON_DEVICE = 32,
    /* Of a send or receive: its view is in device memory. */
    BATON__DEVICE_VIEW = 64,
    /* Of a receive: its sender may write into its target. */
    BATON__POSTS = 128,
    /* Of a send: its data, or a part, was reduced in the same epoch. */
    BATON__MADE = 256,
    /* Of a send: it may end late, when the peer has read it; see
       sched/plan.c. */
    BATON__PATIENT = 512,
    /* Of a copy: peers read its target in place; see copy.h. */
    BATON__SHARES = 1024,
    /* The flags that adders set. Commit derives all others from the schedule's
       group, for example from its transport; they hold in no other group. */
    BATON__BUILT = BATON__OPTIONAL | BATON__NO_SCRATCH
};

enum { BATON__TARGET, BATON__LEFT, BATON__RIGHT, BATON__OPERANDS };

#define BATON__NO_LENGTH UINT32_MAX

typedef struct baton__op {
    uint8_t kind;
    uint8_t dtype;
    uint16_t flags;
    uint32_t first_successor; /* index in the plan's successors; the node's
                                 successors end at the next record's
                                 first_successor */
    size_t bytes;             /* of each operand */
    uint32_t buffer[BATON__OPERANDS]; /* a receive fills TARGET; a send or copy
                                         reads LEFT */
    uint32_t length; /* a length's index; BATON__NO_LENGTH: always `bytes` */
    union {
        size_t offset[BATON__OPERANDS];
        struct {
            size_t slot; /* of an activation: index of its message; of other
                            messages: offset[TARGET] */
            union {
                size_t left; /* offset[LEFT] */
                size_t loan; /* of a receive: 1 + index in the plan's loans; 0:
                                none */
            };
            uint32_t tag;     /* as in baton_header_t */
            uint32_t ordinal; /* number among the schedule's receives */
        } message;
        void *argument; /* of a call */
        struct {
            void *argument;
            uint32_t ordinal; /* number among the schedule's async nodes */
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

/* True if the node sends a message. */
static inline bool baton__op_sends(const baton__op_t *op)
{
    return op->kind == BATON__SEND || op->kind == BATON__ACTIVATE;
}

/* Returns the kind of memory that a message's data is in, for the message's
   token. */
static inline baton_memory_t baton__op_memory(const baton__op_t *op)
{
    return (op->flags & BATON__DEVICE_VIEW) != 0 ? BATON_MEMORY_DEVICE
                                                 : BATON_MEMORY_HOST;
}

/* True if the node's message is an activation; these are counted separately. */
static inline bool baton__op_activates(const baton__op_t *op)
{
    return op->kind == BATON__ACTIVATE || op->kind == BATON__ARMED_RECV;
}

/* The values of a header's `kind`. From BATON__MESSAGE_HELLO on they are
   notices. */
typedef enum baton__message_kind {
    BATON__MESSAGE_DATA,
    BATON__MESSAGE_ACTIVATION,
    BATON__MESSAGE_HELLO,   /* the sender has committed the schedule; see
                               progress/notice.h */
    BATON__MESSAGE_WELCOME, /* says the same in answer to a HELLO */
    BATON__MESSAGE_FAILURE,
    BATON__MESSAGE_FAILURES, /* failures of many schedules, as a rank
                                recovers */
    BATON__MESSAGE_RECOVERY,
    BATON__MESSAGE_FAREWELL, /* the group is being destroyed */
    BATON__MESSAGE_INQUIRY,  /* asks what the schedule waits for */
    BATON__MESSAGE_STATE,    /* answers an INQUIRY; see progress/inquiry.h */
    /* The sender has left the group, alone, after a loss: `epoch` is 1 + the
       lost rank, or 0. The tag has the bit BATON__LEFT_NOT if the sender has
       not left, and only reports the loss, and the bit BATON__LEFT_ENDED if the
       lost rank's process has ended. */
    BATON__MESSAGE_LEFT,
    BATON__MESSAGE_VIEW, /* the lost ranks; see progress/shrink.h */
    BATON__MESSAGE_KIND_COUNT
} baton__message_kind_t;

enum { BATON__LEFT_NOT = 1, BATON__LEFT_ENDED = 2 };

/* The content of an activation. */
typedef struct baton__activation {
    int64_t origin;
    uint64_t word;
} baton__activation_t;

/* The state of an async node, shared by the driver and the completing
   thread. */
typedef struct baton__async {
    void *owner;
    uint32_t node;
    /* The generation, which grows with each use of the node, and in the lower
       bits BATON__ASYNC_IDLE, _BEGUN, or _DONE plus the status of
       completion. */
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

/* The data of an epoch beside the plan. */
typedef struct baton__context {
    const baton_transport_t *transport;
    void *endpoint;
    void *owner;          /* the schedule, for tokens and calls */
    char *const *address; /* by buffer: its address */
    /* The address of an operand's part in a lent message; NULL: the operand is
       in its buffer. */
    const char *lent[BATON__OPERANDS];
    baton__activation_t *activations; /* by slot */
    baton__async_t *asyncs;           /* by ordinal of the async node */
    int64_t flip; /* a node's peer is op->peer ^ flip; see sched/share.h */
    baton_header_t header; /* of the epoch's messages, without tag and kind */
} baton__context_t;

/* A call node's access to its epoch. */
struct baton_call {
    void *owner;
    uint32_t node;
    bool explained; /* the function has called baton_call_fail */
};

/* A result of issue: the node completes later. */
#define BATON__PENDING 4

/* Executes or begins a node. Of a reduction or copy it executes the part of
   `bytes` bytes from `begin` on. Returns BATON_OK (done), BATON__PENDING,
   BATON_SKIP, or an error, with its message set. */
typedef int (*baton__issue_fn)(const baton__op_t *op, uint32_t node,
                               const baton__context_t *context, size_t begin,
                               size_t bytes);

/* Checks the status that a user's function has returned: a wrong positive value
   would look like another outcome, so it becomes an error. If the outcome is an
   error that the function has not explained, sets its message. */
int baton__op_outcome(const baton__op_t *op, const baton_call_t *call,
                      baton_status_t status);

typedef struct baton__kind_info {
    const char *name;      /* "recv" in "recv#17" */
    uint8_t reads, writes; /* masks of operands */
    bool message;          /* the node is an end of a message */
    baton__issue_fn issue; /* NULL if the engine does the work, if any */
} baton__kind_info_t;

extern const baton__kind_info_t baton__kinds[BATON__KIND_COUNT];

/* True if the node has this operand. */
static inline bool baton__op_uses(const baton__op_t *op, int which)
{
    const baton__kind_info_t *kind = &baton__kinds[op->kind];
    return ((kind->reads | kind->writes) >> which & 1) != 0;
}

/* True if the node calls a user's function that may read scratch. */
static inline bool baton__op_sees_scratch(const baton__op_t *op)
{
    return (op->kind == BATON__CALL || op->kind == BATON__ASYNC ||
            op->kind == BATON__DEVICE_CALL) &&
           (op->flags & BATON__NO_SCRATCH) == 0;
}

/* Returns the address of a node's operand; NULL if no memory is bound. */
static inline char *baton__operand(const baton__op_t *op, int which,
                                   char *const *address)
{
    char *base = address[op->buffer[which]];
    return base == NULL ? NULL : base + op->offset[which];
}

/* Returns the address from which a node reads an operand, from byte `begin` on:
   in the buffer, or in a lent message. */
static inline const char *baton__source(const baton__op_t *op, int which,
                                        const baton__context_t *context,
                                        size_t begin)
{
    return context->lent[which] != NULL
               ? context->lent[which]
               : baton__operand(op, which, context->address) + begin;
}
