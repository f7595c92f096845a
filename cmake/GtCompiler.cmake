# How our own code is compiled. Flags that the torch precompiled header depends on are the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# Warnings are errors with the compilers gt is developed with; a newer one must not stop anybody's build.
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  set(known_compiler ON)
else()
  set(known_compiler OFF)
endif()
option(GT_WERROR "treat warnings in our own code as errors" ${known_compiler})

# -fPIC everywhere, so that the installed libraries also fit into shared ones.
add_compile_options(-Wall -Wextra -fPIC $<$<BOOL:${GT_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What g++ concludes from inlined library code is wrong too often: std::string's own copies, for example, are taken for
  # overlapping or endless ones (GCC bugs 105651 and 105329).
  add_compile_options(-Wno-restrict -Wno-stringop-overflow -Wno-dangling-reference
    -Wno-error=array-bounds -Wno-error=maybe-uninitialized)
endif()

# File names in messages and debug information start at the top of the repository, wherever the clone lies.
# The second form is what the compiler sees when ccache has made the paths relative.
file(RELATIVE_PATH up ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=${up}=)

if(GT_SANITIZE)
  add_compile_options(-fsanitize=${GT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${GT_SANITIZE})
endif()

find_program(GT_CCACHE ccache)
if(GT_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${GT_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)  # ccache needs it to see through precompiled headers
  endif()
endif()
