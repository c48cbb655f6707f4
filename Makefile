# One word for each thing one does with Sluice. Every target installs the Debian packages it needs
# (tools/packages.txt) when they are missing.
.PHONY: help build install demo demo-vm test check lint format asan tsan fuzz bench interop \
        docs-check docs hooks clean
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

FUZZ_SECONDS ?= 60
JOBS := $(shell nproc)
BENCH_FLAGS ?= --benchmark_min_time=0.1
# Cmake lists the variables of a preset whatever its log level; warnings go to stderr.
CONFIGURE := cmake --log-level=WARNING > /dev/null --preset
PREFIX ?= /usr/local
DESTDIR ?=

help:  ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build:  ## Build the program: build/release/sluice
	@tools/install-packages build
	@echo "Building build/release/sluice"
	@$(CONFIGURE) release
	@cmake --build --preset release --target sluice -j $(JOBS)

install:  ## Install what `make build` built: PREFIX (default /usr/local), DESTDIR
	@test -x build/release/sluice || { echo "make install: run make build first" >&2; exit 1; }
	@install -D -m 755 build/release/sluice "$(DESTDIR)$(PREFIX)/bin/sluice"
	@install -d "$(DESTDIR)$(PREFIX)/share/man/man1" "$(DESTDIR)$(PREFIX)/share/man/man5"
	@install -m 644 docs/man/*.1 "$(DESTDIR)$(PREFIX)/share/man/man1"
	@install -m 644 docs/man/*.5 "$(DESTDIR)$(PREFIX)/share/man/man5"
	@install -d "$(DESTDIR)$(PREFIX)/lib/systemd/system"
	@sed 's|/usr/bin/sluice|$(PREFIX)/bin/sluice|' packaging/sluice.service \
	  > "$(DESTDIR)$(PREFIX)/lib/systemd/system/sluice.service"
	@chmod 644 "$(DESTDIR)$(PREFIX)/lib/systemd/system/sluice.service"
	@install -D -m 644 packaging/sluice.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/sluice.conf"
	@install -D -m 644 examples/two-guests.toml \
	  "$(DESTDIR)$(PREFIX)/share/doc/sluice/examples/two-guests.toml"
	@echo "Installed below $(DESTDIR)$(PREFIX); next: systemd-sysusers, and /etc/sluice/sluice.toml"

demo: build  ## Two drivers exchange packets through sluice, with live counters (a minute)
	@tools/demo

demo-vm: build  ## Two QEMU guests ping each other and run iperf3 through sluice (some minutes)
	@tools/install-packages interop
	@tools/demo-vm

test:  ## All tests: style, debug, sanitizers, fuzz smoke, foreign peers (25 minutes)
	@tools/install-packages
	@tools/run-tests

check:  ## The quick check before a commit: format, tidy, page, unit and contract tests
	@tools/install-packages build test
	@tools/run-tests style fast

asan:  ## All tests under the address and undefined behaviour sanitizers
	@tools/install-packages build test
	@tools/run-tests asan

tsan:  ## Tests under the thread sanitizer
	@tools/install-packages build test
	@tools/run-tests tsan

fuzz:  ## Every fuzz target for FUZZ_SECONDS (default 60)
	@tools/install-packages build test
	@tools/run-tests fuzz --fuzz-seconds $(FUZZ_SECONDS)

interop:  ## Foreign peers: DPDK's testpmd and QEMU guests
	@tools/install-packages build interop
	@tools/run-tests interop

bench:  ## Micro benchmarks, then `sluice bench pair` beside DPDK's testpmd
	@tools/install-packages build test interop
	@echo "Building the benchmarks"
	@$(CONFIGURE) release && cmake --build --preset release -j $(JOBS)
	@for b in build/release/*_bench; do \
	  if [ -x "$$b" ]; then echo "== $$b"; $$b $(BENCH_FLAGS) || exit 1; fi; \
	done
	@bench/compare

lint:  ## clang-tidy over src/ (slow: minutes)
	@tools/install-packages build test
	@$(CONFIGURE) asan
	@run-clang-tidy-19 -quiet -j $(JOBS) -p build/asan '$(CURDIR)/src/.*\.cc$$'

format:  ## Format all C++ files
	@tools/install-packages test
	@find src tests bench -name '*.h' -o -name '*.cc' 2> /dev/null | xargs -r clang-format-19 -i

docs:  ## Write docs/conformance.md anew from the tests
	@python3 tools/conformance/conformance.py

docs-check:  ## Is docs/conformance.md up to date, does every requirement have a test or a reason?
	@python3 tools/conformance/conformance.py --check

hooks:  ## Let git check format, tidy and message at each commit
	@git config core.hooksPath tools/hooks && echo "Hooks of tools/hooks are on."

clean:  ## Remove everything built
	@rm -rf build
