# gemmtune_embed_errata(RESULT FOLDER): a generated .cpp file that defines gemmtune::shipped_errata() (errata.h): name and text of
# every FOLDER/*.json, regenerated whenever one changes. RESULT gets its path.
function(gemmtune_embed_errata result folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.json)
  set(entries)
  foreach(path IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    get_filename_component(name ${path} NAME)
    file(READ ${path} text)
    string(APPEND entries "      {\"errata/${name}\", R\"erratum(${text})erratum\"},\n")
  endforeach()
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded/shipped_errata.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include "resolve/errata.h"

namespace gemmtune {

std::span<const ErratumText> shipped_errata() {
  static constexpr ErratumText texts[] = {
@entries@  };
  return texts;
}

}  // namespace gemmtune
]])
  set(${result} ${output} PARENT_SCOPE)
endfunction()
