# `make help` lists what there is. Every step of `make test` prints its name,
# how long it took and what of a processor; the first that fails stops the run.

SHELL := bash
.NOTPARALLEL:
.DEFAULT_GOAL := help

export CARGO_TARGET_DIR ?= $(CURDIR)/target
# CI must test the committed Cargo.lock; at home, adding a dependency updates it.
LOCKED := $(if $(CI),--locked)
STEP := scripts/step.sh
# One build for tests, claims and testbed.
CI_BUILD := $(LOCKED) --profile ci
NEXTEST := cargo nextest run $(LOCKED) --workspace --cargo-profile ci
BUILT := $(CARGO_TARGET_DIR)/ci
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

.PHONY: setup
setup: ## Install the tools that `make test` needs; SETUP=no only names what is missing
	@scripts/setup.sh

# The same inputs each time: what did not change must not fail.
test check-all: export PROPTEST_RNG_SEED ?= 1
test check-all: export FUZZ_SEED ?= 1

.PHONY: test
test: ## Format, rules, licences, all tests, wasm; about 20 minutes on two cores
	@$(STEP) --start
	@$(STEP) "set-up" scripts/setup.sh
	@$(MAKE) --no-print-directory fmt-check rules deny build-tests
	@scripts/beside.sh daemons "calculations" "doc-tests wasm"
	@scripts/void-tests.sh $(NEXTEST)
	@$(STEP) --summary

.PHONY: check-all
check-all: ## The slower checks: the oldest Rust, Miri, every claim able to fail, the simulator beside real daemons, fuzzing, instructions, long cases
	@$(STEP) --start
	@$(STEP) "set-up" scripts/setup.sh all
	@$(MAKE) --no-print-directory msrv miri testbed all-claims fuzz instructions long-tests long-cases
	@$(STEP) --summary

.PHONY: fmt
fmt: ## Format the code in place
	cargo fmt --all

.PHONY: fmt-check
fmt-check:
	@$(STEP) "format" cargo fmt --all --check

.PHONY: rules
rules: ## Check arrows of crates and modules, file lengths, unsafe code, words, comments, dependencies, commit subjects
	@$(STEP) "crate arrows" scripts/check-arrows.py
	@$(STEP) "module arrows" scripts/check-modules.py
	@$(STEP) "words" scripts/check-words.py
	@$(STEP) "comments" scripts/check-comments.py
	@$(STEP) "dependencies' lines" scripts/check-dependencies.py
	@$(STEP) "commit subjects" scripts/check-commits.sh
	@$(STEP) "file lengths" scripts/check-lengths.py
	@$(STEP) "unsafe code" scripts/check-unsafe.py

.PHONY: lint
lint: ## clippy, all targets, warnings are errors
	@$(STEP) "clippy" cargo clippy $(CI_BUILD) --workspace --all-targets -- -D warnings

.PHONY: unit
unit: build-tests daemons calculations doc-tests ## Unit, property, snapshot and doc tests only

# The programs too. `cargo build` would compile them again, since development dependencies need
# more features of some crates.
.PHONY: build-tests
build-tests:
	@$(STEP) "build of the tests" $(NEXTEST) --no-run

# Four at a time on two processors: they mostly sleep.
.PHONY: daemons
daemons:
	@$(STEP) "tests of daemons" $(NEXTEST) --profile daemons --test-threads $$((2 * $$(nproc)))

.PHONY: calculations
calculations:
	@$(STEP) "other tests" $(NEXTEST) --profile calculations

.PHONY: doc-tests
doc-tests:
	@$(STEP) "tests in documentation" cargo test --quiet $(CI_BUILD) --workspace --doc

.PHONY: miri
miri: ## Run under Miri what of the unsafe code it can
	@$(STEP) "Miri" scripts/miri.sh $(LOCKED)

.PHONY: doc
doc: ## Build the documentation; a broken link is an error
	@RUSTDOCFLAGS="-D warnings" $(STEP) "documentation" cargo doc $(CI_BUILD) --workspace --no-deps --document-private-items

.PHONY: deny
deny: ## Licences, bans and sources of every dependency
	@$(STEP) "licences, bans, sources" scripts/deny.sh

.PHONY: msrv
msrv: ## Compile with the oldest Rust that Cargo.toml promises
	@$(STEP) "oldest supported Rust" scripts/msrv.sh $(LOCKED)

.PHONY: wasm
wasm: ## Compile the sans-IO crates for wasm32, where there is no I/O to call
	@$(STEP) "wasm32" scripts/wasm.sh $(CI_BUILD)

.PHONY: build-lab
build-lab:
	@$(STEP) "build of lab and daemon" cargo build --quiet $(CI_BUILD) --workspace --bins

.PHONY: claims
claims: build-tests ## Every claim of the papers as published, with one seed; one in 16 able to fail
	@$(STEP) "claims, one seed" "$(BUILT)/trunkline-lab" check --quick --seeds 1 --sabotage=16 papers

.PHONY: beyond
beyond: build-tests ## The same for the claims that no paper makes
	@$(STEP) "claims beyond the papers" "$(BUILT)/trunkline-lab" check --quick --seeds 1 --sabotage=16 beyond

.PHONY: all-claims
all-claims: build-tests ## Every claim of the papers as published, with three seeds, and able to fail
	@$(STEP) "claims, all able to fail" "$(BUILT)/trunkline-lab" check --quick --sabotage

.PHONY: testbed
testbed: build-tests ## The simulator beside the daemons themselves; two minutes
	@$(STEP) "daemons beside the simulator" scripts/testbed.sh

.PHONY: cases
cases: build-lab ## Faults that users of other projects reported (root): make cases ARGS=net/01-hung-uplink
	@$(STEP) "cases" tests/cases/run $(ARGS)

.PHONY: long-tests
long-tests: ## The lab's tests that take minutes
	@$(STEP) "long tests" $(NEXTEST) --run-ignored only --filterset 'package(trunkline-lab)'

# Those that hold something and take minutes; the others are tests of `make test`.
.PHONY: long-cases
long-cases: build-lab ## The cases that take minutes (root)
	@$(STEP) "long cases" tests/cases/run net/21-why-in-steady-words net/23-many-next-hops net/24-paths-that-change

.PHONY: fuzz
fuzz: ## Fuzz every parser for FUZZ_SECONDS each (60)
	@$(STEP) "fuzz, $(FUZZ_SECONDS) s per target" scripts/fuzz.sh $(FUZZ_SECONDS)

.PHONY: instructions
instructions: ## Instructions per packet, counted by valgrind
	@$(STEP) "instructions" cargo bench $(LOCKED) -p trunkline-overlay --bench instructions

.PHONY: bench
bench: ## Nanoseconds (criterion) and instructions (valgrind) per packet, and more; 3 minutes
	cargo bench $(LOCKED) --profile dist --workspace --bench '*'

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
# Where packagers put the files for now; no path in them has it.
DESTDIR ?=
DIST := $(CARGO_TARGET_DIR)/dist

.PHONY: build
build: ## Build the binaries and the C library, as fast as they get
	cargo build --profile dist $(LOCKED) -p trunkline -p trunkline-lab
	scripts/c-library.sh "$(DIST)/c-library" dist $(LOCKED)

.PHONY: install
install: build ## Install binaries, recordings, unit for systemd, C library, header, manual: make install PREFIX=/usr/local DESTDIR=
	scripts/install.sh "$(DIST)" "$(PREFIX)" "$(LIBDIR)" "$(MANDIR)" "$(DESTDIR)"

.PHONY: clean
clean: ## Remove what was built, found by fuzzing or written by the demo and the lab
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts fuzz/coverage demo-out lab-out
