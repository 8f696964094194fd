gemmtune_test(backends_cpu_kernels SOURCES cpu_kernels_test.cpp LINKS support_emulated_tiles Threads::Threads)
gemmtune_test(backends_operation_kernels SOURCES operation_kernels_test.cpp
              LINKS support_emulated_tiles gemmtune_verify Threads::Threads)
gemmtune_test(backends_cpu_kernels_symbols SOURCES cpu_kernels_symbols_test.cpp)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/isa_objects.txt
     CONTENT "$<JOIN:$<TARGET_OBJECTS:gemmtune_cpu_isa>,\n>\n")
target_compile_definitions(backends_cpu_kernels_symbols PRIVATE
                           GEMMTUNE_ISA_OBJECTS="${CMAKE_CURRENT_BINARY_DIR}/isa_objects.txt")
add_dependencies(backends_cpu_kernels_symbols gemmtune_cpu_isa)
