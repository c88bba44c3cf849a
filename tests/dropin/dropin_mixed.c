/* A plain MPI program that is run with libbaton_mpi.so in front of MPI. Each
   collective, in its nonblocking, persistent and blocking form, must give the
   same result as MPI's own blocking call. The arguments name the hard cases to
   run; without arguments all are run. */
#include "dropin.h"

#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

/* ---- MPI's calls by other threads ------------------------------------------

   The program is asked before MPI for MPI's functions, by the libraries that
   stand in front of MPI, too. */

static pthread_t program;
/* calls by other threads, and calls by the program's thread */
static _Atomic int strays, calls;

#define WATCH(name, parameters, arguments)                                     \
    int PMPI_##name parameters                                                 \
    {                                                                          \
        *(pthread_equal(pthread_self(), program) ? &calls : &strays) += 1;     \
        return NEXT(PMPI_##name) arguments;                                    \
    }
WATCH(Grequest_complete, (MPI_Request q), (q))
WATCH(Type_free, (MPI_Datatype * type), (type))
WATCH(Test, (MPI_Request * q, int *flag, MPI_Status *s), (q, flag, s))
WATCH(Send, (const void *m, int n, MPI_Datatype t, int to, int tag, MPI_Comm c),
      (m, n, t, to, tag, c))
WATCH(Isend,
      (const void *m, int n, MPI_Datatype t, int to, int tag, MPI_Comm c,
       MPI_Request *q),
      (m, n, t, to, tag, c, q))
WATCH(Irecv,
      (void *m, int n, MPI_Datatype t, int from, int tag, MPI_Comm c,
       MPI_Request *q),
      (m, n, t, from, tag, c, q))
WATCH(Unpack,
      (const void *from, int bytes, int *at, void *to, int n, MPI_Datatype t,
       MPI_Comm c),
      (from, bytes, at, to, n, t, c))

/* While this is true, MPI_Pack fails, since it is told that the buffer has no
   room. */
static bool no_room;
static int packs; /* number of calls of MPI_Pack */
int PMPI_Pack(const void *from, int n, MPI_Datatype t, void *to, int bytes,
              int *at, MPI_Comm c)
{
    packs++;
    return NEXT(PMPI_Pack)(from, n, t, to, no_room ? 0 : bytes, at, c);
}

/* The number of schedules of all-reduces that libbaton_mpi has made, and the
   number of them that it has not destroyed. */
static int made, left_over;
int baton_allreduce_create(void *group, const void *operands, void **out);
int baton_allreduce_create(void *group, const void *operands, void **out)
{
    typedef int (*next_fn)(void *, const void *, void **);
    void *next = dlsym(RTLD_NEXT, "baton_allreduce_create");
    made++;
    left_over++;
    return (*(next_fn *)&next)(group, operands, out);
}

int baton_schedule_destroy(void *schedule);
int baton_schedule_destroy(void *schedule)
{
    left_over--; /* this is also called for other collectives */
    return NEXT(baton_schedule_destroy)(schedule);
}

/* The number of groups of communicators that libbaton_mpi has. */
static int groups;
int baton_group_create_sub(void *of, const int *ranks, int count,
                           const char *name, void **out);
int baton_group_create_sub(void *of, const int *ranks, int count,
                           const char *name, void **out)
{
    groups++;
    return NEXT(baton_group_create_sub)(of, ranks, count, name, out);
}

int baton_group_destroy(void *group);
int baton_group_destroy(void *group)
{
    groups--; /* this is also called for the group of all ranks */
    return NEXT(baton_group_destroy)(group);
}

static int rank, size;

enum { COUNT = 37, MOST = 8 * 1024 };

static int in[MOST], out[MOST], expected[MOST];

static void fill(int seed)
{
    for (int i = 0; i < MOST; i++) {
        in[i] = (seed * 31 + rank * 7 + i) % 101;
        out[i] = expected[i] = -1 - in[i];
    }
}

static void expect_equal(const char *what)
{
    for (int i = 0; i < MOST; i++) {
        EXPECT(out[i] == expected[i], "%s: [%d] is %d, must be %d", what, i,
               out[i], expected[i]);
    }
}

static void await(MPI_Request *request)
{
    EXPECT(MPI_Wait(request, MPI_STATUS_IGNORE) == MPI_SUCCESS, "wait");
    EXPECT(*request == MPI_REQUEST_NULL, "the request is not null");
}

/* Makes the first calls on a communicator, which are left to MPI. Baton takes
   the next one. */
static void settle(MPI_Comm comm, int calls_left)
{
    MPI_Request request;
    for (int i = 0; i < calls_left; i++) {
        MPI_Ibarrier(comm, &request);
        await(&request);
    }
}

/* Calls a collective in all its forms, with the two buffers `from` and `to`,
   and compares the results. */
#define WAYS(comm, name, Name, ...)                                            \
    do {                                                                       \
        MPI_Request request_;                                                  \
        int *to = expected;                                                    \
        fill(1);                                                               \
        const int *from = in;                                                  \
        (void)from;                                                            \
        PMPI_##Name(__VA_ARGS__, comm);                                        \
        to = out;                                                              \
        MPI_I##name(__VA_ARGS__, comm, &request_);                             \
        await(&request_);                                                      \
        expect_equal("I" #name);                                               \
        fill(1);                                                               \
        to = expected;                                                         \
        PMPI_##Name(__VA_ARGS__, comm);                                        \
        to = out;                                                              \
        MPI_##Name(__VA_ARGS__, comm);                                         \
        expect_equal(#Name);                                                   \
        PERSISTENT(Name)(__VA_ARGS__, comm, MPI_INFO_NULL, &request_);         \
        for (int turn = 0; turn < 3; turn++) {                                 \
            fill(turn);                                                        \
            to = expected;                                                     \
            PMPI_##Name(__VA_ARGS__, comm);                                    \
            MPI_Start(&request_);                                              \
            MPI_Wait(&request_, MPI_STATUS_IGNORE);                            \
            EXPECT(request_ != MPI_REQUEST_NULL, "persistent is null");        \
            expect_equal(#Name "_init");                                       \
        }                                                                      \
        MPI_Request_free(&request_);                                           \
        EXPECT(request_ == MPI_REQUEST_NULL, "free leaves a request");         \
    } while (0)

static void run_all_kinds(MPI_Comm comm)
{
    int p, me;
    MPI_Comm_size(comm, &p);
    MPI_Comm_rank(comm, &me);
    int counts[16], packed[16], apart[16], sends[16], send_at[16], recvs[16];
    int recv_at[16];
    int sum = 0, sent = 0, received = 0;
    for (int r = 0; r < p; r++) {
        counts[r] = (r * 5) % 9;
        packed[r] = sum;
        apart[r] = sum + 3 * r;
        sum += counts[r];
        sends[r] = (me + 2 * r) % 7;
        recvs[r] = (r + 2 * me) % 7;
        send_at[r] = sent;
        /* blocks are not in the order of ranks */
        recv_at[p - 1 - r] = received;
        sent += sends[r];
        received += (p - 1 - r + 2 * me) % 7;
    }
    for (int root = 0; root<p; root += p> 1 ? p - 1 : 1) {
        WAYS(comm, bcast, Bcast, to, COUNT, MPI_INT, root);
        WAYS(comm, reduce, Reduce, from, to, COUNT, MPI_INT, MPI_SUM, root);
        WAYS(comm, gather, Gather, from, COUNT, MPI_INT, to, COUNT, MPI_INT,
             root);
        WAYS(comm, scatter, Scatter, from, COUNT, MPI_INT, to, COUNT, MPI_INT,
             root);
        WAYS(comm, gatherv, Gatherv, from, counts[me], MPI_INT, to, counts,
             apart, MPI_INT, root);
        WAYS(comm, scatterv, Scatterv, from, counts, apart, MPI_INT, to,
             counts[me], MPI_INT, root);
        counts[p - 1]++; /* only this rank knows that its count is larger */
        WAYS(comm, gatherv, Gatherv, from, counts[me], MPI_INT, to, counts,
             apart, MPI_INT, root);
        counts[p - 1]--;
        if (root + 1 >= p) {
            break;
        }
    }
    WAYS(comm, allreduce, Allreduce, from, to, COUNT, MPI_INT, MPI_MAX);
    WAYS(comm, scan, Scan, from, to, COUNT, MPI_INT, MPI_SUM);
    WAYS(comm, exscan, Exscan, from, to, COUNT, MPI_INT, MPI_SUM);
    WAYS(comm, reduce_scatter, Reduce_scatter, from, to, counts, MPI_INT,
         MPI_SUM);
    WAYS(comm, reduce_scatter_block, Reduce_scatter_block, from, to, COUNT,
         MPI_INT, MPI_SUM);
    WAYS(comm, allgather, Allgather, from, COUNT, MPI_INT, to, COUNT, MPI_INT);
    WAYS(comm, allgatherv, Allgatherv, from, counts[me], MPI_INT, to, counts,
         packed, MPI_INT);
    WAYS(comm, allgatherv, Allgatherv, from, counts[me], MPI_INT, to, counts,
         apart, MPI_INT);
    WAYS(comm, alltoall, Alltoall, from, COUNT, MPI_INT, to, COUNT, MPI_INT);
    WAYS(comm, alltoallv, Alltoallv, from, sends, send_at, MPI_INT, to, recvs,
         recv_at, MPI_INT);
    /* the same value is sent to all ranks */
    memset(send_at, 0, sizeof send_at);
    WAYS(comm, alltoallv, Alltoallv, from, sends, send_at, MPI_INT, to, recvs,
         recv_at, MPI_INT);
    MPI_Request request;
    MPI_Ibarrier(comm, &request);
    await(&request);
}

static void test_kinds(void)
{
    run_all_kinds(MPI_COMM_WORLD);
}

/* Calls with MPI_IN_PLACE, also at the root alone, before and after calls
   without it. */
static void test_in_place(void)
{
    int root = size - 1;
    int counts[16], at[16], same[16], even[16];
    MPI_Request q;
    for (int r = 0; r < size; r++) {
        counts[r] = 1 + r % 3;
        at[r] = r == 0 ? 0 : at[r - 1] + counts[r - 1];
        same[r] = 2;
        even[r] = 2 * r;
    }
    for (int turn = 0; turn < 2; turn++) {
#define PLACED(name, Name, rooted, ...)                                        \
    do {                                                                       \
        fill(turn);                                                            \
        memcpy(out, in, sizeof out);                                           \
        memcpy(expected, in, sizeof out);                                      \
        int *to = expected;                                                    \
        const void *from = !(rooted) || rank == root ? MPI_IN_PLACE : in;      \
        PMPI_##Name(__VA_ARGS__, MPI_COMM_WORLD);                              \
        to = out;                                                              \
        MPI_I##name(__VA_ARGS__, MPI_COMM_WORLD, &q);                          \
        await(&q);                                                             \
        expect_equal("in place: I" #name);                                     \
    } while (0)
        PLACED(allreduce, Allreduce, 0, from, to, COUNT, MPI_INT, MPI_SUM);
        PLACED(reduce, Reduce, 1, from, to, COUNT, MPI_INT, MPI_SUM, root);
        PLACED(scan, Scan, 0, from, to, COUNT, MPI_INT, MPI_SUM);
        PLACED(exscan, Exscan, 0, from, to, COUNT, MPI_INT, MPI_SUM);
        PLACED(allgather, Allgather, 0, from, COUNT, MPI_INT, to, COUNT,
               MPI_INT);
        PLACED(allgatherv, Allgatherv, 0, from, 0, MPI_INT, to, counts, at,
               MPI_INT);
        PLACED(gather, Gather, 1, from, COUNT, MPI_INT, to, COUNT, MPI_INT,
               root);
        PLACED(gatherv, Gatherv, 1, from, counts[rank], MPI_INT, to, counts, at,
               MPI_INT, root);
        PLACED(alltoall, Alltoall, 0, from, 0, MPI_INT, to, COUNT, MPI_INT);
        PLACED(alltoallv, Alltoallv, 0, from, NULL, NULL, MPI_INT, to, same,
               even, MPI_INT);
        PLACED(reduce_scatter, Reduce_scatter, 0, from, to, counts, MPI_INT,
               MPI_SUM);
        PLACED(reduce_scatter_block, Reduce_scatter_block, 0, from, to, COUNT,
               MPI_INT, MPI_SUM);
        /* Scatter: the root keeps its block. */
        fill(turn);
        memcpy(expected, in, sizeof out);
        PMPI_Scatter(in, COUNT, MPI_INT,
                     rank == root ? MPI_IN_PLACE : (void *)expected, COUNT,
                     MPI_INT, root, MPI_COMM_WORLD);
        memcpy(out, in, sizeof out);
        MPI_Iscatter(in, COUNT, MPI_INT,
                     rank == root ? MPI_IN_PLACE : (void *)out, COUNT, MPI_INT,
                     root, MPI_COMM_WORLD, &q);
        await(&q);
        expect_equal("in place: Iscatter");
        /* The call after this one is not in place, but its vectors overlap,
           which Open MPI accepts. */
        fill(turn);
        memcpy(out, in, sizeof out);
        memcpy(expected, in, sizeof out);
        PMPI_Allreduce(in, expected, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(out, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        PMPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, expected, COUNT, MPI_INT,
                       MPI_COMM_WORLD);
        MPI_Allgather(out + (size_t)rank * COUNT, COUNT, MPI_INT, out, COUNT,
                      MPI_INT, MPI_COMM_WORLD);
        expect_equal("one buffer");
    }
}

/* Tests types and operations with which MPI defines reductions. dropin_mpi4py
   tests further ones. */
static void test_types(void)
{
    static const struct {
        MPI_Datatype type;
        int bytes;
        const char *ops;
    } types[] = {
        {MPI_SHORT, 2, "sxnpabolOX"}, {MPI_UINT64_T, 8, "sxnpab"},
        {MPI_BYTE, 1, "abX"},         {MPI_C_BOOL, 1, "lo"},
        {MPI_INTEGER, 4, "sxnpabX"},
    };
    static const MPI_Op ops[] = {MPI_SUM,  MPI_MAX, MPI_MIN, MPI_PROD,
                                 MPI_BAND, MPI_BOR, MPI_LOR, MPI_LAND,
                                 MPI_LXOR, MPI_BXOR};
    static const char letters[] = "sxnpabolOX";
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (const char *o = types[t].ops; *o != '\0'; o++) {
            MPI_Op op = ops[strchr(letters, *o) - letters];
            MPI_Request request;
            fill(0);
            /* The values are small, since Open MPI's sums of bytes saturate. */
            for (int i = 0; i < MOST; i++) {
                ((char *)in)[i] = (char)((rank / 2 + i) % 2);
            }
            PMPI_Allreduce(in, expected, COUNT, types[t].type, op,
                           MPI_COMM_WORLD);
            MPI_Iallreduce(in, out, COUNT, types[t].type, op, MPI_COMM_WORLD,
                           &request);
            await(&request);
            expect_equal("a type");
        }
    }
    /* A pair has a gap between its members, whose content does not matter. */
    struct {
        double value;
        int index;
    } pairs[2][5], lowest[5];
    for (int i = 0; i < 5; i++) {
        pairs[0][i].value = (rank * 3 + i) % 4;
        pairs[0][i].index = rank;
    }
    MPI_Request request;
    memcpy(pairs[1], pairs[0], sizeof pairs[0]);
    MPI_Iscan(MPI_IN_PLACE, pairs[1], 5, MPI_DOUBLE_INT, MPI_MINLOC,
              MPI_COMM_WORLD, &request);
    await(&request);
    PMPI_Scan(pairs[0], lowest, 5, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    for (int i = 0; i < 5; i++) {
        EXPECT(pairs[1][i].value == lowest[i].value &&
                   pairs[1][i].index == lowest[i].index,
               "pair %d", i);
    }
}

static void add_here(void *from, void *to, int *count, MPI_Datatype *type)
{
    EXPECT(pthread_equal(pthread_self(), program), "a reduction elsewhere");
    for (int i = 0; i < *count; i++) {
        ((int *)to)[i] += ((int *)from)[i];
    }
}

/* At this thread level no other thread may call the program's function. If the
   ranks are on several hosts, Baton's thread calls MPI, which may call the
   function there. */
static void test_functions(void)
{
    MPI_Op op;
    MPI_Request q;
    MPI_Comm host;
    int here;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &host);
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    if (here < size) {
        return;
    }
    MPI_Op_create(add_here, 1, &op);
    fill(0);
    PMPI_Allreduce(in, expected, MOST, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Iallreduce(in, out, MOST, MPI_INT, op, MPI_COMM_WORLD, &q);
    usleep(20000); /* gives another thread time to reduce, if it did so */
    await(&q);
    MPI_Op_free(&op);
    expect_equal("a function of the program");
}

/* A column of a matrix on one rank becomes a row on another. The type is freed
   before the call ends, and addresses are absolute. */
static void test_derived(void)
{
    MPI_Datatype column, absolute;
    MPI_Request request;
    MPI_Aint address;
    int matrix[9][9];
    int one = 1;
    MPI_Type_vector(9, 1, 9, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int root = 0; root < size; root++) {
        memset(matrix, -1, sizeof matrix);
        for (int i = 0; i < 9 && rank == root; i++) {
            matrix[i][2] = 100 * root + i;
        }
        if (rank % 2 == root % 2) {
            MPI_Get_address(&matrix[0][2], &address);
            MPI_Type_create_hindexed(1, &one, &address, column, &absolute);
            MPI_Type_commit(&absolute);
            MPI_Ibcast(MPI_BOTTOM, 1, absolute, root, MPI_COMM_WORLD, &request);
            MPI_Type_free(&absolute);
            await(&request);
            for (int i = 0; i < 9; i++) {
                EXPECT(matrix[i][2] == 100 * root + i, "column %d", i);
                EXPECT(rank == root || matrix[i][3] == -1, "beside %d", i);
            }
        } else {
            MPI_Ibcast(matrix[4], 9, MPI_INT, root, MPI_COMM_WORLD, &request);
            await(&request);
            for (int i = 0; i < 9; i++) {
                EXPECT(matrix[4][i] == 100 * root + i, "row %d", i);
            }
        }
    }
    /* Each rank's vector becomes one column of a matrix. */
    MPI_Datatype narrow;
    MPI_Type_create_resized(column, 0, sizeof(int), &narrow);
    MPI_Type_commit(&narrow);
    int mine[9], ones[9], places[9];
    for (int i = 0; i < 9; i++) {
        mine[i] = 10 * rank + i;
        ones[i] = 1;
        places[i] = i;
    }
    memset(matrix, -1, sizeof matrix);
    MPI_Iallgatherv(mine, 9, MPI_INT, matrix, ones, places, narrow,
                    MPI_COMM_WORLD, &request);
    MPI_Type_free(&narrow);
    /* mpi4py frees these arrays as early as this */
    memset(ones, 0, sizeof ones);
    memset(places, -1, sizeof places);
    await(&request);
    for (int i = 0; i < 9 * size; i++) {
        EXPECT(matrix[i / size][i % size] == 10 * (i % size) + i / size,
               "column %d, row %d", i % size, i / size);
    }
    MPI_Type_free(&column);
    /* Elements in a row are sent from where they are, unless they have gaps. */
    for (int gaps = 0; gaps < 2; gaps++) {
        MPI_Datatype row, copy;
        int before = packs;
        MPI_Ibcast(in, 400, MPI_INT, 0, MPI_COMM_WORLD, &request);
        await(&request);
        fill(1);
        MPI_Type_contiguous(4, gaps ? MPI_DOUBLE_INT : MPI_INT, &row);
        MPI_Type_dup(row, &copy);
        MPI_Type_commit(&copy);
        MPI_Ibcast(out, 100, copy, 0, MPI_COMM_WORLD, &request);
        await(&request);
        EXPECT(packs - before == (gaps && rank == 0 && size > 1),
               "packed %d times", packs - before);
        PMPI_Bcast(expected, 100, copy, 0, MPI_COMM_WORLD);
        expect_equal("elements in a row");
        MPI_Type_free(&copy);
        MPI_Type_free(&row);
    }
}

static int copied; /* how often an attribute of a type was copied */
static int on_copy(MPI_Datatype type, int key, void *extra, void *value,
                   void *copy, int *flag)
{
    copied++;
    *flag = 0;
    return MPI_SUCCESS;
}

/* Describes every other integer, in blocks that lie in any order. */
static MPI_Datatype lay_out(int key, int *counts, int *at)
{
    MPI_Datatype wide;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &wide);
    MPI_Type_commit(&wide);
    MPI_Type_set_attr(wide, key, &copied);
    for (int r = 0; r < size; r++) {
        counts[r] = 5;
        at[r] = 7 * (size - 1 - r);
    }
    return wide;
}

/* Frees the type, creates others that may take its place in memory, and
   overwrites the arrays. */
static void overwrite(MPI_Datatype *type, int *counts, int *at,
                      MPI_Datatype others[8])
{
    MPI_Type_free(type);
    for (int i = 0; i < 8; i++) {
        MPI_Type_create_resized(MPI_SHORT, 0, 3 * sizeof(int), &others[i]);
    }
    for (int r = 0; r < size; r++) {
        counts[r] = 1;
        at[r] = r;
    }
}

static void free_types(MPI_Datatype types[8])
{
    for (int i = 0; i < 8; i++) {
        MPI_Type_free(&types[i]);
    }
}

/* The arguments of a persistent call (its types, counts and displacements) are
   freed or overwritten before the call starts. */
static void test_freed(void)
{
    int key, counts[16], at[16];
    MPI_Request q;
    MPI_Datatype others[8];
    /* Open MPI, which has the calls of one rank, does not keep the type */
    if (size == 1) {
        return;
    }
    MPI_Type_create_keyval(on_copy, MPI_TYPE_NULL_DELETE_FN, &key, NULL);
#define FREED(Name, ...)                                                       \
    do {                                                                       \
        MPI_Datatype type = lay_out(key, counts, at);                          \
        int *to = out;                                                         \
        PERSISTENT(Name)(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, &q);      \
        overwrite(&type, counts, at, others);                                  \
        for (int turn = 0; turn < 2; turn++) {                                 \
            fill(turn);                                                        \
            free_types(others);                                                \
            type = lay_out(key, counts, at);                                   \
            to = expected;                                                     \
            PMPI_##Name(__VA_ARGS__, MPI_COMM_WORLD);                          \
            overwrite(&type, counts, at, others);                              \
            MPI_Start(&q);                                                     \
            MPI_Wait(&q, MPI_STATUS_IGNORE);                                   \
            expect_equal("freed: " #Name);                                     \
        }                                                                      \
        MPI_Request_free(&q);                                                  \
        free_types(others);                                                    \
    } while (0)
    int root = size - 1;
    void *place = rank == root ? MPI_IN_PLACE : in;
    FREED(Bcast, to, COUNT, type, root);
    FREED(Gather, in, 5, type, to, 5, type, root);
    FREED(Gather, place, 5, type, to, 5, type, root);
    FREED(Gatherv, in, 5, type, to, counts, at, type, root);
    FREED(Scatter, in, 5, type, to, 5, type, root);
    FREED(Scatterv, in, counts, at, type, to, 5, type, root);
    FREED(Allgather, in, 5, type, to, 5, MPI_INT);
    FREED(Allgather, MPI_IN_PLACE, 5, type, to, 5, type);
    FREED(Allgatherv, in, 5, type, to, counts, at, type);
    FREED(Alltoall, in, 5, type, to, 5, MPI_INT);
    FREED(Alltoallv, in, counts, at, type, to, counts, at, type);
    FREED(Alltoallv, MPI_IN_PLACE, counts, at, type, to, counts, at, type);
    MPI_Type_free_keyval(&key);
    EXPECT(copied == 0, "an attribute of a type was copied");
}

/* The memory that the calls of a test allocate is free again after it. MPI may
   allocate more in some rounds, but not in all. (On one rank Open MPI leaks,
   and with a sanitizer mallinfo2 tells nothing.) */
static void test_memory(void)
{
    long least = LONG_MAX;
    for (int round = 0; round < 8 && size > 1; round++) {
        size_t before = mallinfo2().uordblks;
        for (int turn = 0; turn < 12; turn++) {
            test_derived();
            test_freed();
        }
        long more = (long)(mallinfo2().uordblks - before);
        least = more < least ? more : least;
    }
    EXPECT(size == 1 || least < 6000, "%ld bytes leak", least);
}

/* Starts many collectives of one shape, and many of different shapes, at once.
   Waits for them in any order, among other requests. */
static void test_outstanding(void)
{
    enum { MANY = 200 };
    static int sources[MANY], sums[MANY], received[MANY];
    static MPI_Request requests[2 * MANY];
    int right = (rank + 1) % size;
    int before = packs;
    for (int way = 0; way < 4; way++) {
        for (int i = 0; i < MANY; i++) {
            sources[i] = rank + i + way;
            MPI_Iallreduce(&sources[i], &sums[i], 1, MPI_INT, MPI_SUM,
                           MPI_COMM_WORLD, &requests[2 * i]);
            if (i % 2 == 0) {
                MPI_Irecv(&received[i], 1, MPI_INT, MPI_ANY_SOURCE, i,
                          MPI_COMM_WORLD, &requests[2 * i + 1]);
            } else {
                MPI_Isend(&sources[i], 1, MPI_INT, right, i - 1, MPI_COMM_WORLD,
                          &requests[2 * i + 1]);
            }
        }
        int index, flag, some[2 * MANY];
        MPI_Status status;
        switch (way) {
        case 0:
            MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
            break;
        case 1:
            do {
                MPI_Waitany(2 * MANY, requests, &index, &status);
            } while (index != MPI_UNDEFINED);
            break;
        case 2:
            do {
                MPI_Testsome(2 * MANY, requests, &index, some,
                             MPI_STATUSES_IGNORE);
            } while (index != MPI_UNDEFINED);
            break;
        default:
            for (int i = 2 * MANY - 1; i >= 0; i--) {
                do {
                    MPI_Request_get_status(requests[i], &flag, &status);
                } while (!flag);
                MPI_Test(&requests[i], &flag, &status);
                EXPECT(flag, "not complete behind get_status");
            }
        }
        for (int i = 0; i < MANY; i++) {
            int sum = size * (size - 1) / 2 + size * (i + way);
            EXPECT(sums[i] == sum, "sum %d is %d, must be %d", i, sums[i], sum);
        }
    }
    /* Short collectives of many shapes: first as many as libbaton_mpi keeps,
       and then more. */
    for (int i = 0; i < 1200; i++) {
        int count = i < 600 ? 1 + i % 300 : MOST - i % 300;
        made = i == 300 ? 0 : made;
        EXPECT(i != 600 || made == 0, "%d schedules made again", made);
        fill(i);
        MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                       &requests[0]);
        PMPI_Allreduce(in, expected, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        await(&requests[0]);
        expect_equal("many shapes");
    }
    EXPECT(packs == before, "%d vectors are packed", packs - before);
    EXPECT(size == 1 || made >= 600, "%d schedules of long vectors made", made);
}

/* Communicators made by every kind of call. Collectives on two of them are
   started in different orders. Communicators are freed while their calls
   run. */
static void test_comms(void)
{
    MPI_Comm dup[2], half, cart, later;
    MPI_Request requests[3];
    int sums[3] = {0, 0, 0};
    int periods = 1;
    if (rank == 0) { /* from here on context ids differ between the ranks */
        MPI_Comm_dup(MPI_COMM_SELF, &later);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &dup[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup[1]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    /* MPI runs these calls itself, and Baton adds no cost */
    for (int late = 0; late < 2; late++) {
        for (int i = 0; i < 3 && late == (rank == 0); i++) {
            MPI_Ibarrier(dup[0], &requests[i]);
        }
        int before = calls;
        MPI_Iprobe(rank, 1, MPI_COMM_WORLD, &sums[0], MPI_STATUS_IGNORE);
        EXPECT(late || calls == before, "%d looks", calls - before);
        PMPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    settle(dup[0], 4);
    settle(dup[1], 7);
    for (int i = 0; i < 2; i++) {
        int which = (rank + i) % 2;
        MPI_Iallreduce(which == 0 ? &rank : &size, &sums[which], 1, MPI_INT,
                       MPI_SUM, dup[which], &requests[which]);
    }
    MPI_Iallreduce(&size, &sums[2], 1, MPI_INT, MPI_SUM, half, &requests[2]);
    MPI_Comm_free(&dup[0]);
    MPI_Comm_free(&half);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    MPI_Comm_free(&dup[1]);
    EXPECT(sums[0] == size * (size - 1) / 2, "of ranks: %d", sums[0]);
    EXPECT(sums[1] == size * size, "of sizes: %d", sums[1]);
    EXPECT(sums[2] == size * ((size + 1 - rank % 2) / 2), "half: %d", sums[2]);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periods, 0, &cart);
    MPI_Comm_split(cart, rank % 2, -rank, &half);
    settle(half, 7);
    run_all_kinds(half);
    MPI_Comm_idup(half, &dup[0], &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Comm_free(&half);
    run_all_kinds(dup[0]);
    MPI_Comm_free(&dup[0]);
    MPI_Comm_free(&cart);
    for (int i = 0; i < 50; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &dup[0]);
        if (i % 2 == 0) {
            settle(dup[0], 7);
        }
        MPI_Iallreduce(&rank, &sums[0], 1, MPI_INT, MPI_MAX, dup[0], requests);
        MPI_Comm_free(&dup[0]);
        MPI_Wait(requests, MPI_STATUS_IGNORE);
        EXPECT(sums[0] == size - 1, "of a communicator that is freed");
    }
    if (rank == 0) {
        MPI_Comm_free(&later);
    }
}

static int deleted;
static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    deleted++;
    return MPI_SUCCESS;
}

/* The application's attributes, error handlers and thread level stay as they
   are. Calls that are left to MPI work. */
static void test_application(void)
{
    int key, flag, level;
    void *value;
    MPI_Comm dup;
    MPI_Request request;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_set_attr(dup, key, &key);
    MPI_Ibarrier(dup, &request);
    await(&request);
    MPI_Comm_get_attr(dup, key, &value, &flag);
    EXPECT(flag && value == &key && deleted == 0, "an attribute");
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
#define FAILS(error, name, ...)                                                \
    MPI_Error_class(MPI_I##name(__VA_ARGS__, dup, &request), &class);          \
    EXPECT(class == (error), "I" #name " is error class %d", class)
    int class;
    FAILS(MPI_ERR_COUNT, allreduce, in, out, -1, MPI_INT, MPI_SUM);
    FAILS(MPI_ERR_ROOT, bcast, in, 1, MPI_INT, size);
    FAILS(MPI_ERR_TYPE, bcast, in, 1, MPI_DATATYPE_NULL, 0);
    FAILS(MPI_ERR_OP, allreduce, in, out, 1, MPI_INTEGER, MPI_LAND);
    FAILS(MPI_ERR_ARG, bcast, MPI_IN_PLACE, 1, MPI_INT, 0);
    MPI_Datatype raw; /* a type that MPI refuses on one rank only */
    MPI_Type_contiguous(1, MPI_INT, &raw);
    if (rank == 0) {
        FAILS(MPI_ERR_TYPE, bcast, in, 1, raw, 0);
    }
    MPI_Type_free(&raw);
    for (int i = 0; i < 8; i++) { /* after these calls all ranks use Baton */
        MPI_Ibarrier(dup, &request);
        await(&request);
    }
    MPI_Comm_free(&dup);
    MPI_Comm_free_keyval(&key);
    EXPECT(deleted == 1, "an attribute is deleted %d times", deleted);
    MPI_Query_thread(&level);
    EXPECT(level == MPI_THREAD_SINGLE, "the level is %d", level);
    MPI_Iallreduce(in, out, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    await(&request);
    /* The program uses MPI's Fortran functions although only a plugin has
       loaded MPI's Fortran library. */
    typedef void (*wait_fn)(MPI_Fint *, MPI_Fint *, MPI_Fint *);
    void *wait = dlsym(RTLD_DEFAULT, "mpi_wait_");
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Fint q = MPI_Request_c2f(request);
    (*(wait_fn *)&wait)(&q, MPI_F_STATUS_IGNORE, NULL);
    EXPECT(MPI_Request_f2c(q) == MPI_REQUEST_NULL, "mpi_wait_");
}

/* Persistent collectives: in MPI_Startall and MPI_Waitall with other requests,
   freed while active, and used after their communicator was freed. */
static void test_persistent(void)
{
    MPI_Comm dup;
    MPI_Request q[5];
    int right = (rank + 1) % size;
    /* static, since it is used after this function has returned */
    static int a[2];
    int b = 0, got = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPIX_Allreduce_init(&rank, &a[0], 1, MPI_INT, MPI_SUM, dup, MPI_INFO_NULL,
                        &q[0]);
    MPI_Recv_init(&got, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &q[1]);
    MPI_Send_init(&rank, 1, MPI_INT, right, 0, MPI_COMM_WORLD, &q[2]);
    MPIX_Allreduce_init(&size, &a[1], 1, MPI_INT, MPI_SUM, dup, MPI_INFO_NULL,
                        &q[3]);
    MPI_Comm_free(&dup);
    for (int turn = 0; turn < 20; turn++) {
        a[0] = a[1] = -1;
        MPI_Startall(4, q);
        MPI_Iallreduce(&turn, &b, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q[4]);
        MPI_Waitall(5, q, MPI_STATUSES_IGNORE);
        EXPECT(a[0] == size * (size - 1) / 2 && a[1] == size * size &&
                   got == (rank + size - 1) % size && b == turn * size,
               "turn %d: %d, %d, %d, %d", turn, a[0], a[1], got, b);
        MPI_Status status;
        int flag;
        MPI_Test(&q[0], &flag, &status);
        EXPECT(flag, "an inactive request is complete");
    }
    if (size > 1) { /* calls on one rank are left to MPI */
        /* The second request ends before rank 0 has started the first. */
        MPI_Request two[2] = {q[0], q[3]};
        int first = -1;
        for (int i = rank == 0; i < 2; i++) {
            MPI_Start(&two[i]);
        }
        MPI_Waitany(2, two, &first, MPI_STATUS_IGNORE);
        EXPECT(first == 1, "request %d was complete first", first);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Start(&two[0]);
        }
        MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
        /* Open MPI itself refuses to free an active request */
        MPI_Start(&q[0]);
    }
    for (int i = 0; i < 4; i++) {
        MPI_Request_free(&q[i]);
    }
}

/* No rank calls MPI until the sum is there. */
static void test_background(void)
{
    static volatile int sums[4096];
    MPI_Request request;
    if (size == 1 || !dropin_in_background()) {
        return;
    }
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    settle(dup, 7);
    for (int i = 0; i < 4096; i++) {
        in[i] = 1;
    }
    MPI_Iallreduce(in, (void *)sums, 4096, MPI_INT, MPI_SUM, dup, &request);
    MPI_Comm_free(&dup);
    while (dropin_look(&sums[0]) != size || dropin_look(&sums[4095]) != size) {
        usleep(100);
    }
    await(&request);
}

/* While a rank waits in a collective, long messages of other ranks that need
   this rank make progress. */
static void test_rendezvous(void)
{
    enum { LONG = 1 << 20 };
    static int sent[LONG], received[LONG];
    MPI_Request q[2];
    int one = 1, sum = 0;
    int right = (rank + 1) % size;
    int left = (rank + size - 1) % size;
    for (int i = 0; i < LONG; i++) {
        sent[i] = rank + i;
    }
    MPI_Isend(sent, LONG, MPI_INT, right, 0, MPI_COMM_WORLD, &q[0]);
    if (rank % 2 == 1) {
        MPI_Recv(received, LONG, MPI_INT, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q[1]);
    MPI_Wait(&q[1], MPI_STATUS_IGNORE);
    EXPECT(sum == size, "sum %d", sum);
    if (rank % 2 == 0) {
        MPI_Recv(received, LONG, MPI_INT, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
    MPI_Wait(&q[0], MPI_STATUS_IGNORE);
    EXPECT(received[LONG - 1] == left + LONG - 1, "the last one");
}

/* The count is one element of 2 GiB or more, with gaps. All blocks of the
   element are the same memory, so two ranks need only a copy of it each. */
static void test_huge(void)
{
    enum { BLOCK = 1 << 16, BLOCKS = 1 + (1 << 15) };
    static char block[BLOCK + 1];
    MPI_Datatype huge, odd;
    MPI_Request q;
    MPI_Aint at[2] = {0, 0};
    int counts[2] = {1, BLOCK - 1};
    MPI_Type_create_hvector(BLOCKS, BLOCK, 0, MPI_CHAR, &odd);
    MPI_Datatype parts[2] = {odd, MPI_CHAR};
    MPI_Type_create_struct(2, counts, at, parts, &huge);
    MPI_Type_commit(&huge);
    for (int i = 0; i < BLOCK; i++) {
        block[i] = (char)(rank == 0 ? i * 7 + i / 256 : -1);
    }
    MPI_Ibcast(block, 1, huge, 0, MPI_COMM_WORLD, &q);
    await(&q);
    for (int i = 0; i < BLOCK; i++) {
        EXPECT(block[i] == (char)(i * 7 + i / 256), "%d is %d", i, block[i]);
    }
    EXPECT(block[BLOCK] == 0, "beyond the last");
    MPI_Type_free(&huge);
    MPI_Type_free(&odd);
}

/* An error of one call is reported to the handler of that call's communicator
   only. */
static void test_handlers(void)
{
    enum { EACH = 300 }; /* at least 1 KiB, so that Baton takes the call */
    static int sent[2 * EACH], got[16 * EACH];
    MPI_Datatype wide;
    MPI_Comm dup;
    MPI_Request q;
    if (size == 1) {
        return;
    }
    int key;
    int before = deleted;
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, on_delete, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &wide);
    MPI_Type_commit(&wide);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    settle(dup, 7);
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
    PERSISTENT(Allgather)
    (sent, EACH, wide, got, EACH, MPI_INT, dup, MPI_INFO_NULL, &q);
    no_room = true;
    EXPECT(MPI_Start(&q) != MPI_SUCCESS, "a start without room");
    MPI_Request_free(&q);
    EXPECT(MPI_Iallgather(sent, EACH, wide, got, EACH, MPI_INT, dup, &q) !=
               MPI_SUCCESS,
           "a call without room");
    no_room = false;
    const char *blocking = getenv("BATON_MPI_BLOCKING");
    if (blocking != NULL && blocking[0] == '1') {
        EXPECT(MPI_Allreduce(in, out, 1 + (rank == 0), MPI_INT, MPI_SUM, dup) !=
                   MPI_SUCCESS,
               "a blocking call with other counts");
    }
    MPI_Comm_free(&dup);
    MPI_Type_free(&wide);
    EXPECT(deleted == before, "a copy of an attribute of MPI_COMM_SELF");
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
    MPI_Comm_free_keyval(&key);
}

static int errors;
static MPI_Comm blamed;
static void on_error(MPI_Comm *comm, int *code, ...)
{
    blamed = *comm;
    errors++;
}

/* Waits for a request by each of these functions. */
enum { WAITS = 6 };
static int wait_by(int way, MPI_Request *q)
{
    MPI_Status status = {.MPI_ERROR = MPI_SUCCESS};
    int done = 0;
    int code = MPI_SUCCESS;
    if (way < 2) {
        code = way == 0 ? MPI_Wait(q, MPI_STATUS_IGNORE)
                        : MPI_Waitany(1, q, &done, &status);
    } else if (way == 2) {
        code = MPI_Waitall(1, q, &status);
        EXPECT(code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS,
               "the status has %d", status.MPI_ERROR);
    }
    while (way > 2 && !done && code == MPI_SUCCESS) {
        if (way == 3) {
            code = MPI_Test(q, &done, &status);
        } else if (way == 4) {
            code = MPI_Testall(1, q, &done, &status);
        } else {
            code = MPI_Waitsome(1, q, &done, &(int){0}, &status);
        }
    }
    return code;
}

/* If ranks disagree in their arguments, each rank gets an error, where MPI
   reports none. The handler of the communicator is called. The handler of
   MPI_COMM_WORLD, which would end the program, is not. */
static void test_mismatch(void)
{
    MPI_Errhandler handler;
    MPI_Comm dup;
    MPI_Request q;
    if (size == 1) {
        return;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    settle(dup, 7);
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(dup, handler);
    for (int way = -1; way < WAITS; way++) {
        int count = 1 + (rank == size - 1);
        if (way < 0) {
            MPIX_Allreduce_init(in, out, count, MPI_INT, MPI_SUM, dup,
                                MPI_INFO_NULL, &q);
            MPI_Start(&q);
        } else {
            MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, dup, &q);
        }
        EXPECT(wait_by(way < 0 ? 0 : way, &q) != MPI_SUCCESS,
               "counts that differ are no error");
        EXPECT(errors == way + 2, "%d errors were told", errors);
        /* Open MPI 4 and 5 free a persistent request that has failed. */
        if (way < 0 && q != MPI_REQUEST_NULL) {
            MPI_Request_free(&q);
        }
        EXPECT(way < 0 || blamed == dup, "another communicator is told");
    }
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&dup);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"kinds", test_kinds},
        {"in_place", test_in_place},
        {"types", test_types},
        {"functions", test_functions},
        {"derived", test_derived},
        {"freed", test_freed},
        {"memory", test_memory},
        {"outstanding", test_outstanding},
        {"comms", test_comms},
        {"application", test_application},
        {"background", test_background},
        {"rendezvous", test_rendezvous},
        {"handlers", test_handlers},
        {"mismatch", test_mismatch},
        {"persistent", test_persistent},
        /* this case needs 4 GiB, so it runs only if it is named */
        {"huge", test_huge},
    };
    alarm(500);
    program = pthread_self();
    MPI_Init(&argc, &argv);
    int level;
    PMPI_Query_thread(&level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t t = 0; t < sizeof tests / sizeof *tests; t++) {
        bool asked = argc == 1 && tests[t].run != test_huge;
        for (int i = 1; i < argc; i++) {
            asked |= strcmp(argv[i], tests[t].name) == 0;
        }
        if (asked) {
            dropin_test = tests[t].name;
            tests[t].run();
        }
    }
    /* Groups of communicators that were freed are destroyed when their last
       operation has ended. Two groups remain: that of MPI_COMM_WORLD, and that
       of test_mismatch, where MPI frees a request by itself. */
    for (int found = 0; groups > 2; settle(MPI_COMM_SELF, 1)) {
        MPI_Iprobe(0, 0, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
    }
    int code = MPI_Finalize();
    EXPECT(size == 1 || groups == -1, "%d groups are left", groups + 1);
    EXPECT(left_over <= 0, "%d schedules are left", left_over);
    EXPECT(level == MPI_THREAD_MULTIPLE || strays == 0,
           "%d calls of MPI by other threads", strays);
    return code == MPI_SUCCESS && dropin_failures == 0 ? 0 : 1;
}
