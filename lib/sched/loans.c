/* Loans; see loans.h.

   Walking the nodes in a topological order, each segment of a space knows which
   receive wrote it last. A read of bytes that are exactly those of one receive
   makes the loan; any other read of some of them spoils it. */
#include "sched/loans.h"

#include "base/alloc.h"
#include "sched/accesses.h"

#include <stdlib.h>

/* What is known of a node that receives. */
typedef struct candidate {
    bool spoiled;
    uint8_t operand;
    uint32_t reduce; /* or BATON__NO_NODE so far */
} candidate_t;

typedef struct finder {
    const baton_schedule_t *schedule;
    const baton__order_t *order;
    baton__accesses_t accesses;
    uint32_t *writers;       /* of each segment: a receive, or NO_NODE */
    candidate_t *candidates; /* by node */
} finder_t;

/* ---- calls ------------------------------------------------------------ */

static bool may_see_scratch(const baton__op_t *op)
{
    return (op->kind == BATON__CALL || op->kind == BATON__ASYNC ||
            op->kind == BATON__DEVICE_CALL) &&
           (op->flags & BATON__NO_SCRATCH) == 0;
}

/* Spoils all nodes that a call or async node comes behind: against the order,
   each tells its predecessors. */
static void spoil_seen(finder_t *f)
{
    const baton__order_t *order = f->order;
    for (uint32_t i = f->schedule->count; i-- > 0;) {
        uint32_t node = order->order[i];
        if (!f->candidates[node].spoiled &&
            !may_see_scratch(&f->schedule->ops[node])) {
            continue;
        }
        for (uint32_t e = order->first[node]; e < order->first[node + 1]; e++) {
            f->candidates[order->preds[e]].spoiled = true;
        }
    }
}

/* ---- reads and writes ------------------------------------------------- */

static bool has_edge(const finder_t *f, uint32_t from, uint32_t to)
{
    for (uint32_t e = f->order->first[to]; e < f->order->first[to + 1]; e++) {
        if (f->order->preds[e] == from) {
            return true;
        }
    }
    return false;
}

/* Whether the access is all that a reduce may do with what the receive wrote.
   The segments were all written by it last; so they are its view's if there are
   as many bytes. */
static bool borrows(const finder_t *f, const baton__access_t *access,
                    uint32_t receive)
{
    uint32_t node = f->order->order[access->position];
    const baton__op_t *op = &f->schedule->ops[node];
    const baton__op_t *from = &f->schedule->ops[receive];
    return op->kind == BATON__REDUCE && (op->flags & BATON__ON_DEVICE) == 0 &&
           op->bytes == from->bytes && op->length == from->length &&
           f->candidates[receive].reduce == BATON__NO_NODE &&
           has_edge(f, receive, node);
}

static void read(finder_t *f, const baton__access_t *access, size_t first,
                 size_t end)
{
    uint32_t writer = f->writers[first];
    bool same = writer != BATON__NO_NODE;
    for (size_t s = first; s < end; s++) {
        same = same && f->writers[s] == writer;
    }
    if (same && borrows(f, access, writer)) {
        f->candidates[writer].reduce = f->order->order[access->position];
        f->candidates[writer].operand = access->operand;
        return;
    }
    for (size_t s = first; s < end; s++) {
        if (f->writers[s] != BATON__NO_NODE) {
            f->candidates[f->writers[s]].spoiled = true;
        }
    }
}

static void visit(finder_t *f, const baton__access_t *access)
{
    size_t first = baton__accesses_find(&f->accesses, access->begin);
    size_t end = baton__accesses_find(&f->accesses, access->end);
    uint32_t node = f->order->order[access->position];
    if (!access->write) {
        read(f, access, first, end);
        return;
    }
    bool receives = f->schedule->ops[node].kind == BATON__RECV;
    for (size_t s = first; s < end; s++) {
        f->writers[s] = receives ? node : BATON__NO_NODE;
    }
}

static void visit_all(finder_t *f)
{
    const baton__accesses_t *accesses = &f->accesses;
    size_t end = 0;
    for (size_t i = 0; i < accesses->count; i = end) {
        end = baton__accesses_cut(&f->accesses, i);
        if (!f->schedule->buffers[accesses->all[i].buffer].scratch) {
            continue; /* the space of a scratch buffer is its own */
        }
        for (size_t s = 0; s < accesses->cut_count; s++) {
            f->writers[s] = BATON__NO_NODE;
        }
        for (size_t k = i; k < end; k++) {
            visit(f, &accesses->all[k]);
        }
    }
}

/* ---- result ----------------------------------------------------------- */

static int compare_loans(const void *a, const void *b)
{
    const baton__loan_t *left = a;
    const baton__loan_t *right = b;
    return left->reduce != right->reduce
               ? (left->reduce < right->reduce ? -1 : 1)
               : (int)left->operand - (int)right->operand;
}

/* Lists the candidates that are loans; with out == NULL it only counts. */
static uint32_t list(const finder_t *f, baton__loan_t *out)
{
    uint32_t count = 0;
    for (uint32_t node = 0; node < f->schedule->count; node++) {
        const candidate_t *candidate = &f->candidates[node];
        if (candidate->spoiled || candidate->reduce == BATON__NO_NODE) {
            continue;
        }
        if (out != NULL) {
            out[count] = (baton__loan_t){.receive = node,
                                         .reduce = candidate->reduce,
                                         .operand = candidate->operand};
        }
        count++;
    }
    return count;
}

static baton__loan_t *find(finder_t *f, uint32_t *count_out)
{
    for (uint32_t node = 0; node < f->schedule->count; node++) {
        f->candidates[node].reduce = BATON__NO_NODE;
    }
    spoil_seen(f);
    visit_all(f);
    uint32_t count = list(f, NULL);
    baton__loan_t *loans = baton__alloc(count, sizeof *loans);
    if (loans != NULL && count > 0) {
        (void)list(f, loans);
        qsort(loans, count, sizeof *loans, compare_loans);
    }
    *count_out = count;
    return loans;
}

baton__loan_t *baton__loans_find(const baton_schedule_t *schedule,
                                 const baton__order_t *order,
                                 uint32_t *count_out)
{
    finder_t f = {.schedule = schedule, .order = order};
    bool enough = baton__accesses_init(&f.accesses, schedule, order);
    f.writers = baton__alloc(2 * f.accesses.count, sizeof *f.writers);
    f.candidates = baton__alloc(schedule->count, sizeof *f.candidates);
    enough = enough && f.writers != NULL && f.candidates != NULL;
    baton__loan_t *loans = enough ? find(&f, count_out) : NULL;
    baton__free(f.candidates);
    baton__free(f.writers);
    baton__accesses_fini(&f.accesses);
    return loans;
}

void baton__loans_enter(baton_schedule_t *schedule)
{
    const baton__plan_t *plan = &schedule->plan;
    for (uint32_t i = 0; i < plan->loan_count; i++) {
        const baton__loan_t *loan = &plan->loans[i];
        schedule->ops[loan->receive].message.loan = i + 1;
        schedule->ops[loan->reduce].flags |= BATON__BORROWS;
    }
}
