/* Reductions of the program: functions that it has given to MPI_Op_create.
   Baton's thread calls them, so the program must be prepared for several
   threads. */
#include "mpi/functions.h"

#include "mpi/handles.h"
#include "mpi/runtime.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The record of an operation (MPI_Op) and its function. MPI has no call that
   returns the function of an operation. */
typedef struct known {
    baton__mpi_known_t known;
    MPI_User_function *function;
    bool commutes;
} known_t;

void baton__mpi_function_add(MPI_Op op, MPI_User_function *function,
                             bool commutes)
{
    known_t *known = malloc(sizeof *known);
    if (known != NULL) {
        *known = (known_t){.function = function, .commutes = commutes};
        baton__mpi_know(&known->known, BATON__MPI_OP(op));
    }
}

/* ---- calls --------------------------------------------------------------- */

enum { PART = 4096 }; /* bytes of the buffer for copied operands */

/* Reduces elements by a function of the program. By MPI's rules the function
   writes its result to its second operand. So `right` is first copied to the
   target, which becomes the second operand. If the target is `left`, this is
   impossible: a commutative function then gets the operands in exchanged order,
   and any other function gets a copy of `right` as its second operand, and the
   result is copied to the target. */
static void functions_reduce(void *arg, void *target, const void *left,
                             const void *right, size_t count,
                             baton_dtype_t dtype)
{
    baton__mpi_function_t *f = arg;
    bool swaps = target == left && f->op.commutative;
    bool copies = target == left && !swaps;
    char copy[PART];
    size_t most = copies ? PART / f->op.element_bytes : INT_MAX;
    for (size_t i = 0, some; i < count; i += some) {
        some = count - i < most ? count - i : most;
        size_t at = i * f->op.element_bytes;
        size_t bytes = some * f->op.element_bytes;
        char *to = copies ? copy : (char *)target + at;
        if (to != (const char *)right + at && !swaps) {
            memcpy(to, (const char *)right + at, bytes);
        }
        f->function((char *)(swaps ? right : left) + at, to, &(int){(int)some},
                    &f->type);
        if (copies) {
            memcpy((char *)target + at, copy, bytes);
        }
    }
}

/* Returns true if elements of the type have no gaps. Baton would overwrite the
   gaps. */
static bool is_solid(MPI_Datatype type, size_t bytes)
{
    MPI_Aint low;
    MPI_Aint extent;
    MPI_Aint true_low;
    MPI_Aint true_extent;
    (void)PMPI_Type_get_extent(type, &low, &extent);
    (void)PMPI_Type_get_true_extent(type, &true_low, &true_extent);
    return true_low == 0 && extent == true_extent && (size_t)extent == bytes;
}

baton__mpi_function_t *baton__mpi_function_of(MPI_Op op, MPI_Datatype type)
{
    const known_t *known =
        (const void *)baton__mpi_known(BATON__MPI_OP(op), false);
    size_t bytes = baton__mpi_type_bytes(type);
    /* The application may free `type`. */
    MPI_Datatype copy = type;
    if (!baton__mpi.functions || known == NULL || !is_solid(type, bytes) ||
        (!known->commutes && bytes > PART)) {
        return NULL;
    }
    baton__mpi_function_t *f = malloc(sizeof *f);
    if (f == NULL || (!baton__mpi_is_named(type) &&
                      PMPI_Type_dup(type, &copy) != MPI_SUCCESS)) {
        free(f);
        return NULL;
    }
    *f = (baton__mpi_function_t){.op = {.name = "a function",
                                        .reduce = functions_reduce,
                                        .arg = f,
                                        .commutative = known->commutes,
                                        .element_bytes = bytes},
                                 .function = known->function,
                                 .type = copy};
    return f;
}

void baton__mpi_function_free(baton__mpi_function_t *f)
{
    if (f != NULL) {
        if (!baton__mpi_is_named(f->type)) {
            (void)PMPI_Type_free(&f->type);
        }
        free(f);
    }
}
