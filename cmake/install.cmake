# What `make install` puts where: the shared library, the headers, the command line, shipped tables, the CMake package and
# the pkg-config file; src/backends installs its loadable modules itself. Included by the root CMakeLists.txt after src/.
include(CMakePackageConfigHelpers)

install(TARGETS gemmtune gemmtune_tuning_shared EXPORT gemmtuneTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gemmtune DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
# Tables that answer what a user's files do not, the evaluator of --baseline torch, the models that --model names, and lists of shapes. A build tree has the
# folders at the same place beside its programs.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_DATADIR}/gemmtune)
foreach(folder configs/model_configs configs/evaluators models shapes)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/gemmtune)
  get_filename_component(name ${folder} NAME)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_DATADIR}/gemmtune/${name} SYMBOLIC)
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

# What --json prints: for programs and for people.
install(FILES ${PROJECT_SOURCE_DIR}/docs/json.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/gemmtune)
install(FILES ${PROJECT_SOURCE_DIR}/docs/json.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gemmtune)

# Debian's name of the file with the licence.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gemmtune RENAME copyright)

# All that is installed, and nothing of tests, benchmarks and examples.
add_custom_target(gemmtune_installed DEPENDS gemmtune_program gemmtune gemmtune_tuning_shared gemmtune_cublas)

# `make package`: cpack -G DEB. The libraries of the distribution that ours need become its dependencies.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gemmtune)
set(CPACK_PACKAGE_VENDOR gemmtune)
set(CPACK_PACKAGE_CONTACT "gemmtune maintainers <maintainers@users.noreply.github.com>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "finds and runs the fastest verified GEMM kernel of each size")
set(CPACK_PACKAGE_DESCRIPTION "The program gemmtune tunes the matrix multiplications of a model on CPUs and GPUs. The\nlibraries run the kernels that its tables name, from C++, C and unchanged programs of cuBLAS.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libopenblas0-pthread)  # opened at run time
set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3)
include(CPack)
