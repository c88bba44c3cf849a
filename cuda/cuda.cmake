# libbaton_cuda: <baton/cuda.h>. The top CMakeLists.txt includes this file after
# the library. BATON_CUDA says whether the target baton_cuda is made:
#
#   AUTO   if there is an nvcc
#   ON     always; it is an error if there is no nvcc
#   OFF    never
#
# BATON_CUDA_ARCHITECTURES has the form of CMAKE_CUDA_ARCHITECTURES, such as "90".
# By default the library has code for this machine's GPUs. If there is no GPU, it
# has PTX of the oldest architecture from 70 on that this nvcc knows; the driver of
# any later GPU compiles the PTX when it is first used. With "all" the library has
# code for each architecture from 70 to 100, and PTX of the last one.

if(NOT BATON_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR
        "BATON_CUDA is \"${BATON_CUDA}\"; allowed: AUTO, ON, OFF")
endif()
if(BATON_CUDA STREQUAL "OFF")
    return()
endif()

find_package(CUDAToolkit QUIET)
set(nvcc "${CUDAToolkit_NVCC_EXECUTABLE}")
if(CMAKE_CUDA_COMPILER)
    set(nvcc "${CMAKE_CUDA_COMPILER}")
endif()
if(NOT CUDAToolkit_FOUND OR NOT nvcc)
    if(BATON_CUDA STREQUAL "ON")
        message(FATAL_ERROR
            "BATON_CUDA is ON, and no CUDA toolkit with nvcc was found; \
CUDAToolkit_ROOT says where it is")
    endif()
    message(STATUS "No CUDA toolkit: libbaton_cuda is not built")
    return()
endif()
if(CUDAToolkit_VERSION VERSION_LESS 12.0)
    if(BATON_CUDA STREQUAL "ON")
        message(FATAL_ERROR
            "libbaton_cuda needs CUDA 12.0; this is ${CUDAToolkit_VERSION}")
    endif()
    message(STATUS "CUDA is older than 12.0: libbaton_cuda is not built")
    return()
endif()

# ---- for which GPUs ----------------------------------------------------------

# baton_cuda_known(OUT) sets OUT to the architectures that nvcc knows, from 70 to
# 100.
function(baton_cuda_known out)
    execute_process(COMMAND ${nvcc} --list-gpu-code
        OUTPUT_VARIABLE known OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "sm_[0-9]+" known "${known}")
    list(TRANSFORM known REPLACE "^sm_" "")
    list(SORT known COMPARE NATURAL)
    set(numbers "")
    foreach(number ${known})
        if(number GREATER_EQUAL 70 AND number LESS_EQUAL 100)
            list(APPEND numbers ${number})
        endif()
    endforeach()
    set(${out} ${numbers} PARENT_SCOPE)
endfunction()

set(BATON_CUDA_ARCHITECTURES "" CACHE STRING "GPUs to compile for, as \
CMAKE_CUDA_ARCHITECTURES; empty: this machine's; all: 70 to 100")
set(CMAKE_CUDA_ARCHITECTURES "${BATON_CUDA_ARCHITECTURES}")
if(NOT CMAKE_CUDA_ARCHITECTURES)
    execute_process(
        COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
        OUTPUT_VARIABLE gpus ERROR_QUIET RESULT_VARIABLE failed)
    string(REGEX MATCHALL "[0-9]+[.][0-9]" gpus "${gpus}")
    list(TRANSFORM gpus REPLACE "[.]" "")
    list(REMOVE_DUPLICATES gpus)
    if(failed OR NOT gpus)
        baton_cuda_known(gpus)
        list(GET gpus 0 oldest)
        set(gpus ${oldest}-virtual)
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${gpus})
elseif(CMAKE_CUDA_ARCHITECTURES STREQUAL "all")
    # The last architecture has no -real, so it gets code and PTX.
    baton_cuda_known(gpus)
    list(POP_BACK gpus last)
    list(TRANSFORM gpus APPEND "-real")
    set(CMAKE_CUDA_ARCHITECTURES ${gpus} ${last})
endif()

if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${nvcc}")
endif()
enable_language(CUDA)
message(STATUS "libbaton_cuda: CUDA ${CUDAToolkit_VERSION}, for "
               "${CMAKE_CUDA_ARCHITECTURES}")

# ---- the library -------------------------------------------------------------

set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

# The options of all .cu files. They forbid fused multiply-add, so that results
# have the same bits as the CPU's.
add_library(baton_cuda_flags INTERFACE)
set(host_warnings -Wall,-Wextra)
if(BATON_WERROR)
    string(APPEND host_warnings ,-Werror)
    target_compile_options(baton_cuda_flags INTERFACE
        "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>")
endif()
target_compile_options(baton_cuda_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=${host_warnings}>")
target_include_directories(baton_cuda_flags INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})

file(GLOB cuda_sources CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/cuda/*.c ${PROJECT_SOURCE_DIR}/cuda/*.cu)
# The tests of the port link these objects, since they call internal functions.
# CUDA's runtime is linked into the library (see gpu.h), which exports nothing of
# the runtime.
add_library(baton_cuda_objects OBJECT ${cuda_sources})
target_link_libraries(baton_cuda_objects
    PUBLIC baton CUDA::cudart_static Threads::Threads
    PRIVATE baton_flags baton_cuda_flags)
set_target_properties(baton_cuda_objects PROPERTIES
    CUDA_RUNTIME_LIBRARY None)

add_library(baton_cuda SHARED $<TARGET_OBJECTS:baton_cuda_objects>)
add_library(baton::cuda ALIAS baton_cuda)
target_link_libraries(baton_cuda
    PUBLIC baton
    PRIVATE $<BUILD_INTERFACE:baton_flags>
        $<BUILD_INTERFACE:CUDA::cudart_static> Threads::Threads)
target_link_options(baton_cuda PRIVATE LINKER:--version-script=${exports}
    LINKER:--exclude-libs,ALL LINKER:--no-undefined)
set_target_properties(baton_cuda PROPERTIES
    EXPORT_NAME cuda
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINK_DEPENDS ${exports}
    LINKER_LANGUAGE C
    INSTALL_RPATH "$ORIGIN") # libbaton is beside it
