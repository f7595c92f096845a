# How our own code is compiled. Flags that the torch precompiled header depends on are the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# -fPIC everywhere, so that the installed libraries also fit into shared ones.
# g++ 12 takes std::string concatenation for overlapping copies (-Wrestrict, GCC bug 105651).
add_compile_options(-Wall -Wextra -fPIC $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<BOOL:${GT_WERROR}>:-Werror>)

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
