# gemmtune_cpu_kernels: our own CPU kernel families (own_families.h). Included by src/backends/CMakeLists.txt.
set(gemmtune_kernels_folder ${CMAKE_CURRENT_LIST_DIR})

add_library(gemmtune_cpu_kernels STATIC ${gemmtune_kernels_folder}/../isa.cpp)
target_link_libraries(gemmtune_cpu_kernels PUBLIC gemmtune_options gemmtune_candidates)
