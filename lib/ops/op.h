/* The record of one node, and the table of node kinds.

   A record is one cache line. The function that adds the node fills the record
   in. Commit adds tags, ordinals (numbers among nodes of a kind), the first
   successor and most flags. */
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
    BATON__OPTIONAL = 1, /* the epoch ends without waiting for the node */
    /* A send or activate: this rank knows that the peer has committed the
       schedule. */
    BATON__INTRODUCED = 2,
    /* A call or async node: the user's function took little time when it was
       last timed. */
    BATON__QUICK = 4,
    /* A call, device call or async node: its function does not read scratch. */
    BATON__NO_SCRATCH = 8,
    /* A reduce: it may read an operand in a received message; see
       sched/loans.h. */
    BATON__BORROWS = 16,
    /* A reduce, copy or device call: the device executes it. */
    BATON__ON_DEVICE = 32,
    /* A send or receive: its view is in device memory. */
    BATON__DEVICE_VIEW = 64,
    /* A receive: its sender may write directly into the receive's target. */
    BATON__POSTS = 128,
    /* A send: its data, or a part of them, are the result of a reduction in the
       same epoch. */
    BATON__MADE = 256,
    /* A send: it may complete late, only when the peer has read its data; see
       sched/plan.c. */
    BATON__PATIENT = 512,
    /* A copy: peers read its target in place; see copy.h. */
    BATON__SHARES = 1024,
    /* The flags that are set while the graph is built. All other flags are set
       by commit, or while epochs run, since they depend on the schedule's
       group, for example on its transport. If the graph is used with another
       group, these other flags must be set again. */
    BATON__BUILT = BATON__OPTIONAL | BATON__NO_SCRATCH
};

enum { BATON__TARGET, BATON__LEFT, BATON__RIGHT, BATON__OPERANDS };

#define BATON__NO_LENGTH UINT32_MAX

typedef struct baton__op {
    uint8_t kind;
    uint8_t dtype;
    uint16_t flags;
    /* Index of the node's first successor in the plan's array of successors.
       The node's successors end where those of the next record begin. */
    uint32_t first_successor;
    size_t bytes; /* the number of bytes of each operand */
    /* For each operand, the index of its buffer. A receive has only the operand
       TARGET, a send only LEFT, and a copy these two. */
    uint32_t buffer[BATON__OPERANDS];
    /* Index of the length (baton_length_t) that limits the node's bytes in an
       epoch; BATON__NO_LENGTH: the node always has `bytes`. */
    uint32_t length;
    union {
        size_t offset[BATON__OPERANDS];
        struct {
            /* In an activation: the index of its content in the context's array
               `activations`. In other messages this field is
               offset[TARGET]. */
            size_t slot;
            union {
                size_t left; /* in a send, this field is offset[LEFT] */
                /* In a receive: 1 + the index of its loan in the plan's list of
                   loans. 0: the receive has no loan. */
                size_t loan;
            };
            /* The tag of the message's header (baton_header_t). */
            uint32_t tag;
            /* The number of the receive among the schedule's receives. */
            uint32_t ordinal;
        } message;
        void *argument; /* the argument of a call's function */
        struct {
            void *argument;
            /* The number of the node among the schedule's async nodes. */
            uint32_t ordinal;
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

/* Returns true if the node sends a message. */
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

/* Returns true if the node's message is an activation. Activations are counted
   separately from other messages. */
static inline bool baton__op_activates(const baton__op_t *op)
{
    return op->kind == BATON__ACTIVATE || op->kind == BATON__ARMED_RECV;
}

/* The values of a header's `kind`. From BATON__MESSAGE_HELLO on they are
   notices. */
typedef enum baton__message_kind {
    BATON__MESSAGE_DATA,
    BATON__MESSAGE_ACTIVATION,
    /* The sender has committed the schedule; see
       progress/membership/notice.h. */
    BATON__MESSAGE_HELLO,
    /* The answer to a HELLO: the sender of this answer has committed the
       schedule, too. */
    BATON__MESSAGE_WELCOME,
    BATON__MESSAGE_FAILURE,
    /* A notice of failures of several schedules. A rank that recovers sends
       it. */
    BATON__MESSAGE_FAILURES,
    BATON__MESSAGE_RECOVERY,
    BATON__MESSAGE_FAREWELL, /* the sender is destroying the group */
    BATON__MESSAGE_INQUIRY,  /* asks the peer what the schedule waits for */
    /* The answer to an INQUIRY; see progress/membership/inquiry.h. */
    BATON__MESSAGE_STATE,
    /* The sender reports a loss: `epoch` is 1 + the lost rank, or 0 for none.
       The tag has the bit BATON__LEFT_ENDED if the lost rank's process has
       ended. With the bit BATON__LEFT_NOT the sender stays in the group.
       Without it, the sender has left the group, and does not wait for the
       other ranks. */
    BATON__MESSAGE_LEFT,
    /* The ranks that the sender considers lost; see
       progress/membership/shrink.h. */
    BATON__MESSAGE_VIEW,
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
    /* The higher bits are the generation, a number that grows with each use of
       the node, so that a completion of an earlier use is recognised. The lower
       bits are BATON__ASYNC_IDLE, _BEGUN, or _DONE plus the status of
       completion. */
    _Atomic uint64_t state;
} baton__async_t;
enum {
    BATON__ASYNC_IDLE,
    BATON__ASYNC_BEGUN,
    BATON__ASYNC_DONE = 1024,
    BATON__ASYNC_BITS = 12
};

static inline uint64_t baton__async_generation(uint64_t state)
{
    return state >> BATON__ASYNC_BITS;
}

static inline uint64_t baton__async_state(uint64_t generation, int what)
{
    return generation << BATON__ASYNC_BITS | (uint64_t)what;
}

static inline int baton__async_what(uint64_t state)
{
    return (int)(state & ((1 << BATON__ASYNC_BITS) - 1));
}

/* What the nodes of an epoch need in addition to their records: the addresses
   of its buffers, the transport, and the state of its async nodes. */
typedef struct baton__context {
    const baton_transport_t *transport;
    void *endpoint;
    /* The schedule. Tokens of messages and the functions of call nodes refer to
       it. */
    void *owner;
    char *const *address; /* the address of each buffer */
    /* The address of an operand that is in a message which the transport has
       lent; NULL: the operand is in its buffer. */
    const char *lent[BATON__OPERANDS];
    baton__activation_t *activations; /* contents of activations, by `slot` */
    /* States of the async nodes, by ordinal. */
    baton__async_t *asyncs;
    /* If ranks share node records, the records have the peers of the rank that
       made them; this rank's peer is op->peer ^ flip. Otherwise `flip` is 0.
       See sched/share.h. */
    int64_t flip;
    /* The header of the epoch's messages, without tag and kind. */
    baton_header_t header;
} baton__context_t;

/* A call node's access to its epoch, which the user's function gets. */
struct baton_call {
    void *owner;
    uint32_t node;
    bool explained; /* the user's function has called baton_call_fail */
};

/* A result of a baton__issue_fn, besides the values of baton_status_t: the node
   has begun, and will complete later. */
#define BATON__PENDING 4

/* Executes or begins a node. If the node is a reduction or copy, executes only
   `bytes` bytes of it, from byte `begin` on. Returns BATON_OK if the node has
   completed, BATON__PENDING, BATON_SKIP, or an error, whose message it has set
   as this thread's error message. */
typedef int (*baton__issue_fn)(const baton__op_t *op, uint32_t node,
                               const baton__context_t *context, size_t begin,
                               size_t bytes);

/* Returns the outcome of a node, given the status that the user's function has
   returned. A positive value that is not allowed becomes an error, since it
   would be taken for another outcome. Sets the message of an error unless the
   function has done that with baton_call_fail. */
int baton__op_outcome(const baton__op_t *op, const baton_call_t *call,
                      baton_status_t status);

typedef struct baton__kind_info {
    const char *name; /* "recv" in "recv#17" */
    /* The operands that the node reads, and those that it writes: bit i stands
       for operand i (TARGET, LEFT, RIGHT). */
    uint8_t reads, writes;
    bool message; /* the node sends or receives a message */
    /* Executes or begins a node of this kind. NULL: the engine itself does the
       node's work, or the node has none. */
    baton__issue_fn issue;
} baton__kind_info_t;

extern const baton__kind_info_t baton__kinds[BATON__KIND_COUNT];

/* Returns true if nodes of this kind have the operand `which`. */
static inline bool baton__op_uses(const baton__op_t *op, int which)
{
    const baton__kind_info_t *kind = &baton__kinds[op->kind];
    return ((kind->reads | kind->writes) >> which & 1) != 0;
}

/* Returns true if the node calls a user's function that may read scratch. */
static inline bool baton__op_sees_scratch(const baton__op_t *op)
{
    return (op->kind == BATON__CALL || op->kind == BATON__ASYNC ||
            op->kind == BATON__DEVICE_CALL) &&
           (op->flags & BATON__NO_SCRATCH) == 0;
}

/* Returns the address of a node's operand. Returns NULL if no memory is bound
   to the operand's buffer. */
static inline char *baton__operand(const baton__op_t *op, int which,
                                   char *const *address)
{
    char *base = address[op->buffer[which]];
    return base == NULL ? NULL : base + op->offset[which];
}

/* Returns the address of byte `begin` of an operand: in the operand's buffer,
   or in a lent message. */
static inline const char *baton__source(const baton__op_t *op, int which,
                                        const baton__context_t *context,
                                        size_t begin)
{
    return context->lent[which] != NULL
               ? context->lent[which]
               : baton__operand(op, which, context->address) + begin;
}
