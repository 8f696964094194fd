# cmake -D OUTPUT=a.cpp -D "SOURCES=a;b" -D FLAGS=text -P hash_sources.cmake: writes kernel_source_hash(), of the files'
# contents in the order of their names and of the flags (those of single files stand in kernels.cmake, hashed too).
list(SORT SOURCES)
set(all "${FLAGS}")
foreach(path IN LISTS SOURCES ITEMS ${CMAKE_CURRENT_LIST_DIR}/kernels.cmake)
  file(SHA256 ${path} hash)
  string(APPEND all " ${hash}")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${OUTPUT} "#include \"backends/cpu/families/source_hash.h\"

namespace gemmtune::cpu {

std::string_view kernel_source_hash() { return \"${hash}\"; }

}  // namespace gemmtune::cpu
")
