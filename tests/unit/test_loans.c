/* Loans: receives whose message the transport lends, so that a reduce reads it
   in place (sched/loans.h). Tests which receives have one, and what the engine
   does with the message. The ranks take turns in one thread, so a rank does
   nothing until the test drives it. */
#include "base/alloc.h"
#include "progress/driving/engine.h"
#include "sched/loans.h"
#include "support/cluster.h"

enum { COUNT = 1024, BYTES = COUNT * sizeof(float) };

static support_cluster_t *pair;

static int open_pair(void **state)
{
    pair = support_cluster_manual(2);
    return 0;
}

static int close_pair(void **state)
{
    support_cluster_close(pair);
    return 0;
}

/* ---- the receives that have a loan ------------------------------------- */

/* A schedule of rank 1 that receives from rank 0 and adds that to `sum`. */
typedef struct graph {
    baton_schedule_t *schedule;
    baton_view_t sum, scratch;
    baton_node_t receive, reduce;
} graph_t;

static float sum_memory[COUNT + 1];

static baton_node_t add_sum(graph_t *g, baton_view_t from)
{
    return baton_add_reduce_local(g->schedule, BATON_F32, BATON_SUM, g->sum,
                                  g->sum, from);
}

static graph_t begin_apart(void)
{
    graph_t g = {.schedule = support_schedule(pair->groups[1], "loans")};
    g.sum = support_view(g.schedule, sum_memory, BYTES);
    g.scratch = support_scratch(g.schedule, BYTES);
    g.receive = baton_add_recv(g.schedule, 0, g.scratch);
    return g;
}

static graph_t begin(void)
{
    graph_t g = begin_apart();
    g.reduce = add_sum(&g, g.scratch);
    baton_before(g.schedule, g.receive, g.reduce);
    return g;
}

static void end(graph_t *g, uint32_t loans)
{
    support_ok(baton_schedule_commit(g->schedule));
    assert_int_equal(g->schedule->plan.loan_count, loans);
    support_ok(baton_schedule_destroy(g->schedule));
}

TEST(test_loans_of_a_receive_and_its_reduce)
{
    graph_t g = begin();
    baton_set_no_scratch(g.schedule, g.reduce);
    support_fails(baton_schedule_commit(g.schedule), BATON_ERR_INVALID,
                  "reduce#1 must be a call or async node");
    support_ok(baton_schedule_destroy(g.schedule));
    g = begin();
    support_ok(baton_schedule_commit(g.schedule));
    assert_int_equal(g.schedule->plan.loan_count, 1);
    const baton__loan_t *loan = &g.schedule->plan.loans[0];
    assert_int_equal(loan->receive, g.receive.index);
    assert_int_equal(loan->reduce, g.reduce.index);
    assert_int_equal(loan->operand, BATON__RIGHT);
    support_ok(baton_schedule_destroy(g.schedule));
}

TEST(test_loans_to_a_reduce_into_the_scratch)
{
    graph_t g = begin_apart();
    g.reduce = baton_add_reduce_local(g.schedule, BATON_F32, BATON_SUM,
                                      g.scratch, g.scratch, g.sum);
    baton_before(g.schedule, g.receive, g.reduce);
    baton_before(g.schedule, g.reduce,
                 baton_add_send(g.schedule, 0, g.scratch));
    end(&g, 1);
}

/* A send of reduced data is marked, even if only a part of the data was
   reduced. It is not marked if the data were overwritten since. */
TEST(test_sends_of_what_was_made)
{
    for (int written = 0; written < 2; written++) {
        graph_t g = begin();
        const baton_view_t all[] = {
            support_view(g.schedule, sum_memory, BYTES + sizeof(float)), g.sum,
            support_view(g.schedule, sum_memory + COUNT, sizeof(float))};
        uint32_t all_sends[3];
        baton_node_t last = g.reduce;
        if (written) {
            last = baton_add_copy(g.schedule, g.sum, g.scratch);
            baton_before(g.schedule, g.reduce, last);
        }
        for (int i = 0; i < 3; i++) {
            baton_node_t send = baton_add_send(g.schedule, 0, all[i]);
            baton_before(g.schedule, last, send);
            all_sends[i] = send.index;
        }
        support_ok(baton_schedule_commit(g.schedule));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(g.schedule->ops[all_sends[i]].flags & BATON__MADE,
                             i < 2 && !written ? BATON__MADE : 0);
        }
        support_ok(baton_schedule_destroy(g.schedule));
    }
}

/* A send can wait for its reader if this rank receives about as much, no
   message is lent, and no node comes before or after the send. */
TEST(test_sends_that_can_wait)
{
    static float other[COUNT];
    for (int i = 0; i < 5; i++) {
        graph_t g = i == 1 ? begin() : begin_apart();
        baton_view_t view =
            support_view(g.schedule, other, i == 2 ? BYTES / 2 : BYTES);
        baton_node_t send = baton_add_send(g.schedule, 0, view);
        if (i == 3) {
            baton_before(g.schedule, g.receive, send);
        } else if (i == 4) {
            baton_before(g.schedule, send, g.receive);
        }
        support_ok(baton_schedule_commit(g.schedule));
        assert_int_equal(g.schedule->ops[send.index].flags & BATON__PATIENT,
                         i == 0 ? BATON__PATIENT : 0);
        support_ok(baton_schedule_destroy(g.schedule));
    }
}

TEST(test_loans_of_two_receives_to_one_reduce)
{
    graph_t g = begin_apart();
    baton_view_t other = support_scratch(g.schedule, BYTES);
    baton_node_t second = baton_add_recv(g.schedule, 0, other);
    g.reduce = baton_add_reduce_local(g.schedule, BATON_F32, BATON_SUM, g.sum,
                                      g.scratch, other);
    baton_before(g.schedule, g.receive, g.reduce);
    baton_before(g.schedule, second, g.reduce);
    end(&g, 2);
}

TEST(test_loans_not_of_bound_memory)
{
    graph_t g = begin_apart();
    static float bound[COUNT];
    baton_view_t view = support_view(g.schedule, bound, BYTES);
    g.receive = baton_add_recv(g.schedule, 0, view);
    baton_before(g.schedule, g.receive, add_sum(&g, view));
    end(&g, 0);
}

TEST(test_loans_not_where_another_node_reads)
{
    graph_t g = begin();
    baton_view_t part = baton_view(g.scratch.buffer, 8, 4);
    baton_before(g.schedule, g.receive, baton_add_send(g.schedule, 0, part));
    end(&g, 0);
}

TEST(test_loans_not_of_both_operands)
{
    graph_t g = begin_apart();
    g.reduce = baton_add_reduce_local(g.schedule, BATON_F32, BATON_SUM, g.sum,
                                      g.scratch, g.scratch);
    baton_before(g.schedule, g.receive, g.reduce);
    end(&g, 0);
}

TEST(test_loans_not_of_a_part)
{
    graph_t g = begin_apart();
    baton_view_t half = baton_view(g.scratch.buffer, 0, BYTES / 2);
    baton_view_t to = baton_view(g.sum.buffer, 0, BYTES / 2);
    g.reduce =
        baton_add_reduce_local(g.schedule, BATON_F32, BATON_SUM, to, to, half);
    baton_before(g.schedule, g.receive, g.reduce);
    end(&g, 0);
}

/* The second receive overwrites one half of the first one's data. */
TEST(test_loans_not_of_what_two_receives_wrote)
{
    for (size_t half = 0; half < 2; half++) {
        graph_t g = begin_apart();
        baton_node_t over = baton_add_recv(
            g.schedule, 0,
            baton_view(g.scratch.buffer, half * BYTES / 2, BYTES / 2));
        g.reduce = add_sum(&g, g.scratch);
        baton_before(g.schedule, g.receive, over);
        baton_before(g.schedule, g.receive, g.reduce);
        baton_before(g.schedule, over, g.reduce);
        end(&g, 0);
    }
}

TEST(test_loans_not_where_the_order_is_indirect)
{
    graph_t g = begin_apart();
    g.reduce = add_sum(&g, g.scratch);
    baton_node_t between = baton_add_nop(g.schedule);
    baton_before(g.schedule, g.receive, between);
    baton_before(g.schedule, between, g.reduce);
    end(&g, 0);
}

/* A second receive and a second reduction use the slot again. They leave the
   last element of the first message in it. */
TEST(test_loans_of_a_slot_that_is_used_again)
{
    graph_t g = begin();
    baton_view_t less = baton_view(g.scratch.buffer, 0, BYTES - 4);
    baton_view_t to = baton_view(g.sum.buffer, 0, BYTES - 4);
    baton_node_t second = baton_add_recv(g.schedule, 0, less);
    baton_node_t sum =
        baton_add_reduce_local(g.schedule, BATON_F32, BATON_SUM, to, less, to);
    baton_before(g.schedule, g.reduce, second);
    baton_before(g.schedule, second, sum);
    end(&g, 2);
}

TEST(test_loans_of_equal_lengths_alone)
{
    for (int same = 0; same < 2; same++) {
        graph_t g = begin();
        baton_length_t length = baton_add_length(g.schedule);
        baton_set_length(g.schedule, g.receive, length);
        if (same) {
            baton_set_length(g.schedule, g.reduce, length);
        }
        end(&g, (uint32_t)same);
    }
}

TEST(test_loans_not_ahead_of_a_call)
{
    for (int promised = 0; promised < 2; promised++) {
        graph_t g = begin();
        baton_node_t call = baton_add_call(g.schedule, support_succeed, NULL);
        baton_before(g.schedule, g.reduce, call);
        if (promised) {
            baton_set_no_scratch(g.schedule, call);
        }
        baton_before(g.schedule,
                     baton_add_call(g.schedule, support_succeed, NULL),
                     g.receive);
        end(&g, (uint32_t)promised);
    }
}

/* ---- loans in the engine ------------------------------------------------ */

/* A sum that notes from where it has read its right operand. */
typedef struct witness {
    const void *right;
    size_t count;
} witness_t;

static void add(void *arg, void *target, const void *left, const void *right,
                size_t count, baton_dtype_t dtype)
{
    witness_t *witness = arg;
    witness->right = witness->count == 0 ? right : witness->right;
    witness->count += count;
    BATON_SUM->reduce(NULL, target, left, right, count, dtype);
}

/* A vector of more bytes than a step computes at a time. */
enum { LARGEST = COUNT * 80 };

/* Rank 0 sends `given`, and rank 1 adds it to `sum`. */
typedef struct sum {
    baton_op_t op;
    witness_t witness;
    baton_schedule_t **schedules; /* the schedules of both ranks */
    baton_schedule_t *sender, *receiver;
    float given[LARGEST], sum[LARGEST];
    baton_node_t receive, reduce;
    baton_view_t scratch;
} sum_t;

static void sum_begin(sum_t *s, size_t count, baton_call_fn between)
{
    *s = (sum_t){.op = *BATON_SUM};
    s->op.reduce = add;
    s->op.arg = &s->witness;
    for (size_t i = 0; i < count; i++) {
        s->given[i] = (float)(i % 1000);
        s->sum[i] = 1;
    }
    s->schedules = support_schedules_create(pair, "sum");
    s->sender = s->schedules[0];
    s->receiver = s->schedules[1];
    size_t bytes = count * sizeof(float);
    (void)baton_add_send(s->sender, 1,
                         support_view(s->sender, s->given, bytes));
    baton_view_t sum = support_view(s->receiver, s->sum, bytes);
    s->scratch = support_scratch(s->receiver, bytes);
    s->receive = baton_add_recv(s->receiver, 0, s->scratch);
    if (between != NULL) { /* the call is issued before the reduce is */
        baton_node_t call = baton_add_call(s->receiver, between, s);
        baton_set_no_scratch(s->receiver, call);
        baton_before(s->receiver, s->receive, call);
    }
    s->reduce = baton_add_reduce_local(s->receiver, BATON_F32, &s->op, sum, sum,
                                       s->scratch);
    baton_before(s->receiver, s->receive, s->reduce);
}

static void sum_is(const sum_t *s, size_t count, int epochs)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(s->sum[i] == 1 + (float)epochs * (float)(i % 1000));
    }
}

static sum_t sum; /* static, as it is too large for a stack */

/* The second size is so large that the reduction takes several steps. */
TEST(test_loans_are_read_where_they_lie)
{
    static const size_t counts[] = {COUNT, LARGEST};
    for (int i = 0; i < 2; i++) {
        sum_begin(&sum, counts[i], NULL);
        support_schedules_commit(pair, sum.schedules);
        for (int epoch = 1; epoch <= 3; epoch++) {
            sum.witness = (witness_t){0};
            support_schedules_run(pair, sum.schedules);
            assert_ptr_equal(sum.witness.right, sum.given);
            assert_int_equal(sum.witness.count, counts[i]);
            sum_is(&sum, counts[i], epoch);
        }
        support_schedules_destroy(pair, sum.schedules);
    }
}

static const baton_transport_t *inproc;
static const char *lent_from;
/* The number of reads after which a lent message can't be read any more. */
static int reads_left;

static baton_status_t lend_unread(void *endpoint, baton_message_t *message)
{
    baton_status_t status = inproc->lend(endpoint, message);
    lent_from = message->data;
    message->data = NULL;
    return status;
}

static baton_status_t read_lent(void *endpoint, const baton_message_t *message,
                                size_t offset, size_t bytes, void *target)
{
    if (reads_left-- == 0) {
        return BATON_AGAIN;
    }
    memcpy(target, lent_from + offset, bytes);
    return BATON_OK;
}

static void drop_unread(void *endpoint, baton_message_t *message)
{
    message->data = lent_from;
    inproc->drop(endpoint, message);
}

static baton_status_t accept_unread(void *endpoint, baton_message_t *message,
                                    baton_token_t token, void *target)
{
    if (message->data != NULL) { /* the message was not lent */
        return inproc->accept(endpoint, message, token, target);
    }
    memcpy(target, lent_from, message->bytes);
    drop_unread(endpoint, message);
    return BATON_DONE;
}

static float result[LARGEST];

static void begin_reading(baton_transport_t *reading)
{
    baton_group_t *group = pair->groups[1];
    inproc = group->transport;
    *reading = *inproc;
    reading->lend = lend_unread;
    reading->read = read_lent;
    reading->accept = accept_unread;
    reading->drop = drop_unread;
    group->transport = reading;
    reads_left = -1;
    if (group->parts == NULL) {
        group->parts = baton__alloc(BATON__OPERANDS, BATON__PART_BYTES);
    }
    assert_non_null(group->parts);
}

/* The message is copied to the reduce's target, unless the target is also an
   operand. */
TEST(test_loans_are_read_into_a_target_that_is_free)
{
    baton_transport_t reading;
    begin_reading(&reading);
    const baton_group_t *group = pair->groups[1];
    for (int in_place = 0; in_place < 2; in_place++) {
        sum_begin(&sum, LARGEST, NULL);
        if (!in_place) {
            sum.receiver->ops[sum.reduce.index].buffer[BATON__TARGET] =
                support_view(sum.receiver, result, sizeof result).buffer.index;
        }
        support_schedules_commit(pair, sum.schedules);
        support_schedules_run(pair, sum.schedules);
        assert_ptr_equal(sum.witness.right,
                         in_place
                             ? group->parts + BATON__RIGHT * BATON__PART_BYTES
                             : (char *)result);
        if (!in_place) {
            memcpy(sum.sum, result, sizeof result);
        }
        sum_is(&sum, LARGEST, 1);
        support_schedules_destroy(pair, sum.schedules);
    }
    pair->groups[1]->transport = inproc;
}

/* The message can't be read any more after some of its parts were reduced. The
   reduce writes to a target of its own, to the other operand, or to the memory
   of the receive. */
TEST(test_loans_that_can_not_be_read_are_received)
{
    enum { OWN, OTHER, SAME, TARGETS };
    baton_transport_t reading;
    begin_reading(&reading);
    for (int i = 0; i < 3 * TARGETS; i++) {
        const int target = i % TARGETS;
        sum_begin(&sum, LARGEST, NULL);
        baton_view_t to = support_view(sum.receiver, result, sizeof result);
        if (target != OTHER) {
            sum.receiver->ops[sum.reduce.index].buffer[BATON__TARGET] =
                target == OWN ? to.buffer.index : sum.scratch.buffer.index;
        }
        if (target == SAME) {
            baton_before(sum.receiver, sum.reduce,
                         baton_add_copy(sum.receiver, to, sum.scratch));
        }
        support_schedules_commit(pair, sum.schedules);
        reads_left = i / TARGETS;
        support_schedules_run(pair, sum.schedules);
        assert_true(reads_left == -1);
        if (target != OTHER) {
            memcpy(sum.sum, result, sizeof result);
        }
        sum_is(&sum, LARGEST, 1);
        support_schedules_destroy(pair, sum.schedules);
    }
    pair->groups[1]->transport = inproc;
}

TEST(test_loans_not_of_short_messages)
{
    sum_begin(&sum, 100, NULL);
    support_schedules_commit(pair, sum.schedules);
    support_schedules_run(pair, sum.schedules);
    assert_ptr_not_equal(sum.witness.right, sum.given);
    sum_is(&sum, 100, 1);
    support_schedules_destroy(pair, sum.schedules);
}

static baton_status_t halve(void *arg, baton_call_t *call)
{
    return baton_call_set_length(call, *(baton_length_t *)arg, BYTES / 2);
}

TEST(test_loans_of_a_shorter_message)
{
    sum_begin(&sum, COUNT, NULL);
    baton_length_t length = baton_add_length(sum.receiver);
    baton_set_length(sum.receiver, sum.receive, length);
    baton_set_length(sum.receiver, sum.reduce, length);
    length = baton_add_length(sum.sender);
    baton_set_length(sum.sender, (baton_node_t){0}, length);
    baton_node_t call = baton_add_call(sum.sender, halve, &length);
    baton_before(sum.sender, call, (baton_node_t){0});
    support_schedules_commit(pair, sum.schedules);
    support_schedules_run(pair, sum.schedules);
    assert_ptr_equal(sum.witness.right, sum.given);
    assert_int_equal(sum.witness.count, COUNT / 2);
    sum_is(&sum, COUNT / 2, 1);
    assert_true(sum.sum[COUNT / 2] == 1);
    support_schedules_destroy(pair, sum.schedules);
}

/* The reduce waits for a second message. Rank 0 sends it only when the send of
   the first one has ended. So a loan of the first message would never end. */
TEST(test_loans_not_while_the_reduce_waits)
{
    static float more[COUNT];
    sum_begin(&sum, COUNT, NULL);
    baton_view_t word = support_scratch(sum.receiver, BYTES);
    baton_before(sum.receiver, baton_add_recv(sum.receiver, 0, word),
                 sum.reduce);
    baton_node_t second =
        baton_add_send(sum.sender, 1, support_view(sum.sender, more, BYTES));
    baton_before(sum.sender, (baton_node_t){0}, second);
    support_schedules_commit(pair, sum.schedules);
    support_ok(baton_schedule_start(sum.sender));
    support_ok(baton_schedule_start(sum.receiver));
    support_drain(pair);
    bool done = false;
    support_ok(baton_schedule_test(sum.receiver, &done));
    assert_true(done);
    assert_ptr_not_equal(sum.witness.right, sum.given);
    sum_is(&sum, COUNT, 1);
    support_schedules_destroy(pair, sum.schedules);
}

/* A call node between the receive and the reduce. */
static baton_status_t fail_while_lent(void *arg, baton_call_t *call)
{
    const sum_t *s = arg;
    return s->receiver->run.lent_count == 1
               ? baton_call_fail(call, BATON_ERR_LIMIT, "while it is lent")
               : BATON_OK;
}

/* The message is given back, so that the sender's epoch ends, too. */
TEST(test_loans_end_with_a_failure)
{
    sum_begin(&sum, COUNT, fail_while_lent);
    support_schedules_commit(pair, sum.schedules);
    support_ok(baton_schedule_start(sum.sender));
    support_ok(baton_schedule_start(sum.receiver));
    support_ends(sum.receiver, BATON_ERR_LIMIT);
    support_says("while it is lent");
    assert_int_equal(sum.receiver->run.lent_count, 0);
    support_drain(pair);
    assert_int_equal(baton__task_of(sum.sender)->moving, 0);
    support_schedules_destroy(pair, sum.schedules);
}

/* Steps until the reduce has read a part of the message that was lent to it. */
static void sum_run_in_part(sum_t *s)
{
    baton_engine_t *engine = pair->engines[0];
    support_ok(baton_schedule_start(s->sender));
    support_ok(baton_schedule_start(s->receiver));
    engine->driver->enter(engine);
    while (s->witness.count == 0) {
        (void)baton__step(&engine->stepper, BATON__SLICE_BYTES);
    }
    engine->driver->leave(engine);
    assert_true(s->witness.count < LARGEST);
    assert_int_equal(s->receiver->run.lent_count, 1);
}

TEST(test_loans_end_with_a_cancel_or_a_destroy)
{
    for (int destroys = 0; destroys < 2; destroys++) {
        sum_begin(&sum, LARGEST, NULL);
        support_schedules_commit(pair, sum.schedules);
        sum_run_in_part(&sum);
        if (destroys) {
            /* A lent message can't be withdrawn. */
            support_ok(baton_schedule_cancel(sum.sender));
            support_ok(baton_schedule_destroy(sum.receiver));
            sum.schedules[1] = NULL;
        } else {
            support_ok(baton_schedule_cancel(sum.receiver));
            support_ends(sum.receiver, BATON_ERR_CANCELLED);
            assert_int_equal(sum.receiver->run.lent_count, 0);
        }
        support_drain(pair);
        assert_int_equal(baton__task_of(sum.sender)->moving, 0);
        support_schedules_destroy(pair, sum.schedules);
    }
}

RUN_TESTS_BETWEEN(open_pair, close_pair)
