/* Opens the library in MPI_Init, and closes it in MPI_Finalize. */
#pragma once

/* MPI_Init_thread, with a level at which Baton's thread may call MPI if it
   will, as it does if ranks are on several hosts. *reported is the level that
   the application asked for, or MPI's if that is lower. */
int baton__mpi_init(int *argc, char ***argv, int required, int *reported);

/* Waits for outstanding operations, for at most BATON_DESTROY_MS, and closes
   the engine. MPI_Finalize follows. */
void baton__mpi_shut_down(void);
