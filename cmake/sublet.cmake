# sublet_library(NAME storage SRCS a.cc ... DEPS base ...)  -> static library sublet_storage
#   ALONE names files that cannot be compiled in one piece with others (SUBLET_UNITY): a short name of
#   their own is also one of the folder's.
# sublet_test(NAME storage_test SRCS a_test.cc ... DEPS storage ...)
#   one GoogleTest program per folder (or aspect); LABELS and TIMEOUT are optional.
# sublet_fuzz(NAME fuzz_json SRCS x_fuzz.cc DEPS kube)      -> libFuzzer with preset fuzz; with preset asan
#   a unit test that mutates tools/fuzz-seeds/NAME. Elsewhere nothing.
# DEPS name our folders; EXTRA names outside libraries.
set(SUBLET_SANITIZE "" CACHE STRING "value of -fsanitize=, for example address,undefined")
option(SUBLET_FUZZ "build the libFuzzer targets (clang)" OFF)
option(SUBLET_ANALYZE "thread safety analysis (clang)" OFF)
# What nobody edits and builds again in the same minute is built in pieces of eight files: a third of
# the time. Names of unnamed namespaces are therefore unique in a library.
option(SUBLET_UNITY "compile eight files of a library at once" OFF)
option(SUBLET_PCH "precompile the standard library and nlohmann-json" ON)

add_library(sublet_flags INTERFACE)
target_compile_options(sublet_flags INTERFACE
  # The optimiser of g++ 12 warns about code of the standard library; builds without it stay strict.
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;$<$<CONFIG:Debug>:-Werror>>
  -fno-strict-aliasing)
target_include_directories(sublet_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_definitions(sublet_flags INTERFACE
  JSON_USE_IMPLICIT_CONVERSIONS=0 BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION
  BOOST_ASIO_NO_DEPRECATED)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports these in libstdc++ and nlohmann headers at -O2.
  target_compile_options(sublet_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-maybe-uninitialized;-Wno-stringop-overflow;-Wno-array-bounds;-Wno-dangling-pointer;-Wno-missing-field-initializers>)
else()
  target_compile_options(sublet_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers;-Wno-unused-private-field>)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # In one piece with others a call could find another file's function: its own is then without a use.
  target_compile_options(sublet_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror=unused-function>)
  # A broken invariant names its file from the top of the tree, wherever that stood.
  target_compile_options(sublet_flags INTERFACE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
  target_compile_options(sublet_flags INTERFACE -ffunction-sections -fdata-sections -fstack-protector-strong)
  target_compile_definitions(sublet_flags INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(sublet_flags INTERFACE -Wl,--gc-sections)
endif()
if(SUBLET_SANITIZE)
  target_compile_options(sublet_flags INTERFACE -fsanitize=${SUBLET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(sublet_flags INTERFACE -fsanitize=${SUBLET_SANITIZE})
  if(SUBLET_SANITIZE MATCHES "thread")
    target_compile_options(sublet_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()
if(SUBLET_ANALYZE)
  target_compile_options(sublet_flags INTERFACE -Wthread-safety)
endif()
if(SUBLET_FUZZ)
  target_compile_options(sublet_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  target_link_options(sublet_flags INTERFACE -fsanitize=address,undefined)
endif()
find_program(SUBLET_MOLD mold)
if(SUBLET_MOLD)
  target_link_options(sublet_flags INTERFACE -fuse-ld=mold)
endif()
find_program(SUBLET_CCACHE ccache)
if(SUBLET_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 ${SUBLET_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()

set(SUBLET_USE_PCH ${SUBLET_PCH})
set(SUBLET_PCH_OPTIONS -fpch-preprocess)
set(extension gch)
set(presets "")
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(SUBLET_PCH_OPTIONS "SHELL:-Xclang -fno-pch-timestamp")
  set(extension pch)
  set(presets " ${SUBLET_FUZZ} ${SUBLET_ANALYZE}")
endif()
if(SUBLET_USE_PCH)
  # A precompiled header holds times and paths; ccache compares this text instead, so that another
  # checkout of the same sources with the same flags finds what was compiled before.
  file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/sublet_pch.dir/cmake_pch.hxx.${extension}.sum
    "2 ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_DEBUG} ${CMAKE_CXX_FLAGS_RELEASE} ${SUBLET_SANITIZE}${presets}\n")
  file(WRITE ${CMAKE_BINARY_DIR}/pch.cc "// Carries the precompiled header of all folders.\n")
  add_library(sublet_pch STATIC ${CMAKE_BINARY_DIR}/pch.cc)
  target_link_libraries(sublet_pch PRIVATE sublet_flags)
  target_compile_options(sublet_pch PRIVATE ${SUBLET_PCH_OPTIONS})
  target_precompile_headers(sublet_pch PRIVATE
    <algorithm> <atomic> <chrono> <cstdint> <deque> <functional> <map> <memory> <mutex> <optional>
    <set> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
    ${CMAKE_SOURCE_DIR}/kube/json_instances.h)
endif()

function(sublet_common target)
  cmake_parse_arguments(ARG "NO_PCH" "" "DEPS;EXTRA" ${ARGN})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PUBLIC sublet_${dep})
  endforeach()
  target_link_libraries(${target} PUBLIC sublet_flags ${ARG_EXTRA})
  if(SUBLET_USE_PCH AND NOT ARG_NO_PCH)
    target_compile_options(${target} PRIVATE ${SUBLET_PCH_OPTIONS})
    target_precompile_headers(${target} REUSE_FROM sublet_pch)
  endif()
endfunction()

function(sublet_library)
  cmake_parse_arguments(ARG "NO_PCH" "NAME" "SRCS;DEPS;EXTRA;ALONE" ${ARGN})
  add_library(sublet_${ARG_NAME} STATIC ${ARG_SRCS})
  if(SUBLET_UNITY)
    set_target_properties(sublet_${ARG_NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # Said of what a .cc includes, and here the .cc is included.
    target_compile_options(sublet_${ARG_NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  set(no_pch)
  if(ARG_NO_PCH)
    set(no_pch NO_PCH)
  endif()
  sublet_common(sublet_${ARG_NAME} ${no_pch} DEPS ${ARG_DEPS} EXTRA ${ARG_EXTRA})
endfunction()

function(sublet_test)
  cmake_parse_arguments(ARG "NO_PCH" "NAME;TIMEOUT" "SRCS;DEPS;EXTRA;LABELS" ${ARGN})
  if(SUBLET_FUZZ)
    return()
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set(no_pch)
  if(ARG_NO_PCH)
    set(no_pch NO_PCH)
  endif()
  sublet_common(${ARG_NAME} ${no_pch} DEPS ${ARG_DEPS} EXTRA ${ARG_EXTRA} GTest::gmock GTest::gtest GTest::gtest_main)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
    if(SUBLET_SANITIZE)
      set(ARG_TIMEOUT 900)
    endif()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  # One ctest entry per program: a process per test case would cost more than the cases do.
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} --gtest_brief=1)
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "SUBLET_SOURCE_DIR=${CMAKE_SOURCE_DIR};SUBLET_BINARY_DIR=${CMAKE_BINARY_DIR}")
endfunction()

function(sublet_fuzz)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS;EXTRA" ${ARGN})
  if(SUBLET_FUZZ)
    add_executable(${ARG_NAME} ${ARG_SRCS})
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer,address,undefined)
  elseif(SUBLET_SANITIZE MATCHES "address")
    add_executable(${ARG_NAME} ${ARG_SRCS} ${CMAKE_SOURCE_DIR}/base/testing/fuzz_driver.cc)
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${CMAKE_SOURCE_DIR}/tools/fuzz-seeds/${ARG_NAME})
    set_tests_properties(${ARG_NAME} PROPERTIES LABELS unit TIMEOUT 300)
  else()
    return()
  endif()
  sublet_common(${ARG_NAME} DEPS ${ARG_DEPS} EXTRA ${ARG_EXTRA})
endfunction()

# sublet_benchmark(NAME x_benchmark SRCS ... DEPS ...): Google Benchmark program, not run by ctest.
function(sublet_benchmark)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS;EXTRA" ${ARGN})
  if(SUBLET_FUZZ OR SUBLET_SANITIZE)
    return()
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  sublet_common(${ARG_NAME} DEPS ${ARG_DEPS} EXTRA ${ARG_EXTRA} benchmark::benchmark)
endfunction()

# sublet_embed(LIBRARY FUNCTION file...): makes `std::string_view FUNCTION(std::string_view name)` in
# namespace sublet::embedded, which returns the text of a file by its name ("" = no such file), and
# adds it to the library. Declared in the generated header embedded/FUNCTION.h.
function(sublet_embed library function)
  set(source ${CMAKE_BINARY_DIR}/generated/embedded/${function}.cc)
  set(header ${CMAKE_BINARY_DIR}/generated/embedded/${function}.h)
  file(WRITE ${header}.new "// Generated from the files listed in CMake.\n#pragma once\n#include <string_view>\nnamespace sublet::embedded {\nstd::string_view ${function}(std::string_view name);\n}\n")
  file(COPY_FILE ${header}.new ${header} ONLY_IF_DIFFERENT)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${source} -DFUNCTION=${function} "-DFILES=${ARGN}"
            -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${library} PRIVATE ${source})
endfunction()
