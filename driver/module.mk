driver_src := $(notdir $(wildcard driver/*.c))
