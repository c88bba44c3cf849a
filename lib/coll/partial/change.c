/* Changes of mode; see change.h.

       wait --> policy --> wish --+
                                  +--> [take] --> reduce over all --> [publish]
       set_mode --> request ------+    epoch e      ranks              choice of
                                                                       e + 1

   Every rank gets the same record at the end of epoch e, before it begins epoch
   e + 1, whoever activates that. So all switch at the same epoch. */
#include "coll/partial/change.h"

#include "base/error.h"
#include "coll/partial/rule.h"

static bool same(baton_partial_choice_t a, baton_partial_choice_t b)
{
    return a.mode == b.mode && a.mode_ranks == b.mode_ranks;
}

/* Left is of lower ranks than right. */
static baton__control_t combine(const baton__control_t *left,
                                const baton__control_t *right)
{
    baton__control_t sum = *left;
    sum.active += right->active;
    if (right->staleness > sum.staleness) {
        sum.staleness = right->staleness;
    }
    if (right->first.wish > left->first.wish) {
        sum.first = right->first;
    }
    if (left->second.wish != BATON__WISH_NONE) {
        return sum;
    }
    sum.second = right->second;
    if (left->first.wish == BATON__WISH_USER &&
        right->first.wish == BATON__WISH_USER &&
        !same(left->first.choice, right->first.choice)) {
        sum.second = right->first;
    }
    return sum;
}

static void reduce(void *arg, void *target, const void *left, const void *right,
                   size_t count, baton_dtype_t dtype)
{
    (void)arg;
    (void)dtype;
    for (size_t i = 0; i < count; i++) {
        ((baton__control_t *)target)[i] =
            combine((const baton__control_t *)left + i,
                    (const baton__control_t *)right + i);
    }
}

const baton_op_t baton__control_op = {.name = "control of a partial",
                                      .reduce = reduce,
                                      .commutative = false,
                                      .element_bytes =
                                          sizeof(baton__control_t)};

void baton__change_init(baton__change_t *change)
{
    (void)pthread_mutex_init(&change->lock, NULL);
}

void baton__change_fini(baton__change_t *change)
{
    (void)pthread_mutex_destroy(&change->lock);
}

void baton__change_reset(baton__change_t *change)
{
    (void)pthread_mutex_lock(&change->lock);
    change->asked = 0;
    change->applied = 0;
    change->wishes = false;
    change->newest = (baton_partial_observation_t){0};
    (void)pthread_mutex_unlock(&change->lock);
}

baton__request_t baton__change_request(baton__change_t *change, int rank)
{
    baton__request_t request = {.wish = BATON__WISH_NONE, .rank = rank};
    (void)pthread_mutex_lock(&change->lock);
    if (change->asked > change->applied) {
        request.wish = BATON__WISH_USER;
        request.choice = change->wanted[(change->applied + 1) % BATON__CHANGES];
    } else if (change->wishes) {
        request.wish = BATON__WISH_POLICY;
        request.choice = change->wish;
    }
    (void)pthread_mutex_unlock(&change->lock);
    return request;
}

/* "rank 1 asks for SOLO and rank 2 for FULL" */
static void describe(const baton__request_t *a, const baton__request_t *b,
                     char *text, size_t bytes)
{
    char modes[2][BATON__RULE_TEXT];
    baton__text_t out = {text, bytes, 0};
    baton__rule_format(a->choice, modes[0]);
    baton__rule_format(b->choice, modes[1]);
    baton__text_add(&out,
                    "rank %d asks for %s and rank %d for %s: the changes of "
                    "mode must be the same on all ranks",
                    a->rank, modes[0], b->rank, modes[1]);
}

/* The lock is held. Whether `mine`, this rank's request for a change that has
   taken effect, asks for another mode than that. */
static bool contradicts(const baton__change_t *change, uint32_t number,
                        const baton__request_t *mine)
{
    return !same(mine->choice, change->done[number % BATON__CHANGES].choice);
}

baton_status_t baton__change_apply(baton__change_t *change, int rank,
                                   const baton__control_t *control,
                                   baton_call_t *call,
                                   baton_partial_choice_t *choice)
{
    const baton__request_t *first = &control->first;
    baton__request_t other = control->second;
    bool wrong = other.wish != BATON__WISH_NONE;
    (void)pthread_mutex_lock(&change->lock);
    change->newest.epoch = baton_call_epoch(call);
    change->newest.choice = *choice;
    change->newest.active = control->active;
    change->newest.staleness = control->staleness;
    if (!wrong && first->wish != BATON__WISH_NONE) {
        change->wishes = false;
        if (first->wish == BATON__WISH_USER) {
            uint32_t number = ++change->applied;
            change->done[number % BATON__CHANGES] = *first;
            /* It may have been asked for after this epoch's take. */
            other = (baton__request_t){BATON__WISH_USER, rank,
                                       change->wanted[number % BATON__CHANGES]};
            wrong =
                change->asked >= number && contradicts(change, number, &other);
        }
        *choice = first->choice;
    }
    (void)pthread_mutex_unlock(&change->lock);
    if (wrong) {
        char text[200];
        describe(first, &other, text, sizeof text);
        return baton_call_fail(call, BATON_ERR_MISMATCH, "%s", text);
    }
    return BATON_OK;
}

/* The lock is held. */
static baton_status_t ask(baton__change_t *change, const char *name, int rank,
                          baton_partial_choice_t choice)
{
    uint32_t number = change->asked + 1;
    if (number > change->applied + BATON__CHANGES ||
        number + BATON__CHANGES <= change->applied) {
        return baton__error(
            BATON_ERR_BUSY,
            "mode of partial \"%s\": change %u of this rank, where %u were "
            "made, must be within %d of those",
            name, number, change->applied, (int)BATON__CHANGES);
    }
    const baton__request_t mine = {BATON__WISH_USER, rank, choice};
    if (number <= change->applied && contradicts(change, number, &mine)) {
        char text[200];
        describe(&change->done[number % BATON__CHANGES], &mine, text,
                 sizeof text);
        return baton__error(BATON_ERR_MISMATCH, "mode of partial \"%s\": %s",
                            name, text);
    }
    change->wanted[number % BATON__CHANGES] = choice;
    change->asked = number;
    return BATON_OK;
}

baton_status_t baton__change_ask(baton__change_t *change, const char *name,
                                 int rank, baton_partial_choice_t choice)
{
    (void)pthread_mutex_lock(&change->lock);
    baton_status_t status = ask(change, name, rank, choice);
    (void)pthread_mutex_unlock(&change->lock);
    return status;
}
