# The tests that run under mpirun, and on pretended hosts. Each start of it takes
# 1 to 3 seconds. Every number of ranks is tested in one process (unit/, sim/);
# here it is processes that count: one alone, a pair, an odd number, and more of
# them than processors.
set(default_ranks 1 2 3 5 8)
set(mpi_errors_ranks 1 3)
set(mpi_sparse_ranks 2 3 6)
set(mpi_recovery_ranks 1 3 7)
set(mpi_levels_ranks 1 3)
set(mpi_memory_ranks 1 2 4)
set(mpi_forbidden_ranks "") # it has an argument; see below
set(mpi_cable_ranks 4)
set(mpi_conformance_ranks 1 3 8)
set(mpi_dense_ranks 1 2 3 5 8)
set(mpi_staged_ranks 2 3)
file(GLOB sources CONFIGURE_DEPENDS mpi/mpi_*.c)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    test_program(${name} mpi)
    mpi_entries(${name} ${name} mpi)
endforeach()

# All that is right passes its verification too.
foreach(name mpi_dense mpi_partial mpi_sparse)
    set(${name}_verified_ranks 3)
    set(${name}_verified_env BATON_VERIFY=1)
    mpi_entries(${name}_verified ${name} mpi)
endforeach()

# Where ranks of a host share less: no buffers, no reading of each other's
# memory, neither, or nothing; with the smallest window; and where scratch is
# ordinary memory, or soon is.
set(buffers_env BATON_SHM_BUFFERS=0)
set(cma_env BATON_CMA=0)
set(rings_env BATON_SHM_BUFFERS=0 BATON_CMA=0)
set(shm_env BATON_SHM=0)
set(window_env BATON_WINDOW=2)
set(memory_env BATON_SHM_MEMORY=0)
set(little_env BATON_SHM_MEMORY=1 BATON_CMA=0)
set(mpi_conformance_lacks shm memory little) # the others: test_conformance
set(mpi_dense_lacks buffers rings shm window memory)
set(mpi_memory_lacks cma shm memory little)
foreach(name mpi_conformance mpi_dense mpi_memory)
    foreach(lack ${${name}_lacks})
        set(${name}_no_${lack}_ranks 3)
        set(${name}_no_${lack}_env ${${lack}_env})
        mpi_entries(${name}_no_${lack} ${name} mpi)
    endforeach()
endforeach()
foreach(name mpi_partial mpi_recovery mpi_errors mpi_staged)
    set(${name}_no_shm_ranks 4)
    set(${name}_no_shm_env ${shm_env})
    mpi_entries(${name}_no_shm ${name} mpi)
endforeach()

# On pretended hosts of this machine; skipped, with a reason, where namespaces
# are forbidden.
set(hosts_mpi_recovery_args 100) # rounds; those of one host have 1000
set(hosts ${PROJECT_SOURCE_DIR}/scripts/hosts.sh)
function(hosts_entry name)
    add_test(NAME ${name} COMMAND ${ARGN})
    describe_test(${name} hosts hosts)
    set_tests_properties(${name} PROPERTIES
        RUN_SERIAL ON SKIP_RETURN_CODE 125)
endfunction()
function(hosts_entries count ranks)
    foreach(name ${ARGN})
        hosts_entry(${name}.hosts${count}.np${ranks} ${hosts} ${count}
            ${MPIEXEC_EXECUTABLE} -np ${ranks} $<TARGET_FILE:${name}>
            ${hosts_${name}_args})
    endforeach()
endfunction()
hosts_entries(2 5 mpi_conformance mpi_dense mpi_memory mpi_partial
              mpi_errors mpi_levels mpi_recovery)
hosts_entries(3 3 mpi_conformance mpi_dense mpi_recovery)
# BATON_VERIFY is set on the first host alone.
hosts_entry(mpi_dense.hosts2.verified env HOSTS_BARE=1 BATON_VERIFY=1
    ${hosts} 2 ${MPIEXEC_EXECUTABLE} -np 3 $<TARGET_FILE:mpi_dense>)
foreach(how soon never kill)
    hosts_entry(hosts_cable.${how} ${hosts} 2
        ${CMAKE_CURRENT_SOURCE_DIR}/mpi/cable.sh ${how}
        $<TARGET_FILE:mpi_cable> ${MPIEXEC_EXECUTABLE} -np 4)
endforeach()

# Without a progress thread nobody makes good what a wait does not see.
set(mpi_dense_manual_ranks 1 3 8)
set(mpi_dense_manual_env BATON_PROGRESS=manual)
mpi_entries(mpi_dense_manual mpi_dense mpi)

# A process initialises MPI once; and a rank that is killed.
foreach(level single funneled serialized)
    add_test(NAME mpi_levels.${level}
        COMMAND ${mpi_run} -np 2 $<TARGET_FILE:mpi_levels> ${level})
    describe_test(mpi_levels.${level} mpi_levels mpi)
    set_tests_properties(mpi_levels.${level} PROPERTIES RUN_SERIAL ON)
endforeach()
foreach(ban cma absent shm memfd)
    add_test(NAME mpi_forbidden.${ban}
        COMMAND ${mpi_run} -np 3 $<TARGET_FILE:mpi_forbidden> ${ban})
    describe_test(mpi_forbidden.${ban} mpi_forbidden mpi)
    set_tests_properties(mpi_forbidden.${ban} PROPERTIES
        RUN_SERIAL ON SKIP_RETURN_CODE 125)
endforeach()
add_test(NAME mpi_kill
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi/cable.sh one
            $<TARGET_FILE:mpi_cable> ${mpi_run} -np 4)
describe_test(mpi_kill mpi_kill mpi)
set_tests_properties(mpi_kill PROPERTIES RUN_SERIAL ON)

if(BATON_BUILD_MICROBENCH)
    add_test(NAME info_command
        COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi/info_command.sh
                $<TARGET_FILE:baton-info> ${mpi_run})
    describe_test(info_command info_command mpi)
    set_tests_properties(info_command PROPERTIES RUN_SERIAL ON)

    set(bench_command_timeout 300) # with a sanitizer; else 10 seconds
    set(bench_command_ranks 2 3)
    if(BATON_SANITIZE)
        set(bench_command_ranks 2) # each start of MPI takes seconds
    endif()
    foreach(ranks ${bench_command_ranks})
        set(name bench_command.np${ranks})
        add_test(NAME ${name}
            COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi/bench_command.sh
                    $<TARGET_FILE:baton-bench> ${CMAKE_COMMAND} ${ranks}
                    ${mpi_run})
        describe_test(${name} bench_command mpi)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endforeach()
endif()
