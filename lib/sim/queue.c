#include "sim/queue.h"

#include "base/alloc.h"

#include <assert.h>

enum { FIRST_CAPACITY = 256, CHILDREN = 4 };

static bool is_before(const baton__sim_entry_t *a, const baton__sim_entry_t *b)
{
    return a->at < b->at || (a->at <= b->at && a->number < b->number);
}

static bool grow_heap(baton__sim_queue_t *queue)
{
    size_t capacity =
        FIRST_CAPACITY + queue->heap_capacity + queue->heap_capacity / 2;
    bool grown = baton__extend(&queue->heap, queue->heap_count, capacity,
                               sizeof *queue->heap);
    queue->heap_capacity = grown ? capacity : queue->heap_capacity;
    return grown;
}

/* Returns the i-th place of the list. */
static baton__sim_entry_t *list_at(const baton__sim_queue_t *queue, size_t i)
{
    return &queue->list[(queue->list_first + i) & (queue->list_capacity - 1)];
}

static bool grow_list(baton__sim_queue_t *queue)
{
    size_t capacity =
        queue->list_capacity > 0 ? 2 * queue->list_capacity : FIRST_CAPACITY;
    baton__sim_entry_t *list = baton__alloc_raw(capacity * sizeof *list);
    for (size_t i = 0; list != NULL && i < queue->list_count; i++) {
        list[i] = *list_at(queue, i);
    }
    if (list != NULL) {
        baton__free(queue->list);
        queue->list = list;
        queue->list_first = 0;
        queue->list_capacity = capacity;
    }
    return list != NULL;
}

/* Returns true if the list comes before the heap, or the heap is empty. */
static bool list_is_first(const baton__sim_queue_t *queue)
{
    return queue->list_count > 0 &&
           (queue->heap_count == 0 ||
            is_before(list_at(queue, 0), &queue->heap[0]));
}

bool baton__sim_queue_push(baton__sim_queue_t *queue, double at, uint32_t kind,
                           uint32_t index)
{
    assert(at >= 0);
    const baton__sim_entry_t entry = {
        .at = at + 0.0, /* turns -0.0 into 0.0 */
        .number = queue->pushed,
        .kind = kind,
        .index = index,
    };
    bool appends = queue->list_count == 0 ||
                   list_at(queue, queue->list_count - 1)->at <= entry.at;
    size_t count = appends ? queue->list_count : queue->heap_count;
    size_t capacity = appends ? queue->list_capacity : queue->heap_capacity;
    if (count == capacity && !(appends ? grow_list(queue) : grow_heap(queue))) {
        return false;
    }
    queue->pushed++;
    if (appends) {
        *list_at(queue, queue->list_count++) = entry;
        return true;
    }
    size_t place = queue->heap_count++;
    while (place > 0) {
        size_t parent = (place - 1) / CHILDREN;
        if (!is_before(&entry, &queue->heap[parent])) {
            break;
        }
        queue->heap[place] = queue->heap[parent];
        place = parent;
    }
    queue->heap[place] = entry;
    return true;
}

bool baton__sim_queue_peek(const baton__sim_queue_t *queue, double *at_out)
{
    if (list_is_first(queue)) {
        *at_out = list_at(queue, 0)->at;
        return true;
    }
    if (queue->heap_count > 0) {
        *at_out = queue->heap[0].at;
    }
    return queue->heap_count > 0;
}

baton__sim_entry_t baton__sim_queue_pop(baton__sim_queue_t *queue)
{
    if (list_is_first(queue)) {
        queue->list_count--;
        return queue->list[queue->list_first++ & (queue->list_capacity - 1)];
    }
    assert(queue->heap_count > 0);
    baton__sim_entry_t *all = queue->heap;
    const baton__sim_entry_t first = all[0], last = all[--queue->heap_count];
    size_t place = 0, child;
    while ((child = place * CHILDREN + 1) < queue->heap_count) {
        size_t least = child;
        for (size_t i = child + 1;
             i < child + CHILDREN && i < queue->heap_count; i++) {
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
    baton__free(queue->list);
    baton__free(queue->heap);
    *queue = (baton__sim_queue_t){0};
}
