/* The list of what nodes read and write; see accesses.h. */
#include "sched/accesses.h"

#include "base/alloc.h"

#include <stdlib.h>

/* Returns how many accesses there are. With out == NULL it only counts. */
static size_t list(const baton_schedule_t *schedule,
                   const baton__order_t *order, baton__access_t *out)
{
    size_t count = 0;
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        const baton__kind_info_t *kind = &baton__kinds[op->kind];
        for (int i = 0; i < BATON__OPERANDS && op->bytes > 0; i++) {
            if (!baton__op_uses(op, i)) {
                continue;
            }
            if (out != NULL) {
                const baton__buffer_t *buffer =
                    &schedule->buffers[op->buffer[i]];
                size_t begin = buffer->base + op->offset[i];
                out[count] = (baton__access_t){
                    .space = buffer->space,
                    .buffer = op->buffer[i],
                    .position = order->position[node],
                    .operand = (uint8_t)i,
                    .write = (kind->writes >> i & 1) != 0,
                    .begin = begin,
                    .end = begin + op->bytes,
                };
            }
            count++;
        }
    }
    return count;
}

static int compare_accesses(const void *a, const void *b)
{
    const baton__access_t *left = a;
    const baton__access_t *right = b;
    if (left->space != right->space) {
        return left->space < right->space ? -1 : 1;
    }
    if (left->position != right->position) {
        return left->position < right->position ? -1 : 1;
    }
    return (int)left->write - (int)right->write;
}

static int compare_sizes(const void *a, const void *b)
{
    size_t left = *(const size_t *)a;
    size_t right = *(const size_t *)b;
    return (left > right) - (left < right);
}

bool baton__accesses_init(baton__accesses_t *self,
                          const baton_schedule_t *schedule,
                          const baton__order_t *order)
{
    size_t count = list(schedule, order, NULL);
    *self = (baton__accesses_t){
        .all = baton__alloc(count, sizeof *self->all),
        .count = count,
        .cuts = baton__alloc(2 * count, sizeof *self->cuts),
    };
    if (self->all == NULL || self->cuts == NULL) {
        return false;
    }
    (void)list(schedule, order, self->all);
    qsort(self->all, count, sizeof *self->all, compare_accesses);
    return true;
}

void baton__accesses_fini(baton__accesses_t *self)
{
    baton__free(self->all);
    baton__free(self->cuts);
}

size_t baton__accesses_cut(baton__accesses_t *self, size_t first)
{
    size_t *cuts = self->cuts;
    size_t count = 0;
    size_t end = first;
    while (end < self->count &&
           self->all[end].space == self->all[first].space) {
        cuts[count++] = self->all[end].begin;
        cuts[count++] = self->all[end].end;
        end++;
    }
    qsort(cuts, count, sizeof *cuts, compare_sizes);
    self->cut_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || cuts[i] != cuts[self->cut_count - 1]) {
            cuts[self->cut_count++] = cuts[i];
        }
    }
    return end;
}

size_t baton__accesses_find(const baton__accesses_t *self, size_t byte)
{
    const size_t *at = bsearch(&byte, self->cuts, self->cut_count,
                               sizeof *self->cuts, compare_sizes);
    return (size_t)(at - self->cuts);
}
