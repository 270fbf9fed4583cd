# gguf-make: re-quantised and random-weight models, for tests and comparisons. A developer's tool, not installed.
datasets/tools_src := $(notdir $(wildcard datasets/tools/*.c))

.PHONY: gguf-make
all: gguf-make
gguf-make: $(BIN)/gguf-make
$(BIN)/gguf-make: $(call objs,datasets/tools) $(B)/common.a $(B)/link.flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) $(filter-out %.flags,$^) $(LDLIBS_common)

# gguf-synth: models with a stated activation pattern, of any size (docs/synthetic-models.md).
datasets/synth_src := $(notdir $(wildcard datasets/synth/*.c))

.PHONY: gguf-synth
all: gguf-synth
gguf-synth: $(BIN)/gguf-synth
$(BIN)/gguf-synth: $(call objs,datasets/synth) $(B)/common.a $(B)/link.flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(link) $(filter-out %.flags,$^) $(LDLIBS_common)
