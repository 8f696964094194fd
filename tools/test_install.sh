#!/bin/sh
# tools/test_install.sh BUILD_FOLDER: installs a finished build into a temporary prefix, builds an outside program
# against the package (CMake, then pkg-config) and runs both.
set -eu

build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

# What `make install` builds before: nothing of tests, benchmarks and examples.
if [ -f "$build/build.ninja" ] && command -v ninja >/dev/null; then
  needless=$(ninja -C "$build" -t inputs gemmtune_installed | grep -E '(^|/)(tests|bench|examples)/' || true)
  [ -z "$needless" ] || { echo "make install would build: $needless"; exit 1; }
fi
cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
"$(dirname "$0")/check_library_paths.py" "$prefix"

mkdir "$work/outside"
cat >"$work/outside/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES C CXX)
find_package(gemmtune 0.2 REQUIRED)
add_executable(outside main.cpp)
target_compile_features(outside PRIVATE cxx_std_20)
target_link_libraries(outside PRIVATE gemmtune::gemmtune)
END
cat >"$work/outside/main.cpp" <<'END'
#include <gemmtune/gemmtune.h>

#include <cstdio>

int main() {
  alignas(64) float x[2 * 8], w[3 * 8], y[2 * 3] = {};
  for (float& value : x) value = 2;
  for (float& value : w) value = 3;
  const auto done = gemmtune::gemm(gemmtune::f32(x), gemmtune::f32(w), gemmtune::f32(y), 2, 3, 8);
  if (!done) return std::printf("%s\n", done.message().c_str()), 1;
  for (const float value : y) {
    if (value != 48) return std::printf("%g, expected 48\n", static_cast<double>(value)), 1;
  }
  auto context = gemmtune::Context::open();
  if (!context || context->sources().find("/gemmtune/model_configs: ") == std::string::npos)
    return std::printf("no shipped tables\n"), 1;
  std::printf("gemmtune %s\n", gemmtune_version());
  return 0;
}
END
cat >"$work/outside/main.c" <<'END'
#include <gemmtune/c.h>
#include <string.h>

int main(void) { return strcmp(gemmtune_status_text(GEMMTUNE_OK), "ok"); }
END

mkdir "$work/config"
export GEMMTUNE_CONFIG_DIR="$work/config"
cmake -S "$work/outside" -B "$work/outside/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/configure.log" 2>&1 ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/outside/build"
"$work/outside/build/outside"

package=$(find "$prefix" -name gemmtune.pc)
if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$(dirname "$package")
  export PKG_CONFIG_PATH
  libraries=$(pkg-config --variable=libdir gemmtune)
  # shellcheck disable=SC2046  # the flags are words
  cc -std=c11 -Wall -Wextra -pedantic -Werror "$work/outside/main.c" -o "$work/outside/c_program" \
    $(pkg-config --cflags --libs gemmtune) -Wl,-rpath,"$libraries"
  "$work/outside/c_program"
else
  echo "pkg-config is not installed: its file was not tried"
fi

# Models that --model names, lists of shapes, and the licence.
for file in gemmtune/models/llama-3.2-1b/config.json gemmtune/shapes/llama-3.2-1b.csv gemmtune/json.schema.json doc/gemmtune/json.md doc/gemmtune/copyright; do
  [ -s "$prefix/share/$file" ] || { echo "share/$file was not installed"; exit 1; }
done
if [ -x "$prefix/bin/gemmtune" ]; then
  "$prefix/bin/gemmtune" shapes --model llama-3.2-1b --nsets 1 >/dev/null
  "$prefix/bin/gemmtune" --help >/dev/null
  # Shipped tables are found from the program, wherever the tree lies.
  mv "$prefix" "$work/moved"
  said=$("$work/moved/bin/gemmtune" lookup -m 16 -n 1280 -k 8192 --gfx sm_90 --cu-num 132)
  mv "$work/moved" "$prefix"
  case $said in
    *"$work/moved/"*/gemmtune/model_configs/*"measured on NVIDIA H200"*) ;;
    *) echo "no shipped row: $said"; exit 1 ;;
  esac
fi
# It needs nothing of cuBLAS to be loaded, and says nothing of a program that does not call it.
interposer=$(find "$prefix" -name libgemmtune_cublas.so)
if [ -n "$interposer" ]; then
  said=$(LD_PRELOAD=$interposer "$work/outside/build/outside" 2>&1 >/dev/null)
  [ -z "$said" ] || { echo "with libgemmtune_cublas preloaded: $said"; exit 1; }
else
  echo "libgemmtune_cublas.so was not installed"
  exit 1
fi
echo "the installed package works"
