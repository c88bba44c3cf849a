# Tests of selection on the device, which are in C++ as the kernels are:
#
#   test_select.cpp   selections against a sort (select_cases.c); as
#                     test_select_on_cpu the kernels are run by the processor,
#                     as gpu_select by a GPU
#   test_reduce.cpp   reductions against a reference (reduce_cases.c), likewise:
#                     test_reduce_on_cpu and gpu_reduce
#
# Programs whose kernels are run by the CPU need no CUDA toolkit.
enable_language(CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

set(cxx_flags -Wall -Wextra -Wno-unused-parameter -ffp-contract=off
    ${sanitize})
if(BATON_WERROR)
    list(APPEND cxx_flags -Werror)
endif()

function(select_program name)
    add_executable(${name} ${ARGN} support/random.c)
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
        ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/lib)
    target_compile_options(${name} PRIVATE
        "$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags}>")
    target_link_options(${name} PRIVATE ${sanitize})
    target_link_libraries(${name} PRIVATE baton PkgConfig::CMOCKA m)
endfunction()

set(reduce_cases support/reduce_cases.c support/reference.c)

# Compiles the kernels as C++. Elsewhere nvcc compiles these files. This is not
# done under the thread sanitizer, which does not support fibers.
if(NOT BATON_SANITIZE STREQUAL "thread")
    set(kernels ${PROJECT_SOURCE_DIR}/cuda/select.cu
        ${PROJECT_SOURCE_DIR}/cuda/entries.cu)
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX
        COMPILE_OPTIONS "-x;c++;-Wno-unknown-pragmas")
    set_source_files_properties(cuda/test_select.cpp PROPERTIES
        COMPILE_OPTIONS -Wno-unknown-pragmas)
    select_program(test_select_on_cpu cuda/test_select.cpp
        support/select_cases.c support/cuda_on_cpu.cpp ${kernels})
    target_compile_definitions(test_select_on_cpu PRIVATE BATON_CUDA_ON_CPU)
    cuda_test(test_select_on_cpu unit)

    # Reductions are compiled in the same way. GCC does not see that one loop
    # reads what the other one has written.
    set(kernels ${PROJECT_SOURCE_DIR}/cuda/reduce.cu)
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX
        COMPILE_OPTIONS
        "-x;c++;-Wno-unknown-pragmas;-Wno-maybe-uninitialized")
    select_program(test_reduce_on_cpu cuda/test_reduce.cpp ${reduce_cases}
        support/cuda_on_cpu.cpp ${kernels})
    target_compile_definitions(test_reduce_on_cpu PRIVATE BATON_CUDA_ON_CPU)
    cuda_test(test_reduce_on_cpu unit)
    set_tests_properties(cuda.test_select_on_cpu cuda.test_reduce_on_cpu
        PROPERTIES COST 100)
endif()

if(TARGET baton_cuda)
    select_program(gpu_select cuda/test_select.cpp support/select_cases.c
        $<TARGET_OBJECTS:baton_cuda_objects>)
    set_target_properties(gpu_select PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(gpu_select PRIVATE CUDA::cudart_static
        Threads::Threads)
    cuda_test(gpu_select unit)
    set_tests_properties(cuda.gpu_select PROPERTIES RUN_SERIAL ON)
    select_program(gpu_reduce cuda/test_reduce.cpp ${reduce_cases} cuda/on_gpu.cu
        $<TARGET_OBJECTS:baton_cuda_objects>)
    set_target_properties(gpu_reduce PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(gpu_reduce PRIVATE CUDA::cudart_static
        Threads::Threads)
    cuda_test(gpu_reduce unit)
    set_tests_properties(cuda.gpu_reduce PROPERTIES RUN_SERIAL ON)
endif()
