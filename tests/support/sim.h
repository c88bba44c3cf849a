/* Small simulations of given messages, and their traces. Failures are
   reported to cmocka. */
#pragma once

#include "support/cluster.h"

#include <baton/sim.h>

/* Fails the test unless both times are the same, to the last bit. */
#define support_us(actual, expected)                                           \
    support_us_at((actual), (expected), __FILE__, __LINE__)
void support_us_at(double actual, double expected, const char *file, int line);

/* Returns options with 2 us for a message and 1 us for a byte, so that times
   are whole numbers. */
baton_sim_options_t support_sim_options(int ranks);

baton_sim_t *support_sim_open(const baton_sim_options_t *options);

/* Opens a simulator with the options support_sim_options(ranks). */
baton_sim_t *support_sim_of(int ranks);

/* Returns a schedule that the test fills and commits itself. */
baton_schedule_t *support_sim_schedule(baton_sim_t *sim, int rank,
                                       const char *name);

/* Recovers the groups of all ranks. */
void support_sim_recover(baton_sim_t *sim, int ranks);

/* A message. Each rank sends its messages in the order of the list. */
typedef struct support_message {
    int from, to;
    size_t bytes;
} support_message_t;

typedef struct support_messages {
    const support_message_t *list;
    size_t count;
} support_messages_t;

/* A builder for baton_sim_build: adds the sends and receives of a
   support_messages_t, without edges. */
void support_sim_messages(void *arg, baton_schedule_t *schedule);

/* A builder of schedules that have a nop alone. */
void support_sim_add_nop(void *arg, baton_schedule_t *schedule);

/* The events of a trace. */
enum { SUPPORT_EVENTS = 256 };
typedef struct support_trace {
    baton_sim_event_t events[SUPPORT_EVENTS];
    size_t count;
} support_trace_t;
void support_trace(void *arg, const baton_sim_event_t *event);

/* Returns the k-th event of this kind at this rank, counted from 0. Fails the
   test if there is none. */
const baton_sim_event_t *support_event(const support_trace_t *trace,
                                       baton_sim_what_t what, int rank,
                                       size_t k);

/* Simulates one epoch of the messages of `list`, and records its trace. Returns
   the time of the epoch. */
double support_sim_traffic(const baton_sim_options_t *options,
                           const support_message_t *list, size_t count,
                           support_trace_t *trace);

/* A pair of schedules: rank 0 sends a word with the value 7 to rank 1. The
   message takes SUPPORT_WORD_US. */
enum { SUPPORT_WORD = 4 };
#define SUPPORT_WORD_US 6.0
typedef struct support_words {
    baton_sim_t *sim;
    baton_schedule_t *send, *recv;
    uint32_t out, in;
} support_words_t;

/* support_words_add adds a pair of schedules to a simulator. A simulator may
   have several pairs. support_words_start starts an epoch on both ranks. */
void support_words_add(support_words_t *words, baton_sim_t *sim,
                       const char *name);
void support_words_start(const support_words_t *words);
void support_words_remove(const support_words_t *words);

/* Destroys the pair and its simulator. */
void support_words_close(const support_words_t *words);

/* A test of a single pair, `words`, which has its own simulator. */
typedef struct support_words_test {
    void (*run)(support_words_t *words);
} support_words_test_t;
void support_words_test(void **state);
#define TEST_WORDS(name)                                                       \
    static void name(support_words_t *words);                                  \
    static support_words_test_t of_##name = {name};                            \
    SUPPORT_ADD(name, support_words_test, NULL, NULL, &of_##name)              \
    static void name(support_words_t *words)
