/* The properties of every collective that is partial, sparse, or both. In this
   suite the rows are collectives (support/collective.h), and the columns are
   properties.

   There are thousands of random trials with faults. The ranks, options and
   network vary, and so do the ranks that are late or slow, or that fail. In
   every trial each rank gets each result, in order, with the same bits; no
   contribution is lost; a step that fails leaves the state of before; and after
   a recovery all ranks go on. Gradients are integers, so sums are exact, and
   results of partial all-reduces show which contributions they contain
   (support/conserve.h). A trial that fails is named. BATON_SEED repeats all of
   them. Further tests of each row count allocations in steps, create without
   memory, and use it in wrong ways.

   Most trials are simulated. Rows that work on devices are also tried on ranks
   with emulated devices, engines and threads of their own. */
#include "base/alloc.h"
#include "support/conserve.h"
#include "support/device_cluster.h"
#include "support/sanitized.h"
#include "support/sim.h"

#include <sched.h>

enum {
    TRIALS = SUPPORT_REPEAT(1500), /* number of trials of each row */
    DEVICE_TRIALS = SUPPORT_SANITIZED ? 30 : 60,
    MOST_RANKS = 33,
    MOST_COUNT = 48,
    MOST_STEPS = 12,
    MOST_EXTRA = 20, /* contributions between a step's start and its end */
    /* The phases of a trial: one before a failure, and one after the
       recovery. */
    PHASES = 2,
};

typedef enum fault { NO_FAULT, FAIL_SEND, KILL } fault_t;

/* The kinds of gradients of sparse steps. All elements are integers. */
typedef enum kind {
    ANY,
    POSITIVE, /* all are positive, so no sum is zero and is left out */
    ALL,      /* like POSITIVE, and k is count: nothing remains in a residual */
    /* Equal on all ranks: nothing remains of elements that are sent. */
    SAME,
    KINDS
} kind_t;

typedef struct trial trial_t;

typedef struct participant {
    trial_t *trial;
    support_collective_t own;
    double gradient[MOST_COUNT], before[MOST_COUNT], after[MOST_COUNT];
    double result[MOST_COUNT];
    bool ended[MOST_COUNT];
    bool running, failed, is_slow, is_silent;
    int steps; /* number of steps that were started in this phase */
    int extra;
    /* For each step: whether its contributions may be made in parts. */
    bool in_parts[MOST_STEPS + 2];
    /* By phase: number of results that the rank has got. */
    int reached[PHASES];
    conserve_account_t account;
} participant_t;

struct trial {
    support_random_t random;
    support_row_t row;
    baton_sparse_options_t options;
    baton_sim_t *sim;           /* one of `sim` and `devices` is NULL */
    support_cluster_t *devices; /* a cluster of ranks with devices */
    struct {
        void (*fn)(void *arg);
        participant_t *p;
    } due[MOST_RANKS];
    int due_count;
    int size, steps, phase;
    uint64_t pause_us; /* the longest time between two steps of a rank */
    kind_t kind;
    size_t k;     /* the k of this step */
    bool flushes; /* this step flushes the residual */
    bool leaves;  /* ranks may end without having asked for their last result */
    fault_t fault;
    int victim;
    double given[MOST_COUNT]; /* the sum of all ranks' gradients */
    double results[PHASES][MOST_STEPS + 1][MOST_COUNT];
    int seen[PHASES][MOST_STEPS + 1], in_time[PHASES][MOST_STEPS + 1];
    participant_t participants[MOST_RANKS];
};

static trial_t trial;
static bool on_devices; /* trials run on ranks with devices */
static char running[300];

/* Counts the outcomes of all trials, so that the suite fails if it has tested
   too little. */
static struct {
    int completed, failed, half_failed, killed, flushed, late;
} count;

#define holds(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fail_msg("%s: %s is not true (line %d): %s", running, #condition,  \
                     __LINE__, baton_error_message());                         \
        }                                                                      \
    } while (0)

static uint64_t below(uint64_t bound)
{
    return support_random_below(&trial.random, bound);
}

static bool once_in(uint64_t n)
{
    return below(n) == 0;
}

/* ---- the simulator, or devices ------------------------------------------ */

static baton_group_t *group_of(int rank)
{
    return trial.devices != NULL ? trial.devices->groups[rank]
                                 : baton_sim_group(trial.sim, rank);
}

/* Schedules a call of fn(p), later_us from now. In trials on devices, adds it
   to the functions that are due, which run in random order. */
static void at(double later_us, void (*fn)(void *arg), participant_t *p)
{
    if (trial.devices != NULL) {
        trial.due[trial.due_count].fn = fn;
        trial.due[trial.due_count++].p = p;
        return;
    }
    support_ok(
        baton_sim_at(trial.sim, baton_sim_now_us(trial.sim) + later_us, fn, p));
}

static baton_status_t run_due(void)
{
    if (trial.devices == NULL) {
        return baton_sim_run(trial.sim, -1);
    }
    while (trial.due_count > 0) {
        size_t i = below((uint64_t)trial.due_count);
        void (*fn)(void *arg) = trial.due[i].fn;
        participant_t *p = trial.due[i].p;
        trial.due[i] = trial.due[--trial.due_count];
        fn(p);
        (void)sched_yield();
    }
    return BATON_OK;
}

/* Makes the victim's n-th send fail or, on a device, its n-th piece of work. 0:
   nothing fails. */
static void fail_nth(uint64_t n)
{
    if (trial.devices == NULL) {
        support_ok(baton_sim_fail_send(trial.sim, trial.victim, n));
        return;
    }
    emulated_t *device = trial.devices->devices[trial.victim];
    emulated_fail_work(device, (int)n);
    if (n == 0) {
        emulated_repair(device);
    }
}

/* ---- a random trial ---------------------------------------------------- */

static baton_sim_options_t random_network(void)
{
    baton_sim_options_t options = support_sim_options(trial.size);
    options.seed = support_random_next(&trial.random);
    options.link = (baton_sim_link_t){.alpha_us = (double)below(8),
                                      .beta_ns = (double)below(8)};
    options.overhead_us = (double)below(3);
    options.multi_ported = once_in(3);
    options.introductions = once_in(4);
    options.sync_bytes = once_in(3) ? (size_t)16 << below(5) : 0;
    if (once_in(3)) {
        options.eager_bytes = options.sync_bytes > 0 ? options.sync_bytes / 2
                                                     : (size_t)16 << below(5);
    }
    if (once_in(2)) {
        options.lag = (baton_distribution_t){BATON_DISTRIBUTION_EXPONENTIAL,
                                             (double)(1 + below(50)), 0};
    }
    if (once_in(3)) {
        options.speed =
            (baton_distribution_t){BATON_DISTRIBUTION_LOGNORMAL, 1, 0.5};
    }
    return options;
}

static void open_devices(void)
{
    const emulated_options_t options = {.seed =
                                            support_random_next(&trial.random),
                                        .delay_us = 10,
                                        .workers = 1,
                                        .no_handles = once_in(2)};
    trial.devices =
        device_cluster_open(trial.size, SUPPORT_OWN_ENGINES, &options);
}

static int random_teams(void)
{
    int teams = 1 + (int)below((uint64_t)trial.size);
    while (trial.size % teams != 0) {
        teams--;
    }
    return teams;
}

static bool works_on_device(baton_sparse_algorithm_t algorithm)
{
    return algorithm != BATON_SPARSE_GTOPK &&
           algorithm != BATON_SPARSE_TOPKDSA &&
           algorithm != BATON_SPARSE_OKTOPK;
}

static void choose_algorithm(baton_sparse_options_t *o)
{
    static const baton_sparse_algorithm_t partial[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA, BATON_SPARSE_TOPKDSA,
        BATON_SPARSE_GTOPK};
    if (trial.row == SUPPORT_TENSORS) {
        o->algorithm = once_in(2) ? BATON_SPARSE_REDSYNC : BATON_SPARSE_SPARDL;
        return;
    }
    if (!once_in(3)) {
        o->algorithm = trial.row == SUPPORT_SPARSE
                           ? (baton_sparse_algorithm_t)below(BATON_SPARSE_COUNT)
                           : partial[below(4)];
        if (on_devices && !works_on_device(o->algorithm)) {
            o->algorithm = BATON_SPARSE_TOPKA;
        }
    }
    bool has_teams = o->algorithm == BATON_SPARSE_AUTO ||
                     o->algorithm == BATON_SPARSE_SPARDL;
    o->teams = 1;
    if (once_in(4)) {
        o->teams = BATON_SPARSE_TEAMS_AUTO;
    } else if (has_teams) {
        o->teams = random_teams();
    }
    o->exchange =
        once_in(2) && has_teams ? BATON_EXCHANGE_BSAG : BATON_EXCHANGE_AUTO;
    if (o->algorithm == BATON_SPARSE_REDSYNC) {
        o->redsync =
            trial.kind == ALL ? BATON_REDSYNC_EXACT : (baton_redsync_t)below(4);
    }
    o->warmup =
        trial.row == SUPPORT_SPARSE || trial.row == SUPPORT_PARTIAL_SPARSE
            ? once_in(4)
            : 0;
    o->in_place = trial.row == SUPPORT_SPARSE && !on_devices && once_in(3) &&
                  (has_teams || o->algorithm == BATON_SPARSE_DENSE);
}

static void choose_mode(baton_sparse_options_t *o)
{
    o->seed = below(100);
    o->mode = (baton_partial_mode_t)below(6);
    o->mode_ranks =
        o->mode >= BATON_QUORUM ? 1 + (uint32_t)below((uint64_t)trial.size) : 0;
    o->history = (uint32_t)below(6);
    o->max_staleness = once_in(3) ? 1 + (uint32_t)below(3) : 0;
    uint32_t history = o->history != 0 ? o->history : 4;
    o->max_staleness = o->max_staleness < history ? o->max_staleness : history;
    o->sync_every = once_in(4) ? 3 : 0;
}

static bool is_partial(void)
{
    return trial.row >= SUPPORT_PARTIAL;
}

static uint64_t random_size_bound(void)
{
    if (on_devices || !once_in(16)) {
        return on_devices ? 5 : 8;
    }
    return is_partial() ? CONSERVE_RANKS : MOST_RANKS;
}

static void open_trial(support_row_t row, uint64_t index)
{
    trial = (trial_t){.random = support_random(
                          support_seed(), index * SUPPORT_ROWS + (uint64_t)row),
                      .row = row};
    baton_sparse_options_t *o = &trial.options;
    trial.size = 1 + (int)below(random_size_bound());
    trial.kind = (kind_t)below(row == SUPPORT_SPARSE ? KINDS : 1);
    *o = support_collective_options(row);
    if (support_is_partial(row)) {
        o->count = CONSERVE_COUNT(trial.size) + below(8);
    } else {
        o->count = (row == SUPPORT_TENSORS ? 4 : 1) + below(MOST_COUNT - 4);
    }
    o->max_k = row == SUPPORT_SPARSE ? o->count : 0;
    o->k = 1 + below(o->count);
    trial.fault =
        is_partial() && !on_devices && once_in(3) ? FAIL_SEND : NO_FAULT;
    choose_algorithm(o);
    if (is_partial()) {
        choose_mode(o);
    }
    (void)snprintf(running, sizeof running,
                   "trial %llu of %s%s: %s on %d ranks, n %zu, k %zu, %d "
                   "teams, exchange %d, mode %d of %u, W %u, S %u",
                   (unsigned long long)index, support_row_names[row],
                   on_devices ? " on devices" : "",
                   baton_sparse_algorithm_name(o->algorithm), trial.size,
                   o->count, o->k, o->teams, (int)o->exchange, (int)o->mode,
                   o->mode_ranks, o->history, o->max_staleness);
    if (on_devices) {
        open_devices();
    } else {
        baton_sim_options_t network = random_network();
        trial.sim = support_sim_open(&network);
    }
    for (int r = 0; r < trial.size; r++) {
        trial.participants[r].trial = &trial;
        trial.participants[r].account =
            (conserve_account_t){.seed = o->seed,
                                 .rank = r,
                                 .size = trial.size,
                                 .sees_all = row == SUPPORT_PARTIAL};
        support_collective_t *own = &trial.participants[r].own;
        support_ok(
            on_devices
                ? support_collective_prepare_on(own, row, trial.devices, r, o)
                : support_collective_prepare(own, row, group_of(r), o));
    }
    support_ok(run_due()); /* the ranks compare their options here */
    for (int i = 0; i < 2 * trial.size; i++) {
        support_ok(support_collective_connect(
            &trial.participants[i % trial.size].own, i / trial.size));
    }
}

static void close_trial(void)
{
    for (int r = 0; r < trial.size; r++) {
        support_ok(support_collective_destroy(&trial.participants[r].own));
    }
    if (on_devices) {
        support_cluster_close(trial.devices);
    } else {
        support_ok(baton_sim_destroy(trial.sim));
    }
}

static void recover(void)
{
    if (on_devices) {
        support_cluster_recover(trial.devices);
    } else {
        support_sim_recover(trial.sim, trial.size);
    }
}

static void expect(const char *wrong)
{
    if (wrong != NULL) {
        fail_msg("%s: %s", running, wrong);
    }
}

/* Fills a participant's gradient for a step with random integers, of the kind
   that the trial asks for. */
static void fill(participant_t *p, int step)
{
    bool same = trial.kind == SAME && p != trial.participants;
    double lowest = trial.kind == ALL || trial.kind == POSITIVE ? 1 : -20;
    for (size_t i = 0; i < trial.options.count; i++) {
        p->gradient[i] = same ? trial.participants[0].gradient[i]
                              : lowest + (double)below(41);
    }
    if (support_is_partial(trial.row)) {
        conserve_give(&p->account, (uint64_t)step, p->gradient);
    }
}

/* ---- steps in which all ranks take part -------------------------------- */

static void start(void *arg)
{
    participant_t *p = arg;
    bool given;
    baton_status_t status =
        trial.flushes ? baton_sparse_flush(p->own.sparse)
                      : support_collective_start(&p->own, p->gradient, &given);
    p->running = status == BATON_OK || trial.row == SUPPORT_TENSORS;
    /* This rank may learn of a peer's failure before the start. */
    holds(status == BATON_OK || trial.fault != NO_FAULT);
}

static void kill_victim(void *arg)
{
    support_ok(baton_sim_kill(trial.sim, trial.victim));
}

static void begin_step(bool may_kill)
{
    uint64_t spread = once_in(2) ? 1 : 100, kind = below(may_kill ? 10 : 9);
    trial.k = trial.kind == ALL ? trial.options.count
                                : 1 + below(trial.options.count);
    trial.flushes = trial.row == SUPPORT_SPARSE && once_in(8);
    trial.fault = kind < 9 ? FAIL_SEND : KILL;
    trial.fault = kind < 6 ? NO_FAULT : trial.fault;
    trial.victim = (int)below((uint64_t)trial.size);
    for (int r = 0; r < trial.size; r++) {
        participant_t *p = &trial.participants[r];
        fill(p, 0);
        p->running = false;
        if (trial.row == SUPPORT_SPARSE) {
            support_ok(baton_sparse_set_k(p->own.sparse, trial.k));
        }
        support_collective_rest(&p->own, p->before);
        at((double)below(spread), start, p);
    }
    if (trial.fault == FAIL_SEND) {
        fail_nth(1 + below(on_devices ? 28 : 8));
    } else if (trial.fault == KILL) {
        at((double)below(200), kill_victim, trial.participants);
    }
}

/* Returns whether the step may have had an effect on the rank. A rank whose
   device fails may have completed the step, and only be refused the result. */
static bool is_open(int rank)
{
    bool denied = on_devices && trial.fault == FAIL_SEND &&
                  !trial.participants[rank].ended[0];
    return rank == trial.victim && (trial.fault == KILL || denied);
}

/* After a recovery, a rank whose step has failed gets the result that any other
   rank has got. Returns the number of ranks whose step has no result. */
static int end_failed(void)
{
    int failed = 0;
    recover();
    for (int r = 0; r < trial.size; r++) {
        participant_t *p = &trial.participants[r];
        bool all = true;
        for (size_t i = 0; i < trial.options.count; i++) {
            all = all && p->ended[i];
        }
        failed += !all && support_collective_wait(&p->own, p->result,
                                                  p->ended) != BATON_OK;
    }
    return failed;
}

/* Returns the number of living ranks on which the step has failed. A rank may
   learn only later that its device has failed to copy something, and nothing
   can be read from the device before a recovery. */
static int end_step(void)
{
    int failed = 0;
    baton_status_t status = run_due();
    holds(status == BATON_OK || trial.fault != NO_FAULT);
    if (trial.fault == FAIL_SEND && !on_devices && once_in(3)) {
        /* The recovery comes before any rank asks for the result. */
        fail_nth(0);
        recover();
    }
    for (int r = 0; r < trial.size; r++) {
        participant_t *p = &trial.participants[r];
        memset(p->ended, 0, sizeof p->ended);
        if (trial.fault == KILL && r == trial.victim) {
            continue;
        }
        status = p->running
                     ? support_collective_wait(&p->own, p->result, p->ended)
                     : BATON_ERR_FAILED;
        failed += status != BATON_OK;
        holds(status == BATON_OK || trial.fault != NO_FAULT);
        holds(trial.fault != NO_FAULT || p->own.got == NULL ||
              memcmp(p->own.got, p->result,
                     trial.options.count * sizeof *p->result) == 0);
    }
    fail_nth(0);
    if (failed > 0 && !on_devices && trial.fault == FAIL_SEND) {
        count.half_failed += failed < trial.size;
        failed = end_failed();
    } else if (on_devices && trial.fault == FAIL_SEND) {
        recover();
        support_collective_settle(&trial.participants[trial.victim].own);
    }
    for (int r = 0; r < trial.size; r++) {
        if (trial.fault != KILL || r != trial.victim) {
            if (!on_devices) {
                support_collective_settle(&trial.participants[r].own);
            }
            support_collective_rest(&trial.participants[r].own,
                                    trial.participants[r].after);
        }
    }
    return failed;
}

/* Checks an element exactly. Either the step has ended on all ranks, with one
   result, and nothing is lost; or it has failed, and everything is as
   before. */
static void check_element(size_t i)
{
    double in = 0, out = 0;
    bool everywhere = true, anywhere = false;
    for (int r = 0; r < trial.size; r++) {
        const participant_t *p = &trial.participants[r];
        if (is_open(r)) {
            everywhere = false;
            continue;
        }
        everywhere = everywhere && p->ended[i];
        anywhere = anywhere || p->ended[i];
        in += p->before[i] + (trial.flushes ? 0 : p->gradient[i]);
        out += p->after[i];
        holds(p->ended[i] || p->after[i] == p->before[i]);
        holds(!p->ended[i] || !trial.flushes || p->after[i] == 0);
    }
    holds(everywhere || !anywhere || on_devices || trial.fault == KILL);
    for (int r = 0; r < trial.size && everywhere; r++) {
        holds(trial.participants[r].result[i] ==
              trial.participants[0].result[i]);
    }
    holds(!everywhere || in == out + trial.participants[0].result[i]);
}

/* Each block has its share of the k entries, and at least one entry, if it has
   as many elements. A block may have fewer entries if sums are zero. */
static void check_quotas(const baton_sparse_result_t *result, int teams)
{
    size_t blocks = (size_t)(trial.size / teams), begin = 0, at = 0;
    for (size_t b = 0; b < blocks; b++) {
        size_t length = trial.options.count / blocks +
                        (b < trial.options.count % blocks ? 1 : 0);
        size_t quota = trial.k / blocks + (b < trial.k % blocks ? 1 : 0);
        size_t first = at;
        quota = quota > 0 ? quota : 1;
        quota = quota < length ? quota : length;
        begin += length;
        while (at < result->count && result->indices[at] < begin) {
            at++;
        }
        holds(at - first <= quota);
        holds(at - first == quota || teams > 1 || trial.kind == ANY ||
              trial.kind == SAME);
    }
    holds(at == result->count);
}

static void check_statistics(const participant_t *p, bool dense)
{
    const baton_sparse_options_t *o = &trial.options;
    baton_sparse_stats_t stats;
    support_ok(baton_sparse_stats(p->own.sparse, &stats));
    holds(stats.nnz == p->own.entries.count);
    holds((stats.algorithm == BATON_SPARSE_DENSE) == dense);
    holds(!trial.flushes || dense);
    holds(o->algorithm == BATON_SPARSE_AUTO || dense ||
          (stats.algorithm == o->algorithm && stats.steps > o->warmup));
    holds(!dense || trial.flushes || stats.steps <= o->warmup ||
          o->algorithm == BATON_SPARSE_AUTO ||
          o->algorithm == BATON_SPARSE_DENSE);
    if (stats.algorithm == BATON_SPARSE_SPARDL) {
        holds(trial.fault != NO_FAULT ||
              (stats.messages_sent == stats.rounds &&
               stats.messages_received == stats.rounds));
        holds(stats.block_selections == (uint32_t)(trial.size / stats.teams));
        holds(stats.select_us > 0);
        check_quotas(&p->own.entries, stats.teams);
    }
}

/* Returns true if entries that are dropped on their way go to some rank's
   residual. Then the elements outside of the result are conserved bit by
   bit. */
static bool is_global(baton_sparse_algorithm_t algorithm)
{
    return algorithm == BATON_SPARSE_SPARDL || algorithm == BATON_SPARSE_GTOPK;
}

/* Checks that the entries are equal on all ranks and in ascending order, and
   that as much remains as the kind of gradient says. More may remain if teams
   share entries (B-SAG), or if a threshold is learned (Ok-Topk). */
static void check_entries(void)
{
    const baton_sparse_result_t *result = &trial.participants[0].own.entries;
    const bool dense = result->indices == NULL;
    bool sent[MOST_COUNT] = {false};
    baton_sparse_stats_t stats;
    support_ok(baton_sparse_stats(trial.participants[0].own.sparse, &stats));
    for (size_t i = 0; i < result->count; i++) {
        holds(dense || i == 0 || result->indices[i - 1] < result->indices[i]);
        sent[dense ? i : result->indices[i]] = true;
    }
    bool shares = stats.teams > 1 && (stats.teams & (stats.teams - 1)) != 0;
    shares = shares || trial.options.exchange == BATON_EXCHANGE_BSAG;
    bool exact = is_global(stats.algorithm) && !shares;
    for (int r = 0; r < trial.size; r++) {
        const participant_t *p = &trial.participants[r];
        const baton_sparse_result_t *own = &p->own.entries;
        check_statistics(p, dense);
        holds(own->count == result->count);
        holds(dense || own->count == 0 ||
              memcmp(own->indices, result->indices,
                     own->count * sizeof *own->indices) == 0);
        for (size_t i = 0; i < trial.options.count && !trial.flushes; i++) {
            holds(!dense || p->after[i] == 0);
            holds(!is_global(stats.algorithm) || sent[i] ||
                  p->after[i] == p->before[i] + p->gradient[i]);
            holds(trial.kind != SAME || !exact || !sent[i] || p->after[i] == 0);
            holds(trial.kind != ALL || shares || p->after[i] == 0 ||
                  stats.algorithm == BATON_SPARSE_OKTOPK);
        }
    }
}

static void run_together(support_row_t row, uint64_t index)
{
    open_trial(row, index);
    uint64_t steps = 1 + below(5);
    if (trial.options.algorithm == BATON_SPARSE_OKTOPK && once_in(8)) {
        steps = 70; /* the algorithm has two periods, of 32 and 64 steps */
    }
    for (uint64_t step = 0; step < steps; step++) {
        begin_step(steps < 70 && !on_devices);
        int failed = end_step();
        for (size_t i = 0; i < trial.options.count; i++) {
            check_element(i);
        }
        if (trial.fault == KILL) {
            count.killed++;
            break;
        }
        if (row == SUPPORT_SPARSE && failed == 0) {
            check_entries();
        }
        count.completed += failed == 0;
        count.flushed += failed == 0 && trial.flushes;
        count.failed += failed > 0;
        if (failed > 0) {
            trial.kind = trial.kind == SAME ? ANY : trial.kind;
        }
    }
    close_trial();
}

/* ---- steps that do not wait for every rank ----------------------------- */

static void count_given(participant_t *p)
{
    for (size_t i = 0; i < trial.options.count; i++) {
        trial.given[i] += p->gradient[i];
    }
    /* The gradient's memory belongs to the caller again. */
    memset(p->gradient, 0xff, sizeof p->gradient);
}

/* Contributes once more to the next step that this rank starts. */
static void give_more(participant_t *p)
{
    if (p->extra < MOST_EXTRA && support_is_partial(trial.row) &&
        /* Outside of the stream, this contribution would overtake the stream's
           contribution. */
        !p->own.in_stream) {
        p->extra++;
        p->in_parts[p->steps + 1] = true;
        fill(p, p->steps + 1);
        support_ok(support_collective_contribute(&p->own, p->gradient));
        count_given(p);
    }
}

static void give(participant_t *p)
{
    bool given;
    if (once_in(8)) {
        give_more(p);
    }
    fill(p, p->steps + 1);
    p->failed =
        support_collective_start(&p->own, p->gradient, &given) != BATON_OK;
    p->running = !p->failed;
    p->steps += p->running;
    holds(!p->failed || trial.fault == FAIL_SEND);
    if (given) {
        count_given(p);
    }
}

/* Checks that no rank is farther behind an epoch that has ended than its
   options allow. */
static void check_bounds(int epoch)
{
    const baton_sparse_options_t *o = &trial.options;
    for (int r = 0; r < trial.size; r++) {
        const participant_t *p = &trial.participants[r];
        /* A stream may get a result before this thread learns of it. */
        int got = p->reached[trial.phase] + p->own.in_stream;
        holds(trial.row == SUPPORT_PARTIAL_LATEST ||
              epoch <= got + (int)(o->history != 0 ? o->history : 4));
        holds(o->max_staleness == 0 ||
              epoch <= p->steps + (int)o->max_staleness);
    }
}

/* Checks the bounds that partial.h states. */
static void check_age(uint64_t age)
{
    const baton_sparse_options_t *o = &trial.options;
    uint32_t history = o->history != 0 ? o->history : 4;
    holds(trial.row == SUPPORT_PARTIAL_LATEST || age <= history);
    holds(o->max_staleness == 0 || age <= o->max_staleness);
    holds(o->mode != BATON_MAJORITY || age < 2 * (uint64_t)trial.size);
    holds(o->mode != BATON_FULL || age == 0);
}

/* Keeps the first result of an epoch that any rank gets, and compares the
   others with it. */
static void keep_result(participant_t *p, int epoch)
{
    const size_t bytes = trial.options.count * sizeof(double);
    double *kept = trial.results[trial.phase][epoch];
    p->reached[trial.phase] = epoch;
    if (trial.seen[trial.phase][epoch]++ == 0) {
        memcpy(kept, p->result, bytes);
    }
    holds(memcmp(kept, p->result, bytes) == 0);
}

static void take(participant_t *p)
{
    p->failed = support_collective_wait(&p->own, p->result, NULL) != BATON_OK;
    p->running = false;
    holds(!p->failed || trial.fault == FAIL_SEND);
    if (p->failed) {
        return;
    }
    int epoch = p->steps;
    if (support_is_partial(trial.row)) {
        expect(conserve_check(&p->account, (uint64_t)p->steps, &p->own,
                              p->result));
        check_age(p->own.seen.staleness);
        epoch = (int)p->own.seen.epoch;
        holds(epoch <= MOST_STEPS);
    }
    check_bounds(epoch);
    trial.in_time[trial.phase][epoch] += p->own.included || p->in_parts[epoch];
    count.late += !p->own.included;
    keep_result(p, epoch);
}

/* Starts a step, or checks whether it has ended, and schedules its own next
   call. */
static void act(void *arg)
{
    participant_t *p = arg;
    double later_us = 1;
    bool done = false;
    if (p->running && once_in(16)) {
        give_more(p);
    }
    if (!p->running) {
        give(p);
    } else if (trial.leaves && p->is_silent && p->steps == trial.steps) {
        return; /* the rank asks again after a recovery */
    } else if (support_collective_test(&p->own, &done) != BATON_OK) {
        p->failed = true;
        holds(trial.fault == FAIL_SEND);
    } else if (done) {
        take(p);
        later_us = (double)below(trial.pause_us) * (p->is_slow ? 20 : 1);
    }
    if (!p->failed && (p->running || p->steps < trial.steps)) {
        at(later_us, act, p);
    }
}

static void run_phase(int steps)
{
    trial.steps = steps;
    for (int r = 0; r < trial.size; r++) {
        trial.participants[r].steps = 0;
        trial.participants[r].failed = false;
        trial.participants[r].running = false;
        trial.participants[r].is_slow = once_in(8);
        trial.participants[r].is_silent = once_in(2);
        at((double)below(50), act, &trial.participants[r]);
    }
    (void)!run_due();
}

/* A rank that the failure has not reached gets the results of the epochs that
   have ended without it, until the failure reaches it. */
static void meet_failure(void)
{
    for (int r = 0; r < trial.size; r++) {
        participant_t *p = &trial.participants[r];
        while (!p->failed) {
            bool done = false;
            holds(p->steps < MOST_STEPS);
            if (!p->running) {
                give(p);
            }
            (void)!run_due();
            if (!p->failed &&
                support_collective_test(&p->own, &done) == BATON_OK && done) {
                take(p);
            } else {
                p->failed = true;
            }
        }
    }
}

/* Recovers when all steps have ended, and some ranks have not asked for their
   last result. */
static void recover_unasked(void)
{
    recover();
    for (int r = 0; r < trial.size; r++) {
        participant_t *p = &trial.participants[r];
        if (p->running) {
            take(p);
        }
    }
}

/* Returns the least number of ranks that are in time for an epoch. */
static int least_in_time(int epoch)
{
    const baton_sparse_options_t *o = &trial.options;
    bool full = o->sync_every != 0 && epoch % (int)o->sync_every == 0;
    if (full || o->mode == BATON_FULL) {
        return trial.size;
    }
    return o->mode == BATON_QUORUM || o->mode == BATON_CANDIDATES_ALL
               ? (int)o->mode_ranks
               : 1;
}

/* After a recovery each rank gets the results of all epochs that any rank has
   completed. */
static void get_missed(void)
{
    bool differ = false;
    for (int r = 1; r < trial.size; r++) {
        differ = differ || trial.participants[r].reached[0] !=
                               trial.participants[0].reached[0];
    }
    count.half_failed += differ;
    for (int r = 0; r < trial.size && trial.row == SUPPORT_PARTIAL_SPARSE;
         r++) {
        participant_t *p = &trial.participants[r];
        while (support_collective_wait(&p->own, p->result, NULL) == BATON_OK) {
            keep_result(p, p->reached[0] + 1);
        }
        holds(p->reached[0] == trial.participants[0].reached[0]);
    }
}

/* The results that any rank has got, and the pending contributions, show which
   contributions are in results. Compares that with the accounts of the
   ranks. */
static void compare_accounts(void)
{
    for (int i = 0; i < trial.size * trial.size; i++) {
        uint64_t *taken =
            &trial.participants[i / trial.size].account.taken[i % trial.size];
        for (int r = 0; r < trial.size; r++) {
            uint64_t other =
                trial.participants[r].account.taken[i % trial.size];
            *taken = *taken > other ? *taken : other;
        }
    }
}

static void check_pending(void)
{
    compare_accounts();
    for (int r = 0; r < trial.size; r++) {
        participant_t *p = &trial.participants[r];
        support_collective_rest(&p->own, p->after);
        expect(conserve_check_pending(&p->account, p->after));
        conserve_recover(&p->account);
    }
    compare_accounts();
}

static void check_conserved(void)
{
    double rest[MOST_COUNT];
    memcpy(rest, trial.given, sizeof rest);
    for (int r = 0; r < trial.size; r++) {
        participant_t *p = &trial.participants[r];
        support_collective_rest(&p->own, p->after);
        for (size_t i = 0; i < trial.options.count; i++) {
            rest[i] -= p->after[i];
        }
    }
    for (size_t i = 0; i < trial.options.count; i++) {
        for (int epoch = 0; epoch < PHASES * (MOST_STEPS + 1); epoch++) {
            rest[i] -= trial.results[epoch / (MOST_STEPS + 1)]
                                    [epoch % (MOST_STEPS + 1)][i];
        }
        holds(rest[i] == 0);
    }
}

static void run_apart(support_row_t row, uint64_t index)
{
    open_trial(row, index);
    const bool fails = trial.fault == FAIL_SEND;
    bool failed = false;
    int steps = 1 + (int)below(MOST_STEPS - 5);
    trial.pause_us = 1 + below(60);
    trial.victim = (int)below((uint64_t)trial.size);
    if (fails) {
        fail_nth(1 + below(30));
    }
    trial.leaves = !fails && row == SUPPORT_PARTIAL_SPARSE && once_in(3);
    run_phase(steps);
    for (int r = 0; r < trial.size; r++) {
        failed = failed || trial.participants[r].failed;
    }
    fail_nth(0);
    if (failed) {
        if (support_is_partial(row) || once_in(2)) {
            meet_failure();
        }
        recover();
        get_missed();
        if (support_is_partial(row)) {
            check_pending();
        }
    } else if (trial.leaves) {
        recover_unasked();
    }
    const bool latest = row == SUPPORT_PARTIAL_LATEST;
    for (int epoch = 1; epoch <= steps && !failed && !latest; epoch++) {
        holds(trial.seen[0][epoch] == trial.size);
        holds(trial.in_time[0][epoch] >= least_in_time(epoch));
    }
    if (failed || trial.leaves) {
        trial.leaves = false;
        trial.phase = 1;
        trial.fault = NO_FAULT;
        run_phase(1 + (int)below(8));
    }
    for (int epoch = 1; epoch <= trial.steps && !latest; epoch++) {
        holds(trial.seen[trial.phase][epoch] == trial.size);
    }
    if (support_is_partial(row)) {
        check_pending();
    }
    if (!latest) {
        check_conserved();
    }
    count.failed += failed;
    count.completed += !failed;
    close_trial();
}

static void try_trials(support_row_t row, uint64_t trials,
                       void (*run)(support_row_t row, uint64_t index))
{
    memset(&count, 0, sizeof count);
    for (uint64_t index = 0; index < trials; index++) {
        run(row, index);
    }
    print_message("%d completed, %d failed (%d on some ranks), %d flushes, %d "
                  "ranks killed, %d late\n",
                  count.completed, count.failed, count.half_failed,
                  count.flushed, count.killed, count.late);
    assert_true(count.completed > (int)trials / 4);
}

static void try_row(support_row_t row,
                    void (*run)(support_row_t row, uint64_t index))
{
    try_trials(row, TRIALS, run);
    /* About a tenth of the trials fail. */
    assert_true(count.failed > TRIALS / 50);
}

TEST(test_sparse_trials)
{
    try_row(SUPPORT_SPARSE, run_together);
    assert_true(count.half_failed >= TRIALS / 1000);
    assert_true(count.flushed > TRIALS / 10 && count.killed > TRIALS / 20);
}

TEST(test_tensors_trials)
{
    try_row(SUPPORT_TENSORS, run_together);
    assert_true(count.half_failed >= TRIALS / 1000 &&
                count.killed > TRIALS / 20);
}

TEST(test_partial_trials)
{
    try_row(SUPPORT_PARTIAL, run_apart);
    assert_true(count.late > TRIALS);
    try_row(SUPPORT_PARTIAL_LATEST, run_apart);
    assert_true(count.late > TRIALS);
}

TEST(test_partial_sparse_trials)
{
    try_row(SUPPORT_PARTIAL_SPARSE, run_apart);
    assert_true(count.late > TRIALS && count.half_failed >= TRIALS / 1000);
}

TEST(test_device_trials)
{
    on_devices = true;
    try_trials(SUPPORT_SPARSE, DEVICE_TRIALS, run_together);
    assert_true(count.failed > 0 && count.flushed > 0);
    for (int row = SUPPORT_PARTIAL; row <= SUPPORT_PARTIAL_LATEST; row++) {
        try_trials((support_row_t)row, DEVICE_TRIALS, run_apart);
        assert_true(count.late > DEVICE_TRIALS / 4);
    }
    on_devices = false;
}

/* ---- memory ------------------------------------------------------------ */

/* Some ranks, with or without devices, and a collective on them. */
typedef struct ranks {
    support_cluster_t *cluster;
    support_collective_t all[4];
} ranks_t;

static void open_ranks(ranks_t *ranks, int size, bool devices)
{
    const emulated_options_t options = {.workers = 1, .delay_us = 10};
    *ranks =
        (ranks_t){.cluster = devices ? device_cluster_open(
                                           size, SUPPORT_OWN_ENGINES, &options)
                                     : support_cluster_manual(size)};
}

/* Returns the first error. */
static baton_status_t create(ranks_t *ranks, support_row_t row,
                             const baton_sparse_options_t *options)
{
    const int size = ranks->cluster->size;
    baton_status_t status = BATON_OK;
    for (int i = 0; i < 3 * size && status == BATON_OK; i++) {
        status = i < size ? support_collective_prepare_on(
                                &ranks->all[i], row, ranks->cluster, i, options)
                          : support_collective_connect(&ranks->all[i % size],
                                                       i / size - 1);
    }
    return status;
}

static void destroy(ranks_t *ranks)
{
    for (int r = 0; r < ranks->cluster->size; r++) {
        support_ok(support_collective_destroy(&ranks->all[r]));
    }
}

static void run_steps(ranks_t *ranks, int steps)
{
    const int size = ranks->cluster->size;
    double vector[64], result[64];
    for (int step = 0; step < steps; step++) {
        for (int r = 0; r < size; r++) {
            bool given;
            for (int i = 0; i < 64; i++) {
                vector[i] = (i * 37 + (r + step) * 11) % 101 - 50;
            }
            support_ok(support_collective_start(&ranks->all[(r + step) % size],
                                                vector, &given));
        }
        for (int r = 0; r < size; r++) {
            support_ok(support_collective_wait(&ranks->all[r], result, NULL));
        }
    }
}

static void allocates_nothing(support_row_t row,
                              const baton_sparse_options_t *options,
                              bool devices)
{
    ranks_t ranks;
    emulated_counters_t before = {0}, after = {0};
    open_ranks(&ranks, 4, devices);
    support_ok(create(&ranks, row, options));
    run_steps(&ranks, 10);
    int64_t allocated = baton__alloc_count();
    if (devices) {
        before = emulated_counters(ranks.cluster->devices[0]);
    }
    run_steps(&ranks, 10);
    assert_int_equal(baton__alloc_count(), allocated);
    if (devices) {
        after = emulated_counters(ranks.cluster->devices[0]);
    }
    assert_int_equal(after.allocated, before.allocated);
    assert_int_equal(after.events, before.events);
    destroy(&ranks);
    support_cluster_close(ranks.cluster);
}

/* If any allocation of a create fails, in main memory or on a device, nothing
   remains allocated. */
static void needs_memory_of(ranks_t *ranks, support_row_t row,
                            const baton_sparse_options_t *options,
                            emulated_t *device)
{
    baton_status_t status = BATON_ERR_NO_MEMORY;
    emulated_counters_t before = {0}, after = {0};
    int nth = 0;
    while (status != BATON_OK) {
        nth++;
        before = device != NULL ? emulated_counters(device) : before;
        ranks->all[0] = (support_collective_t){.row = row};
        if (device != NULL) {
            emulated_fail_allocate(device, nth);
        } else {
            baton__alloc_fail_nth(nth);
        }
        status = create(ranks, row, options);
        baton__alloc_fail_nth(0);
        if (device != NULL) {
            emulated_fail_allocate(device, 0);
        }
        if (status != BATON_OK) {
            support_expect(status, BATON_ERR_NO_MEMORY);
        }
        destroy(ranks);
        after = device != NULL ? emulated_counters(device) : after;
        assert_int_equal(after.allocated, before.allocated);
        assert_int_equal(after.events, before.events);
    }
    assert_true(nth > (device != NULL ? 1 : 10));
}

static void needs_memory(support_row_t row,
                         const baton_sparse_options_t *options, bool devices)
{
    ranks_t ranks;
    open_ranks(&ranks, 1, devices);
    needs_memory_of(&ranks, row, options, NULL);
    if (devices) {
        needs_memory_of(&ranks, row, options, ranks.cluster->devices[0]);
    }
    support_cluster_close(ranks.cluster);
}

typedef void check_fn(support_row_t row, const baton_sparse_options_t *options,
                      bool devices);

/* Runs the check with every row and every algorithm of the row, without and
   with devices. */
static void for_each(check_fn *check)
{
    for (int i = 0; i < 2 * SUPPORT_ROWS; i++) {
        const support_row_t row = (support_row_t)(i / 2);
        const bool devices = i % 2 != 0;
        baton_sparse_options_t options = support_collective_options(row);
        if (devices && !support_has_device(row)) {
            continue;
        }
        check(row, &options, devices);
        for (int k = BATON_SPARSE_TOPKA;
             k < BATON_SPARSE_COUNT && row == SUPPORT_SPARSE; k++) {
            options.algorithm = (baton_sparse_algorithm_t)k;
            options.momentum = 0.5;
            options.clip = 1;
            options.quantise = k == BATON_SPARSE_REDSYNC;
            if (!devices || works_on_device(options.algorithm)) {
                check(row, &options, devices);
            }
        }
    }
}

TEST(test_steps_do_not_allocate)
{
    for_each(allocates_nothing);
}

TEST(test_create_without_memory_fails)
{
    for_each(needs_memory);
}

/* ---- wrong use --------------------------------------------------------- */

static void refuses_wrong_use(support_row_t row,
                              const baton_sparse_options_t *options,
                              bool devices)
{
    ranks_t ranks;
    support_collective_t *first = &ranks.all[0], none = {.row = row};
    double vector[64] = {1};
    bool given, done;
    open_ranks(&ranks, 2, devices);
    support_ok(create(&ranks, row, options));
    support_expect(support_collective_start(&none, vector, &given),
                   BATON_ERR_INVALID);
    support_expect(support_collective_test(&none, &done), BATON_ERR_INVALID);
    support_expect(support_collective_wait(&none, vector, NULL),
                   BATON_ERR_INVALID);
    support_ok(support_collective_destroy(&none));
    support_expect(support_collective_start(first, NULL, &given),
                   BATON_ERR_INVALID);
    support_expect(support_collective_wait(first, vector, NULL),
                   BATON_ERR_STATE);
    if (devices) { /* `vector` is in main memory */
        support_expect(row == SUPPORT_SPARSE
                           ? baton_sparse_start(first->sparse, vector)
                           : baton_partial_contribute(first->partial, vector),
                       BATON_ERR_INVALID);
    }
    run_steps(&ranks, 2);
    destroy(&ranks);
    support_cluster_close(ranks.cluster);
}

TEST(test_wrong_use_is_refused)
{
    for_each(refuses_wrong_use);
}
