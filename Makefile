# The two commands and the daily ones. Everything real happens in CMakePresets.json and tools/.

PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
BUDGET ?= 110
# Parts of the GPU tests that run at the same time: each keeps a core busy with compiling.
GPU_JOBS ?= 4

SHAPES := shapes/llama-3.2-1b.csv
TUNED  := build/llama-3.2-1b_bf16_tuned_gemm.csv

.PHONY: help deps program build tune test bench bench-speed bench-gpu test-gpu format check docs installed install package soak clean
.DEFAULT_GOAL := help

help:
	@echo "gemmtune: finds the fastest verified kernel for every GEMM of a model and dispatches to it"
	@echo
	@echo "  make tune      install what is missing, build, tune Llama-3.2-1B on this CPU (BUDGET=$(BUDGET) seconds)"
	@echo "  make test      build and run all tests"
	@echo
	@echo "  make deps      install the dependencies from the distribution's archive"
	@echo "  make build     build everything into build/ (the program is build/gemmtune)"
	@echo "  make bench     run the benchmarks"
	@echo "  make bench-speed  our CPU kernels against the roofline and oneDNN, quick (all: build/bench/speed_table --help)"
	@echo "  make bench-gpu tune the dense shapes of shapes/ on a GPU, print speed-ups, clocks, overheads (ARGS=\"--limit-seconds 240\")"
	@echo "  make test-gpu  run the tests that need a GPU"
	@echo "  make check     layers, words, formatting, syntax of device sources, clang-tidy on what changed"
	@echo "  make docs      the documents as a site, in build/site (mkdocs-material, from PyPI)"
	@echo "  make format    format all sources"
	@echo "  make install   install into PREFIX ($(PREFIX)); GEMMTUNE_PREBUILD=1: compile the kernels of the tuned files too"
	@echo "  make package   a .deb and a wheel in build/packages"
	@echo "  make soak      the long tests: a fresh machine, full counts"
	@echo "  make clean     remove the build folders"

deps:
	@tools/install_dependencies.sh

build/build.ninja: CMakeLists.txt CMakePresets.json | deps
	cmake --preset release

# What tuning needs: the program and the modules that it loads.
program: deps build/build.ninja
	cmake --build --preset release -j $(JOBS) --target gemmtune_program

build: deps build/build.ninja
	cmake --build --preset release -j $(JOBS) --target all gemmtune_benchmarks gemmtune_gpu_tests

tune: program
	build/gemmtune tune -i $(SHAPES) -o $(TUNED) --budget $(BUDGET)

# All but the benchmarks and the tests that need a GPU.
test: deps build/build.ninja
	cmake --build --preset release -j $(JOBS)
	@tools/run_tests.py build -LE gpu

bench: build
	@tools/run_benchmarks.sh build

bench-speed: build
	@build/bench/speed_table --quick

bench-gpu: build
	@tools/bench_gpu.py build $(ARGS)

test-gpu: build
	@ctest --test-dir build -L gpu -j $(GPU_JOBS) --no-tests=error --output-on-failure

format:
	@tools/install_dependencies.sh check
	@tools/format.sh

check:
	@tools/install_dependencies.sh check
	@tools/check_layers.py
	@tools/check_words.py
	@tools/speedup_figure.py --check
	@tools/benchmark_tables.py --check
	@tools/json_reference.py --check
	@[ ! -x build/gemmtune ] || { tools/option_reference.py build/gemmtune --check && tools/topic_reference.py build/gemmtune --check && \
	    python3 tests/cli/docs_test.py build/gemmtune $(or $(CXX),c++); }
	@tools/format.sh --check
	@tools/check_device.py
	@tools/check_device.py --database build-dev/device
	@[ -f build-dev/build.ninja ] || cmake --preset dev
	@tools/tidy.sh build-dev

# Fails on a link or an anchor that leads nowhere.
docs: build/docs-environment/bin/mkdocs
	@NO_MKDOCS_2_WARNING=1 build/docs-environment/bin/mkdocs build --strict
	@echo "build/site/index.html"

build/docs-environment/bin/mkdocs:
	@python3 -m venv build/docs-environment
	@build/docs-environment/bin/pip install --quiet "mkdocs-material>=9.5,<10"

# What is installed: no tests, no benchmarks.
installed: deps build/build.ninja
	cmake --build --preset release -j $(JOBS) --target gemmtune_installed

install: installed
	cmake --install build --prefix $(PREFIX)
	@tools/prebuild_kernels.sh $(PREFIX)/bin/gemmtune

package: installed
	@tools/install_dependencies.sh package
	cmake --build --preset release -j $(JOBS) --target gemmtune_python
	cpack --config build/CPackConfig.cmake -B build/packages
	@tools/make_wheel.sh build/packages build

soak:
	@tools/install_dependencies.sh soak
	@tools/soak.sh

clean:
	rm -rf build build-dev build-asan build-tsan
