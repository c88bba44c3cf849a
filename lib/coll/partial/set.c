/* The tensors of a partial all-reduce: an epoch takes all tensors of a step, or
   none.

       contribute_tensor --> [staged] --start--> [pending] --take--> ...

   Contributions to the next step are collected in a vector of their own,
   `staged`, from which no epoch takes. If nothing is pending, start exchanges
   `staged` with `pending`; otherwise the rank is late, and start adds `staged`
   to `pending`. So there is one activation and one result, with the same
   guarantees as for a single vector. Each long tensor has an inner all-reduce
   of its own, whose source may be the application's memory. An all-reduce for
   each short tensor would multiply the messages, and could not begin any of
   them earlier: an epoch takes a step only after it was started, and then all
   of its tensors are there.

   There are two locks, which are taken in this order: the set's lock, which
   contributors hold one after another, and contribute_lock, which an epoch must
   get to take anything. Start holds contribute_lock only while it exchanges the
   vectors, unless the rank is late. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "coll/partial/parts.h"

#include <string.h>

/* ---- options ----------------------------------------------------------- */

#define REFUSE(...) baton__refuse(wrong, BATON_ERR_INVALID, __VA_ARGS__)

bool baton__partial_resolve_tensors(baton_partial_options_t *options,
                                    baton__wrong_t *wrong)
{
    size_t sum = 0;
    if ((options->tensors == 0) != (options->counts == NULL)) {
        return REFUSE("tensors is %zu, and counts is %s: set both, or neither "
                      "for one vector",
                      options->tensors,
                      options->counts == NULL ? "NULL" : "not NULL");
    }
    if (options->tensors > 0 && options->memory != BATON_MEMORY_HOST) {
        return baton__refuse(wrong, BATON_ERR_UNSUPPORTED,
                             "tensors is %zu, which is not supported with "
                             "device memory: contribute one vector",
                             options->tensors);
    }
    for (size_t i = 0; i < options->tensors; i++) {
        if (options->counts[i] > SIZE_MAX - sum) {
            return REFUSE("the counts of tensors 0 to %zu add up to more than "
                          "%zu",
                          i, (size_t)SIZE_MAX);
        }
        sum += options->counts[i];
    }
    if (options->tensors > 0 && options->count != 0 && options->count != sum) {
        return REFUSE("count is %zu, must be 0, or the sum of counts, %zu",
                      options->count, sum);
    }
    options->count = options->tensors > 0 ? sum : options->count;
    return true;
}

/* ---- life -------------------------------------------------------------- */

/* Divides the vector into pieces. A piece is one long part, or several short
   parts that follow each other. A part is a tensor or, if there are no tensors,
   the vector. */
static void set_cut(baton__partial_set_t *self,
                    const baton_partial_options_t *options, size_t parts)
{
    bool was_long = true;
    for (size_t i = 0; i < parts; i++) {
        size_t count =
            options->tensors > 0 ? options->counts[i] : options->count;
        bool is_long = baton__partial_is_long(options, count);
        if (was_long || is_long) {
            self->pieces[self->piece_count++].tensor = i;
        }
        was_long = is_long;
        self->begins[i + 1] = self->begins[i] + count;
        self->pieces[self->piece_count - 1].bytes +=
            count * baton_op_element_bytes(options->op, options->dtype);
    }
}

baton_status_t baton__partial_set_init(baton__partial_set_t *self,
                                       const baton_partial_options_t *options)
{
    size_t parts = options->tensors > 0 ? options->tensors : 1;
    self->begins = baton__alloc(parts + 1, sizeof *self->begins);
    self->pieces = baton__alloc(parts, sizeof *self->pieces);
    self->contributed = baton__alloc(parts, sizeof *self->contributed);
    if (self->begins == NULL || self->pieces == NULL ||
        self->contributed == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "partial \"%s\": no memory for %zu tensors",
                            options->name, parts);
    }
    set_cut(self, options, parts);
    self->tensors = options->tensors;
    if (self->tensors > 0) {
        (void)pthread_mutex_init(&self->lock, NULL);
    }
    return BATON_OK;
}

void baton__partial_set_fini(baton__partial_set_t *self)
{
    if (self->tensors > 0) {
        (void)pthread_mutex_destroy(&self->lock);
    }
    baton__free(self->begins);
    baton__free(self->pieces);
    baton__free(self->contributed);
}

/* ---- steps ------------------------------------------------------------- */

/* Returns the number of elements of a tensor. In a cost-only simulation that is
   0, since vectors are empty. */
static size_t set_count_of(const baton_partial_t *partial, size_t tensor)
{
    const baton__partial_set_t *set = &partial->set;
    return partial->payload ? set->begins[tensor + 1] - set->begins[tensor] : 0;
}

/* Returns the address of a tensor in a vector. */
static char *set_place_of(const baton_partial_t *partial, char *vector,
                          size_t tensor)
{
    return vector +
           partial->set.begins[tensor] * partial->contribution.element_bytes;
}

/* Adds `data` to a tensor of `staged`. If `lent`, and if this is the first
   contribution to the tensor in this step, the data are not copied: `staged`
   refers to them. The caller holds the set's lock. */
static void stage(baton_partial_t *partial, size_t tensor, const void *data,
                  bool lent)
{
    baton__contribution_t *c = &partial->contribution;
    size_t count = set_count_of(partial, tensor);
    if (count > 0) {
        char *place = set_place_of(partial, c->staged.memory, tensor);
        if (partial->set.contributed[tensor]) {
            c->op->reduce(c->op->arg, place,
                          baton__contribution_part(c, &c->staged, tensor), data,
                          count, c->dtype);
            c->staged.lent[tensor] = NULL;
        } else if (lent) {
            c->staged.lent[tensor] = data;
            atomic_store_explicit(&c->lends, true, memory_order_relaxed);
        } else {
            memcpy(place, data, count * c->element_bytes);
        }
    }
    partial->set.contributed[tensor] = true;
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
        size_t count = set_count_of(partial, i);
        if (!set->contributed[i] && count > 0) {
            c->op->identity(c->op->arg,
                            set_place_of(partial, c->staged.memory, i), count,
                            c->dtype);
        }
        set->contributed[i] = false;
    }
    baton__float_mode_leave(mode);
    if (set->any) {
        baton__contribution_add_staged(c, baton__partial_steps(partial) + 1);
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
        size_t count = set_count_of(partial, i);
        if (set->contributed[i] && count > 0) {
            const baton__contribution_t *c = &partial->contribution;
            char *place = set_place_of(partial, data, i);
            c->op->reduce(c->op->arg, place, place,
                          baton__contribution_part(c, &c->staged, i), count,
                          c->dtype);
        }
    }
    baton__float_mode_leave(mode);
    (void)pthread_mutex_unlock(&set->lock);
    return any;
}

void baton__partial_set_end_loan(baton_partial_t *partial)
{
    if (partial->set.tensors > 0) {
        (void)pthread_mutex_lock(&partial->set.lock);
        baton__contribution_return_loan(&partial->contribution,
                                        &partial->contribution.staged);
        (void)pthread_mutex_unlock(&partial->set.lock);
    }
}

static baton_status_t set_contribute(baton_partial_t *partial, size_t tensor,
                                     const void *data, bool lent,
                                     const char *function)
{
    if (!baton__partial_is_alive(partial, function)) {
        return baton__error_status();
    }
    baton__partial_set_t *set = &partial->set;
    if (tensor >= set->tensors) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: \"%s\" has %zu tensors, and no tensor %zu%s",
                            function, partial->name, set->tensors, tensor,
                            set->tensors == 0 ? ": set options.tensors" : "");
    }
    if (data == NULL && set_count_of(partial, tensor) > 0) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: tensor %zu of \"%s\": data is NULL", function,
                            tensor, partial->name);
    }
    (void)pthread_mutex_lock(&set->lock);
    baton__float_mode_t mode = baton__float_mode_enter();
    stage(partial, tensor, data,
          lent && baton__partial_is_long(&partial->options,
                                         set_count_of(partial, tensor)));
    baton__float_mode_leave(mode);
    (void)pthread_mutex_unlock(&set->lock);
    return BATON_OK;
}

baton_status_t baton_partial_contribute_tensor(baton_partial_t *partial,
                                               size_t tensor, const void *data)
{
    return set_contribute(partial, tensor, data, false, __func__);
}

baton_status_t baton_partial_contribute_tensor_lent(baton_partial_t *partial,
                                                    size_t tensor,
                                                    const void *data)
{
    return set_contribute(partial, tensor, data, true, __func__);
}

size_t baton_partial_offset(const baton_partial_t *partial, size_t tensor)
{
    return partial != NULL && tensor <= partial->set.tensors &&
                   partial->set.tensors > 0
               ? partial->set.begins[tensor]
               : 0;
}
