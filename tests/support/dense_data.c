#include "support/dense_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void compose(void *arg, void *target, const void *left,
                    const void *right, size_t count, baton_dtype_t dtype)
{
    for (size_t i = 0; i < count; i++) {
        dense_affine_t l, r, both;
        memcpy(&l, (const char *)left + i * sizeof l, sizeof l);
        memcpy(&r, (const char *)right + i * sizeof r, sizeof r);
        both.a = l.a * r.a;
        both.b = r.a * l.b + r.b;
        memcpy((char *)target + i * sizeof both, &both, sizeof both);
    }
}

const baton_op_t dense_compose = {.name = "compose",
                                  .reduce = compose,
                                  .element_bytes = sizeof(dense_affine_t)};

support_op_t dense_op_for(const dense_builder_t *builder, baton_dtype_t dtype,
                          size_t turn)
{
    support_op_t op = support_op_for(dtype, turn);
    baton_collective_t collective = builder->algorithm.collective;
    bool divides = dense_reduces(builder) &&
                   collective != BATON_COLLECTIVE_SCAN &&
                   collective != BATON_COLLECTIVE_EXSCAN;
    return op == SUPPORT_AVG && !divides ? SUPPORT_SUM : op;
}

static void *memory_of(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

void dense_fill(const dense_data_t *data, int rank, void *source)
{
    const dense_case_t *c = data->c;
    size_t count = dense_source_count(c, rank);
    support_random_t random = support_random(
        data->seed, data->epoch * (uint64_t)c->size + (uint64_t)rank);
    if (c->op == &dense_compose) {
        support_fill_bits(source, count * c->element, &random);
    } else {
        support_fill_exact(source, count, c->dtype, data->op, rank, &random);
    }
}

/* Returns a rank's source, which the caller frees. */
static char *source_of(const dense_data_t *data, int rank)
{
    char *source =
        memory_of(dense_source_count(data->c, rank) * data->c->element);
    dense_fill(data, rank, source);
    return source;
}

typedef struct oracle {
    const dense_data_t *data;
    const char *result;
    bool right;
} oracle_t;

static void reduce(const dense_data_t *data, char *total, const char *right,
                   size_t count)
{
    if (data->c->op == &dense_compose) {
        compose(NULL, total, total, right, count, data->c->dtype);
    } else {
        support_reduce(total, right, count, data->c->dtype, data->op);
    }
}

static void check_piece(void *arg, int low, int high, size_t first,
                        size_t count, size_t at)
{
    oracle_t *oracle = arg;
    const dense_data_t *data = oracle->data;
    size_t element = data->c->element;
    char *total = memory_of(count * element);
    for (int rank = low; rank <= high; rank++) {
        char *source = source_of(data, rank);
        if (rank == low) {
            memcpy(total, source + first * element, count * element);
        } else {
            reduce(data, total, source + first * element, count);
        }
        free(source);
    }
    support_divide(total, count, data->c->dtype, data->op, data->c->size);
    if (memcmp(total, oracle->result + at * element, count * element) != 0) {
        oracle->right = false;
    }
    free(total);
}

bool dense_is_right(const dense_data_t *data, int rank, const void *result)
{
    oracle_t oracle = {data, result, true};
    dense_pieces(data->c, rank, check_piece, &oracle);
    return oracle.right;
}

bool dense_is_untouched(const dense_data_t *data, int rank, const void *source)
{
    size_t bytes = dense_source_count(data->c, rank) * data->c->element;
    char *filled = source_of(data, rank);
    bool same = memcmp(filled, source, bytes) == 0;
    free(filled);
    return same;
}

const char *dense_text(const dense_case_t *c)
{
    static char text[300];
    (void)snprintf(text, sizeof text,
                   "%s, %d ranks, root %d, %s of %zu %s in chunks of %zu "
                   "bytes%s%s",
                   c->builder->name, c->size, c->root,
                   c->op != NULL ? c->op->name : "copy", c->count,
                   baton_dtype_name(c->dtype), c->chunk_bytes,
                   c->varied ? ", varied" : "",
                   c->in_place ? ", in place" : "");
    return text;
}
