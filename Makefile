# Every target installs what a bare Debian or Ubuntu machine with only rustup lacks (scripts/setup.sh says what), builds
# RocksDB once a machine (scripts/build-rocksdb.sh), then calls cargo. CARGO_TARGET_DIR is respected.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
# A shell opened before rustup was installed does not know cargo yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# What the drills are run with: `make drills SEED=7`.
SEED ?= $(shell date -u +%Y%m%d)
# Of so many parts of the canaries one is tried, another for every seed: all of them by default.
PARTS ?= 1

# Puts the prebuilt RocksDB before a cargo command. Two steps, so that a failing script is not mistaken for "nothing".
with_rocksdb = rocksdb="$$(scripts/build-rocksdb.sh)" && eval "$$rocksdb" &&
target = $${CARGO_TARGET_DIR:-target}

.PHONY: help run test check fmt tidy lint features fuzz-smoke drills canaries bench smoke

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | \
		while read -r name what; do printf '  make %-10s %s\n' "$$name" "$$what"; done

run: ## one node on local disk with a worker beside it, and three curl lines to try
	@scripts/setup.sh --demo
	@$(with_rocksdb) exec cargo run --release -p ankusa-node --bin ankusa -- demo

test: ## the whole test suite
	@scripts/setup.sh --test
	@$(with_rocksdb) cargo test
	@# The few places that share memory by hand, in thousands of orders.
	cargo test -p ankusa-actors --features shuttle --lib interleavings
	@# Programs of others: the published Python client, and one that reads the OpenAPI documents.
	@$(with_rocksdb) cargo build -p ankusa-node --bin ankusa
	tests/clients/run.sh "$(target)/debug/ankusa"

check: fmt tidy features lint ## formatting, the tree's own rules, features, clippy: warnings are errors

fmt:
	@scripts/setup.sh --check
	cargo fmt --all --check

# `cargo test` runs it too; alone it needs neither RocksDB nor any crate, and answers in seconds.
tidy:
	@scripts/setup.sh --check
	@mkdir -p "$(target)"
	rustc --edition 2024 --test tests/tidy.rs -o "$(target)/tidy"
	@CARGO_MANIFEST_DIR=. "$(target)/tidy" --quiet

features:
	@scripts/check-features.sh

lint:
	@scripts/setup.sh --check
	@$(with_rocksdb) cargo clippy --all-targets -- -D warnings

fuzz-smoke: ## what a stranger can send and a disk can hold, mutated for twelve seconds a target
	@scripts/setup.sh
	scripts/fuzz.sh 12

drills: ## every crash drill in its short form, judged from outside: at most ten minutes (SEED=)
	@scripts/setup.sh
	@$(with_rocksdb) cargo build -p ankusa-drills -p ankusa-drills-shim
	"$(target)/debug/ankusa-drills" ci --seed $(SEED)

# Canaries are features that break one rule each; the drills' table says who must catch which. The last build takes them
# out of the drills' binary again.
canaries: ## builds with a rule broken on purpose, each of which its drill must catch
	@scripts/setup.sh
	@$(with_rocksdb) drills="$(target)/debug/ankusa-drills"; \
	cargo build -p ankusa-drills -p ankusa-drills-shim; \
	"$$drills" canaries | awk -v parts="$(PARTS)" -v seed="$(SEED)" 'NR % parts == seed % parts' \
		>"$(target)/canaries"; \
	test -s "$(target)/canaries" || { echo "there are no canaries to catch" >&2; exit 1; }; \
	while read -r canary drill form; do \
		echo "$$canary: $$drill $$form, seed $(SEED)"; \
		cargo build -p ankusa-drills -p ankusa-drills-shim --features "ankusa-drills/$$canary" </dev/null; \
		"$$drills" run "$$drill" $$form --seed $(SEED) --expect-violation </dev/null; \
	done <"$(target)/canaries"; \
	cargo build -p ankusa-drills -p ankusa-drills-shim; \
	"$$drills" list >/dev/null

bench: ## ingest: the machine's own floors and the node, in turns
	@scripts/setup.sh
	@$(with_rocksdb) cargo run --release -p ankusa-drills -- bench ingest

# A debug build on a shared disk: that it runs to its end is what is told, not how long things take.
smoke: ## the dedupe bench over a million keys instead of a hundred, as it is in CI
	@scripts/setup.sh
	@$(with_rocksdb) cargo build -p ankusa-drills -p ankusa-drills-shim
	"$(target)/debug/ankusa-drills" bench dedupe --keys 1000000 --report --dir "$(target)"
