# gemmtune_list_families(RESULT BACKEND HEADER TYPES FOLDER …): a generated .cpp file that defines gemmtune::BACKEND::family_entries(), declared
# in HEADER, a list of TYPES::FamilyEntry: NAME_entry() of every file families/NAME/NAME.cpp below a FOLDER, in namespace gemmtune::FOLDER (of
# the cpu families/*/NAME_entry.cpp). A new family is listed by being there. RESULT gets the file's path.
function(gemmtune_list_families result backend header types)
  set(declarations)
  set(calls)
  foreach(folder IN LISTS ARGN)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/families/*/*.cpp)
    foreach(path IN LISTS files)
      get_filename_component(name ${path} NAME_WE)
      if(name MATCHES "^(.*)_entry$")
        set(name ${CMAKE_MATCH_1})
      elseif(folder STREQUAL "cpu" OR NOT path MATCHES "/${name}/${name}.cpp$")
        continue()
      endif()
      string(APPEND declarations "namespace ${folder} { const ${types}::FamilyEntry& ${name}_entry(); }\n")
      string(APPEND calls "      &${folder}::${name}_entry(),\n")
    endforeach()
  endforeach()
  set(output ${CMAKE_CURRENT_BINARY_DIR}/families/${backend}_family_entries.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include <algorithm>
#include <vector>

#include "@header@"

namespace gemmtune {

@declarations@
namespace @backend@ {

std::span<const @types@::FamilyEntry* const> family_entries() {
  static const std::vector<const @types@::FamilyEntry*> entries = [] {
    std::vector<const @types@::FamilyEntry*> list{
@calls@    };
    std::sort(list.begin(), list.end(), [](const auto* a, const auto* b) { return a->info.rank < b->info.rank; });
    return list;
  }();
  return entries;
}

}  // namespace @backend@
}  // namespace gemmtune
]])
  set(${result} ${output} PARENT_SCOPE)
endfunction()
