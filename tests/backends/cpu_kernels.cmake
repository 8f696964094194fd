# Kernels that decode weights with vectors and multiply them with tiles: the vectors are the machine's.
set(gemmtune_emulated_stream)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(gemmtune_emulated_stream ../support/emulated_stream.cpp)
  set_source_files_properties(
    ${gemmtune_emulated_stream} PROPERTIES COMPILE_OPTIONS
    "-O2;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mfma;-mf16c;-mavx512bf16;-mavx512vnni;-mavx512vbmi;-Wno-uninitialized;-Wno-maybe-uninitialized")
  set_source_files_properties(../support/emulated_tiles.cpp PROPERTIES COMPILE_DEFINITIONS GEMMTUNE_EMULATED_STREAM)
endif()
gemmtune_test(backends_cpu_kernels SOURCES cpu_kernels_test.cpp ../support/emulated_tiles.cpp
              ${gemmtune_emulated_stream} LINKS gemmtune_cpu_kernels Threads::Threads)
gemmtune_test(backends_operation_kernels SOURCES operation_kernels_test.cpp ../support/emulated_tiles.cpp
              ${gemmtune_emulated_stream} LINKS gemmtune_cpu_kernels gemmtune_verify Threads::Threads)
gemmtune_test(backends_cpu_kernels_symbols SOURCES cpu_kernels_symbols_test.cpp)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/isa_objects.txt
     CONTENT "$<JOIN:$<TARGET_OBJECTS:gemmtune_cpu_isa>,\n>\n")
target_compile_definitions(backends_cpu_kernels_symbols PRIVATE
                           GEMMTUNE_ISA_OBJECTS="${CMAKE_CURRENT_BINARY_DIR}/isa_objects.txt")
add_dependencies(backends_cpu_kernels_symbols gemmtune_cpu_isa)
