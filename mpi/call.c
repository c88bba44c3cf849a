#include "mpi/call.h"

#define TRAITS(KIND, name, create, source, target, traits)                     \
    {#name, BATON__MPI_##source, BATON__MPI_##target, traits},
#define REDUCES BATON__MPI_REDUCES
#define ROOTED  BATON__MPI_ROOTED
#define SOURCE  BATON__MPI_SOURCE
#define TARGET  BATON__MPI_TARGET
#define LOCAL   BATON__MPI_LOCAL
#define PRIVATE BATON__MPI_PRIVATE
const baton__mpi_traits_t baton__mpi_traits[BATON__MPI_KINDS] = {
    BATON__MPI_LIST(TRAITS)};
