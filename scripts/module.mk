# Targets around the programs: packages, the demo, installing, releasing, looking at the code.
VERSION  := $(shell sed -n 's/^\#define THERMO_VERSION "\(.*\)"/\1/p' common/version.h)
C_FILES   = $(wildcard $(foreach d,$(DIRS) datasets/tools tests tests/*,$(d)/*.[ch]))
MODEL    ?= datasets/models/reglu-tales-10m-f16.gguf
DESTDIR  ?=
MEMORY   ?=
BASELINE ?=

.PHONY: deps demo pipeline bench accuracy man install uninstall dist format format-check format-wrap analyze

deps:
	$(Q)scripts/deps.sh

# The embedded model, from the GGUF to a story, in 18 MiB: less than its weights.
demo: all
	$(Q)BIN=$(BIN) scripts/demo.sh
# A model of yours: make pipeline MODEL=big.gguf MEMORY=2GiB PROMPT='Once upon a time'
pipeline: all
	$(Q)BIN=$(BIN) scripts/pipeline.sh --model '$(MODEL)' $(if $(MEMORY),--memory '$(MEMORY)') \
	    $(if $(PROMPT),--prompt "$$PROMPT") $(PIPELINE_FLAGS)
# Settings as `make bench RUNS=3 ...`: scripts/bench.sh --help
bench: all $(B)/tests/bench/bench_kernels
	$(Q)BIN=$(BIN) B=$(B) scripts/bench.sh $(BENCH_FLAGS)
# Settings as `make accuracy MODEL=... TRACES=...`: scripts/accuracy.py --help
accuracy: all
	$(Q)BIN=$(BIN) python3 -B scripts/accuracy.py $(ACCURACY_FLAGS)
export PROMPT

# Plans for every device of DEVICES (one CSV each) and every limit of MEMORY:
#   make plans MODEL=description.json|trace.h5 MEMORY="2GiB 4GiB" [DEVICES="datasets/devices/*.csv"] [PLANS=build/plans]
#              [PLAN_FLAGS="--context 1024"]
#   make plans-check BASELINE=folder [TOLERANCE=percent] and the same: compares with plans that were kept
# A plan is made again when the model, the device, the flags or the program are newer. docs/ci.md.
PLANS      ?= build/plans
DEVICES    ?= datasets/devices/*.csv
PLAN_FLAGS ?=
TOLERANCE  ?= 1
PLAN_DIR   := $(PLANS)/$(basename $(notdir $(MODEL)))
PLAN_CSVS  := $(wildcard $(DEVICES))
plan_name   = $(PLAN_DIR)/$(basename $(notdir $(1)))-$(2).json
PLAN_FILES := $(foreach d,$(PLAN_CSVS),$(foreach m,$(MEMORY),$(call plan_name,$(d),$(m))))

.PHONY: plans plans-check
plans: $(PLAN_FILES)
	@echo '$(words $(PLAN_FILES)) plans in $(PLAN_DIR)'
plans-check: $(PLAN_FILES)
	$(Q)BIN=$(BIN) scripts/plans-check.sh '$(PLAN_DIR)' '$(BASELINE)/$(notdir $(PLAN_DIR))' '$(TOLERANCE)' $(PLAN_FILES)

ifneq ($(filter plans plans-check,$(MAKECMDGOALS)),)
ifeq ($(filter %.json %.h5,$(MODEL)),)
$(error MODEL=$(MODEL): plans are made from a description (.json) or a trace (.h5))
endif
ifeq ($(MEMORY),)
$(error MEMORY="2GiB 4GiB": which limits to plan for is needed)
endif
ifeq ($(PLAN_CSVS),)
$(error DEVICES="$(DEVICES)": there is no such file)
endif
ifneq ($(words $(PLAN_FILES)),$(words $(sort $(PLAN_FILES))))
$(error DEVICES and MEMORY name a file or a limit twice: the plans would have the same name)
endif
ifneq ($(filter plans-check,$(MAKECMDGOALS)),)
ifeq ($(BASELINE),)
$(error BASELINE=folder: plans-check compares with the plans in there, made by make plans PLANS=folder)
endif
endif

define plan_rule
$(call plan_name,$(1),$(2)): $(MODEL) $(PLAN_DIR)/$(basename $(notdir $(1))).sqlite $(PLAN_DIR)/flags \
    $(BIN)/thermo-plan
	$(if $(V),,@echo "  PLAN  $$@")
	$(Q)$(BIN)/thermo-plan solve -q $(if $(filter %.json,$(MODEL)),--description,--traces) '$(MODEL)' --hardware \
	    '$(PLAN_DIR)/$(basename $(notdir $(1))).sqlite' --memory $(2) $(PLAN_FLAGS) --out '$$@' > '$$@.txt'
endef
define device_rule
$(PLAN_DIR)/$(basename $(notdir $(1))).sqlite: $(1) $(BIN)/thermo-profile
	@mkdir -p $$(@D) && rm -f '$$@' '$$@.tmp'
	$(Q)$(BIN)/thermo-profile import -q --db '$$@.tmp' --csv '$(1)' > /dev/null && mv '$$@.tmp' '$$@'
endef
$(foreach d,$(PLAN_CSVS),$(eval $(call device_rule,$(d)))$(foreach m,$(MEMORY),$(eval $(call plan_rule,$(d),$(m)))))

$(PLAN_DIR)/flags: force
	@mkdir -p $(@D)
	@echo '$(PLAN_FLAGS)' | cmp -s - $@ || echo '$(PLAN_FLAGS)' > $@
endif

MANUALS := $(foreach p,$(PROGRAMS),$(B)/man/$(bin_$(p)).1)
man: $(MANUALS)
$(B)/man/%.1: $(BIN)/% scripts/man.sh
	@mkdir -p $(@D)
	$(if $(V),,@echo "  MAN   $@")
	$(Q)scripts/man.sh $< > $@.tmp && mv $@.tmp $@

# With DESTDIR nothing outside it is touched; a phone needs `make runtime` and the one file only.
install: all man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/thermocline
	install -m 755 $(foreach p,$(PROGRAMS),$(BIN)/$(bin_$(p))) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(MANUALS) $(DESTDIR)$(PREFIX)/share/man/man1
	for f in $$(find schemas datasets -type f ! -name '.*' ! -name '*.tmp-*' ! -name module.mk ! -path 'datasets/tools/*'); do \
	    install -D -m 644 $$f $(DESTDIR)$(PREFIX)/share/thermocline/$$f || exit 1; done
	install -D -m 644 LICENSE $(DESTDIR)$(PREFIX)/share/doc/thermocline/LICENSE
	install -m 644 README.md CHANGELOG.md docs/ARCHITECTURE.md $(DESTDIR)$(PREFIX)/share/doc/thermocline
uninstall:
	rm -f $(foreach p,$(PROGRAMS),$(DESTDIR)$(PREFIX)/bin/$(bin_$(p)) $(DESTDIR)$(PREFIX)/share/man/man1/$(bin_$(p)).1)
	rm -rf $(DESTDIR)$(PREFIX)/share/thermocline $(DESTDIR)$(PREFIX)/share/doc/thermocline

# What git tracks, in one archive that is the same bytes each time.
dist:
	@mkdir -p build
	git archive --format=tar --prefix=thermocline-$(VERSION)/ HEAD | gzip -9n > build/thermocline-$(VERSION).tar.gz
	@ls -l build/thermocline-$(VERSION).tar.gz

# format-check reports and changes nothing; format-wrap breaks lines that are too long; format rewrites the FILES you
# name.
format-check:
	$(Q)python3 scripts/format_check.py $(C_FILES)
format-wrap:
	$(Q)python3 scripts/format_check.py --wrap $(C_FILES)
format:
	clang-format -i $(FILES)
analyze:
	$(Q)B=$(B) scripts/analyze.sh $(C_FILES)

help:
	@cat scripts/help.txt
