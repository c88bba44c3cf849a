/* The ring in shared memory, in one thread: its exact capacity, its end, and
   several producers. What concurrent processes do is the conformance suite's.
 */
#include "support/cmocka.h"
#include "transport/shm/ring.h"

#include <stdbool.h>
#include <string.h>

static baton__ring_t ring;

/* Puts a record in whose bytes all have a number. */
static bool put(uint32_t *head, size_t bytes, unsigned char number)
{
    unsigned char *record = baton__ring_claim(&ring, bytes, head);
    if (record != NULL) {
        memset(record + sizeof(uint32_t), number, bytes - sizeof(uint32_t));
        baton__ring_commit(record, bytes);
    }
    return record != NULL;
}

static bool take(size_t bytes, unsigned char number)
{
    const unsigned char *record = baton__ring_front(&ring);
    bool whole = record != NULL;
    for (size_t i = sizeof(uint32_t); i < bytes && whole; i++) {
        whole = record[i] == number;
    }
    if (record != NULL) {
        baton__ring_pop(&ring);
    }
    return whole;
}

TEST(test_ring_holds_exactly_its_cells)
{
    uint32_t head = 0;
    memset(&ring, 0, sizeof ring);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BATON__RING_CELLS / 2; i++) {
            assert_true(put(&head, 2 * BATON__CELL_BYTES, (unsigned char)i));
        }
        assert_false(put(&head, 1 + sizeof(uint32_t), 1));
        assert_true(take(2 * BATON__CELL_BYTES, 0));
        assert_false(put(&head, 2 * BATON__CELL_BYTES + 1, 1));
        assert_true(put(&head, 2 * BATON__CELL_BYTES, 0));
        for (int i = 1; i <= BATON__RING_CELLS / 2; i++) {
            assert_true(take(2 * BATON__CELL_BYTES, (unsigned char)i));
        }
        assert_null(baton__ring_front(&ring));
    }
}

/* A record that does not fit the end goes to the beginning, if that is free:
   what is skipped counts. */
TEST(test_ring_skips_its_end)
{
    enum { LARGE = 5 * BATON__CELL_BYTES };
    uint32_t head = 0;
    memset(&ring, 0, sizeof ring);
    for (int i = 0; i < BATON__RING_CELLS - 3; i++) {
        assert_true(put(&head, 16, 1));
    }
    for (int i = 0; i < 7; i++) {
        assert_true(i > 4 || !put(&head, LARGE, 2));
        assert_true(take(16, 1));
    }
    assert_true(put(&head, LARGE, 2)); /* 3 skipped, and 5 */
    assert_false(put(&head, 3 * BATON__CELL_BYTES, 3));
    for (int i = 0; i < BATON__RING_CELLS - 10; i++) {
        assert_true(take(16, 1));
    }
    assert_true(take(LARGE, 2));
    assert_null(baton__ring_front(&ring));
}

/* An empty ring looks empty wherever its front is, whatever was there; and a
   record that was claimed, but not committed, holds up those behind it. */
TEST(test_ring_shows_what_was_committed)
{
    uint32_t heads[2] = {0, 0};
    memset(&ring, 0, sizeof ring);
    for (uint32_t i = 0; i < 5000; i++) {
        size_t bytes = 16 + i * 37 % 300;
        assert_true(put(&heads[i % 2], bytes, 0xff));
        assert_true(take(bytes, 0xff));
        assert_null(baton__ring_front(&ring));
    }
    void *first = baton__ring_claim(&ring, 100, &heads[0]);
    assert_non_null(first);
    assert_true(put(&heads[1], 50, 2));
    assert_null(baton__ring_front(&ring));
    memset((char *)first + sizeof(uint32_t), 1, 100 - sizeof(uint32_t));
    baton__ring_commit(first, 100);
    assert_false(baton__ring_is_last(&ring, first, 100));
    assert_true(baton__ring_is_last(&ring, first, 100 + 64));
    assert_true(take(100, 1));
    assert_true(take(50, 2));
}

RUN_TESTS()
