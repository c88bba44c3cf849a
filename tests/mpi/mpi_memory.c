/* Memory that the ranks of a host share: used as source, as target and in
   place, and freed in any order. Checks that none of it is left in the end. The
   exit code is the result. */
#include "base/alloc.h"
#include "base/config.h"
#include "sched/schedule.h"
#include "support/mpi.h"
#include "transport/mpi/endpoint.h"
#include <baton/coll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    support_mpi_ok(baton_memory_alloc(world.group, bytes, &memory));
    support_mpi_check(((uintptr_t)memory & 63) == 0, "memory is aligned");
    return memory;
}

static void release(void *memory)
{
    support_mpi_ok(baton_memory_free(world.group, memory));
}

/* ---- results ----------------------------------------------------------- */

static unsigned char value_of(int of, size_t i, int epoch)
{
    return (unsigned char)((size_t)of * 7 + i * 13 + (size_t)epoch * 31);
}

/* Runs two epochs of an all-reduce. Its elements are arrays of bytes, which the
   reduction adds one by one. */
static void sum_elements(const char *algorithm, const baton_op_t *op,
                         unsigned char *source, unsigned char *target,
                         size_t bytes)
{
    baton_schedule_t *s;
    support_mpi_ok(baton_schedule_create(world.group, "sum", &s));
    baton_view_t out =
        baton_view(baton_buffer_bind(s, target, bytes), 0, bytes);
    baton_view_t in =
        source == target
            ? out
            : baton_view(baton_buffer_bind_input(s, source, bytes), 0, bytes);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = in,
                                   .target = out,
                                   .dtype = BATON_U8,
                                   .op = op,
                                   .algorithm = algorithm};
    baton_add_allreduce(s, &args);
    support_mpi_ok(baton_schedule_commit(s));
    for (int epoch = 0; epoch < 2; epoch++) {
        for (size_t i = 0; i < bytes; i++) {
            source[i] = value_of(world.rank, i, epoch);
        }
        support_mpi_run(s);
        for (size_t i = 0; i < bytes; i++) {
            unsigned char sum = 0;
            for (int r = 0; r < world.size; r++) {
                sum = (unsigned char)(sum + value_of(r, i, epoch));
            }
            support_mpi_check(target[i] == sum, "the sum is right");
        }
    }
    support_mpi_ok(baton_schedule_destroy(s));
}

static void sum_bytes(const char *algorithm, unsigned char *source,
                      unsigned char *target, size_t bytes)
{
    sum_elements(algorithm, BATON_SUM, source, target, bytes);
}

static void add_bytes(void *arg, void *target, const void *left,
                      const void *right, size_t count, baton_dtype_t dtype)
{
    for (size_t i = 0; i < count * *(const size_t *)arg; i++) {
        ((unsigned char *)target)[i] =
            (unsigned char)(((const unsigned char *)left)[i] +
                            ((const unsigned char *)right)[i]);
    }
}

/* A long message is read in parts of BATON__PART_BYTES. The elements here do
   not divide that length, or are longer than a part. */
static void sums_of_long_elements(void)
{
    static size_t elements[] = {24, BATON__PART_BYTES - 1,
                                BATON__PART_BYTES + 1};
    support_mpi_running = "sums of long elements";
    for (int i = 0; i < 3; i++) {
        const baton_op_t op = {.name = "long",
                               .reduce = add_bytes,
                               .arg = &elements[i],
                               .commutative = true,
                               .element_bytes = elements[i]};
        size_t bytes =
            ((size_t)world.size * 300000 / elements[i] + 1) * elements[i];
        unsigned char *source = malloc(bytes);
        unsigned char *target = malloc(bytes);
        sum_elements("rabenseifner", &op, source, target, bytes);
        sum_elements("ring", &op, source, target, bytes);
        sum_elements("recursive_doubling", &op, source, source, bytes);
        free(source);
        free(target);
    }
}

static void sums_of_any_memory(void)
{
    static const size_t sizes[] = {
        1,     4096,          65536,         69567,        69568,
        69569, 68 * 1024 - 1, 68 * 1024 + 1, (1 << 20) + 1};
    static const char *const algorithms[] = {"ring", "recursive_doubling",
                                             "linear_pipeline", "pairwise"};
    enum { SIZES = sizeof sizes / sizeof sizes[0], ALGORITHMS = 4 };
    support_mpi_running = "sums of any memory";
    for (int i = 0; i < SIZES; i++) {
        unsigned char *shared[2] = {allocate(sizes[i]), allocate(sizes[i])};
        unsigned char *own = malloc(sizes[i]);
        const char *algorithm = algorithms[i % ALGORITHMS];
        sum_bytes(algorithm, shared[0], shared[1], sizes[i]);
        sum_bytes(algorithm, shared[0], shared[0], sizes[i]);
        sum_bytes(algorithm, own, shared[1], sizes[i]);
        sum_bytes(algorithm, shared[0], own, sizes[i]);
        sum_bytes(algorithm, own, own, sizes[i]);
        free(own);
        release(shared[0]);
        release(shared[1]);
    }
}

/* ---- sharing ----------------------------------------------------------- */

/* Returns the number of this process's mappings of segments. */
static int count_mappings(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    support_mpi_check(maps != NULL, "there are maps");
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, "memfd:baton") != NULL;
    }
    (void)fclose(maps);
    return count;
}

static bool is_shared(const void *memory)
{
    baton__mpi_t *mpi = world.group->endpoint;
    const baton__segments_t *segments = &mpi->host.segments;
    for (int i = 0; i < BATON__SEGMENTS; i++) {
        const char *base = segments->at[i].base;
        if (base != NULL && (const char *)memory >= base &&
            (const char *)memory < base + segments->at[i].bytes) {
            return true;
        }
    }
    return false;
}

/* Returns true once `mine` is true on all ranks. */
static bool on_all(bool mine)
{
    int here = mine;
    int all = 0;
    MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}

/* Each rank frees memory that its peers have mapped, in an order of its own,
   and allocates again. In the end no mapping may be left. */
static void nothing_is_left_behind(void)
{
    enum { BYTES = 3 << 19, BLOCKS = 3, ROUNDS = 1000 };
    unsigned char *blocks[BLOCKS];
    support_mpi_running = "nothing is left behind";
    MPI_Barrier(MPI_COMM_WORLD);
    int before = count_mappings();
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(BYTES);
        sum_bytes("ring", blocks[i], blocks[i], BYTES);
    }
    support_mpi_check(!is_shared(blocks[0]) || count_mappings() > before,
                      "what is shared is mapped");
    for (int k = 0; k < BLOCKS; k++) {
        int i = (k + world.rank) % BLOCKS;
        release(blocks[i]);
        blocks[i] = allocate(BYTES);
        sum_bytes("ring", blocks[i], blocks[i], BYTES);
    }
    for (int i = 0; i < BLOCKS; i++) {
        release(blocks[(i + world.rank) % BLOCKS]);
    }
    bool left = true;
    /* Peers unmap memory only when they poll. */
    for (int i = 0; i < ROUNDS && left; i++) {
        support_mpi_healthy(world.group);
        left = !on_all(count_mappings() <= before);
    }
    support_mpi_check(!left, "no mapping is left");
}

static baton_schedule_t *copy_scratch(size_t bytes)
{
    baton_schedule_t *s;
    support_mpi_ok(baton_schedule_create(world.group, "scratch", &s));
    baton_buffer_t scratch = baton_buffer_scratch(s, bytes);
    (void)baton_add_copy(s, baton_view(scratch, 0, bytes / 2),
                         baton_view(scratch, bytes / 2, bytes / 2));
    return s;
}

/* If ranks share a host, and nothing forbids it, memory must be shared,
   including scratch. Otherwise the other tests here would pass without testing
   anything. */
static void memory_is_shared(void)
{
    enum { BYTES = 200000 };
    support_mpi_running = "memory is shared";
    const baton__mpi_t *mpi = world.group->endpoint;
    bool expected = mpi->host.count > 1 &&
                    baton__config_number(BATON__CONFIG_SHM_MEMORY) > 0;
    void *memory = allocate(BYTES);
    support_mpi_check(is_shared(memory) == expected, "memory is shared");
    release(memory);
    baton_schedule_t *s = copy_scratch(BYTES);
    (void)baton_buffer_scratch(s, BYTES);
    support_mpi_ok(baton_schedule_commit(s));
    support_mpi_check(s->buffers[0].shared == expected, "scratch is shared");
    support_mpi_check(!s->buffers[1].shared, "unused scratch takes no memory");
    support_mpi_ok(baton_schedule_destroy(s));
}

/* A count that is too large asks for more memory than the host has. The error
   names the count. */
static void memory_is_lacking(void)
{
    enum { BYTES = 64 << 20 };
    support_mpi_running = "memory is lacking";
    baton_schedule_t *s = copy_scratch(BYTES);
    void *memory = NULL;
    baton__memory_override(BYTES);
    support_mpi_check(baton_schedule_commit(s) == BATON_ERR_NO_MEMORY &&
                          strstr(baton_error_message(), "67108864") != NULL,
                      "scratch is refused by its bytes");
    support_mpi_check(baton_memory_alloc(world.group, BYTES, &memory) ==
                              BATON_ERR_NO_MEMORY &&
                          strstr(baton_error_message(), "67108864") != NULL,
                      "memory is refused by its bytes");
    baton__memory_override(SIZE_MAX);
    support_mpi_ok(baton_schedule_commit(s));
    support_mpi_ok(baton_schedule_destroy(s));
}

/* Ordinary memory is private, to whatever buffer it is bound. Memory that ranks
   share is not. */
static void memory_is_private(void)
{
    enum { BYTES = 200000 };
    static char own[BYTES];
    support_mpi_running = "memory is private";
    char *shared = allocate(BYTES);
    bool expected = is_shared(shared);
    baton_schedule_t *s;
    support_mpi_ok(baton_schedule_create(world.group, "private", &s));
    const baton_buffer_t bound[] = {
        baton_buffer_bind(s, own, BYTES), baton_buffer_bind(s, NULL, BYTES),
        baton_buffer_bind(s, shared, BYTES),
        baton_buffer_bind_input(s, shared + BYTES - 1, 1),
        baton_buffer_scratch(s, BYTES)};
    for (int i = 0; i < 5 && expected; i++) {
        support_mpi_check(
            baton_view_is_private(s, baton_view(bound[i], 0, 1)) == (i < 2),
            "ordinary memory alone is private");
    }
    support_mpi_ok(baton_schedule_destroy(s));
    release(shared);
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    support_mpi_open();
    memory_is_shared();
    memory_is_lacking();
    memory_is_private();
    sums_of_any_memory();
    sums_of_long_elements();
    nothing_is_left_behind();
    support_mpi_ok(baton_group_destroy(world.group));
    world.group = NULL;
    support_mpi_check(count_mappings() == 0, "the group leaves no mapping");
    support_mpi_end();
    return 0;
}
