/* A schedule as text, for Graphviz's dot. It first finds out whether it can
   succeed, then writes, so that nobody gets half a text. */
#include "base/alloc.h"
#include "base/error.h"
#include "sched/schedule.h"

#include <baton/dump.h>
#include <stdlib.h>

/* ---- pieces of text --------------------------------------------------- */

typedef struct sink {
    baton_write_fn write;
    void *arg;
} sink_t;

/* One piece: numbers and words of our own, which fit. Names of others can be of
   any length: put_name. */
static void put(const sink_t *sink, const char *format, ...) BATON_PRINTF(2, 3);

static void put(const sink_t *sink, const char *format, ...)
{
    char piece[160];
    baton__text_t text = {piece, sizeof piece, 0};
    va_list values;
    va_start(values, format);
    baton__text_add_list(&text, format, values);
    va_end(values);
    sink->write(sink->arg, piece);
}

/* Inside a quoted label of dot, which knows \n and the entities of HTML. */
static void put_name(const sink_t *sink, const char *name)
{
    for (; *name != '\0'; name++) {
        if (*name == '"' || *name == '\\') {
            put(sink, "\\%c", *name);
        } else if (*name == '&') {
            put(sink, "&amp;");
        } else {
            put(sink, "%c", (unsigned char)*name < ' ' ? ' ' : *name);
        }
    }
}

/* ---- edges ------------------------------------------------------------ */

typedef struct links {
    baton__edge_t *edges; /* by `from`, then `to`; each once */
    uint32_t count;
    uint32_t *incoming; /* of each node */
} links_t;

static void links_free(links_t *links)
{
    baton__free(links->edges);
    baton__free(links->incoming);
}

static int compare_edges(const void *left, const void *right)
{
    const baton__edge_t *a = left;
    const baton__edge_t *b = right;
    if (a->from != b->from) {
        return a->from < b->from ? -1 : 1;
    }
    return a->to < b->to ? -1 : a->to > b->to;
}

/* As they were added: in any order, and some twice. */
static void copy_added(const baton_schedule_t *schedule, links_t *links)
{
    for (uint32_t i = 0; i < schedule->edge_count; i++) {
        links->edges[i] = schedule->edges[i];
    }
    qsort(links->edges, schedule->edge_count, sizeof *links->edges,
          compare_edges);
    for (uint32_t i = 0; i < schedule->edge_count; i++) {
        if (i == 0 ||
            compare_edges(&links->edges[i - 1], &links->edges[i]) != 0) {
            links->edges[links->count++] = links->edges[i];
        }
    }
}

/* As commit left them: each node's successors, ascending. */
static void copy_plan(const baton_schedule_t *schedule, links_t *links)
{
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        for (uint32_t i = op->first_successor; i < op[1].first_successor; i++) {
            links->edges[links->count++] =
                (baton__edge_t){node, schedule->plan.successors[i]};
        }
    }
}

/* The caller frees them, also after an error. */
static baton_status_t find_links(const baton_schedule_t *schedule, links_t *out)
{
    *out = (links_t){0};
    uint32_t most = schedule->committed
                        ? schedule->ops[schedule->count].first_successor
                        : schedule->edge_count;
    *out = (links_t){
        .edges = baton__alloc(most, sizeof *out->edges),
        .incoming = baton__alloc(schedule->count, sizeof *out->incoming),
    };
    if (out->edges == NULL || out->incoming == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "dot of \"%s\": no memory for %u edges",
                            schedule->name, most);
    }
    if (schedule->committed) {
        copy_plan(schedule, out);
    } else {
        copy_added(schedule, out);
    }
    for (uint32_t i = 0; i < out->count; i++) {
        out->incoming[out->edges[i].to]++;
    }
    return BATON_OK;
}

/* ---- dot -------------------------------------------------------------- */

static const char *const shapes[BATON__KIND_COUNT] = {
    [BATON__SEND] = "invhouse",
    [BATON__RECV] = "house",
    [BATON__REDUCE] = "box",
    [BATON__COPY] = "parallelogram",
    [BATON__CALL] = "hexagon",
    [BATON__ASYNC] = "tripleoctagon",
    [BATON__DEVICE_CALL] = "component",
    [BATON__NOP] = "ellipse",
    [BATON__ON_START] = "doublecircle",
    [BATON__ARMED_RECV] = "doubleoctagon",
    [BATON__ACTIVATE] = "octagon",
};

/* "64 B", or at most that. */
static void put_bytes(const sink_t *sink, const baton__op_t *op)
{
    if (op->length == BATON__NO_LENGTH) {
        put(sink, "%zu B", op->bytes);
    } else {
        put(sink, "up to %zu B, length %u", op->bytes, op->length);
    }
}

/* The label's second line. */
static void put_operands(const sink_t *sink, const baton__op_t *op)
{
    const baton__kind_info_t *kind = &baton__kinds[op->kind];
    bool bytes = kind->message || kind->writes != 0;
    if (bytes) {
        put(sink, "\\n");
    }
    if (kind->message) {
        put(sink, "%s %d, ", baton__op_sends(op) ? "to" : "from",
            (int)op->peer);
    } else if (op->kind == BATON__REDUCE) {
        /* A user's reduction may have no name. */
        put_name(sink, op->reduction->name != NULL ? op->reduction->name : "?");
        put(sink, " of %s, ", baton_dtype_name((baton_dtype_t)op->dtype));
    }
    if (bytes) {
        put_bytes(sink, op);
    }
    if ((op->flags & (BATON__ON_DEVICE | BATON__DEVICE_VIEW)) != 0) {
        put(sink, baton__op_memory(op) == BATON_MEMORY_DEVICE
                      ? ", device memory"
                      : "\\non the device");
    }
}

static void put_dot_node(const sink_t *sink, const baton_schedule_t *schedule,
                         const links_t *links, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    put(sink, "    n%u [shape=%s%s label=\"%s", node, shapes[op->kind],
        (op->flags & BATON__OPTIONAL) != 0 ? " style=dashed" : "",
        baton__node_name(schedule, node));
    put_operands(sink, op);
    uint32_t need = schedule->needs[node];
    if (need != BATON_NEED_ALL && need != links->incoming[node]) {
        put(sink, "\\nneeds %u of %u", need, links->incoming[node]);
    }
    put(sink, "\"];\n");
}

baton_status_t baton_schedule_dot(const baton_schedule_t *schedule,
                                  baton_write_fn write, void *arg)
{
    const sink_t sink = {write, arg};
    links_t links;
    if (write == NULL) {
        return baton__error(BATON_ERR_INVALID, "dot of \"%s\": write is NULL",
                            schedule->name);
    }
    baton_status_t status = find_links(schedule, &links);
    if (status == BATON_OK) {
        put(&sink, "digraph {\n    label=\"");
        put_name(&sink, schedule->name);
        put(&sink, ", rank %d of %d\";\n    labelloc=t;\n",
            schedule->group->rank, schedule->group->size);
        for (uint32_t node = 0; node < schedule->count; node++) {
            put_dot_node(&sink, schedule, &links, node);
        }
        for (uint32_t i = 0; i < links.count; i++) {
            put(&sink, "    n%u -> n%u;\n", links.edges[i].from,
                links.edges[i].to);
        }
        put(&sink, "}\n");
    }
    links_free(&links);
    return status;
}
