/* Ranks that die at any moment, between calls or after any message. Partials
   with on_loss BATON_ON_LOSS_CONTINUE go on by themselves, and sparse
   all-reduces go on in a group that was shrunk. All ranks take turns in one
   thread. Every contribution has a bit of its own in its rank's element, so
   each result tells what is in it. Over MPI: mpi/mpi_survivors.c. */
#include "base/alloc.h"
#include "coll/partial/parts.h"
#include "coll/sparse/core/core.h"
#include "progress/driving/engine.h"
#include "support/cluster.h"
#include "transport/group.h"

#include <baton/coll.h>
#include <baton/partial.h>
#include <baton/tensors.h>
#include <pthread.h>
#include <sched.h>

enum { MOST = 8, STEPS = 24, TRIALS = 250, TURNS = 400000, LONG = 31 };
/* So few elements that messages are copied at once. */
enum { SPARSE = 20, MOST_K = 5 };

typedef struct outcome {
    bool known;
    uint32_t active, living;
    uint64_t bits[MOST];
} outcome_t;

typedef struct rank {
    baton_engine_t *engine;
    baton_group_t *group;
    /* The group's transport, but it sends nothing once the rank is dead. */
    baton_transport_t port;
    const baton_transport_t *given;
    baton_partial_t *partial;
    _Atomic bool dead;
    bool idle;         /* the rank makes no calls but engine steps */
    _Atomic bool left; /* the rank has destroyed its partial */
    /* Number of messages until the rank dies; -1: it lives. */
    _Atomic int messages;
    uint64_t step;
    bool started;
    /* By rank: the contributions that were in results, as bits. */
    uint64_t seen[MOST];
    uint64_t given_bits, living;
    outcome_t outcomes[STEPS + 1]; /* by epoch: its outcome */

    /* For sparse all-reduces, by themselves or in a set of tensors. */
    baton_sparse_t *sparse;
    baton_tensors_t *set;
    /* The groups that were made, the latest one last. */
    baton_group_t *groups[MOST];
    int shrunk;
    enum { WORKS, SHRINKS, MOVES, CATCHES_UP } at;
    bool has_gradient;
    double gradient[SPARSE], given_in_all[SPARSE], results[SPARSE];
    double residual[SPARSE]; /* the residual after the last result */
    double velocity[SPARSE]; /* the velocity that is expected */
    uint64_t result_count, hash;
} rank_t;

static rank_t ranks[MOST];
static baton_inproc_t *medium;
static baton_partial_options_t options;
/* Numbers of elements of the tensors, if there are any. */
static size_t counts[2];
static int size;
static baton_op_t own_sum;
static support_random_t dice;
static uint64_t vector[LONG];

static int below(int n)
{
    return (int)support_random_below(&dice, (uint64_t)n);
}

/* ---- ranks that die ------------------------------------------------------ */

static rank_t *rank_of(const void *endpoint)
{
    int r = 0;
    while (ranks[r].group == NULL || ranks[r].group->endpoint != endpoint) {
        r++;
    }
    return &ranks[r];
}

/* Returns false if the rank is dead. The rank dies after its last message. */
static bool may_send(rank_t *rank)
{
    bool may = !rank->dead;
    rank->dead |= rank->messages == 0;
    rank->messages -= rank->messages > 0;
    return may;
}

static baton_status_t notify(void *endpoint, int peer,
                             const baton_header_t *header, const void *data,
                             size_t bytes)
{
    rank_t *rank = rank_of(endpoint);
    return may_send(rank)
               ? rank->given->notify(endpoint, peer, header, data, bytes)
               : BATON_AGAIN;
}

static baton_status_t send(void *endpoint, baton_token_t token, int peer,
                           const baton_header_t *header, const void *data,
                           size_t bytes)
{
    rank_t *rank = rank_of(endpoint);
    return may_send(rank)
               ? rank->given->send(endpoint, token, peer, header, data, bytes)
               : BATON_ERR_TRANSPORT;
}

static void learn(const rank_t *rank, int victim)
{
    rank->given->lose(rank->group->endpoint, victim, BATON_ERR_TRANSPORT,
                      "it is dead");
}

/* Prevents the progress thread from doing anything until leave(). */
static void enter(const rank_t *rank)
{
    rank->engine->driver->enter(rank->engine);
}

static void leave(const rank_t *rank)
{
    rank->engine->driver->leave(rank->engine);
}

static void learn_outside(const rank_t *rank, int victim)
{
    enter(rank);
    learn(rank, victim);
    leave(rank);
}

/* Reports to the rank that all other ranks are dead or, if `dead_alone` is
   true, those that are. */
static void learn_all(const rank_t *rank, bool dead_alone)
{
    for (int peer = 0; peer < size; peer++) {
        if (&ranks[peer] != rank && (ranks[peer].dead || !dead_alone)) {
            learn(rank, peer);
        }
    }
}

static void die(rank_t *rank)
{
    enter(rank);
    rank->dead = true;
    leave(rank);
}

/* Kills a rank, and reports that to the others. */
static void lose(rank_t *victim)
{
    die(victim);
    for (int r = 0; r < size; r++) {
        if (&ranks[r] != victim) {
            learn_outside(&ranks[r], (int)(victim - ranks));
        }
    }
}

static void lose_last(void)
{
    lose(&ranks[size - 1]);
}

/* Lets a dead rank end, by reporting to it that all others are dead. */
static void wake(rank_t *rank)
{
    enter(rank);
    learn_all(rank, false);
    rank->dead = false;
    rank->messages = -1;
    leave(rank);
}

static void open_groups(int count, baton_progress_t progress)
{
    baton_engine_options_t own = BATON_ENGINE_OPTIONS;
    own.progress = progress;
    size = count;
    memset(ranks, 0, sizeof ranks);
    support_ok(baton_inproc_create(size, &medium));
    for (int r = 0; r < size; r++) {
        rank_t *rank = &ranks[r];
        rank->messages = -1;
        rank->living = (uint64_t)size;
        support_ok(baton_engine_open(&own, &rank->engine));
        support_ok(
            baton_group_create_inproc(rank->engine, medium, r, &rank->group));
        rank->groups[0] = rank->group;
        enter(rank);
        rank->given = rank->group->transport;
        rank->port = *rank->given;
        rank->port.notify = notify;
        rank->port.send = send;
        rank->group->transport = &rank->port;
        leave(rank);
    }
}

static void open_ranks(int count, baton_progress_t progress)
{
    open_groups(count, progress);
    for (int r = 0; r < size; r++) {
        support_ok(
            baton_partial_create(ranks[r].group, &options, &ranks[r].partial));
    }
}

static void destroy_one(void *arg)
{
    rank_t *rank = arg;
    if (baton_tensors_destroy(rank->set) != BATON_OK ||
        baton_sparse_destroy(rank->sparse) != BATON_OK ||
        baton_partial_destroy(rank->partial) != BATON_OK) {
        print_error("destroy: %s\n", baton_error_message());
        abort();
    }
}

static void close_groups(void)
{
    for (int r = 0; r < size; r++) {
        enter(&ranks[r]);
        ranks[r].group->transport = ranks[r].given;
        ranks[r].group->collective = false;
        leave(&ranks[r]);
    }
    for (int r = 0; r < size; r++) {
        support_ok(baton_group_destroy(ranks[r].group));
        support_ok(baton_engine_close(ranks[r].engine));
    }
    support_ok(baton_inproc_destroy(medium));
}

/* The living ranks destroy their partials together. Then each dead rank does,
   after it has learned that all others are dead. */
static void close_ranks(void)
{
    support_thread_t *threads[MOST] = {NULL};
    for (int r = 0; r < size; r++) {
        if (!ranks[r].dead) {
            ranks[r].messages = -1;
            learn_all(&ranks[r], true);
            threads[r] = support_thread_start(destroy_one, &ranks[r]);
        }
    }
    for (int r = 0; r < size; r++) {
        if (threads[r] != NULL) {
            support_thread_join(threads[r]);
        }
    }
    for (int r = 0; r < size; r++) {
        rank_t *rank = &ranks[r];
        if (rank->dead) {
            wake(rank);
            (void)baton_engine_step(rank->engine);
            destroy_one(rank);
        }
    }
    close_groups();
}

/* ---- steps --------------------------------------------------------------- */

static void contribute(rank_t *rank)
{
    memset(vector, 0, options.count * sizeof *vector);
    vector[rank - ranks] = UINT64_C(1) << rank->step;
    vector[options.count - 1] |= vector[rank - ranks];
    rank->given_bits |= UINT64_C(1) << rank->step;
    if (options.tensors == 0) {
        support_ok(baton_partial_contribute(rank->partial, vector));
    }
    for (size_t i = options.tensors; i-- > 0;) {
        support_ok(baton_partial_contribute_tensor(
            rank->partial, i, vector + baton_partial_offset(rank->partial, i)));
    }
}

static void check_outcome(const outcome_t *outcome, uint64_t epoch)
{
    uint32_t active = 0;
    for (int r = 0; r < size; r++) {
        active += outcome->bits[r] != 0;
        assert_int_equal(outcome->bits[r] & ~ranks[r].given_bits, 0);
        assert_int_equal(outcome->bits[r] >> (epoch + 1), 0);
    }
    assert_int_equal(outcome->active, active);
    assert_true(outcome->living >= active);
}

/* Checks that each contribution is in one result only, and that the result is
   right about this rank's contribution. */
static void check_result(rank_t *rank, const baton_partial_result_t *result)
{
    const uint64_t *data = result->data;
    uint64_t own = data[rank - ranks], sum = 0;
    outcome_t *mine = &rank->outcomes[result->epoch];
    *mine = (outcome_t){
        .known = true, .active = result->active, .living = result->living};
    memcpy(mine->bits, data, (size_t)size * sizeof *data);
    check_outcome(mine, result->epoch);
    for (int r = 0; r < size; r++) {
        sum += data[r];
    }
    /* The last element is consistent, so the result is complete. */
    assert_int_equal(data[options.count - 1], sum);
    assert_true(result->living <= rank->living);
    rank->living = result->living;
    if (options.keep == BATON_KEEP_ALL) {
        assert_int_equal(result->epoch, rank->step);
        for (int r = 0; r < size; r++) {
            assert_int_equal(rank->seen[r] & data[r], 0);
            rank->seen[r] |= data[r];
        }
        assert_int_equal(result->included, own >> rank->step & 1);
        if (own != 0) {
            assert_int_equal(result->staleness,
                             result->epoch - (uint64_t)__builtin_ctzll(own));
        }
    }
}

/* Returns true if the wait must be repeated, since it has timed out, or was
   interrupted. */
static bool is_awaited(baton_status_t status)
{
    return status == BATON_ERR_TIMEOUT || status == BATON_ERR_INTERRUPTED;
}

static void interrupt_sometimes(const rank_t *rank)
{
    if (below(3) == 0) {
        baton_engine_interrupt(rank->engine);
    }
}

/* Continues this rank's step, or starts its next one. */
static void go_on(rank_t *rank)
{
    baton_partial_result_t result;
    if (rank->step == STEPS && !rank->started) {
        bool done = false;
        support_ok(baton_partial_test(rank->partial, &done));
        assert_true(done || rank->dead);
        return;
    }
    if (!rank->started) {
        rank->step++;
        if (below(8) > 0) {
            contribute(rank);
        }
        baton_status_t status = baton_partial_start(rank->partial);
        if (!rank->dead) {
            support_ok(status);
            rank->started = true;
        }
        return;
    }
    /* Usually calls test, which is quicker, as it does not yield. */
    bool done = below(50) == 0;
    baton_status_t status =
        done ? BATON_OK : baton_partial_test(rank->partial, &done);
    if (done) {
        interrupt_sometimes(rank);
        status = baton_partial_wait(rank->partial, 0, &result);
    } else if (status == BATON_OK) {
        return;
    }
    if (!is_awaited(status) && !rank->dead) {
        support_ok(status);
        check_result(rank, &result);
        rank->started = false;
    }
}

/* Reports a death to a living rank, which may not have noticed it. */
static void spread_losses(void)
{
    int victim = below(size), r = below(size);
    if (ranks[victim].dead && !ranks[r].dead && below(20) == 0) {
        learn(&ranks[r], victim);
    }
}

static bool all_are_done(void)
{
    for (int r = 0; r < size; r++) {
        if (!ranks[r].dead && (ranks[r].step < STEPS || ranks[r].started)) {
            return false;
        }
    }
    return true;
}

static void go_on_unless_idle(rank_t *rank)
{
    if (!rank->idle) {
        go_on(rank);
    }
    rank->idle = below(4) == 0 ? !rank->idle : rank->idle;
}

/* Calls `go` on living ranks until all of them have done their steps. */
static void take_turns(void (*go)(rank_t *rank), bool (*are_all_done)(void))
{
    for (int turn = 0; turn < TURNS; turn++) {
        rank_t *rank = &ranks[below(size)];
        if (are_all_done()) {
            return;
        }
        if (rank->dead) {
            continue;
        }
        (void)baton_engine_step(rank->engine);
        if (!rank->dead) {
            go(rank);
        }
        spread_losses();
    }
    for (int r = 0; r < size; r++) {
        print_error("rank %d: %s, step %d, at %d, shrunk %d\n", r,
                    ranks[r].dead ? "dead" : "lives", (int)ranks[r].step,
                    (int)ranks[r].at, ranks[r].shrunk);
    }
    fail_msg("the ranks that live have not ended: %s", baton_error_message());
}

/* Checks that all living ranks have got the same results. */
static void check_same(void)
{
    for (int epoch = 1; epoch <= STEPS; epoch++) {
        const outcome_t *first = NULL;
        for (int r = 0; r < size; r++) {
            const outcome_t *mine = &ranks[r].outcomes[epoch];
            if (!ranks[r].dead && mine->known) {
                first = first == NULL ? mine : first;
                assert_memory_equal(mine, first, sizeof *mine);
            }
        }
    }
}

/* Checks that each contribution of a living rank is in one result, or is
   pending. */
static void check_conserved(void)
{
    for (int r = 0; r < size && options.keep == BATON_KEEP_ALL; r++) {
        bool any = false;
        if (!ranks[r].dead) {
            support_ok(baton_partial_pending(ranks[r].partial, vector, &any));
            assert_int_equal(vector[r] & ranks[r].seen[r], 0);
            assert_int_equal(vector[r] | ranks[r].seen[r], ranks[r].given_bits);
        }
    }
}

/* Checks baton_partial_lives, after any number of losses. */
static void check_lives(void)
{
    for (int r = 0; r < size; r++) {
        uint32_t living = 0;
        for (int other = 0; other < size && !ranks[r].dead; other++) {
            bool lives = baton_partial_lives(ranks[r].partial, other);
            assert_true(lives || ranks[other].dead);
            living += lives;
        }
        assert_true(living <= ranks[r].living);
    }
}

static int count_dead(void)
{
    int count = 0;
    for (int r = 0; r < size; r++) {
        count += ranks[r].dead;
    }
    return count;
}

/* Lets some ranks die after a number of messages. */
static void choose_victims(void)
{
    for (int victims = below(size); victims > 0; victims--) {
        ranks[below(size)].messages = below(60 * size);
    }
}

static void choose_options(void)
{
    bool is_long = below(4) == 0;
    options = (baton_partial_options_t)BATON_PARTIAL_OPTIONS;
    options.on_loss = BATON_ON_LOSS_CONTINUE;
    options.mode = (baton_partial_mode_t)below(BATON_CANDIDATES_ALL + 1);
    options.mode_ranks =
        options.mode >= BATON_QUORUM ? (uint32_t)(1 + below(size)) : 0;
    options.keep = below(4) == 0 ? BATON_KEEP_LATEST : BATON_KEEP_ALL;
    options.history = (uint32_t)below(5);
    options.max_staleness = below(3) == 0 && options.history > 0 ? 1 : 0;
    options.sync_every = below(3) == 0 ? 5 : 0;
    options.seed = (uint64_t)below(1000);
    options.count = is_long ? LONG : (size_t)size + 1;
    options.dtype = BATON_U64;
    counts[0] = (size_t)below(size);
    counts[1] = options.count - counts[0];
    options.tensors = below(2) == 0 ? 2 : 0;
    options.counts = options.tensors > 0 ? counts : NULL;
    /* With BATON_SUM, the vector has one more element, for the count of active
       ranks. With another operation it has not. */
    own_sum = *BATON_SUM;
    options.op = below(3) == 0 ? &own_sum : BATON_SUM;
    options.inner = below(4) == 0 ? baton_add_allreduce_ring : NULL;
}

static void set_options(baton_partial_mode_t mode, size_t count,
                        baton_on_loss_t on_loss)
{
    options = (baton_partial_options_t){.size = sizeof options,
                                        .mode = mode,
                                        .count = count,
                                        .dtype = BATON_U64,
                                        .on_loss = on_loss};
}

TEST(test_partial_goes_on_whoever_dies_when)
{
    int died = 0;
    dice = support_random(support_seed(), 8);
    for (int trial = 0; trial < TRIALS; trial++) {
        size = 2 + below(MOST - 1);
        choose_options();
        open_ranks(size, BATON_PROGRESS_MANUAL);
        choose_victims();
        take_turns(go_on_unless_idle, all_are_done);
        check_same();
        check_conserved();
        check_lives();
        died += count_dead();
        close_ranks();
    }
    print_message("%d ranks died\n", died);
    assert_true(died > TRIALS / 4);
}

/* ---- with progress threads ---------------------------------------------- */

static void start_step(rank_t *rank)
{
    rank->step++;
    contribute(rank);
    support_ok(baton_partial_start(rank->partial));
}

static void finish_step(rank_t *rank, uint32_t living)
{
    baton_partial_result_t result;
    support_ok(baton_partial_wait(rank->partial, SUPPORT_WAIT_MS, &result));
    check_result(rank, &result);
    assert_int_equal(result.living, living);
}

static void do_steps(rank_t *rank, int count, uint32_t living)
{
    for (int i = 0; i < count; i++) {
        start_step(rank);
        finish_step(rank, living);
    }
}

static void interrupt(void *engine)
{
    baton_engine_interrupt(engine);
}

/* Starts a step and waits. The wait becomes one for the survivors, and is
   interrupted then. */
static void interrupt_while_it_waits_for_peers(rank_t *rank)
{
    baton_partial_result_t result;
    start_step(rank);
    do {
        support_expect(baton_partial_wait(rank->partial, 1, &result),
                       BATON_ERR_TIMEOUT);
    } while (strstr(baton_error_message(), "goes on after a loss") == NULL);
    for (int i = 0; i < 20; i++) {
        support_thread_t *thread =
            support_thread_start(interrupt, rank->engine);
        support_expect(baton_partial_wait(rank->partial, -1, &result),
                       BATON_ERR_INTERRUPTED);
        support_thread_join(thread);
    }
}

/* Rank 1 makes no call from before the loss until rank 0 has done its steps. */
TEST(test_partial_goes_on_without_a_rank_that_computes)
{
    set_options(BATON_SOLO, 4, BATON_ON_LOSS_CONTINUE);
    options.history = 8;
    open_ranks(3, BATON_PROGRESS_THREAD);
    do_steps(&ranks[0], 3, 3);
    assert_true(baton_partial_lives(ranks[0].partial, 2));
    die(&ranks[2]);
    enter(&ranks[1]);
    learn_outside(&ranks[0], 2);
    interrupt_while_it_waits_for_peers(&ranks[0]);
    leave(&ranks[1]);
    learn_outside(&ranks[1], 2);
    finish_step(&ranks[0], 2);
    do_steps(&ranks[0], 4, 2);
    do_steps(&ranks[1], 3, 3);
    do_steps(&ranks[1], 5, 2);
    check_same();
    check_conserved();
    assert_true(baton_partial_lives(ranks[1].partial, 1));
    assert_false(baton_partial_lives(ranks[1].partial, 2));
    assert_null(baton_partial_schedule(ranks[1].partial));
    close_ranks();
}

/* Rank 0 starts one step more than the others. They wait for that step in
   destroy. */
TEST(test_partial_says_that_peers_do_no_more_steps)
{
    baton_partial_result_t result;
    support_set_variable("BATON_DESTROY_MS", "600000");
    set_options(BATON_FULL, 4, BATON_ON_LOSS_CONTINUE);
    open_ranks(3, BATON_PROGRESS_THREAD);
    support_ok(baton_partial_start(ranks[0].partial));
    support_thread_t *others[2];
    for (int i = 0; i < 2; i++) {
        others[i] = support_thread_start(destroy_one, &ranks[1 + i]);
    }
    support_fails(
        baton_partial_wait(ranks[0].partial, SUPPORT_WAIT_MS, &result),
        BATON_ERR_STATE, "\"partial\" was destroyed on rank");
    destroy_one(&ranks[0]);
    for (int i = 0; i < 2; i++) {
        support_thread_join(others[i]);
    }
    close_groups();
    support_set_variable("BATON_DESTROY_MS", NULL);
}

static void leave_partial(void *arg)
{
    rank_t *rank = arg;
    destroy_one(rank);
    rank->left = true;
}

/* All ranks destroy their partials. The victim dies after `messages` further
   messages or, if that is -1, before it begins. If it has ended its own destroy
   before, it dies then, and this returns false. */
static bool die_in_destroy(rank_t *victim, int messages)
{
    support_thread_t *threads[3];
    open_groups(3, BATON_PROGRESS_THREAD);
    for (int r = 0; r < 3; r++) {
        ranks[r].group->collective = true; /* like groups over MPI */
        support_ok(
            baton_partial_create(ranks[r].group, &options, &ranks[r].partial));
    }
    victim->messages = messages;
    victim->dead = messages < 0;
    for (int r = 0; r < 3; r++) {
        threads[r] = support_thread_start(leave_partial, &ranks[r]);
    }
    while (!victim->dead && !victim->left) {
        (void)sched_yield();
    }
    bool died = victim->dead;
    lose(victim);
    for (int r = 0; r < 3; r++) {
        if (&ranks[r] != victim) {
            support_thread_join(threads[r]);
        }
    }
    wake(victim);
    support_thread_join(threads[victim - ranks]);
    close_groups();
    return died;
}

/* The other ranks must not wait for BATON_DESTROY_MS. */
TEST(test_partial_is_destroyed_whoever_dies_when)
{
    support_set_variable("BATON_DESTROY_MS", "600000");
    set_options(BATON_SOLO, 4, BATON_ON_LOSS_CONTINUE);
    for (int victim = 0; victim < 3; victim++) {
        int messages = -1;
        while (die_in_destroy(&ranks[victim], messages)) {
            messages++;
        }
        assert_true(messages > 3);
    }
    support_set_variable("BATON_DESTROY_MS", NULL);
}

/* The ranks start a step of long vectors, and take turns. */
static void get_in_motion(int count, const uint64_t *data, int turns)
{
    open_ranks(count, BATON_PROGRESS_MANUAL);
    for (int r = 0; r < count; r++) {
        support_ok(baton_partial_contribute(ranks[r].partial, data));
        support_ok(baton_partial_start(ranks[r].partial));
    }
    for (int i = 0; i < turns; i++) {
        (void)baton_engine_step(ranks[i % count].engine);
    }
}

/* Rank 0 destroys its partial during a step whose long messages rank 1 takes
   part by part. Returns whether a message was in transfer. If so, the memory
   that it uses must still exist when rank 1 goes on. */
static bool destroy_in_motion(const uint64_t *data, int turns)
{
    get_in_motion(2, data, turns);
    baton_status_t status = baton_partial_destroy(ranks[0].partial);
    bool in_motion = status == BATON_ERR_TIMEOUT;
    support_expect(status, in_motion ? status : BATON_OK);
    /* Further calls of destroy free nothing. */
    for (int i = 0; in_motion && i < 3; i++) {
        support_says("memory is still in use");
        support_expect(baton_partial_destroy(ranks[0].partial),
                       BATON_ERR_TIMEOUT);
    }
    for (int i = 0; i < 200; i++) {
        (void)baton_engine_step(ranks[i % 2].engine);
    }
    destroy_one(&ranks[1]);
    if (in_motion) {
        destroy_one(&ranks[0]);
    }
    close_groups();
    return in_motion;
}

/* Calls fn with more and more turns, until a message was in transfer. */
static void find_motion(baton_on_loss_t on_loss,
                        bool (*fn)(const uint64_t *data, int turns))
{
    bool any = false;
    set_options(BATON_FULL, (size_t)1 << 20, on_loss);
    uint64_t *data = support_alloc(options.count, sizeof *data);
    for (int turns = 1; turns < 60 && !any; turns++) {
        any = fn(data, turns);
    }
    assert_true(any);
    free(data);
}

TEST(test_partial_keeps_memory_that_a_peer_uses)
{
    support_set_variable("BATON_DESTROY_MS", "5");
    find_motion(BATON_ON_LOSS_CONTINUE, destroy_in_motion);
    find_motion(BATON_ON_LOSS_FAIL, destroy_in_motion);
    support_set_variable("BATON_DESTROY_MS", NULL);
}

static baton_status_t wait_inside(void *partial, baton_call_t *call)
{
    baton_partial_result_t result;
    return baton_partial_wait(partial, 0, &result);
}

/* A wait in a call node is refused, and the partial goes on. */
static void refuse_a_wait_inside(const rank_t *rank)
{
    baton_schedule_t *s = support_schedule(rank->group, "inside");
    baton_add_call(s, wait_inside, rank->partial);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start(s));
    support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS), BATON_ERR_STATE);
    support_ok(baton_schedule_destroy(s));
}

/* Rank 2 dies while rank 1 takes a message of rank 0 part by part. After that
   rank 1 makes no more calls. Returns whether the message was in transfer: then
   rank 0 waits for its end. */
static bool wait_for_motion(const uint64_t *data, int turns)
{
    baton_partial_result_t result;
    get_in_motion(3, data, turns);
    ranks[2].dead = true;
    learn(&ranks[0], 2);
    baton_status_t status = baton_partial_wait(ranks[0].partial, 5, &result);
    bool in_motion = status == BATON_ERR_TIMEOUT &&
                     strstr(baton_error_message(), "has not ended") != NULL;
    if (in_motion) {
        refuse_a_wait_inside(&ranks[0]);
    }
    for (int ms = -1; ms < 1000 && in_motion; ms += 1000) {
        baton_engine_interrupt(ranks[0].engine);
        support_expect(baton_partial_wait(ranks[0].partial, ms, &result),
                       BATON_ERR_INTERRUPTED);
    }
    close_ranks();
    return in_motion;
}

TEST(test_partial_interrupts_a_wait_for_motion)
{
    find_motion(BATON_ON_LOSS_CONTINUE, wait_for_motion);
}

/* Rank 1 believes that rank 0 is dead. Rank 0 lives, and is told that the
   others go on without it. */
TEST(test_partial_tells_a_rank_that_is_left_out)
{
    set_options(BATON_SOLO, 4, BATON_ON_LOSS_CONTINUE);
    open_ranks(3, BATON_PROGRESS_THREAD);
    learn_outside(&ranks[1], 0);
    do_steps(&ranks[1], 3, 2);
    do_steps(&ranks[2], 3, 2);
    baton_partial_result_t result;
    baton_status_t status = baton_partial_start(ranks[0].partial);
    if (status == BATON_OK) {
        status = baton_partial_wait(ranks[0].partial, SUPPORT_WAIT_MS, &result);
    }
    support_fails(status, BATON_ERR_TRANSPORT, "go on without it");
    support_expect(baton_partial_start(ranks[0].partial), BATON_ERR_TRANSPORT);
    close_ranks();
}

TEST(test_partial_says_what_does_not_go_on)
{
    int arg = 0;
    baton_partial_t *none = NULL;
    set_options(BATON_SOLO, 4, BATON_ON_LOSS_CONTINUE);
    open_ranks(2, BATON_PROGRESS_THREAD);
    baton_partial_options_t wrong[] = {options, options, options};
    wrong[0].inner_arg = &arg;
    wrong[1].memory = BATON_MEMORY_DEVICE;
    wrong[2].on_loss = (baton_on_loss_t)2;
    static const char *const says[] = {
        "which is not supported with inner_arg",
        "which is not supported with device memory", "on_loss is 2"};
    for (int i = 0; i < 3; i++) {
        support_fails(baton_partial_create(ranks[0].group, &wrong[i], &none),
                      i < 2 ? BATON_ERR_UNSUPPORTED : BATON_ERR_INVALID,
                      says[i]);
    }
    close_ranks();
}

/* Rank 2 waits for only one message of the dead rank. This message, which says
   that the rank has started, is optional. The wait fails nevertheless. */
TEST(test_partial_that_does_not_go_on_fails)
{
    baton_partial_result_t result;
    set_options(BATON_QUORUM, 4, BATON_ON_LOSS_FAIL);
    options.mode_ranks = 2;
    open_ranks(3, BATON_PROGRESS_THREAD);
    support_ok(baton_partial_start(ranks[2].partial));
    die(&ranks[1]);
    learn_outside(&ranks[0], 1);
    learn_outside(&ranks[2], 1);
    support_fails(baton_partial_wait(ranks[2].partial, 10000, &result),
                  BATON_ERR_TRANSPORT, "rank 1 is gone");
    close_ranks();
}

/* ---- sparse all-reduces in groups that were shrunk -----------------------

   Element i of a gradient is not zero on rank i % size alone, and positive
   there. So if that rank lives, its gradients are equal to the sum of results
   and residuals at that element. With algorithms that keep entries of other
   ranks they may be more, since entries may be lost with a dead rank's
   residual. With momentum all this holds for the velocities in place of the
   gradients. */

static baton_sparse_options_t sparse_options;
static int generation; /* number of shrinks that any rank has begun */

static bool keeps_entries_of_others(void)
{
    return sparse_options.algorithm == BATON_SPARSE_SPARDL ||
           sparse_options.algorithm == BATON_SPARSE_GTOPK;
}

static bool goes_on(void)
{
    return sparse_options.on_loss == BATON_ON_LOSS_CONTINUE;
}

static void choose_sparse_options(bool partial, baton_on_loss_t on_loss)
{
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA,   BATON_SPARSE_TOPKDSA,
        BATON_SPARSE_GTOPK,  BATON_SPARSE_REDSYNC, BATON_SPARSE_OKTOPK,
        BATON_SPARSE_DENSE};
    baton_sparse_options_t *o = &sparse_options;
    *o = (baton_sparse_options_t)BATON_SPARSE_OPTIONS;
    o->algorithm = algorithms[below(partial ? 4 : 7)];
    o->dtype = BATON_F64;
    o->count = SPARSE;
    o->k = 1 + (size_t)below(MOST_K);
    o->warmup = below(3) == 0 ? (uint64_t)below(STEPS) : 0;
    if (o->algorithm == BATON_SPARSE_SPARDL) {
        o->teams = 1;
        if (on_loss != BATON_ON_LOSS_CONTINUE && size % 2 == 0) {
            o->teams = size % 4 == 0 && below(2) == 0 ? 4 : 2;
        }
        o->in_place = !partial && below(3) == 0;
    }
    if (partial) {
        o->partial = true;
        o->mode = (baton_partial_mode_t)below(BATON_CANDIDATES_ALL + 1);
        o->mode_ranks =
            o->mode >= BATON_QUORUM ? (uint32_t)(1 + below(size)) : 0;
        o->history = (uint32_t)(1 + below(4));
        o->max_staleness = below(3) == 0 ? 1 : 0;
        o->sync_every = below(3) == 0 ? 5 : 0;
        o->on_loss = on_loss;
    }
    o->momentum = !o->in_place && below(2) == 0 ? 0.5 : 0;
}

static void open_sparse(baton_progress_t progress)
{
    int connected = 0;
    generation = 0;
    open_groups(size, progress);
    for (int r = 0; r < size; r++) {
        support_ok(baton_sparse_prepare(ranks[r].group, &sparse_options,
                                        &ranks[r].sparse));
    }
    for (int i = 0; connected < size; i = (i + 1) % size) {
        connected = i == 0 ? 0 : connected;
        baton_status_t status = baton_sparse_connect(ranks[i].sparse, 0);
        support_expect(status, status == BATON_ERR_TIMEOUT ? status : BATON_OK);
        connected += status == BATON_OK;
    }
}

/* Starts a step. If the last step has not ended, gives its gradient again; a
   partial all-reduce gets a new gradient for each step. */
static baton_status_t start_sparse(rank_t *rank)
{
    double *in_place =
        sparse_options.in_place ? baton_sparse_accumulator(rank->sparse) : NULL;
    bool drawn = rank->has_gradient;
    for (int i = 0; i < SPARSE && !drawn; i++) {
        rank->gradient[i] =
            i % size == rank - ranks ? (double)(1 + below(1000)) : 0;
        if (in_place != NULL) {
            in_place[i] += rank->gradient[i];
        }
    }
    rank->has_gradient = true;
    baton_status_t status = baton_sparse_start(
        rank->sparse, in_place != NULL ? NULL : rank->gradient);
    if (sparse_options.partial) {
        drawn = status != BATON_OK;
        rank->has_gradient = false;
    }
    for (int i = 0; i < SPARSE && !drawn; i++) {
        rank->velocity[i] *= sparse_options.momentum;
        rank->velocity[i] += rank->gradient[i];
        rank->given_in_all[i] += rank->velocity[i];
    }
    return status;
}

/* Waits for the next result, or for the next one that this rank has missed. */
static baton_status_t wait_sparse(rank_t *rank)
{
    baton_sparse_result_t result;
    baton_status_t status = baton_sparse_wait(rank->sparse, 0, &result);
    if (status != BATON_OK || rank->dead) {
        return status;
    }
    for (size_t i = 0; i < result.count; i++) {
        size_t at = result.indices != NULL ? result.indices[i] : i;
        double value = ((const double *)result.values)[i];
        rank->results[at] += value;
        /* The rank that the element belongs to has sent it. */
        bool is_sent = value != 0;
        bool clears = sparse_options.partial
                          ? rank->result_count >= sparse_options.warmup
                          : keeps_entries_of_others() || is_sent;
        if (clears && result.indices != NULL) {
            rank->velocity[at] = 0;
        }
        rank->hash = rank->hash * 31 + at + (uint64_t)value * SPARSE;
    }
    rank->hash = rank->hash * 31 + ++rank->result_count;
    rank->has_gradient = false;
    return status;
}

static bool is_over(baton_status_t status)
{
    return status == BATON_ERR_TRANSPORT || status == BATON_ERR_FAILED ||
           status == BATON_ERR_CANCELLED;
}

/* Continues this rank's step. If that has ended, starts the next one, unless
   the rank has done all steps. */
static void work(rank_t *rank)
{
    if (rank->started) {
        bool done = false;
        baton_status_t status =
            below(2) == 0 ? baton_sparse_test(rank->sparse, &done) : BATON_OK;
        status = status == BATON_OK ? wait_sparse(rank) : status;
        rank->started = status != BATON_OK;
        rank->at = is_over(status) ? SHRINKS : WORKS;
        return;
    }
    if (rank->shrunk < generation) {
        rank->at = SHRINKS;
        return;
    }
    if (rank->step == STEPS || below(2) == 0) {
        bool done = false;
        baton_status_t status = baton_sparse_test(rank->sparse, &done);
        assert_true(status == BATON_OK || rank->dead || !goes_on());
        return;
    }
    baton_status_t status = start_sparse(rank);
    if (status == BATON_OK) {
        rank->step++;
        rank->started = true;
    } else if (!rank->dead) {
        assert_true(is_over(status));
        rank->at = SHRINKS;
    }
}

/* Gets the results that this rank has missed, and starts again a step that no
   rank has completed. */
static void catch_up(rank_t *rank)
{
    baton_status_t status = BATON_ERR_STATE;
    if (sparse_options.partial || rank->started) {
        status = wait_sparse(rank);
        rank->started &= sparse_options.partial || status != BATON_OK;
    }
    if (status == BATON_OK && sparse_options.partial) {
        return;
    }
    rank->at = WORKS;
    if (rank->started && !rank->dead && !sparse_options.partial) {
        support_expect(status, BATON_ERR_STATE);
        status = start_sparse(rank);
        rank->at = status == BATON_OK ? WORKS : SHRINKS;
    }
    if (sparse_options.partial) {
        rank->started = false;
        /* The step also counts the results that only other ranks had got. */
        rank->step = rank->result_count;
    }
}

static void go_on_sparse(rank_t *rank)
{
    baton_status_t status;
    if (below(4) == 0) {
        return;
    }
    interrupt_sometimes(rank);
    switch (rank->at) {
    case WORKS:
        work(rank);
        break;
    case SHRINKS:
        assert_false(goes_on());
        generation = rank->shrunk == generation ? rank->shrunk + 1 : generation;
        status = baton_group_shrink(rank->groups[rank->shrunk], 0,
                                    &rank->groups[rank->shrunk + 1]);
        if (!is_awaited(status) && !rank->dead) {
            support_ok(status);
            rank->shrunk++;
            rank->at = MOVES;
        }
        break;
    case MOVES:
        status =
            baton_sparse_shrink(rank->sparse, rank->groups[rank->shrunk], 0);
        if (status == BATON_OK) {
            rank->at = CATCHES_UP;

        } else if (!is_awaited(status) && !rank->dead) {
            support_expect(status, BATON_ERR_TRANSPORT);
            rank->at = SHRINKS;
        }
        break;
    case CATCHES_UP:
        catch_up(rank);
        break;
    }
}

static bool all_have_done_sparse(void)
{
    for (int r = 0; r < size; r++) {
        const rank_t *rank = &ranks[r];
        if (!rank->dead && (rank->step < STEPS || rank->started ||
                            rank->at != WORKS || rank->shrunk < generation)) {
            return false;
        }
    }
    return true;
}

static void check_sparse(int died)
{
    const rank_t *first = NULL;
    double left[SPARSE] = {0};
    for (int r = 0; r < size; r++) {
        rank_t *rank = &ranks[r];
        if (rank->dead) {
            continue;
        }
        first = first == NULL ? rank : first;
        if (rank->result_count != first->result_count) {
            fail_msg("rank %d has %d results, the first %d", r,
                     (int)rank->result_count, (int)first->result_count);
        }
        assert_memory_equal(rank->results, first->results,
                            sizeof rank->results);
        /* All ranks have got the results in the same order. */
        assert_int_equal(rank->hash, first->hash);
        baton_status_t status = BATON_ERR_BUSY;
        while (status == BATON_ERR_BUSY) {
            for (int i = 0; i < size; i++) {
                bool done;
                if (!ranks[i].dead) {
                    support_ok(baton_sparse_test(ranks[i].sparse, &done));
                }
                (void)baton_engine_step(ranks[i].engine);
            }
            spread_losses();
            status = baton_sparse_residual(rank->sparse, rank->residual);
        }
        support_ok(status);
        for (int i = 0; i < SPARSE; i++) {
            left[i] += rank->residual[i];
        }
        if (sparse_options.momentum > 0) {
            double velocity[SPARSE];
            support_ok(baton_sparse_velocity(rank->sparse, velocity));
            assert_memory_equal(velocity, rank->velocity, sizeof velocity);
        }
    }
    for (int i = 0; i < SPARSE && first != NULL; i++) {
        const rank_t *owner = &ranks[i % size];
        double lost = owner->given_in_all[i] - first->results[i] - left[i];
        bool may_lose = died > 0 && keeps_entries_of_others();
        if (!owner->dead && (may_lose ? lost < 0 : lost != 0)) {
            fail_msg("element %d: %g given, %g in results, %g left", i,
                     owner->given_in_all[i], first->results[i], left[i]);
        }
    }
}

/* Closes the ranks. Their groups may have been shrunk. */
static void close_shrunk(void)
{
    for (int r = 0; r < size; r++) {
        rank_t *rank = &ranks[r];
        learn_all(rank, !rank->dead);
        rank->dead = false;
        rank->messages = -1;
        (void)baton_engine_step(rank->engine);
        destroy_one(rank);
        rank->group->transport = rank->given;
        rank->group->collective = false;
        for (int i = 0; i < MOST; i++) {
            support_ok(baton_group_destroy(rank->groups[i]));
        }
        support_ok(baton_engine_close(rank->engine));
    }
    support_ok(baton_inproc_destroy(medium));
}

static void kill_in_sparse_steps(bool partial, baton_on_loss_t on_loss)
{
    int died = 0;
    dice = support_random(support_seed(), 9);
    for (int trial = 0; trial < TRIALS; trial++) {
        size = 2 + below(MOST - 1);
        choose_sparse_options(partial, on_loss);
        open_sparse(BATON_PROGRESS_MANUAL);
        choose_victims();
        take_turns(go_on_sparse, all_have_done_sparse);
        check_sparse(count_dead());
        died += count_dead();
        (goes_on() ? close_ranks : close_shrunk)();
    }
    print_message("%d ranks died\n", died);
    assert_true(died > TRIALS / 4);
}

TEST(test_sparse_shrinks_whoever_dies_when)
{
    kill_in_sparse_steps(false, BATON_ON_LOSS_FAIL);
}

TEST(test_partial_sparse_shrinks_whoever_dies_when)
{
    kill_in_sparse_steps(true, BATON_ON_LOSS_FAIL);
}

TEST(test_partial_sparse_goes_on_whoever_dies_when)
{
    kill_in_sparse_steps(true, BATON_ON_LOSS_CONTINUE);
}

/* The ranks below `count` call fn in turns, until it has succeeded on each of
   them. */
static void do_all(int count, baton_status_t (*fn)(int rank))
{
    bool done[MOST] = {false};
    for (int left = count, i = 0; left > 0; i = (i + 1) % count) {
        baton_status_t status = done[i] ? BATON_ERR_TIMEOUT : fn(i);
        support_expect(status, status == BATON_ERR_TIMEOUT ? status : BATON_OK);
        done[i] |= status == BATON_OK;
        left -= status == BATON_OK;
    }
}

static baton_status_t shrink_group(int r)
{
    return baton_group_shrink(ranks[r].group, 0, &ranks[r].groups[1]);
}

static baton_status_t wait_for_step(int r)
{
    (void)baton_engine_step(ranks[r].engine);
    return wait_sparse(&ranks[r]);
}

static baton_status_t shrink_again(int r)
{
    return baton_group_shrink(ranks[r].groups[1], 0, &ranks[r].groups[2]);
}

static baton_status_t move_again(int r)
{
    return baton_sparse_shrink(ranks[r].sparse, ranks[r].groups[2], 0);
}

/* Ranks 0 and 1 go on together. In each call of rank 1 its n-th allocation
   fails. Returns whether any call makes as many allocations. */
static bool shrink_without_memory(int64_t n)
{
    baton_status_t status[2] = {BATON_ERR_TIMEOUT, BATON_ERR_TIMEOUT};
    size = 3;
    open_sparse(BATON_PROGRESS_MANUAL);
    for (int r = 0; r < 2; r++) {
        support_ok(start_sparse(&ranks[r]));
    }
    lose_last();
    do_all(2, shrink_group);
    while (status[1] == BATON_ERR_TIMEOUT) {
        for (int r = 0; r < 2; r++) {
            (void)baton_engine_step(ranks[r].engine);
            baton__alloc_fail_nth(r == 1 ? n : 0);
            status[r] =
                baton_sparse_shrink(ranks[r].sparse, ranks[r].groups[1], 0);
            baton__alloc_fail_nth(0);
        }
    }
    bool failed = status[1] != BATON_OK;
    support_expect(status[1], failed ? BATON_ERR_NO_MEMORY : BATON_OK);
    if (failed) {
        status[1] = baton_sparse_shrink(ranks[1].sparse, ranks[1].groups[1], 0);
        assert_true(status[1] == BATON_ERR_NO_MEMORY ||
                    status[1] == BATON_ERR_TIMEOUT);
    }
    do_all(2, shrink_again);
    do_all(2, move_again);
    for (int r = 0; r < 2; r++) {
        support_expect(wait_sparse(&ranks[r]), BATON_ERR_STATE);
        support_ok(start_sparse(&ranks[r]));
    }
    do_all(2, wait_for_step);
    check_sparse(1);
    close_shrunk();
    return failed;
}

TEST(test_sparse_shrinks_after_a_lack_of_memory)
{
    dice = support_random(support_seed(), 10);
    size = 3;
    choose_sparse_options(false, BATON_ON_LOSS_FAIL);
    sparse_options.algorithm = BATON_SPARSE_SPARDL;
    sparse_options.teams = 1;
    int64_t last = 0;
    /* Some allocations may fail without an error: their memory only serves to
       answer peers. */
    for (int64_t n = 1; n < last + 5; n++) {
        last = shrink_without_memory(n) ? n : last;
    }
    assert_true(last > 10);
}

/* ---- sparse all-reduces that go on by themselves ------------------------ */

static void solo_sparse_options(void)
{
    sparse_options = (baton_sparse_options_t)BATON_SPARSE_OPTIONS;
    sparse_options.count = SPARSE;
    sparse_options.k = MOST_K;
    sparse_options.dtype = BATON_F64;
    sparse_options.partial = true;
    sparse_options.history = 8;
    sparse_options.on_loss = BATON_ON_LOSS_CONTINUE;
}

static void open_solo(int count, baton_partial_mode_t mode,
                      baton_progress_t progress)
{
    dice = support_random(support_seed(), 11);
    size = count;
    solo_sparse_options();
    sparse_options.mode = mode;
    open_sparse(progress);
}

static void end_sparse_step(rank_t *rank)
{
    baton_status_t status = BATON_ERR_TIMEOUT;
    while (status == BATON_ERR_TIMEOUT) {
        status = wait_sparse(rank);
    }
    support_ok(status);
}

static void do_sparse_steps(rank_t *rank, int count)
{
    for (int i = 0; i < count; i++) {
        support_ok(start_sparse(rank));
        end_sparse_step(rank);
    }
}

/* Rank 1 makes no call from before the loss until rank 0 has done its steps.
 */
TEST(test_partial_sparse_goes_on_without_a_rank_that_computes)
{
    open_solo(3, BATON_SOLO, BATON_PROGRESS_THREAD);
    do_sparse_steps(&ranks[0], 3);
    support_expect(baton_sparse_shrink(ranks[0].sparse, ranks[0].group, 0),
                   BATON_ERR_UNSUPPORTED);
    support_says("it goes on by itself");
    assert_true(baton_sparse_lives(ranks[0].sparse, 2));
    lose_last();
    do_sparse_steps(&ranks[0], 5);
    do_sparse_steps(&ranks[1], 8);
    assert_false(baton_sparse_lives(ranks[1].sparse, 2));
    assert_true(baton_sparse_lives(ranks[1].sparse, 0));
    check_sparse(1);
    close_ranks();
}

/* Holds the library's thread in its call of baton_schedule_start, by which it
   starts rank 0's step again after a loss. The linker redirects calls of that
   function to this wrapper. */
static atomic_bool holds_start;
static pthread_t application;

baton_status_t __real_baton_schedule_start(baton_schedule_t *schedule);
baton_status_t __wrap_baton_schedule_start(baton_schedule_t *schedule);

baton_status_t __wrap_baton_schedule_start(baton_schedule_t *schedule)
{
    const baton_status_t status = __real_baton_schedule_start(schedule);
    while (atomic_load(&holds_start) &&
           !pthread_equal(pthread_self(), application) &&
           schedule == ranks[0].sparse->epochs->schedule) {
        (void)sched_yield();
    }
    return status;
}

/* The step that a loss has interrupted ends before the thread that has started
   it again returns. Rank 0 must not start the next step meanwhile. */
TEST(test_partial_sparse_starts_a_step_once_it_runs_again)
{
    open_solo(3, BATON_SOLO, BATON_PROGRESS_THREAD);
    do_sparse_steps(&ranks[0], 3);
    die(&ranks[2]);
    support_ok(start_sparse(&ranks[0]));
    application = pthread_self();
    atomic_store(&holds_start, true);
    learn_outside(&ranks[0], 2);
    learn_outside(&ranks[1], 2);
    baton__contribution_t *made = &ranks[0].sparse->epochs->contribution;
    while (baton__contribution_newest(made, NULL) < 4) {
        (void)sched_yield();
    }
    baton_status_t status = wait_sparse(&ranks[0]);
    atomic_store(&holds_start, false);
    support_expect(status, BATON_ERR_TIMEOUT);
    end_sparse_step(&ranks[0]);
    do_sparse_steps(&ranks[0], 4);
    do_sparse_steps(&ranks[1], 8);
    check_sparse(1);
    close_ranks();
}

/* The ranks below `count` do a step together. */
static void do_a_sparse_step(int count)
{
    for (int r = 0; r < count; r++) {
        support_ok(start_sparse(&ranks[r]));
    }
    do_all(count, wait_for_step);
}

/* After the import of a state, results are those of the steps that follow. */
TEST(test_partial_sparse_goes_back_to_a_state)
{
    dice = support_random(support_seed(), 14);
    size = 2;
    solo_sparse_options();
    sparse_options.mode = BATON_FULL;
    sparse_options.k = SPARSE;
    open_sparse(BATON_PROGRESS_MANUAL);
    char *states[2];
    size_t bytes = baton_sparse_state_size(ranks[0].sparse);
    for (int r = 0; r < 2; r++) {
        states[r] = support_alloc(1, bytes);
        support_ok(
            baton_sparse_state_export(ranks[r].sparse, states[r], bytes));
    }
    for (int step = 0; step < 3; step++) {
        do_a_sparse_step(2);
    }
    for (int r = 0; r < 2; r++) {
        support_ok(
            baton_sparse_state_import(ranks[r].sparse, states[r], bytes));
        free(states[r]);
    }
    for (int step = 0; step < 5; step++) {
        memset(ranks[0].results, 0, sizeof ranks[0].results);
        do_a_sparse_step(2);
        for (int i = 0; i < SPARSE; i++) {
            assert_true(ranks[0].results[i] == ranks[i % 2].gradient[i]);
        }
    }
    close_ranks();
}

static char *kept; /* the state of rank 0 */
static size_t kept_bytes;

static baton_status_t import_kept(int r)
{
    bool done;
    (void)baton_engine_step(ranks[r].engine);
    support_ok(baton_sparse_test(ranks[r].sparse, &done));
    baton_status_t status =
        baton_sparse_state_import(ranks[r].sparse, kept, kept_bytes);
    if (status == BATON_ERR_BUSY) {
        support_says("it is being continued after the loss");
        return BATON_ERR_TIMEOUT;
    }
    support_expect(status, BATON_ERR_INVALID);
    return BATON_OK;
}

/* A rank dies after rank 0 has imported an earlier state, and rank 1 has
   not. */
TEST(test_partial_sparse_loses_a_rank_between_imports)
{
    open_solo(3, BATON_FULL, BATON_PROGRESS_MANUAL);
    kept_bytes = baton_sparse_state_size(ranks[0].sparse);
    kept = support_alloc(1, kept_bytes);
    double before[SPARSE], after[SPARSE];
    for (int step = 0; step < 4; step++) {
        do_a_sparse_step(3);
        if (step == 1) {
            support_ok(
                baton_sparse_state_export(ranks[0].sparse, kept, kept_bytes));
        }
    }
    support_ok(baton_sparse_state_import(ranks[0].sparse, kept, kept_bytes));
    support_ok(baton_sparse_residual(ranks[0].sparse, before));
    ranks[2].dead = true;
    for (int r = 0; r < 2; r++) {
        learn(&ranks[r], 2);
        (void)baton_engine_step(ranks[r].engine);
    }
    support_fails(baton_sparse_state_import(ranks[0].sparse, kept, kept_bytes),
                  BATON_ERR_BUSY, "it is being continued after the loss");
    do_all(2, import_kept); /* refused, since it is a state of three ranks */
    support_ok(baton_sparse_residual(ranks[0].sparse, after));
    assert_memory_equal(before, after, sizeof before);
    free(kept);
    close_ranks();
}

static baton_status_t connect_sparse(int r)
{
    return baton_sparse_connect(ranks[r].sparse, 0);
}

/* The last rank dies before it takes part in the comparison of options. */
TEST(test_partial_sparse_begins_without_a_rank_that_is_lost)
{
    dice = support_random(support_seed(), 12);
    solo_sparse_options();
    sparse_options.mode = BATON_FULL;
    open_groups(3, BATON_PROGRESS_MANUAL);
    for (int r = 0; r < 2; r++) {
        support_ok(baton_sparse_prepare(ranks[r].group, &sparse_options,
                                        &ranks[r].sparse));
    }
    lose_last();
    do_all(2, connect_sparse);
    do_a_sparse_step(2);
    assert_false(baton_sparse_lives(ranks[0].sparse, 2));
    check_sparse(1);
    close_ranks();
}

/* Rank 1 has nothing to wait for. Its calls of test suffice for rank 0's steps
   to end. */
static void end_steps_by_test_alone(bool sparse)
{
    open_groups(2, BATON_PROGRESS_MANUAL);
    for (int r = 0; r < 2; r++) {
        support_ok(sparse
                       ? baton_sparse_prepare(ranks[r].group, &sparse_options,
                                              &ranks[r].sparse)
                       : baton_partial_create(ranks[r].group, &options,
                                              &ranks[r].partial));
    }
    if (sparse) {
        do_all(2, connect_sparse);
    }
    for (int step = 0; step < 3; step++) {
        bool done[2] = {false};
        support_ok(sparse ? start_sparse(&ranks[0])
                          : baton_partial_start(ranks[0].partial));
        for (int turn = 0; turn < 4000 && !done[0]; turn++) {
            const int r = turn % 2;
            support_ok(sparse ? baton_sparse_test(ranks[r].sparse, &done[r])
                              : baton_partial_test(ranks[r].partial, &done[r]));
        }
        assert_true(done[0]);
    }
    close_ranks();
}

TEST(test_partial_test_alone_makes_progress)
{
    for (int loss = 0; loss < 2; loss++) {
        set_options(BATON_SOLO, 4, (baton_on_loss_t)loss);
        end_steps_by_test_alone(false);
        solo_sparse_options();
        sparse_options.on_loss = (baton_on_loss_t)loss;
        end_steps_by_test_alone(true);
    }
}

TEST(test_partial_sparse_outlives_its_group)
{
    dice = support_random(support_seed(), 13);
    solo_sparse_options();
    baton_engine_options_t own = {.size = sizeof own,
                                  .progress = BATON_PROGRESS_MANUAL};
    memset(ranks, 0, sizeof ranks);
    rank_t *rank = &ranks[0];
    size = 1;
    for (int64_t n = 1; rank->sparse == NULL; n++) {
        support_ok(baton_engine_open(&own, &rank->engine));
        support_ok(baton_group_create_self(rank->engine, &rank->group));
        baton__alloc_fail_nth(n);
        baton_status_t status = baton_sparse_create(
            rank->group, &sparse_options, -1, &rank->sparse);
        baton__alloc_fail_nth(0);
        support_ok(baton_group_destroy(rank->group));
        support_expect(status,
                       rank->sparse == NULL ? BATON_ERR_NO_MEMORY : BATON_OK);
        if (rank->sparse == NULL) {
            support_ok(baton_engine_close(rank->engine));
        }
    }
    do_sparse_steps(rank, 3);
    check_sparse(0);
    support_ok(baton_sparse_destroy(rank->sparse));
    support_ok(baton_engine_close(rank->engine));
}

/* ---- sets of tensors ----------------------------------------------------- */

static baton_status_t agree_on_set(int r)
{
    return baton_tensors_agree(ranks[r].set, 0);
}

static baton_status_t connect_set(int r)
{
    return baton_tensors_connect(ranks[r].set, 0);
}

static baton_status_t shrink_set(int r)
{
    return baton_tensors_shrink(ranks[r].set, ranks[r].groups[1], 0);
}

static void ready_all(int count, const float *gradient)
{
    for (int r = 0; r < count; r++) {
        for (size_t i = 0; i < 2; i++) {
            support_ok(baton_tensors_ready(ranks[r].set, i, gradient));
        }
    }
}

/* Opens a set of tensors on each of three ranks. The last rank dies in the
   first step. */
static void open_sets(const baton_tensor_t tensors[2],
                      const baton_tensors_options_t *own, const float *gradient)
{
    open_groups(3, BATON_PROGRESS_MANUAL);
    for (int r = 0; r < 3; r++) {
        support_ok(baton_tensors_prepare(ranks[r].group, tensors, 2, own,
                                         &ranks[r].set));
    }
    do_all(3, agree_on_set);
    do_all(3, connect_set);
    ready_all(2, gradient);
    lose_last();
}

/* One tensor is packed, and one is sparse. */
TEST(test_tensors_go_on_in_a_group_that_was_shrunk)
{
    static const float gradient[4] = {1, 2, 3, 4};
    const baton_tensor_t tensors[] = {
        {.role = BATON_ROLE_BIAS_OR_NORM, .count = 4},
        {.role = BATON_ROLE_CONVOLUTION, .count = 4}};
    baton_tensors_options_t own = BATON_TENSORS_OPTIONS;
    baton_sparse_result_t result;
    own.small_bytes = 1;
    own.always_sparse = true;
    own.density = 1;
    open_sets(tensors, &own, gradient);
    do_all(2, shrink_group);
    do_all(2, shrink_set);
    for (size_t i = 0; i < 2; i++) { /* no rank has completed the first step */
        for (int r = 0; r < 2; r++) {
            support_expect(baton_tensors_wait(ranks[r].set, i, 0, &result),
                           BATON_ERR_STATE);
        }
    }
    ready_all(2, gradient);
    for (size_t i = 0; i < 2; i++) {
        baton_status_t status = BATON_ERR_TIMEOUT;
        while (status == BATON_ERR_TIMEOUT) {
            (void)baton_engine_step(ranks[1].engine);
            status = baton_tensors_wait(ranks[0].set, i, 0, &result);
        }
        support_ok(status);
        assert_int_equal(result.count, 4);
        assert_true(((const float *)result.values)[3] == 8);
    }
    close_shrunk();
}

/* Rank 2 dies in the first step. Ranks 0 and 1 do this step and the next one
   without it, and without a call of shrink. */
TEST(test_tensors_go_on_by_themselves)
{
    static const float gradient[4] = {1, 2, 3, 4};
    const baton_tensor_t tensors[] = {{.count = 4}, {.count = 4}};
    baton_tensors_options_t own = BATON_TENSORS_OPTIONS;
    baton_sparse_result_t result;
    own.density = 1;
    own.partial = true;
    own.mode = BATON_FULL;
    own.on_loss = BATON_ON_LOSS_CONTINUE;
    open_sets(tensors, &own, gradient);
    support_expect(baton_tensors_shrink(ranks[0].set, ranks[0].group, 0),
                   BATON_ERR_UNSUPPORTED);
    for (int step = 0; step < 2; step++) {
        bool done[2] = {false, false};
        for (int r = 0; !done[0] || !done[1]; r = 1 - r) {
            support_ok(baton_tensors_test(ranks[r].set, 0, &done[r]));
        }
        for (int r = 0; r < 2; r++) {
            for (size_t i = 0; i < 2; i++) {
                support_ok(baton_tensors_wait(ranks[r].set, i, 0, &result));
                assert_int_equal(result.count, 4);
                assert_true(((const float *)result.values)[3] == 8);
            }
        }
        if (step == 0) {
            ready_all(2, gradient);
        }
    }
    close_ranks();
}

/* A rank is lost before the comparison, in which the options or the names of
   the tensors differ on the other ranks. The errors say so. */
static void compare_without_the_last(bool tensors, const char *says)
{
    static const char *const names[] = {"weight", "bias"};
    baton_tensors_options_t of = BATON_TENSORS_OPTIONS;
    baton_status_t status[2];
    of.dtype = BATON_F64;
    of.partial = true;
    of.on_loss = BATON_ON_LOSS_CONTINUE;
    solo_sparse_options();
    open_groups(3, BATON_PROGRESS_MANUAL);
    ranks[2].dead = true;
    for (int r = 0; r < 2; r++) {
        const baton_tensor_t tensor = {.name = names[r], .count = 4};
        learn(&ranks[r], 2);
        (void)baton_engine_step(ranks[r].engine);
        sparse_options.k = 1 + (size_t)r;
        support_ok(tensors
                       ? baton_tensors_prepare(ranks[r].group, &tensor, 1, &of,
                                               &ranks[r].set)
                       : baton_sparse_prepare(ranks[r].group, &sparse_options,
                                              &ranks[r].sparse));
        support_ok(tensors ? agree_on_set(r) : BATON_OK);
    }
    do_all(2, tensors ? connect_set : connect_sparse);
    for (int r = 0; r < 2; r++) {
        const double gradient[4] = {1};
        status[r] = tensors ? baton_tensors_ready(ranks[r].set, 0, gradient)
                            : start_sparse(&ranks[r]);
    }
    for (int turn = 0; turn < 4000; turn++) {
        const int r = turn % 2;
        bool done;
        (void)baton_engine_step(ranks[r].engine);
        if (status[r] == BATON_OK) {
            status[r] = tensors ? baton_tensors_test(ranks[r].set, 0, &done)
                                : baton_sparse_test(ranks[r].sparse, &done);
        }
    }
    support_expect(status[0], BATON_ERR_MISMATCH);
    support_fails(status[1], BATON_ERR_MISMATCH, says);
    close_ranks();
}

TEST(test_partial_sparse_compares_without_a_rank_that_is_lost)
{
    compare_without_the_last(false, "must be the same on all ranks");
}

TEST(test_partial_tensors_compare_without_a_rank_that_is_lost)
{
    compare_without_the_last(true, "rank 1 has count of bias 4 where rank 0 "
                                   "has count of weight 4");
}
