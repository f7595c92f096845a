# gt_cuda: what needs CUDA's symbols at link time. Built wherever the headers are (the CUDA runtime's wheel that libtorch
# depends on carries them; no toolkit and no driver is needed), loaded at run time when there is a GPU.
# A folder with crt/ is complete; the runtime's wheel alone leaves that to a wheel of its own (nvidia-cuda-crt).
find_path(GT_CUDA_INCLUDE NAMES crt/host_defines.h
  HINTS ${GT_TORCH_DIR}/../nvidia/cu13/include /usr/local/cuda/include /usr/local/cuda/targets/x86_64-linux/include)
mark_as_advanced(GT_CUDA_INCLUDE)
if(NOT GT_CUDA_INCLUDE)
  message(STATUS "the headers of the CUDA runtime were not found: gt is built without CUDA graphs")
  return()
endif()

gt_glob(cuda_sources "*.cc" cuda)
add_library(gt_cuda MODULE ${cuda_sources})
target_include_directories(gt_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_include_directories(gt_cuda SYSTEM PRIVATE ${GT_CUDA_INCLUDE}
  $<TARGET_PROPERTY:GraphTrainer::libtorch,INTERFACE_INCLUDE_DIRECTORIES>)
# libtorch_cuda, libc10_cuda and the runtime are in the process already when this is loaded.
set_target_properties(gt_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
install(TARGETS gt_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
