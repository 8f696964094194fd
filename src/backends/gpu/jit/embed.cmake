# gemmtune_embed_device_sources(RESULT FOLDER …): for each device source (.cu, .cuh) and each header of kernel arguments (*_arguments.h,
# which the host includes too) below a folder a generated .cpp file with `std::string_view gemmtune::FOLDER::STEM_text()`, the file's
# text, regenerated whenever that changes. RESULT gets their paths. Sources are concatenated and compiled as one text, so a header's
# includes and its `#pragma once` are left out.
function(gemmtune_embed_device_sources result)
  set(generated)
  foreach(space IN LISTS ARGN)
    set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${space})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cu ${folder}/*.cuh ${folder}/*_arguments.h)
    foreach(path IN LISTS sources)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
      get_filename_component(name ${path} NAME_WE)
      file(READ ${path} text)
      string(REGEX REPLACE "#pragma once\n|#include [^\n]*\n" "" text "${text}")
      set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded/${space}_${name}_source.cpp)
      file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include <string_view>

namespace gemmtune::@space@ {

std::string_view @name@_text() {
  return R"device(@text@)device";
}

}  // namespace gemmtune::@space@
]])
      list(APPEND generated ${output})
    endforeach()
  endforeach()
  set(${result} ${generated} PARENT_SCOPE)
endfunction()
