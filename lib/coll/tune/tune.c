/* Measures which algorithm is fastest, on all ranks of a group at once.

   A vote is an all-reduce (the maximum) of a few numbers, by a schedule of its
   own. The first vote of a tuning compares the ranks' options. A vote before
   each sample lets ranks begin the sample together, and shows whether any
   rank's budget is used up. A vote after the samples of a size gives all ranks
   the medians of the slowest rank, so that they draw the same conclusion.

       vote(what) -> [vote(time) -> sample]* -> vote(medians) -> ... -> vote

   The results come into force after the last vote. If a rank leaves before, for
   whatever reason, it destroys its schedule of votes, and then the votes of the
   others fail. The last vote has no time limit, since all ranks take part in
   it: so no rank gives up on it while another one completes it. */
#include "coll/tune/tune.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/random.h"
#include "coll/kit/check.h"
#include "coll/kit/cost.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* At most CANDIDATES algorithms are measured for a size. TURNS samples of each
   are taken, and one more before them, which does not count. BUDGET_MS is the
   default budget of a tuning, and MEASURE_MS the budget for one case with
   BATON_TUNE=measure. */
enum { TURNS = 9, CANDIDATES = 4, BUDGET_MS = 10000, MEASURE_MS = 1000 };

/* A sample has several epochs, since the time of a single epoch would suffer
   from the clock's resolution, and from ranks that begin at different times.
   One epoch before them is not measured: after a vote and other candidates the
   vectors and scratch are not in caches, but in an application's loop of epochs
   they are. */
enum { SAMPLE_US = 4000, LEAST_EPOCHS = 2, MOST_EPOCHS = 32 };

#define CLEARLY     0.9
#define LEAST_BYTES ((size_t)8)
#define MOST_BYTES  ((size_t)4 << 20)
#define LIMIT_BYTES ((size_t)1 << 30)
/* BATON_TUNE=measure measures nothing for vectors longer than this. */
#define MEASURE_MOST ((size_t)64 << 20)

double (*baton__tune_us)(int rank, const char *algorithm, double us);

/* ---- the tuned state of a group ------------------------------------------ */

typedef struct tuned {
    pthread_mutex_t lock;
    baton__measured_t *measured;
    /* Number of tunings so far, which is part of the names of their
       schedules. */
    uint32_t calls;
    /* A measurement for BATON_TUNE=measure has failed, so the group measures no
       more. Accesses are relaxed, since the flag only saves time. */
    atomic_bool refused;
} tuned_t;

static const char tuned_key;

static void free_tuned(void *value)
{
    tuned_t *tuned = value;
    baton__measured_free(&tuned->measured);
    (void)pthread_mutex_destroy(&tuned->lock);
    baton__free(tuned);
}

/* Returns the group's tuned_t, and creates it if there is none. Returns NULL if
   there is no memory. */
static tuned_t *tuned_of(baton_group_t *group)
{
    tuned_t *tuned = baton_group_attribute(group, &tuned_key, NULL, NULL);
    if (tuned != NULL) {
        return tuned;
    }
    tuned_t *made = baton__alloc(1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&made->lock, NULL);
    tuned = baton_group_attribute(group, &tuned_key, made, free_tuned);
    if (tuned != made) {
        free_tuned(made);
    }
    return tuned;
}

/* ---- a tuning ------------------------------------------------------------ */

/* The numbers of a vote, by their index in its vector. USED is the used part of
   the budget, 1 for all of it. WHAT says what is tuned; NOT_WHAT is its
   negative, so that the maxima of both show whether ranks differ. FIRST is the
   time of an epoch in the first sample of a size, in us. From MEDIANS on there
   is the median time of each candidate. */
enum { USED, WHAT, NOT_WHAT, FIRST, MEDIANS, VALUES = MEDIANS + CANDIDATES };

typedef struct tuning {
    baton_group_t *group;
    baton_tune_options_t options;
    char name[32];
    uint64_t began_ns;
    baton_schedule_t *votes;
    double mine[VALUES];
    double all[VALUES];
    void *source, *target;
    /* True if a schedule could not be destroyed, since it still uses this
       struct and the vectors. Then they are never freed. */
    bool moving;
    baton__measured_t *learned;
} tuning_t;

/* The measurement of a collective with vectors of one size. */
typedef struct trial {
    tuning_t *tuning;
    baton_choice_case_t of;
    size_t count;
    baton_choice_t choices[CANDIDATES];
    baton_schedule_t *schedules[CANDIDATES];
    double us[CANDIDATES][TURNS + 1];
    size_t taken[CANDIDATES];
    /* The number of epochs of a sample: 1 in the first samples, more
       afterwards. */
    int epochs;
} trial_t;

/* Runs an epoch. Cancels it if it takes too long. */
static baton_status_t tune_run(tuning_t *tuning, baton_schedule_t *schedule,
                               int timeout_ms)
{
    char why[BATON__MESSAGE_BYTES];
    baton_status_t status = baton__start_to_wait(schedule);
    if (status == BATON_OK) {
        status = baton__wait_out(schedule, timeout_ms);
    }
    if (status == BATON_ERR_TIMEOUT) {
        (void)snprintf(why, sizeof why, "%s", baton_error_message());
        (void)!baton_schedule_cancel(schedule);
        status = baton__error(BATON_ERR_TIMEOUT,
                              "tune: some ranks have not called "
                              "baton_group_tune within %d ms: %.600s",
                              timeout_ms, why);
    }
    return status;
}

static baton_status_t vote(tuning_t *tuning, int timeout_ms)
{
    double ms = (double)(baton__clock_ns() - tuning->began_ns) / 1e6;
    tuning->mine[USED] = ms / tuning->options.budget_ms;
    baton_status_t status = tune_run(tuning, tuning->votes, timeout_ms);
    const baton_tune_options_t *options = &tuning->options;
    if (status == BATON_OK && options->on_progress != NULL) {
        options->on_progress(options->on_progress_arg, tuning->all[USED]);
    }
    return status;
}

static void tune_destroy(tuning_t *tuning, baton_schedule_t *schedule)
{
    tuning->moving |= baton_schedule_destroy(schedule) != BATON_OK;
}

/* ---- a candidate --------------------------------------------------------- */

/* Returns the bytes of the vector with which the case is measured: of->bytes,
   rounded down so that each rank has the same number of whole elements. */
static size_t tune_bytes_of(const baton_choice_case_t *of)
{
    size_t unit = sizeof(float) * (size_t)of->ranks;
    return of->bytes > unit ? of->bytes / unit * unit : unit;
}

static void tune_build(const trial_t *trial, const baton_choice_t *choice,
                       baton_schedule_t *schedule)
{
    const tuning_t *tuning = trial->tuning;
    size_t bytes = tune_bytes_of(&trial->of);
    size_t block = bytes / (size_t)trial->of.ranks;
    baton_view_t from = baton_view(
        baton_buffer_bind(schedule, tuning->source, bytes), 0, bytes);
    baton_view_t to = baton_view(
        baton_buffer_bind(schedule, tuning->target, bytes), 0, bytes);
    switch ((int)trial->of.collective) {
#define BUILD(id, noun, ...)                                                   \
    case BATON_COLLECTIVE_##id:                                                \
        choice->algorithm.build.noun(                                          \
            schedule,                                                          \
            &(const baton_##noun##_args_t){                                    \
                .size = sizeof(baton_##noun##_args_t), __VA_ARGS__});          \
        break;
#define CHUNKED .chunk_bytes = choice->segment_bytes
#define SUM     .dtype = BATON_F32, .op = BATON_SUM, CHUNKED
        BUILD(BROADCAST, broadcast, .data = from, CHUNKED)
        BUILD(REDUCE, reduce, .source = from, .target = to, SUM)
        BUILD(ALLREDUCE, allreduce, .source = from,
              .target = trial->of.in_place ? from : to, SUM)
        BUILD(REDUCE_SCATTER, reduce_scatter, .source = from,
              .target = baton_view(to.buffer, 0, block), SUM)
        BUILD(ALLGATHER, allgather, .source = baton_view(from.buffer, 0, block),
              .target = to, CHUNKED)
        BUILD(ALLTOALL, alltoall, .source = from, .target = to)
#undef BUILD
    default:
        break; /* there is only one algorithm to choose from */
    }
}

static baton_status_t open_candidates(trial_t *trial)
{
    tuning_t *tuning = trial->tuning;
    baton_status_t status = baton__choice_rank(&trial->of, CANDIDATES,
                                               trial->choices, &trial->count);
    for (size_t i = 0; i < trial->count && status == BATON_OK; i++) {
        status = baton_schedule_create(tuning->group, tuning->name,
                                       &trial->schedules[i]);
        if (status == BATON_OK) {
            tune_build(trial, &trial->choices[i], trial->schedules[i]);
            status = baton_schedule_commit(trial->schedules[i]);
        }
    }
    return status;
}

/* ---- a size -------------------------------------------------------------- */

static baton_status_t tune_sample(trial_t *trial, size_t candidate)
{
    tuning_t *tuning = trial->tuning;
    const char *name = trial->choices[candidate].algorithm.name;
    uint64_t began_ns = 0;
    baton_status_t status = BATON_OK;
    for (int i = -1; i < trial->epochs && status == BATON_OK; i++) {
        began_ns = i <= 0 ? baton__clock_ns() : began_ns;
        status = tune_run(tuning, trial->schedules[candidate],
                          tuning->options.budget_ms);
    }
    double us = (double)(baton__clock_ns() - began_ns) / 1e3 / trial->epochs;
    if (baton__tune_us != NULL) {
        us = baton__tune_us(baton_group_rank(tuning->group), name, us);
    }
    trial->us[candidate][trial->taken[candidate]++] = us;
    tuning->mine[FIRST] = trial->us[0][0];
    return status;
}

/* Takes samples of the candidates in turn, until there are enough samples or
   the budget is used up. */
static baton_status_t sample_all(trial_t *trial)
{
    tuning_t *tuning = trial->tuning;
    for (size_t i = 0; i < (TURNS + 1) * trial->count; i++) {
        baton_status_t status = vote(tuning, tuning->options.budget_ms);
        if (status != BATON_OK || tuning->all[USED] >= 1) {
            return status;
        }
        if (i == trial->count) {
            trial->epochs =
                (int)fmax(LEAST_EPOCHS,
                          fmin(SAMPLE_US / tuning->all[FIRST], MOST_EPOCHS));
        }
        status = tune_sample(trial, i % trial->count);
        if (status != BATON_OK) {
            return status;
        }
    }
    return BATON_OK;
}

/* Returns the median of all samples except the first, which does not count. */
static double median_of(double *us, size_t count)
{
    for (size_t i = 2; i < count; i++) {
        double value = us[i];
        size_t at = i;
        for (; at > 1 && us[at - 1] > value; at--) {
            us[at] = us[at - 1];
        }
        us[at] = value;
    }
    return us[1 + (count - 2) / 2];
}

/* Adds the candidate to use for this size to tuning->learned. That is the
   model's first choice, unless other candidates take less than CLEARLY times as
   long; then it is the fastest of these. (Medians differ by some percent from
   run to run.) The time of a candidate is its median on the rank where that is
   largest. */
static baton_status_t conclude(trial_t *trial)
{
    tuning_t *tuning = trial->tuning;
    for (size_t i = 0; i < trial->count; i++) {
        tuning->mine[MEDIANS + i] = median_of(trial->us[i], trial->taken[i]);
    }
    baton_status_t status = vote(tuning, tuning->options.budget_ms);
    if (status != BATON_OK) {
        return status;
    }
    const double *us = &tuning->all[MEDIANS];
    size_t best = 0;
    for (size_t i = 1; i < trial->count; i++) {
        if (us[i] < us[best] && us[i] < CLEARLY * us[0]) {
            best = i;
        }
    }
    baton__measured_t learned = baton__measured_key(&trial->of);
    learned.algorithm = trial->choices[best].algorithm.name;
    learned.segment_bytes = trial->choices[best].segment_bytes;
    return baton__measured_add(&tuning->learned, &learned);
}

/* Measures the candidates for a size. Learns nothing if the budget is used up
   before each candidate has a sample that counts. All ranks decide that alike,
   since all have the same number of samples. */
static baton_status_t try_size(tuning_t *tuning, const baton_choice_case_t *of)
{
    trial_t trial = {.tuning = tuning, .of = *of, .epochs = 1};
    baton_status_t status = open_candidates(&trial);
    if (status == BATON_OK) {
        status = sample_all(&trial);
    }
    if (status == BATON_OK && trial.count > 0 &&
        trial.taken[trial.count - 1] > 1) {
        status = conclude(&trial);
    }
    for (size_t i = 0; i < trial.count; i++) {
        tune_destroy(tuning, trial.schedules[i]);
    }
    return status;
}

/* ---- begin and end ------------------------------------------------------- */

/* Returns a number that differs between ranks if they tune different things, or
   if their costs differ so that they would try different candidates. */
static double what_of(const baton_tune_options_t *options,
                      const baton_costs_t *costs)
{
    uint64_t words[sizeof *costs / sizeof(uint64_t)];
    uint64_t hash = options->collectives;
    memcpy(words, costs, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash = baton__mix(hash ^ words[i]);
    }
    hash = baton__mix(hash ^ options->least_bytes);
    hash = baton__mix(hash ^ options->most_bytes);
    return (double)(baton__mix(hash + options->in_place) >> 12);
}

static baton_status_t tune_allocate(tuning_t *tuning)
{
    size_t bytes = baton__measured_class(tuning->options.most_bytes) +
                   sizeof(float) * (size_t)baton_group_size(tuning->group);
    tuning->source = baton__alloc(1, bytes);
    tuning->target = baton__alloc(1, bytes);
    if (tuning->source != NULL) {
        /* The system maps all pages that were never written to a single page of
           zeros, which stays in a cache. So the vector is written once. */
        memset(tuning->source, 0, bytes);
    }
    return tuning->source != NULL && tuning->target != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_NO_MEMORY,
                              "tune: no memory for vectors of %zu bytes",
                              bytes);
}

static void tune_release(tuning_t *tuning)
{
    baton__measured_free(&tuning->learned);
    if (!tuning->moving) {
        baton__free(tuning->source);
        baton__free(tuning->target);
        baton__free(tuning);
    }
}

/* Waits for the other ranks, and compares this rank's options and costs with
   theirs. */
static baton_status_t tune_begin(tuning_t *tuning)
{
    enum { BYTES = VALUES * sizeof(double) };
    baton_schedule_t *schedule = NULL;
    baton_costs_t costs = BATON_COSTS;
    baton_status_t status =
        baton_schedule_create(tuning->group, tuning->name, &schedule);
    tuning->votes = schedule;
    if (status == BATON_OK) {
        status = baton_costs_get(&costs);
    }
    if (status != BATON_OK) {
        return status;
    }
    baton_allreduce_args_t args = {
        .size = sizeof args,
        .source = baton_view(
            baton_buffer_bind_input(schedule, tuning->mine, BYTES), 0, BYTES),
        .target = baton_view(baton_buffer_bind(schedule, tuning->all, BYTES), 0,
                             BYTES),
        .dtype = BATON_F64,
        .op = BATON_MAX};
    baton_add_allreduce_recursive_doubling(schedule, &args);
    status = baton_schedule_commit(schedule);
    if (status != BATON_OK) {
        return status;
    }
    tuning->mine[WHAT] = what_of(&tuning->options, &costs);
    tuning->mine[NOT_WHAT] = -tuning->mine[WHAT];
    status = vote(tuning, tuning->options.budget_ms);
    return status == BATON_OK && tuning->all[WHAT] > -tuning->all[NOT_WHAT]
               ? baton__error(BATON_ERR_INVALID,
                              "tune: the ranks have different options, or "
                              "different costs in BATON_CALIBRATION: all but "
                              "budget_ms and file must be the same")
               : status;
}

/* ---- the cases of a tuning ----------------------------------------------- */

static baton_status_t tune_all(tuning_t *tuning)
{
    const baton_tune_options_t *options = &tuning->options;
    size_t least = baton__measured_class(options->least_bytes);
    size_t most = baton__measured_class(options->most_bytes);
    baton_choice_case_t of = {.size = sizeof of,
                              .ranks = baton_group_size(tuning->group)};
    of.hosts = baton_schedule_hosts(tuning->votes);
    of.processors = baton_schedule_processors(tuning->votes);
    of.scattered =
        of.hosts > 1 && baton_schedule_host_block(tuning->votes) == 0;
    baton_status_t status = BATON_OK;
    for (int i = 0; i < (int)BATON_COLLECTIVE_COUNT; i++) {
        of.collective = (baton_collective_t)i;
        of.in_place = options->in_place && i == BATON_COLLECTIVE_ALLREDUCE;
        if ((options->collectives & 1u << i) == 0) {
            continue;
        }
        for (of.bytes = least; of.bytes <= most; of.bytes *= 4) {
            status = try_size(tuning, &of);
            if (status != BATON_OK || tuning->all[USED] >= 1) {
                return status;
            }
        }
    }
    return status;
}

/* Adds the results to a calibration file. Creates the file if there is none. */
static baton_status_t tune_save(const char *path,
                                const baton__measured_t *learned)
{
    baton_costs_t costs = BATON_COSTS;
    bool exists = access(path, F_OK) == 0;
    baton_status_t status =
        exists ? baton_costs_read(path, &costs) : baton_costs_get(&costs);
    if (status == BATON_OK && !exists) {
        status = baton_costs_write(path, &costs);
    }
    return status == BATON_OK ? baton__measured_append(path, learned) : status;
}

/* Waits until all ranks have all results, and puts the results into force. Rank
   0 also saves the results. If saving fails, they are in force nevertheless. */
static baton_status_t tune_end(tuning_t *tuning, tuned_t *tuned)
{
    const char *file = tuning->options.file;
    baton_status_t status = vote(tuning, -1);
    if (status != BATON_OK) {
        return status;
    }
    if (file != NULL && baton_group_rank(tuning->group) == 0) {
        status = tune_save(file, tuning->learned);
    }
    pthread_mutex_lock(&tuned->lock);
    baton__measured_t **last = &tuning->learned;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = tuned->measured;
    tuned->measured = tuning->learned;
    tuning->learned = NULL;
    pthread_mutex_unlock(&tuned->lock);
    return status;
}

static baton_status_t tune(baton_group_t *group, tuned_t *tuned,
                           const baton_tune_options_t *options)
{
    tuning_t *tuning = baton__alloc(1, sizeof *tuning);
    if (tuning == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "tune: no memory");
    }
    *tuning = (tuning_t){
        .group = group, .options = *options, .began_ns = baton__clock_ns()};
    pthread_mutex_lock(&tuned->lock);
    (void)snprintf(tuning->name, sizeof tuning->name, "baton/tune %u",
                   ++tuned->calls);
    pthread_mutex_unlock(&tuned->lock);
    baton_status_t status = tune_begin(tuning);
    if (status == BATON_OK) {
        status = tune_allocate(tuning);
    }
    if (status == BATON_OK) {
        status = tune_all(tuning);
    }
    if (status == BATON_OK) {
        status = tune_end(tuning, tuned);
    }
    tune_destroy(tuning, tuning->votes);
    tune_release(tuning);
    return status;
}

/* ---- baton_group_tune ---------------------------------------------------- */

/* Returns a bit for each collective that has several algorithms. */
static unsigned eligible(void)
{
    unsigned seen = 0;
    unsigned several = 0;
    baton_algorithm_t each;
    for (size_t i = 0; baton_algorithm_get(i, &each); i++) {
        unsigned bit = baton__has_cost(&each) ? 1u << each.collective : 0;
        several |= seen & bit;
        seen |= bit;
    }
    return several;
}

static baton_status_t tune_read_options(const baton_tune_options_t *passed,
                                        baton_tune_options_t *out)
{
    static const baton_tune_options_t defaults = {.size = sizeof defaults};
    baton_status_t status = baton__options_read(
        out, sizeof *out, passed != NULL ? passed : &defaults, "tune: options",
        "BATON_TUNE_OPTIONS");
    if (status != BATON_OK) {
        return status;
    }
    out->budget_ms = out->budget_ms != 0 ? out->budget_ms : BUDGET_MS;
    out->collectives = out->collectives != 0 ? out->collectives : eligible();
    out->least_bytes = out->least_bytes != 0 ? out->least_bytes : LEAST_BYTES;
    out->most_bytes = out->most_bytes != 0 ? out->most_bytes : MOST_BYTES;
    if (out->budget_ms < 0) {
        return baton__error(BATON_ERR_INVALID,
                            "tune: budget_ms is %d; allowed: 0, which means "
                            "%d, or more",
                            out->budget_ms, (int)BUDGET_MS);
    }
    if ((out->collectives & ~eligible()) != 0) {
        return baton__error(BATON_ERR_INVALID,
                            "tune: collectives is 0x%x; allowed: bits of 0x%x, "
                            "the collectives with several algorithms",
                            out->collectives, eligible());
    }
    if (out->most_bytes > LIMIT_BYTES || out->least_bytes > out->most_bytes) {
        return baton__error(
            BATON_ERR_INVALID,
            "tune: least_bytes is %zu and most_bytes is %zu; least_bytes must "
            "be at most most_bytes, and most_bytes at most %zu",
            out->least_bytes, out->most_bytes, LIMIT_BYTES);
    }
    return BATON_OK;
}

baton_status_t baton_group_tune(baton_group_t *group,
                                const baton_tune_options_t *passed)
{
    baton_tune_options_t options;
    if (baton_group_size(group) < 0) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: group is NULL, or was destroyed", __func__);
    }
    baton_status_t status = tune_read_options(passed, &options);
    if (status != BATON_OK) {
        return status;
    }
    if (baton_group_is_simulated(group)) {
        return baton__error(BATON_ERR_UNSUPPORTED,
                            "tune: the ranks of the group are simulated, so "
                            "their times can't be measured");
    }
    if (baton_group_size(group) == 1) {
        return BATON_OK;
    }
    tuned_t *tuned = tuned_of(group);
    if (tuned == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "tune: no memory");
    }
    return tune(group, tuned, &options);
}

/* ---- BATON_TUNE=measure -------------------------------------------------- */

static const baton__measured_t *tune_find(tuned_t *tuned,
                                          const baton__measured_t *key)
{
    pthread_mutex_lock(&tuned->lock);
    const baton__measured_t *found = baton__measured_find(tuned->measured, key);
    pthread_mutex_unlock(&tuned->lock);
    return found;
}

/* Measures the candidates for a case. After a failure the group does not try
   again: if ranks do not make the same calls, each try costs them time. */
static void tune_measure(baton_group_t *group, tuned_t *tuned,
                         const baton__measured_t *key)
{
    const baton_tune_options_t options = {.size = sizeof options,
                                          .budget_ms = MEASURE_MS,
                                          .collectives = 1u << key->collective,
                                          .least_bytes = key->class_bytes,
                                          .most_bytes = key->class_bytes,
                                          .in_place = key->in_place};
    if (tune(group, tuned, &options) != BATON_OK) {
        baton__log(BATON_LOG_WARN,
                   "BATON_TUNE=measure: choices of this group stay as they "
                   "are: %s",
                   baton_error_message());
        atomic_store_explicit(&tuned->refused, true, memory_order_relaxed);
    }
}

/* Returns the choice that this group has measured for a case. If there is none
   and BATON_TUNE is `measure`, measures it now. Returns NULL if there is still
   none. */
static const baton__measured_t *find_or_measure(baton_group_t *group,
                                                const baton_choice_case_t *of)
{
    bool measures = baton__config_number(BATON__CONFIG_TUNE) > 0;
    tuned_t *tuned = measures
                         ? tuned_of(group)
                         : baton_group_attribute(group, &tuned_key, NULL, NULL);
    if (tuned == NULL) {
        return NULL;
    }
    const baton__measured_t key = baton__measured_key(of);
    const baton__measured_t *found = tune_find(tuned, &key);
    if (found == NULL && measures &&
        !atomic_load_explicit(&tuned->refused, memory_order_relaxed) &&
        key.class_bytes <= MEASURE_MOST &&
        (eligible() & 1u << of->collective) != 0) {
        tune_measure(group, tuned, &key);
        found = tune_find(tuned, &key);
    }
    return found;
}

/* A choice that the group has measured comes before those of the calibration
   file, so it does not matter whether that file can be read. */
baton_status_t baton__choose_for(baton_group_t *group,
                                 const baton_choice_case_t *of,
                                 baton_choice_t *out)
{
    bool measured = baton__choice_name(of)[0] == '\0' && of->ranks > 1 &&
                    !baton_group_is_simulated(group);
    const baton__measured_t *found =
        measured ? find_or_measure(group, of) : NULL;
    baton_choice_t taken = {.algorithm = {.name = NULL}};
    if (found != NULL && baton__choice_take(found, of, &taken) == BATON_OK &&
        taken.algorithm.name != NULL) {
        *out = taken;
        return BATON_OK;
    }
    return baton_choose(of, out);
}
