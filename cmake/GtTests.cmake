# gt_core_tests (no libtorch, builds and runs in seconds) and gt_torch_tests. Run them all with ./gt test.
find_package(GTest QUIET)
if(NOT TARGET GTest::gtest_main)
  message(STATUS "GoogleTest was not found (libgtest-dev): the tests are left out")
  return()
endif()

add_custom_target(gt_tests)  # builds everything that ./gt test runs

function(gt_add_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 tests "" "KILOBYTES" "FOLDERS;DEPENDS")
  gt_glob(sources "*_test.cc" ${tests_FOLDERS})
  gt_define_paths(${sources})
  gt_group(sources ${name} ${tests_KILOBYTES} ${sources})
  gt_placeholder_if_empty(sources)
  add_executable(${name} EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(${name} PRIVATE ${tests_DEPENDS} GTest::gtest_main)
  # GoogleTest's macros are made to follow an `if` directly; the compiler does not know.
  target_compile_options(${name} PRIVATE -Wno-dangling-else -Wno-array-bounds)
  # What takes time when tests run is in the libraries; compiling the tests themselves takes half as long this way.
  if(NOT GT_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  add_dependencies(gt_tests ${name})
endfunction()

# What tests share. Not part of the layers: no program and no installation has it.
gt_sources(testing_sources testing)
add_library(gt_testing STATIC EXCLUDE_FROM_ALL ${testing_sources})
target_link_libraries(gt_testing PUBLIC gt_core)

gt_add_tests(gt_core_tests FOLDERS ${GT_CORE_FOLDERS} testing KILOBYTES ${GT_CORE_KILOBYTES} DEPENDS gt_testing)
if(GT_TORCH_DIR)
  # They do not load libtorch, beside which gt looks for NVRTC: so that they find the same one.
  cmake_path(GET GT_TORCH_DIR PARENT_PATH packages)
  target_link_options(gt_core_tests PRIVATE
    LINKER:--disable-new-dtags,-rpath,${packages}/nvidia/cu13/lib)  # before LD_LIBRARY_PATH, as gt looks
endif()
if(TARGET gt_torch)
  # conformance/ compares the rules of the core with libtorch itself.
  gt_add_tests(gt_torch_tests FOLDERS ${GT_TORCH_FOLDERS} conformance cli
    KILOBYTES ${GT_TORCH_KILOBYTES} DEPENDS gt_testing gt_torch)
  target_precompile_headers(gt_torch_tests PRIVATE ${GT_TORCH_HEADERS} <gtest/gtest.h>)  # not as optimized as the layer's
endif()
if(TARGET gt)
  add_dependencies(gt_tests gt)
endif()
