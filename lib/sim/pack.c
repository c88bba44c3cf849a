/* Turns a graph into bytes, which have all that another rank needs to compare
   the graph with others and to simulate it. The bytes have no addresses: in an
   unpacked graph all operands lie in scratch. */
#include "progress/state/task.h"
#include "sim/simulate_graphs.h"

#include <string.h>

typedef struct head {
    uint32_t nodes;
    uint32_t edges;
    uint32_t lengths;
    /* The number of schedules of this name that were created, including this
       one. */
    uint32_t attempt;
    uint64_t terms_hash;
    /* Bytes of the terms, with their final zero, at the end of the packed
       graph; 0: there are none. */
    uint64_t terms_bytes;
} head_t;

/* A node. The graph's edges come after all its nodes. */
typedef struct record {
    /* The bytes of a message; 0 for a node that is no message. */
    uint64_t bytes;
    int32_t peer; /* the peer of a message; 0 for a node that is no message */
    uint32_t need;
    uint16_t kind;
    uint16_t flags;
    uint32_t length;
} record_t;

static size_t terms_bytes(const baton_schedule_t *schedule)
{
    return schedule->terms != NULL ? strlen(schedule->terms) + 1 : 0;
}

size_t baton__pack_bytes(const baton_schedule_t *schedule)
{
    return sizeof(head_t) + schedule->count * sizeof(record_t) +
           schedule->edge_count * sizeof(baton__edge_t) + terms_bytes(schedule);
}

void baton__pack(const baton_schedule_t *schedule, char *out)
{
    const head_t head = {.nodes = schedule->count,
                         .edges = schedule->edge_count,
                         .lengths = schedule->length_count,
                         .attempt = baton__task_of(schedule)->attempt,
                         .terms_hash = schedule->terms_hash,
                         .terms_bytes = terms_bytes(schedule)};
    memcpy(out, &head, sizeof head);
    out += sizeof head;
    for (uint32_t i = 0; i < head.nodes; i++) {
        const baton__op_t *op = &schedule->ops[i];
        bool message = baton__kinds[op->kind].message;
        const record_t record = {
            .bytes = message ? op->bytes : 0,
            .peer = message ? (int32_t)op->peer : 0,
            .need = schedule->needs[i],
            .kind = op->kind,
            .flags = op->flags & BATON__BUILT,
            .length = op->length,
        };
        memcpy(out, &record, sizeof record);
        out += sizeof record;
    }
    if (head.edges > 0) {
        memcpy(out, schedule->edges, head.edges * sizeof *schedule->edges);
        out += head.edges * sizeof *schedule->edges;
    }
    if (head.terms_bytes > 0) {
        memcpy(out, schedule->terms, head.terms_bytes);
    }
}

static baton_node_t pack_add(baton_schedule_t *schedule, const record_t *record,
                             baton_view_t place)
{
    switch (record->kind) {
    case BATON__SEND:
        return baton_add_send(schedule, record->peer, place);
    case BATON__RECV:
        return baton_add_recv(schedule, record->peer, place);
    case BATON__ARMED_RECV:
        return baton_add_armed_recv(schedule, record->peer);
    case BATON__ACTIVATE:
        return baton_add_activate(schedule, record->peer);
    case BATON__ON_START:
        return baton_add_on_start(schedule);
    default:
        return baton_add_nop(schedule);
    }
}

/* The operands of messages lie one after another in one scratch buffer. */
void baton__unpack(baton_schedule_t *schedule, const char *data)
{
    head_t head;
    memcpy(&head, data, sizeof head);
    const char *records = data + sizeof head;
    const char *edges = records + head.nodes * sizeof(record_t);
    const char *terms = edges + head.edges * sizeof(baton__edge_t);
    size_t total = 0;
    for (uint32_t i = 0; i < head.nodes; i++) {
        record_t record;
        memcpy(&record, records + i * sizeof record, sizeof record);
        total += record.bytes;
    }
    baton_buffer_t buffer = baton_buffer_scratch(schedule, total);
    schedule->length_count = head.lengths;
    baton__task_of(schedule)->attempt = head.attempt;
    schedule->terms_hash = head.terms_hash;
    if (head.terms_bytes > 0 &&
        baton__graph_grow(schedule, &schedule->terms, 0,
                          (uint32_t)head.terms_bytes, 1)) {
        memcpy(schedule->terms, terms, head.terms_bytes);
    }
    size_t offset = 0;
    for (uint32_t i = 0; i < head.nodes; i++) {
        record_t record;
        memcpy(&record, records + i * sizeof record, sizeof record);
        baton_node_t node = pack_add(schedule, &record,
                                     baton_view(buffer, offset, record.bytes));
        offset += record.bytes;
        if (node.index == BATON__NO_NODE) {
            return;
        }
        /* Every node that computes is added as a nop. It gets its own kind
           here, so that error messages name it correctly. */
        schedule->ops[node.index].kind = (uint8_t)record.kind;
        schedule->ops[node.index].flags = record.flags;
        schedule->ops[node.index].length = record.length;
        baton_set_need(schedule, node, record.need);
    }
    for (uint32_t i = 0; i < head.edges; i++) {
        baton__edge_t edge;
        memcpy(&edge, edges + i * sizeof edge, sizeof edge);
        baton_before(schedule, (baton_node_t){edge.from},
                     (baton_node_t){edge.to});
    }
}
