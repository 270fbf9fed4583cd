# gguf-make: re-quantised and random-weight models, for tests and comparisons. A developer's tool, not installed.
datasets/tools_src := $(notdir $(wildcard datasets/tools/*.c))

.PHONY: gguf-make
all: gguf-make
gguf-make: $(BIN)/gguf-make
$(BIN)/gguf-make: $(call objs,datasets/tools) $(B)/common.a
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS_common)
