# libbaton_mpi, which interposes MPI's symbols by LD_PRELOAD, and baton-mpirun; see
# docs/mpi.md. The top CMakeLists.txt includes this file after the library.

file(GLOB mpi_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/mpi/*.c)
set(mpi_exports ${PROJECT_SOURCE_DIR}/mpi/mpi.map)
add_library(baton_mpi SHARED ${mpi_sources})
target_include_directories(baton_mpi PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(baton_mpi PRIVATE
    baton_mpi_group $<BUILD_INTERFACE:baton_flags> Threads::Threads
    ${CMAKE_DL_LIBS})
# The library is loaded at program start, so thread-local variables can have the
# fastest model: MPI's progress reads them at each call.
target_compile_options(baton_mpi PRIVATE -ftls-model=initial-exec)
target_link_options(baton_mpi PRIVATE LINKER:--version-script=${mpi_exports})
set_target_properties(baton_mpi PROPERTIES
    LINK_DEPENDS ${mpi_exports}
    LINKER_LANGUAGE C
    INSTALL_RPATH "$ORIGIN") # libbaton is beside it
install(TARGETS baton_mpi)

set(baton_mpirun ${PROJECT_BINARY_DIR}/baton-mpirun)
configure_file(${PROJECT_SOURCE_DIR}/mpi/baton-mpirun.in ${baton_mpirun} @ONLY
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
        GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
install(PROGRAMS ${baton_mpirun} DESTINATION ${CMAKE_INSTALL_BINDIR})
