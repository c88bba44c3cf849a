/* A program that asks for MPI_THREAD_MULTIPLE. Baton takes its user-defined
   reductions, and its threads use communicators of their own. */
#include "dropin.h"

#include <pthread.h>
#include <unistd.h>

static int rank, size;

/* 2 by 2 matrices modulo 251, whose product does not commute. */
typedef struct matrix {
    int at[4];
} matrix_t;

enum { MATRICES = 300 }; /* more matrices than are multiplied in one call */

static matrix_t product(matrix_t a, matrix_t b)
{
    matrix_t c;
    for (int i = 0; i < 4; i++) {
        c.at[i] = (a.at[i & 2] * b.at[i & 1] + a.at[i | 1] * b.at[i | 2]) % 251;
    }
    return c;
}

static void multiply(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const matrix_t *left = in;
    matrix_t *right = inout;
    int bytes;
    MPI_Type_size(*type, &bytes);
    EXPECT(bytes == sizeof(matrix_t), "a type of %d bytes", bytes);
    for (int i = 0; i < *count; i++) {
        right[i] = product(left[i], right[i]);
    }
}

static void fill(matrix_t *to, int of)
{
    for (int i = 0; i < MATRICES * 4; i++) {
        to[i / 4].at[i % 4] = (of * 13 + i * 7 + i % 4) % 251;
    }
}

/* Expects the product of the matrices of ranks 0 to `last`. */
static void expect_product(const matrix_t *got, int last, const char *what)
{
    matrix_t each[MATRICES], all[MATRICES];
    fill(all, 0);
    for (int r = 1; r <= last; r++) {
        fill(each, r);
        for (int i = 0; i < MATRICES; i++) {
            all[i] = product(all[i], each[i]);
        }
    }
    EXPECT(memcmp(got, all, sizeof all) == 0, "%s", what);
}

/* Types and operations are freed while they are in use, and new ones get the
   same handles. If Baton has taken the call, the program calls no MPI function
   until the result is there. */
static void test_functions(void)
{
    static matrix_t in[MATRICES], out[MATRICES];
    static int counts[16]; /* only the last rank has elements */
    MPI_Request q;
    for (int turn = 0; turn < 10; turn++) {
        MPI_Datatype type;
        MPI_Op op;
        MPI_Type_contiguous(4, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Op_create(multiply, 0, &op);
        fill(in, rank);
        memset(out, -1, sizeof out);
        switch (turn % 5) {
        case 0:
            MPI_Iallreduce(in, out, MATRICES, type, op, MPI_COMM_WORLD, &q);
            break;
        case 1:
            memcpy(out, in, sizeof out);
            MPI_Iallreduce(MPI_IN_PLACE, out, MATRICES, type, op,
                           MPI_COMM_WORLD, &q);
            break;
        case 2:
            MPI_Iscan(in, out, MATRICES, type, op, MPI_COMM_WORLD, &q);
            break;
        case 3:
            MPIX_Allreduce_init(in, out, MATRICES, type, op, MPI_COMM_WORLD,
                                MPI_INFO_NULL, &q);
            MPI_Start(&q);
            break;
        default:
            counts[size - 1] = MATRICES;
            turn < 5 ? MPI_Ireduce(in, out, MATRICES, type, op, size - 1,
                                   MPI_COMM_WORLD, &q)
                     : MPI_Ireduce_scatter(in, out, counts, type, op,
                                           MPI_COMM_WORLD, &q);
        }
        MPI_Type_free(&type);
        MPI_Op_free(&op);
        while (turn % 5 == 0 && size > 1 && dropin_in_background() &&
               dropin_look(&out[MATRICES - 1].at[3]) < 0) {
            usleep(100);
        }
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        if (turn % 5 == 3) {
            MPI_Request_free(&q);
        }
        if (turn % 5 != 4 || rank == size - 1) {
            expect_product(out, turn % 5 == 2 ? rank : size - 1, "a product");
        }
    }
}

/* The function adds as many integers as the type has, since it looks at the
   type that it gets. */
static void add_ints(void *in, void *inout, int *count, MPI_Datatype *type)
{
    EXPECT(*type == MPI_INT, "another type than MPI_INT");
    for (int i = 0; i < *count; i++) {
        ((int *)inout)[i] += ((int *)in)[i];
    }
}

static void test_a_function_that_commutes(void)
{
    enum { COUNT = 3001 };
    static int data[COUNT];
    MPI_Op op;
    MPI_Request q;
    MPI_Op_create(add_ints, 1, &op);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < COUNT; i++) {
            data[i] = rank + i;
        }
        MPI_Iallreduce(MPI_IN_PLACE, data, COUNT, MPI_INT, op, MPI_COMM_WORLD,
                       &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        for (int i = 0; i < COUNT; i++) {
            EXPECT(data[i] == size * (size - 1) / 2 + size * i, "%d at %d",
                   data[i], i);
        }
    }
    MPI_Op_free(&op);
}

/* Types with gaps in or between their elements, or before the first one. Each
   row says where the integers of an element are, and how many bytes lie between
   elements. */
static const struct gaps {
    int count, at[2], step;
} gaps[] = {{1, {0}, 2},
            {1, {1}, 1},
            {2, {0, 2}, 3},
            {2, {0, 3}, 2},
            {0, {0}, 0}},
  *gapped;

static void add_others(void *in, void *inout, int *count, MPI_Datatype *type)
{
    for (int i = 0; i < *count * gapped->count; i++) {
        int at =
            gapped->at[i % gapped->count] + i / gapped->count * gapped->step;
        ((int *)inout)[at] += ((int *)in)[at];
    }
}

/* These calls are left to MPI, and the gaps are not written. */
static void test_gaps(void)
{
    for (gapped = gaps; gapped < gaps + sizeof gaps / sizeof *gaps; gapped++) {
        MPI_Datatype one, other;
        MPI_Op op;
        MPI_Request q;
        int in[6] = {rank, rank, rank, rank, rank, rank};
        int out[6] = {-1, -1, -1, -1, -1, -1};
        int sums[6] = {-1, -1, -1, -1, -1, -1};
        for (int i = 0; i < 2 * gapped->count; i++) {
            sums[gapped->at[i / 2] + i % 2 * gapped->step] =
                size * (size - 1) / 2;
        }
        MPI_Op_create(add_others, 1, &op);
        MPI_Type_create_indexed_block(gapped->count, 1, gapped->at, MPI_INT,
                                      &one);
        MPI_Type_create_resized(one, 0, gapped->step * (int)sizeof(int),
                                &other);
        MPI_Type_commit(&other);
        MPI_Iallreduce(in, out, 2, other, op, MPI_COMM_WORLD, &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        for (int i = 0; i < 6; i++) {
            EXPECT(out[i] == sums[i], "%d at %d", out[i], i);
        }
        MPI_Type_free(&one);
        MPI_Type_free(&other);
        MPI_Op_free(&op);
    }
}

/* Requests that are freed early, that complete in any order beside messages,
   and whose communicator was freed. */
static void *use(void *arg)
{
    MPI_Comm comm = *(MPI_Comm *)arg;
    enum { MANY = 8 };
    static _Atomic int kept[2][MANY];
    int sums[MANY], index;
    int sent = rank;
    int got = -1;
    for (int turn = 0; turn < 30; turn++) {
        MPI_Request q[MANY + 2];
        MPI_Comm dup;
        MPI_Comm_dup(comm, &dup);
        for (int i = 0; i < MANY; i++) {
            MPI_Iallreduce(&size, &sums[i], 1, MPI_INT, MPI_SUM, dup, &q[i]);
            MPI_Cancel(&q[i]); /* has no effect */
        }
        MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 0, comm,
                  &q[MANY]);
        MPI_Isend(&sent, 1, MPI_INT, (rank + 1) % size, 0, comm, &q[MANY + 1]);
        MPI_Comm_free(&dup);
        do {
            MPI_Waitany(MANY + 2, q, &index, MPI_STATUS_IGNORE);
        } while (index != MPI_UNDEFINED);
        for (int i = 0; i < MANY; i++) {
            EXPECT(sums[i] == size * size, "sum %d", sums[i]);
        }
        EXPECT(got == (rank + size - 1) % size, "got %d", got);
        MPI_Ibcast((void *)kept[turn % 2], MANY, MPI_INT, 0, comm, &q[0]);
        MPI_Request_free(&q[0]);
        EXPECT(q[0] == MPI_REQUEST_NULL, "a request was freed and is left");
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t thread;
    MPI_Comm comms[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    if (pthread_create(&thread, NULL, use, &comms[1]) == 0) {
        (void)use(&comms[0]);
        (void)pthread_join(thread, NULL);
    }
    MPI_Comm_free(&comms[0]);
    MPI_Comm_free(&comms[1]);
}

int main(int argc, char **argv)
{
    /* the target of a call that MPI_Finalize completes */
    static int left[8][2];
    int level;
    MPI_Datatype spread;
    MPI_Request q;
    alarm(500);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    dropin_test = "functions";
    test_functions();
    test_a_function_that_commutes();
    test_gaps();
    dropin_test = "threads";
    test_threads();
    MPI_Type_create_resized(MPI_INT, 0, sizeof left[0], &spread);
    MPI_Type_commit(&spread);
    MPI_Iallgather(&size, 1, MPI_INT, left, 1, spread, MPI_COMM_WORLD, &q);
    int code = MPI_Finalize();
    EXPECT(size == 1 || left[size - 1][0] == size, "Finalize: %d, %d",
           left[size - 1][0], left[size - 1][1]);
    return code == MPI_SUCCESS && dropin_failures == 0 ? 0 : 1;
}
