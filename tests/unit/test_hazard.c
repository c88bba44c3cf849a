/* Hazards: two unordered nodes that access the same bytes, at least one of them
   writing. Tested by examples, and on random graphs by comparison with an
   oracle. */
#include "support/refusal.h"
#include "support/sanitized.h"

/* Adds a node that writes bytes of the buffer, and reads scratch. */
static baton_node_t writes(baton_schedule_t *s, size_t offset, size_t bytes)
{
    baton_buffer_t own = baton_buffer_scratch(s, bytes);
    return baton_add_copy(s, refusal_part(offset, bytes),
                          baton_view(own, 0, bytes));
}

/* Tests the text of the message. Random graphs test that all hazards are
   found. */
TEST(test_hazard_is_named)
{
    baton_schedule_t *s = refusal_begin();
    (void)writes(s, 0, 9);
    (void)baton_add_recv(s, 1, refusal_part(8, 8));
    refused(s, BATON_ERR_HAZARD,
            "copy#0 and recv#1 are unordered, and the first writes and the "
            "second writes bytes 8 to 9 of buffer 0");
    s = refusal_begin();
    (void)baton_add_send(s, 1, refusal_part(0, 8));
    (void)writes(s, 0, 8);
    refused(s, BATON_ERR_HAZARD,
            "send#0 and copy#1 are unordered, and the first reads and the "
            "second writes bytes 0 to 8 of buffer 0");
}

/* ---- random graphs -------------------------------------------------- */

/* Adds nodes that follow one another after `last`. Returns the last one. */
static baton_node_t add_chain(baton_schedule_t *s, baton_node_t last,
                              uint64_t nodes)
{
    for (uint64_t i = 0; i < nodes; i++) {
        baton_node_t next = baton_add_nop(s);
        baton_before(s, last, next);
        last = next;
    }
    return last;
}

/* Every LONG-th graph has up to NODES nodes, each before a long chain. */
enum {
    FEW = 8,
    NODES = 14,
    LONG = 50,
    BUFFERS = 2,
    GRAPHS = SUPPORT_REPEAT(6000)
};

typedef struct range {
    uint32_t buffer;
    size_t offset, bytes;
    bool write;
} range_t;

typedef struct graph {
    uint32_t count;
    bool edge[NODES][NODES];
    baton_node_t last[NODES]; /* the last node of a node's chain, or the node */
    uint32_t need[NODES];
    range_t ranges[NODES][3];
    int range_count[NODES];
} graph_t;

/* Computes by brute force whether v needs u: whether v does not fire if u never
   completes. */
static bool needs(const graph_t *graph, uint32_t v, uint32_t u)
{
    bool fired[NODES] = {false};
    for (bool more = true; more;) {
        more = false;
        for (uint32_t node = 0; node < graph->count; node++) {
            uint32_t edges = 0, met = 0;
            for (uint32_t from = 0; from < graph->count; from++) {
                edges += graph->edge[from][node];
                met += graph->edge[from][node] && fired[from] && from != u;
            }
            uint32_t need =
                graph->need[node] == BATON_NEED_ALL ? edges : graph->need[node];
            if (!fired[node] && met >= need) {
                fired[node] = more = true;
            }
        }
    }
    return !fired[v];
}

static bool conflict(const graph_t *graph, uint32_t u, uint32_t v)
{
    for (int i = 0; i < graph->range_count[u]; i++) {
        for (int j = 0; j < graph->range_count[v]; j++) {
            const range_t *a = &graph->ranges[u][i];
            const range_t *b = &graph->ranges[v][j];
            if (a->buffer == b->buffer && (a->write || b->write) &&
                a->offset < b->offset + b->bytes &&
                b->offset < a->offset + a->bytes && a->bytes > 0 &&
                b->bytes > 0) {
                return true;
            }
        }
    }
    return false;
}

static bool hazardous(const graph_t *graph, uint32_t u, uint32_t v)
{
    return u != v && conflict(graph, u, v) && !needs(graph, v, u) &&
           !needs(graph, u, v);
}

/* Returns a random view of `bytes`. The views of a node are equal to its
   target, or do not overlap it. */
static baton_view_t draw_view(graph_t *graph, uint32_t node,
                              support_random_t *random, size_t bytes,
                              bool write)
{
    const range_t *target = &graph->ranges[node][0];
    range_t range = {.bytes = bytes, .write = write};
    bool torn;
    do {
        range.buffer = (uint32_t)support_random_below(random, BUFFERS);
        range.offset =
            (size_t)support_random_below(random, REFUSAL_BYTES - bytes + 1);
        torn = graph->range_count[node] > 0 && range.buffer == target->buffer &&
               range.offset != target->offset &&
               range.offset < target->offset + bytes &&
               target->offset < range.offset + bytes;
    } while (torn);
    graph->ranges[node][graph->range_count[node]++] = range;
    return baton_view((baton_buffer_t){range.buffer}, range.offset, bytes);
}

static void draw_node(graph_t *graph, baton_schedule_t *s,
                      support_random_t *random)
{
    uint32_t node = graph->count++;
    size_t bytes = (size_t)support_random_below(random, 9);
    switch (support_random_below(random, 4)) {
    case 0:
        (void)baton_add_nop(s);
        break;
    case 1:
        (void)baton_add_send(s, 1,
                             draw_view(graph, node, random, bytes, false));
        break;
    case 2:
        (void)baton_add_recv(s, 1, draw_view(graph, node, random, bytes, true));
        break;
    default: {
        baton_view_t target = draw_view(graph, node, random, bytes, true);
        baton_view_t left = draw_view(graph, node, random, bytes, false);
        baton_view_t right = draw_view(graph, node, random, bytes, false);
        (void)baton_add_reduce_local(s, BATON_I8, BATON_SUM, target, left,
                                     right);
    }
    }
}

static void draw_edges(graph_t *graph, baton_schedule_t *s, bool is_long,
                       support_random_t *random)
{
    uint32_t rank[NODES]; /* edges lead to a higher rank, not to a higher id */
    uint64_t density = 1 + support_random_below(random, 7);
    for (uint32_t i = 0; i < graph->count; i++) {
        uint32_t at = (uint32_t)support_random_below(random, i + 1);
        rank[i] = i;
        rank[i] = rank[at];
        rank[at] = i;
        graph->last[i] =
            add_chain(s, (baton_node_t){i},
                      is_long ? 60 + support_random_below(random, 40) : 0);
    }
    for (uint32_t i = 0; i < graph->count; i++) {
        for (uint32_t j = i + 1; j < graph->count; j++) {
            uint32_t from = rank[i];
            uint32_t to = rank[j];
            for (int twice = 0; twice < 2; twice++) {
                if (support_random_below(random, 8) < density) {
                    baton_before(s, graph->last[from], (baton_node_t){to});
                    graph->edge[from][to] = true;
                }
            }
        }
    }
    for (uint32_t node = 0; node < graph->count; node++) {
        uint32_t edges = 0;
        for (uint32_t from = 0; from < graph->count; from++) {
            edges += graph->edge[from][node];
        }
        graph->need[node] = (uint32_t)support_random_below(random, edges + 1);
        baton_set_need(s, (baton_node_t){node}, graph->need[node]);
    }
}

/* The pair that the message names: "... failed: copy#3 and send#1 are in ...".
 */
static void expect_hazard(const graph_t *graph)
{
    unsigned u, v;
    const char *pair = strstr(baton_error_message(), "failed: ");
    assert_non_null(pair);
    assert_int_equal(sscanf(pair, "failed: %*[a-z]#%u and %*[a-z]#%u", &u, &v),
                     2);
    if (!hazardous(graph, u, v)) {
        fail_msg("not so: %s", baton_error_message());
    }
}

static bool any_hazard(const graph_t *graph)
{
    for (uint32_t u = 0; u < graph->count; u++) {
        for (uint32_t v = 0; v < graph->count; v++) {
            if (hazardous(graph, u, v)) {
                return true;
            }
        }
    }
    return false;
}

TEST(test_hazard_found_as_by_brute_force)
{
    support_random_t random = support_random(support_seed(), 1);
    int found = 0;
    for (int i = 0; i < GRAPHS; i++) {
        graph_t graph = {.count = 0};
        baton_schedule_t *s = refusal_begin();
        (void)baton_buffer_scratch(s, REFUSAL_BYTES);
        bool is_long = i % LONG == 0;
        uint64_t most = is_long ? NODES : FEW;
        uint64_t nodes = 2 + support_random_below(&random, most - 1);
        while (graph.count < nodes) {
            draw_node(&graph, s, &random);
        }
        draw_edges(&graph, s, is_long, &random);
        bool hazard = any_hazard(&graph);
        support_expect(baton_schedule_commit(s),
                       hazard ? BATON_ERR_HAZARD : BATON_OK);
        if (hazard) {
            expect_hazard(&graph);
        }
        (void)!baton_schedule_destroy(s);
        found += hazard;
    }
    assert_in_range(found, GRAPHS / 10, GRAPHS * 9 / 10);
}

RUN_TESTS_BETWEEN(refusal_open, refusal_close)
