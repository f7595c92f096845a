# Defines GraphTrainer::third_party (header-only libraries) and, when GT_TORCH_DIR is set, GraphTrainer::libtorch.
# Also used by the installed package. Headers are looked for directly, not through each library's own CMake package,
# because some machines have the headers alone.
include_guard(GLOBAL)

find_package(Threads REQUIRED)

function(gt_find_header name header package)
  find_path(GT_${name}_INCLUDE ${header} HINTS ENV CPATH ENV CPLUS_INCLUDE_PATH)
  mark_as_advanced(GT_${name}_INCLUDE)
  if(NOT GT_${name}_INCLUDE)
    message(FATAL_ERROR "<${header}> was not found: install ${package}, or add its folder to CMAKE_PREFIX_PATH")
  endif()
  target_include_directories(GraphTrainer::third_party SYSTEM INTERFACE ${GT_${name}_INCLUDE})
endfunction()

add_library(GraphTrainer::third_party INTERFACE IMPORTED GLOBAL)
gt_find_header(FMT fmt/format.h libfmt-dev)
gt_find_header(SPDLOG spdlog/spdlog.h libspdlog-dev)
gt_find_header(JSON nlohmann/json.hpp nlohmann-json3-dev)
# Libraries with code: a header and the library itself, the static one where there is one, so that the program also runs
# on machines that have none of them. Where one is missing, GT_HAVE_<name> is not defined and what needs it says so.
function(gt_find_library name header library package)
  find_path(GT_${name}_INCLUDE ${header} HINTS ENV CPATH ENV CPLUS_INCLUDE_PATH)
  find_library(GT_${name}_LIBRARY NAMES lib${library}.a ${library} HINTS ENV LIBRARY_PATH)
  mark_as_advanced(GT_${name}_INCLUDE GT_${name}_LIBRARY)
  if(NOT GT_${name}_INCLUDE OR NOT GT_${name}_LIBRARY)
    message(WARNING "${package} was not found: gt will be built without it")
    return()
  endif()
  target_include_directories(GraphTrainer::third_party SYSTEM INTERFACE ${GT_${name}_INCLUDE})
  target_link_libraries(GraphTrainer::third_party INTERFACE ${GT_${name}_LIBRARY})
  target_compile_definitions(GraphTrainer::third_party INTERFACE GT_HAVE_${name})
endfunction()
gt_find_library(PCRE2 pcre2.h pcre2-8 libpcre2-dev)            # pre-tokenizer patterns
gt_find_library(UTF8PROC utf8proc.h utf8proc libutf8proc-dev)  # Unicode normal forms and categories
gt_find_library(ZLIB zlib.h z zlib1g-dev)                      # gzipped data
gt_find_library(ZSTD zstd.h zstd libzstd-dev)                  # data in .zst
target_compile_definitions(GraphTrainer::third_party INTERFACE FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
target_link_libraries(GraphTrainer::third_party INTERFACE Threads::Threads)

if(GT_TORCH_DIR)
  if(NOT EXISTS ${GT_TORCH_DIR}/include/ATen/ATen.h)
    message(FATAL_ERROR "GT_TORCH_DIR=${GT_TORCH_DIR} has no include/ATen/ATen.h: it must be the folder of the torch "
                        "Python package, as printed by python3 -c 'import torch; print(torch.__path__[0])'")
  endif()
  file(STRINGS ${GT_TORCH_DIR}/version.py version REGEX "^__version__ = '2\\.11\\.")
  if(NOT version)
    message(FATAL_ERROR "GT_TORCH_DIR=${GT_TORCH_DIR} is not torch 2.11: gt is written for exactly that version")
  endif()
  # Only the CPU half is linked. The CUDA half is loaded at run time when there is a driver, so the same program runs
  # on machines without one; its symbols are therefore allowed to be missing here.
  add_library(GraphTrainer::libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(GraphTrainer::libtorch SYSTEM INTERFACE
    ${GT_TORCH_DIR}/include ${GT_TORCH_DIR}/include/torch/csrc/api/include)
  # The wheel ships ProcessGroupGloo.hpp without gloo's own headers; declarations of ours stand in for them. Only gt's own
  # sources need them, so they are not installed.
  set(gloo_declarations ${CMAKE_CURRENT_LIST_DIR}/../third_party/gloo_declarations)
  if(EXISTS ${gloo_declarations})
    target_include_directories(GraphTrainer::libtorch SYSTEM INTERFACE ${gloo_declarations})
  endif()
  target_compile_definitions(GraphTrainer::libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_options(GraphTrainer::libtorch INTERFACE
    LINKER:-rpath,${GT_TORCH_DIR}/lib LINKER:--allow-shlib-undefined LINKER:--no-as-needed)
  target_link_libraries(GraphTrainer::libtorch INTERFACE
    ${GT_TORCH_DIR}/lib/libtorch_cpu.so ${GT_TORCH_DIR}/lib/libc10.so ${CMAKE_DL_LIBS})
endif()
