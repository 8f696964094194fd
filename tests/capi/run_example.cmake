# cmake -DPROGRAM=… [-DTABLE=…] -DFOLDER=… -DEXPECT=regex -P run_example.cmake: runs an example with an empty config
# folder; it must exit 0 and print what is expected.
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=GEMMTUNE_CONFIG_A16W16 --unset=AITER_CONFIG_GEMM_BF16
                        GEMMTUNE_CONFIG_DIR=${FOLDER} ${PROGRAM} ${TABLE}
                OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
message("${output}${errors}")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${result}")
elseif(NOT output MATCHES "${EXPECT}")
  message(FATAL_ERROR "the output lacks '${EXPECT}'")
endif()
