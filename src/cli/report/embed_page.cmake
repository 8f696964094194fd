# gemmtune_embed_page(RESULT FOLDER): a generated .cpp file that defines report_style() and report_script() (report_page.h) with the
# texts of FOLDER/report.css and of the scripts, which are parts of one function, regenerated whenever one changes. RESULT gets its path.
function(gemmtune_embed_page result folder)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/report.css)
  file(READ ${folder}/report.css style)
  set(script "\"use strict\";\n(() => {\n")
  foreach(part data charts sections tables page)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${part}.js)
    file(READ ${folder}/${part}.js text)
    string(APPEND script "${text}")
  endforeach()
  string(APPEND script "})();\n")
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded/report_texts.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include "cli/report/report_page.h"

namespace gemmtune::cli {

std::string_view report_style() {
  return R"page(@style@)page";
}

std::string_view report_script() {
  return R"page(@script@)page";
}

}  // namespace gemmtune::cli
]])
  set(${result} ${output} PARENT_SCOPE)
endfunction()
