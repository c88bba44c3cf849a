/* The simulator's queue against a list that is sorted by time and by order of
   arrival. */
#include "base/alloc.h"
#include "sim/queue.h"
#include "support/cmocka.h"

/* ---- a list that is sorted when it is asked for its first -------------- */

typedef struct item {
    double at;
    uint32_t index; /* number of the item, in the order of arrival */
} item_t;

enum { MOST_ITEMS = 6000 };

typedef struct pair {
    baton__sim_queue_t queue;
    item_t items[MOST_ITEMS];
    size_t count;
    uint32_t pushed;
    double now; /* the time of the item that was popped last */
} pair_t;

static pair_t *pair_create(void)
{
    pair_t *pair = support_alloc(1, sizeof *pair);
    pair->now = -0.0; /* this equals 0 */
    return pair;
}

static void pair_destroy(pair_t *pair)
{
    baton__sim_queue_fini(&pair->queue);
    free(pair);
}

static uint32_t kind_of(uint32_t index)
{
    return index * 2654435761u;
}

/* Expects that the next item has this time, and was pushed to the queue. */
static void pair_expect(pair_t *pair, double at)
{
    assert_true(pair->count < MOST_ITEMS);
    pair->items[pair->count++] = (item_t){at, pair->pushed++};
    assert_int_equal(pair->queue.list_count + pair->queue.heap_count,
                     pair->count);
}

static void pair_push(pair_t *pair, double at)
{
    uint32_t index = pair->pushed;
    assert_true(baton__sim_queue_push(&pair->queue, at, kind_of(index), index));
    pair_expect(pair, at);
}

static size_t first_of(const pair_t *pair)
{
    size_t first = 0;
    for (size_t i = 1; i < pair->count; i++) {
        const item_t *item = &pair->items[i], *least = &pair->items[first];
        if (item->at < least->at ||
            (item->at == least->at && item->index < least->index)) {
            first = i;
        }
    }
    return first;
}

static void pair_peek(pair_t *pair)
{
    double at = -1;
    bool any = baton__sim_queue_peek(&pair->queue, &at);
    assert_int_equal(any, pair->count > 0);
    if (any) {
        assert_true(at == pair->items[first_of(pair)].at);
    }
}

static void pair_pop(pair_t *pair)
{
    pair_peek(pair);
    if (pair->count > 0) {
        size_t first = first_of(pair);
        item_t expected = pair->items[first];
        pair->items[first] = pair->items[--pair->count];
        baton__sim_entry_t entry = baton__sim_queue_pop(&pair->queue);
        assert_int_equal(entry.index, expected.index);
        assert_int_equal(entry.kind, kind_of(expected.index));
        pair->now = expected.at;
    }
}

static void pair_drain(pair_t *pair)
{
    while (pair->count > 0) {
        pair_pop(pair);
    }
    pair_pop(pair);
    assert_int_equal(pair->queue.list_count + pair->queue.heap_count, 0);
}

/* ---- order ------------------------------------------------------------- */

/* Returns how far ahead of the present an event is. The distributions are those
   of different kinds of simulations. */
static double ahead(support_random_t *random, uint64_t traffic)
{
    double unit = (double)(support_random_next(random) >> 11) * 0x1p-53;
    switch (traffic % 3) {
    case 0: /* times have no pattern */
        return unit * 100;
    case 1: /* ranks in lock-step */
        return 1.5;
    default: /* few different times, many of them now */
        return (double)support_random_below(random, 4) * 0.25;
    }
}

TEST(test_queue_random_traffic_keeps_order)
{
    uint64_t seed = support_seed();
    for (uint64_t traffic = 0; traffic < 40; traffic++) {
        support_random_t random = support_random(seed, traffic);
        pair_t *pair = pair_create();
        size_t most = 1 + support_random_below(&random, 400);
        for (int step = 0; step < 4000; step++) {
            uint64_t what = support_random_below(&random, 16);
            if (what < 8 && pair->count < most) {
                pair_push(pair, pair->now + ahead(&random, traffic));
            } else if (what < 15) {
                pair_pop(pair);
            } else { /* peeks before it pushes an earlier item */
                pair_peek(pair);
            }
        }
        pair_drain(pair);
        pair_destroy(pair);
    }
}

/* ---- memory ------------------------------------------------------------ */

/* Each push is first tried without memory. It either fails, or needs no more
   memory. */
TEST(test_queue_failed_allocation_loses_nothing)
{
    support_random_t random = support_random(support_seed(), 200);
    pair_t *pair = pair_create();
    int failures = 0;
    while (pair->count < MOST_ITEMS) {
        double at = pair->now + ahead(&random, pair->count);
        uint32_t index = pair->pushed;
        baton__alloc_fail_nth(1);
        bool pushed =
            baton__sim_queue_push(&pair->queue, at, kind_of(index), index);
        baton__alloc_fail_nth(0);
        if (pushed) {
            pair_expect(pair, at);
        } else {
            failures++;
            pair_push(pair, at);
        }
        if (pair->pushed % 100 == 0) { /* this moves entries in the queue */
            pair_pop(pair);
        }
    }
    assert_in_range(failures, 2, 20);
    pair_drain(pair);
    pair_destroy(pair);
}

/* Neither peek nor pop allocates memory. A queue that keeps its size needs no
   more memory than at first. */
TEST(test_queue_allocates_for_its_count_alone)
{
    baton__sim_queue_t queue = {0};
    enum { COUNT = 20000 };
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(baton__sim_queue_push(&queue, 0.3, 0, i));
    }
    int64_t before = baton__alloc_count();
    assert_true(before > 0);
    for (uint32_t i = 0; i < 50 * COUNT; i++) {
        double at = 0;
        assert_true(baton__sim_queue_peek(&queue, &at));
        baton__sim_entry_t entry = baton__sim_queue_pop(&queue);
        assert_int_equal(entry.index, i % COUNT);
        assert_true(baton__sim_queue_push(&queue, at + 0.7, 0, entry.index));
    }
    assert_int_equal(baton__alloc_count(), before);
    assert_true(queue.list_capacity < 2 * COUNT);
    baton__sim_queue_fini(&queue);
    assert_int_equal(queue.list_count + queue.heap_count, 0);
}
