# Finds source files by folder and by the end of their names.

# gt_sources(<out> <folder>...): the files of these folders that are neither tests nor fuzz targets.
function(gt_sources out)
  gt_glob(files "*.cc" ${ARGN})
  list(FILTER files EXCLUDE REGEX "_(test|fuzz)\\.cc$")
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# gt_glob(<out> <pattern> <folder>...): the files of these folders that match; the build notices added and removed ones.
function(gt_glob out pattern)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/src/gt/" OUTPUT_VARIABLE globs)
  list(TRANSFORM globs APPEND "/${pattern}")
  set(files "")
  if(globs)
    file(GLOB files CONFIGURE_DEPENDS ${globs})
  endif()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# A library needs at least one file; a layer whose folders are still empty gets an empty one.
function(gt_placeholder_if_empty sources)
  if(NOT ${sources})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/empty.cc CONTENT "")
    set(${sources} ${CMAKE_BINARY_DIR}/empty.cc PARENT_SCOPE)
  endif()
endfunction()

# gt_define_paths(<file>...): tests and benchmarks find their data by GT_SOURCE_DIR and run the program GT_BINARY. Only
# files that mention these get them: the others compile alike in every clone, so that ccache knows them.
function(gt_define_paths)
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} mentions REGEX "GT_SOURCE_DIR|GT_BINARY")
    if(mentions)
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS
        "GT_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\";GT_BINARY=\"${CMAKE_BINARY_DIR}/gt\"")
    endif()
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
endfunction()
