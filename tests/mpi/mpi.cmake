# The tests that run under mpirun, and on emulated hosts. Each start of mpirun
# takes up to a second. Tests in one process (unit/, sim/) use every number of
# ranks. Here only the processes matter: there are two, an odd number, and more
# than there are processors. With a sanitizer each program runs once, on 3
# ranks.
set(mpi_errors_ranks 3)
set(mpi_conserve_ranks 2 6)
set(mpi_recovery_ranks 3 7)
set(mpi_create_ranks 2 3 8)
set(mpi_memory_ranks 2 4)
set(mpi_conformance_ranks 1 3 8)
set(mpi_dense_ranks 2 5 8)
set(mpi_staged_ranks 3)
set(mpi_subgroups_ranks 1 4 8)
set(mpi_forbidden_ranks "") # it has an argument, see below; as have the next four
set(mpi_cable_ranks "")
set(mpi_soak_ranks "") # scripts/soak.sh
set(mpi_survivors_ranks "")
set(mpi_late_ranks "")
if(BATON_SANITIZE)
    foreach(name mpi_memory mpi_dense mpi_conserve mpi_subgroups)
        set(${name}_ranks 3)
    endforeach()
endif()
file(GLOB sources CONFIGURE_DEPENDS mpi/mpi_*.c)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    test_program(${name} mpi)
    mpi_entries(${name} ${name} mpi)
endforeach()

# mpi_variant NAME SUFFIX RANKS [VARIABLE=value ...]
function(mpi_variant name suffix ranks)
    set(${name}_${suffix}_ranks ${ranks})
    set(${name}_${suffix}_args ${${name}_args})
    set(${name}_${suffix}_env ${ARGN})
    mpi_entries(${name}_${suffix} ${name} mpi)
endfunction()

# If ranks of a host share no memory, all messages go through MPI.
foreach(name mpi_conformance mpi_dense mpi_staged)
    mpi_variant(${name} no_shm 3 BATON_SHM=0)
endforeach()
foreach(name mpi_conserve mpi_recovery mpi_subgroups)
    mpi_variant(${name} no_shm 4 BATON_SHM=0)
endforeach()
# Ranks share only rings, or have no memory for segments, or soon have none
# left. (test_conformance tests other sizes of shared memory, over a fake MPI.)
mpi_variant(mpi_dense no_rings 3 BATON_SHM_BUFFERS=0 BATON_CMA=0)
mpi_variant(mpi_memory no_memory 3 BATON_SHM_MEMORY=0)
mpi_variant(mpi_memory no_cma 3 BATON_SHM_MEMORY=1 BATON_CMA=0)
if(NOT BATON_SANITIZE)
    # All schedules that are right also pass the verification.
    foreach(name mpi_dense mpi_conserve)
        mpi_variant(${name} verified 3 BATON_VERIFY=1)
    endforeach()
    # Without a progress thread, no other thread makes up for what a wait
    # misses.
    mpi_variant(mpi_dense manual "1;3" BATON_PROGRESS=manual)
endif()

# On emulated hosts of this machine. These tests are skipped, with a reason, if
# namespaces are forbidden.
set(hosts_mpi_recovery_args 100) # rounds; those of one host have 500
set(hosts_mpi_conserve_args 4)   # a quarter of the epochs
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
hosts_entries(2 5 mpi_conformance mpi_dense mpi_memory mpi_conserve mpi_recovery
    mpi_subgroups)
hosts_entries(3 3 mpi_conformance)
# BATON_VERIFY is set on the first host only.
hosts_entry(mpi_dense.hosts2.verified env HOSTS_BARE=1 BATON_VERIFY=1
    ${hosts} 2 ${MPIEXEC_EXECUTABLE} -np 3 $<TARGET_FILE:mpi_dense>)
foreach(how soon never stop)
    hosts_entry(hosts_cable.${how} ${hosts} 2
        ${CMAKE_CURRENT_SOURCE_DIR}/mpi/cable.sh ${how}
        $<TARGET_FILE:mpi_cable> ${MPIEXEC_EXECUTABLE} -np 4)
endforeach()

# Random worlds of three hosts, of two, and of one rank on each.
foreach(world "cut 6" "refuse 8" "reset 7" "kill 2")
    separate_arguments(world)
    list(POP_FRONT world fault seed)
    hosts_entry(hosts_cut.${fault} ${CMAKE_CURRENT_SOURCE_DIR}/mpi/cut.sh
        $<TARGET_FILE:mpi_cable> ${seed})
    set_property(TEST hosts_cut.${fault} APPEND PROPERTY ENVIRONMENT
        CUT_FAULT=${fault} CUT_MPIRUN=${MPIEXEC_EXECUTABLE})
endforeach()

# One test for each process, since a process initialises MPI only once, and
# gives up system calls for good. Also a rank that is killed.
set(serialized_env BATON_CMA=0)
add_test(NAME mpi_errors.serialized
    COMMAND ${mpi_run} -np 2 $<TARGET_FILE:mpi_errors> serialized)
describe_test(mpi_errors.serialized serialized mpi)
set(verified_env BATON_VERIFY=1)
add_test(NAME mpi_errors.verified
    COMMAND ${mpi_run} -np 3 $<TARGET_FILE:mpi_errors> verified)
describe_test(mpi_errors.verified verified mpi)
add_test(NAME mpi_errors.closed
    COMMAND ${mpi_run} -np 3 $<TARGET_FILE:mpi_errors> closed)
describe_test(mpi_errors.closed mpi_errors mpi)
hosts_entry(mpi_errors.hosts2.closed ${hosts} 2 ${MPIEXEC_EXECUTABLE} -np 3
    $<TARGET_FILE:mpi_errors> closed)
# Otherwise MPICH's UCX ends a rank whose memory it can't read.
set(mpi_forbidden_env UCX_TLS=^cma UCX_POSIX_USE_PROC_LINK=n)
foreach(ban cma pidfd late private shm memfd files)
    add_test(NAME mpi_forbidden.${ban}
        COMMAND ${mpi_run} -np 3 $<TARGET_FILE:mpi_forbidden> ${ban})
    describe_test(mpi_forbidden.${ban} mpi_forbidden mpi)
    set_tests_properties(mpi_forbidden.${ban} PROPERTIES SKIP_RETURN_CODE 125)
endforeach()
foreach(how one stop)
    add_test(NAME mpi_kill.${how}
        COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi/cable.sh ${how}
                $<TARGET_FILE:mpi_cable> ${mpi_run} -np 4)
    describe_test(mpi_kill.${how} mpi_kill mpi)
endforeach()
# A short run, with seeds that cover many cases, and without limits of time.
add_test(NAME soak COMMAND ${PROJECT_SOURCE_DIR}/scripts/soak.sh 60 24)
set(soak_env SOAK=$<TARGET_FILE:mpi_soak> SOAK_WORLDS=7 SOAK_HOSTS=1
    SOAK_SETTING=A=A SOAK_BOUND_MS=200000 SOAK_STALL_MS=200000)
describe_test(soak soak mpi)
set_tests_properties(mpi_kill.one mpi_kill.stop soak PROPERTIES RUN_SERIAL ON)

# Ranks are killed, and the others go on; see mpi_survivors.c.
set(recovery --enable-recovery)
if(mpiexec_version MATCHES "Open MPI. [5-9]")
    set(recovery --with-ft ulfm)
endif()
set(survivors ${CMAKE_CURRENT_SOURCE_DIR}/mpi/survivors.sh)
# No rank waits for a rank that ends while all close their group.
set(closing_env BATON_SHM=0 BATON_DESTROY_MS=1000000)
set(closing_linked_env ${closing_env})
set(looping_env BATON_SHM=0 BATON_PEER_TIMEOUT_MS=2000)
foreach(rounds "all_but_one 6 1 none 1 d0,3 none 5 d4" "first 4 3 0"
        "at_once 5 2 1,0,3" "twice 4 2 2 d1" "no_loss 3 3 none none"
        "partial 5 2 p1,3 p0" "partial_most 6 1 p0,2,3,4,5"
        "sparse 5 2 s1,3 s0" "sparse_most 6 1 s0 s2,3 s4,5"
        "made 16 2 h1 m1 m2 m3 m4 m5 m6 m7 m8 m9 m10 m11 m m0 m m1 m"
        "looping 3 2 l1" "closing 3 2 c1" "closing_linked 3 2 none c1")
    separate_arguments(rounds)
    list(POP_FRONT rounds name ranks left)
    add_test(NAME mpi_survivors.${name}
        COMMAND ${survivors} ${left} ${mpi_run} ${recovery} -np ${ranks}
                $<TARGET_FILE:mpi_survivors> ${rounds})
    describe_test(mpi_survivors.${name} ${name} mpi)
    set_tests_properties(mpi_survivors.${name} PROPERTIES RUN_SERIAL ON)
endforeach()
if(BATON_BUILD_EXAMPLES)
    add_test(NAME example_06
        COMMAND ${survivors} 3 ${mpi_run} ${recovery} -np 4
                $<TARGET_FILE:example_06_survivors>)
    describe_test(example_06 example_06 example)
endif()
# (The lowest and the highest live, so a living rank had no link to any of the
# dead.)
foreach(rounds "lowest 5 1 1,2,3,4" "highest 5 1 0,1,2,3" "begin 2 1 b1"
        "twice 5 2 none 1,3 d0" "made 7 6 m9" "made_first 7 6 h1")
    separate_arguments(rounds)
    list(POP_FRONT rounds name ranks left)
    hosts_entry(mpi_survivors.hosts2.${name} ${hosts} 2 ${survivors} ${left}
        ${MPIEXEC_EXECUTABLE} --oversubscribe ${recovery} -np ${ranks}
        $<TARGET_FILE:mpi_survivors> ${rounds})
endforeach()
# Groups without MPI, over UCX (support_mpi_store): mpirun only starts the ranks.
if(BATON_UCX AND BATON_UCX_INCLUDE)
    set(store ${CMAKE_CURRENT_BINARY_DIR}/store)
    file(MAKE_DIRECTORY ${store})
    set(store env BATON_X_STORE=${store})
    foreach(entry "mpi_conformance 2 5" "mpi_conformance 3 3" "mpi_dense 2 3"
            "mpi_recovery 2 5" "mpi_subgroups 2 4")
        separate_arguments(entry)
        list(POP_FRONT entry name count ranks)
        hosts_entry(${name}.hosts${count}.store.np${ranks} ${store} ${hosts} ${count}
            ${MPIEXEC_EXECUTABLE} -np ${ranks} $<TARGET_FILE:${name}>
            ${hosts_${name}_args})
    endforeach()
    foreach(rounds "highest 5 1 0,1,2,3" "twice 5 2 none 1,3 d0")
        separate_arguments(rounds)
        list(POP_FRONT rounds name ranks left)
        hosts_entry(mpi_survivors.hosts2.store.${name} ${store} ${hosts} 2
            ${survivors} ${left} ${MPIEXEC_EXECUTABLE} --oversubscribe ${recovery}
            -np ${ranks} $<TARGET_FILE:mpi_survivors> ${rounds})
    endforeach()
    hosts_entry(mpi_dense.hosts2.store.unreached ${store} UCX_NET_DEVICES=lo
        ${hosts} 2 ${MPIEXEC_EXECUTABLE} -np 2 $<TARGET_FILE:mpi_dense>)
    set_tests_properties(mpi_dense.hosts2.store.unreached PROPERTIES
        PASS_REGULAR_EXPRESSION "no connection to it could be made")
    foreach(world "reset 400" "cut 201")
        separate_arguments(world)
        list(POP_FRONT world fault seed)
        hosts_entry(hosts_cut.store.${fault} ${store} CUT_FAULT=${fault}
            CUT_MPIRUN=${MPIEXEC_EXECUTABLE}
            ${CMAKE_CURRENT_SOURCE_DIR}/mpi/cut.sh $<TARGET_FILE:mpi_cable>
            ${seed})
    endforeach()
endif()
if(BATON_BUILD_MICROBENCH)
    add_test(NAME info_command
        COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi/info_command.sh
                $<TARGET_FILE:baton-info> ${mpi_run})
    describe_test(info_command info_command mpi)
    set_tests_properties(info_command PROPERTIES RUN_SERIAL ON)

    # Builds baton-skew as in a build without MPI, for ranks that a shell starts.
    # job.c is compiled without JOB_MPI here, so the linker does not take it from the
    # library microbench_common.
    add_executable(skew_world $<TARGET_OBJECTS:baton-skew>
        ${PROJECT_SOURCE_DIR}/microbench/common/job.c)
    target_link_libraries(skew_world PRIVATE microbench_common baton baton_flags
        Threads::Threads m)
    add_test(NAME skew_world COMMAND sh -c
        "for r in 1 2; do RANK=$r WORLD_SIZE=3 $0 $* & done; RANK=0 WORLD_SIZE=3 $0 $*"
        $<TARGET_FILE:skew_world> --bytes 64 --iterations 4 --skew-ms 0.1)
    describe_test(skew_world skew_world mpi)
    set_tests_properties(skew_world PROPERTIES
        PASS_REGULAR_EXPRESSION "full .* 3-3 .*solo .*majority ")

    hosts_entry(hosts_top ${hosts} 2 ${CMAKE_CURRENT_SOURCE_DIR}/mpi/top.sh
        $<TARGET_FILE:baton-top> $<TARGET_FILE:baton-skew>
        $<TARGET_FILE:mpi_late> ${MPIEXEC_EXECUTABLE} --oversubscribe
        --bind-to none --map-by node)

    foreach(ranks 2 3)
        set(name bench_command.np${ranks})
        add_test(NAME ${name}
            COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi/bench_command.sh
                    $<TARGET_FILE:baton-bench> ${CMAKE_COMMAND} ${ranks}
                    ${mpi_run})
        describe_test(${name} bench_command mpi)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endforeach()
endif()
