/* Draws a schedule's graph in the language of graphviz. Nodes have the names
   that messages use, such as "recv#17". */
#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "sched/schedule.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { DOT_LINE_BYTES = 1024 };

typedef struct dot {
    const baton_schedule_t *schedule;
    uint32_t *incoming; /* by node: the number of its edges */
    int file;           /* -1 while edges are counted */
    bool failed;        /* a line could not be written */
} dot_t;

static void dot_write(dot_t *dot, const baton__text_t *line)
{
    dot->failed = dot->failed || write(dot->file, line->data, line->used) !=
                                     (ssize_t)line->used;
}

static void dot_node(dot_t *dot, uint32_t node)
{
    const baton__op_t *op = &dot->schedule->ops[node];
    const char *name = baton__node_name(dot->schedule, node);
    baton__text_t line = BATON__TEXT(DOT_LINE_BYTES);
    baton__text_add(&line, "    \"%s\" [label=\"%s", name, name);
    if (baton__kinds[op->kind].message) {
        baton__text_add(&line, "\\n%s rank %d",
                        baton__op_sends(op) ? "to" : "from",
                        baton__peer_of(dot->schedule, op));
    }
    if (op->bytes > 0) {
        baton__text_add(&line, "\\n%zu bytes", op->bytes);
    }
    bool optional = (op->flags & BATON__OPTIONAL) != 0;
    baton__text_add(&line, "\"%s];\n", optional ? ", color=gray" : "");
    dot_write(dot, &line);
}

/* Counts an edge, or draws it. */
static void dot_edge(dot_t *dot, uint32_t from, uint32_t to)
{
    if (dot->file < 0) {
        dot->incoming[to]++;
        return;
    }
    uint32_t need = dot->schedule->needs[to];
    baton__text_t line = BATON__TEXT(DOT_LINE_BYTES);
    baton__text_add(&line, "    \"%s\" -> \"%s\"",
                    baton__node_name(dot->schedule, from),
                    baton__node_name(dot->schedule, to));
    if (need != BATON_NEED_ALL && need < dot->incoming[to]) {
        baton__text_add(&line, " [style=dashed, label=\"%u of %u\"]", need,
                        dot->incoming[to]);
    }
    baton__text_add(&line, ";\n");
    dot_write(dot, &line);
}

/* Counts or draws all edges: those of the graph before the commit, and those of
   the plan after it. */
static void dot_edges(dot_t *dot)
{
    const baton_schedule_t *schedule = dot->schedule;
    const baton__op_t *ops = schedule->ops;
    for (uint32_t i = 0; !schedule->committed && i < schedule->edge_count;
         i++) {
        dot_edge(dot, schedule->edges[i].from, schedule->edges[i].to);
    }
    for (uint32_t i = 0; schedule->committed && i < schedule->count; i++) {
        for (uint32_t k = ops[i].first_successor;
             k < ops[i + 1].first_successor; k++) {
            dot_edge(dot, i, schedule->plan.successors[k]);
        }
    }
}

static void dot_draw(dot_t *dot)
{
    const baton_schedule_t *schedule = dot->schedule;
    baton__text_t line = BATON__TEXT(DOT_LINE_BYTES);
    baton__text_add(&line, "strict digraph {\n    label=\"rank %d of %d: ",
                    schedule->group->rank, schedule->group->size);
    for (size_t i = 0; i < BATON__QUOTED_BYTES && schedule->name[i] != '\0';
         i++) {
        bool special = strchr("\"\\", schedule->name[i]) != NULL;
        baton__text_add(&line, special ? "\\%c" : "%c", schedule->name[i]);
    }
    baton__text_add(&line, "\";\n    node [shape=box];\n");
    dot_write(dot, &line);
    for (uint32_t i = 0; i < schedule->count; i++) {
        dot_node(dot, i);
    }
    dot_edges(dot);
    line.used = 0;
    baton__text_add(&line, "}\n");
    dot_write(dot, &line);
}

baton_status_t baton_schedule_write_dot(const baton_schedule_t *schedule,
                                        const char *path)
{
    if (!baton__is_schedule(schedule, __func__) ||
        !baton__is_given(path, true, __func__, "path")) {
        return BATON_ERR_INVALID;
    }
    dot_t dot = {.schedule = schedule,
                 .incoming = baton__alloc(schedule->count, sizeof(uint32_t)),
                 .file = -1};
    if (dot.incoming == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory to draw \"%s\", which has %u nodes",
                            schedule->name, schedule->count);
    }
    dot_edges(&dot);
    dot.file = baton__descriptor_move(
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (dot.file >= 0) {
        dot_draw(&dot);
    }
    bool written = dot.file >= 0 && close(dot.file) == 0 && !dot.failed;
    const int error = errno;
    baton__free(dot.incoming);
    return written
               ? BATON_OK
               : baton__error(BATON_ERR_SYSTEM,
                              "\"%s\" can't be drawn in \"%s\": %s",
                              schedule->name, path, baton__errno_text(error));
}
