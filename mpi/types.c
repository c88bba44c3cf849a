#include "mpi/types.h"

#include "mpi/runtime.h"

#include <baton/build.h>
#include <limits.h>

/* Classes of types. MPI allows the same operations for all types of a class;
   the table `ops` lists them. */
typedef enum { INTEGER, FINT, FLOATING, COMPLEX, LOGICAL, BYTES, PAIR } class_t;

typedef struct type_row {
    MPI_Datatype type;
    baton_dtype_t dtype;
    class_t class;
} type_row_t;

/* The types of integers of 1, 2, 4 and 8 bytes follow one another. */
#define SIZED(first, type) (first + __builtin_ctz(sizeof(type)))
#define INTEGERS(as_signed, as_unsigned, type)                                 \
    {as_signed, SIZED(BATON_I8, type), INTEGER},                               \
    {                                                                          \
        as_unsigned, SIZED(BATON_U8, type), INTEGER                            \
    }

/* Frequent types come first, so that the search finds them early. */
static const type_row_t types[] = {
    {MPI_DOUBLE, BATON_F64, FLOATING},
    {MPI_FLOAT, BATON_F32, FLOATING},
    INTEGERS(MPI_INT, MPI_UNSIGNED, int),
    INTEGERS(MPI_LONG, MPI_UNSIGNED_LONG, long),
    INTEGERS(MPI_LONG_LONG, MPI_UNSIGNED_LONG_LONG, long long),
    INTEGERS(MPI_SHORT, MPI_UNSIGNED_SHORT, short),
    INTEGERS(MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, char),
    INTEGERS(MPI_INT8_T, MPI_UINT8_T, int8_t),
    INTEGERS(MPI_INT16_T, MPI_UINT16_T, int16_t),
    INTEGERS(MPI_INT32_T, MPI_UINT32_T, int32_t),
    INTEGERS(MPI_INT64_T, MPI_UINT64_T, int64_t),
    {MPI_AINT, SIZED(BATON_I8, MPI_Aint), INTEGER},
    {MPI_OFFSET, SIZED(BATON_I8, MPI_Offset), INTEGER},
    {MPI_COUNT, SIZED(BATON_I8, MPI_Count), INTEGER},
    {MPI_BYTE, BATON_U8, BYTES},
    {MPI_C_BOOL, BATON_BOOL, LOGICAL},
    {MPI_C_FLOAT_COMPLEX, BATON_C64, COMPLEX},
    {MPI_C_DOUBLE_COMPLEX, BATON_C128, COMPLEX},
    {MPI_SHORT_INT, BATON_I16_I32, PAIR},
    {MPI_2INT, BATON_I32_I32, PAIR},
    {MPI_LONG_INT, BATON_I64_I32, PAIR},
    {MPI_FLOAT_INT, BATON_F32_I32, PAIR},
    {MPI_DOUBLE_INT, BATON_F64_I32, PAIR},
    {MPI_INTEGER, BATON_I32, FINT},
    {MPI_REAL, BATON_F32, FLOATING},
    {MPI_DOUBLE_PRECISION, BATON_F64, FLOATING},
    {MPI_LOGICAL, BATON_I32, LOGICAL},
    {MPI_COMPLEX, BATON_C64, COMPLEX},
    {MPI_DOUBLE_COMPLEX, BATON_C128, COMPLEX},
    {MPI_INTEGER1, BATON_I8, FINT},
    {MPI_INTEGER2, BATON_I16, FINT},
    {MPI_INTEGER4, BATON_I32, FINT},
    {MPI_INTEGER8, BATON_I64, FINT},
    {MPI_REAL4, BATON_F32, FLOATING},
    {MPI_REAL8, BATON_F64, FLOATING},
};
enum { TYPES = sizeof types / sizeof *types };

typedef struct op_row {
    MPI_Op op;
    const baton_op_t *found;
    /* The classes of types that the operation allows, each as 1u << class. */
    unsigned classes;
} op_row_t;

#define ARITHMETIC (1u << INTEGER | 1u << FINT | 1u << FLOATING)
#define LOGICALS   (1u << INTEGER | 1u << LOGICAL)
#define BITWISE    (1u << INTEGER | 1u << FINT | 1u << BYTES)

static const op_row_t ops[] = {
    {MPI_SUM, BATON_SUM, ARITHMETIC | 1u << COMPLEX},
    {MPI_MAX, BATON_MAX, ARITHMETIC},
    {MPI_MIN, BATON_MIN, ARITHMETIC},
    {MPI_PROD, BATON_PROD, ARITHMETIC | 1u << COMPLEX},
    {MPI_LAND, BATON_LAND, LOGICALS},
    {MPI_LOR, BATON_LOR, LOGICALS},
    {MPI_LXOR, BATON_LXOR, LOGICALS},
    {MPI_BAND, BATON_BAND, BITWISE},
    {MPI_BOR, BATON_BOR, BITWISE},
    {MPI_BXOR, BATON_BXOR, BITWISE},
    {MPI_MINLOC, BATON_MINLOC, 1u << PAIR},
    {MPI_MAXLOC, BATON_MAXLOC, 1u << PAIR},
};
enum { OPS = sizeof ops / sizeof *ops };

bool baton__mpi_reduction(MPI_Datatype type, MPI_Op op, baton_dtype_t *dtype,
                          const baton_op_t **found)
{
    const type_row_t *t = types;
    const op_row_t *o = ops;
    while (t < types + TYPES && t->type != type) {
        t++;
    }
    while (o < ops + OPS && o->op != op) {
        o++;
    }
    if (t == types + TYPES || o == ops + OPS ||
        (o->classes >> t->class & 1u) == 0 ||
        !baton_op_takes(o->found, t->dtype)) {
        return false;
    }
    *dtype = t->dtype;
    *found = o->found;
    return true;
}

/* ---- memory -------------------------------------------------------------- */

size_t baton__mpi_type_bytes(MPI_Datatype type)
{
    MPI_Count bytes = 0;
    (void)PMPI_Type_size_x(type, &bytes);
    return bytes > 0 ? (size_t)bytes : 0;
}

static int combiner_of(MPI_Datatype type)
{
    int integers;
    int addresses;
    int inner;
    int combiner = MPI_COMBINER_NAMED;
    (void)PMPI_Type_get_envelope(type, &integers, &addresses, &inner,
                                 &combiner);
    return combiner;
}

bool baton__mpi_is_named(MPI_Datatype type)
{
    return combiner_of(type) == MPI_COMBINER_NAMED;
}

/* A derived type is plain if it is a copy of a plain type, or several elements
   of a plain type in a row. Data of all other derived types are packed. */
bool baton__mpi_is_plain(MPI_Datatype type)
{
    const int combiner = combiner_of(type);
    if (combiner == MPI_COMBINER_NAMED) {
        MPI_Aint low;
        MPI_Aint extent;
        (void)PMPI_Type_get_extent(type, &low, &extent);
        return low == 0 && (size_t)extent == baton__mpi_type_bytes(type);
    }
    if (combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS) {
        return false;
    }
    int count;
    MPI_Aint address;
    MPI_Datatype inner;
    if (PMPI_Type_get_contents(type, combiner == MPI_COMBINER_CONTIGUOUS, 0, 1,
                               &count, &address, &inner) != MPI_SUCCESS) {
        return false;
    }
    bool plain = baton__mpi_is_plain(inner);
    if (!baton__mpi_is_named(inner)) {
        (void)PMPI_Type_free(&inner);
    }
    return plain;
}

/* Packs an element that has more bytes than an int can count. With `back`,
   unpacks it. MPI_Pack can't do this, because it takes the number of bytes as
   an int. So a collective on the communicator of this process alone copies the
   element from one type to the other. */
static int pack_long(void *place, MPI_Datatype type, size_t size, char *bytes,
                     bool back)
{
    const size_t part = 1 << 30;
    const int counts[2] = {(int)(size / part), (int)(size % part)};
    const MPI_Aint at[2] = {0, (MPI_Aint)(size - size % part)};
    MPI_Datatype parts[2] = {MPI_BYTE, MPI_BYTE};
    /* If the type can't be made, `row` stays MPI_DATATYPE_NULL, so that the
       collective below fails. */
    MPI_Datatype row = MPI_DATATYPE_NULL;
    (void)PMPI_Type_contiguous((int)part, MPI_BYTE, &parts[0]);
    (void)PMPI_Type_create_struct(2, counts, at, parts, &row);
    (void)PMPI_Type_commit(&row);
    MPI_Comm self = baton__mpi.self;
    int code = back ? PMPI_Allgather(bytes, 1, row, place, 1, type, self)
                    : PMPI_Allgather(place, 1, type, bytes, 1, row, self);
    (void)PMPI_Type_free(&parts[0]);
    (void)PMPI_Type_free(&row);
    return code;
}

int baton__mpi_pack(const void *memory, int count, MPI_Datatype type,
                    char *bytes, bool back)
{
    size_t size = baton__mpi_type_bytes(type);
    int most = size > 0 && size <= INT_MAX ? (int)(INT_MAX / size) : 1;
    int code = MPI_SUCCESS;
    MPI_Aint low;
    MPI_Aint extent;
    (void)PMPI_Type_get_extent(type, &low, &extent);
    for (int i = 0, some; i < count && code == MPI_SUCCESS; i += some) {
        some = count - i < most ? count - i : most;
        void *place = (void *)((MPI_Aint)memory + (MPI_Aint)i * extent);
        size_t length = (size_t)some * size;
        int at = 0;
        if (length > INT_MAX) {
            code = pack_long(place, type, size, bytes, back);
        } else if (back) {
            code = PMPI_Unpack(bytes, (int)length, &at, place, some, type,
                               baton__mpi.self);
        } else {
            code = PMPI_Pack(place, some, type, bytes, (int)length, &at,
                             baton__mpi.self);
        }
        bytes += length;
    }
    return code;
}
