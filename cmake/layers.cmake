# gemmtune_layer(NAME SOURCES a.cpp … [LINKS lib …]): one static library a folder of src/. Folders are linked
# as src/LAYERS allows; tools/check_layers.py checks the includes.

add_library(gemmtune_options INTERFACE)
target_include_directories(gemmtune_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(gemmtune_options INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
# The library form halves the time that a file takes to compile; the header-only one makes a program that runs where
# there is no libfmt.
option(GEMMTUNE_FMT_HEADER_ONLY "Compile fmt into the program" OFF)
if(GEMMTUNE_FMT_HEADER_ONLY)
  target_link_libraries(gemmtune_options INTERFACE fmt::fmt-header-only)
else()
  target_link_libraries(gemmtune_options INTERFACE fmt::fmt)
endif()
if(GEMMTUNE_WARNINGS_AS_ERRORS)
  target_compile_options(gemmtune_options INTERFACE -Werror)
endif()
if(GEMMTUNE_SANITIZE)
  target_compile_options(gemmtune_options INTERFACE -fsanitize=${GEMMTUNE_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(gemmtune_options INTERFACE -fsanitize=${GEMMTUNE_SANITIZE})
endif()

# Files of a layer compiled a few at a time read the headers of libraries once: that was half of the time to build. Their
# local names must differ (tools/check_layers.py). Off in the dev preset, where a file that forgets an include must not
# compile; off in a layer by UNITY_BUILD OFF.
option(GEMMTUNE_UNITY_BUILD "Compile the files of a layer a few at a time" ON)

function(gemmtune_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(gemmtune_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(gemmtune_${name} PUBLIC gemmtune_options ${ARG_LINKS})
  set_target_properties(gemmtune_${name} PROPERTIES UNITY_BUILD ${GEMMTUNE_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 6)
endfunction()

# gemmtune_test(NAME SOURCES a.cpp … LINKS lib … [TIMEOUT seconds]): a GoogleTest program, one CTest entry.
function(gemmtune_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINKS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # Half of the time to build is the tests'; what they test is compiled as everywhere else. Folders whose tests compute set
  # another level.
  if(NOT DEFINED test_optimization)
    set(test_optimization -O0)
  endif()
  target_compile_options(${name} PRIVATE ${test_optimization})
  target_compile_definitions(${name} PRIVATE GEMMTUNE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                             GEMMTUNE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  # Tests mean the CPU where they name no device, on a machine with a GPU too; those of the GPU unset it.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "CUDA_VISIBLE_DEVICES=")
endfunction()
