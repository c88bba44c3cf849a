#include "support/sim.h"

void support_us_at(double actual, double expected, const char *file, int line)
{
    if (!(actual == expected)) {
        print_error("%.17g us, expected %.17g\n", actual, expected);
        _fail(file, line);
    }
}

baton_sim_options_t support_sim_options(int ranks)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.link = (baton_sim_link_t){.alpha_us = 2, .beta_ns = 1000};
    return options;
}

baton_sim_t *support_sim_open(const baton_sim_options_t *options)
{
    baton_sim_t *sim = NULL;
    support_ok(baton_sim_create(options, &sim));
    return sim;
}

baton_sim_t *support_sim_of(int ranks)
{
    const baton_sim_options_t options = support_sim_options(ranks);
    return support_sim_open(&options);
}

baton_schedule_t *support_sim_schedule(baton_sim_t *sim, int rank,
                                       const char *name)
{
    return support_schedule(baton_sim_group(sim, rank), name);
}

void support_sim_messages(void *arg, baton_schedule_t *schedule)
{
    const support_messages_t *messages = arg;
    int rank = baton_schedule_rank(schedule);
    for (size_t i = 0; i < messages->count; i++) {
        const support_message_t *message = &messages->list[i];
        if (message->to == rank) {
            (void)baton_add_recv(schedule, message->from,
                                 support_scratch(schedule, message->bytes));
        }
        if (message->from == rank) {
            (void)baton_add_send(schedule, message->to,
                                 support_scratch(schedule, message->bytes));
        }
    }
}

void support_sim_add_nop(void *arg, baton_schedule_t *schedule)
{
    (void)baton_add_nop(schedule);
}

void support_trace(void *arg, const baton_sim_event_t *event)
{
    support_trace_t *trace = arg;
    assert_in_range(trace->count, 0, SUPPORT_EVENTS - 1);
    trace->events[trace->count++] = *event;
}

const baton_sim_event_t *support_event(const support_trace_t *trace,
                                       baton_sim_what_t what, int rank,
                                       size_t k)
{
    for (size_t i = 0; i < trace->count; i++) {
        const baton_sim_event_t *event = &trace->events[i];
        if (event->what == what && event->rank == rank && k-- == 0) {
            return event;
        }
    }
    fail_msg("no such event of rank %d", rank);
    return NULL;
}

void support_sim_recover(baton_sim_t *sim, int ranks)
{
    bool all = false;
    for (int tries = 0; !all; tries++) {
        assert_true(tries < 100);
        all = true;
        for (int r = 0; r < ranks; r++) {
            baton_group_t *group = baton_sim_group(sim, r);
            all = baton_group_recover(group, 0) == BATON_OK && all;
        }
        support_ok(baton_sim_run(sim, -1));
    }
}

double support_sim_traffic(const baton_sim_options_t *options,
                           const support_message_t *list, size_t count,
                           support_trace_t *trace)
{
    support_messages_t messages = {list, count};
    baton_sim_t *sim = support_sim_open(options);
    double us = -1;
    support_ok(
        baton_sim_build(sim, "traffic", support_sim_messages, &messages));
    trace->count = 0;
    baton_sim_trace(sim, support_trace, trace);
    support_ok(baton_sim_epoch(sim, &us));
    for (size_t i = 0; i < trace->count; i++) {
        trace->events[i].schedule =
            NULL; /* the simulator destroys the schedule */
    }
    support_ok(baton_sim_destroy(sim));
    return us;
}

void support_words_add(support_words_t *words, baton_sim_t *sim,
                       const char *name)
{
    *words = (support_words_t){.sim = sim, .out = 7};
    words->send = support_sim_schedule(sim, 0, name);
    words->recv = support_sim_schedule(sim, 1, name);
    (void)baton_add_send(words->send, 1,
                         support_view(words->send, &words->out, SUPPORT_WORD));
    (void)baton_add_recv(words->recv, 0,
                         support_view(words->recv, &words->in, SUPPORT_WORD));
    support_ok(baton_schedule_commit(words->send));
    support_ok(baton_schedule_commit(words->recv));
}

void support_words_start(const support_words_t *words)
{
    support_ok(baton_schedule_start(words->send));
    support_ok(baton_schedule_start(words->recv));
}

void support_words_remove(const support_words_t *words)
{
    support_ok(baton_schedule_destroy(words->send));
    support_ok(baton_schedule_destroy(words->recv));
}

void support_words_close(const support_words_t *words)
{
    support_words_remove(words);
    support_ok(baton_sim_destroy(words->sim));
}

void support_words_test(void **state)
{
    const support_words_test_t *test = *state;
    support_words_t words;
    support_words_add(&words, support_sim_of(2), "words");
    test->run(&words);
    support_words_close(&words);
}
