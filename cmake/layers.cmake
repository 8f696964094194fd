# How folders of src/ and tests/ become libraries and programs.

add_library(gemmtune_options INTERFACE)
target_include_directories(gemmtune_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(gemmtune_options INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion
                       $<$<NOT:$<BOOL:$<TARGET_PROPERTY:SHADOWS_NEIGHBOURS>>>:-Wshadow>)
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

option(GEMMTUNE_UNITY_BUILD "Compile several files of a folder as one" ON)
set(GEMMTUNE_UNITY_BATCH 16 CACHE STRING "Files of a folder that compile as one: fewer make an edit faster and a clean build slower")

# GCC collects garbage from 128 MiB on; sixteen files and their headers are a few hundred. Later it takes less time and 150 MB more.
# (clang-tidy, which reads the dev preset's commands, refuses the option.)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND GEMMTUNE_UNITY_BUILD)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>")
endif()

# Precompiled headers: most of the time to compile a file is that of the standard library's headers. Only headers whose functions
# leave no templates to instantiate belong here: GCC instantiates what is pending in every file that uses them (nlohmann's JSON: 0.65 s,
# CLI11: 5 s a file). Off in the dev preset, so that a file which forgets an include does not compile there.
option(GEMMTUNE_PRECOMPILED_HEADERS "Precompile the headers of libraries" ON)
if(GEMMTUNE_PRECOMPILED_HEADERS AND CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")  # else ccache takes no file with precompiled headers
endif()
set(gemmtune_library_headers <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional> <limits>
    <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map> <utility> <vector>
    <fmt/format.h>)
# One set serves all libraries of an optimization level (none given: that of the configuration).
function(gemmtune_precompiled_headers)
  if(GEMMTUNE_PRECOMPILED_HEADERS AND NOT TARGET gemmtune_precompiled${ARGN})
    add_library(gemmtune_precompiled${ARGN} OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp)
    target_link_libraries(gemmtune_precompiled${ARGN} PRIVATE gemmtune_options)
    target_compile_options(gemmtune_precompiled${ARGN} PRIVATE ${ARGN})
    target_precompile_headers(gemmtune_precompiled${ARGN} PRIVATE ${gemmtune_library_headers})
  endif()
endfunction()
gemmtune_precompiled_headers()
# gemmtune_precompile(TARGET [optimization])
function(gemmtune_precompile target)
  gemmtune_precompiled_headers(${ARGN})
  if(GEMMTUNE_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM gemmtune_precompiled${ARGN})
  endif()
endfunction()

# GEMMTUNE_UNITY_BATCH files of a folder compile as one: three quarters of the time to compile a file is that of headers and of templates which its
# neighbours instantiate too. Names local to a file then differ within a folder. Off in the dev preset, which compiles each file alone.
function(gemmtune_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${GEMMTUNE_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE ${GEMMTUNE_UNITY_BATCH})
endfunction()

# gemmtune_layer(NAME [COLD] [EXCLUDE regex …] [SOURCES generated.cpp …] [LINKS lib …]): one static library a folder of
# src/, made of every .cpp file below the folder but those whose relative path begins with an EXCLUDE pattern. Folders are linked
# as src/LAYERS allows; tools/check_layers.py checks the includes. COLD: nothing in it is worth optimizing much, and templates of
# libraries take a quarter less time to compile.
if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O[23]")
  set(gemmtune_cold -O1)
endif()
function(gemmtune_layer name)
  cmake_parse_arguments(ARG "COLD" "" "EXCLUDE;SOURCES;LINKS" ${ARGN})
  if(ARG_COLD)
    set(optimization ${gemmtune_cold})
  endif()
  file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.cpp)
  foreach(pattern IN LISTS ARG_EXCLUDE)
    list(FILTER files EXCLUDE REGEX "^${pattern}")
  endforeach()
  add_library(gemmtune_${name} STATIC ${files} ${ARG_SOURCES})
  target_link_libraries(gemmtune_${name} PUBLIC gemmtune_options ${ARG_LINKS})
  target_compile_options(gemmtune_${name} PRIVATE ${optimization})
  gemmtune_precompile(gemmtune_${name} ${optimization})
  gemmtune_unity(gemmtune_${name})
endfunction()

# One set of precompiled headers serves all test programs of an optimization level.
function(gemmtune_precompile_test name optimization)
  if(NOT GEMMTUNE_PRECOMPILED_HEADERS)
    return()
  endif()
  set(precompiled gemmtune_precompiled_test${optimization})
  if(NOT TARGET ${precompiled})
    add_executable(${precompiled} EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp)
    target_link_libraries(${precompiled} PRIVATE gemmtune_options GTest::gtest GTest::gmock)
    target_compile_options(${precompiled} PRIVATE ${optimization})
    target_precompile_headers(${precompiled} PRIVATE ${gemmtune_library_headers} <gtest/gtest.h> <gmock/gmock.h>)
  endif()
  target_precompile_headers(${name} REUSE_FROM ${precompiled})
endfunction()

# gemmtune_add_test(NAME name COMMAND …): add_test(), for every test: its home is a folder of its own, so that nothing is read from or left
# in the user's. Packages that the user installed for Python are still found. A small cache is stated: where a virtual machine reports
# hundreds of MiB, each `tune` probes them and fills a pool of twice as much, which is most of a test's processor time. OpenMP's threads
# sleep while they wait: beside other tests they would spin for cores that they do not get. Half of a command's time to start is that of
# ROCm's runtime, where one is installed: only a folder that sets test_hip lets it look for a GPU.
function(gemmtune_add_test NAME name)
  add_test(NAME ${name} ${ARGN})
  set(home ${CMAKE_BINARY_DIR}/test-home/${name})
  set(changes HOME=set:${home} GEMMTUNE_LAST_LEVEL_CACHE_MIB=set:8 OMP_WAIT_POLICY=set:passive)
  if(NOT test_gpu AND NOT test_hip)
    list(APPEND changes HIP_VISIBLE_DEVICES=set:-1)
  endif()
  foreach(variable CACHE CONFIG DATA STATE)
    list(APPEND changes XDG_${variable}_HOME=unset:)
  endforeach()
  if(NOT DEFINED ENV{PYTHONUSERBASE} AND DEFINED ENV{HOME})
    list(APPEND changes PYTHONUSERBASE=set:$ENV{HOME}/.local)
  endif()
  set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION "${changes}")
  if(DEFINED seconds_of_${name})  # tests/CMakeLists.txt
    set_tests_properties(${name} PROPERTIES COST ${seconds_of_${name}})
  endif()
endfunction()

# The cache of the user who builds, where tools/ put what tests need; a test's home is another.
set(gemmtune_user_cache $ENV{XDG_CACHE_HOME})
if(NOT gemmtune_user_cache)
  set(gemmtune_user_cache $ENV{HOME}/.cache)
endif()

# gemmtune_test(NAME SOURCES a.cpp … LINKS lib … [TIMEOUT seconds]): a GoogleTest program, one CTest entry.
function(gemmtune_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE gemmtune_options ${ARG_LINKS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # Half of the time to build is the tests'; what they test is compiled as everywhere else. Folders whose tests compute set
  # another level.
  if(NOT DEFINED test_optimization)
    set(test_optimization -O0)
  endif()
  target_compile_options(${name} PRIVATE ${test_optimization})
  gemmtune_precompile_test(${name} ${test_optimization})
  target_compile_definitions(${name} PRIVATE GEMMTUNE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                             GEMMTUNE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gemmtune_test_entry(${name} ${name} "*" "${ARG_TIMEOUT}")
endfunction()

# gemmtune_test_folder(NAME LINKS lib … [SOURCES more.cpp …] [EXCLUDE a_test.cpp …] [ALONE a_test.cpp …] [TIMEOUT seconds]): the
# program of a folder of tests, made of its *_test.cpp but those under EXCLUDE, which have a program of their own. ALONE: files whose
# local names are others' too.
function(gemmtune_test_folder name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LINKS;SOURCES;EXCLUDE;ALONE" ${ARGN})
  file(GLOB files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *_test.cpp)
  list(REMOVE_ITEM files ${ARG_EXCLUDE})
  gemmtune_test(${name} SOURCES ${files} ${ARG_SOURCES} LINKS ${ARG_LINKS} TIMEOUT "${ARG_TIMEOUT}")
  gemmtune_unity(${name})
  # A local name may be that of a function of another file of the folder. The dev preset warns of those of the same file.
  set_target_properties(${name} PROPERTIES SHADOWS_NEIGHBOURS ${GEMMTUNE_UNITY_BUILD})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# gemmtune_test_part(PROGRAM NAME [SUITES suite …] [CASES pattern …] [TIMEOUT seconds]): a CTest entry NAME that runs these suites
# (parameterized or not) and the cases of these GoogleTest patterns of PROGRAM, and that the entry PROGRAM leaves out: they have other
# properties, a sanitizer is meant for them, or the whole takes too long.
function(gemmtune_test_part program name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SUITES;CASES" ${ARGN})
  list(TRANSFORM ARG_SUITES REPLACE "(.+)" "\\1.*:*/\\1.*")
  list(JOIN ARG_SUITES ":" filter)
  list(JOIN ARG_CASES ":" cases)
  string(JOIN ":" filter ${filter} ${cases})
  gemmtune_test_entry(${name} ${program} "${filter}" "${ARG_TIMEOUT}")
  set_property(TARGET ${program} APPEND PROPERTY GEMMTUNE_PARTS "${filter}")
  get_target_property(parts ${program} GEMMTUNE_PARTS)
  list(JOIN parts ":" filter)
  gemmtune_test_environment(${program} "-${filter}")
endfunction()

function(gemmtune_test_entry name program filter timeout)
  if(NOT timeout)
    set(timeout 900)  # of a folder, on a busy machine
  endif()
  gemmtune_add_test(NAME ${name} COMMAND ${program})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout})
  gemmtune_test_environment(${name} "${filter}")
endfunction()

# Each entry writes a report of its own, which tools/run_tests.py counts.
function(gemmtune_test_environment name filter)
  set(environment "GTEST_FILTER=${filter}" "GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/test-reports/${name}.xml")
  # Tests mean the CPU where they name no device, on a machine with a GPU too.
  if(NOT test_gpu)
    list(APPEND environment "CUDA_VISIBLE_DEVICES=")
  endif()
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment}")
endfunction()
