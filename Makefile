# Everything here works as root and as a user with sudo, and prepares the machine itself (scripts/setup).
# Only `install` writes into the system's PostgreSQL.

EVENTS    ?= examples/events.jsonl
PG_CONFIG ?= pg_config

.NOTPARALLEL:
.PHONY: help demo stop test bench check lint fmt install clean setup

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: setup ## the story of an outbox on a private server; EVENTS=file.jsonl for events of your own
	@scripts/demo "$(EVENTS)"

stop: ## stop and delete the private servers
	@scripts/server remove
	@echo "The private servers are stopped and deleted."

test: setup ## all tests
	@scripts/test

bench: setup ## outbox_ext beside other ways to do its work, about a quarter of an hour; QUICK=1 for a look, ONLY=row for one row
	@scripts/bench $(if $(ONLY),--only "$(ONLY)")

check: lint test ## lint, then test

lint: setup ## formatting, and clippy with warnings as errors
	@scripts/cargo fmt --all --check
	@scripts/cargo clippy --workspace --all-targets --features pg_test -- -D warnings

fmt: ## format the code
	@scripts/cargo fmt --all

install: ## into the PostgreSQL that PG_CONFIG names (default: the pg_config on PATH)
	@scripts/setup tools
	@scripts/install-into "$(PG_CONFIG)"

clean: ## delete what was built, and the private servers
	@scripts/clean

setup:
	@scripts/setup
