# Tests of libbaton_cuda; included by tests/CMakeLists.txt where it is built.
#
#   test_attach.c    why there is no GPU; with drivers that are made for this
#   gpu_NAME.c       needs a GPU, and is skipped without one; scripts/test_gpu.sh
#                    runs these, also under compute-sanitizer
#
# The tests are linked with the objects of libbaton_cuda, so that they can call
# its internal functions.
function(cuda_program name)
    add_executable(${name} cuda/${name}.c ${ARGN} ${support}
        $<TARGET_OBJECTS:baton_cuda_objects>)
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
        ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/lib)
    target_link_libraries(${name} PRIVATE baton_static CUDA::cudart_static baton_flags
        baton_cuda_flags PkgConfig::CMOCKA Threads::Threads m test_flags)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C)
endfunction()

# ---- without a GPU -----------------------------------------------------------

cuda_program(test_attach)
# These are linked only into this program. libbaton_cuda's objects call them.
foreach(function StreamCreateWithPriority StreamDestroy StreamSynchronize)
    target_link_options(test_attach PRIVATE LINKER:--wrap=cuda${function})
endforeach()
cuda_test(test_attach unit)

# Drivers that are too old, or that know no GPU. fake_driver.c has the functions
# that the CUDA runtime calls. LD_LIBRARY_PATH makes these drivers replace the
# real one.
function(fake_driver name expected)
    add_library(${name} SHARED cuda/fake_driver.c)
    target_link_libraries(${name} PRIVATE baton_flags)
    target_compile_definitions(${name} PRIVATE ${ARGN})
    set_target_properties(${name} PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name}
        OUTPUT_NAME cuda SOVERSION 1)
    add_test(NAME cuda.${name} COMMAND test_attach ${expected})
    set(cuda.${name}_env LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/${name})
    describe_test(cuda.${name} cuda.${name} unit)
endfunction()

fake_driver(driver_too_old "the NVIDIA driver is too old: it supports CUDA 11.4"
    FAKE_VERSION=11040 FAKE_INIT=0)
fake_driver(driver_without_gpu "no GPU that this process may use"
    FAKE_VERSION=99000 FAKE_INIT=100)
fake_driver(driver_broken "CUDA can't be used"
    FAKE_VERSION=99000 FAKE_INIT=999)

# Checks what ptxas reports about the kernels.
add_test(NAME cuda.ptxas COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/ptxas.sh
    ${CMAKE_CUDA_COMPILER} ${PROJECT_SOURCE_DIR})
describe_test(cuda.ptxas cuda.ptxas unit)

# ---- on a GPU ----------------------------------------------------------------

foreach(name gpu_port gpu_peers gpu_epochs gpu_sparse)
    cuda_program(${name} cuda/gpu_cluster.c cuda/on_gpu.cu)
    cuda_test(${name} unit)
    set_tests_properties(cuda.${name} PROPERTIES RUN_SERIAL ON)
endforeach()

if(TARGET cuda_training)
    cuda_test(cuda_training example)
endif()
