#include "bench/libnbc.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Values of the variable. */
enum { DEFAULT = 0, RING = 1 };

static const char variable[] = "coll_libnbc_iallreduce_algorithm";

typedef struct session {
    bool open;
    bool settable;
    MPI_T_cvar_handle handle; /* or MPI_T_CVAR_HANDLE_NULL */
} session_t;

static const session_t closed = {.handle = MPI_T_CVAR_HANDLE_NULL};
static session_t session = {.handle = MPI_T_CVAR_HANDLE_NULL};

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
    int read = -1;
    return MPI_T_cvar_write(session.handle, &value) == MPI_SUCCESS &&
           MPI_T_cvar_read(session.handle, &read) == MPI_SUCCESS &&
           read == value;
}

/* The variable's handle, if it is of one int. */
static bool get_handle(void)
{
    int index = 0;
    int count = 0;
    return find(&index) &&
           MPI_T_cvar_handle_alloc(index, NULL, &session.handle, &count) ==
               MPI_SUCCESS &&
           count == 1;
}

bool libnbc_can_choose(void)
{
    int level = 0;
    if (!session.open) {
        session.open =
            MPI_T_init_thread(MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS;
        session.settable = session.open && get_handle() && write_value(DEFAULT);
    }
    return session.settable;
}

void libnbc_choose_ring(bool ring)
{
    if (!libnbc_can_choose() || !write_value(ring ? RING : DEFAULT)) {
        (void)fprintf(stderr, "baton-bench: MPI_T can't set %s\n", variable);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
}

void libnbc_close(void)
{
    if (session.handle != MPI_T_CVAR_HANDLE_NULL) {
        (void)MPI_T_cvar_handle_free(&session.handle);
    }
    if (session.open) {
        (void)MPI_T_finalize();
    }
    session = closed;
}
