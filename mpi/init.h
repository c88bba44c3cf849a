/* Opens the library in MPI_Init, and closes it in MPI_Finalize. */
#pragma once

/* Calls MPI_Init_thread, and opens the library. If Baton's thread may call MPI,
   as it does if ranks are on several hosts, MPI is initialised with
   MPI_THREAD_MULTIPLE. `reported` gets the level that the application has asked
   for (`required`), or MPI's level if that is lower. */
int baton__mpi_init(int *argc, char ***argv, int required, int *reported);

/* Waits for outstanding operations, for at most BATON_DESTROY_MS, and closes
   the library. Called before MPI_Finalize. */
void baton__mpi_shut_down(void);
