# cmake --install puts gt, both libraries, their headers and the CMake package GraphTrainer in place. Another project then
# says find_package(GraphTrainer COMPONENTS core) or (... torch), and links GraphTrainer::core or GraphTrainer::torch.
include(CMakePackageConfigHelpers)
set(GT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/GraphTrainer)

function(gt_install_layer name)
  install(TARGETS gt_${name}_static gt_${name} EXPORT gt_${name} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT gt_${name} NAMESPACE GraphTrainer:: FILE GraphTrainer_${name}.cmake DESTINATION ${GT_PACKAGE_DIR})
  foreach(folder IN LISTS ARGN)
    if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/src/gt/${folder})
      install(DIRECTORY src/gt/${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gt/${folder}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "*_test_util.h" EXCLUDE)
    endif()
  endforeach()
endfunction()

function(gt_install_package)
  configure_package_config_file(cmake/GraphTrainerConfig.cmake.in ${CMAKE_BINARY_DIR}/GraphTrainerConfig.cmake
    INSTALL_DESTINATION ${GT_PACKAGE_DIR})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/GraphTrainerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/GraphTrainerConfig.cmake ${CMAKE_BINARY_DIR}/GraphTrainerConfigVersion.cmake
    cmake/GtDependencies.cmake DESTINATION ${GT_PACKAGE_DIR})
  foreach(folder data configs)
    if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
      install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/graphtrainer)
    endif()
  endforeach()
endfunction()
