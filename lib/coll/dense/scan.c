#include "coll/dense/algorithms.h"
#include "coll/kit/blocks.h"
#include "coll/kit/check.h"

/* Prefix reductions by recursive doubling. In step k a rank sends its partial
   sum to rank + 2^k, and reduces it with the one from rank - 2^k, which is the
   left operand. Then it has the partial sum of the 2^(k+1) ranks up to itself:

       source --+--> reduce --+--> reduce --+--> reduce = scan
                |      ^      |      ^      |      ^
                |      |      |      |      |      |
       send +1 <+  recv -1    |  recv -2    |  recv -4
                        send +2             send +4

   The exclusive scan has a second partial sum without this rank, which begins
   as the first one that was received:

                   recv -1 ----> reduce ----> reduce = exscan
                                   ^            ^
                                recv -2      recv -4                        */
typedef struct scan {
    baton__flow_t flow;
    baton_view_t source, target;
    bool in_place;
    bool inclusive;
} scan_t;

enum { LONG_SLOTS = 3 };

/* Checks the arguments, and opens the flow. Returns false if the schedule has
   an error. If it returns true, the caller must close the flow. */
static bool scan_begin(baton_schedule_t *schedule, const char *builder,
                       const baton_scan_args_t *args, bool inclusive,
                       scan_t *out)
{
    args = baton__read_args(schedule, builder, args, sizeof *args,
                            "baton_scan_args_t");
    bool in_place;
    if (args != NULL && args->op == BATON_AVG) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: op is avg, which scans do not support",
                            builder);
        return false;
    }
    if (args == NULL ||
        !baton__check_reduction(schedule, builder, args->op, args->dtype,
                                args->source, args->target, &in_place)) {
        return false;
    }
    *out = (scan_t){
        .flow = baton__flow_open(schedule, args->dtype, args->op),
        .source = in_place ? args->target : args->source,
        .target = args->target,
        .in_place = in_place,
        .inclusive = inclusive,
    };
    if (inclusive && out->flow.rank == 0 && !in_place) {
        baton__flow_copy(&out->flow, out->target, out->source);
    }
    return true;
}

/* Adds a received partial sum to `before`, which is the sum of the ranks before
   this one. In step 0 `before` becomes a copy of the received sum. */
static void scan_add_before(baton__flow_t *flow, int step, baton_view_t before,
                            baton_view_t received)
{
    if (step == 0) {
        baton__flow_copy(flow, before, received);
    } else {
        baton__flow_reduce(flow, before, received, before);
    }
}

/* Adds the steps. Each step makes its partial sum in the slot that has received
   a sum, so that no node writes memory that a send reads: no step waits for a
   send of the step before it. */
static void add_steps(scan_t *scan)
{
    baton__flow_t *flow = &scan->flow;
    size_t bytes = scan->source.bytes;
    int steps = baton__log2_ceil(flow->size);
    baton__slots_t slots =
        baton__slots_for_rounds(flow->schedule, steps, bytes, LONG_SLOTS);
    baton_view_t partial = scan->source;
    baton_view_t before = scan->target;
    if (!scan->inclusive && scan->in_place && flow->rank > 0) {
        before = baton__flow_scratch(flow, bytes);
    }
    for (int k = 0; k < steps; k++) {
        int distance = 1 << k;
        if (flow->rank < flow->size - distance) {
            baton__flow_send(flow, flow->rank + distance, partial);
        }
        if (flow->rank < distance) {
            continue;
        }
        baton_view_t received = baton__slot_of(&slots, (size_t)k, bytes);
        baton__flow_recv(flow, flow->rank - distance, received);
        if (!scan->inclusive) {
            scan_add_before(flow, k, before, received);
        }
        bool is_last = flow->rank < 2 * (int64_t)distance;
        baton_view_t sum = is_last && scan->inclusive ? scan->target : received;
        if (scan->inclusive ||
            flow->rank < flow->size - 2 * (int64_t)distance) {
            baton__flow_reduce(flow, sum, received, partial);
            partial = sum;
        }
    }
    if (!scan->inclusive && scan->in_place && flow->rank > 0) {
        baton__flow_copy(flow, scan->target, before);
    }
}

static void scan_build(baton_schedule_t *schedule, const char *builder,
                       const baton_scan_args_t *args, bool inclusive)
{
    scan_t scan;
    if (scan_begin(schedule, builder, args, inclusive, &scan)) {
        add_steps(&scan);
        baton__flow_close(&scan.flow);
    }
}

void baton_add_scan(baton_schedule_t *schedule, const baton_scan_args_t *args)
{
    scan_build(schedule, "scan by recursive doubling", args, true);
}

void baton_add_exscan(baton_schedule_t *schedule, const baton_scan_args_t *args)
{
    scan_build(schedule, "exscan by recursive doubling", args, false);
}

/* If reductions take time, the formula is an estimate: early messages of low
   ranks delay other messages at a port a little. */
static double scan_cost(const baton__terms_t *t)
{
    return t->log * (baton__message(t, t->n) + baton__reduction(t, t->n));
}

static baton__works_t scan_work(const baton__terms_t *t)
{
    double each = t->log * t->n;
    return (baton__works_t){.most = {t->log, each, each},
                            .all = {t->log * t->p, t->p * each, t->p * each}};
}

/* A round has two reductions: of the sum that is sent on, and of the sum
   without this rank. The first round makes only the sum that is sent on, and
   the last round only the sum without this rank. */
static double exscan_cost(const baton__terms_t *t)
{
    return t->log * baton__message(t, t->n) +
           (2 * t->log - 2) * baton__reduction(t, t->n);
}

const baton_algorithm_t baton__scan_recursive_doubling_algorithm = {
    .collective = BATON_COLLECTIVE_SCAN,
    .name = "recursive_doubling",
    .build.scan = baton_add_scan,
    .ordered = true,
    .cost = scan_cost,
    .exact = baton__exact_free,
    .work = &(const baton__work_model_t){scan_work},
};

const baton_algorithm_t baton__exscan_recursive_doubling_algorithm = {
    .collective = BATON_COLLECTIVE_EXSCAN,
    .name = "recursive_doubling",
    .build.scan = baton_add_exscan,
    .ordered = true,
    .cost = exscan_cost,
    .exact = baton__exact_free,
    .work = &(const baton__work_model_t){scan_work},
};
