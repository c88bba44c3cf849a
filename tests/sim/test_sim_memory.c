/* Simulations when the n-th allocation fails, for each n, and models that are
   too large for the machine. */
#include "support/sim.h"
#include "support/trial.h"

/* ---- the n-th allocation ------------------------------------------------ */

static const baton_sim_options_t *options_of(bool cost_only)
{
    static baton_sim_options_t options;
    options = support_sim_options(3);
    options.cost_only = cost_only;
    options.skew = (baton_distribution_t){BATON_DISTRIBUTION_CONSTANT, 1, 0};
    options.lag = (baton_distribution_t){BATON_DISTRIBUTION_UNIFORM, 1, 9};
    return &options;
}

/* A port has memory for fewer than three sends whose receives are not posted
   yet. */
static const support_message_t list[] = {{0, 1, 100}, {0, 1, 8}, {2, 1, 64},
                                         {2, 1, 8},   {1, 0, 0}, {1, 2, 9}};
static support_messages_t messages = {list, sizeof list / sizeof list[0]};

static void create(void)
{
    baton_sim_t *sim = NULL;
    TRY(baton_sim_create(options_of(false), &sim));
    support_ok(baton_sim_destroy(sim));
}

static void build(void)
{
    double us;
    baton_sim_t *sim = support_sim_open(options_of(false));
    TRY(baton_sim_build(sim, "trial", support_sim_messages, &messages));
    support_ok(baton_sim_epoch(sim, &us));
    support_ok(baton_sim_destroy(sim));
}

/* Events and messages may be lost, so the simulation is over. */
static void epoch(void)
{
    double us;
    baton_sim_t *sim = support_sim_open(options_of(false));
    support_ok(baton_sim_build(sim, "trial", support_sim_messages, &messages));
    trial_begin();
    baton_status_t status = baton_sim_epoch(sim, &us);
    trial_end(status);
    support_ok(baton_sim_destroy(sim));
}

/* Starts the ranks one by one. Those that send come first, so that messages
   must be kept until the receivers start. */
static void start_each(void)
{
    baton_sim_t *sim = support_sim_open(options_of(false));
    support_words_t words[5];
    for (int i = 0; i < 5; i++) {
        support_words_add(&words[i], sim, "trial");
    }
    trial_begin();
    baton_status_t status = BATON_OK;
    for (int i = 0; i < 5; i++) {
        support_ok(baton_schedule_start(words[i].send));
    }
    for (int i = 0; i < 5 && status == BATON_OK; i++) {
        status = baton_schedule_wait(words[i].send, -1);
    }
    for (int i = 0; i < 5 && status == BATON_OK; i++) {
        support_ok(baton_schedule_start(words[i].recv));
    }
    for (int i = 0; i < 5 && status == BATON_OK; i++) {
        status = baton_schedule_wait(words[i].recv, -1);
    }
    trial_end(status);
    for (int i = 0; i < 5; i++) {
        support_words_remove(&words[i]);
    }
    support_ok(baton_sim_destroy(sim));
}

static void count(void *arg)
{
    ++*(int *)arg;
}

static void at(void)
{
    int calls = 0;
    baton_sim_t *sim = support_sim_open(options_of(true));
    trial_begin();
    baton_status_t status = BATON_OK;
    for (int i = 0; i < 2000 && status == BATON_OK; i++) {
        status = baton_sim_at(sim, i, count, &calls);
    }
    trial_end(status);
    /* The calls that were scheduled before are kept. */
    if (status != BATON_OK) {
        support_ok(baton_sim_at(sim, 1e6, count, &calls));
    }
    support_ok(baton_sim_run(sim, -1));
    assert_true(status != BATON_OK ? calls > 0 : calls == 2000);
    support_ok(baton_sim_destroy(sim));
}

TEST(test_sim_memory_of_each_step)
{
    try_each(create);
    try_each(build);
    try_each(epoch);
    try_each(start_each);
    try_each(at);
}

/* The sender's schedule is destroyed, and there is no memory to keep its
   messages. */
TEST(test_sim_memory_of_a_kept_message)
{
    const support_message_t large[] = {{0, 1, 1000}};
    support_messages_t one = {large, 1};
    baton_sim_t *sim = support_sim_of(2);
    support_ok(baton_sim_build(sim, "large", support_sim_messages, &one));
    support_ok(baton_schedule_start(baton_sim_schedule(sim, 0)));
    support_expect(baton_sim_run(sim, 500), BATON_ERR_TIMEOUT);
    baton__alloc_fail_nth(1);
    support_fails(baton_sim_run(sim, -1), BATON_ERR_NO_MEMORY, "no memory");
    baton__alloc_fail_nth(0);
    /* The receiver gets an error. */
    support_ok(baton_schedule_start(baton_sim_schedule(sim, 1)));
    support_expect(baton_schedule_wait(baton_sim_schedule(sim, 1), -1),
                   BATON_ERR_NO_MEMORY);
    support_ok(baton_sim_destroy(sim));
}

/* ---- models that are too large ------------------------------------------ */

static void add_tebibyte(void *arg, baton_schedule_t *schedule)
{
    size_t bytes = (size_t)1 << 40;
    baton_view_t view = support_scratch(schedule, bytes);
    (void)baton_add_reduce_local(schedule, BATON_U8, BATON_SUM, view, view,
                                 view);
}

TEST(test_sim_memory_is_asked_for_before)
{
    baton_sim_options_t options = support_sim_options(64);
    baton_sim_t *sim = support_sim_open(&options);
    int64_t allocations = baton__alloc_count();
    support_fails(baton_sim_build(sim, "huge", add_tebibyte, NULL),
                  BATON_ERR_NO_MEMORY, "\"huge\" on 64 ranks");
    support_says("GiB more, and the machine has");
    support_says("set cost_only");
    /* Only the first rank's graph is allocated. */
    assert_in_range(baton__alloc_count() - allocations, 1, 30);
    support_ok(baton_sim_destroy(sim));

    options.cost_only = true; /* the error message recommends this */
    sim = support_sim_open(&options);
    double us = -1;
    support_ok(baton_sim_build(sim, "huge", add_tebibyte, NULL));
    support_ok(baton_sim_epoch(sim, &us));
    support_ok(baton_sim_destroy(sim));
}
