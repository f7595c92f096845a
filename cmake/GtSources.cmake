# Finds source files by folder and by the end of their names.

# gt_folders(<out> <layer>): the folders of that layer, as src/gt/folders.txt has them.
function(gt_folders out layer)
  set(list ${CMAKE_CURRENT_SOURCE_DIR}/src/gt/folders.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} lines REGEX "^[a-z_/]+ +${layer} ")
  list(TRANSFORM lines REPLACE " .*" "")
  set(${out} ${lines} PARENT_SCOPE)
endfunction()

# gt_sources(<out> <folder>...): the files of these folders that are neither tests nor fuzz targets.
function(gt_sources out)
  gt_glob(files "*.cc" ${ARGN})
  list(FILTER files EXCLUDE REGEX "_(test|fuzz)\\.cc$")
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# gt_glob(<out> <pattern> <folder>...): the files of these folders that match, folder by folder, since one folder may be
# inside of another; the build notices added and removed ones.
function(gt_glob out pattern)
  set(files "")
  foreach(folder IN LISTS ARGN)
    file(GLOB found CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/gt/${folder}/${pattern}")
    list(APPEND files ${found})
  endforeach()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# gt_group(<out> <name> <kilobytes> <file>...): stands in for the files with sources that include some of them each, cut
# where the folder changes or where they would hold more than that. Reading libtorch's headers and compiling what they
# inline takes longer than our own few hundred lines, so this makes a first build four times as fast; what it asks for is
# that names in unnamed namespaces are unique within a folder. Files with compile options of their own stay alone;
# -DGT_GROUPS=OFF compiles every file alone.
function(gt_group out name kilobytes)
  set(groups "")
  set(alone "")
  if(NOT GT_GROUPS)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  math(EXPR limit "${kilobytes} * 1024")
  set(current_folder "")
  foreach(source IN LISTS ARGN)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options)
      list(APPEND alone ${source})
      continue()
    endif()
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/src OUTPUT_VARIABLE relative)
    cmake_path(GET relative PARENT_PATH folder)
    file(SIZE ${source} size)
    if(NOT folder STREQUAL current_folder)
      set(current_folder ${folder})
      set(number 0)
      set(total ${limit})
    endif()
    math(EXPR total "${total} + ${size}")
    if(total GREATER limit)
      string(REPLACE "/" "_" leaf ${folder})
      math(EXPR number "${number} + 1")
      set(group ${CMAKE_BINARY_DIR}/groups/${name}/${leaf}_${number}.cc)
      list(APPEND groups ${group})
      set(text_of_${group} "")
      set(total ${size})
    endif()
    string(APPEND text_of_${group} "#include \"${relative}\"\n")
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(definitions)
      set_source_files_properties(${group} PROPERTIES COMPILE_DEFINITIONS "${definitions}")
    endif()
  endforeach()
  foreach(group IN LISTS groups)
    # Types from unnamed namespaces in members of classes: right in a source file, and these are not headers.
    set_property(SOURCE ${group} APPEND PROPERTY COMPILE_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    file(CONFIGURE OUTPUT ${group} CONTENT "${text_of_${group}}" @ONLY)
  endforeach()
  set(${out} ${groups} ${alone} PARENT_SCOPE)
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
