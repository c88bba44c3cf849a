#include "mpi/call.h"

#define TRAITS(KIND, Name, name_, create_, parameters, from, to, ...)          \
    {.name = #Name,                                                            \
     .create = baton_##create_##_create,                                       \
     .source = BATON__MPI_##from,                                              \
     .target = BATON__MPI_##to,                                                \
     __VA_ARGS__},
const baton__mpi_traits_t baton__mpi_traits[BATON__MPI_KINDS] = {
    BATON__MPI_LIST(TRAITS)};
