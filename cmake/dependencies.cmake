# Every outside library, in one place. All come from Debian 12 (tools/bootstrap.sh) and are linked
# statically; only glibc stays dynamic, because gpud opens the driver with dlopen.
set(Boost_NO_BOOST_CMAKE ON)
find_package(Boost 1.81 REQUIRED)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3.0 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)

# Debian installs these as static archives without a CMake switch that chooses them.
function(sublet_static_archive target archive header)
  find_library(${target}_ARCHIVE NAMES ${archive} REQUIRED)
  find_path(${target}_INCLUDE ${header} REQUIRED)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${target}_ARCHIVE}
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${${target}_INCLUDE})
endfunction()
sublet_static_archive(sqlite3_static libsqlite3.a sqlite3.h)
target_link_libraries(sqlite3_static INTERFACE Threads::Threads m dl)
sublet_static_archive(yaml_cpp_static libyaml-cpp.a yaml-cpp/yaml.h)
sublet_static_archive(re2_static libre2.a re2/re2.h)
sublet_static_archive(zlib_static libz.a zlib.h)
# The heap of the binary that ships (base/allocator.h).
sublet_static_archive(jemalloc_static libjemalloc_pic.a jemalloc/jemalloc.h)
target_link_libraries(jemalloc_static INTERFACE Threads::Threads m dl)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)

# Debian ships spdlog, fmt and Boost.JSON without static archives: the one file that uses each
# (base/log.cc, kube/json_fast.cc) compiles the header-only form into itself.
find_path(SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
