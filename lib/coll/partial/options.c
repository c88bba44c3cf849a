/* The options of a partial collective: defaults, checks, and the choice of the
   inner collective. */
#include "base/options.h"
#include "base/error.h"
#include "coll/dense/allreduce.h"
#include "coll/partial/parts.h"

enum { LATEST_HISTORY = 1, ALL_HISTORY = 4, MOST_EPOCHS = 1 << 20 };

#define REFUSE(...) baton__refuse(wrong, BATON_ERR_INVALID, __VA_ARGS__)

static bool partial_options_check_memory(const baton_partial_options_t *o,
                                         const baton_group_t *group,
                                         baton__wrong_t *wrong)
{
    return ((unsigned)o->memory <= BATON_MEMORY_DEVICE ||
            REFUSE("memory is %d, must be BATON_MEMORY_HOST or _DEVICE, 0 to "
                   "%d",
                   (int)o->memory, BATON_MEMORY_DEVICE)) &&
           (o->memory == BATON_MEMORY_HOST || baton_group_has_payload(group) ||
            baton__refuse(wrong, BATON_ERR_UNSUPPORTED,
                          "memory is BATON_MEMORY_DEVICE: a cost-only "
                          "simulation has no device memory"));
}

static bool check_epochs(const baton_partial_options_t *o,
                         baton__wrong_t *wrong)
{
    return ((unsigned)o->keep <= BATON_KEEP_LATEST ||
            REFUSE("keep is %d, must be BATON_KEEP_ALL or BATON_KEEP_LATEST, 0 "
                   "to %d",
                   (int)o->keep, BATON_KEEP_LATEST)) &&
           (o->history <= MOST_EPOCHS ||
            REFUSE("history is %u, must be 1 to %d epochs, or 0 for the "
                   "default",
                   o->history, (int)MOST_EPOCHS)) &&
           (o->max_staleness <= MOST_EPOCHS ||
            REFUSE("max_staleness is %u, must be 1 to %d epochs, or 0 for no "
                   "bound",
                   o->max_staleness, (int)MOST_EPOCHS)) &&
           (o->keep != BATON_KEEP_ALL || o->max_staleness <= o->history ||
            REFUSE("max_staleness is %u, must be 1 to %u, the history: with "
                   "BATON_KEEP_ALL, the default, no contribution gets older "
                   "than that",
                   o->max_staleness, o->history));
}

static bool check_elements(const baton_partial_options_t *o,
                           baton__wrong_t *wrong)
{
    size_t element = baton_op_element_bytes(o->op, o->dtype);
    /* Limits the number of bytes so that the sum of two can't overflow. */
    size_t most = SIZE_MAX / 2 / element;
    if (o->count > most) {
        return REFUSE("count is %zu, must be at most %zu elements of %zu bytes",
                      o->count, most, element);
    }
    return o->op->identity != NULL ||
           REFUSE("reduction \"%s\" has no identity, which null "
                  "contributions need",
                  o->op->name != NULL ? o->op->name : "?");
}

/* Refuses options that are not supported if the partial is to survive
   losses. */
static bool check_on_loss(const baton_partial_options_t *o,
                          const baton_group_t *group, baton__wrong_t *wrong)
{
    const char *what = NULL;
    if (baton_group_is_simulated(group)) {
        what = "a simulated group";
    } else if (o->memory != BATON_MEMORY_HOST) {
        what = "device memory";
    } else if (o->inner_arg != NULL) {
        what = "inner_arg";
    }
    if ((unsigned)o->on_loss > BATON_ON_LOSS_CONTINUE) {
        return REFUSE("on_loss is %d, must be BATON_ON_LOSS_FAIL or _CONTINUE, "
                      "0 to %d",
                      (int)o->on_loss, BATON_ON_LOSS_CONTINUE);
    }
    return o->on_loss == BATON_ON_LOSS_FAIL || what == NULL ||
           baton__refuse(wrong, BATON_ERR_UNSUPPORTED,
                         "on_loss is BATON_ON_LOSS_CONTINUE, which is not "
                         "supported with %s",
                         what);
}

static bool partial_options_check(baton_partial_options_t *o,
                                  const baton_group_t *group,
                                  baton__wrong_t *wrong)
{
    if (!partial_options_check_memory(o, group, wrong) ||
        !baton__partial_resolve_tensors(o, wrong)) {
        return false;
    }
    baton_status_t status = baton_op_check(o->op, o->dtype);
    return status == BATON_OK
               ? check_epochs(o, wrong) && check_elements(o, wrong) &&
                     check_on_loss(o, group, wrong)
               : baton__refuse(wrong, status, "%s", baton_error_message());
}

static void partial_options_fill(baton_partial_options_t *o)
{
    if (o->name == NULL) {
        o->name = "partial";
    }
    if (o->op == NULL) {
        o->op = BATON_SUM;
    }
    if (o->history == 0) {
        o->history = o->keep == BATON_KEEP_ALL ? ALL_HISTORY : LATEST_HISTORY;
    }
}

/* Returns the expected number of active ranks of an epoch, if ranks arrive one
   after another. */
static uint64_t expected_active(const baton_partial_options_t *options,
                                int size)
{
    uint64_t ranks = (uint64_t)size;
    uint64_t m = options->mode_ranks;
    switch (options->mode) {
    case BATON_SOLO:
        return 1;
    case BATON_MAJORITY:
        return (ranks + 1) / 2;
    case BATON_QUORUM:
        return m;
    case BATON_CANDIDATES_ANY:
        return (ranks + 1) / (m + 1);
    case BATON_CANDIDATES_ALL:
        return m * (ranks + 1) / (m + 1);
    case BATON_FULL:
        break;
    }
    return ranks;
}

/* Returns true if the inner all-reduce of `bytes` bytes is a flat tree, in
   which all ranks send their vectors to rank 0. One processor then reduces all
   vectors. So if each rank has a processor of its own, this is good only for
   epochs in which one rank is active. */
static bool takes_flat_tree(const baton_partial_options_t *options,
                            const baton_schedule_t *schedule, size_t bytes)
{
    int size = baton_schedule_size(schedule);
    int processors = baton_schedule_processors(schedule);
    bool shared = processors > 0 && processors < size;
    uint64_t active = expected_active(options, size);
    return baton_schedule_hosts(schedule) == 1 && size <= BATON__FLAT_RANKS &&
           (shared || active == 1) &&
           active * bytes <= BATON_PARTIAL_TREE_BYTES;
}

baton_allreduce_fn
baton__partial_choose_inner(const baton_partial_options_t *options,
                            size_t bytes, const baton_schedule_t *schedule)
{
    if (options->inner != NULL) {
        return options->inner;
    }
    if (bytes > BATON_PARTIAL_TREE_BYTES && options->op->commutative) {
        return baton_add_allreduce_ring;
    }
    return takes_flat_tree(options, schedule, bytes)
               ? baton__allreduce_flat
               : baton_add_allreduce_binomial;
}

baton_status_t
baton__partial_resolve_options(const baton_partial_options_t *passed,
                               const baton_group_t *group,
                               baton_partial_options_t *out)
{
    baton__wrong_t wrong = {0};
    baton_status_t status = baton__options_read(
        out, sizeof *out, passed, "partial options", "BATON_PARTIAL_OPTIONS");
    if (status != BATON_OK) {
        return status;
    }
    if (baton_group_size(group) < 0) {
        return baton__error(
            BATON_ERR_INVALID,
            "create a partial: group is NULL, or was destroyed");
    }
    partial_options_fill(out);
    return partial_options_check(out, group, &wrong)
               ? baton__rule_check(
                     out->name, (baton__choice_t){out->mode, out->mode_ranks},
                     baton_group_size(group))
               : baton__wrong_error(&wrong, "partial", out->name);
}

void baton__partial_agree(const baton_partial_t *partial,
                          baton_schedule_t *schedule)
{
    const baton_partial_options_t *options = &partial->options;
    const baton__partial_set_t *set = &partial->set;
    char mode[BATON__RULE_TEXT];
    baton__rule_format((baton__choice_t){options->mode, options->mode_ranks},
                       mode);
    baton_schedule_agree(schedule, "tensors %zu", set->tensors);
    for (size_t i = 0; i < set->tensors; i++) {
        baton_schedule_agree(schedule, "counts[%zu] %zu", i,
                             set->begins[i + 1] - set->begins[i]);
    }
    baton_schedule_agree(
        schedule,
        "on_loss %s, mode %s, count %zu, %s, op %s, seed %llu, sync_every %u, "
        "max_staleness %u, keep %s, history %u%s",
        options->on_loss == BATON_ON_LOSS_CONTINUE ? "continue" : "fail", mode,
        options->count, baton_dtype_name(options->dtype),
        options->op->name != NULL ? options->op->name : "?",
        (unsigned long long)options->seed, options->sync_every,
        options->max_staleness,
        options->keep == BATON_KEEP_ALL ? "all" : "latest", options->history,
        options->memory == BATON_MEMORY_HOST ? "" : ", on the device");
}
