#include "bench/libnbc.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Values of the variable. */
enum { DEFAULT = 0, RING = 1 };

static const char variable[] = "coll_libnbc_iallreduce_algorithm";

/* Finds the variable, unless it is not an int that may be set. */
static bool find(int *index_out)
{
    char name[128];
    int length = sizeof(name);
    int verbosity = 0;
    int binding = 0;
    int scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_T_enum values = MPI_T_ENUM_NULL;
    if (MPI_T_cvar_get_index(variable, index_out) != MPI_SUCCESS ||
        MPI_T_cvar_get_info(*index_out, name, &length, &verbosity, &type,
                            &values, NULL, NULL, &binding,
                            &scope) != MPI_SUCCESS) {
        return false;
    }
    return type == MPI_INT && binding == MPI_T_BIND_NO_OBJECT &&
           scope != MPI_T_SCOPE_CONSTANT && scope != MPI_T_SCOPE_READONLY;
}

static bool write_value(int value)
{
    int index = 0;
    int count = 0;
    int read = -1;
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    if (!find(&index) ||
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS) {
        return false;
    }
    bool written = count == 1 &&
                   MPI_T_cvar_write(handle, &value) == MPI_SUCCESS &&
                   MPI_T_cvar_read(handle, &read) == MPI_SUCCESS;
    (void)MPI_T_cvar_handle_free(&handle);
    return written && read == value;
}

static bool try_value(int value)
{
    int level = 0;
    if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
        return false;
    }
    bool written = write_value(value);
    (void)MPI_T_finalize();
    return written;
}

bool libnbc_can_choose(void)
{
    return try_value(DEFAULT);
}

void libnbc_choose_ring(bool ring)
{
    if (!try_value(ring ? RING : DEFAULT)) {
        (void)fprintf(stderr, "baton-bench: MPI_T can't set %s\n", variable);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
}
