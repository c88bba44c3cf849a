/* Options: defaults, checks, and the comparison across ranks.

   The comparison is a schedule of its own: a barrier in which each rank states
   its options (baton_schedule_agree). It fails on all ranks if options differ,
   or if a rank's options are wrong or it lacks memory. */
#include "coll/sparse/core/core.h"

#include "base/error.h"
#include "base/options.h"
#include "coll/kit/check.h"
#include "coll/kit/pattern.h"
#include "coll/partial/rule.h"

#include <assert.h>
#include <baton/coll.h>
#include <baton/costs.h>
#include <math.h>
#include <string.h>

/* ---- checks ------------------------------------------------------------ */

#define REFUSE(...) baton__refuse(wrong, BATON_ERR_INVALID, __VA_ARGS__)

static const char *const algorithm_names[] = {
    "auto",
#define ALGORITHM_NAME(NAME, name) name,
    BATON_SPARSE_ALGORITHM_LIST(ALGORITHM_NAME)
#undef ALGORITHM_NAME
};

const char *baton_sparse_algorithm_name(baton_sparse_algorithm_t algorithm)
{
    return (unsigned)algorithm < BATON_SPARSE_COUNT ? algorithm_names[algorithm]
                                                    : "?";
}

/* What algorithms support: options.partial, gradients on a device, in_place,
   and teams. Algorithms that learn from earlier selections do not support
   partial steps: they would learn from empty selections, too. */
enum { PARTIAL = 1, DEVICE = 2, IN_PLACE = 4, TEAMS = 8 };
static const uint8_t supports[BATON_SPARSE_COUNT] = {
    [BATON_SPARSE_AUTO] = PARTIAL | IN_PLACE | TEAMS,
    [BATON_SPARSE_SPARDL] = PARTIAL | DEVICE | IN_PLACE | TEAMS,
    [BATON_SPARSE_TOPKA] = PARTIAL | DEVICE,
    [BATON_SPARSE_TOPKDSA] = PARTIAL,
    [BATON_SPARSE_GTOPK] = PARTIAL,
    [BATON_SPARSE_REDSYNC] = DEVICE,
    [BATON_SPARSE_DENSE] = DEVICE | IN_PLACE,
};

bool baton__sparse_is_for_devices(baton_sparse_algorithm_t algorithm)
{
    return (supports[algorithm] & DEVICE) != 0;
}

/* Checks an option that is an enumeration or a number of epochs. */
static bool in_range(const char *name, int64_t value, int most,
                     baton__wrong_t *wrong)
{
    return (value >= 0 && value <= most) ||
           REFUSE("%s is %lld; allowed: 0 to %d", name, (long long)value, most);
}

static bool check_size(const baton_sparse_options_t *o, baton__wrong_t *wrong)
{
    return (baton_select_supports(o->dtype) ||
            REFUSE("dtype is %s; allowed: f32, f64, f16, bf16",
                   baton_dtype_name(o->dtype))) &&
           ((o->count > 0 && o->count <= UINT32_MAX) ||
            REFUSE("count is %zu; allowed: 1 to %lu", o->count,
                   (unsigned long)UINT32_MAX)) &&
           (o->k <= o->count ||
            REFUSE("k is %zu; allowed: 1 to count, %zu", o->k, o->count)) &&
           (o->k > 0 || baton__is_density(o->density) ||
            REFUSE("density is %g, and k is 0; allowed: above 0 and at most "
                   "1, or a k",
                   o->density)) &&
           (o->max_k == 0 || (o->max_k <= o->count && o->max_k >= o->k) ||
            REFUSE("max_k is %zu; allowed: k, %zu, to count, %zu", o->max_k,
                   o->k, o->count));
}

static bool sparse_options_check_kind(const baton_sparse_options_t *o, int size,
                                      baton__wrong_t *wrong)
{
    const char *algorithm = baton_sparse_algorithm_name(o->algorithm);
    return in_range("algorithm", (int)o->algorithm, BATON_SPARSE_COUNT - 1,
                    wrong) &&
           in_range("memory", (int)o->memory, BATON_MEMORY_DEVICE, wrong) &&
           in_range("exchange", (int)o->exchange, BATON_EXCHANGE_BSAG, wrong) &&
           in_range("redsync", (int)o->redsync, BATON_REDSYNC_SAMPLED, wrong) &&
           ((o->teams >= BATON_SPARSE_TEAMS_AUTO &&
             (o->teams <= 0 || size % o->teams == 0)) ||
            REFUSE("teams is %d; allowed: the divisors of %d ranks, or "
                   "BATON_SPARSE_TEAMS_AUTO, -1",
                   o->teams, size)) &&
           (o->teams <= 1 || (supports[o->algorithm] & TEAMS) != 0 ||
            REFUSE("teams is %d with algorithm %s, which has none; allowed: "
                   "with spardl or auto",
                   o->teams, algorithm)) &&
           (o->exchange == BATON_EXCHANGE_AUTO ||
            (supports[o->algorithm] & TEAMS) != 0 ||
            REFUSE("exchange is set with algorithm %s, which has no teams; "
                   "allowed: with spardl or auto",
                   algorithm)) &&
           ((!o->quantise && o->redsync == BATON_REDSYNC_EXACT) ||
            o->algorithm == BATON_SPARSE_REDSYNC ||
            REFUSE("%s is set with algorithm %s; allowed: with redsync",
                   o->quantise ? "quantise" : "redsync", algorithm)) &&
           (o->exchange != BATON_EXCHANGE_RSAG || o->teams <= 0 ||
            baton__is_power_of_two(o->teams) ||
            REFUSE("teams is %d; allowed with RSAG: powers of two", o->teams));
}

static bool sparse_options_check_training(const baton_sparse_options_t *o,
                                          baton__wrong_t *wrong)
{
    return ((o->momentum >= 0 && o->momentum < 1) ||
            REFUSE("momentum is %g; allowed: 0 to below 1", o->momentum)) &&
           (!o->nesterov || o->momentum != 0 ||
            REFUSE("nesterov is set and momentum is 0; allowed: with a "
                   "momentum above 0")) &&
           ((o->clip >= 0 && !isinf(o->clip)) ||
            REFUSE("clip is %g; allowed: 0 and above, finite", o->clip)) &&
           (!o->quantise || o->redsync != BATON_REDSYNC_SAMPLED ||
            REFUSE("quantise is set with SAMPLED; allowed: with the other "
                   "selections"));
}

static bool sparse_options_is_cost(double cost)
{
    return cost >= 0 && !isinf(cost);
}

static bool check_link(const baton_sparse_options_t *o, baton__wrong_t *wrong)
{
    return (sparse_options_is_cost(o->link.alpha_us) &&
            sparse_options_is_cost(o->link.beta_ns)) ||
           REFUSE("link is %g us and %g ns; allowed: 0 and above, finite",
                  o->link.alpha_us, o->link.beta_ns);
}

/* With options.partial: HISTORY is the default of options.history, and
   MOST_EPOCHS the most that options.history and options.max_staleness may
   be. */
enum { HISTORY = 4, MOST_EPOCHS = 1 << 20 };

static bool check_not_partial(const baton_sparse_options_t *o,
                              baton__wrong_t *wrong)
{
    const struct {
        const char *name;
        uint32_t value;
    } others[] = {{"mode", (uint32_t)o->mode},
                  {"mode_ranks", o->mode_ranks},
                  {"history", o->history},
                  {"sync_every", o->sync_every},
                  {"max_staleness", o->max_staleness},
                  {"on_loss", (uint32_t)o->on_loss}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i].value != 0) {
            return REFUSE("%s is %u; allowed without partial: 0",
                          others[i].name, others[i].value);
        }
    }
    return true;
}

static bool sparse_options_check_partial(const baton_sparse_options_t *o,
                                         int size, baton__wrong_t *wrong)
{
    if (!o->partial) {
        return check_not_partial(o, wrong);
    }
    const uint32_t history = o->history == 0 ? HISTORY : o->history;
    const baton__choice_t choice = {o->mode, o->mode_ranks};
    return ((supports[o->algorithm] & PARTIAL) != 0 ||
            REFUSE("algorithm is %s; allowed with partial: auto, spardl, "
                   "topka, topkdsa, gtopk",
                   baton_sparse_algorithm_name(o->algorithm))) &&
           in_range("history", o->history, MOST_EPOCHS, wrong) &&
           in_range("max_staleness", o->max_staleness, MOST_EPOCHS, wrong) &&
           in_range("on_loss", (int)o->on_loss, BATON_ON_LOSS_CONTINUE,
                    wrong) &&
           (!baton__sparse_goes_on(o) || o->teams == 0 || o->teams == 1 ||
            REFUSE("teams is %d; allowed with on_loss: 0 and 1", o->teams)) &&
           (o->max_staleness <= history ||
            REFUSE("max_staleness is %u; allowed: 0 to %u, the history: no "
                   "gradient gets older than that",
                   o->max_staleness, history)) &&
           (baton__rule_check(o->name != NULL ? o->name : "sparse", choice,
                              size) == BATON_OK ||
            REFUSE("%s", baton_error_message()));
}

/* Returns the name of an option that is not supported with in_place, or
   NULL. */
static const char *excludes_in_place(const baton_sparse_options_t *o)
{
    if (o->partial) {
        return "partial";
    }
    if (o->momentum != 0) {
        return "momentum";
    }
    if (o->clip != 0) {
        return "clip";
    }
    if (o->memory != BATON_MEMORY_HOST) {
        return "device memory";
    }
    return (supports[o->algorithm] & IN_PLACE) != 0
               ? NULL
               : baton_sparse_algorithm_name(o->algorithm);
}

static bool sparse_options_check_in_place(const baton_sparse_options_t *o,
                                          baton__wrong_t *wrong)
{
    const char *with = excludes_in_place(o);
    return !o->in_place || with == NULL ||
           REFUSE("in_place is set with %s; allowed: auto, spardl and dense, "
                  "in host memory, without partial, momentum and clip",
                  with);
}

/* Returns what is not supported with short_velocity, or NULL. */
static const char *excludes_short_velocity(const baton_sparse_options_t *o)
{
    if (o->momentum == 0) {
        return "no momentum";
    }
    if (o->dtype != BATON_F32) {
        return baton_dtype_name(o->dtype);
    }
    return o->memory != BATON_MEMORY_HOST ? "device memory" : NULL;
}

static bool check_velocity(const baton_sparse_options_t *o,
                           baton__wrong_t *wrong)
{
    const char *with = excludes_short_velocity(o);
    return !o->short_velocity || with == NULL ||
           REFUSE("short_velocity is set with %s; allowed: with a momentum, of "
                  "f32, in host memory",
                  with);
}

static void sparse_options_fill(baton_sparse_options_t *o)
{
    if (o->partial && o->history == 0) {
        o->history = HISTORY;
    }
    if (o->algorithm == BATON_SPARSE_AUTO && (o->partial || o->in_place)) {
        o->algorithm = BATON_SPARSE_SPARDL;
    }
    o->teams = o->teams == 0 ? 1 : o->teams;
    if (o->k == 0 && baton__is_density(o->density)) {
        o->k = baton__entries_of(o->count, o->density);
    }
    if (o->partial && o->warmup > 0) {
        /* Warm-up steps send all elements as entries. */
        o->max_k = o->count;
    } else if (o->max_k == 0) {
        o->max_k = o->k;
    }
}

/* Returns true if the costs of messages decide the algorithm or the number of
   teams. */
static bool is_chosen(const baton_sparse_options_t *o)
{
    return o->algorithm == BATON_SPARSE_AUTO ||
           o->teams == BATON_SPARSE_TEAMS_AUTO;
}

/* Fills in the costs of a message, as measured on this machine, if the caller
   has given none. */
static void fill_link(baton_sparse_options_t *o, int hosts,
                      baton__wrong_t *wrong)
{
    baton_costs_t costs = BATON_COSTS;
    if (baton__sparse_has_link(o)) {
        return;
    }
    baton_status_t status = baton_costs_get(&costs);
    if (status == BATON_OK) {
        o->link = hosts > 1 ? costs.between : costs.inside;
    } else if (wrong->status == BATON_OK && is_chosen(o)) {
        (void)baton__refuse(wrong, status, "%s", baton_error_message());
    }
}

baton__wrong_t baton__sparse_resolve(const baton_sparse_options_t *passed,
                                     int size, int hosts,
                                     baton_sparse_options_t *out)
{
    baton__wrong_t wrong = {0};
    *out = *passed;
    if (out->dtype == BATON_DTYPE_NONE) {
        out->dtype = BATON_F32;
    }
    (void)(check_size(out, &wrong) &&
           sparse_options_check_kind(out, size, &wrong) &&
           sparse_options_check_training(out, &wrong) &&
           check_link(out, &wrong) &&
           sparse_options_check_partial(out, size, &wrong) &&
           sparse_options_check_in_place(out, &wrong) &&
           check_velocity(out, &wrong));
    sparse_options_fill(out);
    fill_link(out, hosts, &wrong);
    return wrong;
}

/* ---- reading ----------------------------------------------------------- */

/* Returns true if `passed` is large enough to contain a name. The size is 0 if
   the caller has set the struct to zeros instead of using its initializer. */
static bool has_name(const baton_sparse_options_t *passed)
{
    const size_t least =
        offsetof(baton_sparse_options_t, name) + sizeof passed->name;
    return passed->size == 0 ||
           (passed->size >= least && passed->size <= BATON__OPTIONS_MOST);
}

baton_status_t baton__sparse_read(const baton_sparse_options_t *passed,
                                  baton_sparse_options_t *out)
{
    *out = (baton_sparse_options_t){0};
    if (passed == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "sparse all-reduce: options is NULL");
    }
    baton_status_t status = baton__options_read(
        out, sizeof *out, passed, "sparse options", "BATON_SPARSE_OPTIONS");
    if (status != BATON_OK) {
        out->name = has_name(passed) ? passed->name : NULL;
    }
    return status;
}

/* ---- comparison -------------------------------------------------------- */

typedef struct compared {
    const char *name;
    uint64_t word;
    bool real; /* `word` has the bits of a double */
} compared_t;

static compared_t real(const char *name, double value)
{
    compared_t option = {.name = name, .real = true};
    memcpy(&option.word, &value, sizeof value);
    return option;
}

enum { COMPARED = 25, VALUE_BYTES = 32 };

/* Lists all options that must be equal on all ranks. The options before k must
   also be equal when a state is imported. The memory of gradients may differ
   between ranks, unless AUTO's choice depends on it. */
static void list_options(const baton_sparse_options_t *o, compared_t *out)
{
#define COMPARE(field)                                                         \
    {                                                                          \
        .name = #field, .word = (uint64_t)o->field                             \
    }
    const compared_t list[] = {
        COMPARE(algorithm),
        COMPARE(count),
        COMPARE(dtype),
        COMPARE(teams),
        COMPARE(exchange),
        COMPARE(average),
        real("momentum", o->momentum),
        COMPARE(nesterov),
        real("clip", o->clip),
        COMPARE(warmup),
        COMPARE(redsync),
        COMPARE(quantise),
        COMPARE(k),
        COMPARE(max_k),
        {.name = "memory",
         .word = o->algorithm == BATON_SPARSE_AUTO ? (uint64_t)o->memory : 0},
        COMPARE(partial),
        COMPARE(mode),
        COMPARE(mode_ranks),
        COMPARE(history),
        COMPARE(sync_every),
        COMPARE(max_staleness),
        COMPARE(seed),
        COMPARE(on_loss),
        real("alpha_us (link's or BATON_CALIBRATION's)",
             is_chosen(o) ? o->link.alpha_us : 0),
        real("beta_ns (link's or BATON_CALIBRATION's)",
             is_chosen(o) ? o->link.beta_ns : 0),
    };
#undef COMPARE
    static_assert(sizeof list / sizeof list[0] == COMPARED, "all of them");
    memcpy(out, list, sizeof list);
}

static const char *sparse_options_value_of(const compared_t *option,
                                           uint64_t word, char *text)
{
    baton__text_t number = {text, VALUE_BYTES, 0};
    double value;
    memcpy(&value, &word, sizeof value);
    if (strcmp(option->name, "algorithm") == 0) {
        return baton_sparse_algorithm_name((baton_sparse_algorithm_t)word);
    }
    if (strcmp(option->name, "dtype") == 0) {
        return baton_dtype_name((baton_dtype_t)word);
    }
    if (strcmp(option->name, "on_loss") == 0) {
        return word == BATON_ON_LOSS_CONTINUE ? "continue" : "fail";
    }
    if (option->real) {
        baton__text_add(&number, "%.12g", value);
    } else {
        baton__text_add(&number, "%llu", (unsigned long long)word);
    }
    return text;
}

/* Options that determine other options come first, so that a mismatch names the
   cause. */
void baton__sparse_agree(baton_schedule_t *schedule,
                         const baton_sparse_options_t *o)
{
    char value[VALUE_BYTES];
    compared_t list[COMPARED];
    list_options(o, list);
    if (o->size == 0) {
        baton_schedule_agree(schedule, "options that cannot be read");
        return;
    }
    baton_schedule_agree(schedule, "count %zu, density %.12g", o->count,
                         o->density);
    for (int i = 0; i < COMPARED; i++) {
        baton_schedule_agree(
            schedule, "%s %s", list[i].name,
            sparse_options_value_of(&list[i], list[i].word, value));
    }
}

/* Fails the comparison if something is wrong on this rank. A mismatch between
   ranks is no reason to fail it here: all ranks have found the mismatch, and
   the error names the option. */
static baton_status_t fail_if_wrong(void *arg, baton_call_t *call)
{
    const baton__wrong_t *wrong = arg;
    return wrong->status == BATON_OK || wrong->status == BATON_ERR_MISMATCH
               ? BATON_OK
               : baton_call_fail(call, wrong->status, "%s", wrong->text);
}

baton_status_t baton__sparse_compare(baton_schedule_t *schedule,
                                     baton__wrong_t *wrong)
{
    baton_node_t call = baton_add_call(schedule, fail_if_wrong, wrong);
    baton_node_t end = baton_add_nop(schedule);
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    baton_add_barrier(schedule);
    baton_enclose_end(schedule, inside, call, end);
    baton_status_t status = baton_schedule_commit(schedule);
    baton_status_t started =
        status == BATON_OK ? baton__start_to_wait(schedule) : BATON_OK;
    /* The start fails if a peer has failed before this rank has started. */
    baton__wrong_keep(wrong, started);
    return status;
}

baton_status_t baton__sparse_compared(baton_schedule_t *schedule,
                                      const baton__wrong_t *wrong, bool goes_on,
                                      int timeout_ms)
{
    baton_failure_t failure;
    baton_status_t status = baton_schedule_wait(schedule, timeout_ms);
    const bool fits =
        wrong->status == BATON_OK || wrong->status == BATON_ERR_TRANSPORT;
    if (goes_on && fits && status != BATON_OK && !baton__goes_on(status) &&
        baton_schedule_failure(schedule, &failure) == BATON_OK &&
        failure.status == BATON_ERR_TRANSPORT) {
        return BATON_OK;
    }
    bool own = wrong->status != BATON_OK && status != BATON_ERR_INTERRUPTED &&
               (status == BATON_OK || status == BATON_ERR_STATE ||
                wrong->status != BATON_ERR_MISMATCH);
    return own ? baton__error_forward(wrong->status, wrong->text) : status;
}

/* ---- the options of a state -------------------------------------------- */

void baton__sparse_state_options(const baton_sparse_options_t *o, uint64_t *out)
{
    compared_t list[COMPARED];
    list_options(o, list);
    for (int i = 0; i < BATON__SPARSE_STATE_OPTIONS; i++) {
        out[i] = list[i].word;
    }
}

baton_status_t baton__sparse_check_state_options(const baton_sparse_t *sparse,
                                                 const uint64_t *stored)
{
    char own[VALUE_BYTES], other[VALUE_BYTES];
    compared_t list[COMPARED];
    list_options(&sparse->options, list);
    for (int i = 0; i < BATON__SPARSE_STATE_OPTIONS; i++) {
        if (list[i].word != stored[i]) {
            return baton__sparse_error(
                sparse, BATON_ERR_INVALID, "import",
                "options differ: %s is %s, and %s in the state", list[i].name,
                sparse_options_value_of(&list[i], list[i].word, own),
                sparse_options_value_of(&list[i], stored[i], other));
        }
    }
    return BATON_OK;
}
