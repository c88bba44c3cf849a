/* Tensors of a partial all-reduce, which are in an epoch together.

       contribute_tensor --> [staged] --start--> [pending] --take--> ...

   A step is made in a vector of its own, which no epoch takes from. Start has
   it change places with what is pending, if that is nothing; else, when the
   rank is late, it is added. So the activation, the inner all-reduce and the
   results are those of one vector, and so is all that is promised of them. The
   alternative, an all-reduce of each tensor behind one activation, would have
   as many times the messages, and none of them earlier: an epoch takes a step
   when it has been started, and all of its tensors are there by then.

   Two locks, in this order: the set's, by which contributors take turns, and
   the contribution's, which an epoch must get to take anything. The second one
   is held for an assignment only, unless the rank is late. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "coll/partial/parts.h"

#include <baton/partial.h>
#include <string.h>

/* ---- options ----------------------------------------------------------- */

static baton_status_t check_counts(const baton_partial_options_t *options)
{
    if ((options->tensors == 0) != (options->counts == NULL)) {
        return baton__error(BATON_ERR_INVALID,
                            "partial \"%s\": tensors is %zu, and counts is %s: "
                            "set both, or neither for one vector",
                            options->name, options->tensors,
                            options->counts == NULL ? "NULL" : "not NULL");
    }
    if (options->tensors > 0 && options->memory != BATON_MEMORY_HOST) {
        return baton__error(
            BATON_ERR_UNSUPPORTED,
            "partial \"%s\": tensors is %zu, which is not supported with "
            "device memory: contribute one vector",
            options->name, options->tensors);
    }
    return BATON_OK;
}

baton_status_t baton__partial_resolve_tensors(baton_partial_options_t *options)
{
    size_t sum = 0;
    baton_status_t status = check_counts(options);
    if (status != BATON_OK || options->tensors == 0) {
        return status;
    }
    for (size_t i = 0; i < options->tensors; i++) {
        if (options->counts[i] > SIZE_MAX - sum) {
            return baton__error(BATON_ERR_INVALID,
                                "partial \"%s\": the counts of tensors 0 to "
                                "%zu add up to more than %zu",
                                options->name, i, (size_t)SIZE_MAX);
        }
        sum += options->counts[i];
    }
    if (options->count != 0 && options->count != sum) {
        return baton__error(BATON_ERR_INVALID,
                            "partial \"%s\": count is %zu, must be 0, or the "
                            "sum of counts, %zu",
                            options->name, options->count, sum);
    }
    options->count = sum;
    return BATON_OK;
}

/* ---- life -------------------------------------------------------------- */

baton_status_t baton__partial_set_init(baton__partial_set_t *self,
                                       const baton_partial_options_t *options)
{
    size_t tensors = options->tensors;
    if (tensors == 0) {
        return BATON_OK;
    }
    self->begins = baton__alloc(tensors + 1, sizeof *self->begins);
    self->given = baton__alloc(tensors, sizeof *self->given);
    if (self->begins == NULL || self->given == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "partial \"%s\": no memory for %zu tensors",
                            options->name, tensors);
    }
    for (size_t i = 0; i < tensors; i++) {
        self->begins[i + 1] = self->begins[i] + options->counts[i];
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    self->tensors = tensors;
    return BATON_OK;
}

void baton__partial_set_fini(baton__partial_set_t *self)
{
    if (self->tensors > 0) {
        (void)pthread_mutex_destroy(&self->lock);
    }
    baton__free(self->begins);
    baton__free(self->given);
}

/* ---- steps ------------------------------------------------------------- */

/* Elements of a tensor; without payload vectors are empty. */
static size_t count_of(const baton_partial_t *partial, size_t tensor)
{
    const baton__partial_set_t *set = &partial->set;
    return partial->payload ? set->begins[tensor + 1] - set->begins[tensor] : 0;
}

/* Its place in a vector. */
static char *place_of(const baton_partial_t *partial, char *vector,
                      size_t tensor)
{
    return vector +
           partial->set.begins[tensor] * partial->contribution.element_bytes;
}

/* place += data. */
static void add(const baton__contribution_t *c, char *place, const void *data,
                size_t count)
{
    c->op->reduce(c->op->arg, place, place, data, count, c->dtype);
}

/* The set's lock is held. */
static void stage(baton_partial_t *partial, size_t tensor, const void *data)
{
    const baton__contribution_t *c = &partial->contribution;
    size_t count = count_of(partial, tensor);
    if (count > 0) {
        char *place = place_of(partial, c->staged, tensor);
        if (partial->set.given[tensor]) {
            add(c, place, data, count);
        } else {
            memcpy(place, data, count * c->element_bytes);
        }
    }
    partial->set.given[tensor] = true;
    partial->set.any = true;
}

void baton__partial_set_close(baton_partial_t *partial)
{
    baton__partial_set_t *set = &partial->set;
    baton__contribution_t *c = &partial->contribution;
    if (set->tensors == 0) {
        return;
    }
    (void)pthread_mutex_lock(&set->lock);
    baton__float_mode_t mode = baton__float_mode_enter();
    for (size_t i = 0; set->any && i < set->tensors; i++) {
        size_t count = count_of(partial, i);
        if (!set->given[i] && count > 0) {
            c->op->identity(c->op->arg, place_of(partial, c->staged, i), count,
                            c->dtype);
        }
        set->given[i] = false;
    }
    baton__float_mode_leave(mode);
    if (set->any) {
        baton__contribution_add(c, c->staged, baton__partial_steps(partial) + 1,
                                false);
    }
    set->any = false;
    (void)pthread_mutex_unlock(&set->lock);
}

bool baton__partial_set_pending(baton_partial_t *partial, void *data)
{
    baton__partial_set_t *set = &partial->set;
    (void)pthread_mutex_lock(&set->lock);
    bool any =
        baton__contribution_pending(&partial->contribution, data) || set->any;
    baton__float_mode_t mode = baton__float_mode_enter();
    for (size_t i = 0; i < set->tensors; i++) {
        size_t count = count_of(partial, i);
        if (set->given[i] && count > 0) {
            const baton__contribution_t *c = &partial->contribution;
            add(c, place_of(partial, data, i), place_of(partial, c->staged, i),
                count);
        }
    }
    baton__float_mode_leave(mode);
    (void)pthread_mutex_unlock(&set->lock);
    return any;
}

baton_status_t baton_partial_contribute_tensor(baton_partial_t *partial,
                                               size_t tensor, const void *data)
{
    if (!baton__partial_is_alive(partial, __func__)) {
        return baton__error_status();
    }
    baton__partial_set_t *set = &partial->set;
    if (tensor >= set->tensors) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: \"%s\" has %zu tensors, and no tensor %zu%s",
                            __func__, partial->name, set->tensors, tensor,
                            set->tensors == 0 ? ": set options.tensors" : "");
    }
    if (data == NULL && count_of(partial, tensor) > 0) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: tensor %zu of \"%s\": data is NULL", __func__,
                            tensor, partial->name);
    }
    (void)pthread_mutex_lock(&set->lock);
    baton__float_mode_t mode = baton__float_mode_enter();
    stage(partial, tensor, data);
    baton__float_mode_leave(mode);
    (void)pthread_mutex_unlock(&set->lock);
    return BATON_OK;
}

size_t baton_partial_offset(const baton_partial_t *partial, size_t tensor)
{
    return partial != NULL && tensor <= partial->set.tensors &&
                   partial->set.tensors > 0
               ? partial->set.begins[tensor]
               : 0;
}
