/* Options: defaults, checks, and the comparison across ranks.

   A rank whose options are wrong, or that lacks memory, takes part in the
   comparison (kit/compare.h), too: a word tells the others which rank it is,
   and why. */
#include "coll/sparse/sparse.h"

#include "base/error.h"
#include "base/options.h"
#include "coll/kit/pattern.h"
#include "coll/partial/rule.h"

#include <assert.h>
#include <baton/costs.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- checks ------------------------------------------------------------ */

#define REFUSE(...) ((void)snprintf(text, text_bytes, __VA_ARGS__), false)

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

static bool check_size(const baton_sparse_options_t *o, char *text,
                       size_t text_bytes)
{
    if (!baton_select_supports(o->dtype)) {
        return REFUSE("dtype is %s; allowed: f32, f64, f16, bf16",
                      baton_dtype_name(o->dtype));
    }
    if (o->count == 0 || o->count > UINT32_MAX) {
        return REFUSE("count is %zu; allowed: 1 to %lu", o->count,
                      (unsigned long)UINT32_MAX);
    }
    if (o->k > o->count) {
        return REFUSE("k is %zu; allowed: 1 to count, %zu", o->k, o->count);
    }
    if (o->k == 0 && !(o->density > 0 && o->density <= 1)) {
        return REFUSE("density is %g, and k is 0; allowed: above 0 and at most "
                      "1, or a k",
                      o->density);
    }
    if (o->max_k != 0 && (o->max_k > o->count || o->max_k < o->k)) {
        return REFUSE("max_k is %zu; allowed: k, %zu, to count, %zu", o->max_k,
                      o->k, o->count);
    }
    return true;
}

static bool check_kind(const baton_sparse_options_t *o, int size, char *text,
                       size_t text_bytes)
{
    if ((unsigned)o->algorithm >= BATON_SPARSE_COUNT) {
        return REFUSE("algorithm is %d; allowed: 0 to %d", (int)o->algorithm,
                      BATON_SPARSE_COUNT - 1);
    }
    if ((unsigned)o->memory > BATON_MEMORY_DEVICE) {
        return REFUSE("memory is %d; allowed: 0 to %d", (int)o->memory,
                      (int)BATON_MEMORY_DEVICE);
    }
    if ((unsigned)o->exchange > BATON_TEAMS_BSAG) {
        return REFUSE("exchange is %d; allowed: 0 to %d", (int)o->exchange,
                      BATON_TEAMS_BSAG);
    }
    if ((unsigned)o->redsync > BATON_REDSYNC_SAMPLED) {
        return REFUSE("redsync is %d; allowed: 0 to %d", (int)o->redsync,
                      BATON_REDSYNC_SAMPLED);
    }
    if (o->teams < BATON_SPARSE_TEAMS_AUTO ||
        (o->teams > 0 && size % o->teams != 0)) {
        return REFUSE("teams is %d; allowed: the divisors of %d ranks, or "
                      "BATON_SPARSE_TEAMS_AUTO, -1",
                      o->teams, size);
    }
    if (o->teams > 1 && o->algorithm != BATON_SPARSE_AUTO &&
        o->algorithm != BATON_SPARSE_SPARDL) {
        return REFUSE("teams is %d with algorithm %s, which has none; allowed: "
                      "with spardl or auto",
                      o->teams, baton_sparse_algorithm_name(o->algorithm));
    }
    if (o->exchange == BATON_TEAMS_RSAG && o->teams > 0 &&
        !baton__is_power_of_two(o->teams)) {
        return REFUSE("teams is %d; allowed with RSAG: powers of two",
                      o->teams);
    }
    return true;
}

static bool check_training(const baton_sparse_options_t *o, char *text,
                           size_t text_bytes)
{
    if (!(o->momentum >= 0 && o->momentum < 1)) {
        return REFUSE("momentum is %g; allowed: 0 to below 1", o->momentum);
    }
    if (o->nesterov && o->momentum == 0) {
        return REFUSE("nesterov is set and momentum is 0; allowed: with a "
                      "momentum above 0");
    }
    if (!(o->clip >= 0) || isinf(o->clip)) {
        return REFUSE("clip is %g; allowed: 0 and above, finite", o->clip);
    }
    if (o->quantise && o->redsync == BATON_REDSYNC_SAMPLED) {
        return REFUSE("quantise is set with SAMPLED; allowed: with the other "
                      "selections");
    }
    return true;
}

static bool not_a_cost(double cost)
{
    return !(cost >= 0) || isinf(cost);
}

static bool check_link(const baton_sparse_options_t *o, char *text,
                       size_t text_bytes)
{
    if (not_a_cost(o->link.alpha_us) || not_a_cost(o->link.beta_ns)) {
        return REFUSE("link is %g us and %g ns; allowed: 0 and above, finite",
                      o->link.alpha_us, o->link.beta_ns);
    }
    return true;
}

enum { HISTORY = 4, MOST_EPOCHS = 1 << 20 }; /* with options.partial */

static bool check_not_partial(const baton_sparse_options_t *o, char *text,
                              size_t text_bytes)
{
    const struct {
        const char *name;
        uint32_t value;
    } others[] = {{"mode", (uint32_t)o->mode},
                  {"mode_ranks", o->mode_ranks},
                  {"history", o->history},
                  {"sync_every", o->sync_every},
                  {"max_staleness", o->max_staleness}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i].value != 0) {
            return REFUSE("%s is %u; allowed without partial: 0",
                          others[i].name, others[i].value);
        }
    }
    return true;
}

/* An algorithm that learns from what a rank has selected before would learn
   from empty selections, too. */
static bool may_be_partial(baton_sparse_algorithm_t algorithm)
{
    return algorithm == BATON_SPARSE_AUTO || algorithm == BATON_SPARSE_SPARDL ||
           algorithm == BATON_SPARSE_TOPKA ||
           algorithm == BATON_SPARSE_TOPKDSA || algorithm == BATON_SPARSE_GTOPK;
}

bool baton__sparse_is_for_devices(baton_sparse_algorithm_t algorithm)
{
    return algorithm == BATON_SPARSE_SPARDL ||
           algorithm == BATON_SPARSE_TOPKA ||
           algorithm == BATON_SPARSE_REDSYNC || algorithm == BATON_SPARSE_DENSE;
}

static bool check_partial(const baton_sparse_options_t *o, int size, char *text,
                          size_t text_bytes)
{
    if (!o->partial) {
        return check_not_partial(o, text, text_bytes);
    }
    if (!may_be_partial(o->algorithm)) {
        return REFUSE("algorithm is %s; allowed with partial: auto, spardl, "
                      "topka, topkdsa, gtopk",
                      baton_sparse_algorithm_name(o->algorithm));
    }
    if (o->history > MOST_EPOCHS || o->max_staleness > MOST_EPOCHS) {
        return REFUSE("%s is %u; allowed: 0 to %d",
                      o->history > MOST_EPOCHS ? "history" : "max_staleness",
                      o->history > MOST_EPOCHS ? o->history : o->max_staleness,
                      (int)MOST_EPOCHS);
    }
    const baton__choice_t choice = {o->mode, o->mode_ranks};
    return baton__rule_check(o->name != NULL ? o->name : "sparse", choice,
                             size) == BATON_OK ||
           REFUSE("%s", baton_error_message());
}

static bool check_in_place(const baton_sparse_options_t *o, char *text,
                           size_t text_bytes)
{
    const char *with = o->partial                       ? "partial"
                       : o->momentum != 0               ? "momentum"
                       : o->clip != 0                   ? "clip"
                       : o->memory != BATON_MEMORY_HOST ? "device memory"
                       : o->algorithm == BATON_SPARSE_AUTO ||
                               o->algorithm == BATON_SPARSE_SPARDL ||
                               o->algorithm == BATON_SPARSE_DENSE
                           ? NULL
                           : baton_sparse_algorithm_name(o->algorithm);
    return !o->in_place || with == NULL ||
           REFUSE("in_place is set with %s; allowed: auto, spardl and dense, "
                  "in host memory, without partial, momentum and clip",
                  with);
}

static void fill(baton_sparse_options_t *o)
{
    if (o->partial && o->history == 0) {
        o->history = HISTORY;
    }
    if (o->algorithm == BATON_SPARSE_AUTO && (o->partial || o->in_place)) {
        o->algorithm = BATON_SPARSE_SPARDL;
    }
    o->teams = o->teams == 0 ? 1 : o->teams;
    if (o->k == 0 && o->density > 0 && o->density <= 1) {
        o->k = baton__entries_of(o->count, o->density);
    }
    o->max_k = o->partial && o->warmup > 0 ? o->count /* dense, as entries */
               : o->max_k == 0             ? o->k
                                           : o->max_k;
}

/* What a message costs, unless the options say it. */
static baton_status_t fill_link(baton_sparse_options_t *o, int hosts,
                                char *text, size_t text_bytes)
{
    baton_costs_t costs = BATON_COSTS;
    if (baton__sparse_has_link(o)) {
        return BATON_OK;
    }
    baton_status_t status = baton_costs_get(&costs);
    if (status != BATON_OK) {
        (void)snprintf(text, text_bytes, "%s", baton_error_message());
        return status;
    }
    o->link = hosts > 1 ? costs.between : costs.inside;
    return BATON_OK;
}

baton_status_t baton__sparse_resolve(const baton_sparse_options_t *given,
                                     int size, int hosts,
                                     baton_sparse_options_t *out, char *text,
                                     size_t text_bytes)
{
    *out = *given;
    if (out->dtype == BATON_DTYPE_NONE) {
        out->dtype = BATON_F32;
    }
    bool valid = check_size(out, text, text_bytes) &&
                 check_kind(out, size, text, text_bytes) &&
                 check_training(out, text, text_bytes) &&
                 check_link(out, text, text_bytes) &&
                 check_partial(out, size, text, text_bytes) &&
                 check_in_place(out, text, text_bytes);
    fill(out);
    baton_status_t linked = fill_link(out, hosts, text, text_bytes);
    return valid ? linked : BATON_ERR_INVALID;
}

/* ---- reading ----------------------------------------------------------- */

/* A size of 0 is that of a struct that was zeroed without its initializer. */
static bool has_name(const baton_sparse_options_t *given)
{
    const size_t least =
        offsetof(baton_sparse_options_t, name) + sizeof given->name;
    return given->size == 0 ||
           (given->size >= least && given->size <= BATON__OPTIONS_MOST);
}

baton_status_t baton__sparse_read(const baton_sparse_options_t *given,
                                  baton_sparse_options_t *out)
{
    *out = (baton_sparse_options_t){0};
    if (given == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "sparse all-reduce: options is NULL");
    }
    baton_status_t status = baton__options_read(
        out, sizeof *out, given, "sparse options", "BATON_SPARSE_OPTIONS");
    if (status != BATON_OK) {
        out->name = has_name(given) ? given->name : NULL;
    }
    return status;
}

/* ---- comparison -------------------------------------------------------- */

/* Where gradients are may differ, unless the choice depends on it. */
static uint64_t memory_word(const baton_sparse_options_t *o)
{
    return o->algorithm == BATON_SPARSE_AUTO ? (uint64_t)o->memory : 0;
}

static const char *algorithm_text(uint64_t word)
{
    return baton_sparse_algorithm_name((baton_sparse_algorithm_t)word);
}

static const char *dtype_text(uint64_t word)
{
    return baton_dtype_name((baton_dtype_t)word);
}

enum { COMPARED = 24 };

/* Every option that must be the same. Those before k must be the same in a
   state that is imported, too. */
static void list_options(const baton_sparse_options_t *o,
                         baton__compared_t *out)
{
    const baton__compared_t list[] = {
        {.name = "algorithm",
         .word = (uint64_t)o->algorithm,
         .text = algorithm_text},
        BATON__COMPARED(o, count),
        {.name = "dtype", .word = (uint64_t)o->dtype, .text = dtype_text},
        BATON__COMPARED(o, teams),
        BATON__COMPARED(o, exchange),
        BATON__COMPARED(o, average),
        BATON__COMPARED_REAL("momentum", o->momentum),
        BATON__COMPARED(o, nesterov),
        BATON__COMPARED_REAL("clip", o->clip),
        BATON__COMPARED(o, warmup),
        BATON__COMPARED(o, redsync),
        BATON__COMPARED(o, quantise),
        BATON__COMPARED(o, k),
        BATON__COMPARED(o, max_k),
        {.name = "memory", .word = memory_word(o)},
        BATON__COMPARED(o, partial),
        BATON__COMPARED(o, mode),
        BATON__COMPARED(o, mode_ranks),
        BATON__COMPARED(o, history),
        BATON__COMPARED(o, sync_every),
        BATON__COMPARED(o, max_staleness),
        BATON__COMPARED(o, seed),
        BATON__COMPARED_REAL("alpha_us", o->link.alpha_us),
        BATON__COMPARED_REAL("beta_ns", o->link.beta_ns),
    };
    static_assert(sizeof list / sizeof list[0] == COMPARED, "all of them");
    memcpy(out, list, sizeof list);
}

/* 0, or how this rank fails before options are compared:

       rank + 1 | whether its options cannot be read | -status
                8                                    7          bits */
enum { WRONG_RANK = 8, WRONG_UNREAD = 1 << 7, WRONG_STATUS = WRONG_UNREAD - 1 };

static uint64_t wrong_word(const baton_sparse_t *sparse)
{
    /* A mismatch is of all ranks, and the options may say why. */
    if (sparse->wrong == BATON_OK || sparse->wrong == BATON_ERR_MISMATCH) {
        return 0;
    }
    uint64_t word = (uint64_t)(sparse->rank + 1) << WRONG_RANK;
    word |= sparse->options.size == 0 ? WRONG_UNREAD : 0;
    return word | (uint64_t)(-sparse->wrong & WRONG_STATUS);
}

baton_status_t baton__sparse_compare_start(baton_sparse_t *sparse)
{
    const baton_sparse_options_t *o = &sparse->asked;
    enum { CAUSES = 2 };
    baton__compared_t list[CAUSES + COMPARED] = {
        BATON__COMPARED(o, count),
        BATON__COMPARED_REAL("density", o->density),
    };
    list_options(o, list + CAUSES);
    return baton__compare_start(&sparse->compare, sparse->comparison, list,
                                CAUSES + COMPARED, CAUSES, wrong_word(sparse));
}

static baton_status_t own_error(const baton_sparse_t *sparse)
{
    if (sparse->wrong == BATON_ERR_INVALID && sparse->options.size != 0) {
        return baton__error(BATON_ERR_INVALID, "sparse \"%s\": %s",
                            sparse->name, sparse->wrong_text);
    }
    return baton__error_forward(sparse->wrong, sparse->wrong_text);
}

/* What another rank's word says; and what differs. */
static baton_status_t error_of(const baton_sparse_t *sparse, uint64_t word,
                               const char *differences)
{
    unsigned long long rank = (unsigned long long)(word >> WRONG_RANK) - 1;
    baton_status_t status = baton__failure_of(-(int)(word & WRONG_STATUS));
    if ((word & WRONG_UNREAD) != 0) {
        return baton__error(status,
                            "sparse \"%s\": rank %llu's options cannot be "
                            "read: initialise them with BATON_SPARSE_OPTIONS",
                            sparse->name, rank);
    }
    if (status != BATON_ERR_INVALID) {
        return baton__error(status,
                            "sparse \"%s\": rank %llu could not build its "
                            "schedules: %s",
                            sparse->name, rank, baton_status_text(status));
    }
    return baton__error(
        status, "sparse \"%s\": rank %llu's options are invalid%s%s",
        sparse->name, rank,
        differences[0] != '\0' ? ": " : "; its message says more", differences);
}

baton_status_t baton__sparse_compare_end(baton_sparse_t *sparse)
{
    char data[BATON__MESSAGE_BYTES] = "";
    baton__text_t text = {.data = data, .size = sizeof data};
    if (wrong_word(sparse) != 0) {
        return own_error(sparse);
    }
    uint64_t word = baton__compare_end(&sparse->compare, &text);
    if (word != 0) {
        return error_of(sparse, word, data);
    }
    if (text.used > 0) {
        return baton__error(BATON_ERR_MISMATCH,
                            "sparse \"%s\": options differ across ranks: %s",
                            sparse->name, data);
    }
    return sparse->wrong == BATON_OK
               ? BATON_OK
               : baton__error_forward(sparse->wrong, sparse->wrong_text);
}

/* ---- the options of a state -------------------------------------------- */

void baton__sparse_state_options(const baton_sparse_options_t *o, uint64_t *out)
{
    baton__compared_t list[COMPARED];
    list_options(o, list);
    for (int i = 0; i < BATON__SPARSE_STATE_OPTIONS; i++) {
        out[i] = list[i].word;
    }
}

baton_status_t baton__sparse_check_state_options(const baton_sparse_t *sparse,
                                                 const uint64_t *stored)
{
    char data[BATON__MESSAGE_BYTES] = "";
    baton__text_t text = {.data = data, .size = sizeof data};
    baton__compared_t own[COMPARED];
    list_options(&sparse->options, own);
    for (int i = 0; i < BATON__SPARSE_STATE_OPTIONS; i++) {
        baton__compare_add(&text, &own[i], own[i].word, ", and ", stored[i],
                           " in the state");
    }
    return text.used == 0 ? BATON_OK
                          : baton__error(BATON_ERR_INVALID,
                                         "import \"%s\": options differ: %s",
                                         sparse->name, data);
}
