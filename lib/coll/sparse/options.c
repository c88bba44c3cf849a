/* Options: defaults, checks, and the comparison across ranks.

   Each rank writes its options as words, with their complements behind them;
   the minimum over all ranks of both tells the smallest and the largest value
   of each option, on all ranks alike. A rank whose options are wrong, or that
   lacks memory, takes part, too: one more word tells the others which rank it
   is, and why. */
#include "coll/sparse/sparse.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "coll/partial/rule.h"

#include <assert.h>
#include <baton/coll.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- checks ------------------------------------------------------------ */

#define REFUSE(...) (snprintf(text, text_bytes, __VA_ARGS__), BATON_ERR_INVALID)

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

static baton_status_t check_size(const baton_sparse_options_t *o, char *text,
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
    return BATON_OK;
}

static bool power_of_two(int value)
{
    return (value & (value - 1)) == 0;
}

static baton_status_t check_kind(const baton_sparse_options_t *o, int size,
                                 char *text, size_t text_bytes)
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
    if (o->exchange == BATON_TEAMS_RSAG && o->teams > 0 &&
        !power_of_two(o->teams)) {
        return REFUSE("teams is %d; allowed with RSAG: powers of two",
                      o->teams);
    }
    return BATON_OK;
}

static baton_status_t check_training(const baton_sparse_options_t *o,
                                     char *text, size_t text_bytes)
{
    if (!(o->momentum >= 0 && o->momentum < 1)) {
        return REFUSE("momentum is %g; allowed: 0 to below 1", o->momentum);
    }
    if (!(o->clip >= 0) || isinf(o->clip)) {
        return REFUSE("clip is %g; allowed: 0 and above, finite", o->clip);
    }
    if (o->quantise && o->redsync == BATON_REDSYNC_SAMPLED) {
        return REFUSE("quantise is set with SAMPLED; allowed: with the other "
                      "selections");
    }
    if (o->keep_error && !o->quantise) {
        return REFUSE("keep_error is set; allowed: with quantise");
    }
    return BATON_OK;
}

static bool not_a_cost(double cost)
{
    return !(cost >= 0) || isinf(cost);
}

static baton_status_t check_link(const baton_sparse_options_t *o, char *text,
                                 size_t text_bytes)
{
    if (not_a_cost(o->link.alpha_us) || not_a_cost(o->link.beta_ns)) {
        return REFUSE("link is %g us and %g ns; allowed: 0 and above, finite",
                      o->link.alpha_us, o->link.beta_ns);
    }
    return BATON_OK;
}

enum { HISTORY = 4, MOST_EPOCHS = 1 << 20 }; /* with options.partial */

static baton_status_t check_not_partial(const baton_sparse_options_t *o,
                                        char *text, size_t text_bytes)
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
    return BATON_OK;
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

static baton_status_t check_partial(const baton_sparse_options_t *o, int size,
                                    char *text, size_t text_bytes)
{
    if (!o->partial) {
        return check_not_partial(o, text, text_bytes);
    }
    if (!may_be_partial(o->algorithm)) {
        return REFUSE("algorithm is %s; allowed with partial: auto, spardl, "
                      "topka, topkdsa, gtopk",
                      baton_sparse_algorithm_name(o->algorithm));
    }
    if (o->warmup > 0) {
        return REFUSE("warmup is %llu; allowed with partial: 0",
                      (unsigned long long)o->warmup);
    }
    if (o->momentum > 0 && o->algorithm != BATON_SPARSE_AUTO &&
        o->algorithm != BATON_SPARSE_SPARDL) {
        return REFUSE("momentum is %g; allowed with partial, unless by spardl: "
                      "0",
                      o->momentum);
    }
    if (o->history > MOST_EPOCHS || o->max_staleness > MOST_EPOCHS) {
        return REFUSE("%s is %u; allowed: 0 to %d",
                      o->history > MOST_EPOCHS ? "history" : "max_staleness",
                      o->history > MOST_EPOCHS ? o->history : o->max_staleness,
                      (int)MOST_EPOCHS);
    }
    const baton_partial_choice_t choice = {o->mode, o->mode_ranks};
    return baton__rule_check(o->name != NULL ? o->name : "sparse", choice,
                             size) == BATON_OK
               ? BATON_OK
               : REFUSE("%s", baton_error_message());
}

static void fill_partial(baton_sparse_options_t *o)
{
    o->history = o->history == 0 ? HISTORY : o->history;
    if (o->algorithm == BATON_SPARSE_AUTO) {
        o->algorithm = BATON_SPARSE_SPARDL;
    }
}

static void fill(baton_sparse_options_t *o)
{
    if (o->partial) {
        fill_partial(o);
    }
    o->dtype = o->dtype == 0 ? BATON_F32 : o->dtype;
    o->teams = o->teams == 0 ? 1 : o->teams;
    if (o->k == 0 && o->density > 0 && o->density <= 1) {
        double k = (double)o->count * o->density;
        o->k = k < 1 ? 1 : (size_t)k;
    }
    o->max_k = o->max_k == 0 ? o->k : o->max_k;
}

/* What a message costs, unless the options say it. */
static baton_status_t fill_link(baton_sparse_options_t *o, int hosts,
                                char *text, size_t text_bytes)
{
    baton_costs_t costs = BATON_COSTS;
    if (o->link.alpha_us != 0 || o->link.beta_ns != 0) {
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
    if (out->dtype == 0) {
        out->dtype = BATON_F32;
    }
    baton_status_t status = check_size(out, text, text_bytes);
    if (status == BATON_OK) {
        status = check_kind(out, size, text, text_bytes);
    }
    if (status == BATON_OK) {
        status = check_training(out, text, text_bytes);
    }
    if (status == BATON_OK) {
        status = check_link(out, text, text_bytes);
    }
    if (status == BATON_OK) {
        status = check_partial(out, size, text, text_bytes);
    }
    fill(out);
    baton_status_t linked = fill_link(out, hosts, text, text_bytes);
    return status != BATON_OK ? status : linked;
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
                            "create a sparse: options is NULL");
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

/* Every option that must be the same: what it is called, its word. Those before
   k must be the same in a state that is imported, too. */
#define COMPARED_LIST(X)                                                       \
    X(algorithm, (uint64_t)o->algorithm)                                       \
    X(count, o->count)                                                         \
    X(dtype, (uint64_t)o->dtype)                                               \
    X(teams, (uint64_t)o->teams)                                               \
    X(exchange, (uint64_t)o->exchange)                                         \
    X(average, o->average)                                                     \
    X(momentum, bits_of(o->momentum))                                          \
    X(nesterov, o->nesterov)                                                   \
    X(clip, bits_of(o->clip))                                                  \
    X(warmup, o->warmup)                                                       \
    X(redsync, (uint64_t)o->redsync)                                           \
    X(quantise, o->quantise)                                                   \
    X(keep_error, o->keep_error)                                               \
    X(k, o->k)                                                                 \
    X(max_k, o->max_k)                                                         \
    X(memory, memory_word(o))                                                  \
    X(partial, o->partial)                                                     \
    X(mode, (uint64_t)o->mode)                                                 \
    X(mode_ranks, o->mode_ranks)                                               \
    X(history, o->history)                                                     \
    X(sync_every, o->sync_every)                                               \
    X(max_staleness, o->max_staleness)                                         \
    X(seed, o->seed)                                                           \
    X(alpha_us, bits_of(o->link.alpha_us))                                     \
    X(beta_ns, bits_of(o->link.beta_ns))

enum {
    WRONG, /* see wrong_word; of all ranks the largest counts */
#define COMPARED_ENUM(name, word) COMPARED_##name,
    COMPARED_LIST(COMPARED_ENUM)
#undef COMPARED_ENUM
        COMPARED_COUNT
};

static_assert(COMPARED_k == 1 + BATON__SPARSE_STATE_OPTIONS,
              "a state has the words of the options before k");

static const char *const compared_names[] = {"",
#define COMPARED_NAME(name, word) #name,
                                             COMPARED_LIST(COMPARED_NAME)
#undef COMPARED_NAME
};

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
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

static void option_words(const baton_sparse_options_t *o, uint64_t *words)
{
#define COMPARED_WORD(name, word) words[COMPARED_##name] = (word);
    COMPARED_LIST(COMPARED_WORD)
#undef COMPARED_WORD
}

static void write_words(const baton_sparse_options_t *o, uint64_t wrong,
                        uint64_t *words)
{
    words[WRONG] = wrong;
    option_words(o, words);
    for (int i = 0; i < COMPARED_COUNT; i++) {
        words[COMPARED_COUNT + i] = ~words[i];
    }
}

baton_status_t baton__sparse_compare_start(baton_sparse_t *sparse)
{
    const size_t bytes = 2 * COMPARED_COUNT * sizeof(uint64_t);
    sparse->compared = baton__alloc(2 * COMPARED_COUNT, sizeof(uint64_t));
    if (sparse->compared == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for sparse \"%s\"",
                            sparse->name);
    }
    write_words(&sparse->asked, wrong_word(sparse), sparse->compared);
    baton_schedule_t *s = sparse->comparison;
    baton_view_t view =
        baton_view(baton_buffer_bind(s, sparse->compared, bytes), 0, bytes);
    baton_allreduce_t args = {.size = sizeof args,
                              .source = view,
                              .target = view,
                              .dtype = BATON_U64,
                              .op = BATON_MIN};
    baton_allreduce_recursive_doubling(s, &args);
    baton_status_t status = baton_schedule_commit(s);
    return status == BATON_OK ? baton_schedule_start(s) : status;
}

static void describe(baton__text_t *text, int option, uint64_t word)
{
    if (option == COMPARED_momentum || option == COMPARED_clip ||
        option == COMPARED_alpha_us || option == COMPARED_beta_ns) {
        double value;
        memcpy(&value, &word, sizeof value);
        baton__text_add(text, "%g", value);
    } else if (option == COMPARED_algorithm) {
        baton__text_add(
            text, "%s",
            baton_sparse_algorithm_name((baton_sparse_algorithm_t)word));
    } else if (option == COMPARED_dtype) {
        baton__text_add(text, "%s", baton_dtype_name((baton_dtype_t)word));
    } else {
        baton__text_add(text, "%llu", (unsigned long long)word);
    }
}

/* The smallest and the largest value of each option that differs. */
static void describe_differences(baton__text_t *text, const uint64_t *smallest)
{
    size_t begin = text->used;
    for (int i = WRONG + 1; i < COMPARED_COUNT; i++) {
        /* A complement's minimum is that of the largest value. */
        uint64_t largest = ~smallest[COMPARED_COUNT + i];
        if (smallest[i] != largest) {
            baton__text_add(text, "%s%s is ", text->used > begin ? "; " : "",
                            compared_names[i]);
            describe(text, i, smallest[i]);
            baton__text_add(text, " on one rank and ");
            describe(text, i, largest);
            baton__text_add(text, " on another");
        }
    }
}

static baton_status_t own_error(const baton_sparse_t *sparse)
{
    if (sparse->wrong == BATON_ERR_INVALID && sparse->options.size != 0) {
        return baton__error(BATON_ERR_INVALID, "sparse \"%s\": %s",
                            sparse->name, sparse->wrong_text);
    }
    return baton__error_forward(sparse->wrong, sparse->wrong_text);
}

/* What another rank's word says. */
static baton_status_t error_of(const baton_sparse_t *sparse, uint64_t word)
{
    char data[BATON__MESSAGE_BYTES] = "";
    baton__text_t text = {.data = data, .size = sizeof data};
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
    describe_differences(&text, sparse->compared);
    return baton__error(status,
                        "sparse \"%s\": rank %llu's options are "
                        "invalid%s%s",
                        sparse->name, rank, text.used > 0 ? ": " : "", data);
}

baton_status_t baton__sparse_compare_end(baton_sparse_t *sparse)
{
    char data[BATON__MESSAGE_BYTES] = "";
    baton__text_t text = {.data = data, .size = sizeof data};
    if (wrong_word(sparse) != 0) {
        return own_error(sparse);
    }
    uint64_t word = ~sparse->compared[COMPARED_COUNT + WRONG];
    if (word != 0 && sparse->payload) {
        return error_of(sparse, word);
    }
    describe_differences(&text, sparse->compared);
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
    uint64_t words[COMPARED_COUNT];
    option_words(o, words);
    memcpy(out, words + WRONG + 1, BATON__SPARSE_STATE_OPTIONS * sizeof *out);
}

baton_status_t baton__sparse_check_state_options(const baton_sparse_t *sparse,
                                                 const uint64_t *stored)
{
    char data[BATON__MESSAGE_BYTES] = "";
    baton__text_t text = {.data = data, .size = sizeof data};
    uint64_t own[BATON__SPARSE_STATE_OPTIONS];
    baton__sparse_state_options(&sparse->options, own);
    for (int i = 0; i < BATON__SPARSE_STATE_OPTIONS; i++) {
        if (own[i] != stored[i]) {
            baton__text_add(&text, "%s%s is ", text.used > 0 ? "; " : "",
                            compared_names[i + 1]);
            describe(&text, i + 1, own[i]);
            baton__text_add(&text, ", and ");
            describe(&text, i + 1, stored[i]);
            baton__text_add(&text, " in the state");
        }
    }
    return text.used == 0 ? BATON_OK
                          : baton__error(BATON_ERR_INVALID,
                                         "import \"%s\": options differ: %s",
                                         sparse->name, data);
}
