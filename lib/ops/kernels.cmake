# lib/ops/kernels.c and select_kernels.c are compiled once for each instruction set,
# and reduce.c picks one at run time. Include this from the top CMakeLists.txt, after project() and
# before add_library(); then
#
#   add_library(baton ${sources without these two}
#                     ${BATON_KERNEL_OBJECTS})
#
# The checks in reduce.c (has_avx2, has_avx512) must cover every instruction set
# that the flags here enable.

include(CheckCSourceCompiles)
check_c_source_compiles("
#if !defined(__x86_64__) || !defined(__GNUC__)
#error
#endif
int main(void) { return 0; }
" BATON_TARGET_IS_X86_64)

# No contraction: a fused multiply-add would give other bits than the baseline. No
# code reads floating-point exceptions, so compilers may compute both sides of a
# select, which changes no value. -O3 vectorises, even if the configuration has -O2.
set(BATON_KERNEL_FLAGS -ffp-contract=off -fno-trapping-math
    $<$<NOT:$<CONFIG:Debug>>:-O3>)
set(BATON_KERNEL_ISAS baseline)
set(BATON_KERNEL_FLAGS_baseline "")
if(BATON_TARGET_IS_X86_64)
  list(APPEND BATON_KERNEL_ISAS avx2 avx512)
  set(BATON_KERNEL_FLAGS_avx2 -mavx2 -mf16c)
  # The compilers' default is 256 bits.
  set(BATON_KERNEL_FLAGS_avx512
      ${BATON_KERNEL_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
      -mprefer-vector-width=512)
  set_property(SOURCE ${CMAKE_CURRENT_LIST_DIR}/reduce.c APPEND PROPERTY
               COMPILE_DEFINITIONS BATON__X86_KERNELS)
endif()

set(BATON_KERNEL_OBJECTS "")
foreach(isa IN LISTS BATON_KERNEL_ISAS)
  set(target baton_kernels_${isa})
  add_library(${target} OBJECT ${CMAKE_CURRENT_LIST_DIR}/kernels.c
              ${CMAKE_CURRENT_LIST_DIR}/select_kernels.c)
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden INTERPROCEDURAL_OPTIMIZATION OFF)
  target_include_directories(${target} PRIVATE
    ${CMAKE_CURRENT_LIST_DIR}/.. ${CMAKE_CURRENT_LIST_DIR}/../../include)
  target_compile_definitions(${target} PRIVATE BATON__KERNELS_ISA=${isa})
  if(TARGET baton_flags) # warnings and sanitizers
    target_link_libraries(${target} PRIVATE baton_flags)
  endif()
  target_compile_options(${target} PRIVATE
    ${BATON_KERNEL_FLAGS} ${BATON_KERNEL_FLAGS_${isa}})
  list(APPEND BATON_KERNEL_OBJECTS $<TARGET_OBJECTS:${target}>)
endforeach()
