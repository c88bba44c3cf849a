# Programs that only know MPI, run with libbaton_mpi in front of MPI. It is
# loaded by LD_PRELOAD. If a sanitizer's library must come first, and for
# mutants.sh (BATON_LINKED), it is linked in front of MPI instead.
set(dropin_ranks 1 2 3 5 8)
set(dropin_run ${baton_mpirun} --oversubscribe --blocking --from 1)
if(BATON_SANITIZE)
    set(dropin_ranks 3)
    set(dropin_run ${mpi_run} -x BATON_MPI_BLOCKING=1 -x BATON_MPI_FROM=1)
endif()

function(dropin_entry name ranks)
    add_test(NAME ${name}.np${ranks} COMMAND ${dropin_run} -np ${ranks} ${ARGN})
    describe_test(${name}.np${ranks} ${name} mpi)
    if(ranks GREATER 3)
        set_tests_properties(${name}.np${ranks} PROPERTIES RUN_SERIAL ON)
    endif()
endfunction()

file(GLOB sources CONFIGURE_DEPENDS dropin/dropin_*.c)
set(dropin_log_ranks "") # by its arguments, below
find_library(MPI_FORTRAN_LIBRARY mpi_mpifh)
set(dropin_fortran_needs ${MPI_FORTRAN_LIBRARY})
set(dropin_fortran_ranks 3)
set(dropin_threads_ranks 3 4)
if(NOT MPI_FORTRAN_LIBRARY)
    list(FILTER sources EXCLUDE REGEX "_fortran[.]c$")
endif()
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE
        $<$<BOOL:${BATON_SANITIZE}${BATON_LINKED}>:baton_mpi>
        ${${name}_needs} ${mpi_library} ${CMAKE_DL_LIBS} baton_flags test_flags)
    set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
    if(NOT DEFINED ${name}_ranks)
        set(${name}_ranks ${dropin_ranks})
    endif()
    foreach(ranks ${${name}_ranks})
        dropin_entry(${name} ${ranks} $<TARGET_FILE:${name}>)
    endforeach()
endforeach()

if(NOT BATON_SANITIZE) # without a thread, a rank in MPI answers its peers
    # (On few ranks, and without the option --from, libbaton_mpi leaves short
    # broadcasts to MPI, including wrong ones.)
    foreach(ranks 3 5)
        add_test(NAME dropin_mixed_nothread.np${ranks} COMMAND ${baton_mpirun}
            --no-thread --oversubscribe -np ${ranks} $<TARGET_FILE:dropin_mixed>)
        describe_test(dropin_mixed_nothread.np${ranks} dropin_mixed mpi)
        set_tests_properties(dropin_mixed_nothread.np${ranks} PROPERTIES RUN_SERIAL ON)
    endforeach()
    add_test(NAME dropin_mixed.huge COMMAND ${dropin_run} -np 2
        $<TARGET_FILE:dropin_mixed> huge)
    describe_test(dropin_mixed.huge dropin_mixed mpi)
    set_tests_properties(dropin_mixed.huge PROPERTIES RUN_SERIAL ON)
endif()

# Checks the log that libbaton_mpi prints.
if(NOT BATON_SANITIZE)
    set(dropin_log_env BATON_MPI_FROMM=7 BATON_MPI_BLOCKING=2)
    set(taken "baton_mpi: unknown variable BATON_MPI_FROMM has no effect. there are "
        "BATON_MPI_FROM, _ONLY, _BLOCKING, _THREAD and _LOG"
        ".*baton_mpi: \"allreduc\" in BATON_MPI_ONLY is not the name of a collective. "
        "a valid list is allreduce,bcast,alltoallv"
        ".*baton_mpi: BATON_MPI_BLOCKING is \"2\", must be a number from 0 to 1. 0 is used"
        ".*the first calls on the communicator.: 1 Ibarrier.*taken by Baton: 1 Iallreduce. "
        "left to MPI .MPI needs only one round of short messages.: 1 Ibcast. saved [0-9]+ us: 4 bytes, "
        "[0-9]+ us in flight, [0-9]+ us of them in MPI_Wait.*all is well")
    string(CONCAT taken ${taken})
    set(driven "taken by Baton: 1 Iallreduce.*all is well")
    set(left "all calls [a-z]* left to MPI")
    set(request "${left}: the communicator and the functions of a request .*all is well")
    set(communicator "${left}: the context id of a communicator .*all is well")
    set(private "all is well.*${left}: .*MPI_Init in libmpi itself")
    set(spawned "some ranks belong to another MPI_COMM_WORLD.: 1 Ibcast, .*is well")
    set(driven_option --no-thread)
    foreach(which taken driven request communicator private spawned)
        add_test(NAME dropin_log.${which} COMMAND ${baton_mpirun} --log
            ${${which}_option} --only "allreduc, ALLREDUCE,bcast,barrier" --oversubscribe -np 2
            $<TARGET_FILE:dropin_log> ${which})
        describe_test(dropin_log.${which} dropin_log mpi)
        set_tests_properties(dropin_log.${which} PROPERTIES
            PASS_REGULAR_EXPRESSION "${${which}}")
    endforeach()
endif()

# The same through mpi4py, if Debian's package is installed (scripts/deps.sh
# --ci).
execute_process(COMMAND /usr/bin/python3 -c "import mpi4py"
    RESULT_VARIABLE no_mpi4py ERROR_QUIET)
if(no_mpi4py EQUAL 0 AND NOT BATON_SANITIZE)
    foreach(ranks 2 5)
        dropin_entry(dropin_mpi4py ${ranks} /usr/bin/python3
            ${CMAKE_CURRENT_SOURCE_DIR}/dropin/dropin_mpi4py.py)
    endforeach()
endif()

# Debian's hpcc and scalapack-mpi-test, where they are installed.
find_program(HPCC hpcc)
file(GLOB scalapack /usr/lib/*/scalapack/openmpi-tests/xdlu)
if(HPCC AND scalapack AND NOT BATON_SANITIZE)
    add_test(NAME dropin_packages COMMAND
        ${CMAKE_CURRENT_SOURCE_DIR}/dropin/packages.sh ${baton_mpirun})
    describe_test(dropin_packages dropin_packages mpi)
    set_tests_properties(dropin_packages PROPERTIES RUN_SERIAL ON)
endif()

# A program of MPICH, if Debian's package is installed beside Open MPI.
find_path(MPICH_INCLUDE mpi.h PATH_SUFFIXES mpich)
find_library(MPICH_LIBRARY mpich)
find_library(MPICH_FORTRAN_LIBRARY mpichfort)
find_program(MPICH_RUN mpirun.mpich)
if(MPICH_INCLUDE AND MPICH_LIBRARY AND MPICH_FORTRAN_LIBRARY AND MPICH_RUN
   AND NOT BATON_SANITIZE)
    add_executable(other_mpi dropin/other_mpi.c)
    target_include_directories(other_mpi PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_include_directories(other_mpi SYSTEM PRIVATE ${MPICH_INCLUDE})
    target_link_libraries(other_mpi PRIVATE ${MPICH_LIBRARY}
        ${MPICH_FORTRAN_LIBRARY} $<TARGET_FILE:baton_mpi_group>
        $<TARGET_FILE:baton> baton_flags)
    add_dependencies(other_mpi baton_mpi_group)
    add_test(NAME dropin_other_mpi COMMAND ${MPICH_RUN} -np 2
        -genv LD_PRELOAD $<TARGET_FILE:baton_mpi> $<TARGET_FILE:other_mpi>)
    describe_test(dropin_other_mpi dropin_other_mpi mpi)
    set_tests_properties(dropin_other_mpi PROPERTIES PASS_REGULAR_EXPRESSION
        "all calls are left to MPI: this MPI is \"MPICH[^\n]*\n0 failures")
endif()

# Between two hosts.
if(NOT BATON_SANITIZE)
    hosts_entry(dropin_threads.hosts2.np3 ${hosts} 2 ${dropin_run} -np 3
        $<TARGET_FILE:dropin_threads>)
    hosts_entry(dropin_mixed.hosts2.np4 ${hosts} 2 ${dropin_run} -np 4
        $<TARGET_FILE:dropin_mixed>)
endif()
