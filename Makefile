# `make help` lists what there is. Every step of `make test` prints its name
# and how long it took; the first that fails stops the run.

SHELL := bash
.NOTPARALLEL:
.DEFAULT_GOAL := help

export CARGO_TARGET_DIR ?= $(CURDIR)/target
# CI must test the committed Cargo.lock; at home, adding a dependency updates it.
LOCKED := $(if $(CI),--locked)
STEP := scripts/step.sh
ARGS ?=
FUZZ_SECONDS ?= 60

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# cargo's message about an old compiler names a dependency; this one names the cure.
.PHONY: rustc
rustc:
	@scripts/check-rustc.sh
demo demo-sip lab test build: rustc

.PHONY: demo
demo: ## Build trunkline and run its demonstration: make demo ARGS="--help"
	cargo build --release $(LOCKED) -p trunkline
	"$(CARGO_TARGET_DIR)/release/trunkline" demo $(ARGS)

.PHONY: demo-sip
demo-sip: ## Two real telephones call each other over the overlay and past it (root): make demo-sip ARGS="--help"
	cargo build --release $(LOCKED) -p trunkline -p trunkline-lab
	"$(CARGO_TARGET_DIR)/release/trunkline-lab" phones $(ARGS)

.PHONY: lab
lab: ## Measure the papers' figures again: make lab ARGS="run all --quick", ARGS=--help
	cargo build --release $(LOCKED) -p trunkline-lab $(if $(findstring --testbed,$(ARGS)),-p trunkline)
	"$(CARGO_TARGET_DIR)/release/trunkline-lab" $(if $(ARGS),$(ARGS),--help)

# Every claim as published, and every one able to fail.
.PHONY: lab-check
lab-check:
	@$(STEP) "build of the lab" cargo build --quiet --release $(LOCKED) -p trunkline-lab
	@$(STEP) "the papers' claims" "$(CARGO_TARGET_DIR)/release/trunkline-lab" check --quick --sabotage

# The simulator beside the daemons themselves.
.PHONY: testbed
testbed:
	@$(STEP) "build of the daemon" cargo build --quiet --release $(LOCKED) -p trunkline-lab -p trunkline
	@$(STEP) "daemons beside the simulator" scripts/testbed.sh

.PHONY: setup
setup: ## Install the tools that `make test` needs
	@scripts/setup.sh

.PHONY: test
test: ## Everything CI checks: format, lints, tests, Miri, docs, licences, MSRV, wasm, the papers' claims, two minutes of real daemons, the fuzzers' seeds
	@$(STEP) --start
	@# The same inputs each time: what did not change must not fail. `cargo test` and `make fuzz` look for new ones.
	@PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-1} $(MAKE) --no-print-directory fmt-check rules lint unit miri doc deny wasm msrv fuzz-replay lab-check testbed
	@$(STEP) --summary

.PHONY: fmt
fmt: ## Format the code in place
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

.PHONY: fmt-check
fmt-check:
	@$(STEP) "format" cargo fmt --all --check
	@$(STEP) "format of fuzz/" cargo fmt --manifest-path fuzz/Cargo.toml --check

.PHONY: rules
rules: ## Check which crate may depend on which, how long files are, and where unsafe code is
	@$(STEP) "crate arrows" scripts/check-arrows.sh
	@$(STEP) "file lengths" scripts/check-lengths.sh
	@$(STEP) "unsafe code" scripts/check-unsafe.sh

.PHONY: lint
lint: ## clippy, all targets, warnings are errors
	@$(STEP) "clippy" cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings

.PHONY: unit
unit: ## Unit, property, snapshot and doc tests only
	@$(STEP) "build of the tests" cargo test --quiet $(LOCKED) --workspace --no-run
	@$(STEP) "tests" scripts/tests.sh $(LOCKED)

.PHONY: miri
miri: ## Run under Miri what of the unsafe code it can
	@$(STEP) "Miri" scripts/miri.sh $(LOCKED)

.PHONY: doc
doc: ## Build the documentation; a broken link is an error
	@RUSTDOCFLAGS="-D warnings" $(STEP) "documentation" cargo doc $(LOCKED) --workspace --no-deps

.PHONY: deny
deny: ## Licences, bans and sources of every dependency
	@$(STEP) "licences, bans, sources" scripts/deny.sh

.PHONY: msrv
msrv: ## Compile with the oldest Rust that Cargo.toml promises
	@$(STEP) "oldest supported Rust" scripts/msrv.sh $(LOCKED)

.PHONY: wasm
wasm: ## Compile the sans-IO crates for wasm32, where there is no I/O to call
	@$(STEP) "wasm32" scripts/wasm.sh $(LOCKED)

# Without libFuzzer: no C++ to compile, and the same inputs each time.
.PHONY: fuzz-replay
fuzz-replay: ## Run every fuzz target on its seeds and a fixed number of mutations of each
	@$(STEP) "replay of the fuzzers' seeds" cargo test --quiet $(LOCKED) --manifest-path fuzz/Cargo.toml --no-default-features

.PHONY: fuzz
fuzz: ## Fuzz every parser for FUZZ_SECONDS each (60)
	@$(STEP) "fuzz, $(FUZZ_SECONDS) s per target" scripts/fuzz.sh $(FUZZ_SECONDS)

.PHONY: bench
bench: ## Nanoseconds (criterion) and instructions (valgrind) per packet, and more; 3 minutes
	cargo bench $(LOCKED) --workspace --bench '*'

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
# Where packagers put the files for now; no path in them has it.
DESTDIR ?=
BUILT := $(CARGO_TARGET_DIR)/release

.PHONY: build
build: ## Build the binaries and the C library, optimised
	cargo build --release $(LOCKED) -p trunkline -p trunkline-lab
	scripts/c-library.sh "$(BUILT)/c-library" release $(LOCKED)

.PHONY: install
install: build ## Install binaries, recordings, unit for systemd, C library, header, manual: make install PREFIX=/usr/local DESTDIR=
	scripts/install.sh "$(BUILT)" "$(PREFIX)" "$(LIBDIR)" "$(MANDIR)" "$(DESTDIR)"

.PHONY: clean
clean: ## Remove what was built, found by fuzzing or written by the demo and the lab
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts fuzz/coverage demo-out lab-out
