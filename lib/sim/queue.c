#include "sim/queue.h"

#include "base/alloc.h"

#include <assert.h>

enum { FIRST_ROOM = 256, CHILDREN = 4 };

static bool is_before(const baton__sim_entry_t *a, const baton__sim_entry_t *b)
{
    return a->at < b->at || (a->at <= b->at && a->number < b->number);
}

static bool grow(baton__sim_queue_t *queue)
{
    size_t room = FIRST_ROOM + queue->room + queue->room / 2;
    bool grown = baton__extend(&queue->entries, queue->count, room,
                               sizeof *queue->entries);
    queue->room = grown ? room : queue->room;
    return grown;
}

bool baton__sim_queue_push(baton__sim_queue_t *queue, double at, uint32_t kind,
                           uint32_t index)
{
    assert(at >= 0);
    if (queue->count == queue->room && !grow(queue)) {
        return false;
    }
    const baton__sim_entry_t entry = {
        .at = at + 0.0, /* turns -0.0 into 0.0 */
        .number = queue->pushed++,
        .kind = kind,
        .index = index,
    };
    size_t place = queue->count++;
    while (place > 0) {
        size_t parent = (place - 1) / CHILDREN;
        if (!is_before(&entry, &queue->entries[parent])) {
            break;
        }
        queue->entries[place] = queue->entries[parent];
        place = parent;
    }
    queue->entries[place] = entry;
    return true;
}

bool baton__sim_queue_peek(const baton__sim_queue_t *queue, double *at_out)
{
    if (queue->count > 0) {
        *at_out = queue->entries[0].at;
    }
    return queue->count > 0;
}

baton__sim_entry_t baton__sim_queue_pop(baton__sim_queue_t *queue)
{
    assert(queue->count > 0);
    baton__sim_entry_t *all = queue->entries;
    const baton__sim_entry_t first = all[0], last = all[--queue->count];
    size_t place = 0, child;
    while ((child = place * CHILDREN + 1) < queue->count) {
        size_t least = child;
        for (size_t i = child + 1; i < child + CHILDREN && i < queue->count;
             i++) {
            least = is_before(&all[i], &all[least]) ? i : least;
        }
        if (!is_before(&all[least], &last)) {
            break;
        }
        all[place] = all[least];
        place = least;
    }
    all[place] = last;
    return first;
}

void baton__sim_queue_fini(baton__sim_queue_t *queue)
{
    baton__free(queue->entries);
    *queue = (baton__sim_queue_t){0};
}
