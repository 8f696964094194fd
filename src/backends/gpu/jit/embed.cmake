# gemmtune_embed_device_files(RESULT FOLDER …): a generated .cpp file that defines gemmtune::gpu::device_files() (device_files.h): each device
# source (.cu, .cuh) and each header of kernel arguments (*_arguments.h, which the host includes too) below a folder, under the path that
# #include names, regenerated whenever one changes. RESULT gets its path.
function(gemmtune_embed_device_files result)
  set(paths)
  foreach(folder IN LISTS ARGN)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src
      ${folder}/*.cu ${folder}/*.cuh ${folder}/*_arguments.h)
    list(APPEND paths ${found})
  endforeach()
  list(SORT paths)
  set(entries)
  foreach(path IN LISTS paths)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${path})
    file(READ ${PROJECT_SOURCE_DIR}/src/${path} text)
    string(APPEND entries "    {\"${path}\", R\"device(${text})device\"},\n")
  endforeach()
  set(output ${CMAKE_CURRENT_BINARY_DIR}/device_files.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include "backends/gpu/jit/device_files.h"

namespace gemmtune::gpu {
namespace {

constexpr DeviceFile files[] = {
@entries@};

}  // namespace

std::span<const DeviceFile> device_files() { return files; }

}  // namespace gemmtune::gpu
]])
  set(${result} ${output} PARENT_SCOPE)
endfunction()
