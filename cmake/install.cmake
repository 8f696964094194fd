# What `make install` puts where: the shared library, the headers, the command line, shipped tables, the CMake package and
# the pkg-config file; src/backends installs its loadable modules itself. Included by the root CMakeLists.txt after src/.
include(CMakePackageConfigHelpers)

install(TARGETS gemmtune gemmtune_tuning_shared EXPORT gemmtuneTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gemmtune DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
# Tables that answer what a user's files do not, and the evaluator of --baseline torch. A build tree has the folders at the same place
# beside its programs.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_DATADIR}/gemmtune)
foreach(folder model_configs evaluators)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/gemmtune)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/configs/${folder}
       ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_DATADIR}/gemmtune/${folder} SYMBOLIC)
endforeach()
install(EXPORT gemmtuneTargets NAMESPACE gemmtune:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gemmtune)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gemmtuneConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/gemmtuneConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gemmtune)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gemmtuneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gemmtuneConfig.cmake ${PROJECT_BINARY_DIR}/gemmtuneConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gemmtune)

# The way from lib/…/pkgconfig back to the prefix: the installed tree may be moved.
file(RELATIVE_PATH pc_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_up "${pc_up}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/gemmtune.pc.in ${PROJECT_BINARY_DIR}/gemmtune.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gemmtune.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
