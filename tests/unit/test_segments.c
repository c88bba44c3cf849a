/* Segments and their mappings, with both ends in one process. Also
   baton_memory_alloc if no memory can be shared. */
#include "base/alloc.h"
#include "base/descriptor.h"
#include "support/sim.h"
#include "transport/shm/mappings.h"
#include "transport/shm/share.h"

#include <baton/memory.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { OWNER, PEER, PROCESSES, MIB = 1 << 20 };

/* Two processes of a host: the structs in shared memory, and the structs that
   each process has of its own. */
typedef struct host {
    baton__peer_state_t states[PROCESSES];
    baton__segment_table_t tables[PROCESSES];
    baton__freed_count_t freed;
    baton__doorbell_t doorbells[PROCESSES];
    baton__segments_t segments;
    baton__mappings_t mappings;
} host_t;

static host_t host;

static void open_host(size_t limit)
{
    memset(&host, 0, sizeof host);
    for (int i = 0; i < PROCESSES; i++) {
        support_ok(baton__doorbell_open(&host.doorbells[i], host.states, i));
        host.tables[i].secret = 1000 + (uint64_t)i;
    }
    baton__segments_init(&host.segments, &host.doorbells[OWNER],
                         &host.tables[OWNER], &host.freed, PROCESSES, limit);
    support_ok(baton__mappings_open(&host.mappings, &host.states[PEER],
                                    host.tables, &host.freed, PROCESSES));
}

static int close_host(void **state)
{
    baton__mappings_close(&host.mappings);
    baton__segments_fini(&host.segments);
    for (int i = 0; i < PROCESSES; i++) {
        baton__doorbell_close(&host.doorbells[i]);
    }
    return 0;
}

#define HOST_TEST(name) TEST_BETWEEN(name, NULL, close_host)

static const char *map(uint32_t id, const void *data, size_t bytes)
{
    return baton__mappings_find(&host.mappings, OWNER, id,
                                (uint64_t)(uintptr_t)data, bytes);
}

HOST_TEST(test_segments_are_read_by_the_peer)
{
    open_host(64 * MIB);
    char *block = baton__segments_allocate(&host.segments, 10000);
    char *other = baton__segments_allocate(&host.segments, 2 * MIB);
    assert_non_null(block);
    assert_non_null(other);
    uint32_t id = baton__segments_share(&host.segments, PEER, block, 10000);
    uint32_t next =
        baton__segments_share(&host.segments, PEER, other + 1, 2 * MIB - 1);
    assert_true(id != 0 && next != 0 && id != next);
    memcpy(block, "here", sizeof "here");
    memcpy(other + 1, "there", sizeof "there");
    assert_string_equal(map(next, other + 1, 6), "there");
    assert_string_equal(map(id, block, 5), "here");
    assert_ptr_not_equal(map(id, block, 5), block);
    block[0] = 'w'; /* the mapping is not a copy */
    assert_string_equal(map(id, block, 5), "were");
}

HOST_TEST(test_segments_only_of_their_own_bytes)
{
    open_host(64 * MIB);
    static char own[10000];
    char *block = baton__segments_allocate(&host.segments, 3 * MIB);
    assert_int_equal(
        baton__segments_share(&host.segments, PEER, own, sizeof own), 0);
    assert_int_equal(
        baton__segments_share(&host.segments, PEER, block, 3 * MIB + 1), 0);
    assert_int_equal(
        baton__segments_share(&host.segments, PEER, block + 1, 3 * MIB), 0);
    uint32_t id = baton__segments_share(&host.segments, PEER, block, 3 * MIB);
    assert_non_null(map(id, block, 3 * MIB));
    assert_null(map(id, block + 1, 3 * MIB));
    assert_null(map(id, block - 1, 1));
    assert_null(map(id + BATON__SEGMENTS, block, 1));
}

/* A block fits a gap of its size, and not one that is smaller; a full segment
   is filled again. */
HOST_TEST(test_segments_fill_gaps)
{
    enum { BLOCKS = 16, BYTES = MIB / BLOCKS };
    open_host(64 * MIB);
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = baton__segments_allocate(&host.segments, BYTES);
        assert_true(i == 0 || blocks[i] == blocks[i - 1] + BYTES);
    }
    assert_int_equal(host.segments.total, MIB);
    baton__segments_release(&host.segments, blocks[3]);
    baton__segments_release(&host.segments, blocks[14]);
    baton__segments_release(&host.segments, blocks[15]);
    assert_ptr_equal(baton__segments_allocate(&host.segments, BYTES + 1),
                     blocks[14]);
    assert_ptr_equal(baton__segments_allocate(&host.segments, BYTES - 1),
                     blocks[3]);
    assert_int_equal(host.segments.total, MIB);
}

/* The peer unmaps segments that the owner has freed. If an old mapping is left
   when a new segment has its address, the peer maps the new segment. */
HOST_TEST(test_segments_that_were_freed_are_unmapped)
{
    open_host(64 * MIB);
    for (int round = 0; round < 10; round++) {
        char *block = baton__segments_allocate(&host.segments, 2 * MIB);
        uint32_t id =
            baton__segments_share(&host.segments, PEER, block, 2 * MIB);
        assert_non_null(map(id, block, 1));
        assert_false(baton__mappings_are_stale(&host.mappings));
        baton__segments_release(&host.segments, block);
        assert_true(baton__mappings_are_stale(&host.mappings));
        if (round % 2 == 0) {
            baton__mappings_sweep(&host.mappings);
            assert_false(baton__mappings_are_stale(&host.mappings));
            assert_null(map(id, block, 1));
        } else { /* the next descriptor will find the old mapping */
            host.mappings.seen = host.freed.count;
        }
    }
}

/* There are more descriptors than the peer's socket takes. The other messages
   take another way, until there is room. */
HOST_TEST(test_segments_of_a_peer_that_is_behind)
{
    enum { BLOCKS = 16, BYTES = 5 * MIB / 4 };
    open_host(1024 * (size_t)MIB);
    char *blocks[BLOCKS];
    int count = 0;
    size_t most = (size_t)48 * MIB;
    while (count < BLOCKS && host.segments.total < most) {
        /* This block is so large that it gets a segment of its own. */
        size_t part = host.segments.total / 4;
        size_t bytes = part > BYTES ? part : BYTES;
        blocks[count] = baton__segments_allocate(&host.segments, bytes);
        assert_non_null(blocks[count]);
        blocks[count][0] = (char)count;
        (void)baton__segments_share(&host.segments, PEER, blocks[count], 1);
        count++;
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < count; i++) {
            uint32_t id =
                baton__segments_share(&host.segments, PEER, blocks[i], 1);
            const char *data = id != 0 ? map(id, blocks[i], 1) : NULL;
            assert_true(data != NULL ? *data == (char)i
                                     : id == 0 && round == 0);
        }
    }
}

HOST_TEST(test_segments_have_limits)
{
    open_host(3 * MIB);
    assert_null(baton__segments_allocate(&host.segments, 4 * MIB));
    void *block = baton__segments_allocate(&host.segments, 2 * MIB);
    assert_non_null(block);
    assert_null(baton__segments_allocate(&host.segments, 2 * MIB));
    baton__segments_release(&host.segments, block);
    block = baton__segments_allocate(&host.segments, 3 * MIB);
    assert_non_null(block);
    /* No memory is left. */
    assert_null(baton__segments_allocate(&host.segments, 100));
    baton__segments_release(&host.segments, block);
    for (int nth = 1; nth <= 2; nth++) {
        baton__alloc_fail_nth(nth);
        assert_null(baton__segments_allocate(&host.segments, 2 * MIB));
        baton__alloc_fail_nth(0);
    }
    assert_int_equal(host.segments.total, 0);
}

/* A segment is larger than its blocks. The rest of the segment takes no
   memory. */
HOST_TEST(test_segments_take_the_memory_of_their_blocks)
{
    struct stat file;
    open_host(1024 * (size_t)MIB);
    void *large = baton__segments_allocate(&host.segments, 16 * MIB);
    char *small = baton__segments_allocate(&host.segments, 4096);
    assert_non_null(large);
    assert_non_null(small);
    assert_int_equal(host.segments.at[1].bytes, 4 * MIB);
    assert_int_equal(fstat(host.segments.at[1].file, &file), 0);
    assert_int_equal(file.st_blocks * 512, 4096);
    baton__memory_override(32 * MIB);
    assert_null(baton__segments_allocate(&host.segments, 64 * MIB));
    assert_int_equal(host.segments.total, 20 * MIB);
    baton__memory_override(SIZE_MAX);
}

/* If the library exceeded the limit, the kernel would raise SIGXFSZ. */
TEST(test_segments_heed_the_limit_of_files)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {3 * MIB, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    open_host(64 * MIB);
    assert_null(baton__segments_allocate(&host.segments, 4 * MIB));
    assert_non_null(baton__segments_allocate(&host.segments, 2 * MIB));
    (void)close_host(state);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* A program may have closed its standard descriptors. */
TEST(test_shared_files_are_no_standard_descriptors)
{
    const int closed[] = {STDIN_FILENO, STDERR_FILENO};
    const int kept[] = {dup(closed[0]), dup(closed[1])};
    int file = -1;
    (void)close(closed[0]);
    (void)close(closed[1]);
    baton_status_t status = baton__share_create(4096, 4096, &file);
    for (int i = 0; i < 2; i++) {
        (void)dup2(kept[i], closed[i]);
        (void)close(kept[i]);
    }
    support_ok(status);
    assert_true(file > STDERR_FILENO);
    baton__descriptor_close(&file);
}

static void on_alarm(int signal)
{
}

/* Each signal would interrupt the call that reserves memory, which takes longer
   than the time between signals. */
HOST_TEST(test_segments_are_made_among_signals)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    const struct itimerval often = {{0, 1000}, {0, 1000}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    open_host(256 * MIB);
    void *block = baton__segments_allocate(&host.segments, 64 * MIB);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_non_null(block);
}

/* A segment whose owner does not know the secret is not mapped. */
HOST_TEST(test_segments_of_strangers_are_refused)
{
    open_host(64 * MIB);
    char *block = baton__segments_allocate(&host.segments, 2 * MIB);
    static baton__segment_table_t wrong;
    host.segments.table = &wrong; /* the owner sends the secret of this table */
    uint32_t id = baton__segments_share(&host.segments, PEER, block, 1);
    assert_true(id != 0);
    assert_null(map(id, block, 1));
    host.segments.table = &host.tables[OWNER];
}

/* ---- baton_memory_alloc ------------------------------------------------- */

static void try_memory(baton_group_t *group)
{
    void *blocks[3];
    void *memory = blocks;
    support_expect(baton_memory_alloc(NULL, 8, &memory), BATON_ERR_INVALID);
    support_expect(baton_memory_alloc(group, 8, NULL), BATON_ERR_INVALID);
    support_expect(baton_memory_alloc(group, SIZE_MAX, &memory),
                   BATON_ERR_NO_MEMORY);
    support_expect(baton_memory_free(group, blocks), BATON_ERR_INVALID);
    support_expect(baton_memory_free(NULL, blocks), BATON_ERR_INVALID);
    support_ok(baton_memory_free(group, NULL));
    for (int i = 0; i < 3; i++) {
        support_ok(baton_memory_alloc(group, 10000, &blocks[i]));
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        memset(blocks[i], i, 10000);
    }
    support_ok(baton_memory_free(group, blocks[1]));
    support_fails(baton_memory_free(group, blocks[1]), BATON_ERR_INVALID,
                  "was freed already");
    support_ok(baton_memory_free(group, blocks[2]));
    support_ok(baton_memory_free(group, blocks[0]));
    support_fails(baton_memory_alloc(group, 0, &memory), BATON_ERR_INVALID,
                  "bytes is 0");
    assert_ptr_equal(memory, blocks); /* an error leaves the output unchanged */
    for (int nth = 1; nth <= 2; nth++) {
        baton__alloc_fail_nth(nth);
        support_expect(baton_memory_alloc(group, 10000, blocks),
                       BATON_ERR_NO_MEMORY);
        baton__alloc_fail_nth(0);
    }
}

TEST_WITH(test_memory_alloc_inside_a_process, 2, SUPPORT_OWN_ENGINES)
{
    try_memory(cluster->groups[0]);
    void *block;
    support_ok(baton_memory_alloc(cluster->groups[1], 8, &block));
    support_expect(baton_memory_free(cluster->groups[0], block),
                   BATON_ERR_INVALID);
    support_fails(baton_group_destroy(cluster->groups[1]), BATON_ERR_BUSY,
                  "1 blocks of baton_memory_alloc still exist");
    support_ok(baton_memory_free(cluster->groups[1], block));
}

/* An epoch in flight keeps the memory that was bound at its start. */
TEST_WITH(test_memory_free_after_a_rebind, 2, SUPPORT_OWN_ENGINES)
{
    baton_group_t *group = cluster->groups[1];
    void *blocks[2];
    for (int i = 0; i < 2; i++) {
        support_ok(baton_memory_alloc(group, 8, &blocks[i]));
    }
    baton_schedule_t *s = support_schedule(group, "rebound");
    baton_buffer_t buffer = baton_buffer_bind(s, blocks[0], 8);
    baton_schedule_set_depth(s, 2);
    (void)baton_add_recv(s, 0, baton_view(buffer, 0, 8));
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start(s));
    support_ok(baton_buffer_rebind(s, buffer, blocks[1]));
    support_fails(baton_memory_free(group, blocks[0]), BATON_ERR_BUSY,
                  "whose epoch 1 is running");
    support_ok(baton_memory_free(group, blocks[1]));
    support_ok(baton_schedule_cancel(s));
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_memory_free(group, blocks[0]));
}

/* Blocks that were not freed are freed when the simulator is destroyed. */
TEST(test_memory_alloc_in_a_simulation)
{
    baton_sim_t *sim = support_sim_of(2);
    baton_group_t *group = baton_sim_group(sim, 1);
    void *block;
    try_memory(group);
    support_ok(baton_memory_alloc(group, 8, &block));
    support_ok(baton_sim_destroy(sim));
}
