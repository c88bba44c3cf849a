#include "mpi/persistent.h"

enum { TAGS = 1 << 20 }; /* Open MPI allows tags up to 2^31 - 1 */

/* Copies the error handler of the application's communicator to the
   communicator of persistent requests. Called before each start, since the
   handler may change. */
static int copy_handler(const baton__mpi_comm_t *comm)
{
    MPI_Errhandler handler;
    if (comm->dead) {
        return MPI_SUCCESS;
    }
    int code = PMPI_Comm_get_errhandler(comm->handle, &handler);
    if (code == MPI_SUCCESS) {
        code = PMPI_Comm_set_errhandler(comm->self, handler);
        (void)PMPI_Errhandler_free(&handler);
    }
    return code;
}

int baton__mpi_op_persist(baton__mpi_op_t *op)
{
    static _Atomic unsigned tags;
    op->tag =
        (int)(atomic_fetch_add_explicit(&tags, 1, memory_order_relaxed) % TAGS);
    int code = MPI_SUCCESS;
    if (op->comm->self == MPI_COMM_NULL) {
        code = PMPI_Comm_split(baton__mpi.self, 0, 0, &op->comm->self);
    }
    if (code == MPI_SUCCESS) {
        code = PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, op->tag, op->comm->self,
                              &op->request);
    }
    if (code == MPI_SUCCESS) {
        op->entry->own = op;
        op->entry->retained = true;
        atomic_store_explicit(&op->ended, true, memory_order_relaxed);
        atomic_fetch_add_explicit(&op->comm->users, 1, memory_order_relaxed);
        baton__mpi_know(&op->known, op->request);
    }
    return code;
}

int baton__mpi_start(const MPI_Request *request)
{
    baton__mpi_op_t *op = request != NULL && baton__mpi_is_on()
                              ? (void *)baton__mpi_known(*request, false)
                              : NULL;
    if (op == NULL) {
        return BATON__MPI_LEFT;
    }
    int code = copy_handler(op->comm);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = baton__mpi_vectors_pack(&op->vectors);
    if (code != MPI_SUCCESS) {
        /* The application may have freed op->comm->handle, so the error goes to
           the error handler of op->comm->self, which is the same. */
        return baton__mpi_fail(op->comm->self, code);
    }
    code = PMPI_Start(&op->request);
    if (code == MPI_SUCCESS) {
        baton__mpi_op_account(op);
        baton__mpi_op_post(op);
    }
    return code;
}

int baton__mpi_request_free(MPI_Request *request)
{
    if (request == NULL || !baton__mpi_is_on()) {
        return BATON__MPI_LEFT;
    }
    baton__mpi_op_t *op = (void *)baton__mpi_known(*request, true);
    if (op == NULL && baton__mpi_is_first(*request, true)) {
        *request = MPI_REQUEST_NULL;
        return MPI_SUCCESS;
    }
    if (op == NULL) {
        return BATON__MPI_LEFT;
    }
    baton__mpi_comm_t *comm = op->comm;
    baton__mpi_op_account(op);
    int code = PMPI_Request_free(request);
    /* Pairs with the load in baton__mpi_entries_reap(), which frees the entry
       together with `op`. */
    atomic_store_explicit(&op->entry->retained, false, memory_order_release);
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
    return code;
}
