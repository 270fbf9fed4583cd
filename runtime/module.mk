runtime_src := $(notdir $(wildcard runtime/*.c))
