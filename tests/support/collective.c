#include "support/collective.h"

#include <baton/partial.h>

const char *const support_row_names[SUPPORT_ROWS] = {
    "sparse", "tensors", "partial", "latest", "partial sparse"};

baton_sparse_options_t support_collective_options(support_row_t row)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.dtype = BATON_F64;
    options.count = 61;
    options.k = 7;
    options.algorithm =
        row == SUPPORT_TENSORS ? BATON_SPARSE_REDSYNC : BATON_SPARSE_SPARDL;
    options.partial = row == SUPPORT_PARTIAL_SPARSE;
    options.seed = 3;
    return options;
}

/* Decides whether the vector is divided into tensors, some of which may be
   empty. It is divided if the seed is odd and the vector is not on a device.
   Returns the number of tensors, or 0. */
static size_t tensors_of(const support_collective_t *self,
                         const baton_sparse_options_t *o,
                         size_t counts[SUPPORT_TENSORS_MOST])
{
    size_t tensors = o->seed % 2 == 0 || o->memory != BATON_MEMORY_HOST
                         ? 0
                         : 1 + o->seed % SUPPORT_TENSORS_MOST;
    for (size_t i = 0; i < tensors; i++) {
        counts[i] = (i + 1) * self->count / tensors - i * self->count / tensors;
    }
    return tensors;
}

/* The number of elements of a long tensor. The vector is the end of one long
   tensor and the beginning of the next. */
enum { LONG = BATON_PARTIAL_TREE_BYTES / sizeof(double) + 1 };

static size_t widen(support_collective_t *self,
                    size_t counts[SUPPORT_TENSORS_MOST])
{
    self->wide = calloc(2 * (size_t)LONG, sizeof *self->wide);
    self->lent = calloc(2 * (size_t)LONG, sizeof *self->lent);
    self->at = LONG - self->count / 2;
    counts[0] = counts[2] = LONG;
    counts[1] = 0;
    return 3;
}

/* A sum that the user has defined. The library does not know that it is a sum.
   So it can't count the active ranks in one more element of the vector, as it
   does for BATON_SUM, and the count has an all-reduce of its own. */
static void add(void *arg, void *target, const void *left, const void *right,
                size_t count, baton_dtype_t dtype)
{
    BATON_SUM->reduce(arg, target, left, right, count, dtype);
}

static void zero(void *arg, void *target, size_t count, baton_dtype_t dtype)
{
    BATON_SUM->identity(arg, target, count, dtype);
}

static const baton_op_t own_sum = {
    .name = "own sum", .reduce = add, .identity = zero, .commutative = true};

static baton_status_t prepare_partial(support_collective_t *self,
                                      baton_group_t *group,
                                      const baton_sparse_options_t *o)
{
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    options.name = o->name;
    options.mode = o->mode;
    options.mode_ranks = o->mode_ranks;
    options.keep =
        self->row == SUPPORT_PARTIAL ? BATON_KEEP_ALL : BATON_KEEP_LATEST;
    options.history = o->history;
    options.sync_every = o->sync_every;
    options.max_staleness = o->max_staleness;
    options.seed = o->seed;
    options.count = o->count;
    options.dtype = o->dtype;
    options.memory = o->memory;
    size_t counts[SUPPORT_TENSORS_MOST];
    self->tensor_count = options.tensors = tensors_of(self, o, counts);
    options.counts = options.tensors > 0 ? counts : NULL;
    if (o->seed % 128 == SUPPORT_WIDE && o->memory == BATON_MEMORY_HOST) {
        self->tensor_count = options.tensors = widen(self, counts);
        options.count = 0;
    } else if (o->seed % 4 == 0 && o->memory == BATON_MEMORY_HOST) {
        options.op = &own_sum;
        self->lent = calloc(self->count + 1, sizeof *self->lent);
    }
    return baton_partial_create(group, &options, &self->partial);
}

static baton_status_t prepare_tensors(support_collective_t *self,
                                      baton_group_t *group,
                                      const baton_sparse_options_t *o)
{
    const size_t small = o->count / 4;
    const baton_tensor_t tensors[SUPPORT_PARTS] = {
        {"first", BATON_ROLE_DENSE, small},
        {"large", BATON_ROLE_DENSE, o->count - 2 * small},
        {"last", BATON_ROLE_DENSE, small}};
    baton_tensors_options_t options = BATON_TENSORS_OPTIONS;
    options.name = o->name;
    options.dtype = o->dtype;
    options.density =
        o->k == o->count ? 1 : ((double)o->k + 0.5) / (double)o->count;
    options.small_bytes = small * sizeof(double);
    options.algorithm = o->algorithm;
    options.always_sparse = true;
    options.momentum = o->momentum;
    if (o->partial) {
        options.small_bytes = 0;
        options.partial = true;
        options.average = o->average;
        options.clip = o->clip;
        options.mode = o->mode;
        options.mode_ranks = o->mode_ranks;
        options.history = o->history;
        options.sync_every = o->sync_every;
        options.max_staleness = o->max_staleness;
        options.seed = o->seed;
        options.on_loss = o->on_loss;
    }
    for (int i = 0; i < SUPPORT_PARTS; i++) {
        self->parts[i] = tensors[i].count;
    }
    return baton_tensors_prepare(group, tensors, SUPPORT_PARTS, &options,
                                 &self->tensors);
}

baton_status_t support_collective_prepare(support_collective_t *self,
                                          support_row_t row,
                                          baton_group_t *group,
                                          const baton_sparse_options_t *o)
{
    *self = (support_collective_t){
        .row = row, .rank = baton_group_rank(group), .count = o->count};
    self->given = row == SUPPORT_SPARSE && o->in_place
                      ? calloc(o->count, sizeof(double))
                      : NULL;
    bool set =
        row == SUPPORT_TENSORS ||
        (row == SUPPORT_PARTIAL_SPARSE && o->seed % 2 == 1 && o->teams <= 1 &&
         o->algorithm == BATON_SPARSE_SPARDL && o->count >= 4);
    if (support_is_partial(row)) {
        return prepare_partial(self, group, o);
    }
    return set ? prepare_tensors(self, group, o)
               : baton_sparse_prepare(group, o, &self->sparse);
}

static size_t bytes_of(const support_collective_t *self)
{
    return self->count * sizeof(double);
}

baton_status_t
support_collective_prepare_on(support_collective_t *self, support_row_t row,
                              const support_cluster_t *cluster, int rank,
                              const baton_sparse_options_t *options)
{
    baton_sparse_options_t own = *options;
    own.memory =
        cluster->devices != NULL ? BATON_MEMORY_DEVICE : BATON_MEMORY_HOST;
    baton_status_t status =
        support_collective_prepare(self, row, cluster->groups[rank], &own);
    if (status == BATON_OK && cluster->devices != NULL) {
        self->device = cluster->devices[rank];
        self->stream = cluster->streams[rank];
    }
    return status;
}

baton_status_t support_collective_connect(support_collective_t *self, int round)
{
    if (self->tensors != NULL) {
        baton_status_t status = round == 0
                                    ? baton_tensors_agree(self->tensors, -1)
                                    : baton_tensors_connect(self->tensors, -1);
        self->sparse = self->row == SUPPORT_PARTIAL_SPARSE
                           ? baton_tensors_sparse(self->tensors, 0)
                           : NULL;
        return status;
    }
    return support_is_partial(self->row) || round > 0
               ? BATON_OK
               : baton_sparse_connect(self->sparse, -1);
}

baton_status_t support_collective_destroy(support_collective_t *self)
{
    baton_status_t status;
    if (support_is_partial(self->row)) {
        status = baton_partial_destroy(self->partial);
    } else if (self->tensors != NULL) {
        status = baton_tensors_destroy(self->tensors);
    } else {
        status = baton_sparse_destroy(self->sparse);
    }
    free(self->lent);
    free(self->wide);
    free(self->given);
    if (self->memory != NULL) {
        emulated_synchronise_all(self->device);
        emulated_release(self->device, self->memory);
        free(self->copies);
    }
    return status;
}

/* ---- on a device ------------------------------------------------------- */

static void allocate(support_collective_t *self)
{
    if (self->memory == NULL) {
        self->memory = emulated_allocate(self->device, 2 * bytes_of(self));
        self->copies = calloc(2, bytes_of(self));
    }
}

/* Copies the vector to the memory from which the collective reads it: to the
   device, or into the long tensors. Returns the copy. If the collective reads
   neither, returns the vector itself. */
static const void *there(support_collective_t *self, const double *vector)
{
    if (self->wide != NULL && vector != NULL) {
        memcpy(self->wide + self->at, vector, bytes_of(self));
        return self->wide;
    }
    if (self->device == NULL || vector == NULL) {
        return vector;
    }
    allocate(self);
    emulated_write(self->device, self->memory, vector, bytes_of(self));
    return self->memory;
}

static baton_status_t put_copy(support_collective_t *self, void *target,
                               const void *source)
{
    return emulated_port(self->device)
        ->copy(self->device, self->stream, target, source, bytes_of(self));
}

/* Puts a whole step into the stream, which copies the gradient from main
   memory, runs the step, and copies the result to main memory. */
static baton_status_t put_step(support_collective_t *self,
                               const double *gradient)
{
    allocate(self);
    char *result = self->memory + bytes_of(self);
    const bool partial = support_is_partial(self->row);
    emulated_synchronise(self->device, self->stream);
    memcpy(self->copies, gradient, bytes_of(self));
    emulated_delay(self->device, self->stream, 20);
    support_ok(put_copy(self, self->memory, self->copies));
    baton_status_t status =
        partial
            ? baton_partial_contribute_on(self->partial, self->memory,
                                          self->stream)
            : baton_sparse_start_on(self->sparse, self->stream, self->memory);
    if (status == BATON_OK && partial) {
        status = baton_partial_start_on(self->partial, self->stream);
    }
    if (status == BATON_OK) {
        support_ok(
            partial ? baton_partial_wait_on(self->partial, self->stream, result)
                    : baton_sparse_wait_on(self->sparse, self->stream, result));
        support_ok(put_copy(self, self->copies + self->count, result));
    }
    return status;
}

/* Returns true if the step goes through a stream. Steps of PARTIAL_LATEST never
   do: the latest result may be later than the one that the stream got. */
static bool goes_into_stream(support_collective_t *self, const double *gradient)
{
    return self->device != NULL && gradient != NULL &&
           self->row != SUPPORT_PARTIAL_LATEST && ++self->steps % 2 == 0;
}

/* ---- steps ------------------------------------------------------------- */

/* Starts the tensors in an order that differs between ranks. If the start of
   one fails, starts the others nevertheless. */
static baton_status_t start_tensors(support_collective_t *self,
                                    const double *gradient)
{
    baton_status_t first = BATON_OK;
    for (int i = 0; i < SUPPORT_PARTS; i++) {
        int part = (i + self->rank) % SUPPORT_PARTS;
        size_t at = part > 0 ? self->parts[0] : 0;
        at += part > 1 ? self->parts[1] : 0;
        baton_status_t status =
            baton_tensors_ready(self->tensors, (size_t)part,
                                gradient != NULL ? gradient + at : NULL);
        self->ready[part] = status == BATON_OK;
        first = first == BATON_OK ? status : first;
    }
    return first;
}

static baton_status_t contribute(support_collective_t *self,
                                 const double *gradient, bool lent)
{
    size_t tensors = self->tensor_count;
    if (tensors == 0) {
        return lent ? baton_partial_contribute_lent(self->partial, gradient)
                    : baton_partial_contribute(self->partial, gradient);
    }
    baton_status_t status = BATON_OK;
    for (size_t i = 0; i < tensors && status == BATON_OK; i++) {
        size_t tensor = (i + (size_t)self->rank) % tensors;
        const double *data =
            gradient + baton_partial_offset(self->partial, tensor);
        status =
            lent ? baton_partial_contribute_tensor_lent(self->partial, tensor,
                                                        data)
                 : baton_partial_contribute_tensor(self->partial, tensor, data);
    }
    return status;
}

baton_status_t support_collective_contribute(support_collective_t *self,
                                             const double *gradient)
{
    return contribute(self, there(self, gradient), false);
}

/* Copies the vector to memory of this struct, and lends that memory to the
   collective. end_loan overwrites the memory as soon as the loan has ended. */
static baton_status_t lend(support_collective_t *self, const double *gradient)
{
    if (self->lent == NULL || self->is_lending || gradient == NULL) {
        return support_collective_contribute(self, gradient);
    }
    memcpy(self->lent + self->at, gradient, bytes_of(self));
    self->is_lending = true;
    return contribute(self, self->lent, true);
}

static void end_loan(support_collective_t *self, baton_status_t status)
{
    if (self->is_lending && status != BATON_ERR_TIMEOUT) {
        memset(self->lent + self->at, 0x55, bytes_of(self));
        self->is_lending = false;
    }
}

static void add_times(double *to, const double *vector, double factor,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += factor * vector[i];
    }
}

/* Starts a step of a collective with in_place: first adds the gradient to the
   residual. Does not add it if the residual still contains the gradient of a
   step that has no result. */
static baton_status_t start_in_place(support_collective_t *self,
                                     const double *gradient)
{
    double *to = baton_sparse_accumulator(self->sparse);
    if (self->stands || gradient == NULL) {
        return baton_sparse_start(self->sparse, gradient);
    }
    memcpy(self->given, gradient, bytes_of(self));
    add_times(to, gradient, 1, self->count);
    baton_status_t status = baton_sparse_start(self->sparse, NULL);
    self->stands = status == BATON_OK;
    if (!self->stands) {
        add_times(to, gradient, -1, self->count);
    }
    return status;
}

/* Contributes the gradient in parts, in an order that differs between ranks,
   and starts a step. */
static baton_status_t start_in_parts(support_collective_t *self,
                                     const double *gradient)
{
    baton_status_t status = BATON_OK;
    for (int i = 0; i < SUPPORT_PARTS && status == BATON_OK; i++) {
        size_t part = (size_t)((2 * i + self->rank) % SUPPORT_PARTS);
        size_t first = part * self->count / SUPPORT_PARTS;
        size_t end = (part + 1) * self->count / SUPPORT_PARTS;
        status = baton_sparse_contribute(self->sparse, first, end - first,
                                         gradient + first);
    }
    return status == BATON_OK ? baton_sparse_start(self->sparse, NULL) : status;
}

baton_status_t support_collective_start(support_collective_t *self,
                                        const double *gradient, bool *given_out)
{
    baton_status_t status = BATON_OK;
    *given_out = false;
    if (self->given != NULL) {
        status = start_in_place(self, gradient);
        *given_out = status == BATON_OK;
        return status;
    }
    self->in_stream = goes_into_stream(self, gradient);
    if (self->in_stream) {
        status = put_step(self, gradient);
        *given_out = self->in_stream = status == BATON_OK;
        return status;
    }
    if (support_is_partial(self->row)) {
        status = lend(self, gradient);
        *given_out = status == BATON_OK;
        return status == BATON_OK ? baton_partial_start(self->partial) : status;
    }
    bool in_parts = self->device == NULL && gradient != NULL;
    if (self->tensors != NULL) {
        status = start_tensors(self, gradient);
    } else if (in_parts && self->starts++ % 2 == 1) {
        status = start_in_parts(self, gradient);
    } else {
        status = baton_sparse_start(self->sparse, there(self, gradient));
    }
    *given_out = status == BATON_OK;
    return status;
}

baton_status_t support_collective_test(support_collective_t *self, bool *done)
{
    baton_status_t status = BATON_OK;
    *done = true;
    if (self->tensors == NULL) {
        return support_is_partial(self->row)
                   ? baton_partial_test(self->partial, done)
                   : baton_sparse_test(self->sparse, done);
    }
    for (size_t i = 0; i < SUPPORT_PARTS && *done && status == BATON_OK; i++) {
        status = baton_tensors_test(self->tensors, i, done);
    }
    return status;
}

/* Copies a vector to main memory. */
static void get(support_collective_t *self, double *vector, const void *from)
{
    if (self->device != NULL) {
        emulated_read(self->device, vector, from, bytes_of(self));
    } else {
        memcpy(vector, from, bytes_of(self));
    }
}

void support_dense_of(const baton_sparse_result_t *result, size_t count,
                      double *vector)
{
    const double *values = result->values;
    memset(vector, 0, count * sizeof *vector);
    for (size_t i = 0; i < result->count; i++) {
        vector[result->indices != NULL ? result->indices[i] : i] = values[i];
    }
}

/* Returns the limit of a wait in milliseconds. Without a device it is -1 (no
   limit), since the ranks may be simulated, in virtual time. */
static int limit_ms(const support_collective_t *self)
{
    return self->device != NULL ? SUPPORT_WAIT_MS : -1;
}

/* Waits for tensor `part`. If there are no tensors, waits for the sparse
   all-reduce. */
static baton_status_t wait_for(support_collective_t *self, int part,
                               double *result)
{
    const bool set = self->tensors != NULL;
    baton_status_t status =
        !set ? baton_sparse_wait(self->sparse, limit_ms(self), &self->entries)
             : baton_tensors_wait(self->tensors, (size_t)part, -1,
                                  &self->entries);
    if (status == BATON_OK) {
        support_dense_of(&self->entries, set ? self->parts[part] : self->count,
                         result);
        self->included = self->entries.included;
        self->stands = false;
    }
    return status;
}

static void set(bool *ended, size_t count, bool value)
{
    for (size_t i = 0; ended != NULL && i < count; i++) {
        ended[i] = value;
    }
}

/* Waits for a partial result. If the tensors are long, the wait writes the
   first tensor, which has the first half of the vector, to the lent memory. */
static baton_status_t wait_for_partial(support_collective_t *self,
                                       double *result)
{
    const int ms = limit_ms(self);
    if (self->wide == NULL) {
        baton_status_t status =
            baton_partial_wait(self->partial, ms, &self->seen);
        if (status == BATON_OK) {
            get(self, result, self->seen.data);
        }
        return status;
    }
    const size_t half = self->count / 2;
    void *const targets[] = {self->lent, NULL, NULL};
    baton_status_t status =
        baton_partial_wait_into(self->partial, ms, targets, &self->seen);
    if (status == BATON_OK && self->seen.data != NULL) {
        get(self, result, (const double *)self->seen.data + self->at);
        memcpy(result, self->lent + self->at, half * sizeof *result);
    }
    return status;
}

baton_status_t support_collective_wait(support_collective_t *self,
                                       double *result, bool *ended)
{
    baton_status_t first = BATON_OK;
    const bool in_stream = self->in_stream;
    if (in_stream) {
        emulated_synchronise(self->device, self->stream);
        self->in_stream = false;
    }
    self->got = in_stream ? self->copies + self->count : NULL;
    self->unseen = in_stream && support_is_partial(self->row);
    if (self->unseen) {
        memcpy(result, self->copies + self->count, bytes_of(self));
    } else if (support_is_partial(self->row)) {
        first = wait_for_partial(self, result);
        end_loan(self, first);
        if (first == BATON_OK) {
            self->included = self->seen.included;
        }
    } else if (self->tensors == NULL) {
        first = wait_for(self, 0, result);
    } else {
        for (int part = 0; part < SUPPORT_PARTS; part++) {
            baton_status_t status = wait_for(self, part, result);
            set(ended, self->parts[part], status == BATON_OK);
            first = first == BATON_OK ? status : first;
            result += self->parts[part];
            ended += ended != NULL ? self->parts[part] : 0;
        }
        return first;
    }
    set(ended, self->count, first == BATON_OK);
    return first;
}

void support_collective_settle(support_collective_t *self)
{
    baton_sparse_result_t result;
    if (self->stands) {
        add_times(baton_sparse_accumulator(self->sparse), self->given, -1,
                  self->count);
        self->stands = false;
    }
    if (self->row == SUPPORT_SPARSE && self->memory != NULL) {
        support_ok(
            baton_sparse_wait_on(self->sparse, self->stream, self->memory));
        emulated_synchronise(self->device, self->stream);
        (void)!baton_sparse_wait(self->sparse, SUPPORT_WAIT_MS, &result);
    }
}

void support_collective_rest(support_collective_t *self, double *rest)
{
    bool any;
    if (support_is_partial(self->row)) {
        if (self->device != NULL) {
            allocate(self);
        }
        void *to = self->wide != NULL ? (void *)self->wide : rest;
        to = self->device != NULL ? (void *)self->memory : to;
        support_ok(baton_partial_pending(self->partial, to, &any));
        if (to != rest) {
            get(self, rest, self->wide != NULL ? self->wide + self->at : to);
        }
    } else if (self->row != SUPPORT_TENSORS) {
        support_ok(baton_sparse_residual(self->sparse, rest));
    } else { /* packed tensors are sent whole, and so have no residual */
        memset(rest, 0, self->count * sizeof *rest);
        support_ok(baton_sparse_residual(baton_tensors_sparse(self->tensors, 1),
                                         rest + self->parts[0]));
    }
}
