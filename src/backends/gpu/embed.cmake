# gemmtune_embed(OUTPUT FILE FUNCTION): OUTPUT.cpp gets `std::string_view FUNCTION()` with the text of the device source FILE,
# made anew whenever that changes.
function(gemmtune_embed output file function)
  set(path ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  string(REGEX REPLACE "::[^:]*$" "" space "${function}")
  string(REGEX REPLACE "^.*::" "" name "${function}")
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include <string_view>

namespace @space@ {

std::string_view @name@() {
  return R"device(@text@)device";
}

}  // namespace @space@
]])
endfunction()
