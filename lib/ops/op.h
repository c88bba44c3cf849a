/* What a node does: the record of one node, and the table of kinds.

   A record is one cache line. It is filled by an adder and stays where it is
   for the schedule's life: commit adds the tag and the first successor. */
#ifndef BATON_OPS_OP_H
#define BATON_OPS_OP_H

#include <assert.h>
#include <baton/transport.h>

typedef enum baton__kind {
    BATON__SEND,
    BATON__RECV,
    BATON__REDUCE,
    BATON__COPY,
    BATON__CALL,
    BATON__NOP,
    BATON__ON_START,
    BATON__ARMED_RECV,
    BATON__ACTIVATE,
    BATON__KIND_COUNT
} baton__kind_t;

enum { BATON__OPTIONAL = 1 }; /* flag: the epoch does not wait for the node */

enum { BATON__TARGET, BATON__LEFT, BATON__RIGHT, BATON__OPERANDS };

typedef struct baton__op {
    uint8_t kind;
    uint8_t dtype;
    uint16_t flags;
    uint32_t first_successor; /* of the plan's successors; the next record's is
                                 the end */
    size_t bytes;             /* of each operand */
    uint32_t buffer[BATON__OPERANDS]; /* TARGET is what a receive fills; LEFT is
                                         what a send or copy reads */
    uint32_t tag;
    union {
        size_t offset[BATON__OPERANDS];
        void *argument; /* of a call */
        size_t header;  /* of an armed receive or activate: which of them */
    };
    union {
        const baton_op_t *reduction;
        baton_call_fn call;
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

static inline bool baton__op_activates(const baton__op_t *op)
{
    return op->kind == BATON__ACTIVATE || op->kind == BATON__ARMED_RECV;
}

/* The message of an activation. */
typedef struct baton__header {
    uint64_t epoch;
    int64_t origin;
} baton__header_t;

/* What issuing needs to know of the epoch that runs. */
typedef struct baton__context {
    const baton_transport_t *transport;
    void *endpoint;
    void *owner;              /* for the tokens */
    char *const *address;     /* of each buffer */
    baton__header_t *headers; /* of each armed receive and activate */
    uint64_t epoch;
} baton__context_t;

/* Issuing returned: the node completes later, through the transport. */
#define BATON__PENDING 3

/* Does, or begins, what the node says. BATON_OK: done. BATON__PENDING.
   BATON_SKIP. Else the error, with baton_error_message() set. */
typedef int (*baton__issue_fn)(const baton__op_t *op, uint32_t node,
                               const baton__context_t *context);

typedef struct baton__kind_info {
    const char *name;      /* "recv" in "recv#17" */
    uint8_t reads, writes; /* masks of operands */
    bool message;          /* goes through the transport */
    baton__issue_fn issue; /* NULL: there is nothing to do */
} baton__kind_info_t;

extern const baton__kind_info_t baton__kinds[BATON__KIND_COUNT];

#endif
