# Targets around the programs: packages, the demo, installing, releasing, looking at the code.
VERSION  := $(shell sed -n 's/^\#define THERMO_VERSION "\(.*\)"/\1/p' common/base/version.h)
C_FILES   = $(wildcard $(foreach d,$(DIRS) datasets/tools tests tests/*,$(d)/*.[ch]))
MODEL    ?= datasets/models/reglu-tales-10m-f16.gguf
DESTDIR  ?=
MEMORY   ?=
BASELINE ?=

.PHONY: deps demo real pipeline bench bench-masks bench-serve regret adapt quality gpu format format-check analyze

deps:
	$(Q)scripts/deps.sh

# The embedded model, from the GGUF to a story, in 18 MiB: less than its weights.
demo: export THERMOCLINE_TYPED := make demo DEMO_FLAGS=
demo: export THERMOCLINE_FLAGS := $(value DEMO_FLAGS)
demo: all
	$(Q)BIN=$(BIN) scripts/demo.sh $(DEMO_FLAGS)
# A real model, from a Python package, in two thirds of its size. Settings as `make real REAL_FLAGS='--memory 96MiB'`.
real: export THERMOCLINE_TYPED := make real REAL_FLAGS=
real: export THERMOCLINE_FLAGS := $(value REAL_FLAGS)
real: all
	$(Q)BIN=$(BIN) scripts/real.sh $(REAL_FLAGS)
# A model of yours: make pipeline MODEL=big.gguf MEMORY=2GiB PROMPT='Once upon a time'
# The values reach the shell as they were given, whatever characters they hold.
pipeline: export PIPELINE_MODEL := $(value MODEL)
pipeline: export PIPELINE_MEMORY := $(value MEMORY)
pipeline: export PIPELINE_PROMPT := $(value PROMPT)
pipeline: export THERMOCLINE_FLAGS := $(if $(MEMORY),--memory $(value MEMORY) )$(value PIPELINE_FLAGS)
pipeline: all
	$(Q)quoted() { printf %s "$$1" | sed "s/'/'\\\\''/g; 1s/^/'/; \$$s/\$$/'/"; }; \
	THERMOCLINE_TYPED="make pipeline MODEL=$$(quoted "$$PIPELINE_MODEL")$${PIPELINE_PROMPT:+ PROMPT=$$(quoted "$$PIPELINE_PROMPT")} PIPELINE_FLAGS=" \
	    BIN=$(BIN) $(BIN)/thermocline "$$PIPELINE_MODEL" $${PIPELINE_MEMORY:+--memory "$$PIPELINE_MEMORY"} \
	    $${PIPELINE_PROMPT:+--prompt "$$PIPELINE_PROMPT"} $(PIPELINE_FLAGS)
# Settings as `make bench RUNS=3 ...`: scripts/bench.sh --help
bench: all $(B)/tests/bench/bench_kernels
	$(Q)BIN=$(BIN) B=$(B) scripts/bench.sh $(BENCH_FLAGS)
# What masks of schemas add to a pass, and thermo-serve beside another server: settings as scripts/bench_masks.sh and bench_serve.sh say.
bench-masks: all $(BENCH_MASKS)
	$(Q)BIN=$(BIN) B=$(B) scripts/bench_masks.sh $(BENCH_FLAGS)
bench-serve: all
	$(Q)BIN=$(BIN) scripts/bench_serve.sh $(WHAT) $(BENCH_FLAGS)
# How true plans are here, and how good their choices: make regret REGRET="--quick"; scripts/regret.py --help
regret: all
	$(Q)BIN=$(BIN) python3 -B scripts/regret.py $(REGRET)
# What the online choice brings here: make adapt ADAPT="--model m.thermo --plan p.json"; scripts/adapt.py --help
adapt: all
	$(Q)BIN=$(BIN) python3 -B scripts/adapt.py $(ADAPT)
# What a budget of quality brings: make quality QUALITY="--memory 14MiB"; scripts/quality.py --help
quality: all
	$(Q)BIN=$(BIN) python3 -B scripts/quality.py $(QUALITY)
# An accelerator's tests, figures and speeds, within ten minutes: make gpu GPU="--device 1"; scripts/gpu.py --help
gpu: all $(B)/tests/unit/test_opencl $(B)/tests/unit/test_engine_accel $(B)/tests/unit/test_engine_rest
	$(Q)BIN=$(BIN) B=$(B) python3 -B scripts/gpu.py $(GPU)
export PROMPT

# Plans for every device of the CSVs DEVICES and every limit of MEMORY:
#   make plans MODEL=description.json|trace.h5 MEMORY="2GiB 4GiB" [DEVICES="datasets/devices/*.csv"] [PLANS=build/plans]
#              [PLAN_FLAGS="--context 1024"]
#   make plans-check BASELINE=folder [TOLERANCE=percent] and the same: compares with plans that were kept
# Summary and JUnit XML go to PLANS_REPORT. make returns 2 whatever fails: scripts/plans.py returns the status. docs/ci.md.
PLANS        ?= build/plans
PLANS_STATE  ?= build/plans-state
PLANS_REPORT ?= build/plans-report
DEVICES      ?= datasets/devices/*.csv
PLAN_FLAGS   ?=
TOLERANCE    ?= 1

.PHONY: plans plans-check
# Through the environment, so that the shell takes no name apart. As many plans at a time as make's -j says.
plans plans-check: export P_MODEL = $(MODEL)
plans plans-check: export P_MEMORY = $(MEMORY)
plans plans-check: export P_DEVICES = $(DEVICES)
plans plans-check: export P_PLANS = $(PLANS)
plans plans-check: export P_STATE = $(PLANS_STATE)
plans plans-check: export P_REPORT = $(PLANS_REPORT)
plans plans-check: export P_FLAGS = $(PLAN_FLAGS)
plans-check: export P_BASELINE = $(BASELINE)
plans-check: export P_TOLERANCE = $(TOLERANCE)
plans plans-check: planner profiler
	$(Q)BIN=$(BIN) scripts/plans.py --model "$$P_MODEL" --memory "$$P_MEMORY" --devices "$$P_DEVICES" --plans "$$P_PLANS" \
	    --state "$$P_STATE" --flags="$$P_FLAGS" --json "$$P_REPORT/plans.json" --junit "$$P_REPORT/plans.xml" \
	    --jobs '$(or $(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS))),$(if $(filter -j,$(MAKEFLAGS)),0,1))' \
	    $(if $(filter plans-check,$@),--baseline "$$P_BASELINE" --tolerance "$$P_TOLERANCE")
ifneq ($(filter plans-check,$(MAKECMDGOALS)),)
ifeq ($(BASELINE),)
$(error BASELINE=folder: plans-check compares with the plans in there, made by make plans PLANS=folder)
endif
endif

# What each device of the CSVs can run, and what binds it: a page, tables and JSON in DEVICES_REPORT. docs/devices.md.
#   make devices [MODELS="a.json b.h5"] [MEMORY="2GiB 4GiB"] [DEVICES=...] [PLAN_FLAGS=...]
DEVICES_REPORT ?= build/devices
MODELS         ?=

.PHONY: devices
devices: export P_MODELS = $(MODELS)
devices: export P_MEMORY = $(MEMORY)
devices: export P_DEVICES = $(DEVICES)
devices: export P_STATE = $(PLANS_STATE)
devices: export P_REPORT = $(DEVICES_REPORT)
devices: export P_FLAGS = $(PLAN_FLAGS)
devices: planner profiler
	$(Q)set --; for m in $$P_MODELS; do set -- "$$@" --model "$$m"; done; \
	BIN=$(BIN) scripts/devices.py "$$@" --memory "$$P_MEMORY" --devices "$$P_DEVICES" --plans "$$P_REPORT/plans" --state "$$P_STATE" \
	    --flags="$$P_FLAGS" --page "$$P_REPORT/devices.html" --markdown "$$P_REPORT/devices.md" --json "$$P_REPORT/devices.json" \
	    --jobs '$(or $(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS))),$(if $(filter -j,$(MAKEFLAGS)),0,1))'

# How much memory models of several sizes should get on three classes of devices, and what it should hold: tables in STUDY_REPORT.
# docs/study.md.   make study [STUDY="--models 7B --devices phone --batches 1,8"]
STUDY_REPORT ?= build/study
STUDY        ?=

.PHONY: study
study: planner profiler
	$(Q)mkdir -p $(STUDY_REPORT) && BIN=$(BIN) scripts/study.py --json $(STUDY_REPORT)/study.json --markdown $(STUDY_REPORT)/study.md $(STUDY)

# format-check reports and changes nothing; format rewrites the FILES you name.
format-check:
	$(Q)python3 scripts/format_check.py $(C_FILES)
format:
	clang-format -i $(FILES)
analyze: $(B)/hwdb_sql.inc $(B)/opencl_kernels.inc
	$(Q)B=$(B) scripts/analyze.sh $(C_FILES)

help:
	@cat scripts/help.txt
