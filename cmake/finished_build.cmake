# -DGEMMTUNE_FINISHED_BUILD=folder: `pip install .` installs what that build folder holds and compiles nothing. Included by the
# root CMakeLists.txt instead of everything else.
add_custom_target(gemmtune_python)
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${GEMMTUNE_FINISHED_BUILD}\" --component python
                                      --strip --prefix \"\${CMAKE_INSTALL_PREFIX}\" COMMAND_ERROR_IS_FATAL ANY)"
        COMPONENT python)
