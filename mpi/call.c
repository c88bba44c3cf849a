#include "mpi/call.h"

#define baton_bcast_create                baton_broadcast_create
#define baton_reduce_scatter_block_create baton_reduce_scatter_create
#define TRAITS(KIND, Name, name_, of, parameters, ...)                         \
    {.name = #Name,                                                            \
     .collective = BATON_COLLECTIVE_##of,                                      \
     .create = baton_##name_##_create,                                         \
     __VA_ARGS__},
const baton__mpi_traits_t baton__mpi_traits[BATON__MPI_KINDS] = {
    BATON__MPI_LIST(TRAITS)};

baton_collective_facts_t baton__mpi_facts[BATON__MPI_KINDS];

void baton__mpi_facts_open(void)
{
    for (int k = 0; k < BATON__MPI_KINDS; k++) {
        baton__mpi_facts[k] =
            *baton_collective_facts(baton__mpi_traits[k].collective);
    }
}
