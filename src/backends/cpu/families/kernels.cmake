# gemmtune_cpu_kernels: our own CPU kernel families (own_families.h). Included by src/backends/CMakeLists.txt.
set(gemmtune_kernels_folder ${CMAKE_CURRENT_LIST_DIR})

# One file an instruction set, apart from everything else: a test reads these objects' symbols.
add_library(gemmtune_cpu_isa OBJECT ${gemmtune_kernels_folder}/../microkernels/scalar.cpp
            ${gemmtune_kernels_folder}/../microkernels/scalar_decode.cpp)
target_link_libraries(gemmtune_cpu_isa PRIVATE gemmtune_options)
# -O3 also where the rest is built for speed with -O2; GCC 12's intrinsics trip its own warnings about
# uninitialized values.
target_compile_options(gemmtune_cpu_isa PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3> -Wno-uninitialized
                       -Wno-maybe-uninitialized)

# Every family's folder but those of vendors' libraries, which need the rest of the backends.
file(GLOB gemmtune_cpu_kernel_files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${gemmtune_kernels_folder}/*/*.cpp)
list(FILTER gemmtune_cpu_kernel_files EXCLUDE REGEX "/(onednn|openblas)/")
list(APPEND gemmtune_cpu_kernel_files cpu/machine/isa.cpp cpu/families/kernel_set.cpp cpu/silu_and_mul.cpp)
add_library(gemmtune_cpu_kernels STATIC ${gemmtune_cpu_kernel_files} $<TARGET_OBJECTS:gemmtune_cpu_isa>
            ${CMAKE_CURRENT_BINARY_DIR}/kernel_source_hash.cpp)
target_link_libraries(gemmtune_cpu_kernels PUBLIC gemmtune_options gemmtune_candidates)
gemmtune_precompile(gemmtune_cpu_kernels)
# A family's folder compiles as one.
foreach(file IN LISTS gemmtune_cpu_kernel_files)
  get_filename_component(folder ${file} DIRECTORY)
  string(REGEX MATCH "families/(.+)" family ${folder})
  set_source_files_properties(${file} PROPERTIES UNITY_GROUP "${CMAKE_MATCH_1}")
endforeach()
set_target_properties(gemmtune_cpu_kernels PROPERTIES UNITY_BUILD ${GEMMTUNE_UNITY_BUILD} UNITY_BUILD_MODE GROUP)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(gemmtune_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
  foreach(isa avx2 avx512 avx512bf16 amx avx2_decode avx512_decode avx512vnni_decode avx512vbmi_decode
              avx512vbmi_stream amx_stream avx2_w4 avx512_w4 avx512bf16_w4 amx_w4)
    target_sources(gemmtune_cpu_isa PRIVATE ${gemmtune_kernels_folder}/../microkernels/${isa}.cpp)
  endforeach()
  set_source_files_properties(${gemmtune_kernels_folder}/../microkernels/avx2.cpp ${gemmtune_kernels_folder}/../microkernels/avx2_decode.cpp
                              ${gemmtune_kernels_folder}/../microkernels/avx2_w4.cpp
                              PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set_source_files_properties(${gemmtune_kernels_folder}/../microkernels/avx512.cpp
                              ${gemmtune_kernels_folder}/../microkernels/avx512_decode.cpp
                              ${gemmtune_kernels_folder}/../microkernels/avx512_w4.cpp
                              PROPERTIES COMPILE_OPTIONS "${gemmtune_avx512}")
  set_source_files_properties(${gemmtune_kernels_folder}/../microkernels/avx512bf16.cpp ${gemmtune_kernels_folder}/../microkernels/amx.cpp
                              ${gemmtune_kernels_folder}/../microkernels/avx512bf16_w4.cpp
                              ${gemmtune_kernels_folder}/../microkernels/amx_w4.cpp PROPERTIES
                              COMPILE_OPTIONS "${gemmtune_avx512};-mavx512bf16;-mavx512vnni")
  set_source_files_properties(${gemmtune_kernels_folder}/../microkernels/avx512vnni_decode.cpp PROPERTIES
                              COMPILE_OPTIONS "${gemmtune_avx512};-mavx512vnni")
  set_source_files_properties(${gemmtune_kernels_folder}/../microkernels/avx512vbmi_decode.cpp PROPERTIES
                              COMPILE_OPTIONS "${gemmtune_avx512};-mavx512vnni;-mavx512vbmi")
  set_source_files_properties(${gemmtune_kernels_folder}/../microkernels/avx512vbmi_stream.cpp
                              ${gemmtune_kernels_folder}/../microkernels/amx_stream.cpp PROPERTIES
                              COMPILE_OPTIONS "${gemmtune_avx512};-mavx512bf16;-mavx512vnni;-mavx512vbmi")
  target_compile_definitions(gemmtune_cpu_isa PRIVATE GEMMTUNE_X86_KERNELS)
  target_compile_definitions(gemmtune_cpu_kernels PRIVATE GEMMTUNE_X86_KERNELS)
endif()

# kernel_source_hash(): over the sources of our own families and what compiles them, made anew by the build whenever one
# of them changes.
file(GLOB_RECURSE gemmtune_kernel_sources CONFIGURE_DEPENDS ${gemmtune_kernels_folder}/*.cpp ${gemmtune_kernels_folder}/*.h
     ${gemmtune_kernels_folder}/../microkernels/*.cpp ${gemmtune_kernels_folder}/../microkernels/*.h)
list(FILTER gemmtune_kernel_sources EXCLUDE REGEX "/(onednn|openblas)/")
string(TOUPPER "${CMAKE_BUILD_TYPE}" gemmtune_build_type)
add_custom_command(
  OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/kernel_source_hash.cpp
  COMMAND ${CMAKE_COMMAND} -D "OUTPUT=${CMAKE_CURRENT_BINARY_DIR}/kernel_source_hash.cpp"
          -D "SOURCES=${gemmtune_kernel_sources}"
          -D "FLAGS=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${gemmtune_build_type}}"
          -P ${gemmtune_kernels_folder}/hash_sources.cmake
  DEPENDS ${gemmtune_kernel_sources} ${gemmtune_kernels_folder}/kernels.cmake ${gemmtune_kernels_folder}/hash_sources.cmake
  VERBATIM)
