# Test programs print TAP and exit 0 (pass), 1 (fail) or 77 (skip); scripts likewise. They may link any
# module of any program: the linker takes from the archives what each one names. Helpers that scripts call are
# tests/tools/*.c, built as $(B)/tests/tools/NAME.
TEST_DIRS    := unit kernels formats
TEST_PROGS   := $(patsubst %.c,$(B)/%,$(wildcard $(TEST_DIRS:%=tests/%/test_*.c)))
TEST_SCRIPTS := $(sort $(wildcard tests/cli/*.sh tests/e2e/*.sh))
TEST_TOOLS   := $(patsubst %.c,$(B)/%,$(wildcard tests/tools/*.c))
FUZZ_SRC     := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_REPLAY  := $(FUZZ_SRC:%.c=$(B)/%)
TEST_RULES   := tests/check-layers.sh tests/check-headers.sh tests/check-symbols.sh tests/check-lines.sh tests/check-words.sh \
                tests/check-print.sh
# And what takes longer.
TEST_RULES_ALL = $(TEST_RULES) $(if $(TEST_RULES),tests/check-tidy.sh)
TEST_LIBS    := $(PROGRAMS:%=$(B)/%.a) $(B)/common/offline.a $(B)/common.a
TEST_ENV     := TEST_RUNNER='$(TEST_RUNNER)' BIN=$(BIN) B=$(B) CC='$(CC)' MAKE='$(MAKE)' SANITIZE=$(SANITIZE)
# What takes longest begins first, so that none of it is left alone at the end.
TEST_LONG    := $(addprefix tests/cli/,server-storm.sh thermocline-killed.sh plan.sh thermocline.sh hostile.sh consume.sh quantize.sh limits.sh \
                slurm.sh batches.sh phone.sh elastic.sh room.sh ceiling.sh bench.sh gains.sh mutations.sh report.sh engines-plan.sh guess-batches.sh) \
                $(addprefix tests/e2e/,predicted.sh archs.sh engines-prompts.sh real.sh types.sh memory.sh soak.sh mtp.sh) \
                $(filter %/test_thermo %/test_planning_layouts %/test_planning_predicted %/test_planning %/test_batch %/test_engine %/test_session %/test_io %/test_kernels %/test_engine_predict,$(TEST_PROGS))
# What looks at sources, makefiles, scripts, data sets and documents: the same whatever the programs were built with, and left out under
# sanitizers. Commands that the scripts among them run are other tests' as well.
TEST_ONCE    := $(TEST_RULES) $(wildcard $(addprefix tests/,$(addprefix cli/,bench.sh bench-serve.sh build.sh completions.sh datasets.sh matrix.sh regret.sh \
                devices.sh docs.sh hardened.sh install.sh plans.sh prompts.sh reproducible.sh runner.sh scripts.sh)))
# What looks at results on disk alone, by commands that other tests run: left out under sanitizers as well.
TEST_ONCE    += tests/cli/beside.sh
# What reaches almost no branch of ours that other tests do not reach (140 of 47,849 edges of the programs' control flow, by gcov), and
# takes a third of the time: in check-all alone. What these scripts compare are results.
TEST_SAME    := $(addprefix tests/,cli/phones.sh cli/slurm.sh e2e/bit-identity.sh e2e/memory.sh e2e/mixed.sh e2e/predicted.sh \
                e2e/readme.sh e2e/reference.sh e2e/types.sh) $(filter %/test_paper_z3 %/test_planning_layouts %/test_configs,$(TEST_PROGS))
# The same by make edges, of what was left then: 13 of 95,002 edges (lines and ways of branches), 19 of 815 CPU-seconds (docs/ci.md).
TEST_SAME    += $(addprefix tests/,cli/verbose.sh e2e/routes.sh e2e/smallthinker.sh)
# And of what was left after that: 25 of 96,093 edges, 59 of 1,882 CPU-seconds under sanitizers.
TEST_SAME    += $(addprefix tests/,cli/gguf-make.sh cli/outputs.sh cli/thermocline-interrupt.sh cli/thermocline-killed.sh cli/solve-verify.sh e2e/synth.sh)
# And then: 97 of 96,997 edges that the tests reached which sanitizers ran, 169 of 1,493 CPU-seconds.
TEST_SAME    += tests/cli/mutations.sh $(filter %/test_predictor_set_quality %/test_solve %/test_forward,$(TEST_PROGS))
# Whether what two commands say of a plan agrees (explain and solve run as plan.sh, report.sh and describe.sh run them), and programs as other
# tests run them, on a model that is downloaded and on the embedded one.
TEST_SAME    += $(addprefix tests/,cli/gains.sh cli/properties.sh e2e/demo.sh e2e/real.sh)
# Programs for aarch64 with pages of three sizes, emulated (after make static-aarch64).
TEST_SAME    += tests/cli/pages.sh
# A device's steps by stand-ins for adb and a phone's shell, and over ssh, for the most part scripts' (37 CPU-seconds).
TEST_SAME    += tests/cli/device.sh
# The matrix of docs/ci.md: what plans.sh does, as it is written there (27 CPU-seconds).
TEST_SAME    += tests/cli/matrix.sh
# A machine measured by two programs that are the same code.
TEST_SAME    += tests/cli/both.sh
# thermo-serve as clients of Python see it, where they are installed: what server.sh and server-forms.sh ask, by other means and longer.
TEST_SAME    += $(addprefix tests/cli/,server-anthropic.sh server-clients.sh server-openai.sh server-storm.sh)
# The page of thermo-serve in a browser, where there is one.
TEST_SAME    += tests/cli/page.sh
# What runs scripts and makefiles at length: 13 edges of 100,874, 51 of 518 CPU-seconds.
TEST_SAME    += $(addprefix tests/cli/,regret.sh bench.sh bench-serve.sh completions.sh install.sh plans.sh)
TEST_ALL     := $(TEST_LONG) $(filter-out $(TEST_LONG),$(TEST_SCRIPTS) $(TEST_PROGS) $(FUZZ_REPLAY))
# What make check and check-all run where TESTS is not given: what reaches our code, and every test.
TESTS        ?= $(filter-out $(if $(SANITIZE),$(TEST_ONCE)) $(TEST_SAME),$(TEST_ALL))
TESTS_ALL    := $(if $(filter file,$(origin TESTS)),$(TEST_ALL),$(TESTS))
# A first answer: rules, modules, formats, corpora of the fuzzers, and all programs on a tiny model.
TEST_FAST    := $(filter-out $(TEST_SAME) %/test_planning %/test_engine %/test_kernels %/test_corruption %/test_batch,$(TEST_PROGS)) $(FUZZ_REPLAY) tests/e2e/quick.sh
# Where threads meet (and the forms of answers), and the archives that these need: planner and profiler have no part in it, and need not be built for it.
THREAD_LIBS  := $(B)/server.a $(B)/runtime.a $(B)/packer.a $(B)/common/offline.a $(B)/common.a
TEST_THREADS := $(filter $(addprefix $(B)/tests/unit/test_,form http pool batch io% read_queue scheduler compute pipeline% engine% dense% session% runtime% thermo%),$(TEST_PROGS))

# The kernels' tests need these modules alone and no third-party library, so they cross-compile.
LEAN_OBJS    := $(filter %/err.o %/print.o %/nn.o %/cpu.o,$(call objs,common)) $(filter $(B)/common/kernels/quant% $(B)/common/kernels/kernels%,$(call objs,common))
ifneq ($(common_guarded),)
LEAN_OBJS    := $(filter-out %/kernels_guard.o,$(foreach o,$(LEAN_OBJS),$(if $(filter %/kernels.o $(common_plain),$o),$(o:$(B)/%=$(B)/instrumented/%),$o)))
endif
LEAN_TESTS   := $(filter %/test_quant %/test_cpu %/test_nn %/test_kernels,$(TEST_PROGS))
BENCH_KERNELS := $(B)/tests/bench/bench_kernels
BENCH_ATTENTION := $(B)/tests/bench/bench_attention

$(filter-out $(LEAN_TESTS) $(TEST_THREADS),$(TEST_PROGS)) $(TEST_TOOLS): $(B)/%: $(B)/%.o $(TEST_LIBS) $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) $(filter %.o,$^) $(TEST_LIBS) $(LDLIBS_linalg) $(LDLIBS_planner)
$(B)/tests/tools/activation-fit: $(B)/datasets/synth/curve.o
$(TEST_THREADS): $(B)/%: $(B)/%.o $(THREAD_LIBS) $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) $< $(THREAD_LIBS) $(LDLIBS_linalg) -lmicrohttpd $(LDLIBS_packer)
$(LEAN_TESTS) $(BENCH_KERNELS) $(BENCH_ATTENTION): %: %.o $(LEAN_OBJS) $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) $(filter-out %.flags,$^) -lm -pthread

# Kernels on aarch64, emulated: make check-qemu [CROSS=aarch64-linux-gnu-gcc]
CROSS ?= aarch64-linux-gnu-gcc
# The schema of plans, from the table that reads and writes them (common/plan/plan_fields.c).
.PHONY: schemas
schemas: $(B)/tests/tools/plan-schema
	$(Q)$< > schemas/plan.schema.json

# What masks of schemas add to a pass: tests/bench/bench_masks.c. Their times are taken at the calls of the library's.
BENCH_MASKS  := $(B)/tests/bench/bench_masks
$(BENCH_MASKS): %: %.o $(B)/runtime.a $(B)/common.a $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) -Wl,--wrap=mask_allowed -Wl,--wrap=mask_accept $(filter-out %.flags,$^) $(LDLIBS_common)

bench-attention: $(BENCH_ATTENTION)
	$(Q)$< $(BENCH_ARGS)
.PHONY: bench-kernels bench-attention bench-tiers check-qemu lean-tests
bench-kernels: $(BENCH_KERNELS)
	$(Q)$< $(BENCH_ARGS)
# Each tier beside what its instructions can do by themselves, and the code that it takes.
bench-tiers: $(BENCH_KERNELS)
	$(Q)$< --table $(BENCH_ARGS)
	$(Q)size $(patsubst %.c,$(B)/common/%.o,kernels/kernels_scalar.c $(common_src_$(ARCH)))
lean-tests: $(LEAN_TESTS)
	$(Q)$(TEST_ENV) tests/run.sh $(B)/tests $(LEAN_TESTS)
check-qemu:
	$(Q)$(MAKE) --no-print-directory CC=$(CROSS) TEST_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu' lean-tests

.PHONY: check check-all check-changed check-fast check-threads check-units check-units-rest check-rules tests tests-rest
.PHONY: check-layers check-headers check-symbols check-lines check-words check-print check-tidy
# With sanitizers those that run.
tests: $(if $(SANITIZE),$(filter $(TESTS),$(TEST_PROGS)),$(TEST_PROGS) $(BENCH_MASKS)) $(TEST_TOOLS)
check-units: $(TEST_PROGS) $(TEST_TOOLS)
	$(Q)$(TEST_ENV) tests/run.sh $(B)/tests $(TEST_PROGS)
# What another compiler may find and nothing else, in short runs: without those of check-threads, which it builds with its thread sanitizer, and
# those that reach nothing that the others do not. All else is compiled, for its warnings.
TEST_REST    := $(filter-out $(TEST_THREADS) $(TEST_SAME),$(TEST_PROGS))
tests-rest: $(TEST_REST) $(patsubst %,%.o,$(filter-out $(TEST_THREADS) $(TEST_REST),$(TEST_PROGS)) $(TEST_TOOLS) $(BENCH_MASKS))
check-units-rest: tests-rest
	$(Q)$(TEST_ENV) TEST_SHORT=1 tests/run.sh $(B)/tests $(TEST_REST)
# Short runs of what reaches our code; every test, whole.
check: all tests $(FUZZ_REPLAY)
	$(Q)$(TEST_ENV) TEST_SHORT=1 tests/run.sh $(B)/tests $(if $(SANITIZE),,$(TEST_RULES)) $(TESTS)
check-all: all tests $(filter $(TESTS_ALL),$(TEST_PROGS)) $(FUZZ_REPLAY)
	$(Q)$(TEST_ENV) tests/run.sh $(B)/tests $(if $(SANITIZE),,$(TEST_RULES_ALL)) $(TESTS_ALL)
# Those alone whose inputs are others than when they passed last.
check-changed: export CHANGED = 1
check-changed: check
check-fast: all $(filter $(B)/%,$(TEST_FAST))
	$(Q)$(TEST_ENV) TEST_SHORT=1 tests/run.sh $(B)/tests $(TEST_RULES) $(TEST_FAST)
check-threads: $(TEST_THREADS)
	$(Q)$(TEST_ENV) tests/run.sh $(B)/tests $(TEST_THREADS)
check-rules: all $(TEST_LIBS)
	$(Q)$(TEST_ENV) tests/run.sh $(B)/tests $(TEST_RULES_ALL)
check-layers check-headers check-symbols check-lines check-words check-print check-tidy: runtime $(TEST_LIBS)
	$(Q)$(TEST_ENV) tests/$@.sh

# What each test of check-all reaches of the programs that no other test reaches, by gcov, and its CPU time (of LOGS, a run of any variant):
# tests/edges.py. Without what looks at sources and scripts; what fails in such a build (memory that runs out) is counted as far as it comes.
# EDGES_OF=check: of check; after both, EDGES_FLAGS='--against build/edges/counts/check' lists what check-all reaches alone.
EDGES_BUILD  := B=build/edges CFLAGS='-O1 --coverage' LDFLAGS=--coverage
EDGES_OF     ?= check-all
EDGES_COUNTS := build/edges/counts/$(EDGES_OF)
LOGS         ?= build/edges/tests/log
.PHONY: edges edges-chain
edges:
	$(Q)rm -rf $(EDGES_COUNTS) build/edges/tests/chain
	$(Q)$(MAKE) --no-print-directory $(EDGES_BUILD) edges-chain
	-$(Q)$(MAKE) --no-print-directory $(EDGES_BUILD) TEST_RULES= TEST_RUNNER='tests/edges.py run $(EDGES_COUNTS)' \
	    TESTS='$(patsubst $(B)/%,build/edges/%,$(filter-out $(TEST_ONCE),$(if $(filter check-all,$(EDGES_OF)),$(TESTS_ALL),$(TESTS))))' $(EDGES_OF)
	$(Q)tests/edges.py report build/edges $(EDGES_COUNTS) $(LOGS) $(EDGES_FLAGS)
# Made once for all tests, whichever comes first: no test's own.
edges-chain: all
	$(Q)GCOV_PREFIX=$(CURDIR)/$(EDGES_COUNTS)/chain $(TEST_ENV) sh -c '. tests/chain.sh'

# Every byte of small packs flipped, one at a time, in every layout form and mode; check-all and check try a sample of them.
.PHONY: corrupt
corrupt: $(B)/tests/unit/test_corruption
	$(Q)for k in $$(seq 0 $$(($$(nproc) - 1))); do CORRUPT=$$k/$$(nproc) $< > $(B)/corrupt-$$k.log & \
	    all="$$all $$!"; done; r=0; for p in $$all; do wait $$p || r=1; done; \
	    grep -h -e '^#' -e '^not ok' $(B)/corrupt-*.log; exit $$r

# thermo-run under load for MINUTES, on the pack that the tests share: scripts/soak.py --help
MINUTES ?= 10
.PHONY: soak
soak: all
	$(Q)$(TEST_ENV) MINUTES=$(MINUTES) sh -c '. tests/chain.sh; exec python3 -B scripts/soak.py --model "$$packed" --plan "$$plan" \
	    --minutes "$$MINUTES" $(SOAK_FLAGS)'

# Proofs of COUNT random plans' gaps, refuted by Z3 and by the program z3 where it is: tests/certificates.py
COUNT ?= 50
.PHONY: certificates
certificates: all
	$(Q)$(TEST_ENV) sh -c '. tests/chain.sh; TRACE=$$traces exec tests/certificates.py $(COUNT)'

# COUNT random models by description, planned and checked: tests/descriptions.py
.PHONY: descriptions
descriptions: all
	$(Q)$(TEST_ENV) tests/descriptions.py $(COUNT)

# Every leaf of plans of several kinds, changed in every way: what check does not notice, it lists. tests/mutations.py
.PHONY: mutations
mutations: all
	$(Q)$(TEST_ENV) sh -c '. tests/chain.sh; TRACE=$$traces exec tests/mutations.py 0'

# What must hold of proven plans, on COUNT random problems: tests/properties.py
.PHONY: properties
properties: all
	$(Q)$(TEST_ENV) sh -c '. tests/chain.sh; TRACE=$$traces exec tests/properties.py $(COUNT)'

# Fuzzing. The targets are tests/fuzz/fuzz_NAME.c (LLVMFuzzerTestOneInput), their inputs tests/fuzz/corpus/NAME/.
# `make check` replays corpora, cut and damaged in many places, with any compiler; `make fuzz` lets
# clang's libFuzzer search for FUZZ_SECONDS per target.
FUZZ_SECONDS ?= 60
FUZZ_CFLAGS  ?= -O1 -gline-tables-only
FUZZ_BUILD   := SANITIZE=address,undefined,fuzzer-no-link CC=clang CFLAGS='$(FUZZ_CFLAGS)'
# The parsers, and what they name, are in these; a target that needs more says so when it is linked.
FUZZ_LIBS    := $(B)/tests/fuzz/parsers.a
FUZZ_OBJS    := $(filter-out %/main.o %/args.o $(B)/planner/cmd_% $(B)/planner/report/%,$(call objs,planner)) \
                $(filter %/results.o,$(call objs,runtime)) $(filter %/table.o %/layouts.o %/floor.o,$(call objs,common/offline)) $(filter-out $(B)/common/cli/%,$(call objs,common))
# Lines that the runtime reads: planner and runtime have a module of the same name each.
FUZZ_LINES   := $(addprefix tests/fuzz/fuzz_,answers.c ask.c calls.c chat.c kv.c mask.c request.c)
FUZZ_RUNTIME := $(B)/tests/fuzz/runtime.a

$(FUZZ_LINES:%.c=$(B)/%): $(B)/%: $(B)/%.o $(B)/tests/fuzz/replay.o $(THREAD_LIBS) $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) $< $(B)/tests/fuzz/replay.o $(THREAD_LIBS) $(LDLIBS_linalg) $(LDLIBS_packer)
$(filter-out $(FUZZ_LINES:%.c=$(B)/%),$(FUZZ_REPLAY)): $(B)/%: $(B)/%.o $(B)/tests/fuzz/replay.o $(TEST_LIBS) $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) $< $(B)/tests/fuzz/replay.o $(TEST_LIBS) $(LDLIBS_linalg) $(LDLIBS_planner)
$(FUZZ_LIBS): $(FUZZ_OBJS)
	$(if $(V),,@echo "  AR    $@")
	$(Q)rm -f $@ && $(AR) $(ARFLAGS) $@ $^
$(FUZZ_RUNTIME): $(filter-out %/main.o $(B)/runtime/cmd_%,$(call objs,runtime)) $(call objs,common) $(addprefix $(B)/server/,ask.o bodies.o ask_chat.o ask_messages.o ask_responses.o ask_tools.o buffer.o door.o talk.o)
	$(if $(V),,@echo "  AR    $@")
	$(Q)rm -f $@ && $(AR) $(ARFLAGS) $@ $^
$(FUZZ_LINES:%.c=$(B)/%-libfuzzer): $(B)/%-libfuzzer: $(B)/%.o $(FUZZ_RUNTIME) $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) -fsanitize=fuzzer $< $(FUZZ_RUNTIME) $(LDLIBS_linalg) $(LDLIBS_packer)
$(filter-out $(FUZZ_LINES:%.c=$(B)/%-libfuzzer),$(FUZZ_SRC:%.c=$(B)/%-libfuzzer)): $(B)/%-libfuzzer: $(B)/%.o $(FUZZ_LIBS) $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) -fsanitize=fuzzer $< $(FUZZ_LIBS) $(LDLIBS_linalg) $(LDLIBS_planner)

.PHONY: fuzz fuzz-programs fuzz-run
fuzz-programs: $(FUZZ_SRC:%.c=$(B)/%-libfuzzer)
fuzz-run: fuzz-programs
	$(Q)tests/fuzz/run.sh $(B) $(FUZZ_SECONDS) $(FUZZ_SRC)
fuzz:
	$(Q)$(MAKE) --no-print-directory $(FUZZ_BUILD) fuzz-run

# Tests take the place of functions that libraries call.
$(B)/tests/%.o: CFLAGS_file += -fvisibility=default
# This test writes what our own writer never would.
$(B)/tests/formats/test_trace_bad.o $(B)/tests/tools/misguess.o: CPPFLAGS_file += $(shell pkg-config --cflags hdf5-serial 2>/dev/null)

# One fault at a time: allocations that fail (a preloaded library), system calls that fail or are cut short, kills and lost power
# (a tracer). make faults tries them all, FAULTS_MOST at most of each kind for each command; check-all tries a sample.
FAULTS       := $(B)/tests/faults/faults
FAULTS_SHIM  := $(B)/tests/faults/shim.so
FAULTS_MOST  ?= 0
FAULTS_OBJS  := $(patsubst %.c,$(B)/%.o,$(filter-out %/shim.c,$(wildcard tests/faults/*.c)))
$(FAULTS): $(FAULTS_OBJS) $(B)/link.flags
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) $(FAULTS_OBJS)
$(FAULTS_SHIM): tests/faults/shim.c tests/faults/shim.h
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) -I. -D_GNU_SOURCE -std=c11 -O2 -g -Wall -Wextra $(WERROR) -shared -fPIC -o $@ $<
tests: $(FAULTS) $(FAULTS_SHIM)
.PHONY: faults
faults: all $(FAULTS) $(FAULTS_SHIM)
	$(Q)$(TEST_ENV) tests/faults/run.sh $(B)/faults $(FAULTS_MOST)
